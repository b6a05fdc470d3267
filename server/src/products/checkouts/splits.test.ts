/** Checkouts whose money is divided, or swept to the merchant, on a real chain. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { ensureCursor } from "../../ledger/scanner/scan-round.ts"
import { notifyDuePayments } from "../../ledger/settlement/notify-paid.ts"
import { verifyRound } from "../../ledger/settlement/verify-payments.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"

let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig?.stop())
beforeEach(async () => {
  await rig.empty()
  await ensureCursor(rig.service.ctx, rig.network)
})

const as = "shop"
const call = async (method: "GET" | "POST" | "PUT" | "DELETE", url: string, body?: unknown) =>
  await rig.service.call(method, url, body, { as })
const split = async (percents: number[], first = 0): Promise<string> => {
  const recipients = percents.map((percent, i) => ({ address: recipient(first + i), percent }))
  return (await call("POST", "/api/console/splits", { name: "s", recipients })).body.id
}
const start = async (body: object) => (await call("POST", "/api/console/checkouts", { amount: 10, ...body })).body
const whole = async (id: string) => (await call("GET", `/api/console/checkouts/${id}`)).body

async function pay(payTo: string, amount = 10_000_000n): Promise<void> {
  const args = [payTo as Address, amount] as const
  await rig.anvil.client.writeContractSync({ address: rig.token, abi: testUsdcAbi, functionName: "mint", args })
  for (let i = 0; i < 3; i++) {
    await rig.anvil.client.mine({ blocks: 3 })
    await rig.service.ctx.db
      .updateTable("cursors")
      .set({ run_at: new Date(0) })
      .execute()
    await verifyRound(rig.service.ctx, rig.network)
  }
}

/** Runs the engine until nothing waits to be mined. */
async function payOut(): Promise<void> {
  for (let i = 0; i < 6; i++) {
    await rig.round()
    await rig.anvil.client.mine({ blocks: 2 })
  }
}

const completed = async () =>
  (
    await rig.service.ctx.db
      .selectFrom("events")
      .select("body")
      .where("type", "=", "checkout.session.completed")
      .execute()
  ).map(row => JSON.parse(row.body).data)

