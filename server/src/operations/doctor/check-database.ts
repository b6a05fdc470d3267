/**
 * Checks that the database can be reached and written, is durable, and has this version's schema. Also checks that
 * the indexes have the system's sort order, and that the database's clock agrees with ours.
 */
// I/O: queries the database through a function, because the command has no pool and no context.
import { UNSERVED } from "../../ledger/payouts/find-payout-alarms.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkSetting } from "../../platform/chain/network-facts.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { schemaState } from "../../platform/db/migrate.ts"
import { isTrialTooLarge, TRY_WRITE, whyUnwritable } from "../../platform/db/try-write.ts"
import { type Finding, fine } from "./finding.ts"

/** Runs one statement. The function is undefined if the database is embedded, because that serves only one process. */
export type Query = (text: string) => Promise<Record<string, unknown>[]>

/** The largest difference between clocks. With a larger difference, leases and expiries differ between processes. */
const CLOCK_MS = 2_000

const part = "database"
const alarm = (check: string, message: string, todo: string): Finding => ({
  part,
  check,
  level: "alarm",
  message,
  todo,
})
const fault = (check: string, message: string, todo: string): Finding => ({
  part,
  check,
  level: "fault",
  message,
  todo,
})

/** Checks the database; `now` is the clock of this process. */
export async function checkDatabase(settings: Settings, query: Query | undefined, now: () => Date): Promise<Finding[]> {
  if (!query) return [embedded(settings)]
  try {
    return [
      await connection(query),
      await writes(query),
      ...(await durability(query)),
      await collation(query),
      await clock(query, now),
      await connections(query),
      ...(await schema(settings, query)),
      ...(await waiting(settings, query, now)),
    ]
  } catch (error) {
    return [
      fault(
        "connection",
        `the database can't be used: ${reasonOf(error)}`,
        "Check DATABASE_URL, whether Postgres is running, and whether its pg_hba.conf admits this user from here.",
      ),
    ]
  }
}

const embedded = ({ mode }: Settings): Finding =>
  mode === "sandbox"
    ? fine(part, "engine", "the embedded database in DATA_DIR")
    : {
        part,
        check: "engine",
        level: "note",
        message:
          "the embedded database is in use: it serves one process, and has no replica and no point-in-time recovery",
        todo: "Set DATABASE_URL to use Postgres. docs/operators/operations.md explains how to back up either database.",
      }

/**
 * The reason, taken from the error's code if it has one. A message may repeat the address, which may contain a
 * password.
 */
function reasonOf(error: unknown): string {
  const { code, message, errors } = error as { code?: unknown; message?: string; errors?: { code?: unknown }[] }
  const codes: Record<string, string> = {
    "28P01": "the password is wrong",
    "28000": "this user may not connect",
    "3D000": "there is no such database",
  }
  const known = String(code ?? errors?.[0]?.code ?? "")
  return codes[known] ?? (/^E[A-Z]+$/.test(known) ? `no connection (${known})` : (message ?? "no answer"))
}

async function connection(query: Query): Promise<Finding> {
  const [row] = await query("select current_setting('server_version') as version, pg_is_in_recovery() as standby")
  if (row?.standby)
    return fault(
      "connection",
      "the database is a standby, where nothing can be written",
      "Point DATABASE_URL at the primary.",
    )
  return fine(part, "connection", `Postgres ${String(row?.version).split(" ")[0]} answers`)
}

async function writes(query: Query): Promise<Finding> {
  try {
    await query(TRY_WRITE)
    return fine(part, "writes", "the database accepts writes")
  } catch (error) {
    if (isTrialTooLarge(error))
      return {
        part,
        check: "writes",
        level: "note",
        message: "temp_file_limit does not let this user test whether the disk of the database has room",
        todo: "Run `alter role … set temp_file_limit = '4MB'`, or set a higher limit.",
      }
    const message = whyUnwritable(error)
    if (message === undefined) throw error
    return fault(
      "writes",
      message,
      "Free space on Postgres' disk, or make the database writable again. Never delete files in Postgres' folder. The service recovers automatically.",
    )
  }
}

/** Checks durability: answers to callers, and the nonce of a signed payout, must survive a crash of the server. */
async function durability(query: Query): Promise<Finding[]> {
  const names = ["fsync", "synchronous_commit"]
  const [row] = await query(`select ${names.map(name => `current_setting('${name}') as ${name}`).join(", ")}`)
  const off = names.filter(name => row?.[name] === "off")
  if (off.length === 0) return [fine(part, "durability", "a commit is on disk before Postgres confirms it")]
  return off.map(name =>
    alarm(
      name,
      `${name} is off in Postgres: a crash of the server can lose payments and payouts that were already reported`,
      `Run \`alter system set ${name} = on\` and \`select pg_reload_conf()\`. The user or the database may have its own value for the setting: \`\\drds\` in psql shows it.`,
    ),
  )
}

const MAX_USED = 0.9

/**
 * Checks the connection limits of the server, the database and the role, and reports the one that is nearly reached.
 */
async function connections(query: Query): Promise<Finding> {
  const check = "connections"
  const limits = await query(`select * from (values
    ('Postgres', (select sum(numbackends) from pg_stat_database)::int,
      current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0)),
    ('the database', (select numbackends from pg_stat_database where datname = current_database()),
      (select datconnlimit from pg_database where datname = current_database())),
    ('the role', (select count(*)::int from pg_stat_activity where usename = current_user),
      (select rolconnlimit from pg_roles where rolname = current_user))) l (name, used, most)`)
  const full = limits.find(({ used, most }) => Number(most) >= 0 && Number(used) > MAX_USED * Number(most))
  if (!full) return fine(part, check, "Postgres has connections left")
  return alarm(
    check,
    `${full.used} of the ${full.most} connections of ${full.name} are in use: soon no process can connect`,
    "Find out who holds them (application_name in pg_stat_activity), or raise the limit. Each process of the service opens at most 21 connections.",
  )
}

