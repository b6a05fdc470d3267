/** Lists: newest first, ties by id, always with the total. */
import { type SelectQueryBuilder, sql } from "kysely"
import type { Database } from "../db/schema.ts"
import type { Page } from "./schemas.ts"

/** One page of a query that is already ordered, and how many rows it has in all. */
export async function pageOf<T extends keyof Database, O>(
  query: SelectQueryBuilder<Database, T, O>,
  { limit, offset }: Page,
): Promise<{ rows: O[]; total: number }> {
  const count = await query
    .clearSelect()
    .clearOrderBy()
    .select(sql<number>`count(*)::int`.as("total"))
    .executeTakeFirstOrThrow()
  const rows = await query.limit(limit).offset(offset).execute()
  return { rows, total: (count as { total: number }).total }
}
