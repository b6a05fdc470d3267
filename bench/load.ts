/**
 * A whole installation under load: two API and two worker processes of the real program on Postgres and Redis, a local
 * chain, and payments at a steady rate, half of them checkouts and half paywalls. `script/bench load [--rate 20]
 * [--seconds 60] [--block-ms 2000] [--verify-interval 1s]`. It exits with 1 when a payment or an event is missing or
 * the database had a deadlock.
 *
 * The times: "granted" is from the moment when a payment had enough blocks, or from its submission if that was later,
 * until the payment is granted in the database (polled ten times a second). "Event to delivery" is from the commit of
 * an event until the receiver has its whole body. Its parts: the event waits until the attempt of an earlier event of
 * the same payment is recorded, then for a worker to claim it and to begin, and then its request is on the way. What an
 * event waits before its commit, from its `created_at`, belongs to settling.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi, type Hex } from "viem"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { deployDepositFactory, deployTestUsdc, placeSharedContracts, startAnvil } from "../server/test/anvil.ts"
import { freePort, root, until } from "../server/test/e2e/program.ts"
import { AUDIENCE, startIssuer } from "../server/test/issuer.ts"
import { fundPayers } from "../server/test/payers.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { startReceiver } from "../server/test/receiver.ts"
import { startRedis } from "../server/test/redis.ts"

const { values } = parseArgs({
  options: {
    rate: { type: "string", default: "20" },
    seconds: { type: "string", default: "60" },
    "block-ms": { type: "string", default: "2000" },
    "verify-interval": { type: "string", default: "1s" },
  },
})
const [rate, seconds, blockMs] = [values.rate, values.seconds, values["block-ms"]].map(Number) as [
  number,
  number,
  number,
]
const PAYMENTS = rate * seconds
const CONFIRMATIONS = 3
const AMOUNT = 5_000_000n
const PAYOUT_ADDRESS = `0x${"ab".repeat(20)}`
/** How long everything may take to settle after the last payment. */
const SETTLE_MS = 180_000
const POLL_MS = 100
/** The key of anvil's second account, the factory's operator. */
const PAYOUT_KEY = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"

const say = (text: string) => process.stdout.write(`${text}\n`)

/** One payment in progress; times in milliseconds of the wall clock. */
interface Sale {
  kind: "checkout" | "paywall"
  id: string
  payTo: Hex
  txHash: string
  submittedAt: number
  grantedAt?: number
}

const postgres = await startPostgres({ fsync: true, settings: ["track_commit_timestamp=on"] })
const redis = await startRedis()
const anvil = await startAnvil({ slotsInAnEpoch: 10 })
const issuer = await startIssuer()
const receiver = await startReceiver()
const arrivedAt = new Map<string, number>()
receiver.answer((response, { body }) => {
  const { id } = JSON.parse(body) as { id: string }
  if (!arrivedAt.has(id)) arrivedAt.set(id, Date.now())
  response.end("ok")
})
const { client } = anvil
await placeSharedContracts(client)
const token = await deployTestUsdc(client)
await fundPayers(anvil, token)
const factory = await deployDepositFactory(client, anvil.accounts[1].address)
const database = await openPostgres(postgres.url, error => say(`database: ${error.message}`))
// biome-ignore lint/suspicious/noExplicitAny: it reads what it asks for.
const rows = async (text: string, { db } = database) => (await sql.raw<any>(text).execute(db)).rows

const env = {
  PATH: process.env.PATH ?? "",
  MODE: "test",
  LOG_LEVEL: "warn",
  DATABASE_URL: postgres.url,
  REDIS_URL: redis.url,
  SECRET_KEY: "5f".repeat(32),
  OIDC_ISSUER: issuer.issuer,
  OIDC_AUDIENCE: AUDIENCE,
  RPC_BASE_SEPOLIA: anvil.rpcUrl,
  TOKEN_BASE_SEPOLIA: token,
  DEPOSIT_FACTORY_BASE_SEPOLIA: factory,
  PAYOUT_PRIVATE_KEY: PAYOUT_KEY,
  CONFIRMATIONS: `${CONFIRMATIONS}`,
  VERIFY_INTERVAL: values["verify-interval"],
  WEBHOOK_ALLOW_CIDRS: "127.0.0.0/8",
  ...Object.fromEntries(
    ["CONSOLE", "PAY_CONFIRM", "PAYWALL_PAY", "CHECKOUT", "MERCHANT", "PUBLIC"].map(name => [`LIMIT_${name}`, "0"]),
  ),
}
const scratch = mkdtempSync(join(tmpdir(), "sluice-load-"))
process.once("exit", () => rmSync(scratch, { recursive: true, force: true }))
const processes = new Map<string, ChildProcess>()
function start(name: string, role: string, more: Record<string, string>): void {
  const args = ["server/src/main.ts", "--role", role]
  const own = { DATA_DIR: join(scratch, name), ...more }
  const child = spawn(process.execPath, args, { cwd: root, env: { ...env, ...own }, stdio: ["ignore", 2, 2] })
  child.once("exit", code => code !== 0 && say(`${name} ended with ${code}`))
  processes.set(name, child)
  process.once("exit", () => child.kill("SIGKILL"))
}
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))
async function stopAll(): Promise<void> {
  await Promise.all(
    [...processes.values()].map(
      child =>
        child.exitCode ??
        new Promise(resolve => {
          child.once("exit", resolve)
          child.kill("SIGTERM")
        }),
    ),
  )
}

