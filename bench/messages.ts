/**
 * Webhooks from end to end, as their users see them: a message is accepted by HTTP, committed, delivered, and arrives.
 * The driver, the front that accepts, the worker, the receiver and a Postgres that survives a power cut are processes
 * of their own. `script/bench messages [--against COMMIT]`
 */
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { readdirSync, readFileSync } from "node:fs"
import { createServer } from "node:http"
import { connect, createServer as listener, type Socket } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import { runDeliveries } from "../server/src/account/webhooks/deliver-events.ts"
import { emit } from "../server/src/account/webhooks/emit.ts"
import { rollSecret } from "../server/src/account/webhooks/manage-secrets.ts"
import { openSender } from "../server/src/account/webhooks/send.ts"
import { readSettings } from "../server/src/platform/config/read-settings.ts"
import { atOnce, type Context, inTransaction } from "../server/src/platform/context.ts"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { openWakes } from "../server/src/platform/jobs/wake.ts"
import { processLimits } from "../server/src/platform/limits/limiter.ts"
import { openLog } from "../server/src/platform/log.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { type Figures, rounds } from "./rounds.ts"

const MESSAGES = 5_000
const ENDPOINTS = 10
/** Messages that the driver sends concurrently. */
const AT_ONCE = 32
const RATE = 200
const RATE_SECONDS = 10

const TICKS_PER_SECOND = 100

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
  return (ticks.reduce((sum, id) => sum + of(id), 0) / TICKS_PER_SECOND) * 1_000
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
    onCommit: atOnce,
    wakes: await openWakes(database),
    signal: new AbortController().signal,
    close: database.close,
  }
}

/** Finds the end of a message: a head, and a body as long as the head says. */
const LENGTH = /\r\ncontent-length: *(\d+)/i

/**
 * Calls back with each HTTP message of a socket. A real server or client, which must support all of HTTP, would cost
 * more.
 */
function onMessages(socket: Socket, got: (head: string, body: string) => void): void {
  let text = ""
  socket.setNoDelay().setEncoding("latin1")
  socket.on("data", (chunk: string) => {
    text += chunk
    for (;;) {
      const headEnd = text.indexOf("\r\n\r\n")
      if (headEnd === -1) return
      const head = text.slice(0, headEnd)
      const end = headEnd + 4 + Number(LENGTH.exec(head)?.[1] ?? 0)
      if (text.length < end) return
      const body = text.slice(headEnd + 4, end)
      text = text.slice(end)
      got(head, body)
    }
  })
  socket.on("error", () => {})
}

interface Arrivals {
  count: number
  /** When the last message arrived. */
  lastAt: number
  /** In milliseconds, of the messages that contain the time when they were sent. */
  latencies: number[]
}

/**
 * The receiver: counts messages, keeps the latency of those that contain a time, and reports both when its parent asks.
 */
function receive(): void {
  let arrivals: Arrivals = { count: 0, lastAt: 0, latencies: [] }
  const server = listener(socket =>
    onMessages(socket, (_, body) => {
      arrivals.count++
      arrivals.lastAt = clock()
      const sentAt = Number.parseFloat(/"sentAt":([\d.]+)/.exec(body)?.[1] ?? "")
      if (sentAt) arrivals.latencies.push(arrivals.lastAt - sentAt)
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    }),
  )
  process.on("message", () => {
    process.send?.(arrivals)
    arrivals = { ...arrivals, count: 0, latencies: [] }
  })
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as { port: number }).port))
}

