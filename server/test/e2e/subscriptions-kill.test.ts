// Workers killed within a round that bills subscriptions: each period is billed once, with one session and one event.
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { openPostgres } from "../../src/platform/db/open.ts"
import { ended, hold, kill, waiting } from "../killed.ts"
import { startPostgres, type TestPostgres } from "../postgres.ts"
import { startService, type TestService } from "../service.ts"
import { fillSubscriptions, newRecurring } from "../subscriptions.ts"
import { plainEnv, root, until } from "./program.ts"

const COUNT = 240
let postgres: TestPostgres
let service: TestService
const workers: ChildProcess[] = []

beforeAll(async () => {
  postgres = await startPostgres({ durable: true })
  service = await startService({ database: await openPostgres(postgres.url, () => {}) })
  const merchantId = await service.merchant("shop")
  const now = new Date()
  const times = { created_at: now, updated_at: now }
  const hook = {
    id: `c${"a".repeat(24)}`,
    merchant_id: merchantId,
    url: "https://shop.example/hook",
    description: null,
  }
  await service.ctx.db
    .insertInto("webhooks")
    .values({ ...hook, events: '["*"]', active: true, ...times })
    .execute()
  await fillSubscriptions(service.ctx, merchantId, await newRecurring(service, "shop", { interval: "week" }), COUNT)
})
afterAll(async () => {
  for (const worker of workers) await kill(worker)
  await service?.stop()
  await postgres?.stop()
})

async function work(): Promise<ChildProcess> {
  const env = { ...plainEnv(), DATABASE_URL: postgres.url, SECRET_KEY: "07".repeat(32) }
  const child = spawn(process.execPath, [join(root, "server/test/bill.ts")], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  })
  workers.push(child)
  await once(child.stdout, "data")
  return child
}

/** How many rows each kind has that a renewal makes: the same number, whatever was interrupted. */
async function made(): Promise<Record<string, number>> {
  const { rows } = await sql<Record<string, number>>`select
      (select count(*)::int from invoices where sequence > 1) as invoices,
      (select count(*)::int from checkout_sessions where status = 'pending') as sessions,
      (select count(*)::int from deposits) as deposits,
      (select count(*)::int from events where type = 'subscription.renewal.created') as events,
      (select count(distinct dedupe_key)::int from events where type = 'subscription.renewal.created') as keys,
      (select count(*)::int from deliveries) as deliveries,
      (select sum(event_sequence)::int from subscriptions) as numbered`.execute(service.ctx.db)
  return rows[0] ?? {}
}
const each = (n: number) => {
  const names = ["invoices", "sessions", "deposits", "events", "keys", "deliveries", "numbered"]
  return Object.fromEntries(names.map(name => [name, n]))
}

it("SIGKILL at the first write, the last, and between leaves nothing of the round, and all is billed once in the end", async () => {
  const { db } = service.ctx
  for (const table of ["checkout_sessions", "subscriptions", "deliveries"]) {
    // Reads and locks of rows go on; whoever writes waits.
    const release = await hold(postgres.url, `lock table ${table} in share mode`)
    const worker = await work()
    const pid = await waiting(db)
    await kill(worker)
    await release()
    await ended(db, pid)
    expect([table, await made()]).toEqual([table, each(0)])
  }
  // Two at once; one ends as soon as something is billed, wherever it is then.
  const [first] = await Promise.all([work(), work()])
  await until("something is billed", async () => ((await made()).invoices ?? 0) > 0)
  await kill(first)
  await until("all are billed", async () => ((await made()).invoices ?? 0) >= COUNT)
  expect(await made()).toEqual(each(COUNT))
  const { rows } = await sql<{ n: number }>`select count(*)::int as n from invoices i
    join checkout_sessions s on s.id = i.session_id join deposits d on d.resource_id = s.id
    join events e on e.dedupe_key = 'subscription.renewal.created:' || i.id where i.sequence = 2`.execute(db)
  expect(rows).toEqual([{ n: COUNT }])
})
