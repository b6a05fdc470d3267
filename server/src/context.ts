/** What is passed as the first argument wherever I/O happens. */
import type { Logger } from "pino"
import type { Chain } from "./chain/networks.ts"
import type { Settings } from "./config/settings.ts"
import type { Db } from "./db/open.ts"
import type { Wakes } from "./jobs/wake.ts"
import type { Limits } from "./limits/limiter.ts"

export interface Context {
  /** The pool, or inside {@link inTransaction} the transaction. */
  db: Db
  settings: Settings
  log: Logger
  /** The service's time, which tests and the sandbox can move. Leases and tokens do not use it. */
  now: () => Date
  chain: Chain
  wakes: Wakes
  /** What requests are counted in. */
  limits: Limits
  /** Aborted when the process is to stop. */
  signal: AbortSignal
}

/** Of two deadlocked transactions, Postgres undoes one (SQLSTATE deadlock_detected). */
const DEADLOCK = "40P01"
const TRIES = 3

/**
 * Runs `work` in one database transaction. The context it gets has the transaction as its `db`, so that the outer one
 * is out of reach (on PGlite it would wait for itself). After a deadlock it retries, so `work` must have no effects
 * except rows.
 */
export async function inTransaction<T>(ctx: Context, work: (ctx: Context) => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried++)
    try {
      return await ctx.db.transaction().execute(db => work({ ...ctx, db }))
    } catch (error) {
      if (tried === TRIES || (error as { code?: unknown }).code !== DEADLOCK) throw error
      ctx.log.info({ tried }, "a transaction that waited for another in turn is done again")
    }
}
