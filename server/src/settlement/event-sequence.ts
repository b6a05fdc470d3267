/** Numbers what a merchant is sent about one checkout or one paywall payment: deliveries may arrive in another order. */
import { sql } from "kysely"
import type { TxContext } from "../context.ts"

/**
 * The number of the next event about a checkout session (`cs_…`) or a payment (`pay_…`), from 1. With `paid` it notes that the merchant is now notified of a payment
 * (true) or of its reversal (false), and answers undefined when that is what it was notified of last. Call it inside the
 * transaction that emits.
 */
export async function nextSequence(ctx: TxContext, subjectId: string): Promise<number>
export async function nextSequence(ctx: TxContext, subjectId: string, paid?: boolean): Promise<number | undefined>
export async function nextSequence(ctx: TxContext, subjectId: string, paid?: boolean): Promise<number | undefined> {
  const table = sql.table(subjectId.startsWith("cs_") ? "checkout_sessions" : "payments")
  const changes = paid === undefined ? sql`` : sql`, notified_paid = ${paid}`
  const isNew = paid === undefined ? sql`true` : sql`notified_paid <> ${paid}`
  const { rows } = await sql<{ n: number }>`update ${table} set event_sequence = event_sequence + 1${changes}
    where id = ${subjectId} and ${isNew} returning event_sequence as n`.execute(ctx.db)
  return rows[0]?.n
}
