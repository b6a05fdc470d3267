/**
 * The routes that payers and merchants wait for, beside what a bare `node:http` does with one statement: requests
 * answered a second, the statements of each, and the CPU that the API and Postgres spent on it. One process of the real
 * program (`--role api`, limits on), a peer with a pool of the same size and a named statement, a Postgres that survives
 * a power cut, and a driver, which writes to plain sockets. 1,000 checkouts of 20 merchants with a key each; a tenth of the
 * ids that payers ask for exist nowhere. "beside merchants": a quarter of the connections ask, some 80 times a second in
 * all, what the log of requests writes down. `script/bench http [--against COMMIT]`; `ONLY=TEXT` takes the paths whose name contains it.
 */
import { type ChildProcess, fork, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { type AddressInfo, connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { text as textOf } from "node:stream/consumers"
import pg from "pg"
import { deployDepositFactory, deployTestUsdc, placeSharedContracts, startAnvil } from "../server/test/anvil.ts"
import { freePort, root, until } from "../server/test/e2e/program.ts"
import { AUDIENCE, startIssuer } from "../server/test/issuer.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { type Figure, type Figures, rounds } from "./rounds.ts"

const CONNECTIONS = 32
const CHECKOUTS = 1_000
const MERCHANTS = 20
/** As many connections as the program's pool has. */
const POOL = 10
const FIRST_MS = 2_000
/** The pause of a connection that asks beside what is measured. */
const BESIDE_MS = 100
const MEASURE_MS = 5_000
const PAYOUT_ADDRESS = `0x${"ab".repeat(20)}`
/** So high that no request is refused; counting costs the same. */
const A_MINUTE = "1000000"
const LIMITS = [
  "CONSOLE",
  "CHECKOUT",
  "LINK_START",
  "MERCHANT",
  "PAGES",
  "PAYWALL_PAY",
  "PAYWALL_VERIFY",
  "PAY_CONFIRM",
  "PAY_STATUS",
  "PUBLIC",
]

const SELECT = "node:http, one SELECT"
const INSERT = "node:http, one committed INSERT"
const BARE = "node:http"

/** The peer: what the same machine does without this program. */
function servePeer(url: string): void {
  const pool = new pg.Pool({ connectionString: url, max: POOL })
  pool.on("error", () => {})
  const send = (response: ServerResponse, status: number, body: object) => {
    response.writeHead(status, { "content-type": "application/json; charset=utf-8" })
    response.end(JSON.stringify(body))
  }
  const routes: Record<string, (request: IncomingMessage, response: ServerResponse) => Promise<void>> = {
    select: async ({ url: path = "" }, response) => {
      const id = path.slice(path.lastIndexOf("/") + 1)
      const text = "select id, status, amount, currency, description, expires_at from checkout_sessions where id = $1"
      const { rows } = await pool.query({ name: "one", text, values: [id] })
      send(response, rows.length === 0 ? 404 : 200, rows[0] ?? { error: "NOT_FOUND" })
    },
    insert: async (request, response) => {
      const { amount } = JSON.parse(await textOf(request)) as { amount: string }
      const text = "insert into peer_checkouts (id, amount, body) values ($1, $2, $3) returning id, amount, created_at"
      const values = [randomBytes(12).toString("hex"), amount, JSON.stringify({ amount })]
      const { rows } = await pool.query({ name: "insert", text, values })
      send(response, 201, rows[0])
    },
    bare: async (_, response) => send(response, 200, { status: "ok" }),
  }
  const server = createServer((request, response) => void routes[request.url?.split("/")[1] ?? ""]?.(request, response))
  server.keepAliveTimeout = 0
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as AddressInfo).port))
}

type Request = () => { method?: string; path: string; body?: object; headers?: Record<string, string> }

/** A path to measure: which process answers it, what is sent, and what it is compared with. */
interface Path {
  port: number
  request: Request
  /** What a quarter of the connections send meanwhile, some 80 times a second in all, which counts nowhere. */
  beside?: Request
  limit?: string
}

