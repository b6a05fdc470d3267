/**
 * A pool of Postgres connections on which nothing waits forever. The server ends statements and lock waits that take
 * too long. Our own deadline ends statements that the server never answers, because it is paused or the connection is
 * cut. In both cases, and if there is no connection, the caller gets a {@link DatabaseUnavailable}.
 */
import type { PostgresPool, PostgresPoolClient } from "kysely"
import pg from "pg"
import { transactional } from "./begin.ts"
import { clientOf, hostsOf } from "./hosts.ts"

/** How long one user of the database may wait, each in milliseconds, and what its statements may use. */
export interface Deadlines {
  /** The wait for a new connection, and for a free connection in a full pool. */
  connectMs: number
  /** The time for the server to run one statement. */
  statementMs: number
  /** The wait for a lock that another transaction holds. */
  lockMs: number
  /**
   * Whether a large read may start parallel workers. Starting workers takes 5 ms, which is more than a request's
   * statement takes.
   */
  parallel?: true
}

/** Limits for requests, where a caller waits. Statements of requests take milliseconds. */
export const requestDeadlines: Deadlines = { connectMs: 10_000, statementMs: 10_000, lockMs: 5_000 }
/**
 * Limits for the background loops: comparing the books and deleting old rows read whole tables. A statement that is too
 * slow must still end at some point. Otherwise, its connection would wait forever for a server that has vanished.
 */
export const backgroundDeadlines: Deadlines = {
  connectMs: 10_000,
  statementMs: 600_000,
  lockMs: 60_000,
  parallel: true,
}

/** A transaction that is idle for this long belongs to a process that hangs, so its locks are released. */
const IDLE_IN_TRANSACTION_MS = 60_000
/** Added to the server's own deadline, so that the server's error arrives first while it can answer. */
const ANSWER_MARGIN_MS = 2_000
const POOL_SIZE = 10
/**
 * How long an unused connection is kept. Rounds are seconds apart, and the library's default of ten seconds closed
 * connections between rounds. A new connection costs Postgres a process, which plans each named statement five more
 * times.
 */
const IDLE_MS = 60_000

/**
 * The database could not be reached or did not finish in time. A transaction whose COMMIT got no answer may have been
 * committed; every other transaction was rolled back and is safe to repeat.
 */
export class DatabaseUnavailable extends Error {
  constructor(cause: unknown) {
    super(`the database is not available: ${wordsOf(cause)}`, { cause })
    this.name = "DatabaseUnavailable"
  }
}

/**
 * Whether all connections of a pool were busy for too long. The pool's statements may then be slow even though the server is healthy.
 */
export const isFull = (error: unknown): boolean =>
  error instanceof DatabaseUnavailable && wordsOf(error.cause) === "timeout exceeded when trying to connect"

/** The message of an error. An address with several IPs fails with an AggregateError, which has no message. */
export const wordsOf = (error: unknown): string =>
  error instanceof AggregateError ? error.errors.map(each => wordsOf(each)).join(", ") : (error as Error).message

/** How many hosts the address of a pool has, if it has several. */
const hostCounts = new WeakMap<pg.Pool, number>()

/** Opens a pool of at most `size` connections, ten by default; nothing connects before the first query. */
export function openPool(
  url: string,
  deadlines: Deadlines,
  onError: (error: Error) => void,
  size = POOL_SIZE,
): pg.Pool {
  const { connectMs, statementMs, lockMs, parallel = false } = deadlines
  const hosts = hostsOf(url)
  // The pool calls this function with `new`, and gets the client that it returns.
  function HostClient(options: pg.ClientConfig): pg.Client {
    return clientOf(hosts, options)
  }
  const types = {
    getTypeParser: (oid: number, format?: "text" | "binary") =>
      oid === INT8 || oid === NUMERIC ? BigInt : pg.types.getTypeParser(oid, format),
  } as pg.CustomTypesConfig
  const pool = new pg.Pool({
    max: size,
    idleTimeoutMillis: IDLE_MS,
    types,
    application_name: "sluice",
    connectionTimeoutMillis: connectMs / hosts.count,
    Client: HostClient as unknown as new () => pg.Client,
    onConnect: client => {
      // The pool listens for errors only while a connection is idle; an error between statements would also end the
      // process.
      client.on("error", onError)
      // Set by a statement, because a pooler in between refuses unknown startup parameters. `jit`: every statement is
      // short, but estimates over a large table make Postgres compile some of them first, which takes 20 ms each time.
      const settings = [
        "set jit = off",
        ...(parallel ? [] : ["set max_parallel_workers_per_gather = 0"]),
        `set statement_timeout = ${statementMs}`,
        `set lock_timeout = ${lockMs}`,
        `set idle_in_transaction_session_timeout = ${IDLE_IN_TRANSACTION_MS}`,
      ]
      // The pool waits for this, so no connection is used without its deadlines.
      return client.query({ text: settings.join("; "), query_timeout: connectMs } as pg.QueryConfig)
    },
  })
  hostCounts.set(pool, hosts.count)
  // The pool replaces an idle connection that breaks; without a listener the error would end the process.
  pool.on("error", onError)
  return pool
}

