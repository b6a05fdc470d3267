/** Opens the database: `DATABASE_URL` on Postgres, else PGlite in a folder. Both return int8 and numeric as bigint. */
import { chmodSync, existsSync, mkdirSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { PGlite } from "@electric-sql/pglite"
import { Kysely, PGliteDialect, PostgresDialect, type PostgresPool, sql } from "kysely"
import pg from "pg"
import type { Settings } from "../config/settings.ts"
import { pools } from "../metrics.ts"
import { type Engine, type MigrationReport, migrate } from "./migrate.ts"
import { backgroundDeadlines, bigintParsers, bounded, connect, openPool, requestDeadlines } from "./pool.ts"
import type { Database } from "./schema.ts"

/** A pool, or one open transaction: code that holds a `Db` can't reach past it. */
export type Db = Kysely<Database>

/** The channel of every wake-up; the payload names what to wake. */
const CHANNEL = "sluice"

export interface OpenDatabase {
  /** For requests: no statement takes longer than ten seconds. */
  db: Db
  /** For the loops, some of whose statements read whole tables: separate connections, with longer deadlines. */
  background: Db
  /** Calls back with the payload of every notification until closed; reconnects automatically. */
  listen(onNotify: (payload: string) => void): Promise<void>
  /** A consistent copy of the embedded database as a tar.gz of its folder; no statement runs meanwhile. */
  copy?: () => Promise<Blob>
  close(): Promise<void>
}

/** Notifies every process on this database that work of this kind is waiting. */
export async function notify(db: Db, payload: string): Promise<void> {
  await sql`select pg_notify(${CHANNEL}, ${payload})`.execute(db)
}

/**
 * The database that the settings name, migrated; the embedded one only for the process that holds the lock of
 * `dataDir`. `report` receives a sentence for each migration.
 */
export const openDatabase = (
  { databaseUrl, dataDir }: Pick<Settings, "databaseUrl" | "dataDir">,
  onError: (error: Error) => void,
  report?: MigrationReport,
): Promise<OpenDatabase> =>
  databaseUrl === undefined ? openEmbedded(join(dataDir, "db"), report) : openPostgres(databaseUrl, onError, report)

/**
 * The embedded database in `dir`, migrated. The first start builds it in another folder and renames that: a kill during
 * initdb leaves a folder that never opens again (measured), so an unfinished one must not have the final name.
 */
async function openEmbedded(dir: string, report: MigrationReport | undefined): Promise<OpenDatabase> {
  if (!existsSync(dir)) {
    const unfinished = `${dir}.unfinished`
    rmSync(unfinished, { recursive: true, force: true })
    mkdirSync(unfinished, { recursive: true, mode: 0o700 })
    const first = await PGlite.create(unfinished)
    await first.close()
    renameSync(unfinished, dir)
  }
  // PGlite creates its files with mode 0666 whatever the umask is (measured), so the folder keeps other users out.
  chmodSync(dir, 0o700)
  return overPGlite(await PGlite.create(dir, { parsers: bigintParsers }), report)
}

/** A copy of the embedded database in `dataDir`, as it is; only for the process that holds the folder's lock. */
export async function copyEmbedded(dataDir: string): Promise<Blob> {
  const pglite = await PGlite.create(join(dataDir, "db"))
  return await pglite.dumpDataDir("gzip").finally(() => pglite.close())
}

/** A database over a PGlite that is already there, migrated. */
export async function overPGlite(pglite: PGlite, report?: MigrationReport): Promise<OpenDatabase> {
  Object.assign(pglite.parsers, bigintParsers)
  const transaction: Engine["transaction"] = run =>
    pglite.transaction(tx =>
      run({
        exec: async text => void (await tx.exec(text)),
        query: async (text, values) => (await tx.query<never>(text, values)).rows,
      }),
    )
  await migrate({ transaction }, report)
  const db: Db = new Kysely<Database>({ dialect: new PGliteDialect({ pglite }) })
  return {
    db,
    background: db,
    listen: async onNotify => void (await pglite.listen(CHANNEL, onNotify)),
    copy: () => pglite.dumpDataDir("gzip"),
    close: () => pglite.close(),
  }
}

/** The Postgres at `url`, migrated. */
export async function openPostgres(
  url: string,
  onError: (error: Error) => void,
  report?: MigrationReport,
  deadlines = requestDeadlines,
): Promise<OpenDatabase> {
  const pool = openPool(url, deadlines, onError)
  const background = openPool(url, backgroundDeadlines, onError)
  pools.set("requests", pool).set("background", background)
  const transaction: Engine["transaction"] = async run => {
    const client = await connect(pool)
    try {
      await client.query("begin")
      const result = await run({
        exec: async text => void (await client.query(text)),
        query: async (text, values) => (await client.query(text, values)).rows,
      })
      await client.query("commit")
      return result
    } catch (error) {
      // A broken connection has nothing to roll back, and its error must not hide the first one.
      await client.query("rollback").catch(() => {})
      throw error
    } finally {
      client.release()
    }
  }
  await migrate({ transaction }, report)
  const closing = new AbortController()
  const over = (pool: PostgresPool): Db => new Kysely<Database>({ dialect: new PostgresDialect({ pool }) })
  return {
    db: over(bounded(pool, deadlines)),
    background: over(bounded(background, backgroundDeadlines)),
    listen: onNotify => listenForever(url, onNotify, onError, closing.signal),
    close: async () => {
      closing.abort()
      await Promise.all([pool.end(), background.end()])
    },
  }
}

/** LISTEN uses a client of its own: a pooled one would be handed to others between notifications. */
async function listenForever(
  url: string,
  onNotify: (payload: string) => void,
  onError: (error: Error) => void,
  signal: AbortSignal,
): Promise<void> {
  const client = new pg.Client({
    connectionString: url,
    application_name: "sluice-listen",
    connectionTimeoutMillis: requestDeadlines.connectMs,
  })
  let ended = false
  const end = () => {
    if (ended) return
    ended = true
    client.end().catch(() => {})
    if (signal.aborted) return
    const again = setTimeout(() => listenForever(url, onNotify, onError, signal).catch(onError), 1_000)
    again.unref()
  }
  client.on("notification", message => onNotify(message.payload ?? ""))
  client.on("error", error => {
    onError(error)
    end()
  })
  client.on("end", end)
  signal.addEventListener("abort", end, { once: true })
  try {
    await client.connect()
    await client.query(`listen ${CHANNEL}`)
  } catch (error) {
    onError(error as Error)
    end()
  }
}
