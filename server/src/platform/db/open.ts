/**
 * Opens the database: Postgres at `DATABASE_URL`, else PGlite in a folder. Both databases return int8 and numeric as
 * bigint.
 */
import { randomBytes } from "node:crypto"
import { chmodSync, existsSync, mkdirSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { setFlagsFromString } from "node:v8"
import type { PGlite, PGliteOptions } from "@electric-sql/pglite"
import { Kysely, PGliteDialect, PostgresDialect, type PostgresPool, type RawBuilder, sql } from "kysely"
import type pg from "pg"
import type { Settings } from "../config/settings.ts"
import { pools } from "../metrics.ts"
import { acting } from "./acting.ts"
import { clientOf, type Hosts, hostsOf } from "./hosts.ts"
import { NOTE_BACKUP } from "./last-backup.ts"
import { type Engine, type MigrationReport, migrate } from "./migrate.ts"
import { backgroundDeadlines, bigintParsers, bounded, connect, openPool, requestDeadlines } from "./pool.ts"
import { copyPrepared } from "./prepared-database.ts"
import type { Database } from "./schema.ts"

/** A pool, or one open transaction: code that holds a `Db` can't reach past it. */
export type Db = Kysely<Database>

/** The channel of every wake-up; the payload names what to wake. */
const CHANNEL = "sluice"

export interface OpenDatabase {
  /** For requests: no statement takes longer than ten seconds. */
  db: Db
  /**
   * For the loops, some of whose statements read whole tables. The loops have separate connections, with longer
   * deadlines.
   */
  background: Db
  /** Calls the listener until closed; reconnects automatically. */
  listen(listener: Listener): Promise<void>
  /**
   * Whether the listener got every notification sent until two seconds ago; false while its connection is down, silent
   * or new.
   */
  isListening(): boolean
  /** A consistent copy of the embedded database as a tar.gz of its folder; no statement runs meanwhile. */
  copy?: () => Promise<Blob>
  close(): Promise<void>
}

/** Receives notifications. */
interface Listener {
  /** Called with each payload, in the order of the commits. */
  notified(payload: string): void
  /** Called when some notifications may have been missed. */
  missed(): void
}

/**
 * SQL: a column with which the statement's commit does not wait for the disk, so that a database crash may undo it.
 * Throws inside a transaction, because the crash would also undo the transaction's other writes.
 */
export function undurable(db: Db): RawBuilder<string> {
  if (db.isTransaction) throw new Error("a transaction's commit must wait for the disk")
  return sql<string>`set_config('synchronous_commit', 'off', true)`
}

/**
 * Notifies every process on this database that work of this kind is due. Listeners get the notification after the
 * commit. If a database crash loses the notification, a listener finds the work with its own timer.
 */
export async function notify(db: Db, payload: string): Promise<void> {
  await sql`select /* named: notify */ ${undurable(db)}, pg_notify(${CHANNEL}, ${payload})`.execute(db)
}

/**
 * Opens the database that the settings name, and migrates it. Only the process that holds the lock of `dataDir` may
 * open the embedded database. `report` gets a sentence for each migration.
 */
export const openDatabase = (
  { databaseUrl, dataDir }: Pick<Settings, "databaseUrl" | "dataDir">,
  onError: (error: Error) => void,
  report?: MigrationReport,
): Promise<OpenDatabase> =>
  databaseUrl === undefined ? openEmbedded(join(dataDir, "db"), report) : openPostgres(databaseUrl, onError, report)

/**
 * Opens the embedded database in `dir`, and migrates it. The first start copies or builds the database in another
 * folder and renames that folder. A kill during initdb leaves a folder that never opens again (measured), so an
 * unfinished folder must not have the final name.
 */
async function openEmbedded(dir: string, report: MigrationReport | undefined): Promise<OpenDatabase> {
  if (!existsSync(dir)) {
    const unfinished = `${dir}.unfinished`
    rmSync(unfinished, { recursive: true, force: true })
    mkdirSync(unfinished, { recursive: true, mode: 0o700 })
    if (!copyPrepared(unfinished)) await (await openPGlite({ dataDir: unfinished })).close()
    renameSync(unfinished, dir)
  }
  // PGlite creates its files with mode 0666 whatever the umask is (measured), so the folder must keep other users out.
  chmodSync(dir, 0o700)
  const pglite = await openPGlite({ dataDir: dir, parsers: bigintParsers })
  try {
    return await overPGlite(pglite, report)
  } catch (error) {
    // An open database keeps its process from ending.
    await pglite.close()
    throw error
  }
}

/**
 * Opens an embedded database. By default, V8 later compiles PGlite's functions a second time, optimized. The second
 * compilation took a second of CPU at each start, and statements were no faster (0.5 ms of CPU each in both cases,
 * after 4,000 statements). The database's shared buffers occupy this process's memory immediately. With the usual 128
 * MB a new process took 264 MB and 0.85 s; with 16 MB it took 141 MB and 0.52 s. The rest of the database is in the
 * machine's page cache.
 */
export async function openPGlite(options: PGliteOptions = {}): Promise<PGlite> {
  setFlagsFromString("--wasm-tiering-budget=2000000000")
  // Loaded only where it is used, because a process on Postgres does not need its 6 MB.
  const { PGlite } = await import("@electric-sql/pglite")
  const startParams = [...PGlite.defaultStartParams, "-c", "shared_buffers=16MB"]
  return await PGlite.create({ startParams, ...options })
}

/** Copies the embedded database in `dataDir` as it is; only for the process that holds the folder's lock. */
export async function copyEmbedded(dataDir: string): Promise<Blob> {
  const pglite = await openPGlite({ dataDir: join(dataDir, "db") })
  return await notedCopy(pglite).finally(() => pglite.close())
}

async function notedCopy(pglite: PGlite): Promise<Blob> {
  const begunAt = new Date()
  const copy = await pglite.dumpDataDir("gzip")
  await pglite.query(NOTE_BACKUP, [begunAt.toISOString()])
  return copy
}

/** Migrates a PGlite that is already open, and returns it as a database. */
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
  const db: Db = new Kysely<Database>({ dialect: acting(new PGliteDialect({ pglite })) })
  return {
    db,
    background: db,
    listen: async listener => void (await pglite.listen(CHANNEL, listener.notified)),
    // The listener is always in the same process.
    isListening: () => true,
    copy: () => notedCopy(pglite),
    close: () => pglite.close(),
  }
}

