/** Writes what the chain says of refunds, and notifies merchants of those that count. */
import { checksummed } from "../chain/hex.ts"
import { explorerUrl, type NetworkInfo, networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { formatAmount } from "../money/amount.ts"
import { nextSequence } from "../settlement/event-sequence.ts"
import { emit } from "../webhooks/emit.ts"
import { statusByChain, totalWith } from "./refund.ts"

/** A refund with its call. */
type Called = Row<"refunds"> & Pick<Row<"payouts">, "state" | "tx_hash" | "recipient" | "nonce">

/** What the fold of an escrow found. */
interface Standing {
  session: Row<"checkout_sessions">
  /** Base units. */
  captured: bigint
  /** The ids of the calls that succeeded in a block that is deep enough. */
  counting: ReadonlySet<string>
}

/**
 * Writes the status of each refund of a session, and emits `payment.refunded` once for each that counts. Call it inside a
 * transaction that holds the session and its escrow.
 */
export async function settleRefunds(ctx: TxContext, { session, captured, counting }: Standing): Promise<void> {
  const network = networkOf(ctx.chain, session.chain_id)
  const refunds = await refundsOf(ctx, session.id)
  let before = 0n
  for (const refund of refunds) {
    const status = statusByChain(refund, counting.has(refund.payout_id))
    const notify = status === "succeeded" && refund.notified_at === null
    if (notify)
      await notifyRefunded(ctx, network, session, refund, {
        ...totalWith(refund.amount, { captured, before }),
        captured,
      })
    if (status === "succeeded") before += refund.amount
    if (status === refund.status && !notify) continue
    await ctx.db
      .updateTable("refunds")
      .set({ status, updated_at: ctx.now(), ...(notify ? { notified_at: ctx.now() } : {}) })
      .where("id", "=", refund.id)
      .execute()
  }
}

/** The refunds of a session in the order in which their calls are mined: one wallet signs them, by its nonces. */
const refundsOf = (ctx: TxContext, sessionId: string): Promise<Called[]> =>
  ctx.db
    .selectFrom("refunds")
    .innerJoin("payouts", "payouts.id", "refunds.payout_id")
    .selectAll("refunds")
    .select(["payouts.state", "payouts.tx_hash", "payouts.recipient", "payouts.nonce"])
    .where("refunds.session_id", "=", sessionId)
    .orderBy("payouts.nonce")
    .orderBy("refunds.id")
    .execute()

async function notifyRefunded(
  ctx: TxContext,
  network: NetworkInfo,
  session: Row<"checkout_sessions">,
  refund: Called,
  { total, status, captured }: ReturnType<typeof totalWith> & { captured: bigint },
): Promise<void> {
  const text = (amount: bigint) => formatAmount(amount, network.token.decimals)
  await emit(ctx, {
    merchantId: session.merchant_id,
    type: "payment.refunded",
    orderKey: session.id,
    dedupeKey: `payment.refunded:${refund.id}`,
    ...(session.callback_url === null ? {} : { callbackUrl: session.callback_url }),
    data: {
      id: session.id,
      sessionId: session.id,
      merchantId: session.merchant_id,
      refundId: refund.id,
      amount: text(refund.amount),
      totalRefunded: text(total),
      originalAmount: text(captured),
      currency: session.currency,
      status,
      reason: refund.reason,
      txHash: refund.tx_hash,
      chain: network.name,
      chainId: network.chainId,
      explorerUrl: refund.tx_hash && explorerUrl(ctx.settings.mode, network, refund.tx_hash),
      refundRecipient: checksummed(refund.recipient),
      productId: session.product_id,
      description: session.description,
      metadata: session.metadata,
      sequence: await nextSequence(ctx, "checkout_sessions", session.id),
    },
  })
}
