// The deposit contracts call by call: what is refused and why, what works while the factory is paused, how the factory is
// deployed, that the committed bytecode is what the sources give, and what everything costs. Random attacks are in
// deposit-properties.test.ts.

import { readFileSync } from "node:fs"
import { concat, encodeFunctionData, type Hex, keccak256, parseEventLogs, toHex, zeroAddress, zeroHash } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { factoryDeployment } from "../server/src/ledger/deposits/factory-deployment.ts"
import {
  depositAbi,
  depositFactoryAbi,
  depositFactoryBytecode,
  depositFactoryRuntime,
  testUsdcAbi,
} from "../server/src/platform/chain/abi.ts"
import {
  addressOfTerms,
  implementationOf,
  type Payee,
  payeeLists,
  payeesHash,
  type TermsArgument,
} from "../server/src/platform/chain/deposit-terms.ts"
import { type GiveBack, giveBackData } from "../server/src/platform/chain/give-back.ts"
import { type Address, ZERO_ADDRESS } from "../server/src/platform/chain/hex.ts"
import { type Anvil, deployContractWallet, deployTestUsdc, revertOf, startAnvil } from "../server/test/anvil.ts"
import { compile, readSources } from "./compile.ts"

/** With OpenZeppelin's errors, which come through the factory. */
const abi = [...depositFactoryAbi, ...depositAbi] as const
const DAY_S = 86_400n
const chainId = 84532
const low = (account: PrivateKeyAccount) => account.address.toLowerCase() as Address
/** An address without tokens or ether, none of whose bytes is zero. */
const fresh = (n: number) => keccak256(toHex(n)).slice(0, 42).replaceAll("00", "11") as Address

interface Deposit {
  salt: Hex
  terms: TermsArgument
  payees: Payee[]
  address: Address
}

let anvil: Anvil
let send: Anvil["client"]["writeContractSync"]
let usdc: Address
let factory: Address
let operator: PrivateKeyAccount
let guardian: PrivateKeyAccount
let owner: PrivateKeyAccount
let approver: PrivateKeyAccount
let stranger: PrivateKeyAccount

beforeAll(async () => {
  anvil = await startAnvil({ chainId })
  send = anvil.client.writeContractSync
  ;[, operator, guardian, owner, approver, stranger] = anvil.accounts
  usdc = await deployTestUsdc(anvil.client)
  const deployment = factoryDeployment({ guardian: low(guardian), operator: low(operator) })
  await anvil.client.sendTransactionSync(deployment)
  factory = deployment.address
})
afterAll(() => anvil.stop())

const time = async () => (await anvil.client.getBlock()).timestamp
const mint = (to: Hex, amount: bigint) =>
  send({ address: usdc, abi: testUsdcAbi, functionName: "mint", args: [to, amount] })
const balance = (account: Hex) =>
  anvil.client.readContract({ address: usdc, abi: testUsdcAbi, functionName: "balanceOf", args: [account] })

let salts = 0
/** A deposit with 100 units that was not used before, and opens in a day. */
async function funded(of: { payees?: Payee[]; owner?: Address; approver?: Address } = {}): Promise<Deposit> {
  const salt = keccak256(toHex(++salts))
  const payees = of.payees ?? []
  const terms = {
    owner: of.owner ?? low(owner),
    approver: of.approver ?? low(approver),
    payeesHash: payeesHash(payees),
    openAfter: (await time()) + DAY_S,
  }
  const address = addressOfTerms(factory, salt, terms)
  await mint(address, 100n)
  return { salt, terms, payees, address }
}

const release = ({ salt, terms, payees }: Deposit, to: Hex, amount = 1n, account = operator) => {
  const lists = to === terms.owner ? payeeLists([]) : payeeLists(payees)
  const args = [salt, terms, ...lists, usdc, to, amount] as const
  return { address: factory, abi, functionName: "release", args, account } as const
}

const recover = ({ salt, terms }: Deposit, token: Hex = usdc) =>
  ({ address: factory, abi, functionName: "recover", args: [salt, terms, token], account: stranger }) as const

const rule = (functionName: "pause" | "unpause", account = guardian) =>
  ({ address: factory, abi, functionName, account }) as const

const asked = (deposit: Deposit, of: Partial<GiveBack> = {}): GiveBack => ({
  token: usdc,
  to: fresh(1),
  amount: 10n,
  deposit: deposit.address,
  nonce: toHex(7, { size: 32 }),
  deadline: deposit.terms.openAfter,
  ...of,
})

