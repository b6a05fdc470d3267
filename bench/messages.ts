/**
 * Webhooks from end to end, as their users see them: a message is accepted by HTTP, committed, delivered, and arrives. The driver, the
 * front that accepts, the worker, the receiver and a Postgres that survives a power cut are processes of their own.
 * `script/bench messages [--against COMMIT]`
 */
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { readdirSync, readFileSync } from "node:fs"
import { createServer } from "node:http"
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import { Agent } from "undici"
import { readSettings } from "../server/src/config/settings.ts"
import { atOnce, type Context, inTransaction } from "../server/src/context.ts"
import { openPostgres } from "../server/src/db/open.ts"
import { openWakes } from "../server/src/jobs/wake.ts"
import { processLimits } from "../server/src/limits/limiter.ts"
import { openLog } from "../server/src/log.ts"
import { runDeliveries } from "../server/src/webhooks/deliver-events.ts"
import { emit } from "../server/src/webhooks/emit.ts"
import { rollSecret } from "../server/src/webhooks/secrets.ts"
import { openSender } from "../server/src/webhooks/send.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { type Figures, rounds } from "./rounds.ts"

const MESSAGES = 5_000
const ENDPOINTS = 10
/** Messages that the driver has under way at a time. */
const AT_ONCE = 32
const RATE = 200
const RATE_SECONDS = 10

const TICKS_A_SECOND = 100

/** Milliseconds of CPU that a process and its children have used; Linux only. */
function cpuOf(pid: number): number {
  // pid (name) state ppid …, user and system time as the 14th and 15th field; a name may hold spaces.
  const stat = (id: string | number) => readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
  const of = (id: string | number): number => {
    try {
      const fields = stat(id)
      return String(id) === String(pid) || fields[1] === String(pid) ? Number(fields[11]) + Number(fields[12]) : 0
    } catch {
      // It ended meanwhile.
      return 0
    }
  }
  const ticks = readdirSync("/proc").filter(name => /^\d+$/.test(name))
  return (ticks.reduce((sum, id) => sum + of(id), 0) / TICKS_A_SECOND) * 1_000
}

const clock = () => performance.timeOrigin + performance.now()

async function openContext(url: string): Promise<Context & { close(): Promise<void> }> {
  const database = await openPostgres(url, error => process.stderr.write(`database: ${error.message}\n`))
  return {
    db: database.db,
    settings: readSettings({ SECRET_KEY: "07".repeat(32) }),
    log: openLog("error"),
    now: () => new Date(),
    chain: { networks: [] },
    limits: processLimits(),
    sells: [],
    onCommit: atOnce,
    wakes: await openWakes(database),
    signal: new AbortController().signal,
    close: database.close,
  }
}

/** The receiver: counts, and keeps when each message arrived that bears a time. */
function receive(): void {
  let count = 0
  let latencies: number[] = []
  const server = createServer((request, response) => {
    if (request.url === "/stats") {
      response.end(JSON.stringify({ count, lastAt, latencies }))
      count = 0
      latencies = []
      return
    }
    const chunks: Buffer[] = []
    request.on("data", chunk => chunks.push(chunk))
    request.on("end", () => {
      count++
      lastAt = clock()
      const sentAt = Number.parseFloat(/"sentAt":([\d.]+)/.exec(Buffer.concat(chunks).toString())?.[1] ?? "")
      if (sentAt) latencies.push(lastAt - sentAt)
      response.end("ok")
    })
  })
  let lastAt = 0
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as { port: number }).port))
}

/** The front: `POST /MERCHANT` with a body is a message, answered when it is committed. */
async function accept(url: string): Promise<void> {
  const ctx = await openContext(url)
  let n = 0
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on("data", chunk => chunks.push(chunk))
    request.on("end", async () => {
      const data = JSON.parse(Buffer.concat(chunks).toString())
      const merchantId = request.url?.slice(1) ?? ""
      const orderKey = `cs_${process.pid}_${n++}`
      await inTransaction(ctx, ctx => emit(ctx, { merchantId, type: "checkout.session.completed", orderKey, data }))
      ctx.wakes.wakeSoon("deliveries")
      response.statusCode = 202
      response.end()
    })
  })
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as { port: number }).port))
}

/** The worker; with `/later` it starts when it gets a message. */
async function work(url: string): Promise<void> {
  const ctx = await openContext(url)
  process.send?.("ready")
  await once(process, "message")
  await runDeliveries(ctx, openSender(ctx.settings.webhooks))
}

const merchant = (n: number) => `mer_${String(n).padStart(24, "a")}`

/** What autovacuum does once a minute: plans for tables of which nothing is known yet are those of a minute at most. */
const asLater = (ctx: Context) => sql`vacuum analyze`.execute(ctx.db)

/** Merchants 0 to 9 with one endpoint each, and merchant 10 with ten. */
async function settle(ctx: Context, receiver: string): Promise<void> {
  const now = new Date()
  for (let n = 0; n <= ENDPOINTS; n++) {
    const merchantId = merchant(n)
    await ctx.db
      .insertInto("merchants")
      .values({ id: merchantId, iss: "i", sub: `s${n}`, name: "", email: null, created_at: now })
      .execute()
    for (let e = 0; e < (n === ENDPOINTS ? ENDPOINTS : 1); e++) {
      const id = `c${String(n * 100 + e).padStart(24, "0")}`
      const times = { created_at: now, updated_at: now }
      const what = { url: `${receiver}/${n}/${e}`, description: null, events: '["*"]', active: true }
      await ctx.db
        .insertInto("webhooks")
        .values({ id, merchant_id: merchantId, ...what, ...times })
        .execute()
      await inTransaction(ctx, ctx => rollSecret(ctx, { merchantId, webhookId: id }))
    }
  }
}

