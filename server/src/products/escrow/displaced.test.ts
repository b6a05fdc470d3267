// A reorg may displace a call's block before the rows say so. What counts is its own block's depth, never its height.
import { encodeFunctionData } from "viem"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { placeEscrow, reservesOn } from "../../../test/reserve.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"

const CONFIRMATIONS = 5

let rig: PayoutRig
let on: ReturnType<typeof reservesOn>
beforeAll(async () => {
  rig = await startPayoutRig({}, undefined, { slotsInAnEpoch: 16 })
  rig.network.confirmations = BigInt(CONFIRMATIONS)
  on = reservesOn(rig, await placeEscrow(rig))
})
afterAll(() => rig.stop())
beforeEach(async () => {
  await on.begin()
  await rig.anvil.client.mine({ blocks: 40 })
})

const mine = (blocks: number) => rig.anvil.client.mine({ blocks })

/** A reorg of one block, with these transactions or none in its place, and nothing of the old one mined again. */
async function reorg(...transactions: string[]): Promise<void> {
  await rig.anvil.client.request({
    method: "anvil_reorg",
    params: [1, transactions.map(raw => [raw, 0])],
  } as never)
  await rig.anvil.client.dropAllTransactions()
  await mine(CONFIRMATIONS + 1)
}

it("reserves nothing by the height of a reservation whose payer moved the money in a reorg", async () => {
  const id = await on.start()
  const buyer = await on.buyer()
  await rig.anvil.client.setBalance({ address: buyer.address, value: 10n ** 18n })
  expect((await on.submit(id, await on.sign(buyer, id))).status).toBe(200)
  await on.round()
  await on.round()
  expect(await on.calls("reserve")).toMatchObject([{ state: "mined" }])
  const args = [rig.anvil.accounts[0].address, 5_000_000n] as const
  const spent = await buyer.signTransaction({
    type: "eip1559",
    chainId: 84532,
    nonce: 0,
    gas: 100_000n,
    to: rig.token,
    maxFeePerGas: 10n ** 11n,
    maxPriorityFeePerGas: 10n ** 9n,
    data: encodeFunctionData({ abi: testUsdcAbi, functionName: "transfer", args }),
  })
  await reorg(spent)
  for (let i = 0; i < 3; i++) await on.look()
  expect((await on.session(id)).status).toBe("verifying")
  expect((await on.capture(id)).status).toBe(409)
  expect(await on.events()).not.toContain("checkout.authorized")
})

it("counts a reservation at its depth, and no capture by the height of a block that is gone", async () => {
  const id = await on.start()
  expect((await on.submit(id, await on.sign(await on.buyer(), id))).status).toBe(200)
  await on.round()
  await on.round()
  await mine(CONFIRMATIONS - 2)
  await on.look()
  expect((await on.session(id)).status).toBe("verifying")
  await mine(1)
  await on.look()
  expect((await on.session(id)).status).toBe("authorized")
  expect((await on.capture(id)).status).toBe(200)
  await on.round()
  await on.round()
  expect(await on.calls("capture")).toMatchObject([{ state: "mined" }])
  await reorg()
  for (let i = 0; i < 3; i++) await on.look()
  expect(await on.session(id)).toMatchObject({ status: "authorized", escrow: { captured: "0.00" } })
  // The same bytes are mined again, and count at their depth.
  await on.round()
  await mine(CONFIRMATIONS)
  await on.round()
  await on.look()
  expect(await on.session(id)).toMatchObject({ status: "confirmed", escrow: { captured: "5.00" } })
})
