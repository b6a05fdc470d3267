/**
 * Withdraws an escrow's unsigned calls. A merchant withdraws refunds; the opposite decision withdraws held captures
 * and voids.
 */
import { cancelRelay } from "../../ledger/relays/try-relay.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { lockEscrow } from "./load-escrow.ts"
import { REMADE, WITHDRAWN } from "./refund.ts"
import { refundsWhere, refundsWith } from "./refund-queries.ts"

/**
 * Cancels a call without a nonce; returns whether it did. Must be called under the escrow's lock. The function never
 * waits for a payout's lock, because the holder of that lock may be waiting for the escrow. So a payout that is being
 * signed or ended right now stays unchanged.
 */
export async function withdrawCall(ctx: TxContext, id: string, reason: string): Promise<boolean> {
  const free = await ctx.db
    .selectFrom("payouts")
    .select(["id", "chain_id"])
    .where("id", "=", id)
    .where("state", "in", ["queued", "held"])
    .forNoKeyUpdate()
    .skipLocked()
    .executeTakeFirst()
  if (!free) return false
  await cancelRelay(ctx, free, reason)
  return true
}

/**
 * Withdraws a merchant's unsigned refund and returns it, even if it was withdrawn before. Must be called inside a
 * transaction. Throws `NOT_FOUND`, or `INVALID_OPERATION` if the refund is signed or has ended.
 */
export async function withdrawRefund(ctx: TxContext, merchantId: string, id: string) {
  const read = async () => (await refundsWhere(ctx, { merchantId, id }).execute())[0]
  const before = await read()
  if (!before) throw new ApiError("NOT_FOUND", undefined, "No refund has this id.")
  await lockEscrow(ctx, before.session_id)
  const isDone = await withdrawCall(ctx, before.payout_id, WITHDRAWN)
  if (isDone)
    await ctx.db.updateTable("refunds").set({ status: "failed", updated_at: ctx.now() }).where("id", "=", id).execute()
  const after = await read()
  if (!after) throw new Error(`the refund ${id} is gone`)
  if (!isDone && after.held_detail !== WITHDRAWN) throw new ApiError("INVALID_OPERATION", undefined, whyNot(after))
  const [shown] = await refundsWith(ctx, [after], new Map())
  if (!shown) throw new Error(`the refund ${id} is not shown`)
  return shown
}

/** Returns why a refund can't be withdrawn, in sentences. */
function whyNot({ state, notified_at }: Pick<Row<"payouts">, "state"> & Pick<Row<"refunds">, "notified_at">): string {
  if (state === "reverted" && notified_at) return `${REMADE} Withdraw it then.`
  switch (state) {
    case "assigned":
    case "mined":
    case "final":
      return "This refund is signed, and in progress or already with the payer, so it can no longer be withdrawn."
    case "cancelled":
    case "reverted":
      return "This refund has already failed: nothing was refunded, and there is nothing to withdraw."
    default:
      return "This refund is being signed right now. Read it again in a few seconds."
  }
}