/** Submitted by a stranger, because anyone may. */
async function giveBack(deposit: Deposit, message: GiveBack, signature?: Hex, signer = approver) {
  const signed = signature ?? (await signer.signTypedData(giveBackData(chainId, factory, message)))
  const { token, to, amount, nonce, deadline } = message
  const args = [deposit.salt, deposit.terms, token, to, amount, nonce, deadline, signed] as const
  return { address: factory, abi, functionName: "giveBack", args, account: stranger } as const
}

describe("release", () => {
  test("pays the owner and the payees, by the operator alone, and nobody else", async () => {
    const { client } = anvil
    const payees = [
      { address: fresh(2), percentE4: 600_000 },
      { address: fresh(3), percentE4: 400_000 },
    ]
    const deposit = await funded({ payees })
    for (const to of [fresh(2), fresh(3), deposit.terms.owner]) await send(release(deposit, to, 10n))
    expect(await Promise.all([balance(fresh(2)), balance(fresh(3)), balance(deposit.address)])).toEqual([10n, 10n, 70n])
    const thief = stranger.address
    expect(await revertOf(client.simulateContract(release(deposit, thief)))).toBe(`NotAPayee(${thief})`)
    const forged = { ...deposit, payees: [...payees, { address: low(stranger), percentE4: 1 }] }
    expect(await revertOf(client.simulateContract(release(forged, thief)))).toBe("OtherPayees()")
    for (const account of [stranger, owner, guardian, approver])
      expect(await revertOf(client.simulateContract(release(deposit, fresh(2), 1n, account)))).toBe("OnlyOperator()")
  })

  test("works in a batch, for the operator alone", async () => {
    const deposits = [await funded(), await funded()]
    const calls = deposits.map(each => encodeFunctionData(release(each, each.terms.owner, 100n)))
    const batch = { address: factory, abi, functionName: "multicall", args: [calls] } as const
    const byStranger = anvil.client.simulateContract({ ...batch, account: stranger })
    expect(await revertOf(byStranger)).toBe("OnlyOperator()")
    await send({ ...batch, account: operator })
    expect(await Promise.all(deposits.map(each => balance(each.address)))).toEqual([0n, 0n])
  })

  test("ignores bytes after the arguments, by which payouts are found again", async () => {
    const deposit = await funded()
    const data = concat([encodeFunctionData(release(deposit, deposit.terms.owner, 100n)), toHex(5n, { size: 16 })])
    await anvil.client.sendTransactionSync({ account: operator, to: factory, data })
    expect(await balance(deposit.address)).toBe(0n)
  })
})

