/**
 * Webhooks on Postgres: deliveries a second from event row to stored attempt, compared with a bare loop of undici that
 * sends the same bodies and signatures to the same receiver; what an endpoint that hangs costs the others; what a claim
 * costs with a backlog. `script/bench webhooks [throughput|fairness|claims [endpoints]]`
 */
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { readdirSync, readFileSync } from "node:fs"
import { createServer } from "node:http"
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import { Agent } from "undici"
import { claimDeliveries } from "../server/src/account/webhooks/claim-deliveries.ts"
import { runDeliveries } from "../server/src/account/webhooks/deliver-events.ts"
import { emit } from "../server/src/account/webhooks/emit.ts"
import { newSecret, rollSecret } from "../server/src/account/webhooks/manage-secrets.ts"
import { openSender, type Sender } from "../server/src/account/webhooks/send.ts"
import { signatureHeaders } from "../server/src/account/webhooks/webhook.ts"
import { readSettings } from "../server/src/platform/config/read-settings.ts"
import { atOnce, type Context, inTransaction } from "../server/src/platform/context.ts"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { openWakes } from "../server/src/platform/jobs/wake.ts"
import { processLimits } from "../server/src/platform/limits/limiter.ts"
import { openLog } from "../server/src/platform/log.ts"
import { startPostgres } from "../server/test/postgres.ts"

const ENDPOINTS = Number.parseInt(process.argv[3] ?? "10", 10)
const EVENTS = 10_000
const ROUNDS = 3
const HANG_MS = 29_000
/** How long a remote endpoint takes to answer, round trip included. */
const LATER_MS = 20
const PHASE_MS = 15_000
const EVENTS_PER_SECOND = 20
const FINISHED = 1_000_000
const WAITING = 100_000

const say = (text: string) => process.stdout.write(`${text}\n`)
const clock = () => performance.timeOrigin + performance.now()
const sorted = (values: number[]) => [...values].sort((a, b) => a - b)
const at = (values: number[], share: number) => sorted(values)[Math.floor((values.length - 1) * share)] ?? 0
const data = {
  sessionId: "cs_1",
  amount: "5.00",
  currency: "USDC",
  status: "confirmed",
  txHash: `0x${"5f".repeat(32)}`,
}

/** The receiver, a process of its own: counts requests, hangs at `/hang`, and reports the age of events on arrival. */
function receive(): void {
  let latencies: number[] = []
  const server = createServer((request, response) => {
    if (request.url === "/stats") {
      response.end(JSON.stringify(latencies))
      latencies = []
      return
    }
    const chunks: Buffer[] = []
    request.on("data", chunk => chunks.push(chunk))
    request.on("end", () => {
      if (request.url === "/later") return void setTimeout(() => response.end("ok"), LATER_MS)
      if (request.url === "/hang") return void setTimeout(() => response.end(), HANG_MS)
      const sentAt = Number.parseFloat(/"sentAt":([\d.]+)/.exec(Buffer.concat(chunks).toString())?.[1] ?? "")
      if (sentAt) latencies.push(clock() - sentAt)
      return void response.end("ok")
    })
  })
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as { port: number }).port))
  process.once("disconnect", () => process.exit(0))
}

const TICKS_PER_SECOND = 100

