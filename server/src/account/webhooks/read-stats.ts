/** The results of an endpoint's deliveries, by hour or day. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { STATS_AT_MOST } from "./webhook.ts"

const HOUR_MS = 3_600_000
const periods = { hour: { ms: HOUR_MS, count: 48 }, day: { ms: 24 * HOUR_MS, count: 30 } }
/** The maximum number of attempts read per delivery, because a delivery can be resent any number of times. */
const ATTEMPTS_AT_MOST = 100

export type Period = keyof typeof periods

interface PeriodRow {
  since: Date
  from: Date | null
  delivered: number
  failed: number
  pending: number
  skipped: number
  attempts: number
  p50: number | null
  p95: number | null
}

const nothing = { delivered: 0, failed: 0, pending: 0, skipped: 0, attempts: 0, p50Ms: null, p95Ms: null }

/**
 * An endpoint's last 48 hours or 30 days, oldest first, from at most its newest {@link STATS_AT_MOST} deliveries. A
 * delivery counts in the period of its creation, with all its attempts.
 */
export async function statsOf(ctx: TxContext, webhookId: string, by: Period = "hour") {
  const { ms, count } = periods[by]
  const last = Math.floor(ctx.now().getTime() / ms) * ms
  const begins = Array.from({ length: count }, (_, n) => last - (count - 1 - n) * ms)
  const first = new Date(begins[0] ?? last)
  // The limit in `tried` keeps the planner from reading the attempts of all merchants.
  const { rows } = await sql<PeriodRow>`/* named: webhook_stats */
    with counted as materialized (select id, status, created_at, date_trunc(${by}, created_at, 'UTC') as period
      from deliveries where webhook_id = ${webhookId} and created_at >= ${first}
      order by created_at desc, id desc limit ${STATS_AT_MOST}),
    made as (select period, count(*) filter (where status = 'delivered')::int as delivered,
        count(*) filter (where status = 'failed')::int as failed, count(*) filter (where status = 'pending')::int as pending,
        count(*) filter (where status = 'skipped')::int as skipped
      from counted group by period),
    tried as (select period, count(*)::int as attempts, percentile_disc(array[0.5, 0.95]) within group (order by a.duration_ms) as ms
      from counted c cross join lateral (select duration_ms from delivery_attempts where delivery_id = c.id
        order by id desc limit ${ATTEMPTS_AT_MOST}) a group by period)
    select s.since, made.period as "from", delivered, failed, pending, skipped, coalesce(attempts, 0) as attempts,
      tried.ms[1] as p50, tried.ms[2] as p95
    from (select case when count(*) = ${STATS_AT_MOST} then min(created_at) else ${first}::timestamptz end as since from counted) s
      left join made on true left join tried on tried.period = made.period`.execute(ctx.db)
  const found = new Map(rows.map(row => [row.from?.getTime(), row]))
  return {
    by,
    since: (rows[0]?.since ?? first).toISOString(),
    periods: begins.map(begin => ({ from: new Date(begin).toISOString(), ...numbersOf(found.get(begin)) })),
  }
}

function numbersOf(row: PeriodRow | undefined) {
  if (!row) return nothing
  const { delivered, failed, pending, skipped, attempts, p50: p50Ms, p95: p95Ms } = row
  return { delivered, failed, pending, skipped, attempts, p50Ms, p95Ms }
}
