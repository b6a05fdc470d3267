// Changes of a merchant's lists, by the real routes: what is a change, what a message has, and where a reader continues.
import { EventEmitter } from "node:events"
import type { FastifyReply, FastifyRequest } from "fastify"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { feedOf } from "./follow-changes.ts"
import { forgetOldChanges } from "./queries.ts"
import { streamChanges } from "./send-changes.ts"

let rig: PayoutRig
let merchantId: string
let key: string
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig.stop())
beforeEach(async () => {
  await rig.empty()
  merchantId = await rig.service.merchant("shop")
  const { body } = await rig.service.call(
    "POST",
    "/api/console/api-keys",
    { name: "A", scopes: ["read", "checkouts"] },
    { as: "shop" },
  )
  key = body.key
})

/**
 * Resolves once what was changed is shown: transactions of other tests on the same server, in their own databases, hold changes
 * back too.
 */
const shown = () =>
  until("no earlier transaction runs", async () => {
    const { rows } = await sql<{ is: boolean }>`
      select coalesce(max(xid) < pg_snapshot_xmin(pg_current_snapshot()), true) as is from changes`.execute(
      rig.service.ctx.db,
    )
    return rows[0]?.is === true
  })
const ask = async (query: string, headers: Record<string, string> = { "x-api-key": key }) => {
  await shown()
  return await rig.service.call("GET", `/api/console/changes${query}`, undefined, { headers })
}
const askAs = async (as: string, query: string) => {
  await shown()
  return await rig.service.call("GET", `/api/console/changes${query}`, undefined, { as })
}
const changes = async (after: string) => {
  const { status, body } = await ask(`?after=${after}`)
  expect(status, JSON.stringify(body)).toBe(200)
  return body
}
const now = async (): Promise<string> => (await ask("")).body.next
const checkout = async (body: object = {}): Promise<string> =>
  (await rig.service.call("POST", "/api/checkouts", { amount: "5", ...body }, { headers: { "x-api-key": key } })).body
    .id
const kinds = (answer: { data: { kind: string }[] }) => answer.data.map(({ kind }) => kind)

it("shows a checkout that is made, and each payment and payout as its list does", async () => {
  const from = await now()
  expect(await changes(from)).toMatchObject({ data: [], more: false, reset: false })
  const id = await checkout({ description: "A book" })
  const made = await changes(from)
  expect(made.data).toMatchObject([
    { kind: "checkout", objectId: id, row: { id, status: "pending", amount: "5.00", description: "A book" } },
  ])
  const { body: listed } = await rig.service.call("GET", "/api/console/checkouts", undefined, { as: "shop" })
  expect(listed.data[0]).toMatchObject(made.data[0].row)

  const shop = await rig.sell([40, 60])
  const paymentId = await rig.paid(shop, 700_001n)
  const paid = await changes(made.next)
  expect(new Set(kinds(paid))).toEqual(new Set(["payment", "payout"]))
  const { body: transactions } = await rig.service.call("GET", "/api/console/transactions", undefined, { as: "shop" })
  const ofPayment = paid.data.find(({ kind }: { kind: string }) => kind === "payment")
  const { surplus, needsYou, ...row } = ofPayment.row
  expect([ofPayment.objectId, surplus, needsYou]).toEqual([paymentId, null, false])
  expect(transactions.data).toContainEqual(row)
  const { body: payouts } = await rig.service.call("GET", "/api/console/payouts", undefined, { as: "shop" })
  const ofPayouts = paid.data.filter(({ kind }: { kind: string }) => kind === "payout")
  expect(ofPayouts.map(({ row }: { row: object }) => row)).toEqual(expect.arrayContaining(payouts.data))
})

it("has no change where nothing changed that a list shows", async () => {
  const id = await checkout()
  const from = await now()
  await sql`update checkout_sessions set run_at = run_at + interval '1 second', updated_at = now() where id = ${id}`.execute(
    rig.service.ctx.db,
  )
  expect((await changes(from)).data).toEqual([])
  await sql`update checkout_sessions set status = 'verifying' where id = ${id}`.execute(rig.service.ctx.db)
  expect((await changes(from)).data).toMatchObject([{ objectId: id, row: { status: "verifying" } }])
})

it("keeps each message below a kilobyte, and leaves out a row that does not fit", async () => {
  const from = await now()
  const long = { description: "\u{1f4d6}".repeat(250), customerEmail: `${"a".repeat(60)}@${"b".repeat(60)}.example` }
  await checkout({ ...long, metadata: { order: "x".repeat(400) } })
  const { data } = await changes(from)
  expect(data).toHaveLength(1)
  expect(Buffer.byteLength(JSON.stringify(data[0]))).toBeLessThan(1_024)
})

it("shows nobody else's changes", async () => {
  const from = await now()
  const other = await askAs("other", "")
  expect(other.status).toBe(200)
  await checkout()
  const { body } = await askAs("other", `?after=${from}`)
  expect(body.data).toEqual([])
  // A row in the table that names another's object shows nothing of it.
  const id = await checkout()
  const stranger = await rig.service.call("GET", "/api/console/settings", undefined, { as: "other" })
  await sql`insert into changes (merchant_id, kind, object_id) values (${stranger.body.merchantId}, 'checkout', ${id})`.execute(
    rig.service.ctx.db,
  )
  const forged = await askAs("other", `?after=${from}`)
  expect(forged.body.data).toMatchObject([{ objectId: id, row: null }])
})

