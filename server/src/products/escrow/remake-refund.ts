/** Makes refunds again that a reorg finally removed after their merchants were notified of them. */
import { firstLook } from "../../ledger/relays/check-refund-funds.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ofKind } from "./fold-escrow.ts"
import type { CurrentEscrow } from "./load-escrow.ts"
import { insertCall, MIN_TIME_MS } from "./make-calls.ts"

/** How many failed refund calls an escrow may have before none is made again, because each call cost gas. */
const MAX_REVERTED = 3

/**
 * Whether failed refunds of this escrow can still be made again once enough money is free. The process that holds the
 * relay wallet's key makes them, and may be another process than this one.
 */
export function remakesRefunds(ctx: TxContext, { escrow, calls }: Pick<CurrentEscrow, "escrow" | "calls">): boolean {
  const failed = ofKind(calls, "refund").filter(({ state }) => state === "reverted").length
  return failed < MAX_REVERTED && ctx.now() < remadeUntil(escrow)
}

/** Returns the time until which an escrow's refund can be made again. */
export const remadeUntil = ({ refund_expiry: expiry }: Pick<Row<"escrows">, "refund_expiry">): Date =>
  new Date(expiry.getTime() - MIN_TIME_MS)

/**
 * Returns the first refund that counted, was finally removed by a reorg, and can be made again. Until it is made again,
 * no other refund is made, because the merchant would otherwise refund the same money twice.
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
 * Makes the call of one such refund again; returns whether it did. The first call counted until a reorg displaced it.
 * That call then failed, because the reorg also displaced the allowance, or because the allowance was withdrawn
 * first. The new call waits for the wallet like any new refund. Must be called under the escrow's lock.
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
    "a refund that had counted failed after a reorg; it is created again, and needs an allowance",
  )
  return true
}
