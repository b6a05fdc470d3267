// Who may ask for which change of a subscription, and what happens with money that comes at the wrong time or from the
// wrong sender.
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { later, SUBSCRIBER, type SubscriptionRig, startSubscriptionRig } from "../../../test/subscription-rig.ts"
import { emit } from "../../account/webhooks/emit.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import { cancelSubscription, resumeSubscription } from "./ask-subscription.ts"

let rig: SubscriptionRig
beforeAll(async () => {
  rig = await startSubscriptionRig()
})
afterAll(() => rig?.stop())

const BEGIN = "2027-01-31T10:00:00Z"
const BILLED = "2027-02-26T10:00:00Z"
const stranger = `0x${"cd".repeat(20)}` as Address
const types = async () => (await rig.events()).map(({ type }) => type)
const end = { at: "period_end" }
/** A request of the subscriber's page. */
const bySubscriber = (id: string, what: typeof resumeSubscription) =>
  inTransaction(rig.service.ctx, ctx => what(ctx, { payer: SUBSCRIBER }, id))
const cancelIt: typeof resumeSubscription = (ctx, owner, id) => cancelSubscription(ctx, owner, id, "period_end")

/** A subscription whose second invoice is open. */
async function billed(terms?: object): Promise<string> {
  const id = await rig.subscribed(terms)
  rig.to(BILLED)
  await rig.look()
  return id
}

describe("a cancellation", () => {
  it("is taken back by whoever asked for it, and by nobody else", async () => {
    await rig.begin(BEGIN)
    const id = await rig.subscribed()
    const standing = async () => {
      const { cancelAtPeriodEnd, cancelAskedBy } = await rig.read(id)
      return [cancelAtPeriodEnd, cancelAskedBy]
    }
    await rig.ask(id, "cancel", end)
    await expect(bySubscriber(id, resumeSubscription)).rejects.toThrow("The merchant has canceled")
    await bySubscriber(id, cancelIt)
    expect(await standing()).toEqual([true, "both"])
    expect((await rig.ask(id, "resume")).body).toMatchObject({ cancelAtPeriodEnd: true, cancelAskedBy: "subscriber" })
    expect(await rig.ask(id, "resume")).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    // Ending a pause does not withdraw the cancellation.
    await rig.ask(id, "pause")
    expect((await rig.ask(id, "resume")).body).toMatchObject({ pausedAt: null, cancelAskedBy: "subscriber" })
    await bySubscriber(id, resumeSubscription)
    expect(await standing()).toEqual([false, null])
  })

  it("at once ends what a reorg moves, and not what was paid after it, in the same instant", async () => {
    await rig.begin(BEGIN)
    const session = await rig.start(await rig.product())
    await rig.pay(session, { state: "confirmed" })
    await rig.look()
    const { id } = (await rig.call("GET", "subscriptions")).body.data[0]
    const { accessUntil } = (await rig.ask(id, "cancel", { at: "now" })).body
    rig.to(later(rig.now(), 0.1))
    for (const state of ["gone", "confirmed"] as const) {
      await rig.reorg(session, state)
      await rig.look()
    }
    expect(await rig.read(id)).toMatchObject({ status: "canceled", accessUntil })
    rig.to(BEGIN)
    const other = await billed()
    const open = await rig.open(other)
    // Somebody has begun to pay it, so it can't be closed.
    const txHash = `0x${"5f".repeat(32)}`
    await rig.service.call("POST", "/api/pay/confirm", { sessionId: open, txHash })
    await rig.ask(other, "cancel", { at: "now" })
    await rig.pay(open)
    await rig.look()
    expect(await rig.read(other)).toMatchObject({ status: "canceled", accessUntil: "2027-03-31T10:00:00.000Z" })
  })

  it("is taken back three times in a period by its subscriber: each is an invoice and an event", async () => {
    await rig.begin(BEGIN)
    const id = await billed()
    const again = async () => {
      await bySubscriber(id, cancelIt)
      await rig.look()
      await bySubscriber(id, resumeSubscription)
      await rig.look()
    }
    for (let i = 0; i < 2; i++) await again()
    await expect(again()).rejects.toThrow("too often")
    expect(await types()).toEqual(Array(3).fill("renewal.created"))
    // Only its merchant can still resume it.
    expect((await rig.ask(id, "resume")).body).toMatchObject({ cancelAtPeriodEnd: false, cancelAskedBy: null })
  })
})

