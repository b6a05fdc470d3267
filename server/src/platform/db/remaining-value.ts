/** SQL that reads how much of a transfer still counts. */
import { sql } from "kysely"

/** SQL: what of a transfer `t` with the claim `c`, if any, still counts: all but what a final return has sent back of it. */
export const remainingValue = sql<bigint>`(t.value - coalesce(c.given_back, 0))`

/** SQL: the columns of {@link remainingValue}. After `t.*`, the second `value` replaces the transfer's own. */
export const remainingValueColumns = sql`${remainingValue} as value, coalesce(c.given_back, 0) as given_back`
