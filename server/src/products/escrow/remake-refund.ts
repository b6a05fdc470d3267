/** Repeats refunds that merchants were notified of and that a reorg finally removed. */
import { firstLook } from "../../ledger/relays/check-refund-funds.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ofKind } from "./fold-escrow.ts"
import type { CurrentEscrow } from "./load-escrow.ts"
import { insertCall, MIN_TIME_MS } from "./make-calls.ts"

/** A refund whose calls failed this often is not repeated, because each call cost gas. */
const MAX_REVERTED = 3

/**
 * Whether failed refunds of this escrow can still be repeated once there is room. The process with its relay wallet's
 * key does it, which may be another one.
 */
export function remakesRefunds(ctx: TxContext, { escrow, calls }: Pick<CurrentEscrow, "escrow" | "calls">): boolean {
  const failed = ofKind(calls, "refund").filter(({ state }) => state === "reverted").length
  return failed < MAX_REVERTED && ctx.now() < remadeUntil(escrow)
}

/** Returns until when an escrow's refund can be repeated. */
export const remadeUntil = ({ refund_expiry: expiry }: Pick<Row<"escrows">, "refund_expiry">): Date =>
  new Date(expiry.getTime() - MIN_TIME_MS)

/**
 * Returns the first once counted refund that a reorg finally removed and that can be repeated. Until then, no other
 * refund is made, because its merchant would refund the same money twice.
 */
export async function lostRefund(ctx: TxContext, standing: CurrentEscrow): Promise<Row<"refunds"> | undefined> {
  const { escrow, folded, calls } = standing
  const reverted = ofKind(calls, "refund").filter(({ state }) => state === "reverted")
  if (reverted.length === 0 || !remakesRefunds(ctx, standing)) return undefined
  if (escrow.operator !== ctx.settings.relayWallet) return undefined
  return await ctx.db
    .selectFrom("refunds")
    .selectAll()
    .where("session_id", "=", escrow.session_id)
    .where("notified_at", "is not", null)
    .where("amount", "<=", folded.freeToRefund)
    .where(
      "payout_id",
      "in",
      reverted.map(({ id }) => id),
    )
    .orderBy("created_at")
    .orderBy("id")
    .executeTakeFirst()
}

/**
 * Repeats the call of one such refund; returns whether it did. Its first call counted until a reorg displaced it. It
 * then failed, because the reorg also displaced the allowance, or the allowance was withdrawn first. The new call waits
 * for the wallet like any new refund. Call it under the escrow's lock.
 */
export async function remakeRefund(ctx: TxContext, standing: CurrentEscrow): Promise<boolean> {
  const { escrow } = standing
  const lost = await lostRefund(ctx, standing)
  if (!lost) return false
  const now = ctx.now()
  const { id } = await insertCall(ctx, standing, { kind: "refund", amount: lost.amount, heldUntil: firstLook(now) })
  await ctx.db.updateTable("refunds").set({ payout_id: id, updated_at: now }).where("id", "=", lost.id).execute()
  ctx.log.error(
    { refundId: lost.id, sessionId: escrow.session_id },
    "a refund that had counted failed after a reorg; it is made again, and needs an allowance",
  )
  return true
}
