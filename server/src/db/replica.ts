/**
 * Reads from a replica that are never older than the moment they were asked for. Each asks the primary for its position in the log, a
 * question without a table that many reads share, and is sent to the replica when that has replayed so much. So whoever wrote
 * before, through any process, or was notified of what another wrote, sees it. A replica that needs longer than `maxLagMs`, is paused,
 * or does not answer is left out at once, and the primary serves (`docs/decisions/0039-replica.md`).
 */
import { performance } from "node:perf_hooks"
import { setTimeout as sleep } from "node:timers/promises"
import { CompiledQuery, Kysely, PostgresDialect, type PostgresPool, sql } from "kysely"
import type pg from "pg"
import type { Logger } from "pino"
import { replicaLag, replicaReads, replicaUsed, showReplica } from "../metrics.ts"
import { gather } from "./gather.ts"
import type { Db } from "./open.ts"
import { connect, DatabaseUnavailable, isUnavailable, openPool, requestDeadlines } from "./pool.ts"
import type { Database } from "./schema.ts"

export interface Replica {
  /** Where to read what was committed before this call: the replica, or the primary where that is not so far. Never for writes. */
  reading(): Promise<Db>
  /** Why the replica is left out now, in words; undefined while it is used. */
  trouble(): string | undefined
  close(): Promise<void>
}

/** Between two questions to a replica that is behind. */
const POLL_MS = 2
/** Between two checks, which bring back a replica that was left out. */
const CHECK_MS = 500
/** A replica that was left out has to be near this many times in a row. */
const GOOD_CHECKS = 3
/** Its answers to questions about itself. */
const WATCH_DEADLINES = { connectMs: 2_000, statementMs: 1_000, lockMs: 1_000 }

/**
 * The position after which a commit of now is written, whatever `synchronous_commit` is. After a segment was closed, as
 * `archive_timeout` does, it is behind the header of a page on which there is nothing, and a replica has replayed up to that page.
 */
const PRIMARY = `
  select case when position % segment = 40 then position - 40 when position % block = 24 then position - 24 else position end as position,
    (select system_identifier::text from pg_control_system()) as cluster, current_database() as name
  from (select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as position,
    pg_size_bytes(current_setting('wal_segment_size'))::numeric as segment, current_setting('wal_block_size')::numeric as block) now`
const REPLICA = `
  select pg_last_wal_replay_lsn() - '0/0'::pg_lsn as position, pg_is_in_recovery() as standby,
    (select system_identifier::text from pg_control_system()) as cluster, current_database() as name`

interface Position {
  position: bigint
  /** When it was asked for, by the monotonic clock. */
  askedAt: number
  /** The same of a primary and of all its replicas. */
  cluster: string
  name: string
}

type Found = Omit<Position, "askedAt"> & { standby: boolean }

/** What {@link PRIMARY} takes off at most. */
const HEADER_BYTES = 40n

