// After an erasure nothing that a payer or a merchant wrote about the customer is left in the database or in any answer, and the books
// are what they were.
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { BUYER, ids, prepare, service, startEverything, stopEverything } from "../../../test/everything.ts"
import { emit } from "../../account/webhooks/emit.ts"
import { putAway } from "../../ledger/deposits/put-away.ts"
import { inTransaction } from "../../platform/context.ts"
import { eraseOld } from "./erase-old.ts"
import { harmless, personal } from "./personal-columns.ts"

beforeAll(startEverything)
afterAll(stopEverything)
beforeEach(prepare)

const EMAIL = "ann@customer.example"
const REFUNDED = "cs_q7w2hc9n4m1xk8t5r3v6b0zd"
const call = (method: "GET" | "POST" | "PUT", path: string, body?: unknown, as = "shop") =>
  service.call(method, path, body, { as })
const eraseBy = (body: object, as = "shop") => call("POST", "/api/console/erasures", body, as)

/** Everything in the database, as text, but for the log of requests, which is written a moment after each. */
async function dump(): Promise<string> {
  const { db } = service.ctx
  const { rows: tables } = await sql<{ name: string }>`
    select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE' and table_name <> 'requests'`.execute(
    db,
  )
  const texts = []
  for (const { name } of tables) {
    const { rows } = await sql<{ line: string }>`select to_jsonb(t)::text as line from ${sql.table(name)} t`.execute(db)
    texts.push(...rows.map(({ line }) => `${name} ${line}`))
  }
  return texts.join("\n")
}
const linesWith = (text: string, markers: readonly string[]) =>
  text.split("\n").filter(line => markers.some(marker => line.includes(marker)))

/** All that a merchant reads. */
async function answers(checkout: string): Promise<string> {
  const paths = [
    `checkouts/${checkout}`,
    "checkouts?limit=100",
    "transactions?limit=100",
    "events?limit=100",
    "deliveries?limit=100",
    "subscriptions",
    "invoices",
    "payments/refunds",
    "audit?limit=100",
    "audit.csv",
    "subscriptions.csv",
    "books.csv",
  ]
  const texts = []
  for (const path of paths) texts.push(JSON.stringify((await call("GET", `/api/console/${path}`)).body))
  const { rows } = await sql<{ id: string }>`select id from deliveries`.execute(service.ctx.db)
  for (const { id } of rows) texts.push(JSON.stringify((await call("GET", `/api/console/deliveries/${id}`)).body))
  texts.push(JSON.stringify((await service.call("GET", `/api/pay/status/${checkout}`)).body))
  texts.push(
    JSON.stringify(
      (await service.call("GET", `/pay/${checkout}`, undefined, { headers: { accept: "text/html" } })).body,
    ),
  )
  return texts.join("\n")
}
const books = async () => (await call("GET", "/api/console/books.csv")).body

/** A checkout whose every field has a marker, which the payer answered, with events of it that were sent. */
async function customer(marks: Record<string, string>, email: string) {
  const { db } = service.ctx
  const made = await call("POST", "/api/console/checkouts", {
    amount: 5,
    description: marks.description,
    redirectUrl: `https://shop.example/${marks.redirect}`,
    callbackUrl: `https://shop.example/hook/${marks.callback}`,
    customerEmail: email,
    payerFields: [marks.field],
    metadata: { [marks.key ?? ""]: { deep: [marks.value, 7] } },
  })
  expect(made.status).toBe(201)
  const { id } = made.body
  await call("PUT", `/api/console/checkouts/${id}`, {
    description: `${marks.description}2`,
    metadata: { order: marks.value2 },
  })
  const answered = { sessionId: id, payerInfo: { [marks.field ?? ""]: marks.answer }, customerEmail: email }
  expect((await service.call("POST", "/api/pay/payer-info", answered)).status).toBe(200)
  const merchantId = await service.merchant("shop")
  await inTransaction(service.ctx, ctx =>
    emit(ctx, {
      merchantId,
      type: "checkout.session.completed",
      orderKey: id,
      // Of the data only what has marks counts here.
      data: { id, customerEmail: email, metadata: marks } as never,
    }),
  )
  await sql`update checkout_sessions set status = 'expired', run_at = null where id = ${id}`.execute(db)
  await sql`insert into delivery_attempts (delivery_id, started_at, duration_ms, status, error, answer)
    select id, now(), 1, 500, ${`it said ${marks.error}`}, ${`${marks.response}`} from deliveries where order_key = ${id}`.execute(
    db,
  )
  await sql`update deliveries set status = 'failed' where order_key = ${id}`.execute(db)
  return id as string
}

