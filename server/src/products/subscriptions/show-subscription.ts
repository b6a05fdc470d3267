/** Formats subscriptions and invoices for the API and as CSV. */
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { GRACE_DAYS } from "./fold-subscription.ts"
import { invoiceUrl, textOf } from "./notify-subscription.ts"
import type { InvoiceRow } from "./queries.ts"

/** Formats a started subscription for its merchant. */
export function shownSubscription(ctx: TxContext, row: Row<"subscriptions">) {
  const { status, payer, paid_until, access_until, started_at } = row
  if (!status || !payer || !paid_until || !access_until || !started_at)
    throw new Error("a subscription that has not begun is not shown")
  return {
    id: row.id,
    status,
    cancelReason: row.cancel_reason,
    productId: row.product_id,
    billingInterval: row.billing_interval,
    billingCount: row.billing_count,
    trialDays: row.has_trial ? row.trial_days : 0,
    graceDays: row.is_first ? GRACE_DAYS : 0,
    maxPeriods: row.max_periods,
    chain: networkOf(ctx.chain, row.chain_id).name,
    payer: checksummed(payer),
    customerEmail: row.customer_email,
    paidUntil: paid_until.toISOString(),
    accessUntil: access_until.toISOString(),
    cancelAtPeriodEnd: row.cancel_at_period_end,
    cancelAskedBy: row.cancel_asked_by,
    blockedBy: row.blocked_by,
    startedAt: started_at.toISOString(),
    pausedAt: row.paused_at?.toISOString() ?? null,
    endedAt: row.ended_at?.toISOString() ?? null,
    updatedAt: row.updated_at.toISOString(),
  }
}

/** Formats an invoice whose period is set, for its merchant. */
export function shownInvoice(ctx: TxContext, row: InvoiceRow) {
  const { name: chain, token } = networkOf(ctx.chain, row.chain_id)
  return {
    id: row.id,
    subscriptionId: row.subscription_id,
    sequence: row.sequence,
    status: row.status,
    amount: formatAmount(row.amount, token.decimals),
    currency: row.currency,
    chain,
    productId: row.product_id,
    checkoutSessionId: row.session_id,
    hostedUrl: invoiceUrl(ctx, row.id),
    periodStart: textOf(row.period_start),
    periodEnd: textOf(row.period_end),
    dueAt: row.due_at.toISOString(),
    paidAt: row.paid_at?.toISOString() ?? null,
    createdAt: row.created_at.toISOString(),
  }
}