describe("money", () => {
  it("makes the subscriber of whoever brought most of the first payment, not of a stranger with the last cent", async () => {
    await rig.begin(BEGIN)
    const session = await rig.start(await rig.product())
    await rig.pay(session, { value: 4_990_000n })
    await rig.pay(session, { from: stranger, value: 10_000n })
    await rig.look()
    expect((await rig.call("GET", "subscriptions")).body.data[0].payer.toLowerCase()).toBe(SUBSCRIBER)
  })

  it("that is dust at an invoice nobody paid leaves its subscription canceled, and what pays it does not", async () => {
    await rig.begin(BEGIN)
    const id = await billed()
    const session = await rig.open(id)
    rig.to("2027-03-30T10:00:01Z")
    await rig.look()
    const before = await rig.read(id)
    await rig.pay(session, { from: stranger, value: 1n, state: "seen", at: new Date("2027-03-30T10:00:00Z") })
    await rig.look()
    expect((await rig.call("GET", `checkouts/${session}`)).body.status).toBe("verifying")
    expect(await rig.read(id)).toMatchObject({ ...before, updatedAt: expect.any(String) })
    expect(await rig.ask(id, "pause")).toMatchObject({ status: 409 })
    expect((await rig.call("GET", "invoices?status=unpaid")).body.total).toBe(1)
    expect(await types()).toEqual(["renewal.created", "canceled"])
    await rig.pay(session, { at: new Date("2027-03-30T10:00:00Z") })
    await rig.look()
    expect((await rig.read(id)).status).toBe("active")
  })

  it("that is a part of an open invoice is named where it keeps a subscription from being resumed", async () => {
    await rig.begin(BEGIN)
    const id = await billed()
    await rig.pay(await rig.open(id), { value: 1n })
    await rig.ask(id, "pause")
    await rig.look()
    expect((await rig.ask(id, "resume")).body.message).toContain("must first accept or return that payment")
    const { data } = (await rig.call("GET", "payments")).body
    expect((await rig.call("POST", `payments/${data[0].id}/accept`, {})).status).toBe(200)
    await rig.look()
    expect((await rig.ask(id, "resume")).body).toMatchObject({ status: "active", pausedAt: null })
  })

  it("that its merchant accepts long after the end pays for the period that begins then", async () => {
    await rig.begin(BEGIN)
    const id = await billed()
    const session = await rig.open(id)
    rig.to("2027-03-30T10:00:01Z")
    await rig.look()
    rig.to("2027-04-02T10:00:00Z")
    await rig.pay(session)
    rig.to("2027-08-10T10:00:00Z")
    await rig.look()
    const { data } = (await rig.call("GET", "payments")).body
    await rig.call("POST", `payments/${data[0].id}/accept`, {})
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "active", paidUntil: expect.stringContaining("2027-09-10") })
    expect(await rig.invoices(id)).toHaveLength(2)
    rig.to("2027-09-08T10:00:00Z")
    await rig.look()
    expect((await rig.invoices(id)).at(-1)?.period_end?.toISOString()).toContain("2027-10-10")
  })

  it("that comes weeks late gives access once all arrears are paid, and no event says so before", async () => {
    await rig.begin("2027-01-25T10:00:00Z")
    const id = await rig.subscribed({ billingInterval: "week" })
    rig.to("2027-02-01T10:00:00Z")
    await rig.look()
    rig.to("2027-02-20T10:00:00Z")
    await rig.look()
    const standings: string[] = []
    for (let i = 0; i < 3; i++) {
      await rig.pay(await rig.open(id))
      await rig.look()
      const { status, accessUntil } = await rig.read(id)
      standings.push(`${status} ${new Date(accessUntil) > rig.now()}`)
    }
    expect(standings).toEqual(["past_due false", "past_due false", "active true"])
    expect(await types()).toEqual(["renewal.created", "past_due", ...Array(3).fill("renewal.created"), "resumed"])
  })

  it("that pays a withdrawn invoice after a move is followed by a whole period", async () => {
    await rig.begin("2027-01-01T10:00:00Z")
    const id = await rig.subscribed({ billingInterval: "week" })
    rig.to("2027-01-06T10:00:00Z")
    await rig.look()
    const session = await rig.open(id)
    await rig.ask(id, "pause")
    await rig.look()
    await rig.call("PUT", `subscriptions/${id}`, { productId: await rig.product() })
    rig.to(later(rig.now(), 0.1))
    await rig.pay(session)
    await rig.look()
    const { data } = (await rig.call("GET", "payments")).body
    await rig.call("POST", `payments/${data[0].id}/accept`, {})
    await rig.look()
    await rig.ask(id, "resume")
    rig.to("2027-01-14T10:00:00Z")
    await rig.look()
    const { period_start, period_end } = (await rig.invoices(id)).at(-1) ?? {}
    expect([period_start?.toISOString(), period_end?.toISOString()]).toEqual([
      "2027-01-15T10:00:00.000Z",
      "2027-02-15T10:00:00.000Z",
    ])
  })

  it("that is paid ahead for another product says when the old one closes", async () => {
    await rig.begin("2027-01-01T10:00:00Z")
    const gold = await rig.product()
    const bronze = await rig.product({ billingInterval: "year" })
    await rig.pay(await rig.start(gold))
    await rig.look()
    const { id } = (await rig.call("GET", "subscriptions")).body.data[0]
    const paywall = (await rig.call("POST", "paywalls", { name: "Gold", price: 5, subscriptionProductId: gold })).body
      .id
    await rig.call("PUT", `subscriptions/${id}`, { productId: bronze })
    rig.to("2027-01-30T10:00:00Z")
    await rig.look()
    await rig.pay(await rig.open(id))
    await rig.look()
    const url = `/api/paywalls/${paywall}/verify?address=${SUBSCRIBER}`
    const { body } = await rig.service.call("GET", url, undefined, { as: "shop" })
    expect(body).toMatchObject({ hasAccess: true, expiresAt: "2027-02-01T10:00:00.000Z" })
  })

  it.each([
    ["while its period lasts", 0.1, "2027-02-14T10:00:00.000Z", "2027-03-14T10:00:00.000Z"],
    // Nobody had access in that week: the period begins with the acceptance. A week's price must not buy a month.
    ["when its period is over", 30, "2027-03-15T", "2027-04-15T"],
  ])(
    "that its merchant accepts %s, after a pause and a move, is followed by a whole period",
    async (_when, days, until, then) => {
      await rig.begin(BEGIN)
      const id = await rig.subscribed({ billingInterval: "week" })
      rig.to("2027-02-06T10:00:00Z")
      await rig.look()
      const session = await rig.open(id)
      await rig.ask(id, "pause")
      await rig.look()
      rig.to(later(rig.now(), 0.1))
      await rig.pay(session)
      await rig.look()
      const month = await rig.product()
      expect((await rig.call("PUT", `subscriptions/${id}`, { productId: month })).status).toBe(200)
      rig.to(later(rig.now(), days))
      const { data } = (await rig.call("GET", "payments")).body
      await rig.call("POST", `payments/${data[0].id}/accept`, {})
      await rig.look()
      expect((await rig.read(id)).paidUntil).toContain(until)
      await rig.ask(id, "resume")
      rig.to(later(new Date((await rig.read(id)).paidUntil), -1))
      await rig.look()
      const next = (await rig.invoices(id)).at(-1)
      expect(next?.product_id).toBe(month)
      expect([next?.period_start?.toISOString(), next?.period_end?.toISOString()]).toEqual([
        expect.stringContaining(until),
        expect.stringContaining(then),
      ])
    },
  )

  it("that a reorg removes takes the first invoice out of every list with its subscription", async () => {
    await rig.begin(BEGIN)
    const session = await rig.start(await rig.product())
    await rig.pay(session, { state: "confirmed" })
    await rig.look()
    const total = async () => (await rig.call("GET", "invoices")).body.total
    expect(await total()).toBe(1)
    await rig.reorg(session, "gone")
    await rig.look()
    expect(await total()).toBe(0)
  })
})

