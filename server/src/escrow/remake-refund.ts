/** Refunds that merchants were notified of, and that a reorg removed for good: each is made again. */
import type { TxContext } from "../context.ts"
import { firstLook } from "../payouts/refund-funds.ts"
import type { Standing } from "./load-escrow.ts"
import { insertCall, LEAST_TIME_MS } from "./make-calls.ts"

/** A refund whose calls failed so often is not made again: each cost gas. */
const MAX_REVERTED = 3

/**
 * Makes the call of one such refund again, and says whether it did. Its first call had counted; a reorg displaced it together with the
 * allowance, or the allowance was withdrawn before it was mined again, and so it failed. It waits for the wallet as a new one does.
 * Call it under the escrow's lock.
 */
export async function remakeRefund(ctx: TxContext, standing: Standing): Promise<boolean> {
  const { escrow, folded, calls } = standing
  const reverted = calls.filter(({ kind, state }) => kind === "refund" && state === "reverted")
  if (reverted.length === 0 || reverted.length >= MAX_REVERTED) return false
  const isOver = ctx.now().getTime() >= escrow.refund_expiry.getTime() - LEAST_TIME_MS
  if (isOver || escrow.operator !== ctx.settings.relayWallet) return false
  const lost = await ctx.db
    .selectFrom("refunds")
    .selectAll()
    .where("session_id", "=", escrow.session_id)
    .where("notified_at", "is not", null)
    .where(
      "payout_id",
      "in",
      reverted.map(({ id }) => id),
    )
    .orderBy("created_at")
    .orderBy("id")
    .executeTakeFirst()
  if (!lost || lost.amount > folded.freeToRefund) return false
  const now = ctx.now()
  const { id } = await insertCall(ctx, standing, { kind: "refund", amount: lost.amount, heldUntil: firstLook(now) })
  await ctx.db.updateTable("refunds").set({ payout_id: id, updated_at: now }).where("id", "=", lost.id).execute()
  ctx.log.error(
    { refundId: lost.id, sessionId: escrow.session_id },
    "a refund that had counted failed after a reorg; it is made again, and needs an allowance",
  )
  return true
}