const data = {
  sessionId: "cs_1",
  amount: "5.00",
  currency: "USDC",
  status: "confirmed",
  txHash: `0x${"5f".repeat(32)}`,
}

async function measure(): Promise<Figures> {
  const postgres = await startPostgres({ durable: true, fsync: true })
  const children: ChildProcess[] = []
  const child = async (role: string): Promise<[ChildProcess, unknown]> => {
    const started = fork(import.meta.filename, [role, postgres.url], { execArgv: [] })
    children.push(started)
    const [said] = await once(started, "message")
    return [started, said]
  }
  const ctx = await openContext(postgres.url)
  const agent = new Agent({ connections: AT_ONCE })
  try {
    const [, receiverPort] = await child("receive")
    const receiver = `http://127.0.0.1:${receiverPort}`
    await settle(ctx, receiver)
    const [front, frontPort] = await child("accept")
    const origin = `http://127.0.0.1:${frontPort}`
    const stats = async () =>
      (await (await fetch(`${receiver}/stats`)).json()) as { count: number; lastAt: number; latencies: number[] }
    const send = async (n: number, more = {}): Promise<void> => {
      const body = JSON.stringify({ ...data, ...more })
      const { body: answer } = await agent.request({ origin, path: `/${merchant(n)}`, method: "POST", body })
      await answer.dump()
    }
    const sendAll = async (count: number, to: (i: number) => number): Promise<void> => {
      let i = 0
      const one = async () => {
        while (i < count) await send(to(i++))
      }
      await Promise.all(Array.from({ length: AT_ONCE }, one))
    }
    /** The milliseconds from `startedAt` until the last of so many arrived. */
    const arrived = async (count: number, startedAt: number): Promise<number> => {
      for (let seen = 0; ; await sleep(20)) {
        const { count: more, lastAt } = await stats()
        seen += more
        if (seen >= count) return lastAt - startedAt
      }
    }
    const inTurn = (i: number) => i % ENDPOINTS
    const [first] = await child("work")
    first.send("go")
    await sendAll(1_000, inTurn)
    await arrived(1_000, 0)
    await asLater(ctx)
    const cpu = () => [front.pid ?? 0, first.pid ?? 0, postgres.pid()].map(cpuOf)
    const before = cpu()
    let startedAt = clock()
    await sendAll(MESSAGES, inTurn)
    const accepted = (MESSAGES / (clock() - startedAt)) * 1_000
    const end = (MESSAGES / (await arrived(MESSAGES, startedAt))) * 1_000
    const [ofFront = 0, ofWorker = 0, ofPostgres = 0] = cpu().map((ms, i) => (ms - (before[i] ?? 0)) / MESSAGES)
    startedAt = clock()
    await sendAll(MESSAGES / ENDPOINTS, () => ENDPOINTS)
    const fan = (MESSAGES / (await arrived(MESSAGES, startedAt))) * 1_000
    const latencies = await steadily(send, stats)
    first.kill("SIGKILL")
    const [second] = await child("work")
    await sendAll(MESSAGES, inTurn)
    await asLater(ctx)
    startedAt = clock()
    second.send("go")
    const drain = (MESSAGES / (await arrived(MESSAGES, startedAt))) * 1_000
    const at = (share: number) => latencies[Math.floor((latencies.length - 1) * share)] ?? Number.NaN
    return {
      accepted,
      "end to end": end,
      "one to ten": fan,
      drain,
      p50: at(0.5),
      p99: at(0.99),
      ofFront,
      ofWorker,
      ofPostgres,
    }
  } finally {
    for (const each of children) each.kill("SIGKILL")
    await agent.destroy()
    await ctx.close()
    await postgres.stop()
  }
}

/** Messages at a steady rate, whether the ones before were answered or not; how long each took to arrive, sorted. */
async function steadily(
  send: (n: number, more: object) => Promise<void>,
  stats: () => Promise<{ latencies: number[] }>,
): Promise<number[]> {
  const count = RATE * RATE_SECONDS
  const startedAt = clock()
  const sent: Promise<void>[] = []
  for (let i = 0; i < count; i++) {
    await sleep(Math.max(0, startedAt + (i * 1_000) / RATE - clock()))
    sent.push(send(i % ENDPOINTS, { sentAt: clock() }))
  }
  await Promise.all(sent)
  const latencies: number[] = []
  while (latencies.length < count) {
    latencies.push(...(await stats()).latencies)
    await sleep(20)
  }
  return latencies.sort((a, b) => a - b)
}

const roles: Record<string, (url: string) => void | Promise<void>> = { receive, accept, work }
const role = roles[process.argv[2] ?? ""]
if (role) await role(process.argv[3] ?? "")
else
  await rounds(
    import.meta.filename,
    {
      accepted: { unit: "messages/s" },
      "end to end": { unit: "messages/s" },
      "one to ten": { unit: "deliveries/s" },
      drain: { unit: "deliveries/s" },
      p50: { unit: "ms" },
      p99: { unit: "ms" },
      ofFront: { unit: "ms of CPU a message" },
      ofWorker: { unit: "ms of CPU a message" },
      ofPostgres: { unit: "ms of CPU a message" },
    },
    measure,
  )
