// However often a wallet subscribes to one product, it has one trial and the grace once.
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { until } from "../../../test/e2e/program.ts"
import { paperNetwork } from "../../../test/service.ts"
import { later, SUBSCRIBER, type SubscriptionRig, startSubscriptionRig } from "../../../test/subscription-rig.ts"
import { type Address, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import { accessOf } from "../paywalls/read-access.ts"
import { advance } from "./advance-subscription.ts"
import { claimFirst } from "./claim-first-subscription.ts"
import { holdSubscription } from "./load-subscription.ts"

let rig: SubscriptionRig
beforeAll(async () => {
  rig = await startSubscriptionRig()
})
afterAll(() => rig?.stop())

const OTHER = `0x${"cd".repeat(20)}` as Address
const DAY_MS = 86_400_000
const STEP_DAYS = 0.25

const productOf = (terms: object = {}) => rig.product({ price: "1", billingInterval: "day", ...terms })

async function subscribe(product: string, from?: Address): Promise<string> {
  const session = await rig.start(product)
  await rig.pay(session, from ? { from } : {})
  await rig.look()
  return await idOf(session)
}

async function idOf(session: string): Promise<string> {
  const { db } = rig.service.ctx
  const invoices = db.selectFrom("invoices").select("subscription_id").where("session_id", "=", session)
  return (await invoices.executeTakeFirstOrThrow()).subscription_id
}

async function paywallOf(product: string): Promise<string> {
  const { status, body } = await rig.call("POST", "paywalls", { name: "P", price: "9", subscriptionProductId: product })
  expect(status).toBe(201)
  return body.id
}

async function isOpen(paywallId: string, address: Address = SUBSCRIBER): Promise<boolean> {
  const { ctx } = rig.service
  const paywall = await ctx.db.selectFrom("paywalls").selectAll().where("id", "=", paywallId).executeTakeFirstOrThrow()
  return (await accessOf(ctx, paywall, address)) !== undefined
}

/** How many days a paywall stays open to the subscriber, read four times a day. */
async function openDays(paywall: string): Promise<number> {
  for (let steps = 0; steps < 400; steps++) {
    if (!(await isOpen(paywall))) return steps * STEP_DAYS
    rig.to(later(rig.now(), STEP_DAYS))
    await rig.look()
  }
  throw new Error("it stays open")
}

it.each([
  { trialDays: 0, days: [4, 1, 1] },
  { trialDays: 7, days: [11, 1, 1] },
])(
  "one day's price again and again opens a paywall for $days days (trial: $trialDays)",
  async ({ trialDays, days }) => {
    await rig.begin("2027-01-31T10:00:00Z")
    const product = await productOf({ trialDays })
    const paywall = await paywallOf(product)
    const found: number[] = []
    const shown: object[] = []
    for (const _ of days) {
      const { body } = await rig.call("GET", `subscriptions/${await subscribe(product)}`)
      shown.push({ trialDays: body.trialDays, graceDays: body.graceDays })
      found.push(await openDays(paywall))
    }
    expect(found.map(Math.floor)).toEqual(days)
    expect(shown).toEqual([{ trialDays, graceDays: 3 }, ...days.slice(1).map(() => ({ trialDays: 0, graceDays: 0 }))])
    // Another wallet has its own.
    const { body } = await rig.call("GET", `subscriptions/${await subscribe(product, OTHER)}`)
    expect(body).toMatchObject({ trialDays, graceDays: 3 })
  },
)

it("a product that offers a trial later gives none to who has subscribed before, and a longer one neither", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const product = await productOf()
  await subscribe(product)
  expect((await rig.call("PUT", `products/${product}`, { trialDays: 30 })).status).toBe(200)
  expect(await rig.read(await subscribe(product))).toMatchObject({ trialDays: 0, graceDays: 0 })
  expect(await rig.read(await subscribe(product, OTHER))).toMatchObject({ trialDays: 30, graceDays: 3 })
  expect((await rig.call("PUT", `products/${product}`, { trialDays: 60 })).status).toBe(200)
  expect(await rig.read(await subscribe(product, OTHER))).toMatchObject({ trialDays: 0, graceDays: 0 })
})