it("answers a request that waits when a change comes, and after its time without one", async () => {
  const from = await now()
  const waiting = ask(`?after=${from}&wait=25`)
  const id = await checkout()
  expect((await waiting).body.data).toMatchObject([{ objectId: id }])
  const { body } = await ask(`?after=${await now()}&wait=1`)
  expect(body).toMatchObject({ data: [], reset: false })
})

it("continues in pages, without a loss or a repeat", async () => {
  const from = await now()
  await sql`insert into changes (merchant_id, kind, object_id)
    select ${merchantId}, 'webhook', n::text from generate_series(1, 1050) n`.execute(rig.service.ctx.db)
  const ids: string[] = []
  for (let after = from, isMore = true; isMore; ) {
    const page = await changes(after)
    ids.push(...page.data.map(({ objectId }: { objectId: string }) => objectId))
    after = page.next
    isMore = page.more
  }
  expect(ids).toEqual(Array.from({ length: 1_050 }, (_, i) => `${i + 1}`))
})

it("resets a reader whose place is not kept, of another history, or not reached yet", async () => {
  const from = await now()
  const [epoch = "", xid = "0"] = from.split("-")
  for (const other of [
    `00000000-${xid}-0`,
    `${epoch}-${BigInt(xid) + 1_000_000n}-0`,
    `${epoch}-18446744073709551615-0`,
  ])
    expect(await changes(other)).toMatchObject({ data: [], reset: true })
  for (const bad of ["x", `${epoch}-${xid}`, `${epoch}-${xid}-1'`])
    expect((await ask(`?after=${encodeURIComponent(bad)}`)).status).toBe(400)
  // A number that no transaction can have is no place.
  expect(await changes(`${epoch}-99999999999999999999-0`)).toMatchObject({ reset: true })
})

it("forgets changes after a day, resets who would miss one, and keeps the place of everybody else", async () => {
  const { db } = rig.service.ctx
  const before = await now()
  await checkout()
  await checkout()
  const between = await now()
  await sql`update changes set at = at - interval '25 hours'`.execute(db)
  const id = await checkout()
  await forgetOldChanges(rig.service.ctx)
  expect((await sql`select from changes`.execute(db)).rows).toHaveLength(2)
  expect(await changes(before)).toMatchObject({ data: [], reset: true })
  expect(await changes(between)).toMatchObject({ data: [{ objectId: id }], reset: false })
  // What a restored database brought with numbers that this one has not given.
  await sql`insert into changes (merchant_id, xid, kind, object_id) values (${merchantId}, '9000000000000'::xid8, 'webhook', 'x')`.execute(
    db,
  )
  await forgetOldChanges(rig.service.ctx)
  expect((await changes(between)).data).toHaveLength(1)
  expect((await sql`select from changes`.execute(db)).rows).toHaveLength(2)
})

it("needs the scope `read`, or `console`", async () => {
  const { body } = await rig.service.call(
    "POST",
    "/api/console/api-keys",
    { name: "B", scopes: ["checkouts"] },
    { as: "shop" },
  )
  const headers = { "x-api-key": body.key }
  expect((await ask("", headers)).body.error).toBe("SCOPE_REQUIRED")
  expect((await rig.service.call("GET", "/api/console/stream", undefined, { headers })).status).toBe(403)
  expect((await ask("", { "x-api-key": "sk_nobody" })).status).toBe(401)
})

it("a stream whose caller leaves during its first read is not begun, and gives its place back", async () => {
  const { ctx } = rig.service
  const caller = { apiKey: { id: "key_leaves" }, headers: {}, id: "request" } as unknown as FastifyRequest
  const leave = async () => {
    const raw = Object.assign(new EventEmitter(), {
      destroyed: false,
      end: () => {},
      written: 0,
      write: () => raw.written++,
    })
    const reply = { raw, hijack: () => {} } as unknown as FastifyReply
    const begun = streamChanges(ctx, caller, reply, merchantId, undefined)
    raw.destroyed = true
    raw.emit("close")
    await begun
    return raw.written
  }
  // More than a person's places, one after the other.
  for (let i = 0; i < 7; i++) expect(await leave()).toBe(0)
})

it("asks the database once for all streams together while nothing happens", async () => {
  let statements = 0
  const db = rig.service.ctx.db.withPlugin({
    transformQuery: ({ node }) => {
      statements++
      return node
    },
    transformResult: async ({ result }) => result,
  })
  const stop = new AbortController()
  // A process has one reader, known by its wakes.
  const wakes = { ...rig.service.ctx.wakes, onWake: () => {} }
  const feed = feedOf({ ...rig.service.ctx, db, wakes, signal: stop.signal })
  let reads = 0
  const count = () => void reads++
  const followers = Array.from({ length: 200 }, (_, n) =>
    feed.follow({ merchantId: `mer_${n}`, take: n === 0 ? count : () => {}, reset: () => {} }),
  )
  await until("it has read some times", () => reads >= 5)
  stop.abort()
  for (const { close } of followers) close()
  // One more may be under way.
  expect(statements - reads).toBeLessThanOrEqual(1)
})