/** Requests answered a second, and how long 99 of 100 took at most, with `CONNECTIONS` connections that each wait for their answer. */
async function rate(
  { port, request, beside }: Path,
  during: () => Promise<() => Promise<void>>,
): Promise<{ perSecond: number; p99Ms: number }> {
  let count = 0
  let times: number[] = []
  let failed: Error | undefined
  const bytesOf = (from: Request) => {
    const { method = "GET", path, body, headers = {} } = from()
    const text = body === undefined ? "" : JSON.stringify(body)
    const lines = Object.entries({
      host: "localhost",
      ...(text === "" ? {} : { "content-type": "application/json", "content-length": `${text.length}` }),
      ...headers,
    }).map(([name, value]) => `${name}: ${value}\r\n`)
    return `${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n${text}`
  }
  const sockets = Array.from({ length: CONNECTIONS }, (_, i) => {
    const socket = connect({ port, host: "127.0.0.1", localAddress: `127.0.1.${i + 1}`, noDelay: true })
    const isBeside = beside !== undefined && i % 4 === 3
    const from = isBeside ? beside : request
    let held = ""
    let sentAt = 0
    const send = () => {
      sentAt = performance.now()
      socket.write(bytesOf(from))
    }
    socket.setEncoding("latin1").on("data", (chunk: string) => {
      held += chunk
      const end = held.indexOf("\r\n\r\n")
      const length = Number(/\r\ncontent-length: (\d+)/i.exec(held)?.[1] ?? Number.NaN)
      // The peer's answers are in chunks only if they have no length.
      const isWhole = end >= 0 && (Number.isNaN(length) ? held.endsWith("0\r\n\r\n") : held.length >= end + 4 + length)
      if (!isWhole) return
      if (!/^HTTP\/1\.1 (2|404)/.test(held)) failed = new Error(held)
      held = ""
      if (!isBeside) {
        count++
        times.push(performance.now() - sentAt)
      }
      if (isBeside) setTimeout(send, BESIDE_MS)
      else send()
    })
    socket.on("error", () => {})
    send()
    return socket
  })
  const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
  await pause(FIRST_MS)
  const end = await during()
  const startedAt = performance.now()
  const before = count
  times = []
  await pause(MEASURE_MS)
  const perSecond = ((count - before) / (performance.now() - startedAt)) * 1_000
  const p99Ms = times.toSorted((a, b) => a - b)[Math.floor((times.length - 1) * 0.99)] ?? Number.NaN
  await end()
  for (const socket of sockets) socket.destroy()
  if (failed) throw failed
  return { perSecond, p99Ms }
}

const TICKS_PER_SECOND = 100
/** Milliseconds of CPU that a process and its children have used; Linux only. */
function cpuOf(pid: number): number {
  const fields = (id: string) => {
    try {
      return readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
    } catch {
      return []
    }
  }
  const all = readdirSync("/proc").filter(id => /^\d+$/.test(id) && (id === `${pid}` || fields(id)[1] === `${pid}`))
  // Of the process itself also what its children used that have ended.
  const ticks = all
    .flatMap(id => fields(id).slice(11, id === `${pid}` ? 15 : 13))
    .reduce((sum, each) => sum + Number(each), 0)
  return (ticks / TICKS_PER_SECOND) * 1_000
}

const names = [
  "GET /api/pay/status/:id",
  "GET /api/pay/status/:id beside merchants",
  "POST /api/pay/sessions beside merchants",
  "POST /api/checkouts",
  "POST /api/checkouts, Idempotency-Key",
  "GET /api/checkouts/:id",
  "POST /api/pay/sessions",
  "POST /api/pay/confirm",
  "POST /api/paywalls/:id/pay",
  "page /pay/:id",
  "verify, no access",
  "/healthz",
  SELECT,
  INSERT,
  BARE,
] as const
type Name = (typeof names)[number]

const limits: Partial<Record<Name, string>> = {
  "GET /api/pay/status/:id": SELECT,
  "POST /api/checkouts": INSERT,
  "POST /api/checkouts, Idempotency-Key": INSERT,
  "GET /api/checkouts/:id": SELECT,
  "POST /api/pay/sessions": INSERT,
  "POST /api/pay/confirm": INSERT,
  "POST /api/paywalls/:id/pay": INSERT,
  "page /pay/:id": SELECT,
  "verify, no access": "/healthz",
  "/healthz": BARE,
}
const wanted = names.filter(name => name.includes(process.env.ONLY ?? "") || [SELECT, INSERT, BARE].includes(name))