const word = fc.stringMatching(/^[a-z]{12}$/)
const fields = [
  "description",
  "redirect",
  "callback",
  "field",
  "key",
  "value",
  "value2",
  "answer",
  "error",
  "response",
] as const
const marksOf = fc
  .record(Object.fromEntries([...fields, "mail"].map(name => [name, word.map(text => `${name}_${text}`)])))
  .map(marks => marks as Record<string, string>)

describe("an erasure by e-mail", () => {
  it("leaves nothing of what was written, in the database and in answers, and the books as they were", async () => {
    await fc.assert(
      fc.asyncProperty(marksOf, marksOf, async (marks, others) => {
        const email = `${marks.mail}@customer.example`
        const id = await customer(marks, email)
        const other = await customer(others, `${others.mail}@customer.example`)
        const written = Object.values(marks)
        expect(linesWith(await dump(), written).length).toBeGreaterThan(3)
        const before = await books()
        const tried = await eraseBy({ customerEmail: email.toUpperCase(), dryRun: true })
        expect(tried.body).toMatchObject({ id: null, checkouts: 1, blockedBy: [], pendingDeliveries: 0 })
        expect(tried.body.events).toBeGreaterThan(0)
        expect(linesWith(await dump(), written).length).toBeGreaterThan(3)
        const erased = await eraseBy({ customerEmail: email })
        expect(erased).toMatchObject({ status: 200, body: { ...tried.body, id: expect.stringMatching(/^era_/) } })
        expect(linesWith(await dump(), written)).toEqual([])
        const read = await answers(id)
        expect(written.filter(marker => read.includes(marker))).toEqual([])
        expect(await books()).toBe(before)
        // Of another customer nothing is missing.
        const theirs = await dump()
        expect(Object.values(others).filter(marker => !theirs.includes(marker))).toEqual([])
        expect((await call("GET", `/api/console/checkouts/${other}`)).body.metadata).toEqual({ order: others.value2 })
      }),
      { numRuns: 8, endOnFailure: true },
    )
  })

  it("keeps each event's id, type and hash, and sends it no more", async () => {
    const marks = Object.fromEntries([...fields, "mail"].map(name => [name, `${name}_mark`]))
    const id = await customer(marks, EMAIL)
    const { rows } = await sql<{
      id: string
      event_id: string
    }>`select id, event_id from deliveries where order_key = ${id}`.execute(service.ctx.db)
    const event = async () => (await call("GET", `/api/console/events/${rows[0]?.event_id}`)).body.data
    const was = await event()
    await eraseBy({ customerEmail: EMAIL })
    expect(await event()).toEqual({ ...was, data: { erased: true, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) } })
    const resent = await call("POST", `/api/console/deliveries/${rows[0]?.id}/resend`)
    expect([resent.status, resent.body.error]).toEqual([410, "ERASED"])
    await call("POST", `/api/console/webhooks/${ids.webhooks}/recover`, { since: "2020-01-01T00:00:00Z" })
    const { rows: pending } = await sql`select from deliveries where order_key = ${id} and status = 'pending'`.execute(
      service.ctx.db,
    )
    expect(pending).toEqual([])
    // A second erasure finds the same things, and changes no hash.
    const hash = await event()
    await eraseBy({ checkoutId: id })
    expect(await event()).toEqual(hash)
  })

  it("answers a request that is repeated with its Idempotency-Key, and makes nothing", async () => {
    const headers = { "idempotency-key": "order-1" }
    const body = { amount: 5, customerEmail: EMAIL, description: "for-ann" }
    const make = () => service.call("POST", "/api/console/checkouts", body, { as: "shop", headers })
    const { id } = (await make()).body
    await sql`update checkout_sessions set status = 'expired', run_at = null where id = ${id}`.execute(service.ctx.db)
    await eraseBy({ customerEmail: EMAIL })
    expect(linesWith(await dump(), ["for-ann", EMAIL])).toEqual([])
    const { rows: before } = await sql`select from checkout_sessions`.execute(service.ctx.db)
    await make()
    expect((await sql`select from checkout_sessions`.execute(service.ctx.db)).rows).toHaveLength(before.length)
  })
})