describe("giveBack", () => {
  test.each(["an account", "a contract wallet"])("pays whom %s signed for, once", async kind => {
    const wallet = kind === "an account" ? undefined : await deployContractWallet(anvil.client, approver.address)
    const deposit = await funded(wallet ? { approver: wallet } : {})
    const message = asked(deposit)
    const before = await balance(fresh(1))
    const { logs } = await send(await giveBack(deposit, message))
    expect(await balance(fresh(1))).toBe(before + 10n)
    const [event] = parseEventLogs({ abi, logs, eventName: "GivenBack" })
    const { nonce, ...answered } = event?.args ?? {}
    expect(Object.values(answered).map(value => `${value}`.toLowerCase())).toEqual([
      deposit.address,
      usdc,
      fresh(1),
      "10",
    ])
    expect(nonce).toBe(message.nonce)
    const again = anvil.client.simulateContract(await giveBack(deposit, message))
    expect(await revertOf(again)).toBe(`NonceUsed(${message.nonce})`)
    const other = asked(deposit, { nonce: zeroHash })
    const byAnother = anvil.client.simulateContract(await giveBack(deposit, other, undefined, stranger))
    expect(await revertOf(byAnother)).toBe("BadSignature()")
  })

  test("refuses a signature for anything else", async () => {
    const deposit = await funded()
    const other = await funded()
    const message = asked(deposit)
    const sign = (chain: number, verifier: Hex, said: GiveBack) =>
      approver.signTypedData(giveBackData(chain, verifier, said))
    const signatures = await Promise.all([
      sign(chainId + 1, factory, message),
      sign(chainId, usdc, message),
      sign(chainId, factory, { ...message, deposit: other.address }),
      sign(chainId, factory, { ...message, token: fresh(4) }),
      sign(chainId, factory, { ...message, to: fresh(4) }),
      sign(chainId, factory, { ...message, amount: 11n }),
      sign(chainId, factory, { ...message, nonce: zeroHash }),
      sign(chainId, factory, { ...message, deadline: message.deadline + 1n }),
    ])
    for (const signature of [...signatures, "0x" as Hex]) {
      const call = anvil.client.simulateContract(await giveBack(deposit, message, signature))
      expect(await revertOf(call)).toBe("BadSignature()")
    }
  })

  test("with a zero approver is nobody's to sign", async () => {
    const deposit = await funded({ approver: ZERO_ADDRESS })
    for (const signature of ["0x", toHex(new Uint8Array(65)), toHex(new Uint8Array(65).fill(27))] as const) {
      const call = anvil.client.simulateContract(await giveBack(deposit, asked(deposit), signature))
      expect(await revertOf(call)).toBe("BadSignature()")
    }
  })

  test("with the factory as approver is the operator's of the time, who sends it, and no signature's", async () => {
    const { client } = anvil
    const deposit = await funded({ approver: factory })
    const message = asked(deposit)
    const unsigned = await giveBack(deposit, message, "0x")
    const signed = await giveBack(deposit, message, undefined, operator)
    for (const request of [unsigned, signed])
      for (const account of [stranger, owner, approver, guardian])
        expect(await revertOf(client.simulateContract({ ...request, account }))).toBe("OnlyOperator()")

    await send(rule("pause"))
    for (const request of [unsigned, signed])
      expect(await revertOf(client.simulateContract({ ...request, account: operator }))).toBe("EnforcedPause()")
    await send(rule("unpause"))

    const change = (to: PrivateKeyAccount) =>
      ({ address: factory, abi, functionName: "setOperator", args: [to.address], account: guardian }) as const
    await send(change(stranger))
    for (const request of [unsigned, signed])
      expect(await revertOf(client.simulateContract({ ...request, account: operator }))).toBe("OnlyOperator()")
    await client.simulateContract({ ...unsigned, account: stranger })
    await send(change(operator))

    const late = await giveBack(deposit, { ...message, deadline: (await time()) - 1n }, "0x")
    expect(await revertOf(client.simulateContract({ ...late, account: operator }))).toMatch(/^Expired/)
    const before = await balance(fresh(1))
    await send({ ...unsigned, account: operator })
    expect(await balance(fresh(1))).toBe(before + 10n)
    const again = client.simulateContract({ ...unsigned, account: operator })
    expect(await revertOf(again)).toBe(`NonceUsed(${message.nonce})`)
  })

  test("counts up to the second of its deadline", async () => {
    const deposit = await funded()
    const deadline = (await time()) + 100n
    const last = asked(deposit, { deadline })
    const late = asked(deposit, { deadline, nonce: zeroHash })
    await anvil.client.setNextBlockTimestamp({ timestamp: deadline })
    await send({ ...(await giveBack(deposit, last)), gas: 300_000n })
    await anvil.client.setNextBlockTimestamp({ timestamp: deadline + 1n })
    const { status } = await send({ ...(await giveBack(deposit, late)), gas: 300_000n })
    expect(status).toBe("reverted")
    expect(await balance(deposit.address)).toBe(90n)
  })
})

test("while the factory is paused nothing is released, and recover and giveBack work", async () => {
  const deposit = await funded()
  expect(await revertOf(anvil.client.simulateContract(rule("pause", operator)))).toBe("OnlyGuardian()")
  await send(rule("pause"))
  expect(await revertOf(anvil.client.simulateContract(release(deposit, deposit.terms.owner)))).toBe("EnforcedPause()")
  await send(await giveBack(deposit, asked(deposit)))
  await anvil.client.setNextBlockTimestamp({ timestamp: deposit.terms.openAfter })
  expect((await send({ ...recover(deposit), gas: 300_000n })).status).toBe("reverted")
  await anvil.client.setNextBlockTimestamp({ timestamp: deposit.terms.openAfter + 1n })
  expect((await send({ ...recover(deposit), gas: 300_000n })).status).toBe("success")
  expect(await balance(deposit.address)).toBe(0n)
  expect(await revertOf(anvil.client.simulateContract(rule("unpause", operator)))).toBe("OnlyGuardian()")
  await send(rule("unpause"))
})

test("a replaced operator releases nothing more, and the next one does", async () => {
  const deposit = await funded()
  const change = (to: Hex, account = guardian) =>
    ({ address: factory, abi, functionName: "setOperator", args: [to], account }) as const
  expect(await revertOf(anvil.client.simulateContract(change(stranger.address, operator)))).toBe("OnlyGuardian()")
  expect(await revertOf(anvil.client.simulateContract(change(zeroAddress)))).toBe("ZeroAddress()")
  await send(change(stranger.address))
  const byOld = anvil.client.simulateContract(release(deposit, deposit.terms.owner))
  expect(await revertOf(byOld)).toBe("OnlyOperator()")
  await send(release(deposit, deposit.terms.owner, 100n, stranger))
  await send(change(operator.address))
})

