/**
 * What addresses that nobody paid cost a worker: its memory, its calls, and the time of each comparison of the books,
 * among few of them and among many. Each is the address of a checkout that anyone opened from a payment link, and that
 * ended unpaid. The worker is the real program, on Postgres and a local chain, with money at a paywall beside them.
 * `script/bench dormant [--few 20000] [--many 200000] [--watched 2000] [--unfinal 0] [--cgroup PATH]`; `--watched` are more
 * addresses in the scan, `--unfinal` transfers that are not final yet, and PATH a memory cgroup for the worker. Linux only.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { cpus, tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { type Db, notify, openPostgres } from "../server/src/platform/db/open.ts"
import { freePort, root, until } from "../server/test/e2e/program.ts"
import { AUDIENCE } from "../server/test/issuer.ts"
import { startPayoutRig } from "../server/test/payouts.ts"
import { startPostgres } from "../server/test/postgres.ts"

const { values } = parseArgs({
  options: {
    few: { type: "string", default: "20000" },
    many: { type: "string", default: "200000" },
    watched: { type: "string", default: "2000" },
    unfinal: { type: "string", default: "0" },
    cgroup: { type: "string" },
  },
})
/** The key of anvil's second account, the factory's operator. */
const PAYOUT_KEY = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
/** A whole pass over two million addresses takes some minutes. */
const LONGEST_MS = 1_800_000
const POLL_MS = 200

const say = (text: string) => process.stdout.write(`${text}\n`)
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))

/** The figures of one size, by name. */
type Figures = Record<string, number>

/** Adds what strangers left, without triggers; indexes are built afterwards, as row by row they take minutes. */
async function fill(db: Db, merchant: string, token: string, dormant: number): Promise<void> {
  const run = async (text: string) => {
    await db.transaction().execute(async tx => {
      for (const setting of [
        "session_replication_role = replica",
        "statement_timeout = 0",
        "maintenance_work_mem = '256MB'",
      ])
        await sql.raw(`set local ${setting}`).execute(tx)
      await sql.raw(text).execute(tx)
    })
  }
  const whole = dormant + Number(values.watched)
  // Their terms belong to no address, so they are called addresses of an older factory.
  const of = `from generate_series(1, ${whole}) g, (select d.chain_id, d.owner, d.payees_hash, d.open_after_s from deposits d limit 1) d`
  const id = "'cs_' || lpad(g::text, 24, '0')"
  const at = "now() - interval '3 days' + g * interval '1 millisecond'"
  const isDormant = `g <= ${dormant}`
  for (const [table, rows] of [
    ["resources", `(id, merchant_id, chain_id) select ${id}, '${merchant}', chain_id ${of}`],
    [
      "checkout_sessions",
      `(id, merchant_id, chain_id, amount, currency, status, expires_at, created_at, updated_at, link_id)
      select ${id}, '${merchant}', chain_id, 5000000, 'USDC', case when ${isDormant} then 'expired' else 'pending' end, case when ${isDormant} then ${at} else now() end + interval '1 day', ${at}, ${at},
        case when ${isDormant} then (select id from payment_links) end ${of}`,
    ],
    [
      "deposits",
      `(chain_id, address, factory, salt, owner, approver, older_factory, payees_hash, open_after_s, resource_id, created_at, watched,
        watched_until, watched_number, dormant_since, check_at, merchant_id)
      select chain_id, '0xc' || lpad(to_hex(g), 39, '0'), '0x' || repeat('fa', 20), '0x' || lpad(to_hex(g), 64, '0'), owner,
        '0x' || repeat('0', 40), true, payees_hash, open_after_s, ${id}, ${at}, not ${isDormant}, case when ${isDormant} then ${at} else now() + interval '1 day' end,
        case when ${isDormant} then 1 end, case when ${isDormant} then ${at} + interval '1 hour' end,
        now() + interval '1 day' * g / ${dormant} + interval '1 hour', '${merchant}' ${of}`,
    ],
    [
      "transfers",
      `(chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number, block_hash, log_index, block_time, state,
        created_at, merchant_id, applied)
      select d.chain_id, '0x' || lpad(to_hex(g), 64, '0'), '${token}', d.address, 0, d.id, d.owner, 1, 1000000000,
        '0x' || repeat('0', 64), 0, now(), 'seen', now(), '${merchant}', false
      from generate_series(1, ${values.unfinal}) g join deposits d on d.resource_id = 'cs_' || lpad((${dormant} + 1 + g % ${values.watched})::text, 24, '0')`,
    ],
  ] as const) {
    if (table === "transfers" && values.unfinal === "0") continue
    await run(`update pg_index set indisready = false where indrelid = '${table}'::regclass;
      insert into ${table} ${rows}; reindex table ${table}`)
  }
  for (const table of ["resources", "checkout_sessions", "deposits", "transfers"])
    await sql.raw(`vacuum analyze ${table}`).execute(db)
}

/** Peak resident memory of a process, in MB. */
const peakMb = (pid: number) => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1_024

