/** Writes the on-chain state of refunds, and notifies merchants of those that count. */
import { emit } from "../../account/webhooks/emit.ts"
import { noticeOf } from "../../ledger/settlement/checkout-notice.ts"
import { notifyCheckout } from "../../ledger/settlement/notify-checkout.ts"
import { nextSequence } from "../../ledger/settlement/number-events.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { explorerUrl, type NetworkInfo, networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { statusByChain, totalWith } from "./refund.ts"

/** A refund with its call. */
type Called = Row<"refunds"> & Pick<Row<"payouts">, "state" | "tx_hash" | "recipient" | "nonce">

/** The result of folding the session's escrow. */
interface SessionRefunds {
  session: Row<"checkout_sessions">
  /** In base units. */
  captured: bigint
  /** The ids of the calls that succeeded in a deep enough block. */
  counting: ReadonlySet<string>
  /** Whether a call that failed on chain can be made again. */
  remakes: boolean
}

/**
 * Writes the status of each refund of a session. Emits `payment.refunded` once for each refund that counts, and its
 * reversal once the refund can no longer succeed. Returns whether a refund that had counted waits to be made again.
 * Must be called in a transaction that holds the session and its escrow; `session` is the current row.
 */
export async function settleRefunds(
  ctx: TxContext,
  { session, captured, counting, remakes }: SessionRefunds,
): Promise<boolean> {
  const network = networkOf(ctx.chain, session.chain_id)
  const refunds = await refundsOf(ctx, session.id)
  // Refunds of which the merchant was notified count, even while they are made again.
  let before = refunds.reduce((sum, { amount, notified_at: at }) => (at === null ? sum : sum + amount), 0n)
  let waits = false
  for (const refund of refunds) {
    const status = statusByChain(refund, counting.has(refund.payout_id))
    const notify = status === "succeeded" && refund.notified_at === null
    const isLost = status === "failed" && refund.notified_at !== null
    const isWaiting = isLost && remakes && refund.state === "reverted"
    if (isWaiting) waits = true
    else if (isLost) {
      await notifyLost(ctx, network, session, refund)
      before -= refund.amount
    }
    if (notify) {
      await notifyRefunded(ctx, network, session, refund, {
        ...totalWith(refund.amount, { captured, before }),
        captured,
      })
      before += refund.amount
    }
    const notified = notify ? { notified_at: ctx.now() } : isLost && !isWaiting ? { notified_at: null } : {}
    if (status === refund.status && Object.keys(notified).length === 0) continue
    await ctx.db
      .updateTable("refunds")
      .set({ status, updated_at: ctx.now(), ...notified })
      .where("id", "=", refund.id)
      .execute()
  }
  return waits
}

/** Emits that a refund finally failed, to each destination to which `payment.refunded` was sent. */
async function notifyLost(
  ctx: TxContext,
  network: NetworkInfo,
  session: Row<"checkout_sessions">,
  refund: Called,
): Promise<void> {
  ctx.log.error({ refundId: refund.id, sessionId: session.id }, "a refund that its merchant was notified of has failed")
  await notifyCheckout(ctx, network, "unrefunded", {
    ...noticeOf(session),
    status: session.status,
    exception: session.exception,
    amountReceived: session.received,
    splits: null,
    confirmedAt: session.confirmed_at,
    txHash: session.tx_hash,
    payer: session.payer,
    refundId: refund.id,
  })
}

/**
 * Returns a session's refunds in the order in which their calls are mined. That is the order of their nonces, because
 * one wallet signs them all.
 */
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