it("a wallet that its merchant moved to a product has had that product too", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const one = await productOf()
  const other = await productOf({ trialDays: 7 })
  const moved = await subscribe(one)
  const move = (id: string, productId: string) => rig.call("PUT", `subscriptions/${id}`, { productId })
  expect((await move(moved, other)).body).toMatchObject({ graceDays: 3 })
  expect(await rig.read(await subscribe(other))).toMatchObject({ trialDays: 0, graceDays: 0 })
  const again = await subscribe(one)
  expect(await rig.read(again)).toMatchObject({ trialDays: 0, graceDays: 0 })
  expect((await move(again, other)).body).toMatchObject({ graceDays: 0 })
  expect((await move(moved, one)).body).toMatchObject({ graceDays: 3 })
})

it("of many that begin at the same time one is the first", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const { ctx } = rig.service
  const product = await productOf({ trialDays: 30 })
  const sessions = await Promise.all(Array.from({ length: 12 }, () => rig.start(product)))
  for (const session of sessions) await rig.pay(session)
  // Each begins in a transaction of its own, as those of several processes do.
  const ids = await Promise.all(sessions.map(idOf))
  await Promise.all(
    ids.map(id =>
      inTransaction(ctx, async ctx => {
        const held = await holdSubscription(ctx, id)
        await advance(ctx, held ? [held] : [])
      }),
    ),
  )
  const rows = await ctx.db.selectFrom("subscriptions").selectAll().where("status", "is not", null).execute()
  expect(rows).toHaveLength(sessions.length)
  expect(rows.filter(each => each.is_first)).toHaveLength(1)
  expect(rows.filter(each => each.has_trial)).toHaveLength(1)
})

it("a reorg that removes the first payment leaves the trial to the next subscription, and gives it once", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const product = await productOf({ trialDays: 7 })
  const session = await rig.start(product)
  await rig.pay(session, { state: "confirmed" })
  await rig.look()
  const first = await idOf(session)
  expect(await rig.read(first)).toMatchObject({ trialDays: 7 })
  await rig.reorg(session, "gone")
  await rig.look()
  const next = await subscribe(product)
  expect(await rig.read(next)).toMatchObject({ trialDays: 7, graceDays: 3 })
  await rig.reorg(session, "confirmed")
  await rig.look()
  expect(await rig.read(first)).toMatchObject({ trialDays: 0, graceDays: 0 })
})

it("of two that a reorg removes, the one that comes back has the trial", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const product = await productOf({ trialDays: 7 })
  const sessions = [await rig.start(product), await rig.start(product)]
  const [first = "", second = ""] = sessions
  for (const session of sessions) {
    await rig.pay(session, { state: "confirmed" })
    await rig.look()
  }
  expect(await rig.read(await idOf(second))).toMatchObject({ trialDays: 0, graceDays: 0 })
  for (const session of sessions) await rig.reorg(session, "gone")
  await rig.look()
  await rig.reorg(second, "confirmed")
  await rig.look()
  const back = await rig.read(await idOf(second))
  expect(back).toMatchObject({ trialDays: 7, graceDays: 3 })
  expect(Date.parse(back.paidUntil) - Date.parse(back.startedAt)).toBe(8 * DAY_MS)
  await rig.reorg(first, "confirmed")
  await rig.look()
  expect(await rig.read(await idOf(first))).toMatchObject({ trialDays: 0, graceDays: 0 })
})

it.each([
  { kind: "minted", from: ZERO_ADDRESS },
  { kind: "sent by its token", from: paperNetwork.token.address },
])("what is $kind is from many payers, and each of their subscriptions is first", async ({ from }) => {
  await rig.begin("2027-01-31T10:00:00Z")
  const product = await productOf({ trialDays: 7 })
  const other = await productOf()
  const ids = [await subscribe(product, from), await subscribe(product, from)]
  for (const id of ids) expect(await rig.read(id)).toMatchObject({ trialDays: 7, graceDays: 3 })
  for (const id of ids) await rig.call("PUT", `subscriptions/${id}`, { productId: other })
  rig.to(later(rig.now(), 8))
  await rig.look()
  for (const id of ids) {
    expect(await rig.invoices(id)).toMatchObject([{ product_id: product }, { product_id: other }])
    expect(await rig.read(id)).toMatchObject({ trialDays: 7, graceDays: 3 })
  }
  expect(await rig.service.ctx.db.selectFrom("first_subscriptions").selectAll().execute()).toEqual([])
})

