/**
 * What the overview and the balances cost at a million payments of a year, of one merchant and of a thousand, and what
 * the deltas add to a settlement. Postgres survives a power cut. The goals: p95 at most 20 ms, and at most 1.03 times the
 * time. `script/bench overview`; `BENCH_ROWS` is for a quick try with fewer rows, `--only read` or `--only settle` for
 * a half of it.
 */
import { readFileSync } from "node:fs"
import { cpus } from "node:os"
import { performance } from "node:perf_hooks"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { Client } from "undici"
import type { Db } from "../server/src/platform/db/open.ts"
import { foldDeltas } from "../server/src/products/insight/fold-deltas.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { addRows } from "./rows.ts"
import { compare, quantile, startSide } from "./settle.ts"

const ROWS = Number(process.env.BENCH_ROWS ?? 1_000_000)
const MERCHANTS = 1_000
const TIMES = 200
const DAY_MS = 86_400_000
/** Deltas that wait for the worker while the overview is read. */
const WAITING = 2_000

const say = (text: string) => process.stdout.write(`${text}\n`)

const postgres = await startPostgres({ fsync: true })
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))

/** CPU of this process, which asks and answers, and of the processes of Postgres, in milliseconds; Linux only. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  const children = readFileSync(`/proc/${postgres.pid()}/task/${postgres.pid()}/children`, "utf8").trim().split(" ")
  const ns = children.map(id => {
    try {
      return Number(readFileSync(`/proc/${id}/schedstat`, "utf8").split(" ")[0])
    } catch {
      return 0
    }
  })
  return (user + system) / 1_000 + ns.reduce((sum, each) => sum + each, 0) / 1e6
}

/** Makes the figures of all rows again, spread over a year; `merchant` is the SQL of whose they are. */
async function count(db: Db, merchant: string): Promise<void> {
  await sql`truncate figures, figure_deltas`.execute(db)
  // A row each second, to a year of them.
  const stretch = (365 * 86_400) / ROWS
  await sql`insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
    select ${sql.raw(merchant)}, date_bin('15 minutes', at, 'epoch'), chain_id, token, figure, sum(amount), sum(count) from (
      select merchant_id, timestamptz '2026-01-01' + (at - timestamptz '2026-01-01') * ${stretch}::float8 as at,
        chain_id, token, figure, amount, count from figure_entries) e
    group by 1, 2, 3, 4, 5`.execute(db)
  await foldDeltas({ db } as Parameters<typeof foldDeltas>[0])
  await sql`vacuum analyze figures`.execute(db)
}

async function measureReads(): Promise<void> {
  const { rig, database, merchantId, paywallId, key } = await startSide(postgres.url, "reads")
  const { background } = database
  const owner = { merchantId, paywallId, webhookId: `c${"w".repeat(24)}`, token: rig.token }
  const tables = ["resources", "checkout_sessions", "deposits", "transfers", "payments", "payouts"]
  await addRows(background, owner, tables, 1, ROWS)
  const client = new Client(await rig.service.listen())
  const ask = async (path: string): Promise<number> => {
    const from = performance.now()
    const answer = await client.request({ path: `/api/console/${path}`, method: "GET", headers: { "x-api-key": key } })
    const text = await answer.body.text()
    if (answer.statusCode !== 200) throw new Error(`${path}: ${answer.statusCode} ${text}`)
    return performance.now() - from
  }
  const day = (n: number) => new Date(Date.parse("2026-12-01") - n * DAY_MS).toISOString()
  const paths = {
    "30 days, UTC": `overview?from=${day(30)}&to=${day(0)}`,
    "30 days, Kathmandu": `overview?from=${day(30)}&to=${day(0)}&tz=Asia/Kathmandu`,
    "90 days, St. John's": `overview?from=${day(90)}&to=${day(0)}&tz=America/St_Johns`,
    "7 days by the hour, Lord Howe": `overview?from=${day(7)}&to=${day(0)}&interval=hour&tz=Australia/Lord_Howe`,
    "6 months by the day, Kolkata": `overview?from=${day(183)}&to=${day(0)}&tz=Asia/Kolkata`,
    "11 months by the month, Kolkata": `overview?from=${day(334)}&to=${day(0)}&interval=month&tz=Asia/Kolkata`,
    balances: "balances",
  }
  const measure = async (whose: string) => {
    const all = Object.entries(paths).map(([name, path]) => ({
      name,
      path,
      times: [] as number[],
      cpu: [] as number[],
    }))
    // In turns, so that what else the machine does is in all of them.
    for (let time = -20; time < TIMES; time++)
      for (const { path, times, cpu } of all) {
        const before = cpuMs()
        const ms = await ask(path)
        if (time < 0) continue
        times.push(ms)
        cpu.push(cpuMs() - before)
      }
    say(`\n${whose}, ${ROWS} payments, ${WAITING} deltas not folded${" ".repeat(12)}p50     p95 ms   CPU ms`)
    for (const { name, times, cpu } of all) {
      const cells = [quantile(times, 0.5), quantile(times, 0.95), quantile(cpu, 0.5)].map(ms =>
        ms.toFixed(1).padStart(9),
      )
      say(`  ${name.padEnd(60)}${cells.join("")}`)
    }
  }
  const wait = () =>
    sql`insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      select ${merchantId}, timestamptz '2026-11-30' + n * interval '1 second', 84532, ${rig.token}, 'received', 1, 1
      from generate_series(1, ${WAITING}::int) n`.execute(background)
  await count(background, "merchant_id")
  await wait()
  await measure("one merchant")
  // All others' rows stay in the tables, beside those of the merchant that asks.
  await background.transaction().execute(async tx => {
    await sql`set local session_replication_role = replica`.execute(tx)
    await sql`set local statement_timeout = 0`.execute(tx)
    await sql`update checkout_sessions set merchant_id = 'mer_' || (abs(hashtext(id)) % ${MERCHANTS})
      where abs(hashtext(id)) % ${MERCHANTS} <> 0`.execute(tx)
  })
  await sql`vacuum analyze checkout_sessions`.execute(background)
  // A merchant has all payments of a quarter of an hour: the worker would fold a row a payment for minutes.
  const n = `(extract(epoch from at)::bigint / 900 % ${MERCHANTS})`
  await count(background, `case ${n} when 0 then '${merchantId}' else 'mer_' || ${n} end`)
  await wait()
  await measure("one of a thousand merchants")
  await client.destroy()
  await rig.stop()
}

async function measureSettlements(): Promise<void> {
  const counting = await startSide(postgres.url, "counting")
  const plain = await startSide(postgres.url, "plain")
  const { rows } = await sql<{ drop: string }>`
    select format('drop trigger %I on %I', tgname, c.relname) as drop from pg_trigger t
      join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
      where p.proname in ('count_transfer', 'count_payout', 'count_outflow', 'count_reclaim', 'count_checkout')
    union all select 'drop index checkout_sessions_paid_at'`.execute(plain.database.db)
  for (const { drop } of rows) await sql.raw(drop).execute(plain.database.db)
  const sides = [
    { name: "without deltas", side: plain, times: [] as number[] },
    { name: "with deltas", side: counting, times: [] as number[] },
  ]
  await compare(sides, say, () => foldDeltas(counting.rig.service.ctx))
  for (const { side } of sides) await side.rig.stop()
}

const { values } = parseArgs({ options: { only: { type: "string", default: "" } } })
say(`${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}`)
if (values.only !== "settle") await measureReads()
if (values.only !== "read") await measureSettlements()
await postgres.stop()
