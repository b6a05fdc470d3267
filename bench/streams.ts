/**
 * What streams of changes cost one API process: its memory before, with 200 merchants' streams, and after each has read its changes; and
 * the transactions that idle streams cost, as Postgres counts them, less those of nobody. `script/bench streams [--n 200]
 * [--changes 10000] [--seconds 60]`. It exits with 1 where a goal is missed, or a stream has not read each change once.
 */
import { fork, spawn } from "node:child_process"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import http from "node:http"
import { setTimeout as sleep } from "node:timers/promises"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { deployDepositFactory, deployTestUsdc, startAnvil } from "../server/test/anvil.ts"
import { freePort, plainEnv, root, until } from "../server/test/e2e/program.ts"
import { AUDIENCE, startIssuer } from "../server/test/issuer.ts"
import { startPostgres } from "../server/test/postgres.ts"

/** The goals: transactions a second of all idle streams, and how much more memory the process has at the end than at its start. */
const MAX_TRANSACTIONS = 5
const MAX_MEGABYTES = 200
const AT_ONCE = 10
/** How many changes of each merchant one transaction writes. */
const WRITTEN_AT_ONCE = 50
const MARK = Buffer.from("event: change\n")

const say = (text: string) => process.stdout.write(`${text}\n`)

/** What the process of readers reports. */
interface Counts {
  open: number
  changes: number[]
}

if (process.send) read()
else await main()

/** The process of those who read: a stream for each key. */
function read(): void {
  const counts: Counts = { open: 0, changes: [] }
  process.on("message", (message: { url: string; keys: string[] } | "count") => {
    if (message === "count") return void process.send?.(counts)
    message.keys.forEach((key, i) => {
      counts.changes[i] = 0
      const headers = { accept: "text/event-stream", "x-api-key": key }
      http.get(`${message.url}/api/console/stream`, { headers, agent: false }, response => {
        if (response.statusCode !== 200) throw new Error(`a stream was refused: ${response.statusCode}`)
        counts.open++
        let rest = Buffer.alloc(0)
        response.on("data", (bytes: Buffer) => {
          const all = Buffer.concat([rest, bytes])
          let at = 0
          for (let found = all.indexOf(MARK); found >= 0; found = all.indexOf(MARK, at)) {
            counts.changes[i] = (counts.changes[i] ?? 0) + 1
            at = found + MARK.length
          }
          rest = all.subarray(Math.max(at, all.length - MARK.length + 1))
        })
        response.once("close", () => counts.open--)
      })
    })
  })
  process.on("disconnect", () => process.exit(0))
}

