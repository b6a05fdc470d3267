// Timelines, payments with all that belongs to them, and payouts with the payments inside: on a real chain, through HTTP.
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { lifeOf } from "../../../test/life.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { sweepDue } from "../../ledger/payouts/make-payouts.ts"
import { checkConsistency } from "../../ledger/reconciliation/check-consistency.ts"

let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig.stop())
beforeEach(() => lifeOf(rig).begin())

const get = async (path: string, as = "shop") =>
  await rig.service.call("GET", `/api/console/${path}`, undefined, { as })
const ok = async (path: string) => {
  const { status, body } = await get(path)
  expect(status, JSON.stringify(body)).toBe(200)
  return body
}
const kindsOf = (timeline: { data: { kind: string }[] }) => timeline.data.map(({ kind }) => kind)
const partsOf = async (id: string): Promise<{ paymentId: string | null; baseUnits: string }[]> =>
  (await ok(`payouts/${id}/payments?limit=1000`)).data
const sumOf = (parts: { baseUnits: string }[]) => parts.reduce((sum, { baseUnits }) => sum + BigInt(baseUnits), 0n)

/** Makes and sends the daily sweeps. */
async function sweep(): Promise<void> {
  rig.service.advance(86_400_001)
  await sweepDue(rig.service.ctx, rig.network)
  await rig.round()
  await rig.anvil.client.mine({ blocks: 2 })
  await rig.round()
}

/** That the parts of each payout add up to it, and that the list and the payout agree. */
async function expectSums(): Promise<void> {
  const { data, total } = await ok("payouts?limit=1000")
  expect(data).toHaveLength(total)
  for (const payout of data) {
    const parts = await partsOf(payout.id)
    expect(sumOf(parts), payout.id).toBe(BigInt(payout.baseUnits))
    const one = await ok(`payouts/${payout.id}`)
    expect(one).toMatchObject({ id: payout.id, state: payout.state, amount: payout.amount })
    expect(one.log).toHaveLength(one.attempts)
  }
  expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])
}

it("shows a payment from its transfer to the sweep that carried it, with the sweep's payments, gas and attempts", async () => {
  const shop = await rig.sell()
  const first = await rig.paid(shop, 700_001n)
  const [, , , , , other] = rig.anvil.accounts
  const second = await rig.paid(shop, 500_000n, other)
  expect((await ok(`timeline/${first}`)).status).toMatchObject({ state: "granted", word: "Paid" })
  await sweep()

  const { data } = await ok("payouts")
  expect(data).toHaveLength(1)
  const [payout] = data
  expect(payout).toMatchObject({
    kind: "sweep",
    state: "final",
    amount: "1.200001",
    recipient: PAYOUT_ADDRESS,
    attempts: 1,
  })
  expect(BigInt(payout.gasWei)).toBeGreaterThan(21_000n)
  const parts = await partsOf(payout.id)
  expect(parts.map(({ paymentId, baseUnits }) => [paymentId, baseUnits])).toEqual([
    [second, "500000"],
    [first, "700001"],
  ])
  const one = await ok(`payouts/${payout.id}`)
  expect(one.paymentCount).toBe(2)
  expect(one.status.why).toContain(`1.200001 USDC was sent to your payout address ${PAYOUT_ADDRESS}`)
  expect(one.log[0].txHash).toBe(payout.txHash)
  await expectSums()

  const story = await ok(`payments/${first}`)
  expect(story).toMatchObject({ id: first, type: "payment", address: { owner: PAYOUT_ADDRESS } })
  expect(story.payments[0]).toMatchObject({ id: first, amount: "0.700001", baseUnits: "700001" })
  expect(story.transfers).toHaveLength(1)
  expect(story.payouts).toMatchObject([{ id: payout.id, kind: "sweep", amount: "1.200001", ofThis: "0.700001" }])
  expect(story.status).toMatchObject({
    why: "This payment of 0.700001 USDC is confirmed. Its money was sent to your payout address.",
    next: [{ route: `GET /api/console/payouts/${payout.id}` }],
  })
  const timeline = await ok(`timeline/${first}`)
  expect(timeline.data).toEqual(story.data)
  expect(kindsOf(timeline)).toEqual(
    expect.arrayContaining(["seen", "confirmed", "payout", "signed", "sent", "paid", "event"]),
  )
  const times = timeline.data.map(({ at }: { at: string }) => at)
  expect(times).toEqual(times.toSorted())
  expect((await ok(`timeline/${payout.id}`)).status).toEqual(one.status)

  const csv = (await get("payouts.csv")).body as string
  expect(csv.split("\r\n")[1]).toContain(`${payout.id},sweep,final,,1.200001,USDC,1200001,`)
})

