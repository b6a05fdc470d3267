/** Rows as one parameter of a statement, whose text is then the same for any number of them: a named statement is prepared once. */
import { type RawBuilder, sql } from "kysely"

/**
 * A query of these rows. `columns`: their names and types, as a statement declares them; numbers beyond 2⁵³ are given as strings. The
 * limits are for the planner, which expects a hundred rows of a function, and reads whole tables for these: a plan that is kept takes a limit
 * as a tenth, so ten are expected of one and a single row of two (by `explain`).
 */
export const givenRows = (rows: readonly object[], columns: string): RawBuilder<unknown> =>
  sql`select * from (select * from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as g(${sql.raw(columns)})
    limit ${rows.length}) g limit ${rows.length}`
