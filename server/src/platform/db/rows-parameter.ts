/**
 * Passes rows as one parameter of a statement. The statement's text is then the same for any number of rows, so a named
 * statement is prepared once.
 */
import { type RawBuilder, sql } from "kysely"

/**
 * SQL: these rows. `columns`: their names and types, as in a column definition; numbers beyond 2⁵³ are given as
 * strings. The limits are for the planner, which expects a hundred rows from the function, and would read whole tables
 * to join them. A cached plan assumes a tenth of a limit. So with one limit the planner expects ten rows, and with two
 * limits a single row (by `explain`).
 */
export const rowsParameter = (rows: readonly object[], columns: string): RawBuilder<unknown> =>
  sql`select * from (select * from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as g(${sql.raw(columns)})
    limit ${rows.length}) g limit ${rows.length}`
