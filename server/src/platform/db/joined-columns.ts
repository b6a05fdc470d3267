/** Rows of several tables in one answer: each column is prefixed with its table's alias. */
import { type RawBuilder, sql } from "kysely"

/** SQL: these columns of a table, each named `alias_column`. */
export const columnsOf = (alias: string, names: readonly string[]): RawBuilder<unknown> =>
  sql.raw(names.map(name => `${alias}.${name} as ${alias}_${name}`).join(", "))

/** The part of a row that {@link columnsOf} named; undefined if the first column is null, as in an outer join. */
export function partOf<R>(
  row: Record<string, unknown>,
  alias: string,
  names: readonly (keyof R & string)[],
): R | undefined {
  const [first = ""] = names
  if (row[`${alias}_${first}`] === null) return undefined
  return Object.fromEntries(names.map(name => [name, row[`${alias}_${name}`]])) as R
}
