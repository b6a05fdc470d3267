// Sessions that are written at the same time share a statement, and nothing else: none fails for the fault of another.
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { depositRow } from "../../ledger/deposits/make-deposits.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import { depositOf, sessionRow, unpaidSession, writeSession } from "./write-session.ts"

let service: TestService
let merchantId: string
beforeAll(async () => {
  service = await startService()
  merchantId = await service.merchant("shop")
})
afterAll(() => service?.stop())

const owner = `0x${"ab".repeat(20)}` as Address
function newSession(of: string, amount = 5_000_000n, metadata?: Record<string, unknown>) {
  const { ctx } = service
  const terms = { network: paperNetwork, amount, link: undefined, product: undefined, splitId: null, setId: undefined }
  const session = sessionRow(ctx, of, terms, { ...(metadata ? { metadata } : {}) })
  const parties = { owner, approver: owner, recipientSetId: null }
  return { session, deposit: depositRow(ctx, paperNetwork, { ...depositOf(session), ...parties, watchedMs: 0 }, []) }
}
const written = () => service.ctx.db.selectFrom("checkout_sessions").select("id").orderBy("id").execute()

it("writes those that can be written, and gives each of the others its own error", async () => {
  const good = [newSession(merchantId), newSession(merchantId, 2n ** 70n, { order: "1" }), newSession(merchantId)]
  const bad = newSession("mer_aaaaaaaaaaaaaaaaaaaaaaaa")
  const results = await Promise.allSettled([...good, bad].map(rows => writeSession(service.ctx, rows)))
  expect(results.slice(0, 3)).toEqual(good.map(() => ({ status: "fulfilled", value: true })))
  expect(results[3]).toMatchObject({ status: "rejected", reason: { code: "23503" } })
  const ids = good.map(({ session }) => session.id).sort()
  expect(await written()).toEqual(ids.map(id => ({ id })))
  for (const { session } of good) {
    const metadata = session.metadata === null ? {} : { metadata: JSON.parse(session.metadata) }
    const row = service.ctx.db.selectFrom("checkout_sessions").selectAll().where("id", "=", session.id)
    // What a caller is told before it is written.
    expect(await row.executeTakeFirst()).toEqual(unpaidSession(session, metadata))
  }
  const deposits = service.ctx.db.selectFrom("deposits").select(["resource_id", "address"]).orderBy("resource_id")
  const expected = good.map(({ session, deposit }) => ({ resource_id: session.id, address: deposit.address }))
  expect(await deposits.execute()).toEqual(expected.sort((a, b) => (a.resource_id < b.resource_id ? -1 : 1)))
})

it("writes one in a transaction with that transaction", async () => {
  const before = await written()
  const rows = newSession(merchantId)
  const undone = inTransaction(service.ctx, async ctx => {
    expect(await writeSession(ctx, rows)).toBe(true)
    throw new Error("undone")
  })
  await expect(undone).rejects.toThrow("undone")
  expect(await written()).toEqual(before)
})

it("writes the others where one of them waits for a lock too long", async () => {
  const locked = await service.merchant("locked")
  // As Postgres ends the statement that waits for the merchant's row.
  await sql`create function refuse_locked() returns trigger language plpgsql as $$ begin
    raise exception 'canceling statement due to lock timeout' using errcode = '55P03'; end $$`.execute(service.ctx.db)
  await sql`create trigger refuse_locked before insert on checkout_sessions for each row
    when (new.merchant_id = ${sql.lit(locked)}) execute function refuse_locked()`.execute(service.ctx.db)
  try {
    const all = [newSession(merchantId), newSession(locked), newSession(merchantId)]
    const results = await Promise.allSettled(all.map(rows => writeSession(service.ctx, rows)))
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"])
  } finally {
    await sql`drop trigger refuse_locked on checkout_sessions`.execute(service.ctx.db)
    await sql`drop function refuse_locked()`.execute(service.ctx.db)
  }
})

it("writes one session of each key, with its answer, and none where the key is in the table", async () => {
  const before = await written()
  const keyed = (key: string) => {
    const rows = newSession(merchantId)
    const kept = { merchant_id: merchantId, route: "POST /api/checkouts", key, request_hash: "0".repeat(64) }
    return { ...rows, kept: { ...kept, status: 201, answer: rows.session.id, kept_s: 60 } }
  }
  const all = ["b", "a", "b", "c", "a"].map(keyed)
  const results = await Promise.all([...all, newSession(merchantId)].map(rows => writeSession(service.ctx, rows)))
  expect(results).toEqual([true, true, false, true, false, true])
  expect(await writeSession(service.ctx, keyed("c"))).toBe(false)
  expect(await written()).toHaveLength(before.length + 4)
  const kept = await service.ctx.db.selectFrom("idempotency_keys").selectAll().orderBy("key").execute()
  expect(kept.map(({ key, answer }) => [key, answer])).toEqual([
    ["a", all[1]?.session.id],
    ["b", all[0]?.session.id],
    ["c", all[3]?.session.id],
  ])
})
