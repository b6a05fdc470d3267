// The job that advances subscriptions: what concurrent processes create, what one that dies half-way leaves, and what
// the job skips.
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { paperNetwork } from "../../../test/service.ts"
import { later, type SubscriptionRig, startSubscriptionRig } from "../../../test/subscription-rig.ts"
import { settleDue } from "../../ledger/settlement/settle.ts"
import { alarmsNow } from "../../operations/doctor/list-alarms.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { advanceSubscriptions } from "./advance-subscriptions.ts"

let rig: SubscriptionRig
beforeAll(async () => {
  rig = await startSubscriptionRig()
})
afterAll(() => rig?.stop())

const types = async () => (await rig.events()).map(({ type }) => type)

describe("the job", () => {
  const dueAt = "2027-02-26T10:00:00Z"
  const many = async (count: number): Promise<string[]> => {
    const product = await rig.product()
    for (let i = 0; i < count; i++) await rig.pay(await rig.start(product))
    await rig.look()
    const rows = await rig.service.ctx.db.selectFrom("subscriptions").select("id").orderBy("id").execute()
    return rows.map(({ id }) => id)
  }

  it("makes one invoice of each period, though four run at once while payments are settled", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const ids = await many(8)
    rig.to(dueAt)
    const jobs = () => Array.from({ length: 4 }, () => advanceSubscriptions(rig.service.ctx))
    await Promise.all(jobs())
    const open = await Promise.all(ids.map(id => rig.open(id)))
    await Promise.all([
      ...jobs(),
      ...open.slice(0, 5).map(each => rig.pay(each)),
      ...ids.slice(3, 6).map(id => rig.ask(id, "pause")),
      ...jobs(),
    ])
    await rig.look()
    const counts = await Promise.all(ids.map(async id => (await rig.invoices(id)).length))
    expect(counts).toEqual(ids.map(() => 2))
    expect(await types()).toEqual(ids.map(() => "renewal.created"))
    const statuses = await Promise.all(ids.map(async id => (await rig.read(id)).status))
    expect(statuses).toEqual([...Array(3).fill("active"), ...Array(3).fill("paused"), ...Array(2).fill("active")])
    const paid = await Promise.all(ids.map(async id => (await rig.read(id)).paidUntil.slice(0, 7)))
    expect(paid.slice(0, 3)).toEqual(Array(3).fill("2027-03"))
    expect(paid.slice(5)).toEqual(Array(3).fill("2027-02"))
  })

  it("that ends between an invoice and its event leaves neither, and the next makes both once", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const [id = ""] = await many(1)
    const { ctx } = rig.service
    await sql`create function fail_renewal() returns trigger language plpgsql as $$ begin
      if new.type = 'subscription.renewal.created' then raise 'ended here'; end if; return new; end $$`.execute(ctx.db)
    await sql`create trigger fail_renewal before insert on events for each row execute function fail_renewal()`.execute(
      ctx.db,
    )
    rig.to(dueAt)
    await rig.look()
    const sessions = () => ctx.db.selectFrom("checkout_sessions").select("id").execute()
    expect([(await rig.invoices(id)).length, (await sessions()).length, await types()]).toEqual([1, 1, []])
    await sql`drop function fail_renewal cascade`.execute(ctx.db)
    rig.to(later(rig.now(), 0.001))
    await rig.look()
    await rig.look()
    expect([(await rig.invoices(id)).length, (await sessions()).length, await types()]).toEqual([
      2,
      2,
      ["renewal.created"],
    ])
  })

  it("is delayed by none that can't be advanced, which is tried ever later and is an alarm", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const [bad = "", ...good] = await many(4)
    const { ctx } = rig.service
    await sql`create function fail_one() returns trigger language plpgsql as $$ begin
      if new.body::text like ${sql.lit(`%${bad}%`)} then raise 'this one'; end if; return new; end $$`.execute(ctx.db)
    await sql`create trigger fail_one before insert on events for each row execute function fail_one()`.execute(ctx.db)
    rig.to(dueAt)
    const waits: number[] = []
    for (let round = 1; round <= 3; round++) {
      expect((await alarmsNow(ctx)).join()).not.toContain("subscription_failed")
      await rig.look()
      const { run_at } = await ctx.db
        .selectFrom("subscriptions")
        .select("run_at")
        .where("id", "=", bad)
        .executeTakeFirstOrThrow()
      waits.push(Math.round((Number(run_at) - Number(rig.now())) / 60_000))
      rig.to(run_at ?? dueAt)
    }
    expect(waits).toEqual([1, 2, 4])
    expect(await Promise.all(good.map(async id => (await rig.invoices(id)).length))).toEqual([2, 2, 2])
    expect((await rig.invoices(bad)).length).toBe(1)
    expect((await alarmsNow(ctx)).join()).toContain("1 subscriptions could not be advanced")
    await sql`drop function fail_one cascade`.execute(ctx.db)
    await rig.look()
    expect((await rig.invoices(bad)).length).toBe(2)
    expect((await alarmsNow(ctx)).join()).not.toContain("subscription_failed")
  })

  it("has nothing to do for a checkout that nobody paid", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    await rig.start(await rig.product())
    rig.to("2027-02-02T10:00:00Z")
    await rig.service.ctx.db
      .updateTable("cursors")
      .set({ block_time: later(rig.now(), 1) })
      .execute()
    await settleDue(rig.service.ctx, paperNetwork)
    await rig.service.ctx.db
      .updateTable("cursors")
      .set({ block_time: later(rig.now(), 1) })
      .execute()
    rig.to(later(rig.now(), 0.01))
    await settleDue(rig.service.ctx, paperNetwork)
    const { db } = rig.service.ctx
    const rows = await db.selectFrom("checkout_sessions").select("status").execute()
    const due = await db.selectFrom("subscriptions").select("run_at").execute()
    expect([rows, due]).toEqual([[{ status: "expired" }], [{ run_at: null }]])
  })

  it("makes no invoice while payments are paused, skips none, and takes nobody's access for it", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const [id = ""] = await many(1)
    const { ctx } = rig.service
    const address = `0x${"77".repeat(20)}` as Address
    const wallet = { chain_id: 84532, address, next_nonce: 0n, run_at: rig.now(), halted_reason: "a test" }
    await ctx.db
      .insertInto("wallets")
      .values({ ...wallet, status: "halted" })
      .execute()
    rig.to("2027-03-10T10:00:00Z")
    await rig.look()
    const { status, accessUntil } = await rig.read(id)
    expect([(await rig.invoices(id)).length, status, accessUntil.slice(0, 10)]).toEqual([1, "active", "2027-03-13"])
    await ctx.db.updateTable("wallets").set({ status: "active", halted_reason: null }).execute()
    rig.to("2027-03-10T10:02:00Z")
    await rig.look()
    expect((await rig.events()).at(-1)).toMatchObject({ periodStart: "2027-02-28T10:00:00.000Z" })
    expect(await rig.read(id)).toMatchObject({ status: "payment_due" })
  })

  it("gives no access beyond the grace where its price is too low to be paid by now", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const [id = ""] = await many(1)
    const { settings } = rig.service.ctx
    const { minAmount } = settings
    settings.minAmount = "100"
    rig.to("2027-05-10T10:00:00Z")
    await rig.look()
    const { accessUntil } = await rig.read(id)
    settings.minAmount = minAmount
    expect([(await rig.invoices(id)).length, accessUntil]).toEqual([1, "2027-03-03T10:00:00.000Z"])
    rig.to("2027-05-10T10:11:00Z")
    await rig.look()
    expect(await rig.invoices(id)).toHaveLength(2)
  })

  // The embedded database has one connection, on which nothing else runs while a transaction is open.
  it.runIf(onPostgres)("leaves alone what another process holds, and makes the round of the others", async () => {
    await rig.begin("2027-01-31T10:00:00Z")
    const [held = "", paying = "", free = ""] = await many(3)
    rig.to(dueAt)
    await rig.look()
    await rig.pay(await rig.open(held))
    await rig.look()
    rig.to("2027-03-30T10:00:00Z")
    const session = await rig.open(paying)
    const { db } = rig.service.ctx
    const states = async () =>
      await Promise.all(
        [held, paying, free].map(async id => [(await rig.invoices(id)).length, (await rig.read(id)).status]),
      )
    await db.transaction().execute(async other => {
      await other.selectFrom("subscriptions").select("id").where("id", "=", held).forNoKeyUpdate().execute()
      await other.selectFrom("checkout_sessions").select("id").where("id", "=", session).forNoKeyUpdate().execute()
      await advanceSubscriptions(rig.service.ctx)
      expect(await states()).toEqual([
        [2, "active"],
        [2, "active"],
        [2, "past_due"],
      ])
    })
    rig.to(later(rig.now(), 0.001))
    await advanceSubscriptions(rig.service.ctx)
    expect(await states()).toEqual([
      [3, "active"],
      [2, "past_due"],
      [2, "past_due"],
    ])
  })
})
