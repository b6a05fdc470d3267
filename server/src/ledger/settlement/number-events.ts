/** Numbers the events about one row, because deliveries may arrive in another order. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import type { Database } from "../../platform/db/schema.ts"

/**
 * The tables whose rows count their events, and record whether the last notice was about a payment or about its
 * reversal.
 */
export type NumberedTable = {
  [T in keyof Database]: Database[T] extends { event_sequence: unknown; notified_paid: unknown } ? T : never
}[keyof Database]

/**
 * Returns the number of the next event about a row, starting at 1. `paid` records that the merchant is now notified of
 * a payment (true) or of its reversal (false). If the merchant already was, returns undefined. Call this inside the
 * transaction that emits the event.
 */
export async function nextSequence(ctx: TxContext, table: NumberedTable, id: string): Promise<number>
export async function nextSequence(
  ctx: TxContext,
  table: NumberedTable,
  id: string,
  paid?: boolean,
): Promise<number | undefined>
export async function nextSequence(
  ctx: TxContext,
  table: NumberedTable,
  id: string,
  paid?: boolean,
): Promise<number | undefined> {
  const changes = paid === undefined ? sql`` : sql`, notified_paid = ${paid}`
  const isNew = paid === undefined ? sql`true` : sql`notified_paid <> ${paid}`
  const name = sql.raw(`/* named: number_${table}${paid === undefined ? "" : "_paid"} */`)
  const { rows } = await sql<{
    n: number
  }>`${name} update ${sql.table(table)} set event_sequence = event_sequence + 1${changes}
    where id = ${id} and ${isNew} returning event_sequence as n`.execute(ctx.db)
  return rows[0]?.n
}
