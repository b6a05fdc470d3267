/** SQL that reads how much of a transfer still counts. */
import { type RawBuilder, sql } from "kysely"

/** SQL: how much of a transfer `t` with the claim `c`, if any, still counts, without final returns. */
export const remainingValue = sql<bigint>`(t.value - coalesce(c.given_back, 0))`

/** SQL: the columns of {@link remainingValue}. After `t.*`, the second `value` replaces the transfer's own. */
export const remainingValueColumns = sql`${remainingValue} as value, coalesce(c.given_back, 0) as given_back`

/**
 * SQL: how much of a transfer `t` is a surplus of a granted payment in one of these states. This is `withheld()` of the
 * schema, inlined: Postgres plans such a function at each call, which took 0.5 ms of each settlement.
 */
export const withheld = (...states: ("open" | "returned")[]): RawBuilder<bigint> =>
  sql.raw(`coalesce((select sum(ws.amount) from surpluses ws
      join claims wc on wc.transfer_id = ws.transfer_id and wc.payment_id = ws.payment_id
      join payments wp on wp.id = ws.payment_id and wp.status = 'granted'
    where ws.transfer_id = t.id and ws.state in (${states.map(state => `'${state}'`).join(", ")})), 0)`)
