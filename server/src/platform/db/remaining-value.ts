/** SQL that reads how much of a transfer still counts. */
import { sql } from "kysely"

/** SQL: what of a transfer `t` with the claim `c`, if any, still counts: all but what a final return has sent back of it. */
export const leftOver = sql<bigint>`(t.value - coalesce(c.given_back, 0))`

/** SQL: the columns of {@link leftOver}. After `t.*`, the second `value` replaces the transfer's own. */
export const leftOverColumns = sql`${leftOver} as value, coalesce(c.given_back, 0) as given_back`