async function main(): Promise<void> {
  const option = (by: string) => ({ type: "string", default: by }) as const
  const { values } = parseArgs({ options: { n: option("200"), changes: option("10000"), seconds: option("60") } })
  const n = Number(values.n)
  const changes = Number(values.changes)
  const seconds = Number(values.seconds)
  const postgres = await startPostgres({ fsync: true })
  const anvil = await startAnvil({ slotsInAnEpoch: 10 })
  const issuer = await startIssuer()
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const env = {
    ...plainEnv(),
    MODE: "test",
    LOG_LEVEL: "warn",
    PORT: `${port}`,
    DATABASE_URL: postgres.url,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    RPC_BASE_SEPOLIA: anvil.rpcUrl,
    TOKEN_BASE_SEPOLIA: await deployTestUsdc(anvil.client),
    DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
    ...Object.fromEntries(["CONSOLE", "MERCHANT", "PUBLIC"].map(name => [`LIMIT_${name}`, "0"])),
  }
  const api = spawn(process.execPath, ["server/src/main.ts", "--role", "api"], {
    cwd: root,
    env,
    stdio: ["ignore", 2, 2],
  })
  process.once("exit", () => api.kill("SIGKILL"))
  const isUp = () => fetch(`${url}/readyz`).then(({ ok }) => ok)
  await until("the API is ready", () => isUp().catch(() => false))

  const merchants: { id: string; key: string }[] = []
  for (let i = 0; i < n; i += AT_ONCE)
    merchants.push(...(await Promise.all(Array.from({ length: Math.min(AT_ONCE, n - i) }, (_, j) => join(i + j)))))
  async function join(i: number): Promise<{ id: string; key: string }> {
    const headers = { authorization: `Bearer ${await issuer.token(`m${i}`)}`, "content-type": "application/json" }
    const { merchantId } = (await (await fetch(`${url}/api/console/settings`, { headers })).json()) as {
      merchantId: string
    }
    const body = JSON.stringify({ name: "stream", scopes: ["read"] })
    const made = await fetch(`${url}/api/console/api-keys`, { method: "POST", headers, body })
    return { id: merchantId, key: ((await made.json()) as { key: string }).key }
  }

  const statistics = await openPostgres(postgres.url, error => say(`database: ${error.message}`))
  const transactions = async (): Promise<number> => {
    const { rows } = await sql<{ n: number }>`select (xact_commit + xact_rollback)::float8 as n
      from pg_stat_database where datname = current_database()`.execute(statistics.db)
    return rows[0]?.n ?? Number.NaN
  }
  const megabytes = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${api.pid}/status`, "utf8"))?.[1]) / 1_024
  const cpu = () => {
    const fields = readFileSync(`/proc/${api.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
    return (Number(fields[11]) + Number(fields[12])) / 100
  }
  /** Transactions a second while nothing is asked. */
  async function idle(name: string): Promise<number> {
    // Connections report what they did within ten seconds.
    await sleep(12_000)
    const from = { count: await transactions(), cpu: cpu(), at: performance.now() }
    await sleep(seconds * 1_000)
    const took = (performance.now() - from.at) / 1_000
    const perSecond = ((await transactions()) - from.count) / took
    const share = ((cpu() - from.cpu) / took) * 100
    say(
      `  ${name.padEnd(40)} ${perSecond.toFixed(2)} transactions/s   ${share.toFixed(1)} % of a core   ${megabytes().toFixed(0)} MB`,
    )
    return perSecond
  }

  say(`${n} merchants, a stream each; ${seconds} s for each idle line`)
  const quiet = await idle("no stream is open")
  const before = megabytes()
  const readers = fork(import.meta.filename, { env: { PATH: process.env.PATH ?? "" } })
  readers.send({ url, keys: merchants.map(({ key }) => key) })
  const count = async (): Promise<Counts> => {
    readers.send("count")
    return (await once(readers, "message"))[0] as Counts
  }
  await until("all streams are open", async () => (await count()).open === n)
  const open = await idle(`${n} streams are open, nothing happens`)

  const from = { cpu: cpu(), at: performance.now() }
  let most = 0
  const watching = setInterval(() => (most = Math.max(most, megabytes())), 200)
  for (let written = 0; written < changes; written += WRITTEN_AT_ONCE)
    await sql`insert into changes (merchant_id, kind, object_id)
      select m.id, 'webhook', ${written} + i from merchants m, generate_series(1, ${Math.min(WRITTEN_AT_ONCE, changes - written)}::int) i`.execute(
      statistics.db,
    )
  const writtenS = (performance.now() - from.at) / 1_000
  const hasAll = async () => (await count()).changes.every(each => each >= changes)
  await until("every stream has read every change", hasAll, 3_600_000)
  clearInterval(watching)
  const took = (performance.now() - from.at) / 1_000
  const read = (await count()).changes.reduce((sum, each) => sum + each, 0)
  say(
    `  ${changes} changes each: written in ${writtenS.toFixed(0)} s, read in ${took.toFixed(0)} s (${(read / took).toFixed(0)} a second), ${(((cpu() - from.cpu) / took) * 100).toFixed(0)} % of a core, at most ${most.toFixed(0)} MB`,
  )
  await idle("afterwards")
  const after = megabytes()
  say(`  memory: ${before.toFixed(0)} MB before, ${after.toFixed(0)} MB after`)

  const faults: string[] = []
  const goal = (what: string, is: number, limit: number) => {
    say(`    ${what}: ${is.toFixed(1)}, ${(is / limit).toFixed(2)} of the limit of ${limit}`)
    if (is > limit) faults.push(what)
  }
  goal("transactions a second of idle streams", open - quiet, MAX_TRANSACTIONS)
  goal("more memory at most, in MB", most - before, MAX_MEGABYTES)
  if (read !== n * changes) faults.push(`each change once: ${read} of ${n * changes} were read`)
  for (const fault of faults) say(`MISSED  ${fault}`)
  readers.disconnect()
  await statistics.close()
  api.kill("SIGTERM")
  await once(api, "exit")
  for (const part of [issuer, anvil, postgres]) await part.stop()
  process.exit(faults.length === 0 ? 0 : 1)
}
