// In whatever order payments, requests and interruptions come, a subscription's rows agree with each other and with its
// events.
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { later, type SubscriptionRig, startSubscriptionRig } from "../../../test/subscription-rig.ts"

let rig: SubscriptionRig
beforeAll(async () => {
  rig = await startSubscriptionRig()
  const { db } = rig.service.ctx
  await sql`create function fail_renewal() returns trigger language plpgsql as $$ begin
    if new.type = 'subscription.renewal.created' then raise 'ended here'; end if; return new; end $$`.execute(db)
  await sql`create trigger fail_renewal before insert on events for each row execute function fail_renewal()`.execute(
    db,
  )
  await failing(false)
})
afterAll(() => rig?.stop())

/** Makes the creation of an invoice fail at its last statement, as if the process died there. */
const failing = (is: boolean) =>
  sql`alter table events ${sql.raw(is ? "enable" : "disable")} trigger fail_renewal`.execute(rig.service.ctx.db)

type Step = { kind: "pass" | "fail"; days: number } | { kind: "pay" | "pause" | "resume" | "end" | "cancel" }
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("pass" as const), days: fc.integer({ min: 1, max: 40 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("fail" as const), days: fc.integer({ min: 1, max: 30 }) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("pay" as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom("pause" as const, "resume" as const, "resume" as const, "end" as const),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("cancel" as const) }) },
)

async function take(id: string, given: Step): Promise<void> {
  const last = (await rig.invoices(id)).at(-1)
  if (given.kind === "pass" || given.kind === "fail") {
    if (given.kind === "fail") await failing(true)
    rig.to(later(rig.now(), given.days))
    await rig.look()
    if (given.kind === "pass") return
    await failing(false)
    rig.to(later(rig.now(), 0.001))
    await rig.look()
  } else if (given.kind === "pay") {
    const session = (await rig.call("GET", `checkouts/${last?.session_id}`)).body
    if (session.status !== "pending") return
    await rig.pay(session.id)
    await rig.look()
  } else {
    const path = given.kind === "end" ? "cancel" : given.kind
    const { status } = await rig.ask(
      id,
      path,
      path === "cancel" ? { at: given.kind === "end" ? "period_end" : "now" } : undefined,
    )
    expect([200, 409]).toContain(status)
    await rig.look()
  }
}

async function agree(id: string): Promise<void> {
  const { db } = rig.service.ctx
  const invoices = await rig.invoices(id)
  const row = await db.selectFrom("subscriptions").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
  const sessions = await db.selectFrom("checkout_sessions").select(["id", "status"]).execute()
  // Interrupted work left no session, and each session belongs to one invoice.
  expect(sessions.map(each => each.id).sort()).toEqual(invoices.map(each => each.session_id).sort())
  expect(invoices.map(each => each.sequence)).toEqual(invoices.map((_, i) => i + 1))
  const confirmed = new Set(sessions.filter(each => each.status === "confirmed").map(each => each.id))
  for (const each of invoices)
    expect([each.id, each.paid_at !== null]).toEqual([each.id, confirmed.has(each.session_id)])
  // Nothing is billed twice, and no period begins before the paid period ends.
  const paid = invoices.filter(each => each.paid_at)
  for (const [i, each] of paid.slice(1).entries())
    expect(Number(each.period_start)).toBeGreaterThanOrEqual(Number(paid[i]?.period_end))
  expect(row.paid_until).toEqual(paid.at(-1)?.period_end)
  // Events are numbered without a gap, and each renewal has one.
  const events = await rig.events()
  expect(events.map(each => each.sequence)).toEqual(events.map((_, i) => i + 1))
  expect(events).toHaveLength(row.event_sequence)
  const renewals = events.filter(each => each.type === "renewal.created").map(each => each.invoiceId)
  expect(renewals).toEqual(invoices.slice(1).map(each => each.id))
  if (row.status !== "canceled") expect(Number(row.access_until)).toBeGreaterThanOrEqual(Number(row.paid_until))
  const open = invoices.filter(each => !each.paid_at && !each.void_asked_at)
  if (row.status === "paused" || row.cancel_reason === "requested") expect(open).toEqual([])
  // Advancing it a second time changes nothing.
  await db.updateTable("subscriptions").set({ run_at: rig.now() }).where("id", "=", id).execute()
  await rig.look()
  const { updated_at: _, run_at: __, ...kept } = row
  expect(await db.selectFrom("subscriptions").selectAll().where("id", "=", id).executeTakeFirst()).toMatchObject(kept)
  expect(await rig.invoices(id)).toEqual(invoices)
}

it("bills each period once, whatever is paid, asked for and interrupted", async () => {
  const terms = fc.record({ trialDays: fc.constantFrom(0, 14), billingInterval: fc.constantFrom("week", "month") })
  await fc.assert(
    fc.asyncProperty(terms, fc.array(step, { minLength: 5, maxLength: 9 }), async (terms, steps) => {
      await rig.begin("2027-01-31T10:00:00Z")
      const id = await rig.subscribed(terms)
      for (const each of steps) {
        await take(id, each)
        await agree(id)
      }
    }),
    { numRuns: 5 },
  )
})
