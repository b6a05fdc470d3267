/**
 * Reads from a replica whose results are never older than the request. Each read asks the primary for its position in
 * the log, with a query that uses no table and that many reads share. The read goes to the replica once the replica has
 * replayed the log up to there. So callers see what they wrote, through any process, and what they were notified of. A
 * replica that needs longer than `maxLagMs`, is paused, or does not respond is taken out immediately, and the primary
 * serves the reads (`docs/contributors/decisions/0039-replica.md`).
 */
import { performance } from "node:perf_hooks"
import { setTimeout as sleep } from "node:timers/promises"
import { CompiledQuery, Kysely, PostgresDialect, type PostgresPool, sql } from "kysely"
import pg from "pg"
import type { Logger } from "pino"
import { replicaLag, replicaReads, replicaUsed, showReplica } from "../metrics.ts"
import { gather } from "./gather.ts"
import { TIMELINE } from "./hosts.ts"
import type { Db } from "./open.ts"
import { bounded, connect, DatabaseUnavailable, isFull, openPool, requestDeadlines } from "./pool.ts"
import type { Database } from "./schema.ts"

export interface Replica {
  /**
   * The database from which to read what was committed before this call: the replica, or the primary if the replica
   * lags. Never write to it.
   */
  reading(): Promise<Db>
  /** Why the replica is not used now, in words; undefined while it is used. */
  trouble(): string | undefined
  close(): Promise<void>
}

/** The wait between two queries of a lagging replica's position. */
const POLL_MS = 2
/** The wait between two checks, which bring back a replica that was taken out. */
const CHECK_MS = 500
/** How many checks in a row must find the replica up to date before it is used again. */
const GOOD_CHECKS = 3
/**
 * Checks read no files, so a replica with lost or damaged files passes them. Such a replica stays unused for this long.
 */
const DAMAGED_MS = 300_000
/** Deadlines for the queries about the replica's own state. */
const WATCH_DEADLINES = { connectMs: 2_000, statementMs: 1_000, lockMs: 1_000 }

/**
 * SQL: the position after which a commit from now on is written, whatever `synchronous_commit` is. After a segment was
 * closed, for example by `archive_timeout`, the position is after the header of an empty page. In that case, a replica
 * has replayed only up to that page.
 */
const PRIMARY = `
  select case when position % segment = 40 then position - 40 when position % block = 24 then position - 24 else position end as position,
    ${TIMELINE} as timeline, (select system_identifier::text from pg_control_system()) as cluster, current_database() as name
  from (select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as position,
    pg_size_bytes(current_setting('wal_segment_size'))::numeric as segment, current_setting('wal_block_size')::numeric as block) now`
/**
 * SQL: a replica's state. With `pg_read_all_stats` a role sees the timeline that the replica receives. Other roles see
 * the timeline of its last restartpoint, at most `checkpoint_timeout` after the primary was promoted.
 */
const REPLICA = `
  select pg_last_wal_replay_lsn() - '0/0'::pg_lsn as position, pg_is_in_recovery() as standby,
    greatest((select received_tli from pg_stat_wal_receiver), (select min_recovery_end_timeline from pg_control_recovery())) as timeline,
    (select system_identifier::text from pg_control_system()) as cluster, current_database() as name`

interface Position {
  position: bigint
  /** A promoted replica starts a new timeline. */
  timeline: number
  /** The same for a primary and all its replicas. */
  cluster: string
  name: string
}

/** A primary's position; `askedAt` is when the primary was queried, by the monotonic clock. */
type AskedPosition = Position & { askedAt: number }

/** A replica's position; `at` is when the replica responded, by the monotonic clock. */
type Answer = Position & { standby: boolean; at: number }

/** The most that {@link PRIMARY} subtracts. */
const HEADER_BYTES = 40n

/**
 * Opens the replica at `url` of the database `primary`, without waiting; the replica is used after its first good
 * check.
 */
export function openReplica(
  { url, maxLagMs }: { url: string; maxLagMs: number },
  primary: Db,
  log: Logger,
  deadlines = requestDeadlines,
): Replica {
  const use = useOf(log)
  // A server that was restarted may have replayed less than before.
  const onError = () => follower.forget()
  const pool = openPool(url, deadlines, onError)
  const watch = openPool(url, WATCH_DEADLINES, onError, 1)
  const follower = follow(watch)
  const askPrimary = gather(async (keys: readonly "now"[]) => {
    const askedAt = performance.now()
    const { rows } = await sql.raw<Position>(PRIMARY).execute(primary)
    const [row] = rows
    return new Map(row ? keys.map(key => [key, { ...row, askedAt }]) : [])
  })

  /** When the last check started that found everything replayed by the replica. */
  let nearAtMs = performance.now()
  const check = async (): Promise<void> => {
    const fromMs = performance.now()
    // The replica is queried first, so that its current state is compared: it may have been set up again.
    const unanswered = await follower.ask(maxLagMs)
    const now = await askPrimary("now")
    if (!now) return
    const found = unanswered ?? (await follower.reaches(now, maxLagMs))
    replicaLag.set((performance.now() - (found === undefined ? fromMs : nearAtMs)) / 1_000)
    if (found !== undefined) return use.leaveOut(found)
    nearAtMs = fromMs
    use.good()
  }
  const stopChecking = repeat(check)

  const db: Db = new Kysely<Database>({
    dialect: new PostgresDialect({
      pool: readingPool(bounded(pool, deadlines), primary, use),
    }),
  })
  const onPrimary = (): Db => {
    replicaReads.inc({ served: "primary" })
    return primary
  }
  return {
    trouble: use.trouble,
    reading: async () => {
      if (use.trouble() !== undefined) return onPrimary()
      const now = await askPrimary("now").catch(() => undefined)
      if (!now) return onPrimary()
      const found = await follower.reaches(now, maxLagMs)
      if (found !== undefined) {
        use.leaveOut(found)
        return onPrimary()
      }
      replicaReads.inc({ served: "replica" })
      return db
    },
    close: async () => {
      stopChecking()
      use.end()
      await Promise.all([pool.end(), watch.end()])
    },
  }
}

