// The worker that sends mails, killed at each step of a mail, before a real SMTP server: each notice is sent. One that the server took
// while the worker died comes twice, with one Message-ID, and no more of them than kills.
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { mailTo } from "../../src/account/notifications/write-mails.ts"
import { readSettings } from "../../src/platform/config/read-settings.ts"
import { type Context, inTransaction } from "../../src/platform/context.ts"
import { type OpenDatabase, openPostgres } from "../../src/platform/db/open.ts"
import { ended, hold, kill, waiting } from "../killed.ts"
import { type MailServer, type MailStep, startMailServer } from "../mail-server.ts"
import { startPostgres, type TestPostgres } from "../postgres.ts"
import { plainEnv, root, until } from "./program.ts"

const SECRET_KEY = "5f".repeat(32)
/** More than one claim takes, so that others are claimed and not sent when the worker dies. */
const MAILS = 25

let postgres: TestPostgres
let database: OpenDatabase
let server: MailServer
let ctx: Context
let env: Record<string, string>
const workers: ChildProcess[] = []
beforeAll(async () => {
  postgres = await startPostgres({ durable: true })
  server = await startMailServer()
  database = await openPostgres(postgres.url, () => {})
  const mail = { SMTP_URL: server.url, MAIL_FROM: "payments@shop.example" }
  const DATABASE_URL = `${postgres.url}?application_name=sluice-mails`
  env = { ...plainEnv(), DATABASE_URL, SECRET_KEY, ...mail }
  const settings = readSettings({ SECRET_KEY, ...mail })
  ctx = { db: database.db, settings, now: () => new Date(), wakes: { wakeSoon: () => {} } } as unknown as Context
})
afterAll(async () => {
  for (const worker of workers) await kill(worker)
  await database?.close()
  await server?.stop()
  await postgres?.stop()
})
beforeEach(async () => {
  await ctx.db.deleteFrom("mails").execute()
  server.got = []
  server.before = undefined
  for (let n = 0; n < MAILS; n++)
    await inTransaction(ctx, ctx =>
      mailTo(
        ctx,
        { merchantId: null, notice: "security", addresses: [`m${n}@shop.example`] },
        { key: `k${n}`, subject: "Notice", lines: [`Notice ${n}`], path: "/team/accept#token", isSecret: true },
      ),
    )
})

async function start(): Promise<ChildProcess> {
  const worker = spawn(process.execPath, [join(root, "server/test/mailer.ts")], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  })
  workers.push(worker)
  await once(worker.stdout, "data")
  return worker
}

/** As if the time of all leases had passed. */
const endLeases = () =>
  sql`update mails set lease_until = clock_timestamp() - interval '1 second' where claim_id is not null`.execute(ctx.db)

/** Another worker sends what is left; returns which addresses got more than one, with the Message-IDs. */
async function finish(): Promise<[string, Set<string>][]> {
  await endLeases()
  const worker = await start()
  await until("all are sent", async () => {
    const { rows } = await sql<{ n: number }>`select count(*)::int as n from mails where status <> 'sent'`.execute(
      ctx.db,
    )
    return rows[0]?.n === 0
  })
  await kill(worker)
  const { rows } = await sql<{ sealed: string | null; body: string | null }>`
    select distinct sealed, body from mails`.execute(ctx.db)
  expect(rows).toEqual([{ sealed: null, body: null }])
  const byAddress = Map.groupBy(server.got, ({ to }) => `${to}`)
  expect(byAddress.size).toBe(MAILS)
  for (const { raw } of server.got) expect(raw.replaceAll("=\r\n", "")).toContain("/console/team/accept#token")
  return [...byAddress].flatMap(([to, mails]) => (mails.length > 1 ? [[to, new Set(mails.map(({ id }) => id))]] : []))
}

/** Kills the worker before the server's answer to the n-th such step. */
async function killedAt(step: MailStep, n: number): Promise<void> {
  const died = Promise.withResolvers<void>()
  let left = n
  const worker = await start()
  server.before = async at => {
    if (at !== step || --left !== 0) return
    await kill(worker)
    died.resolve()
  }
  await endLeases()
  await died.promise
  server.before = undefined
}

it.each<MailStep>(["connect", "from", "to"])("killed at `%s`, it has sent nothing twice", async step => {
  for (const n of [1, 3]) await killedAt(step, n)
  expect(await finish()).toEqual([])
})

it("killed while the server takes the text, it sends that one again, under the same Message-ID", async () => {
  for (const n of [1, 3]) await killedAt("text", n)
  const twice = await finish()
  expect(twice).toHaveLength(2)
  for (const [, ids] of twice) expect(ids.size).toBe(1)
})

it("killed before its claim is written, it has sent nothing twice", async () => {
  const letGo = await hold(postgres.url, "select from mails for update")
  const worker = await start()
  const pid = await waiting(ctx.db)
  await kill(worker)
  await letGo()
  await ended(ctx.db, pid)
  expect(server.got).toEqual([])
  expect(await finish()).toEqual([])
})

it("killed before it has recorded that a mail was taken, it sends that one again, under the same Message-ID", async () => {
  const claimed = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  server.before = async step => {
    if (step !== "from") return
    claimed.resolve()
    await held.promise
  }
  const worker = await start()
  await claimed.promise
  const letGo = await hold(postgres.url, "select from mails for update")
  server.before = undefined
  held.resolve()
  const pid = await waiting(ctx.db)
  expect(server.got).toHaveLength(1)
  await kill(worker)
  // Otherwise Postgres would carry out what a process that is gone has asked for.
  await sql`select pg_terminate_backend(${pid})`.execute(ctx.db)
  await ended(ctx.db, pid)
  await letGo()
  const twice = await finish()
  expect(twice).toHaveLength(1)
  for (const [, ids] of twice) expect(ids.size).toBe(1)
})
