/** A list as one parameter of a statement. */
import { type RawBuilder, sql } from "kysely"

/**
 * SQL: a Postgres array of these values with its type, as one parameter: a statement takes 65,535, and lists of rows
 * can be longer. Use it as `= any(${sqlArray("bigint", ids)})`.
 */
export function sqlArray(
  type: "bigint" | "text" | "timestamptz" | "uuid",
  values: Iterable<bigint | string>,
): RawBuilder<unknown> {
  const quoted = [...values].map(value => `"${`${value}`.replace(/["\\]/g, "\\$&")}"`)
  return sql`${sql.val(`{${quoted.join(",")}}`)}::${sql.raw(type)}[]`
}
