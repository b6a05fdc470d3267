/** Measures the backlog of deliveries, for `/metrics`. */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import { webhookBacklog, webhookOldest } from "../../platform/metrics.ts"

/** The count stops here, because 100,000 index entries take about 20 ms. */
const MAX_COUNTED = 100_000
const EVERY_MS = 15_000

/** SQL: whether workers send a delivery. A listener's deliveries are pulled, so workers don't reduce their number. */
const isSent = sql`not starts_with(lane, 'lsn_')`

/** Measures the pending deliveries. Returns the milliseconds until the next measurement. */
export async function measureBacklog(ctx: Context): Promise<number> {
  const now = ctx.now()
  const { rows } = await sql<{ due: number; later: number; since: Date | null }>`
    with due as (select run_at from deliveries where status = 'pending' and run_at <= ${now} and ${isSent} limit ${MAX_COUNTED}),
      later as (select from deliveries where status = 'pending' and run_at > ${now} and ${isSent} limit ${MAX_COUNTED})
    select (select count(*) from due)::int as due, (select count(*) from later)::int as later,
      (select min(run_at) from due) as since`.execute(ctx.db)
  const { due = 0, later = 0, since = null } = rows[0] ?? {}
  webhookBacklog.set({ state: "due" }, due)
  webhookBacklog.set({ state: "retry" }, later)
  webhookOldest.set(since ? Math.max(0, (now.getTime() - since.getTime()) / 1_000) : 0)
  return EVERY_MS
}
