/**
 * Applies the baseline (`schema/*.sql`, together the first migration) and `migrations/*.sql` in order, each once, all
 * in one transaction. Kysely's own migrator sends a file as one prepared statement, which PGlite refuses if the file
 * has several statements (42601).
 */
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import { adoptBaseline, assertLastBefore, isBeforeBaseline } from "./adopt-baseline.ts"

/**
 * Receives one sentence for each step: what is being applied, how long it took, or that another process is migrating.
 */
export type MigrationReport = (sentence: string) => void

/** What both engines can do inside a transaction; `exec` takes several statements. */
interface Session {
  exec(text: string): Promise<void>
  query(text: string, values?: unknown[]): Promise<Record<string, unknown>[]>
}

/** A database with the operations that migrations need. */
export interface Engine {
  transaction<T>(run: (session: Session) => Promise<T>): Promise<T>
}

interface Migration {
  name: string
  text: string
  /** SHA-256 of the text. */
  checksum: string
}

const migration = (name: string, text: string): Migration => ({
  name,
  text,
  checksum: createHash("sha256").update(text).digest("hex"),
})

/** The files of a folder in order, each with its name. */
const filesIn = (folder: URL): [name: string, text: string][] =>
  readdirSync(folder)
    .filter(name => name.endsWith(".sql"))
    .sort()
    .map(name => [name, readFileSync(new URL(name, folder), "utf8")])

/** Reads all migrations of this version, in order: the baseline, which is split by area, and the later ones. */
export function readMigrations(): Migration[] {
  const areas = filesIn(new URL("./schema/", import.meta.url)).map(([, text]) => text)
  const later = filesIn(new URL("./migrations/", import.meta.url))
  return [migration("0001_baseline", areas.join("\n")), ...later.map(([name, text]) => migration(name, text))]
}

/**
 * How long a migration waits for a table. Requests for that table wait behind the migration for at most five seconds,
 * and are then refused.
 */
const LOCK_MS = 1_000
/** The pause after a table was locked for the first time; each later pause is longer by the same amount. */
const PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 10_000

/** SQLSTATE of a lock timeout, and of a deadlock. */
const IN_USE = /^(55P03|40P01)$/

/**
 * Brings the database up to this version's schema. Throws if an applied file's text has changed, or if the database is
 * newer than this program. On a big database a file may take minutes, so each file is reported. If a long statement of
 * another process uses a table, the migration does not wait for that table, because requests would wait behind the
 * migration. The migration rolls everything back and tries again.
 */
export async function migrate(
  engine: Engine,
  report: MigrationReport = () => {},
  migrations: readonly Migration[] = readMigrations(),
): Promise<void> {
  for (let pauseMs = PAUSE_MS; ; pauseMs = Math.min(pauseMs + PAUSE_MS, LONGEST_PAUSE_MS))
    try {
      return await engine.transaction(session => applyMissing(session, migrations, report))
    } catch (error) {
      if (!IN_USE.test(`${(error as { code?: unknown }).code}`)) throw error
      report(`A table is in use by another process. Nothing was applied; trying again in ${pauseMs / 1_000} s.`)
      await sleep(pauseMs)
    }
}

async function applyMissing(
  session: Session,
  migrations: readonly Migration[],
  report: MigrationReport,
): Promise<void> {
  // The timeouts of requests' statements must not end a migration.
  await session.exec("set local statement_timeout = 0; set local lock_timeout = 0")
  await lockMigrations(session, report)
  await session.exec(
    "create table if not exists migrations (name text primary key, checksum text not null, applied_at timestamptz not null default now())",
  )
  const applied = await readApplied(session)
  await session.exec(`set local lock_timeout = ${LOCK_MS}`)
  const [baseline] = migrations
  if (baseline && isBeforeBaseline(applied)) {
    await adoptBaseline(session, applied, baseline)
    report(`The schema matches ${baseline.name}, which replaces the ${applied.size} migrations that made it.`)
    applied.clear()
    applied.set(baseline.name, baseline.checksum)
  }
  const missing = missingIn(applied, migrations)
  // A new database has no rows, so no file takes long.
  if (applied.size === 0) report("Creating the tables of a new database.")
  for (const [i, { name, text, checksum }] of missing.entries()) {
    if (applied.size > 0) report(`Applying the migration ${name} (${i + 1} of ${missing.length}).`)
    const startedAt = performance.now()
    await session.exec(text)
    await session.query("insert into migrations (name, checksum) values ($1, $2)", [name, checksum])
    if (applied.size > 0)
      report(`Applied the migration ${name} in ${((performance.now() - startedAt) / 1_000).toFixed(1)} s.`)
  }
}

const readApplied = async (session: Session): Promise<Map<string, unknown>> =>
  new Map((await session.query("select name, checksum from migrations")).map(row => [String(row.name), row.checksum]))

/** If several processes start together, one migrates; the others wait here and then find the work done. */
async function lockMigrations(session: Session, report: MigrationReport): Promise<void> {
  const [lock] = await session.query("select pg_try_advisory_xact_lock(7582411) as taken")
  if (lock?.taken) return
  report("Another process is migrating this database. Waiting for it to finish.")
  await session.exec("select pg_advisory_xact_lock(7582411)")
}

/**
 * Returns how many migrations are missing in the rows of `migrations`. Throws if an applied migration's text has
 * changed, or if the database is newer than this program or too old for it.
 */
export function schemaState(rows: readonly Record<string, unknown>[]): number {
  const applied = new Map(rows.map(({ name, checksum }) => [String(name), checksum]))
  const migrations = readMigrations()
  if (!isBeforeBaseline(applied)) return missingIn(applied, migrations).length
  assertLastBefore(applied)
  return migrations.length
}

/**
 * Returns the migrations that are missing in `applied` (checksums by name), in order; throws if `applied` does not
 * match them.
 */
function missingIn(applied: ReadonlyMap<string, unknown>, known: readonly Migration[]): Migration[] {
  for (const name of applied.keys())
    if (!known.some(each => each.name === name))
      throw new Error(`The database has the migration ${name}, which this version doesn't know. Run a newer version.`)
  for (const { name, checksum } of known)
    if (applied.has(name) && applied.get(name) !== checksum)
      throw new Error(
        `The migration ${name} was applied with a different text. Restore the file, and put changes into a new migration.`,
      )
  return known.filter(({ name }) => !applied.has(name))
}
