/** Builds the events about subscriptions. */
import type { NewEvent } from "../../account/webhooks/emit.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { type NetworkInfo, networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"

/** The event for a new invoice. If the checkout has a callback, the event goes there instead of to the endpoints. */
export function renewalEvent(
  ctx: TxContext,
  { id, merchant_id: merchantId, chain_id, event_sequence: sequence }: Row<"subscriptions">,
  invoice: Row<"invoices">,
  session: Row<"checkout_sessions">,
): NewEvent<"subscription.renewal.created"> {
  const { token }: NetworkInfo = networkOf(ctx.chain, chain_id)
  return {
    merchantId,
    type: "subscription.renewal.created",
    dedupeKey: `subscription.renewal.created:${invoice.id}`,
    orderKey: id,
    data: {
      subscriptionId: id,
      invoiceId: invoice.id,
      checkoutSessionId: session.id,
      amount: formatAmount(invoice.amount, token.decimals),
      currency: invoice.currency,
      hostedUrl: invoiceUrl(ctx, invoice.id),
      dueAt: invoice.due_at.toISOString(),
      periodStart: textOf(invoice.period_start),
      periodEnd: textOf(invoice.period_end),
      merchantId,
      productId: invoice.product_id,
      customerEmail: session.customer_email,
      sequence,
    },
    ...(session.callback_url === null ? {} : { callbackUrl: session.callback_url }),
  }
}

/** The URL of the page that shows an invoice and accepts its payment. */
export const invoiceUrl = (ctx: TxContext, id: string): string => `${ctx.settings.baseUrl}/invoice/${id}`

/** Formats a time of an invoice's period. The period is always set before an invoice is shown to anyone. */
export function textOf(date: Date | null): string {
  if (!date) throw new Error("this invoice has no period yet")
  return date.toISOString()
}

type Change = "past_due" | "canceled" | "resumed"

/** The event name for a change of status; undefined for changes without an event. */
export function changeOf(
  before: Row<"subscriptions">["status"],
  after: Row<"subscriptions">["status"],
): Change | undefined {
  if (before === after) return undefined
  if (after === "past_due" || after === "canceled") return after
  const isRunning = after === "active" || after === "payment_due"
  const wasStopped = before === "paused" || before === "past_due" || before === "canceled"
  return isRunning && wasStopped ? "resumed" : undefined
}

/** The event for a change of status. `subscription` has the new state, and `open` is the invoice that can be paid. */
export function changeEvent(
  ctx: TxContext,
  change: Change,
  subscription: Row<"subscriptions">,
  open: Row<"invoices"> | undefined,
): NewEvent<`subscription.${Change}`> {
  const { id, merchant_id: merchantId, status, payer, event_sequence: sequence } = subscription
  const type = `subscription.${change}` as const
  if (status === null) throw new Error("a subscription that has not begun is not notified")
  return {
    merchantId,
    type,
    dedupeKey: `${type}:${id}:${sequence}`,
    orderKey: id,
    data: {
      subscriptionId: id,
      merchantId,
      status,
      productId: subscription.product_id,
      customerEmail: subscription.customer_email,
      payer: payer && checksummed(payer),
      cancelReason: subscription.cancel_reason,
      paidUntil: subscription.paid_until?.toISOString() ?? null,
      accessUntil: subscription.access_until?.toISOString() ?? null,
      invoiceId: open?.id ?? null,
      hostedUrl: open ? invoiceUrl(ctx, open.id) : null,
      sequence,
    },
  }
}
