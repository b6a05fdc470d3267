import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { later, SUBSCRIBER, type SubscriptionRig, startSubscriptionRig } from "../../../test/subscription-rig.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { openLog } from "../../platform/log.ts"
import { createLinkSession } from "../checkouts/create-session.ts"

let rig: SubscriptionRig
beforeAll(async () => {
  rig = await startSubscriptionRig()
})
afterAll(() => rig?.stop())

const day = (date: Date | null) => date?.toISOString().slice(0, 10)
const types = async () => (await rig.events()).map(({ type }) => type)

/** Pays each invoice on its due day, until this many were paid; returns where the periods begin and end. */
async function payOn(id: string, count: number): Promise<(string | undefined)[][]> {
  for (let i = 0; i < 3 * count; i++) {
    const invoices = await rig.invoices(id)
    const last = invoices.at(-1)
    if (!last) throw new Error("no invoice")
    if (last.paid_at && invoices.length === count)
      return invoices.map(each => [day(each.period_start), day(each.period_end)])
    if (!last.paid_at) {
      rig.to(last.due_at)
      await rig.pay(last.session_id)
      await rig.look()
    } else {
      rig.to(later(last.period_end as Date, -0.4))
      await rig.look()
    }
  }
  throw new Error("not so many invoices were made")
}

describe("the calendar of a subscription", () => {
  it.each<[string, string, object, string[]]>([
    [
      "a month from 31 January, over a leap year",
      "2027-12-31T22:30:00Z",
      { billingInterval: "month" },
      ["2027-12-31", "2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"],
    ],
    [
      "a year from 29 February",
      "2028-02-29T10:00:00Z",
      { billingInterval: "year" },
      ["2028-02-29", "2029-02-28", "2030-02-28", "2031-02-28", "2032-02-29"],
    ],
    [
      "a quarter to its end",
      "2026-11-30T23:59:59Z",
      { billingInterval: "month", billingCount: 3 },
      ["2026-11-30", "2027-02-28", "2027-05-30", "2027-08-30"],
    ],
    [
      "a day",
      "2027-03-27T23:00:00Z",
      { billingInterval: "day" },
      ["2027-03-27", "2027-03-28", "2027-03-29", "2027-03-30"],
    ],
    [
      "a trial of 14 days",
      "2027-01-17T00:00:00Z",
      { billingInterval: "month", trialDays: 14 },
      ["2027-01-17", "2027-02-28", "2027-03-31", "2027-04-30"],
    ],
  ])("of %s has no gap", async (_name, at, terms, days) => {
    await rig.begin(at)
    const id = await rig.subscribed(terms)
    const periods = days.slice(1).map((end, i) => [days[i], end])
    expect(await payOn(id, periods.length)).toEqual(periods)
    expect((await rig.events()).map(each => [each.type, each.periodStart.slice(0, 10)])).toEqual(
      periods.slice(1).map(([start]) => ["renewal.created", start]),
    )
  })
})

