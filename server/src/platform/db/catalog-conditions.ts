/** SQL: the filters of catalog lists. */
import { type RawBuilder, sql } from "kysely"

/** A `like` pattern, in lower case, for texts that start with this text. */
export const beginning = (text: string): string => `${text.toLowerCase().replaceAll(/[\\%_]/g, "\\$&")}%`

/**
 * SQL: whether a row is active or inactive, as requested, and has this id, this slug or a name that starts with this
 * text. `name` is the column with the name, which is indexed in lower case.
 */
export function catalogConditions(
  merchantId: string,
  { active, q }: { active?: boolean | undefined; q?: string | undefined },
  { name, hasSlug }: { name: "name" | "title"; hasSlug: boolean },
): RawBuilder<boolean> {
  const own = sql<boolean>`merchant_id = ${merchantId}`
  const on = active === undefined ? own : sql<boolean>`${own} and active = ${active}`
  if (q === undefined) return on
  const bySlug = hasSlug ? sql`or slug = ${q}` : sql``
  return sql<boolean>`${on} and (id = ${q} ${bySlug} or lower(${sql.ref(name)}) like ${beginning(q)})`
}
