/**
 * Finds payments that anyone can still send back: the merchant's wallet signed the return, and this approval is public
 * in broadcast calldata and has not expired. The payer must not get both the goods and the money.
 */
import { sql } from "kysely"
import type { Hex } from "viem"
import { approvalIn } from "../../platform/chain/release-call.ts"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { ClaimedTransfer } from "./sellable.ts"

/**
 * A block that is this many seconds older than the scanned one is final, so no transaction can be mined before it any
 * more.
 */
const FINAL_AFTER_S = 3_600n
/** The wait before the next check if the scan lags behind the clock. */
const AGAIN_MS = 60_000

/**
 * Returns until when each of these payments can still be sent back, in block time. Payments that can't be sent back
 * have no entry.
 */
export async function publicApprovals(ctx: TxContext, paymentIds: readonly string[]): Promise<Map<string, Date>> {
  if (paymentIds.length === 0) return new Map()
  const { rows } = await sql<{ id: string; data: Hex; scanned: Date | null }>`
    select i.payment_id as id, i.data, c.block_time as scanned
    from payouts i join deposits d on d.id = i.deposit_id left join cursors c on c.chain_id = i.chain_id
    where i.payment_id = any(${sqlArray("text", new Set(paymentIds))}) and i.kind = 'return'
      and d.approver <> d.factory and i.state in ('cancelled', 'reverted')
      and exists (select from transaction_attempts a join payouts r on r.id = a.payout_id
        where r.payment_id = i.payment_id and r.kind = 'return')`.execute(ctx.db)
  const left = new Map<string, Date>()
  for (const { id, data, scanned } of rows) {
    const { deadline } = approvalIn(data) ?? {}
    if (deadline === undefined) continue
    const until = new Date(Number.parseInt((deadline + FINAL_AFTER_S).toString(), 10) * 1_000)
    if (scanned && until < scanned) continue
    const known = left.get(id)
    if (!known || known < until) left.set(id, until)
  }
  return left
}

/**
 * Returns the transfers without those of open payments that can still be sent back, and when to settle those transfers
 * again.
 */
export async function withoutPublic<T extends ClaimedTransfer>(
  ctx: TxContext,
  rows: readonly T[],
): Promise<{ free: T[]; again: Map<bigint, Date> }> {
  const waiting = rows.flatMap(row => (row.payment_status === "open" ? (row.payment_id ?? []) : []))
  const until = await publicApprovals(ctx, waiting)
  const soon = new Date(ctx.now().getTime() + AGAIN_MS)
  const timeOf = (row: T) => (row.payment_id === null ? undefined : until.get(row.payment_id))
  const again = rows.flatMap((row): [bigint, Date][] => {
    const end = timeOf(row)
    return end ? [[row.id, end > soon ? end : soon]] : []
  })
  return { free: rows.filter(row => !timeOf(row)), again: new Map(again) }
}
