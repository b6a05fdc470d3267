/** A list as one parameter of a statement. */
import { type RawBuilder, sql } from "kysely"

/**
 * SQL: a Postgres array of these values with its type, as one parameter. A statement takes 65,535 parameters, and lists
 * of rows can be longer. Use it as `= any(${sqlArray("bigint", ids)})`.
 */
export function sqlArray(
  type: "bigint" | "text" | "timestamptz" | "uuid",
  values: Iterable<bigint | string>,
): RawBuilder<unknown> {
  const quoted = [...values].map(value => `"${`${value}`.replace(/["\\]/g, "\\$&")}"`)
  return sql`${sql.val(`{${quoted.join(",")}}`)}::${sql.raw(type)}[]`
}

/**
 * SQL: the same values as rows of one column, for a named statement: `in (${sqlRows("bigint", ids)})`. A cached plan
 * expects ten values in an array. Postgres would then rather plan each time than read ten rows for one value. The
 * limits tell Postgres to expect one value ({@link rowsParameter}).
 */
export const sqlRows = (
  type: Parameters<typeof sqlArray>[0],
  values: readonly (bigint | string)[],
): RawBuilder<unknown> =>
  sql`select * from (select * from unnest(${sqlArray(type, values)}) limit ${values.length}) given limit ${values.length}`
