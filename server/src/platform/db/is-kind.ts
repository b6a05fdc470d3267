/** SQL that checks the kind of a resource. */
import { type RawBuilder, sql } from "kysely"
import type { IdPrefix } from "../ids.ts"

/**
 * SQL: whether the id in this column belongs to this kind. The prefix is a literal instead of a parameter, because the
 * partial indexes of one kind have the same condition.
 */
export const isKind = (column: string, prefix: IdPrefix): RawBuilder<boolean> =>
  sql<boolean>`starts_with(${sql.ref(column)}, ${sql.lit(`${prefix}_`)})`