/** The first version of Postgres that records the collation version of its indexes. */
const RECORDS_COLLATIONS = 150_000

/**
 * Checks the sort order of text, because ids and keys are text. An upgrade of the system's library may change that
 * order. An index then misses rows that it contains, and rows that must be unique could be recorded twice. Bytes
 * ("C") always have the same order. See https://www.postgresql.org/docs/current/sql-altercollation.html.
 */
async function collation(query: Query): Promise<Finding> {
  const check = "collation"
  const [server] = await query("select current_setting('server_version_num')::int as version")
  const isRecorded = Number(server?.version) >= RECORDS_COLLATIONS
  const [row] = await query(
    `select datname, datcollate, ${
      isRecorded
        ? "datlocprovider, datcollversion as recorded, pg_database_collation_actual_version(oid) as actual"
        : "'c' as datlocprovider, null as recorded, null as actual"
    } from pg_database where datname = current_database()`,
  )
  const name = `"${String(row?.datname).replaceAll('"', '""')}"`
  // Null before version 15, and for a collation without versions, such as C.utf8 of libc.
  const isKnown = row?.recorded !== null
  if (isKnown && row?.recorded !== row?.actual)
    return alarm(
      check,
      "the system now sorts text differently than when the database's indexes were built: they may miss rows and allow duplicates",
      `Stop all processes of Sluice, run \`reindex database ${name}\` and then \`alter database ${name} refresh collation version\`.`,
    )
  const isBytes =
    row?.datlocprovider === "b" || (row?.datlocprovider === "c" && /^(C|POSIX)$/.test(`${row.datcollate}`))
  if (isBytes) return fine(part, check, "text is sorted by its bytes")
  return {
    part,
    check,
    level: "note",
    message:
      "the database sorts text by the rules of a language: this costs a tenth of its time, and a system upgrade can break its indexes",
    todo: `${
      isKnown
        ? "This check raises an alarm if that happens."
        : `Nothing records how the indexes are sorted, so no check can detect a broken one: run \`reindex database ${name}\` after each system upgrade.`
    } Create a new database with \`createdb --template template0 --lc-collate C\`.`,
  }
}

async function clock(query: Query, now: () => Date): Promise<Finding> {
  const before = now().getTime()
  const [row] = await query("select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms")
  const after = now().getTime()
  const aheadMs = (before + after) / 2 - Number(row?.ms)
  // The server read its clock at some moment between the two readings of ours.
  if (Math.abs(aheadMs) <= CLOCK_MS + (after - before) / 2)
    return fine(part, "clock", "the clocks of this machine and of Postgres agree")
  const seconds = Math.round(Math.abs(aheadMs) / 1_000)
  return alarm(
    "clock",
    `the clock of this machine is ${seconds} s ${aheadMs > 0 ? "ahead of" : "behind"} the clock of Postgres`,
    "Synchronize both clocks with NTP (chrony, systemd-timesyncd): leases and expiries depend on them.",
  )
}

/** Checks the state of the schema, without migrating anything. */
async function schema({ mode }: Settings, query: Query): Promise<Finding[]> {
  const [there] = await query(
    "select to_regclass('migrations') is not null as migrated, to_regclass('installation') is not null as installed",
  )
  if (!there?.migrated) return [fine(part, "schema", "the database is empty: the first start creates its tables")]
  const applied = await query("select name, checksum from migrations")
  let missing: number
  try {
    missing = schemaState(applied)
  } catch (error) {
    return [fault("schema", (error as Error).message.replace(/\.$/, ""), "Run the version that wrote this database.")]
  }
  const [made] = there.installed ? await query("select value from installation where key = 'mode'") : []
  const owner = made?.value
  return [
    missing === 0
      ? fine(part, "schema", "the schema is this version's")
      : {
          part,
          check: "schema",
          level: "note",
          message: `${missing} migrations are missing`,
          todo: "The next start applies them. If there are several processes, run `sluice migrate` first (docs/operators/operations.md, Upgrade).",
        },
    ...(owner === undefined || owner === mode
      ? []
      : [
          fault(
            "installation",
            `the database belongs to an installation with MODE=${owner}, and MODE is ${mode}`,
            "Use another DATABASE_URL: play money and real money never share a database.",
          ),
        ]),
  ]
}

const HOUR_MS = 3_600_000

/**
 * Reports payouts that wait for a process whose settings name another factory. Skipped if the table does not exist
 * yet.
 */
async function waiting({ networks }: Settings, query: Query, now: () => Date): Promise<Finding[]> {
  const [there] = await query("select to_regclass('payouts') is not null as payouts")
  if (!there?.payouts) return []
  const since = new Date(now().getTime() - HOUR_MS).toISOString()
  const found: Finding[] = []
  for (const { name, chainId, depositFactory } of networks) {
    const rows = await query(`select to_address, count(*)::int as n from payouts where chain_id = ${Number(chainId)}
      and lane = 'payout' and state = 'queued' and run_at < '${since}' group by 1 order by 1`)
    const others = rows.filter(row => row.to_address !== depositFactory)
    if (others.length === 0) continue
    const list = others.map(row => `${row.n} of the factory ${checksummed(String(row.to_address))}`).join(", ")
    const todo = `Waiting: ${list}. Run a worker with that factory as ${networkSetting("DEPOSIT_FACTORY", name)} and the key of its operator; see docs/operators/alarms.md (\`unserved\`).`
    found.push({ part: name, check: "unserved", level: "alarm", message: UNSERVED, todo, isWatched: true })
  }
  return found
}
