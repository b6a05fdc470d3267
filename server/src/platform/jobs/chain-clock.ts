/** The time for decisions that can't be undone. */
import { type RawBuilder, sql } from "kysely"
import type { Context } from "../context.ts"

/**
 * How far this process's clock may always be ahead of the newest block that the scan has read. A round of the scan
 * takes seconds. A longer gap means that the scan is behind, the chain has stopped, or a clock is wrong.
 */
const AHEAD_MS = 600_000

/**
 * SQL: this process's time, but at most ten minutes (or two intervals of the scan) after the newest scanned block of a
 * chain. A worker whose clock is days ahead would otherwise release reserved money, expire checkouts and cancel
 * payouts, for every process, and permanently. While the scan is behind, these decisions wait for the scan. Without a
 * scan, the result is this process's time.
 */
export const chainClock = (
  { now, settings }: Pick<Context, "now" | "settings">,
  chainId: RawBuilder<unknown>,
): RawBuilder<Date> =>
  sql<Date>`least(${now()}::timestamptz, (select c.block_time
      + make_interval(secs => ${Math.max(AHEAD_MS, 2 * settings.verifyIntervalMs) / 1_000})
    from cursors c where c.chain_id = ${chainId}))`
