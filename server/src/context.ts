/** What is passed as the first argument wherever I/O happens. */
import type { Logger } from "pino"
import type { Chain } from "./chain/networks.ts"
import type { Db } from "./db/open.ts"
import type { Wakes } from "./jobs/wake.ts"
import type { Limits } from "./limits/open.ts"
import type { Settings } from "./settings.ts"

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

/**
 * Runs `work` in one database transaction; the context it gets has the transaction as its `db`, so that the outer one is
 * out of reach (on PGlite it would wait for itself).
 */
export function inTransaction<T>(ctx: Context, work: (ctx: Context) => Promise<T>): Promise<T> {
  return ctx.db.transaction().execute(db => work({ ...ctx, db }))
}