const INT8 = 20
const NUMERIC = 1700

/** PGlite's parsers for the types that a pool here returns as bigint: int8 and numeric. */
export const bigintParsers = { [INT8]: BigInt, [NUMERIC]: BigInt }

/**
 * Returns the pool as Kysely uses it: each statement has a deadline, and a connection that missed its deadline is
 * closed.
 */
export function bounded(pool: pg.Pool, { statementMs }: Deadlines, areSessions = () => false): PostgresPool {
  return {
    connect: async () => boundedClient(await connect(pool), statementMs + ANSWER_MARGIN_MS, areSessions),
    end: () => pool.end(),
    options: pool.options,
  }
}

/** Returns a connection to the host that accepts writes; throws {@link DatabaseUnavailable} if none is free in time. */
export async function connect(pool: pg.Pool): Promise<pg.PoolClient> {
  const tries = hostCounts.get(pool) ?? 1
  for (let tried = 1; ; tried++)
    try {
      return await pool.connect()
    } catch (error) {
      if (tried === tries) throw new DatabaseUnavailable(error)
    }
}

function boundedClient(client: pg.PoolClient, answerMs: number, areSessions: () => boolean): PostgresPoolClient {
  let lost: DatabaseUnavailable | undefined
  const statements = transactional(client, answerMs)
  const query = async (text: string, values: unknown[]) => {
    // Rolling back a transaction on a lost connection would wait for the same server again.
    if (lost) throw lost
    const [, named, deferred] = NAMED.exec(text) ?? (text.endsWith("*/") ? (NAMED_LAST.exec(text) ?? []) : [])
    const name = areSessions() ? named : undefined
    try {
      const isDeferred = deferred !== undefined
      return await statements.query({ name, text, values, query_timeout: answerMs, isDeferred })
    } catch (error) {
      const code = error instanceof pg.DatabaseError ? error.code : undefined
      const isStale = name !== undefined && STALE.test(code ?? "")
      if (!isStale && !isUnavailable(error)) throw error
      const unavailable = new DatabaseUnavailable(error)
      // After an error from the server the connection is usable. Exceptions are a server that is no longer a primary,
      // or that no longer has the prepared statement. Without an answer nobody knows what the server still does.
      if (code === undefined || code === READ_ONLY || isStale) lost = unavailable
      throw unavailable
    }
  }
  /** Kysely discards a connection whose rollback failed, because the next user would be inside the transaction. */
  const release = (discard?: unknown) => {
    statements.end()
    client.release(lost ?? discard === true)
  }
  return { query: query as unknown as PostgresPoolClient["query"], release }
}

const READ_ONLY = "25006"
/**
 * SQLSTATE of a named statement whose result a migration changed, or whose name the session does not know, or already
 * knows.
 */
const STALE = /^(0A000|26000|42P05)$/

/**
 * Matches a statement that a comment names, first or after `select`: `/* named: emit *\/`. Kysely's inserts and updates
 * have the comment at the end. A connection parses such a statement once, and mostly plans it once. Doing this each
 * time was half of the cost of `emit`. Name only statements that run all the time, with one text and a list of columns.
 * A named `select *` fails after a migration that adds a column. The name is used only if each connection is known to
 * have a session of its own. Behind a pooler that shares sessions, other sessions would not know the name.
 *
 * Nobody reads the result of `/* named: emit, deferred *\/`: the statement is sent with the commit, or before the
 * transaction's next statement.
 */
const NAMED = /^\s*(?:select )?\/\* named: (\w+)(, deferred)? \*\//
const NAMED_LAST = /\/\* named: (\w+) \*\/$/

/**
 * SQLSTATE classes: 08 connection exceptions, 53 no disk, memory or connections left, 57 shutdowns and cancelled
 * statements. Also lock_not_available, idle_in_transaction_session_timeout, and read_only_sql_transaction, which a
 * standby reports.
 */
const UNAVAILABLE = /^(08|53|57)|^(55P03|25P03|25006)$/

/** Whether an error of `pg` concerns the server or the connection, and not the statement. */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return UNAVAILABLE.test(error.code ?? "")
  const { code, message } = error as { code?: unknown; message?: unknown }
  return typeof code === "string" ? /^E[A-Z]+$/.test(code) : LOST.test(`${message}`)
}

/** The client library's messages that have no code. */
const LOST = /^(Query read timeout|Connection terminated|Client has encountered a connection error|Client was closed)/