/** Opens the replica at `url` of the database `primary`; it is used from its first good check on, which this does not wait for. */
export function openReplica({ url, maxLagMs }: { url: string; maxLagMs: number }, primary: Db, log: Logger): Replica {
  const use = useOf(log)
  // A server that was started again may have replayed less than it had.
  const onError = () => follower.forget()
  const pool = openPool(url, requestDeadlines, onError)
  const watch = openPool(url, WATCH_DEADLINES, onError, 1)
  const follower = follow(watch)
  const askPrimary = gather(async (keys: readonly "now"[]) => {
    const askedAt = performance.now()
    const { rows } = await sql.raw<Omit<Position, "askedAt">>(PRIMARY).execute(primary)
    const [row] = rows
    return new Map(row ? keys.map(key => [key, { ...row, askedAt }]) : [])
  })

  /** When a check began after which it had everything. */
  let nearAtMs = performance.now()
  const check = async (): Promise<void> => {
    const fromMs = performance.now()
    const now = await askPrimary("now")
    if (!now) return
    const found =
      follower.isAhead(now) ?? (await follower.ask(now, maxLagMs)) ?? (await follower.reaches(now, maxLagMs))
    replicaLag.set((performance.now() - (found === undefined ? fromMs : nearAtMs)) / 1_000)
    if (found !== undefined) return use.leaveOut(found)
    nearAtMs = fromMs
    use.good()
  }
  let closed = false
  let timer: NodeJS.Timeout | undefined
  const checkOn = async (): Promise<void> => {
    // Without an answer of the primary nothing is known of the replica, and nothing can be read from it.
    await check().catch(() => {})
    if (!closed) timer = setTimeout(() => void checkOn(), CHECK_MS).unref()
  }
  void checkOn()

  const db: Db = new Kysely<Database>({
    dialect: new PostgresDialect({
      pool: readingPool(pool, primary, use),
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
      const found = follower.isAhead(now) ?? (await follower.reaches(now, maxLagMs))
      if (found !== undefined) {
        use.leaveOut(found)
        return onPrimary()
      }
      replicaReads.inc({ served: "replica" })
      return db
    },
    close: async () => {
      closed = true
      clearTimeout(timer)
      use.end()
      await Promise.all([pool.end(), watch.end()])
    },
  }
}

type Use = ReturnType<typeof useOf>

/** Whether the replica is used; logs when that changes. */
function useOf(log: Logger) {
  let trouble: string | undefined = "it was not checked yet"
  /** Called when the replica is left out. */
  const waiting = new Set<() => void>()
  const stopAll = () => {
    for (const stop of waiting) stop()
    waiting.clear()
  }
  let good = GOOD_CHECKS - 1
  let ended = false
  showReplica()
  replicaUsed.set(0)
  return {
    trouble: () => trouble,
    /** Calls `stop` when the replica is left out, unless the returned function is called before. */
    orElse: (stop: () => void) => {
      waiting.add(stop)
      return () => void waiting.delete(stop)
    },
    leaveOut: (why: string) => {
      good = 0
      if (trouble === undefined && !ended) log.warn(`the replica is left out, and the primary serves all reads: ${why}`)
      trouble = why
      replicaUsed.set(0)
      stopAll()
    },
    /** A check found it near. */
    good: () => {
      good++
      if (good < GOOD_CHECKS || trouble === undefined) return
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

/** Why the database at `url` can't serve reads beside the one that `query` asks, in words; undefined where it can. */
export async function replicaFault(
  { url, maxLagMs }: { url: string; maxLagMs: number },
  query: (text: string) => Promise<Record<string, unknown>[]>,
): Promise<string | undefined> {
  const [row] = await query(PRIMARY)
  const askedAt = performance.now()
  const now = { position: BigInt(`${row?.position}`), askedAt, cluster: `${row?.cluster}`, name: `${row?.name}` }
  const watch = openPool(url, WATCH_DEADLINES, () => {}, 1)
  const follower = follow(watch)
  // Its first answer takes a connection.
  const found = (await follower.ask(now, WATCH_DEADLINES.connectMs)) ?? (await follower.reaches(now, maxLagMs))
  const [later] = await query(PRIMARY)
  const ahead = follower.isAhead({ position: BigInt(`${later?.position}`), askedAt: performance.now() })
  await watch.end()
  return found ?? ahead
}

/** What the replica at the other end of `watch` has replayed. Each answer is why it is not as far as the primary `now`, or undefined. */
function follow(watch: pg.Pool) {
  let replayed = -1n
  /** Its last answer, also where it may have lost some of it since. */
  let answered = { position: -1n, at: 0 }
  const waiting = new Set<{ position: bigint; done: (why: string | undefined) => void }>()
  let isPolling = false

  /** Asks it, also where it is known to be far enough. */
  async function ask(now: Position, patienceMs: number): Promise<string | undefined> {
    try {
      const found = await within(patienceMs, stateOf(watch))
      if (!found.standby) return "it takes writes, so it is no replica"
      if (found.cluster !== now.cluster || found.name !== now.name) return "it is a replica of another database"
      replayed = found.position
      answered = { position: found.position, at: performance.now() }
      return undefined
    } catch (error) {
      replayed = -1n
      return `it can't be asked: ${(error as Error).message}`
    }
  }

  /**
   * Why it is no replica of a primary that says `now`, where it had replayed more before that was asked: it follows one that was
   * lost, and has what this one never had.
   */
  const isAhead = (now: Pick<Position, "position" | "askedAt">): string | undefined =>
    answered.at < now.askedAt && answered.position > now.position + HEADER_BYTES
      ? "it has what the primary never had: it follows an earlier primary. Set it up again from this one"
      : undefined

  /** Waits until it has replayed as much; `now` is of the primary that {@link ask} compared it with. */
  function reaches(now: Position, patienceMs: number): Promise<string | undefined> {
    if (replayed >= now.position) return Promise.resolve(undefined)
    return new Promise(resolve => {
      const done = (why: string | undefined) => {
        clearTimeout(timer)
        waiting.delete(waiter)
        resolve(why)
      }
      const timer = setTimeout(() => done(`it is more than ${patienceMs} ms behind`), patienceMs)
      const waiter = { position: now.position, done }
      waiting.add(waiter)
      if (!isPolling) void poll(now, patienceMs)
    })
  }

  async function poll(now: Position, patienceMs: number): Promise<void> {
    isPolling = true
    while (waiting.size > 0) {
      const why = await ask(now, patienceMs)
      for (const { position, done } of [...waiting]) if (why !== undefined || replayed >= position) done(why)
      if (waiting.size > 0) await sleep(POLL_MS)
    }
    isPolling = false
  }
  return {
    ask,
    reaches,
    isAhead,
    /** It has to be asked before it is read from again. */
    forget: () => {
      replayed = -1n
    },
  }
}

async function stateOf(watch: pg.Pool): Promise<Found> {
  const client = await connect(watch)
  try {
    const { rows } = await client.query<Found>({
      text: REPLICA,
      query_timeout: WATCH_DEADLINES.statementMs,
    } as pg.QueryConfig)
    client.release()
    return rows[0] as Found
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

/** What a replica cancels because it has to replay what the statement still needs. */
const CONFLICT = "40001"

/**
 * The replica's connections as Kysely uses them, one statement at a time. A statement that the replica does not answer, or whose
 * replica is left out meanwhile, is repeated on the primary: it only reads.
 */
function readingPool(pool: pg.Pool, primary: Db, use: Use): PostgresPool {
  const onReplica = async (text: string, values: unknown[]): Promise<pg.QueryResult | undefined> => {
    const client = await connect(pool)
    let broken = true
    try {
      const result = await client.query({ text, values, query_timeout: requestDeadlines.statementMs } as pg.QueryConfig)
      broken = false
      return result
    } catch (error) {
      broken = !isAnswer(error)
      if (!broken && (error as { code?: string }).code === CONFLICT) return undefined
      throw error
    } finally {
      client.release(broken)
    }
  }
  const query = async (text: string, values: unknown[]) => {
    if (!/^(select|with)\b/i.test(text.trimStart()))
      throw new Error("only reads are sent to a replica, and no transactions")
    if (use.trouble() === undefined) {
      // One promise for each statement: a reaction to one that all share would stay in memory as long as that is open.
      const left = Promise.withResolvers<undefined>()
      const release = use.orElse(() => left.resolve(undefined))
      const answer = onReplica(text, values).catch((error: Error) => {
        if (isAnswer(error)) throw error
        use.leaveOut(`a statement got no answer: ${error.message}`)
        return undefined
      })
      const result = await Promise.race([answer, left.promise]).finally(release)
      if (result) return result
    }
    const { rows } = await primary.executeQuery(CompiledQuery.raw(text, values))
    return { command: "SELECT" as const, rowCount: rows.length, rows }
  }
  return {
    connect: async () => ({ query: query as never, release: () => {} }),
    end: () => pool.end(),
    options: pool.options,
  }
}

/**
 * Whether the server answered about the statement, and works on. One that took too long is an answer: it would take the primary as
 * long. A file that is lost or damaged (classes 58 and XX) is none.
 */
const isAnswer = (error: unknown): boolean => {
  const code = error instanceof Error ? `${(error as { code?: unknown }).code}` : ""
  if (code === QUERY_CANCELED) return true
  return !/^(58|XX)/.test(code) && !isUnavailable(error) && !(error instanceof DatabaseUnavailable)
}
const QUERY_CANCELED = "57014"