/** Starts the program as a process of its own, and returns what its callers need. */
async function openProgram(postgresUrl: string) {
  const anvil = await startAnvil()
  const issuer = await startIssuer()
  await placeSharedContracts(anvil.client)
  const token = await deployTestUsdc(anvil.client)
  const factory = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
  const scratch = mkdtempSync(join(tmpdir(), "sluice-http-"))
  process.once("exit", () => rmSync(scratch, { recursive: true, force: true }))
  const port = await freePort()
  const env = {
    PATH: process.env.PATH ?? "",
    MODE: "test",
    LOG_LEVEL: "warn",
    DATABASE_URL: postgresUrl,
    DATA_DIR: scratch,
    PORT: `${port}`,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    RPC_BASE_SEPOLIA: anvil.rpcUrl,
    TOKEN_BASE_SEPOLIA: token,
    DEPOSIT_FACTORY_BASE_SEPOLIA: factory,
    CONFIRMATIONS: "3",
    ...Object.fromEntries(LIMITS.map(name => [`LIMIT_${name}`, A_MINUTE])),
    ...(process.env.API_OPTIONS ? { NODE_OPTIONS: process.env.API_OPTIONS } : {}),
  }
  const args = ["server/src/main.ts", "--role", "api"]
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ["ignore", 2, 2] })
  process.once("exit", () => child.kill("SIGKILL"))
  child.once("exit", code => code && process.exit(code))
  await until("the API is ready", () =>
    fetch(`http://127.0.0.1:${port}/api/pay/status/cs_0`).then(
      ({ status }) => status < 500,
      () => false,
    ),
  )
  const stop = async () => {
    const ended = once(child, "exit")
    child.kill("SIGTERM")
    await ended
    await anvil.stop()
    await issuer.stop()
  }
  return { port, pid: child.pid ?? 0, issuer, stop }
}
type Program = Awaited<ReturnType<typeof openProgram>>

/** Makes the merchants with their keys, a link and a paywall each, and the checkouts. */
async function fill({ port, issuer }: Program) {
  // biome-ignore lint/suspicious/noExplicitAny: it reads what it expects.
  const call = async (method: string, path: string, body: object, headers: object): Promise<any> => {
    const all = { "content-type": "application/json", ...headers }
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      headers: all,
      body: JSON.stringify(body),
    })
    if (!response.ok) throw new Error(`${method} ${path}: ${await response.text()}`)
    return await response.json()
  }
  const shops: { key: string; slug: string; paywallId: string; ids: string[] }[] = []
  for (let n = 0; n < MERCHANTS; n++) {
    const by = { authorization: `Bearer ${await issuer.token(`shop-${n}`)}` }
    await call("PUT", "/api/console/settings", { payoutAddress: PAYOUT_ADDRESS }, by)
    const { key } = await call("POST", "/api/console/api-keys", { name: "server" }, by)
    const slug = `book-${n}`
    await call("POST", "/api/console/payment-links", { title: "Book", amount: "5", slug }, by)
    const { id: paywallId } = await call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, by)
    const ids: string[] = []
    while (ids.length < CHECKOUTS / MERCHANTS)
      ids.push((await call("POST", "/api/checkouts", { amount: "5" }, { "x-api-key": key })).id)
    shops.push({ key, slug, paywallId, ids })
  }
  return shops
}

/** What each path sends. */
function pathsOf(
  api: number,
  peer: number,
  shops: Awaited<ReturnType<typeof fill>>,
): Record<Name, Omit<Path, "limit">> {
  let n = 0
  const shop = () => shops[n++ % shops.length] as (typeof shops)[0]
  const own = () => {
    const { key, ids } = shop()
    return { key, id: ids[Math.floor(n / shops.length) % ids.length] as string }
  }
  /** A tenth exist nowhere. */
  const asked = () => (n % 10 === 9 ? `cs_${randomBytes(12).toString("hex")}${n++ % 1}` : own().id)
  const hash = () => `0x${randomBytes(32).toString("hex")}`
  const address = () => `0x${randomBytes(20).toString("hex")}`
  const get = (port: number, path: () => string) => ({ port, request: () => ({ path: path() }) })
  const post = (port: number, make: () => { path: string; body: object; headers?: Record<string, string> }) => ({
    port,
    request: () => ({ method: "POST", ...make() }),
  })
  const checkout = { path: "/api/checkouts", body: { amount: "5" } }
  /** What the log of requests writes down. */
  const ofMerchant = () => {
    const { key, id } = own()
    return { path: `/api/checkouts/${id}`, headers: { "x-api-key": key } }
  }
  return {
    "GET /api/pay/status/:id": get(api, () => `/api/pay/status/${asked()}`),
    "GET /api/pay/status/:id beside merchants": {
      ...get(api, () => `/api/pay/status/${asked()}`),
      beside: ofMerchant,
    },
    "POST /api/pay/sessions beside merchants": {
      ...post(api, () => ({ path: "/api/pay/sessions", body: { slug: shop().slug } })),
      beside: ofMerchant,
    },
    "POST /api/checkouts": post(api, () => ({ ...checkout, headers: { "x-api-key": shop().key } })),
    "POST /api/checkouts, Idempotency-Key": post(api, () => ({
      ...checkout,
      headers: { "x-api-key": shop().key, "idempotency-key": randomBytes(12).toString("hex") },
    })),
    "GET /api/checkouts/:id": { port: api, request: ofMerchant },
    "POST /api/pay/sessions": post(api, () => ({ path: "/api/pay/sessions", body: { slug: shop().slug } })),
    // One hash for each checkout: it takes ten that are being verified.
    "POST /api/pay/confirm": post(api, () => {
      const sessionId = own().id
      const txHash = `0x${Buffer.from(sessionId).toString("hex").padStart(64, "0").slice(-64)}`
      return { path: "/api/pay/confirm", body: { sessionId, txHash } }
    }),
    "POST /api/paywalls/:id/pay": post(api, () => ({
      path: `/api/paywalls/${shop().paywallId}/pay`,
      body: { txHash: hash(), address: address() },
    })),
    "page /pay/:id": get(api, () => `/pay/${asked()}`),
    "verify, no access": get(api, () => `/api/paywalls/${shop().paywallId}/verify?address=${payers[n % CONNECTIONS]}`),
    "/healthz": get(api, () => "/healthz"),
    [SELECT]: get(peer, () => `/select/${asked()}`),
    [INSERT]: post(peer, () => ({ path: "/insert", body: { amount: "5" } })),
    [BARE]: get(peer, () => "/bare"),
  }
}
const payers = Array.from({ length: CONNECTIONS }, () => `0x${randomBytes(20).toString("hex")}`)

