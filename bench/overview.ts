/**
 * What the overview and the balances cost at a million payments of a year, of one merchant and of a thousand, and what
 * the deltas add to a settlement. Postgres survives a power cut. The goals: p95 at most 20 ms, and at most 1.03 times the
 * time. `script/bench overview`; `BENCH_ROWS` is for a quick try with fewer rows, `--only read` or `--only settle` for
 * a half of it.
 */
import { randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import { cpus } from "node:os"
import { performance } from "node:perf_hooks"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { Client } from "undici"
import { settleDue } from "../server/src/ledger/settlement/settle.ts"
import { type Db, openPostgres } from "../server/src/platform/db/open.ts"
import { foldDeltas } from "../server/src/products/insight/fold-deltas.ts"
import { startPayoutRig } from "../server/test/payouts.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { addRows } from "./rows.ts"

const ROWS = Number(process.env.BENCH_ROWS ?? 1_000_000)
const MERCHANTS = 1_000
const TIMES = 200
const SETTLEMENTS = 1_500
const AS = "shop"
const DAY_MS = 86_400_000
/** Deltas that wait for the worker while the overview is read. */
const WAITING = 2_000

const say = (text: string) => process.stdout.write(`${text}\n`)
const sorted = (values: readonly number[]) => [...values].sort((a, b) => a - b)
const quantile = (values: readonly number[], q: number) =>
  sorted(values)[Math.ceil(values.length * q) - 1] ?? Number.NaN

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

/** A service on a database of its own of the same server. */
async function start(name: string) {
  const admin = await openPostgres(postgres.url, () => {})
  await sql`create database ${sql.id(name)}`.execute(admin.db)
  await admin.close()
  const url = new URL(postgres.url)
  url.pathname = `/${name}`
  const database = await openPostgres(url.href, error => process.stderr.write(`database: ${error.message}\n`))
  const rig = await startPayoutRig({}, database)
  await rig.empty()
  const merchantId = await rig.service.merchant(AS)
  const paywall = await rig.sell()
  const { body } = await rig.service.call(
    "POST",
    "/api/console/api-keys",
    { name: "server", scopes: ["read", "checkouts"] },
    { as: AS },
  )
  return { rig, database, merchantId, paywallId: paywall.id, key: body.key as string }
}
type Side = Awaited<ReturnType<typeof start>>

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
  const { rig, database, merchantId, paywallId, key } = await start("reads")
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

/** Pays one more checkout of the merchant; returns the milliseconds from the confirmed transfer to the settled checkout. */
async function settle({ rig, key, merchantId }: Side): Promise<number> {
  const { ctx } = rig.service
  const { network } = rig
  const { body } = await rig.service.call("POST", "/api/checkouts", { amount: "5" }, { headers: { "x-api-key": key } })
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", body.id)
    .executeTakeFirstOrThrow()
  const now = ctx.now()
  const hash = `0x${randomBytes(32).toString("hex")}` as never
  const { id } = await ctx.db
    .insertInto("transfers")
    .values({
      chain_id: network.chainId,
      tx_hash: hash,
      token: rig.token,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      from_address: `0x${randomBytes(20).toString("hex")}` as never,
      value: 5_000_000n,
      block_number: 1n,
      block_hash: hash,
      log_index: 0,
      block_time: now,
      state: "seen",
      created_at: now,
    })
    .returning("id")
    .executeTakeFirstOrThrow()
  const from = performance.now()
  await ctx.db.updateTable("transfers").set({ state: "confirmed", run_at: now }).where("id", "=", id).execute()
  await settleDue(ctx, network)
  const ms = performance.now() - from
  const { status } = await ctx.db
    .selectFrom("checkout_sessions")
    .select("status")
    .where("id", "=", body.id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirstOrThrow()
  if (status !== "confirmed") throw new Error(`the checkout is ${status}`)
  return ms
}

async function measureSettlements(): Promise<void> {
  const counting = await start("counting")
  const plain = await start("plain")
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
  for (let n = -100; n < SETTLEMENTS; n++) {
    // In turns, and each first as often as second.
    for (const { side, times } of n % 2 === 0 ? sides : sides.toReversed()) {
      const ms = await settle(side)
      if (n >= 0) times.push(ms)
    }
    if (n % 100 === 0) await foldDeltas(counting.rig.service.ctx)
  }
  say(`\na settlement, one merchant receives all, ${SETTLEMENTS} in turns: median, mean of the middle 80 %, p95, ms`)
  const middle = (times: readonly number[]) => {
    const kept = sorted(times).slice(times.length * 0.1, times.length * 0.9)
    return kept.reduce((sum, ms) => sum + ms, 0) / kept.length
  }
  for (const { name, times } of sides)
    say(
      `  ${name.padEnd(20)}${[quantile(times, 0.5), middle(times), quantile(times, 0.95)].map(ms => ms.toFixed(3).padStart(9)).join("")}`,
    )
  const [without = [], withThem = []] = sides.map(({ times }) => times)
  // Each pair was measured at about the same time, so what else the machine did is in both.
  const ratios = withThem.map((ms, i) => ms / (without[i] ?? Number.NaN))
  say(
    `  ratio: of the medians ${(quantile(withThem, 0.5) / quantile(without, 0.5)).toFixed(3)}, of the means ${(middle(withThem) / middle(without)).toFixed(3)}, median of the pairs ${quantile(ratios, 0.5).toFixed(3)}`,
  )
  for (const { side } of sides) await side.rig.stop()
}

const { values } = parseArgs({ options: { only: { type: "string", default: "" } } })
say(`${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}`)
if (values.only !== "settle") await measureReads()
if (values.only !== "read") await measureSettlements()
await postgres.stop()
