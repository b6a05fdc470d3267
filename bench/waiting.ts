/**
 * What requests that wait cost: live pages and long-polls of an unpaid checkout, or of as many checkouts, on one API
 * process, while a payment of others arrives each second. `script/bench waiting [--n 1000] [--seconds 30]`. It exits
 * with 1 where a goal is missed, or where somebody who waited was not notified of the payment.
 *
 * Transactions are Postgres' own count, less what it counts with nobody waiting. The status is what another payer asks
 * for twenty times a second, without `wait`. Those who wait have 20 addresses' worth of loopback each, in a process of
 * their own; a long-poll that ends is sent again at once.
 */
import { type ChildProcess, fork, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import http from "node:http"
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

/** The goals: transactions a second of all who wait while nothing happens, and the 99th percentile of a status. */
const MAX_TRANSACTIONS = 50
const MAX_P99_MS = 50
const BY_ADDRESS = 20
const WAIT_S = 25
/** Over how long those who wait begin to, in milliseconds: longer than a long-poll, so that those don't end together. */
const RAMP_MS = 26_000
const ASKED_MS = 50
const AMOUNT = 5_000_000n
/** The key of anvil's second account, the factory's operator. */
const PAYOUT_KEY = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"

const say = (text: string) => process.stdout.write(`${text}\n`)

/** What those who wait report: how many wait, how many were refused, and how many were notified that it is paid. */
interface Counts {
  streams: number
  polls: number
  refused: number
  paidStreams: number
  paidPolls: number
}

if (process.send) wait()
else await main()

/** The process of those who wait. */
function wait(): void {
  const counts: Counts = { streams: 0, polls: 0, refused: 0, paidStreams: 0, paidPolls: 0 }
  let over = new AbortController()
  const addressOf = (i: number, net: number) =>
    `127.${net}.${Math.floor(i / BY_ADDRESS / 200)}.${1 + (Math.floor(i / BY_ADDRESS) % 200)}`
  const stream = (url: string, localAddress: string) =>
    http
      .get(url, { localAddress, agent: false, signal: over.signal }, response => {
        if (response.statusCode !== 200) return void counts.refused++
        counts.streams++
        response.setEncoding("utf8").on("data", text => {
          if (/"status":"confirmed"/.test(text)) counts.paidStreams++
        })
        response.on("close", () => counts.streams--)
      })
      .on("error", () => {})
  const poll = (url: string, agent: http.Agent) => {
    const { signal } = over
    counts.polls++
    const end = () => counts.polls--
    http
      .get(url, { agent, signal }, async response => {
        if (response.statusCode !== 200) counts.refused++
        const text = (await response.toArray()).join("")
        end()
        if (/"status":"confirmed"/.test(text)) counts.paidPolls++
        else if (!signal.aborted) poll(url, agent)
      })
      .on("error", end)
  }
  process.on("message", async (message: { base: string; ids: string[]; n: number } | "count" | "end") => {
    if (message === "count") return void process.send?.(counts)
    if (message === "end") {
      over.abort()
      over = new AbortController()
      for (const name of Object.keys(counts) as (keyof Counts)[]) counts[name] = 0
      return void process.send?.(counts)
    }
    const { base, ids, n } = message
    const { signal } = over
    for (let i = 0; i < n && !signal.aborted; i++) {
      const id = ids[i % ids.length]
      stream(`${base}/pay/${id}/events`, addressOf(i, 1))
      const agent = new http.Agent({
        keepAlive: true,
        maxSockets: 1,
        localAddress: addressOf(i, 2),
      } as http.AgentOptions)
      poll(`${base}/api/pay/status/${id}?wait=${WAIT_S}`, agent)
      await sleep(RAMP_MS / n)
    }
    // The last ones are being answered.
    await sleep(2_000)
    process.send?.(counts)
  })
  process.on("disconnect", () => process.exit(0))
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { n: { type: "string", default: "1000" }, seconds: { type: "string", default: "30" } },
  })
  const n = Number(values.n)
  const seconds = Number(values.seconds)
  const postgres = await startPostgres({ fsync: true })
  const anvil = await startAnvil({ slotsInAnEpoch: 10 })
  const issuer = await startIssuer()
  await placeSharedContracts(anvil.client)
  const token = await deployTestUsdc(anvil.client)
  await fundPayers(anvil, token)
  const factory = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
  const env = {
    PATH: process.env.PATH ?? "",
    MODE: "test",
    LOG_LEVEL: "warn",
    DATABASE_URL: postgres.url,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    RPC_BASE_SEPOLIA: anvil.rpcUrl,
    TOKEN_BASE_SEPOLIA: token,
    DEPOSIT_FACTORY_BASE_SEPOLIA: factory,
    PAYOUT_PRIVATE_KEY: PAYOUT_KEY,
    CONFIRMATIONS: "1",
    VERIFY_INTERVAL: "1s",
    ...Object.fromEntries(
      ["CONSOLE", "CHECKOUT", "MERCHANT", "PUBLIC", "PAGES", "PAY_STATUS"].map(name => [`LIMIT_${name}`, "0"]),
    ),
  }
  const scratch = mkdtempSync(join(tmpdir(), "sluice-waiting-"))
  process.once("exit", () => rmSync(scratch, { recursive: true, force: true }))
  const started: ChildProcess[] = []
  async function start(role: string, name: string): Promise<{ url: string; pid: number }> {
    const port = await freePort()
    const own = { DATA_DIR: join(scratch, role), [name]: `${port}` }
    const args = ["server/src/main.ts", "--role", role]
    const child = spawn(process.execPath, args, { cwd: root, env: { ...env, ...own }, stdio: ["ignore", 2, 2] })
    process.once("exit", () => child.kill("SIGKILL"))
    started.push(child)
    const url = `http://127.0.0.1:${port}`
    await until(`${role} is ready`, async () => (await fetch(`${url}/readyz`).catch(() => undefined))?.ok === true)
    return { url, pid: child.pid ?? 0 }
  }
  // The API is ready once a worker scans.
  const [api] = await Promise.all([start("api", "PORT"), start("worker", "HEALTH_PORT")])
  const waiting = fork(import.meta.filename, { env: { PATH: process.env.PATH ?? "" } })
  const ask = async (message: object | string): Promise<Counts> => {
    waiting.send(message)
    return (await once(waiting, "message"))[0] as Counts
  }

  const headers = { authorization: `Bearer ${await issuer.token("shop")}`, "content-type": "application/json" }
  // biome-ignore lint/suspicious/noExplicitAny: it reads what it expects.
  async function call(method: string, path: string, body?: unknown): Promise<any> {
    const response = await fetch(`${api.url}${path}`, {
      method,
      headers,
      ...(body ? { body: JSON.stringify(body) } : {}),
    })
    const answer = (await response.json()) as object
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`)
    return answer
  }
  await call("PUT", "/api/console/settings", { payoutAddress: `0x${"ab".repeat(20)}` })
  const checkout = async (): Promise<{ id: string; payTo: Hex }> =>
    await call("POST", "/api/console/checkouts", { amount: 5, expiresIn: 86_400 })

  let payer = 2
  async function pay(to: Hex): Promise<void> {
    const from = anvil.accounts[(2 + (payer++ % 8)) as 2].address
    const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to, AMOUNT] })
    const params = [{ from, to: token, data, gas: "0x30d40" }]
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_sendTransaction", params })
    await fetch(anvil.rpcUrl, { method: "POST", headers: { "content-type": "application/json" }, body })
  }
  const other = await checkout()
  const statistics = await openPostgres(postgres.url, error => say(`database: ${error.message}`))
  const transactions = async (): Promise<number> => {
    const { rows } = await sql<{ n: number }>`select (xact_commit + xact_rollback)::float8 as n
      from pg_stat_database where datname = current_database()`.execute(statistics.db)
    return rows[0]?.n ?? Number.NaN
  }
  const cpu = () => {
    const fields = readFileSync(`/proc/${api.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
    return (Number(fields[11]) + Number(fields[12])) / 100
  }
  const megabytes = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${api.pid}/status`, "utf8"))?.[1]) / 1_024

  /** Measures for a while; `isPaying`: a payment arrives each second. */
  async function measure(name: string, isPaying: boolean): Promise<{ perSecond: number; p99: number }> {
    const from = { transactions: await transactions(), cpu: cpu(), at: performance.now() }
    const until = from.at + seconds * 1_000
    const times: number[] = []
    const asking = (async () => {
      while (performance.now() < until) {
        const sentAt = performance.now()
        const response = await fetch(`${api.url}/api/pay/status/${other.id}`)
        await response.arrayBuffer()
        times.push(performance.now() - sentAt)
        await sleep(ASKED_MS)
      }
    })()
    for (let next = from.at; isPaying && next < until; next += 1_000) {
      await pay((await checkout()).payTo)
      await sleep(Math.max(0, next + 1_000 - performance.now()))
    }
    await asking
    const took = (performance.now() - from.at) / 1_000
    const perSecond = ((await transactions()) - from.transactions) / took
    const at = (share: number) => times.toSorted((a, b) => a - b)[Math.floor((times.length - 1) * share)] ?? Number.NaN
    say(
      `  ${name.padEnd(34)} ${perSecond.toFixed(0).padStart(5)} transactions/s   API ${(((cpu() - from.cpu) / took) * 100).toFixed(0).padStart(3)} % of a core, ${megabytes().toFixed(0)} MB   another's status p50 ${at(0.5).toFixed(1)}, p99 ${at(0.99).toFixed(1)}, at most ${at(1).toFixed(1)} ms`,
    )
    return { perSecond, p99: at(0.99) }
  }

  const faults: string[] = []
  const goal = (what: string, is: number, most: number) => {
    say(`    ${what}: ${is.toFixed(1)}, ${(is / most).toFixed(2)} of the limit of ${most}`)
    if (is > most) faults.push(what)
  }
  say(`${n} live pages and ${n} long-polls, ${seconds} s for each line; Postgres with fsync`)
  await measure("warm-up", true)
  const quiet = await measure("nobody waits, nothing happens", false)
  const alone = await measure("nobody waits, a payment a second", true)
  for (const sessions of [1, n]) {
    const made: { id: string; payTo: Hex }[] = []
    while (made.length < sessions)
      made.push(...(await Promise.all(Array.from({ length: Math.min(10, sessions - made.length) }, checkout))))
    const on = sessions === 1 ? "on one checkout" : `on ${sessions} checkouts`
    const open = await ask({ base: api.url, ids: made.map(({ id }) => id), n })
    say(`  ${on}: ${open.streams} live pages and ${open.polls} long-polls wait, ${open.refused} were refused`)
    if (open.streams !== n || open.refused > 0) faults.push(`all ${on} can wait`)
    const idle = await measure(`${on}, nothing happens`, false)
    goal("transactions a second beside the quiet ones", idle.perSecond - quiet.perSecond, MAX_TRANSACTIONS)
    const busy = await measure(`${on}, a payment a second`, true)
    goal("another payer's status, p99 in ms", busy.p99, MAX_P99_MS)
    say(`    ${(busy.p99 / alone.p99).toFixed(2)} times as long as with nobody waiting`)
    const [first] = made
    if (first) await pay(first.payTo)
    const paidAt = performance.now()
    const should = n / sessions
    const notified = async () => {
      const { paidStreams, paidPolls } = await ask("count")
      return paidStreams >= should && paidPolls >= should
    }
    await until("all are notified", notified, 60_000).catch(() => faults.push(`all ${on} are notified of the payment`))
    say(
      `    ${should} pages and ${should} long-polls were notified of their payment ${Math.round(performance.now() - paidAt)} ms after it was sent`,
    )
    await ask("end")
    await sleep(2_000)
  }
  for (const fault of faults) say(`MISSED  ${fault}`)
  await statistics.close()
  waiting.disconnect()
  for (const child of started) {
    child.kill("SIGTERM")
    await once(child, "exit")
  }
  for (const part of [issuer, anvil, postgres]) await part.stop()
  process.exit(faults.length === 0 ? 0 : 1)
}