/** Sends messages to the front, each over a connection that no other message uses meanwhile. */
function openDriver(port: number): { send(n: number, more?: object): Promise<void>; close(): void } {
  const free: Socket[] = []
  const all: Socket[] = []
  const answered = new Map<Socket, (head: string) => void>()
  const open = (): Socket => {
    const socket = connect(port, "127.0.0.1")
    all.push(socket)
    socket.on("close", () => answered.get(socket)?.("closed"))
    onMessages(socket, head => {
      free.push(socket)
      answered.get(socket)?.(head)
    })
    return socket
  }
  return {
    send: async (n, more = {}) => {
      const body = JSON.stringify({ ...data, ...more })
      const socket = free.pop() ?? open()
      const { promise, resolve } = Promise.withResolvers<string>()
      answered.set(socket, resolve)
      socket.write(`POST /${merchant(n)} HTTP/1.1\r\nhost: front\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
      const head = await promise
      if (!head.startsWith("HTTP/1.1 202")) throw new Error(`the front answered ${head}`)
    },
    close: () => {
      for (const each of all) each.destroy()
    },
  }
}

/**
 * The front: `POST /MERCHANT` with a body is a message. It is answered when it is committed, in a transaction of its
 * own like a payment's.
 */
async function accept(url: string): Promise<void> {
  const ctx = await openContext(url)
  let n = 0
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on("data", chunk => chunks.push(chunk))
    request.on("end", async () => {
      const data = JSON.parse(Buffer.concat(chunks).toString())
      const merchantId = request.url?.slice(1) ?? ""
      const event = {
        merchantId,
        type: "checkout.session.completed",
        orderKey: `cs_${process.pid}_${n++}`,
        data,
      } as const
      await inTransaction(ctx, ctx => emit(ctx, event))
      response.statusCode = 202
      response.end()
    })
  })
  // The driver keeps its connections as long as it likes.
  server.keepAliveTimeout = 0
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as { port: number }).port))
}

/** The worker. */
async function work(url: string): Promise<void> {
  const ctx = await openContext(url)
  process.send?.("ready")
  await runDeliveries(ctx, openSender(ctx.settings.webhooks))
}

const merchant = (n: number) => `mer_${String(n).padStart(24, "a")}`

/** Autovacuum does this once a minute, so plans made without statistics last at most a minute. */
const asLater = (ctx: Context) => sql`vacuum analyze`.execute(ctx.db)

/** Resolves when the worker has nothing left to do. */
async function recorded(ctx: Context): Promise<void> {
  const pending = () => ctx.db.selectFrom("deliveries").select("id").where("status", "=", "pending").executeTakeFirst()
  while (await pending()) await sleep(20)
}

/** Merchants 0 to 9 with one endpoint each, and merchant 10 with ten. */
async function settle(ctx: Context, receiver: string): Promise<void> {
  const now = new Date()
  for (let n = 0; n <= ENDPOINTS; n++) {
    const merchantId = merchant(n)
    await ctx.db.insertInto("merchants").values({ id: merchantId, name: "", email: null, created_at: now }).execute()
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
  const postgres = await startPostgres({ fsync: true })
  const children: ChildProcess[] = []
  const child = async (role: string): Promise<[ChildProcess, unknown]> => {
    const started = fork(import.meta.filename, [role, postgres.url], { execArgv: [] })
    children.push(started)
    const [said] = await once(started, "message")
    return [started, said]
  }
  const ctx = await openContext(postgres.url)
  let driver: ReturnType<typeof openDriver> | undefined
  try {
    const [receiving, receiverPort] = await child("receive")
    const receiver = `http://127.0.0.1:${receiverPort}`
    await settle(ctx, receiver)
    const [front, frontPort] = await child("accept")
    driver = openDriver(frontPort as number)
    const { send } = driver
    const stats = async () => {
      receiving.send("stats")
      const [arrivals] = await once(receiving, "message")
      return arrivals as Arrivals
    }
    const sendAll = async (count: number, to: (i: number) => number): Promise<void> => {
      let i = 0
      const one = async () => {
        while (i < count) await send(to(i++))
      }
      await Promise.all(Array.from({ length: AT_ONCE }, one))
    }
    /** The milliseconds from `startedAt` until `count` messages have arrived. */
    const arrived = async (count: number, startedAt: number): Promise<number> => {
      for (let seen = 0; ; await sleep(20)) {
        const { count: more, lastAt } = await stats()
        seen += more
        if (seen >= count) return lastAt - startedAt
      }
    }
    const inTurn = (i: number) => i % ENDPOINTS
    const [worker] = await child("work")
    await sendAll(1_000, inTurn)
    await arrived(1_000, 0)
    await asLater(ctx)
    const cpu = () => [front.pid, worker.pid, postgres.pid(), receiving.pid].map(pid => cpuOf(pid ?? 0))
    const before = cpu()
    const ownBefore = process.cpuUsage()
    let startedAt = clock()
    await sendAll(MESSAGES, inTurn)
    const accepted = (MESSAGES / (clock() - startedAt)) * 1_000
    const end = (MESSAGES / (await arrived(MESSAGES, startedAt))) * 1_000
    const each = cpu().map((ms, i) => (ms - (before[i] ?? 0)) / MESSAGES)
    const [ofFront = 0, ofWorker = 0, ofPostgres = 0, ofReceiver = 0] = each
    const own = process.cpuUsage(ownBefore)
    const ofDriver = (own.user + own.system) / 1_000 / MESSAGES
    startedAt = clock()
    await sendAll(MESSAGES / ENDPOINTS, () => ENDPOINTS)
    const fan = (MESSAGES / (await arrived(MESSAGES, startedAt))) * 1_000
    const latencies = await steadily(send, stats)
    // A worker that falls behind has normally been running for long, so this one is paused instead of started: most of
    // the first second of a new one is compilation.
    await recorded(ctx)
    worker.kill("SIGSTOP")
    await sendAll(MESSAGES, inTurn)
    await asLater(ctx)
    startedAt = clock()
    worker.kill("SIGCONT")
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
      ofReceiver,
      ofDriver,
    }
  } finally {
    for (const each of children) each.kill("SIGKILL")
    driver?.close()
    await ctx.close()
    await postgres.stop()
  }
}

/**
 * Sends messages at a steady rate, whether earlier ones were answered or not. Returns how long each took to arrive,
 * sorted.
 */
async function steadily(
  send: (n: number, more: object) => Promise<void>,
  stats: () => Promise<Arrivals>,
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
if (role) {
  // If the parent is killed, nobody else would end this process.
  process.once("disconnect", () => process.exit())
  await role(process.argv[3] ?? "")
} else
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
      ofReceiver: { unit: "ms of CPU a message" },
      ofDriver: { unit: "ms of CPU a message" },
    },
    measure,
  )