it("one that a process of the version before began has the trial and the grace of its payer", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const product = await productOf({ trialDays: 7 })
  const before = await subscribe(product)
  // That process writes no such row.
  await rig.service.ctx.db.deleteFrom("first_subscriptions").execute()
  expect(await rig.read(await subscribe(product))).toMatchObject({ trialDays: 0, graceDays: 0 })
  expect(await rig.read(await subscribe(product))).toMatchObject({ trialDays: 0, graceDays: 0 })
  expect(await rig.read(before)).toMatchObject({ trialDays: 7, graceDays: 3 })
  expect(await rig.read(await subscribe(product, OTHER))).toMatchObject({ trialDays: 7, graceDays: 3 })
})

it("a place that a process of the version before left after a reorg is free", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const product = await productOf({ trialDays: 7 })
  const session = await rig.start(product)
  await rig.pay(session, { state: "confirmed" })
  await rig.look()
  const { db } = rig.service.ctx
  const places = await db.selectFrom("first_subscriptions").selectAll().where("product_id", "=", product).execute()
  await rig.reorg(session, "gone")
  await rig.look()
  // That process deletes none.
  await db.insertInto("first_subscriptions").values(places).execute()
  expect(await rig.read(await subscribe(product))).toMatchObject({ trialDays: 7, graceDays: 3 })
  expect(await rig.read(await subscribe(product))).toMatchObject({ trialDays: 0, graceDays: 0 })
})

it.runIf(onPostgres)("one that begins while another transaction frees the place waits for it, and has it", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const { ctx } = rig.service
  const product = await productOf({ trialDays: 7 })
  await subscribe(product)
  const next = await idOf(await rig.start(product))
  const { chain_id: chainId } = await ctx.db
    .selectFrom("subscriptions")
    .select("chain_id")
    .where("id", "=", next)
    .executeTakeFirstOrThrow()
  const claim = { payer: SUBSCRIBER, productId: product, subscriptionId: next, chainId, startedAt: rig.now() }
  let isEnded = false
  let claiming: Promise<boolean> | undefined
  await inTransaction(ctx, async tx => {
    await tx.db.deleteFrom("first_subscriptions").where("product_id", "=", product).execute()
    claiming = inTransaction(ctx, async tx => (await claimFirst(tx, [claim]))(next, product)).finally(() => {
      isEnded = true
    })
    await until("the claim waits or has ended", async () => {
      const { rows } = await sql`select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`.execute(ctx.db)
      return isEnded || rows.length > 0
    })
  })
  expect(await claiming).toBe(true)
})

it("a move to a product that the payer had before ends no grace that runs, and gives none afterwards", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const one = await productOf({ trialDays: 2 })
  const other = await productOf()
  await rig.ask(await subscribe(other), "cancel", { at: "now" })
  const id = await subscribe(one)
  rig.to(later(rig.now(), 3.5))
  await rig.look()
  const inGrace = await rig.read(id)
  expect(inGrace).toMatchObject({ status: "payment_due", graceDays: 3 })
  const { accessUntil } = inGrace
  const moved = await rig.call("PUT", `subscriptions/${id}`, { productId: other })
  expect(moved.body).toMatchObject({ status: "payment_due", accessUntil, productId: other })
  await rig.pay(await rig.open(id))
  await rig.look()
  expect((await rig.invoices(id)).at(-1)).toMatchObject({ product_id: other, paid_at: null })
  expect(await rig.read(id)).toMatchObject({ trialDays: 2, graceDays: 0 })
})

