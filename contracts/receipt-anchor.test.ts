// ReceiptAnchor obeys the operator of each factory alone, keeps nothing, and costs little.
import { encodeFunctionData, type Hex, keccak256, parseEventLogs, zeroHash } from "viem"
import { afterAll, beforeAll, expect, it } from "vitest"
import { receiptAnchorAbi as abi, depositFactoryAbi } from "../server/src/platform/chain/abi.ts"
import type { Address, Hash } from "../server/src/platform/chain/hex.ts"
import { anchorData, anchorDeployment, anchorGas, type Written } from "../server/src/platform/chain/receipt-anchor.ts"
import { type Anvil, deployDepositFactory, placeSharedContracts, startAnvil } from "../server/test/anvil.ts"
import { RECEIPT_ANCHOR } from "../verify/src/chain.ts"

const ID = "0f8b2c1e-5d7a-4e0f-9b3c-6d8a1e2f4b5c"
const KEY = "A".repeat(43)
const root = (n: number) => `0x${n.toString(16).padStart(64, "0")}` as Hash
let anvil: Anvil
let factory: Address
beforeAll(async () => {
  anvil = await startAnvil()
  await placeSharedContracts(anvil.client)
  factory = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
})
afterAll(() => anvil?.stop())

const send = async (n: 1 | 2, data: Hex, gas = 500_000n) => {
  const account = anvil.accounts[n]
  const hash = await anvil.client.sendTransaction({ account, to: anchorDeployment.address, data, gas })
  return await anvil.client.waitForTransactionReceipt({ hash })
}
const revoke = () => encodeFunctionData({ abi, functionName: "revoke", args: [factory, root(7)] })

it("is where the verifier looks for it", () => {
  expect(RECEIPT_ANCHOR).toBe(anchorDeployment.address)
})

it("takes keys and roots from the factory's operator, in the order in which they are", async () => {
  const key = await send(1, anchorData(ID, factory, { key: KEY }))
  expect(parseEventLogs({ abi, logs: key.logs })).toMatchObject([{ eventName: "Key", args: { thumbprint: zeroHash } }])
  const written = { prevRoot: root(1), roots: [root(2), root(3)] }
  const roots = await send(1, anchorData(ID, factory, written), anchorGas(written))
  expect(parseEventLogs({ abi, logs: roots.logs }).map(({ args }) => args)).toMatchObject([
    { root: root(2), prevRoot: root(1) },
    { root: root(3), prevRoot: root(2) },
  ])
  expect(parseEventLogs({ abi, logs: (await send(1, revoke())).logs })).toMatchObject([{ eventName: "Revoked" }])
})

it("refuses everybody else, and whoever was the operator before", async () => {
  const calls = [
    anchorData(ID, factory, { key: KEY }),
    anchorData(ID, factory, { prevRoot: null, roots: [root(9)] }),
    revoke(),
  ]
  for (const data of calls) expect((await send(2, data)).status).toBe("reverted")
  const replace = {
    address: factory,
    abi: depositFactoryAbi,
    functionName: "setOperator",
    args: [anvil.accounts[2].address],
  } as const
  await anvil.client.writeContractSync(replace)
  for (const data of calls)
    expect([(await send(1, data)).status, (await send(2, data)).status]).toEqual(["reverted", "success"])
})

it("costs some 30,000 gas for a root, and its gas limit is enough for two hundred", async () => {
  const gasOf = async (n: number) => {
    const written = {
      prevRoot: keccak256("0x"),
      roots: Array.from({ length: n }, (_, i) => keccak256(root(i))),
    } as unknown as Written
    const { status, gasUsed } = await send(2, anchorData(ID, factory, written), anchorGas(written))
    expect(status).toBe("success")
    return gasUsed
  }
  const one = await gasOf(1)
  const many = await gasOf(200)
  expect(one).toBeLessThan(33_000n)
  expect((many - one) / 199n).toBeLessThan(3_500n)
  process.stdout.write(`gas: ${one} for one root, ${(many - one) / 199n} for each more\n`)
})