/** Checks now, and {@link CHECK_MS} after each check, until the returned function is called. */
function repeat(check: () => Promise<void>): () => void {
  let stopped = false
  let timer: NodeJS.Timeout | undefined
  const checkOn = async (): Promise<void> => {
    // Without an answer from the primary the replica's state is unknown, and nothing can be read from it.
    await check().catch(() => {})
    if (!stopped) timer = setTimeout(() => void checkOn(), CHECK_MS).unref()
  }
  void checkOn()
  return () => {
    stopped = true
    clearTimeout(timer)
  }
}

type Use = ReturnType<typeof useOf>

/** Stores whether the replica is used; logs when that changes. */
function useOf(log: Logger) {
  let trouble: string | undefined = "it was not checked yet"
  /** Called when the replica is taken out. */
  const waiting = new Set<() => void>()
  const stopAll = () => {
    for (const stop of waiting) stop()
    waiting.clear()
  }
  let good = GOOD_CHECKS - 1
  /** The replica is not used before this time, by the monotonic clock. */
  let notBefore = Number.NEGATIVE_INFINITY
  let ended = false
  showReplica()
  replicaUsed.set(0)
  return {
    trouble: () => trouble,
    /** Calls `stop` when the replica is taken out, unless the returned function is called first. */
    orElse: (stop: () => void) => {
      waiting.add(stop)
      return () => void waiting.delete(stop)
    },
    leaveOut: (why: string, atLeastMs = 0) => {
      good = 0
      notBefore = Math.max(notBefore, performance.now() + atLeastMs)
      if (trouble === undefined && !ended) log.warn(`the replica is left out, and the primary serves all reads: ${why}`)
      trouble = why
      replicaUsed.set(0)
      stopAll()
    },
    /** A check found the replica up to date with the primary. */
    good: () => {
      good++
      if (good < GOOD_CHECKS || trouble === undefined || performance.now() < notBefore) return
      log.info("the replica serves reads")
      trouble = undefined
      replicaUsed.set(1)
    },
    end: () => {
      ended = true
      stopAll()
    },
  }
}

/** Returns why the database at `url` can't serve reads for the primary that `query` reaches; undefined if it can. */
export async function replicaFault(
  { url, maxLagMs }: { url: string; maxLagMs: number },
  query: (text: string) => Promise<Record<string, unknown>[]>,
): Promise<string | undefined> {
  const watch = openPool(url, WATCH_DEADLINES, () => {}, 1)
  const follower = follow(watch)
  try {
    // The first query also opens a connection.
    const unanswered = await follower.ask(WATCH_DEADLINES.connectMs)
    const askedAt = performance.now()
    const [row] = await query(PRIMARY)
    const { position, timeline, cluster, name } = row as Record<keyof Position, unknown>
    const now = {
      position: BigInt(`${position}`),
      timeline: Number(timeline),
      cluster: `${cluster}`,
      name: `${name}`,
      askedAt,
    }
    return unanswered ?? (await follower.reaches(now, maxLagMs))
  } finally {
    await watch.end()
  }
}

/** Returns why the replica's answer does not fit the primary's history; undefined if it may fit. */
function faultOf(answer: Answer, now: AskedPosition): string | undefined {
  if (!answer.standby) return "it takes writes, so it is not a replica"
  if (answer.cluster !== now.cluster || answer.name !== now.name) return "it is a replica of another database"
  const timelines = `it is on timeline ${answer.timeline}, and the primary on ${now.timeline}`
  if (answer.timeline < now.timeline)
    return `${timelines}: it follows an earlier primary, or has had no restartpoint since this one was promoted`
  if (answer.timeline > now.timeline) return `${timelines}: it follows a primary that was promoted later`
  if (answer.at < now.askedAt && answer.position > now.position + HEADER_BYTES)
    return "it has data that the primary never had, because it follows an earlier primary. Set it up again from the current primary"
  return undefined
}