describe("a subscription", () => {
  it("begins with its first confirmed payment, and the event of its renewal has every field", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const productId = await rig.product({ name: "Magazine" })
    const session = await rig.start(productId, { customerEmail: "a@b.example", metadata: { reader: 7 } })
    expect((await rig.call("GET", "subscriptions")).body).toEqual({ data: [], total: 0 })
    await rig.pay(session, { state: "confirmed" })
    await rig.look()
    const [shown] = (await rig.call("GET", "subscriptions")).body.data
    expect(shown).toMatchObject({
      status: "active",
      productId,
      billingInterval: "month",
      billingCount: 1,
      customerEmail: "a@b.example",
      startedAt: "2027-01-31T10:00:00.000Z",
      paidUntil: "2027-02-28T10:00:00.000Z",
      accessUntil: "2027-03-03T10:00:00.000Z",
      cancelAtPeriodEnd: false,
    })
    expect(shown.payer.toLowerCase()).toBe(SUBSCRIBER)
    await rig.call("PUT", `products/${productId}`, { price: "6.00" })
    rig.to("2027-02-25T10:00:00Z")
    await rig.look()
    // A reorg can still remove the payment; then a second invoice would be open beside the first.
    expect(await rig.invoices(shown.id)).toHaveLength(1)
    await rig.finalize()
    rig.to("2027-02-25T10:02:00Z")
    await rig.look()
    const [, invoice] = await rig.invoices(shown.id)
    expect(await rig.events()).toEqual([
      {
        type: "renewal.created",
        subscriptionId: shown.id,
        invoiceId: invoice?.id,
        checkoutSessionId: invoice?.session_id,
        amount: "6.00",
        currency: "USDC",
        hostedUrl: expect.stringMatching(`/invoice/${invoice?.id}$`),
        dueAt: "2027-02-28T10:00:00.000Z",
        periodStart: "2027-02-28T10:00:00.000Z",
        periodEnd: "2027-03-31T10:00:00.000Z",
        productId,
        customerEmail: "a@b.example",
        sequence: 1,
        merchantId: expect.any(String),
      },
    ])
    const { body } = await rig.call("GET", `checkouts/${invoice?.session_id}`)
    expect(body).toMatchObject({
      amount: "6.00",
      description: "Magazine",
      customerEmail: "a@b.example",
      metadata: { reader: 7 },
      status: "pending",
      expiresAt: "2027-03-30T10:00:00.000Z",
      productId,
    })
    const keys = await rig.service.ctx.db
      .selectFrom("events")
      .select("dedupe_key")
      .where("type", "like", "subscription.%")
      .execute()
    expect(keys).toEqual([{ dedupe_key: `subscription.renewal.created:${invoice?.id}` }])
  })

  it("that is not paid is due, past due without access, and canceled; a payment found later brings it back", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    const statuses: string[] = []
    for (const at of ["2027-02-27", "2027-03-01", "2027-03-04", "2027-03-30"]) {
      rig.to(`${at}T09:00:00Z`)
      await rig.look()
      const { status, accessUntil } = await rig.read(id)
      statuses.push(`${status} ${accessUntil.slice(0, 10)}`)
    }
    expect(statuses).toEqual([
      "active 2027-03-03",
      "payment_due 2027-03-03",
      "past_due 2027-03-03",
      "past_due 2027-03-03",
    ])
    const session = await rig.open(id)
    rig.to("2027-03-30T10:00:01Z")
    await rig.look()
    expect(await rig.read(id)).toMatchObject({
      status: "canceled",
      cancelReason: "unpaid",
      accessUntil: "2027-02-28T10:00:00.000Z",
    })
    // The payment was mined in the last second, by somebody whose page was closed.
    await rig.pay(session, { at: new Date("2027-03-30T10:00:00Z") })
    await rig.look()
    // Its period is nearly over, so the next invoice is created at once.
    expect(await rig.read(id)).toMatchObject({ status: "active", endedAt: null, paidUntil: "2027-03-31T10:00:00.000Z" })
    expect(await rig.invoices(id)).toHaveLength(3)
    expect(await types()).toEqual(["renewal.created", "past_due", "canceled", "renewal.created", "resumed"])
    const [, pastDue] = await rig.events()
    expect(pastDue).toMatchObject({
      status: "past_due",
      hostedUrl: expect.stringMatching(`/invoice/${pastDue.invoiceId}$`),
    })
  })

  it("that is paid in the second in which it would be canceled is not, though the clock is beyond", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    const session = await rig.open(id)
    rig.to("2027-03-30T10:00:05Z")
    await rig.pay(session, { at: new Date("2027-03-30T10:00:00Z") })
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "active", paidUntil: "2027-03-31T10:00:00.000Z" })
    expect(await types()).not.toContain("canceled")
  })

  it("is billed for each period once after its worker was down for three", async () => {
    await rig.begin("2027-01-01T00:00:00Z")
    const id = await rig.subscribed()
    rig.to("2027-04-10T00:00:00Z")
    await rig.look()
    for (let i = 0; i < 3; i++) {
      expect(Number((await rig.invoices(id)).at(-1)?.due_at)).toBeGreaterThanOrEqual(Date.parse("2027-04-10T00:00:00Z"))
      await rig.pay(await rig.open(id))
      await rig.look()
    }
    const periods = (await rig.invoices(id)).map(each => [
      day(each.period_start),
      day(each.period_end),
      each.paid_at !== null,
    ])
    expect(periods).toEqual([
      ["2027-01-01", "2027-02-01", true],
      ["2027-02-01", "2027-03-01", true],
      ["2027-03-01", "2027-04-01", true],
      ["2027-04-01", "2027-05-01", true],
    ])
    expect(await types()).toEqual(["renewal.created", "renewal.created", "past_due", "renewal.created", "resumed"])
  })

  it("is paused across a renewal, and not billed for the time that nobody had", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    const voided = await rig.open(id)
    expect((await rig.ask(id, "pause")).body).toMatchObject({
      status: "paused",
      accessUntil: "2027-02-28T10:00:00.000Z",
    })
    expect(await rig.ask(id, "pause")).toMatchObject({ status: 200, body: { pausedAt: rig.now().toISOString() } })
    await rig.look()
    expect((await rig.call("GET", `checkouts/${voided}`)).body.status).toBe("expired")
    rig.to("2027-04-10T08:00:00Z")
    await rig.look()
    expect(await rig.invoices(id)).toHaveLength(2)
    // The first invoice after the resumption is due at once, and its period begins now.
    expect((await rig.ask(id, "resume")).body.status).toBe("payment_due")
    expect((await rig.invoices(id)).map(each => [day(each.period_start), day(each.period_end)])).toEqual([
      ["2027-01-31", "2027-02-28"],
      ["2027-02-28", "2027-03-31"],
      ["2027-04-10", "2027-05-10"],
    ])
    expect(await types()).toEqual(["renewal.created", "renewal.created", "resumed"])
    expect(
      (await rig.call("GET", `invoices?subscriptionId=${id}`)).body.data.map((each: { status: string }) => each.status),
    ).toEqual(["open", "void", "paid"])
  })

  it("that somebody is paying while it is paused counts that payment", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    const session = await rig.open(id)
    const txHash = `0x${"5f".repeat(32)}`
    await rig.service.call("POST", "/api/pay/confirm", { sessionId: session, txHash })
    await rig.ask(id, "pause")
    await rig.look()
    expect((await rig.ask(id, "resume")).body.message).toContain("is in progress")
    await rig.pay(session)
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "paused", paidUntil: "2027-03-31T10:00:00.000Z" })
    expect((await rig.ask(id, "resume")).body).toMatchObject({ status: "active", pausedAt: null })
  })

  it("that ends with its period has ended then, though an invoice is half paid; the rest opens that one's period", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    rig.to("2027-02-27T10:00:00Z")
    await rig.look()
    const session = await rig.open(id)
    await rig.pay(session, { value: 2_000_000n })
    await rig.ask(id, "cancel", { at: "period_end" })
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "active" })
    rig.to("2027-02-28T10:00:00Z")
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "canceled", accessUntil: "2027-02-28T10:00:00.000Z" })
    rig.to("2027-03-05T10:00:00Z")
    await rig.pay(session, { value: 3_000_000n })
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "active", accessUntil: "2027-03-31T10:00:00.000Z" })
    rig.to("2027-03-31T10:00:00Z")
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "canceled" })
    expect(await rig.invoices(id)).toHaveLength(2)
    expect(await types()).toEqual(["renewal.created", "canceled", "resumed", "canceled"])
  })

  it("takes no late money for a closed invoice that another has replaced, whether that one is paid or not", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    const closed = await rig.open(id)
    await rig.ask(id, "pause")
    await rig.look()
    await rig.ask(id, "resume")
    await rig.look()
    await rig.pay(closed)
    await rig.look()
    const { data } = (await rig.call("GET", "payments?status=open")).body
    expect(data).toMatchObject([{ exception: "late", buys: false, acceptable: false }])
    const story = (await rig.call("GET", `payments/${data[0].id}`)).body
    expect(story.payments).toMatchObject([{ buys: false, acceptable: false }])
    expect(story.status.next.map(({ route }: { route: string | null }) => route?.split("/").at(-1))).toEqual([
      undefined,
      "return",
    ])
    const accept = () => rig.call("POST", `payments/${data[0].id}/accept`, {})
    const refused = { status: 409, body: { error: "INVALID_OPERATION", message: expect.stringContaining("return it") } }
    expect(await accept()).toMatchObject(refused)
    await rig.pay(await rig.open(id))
    await rig.look()
    expect(await accept()).toMatchObject(refused)
    expect((await rig.call("GET", `checkouts/${closed}`)).body.status).toBe("expired")
    expect((await rig.call("GET", "payments?status=open")).body.data).toMatchObject([{ status: "open" }])
    expect(await rig.read(id)).toMatchObject({ status: "active", paidUntil: "2027-03-31T10:00:00.000Z" })
  })

  it("that was paused before its payment was mined has the period whose late money its merchant accepts", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    const session = await rig.open(id)
    await rig.ask(id, "pause")
    await rig.look()
    rig.to(later(rig.now(), 0.1))
    await rig.pay(session)
    await rig.look()
    expect((await rig.invoices(id)).at(-1)).toMatchObject({ paid_at: null, voided_at: expect.any(Date) })
    const { data } = (await rig.call("GET", "payments")).body
    expect((await rig.call("POST", `payments/${data[0].id}/accept`, {})).status).toBe(200)
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "paused", paidUntil: "2027-03-31T10:00:00.000Z" })
    expect((await rig.ask(id, "resume")).body.status).toBe("active")
    await rig.look()
    expect(await rig.invoices(id)).toHaveLength(2)
  })

  it("is canceled at its period's end, which can be taken back until then, and at once for good", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    const end = { at: "period_end" }
    expect((await rig.ask(id, "cancel", end)).body).toMatchObject({ status: "active", cancelAtPeriodEnd: true })
    expect((await rig.ask(id, "resume")).body.message).toContain("is being closed")
    await rig.look()
    expect((await rig.ask(id, "resume")).body).toMatchObject({ status: "active", cancelAtPeriodEnd: false })
    await rig.pay(await rig.open(id))
    await rig.look()
    await rig.ask(id, "cancel", end)
    rig.to("2027-03-31T10:00:00Z")
    await rig.look()
    expect(await rig.read(id)).toMatchObject({
      status: "canceled",
      cancelReason: "requested",
      accessUntil: "2027-03-31T10:00:00.000Z",
    })
    expect(await rig.ask(id, "resume")).toMatchObject({ status: 409 })
    expect(await types()).toEqual(["renewal.created", "renewal.created", "canceled"])
    const other = await rig.subscribed()
    expect((await rig.ask(other, "cancel", { at: "now" })).body).toMatchObject({
      status: "canceled",
      accessUntil: rig.now().toISOString(),
    })
  })

  it("ends after its last period, and moves to another product from its next invoice on", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed({ maxPeriods: 2 })
    await payOn(id, 2)
    rig.to("2027-03-31T10:00:00Z")
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "canceled", cancelReason: "completed" })
    rig.to("2027-05-31T10:00:00Z")
    const moved = await rig.subscribed()
    const week = await rig.product({ price: 2, billingInterval: "week" })
    const single = await rig.product({ billingInterval: undefined })
    expect(await rig.call("PUT", `subscriptions/${moved}`, { productId: single })).toMatchObject({ status: 400 })
    expect((await rig.call("PUT", `subscriptions/${moved}`, { productId: week })).body).toMatchObject({
      productId: week,
      billingInterval: "week",
    })
    expect((await payOn(moved, 3)).slice(1)).toEqual([
      ["2027-06-30", "2027-07-07"],
      ["2027-07-07", "2027-07-14"],
    ])
    const ofMoved = (await rig.events()).filter(each => each.subscriptionId === moved)
    expect(ofMoved.at(-1)).toMatchObject({ amount: "2.00" })
  })

  it("loses its beginning with a first payment that a reorg removes, and begins again when that is back", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const session = await rig.start(await rig.product())
    await rig.pay(session, { state: "confirmed" })
    await rig.look()
    await rig.reorg(session, "gone")
    await rig.look()
    expect((await rig.call("GET", "subscriptions")).body.total).toBe(0)
    rig.to("2027-01-31T11:00:00Z")
    await rig.reorg(session, "confirmed")
    await rig.look()
    expect((await rig.call("GET", "subscriptions")).body.data).toMatchObject([
      { status: "active", startedAt: "2027-01-31T11:00:00.000Z" },
    ])
  })

  it("is paid by anyone, and stays the first payer's; an escrow for it is refused", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const productId = await rig.product()
    const { status, body } = await rig.call("POST", "checkouts", { productId, capture: "manual" })
    expect({ status, details: body.details }).toMatchObject({
      status: 400,
      details: expect.arrayContaining([
        expect.objectContaining({ path: "capture", message: expect.stringContaining("must be `direct`") }),
      ]),
    })
    const id = await rig.subscribed()
    rig.to("2027-02-28T10:00:00Z")
    await rig.look()
    await rig.pay(await rig.open(id), { from: `0x${"cd".repeat(20)}` as Address })
    await rig.look()
    expect((await rig.read(id)).payer.toLowerCase()).toBe(SUBSCRIBER)
  })

  it("is split as its product says: a checkout or a link of it has no split of its own", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const productId = await rig.product()
    const recipients = [40, 60].map((percent, i) => ({ address: `0x${`${i + 1}1`.repeat(20)}`, percent }))
    const splitId = (await rig.call("POST", "splits", { name: "two", recipients })).body.id
    const link = (await rig.call("POST", "payment-links", { title: "Magazine", productId })).body
    const refused = { status: 400, body: { details: [{ path: "splitId" }] } }
    expect(await rig.call("POST", "checkouts", { productId, splitId })).toMatchObject(refused)
    expect(await rig.call("POST", "checkouts", { slug: link.slug, splitId })).toMatchObject(refused)
    expect(await rig.call("POST", "payment-links", { title: "Other", productId, splitId })).toMatchObject(refused)
    expect(await rig.call("PUT", `payment-links/${link.id}`, { splitId })).toMatchObject(refused)
    await rig.call("PUT", `products/${productId}`, { splitId })
    expect((await rig.call("POST", "checkouts", { slug: link.slug })).body).toMatchObject({ splitId })
  })

  it("is sold by a link at its product's present price, and not once that is off", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const productId = await rig.product()
    const { id, slug } = (await rig.call("POST", "payment-links", { title: "Magazine", productId })).body
    await rig.call("PUT", `products/${productId}`, { price: "9.00" })
    expect((await rig.call("GET", `payment-links/${id}`)).body).toMatchObject({ amount: "9.00" })
    const sell = () => rig.service.call("POST", "/api/pay/sessions", { slug })
    expect(await sell()).toMatchObject({ status: 201, body: { amount: "9.00" } })
    await rig.call("DELETE", `products/${productId}`)
    expect(await sell()).toMatchObject({ status: 410, body: { error: "LINK_UNAVAILABLE" } })
    await rig.call("PUT", `products/${productId}`, { active: true })
    expect((await sell()).status).toBe(201)
  })

  it("is not canceled by closing the checkout of its invoice, which is refused", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const productId = await rig.product()
    expect((await rig.call("DELETE", `checkouts/${await rig.start(productId)}`)).status).toBe(200)
    const id = await rig.subscribed()
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    const session = await rig.open(id)
    expect(await rig.call("DELETE", `checkouts/${session}`)).toMatchObject({
      status: 409,
      body: { error: "INVALID_OPERATION", message: expect.stringContaining("pause or cancel") },
    })
    await rig.look()
    expect([await rig.open(id), (await rig.read(id)).status]).toEqual([session, "active"])
  })
})

