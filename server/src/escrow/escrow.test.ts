// Reserved payments on a real chain: authorized by the payer's signature, captured, voided, reclaimed, reorganized.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type PayoutRig, startPayoutRig } from "../../test/payouts.ts"
import { placeEscrow, reservesOn } from "../../test/reserve.ts"
import { PAYOUT_ADDRESS } from "../../test/service.ts"
import type { EscrowDeployment } from "../chain/escrow-deployments.ts"
import type { Address } from "../chain/hex.ts"

let rig: PayoutRig
let escrow: EscrowDeployment
let on: ReturnType<typeof reservesOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  escrow = await placeEscrow(rig)
  on = reservesOn(rig, escrow)
})
afterAll(() => rig.stop())
beforeEach(() => on.begin())

const MERCHANT = PAYOUT_ADDRESS.toLowerCase() as Address
/** A session whose payer has signed, and what he holds. */
async function reserved(change: object = {}) {
  const id = await on.start(change)
  const buyer = await on.buyer()
  const { status, body } = await on.submit(id, await on.sign(buyer, id))
  expect({ status, body }).toMatchObject({ status: 200, body: { status: "verifying", txHash: null } })
  await on.work()
  return { id, buyer, payer: buyer.address.toLowerCase() as Address }
}

describe("a reserved payment", () => {
  it("is captured as a whole, and its merchant is notified at each step once", async () => {
    const before = await rig.balanceOf(MERCHANT)
    const { id, payer } = await reserved()
    expect(await rig.balanceOf(payer)).toBe(0n)
    expect(await on.session(id)).toMatchObject({
      ...{ status: "authorized", amountReceived: "0.00", authId: (await on.rowOf(id)).auth_id },
      escrow: { authorized: "5.00", captured: "0.00", capturable: "5.00" },
    })
    expect(await on.onChain(id)).toMatchObject({ capturableAmount: 5_000_000n })
    const { status, body } = await on.capture(id)
    expect(status).toBe(200)
    expect(body).toEqual({
      captureId: expect.stringMatching(/^po_/),
      ...{ sessionId: id, amount: "5.00", status: "pending", txHash: null },
    })
    await on.work()
    expect(await rig.balanceOf(MERCHANT)).toBe(before + 5_000_000n)
    const session = await on.session(id)
    expect(session).toMatchObject({
      ...{ status: "confirmed", amountReceived: "5.00", txHash: (await on.calls("capture"))[0]?.tx_hash },
      escrow: { captured: "5.00", capturable: "0.00", refundable: "5.00", released: "0.00" },
    })
    expect(session.payer.toLowerCase()).toBe(payer)
    expect(await on.events()).toEqual(
      ["checkout.authorized", "checkout.confirmed", "checkout.session.completed"].sort(),
    )
    expect(await on.status(id)).toMatchObject({ status: "confirmed", captured: "5.00" })
  })
})
