/** The first argument of every function that does I/O. */
import { setTimeout as sleep } from "node:timers/promises"
import type { Logger } from "pino"
import { CREDENTIAL_ENDED, MEMBER_CHANGED } from "./actor.ts"
import type { ChainInfo } from "./chain/network-facts.ts"
import type { Chain } from "./chain/networks.ts"
import type { Settings } from "./config/settings.ts"
import type { Db } from "./db/open.ts"
import type { Replica } from "./db/open-replica.ts"
import type { DatabaseClock } from "./db/watch-clock.ts"
import { ApiError } from "./errors.ts"
import type { Wakes } from "./jobs/wake.ts"
import type { Limits } from "./limits/limiter.ts"
import { codeOf, type Tracing } from "./tracing/tracing.ts"

/**
 * The context of work inside a transaction, and of functions that use only the database. This context contains nothing
 * that reaches a network, so a transaction that waits for an RPC endpoint or for Redis does not compile. Every
 * {@link Context} is such a context; the reverse is not true.
 */
export interface TxContext {
  /** The pool, or inside {@link inTransaction} the transaction. */
  db: Db
  settings: Settings
  log: Logger
  /**
   * The service's time: the database's, which tests and the sandbox can move. Leases and tokens do not use this time.
   */
  now: () => Date
  /** Undefined if the database is embedded: its clock is this machine's. */
  clock?: DatabaseClock | undefined
  chain: ChainInfo
  wakes: Wakes
  /** Runs an effect on this process only (a metric) when the transaction commits; never if it is rolled back. */
  onCommit: (effect: () => void) => void
  /** Undefined if nothing is traced. */
  tracing?: Tracing | undefined
}

/** The database's time, which nothing moves: for nonces, tokens and signatures, which other systems keep or check. */
export const wallTime = ({ clock }: Pick<TxContext, "clock">): Date => clock?.now() ?? new Date()

/** The {@link TxContext.onCommit} of work outside a transaction. */
export const atOnce: TxContext["onCommit"] = effect => effect()

export interface Context extends TxContext {
  chain: Chain
  /** Counts requests for the rate limits. */
  limits: Limits
  /** The replica for lists and public reads ({@link reading}); undefined if they use the primary. */
  replica?: Replica | undefined
  /** Aborted when the process must stop. */
  signal: AbortSignal
}

/**
 * The context for work that only reads, such as a list, a file or a page. Such work sees everything that was committed
 * before it started. The database of this context may be a replica. Data that decides about money or access is read
 * with the original context.
 */
export async function reading(ctx: Context): Promise<TxContext> {
  return ctx.replica ? { ...ctx, db: await ctx.replica.reading() } : ctx
}

/** A context inside a transaction: everything that `C` adds, but no access to a network. */
export type InTransaction<C extends Context> = TxContext & Omit<C, keyof Context>

/** Postgres rolls back one of two deadlocked transactions with this code (deadlock_detected). */
const DEADLOCK = "40P01"
const TRIES = 5
/**
 * The longest pause before each retry. Two transactions that retry immediately can deadlock again; on a loaded machine
 * that happened three times.
 */
const maxPauseMs = (tried: number): number => 10 * 2 ** tried

/**
 * Runs `work` in one database transaction. The context that `work` gets has the transaction as its `db`; `work` must
 * not use the outer context (on PGlite, it would wait for itself). After a deadlock `work` runs again, so its only
 * effects may be rows and `onCommit` callbacks.
 */
export async function inTransaction<C extends Context, T>(
  ctx: C,
  work: (ctx: InTransaction<C>) => Promise<T>,
): Promise<T> {
  const { tracing } = ctx
  if (!tracing?.active()) return await commit(ctx, work)
  // The span is timed but never active: work that the transaction's rows make due continues the span around it.
  const span = tracing.start("transaction", { kind: "client", attributes: { "db.system.name": "postgresql" } })
  try {
    return await commit(ctx, work)
  } catch (error) {
    span.fail(codeOf(error))
    throw error
  } finally {
    span.end()
  }
}

async function commit<C extends Context, T>(ctx: C, work: (ctx: InTransaction<C>) => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried++)
    try {
      const effects: (() => void)[] = []
      const onCommit: TxContext["onCommit"] = effect => void effects.push(effect)
      const result = await ctx.db.transaction().execute(db => work({ ...ctx, db, onCommit }))
      for (const effect of effects) effect()
      return result
    } catch (error) {
      if ((error as { code?: unknown }).code === MEMBER_CHANGED) throw memberChanged(error)
      if ((error as { code?: unknown }).code === CREDENTIAL_ENDED) throw credentialEnded(error)
      if (tried === TRIES || (error as { code?: unknown }).code !== DEADLOCK) throw error
      ctx.log.info({ tried }, "transaction deadlocked; retrying")
      await sleep(Math.random() * maxPauseMs(tried))
    }
}

const credentialEnded = (cause: unknown): ApiError =>
  new ApiError(
    "UNAUTHORIZED",
    undefined,
    "Your key or session was ended while this request ran. Nothing was written.",
    cause,
  )

const memberChanged = (cause: unknown): ApiError =>
  new ApiError("ROLE_REQUIRED", undefined, "Your role changed while this request ran. Nothing was written.", cause)