describe("what a subscription is", () => {
  it("is listed, filtered and exported with its invoices, to its merchant alone", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const one = await rig.subscribed({}, { customerEmail: "a@b.example" })
    const two = await rig.subscribed()
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    await rig.ask(two, "cancel", { at: "now" })
    await rig.look()
    const [, open] = await rig.invoices(one)
    const ids = async (path: string) =>
      (await rig.call("GET", path)).body.data.map((each: { id: string }) => each.id).sort()
    const { productId } = await rig.read(one)
    const found: [string, string[]][] = [
      ["", [one, two].sort()],
      ["?status=active", [one]],
      ["?status=canceled", [two]],
      ["?status=paused", []],
      [`?productId=${productId}`, [one]],
      [`?q=${SUBSCRIBER}`, [one, two].sort()],
      [`?q=0x${"cd".repeat(20)}`, []],
      [`?q=${two}`, [two]],
      ["?q=a@b.example", [one]],
      [`?q=${open?.id}`, [one]],
      [`?q=${open?.session_id}`, [one]],
    ]
    const linesOf = async (path: string, as = "shop"): Promise<string[]> =>
      (await rig.service.call("GET", `/api/console/${path}`, undefined, { as })).body.split("\r\n").slice(0, -1)
    const heads = async (path: string) => (await linesOf(path)).slice(1).map(line => line.split(",")[0])
    for (const [query, expected] of found) {
      expect([query, await ids(`subscriptions${query}`)]).toEqual([query, expected])
      expect([query, (await heads(`subscriptions.csv${query}`)).sort()]).toEqual([query, expected])
    }
    const all = [...(await rig.invoices(one)), ...(await rig.invoices(two))]
    const [paid, ended, other] = [all[0], all[3], all[2]].map(each => each?.id)
    const invoices: [string, (string | undefined)[]][] = [
      ["?status=paid", [paid, other]],
      ["?status=open", [open?.id]],
      ["?status=void", [ended]],
      ["?status=unpaid", []],
      [`?subscriptionId=${one}`, [paid, open?.id]],
      [`?subscriptionId=${two}&status=paid`, [other]],
    ]
    for (const [query, expected] of invoices) {
      expect([query, await ids(`invoices${query}`)]).toEqual([query, expected.sort()])
      expect([query, (await heads(`invoices.csv${query}`)).sort()]).toEqual([query, expected])
    }
    const [names, line] = await linesOf(`subscriptions.csv?q=${one}`)
    expect(names).toBe(
      "id,status,cancelReason,productId,billingInterval,billingCount,maxPeriods,chain,payer,startedAt,paidUntil,accessUntil,pausedAt,endedAt",
    )
    // It contains no text from outside, which a spreadsheet might take for a formula.
    expect(line?.toLowerCase()).toBe(
      `${one},active,,${productId},month,1,,base-sepolia,${SUBSCRIBER},2027-01-31t10:00:00.000z,2027-02-28t10:00:00.000z,2027-03-03t10:00:00.000z,,`,
    )
    const [columns, row] = await linesOf("invoices.csv?status=open")
    expect(columns).toBe(
      "id,subscriptionId,sequence,status,amount,currency,chain,productId,checkoutSessionId,periodStart,periodEnd,dueAt,paidAt,createdAt",
    )
    const cells = [open?.id, one, 2, "open", "5.00", "USDC", "base-sepolia", productId, open?.session_id]
    expect(row).toContain(`${cells.join(",")},2027-02-28T10:00:00.000Z,2027-03-31T10:00:00.000Z,`)
    await rig.service.merchant("rival")
    for (const path of ["subscriptions.csv", "invoices.csv"]) expect(await linesOf(path, "rival")).toHaveLength(1)
  })

  it("keeps its pace: another interval or count is refused, and a move to another pace while an invoice is open", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const id = await rig.subscribed()
    const { productId } = await rig.read(id)
    const products = () => rig.service.ctx.db.selectFrom("products").selectAll().orderBy("id").execute()
    const week = await rig.product({ billingInterval: "week" })
    const before = await products()
    for (const [path, value] of [
      ["billingInterval", "week"],
      ["billingCount", 2],
    ] as const) {
      const answer = await rig.call("PUT", `products/${productId}`, { price: "6.00", [path]: value })
      expect(answer).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR", details: [{ path }] } })
    }
    expect(await products()).toEqual(before)
    const same = { billingInterval: "month", billingCount: 1 }
    expect(await rig.call("PUT", `products/${productId}`, same)).toMatchObject({ status: 200 })
    rig.to("2027-02-26T10:00:00Z")
    await rig.look()
    const moved = await rig.call("PUT", `subscriptions/${id}`, { productId: week })
    expect(moved).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    expect(await rig.read(id)).toMatchObject({ productId, billingInterval: "month" })
  })

  it("begins by a payment link for a person, and never for an agent", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const { ctx } = rig.service
    const link = (
      await rig.call("POST", "payment-links", { title: "Magazine", slug: "magazine", productId: await rig.product() })
    ).body
    const counts = async () =>
      Promise.all(
        (["subscriptions", "invoices"] as const).map(
          async table => (await ctx.db.selectFrom(table).selectAll().execute()).length,
        ),
      )
    for (const [caller, expected] of [
      ["192.0.2.1", [0, 0]],
      [undefined, [1, 1]],
    ] as const) {
      const { session } = await createLinkSession(ctx, { slug: link.slug }, caller)
      await rig.pay(session.id)
      await rig.look()
      expect([caller, await counts()]).toEqual([caller, expected])
    }
  })

  it("stays paid where a reorg removes an earlier payment that was final, and says so in the log", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const { ctx } = rig.service
    const id = await rig.subscribed()
    await payOn(id, 2)
    const lines: { level: number; msg: string; subscriptionId: string; sessionId: string }[] = []
    const { log } = ctx
    ctx.log = openLog("error", { write: line => void lines.push(JSON.parse(line)) })
    const [first] = await rig.invoices(id)
    const before = await rig.read(id)
    await rig.reorg(first?.session_id ?? "", "gone")
    await rig.look()
    ctx.log = log
    expect(await rig.read(id)).toEqual({ ...before, updatedAt: expect.any(String) })
    expect(lines.filter(each => each.subscriptionId === id)).toMatchObject([
      { sessionId: first?.session_id, msg: expect.stringContaining("removed the payment of an earlier invoice") },
    ])
  })
})