it("divides a payment: each share is a payout of that one payment", async () => {
  const paid = await rig.paid(await rig.sell([70, 30]), 1_000_001n)
  await rig.round()
  const { data } = await ok("payouts?kind=share")
  expect(
    data.map(({ baseUnits }: { baseUnits: string }) => BigInt(baseUnits)).reduce((a: bigint, b: bigint) => a + b),
  ).toBe(1_000_001n)
  for (const { id } of data) expect(await partsOf(id)).toMatchObject([{ paymentId: paid }])
  await expectSums()
  const { status } = await ok(`payments/${paid}`)
  expect(status.next.length).toBeGreaterThan(0)
  expect((await ok("payouts?kind=sweep")).data).toEqual([])
  expect(data.map((row: { recipient: string }) => row.recipient.toLowerCase()).sort()).toEqual(
    [recipient(0), recipient(1)].sort(),
  )
})

it("shows who decided about a payment, to people but not to keys, and what became of a return", async () => {
  const paid = await rig.paid(await rig.sell(), 200_000n)
  expect((await ok(`timeline/${paid}`)).status).toMatchObject({
    state: "open",
    word: "Needs you",
    next: [
      { route: `POST /api/console/payments/${paid}/accept` },
      { route: `POST /api/console/payments/${paid}/return` },
    ],
  })
  const address = recipient(7)
  const returned = await rig.service.call(
    "POST",
    `/api/console/payments/${paid}/return`,
    { address, confirm: true },
    { as: "shop" },
  )
  expect(returned.status).toBe(200)
  const decided = (await ok(`timeline/${paid}`)).data.find(({ kind }: { kind: string }) => kind === "decided")
  expect(decided).toMatchObject({ actor: { kind: "console", id: "shop" }, object: paid })
  await rig.round()
  expect((await ok(`payments/${paid}`)).status).toMatchObject({ state: "returned", word: "Returned" })
  await expectSums()

  const made = await rig.service.call(
    "POST",
    "/api/console/api-keys",
    { name: "reader", scopes: ["read"] },
    { as: "shop" },
  )
  const headers = { "x-api-key": made.body.key }
  const { status, body } = await rig.service.call("GET", `/api/console/timeline/${paid}`, undefined, { headers })
  expect(status).toBe(200)
  expect(body.data.find(({ kind }: { kind: string }) => kind === "decided").actor).toEqual({
    kind: "console",
    id: null,
  })
})

it("keeps the sum of a payout's parts when a payment in it is reversed", async () => {
  const shop = await rig.sell()
  await rig.paid(shop, 600_000n)
  const { client } = rig.anvil
  const snapshot = await client.snapshot()
  const gone = await rig.paid(shop, 800_000n, rig.anvil.accounts[5])
  rig.service.advance(86_400_001)
  await sweepDue(rig.service.ctx, rig.network)
  const [payout] = (await ok("payouts")).data
  expect(payout.baseUnits).toBe("1400000")
  await client.revert({ id: snapshot })
  const { db } = rig.service.ctx
  // As the settlement leaves it once the transfer is gone: nothing claims it any more.
  await db.deleteFrom("claims").where("payment_id", "=", gone).execute()
  const parts = await partsOf(payout.id)
  expect(sumOf(parts)).toBe(1_400_000n)
  expect(parts.map(({ paymentId }) => paymentId)).toContain(null)
})

it("has nothing of another merchant's, and nothing for what is no id", async () => {
  const paid = await rig.paid(await rig.sell(), 700_000n)
  await sweep()
  const [{ id }] = (await ok("payouts")).data
  await rig.service.merchant("rival")
  for (const path of [
    `timeline/${paid}`,
    `payments/${paid}`,
    `timeline/${id}`,
    `payouts/${id}`,
    `payouts/${id}/payments`,
  ]) {
    const { status, body } = await get(path, "rival")
    const unknown = await get(
      path.replace(/[0-9a-z]{5}(?=\/|$)/, "zzzzz").replace(/payouts\/[^/]+/, `payouts/po_${"0".repeat(32)}`),
      "shop",
    )
    expect([status, body.error, body.message]).toEqual([404, "NOT_FOUND", unknown.body.message])
    expect(unknown.status).toBe(404)
  }
  expect((await get("payouts", "rival")).body.data).toEqual([])
  for (const text of ["x", "pay_", "toString_x", "__proto__", `po_${"z".repeat(32)}`, `key_${"a".repeat(24)}`])
    expect((await get(`timeline/${text}`)).status, text).toBe(404)
  for (const query of ["kind=batch", "state=x", "chain=nowhere", "from=2026-02-30"])
    expect((await get(`payouts?${query}`)).status, query).toBe(400)
})