test("ether from before a deposit was in place goes to its owner at any time; a deposit in place takes none", async () => {
  const deposit = await funded({ owner: fresh(5) })
  await anvil.client.setBalance({ address: deposit.address, value: 9n })
  await send(recover(deposit, zeroAddress))
  expect(await anvil.client.getBalance({ address: fresh(5) })).toBe(9n)
  for (const to of [deposit.address, factory])
    await expect(anvil.client.sendTransaction({ to, value: 1n })).rejects.toThrow("reverted")
})

test("the committed bytecode is what the sources give, and the documents name its hash", () => {
  const { DepositFactory: built } = compile(readSources())["DepositFactory.sol"] ?? {}
  expect(`0x${built?.evm.bytecode.object}`).toBe(depositFactoryBytecode)
  expect(contractsPage).toContain(keccak256(depositFactoryBytecode))
})

test("a factory is at the address that its guardian and operator give, with the committed code, once", async () => {
  const { client } = anvil
  const deployment = factoryDeployment({ guardian: low(guardian), operator: low(operator) })
  const { code, immutables } = depositFactoryRuntime
  const cleared = immutables.flat().reduce(
    (text: string, offset) => {
      const at = 2 + 2 * offset
      return text.slice(0, at) + "0".repeat(64) + text.slice(at + 64)
    },
    (await client.getCode({ address: deployment.address })) ?? "0x",
  )
  expect(cleared).toBe(code)
  const read = (functionName: "guardian" | "operator" | "implementation") =>
    client.readContract({ address: factory, abi, functionName })
  const answered = await Promise.all([read("guardian"), read("operator"), read("implementation")])
  expect(answered.map(each => each.toLowerCase())).toEqual([low(guardian), low(operator), implementationOf(factory)])
  await expect(client.sendTransaction(deployment)).rejects.toThrow("reverted")
  const swapped = factoryDeployment({ guardian: low(operator), operator: low(guardian) })
  expect(swapped.address).not.toBe(factory)
})

const contractsPage = readFileSync(new URL("../docs/developers/contracts.md", import.meta.url), "utf8")

test("the gas is what the documents say, and a first release without a split costs no more than 118,000", async () => {
  const gas = new Map<string, bigint>()
  const measure = async (what: string, request: Parameters<typeof send>[0] & { gas?: bigint }) => {
    // With the bytes that every payout ends with.
    const data = concat([
      encodeFunctionData(request as Parameters<typeof encodeFunctionData>[0]),
      keccak256("0x01").slice(0, 34) as Hex,
    ])
    const call = { account: request.account ?? null, to: factory, data, gas: 1_000_000n }
    const { gasUsed, status } = await anvil.client.sendTransactionSync(
      call as Parameters<typeof anvil.client.sendTransactionSync>[0],
    )
    expect(status, what).toBe("success")
    gas.set(what, gasUsed)
  }
  let n = 100
  const plain = await funded({ owner: fresh(++n) })
  await measure("first release, no split", release(plain, plain.terms.owner, 10n))
  await measure("later release, no split", release(plain, plain.terms.owner, 10n))
  for (const size of [2, 10, 50]) {
    const payees = Array.from({ length: size }, () => ({ address: fresh(++n), percentE4: 1_000_000 / size }))
    const split = await funded({ payees })
    const last = fresh(n)
    await measure(`first release to the last of ${size} payees`, release(split, last, 10n))
    await measure(`later release to the last of ${size} payees`, release(split, last, 10n))
  }
  const deposit = await funded()
  await measure("first give-back", await giveBack(deposit, asked(deposit, { to: fresh(++n) })))
  const later = asked(deposit, { to: fresh(++n), nonce: zeroHash })
  await measure("later give-back", await giveBack(deposit, later))
  const ours = await funded({ approver: factory })
  const unsigned = await giveBack(ours, asked(ours, { to: fresh(++n) }), "0x")
  await measure("first give-back by the operator", { ...unsigned, account: operator })
  const first = await funded({ owner: fresh(++n) })
  const second = await funded({ owner: fresh(++n) })
  await send(release(second, second.terms.owner, 10n))
  await anvil.client.setNextBlockTimestamp({ timestamp: second.terms.openAfter + 1n })
  await measure("recover, not in place", recover(first))
  await measure("recover, in place", recover(second))
  expect(gas.get("first release, no split")).toBeLessThanOrEqual(118_000n)
  const written = (what: string) => contractsPage.match(new RegExp(`^\\| ${what} \\| ([\\d,]+) \\|`, "m"))?.[1]
  const differs = [...gas].filter(([what, used]) => {
    // Addresses with a zero byte are a little cheaper.
    const off = BigInt(written(what)?.replaceAll(",", "") ?? 0) - used
    return off > 300n || off < -300n
  })
  expect(differs, "docs/developers/contracts.md must say what was measured").toEqual([])
})