/** Seconds of CPU that a process and, with `family`, all children of its parent have used; Linux only. */
function cpuOf(pid: number, family = false): number {
  // pid (name) state ppid …, user and system time as the 14th and 15th field; a name may hold spaces.
  const stat = (id: string | number) => readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
  const used = (fields: string[]) => (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND
  if (!family) return used(stat(pid))
  const parent = stat(pid)[1]
  const all = readdirSync("/proc").filter(name => /^\d+$/.test(name))
  return all.reduce((sum, id) => {
    try {
      const fields = stat(id)
      return fields[1] === parent ? sum + used(fields) : sum
    } catch {
      return sum
    }
  }, 0)
}

interface Place {
  receiverPid: number
  ctx: Context
  url: string
  merchantId: string
  webhooks: string[]
}

async function main(part?: string): Promise<void> {
  const postgres = await startPostgres({ fsync: true })
  const database = await openPostgres(postgres.url, error => say(`database: ${error.message}`))
  const settings = readSettings({ SECRET_KEY: "07".repeat(32) })
  const ctx: Context = {
    db: database.db,
    settings,
    log: openLog("error"),
    now: () => new Date(),
    chain: { networks: [] },
    limits: processLimits(),
    onCommit: atOnce,
    wakes: await openWakes(database),
    signal: new AbortController().signal,
  }
  const receiver: ChildProcess = fork(import.meta.filename, ["receiver"])
  const [port] = await once(receiver, "message")
  const place = await settle(ctx, `http://127.0.0.1:${port}`, receiver.pid ?? 0)
  say(
    "Postgres as in production (fsync, synchronous_commit, full_page_writes); receiver, worker and Postgres share this machine\n",
  )
  if (!part || part === "throughput") {
    await throughput(place, "ok", "that answer at once")
    await throughput(place, "later", `that answer after ${LATER_MS} ms`)
  }
  if (!part || part === "fairness") await fairness(place)
  if (!part || part === "claims") await claims(place)
  receiver.disconnect()
  await database.close()
  await postgres.stop()
}

/** A merchant with its endpoints. */
async function settle(ctx: Context, url: string, receiverPid: number): Promise<Place> {
  const merchantId = `mer_${"a".repeat(24)}`
  const now = new Date()
  await ctx.db.insertInto("merchants").values({ id: merchantId, name: "", email: null, created_at: now }).execute()
  const webhooks = Array.from({ length: ENDPOINTS }, (_, i) => `c${String(i).padStart(24, "0")}`)
  const times = { created_at: now, updated_at: now }
  for (const id of webhooks) {
    await ctx.db
      .insertInto("webhooks")
      .values({
        id,
        merchant_id: merchantId,
        url: `${url}/ok`,
        description: null,
        events: '["*"]',
        active: true,
        ...times,
      })
      .execute()
    await inTransaction(ctx, ctx => rollSecret(ctx, { merchantId, webhookId: id }))
  }
  return { ctx, url, merchantId, webhooks, receiverPid }
}

const clear = (ctx: Context) => sql`truncate events, deliveries, delivery_attempts`.execute(ctx.db)

/** Inserts `n` events with one delivery each, spread over the endpoints, all due at once. */
async function heap({ ctx, merchantId }: Place, n: number): Promise<void> {
  const body = JSON.stringify({
    id: `evt_${"a".repeat(24)}`,
    event: "subscription.renewal.created",
    createdAt: new Date(),
    data,
  })
  await sql`insert into events (id, merchant_id, type, dedupe_key, body, created_at)
    select 'evt_' || i, ${merchantId}, 'checkout.session.completed', 'k' || i, ${body}, now() from generate_series(1, ${n}::int) i`.execute(
    ctx.db,
  )
  await sql`insert into deliveries (id, event_id, merchant_id, webhook_id, lane, order_key, status, run_at, created_at, updated_at)
    select 'dlv_' || i, 'evt_' || i, ${merchantId}, w, w, 'o' || i, 'pending', now(), now(), now()
    from generate_series(1, ${n}::int) i, lateral (select 'c' || lpad((i % ${ENDPOINTS}::int)::text, 24, '0') as w) x`.execute(
    ctx.db,
  )
  await sql`analyze events, deliveries`.execute(ctx.db)
}

/** Runs the real loop while `work` runs; `onSend` gets the milliseconds of each exchange. */
async function delivering<T>(ctx: Context, work: () => Promise<T>, onSend?: (ms: number) => void): Promise<T> {
  const stop = new AbortController()
  const sender = openSender(ctx.settings.webhooks)
  const timed: Sender = {
    ...sender,
    send: async (...given) => {
      const attempt = await sender.send(...given)
      onSend?.(attempt.durationMs)
      return attempt
    },
  }
  const running = runDeliveries({ ...ctx, signal: stop.signal }, timed)
  const result = await work()
  stop.abort()
  await running
  return result
}

async function throughput(place: Place, path: string, who: string): Promise<void> {
  const { ctx } = place
  const url = `${place.url}/${path}`
  await ctx.db.updateTable("webhooks").set({ url }).execute()
  const bare: number[] = []
  const ours: number[] = []
  const cpu = { bare: 0, ours: 0, postgres: 0, receiver: 0 }
  const spent = async (work: () => Promise<unknown>): Promise<{ perSecond: number; cpuUs: number }> => {
    const before = process.cpuUsage()
    const startedAt = performance.now()
    await work()
    const ms = performance.now() - startedAt
    const { user, system } = process.cpuUsage(before)
    return { perSecond: (EVENTS / ms) * 1_000, cpuUs: (user + system) / EVENTS }
  }
  for (let round = 0; round <= ROUNDS; round++) {
    const one = await spent(() => bareLoop(url, EVENTS, ctx.settings.webhooks.concurrencyPerEndpoint * ENDPOINTS))
    await clear(ctx)
    await heap(place, EVENTS)
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(ctx.db)
    const before = [cpuOf(rows[0]?.pid ?? 0, true), cpuOf(place.receiverPid)]
    const two = await spent(() => delivering(ctx, () => allDelivered(ctx, EVENTS)))
    const after = [cpuOf(rows[0]?.pid ?? 0, true), cpuOf(place.receiverPid)]
    // The first round warms up.
    if (round === 0) continue
    bare.push(one.perSecond)
    ours.push(two.perSecond)
    cpu.bare += one.cpuUs / ROUNDS
    cpu.ours += two.cpuUs / ROUNDS
    cpu.postgres += (((after[0] ?? 0) - (before[0] ?? 0)) * 1e6) / EVENTS / ROUNDS
    cpu.receiver += (((after[1] ?? 0) - (before[1] ?? 0)) * 1e6) / EVENTS / ROUNDS
  }
  const a = at(bare, 0.5)
  const b = at(ours, 0.5)
  say(`throughput, ${EVENTS} deliveries to ${ENDPOINTS} endpoints ${who}, median of ${ROUNDS} rounds in turn`)
  say(`  bare undici   ${a.toFixed(0)}/s   ${cpu.bare.toFixed(0)} µs of this process' CPU each`)
  say(
    `  sluice        ${b.toFixed(0)}/s   ${cpu.ours.toFixed(0)} µs, and ${cpu.postgres.toFixed(0)} µs of Postgres', ${cpu.receiver.toFixed(0)} µs of the receiver's`,
  )
  say(`  ratio         ${(b / a).toFixed(2)} (goal 0.5)\n`)
}

async function bareLoop(url: string, n: number, concurrency: number): Promise<void> {
  const agent = new Agent({ allowH2: false })
  const { origin, pathname } = new URL(url)
  const secrets = [newSecret()]
  let left = n
  const one = async () => {
    while (left-- > 0) {
      const eventId = `evt_${"a".repeat(24)}`
      const body = JSON.stringify({ id: eventId, event: "subscription.renewal.created", createdAt: new Date(), data })
      const t = Math.floor(Date.now() / 1_000)
      const headers = {
        "content-type": "application/json",
        "idempotency-key": `dlv_${left}`,
        ...signatureHeaders(secrets, { eventId, body, t }),
      }
      const response = await agent.request({ origin, path: pathname, method: "POST", headers, body })
      await response.body.text()
    }
  }
  await Promise.all(Array.from({ length: concurrency }, one))
  await agent.close()
}

/** Checked rarely, so that checking costs nothing. */
async function allDelivered(ctx: Context, n: number): Promise<void> {
  for (;;) {
    const { rows } = await sql<{
      left: boolean
    }>`select exists (select from deliveries where status = 'pending') as left`.execute(ctx.db)
    if (!rows[0]?.left) break
    await sleep(20)
  }
  const { rows } = await sql<{
    n: number
  }>`select count(*)::int as n from delivery_attempts where status = 200`.execute(ctx.db)
  if (rows[0]?.n !== n) throw new Error(`${rows[0]?.n} attempts of ${n} are stored`)
}

async function fairness(place: Place): Promise<void> {
  const { ctx, url, webhooks } = place
  const healthy: number[] = []
  const beside: number[] = []
  for (let round = 0; round < 2; round++)
    for (const hang of [false, true]) {
      await clear(ctx)
      await ctx.db
        .updateTable("webhooks")
        .set({ url: `${url}/${hang ? "hang" : "quiet"}` })
        .where("id", "=", webhooks[0] ?? "")
        .execute()
      const latencies = await delivering(ctx, async () => {
        await steadily(place, PHASE_MS)
        await sleep(500)
        return (await (await fetch(`${url}/stats`)).json()) as number[]
      })
      ;(hang ? beside : healthy).push(...latencies)
    }
  const shown = (values: number[]) =>
    `p50 ${at(values, 0.5).toFixed(1)} ms   p99 ${at(values, 0.99).toFixed(1)} ms   (${values.length} deliveries)`
  say(`fairness, ${EVENTS_PER_SECOND} events a second to each of ${ENDPOINTS} endpoints, commit to arrival`)
  say(`  all well                            ${shown(healthy)}`)
  say(`  one hangs ${HANG_MS / 1_000} s on every request      ${shown(beside)}`)
  say(`  p99 moves by ${((at(beside, 0.99) / at(healthy, 0.99) - 1) * 100).toFixed(1)} % (goal below 10 %)\n`)
}

/**
 * Emits events at a steady rate, each to all endpoints. They contain the time of their commit, as precisely as it can
 * be known.
 */
async function steadily({ ctx, merchantId }: Place, ms: number): Promise<void> {
  const gapMs = 1_000 / EVENTS_PER_SECOND
  const startedAt = clock()
  for (let n = 1; clock() - startedAt < ms; n++) {
    await inTransaction(ctx, ctx =>
      emit(ctx, {
        merchantId,
        type: "subscription.renewal.created",
        orderKey: `cs_${n}`,
        data: { ...data, sentAt: clock() } as never,
      }),
    )
    await sleep(Math.max(0, startedAt + n * gapMs - clock()))
  }
}

async function claims(place: Place): Promise<void> {
  const { ctx, merchantId } = place
  const CLAIMS = 100
  const CLAIM = 50
  const measure = async (): Promise<number> => {
    const times: number[] = []
    for (let i = 0; i < CLAIMS; i++) {
      const startedAt = performance.now()
      // The first lane is full, like that of an endpoint that hangs.
      const taken = new Map([[place.webhooks[0] ?? "", 10]])
      const { rows } = await claimDeliveries(ctx.db, {
        now: new Date(),
        leaseMs: 60_000,
        limit: CLAIM,
        perLane: 10,
        taken,
        inFlight: taken,
        room: 1_000,
        rooms: new Map(),
        afterLane: "",
        lanes: 200,
      })
      times.push(performance.now() - startedAt)
      if (rows.length !== CLAIM) throw new Error(`${rows.length} rows were claimed`)
    }
    return at(times, 0.5)
  }
  await clear(ctx)
  await heap(place, 20_000)
  await measure()
  await clear(ctx)
  await heap(place, 20_000)
  const empty = await measure()
  await clear(ctx)
  await sql`insert into events (id, merchant_id, type, dedupe_key, body, created_at)
    values ('evt_old', ${merchantId}, 'ping', 'old', '{}', now())`.execute(ctx.db)
  const old = (status: string, prefix: string, runAt: string, lane: string, n: number) =>
    sql`insert into deliveries (id, event_id, merchant_id, url, lane, order_key, status, attempts, run_at, created_at, updated_at)
      select ${prefix} || i, 'evt_old', ${merchantId}, 'http://x', ${sql.raw(lane)}, 'o' || i, ${status}, 1, ${sql.raw(runAt)}, now(), now()
      from generate_series(1, ${n}::int) i`.execute(ctx.db)
  const lanes = `'c' || lpad((i % ${ENDPOINTS})::text, 24, '0')`
  await old("delivered", "done", "now() - interval '1 day'", lanes, FINISHED)
  // Half are future retries in all lanes; half are due in the lane that is full.
  await old("pending", "later", "now() + interval '1 hour'", lanes, WAITING / 2)
  await old("pending", "full", "now() - interval '1 hour'", `'c' || lpad('0', 24, '0')`, WAITING / 2)
  await heap(place, 20_000)
  const backlog = await measure()
  say(`a claim of ${CLAIM} rows, median of ${CLAIMS}, with one lane full`)
  say(`  table with the due rows only          ${empty.toFixed(2)} ms`)
  say(`  beside ${FINISHED} finished and ${WAITING} waiting   ${backlog.toFixed(2)} ms`)
  say(`  ratio ${(backlog / empty).toFixed(2)} (goal at most 1.5)`)
}

if (process.argv[2] === "receiver") receive()
else await main(process.argv[2])
