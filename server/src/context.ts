/** What is passed as the first argument wherever I/O happens. */
import { setTimeout as sleep } from "node:timers/promises"
import type { Logger } from "pino"
import type { Chain, ChainInfo } from "./chain/networks.ts"
import type { Settings } from "./config/settings.ts"
import type { Db } from "./db/open.ts"
import type { Replica } from "./db/replica.ts"
import type { Wakes } from "./jobs/wake.ts"
import type { Limits } from "./limits/limiter.ts"
import type { Sellable } from "./settlement/sellable.ts"
import { codeOf, type Tracing } from "./tracing/trace.ts"

/**
 * What work inside a transaction gets, and what a function takes that touches the database alone: nothing that reaches a
 * network, so that a transaction which waits for an RPC endpoint or for Redis does not compile. Every {@link Context} is one,
 * never the reverse.
 */
export interface TxContext {
  /** The pool, or inside {@link inTransaction} the transaction. */
  db: Db
  settings: Settings
  log: Logger
  /** The service's time, which tests and the sandbox can move. Leases and tokens do not use it. */
  now: () => Date
  chain: ChainInfo
  wakes: Wakes
  /** All kinds of things that are for sale. */
  sells: readonly Sellable[]
  /** Runs an effect on this process alone (a metric) when the transaction is committed; never, where it is undone. */
  onCommit: (effect: () => void) => void
  /** Undefined where nothing is traced. */
  tracing?: Tracing | undefined
}

/** The {@link TxContext.onCommit} of work that is in no transaction. */
export const atOnce: TxContext["onCommit"] = effect => effect()

export interface Context extends TxContext {
  chain: Chain
  /** What requests are counted in. */
  limits: Limits
  /** Where lists and public reads go ({@link reading}); undefined: to the primary. */
  replica?: Replica | undefined
  /** Aborted when the process is to stop. */
  signal: AbortSignal
}

/**
 * The context for what only reads, and shows all that is committed by now: a list, a file, a page. Its database may be a replica.
 * What a decision about money or access depends on is read with the context itself.
 */
export async function reading(ctx: Context): Promise<TxContext> {
  return ctx.replica ? { ...ctx, db: await ctx.replica.reading() } : ctx
}

/** Of two deadlocked transactions, Postgres undoes one (SQLSTATE deadlock_detected). */
const DEADLOCK = "40P01"
const TRIES = 5
/** Before each retry: two victims that retry at once can deadlock again, and did so three times on a loaded machine. */
const mostPauseMs = (tried: number): number => 10 * 2 ** tried

/**
 * Runs `work` in one database transaction. The context it gets has the transaction as its `db`, so that the outer one
 * is out of reach (on PGlite it would wait for itself). After a deadlock it retries, so `work` must have no effects
 * except rows and what it passes to `onCommit`.
 */
export async function inTransaction<T>(ctx: Context, work: (ctx: TxContext) => Promise<T>): Promise<T> {
  const { tracing } = ctx
  if (!tracing?.active()) return await commit(ctx, work)
  // Timed and never active: what its rows make due continues the span around it.
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

async function commit<T>(ctx: Context, work: (ctx: TxContext) => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried++)
    try {
      const effects: (() => void)[] = []
      const onCommit: TxContext["onCommit"] = effect => void effects.push(effect)
      const result = await ctx.db.transaction().execute(db => work({ ...ctx, db, onCommit }))
      for (const effect of effects) effect()
      return result
    } catch (error) {
      if (tried === TRIES || (error as { code?: unknown }).code !== DEADLOCK) throw error
      ctx.log.info({ tried }, "transaction deadlocked; retrying")
      await sleep(Math.random() * mostPauseMs(tried))
    }
}