describe("an erasure by payer", () => {
  it("erases each personal column of all that is theirs, and keeps their address and amounts", async () => {
    const { db } = service.ctx
    const payer = BUYER.toLowerCase()
    await sql`update checkout_sessions set payer = ${payer} where id = ${REFUNDED}`.execute(db)
    await sql`update payouts set state = 'cancelled' where kind = 'refund'`.execute(db)
    await sql`update refunds set status = 'failed'`.execute(db)
    await sql`update payments set status = 'granted', exception = null where status = 'open'`.execute(db)
    await sql`update surpluses set state = 'accepted'`.execute(db)
    await sql`insert into bundle_failures (payment_id, bundle_id, method, path, reason, attempts, failed_at)
      select id, ${ids.bundles}, 'GET', '/marker', 'down', 1, now() from payments where payer = ${payer} limit 1
      on conflict (payment_id) do update set path = excluded.path`.execute(db)
    const marked = Object.entries(personal).filter(([, { of }]) => ["checkout", "refund", "grant", "call"].includes(of))
    for (const [name] of marked) {
      const [table = "", column = ""] = name.split(".")
      const value = ["payer_info", "payer_fields", "metadata"].includes(column) ? sql`'{"a":"marker"}'` : sql`'marker'`
      const where =
        table === "checkout_sessions"
          ? sql`id = ${REFUNDED}`
          : table === "settlements"
            ? sql`payer = ${payer}`
            : sql`true`
      const { numAffectedRows } =
        await sql`update ${sql.table(table)} set ${sql.ref(column)} = ${value} where ${where}`.execute(db)
      expect([name, numAffectedRows]).not.toEqual([name, 0n])
    }
    await sql`update grants set revoked_at = now(), revoked_by = 'merchant'`.execute(db)
    const before = await books()
    const { body } = await eraseBy({ payer: BUYER, pendingDeliveries: "drop" })
    expect(body).toMatchObject({ checkouts: 1, refunds: 1, id: expect.stringMatching(/^era_/) })
    const after = await dump()
    expect(linesWith(after, ["marker"])).toEqual([])
    expect(after).toContain(payer)
    expect(await books()).toBe(before)
  })
})

describe("is refused, and erases nothing", () => {
  const refused = async (body: object, message: RegExp) => {
    const before = await dump()
    const { status, body: answer } = await eraseBy(body)
    expect([status, answer.error]).toEqual([409, "ERASURE_REFUSED"])
    expect(answer.message).toMatch(message)
    expect((await eraseBy({ ...body, dryRun: true })).body.blockedBy.join(" ")).toMatch(message)
    expect(await dump()).toBe(before)
  }

  it.each([
    ["a checkout that can be paid", sql`status = 'pending'`, /can still be paid/],
    ["money in escrow", sql`status = 'authorized', capture = 'manual'`, /held in escrow/],
  ])("while there is %s", async (_, change, message) => {
    const { id } = (await call("POST", "/api/console/checkouts", { amount: 5, customerEmail: EMAIL })).body
    await sql`update checkout_sessions set run_at = null, ${change} where id = ${id}`.execute(service.ctx.db)
    await refused({ customerEmail: EMAIL }, message)
  })

  it("while a refund is not final, a payment waits, or a subscription is active", async () => {
    await refused({ checkoutId: REFUNDED }, /refund is not final/)
    const { rows } = await sql<{
      payer: string
    }>`select payer from subscriptions where id = ${ids.subscriptions}`.execute(service.ctx.db)
    await refused({ payer: rows[0]?.payer }, /subscription is active/)
  })

  it("while events are not delivered, until they are dropped", async () => {
    const marks = Object.fromEntries([...fields, "mail"].map(name => [name, `${name}_mark`]))
    const id = await customer(marks, EMAIL)
    await sql`update deliveries set status = 'pending' where order_key = ${id}`.execute(service.ctx.db)
    await refused({ customerEmail: EMAIL }, /not sent yet/)
    await sql`update deliveries set claim_id = gen_random_uuid(), lease_until = now() + interval '1 minute' where order_key = ${id}`.execute(
      service.ctx.db,
    )
    await refused({ customerEmail: EMAIL, pendingDeliveries: "drop" }, /being sent right now/)
    await sql`update deliveries set claim_id = null, lease_until = null where order_key = ${id}`.execute(service.ctx.db)
    expect((await eraseBy({ customerEmail: EMAIL, pendingDeliveries: "drop" })).status).toBe(200)
    expect((await call("GET", "/api/console/erasures")).body.data).toMatchObject([
      { askedBy: "email", deliveriesDropped: 1 },
    ])
  })

  it.each([
    [{}, 400],
    [{ customerEmail: EMAIL, payer: BUYER }, 400],
    [{ customerEmail: "ann" }, 400],
    [{ payer: "0x12" }, 400],
    [{ checkoutId: "cs_1" }, 400],
    [{ customerEmail: EMAIL, pendingDeliveries: "send" }, 400],
  ])("for %j", async (body, status) => {
    expect((await eraseBy(body)).status).toBe(status)
  })

  it("of another merchant's customer", async () => {
    const marks = Object.fromEntries([...fields, "mail"].map(name => [name, `${name}_mark`]))
    const id = await customer(marks, EMAIL)
    const before = await dump()
    for (const body of [{ customerEmail: EMAIL }, { checkoutId: id }, { payer: BUYER }])
      expect((await eraseBy(body, "rival")).body).toMatchObject({ id: null, checkouts: 0, events: 0 })
    expect(await dump()).toBe(before)
  })
})

