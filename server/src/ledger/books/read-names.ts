/** SQL: the merchant's names for the things that payments were for. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/**
 * Returns each checkout's description and each paywall's and bundle's name, by id. An id without a name has no entry.
 */
export async function namesOfThings({ db }: TxContext, ids: readonly (string | null)[]): Promise<Map<string, string>> {
  const asked = [...new Set(ids.filter(id => id !== null))]
  if (asked.length === 0) return new Map()
  const these = sqlArray("text", asked)
  const { rows } = await sql<{ id: string; name: string | null }>`/* named: names_of_things */
    select id, description as name from checkout_sessions where id = any(${these})
    union all select id, name from paywalls where id = any(${these})
    union all select id, name from bundles where id = any(${these})`.execute(db)
  return new Map(rows.flatMap(({ id, name }) => (name ? [[id, name] as const] : [])))
}
