// Workers and Postgres killed at every step of a delivery: nothing is lost, and what is repeated bears the same key.
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { createServer, type Server } from "node:net"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { claimDeliveries } from "../../src/account/webhooks/claim-deliveries.ts"
import { emit } from "../../src/account/webhooks/emit.ts"
import { rollSecret } from "../../src/account/webhooks/manage-secrets.ts"
import { recordAttempts } from "../../src/account/webhooks/record-attempts.ts"
import { readSettings } from "../../src/platform/config/read-settings.ts"
import { type Context, inTransaction } from "../../src/platform/context.ts"
import { type OpenDatabase, openPostgres } from "../../src/platform/db/open.ts"
import { emptyDatabase } from "../database.ts"
import { ended, hold, kill, waiting } from "../killed.ts"
import { startPostgres, type TestPostgres } from "../postgres.ts"
import { type Receiver, startReceiver } from "../receiver.ts"
import { plainEnv, root, until } from "./program.ts"

const SECRET_KEY = "07".repeat(32)
const merchantId = `mer_${"a".repeat(24)}`
const webhookId = `c${"a".repeat(24)}`

let postgres: TestPostgres
let database: OpenDatabase
let ctx: Context
let to: Receiver
const workers: ChildProcess[] = []

beforeAll(async () => {
  postgres = await startPostgres({ durable: true })
  database = await openPostgres(postgres.url, () => {})
  const settings = readSettings({ SECRET_KEY })
  // The workers under test find what is due by themselves.
  ctx = { db: database.db, settings, now: () => new Date(), wakes: { wakeSoon: () => {} } } as unknown as Context
})
afterAll(async () => {
  await database.close()
  await postgres.stop()
})
beforeEach(async () => {
  await emptyDatabase(database)
  to = await startReceiver()
  const now = new Date()
  await ctx.db.insertInto("merchants").values({ id: merchantId, name: "", email: null, created_at: now }).execute()
  const times = { created_at: now, updated_at: now }
  await ctx.db
    .insertInto("webhooks")
    .values({
      id: webhookId,
      merchant_id: merchantId,
      url: to.url,
      description: null,
      events: '["*"]',
      active: true,
      ...times,
    })
    .execute()
  await inTransaction(ctx, ctx => rollSecret(ctx, { merchantId, webhookId }))
})
afterEach(async () => {
  for (const worker of workers.splice(0)) await kill(worker)
  await to.stop()
})

async function work(): Promise<ChildProcess> {
  const url = `${postgres.url}?application_name=sluice-deliver`
  const env = { ...plainEnv(), DATABASE_URL: url, SECRET_KEY, WEBHOOK_TIMEOUT: "20s" }
  const child = spawn(process.execPath, [join(root, "server/test/deliver.ts")], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  })
  workers.push(child)
  await once(child.stdout, "data")
  return child
}

async function send(n = 1): Promise<void> {
  for (let i = 0; i < n; i++)
    await inTransaction(ctx, ctx =>
      emit(ctx, { merchantId, type: "subscription.renewal.created", orderKey: `cs_${i}`, data: { i } as never }),
    )
}

/** As if the time of all leases had passed. */
const endLeases = () =>
  sql`update deliveries set lease_until = clock_timestamp() - interval '1 second', run_at = created_at
    where claim_id is not null`.execute(ctx.db)

const states = async () => (await ctx.db.selectFrom("deliveries").select("status").execute()).map(row => row.status)
const attempts = async () => await ctx.db.selectFrom("delivery_attempts").selectAll().execute()

/** What a second worker makes of what the first left behind: each event delivered, each key one event's. */
async function expectAllDelivered(n: number): Promise<void> {
  expect((await states()).filter(status => status !== "pending" && status !== "delivered")).toEqual([])
  await endLeases()
  await work()
  await until("all is delivered", async () => (await states()).every(status => status === "delivered"))
  const events = Map.groupBy(to.received, ({ body }) => JSON.parse(body).id)
  expect(events.size).toBe(n)
  const keys = [...events.values()].map(
    received => new Set(received.map(({ headers, body }) => `${headers["idempotency-key"]} ${body}`)),
  )
  expect(keys.map(({ size }) => size)).toEqual(Array(n).fill(1))
  expect(new Set(to.received.map(({ headers }) => headers["idempotency-key"])).size).toBe(n)
  expect((await attempts()).filter(({ error }) => error === null)).toHaveLength(n)
}

const holding = (statement: string) => hold(postgres.url, statement)
const someoneWaits = () => waiting(ctx.db)
const connectionEnded = (pid: number) => ended(ctx.db, pid)
/** Postgres carries out what a killed worker has sent: its leases must be ended after that, or they last a minute. */
const connectionsEnded = () =>
  until("no worker has a connection", async () => {
    const { rows } = await sql`select from pg_stat_activity where application_name = 'sluice-deliver'`.execute(ctx.db)
    return rows.length === 0
  })