describe("a merchant", () => {
  it("says whom renewals are mailed to, whatever whoever has the link says", async () => {
    await rig.begin(BEGIN)
    const product = await rig.product()
    const emails: string[] = []
    for (const more of [{ customerEmail: "ada@shop.example" }, {}]) {
      const sessionId = await rig.start(product, more)
      const txHash = `0x${"6f".repeat(32)}`
      await rig.service.call("POST", "/api/pay/confirm", { sessionId, txHash, customerEmail: "eve@x.example" })
      await rig.pay(sessionId)
      await rig.look()
      const [{ customerEmail }] = (await rig.call("GET", `subscriptions?q=${sessionId}`)).body.data
      emails.push(customerEmail)
    }
    expect(emails).toEqual(["ada@shop.example", "eve@x.example"])
  })

  it("who moves a subscription away and back starts counting its periods again", async () => {
    await rig.begin(BEGIN)
    const one = await rig.product({ maxPeriods: 1 })
    const two = await rig.product()
    await rig.pay(await rig.start(one))
    await rig.look()
    const { id } = (await rig.call("GET", "subscriptions")).body.data[0]
    const move = (productId: string) => rig.call("PUT", `subscriptions/${id}`, { productId })
    const payNext = async () => {
      const last = (await rig.invoices(id)).at(-1)
      rig.to(later(last?.period_end as Date, -1))
      await rig.look()
      await rig.pay(await rig.open(id))
      await rig.look()
    }
    await move(two)
    await payNext()
    await move(one)
    expect((await rig.read(id)).status).toBe("active")
    await payNext()
    rig.to(later((await rig.invoices(id)).at(-1)?.period_end as Date, 0.01))
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "canceled", cancelReason: "completed" })
    expect((await rig.invoices(id)).map(each => each.product_id)).toEqual([one, two, one])
  })

  it("sees why an invoice can't be made, until it can", async () => {
    await rig.begin(BEGIN)
    const id = await rig.subscribed()
    const { ctx } = rig.service
    const { minAmount } = ctx.settings
    const reasons: string[] = []
    const note = async () => {
      rig.to(later(rig.now(), 0.01))
      await rig.look()
      reasons.push((await rig.read(id)).blockedBy)
    }
    rig.to(BILLED)
    ctx.settings.minAmount = "100"
    await note()
    ctx.settings.minAmount = minAmount
    const [address] = await ctx.db.deleteFrom("payout_addresses").returningAll().execute()
    await note()
    if (address) await ctx.db.insertInto("payout_addresses").values(address).execute()
    await note()
    expect(reasons).toEqual(["price", "payout_address", null])
    expect(await rig.invoices(id)).toHaveLength(2)
  })

  it("who lacks a payout address for months bills nobody for the time without access", async () => {
    await rig.begin(BEGIN)
    const id = await rig.subscribed()
    const { db } = rig.service.ctx
    const [address] = await db.deleteFrom("payout_addresses").returningAll().execute()
    for (const at of ["2027-02-26", "2027-03-04", "2027-06-05"]) {
      rig.to(`${at}T10:00:00Z`)
      await rig.look()
    }
    expect(await rig.read(id)).toMatchObject({ status: "past_due", blockedBy: "payout_address" })
    if (address) await db.insertInto("payout_addresses").values(address).execute()
    rig.to("2027-06-05T10:20:00Z")
    await rig.look()
    expect((await rig.invoices(id)).at(-1)?.period_start?.toISOString()).toContain("2027-06-05")
    expect(await types()).toEqual(["past_due", "renewal.created", "resumed"])
  })

  it("with a hundred endpoints has its events sent to each", async () => {
    await rig.begin(BEGIN)
    const { ctx } = rig.service
    const { id: merchantId } = await ctx.db.selectFrom("merchants").select("id").executeTakeFirstOrThrow()
    const now = rig.now()
    const hook = { merchant_id: merchantId, url: "https://shop.example/", description: null, events: '["*"]' }
    const hooks = Array.from({ length: 100 }, (_, i) => ({ ...hook, id: `c${`${i}`.padStart(24, "0")}`, active: true }))
    await ctx.db
      .insertInto("webhooks")
      .values(hooks.map(each => ({ ...each, created_at: now, updated_at: now })))
      .execute()
    const events = Array.from({ length: 70 }, (_, i) => {
      return { merchantId, type: "subscription.renewal.created" as const, orderKey: `sub_${i}`, data: {} as never }
    })
    await inTransaction(ctx, ctx => emit(ctx, ...events))
    expect(await ctx.db.selectFrom("deliveries").select("id").execute()).toHaveLength(7_000)
  })
})