const ports = [await freePort(), await freePort(), await freePort(), await freePort()]
const urls = ports.slice(0, 2).map(port => `http://127.0.0.1:${port}`)
for (const [i, port] of ports.entries()) {
  const ready = async () => (await fetch(`http://127.0.0.1:${port}/healthz`)).ok
  if (i < 2) start(`api ${i + 1}`, "api", { PORT: `${port}` })
  else start(`worker ${i - 1}`, "worker", { HEALTH_PORT: `${port}` })
  await until(`process ${i + 1} answers`, () => ready().catch(() => false))
}
for (const url of urls) await until("the API is ready", async () => (await fetch(`${url}/readyz`)).ok)

const headers = { authorization: `Bearer ${await issuer.token("shop")}`, "content-type": "application/json" }
let calls = 0
// biome-ignore lint/suspicious/noExplicitAny: it reads what it expects.
async function call(method: string, path: string, body?: unknown): Promise<any> {
  const url = `${urls[calls++ % urls.length]}${path}`
  const response = await fetch(url, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) })
  const answer = (await response.json()) as object
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`)
  return answer
}
await call("PUT", "/api/console/settings", { payoutAddress: PAYOUT_ADDRESS })
await call("POST", "/api/console/webhooks", {
  url: receiver.url,
  events: ["*", "checkout.confirmed", "paywall.granted"],
})

/** The next nonce of each payer: anvil would give two transfers at once the same. */
const nonces = new Map<string, number>()
/** The chain's accounts that pay. The first account deployed the contracts, the second is the payout wallet. */
const payers = anvil.accounts.slice(2).map(({ address }) => address)
for (const address of payers) nonces.set(address, await client.getTransactionCount({ address }))
/** Each paywall is paid once by each payer. */
const paywalls: { id: string; payTo: Hex }[] = []
for (let i = 0; i < Math.ceil(PAYMENTS / 2 / payers.length); i++) {
  const { id } = await call("POST", "/api/console/paywalls", { name: `${i}`, price: 5 })
  paywalls.push({ id, payTo: (await call("GET", `/api/paywalls/${id}`)).payTo })
}

/** Transfers from one of the chain's accounts; the transaction waits for the next block. */
async function transfer(from: Hex, to: Hex): Promise<string> {
  const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to, AMOUNT] })
  const nonce = nonces.get(from) ?? 0
  nonces.set(from, nonce + 1)
  const params = [{ from, to: token, data, gas: "0x30d40", nonce: `0x${nonce.toString(16)}` }]
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_sendTransaction", params })
  const answer = await fetch(anvil.rpcUrl, { method: "POST", headers: { "content-type": "application/json" }, body })
  const { result, error } = (await answer.json()) as { result?: string; error?: unknown }
  if (!result) throw new Error(JSON.stringify(error))
  return result
}

const sales: Sale[] = []
async function sell(i: number): Promise<void> {
  const n = Math.floor(i / 2)
  const isPaywall = i % 2 === 1
  const from = payers[(isPaywall ? n : i) % payers.length] as Hex
  const { id, payTo } = isPaywall
    ? (paywalls[Math.floor(n / payers.length)] as (typeof paywalls)[0])
    : await call("POST", "/api/console/checkouts", { amount: 5 })
  const txHash = await transfer(from, payTo)
  if (isPaywall) await call("POST", `/api/paywalls/${id}/pay`, { txHash, address: from })
  else await call("POST", "/api/pay/confirm", { sessionId: id, txHash })
  sales.push({ kind: isPaywall ? "paywall" : "checkout", id, payTo, txHash, submittedAt: Date.now() })
}

/** When each block was mined, by its number. */
const minedAt = new Map<bigint, number>()
const over = new AbortController()
async function mineBlocks(): Promise<void> {
  for (let next = Date.now() + blockMs; !over.signal.aborted; next += blockMs) {
    await sleep(Math.max(0, next - Date.now()))
    await client.mine({ blocks: 1 })
    minedAt.set(await client.getBlockNumber(), Date.now())
  }
}
const grantedAt = new Map<string, number>()
async function watchGrants(): Promise<void> {
  while (!over.signal.aborted) {
    const text = "select tx_hash from payments where status = 'granted' and updated_at > now() - interval '20 seconds'"
    const now = Date.now()
    for (const { tx_hash } of await rows(text)) if (!grantedAt.has(tx_hash)) grantedAt.set(tx_hash, now)
    await sleep(POLL_MS)
  }
}

const TICKS_PER_SECOND = 100
/** CPU seconds that a process and its children have used, and its peak memory in MB; Linux only. */
function usage(pid: number): { cpu: number; mb: number } {
  const stat = (id: string | number) => readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
  const cpuOf = (fields: string[]) => (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND
  const children = readdirSync("/proc").filter(id => {
    try {
      return /^\d+$/.test(id) && stat(id)[1] === `${pid}`
    } catch {
      return false
    }
  })
  const peak = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]
  // Postgres' workers for vacuum end meanwhile: their time is in the fields for children that have ended.
  const ended = stat(pid)
    .slice(13, 15)
    .reduce((sum, ticks) => sum + Number(ticks) / TICKS_PER_SECOND, 0)
  return {
    cpu: cpuOf(stat(pid)) + ended + children.reduce((sum, id) => sum + cpuOf(stat(id)), 0),
    mb: Number(peak) / 1_024,
  }
}
const pids = () => [
  ...[...processes].map(([name, { pid }]) => [name, pid ?? 0] as const),
  ["postgres", postgres.pid()] as const,
]

await client.setAutomine(false)
const background = Promise.all([mineBlocks(), watchGrants()])
const cpuBefore = new Map(pids().map(([name, pid]) => [name, usage(pid).cpu]))
const [{ wal: walBefore }] = await rows("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 as wal")
const startedAt = Date.now()
const selling: Promise<void>[] = []
for (let i = 0; i < PAYMENTS; i++) {
  await sleep(Math.max(0, startedAt + (i * 1_000) / rate - Date.now()))
  selling.push(sell(i))
}
await Promise.all(selling)
const soldMs = Date.now() - startedAt
await until("all are granted", () => sales.every(({ txHash }) => grantedAt.has(txHash)), SETTLE_MS).catch(say)
const grantedMs = Date.now() - startedAt
const open = async () =>
  (await rows("select count(*)::int as n from deliveries where status = 'pending'"))[0].n as number
await until("all events are delivered", async () => (await open()) === 0, SETTLE_MS).catch(say)
const used = pids().map(([name, pid]) => ({ name, ...usage(pid) }))
over.abort()
await background

const blockOf = new Map<string, bigint>()
for (const { tx_hash, block_number } of await rows("select tx_hash, block_number from transfers"))
  blockOf.set(tx_hash, BigInt(block_number))
const waits = sales.flatMap(({ txHash, submittedAt }) => {
  const deep = minedAt.get((blockOf.get(txHash) ?? 0n) + BigInt(CONFIRMATIONS - 1))
  const granted = grantedAt.get(txHash)
  return deep !== undefined && granted !== undefined ? [Math.max(0, granted - Math.max(deep, submittedAt))] : []
})
const events: { id: string; type: string }[] = await rows("select id, type from events")
const first: { event_id: string; created_at: Date; committed: Date; ready: Date; started_at: Date }[] = await rows(`
  select d.event_id, e.created_at, pg_xact_commit_timestamp(e.xmin) as committed, a.started_at,
    greatest(pg_xact_commit_timestamp(e.xmin), lag(pg_xact_commit_timestamp(a.xmin)) over (partition by d.lane, d.order_key order by d.seq)) as ready
  from deliveries d join events e on e.id = d.event_id
    cross join lateral (select xmin, started_at from delivery_attempts where delivery_id = d.id order by id limit 1) a`)
const delivered = first.flatMap(row => {
  const arrived = arrivedAt.get(row.event_id)
  return arrived === undefined ? [] : [{ ...row, arrived: new Date(arrived) }]
})
type Moment = "created_at" | "committed" | "ready" | "started_at" | "arrived"
const between = (from: Moment, to: Moment) => delivered.map(row => Math.max(0, row[to].getTime() - row[from].getTime()))
const at = (of: number[], share: number) =>
  [...of].sort((a, b) => a - b)[Math.floor((of.length - 1) * share)] ?? Number.NaN
const shares = (of: number[]) => [0.5, 0.95, 0.99].map(share => `${Math.round(at(of, share))} ms`).join(" / ")

const faults: string[] = []
const expect = (name: string, is: unknown, should: unknown) => {
  if (String(is) !== String(should)) faults.push(`${name}: ${is}, not ${should}`)
}
const [paid] = await rows(
  `select count(*)::int as n, coalesce(sum(p.amount), 0)::text as sum, count(distinct c.transfer_id)::int as claims
   from payments p join claims c on c.payment_id = p.id where p.status = 'granted'`,
)
expect("payments", paid.n, PAYMENTS)
expect("base units paid", paid.sum, BigInt(PAYMENTS) * AMOUNT)
expect("transfers that count", paid.claims, PAYMENTS)
for (const type of ["paywall.granted", "checkout.confirmed", "checkout.session.completed"]) {
  const of = events.filter(event => event.type === type)
  expect(`${type} events`, of.length >= PAYMENTS / 2, true)
  expect(`${type} events that arrived`, of.filter(({ id }) => arrivedAt.has(id)).length, of.length)
}
const [{ wal }] = await rows("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 as wal")
await rows("vacuum analyze")
const tables: { name: string; n: number; bytes: number; indexes: number }[] = await rows(`
  select relname as name, greatest(reltuples, 0)::int as n, pg_total_relation_size(oid)::int as bytes, pg_indexes_size(oid)::int as indexes
  from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace order by 3 desc`)
await stopAll()
await database.close()
// Postgres writes a connection's counts when the connection ends, so a new connection reads them.
const last = await openPostgres(postgres.url, () => {})
const text = "select deadlocks::int as n from pg_stat_database where datname = current_database()"
const [counts] = await rows(text, last)
await last.close()
expect("deadlocks", counts.n, 0)

say(
  `${PAYMENTS} payments offered at ${rate}/s, blocks every ${blockMs} ms, VERIFY_INTERVAL ${values["verify-interval"]}`,
)
say(
  `  paid and submitted     ${(PAYMENTS / (soldMs / 1_000)).toFixed(1)}/s; the last granted ${((grantedMs - soldMs) / 1_000).toFixed(1)} s after the last submission`,
)
say(`  granted after enough confirmations, p50 / p95 / p99   ${shares(waits)}   (${waits.length})`)
say(
  `  event to delivery, p50 / p95 / p99                    ${shares(between("committed", "arrived"))}   (${delivered.length})`,
)
say(`    it waits for an earlier event of the payment        ${shares(between("committed", "ready"))}`)
say(`    it is claimed, and begins                           ${shares(between("ready", "started_at"))}`)
say(`    it is sent                                          ${shares(between("started_at", "arrived"))}`)
say(`  before that, from the event's time to its commit      ${shares(between("created_at", "committed"))}`)
say(`  deadlocks              ${counts.n}`)
for (const { name, cpu, mb } of used) {
  const seconds = cpu - (cpuBefore.get(name) ?? 0)
  const share = (seconds / (grantedMs / 1_000)) * 100
  const each = (seconds * 1_000) / PAYMENTS
  say(
    `  ${name.padEnd(22)} ${each.toFixed(1)} ms of CPU a payment, ${share.toFixed(0)} % of a core, at most ${mb.toFixed(0)} MB`,
  )
}
/** Formats bytes for each payment. The database was empty before, so its smallest indexes are a page or two. */
const aPayment = (bytes: number) => `${Math.round(bytes / PAYMENTS)}`.padStart(6)
say(`  log written            ${aPayment(wal - walBefore)} bytes a payment`)
for (const { name, n, bytes, indexes } of tables.filter(table => table.n >= PAYMENTS / 10))
  say(
    `  ${name.padEnd(22)} ${aPayment(bytes)} bytes a payment, of which indexes ${aPayment(indexes)}; ${(n / PAYMENTS).toFixed(1)} rows`,
  )
say(`  all tables             ${aPayment(tables.reduce((sum, { bytes }) => sum + bytes, 0))} bytes a payment`)
for (const fault of faults) say(`FAULT  ${fault}`)
for (const part of [receiver, issuer, redis, anvil, postgres]) await part.stop()
process.exit(faults.length === 0 ? 0 : 1)