it("finds what a payer paid late, and e-mail addresses in answers of any name", async () => {
  const { db } = service.ctx
  const late = `0x${"1a".repeat(20)}`
  const { id } = (await call("POST", "/api/console/checkouts", { amount: 5, metadata: { who: "late_mark" } })).body
  await sql`update checkout_sessions set status = 'expired', run_at = null where id = ${id}`.execute(db)
  await sql`insert into payments (id, chain_id, payer, amount, tx_hash, status, created_at, updated_at, merchant_id, token, resource_id)
    select ${`pay_${"l".repeat(24)}`}, chain_id, ${late}, 5, ${`0x${"2b".repeat(32)}`}, 'reversed', now(), now(), merchant_id,
      ${`0x${"70".repeat(20)}`}, id from checkout_sessions where id = ${id}`.execute(db)
  expect((await eraseBy({ payer: late })).body).toMatchObject({ checkouts: 1 })
  const answered = (await call("POST", "/api/console/checkouts", { amount: 5, payerFields: ["Mail_of_payer"] })).body.id
  await sql`update checkout_sessions set status = 'expired', run_at = null, payer_info = ${JSON.stringify({ Mail_of_payer: "Eve@x.example" })}
    where id = ${answered}`.execute(db)
  expect((await eraseBy({ customerEmail: "eve@x.example" })).body).toMatchObject({ checkouts: 1 })
  expect(linesWith(await dump(), ["late_mark", "Eve@x.example"])).toEqual([])
})

it("finds events of versions before, which did not say what they are about", async () => {
  const marks = Object.fromEntries([...fields, "mail"].map(name => [name, `${name}_mark`]))
  const id = await customer(marks, EMAIL)
  await sql`delete from delivery_attempts`.execute(service.ctx.db)
  await sql`delete from deliveries where order_key = ${id}`.execute(service.ctx.db)
  await sql`update events set order_key = null where order_key = ${id}`.execute(service.ctx.db)
  expect((await eraseBy({ customerEmail: EMAIL })).body.events).toBe(1)
  expect(linesWith(await dump(), Object.values(marks))).toEqual([])
})

it("is in the audit log with who did it, and not whose it was", async () => {
  const marks = Object.fromEntries([...fields, "mail"].map(name => [name, `${name}_mark`]))
  await customer(marks, EMAIL)
  await eraseBy({ customerEmail: EMAIL })
  const { data } = (await call("GET", "/api/console/audit?action=erasure.created")).body
  expect(data).toMatchObject([{ actor: { kind: "console" }, action: "erasure.created" }])
  expect(JSON.stringify(data)).not.toContain("ann")
  // What it changed is no entry: that would have what was erased.
  expect(
    (await call("GET", "/api/console/audit?limit=100")).body.data.filter(
      (entry: { route: string }) => entry.route === "POST /api/console/erasures",
    ),
  ).toHaveLength(1)
})