describe("a checkout with a split", () => {
  it("pays the recipients it was made with, though the split is edited and deleted, and then notifies of each", async () => {
    const splitId = await split([70, 30])
    const session = await start({ splitId })
    const others = [0, 1].map(i => ({ address: recipient(5 + i), percent: 50 }))
    expect((await call("PUT", `/api/console/splits/${splitId}`, { recipients: others })).status).toBe(200)
    expect((await call("DELETE", `/api/console/splits/${splitId}`)).status).toBe(200)
    const before = await Promise.all([0, 1].map(i => rig.balanceOf(recipient(i))))
    await pay(session.payTo)
    expect(await whole(session.id)).toMatchObject({ status: "confirmed", splits: [{ txHash: null }, { txHash: null }] })
    await notifyDuePayments(rig.service.ctx)
    expect(await completed()).toEqual([])
    await payOut()
    expect(await notifyDuePayments(rig.service.ctx)).toBe(0)
    const [event, ...more] = await completed()
    expect(more).toEqual([])
    const hash = expect.stringMatching(/^0x[0-9a-f]{64}$/)
    const splits = [
      { address: checksummed(recipient(0)), amount: "7.00", percent: 70, txHash: hash },
      { address: checksummed(recipient(1)), amount: "3.00", percent: 30, txHash: hash },
    ]
    expect(event).toMatchObject({ id: session.id, status: "confirmed", amount: "10.00", splits })
    expect((await whole(session.id)).splits).toEqual(event.splits)
    const list = (await call("GET", "/api/console/transactions")).body
    expect(list.data.map((row: { type: string; amount: string }) => `${row.type} ${row.amount}`).sort()).toEqual([
      "payment 10.00",
      "share 3.00",
      "share 7.00",
    ])
    // The payout names the session that it belongs to, and is found by its own id and by the session's.
    const paid = list.data.find((row: { type: string }) => row.type === "share")
    expect(paid).toMatchObject({
      id: expect.stringMatching(/^po_[0-9a-f]{32}$/),
      sessionId: session.id,
      paywallId: null,
    })
    expect((await call("GET", `/api/console/transactions?q=${paid.id}`)).body.data).toEqual([paid])
    expect((await call("GET", `/api/console/transactions?q=${session.id}`)).body.total).toBe(3)
    const shares = (await call("GET", `/api/console/transactions?type=share&q=${checksummed(recipient(1))}`)).body
    expect(shares).toMatchObject({ total: 1, data: [{ recipient: checksummed(recipient(1)), payer: null }] })
    const mine = list.data.find((row: { type: string }) => row.type === "payment")
    expect((await call("GET", `/api/console/transactions?q=${mine.id}`)).body.total).toBe(3)
    expect((await call("GET", "/api/console/transactions.csv")).body).toContain(`,${checksummed(recipient(0))},`)
    const after = await Promise.all([0, 1].map(i => rig.balanceOf(recipient(i))))
    expect(after.map((balance, i) => balance - (before[i] ?? 0n))).toEqual([7_000_000n, 3_000_000n])
    expect(await rig.balanceOf(recipient(5))).toBe(0n)
  })

  it("is notified after five minutes though nothing is mined, once; later hashes stand in the session", async () => {
    const session = await start({ splitId: await split([50, 50]) })
    await pay(session.payTo)
    expect(await notifyDuePayments(rig.service.ctx)).toBe(1)
    rig.service.advance(5 * 60_000 + 1_000)
    expect(await notifyDuePayments(rig.service.ctx)).toBe(0)
    const [event] = await completed()
    expect(event.splits.map((share: { txHash: unknown }) => share.txHash)).toEqual([null, null])
    await payOut()
    await notifyDuePayments(rig.service.ctx)
    expect((await completed()).length).toBe(1)
    const { splits } = await whole(session.id)
    expect(splits.map((share: { txHash: unknown }) => share.txHash)).not.toContain(null)
  })

  it("divides what was asked for; the surplus and a second payment wait undivided", async () => {
    const session = await start({ splitId: await split([75, 25]) })
    await pay(session.payTo, 12_000_000n)
    await pay(session.payTo, 10_000_000n)
    expect(await whole(session.id)).toMatchObject({ status: "confirmed", exception: "duplicate" })
    const shares = (await rig.payouts()).map(({ kind, amount }) => [kind, amount])
    expect(shares).toEqual([
      ["share", 7_500_000n],
      ["share", 2_500_000n],
    ])
  })

  it("comes from a product or a link too, and is refused where it is another's or the amount is too small", async () => {
    const splitId = await split([50, 50])
    const product = (await call("POST", "/api/console/products", { name: "Report", price: 10, splitId })).body
    const link = (
      await call("POST", "/api/console/payment-links", { slug: "shared", title: "Shared", amount: 10, splitId })
    ).body
    expect([product.splitId, link.splitId]).toEqual([splitId, splitId])
    const made = [
      (await call("POST", "/api/console/checkouts", { productId: product.id })).body.id,
      (await rig.service.call("POST", "/api/pay/sessions", { slug: "shared" })).body.sessionId,
    ]
    made.push((await start({ splitId })).id)
    for (const id of made) expect(await whole(id)).toMatchObject({ splitId, splits: [] })
    await rig.service.merchant("rival")
    const foreign = { amount: 10, splitId }
    expect((await rig.service.call("POST", "/api/console/checkouts", foreign, { as: "rival" })).status).toBe(403)
    const small = await call("POST", "/api/console/checkouts", { amount: "0.01", splitId })
    expect(small).toMatchObject({ status: 400, body: { details: [{ path: "amount" }] } })
    const unknown = await call("POST", "/api/console/checkouts", { amount: 10, splitId: `spl_${"a".repeat(24)}` })
    expect(unknown).toMatchObject({ status: 400, body: { details: [{ path: "splitId" }] } })
  })
})

describe("a checkout without a split", () => {
  it("is swept to the merchant once; too little stays where it is", async () => {
    const session = await start({ amount: 20 })
    const short = await start({ amount: 20 })
    const before = await rig.balanceOf(PAYOUT_ADDRESS.toLowerCase() as Address)
    await pay(short.payTo, 15_000_000n)
    await pay(session.payTo, 20_000_000n)
    await payOut()
    expect((await rig.balanceOf(PAYOUT_ADDRESS.toLowerCase() as Address)) - before).toBe(20_000_000n)
    expect(await rig.balanceOf(short.payTo)).toBe(15_000_000n)
    expect((await rig.payouts()).map(({ kind, amount }) => [kind, amount])).toEqual([["sweep", 20_000_000n]])
    // After a top-up it is paid, and everything is paid out.
    await pay(short.payTo, 5_000_000n)
    await payOut()
    expect((await rig.balanceOf(PAYOUT_ADDRESS.toLowerCase() as Address)) - before).toBe(40_000_000n)
  })
})