/** Opens the Postgres at `url`, and migrates it. */
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
  await migrate({ transaction }, report).catch(async error => {
    await Promise.all([pool.end(), background.end()])
    throw error
  })
  const closing = new AbortController()
  const line: Line = { heardAt: Number.NEGATIVE_INFINITY }
  const over = (pool: PostgresPool): Db =>
    new Kysely<Database>({ dialect: acting(new PostgresDialect({ pool }), "begin") })
  // This also proves that connections are sessions of their own: behind a pooler that shares them, no notification
  // arrives.
  const isListening = () => performance.now() - line.heardAt < MAX_SILENCE_MS
  return {
    db: over(bounded(pool, deadlines, isListening)),
    background: over(bounded(background, backgroundDeadlines, isListening)),
    listen: listener => listenForever(hostsOf(url), background, listener, onError, closing.signal, line),
    isListening,
    close: async () => {
      closing.abort()
      await Promise.all([pool.end(), background.end()])
    },
  }
}

/** The LISTEN connection. `heardAt` is when the newest notification that arrived was sent, by the monotonic clock. */
interface Line {
  heardAt: number
}

/**
 * How often another connection notifies the LISTEN connection, because a broken connection is silent and a pooler may
 * swallow LISTEN.
 */
const BEAT_MS = 500
/** After this long without a notification of its own, other notifications may not have arrived either. */
const MAX_SILENCE_MS = 2_000
/**
 * After this many beats without a notification, while the database responds on other connections, the connection is
 * closed.
 */
const MAX_SILENT_BEATS = 20

const SILENT =
  "notifications do not arrive: a pooler in front of Postgres must keep one session for each connection (pool_mode = session)"

/** LISTEN uses a client of its own, because a pooled one would serve other callers between notifications. */
async function listenForever(
  hosts: Hosts,
  pool: pg.Pool,
  listener: Listener,
  onError: (error: Error) => void,
  signal: AbortSignal,
  line: Line,
): Promise<void> {
  const client = clientOf(hosts, {
    application_name: "sluice-listen",
    connectionTimeoutMillis: requestDeadlines.connectMs,
  })
  const own = `${CHANNEL}_${randomBytes(8).toString("hex")}`
  let ended = false
  let timer: NodeJS.Timeout | undefined
  const end = () => {
    if (ended) return
    ended = true
    clearTimeout(timer)
    line.heardAt = Number.NEGATIVE_INFINITY
    listener.missed()
    client.end().catch(() => {})
    if (signal.aborted) return
    const again = setTimeout(() => listenForever(hosts, pool, listener, onError, signal, line).catch(onError), 1_000)
    again.unref()
  }
  const fail = (error: Error) => {
    if (!ended) onError(error)
    end()
  }
  let silentBeats = 0
  // Notifications are delivered in the order of their commits: when this one arrives, those of all earlier commits have
  // arrived.
  const beat = async () => {
    const sentAt = performance.now()
    // One text for every beat and process: pg_stat_statements stores each text, which with `notify` includes its
    // payload. While the database does not respond, no notification is missed.
    const text = "select pg_notify($1, $2)"
    const isSent = await pool
      .query({ text, values: [own, `${sentAt}`], query_timeout: MAX_SILENCE_MS } as pg.QueryConfig)
      .then(
        () => true,
        () => false,
      )
    if (ended) return
    if (isSent && ++silentBeats > MAX_SILENT_BEATS) return fail(new Error(SILENT))
    timer = setTimeout(() => void beat(), BEAT_MS)
    timer.unref()
  }
  client.on("notification", ({ channel, payload = "" }) => {
    if (channel !== own) return listener.notified(payload)
    silentBeats = 0
    if (!ended) line.heardAt = Number(payload)
  })
  client.on("error", fail)
  client.on("end", end)
  signal.addEventListener("abort", end, { once: true })
  try {
    await client.connect()
    await client.query({ text: `listen ${CHANNEL}; listen ${own}`, query_timeout: MAX_SILENCE_MS } as pg.QueryConfig)
    await beat()
  } catch (error) {
    fail(error as Error)
  }
}