it("happens when the data is as old as CUSTOMER_DATA_RETENTION, as far as nothing needs it", async () => {
  const marks = Object.fromEntries([...fields, "mail"].map(name => [name, `${name}_mark`]))
  const old = await customer(marks, EMAIL)
  const open = (await call("POST", "/api/console/checkouts", { amount: 5, customerEmail: EMAIL })).body.id
  await sql`update checkout_sessions set created_at = now() - interval '31 days' where id in (${old}, ${open})`.execute(
    service.ctx.db,
  )
  const kept = await customer(marks, EMAIL)
  const ctx = { ...service.ctx, settings: { ...service.ctx.settings, customerDataRetentionMs: 30 * 86_400_000 } }
  await eraseOld({ ...ctx, settings: { ...ctx.settings, customerDataRetentionMs: undefined } })
  const email = async (id: string) => (await call("GET", `/api/console/checkouts/${id}`)).body.customerEmail
  expect(await email(old)).toBe(EMAIL)
  await eraseOld(ctx)
  expect([await email(old), await email(open), await email(kept)]).toEqual([null, EMAIL, EMAIL])
})

it("reaches all that is old enough, whatever is still needed before it, and what was put away; a younger one stays", async () => {
  const { db } = service.ctx
  const days = async (id: string, n: number) => {
    await sql`update checkout_sessions set created_at = now() - ${n} * interval '1 day', updated_at = now() - interval '1 day',
      status = 'expired', run_at = null where id = ${id}`.execute(db)
    await sql`update checkout_terms t set created_at = s.created_at from checkout_sessions s where s.id = t.session_id`.execute(
      db,
    )
  }
  const make = async (n: number) => {
    const body = { amount: 5, customerEmail: EMAIL, metadata: { mark: `day_${n}` } }
    const { id } = (await call("POST", "/api/console/checkouts", body)).body
    await days(id, n)
    return id as string
  }
  const needed = await make(60)
  await sql`insert into payments (id, chain_id, payer, amount, tx_hash, status, exception, created_at, updated_at, merchant_id, token, resource_id,
      deposit_id)
    select ${`pay_${"n".repeat(24)}`}, s.chain_id, ${BUYER.toLowerCase()}, 5, ${`0x${"3c".repeat(32)}`}, 'open', 'late', now(), now(),
      s.merchant_id, ${`0x${"70".repeat(20)}`}, s.id, d.id from checkout_sessions s join deposits d on d.resource_id = s.id where s.id = ${needed}`.execute(
    db,
  )
  const old = await make(50)
  const away = await make(45)
  await sql`update deposits set watched = false, watched_number = 1, watched_until = now() - interval '40 days', dormant_since = now() - interval '40 days',
      check_at = now() where resource_id = ${away}`.execute(db)
  await sql`update checkout_sessions set expires_at = now() - interval '40 days' where id = ${away}`.execute(db)
  const { rows } = await sql<{ id: bigint }>`select id from deposits where resource_id = ${away}`.execute(db)
  expect(
    await putAway(
      service.ctx,
      rows.map(({ id }) => id),
      { links: [], merchants: [] },
    ),
  ).toBe(1)
  const young = await make(3)
  expect((await eraseBy({ checkoutId: away, dryRun: true })).body.checkouts).toBe(1)
  await eraseOld({ ...service.ctx, settings: { ...service.ctx.settings, customerDataRetentionMs: 30 * 86_400_000 } })
  const left = await dump()
  expect(["day_60", "day_50", "day_45", "day_3"].filter(mark => left.includes(`"${mark}"`))).toEqual([
    "day_60",
    "day_3",
  ])
  for (const id of [needed, old, away, young])
    expect((await call("GET", `/api/console/checkouts/${id}`)).status).toBe(200)
})

it("knows every column that can hold text", async () => {
  // Addresses and hashes have types of their own.
  const { rows } = await sql<{ name: string }>`
    select c.table_name || '.' || c.column_name as name from information_schema.columns c
    join information_schema.tables t using (table_schema, table_name)
    where c.table_schema = 'public' and t.table_type = 'BASE TABLE' and c.data_type in ('text', 'jsonb', 'bytea', 'ARRAY')
      and c.domain_name is null and c.table_name <> 'migrations' order by 1`.execute(service.ctx.db)
  const listed = Object.entries(harmless).flatMap(([table, columns]) =>
    columns.split(" ").map(column => `${table}.${column}`),
  )
  expect([...Object.keys(personal), ...listed].sort()).toEqual(rows.map(({ name }) => name).sort())
})