/** Tracks how far the replica behind `watch` has replayed. */
function follow(watch: pg.Pool) {
  /** The replica's last answer, even if the replica may have lost part of that since then. */
  let answer: Answer | undefined
  let isCertain = false
  const waiting = new Set<{ now: AskedPosition; done: (why: string | undefined) => void }>()
  let isPolling = false

  /** Queries the replica; returns why the query failed, or undefined. */
  async function ask(patienceMs: number): Promise<string | undefined> {
    try {
      answer = { ...(await within(patienceMs, stateOf(watch))), at: performance.now() }
      isCertain = true
      return undefined
    } catch (error) {
      isCertain = false
      return `it can't be queried: ${(error as Error).message}`
    }
  }

  const has = (now: AskedPosition) => isCertain && answer !== undefined && answer.position >= now.position

  /** Waits until the replica has replayed up to the primary's position `now`; returns why it has not, or undefined. */
  function reaches(now: AskedPosition, patienceMs: number): Promise<string | undefined> {
    const fault = answer && faultOf(answer, now)
    if (fault !== undefined || has(now)) return Promise.resolve(fault)
    return new Promise(resolve => {
      const done = (why: string | undefined) => {
        clearTimeout(timer)
        waiting.delete(waiter)
        resolve(why)
      }
      const timer = setTimeout(() => done(`it is more than ${patienceMs} ms behind`), patienceMs)
      const waiter = { now, done }
      waiting.add(waiter)
      if (!isPolling) void poll(patienceMs)
    })
  }

  async function poll(patienceMs: number): Promise<void> {
    isPolling = true
    while (waiting.size > 0) {
      const unanswered = await ask(patienceMs)
      for (const { now, done } of [...waiting]) {
        const why = unanswered ?? (answer && faultOf(answer, now))
        if (why !== undefined || has(now)) done(why)
      }
      if (waiting.size > 0) await sleep(POLL_MS)
    }
    isPolling = false
  }
  return {
    ask,
    reaches,
    /** The replica must be queried again before anything is read from it. */
    forget: () => {
      isCertain = false
    },
  }
}

async function stateOf(watch: pg.Pool): Promise<Omit<Answer, "at">> {
  const client = await connect(watch)
  try {
    const { rows } = await client.query<Omit<Answer, "at">>({
      text: REPLICA,
      query_timeout: WATCH_DEADLINES.statementMs,
    } as pg.QueryConfig)
    client.release()
    return rows[0] as Omit<Answer, "at">
  } catch (error) {
    client.release(true)
    throw error
  }
}

function within<T>(ms: number, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

/** The replica cancelled the statement, because it had to replay a change of rows that the statement still needed. */
const CONFLICT = "40001"

/**
 * Returns the replica's connections as Kysely uses them, one statement at a time. A statement that gets no answer, or
 * whose replica is taken out meanwhile, is repeated on the primary. That is safe, because the statement only reads.
 */
function readingPool(replica: PostgresPool, primary: Db, use: Use): PostgresPool {
  const onReplica = async (text: string, values: readonly unknown[]) => {
    const client = await replica.connect()
    try {
      return await client.query<unknown>(text, values)
    } catch (error) {
      if (codeOf(error) === CONFLICT) return undefined
      throw error
    } finally {
      client.release()
    }
  }
  const query = async (text: string, values: readonly unknown[]) => {
    if (!/^(select|with)\b/i.test(text.trimStart()))
      throw new Error("only reads are sent to a replica, and no transactions")
    if (use.trouble() === undefined) {
      // One promise for each statement: a reaction to a shared promise would stay in memory until that promise settles.
      const left = Promise.withResolvers<undefined>()
      const release = use.orElse(() => left.resolve(undefined))
      const answer = onReplica(text, values).catch((error: Error) => {
        if (isAnswer(error)) throw error
        if (DAMAGED.test(codeOf(error))) use.leaveOut(`its files are lost or damaged: ${error.message}`, DAMAGED_MS)
        else use.leaveOut(`a statement got no answer: ${error.message}`)
        return undefined
      })
      const result = await Promise.race([answer, left.promise]).finally(release)
      if (result) return result
    }
    const { rows } = await primary.executeQuery(CompiledQuery.raw(text, [...values]))
    return { command: "SELECT" as const, rowCount: rows.length, rows }
  }
  return {
    connect: async () => ({ query: query as never, release: () => {} }),
    end: () => replica.end(),
    options: replica.options,
  }
}

/** Returns the SQLSTATE of an error that the server reported, or an empty string for any other error. */
function codeOf(error: unknown): string {
  const cause = error instanceof DatabaseUnavailable ? error.cause : error
  return cause instanceof pg.DatabaseError ? (cause.code ?? "") : ""
}

/**
 * Whether an error comes from the statement, while the replica works. A statement that took too long, or found all
 * connections busy with such statements, proves nothing about the replica. The primary would take as long.
 */
function isAnswer(error: unknown): boolean {
  const code = codeOf(error)
  if (code === "") return isFull(error) || !(error instanceof DatabaseUnavailable)
  return !LOST.test(code) && !DAMAGED.test(code)
}
/** Class 57 without 57014, which is a statement that took too long. */
const LOST = /^(08|53|57P)/
const DAMAGED = /^(58|XX)/