it("one that was moved and that a reorg removes comes back with its trial, and takes its place at both products", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const one = await productOf({ trialDays: 7 })
  const other = await productOf({ trialDays: 5 })
  const session = await rig.start(one)
  await rig.pay(session, { state: "confirmed" })
  await rig.look()
  const id = await idOf(session)
  expect((await rig.call("PUT", `subscriptions/${id}`, { productId: other })).status).toBe(200)
  await rig.reorg(session, "gone")
  // The job has not seen the reorg yet, and nothing can be asked of what has not begun.
  expect((await rig.call("PUT", `subscriptions/${id}`, { productId: one })).status).toBe(404)
  expect((await rig.ask(id, "cancel", { at: "now" })).status).toBe(404)
  await rig.look()
  await rig.reorg(session, "confirmed")
  await rig.look()
  expect(await rig.read(id)).toMatchObject({ productId: other, trialDays: 7, graceDays: 3 })
  for (const product of [one, other])
    expect(await rig.read(await subscribe(product))).toMatchObject({ trialDays: 0, graceDays: 0 })
})

it("without grace nobody loses access where the service makes an invoice late", async () => {
  await rig.begin("2027-01-31T10:00:00Z")
  const product = await productOf()
  const paywall = await paywallOf(product)
  await subscribe(product)
  await openDays(paywall)
  const again = await subscribe(product)
  // No job runs until an hour after the paid period.
  rig.to(later(rig.now(), 1 + 1 / 24))
  expect(await isOpen(paywall)).toBe(true)
  await rig.look()
  expect(await rig.read(again)).toMatchObject({ status: "payment_due", graceDays: 0 })
  expect(await isOpen(paywall)).toBe(true)
})

type Step = { kind: "pass"; steps: number } | { kind: "subscribe" } | { kind: "pay" | "cancel" | "end"; which: number }
const which = fc.nat({ max: 3 })
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("pass" as const), steps: fc.integer({ min: 1, max: 18 }) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("subscribe" as const) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("pay" as const), which }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom("cancel" as const, "end" as const), which }) },
)

it("in whatever order a wallet subscribes, pays, lapses and cancels, it has what it paid for, one trial and one grace", async () => {
  const terms = fc.record({
    trialDays: fc.constantFrom(0, 5),
    billingInterval: fc.constantFrom("day", "week"),
    maxPeriods: fc.constantFrom(null, 2),
  })
  await fc.assert(
    fc.asyncProperty(terms, fc.array(step, { minLength: 6, maxLength: 12 }), async (terms, steps) => {
      await rig.begin("2027-01-31T10:00:00Z")
      const product = await productOf(terms)
      const paywall = await paywallOf(product)
      const ids = [await subscribe(product)]
      let open = 0
      for (const each of [...steps, { kind: "pass" as const, steps: 40 }]) {
        const id = "which" in each ? (ids[each.which % ids.length] as string) : ""
        if (each.kind === "subscribe") ids.push(await subscribe(product))
        else if (each.kind === "pay") {
          const last = (await rig.invoices(id)).at(-1)
          const session = last && (await rig.call("GET", `checkouts/${last.session_id}`)).body
          if (session?.status === "pending") await rig.pay(session.id)
          await rig.look()
        } else if (each.kind !== "pass") await rig.ask(id, "cancel", { at: each.kind === "end" ? "period_end" : "now" })
        else
          for (let i = 0; i < each.steps; i++) {
            rig.to(later(rig.now(), STEP_DAYS))
            await rig.look()
            if (await isOpen(paywall)) open += STEP_DAYS
          }
        const paid = (await Promise.all(ids.map(each => rig.invoices(each)))).flat().filter(each => each.paid_at)
        const bought = paid.reduce((sum, each) => sum + Number(each.period_end) - Number(each.period_start), 0) / DAY_MS
        // A first period's own length has the trial in it, and access is read once in each step.
        expect(open).toBeLessThanOrEqual(bought + 3 + STEP_DAYS)
        const unpaidDays = terms.billingInterval === "day" ? paid.length : 7 * paid.length
        expect(bought).toBeLessThanOrEqual(unpaidDays + terms.trialDays + 0.01)
      }
    }),
    { numRuns: 5 },
  )
})