async function measure(): Promise<Figures> {
  const postgres = await startPostgres({
    fsync: true,
    settings: ["shared_preload_libraries=pg_stat_statements"],
  })
  const admin = new pg.Pool({ connectionString: postgres.url, max: 1 })
  await admin.query(
    "create table peer_checkouts (id text primary key, amount numeric not null, body jsonb not null, created_at timestamptz not null default now())",
  )
  // The counts are of the whole server, so they are asked in a database that is not measured.
  await admin.query("create database counts")
  const counts = new pg.Pool({
    connectionString: Object.assign(new URL(postgres.url), { pathname: "/counts" }).href,
    max: 1,
  })
  for (const each of [admin, counts]) each.on("error", () => {})
  await counts.query("create extension pg_stat_statements")
  /** What begins or ends a transaction is not counted, nor what the program sends whether it is asked or not. */
  const executed = async () =>
    Number(
      (
        await counts.query(`select coalesce(sum(calls), 0) as n from pg_stat_statements
          where query !~* '^(begin|commit|rollback)' and query not like 'select pg_notify($1, $2)%'`)
      ).rows[0].n,
    )
  const program = await openProgram(postgres.url)
  const peer: ChildProcess = fork(import.meta.filename, ["peer", postgres.url], { execArgv: [] })
  process.once("exit", () => peer.kill("SIGKILL"))
  try {
    const [peerPort] = (await once(peer, "message")) as [number]
    const paths = pathsOf(program.port, peerPort, await fill(program))
    await admin.query("vacuum analyze")
    const figures: Figures = {}
    for (const name of wanted) {
      const pid = paths[name].port === program.port ? program.pid : (peer.pid ?? 0)
      const spent = async () => [await executed(), cpuOf(pid), cpuOf(postgres.pid())] as const
      let used: readonly number[] = []
      const { perSecond, p99Ms } = await rate(paths[name], async () => {
        const before = await spent()
        return async () => {
          used = (await spent()).map((now, i) => now - (before[i] ?? 0))
        }
      })
      const requests = (perSecond * MEASURE_MS) / 1_000
      figures[name] = perSecond
      figures[`${name}: p99`] = p99Ms
      for (const [i, part] of PARTS.entries()) figures[`${name}: ${part}`] = (used[i] ?? 0) / requests
    }
    return figures
  } finally {
    peer.kill("SIGKILL")
    await program.stop()
    await Promise.all([admin.end(), counts.end()])
    await postgres.stop()
  }
}

const PARTS = ["statements", "CPU of its process", "CPU of Postgres"] as const
const units = { statements: "a request", "CPU of its process": "ms a request", "CPU of Postgres": "ms a request" }

if (process.argv[2] === "peer") {
  process.once("disconnect", () => process.exit())
  servePeer(process.argv[3] ?? "")
} else {
  const figures = wanted.flatMap((name): [string, Figure][] => {
    const limit = limits[name]
    return [
      [name, { unit: "requests/s", ...(limit === undefined || !wanted.includes(limit as Name) ? {} : { limit }) }],
      [`${name}: p99`, { unit: "ms" }],
      ...PARTS.map((part): [string, Figure] => [`${name}: ${part}`, { unit: units[part] }]),
    ]
  })
  await rounds(import.meta.filename, Object.fromEntries(figures), measure)
}
