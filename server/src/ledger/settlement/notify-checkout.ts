/** Emits the events about payments, with the same published fields for checkouts and paywalls. */

import { emit } from "../../account/webhooks/emit.ts"
import type { EventType } from "../../account/webhooks/webhook.ts"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { explorerUrl, type NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { receiptUrl } from "../receipts/receipt-url.ts"
import type { CheckoutNotice } from "./checkout-notice.ts"
import { nextSequence } from "./number-events.ts"

/**
 * Emits that something was reserved, paid or released, that a session failed or expired, or that a reorg undid a
 * change. Call this inside the transaction that makes the change. A payment that comes back counts as a new completion.
 * A reversal goes to each destination to which the reversed event was sent; events that were never sent are not
 * reversed. Failure and expiry are sent once. A session with its own callback sends its events there instead of to the
 * endpoints, and sends no failure or expiry.
 */
export async function notifyCheckout(
  ctx: TxContext,
  network: NetworkInfo,
  change:
    | "authorized"
    | "paid"
    | "voided"
    | "unreserved"
    | "reversed"
    | "unvoided"
    | "unrefunded"
    | "failed"
    | "expired",
  notice: CheckoutNotice,
): Promise<void> {
  const { callbackUrl, traceparent } = notice
  if ((change === "failed" || change === "expired") && callbackUrl !== null) return
  const isPayment = change === "paid" || change === "reversed"
  const sequence = await nextSequence(ctx, notice.numberedIn, notice.id, isPayment ? change === "paid" : undefined)
  if (sequence === undefined) return
  const data = { ...(await dataOf(ctx, network, notice)), sequence }
  const to = callbackUrl === null ? {} : { callbackUrl }
  const common = { merchantId: notice.merchantId, orderKey: notice.id, data, traceparent, ...to }
  const once = <T extends string>(type: T) => ({ type, dedupeKey: `${type}:${notice.id}`, ...common })
  const each = <T extends string>(type: T) => ({
    ...once(type),
    ...(sequence === 1 ? {} : { dedupeKey: `${type}:${notice.id}:${sequence}` }),
  })
  if (change === "paid") {
    const confirmed = callbackUrl === null ? [each("checkout.confirmed")] : []
    await emit(ctx, each("checkout.session.completed"), ...confirmed)
  }
  const reserved = notice.isUnreserved ? (["checkout.authorized", "checkout.voided"] as const) : []
  if (change === "reversed")
    await emit(ctx, {
      ...each("checkout.session.reversed"),
      takesBack: ["checkout.session.completed", "checkout.confirmed", ...reserved],
    })
  const back = (takesBack: readonly EventType[]) =>
    ({ ...each("checkout.session.reversed"), takesBack, onlyBack: true }) as const
  if (change === "unrefunded") await emit(ctx, back(["payment.refunded"]))
  if (change === "unvoided") await emit(ctx, back(["checkout.voided"]))
  if (change === "unreserved") await emit(ctx, back(reserved))
  if (change === "authorized" || change === "voided") {
    await emit(ctx, { ...each(`checkout.${change}`), data: { ...data, ...reservedOf(network, notice) } })
  }
  if (change === "failed") await emit(ctx, once("checkout.failed"))
  if (change === "expired") await emit(ctx, once("checkout.expired"))
}

/** Returns the reserved amounts for the events, as decimal text. */
function reservedOf({ token: { decimals } }: NetworkInfo, { reserved }: CheckoutNotice) {
  if (!reserved) throw new Error("nothing is reserved")
  const { authId, authorized, captured, released, captureBefore } = reserved
  const text = (amount: bigint) => formatAmount(amount, decimals)
  return {
    authId,
    authorized: text(authorized),
    captured: text(captured),
    released: text(released),
    captureBefore: captureBefore.toISOString(),
  }
}

async function dataOf(ctx: TxContext, network: NetworkInfo, notice: CheckoutNotice) {
  const money = { chain_id: network.chainId, token: notice.token ?? network.token.address }
  const format = await amountFormatter(ctx, [money])
  const { amount, currency } = format({ ...money, amount: notice.amount })
  return {
    id: notice.id,
    sessionId: notice.id,
    merchantId: notice.merchantId,
    amount,
    amountReceived: format({ ...money, amount: notice.amountReceived }).amount,
    currency,
    status: notice.status,
    exception: notice.exception,
    txHash: notice.txHash,
    payer: notice.payer && checksummed(notice.payer),
    chain: network.name,
    chainId: network.chainId,
    explorerUrl: notice.txHash && explorerUrl(ctx.settings.mode, network, notice.txHash),
    productId: notice.productId,
    paywallId: notice.paywallId,
    description: notice.description,
    metadata: notice.metadata,
    confirmedAt: notice.confirmedAt?.toISOString() ?? null,
    receiptUrl: notice.confirmedAt && receiptUrl(ctx, notice.id),
    ...(notice.customerEmail === null ? {} : { customerEmail: notice.customerEmail }),
    ...(notice.payerInfo === null ? {} : { payerInfo: notice.payerInfo }),
    ...(notice.splits === null ? {} : { splits: notice.splits }),
    ...(notice.zeroG === undefined ? {} : { zeroG: notice.zeroG }),
    ...(notice.refundId === undefined ? {} : { refundId: notice.refundId }),
  }
}
