// The batch of authorizations: each call has its own gas, whatever the others do with theirs.
import { encodeFunctionData, type Hex, toHex } from "viem"
import { afterAll, beforeAll, expect, it } from "vitest"
import { authorizationBatchAbi as abi } from "../server/src/platform/chain/abi.ts"
import { batchData, batchDeployment, callsIn, successesIn } from "../server/src/platform/chain/authorization-batch.ts"
import type { Address } from "../server/src/platform/chain/hex.ts"
import { type Anvil, placeSharedContracts, startAnvil } from "../server/test/anvil.ts"

const GAS = 100_000n
/** Stores the gas that it has under the number that it is called with; with 1 it burns all of it. */
const token = `0x${"70".repeat(20)}` as Address
const TOKEN_CODE = "0x5f3560011460 0d57 5a5f3555 00 5bfe".replaceAll(" ", "") as Hex
/** Returns 128 KB of zeros. */
const talker = `0x${"71".repeat(20)}` as Address
const TALKER_CODE = "0x620200005ff3"

let anvil: Anvil
beforeAll(async () => {
  anvil = await startAnvil()
  await placeSharedContracts(anvil.client)
  await anvil.client.setCode({ address: token, bytecode: TOKEN_CODE })
  await anvil.client.setCode({ address: talker, bytecode: TALKER_CODE })
})
afterAll(() => anvil?.stop())

const word = (n: number): Hex => toHex(n, { size: 32 })
const stored = async (n: number) => BigInt((await anvil.client.getStorageAt({ address: token, slot: word(n) })) ?? 0)
const send = async (target: Address, calls: Hex[], gas: bigint) => {
  const hash = await anvil.client.sendTransaction({
    to: batchDeployment.address,
    data: batchData(target, GAS, calls),
    gas,
  })
  return await anvil.client.waitForTransactionReceipt({ hash })
}

it("gives each call its own gas, though one burns all that it got", async () => {
  const { status } = await send(token, [word(2), word(1), word(3), word(4)], 700_000n)
  expect(status).toBe("success")
  for (const n of [2, 3, 4]) {
    const gas = await stored(n)
    expect([gas <= GAS, gas > GAS - 100n]).toEqual([true, true])
  }
  expect(await stored(1)).toBe(0n)
  const data = batchData(token, GAS, [word(5), word(1)])
  const { data: answer } = await anvil.client.call({ to: batchDeployment.address, data })
  expect(successesIn(answer)).toEqual([true, false])
})

it("fails as a whole rather than giving a call less gas than it was promised", async () => {
  const calls = [word(1), word(1), word(1), word(9)]
  const call = { to: batchDeployment.address, data: batchData(token, GAS, calls) }
  await expect(anvil.client.call({ ...call, gas: 400_000n })).rejects.toThrow(/TooLittleGas|0x|revert/)
  expect((await send(token, calls, 400_000n)).status).toBe("reverted")
  expect(await stored(9)).toBe(0n)
  expect((await send(token, calls, 460_000n)).status).toBe("success")
  expect((await stored(9)) > GAS - 100n).toBe(true)
})

it("copies nothing that a call returns", async () => {
  const { gasUsed } = await send(talker, [word(0), word(0)], 700_000n)
  // Copying 128 KB twice would take some 130,000 more: the call itself takes 45,000 for its memory.
  expect(gasUsed).toBeLessThan(150_000n)
})

it("is read back from its calldata, and nothing else is taken for it", () => {
  const data = batchData(token, GAS, ["0x01", "0x0203"])
  expect(callsIn(data)).toEqual({ token, calls: ["0x01", "0x0203"] })
  expect(callsIn("0x12345678")).toBeUndefined()
  expect(callsIn("0x")).toBeUndefined()
  expect(() => successesIn("0x")).toThrow()
  expect(data.slice(0, 10)).toBe(
    encodeFunctionData({ abi, functionName: "carryOut", args: [token, 0n, []] }).slice(0, 10),
  )
})