async function measure(dormant: number): Promise<Figures> {
  const postgres = await startPostgres({ fsync: true })
  const database = await openPostgres(postgres.url, error => say(`database: ${error.message}`))
  const rig = await startPayoutRig({}, database)
  const { service, anvil, proxy } = rig
  const { db } = service.ctx
  await rig.empty()
  const shop = await rig.sell()
  await rig.paid(shop, 600_000n)
  await service.call("POST", "/api/console/payment-links", { title: "Sale", slug: "sale", amount: 5 }, { as: "shop" })
  const { id: merchant } = await db.selectFrom("merchants").select("id").executeTakeFirstOrThrow()
  const filledFrom = performance.now()
  await fill(database.background, merchant, rig.token, dormant)
  say(`${dormant} addresses are there after ${((performance.now() - filledFrom) / 1_000).toFixed(0)} s`)
  await anvil.client.mine({ blocks: 200 })
  await sql`update wallets set check_at = null, checked_number = 1`.execute(db)
  const scratch = mkdtempSync(join(tmpdir(), "sluice-dormant-"))
  const worker = await startWorker(postgres.url, rig, scratch)
  const pid = worker.pid ?? 0
  try {
    return await comparisons(db, rig, pid)
  } finally {
    worker.removeAllListeners("exit").kill("SIGKILL")
    await rig.stop()
    await postgres.stop()
    rmSync(scratch, { recursive: true, force: true })
    proxy.calls.clear()
  }
}

type Rig = Awaited<ReturnType<typeof startPayoutRig>>

async function startWorker(
  url: string,
  { service, token, network, proxy }: Rig,
  scratch: string,
): Promise<ChildProcess> {
  const port = await freePort()
  const env = {
    PATH: process.env.PATH ?? "",
    MODE: "test",
    LOG_LEVEL: "error",
    DATABASE_URL: url,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: service.issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    RPC_BASE_SEPOLIA: proxy.url,
    TOKEN_BASE_SEPOLIA: token,
    DEPOSIT_FACTORY_BASE_SEPOLIA: network.depositFactory,
    PAYOUT_PRIVATE_KEY: PAYOUT_KEY,
    HEALTH_PORT: `${port}`,
    DATA_DIR: scratch,
  }
  const enter = values.cgroup === undefined ? "" : `echo $$ > ${join(values.cgroup, "cgroup.procs")} && `
  const start = `${enter}exec "$0" server/src/main.ts --role worker`
  const child = spawn("sh", ["-c", start, process.execPath], { cwd: root, env, stdio: ["ignore", 2, 2] })
  child.once("exit", (code, signal) => {
    say(`the worker died: ${code ?? signal}`)
    process.exit(1)
  })
  process.once("exit", () => child.kill("SIGKILL"))
  await until("the worker answers", () =>
    fetch(`http://127.0.0.1:${port}/healthz`).then(
      ({ ok }) => ok,
      () => false,
    ),
  )
  return child
}

/** Waits for each comparison, and then for all rounds of a pass, one after the other. */
async function comparisons(db: Db, { proxy }: Rig, pid: number): Promise<Figures> {
  const begin = performance.now()
  const seconds = () => (performance.now() - begin) / 1_000
  const calls = (method: string) => proxy.calls.get(method) ?? 0
  const wallet = () => db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
  const done = (what: string, is: () => Promise<boolean>) => until(what, is, LONGEST_MS)
  await done("the logs are compared", async () => {
    const { check_at: next, checked_to: open, halted_reason: reason } = await wallet()
    if (reason !== null) throw new Error(reason)
    return open === null && next !== null && next.getTime() > Date.now()
  })
  const logs = seconds()
  const logCalls = calls("eth_getLogs")
  const job = () => db.selectFrom("reconciliations").selectAll().executeTakeFirst()
  await done("the hour is compared", async () => {
    const now = await job()
    return now !== undefined && now.hour_at.getTime() > Date.now() && now.moved_to === null
  })
  const hour = seconds()
  for (let isOver = false; !isOver; ) {
    await sql`update reconciliations set run_at = now() - interval '1 second'`.execute(db)
    await notify(db, "housekeeping")
    await sleep(POLL_MS)
    const { pass_at, deposit_position, transfer_position, payout_position } = (await job()) ?? {}
    const isBegun = pass_at !== undefined && pass_at.getTime() > Date.now()
    isOver = isBegun && [deposit_position, transfer_position, payout_position].every(position => position === null)
    if (performance.now() - begin > LONGEST_MS) throw new Error("the pass does not end")
  }
  const pass = seconds()
  const before = calls("eth_call")
  await sql`update deposits set check_at = now() - interval '1 second' where id in (
    select id from deposits where not watched order by id limit 10000)`.execute(db)
  await notify(db, "housekeeping")
  await done("10,000 balances are read", async () => {
    const due = await sql`select from deposits where not watched and check_at <= now() limit 1`.execute(db)
    return due.rows.length === 0
  })
  return {
    "logs compared after, s": logs,
    "hourly comparison after, s": hour,
    "whole pass after, s": pass,
    "eth_getLogs until the logs were compared": logCalls,
    "eth_call until the pass was over": before,
    "eth_call for 10,000 balances that are due": calls("eth_call") - before,
    eth_getTransactionReceipt: calls("eth_getTransactionReceipt"),
    "calls in all": proxy.total(),
    "peak memory, MB": peakMb(pid),
  }
}

const few = Number(values.few)
const many = Number(values.many)
const small = await measure(few)
const large = await measure(many)
say(`\n${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}; one run\n`)
say(`${"".padEnd(46)}${`${few}`.padStart(12)}${`${many}`.padStart(12)}   ratio`)
const show = (value: number) => (Number.isInteger(value) ? `${value}` : value.toPrecision(3)).padStart(12)
for (const [name, value] of Object.entries(small)) {
  const other = large[name] ?? Number.NaN
  say(`${name.padEnd(46)}${show(value)}${show(other)}   ${value > 0 ? (other / value).toFixed(2) : ""}`)
}
process.exit(0)