describe("SIGKILL of a worker", () => {
  it("while it claims", async () => {
    await send(3)
    const release = await holding("lock table deliveries in access exclusive mode")
    const worker = await work()
    const pid = await someoneWaits()
    await kill(worker)
    await release()
    // It claims though nobody is there to hear of it.
    await connectionEnded(pid)
    await expectAllDelivered(3)
  })

  it("when it has claimed and connects", async () => {
    const sink: Server = createServer(socket => socket.on("error", () => {})).listen(0, "127.0.0.1")
    await once(sink, "listening")
    const { port } = sink.address() as { port: number }
    await ctx.db
      .updateTable("webhooks")
      .set({ url: `http://127.0.0.1:${port}/` })
      .execute()
    await send()
    const connected = once(sink, "connection")
    const worker = await work()
    const [socket] = await connected
    await kill(worker)
    socket.destroy()
    sink.close()
    await ctx.db.updateTable("webhooks").set({ url: to.url }).execute()
    expect(await attempts()).toEqual([])
    await expectAllDelivered(1)
  })

  it("when the receiver has the request and has not answered", async () => {
    to.answer(() => {})
    await send(3)
    const worker = await work()
    await to.got(3)
    await kill(worker)
    to.answer(200)
    await expectAllDelivered(3)
    expect(to.received).toHaveLength(6)
  })

  it("when the receiver has answered and it is not written down", async () => {
    const answered = Promise.withResolvers<void>()
    to.answer(response => void answered.promise.then(() => response.writeHead(200).end()))
    await send()
    const worker = await work()
    await to.got(1)
    const release = await holding("select from deliveries for update")
    answered.resolve()
    await someoneWaits()
    await kill(worker)
    // The server would carry out what it was asked, though nobody is there to hear of it.
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where wait_event_type = 'Lock' and application_name ~ '^sluice'`.execute(ctx.db)
    await release()
    expect(await states()).toEqual(["pending"])
    await expectAllDelivered(1)
    expect(to.received).toHaveLength(2)
  })

  it("again and again while it works through a heap", async () => {
    await send(60)
    for (const n of [5, 20, 40]) {
      const worker = await work()
      await to.got(n)
      await kill(worker)
      await connectionsEnded()
      await endLeases()
    }
    await expectAllDelivered(60)
  })
})

describe("a worker that was taken for dead", () => {
  it("changes nothing when it comes back: the other's word holds", async () => {
    const first = Promise.withResolvers<void>()
    to.answer(response => void first.promise.then(() => response.writeHead(500).end()))
    await send()
    const worker = await work()
    await to.got(1)
    worker.kill("SIGSTOP")
    await endLeases()
    to.answer(200)
    await work()
    await until("the other has delivered", async () => (await states())[0] === "delivered")
    const before = await ctx.db.selectFrom("deliveries").selectAll().execute()
    first.resolve()
    worker.kill("SIGCONT")
    // Its answer is in: what it is sent next is written down after that.
    await send()
    await until("all is delivered", async () => (await states()).every(status => status === "delivered"))
    const ended = once(worker, "exit")
    worker.kill("SIGTERM")
    await ended
    const after = await ctx.db
      .selectFrom("deliveries")
      .selectAll()
      .where("id", "=", before[0]?.id ?? "")
      .execute()
    expect(after).toEqual(before)
    expect((await attempts()).map(({ status }) => status)).toEqual([200, 200])
  })
})

describe("SIGTERM", () => {
  it("lets what is being sent end, and writes it down", async () => {
    const held = Promise.withResolvers<void>()
    to.answer(response => void held.promise.then(() => response.writeHead(200).end()))
    await send(2)
    const worker = await work()
    await to.got(2)
    const ended = once(worker, "exit")
    worker.kill("SIGTERM")
    held.resolve()
    expect(await ended).toEqual([0, null])
    expect(await states()).toEqual(["delivered", "delivered"])
  })
})

describe("SIGKILL of Postgres", () => {
  it("while events are sent: the worker recovers, and nothing is lost", async () => {
    let slow: (() => void)[] = []
    to.answer(response => void slow.push(() => response.writeHead(200).end()))
    await send(20)
    await work()
    await to.got(10)
    await postgres.crash()
    to.answer(200)
    for (const go of slow) go()
    slow = []
    await until("the worker has written down what it sent", async () => (await attempts()).length >= 10)
    await until("all is delivered", async () => (await states()).every(status => status === "delivered"))
    await expectAllDelivered(20)
  })

  it("that loses a claim: its word counts for nothing, and the delivery is due again", async () => {
    await sql`alter system set autovacuum = off`.execute(ctx.db)
    await postgres.crash()
    await until("Postgres answers", async () => (await states().catch(() => undefined)) !== undefined)
    await send(3)
    await postgres.stopLogWriter()
    const from = {
      now: new Date(),
      leaseMs: 60_000,
      limit: 10,
      perLane: 10,
      taken: new Map(),
      inFlight: new Map(),
      room: 1_000,
      rooms: new Map(),
      afterLane: "",
      lanes: 10,
    }
    const { rows } = await claimDeliveries(ctx.db, from)
    expect(rows).toHaveLength(3)
    expect((await claimDeliveries(ctx.db, from)).rows).toEqual([])
    await postgres.crash()
    await until("Postgres answers", async () => (await states().catch(() => undefined)) !== undefined)
    const claims = await ctx.db.selectFrom("deliveries").select("claim_id").execute()
    expect(claims).toEqual(Array(3).fill({ claim_id: null }))
    const attempt = {
      status: 200,
      error: null,
      retryAfterMs: undefined,
      durationMs: 1,
      answer: "thanks",
      headers: null,
    }
    const results = rows.map(delivery => ({ delivery, webhook: undefined, startedAt: new Date(), attempt }))
    expect(await recordAttempts(ctx, results)).toBe(0)
    await sql`alter system reset all`.execute(ctx.db)
    await sql`select pg_reload_conf()`.execute(ctx.db)
    await expectAllDelivered(3)
    expect(to.received).toHaveLength(3)
  })
})
