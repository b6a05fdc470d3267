/**
 * Reads what the pages show about subscriptions: the invoice that a checkout pays, what it renews, and a paywall's
 * offer.
 */
import type { CheckoutStatus, PaywallPage, Renewal } from "../../../../web/src/page-data.ts"
import { shown } from "../../../../web/src/ui/shown.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import type { ShownSession } from "../checkouts/queries.ts"
import { paidStatuses } from "../escrow/show-escrow.ts"
import { productToSubscribe } from "../paywalls/subscribe.ts"
import { CANCEL_AFTER_MS } from "../subscriptions/fold-subscription.ts"
import { invoiceOfSession } from "./queries.ts"

type InvoiceStatus = NonNullable<CheckoutStatus["invoice"]>

/** The session that pays an invoice; throws `NOT_FOUND`. */
export async function sessionOfInvoice(ctx: TxContext, id: string): Promise<string> {
  const row = await ctx.db.selectFrom("invoices").select("session_id").where("id", "=", id).executeTakeFirst()
  if (!row) throw new ApiError("NOT_FOUND")
  return row.session_id
}

/**
 * The invoice that a session pays. Null for the first invoice until its subscription starts; undefined if the session
 * belongs to no subscription.
 */
export async function invoiceStatus(ctx: TxContext, session: ShownSession): Promise<InvoiceStatus | null | undefined> {
  // Most sessions have no product and need no query.
  if (session.product_id === null) return undefined
  const row = await invoiceOfSession(ctx.db, session.id)
  if (!row) return undefined
  if (row.status === null || row.period_start === null || row.period_end === null) return null
  const accessUntil = row.access_until ?? row.due_at
  return {
    id: row.id,
    state: stateOf(ctx.now(), session, row, { status: row.status, accessUntil }),
    periodStart: row.period_start.toISOString(),
    periodEnd: row.period_end.toISOString(),
    lasts: ctx.now() < row.period_end,
    dueAt: row.due_at.toISOString(),
    graceUntil: accessUntil.toISOString(),
    endsAt: new Date(row.due_at.getTime() + CANCEL_AFTER_MS).toISOString(),
  }
}

/**
 * The state of an invoice. Its session shows whether it is paid, because the job updates the invoice a moment later.
 */
function stateOf(
  now: Date,
  session: ShownSession,
  { due_at, void_asked_at, voided_at }: Row<"invoices">,
  { status, accessUntil }: { status: Row<"subscriptions">["status"]; accessUntil: Date },
): InvoiceStatus["state"] {
  // An invoice that is to be voided can still be paid if someone already started to pay it.
  if (voided_at !== null || (void_asked_at !== null && session.status === "pending")) return "void"
  if (status === "canceled") return "canceled"
  if (paidStatuses.includes(session.status)) return "paid"
  if (now < due_at) return "open"
  return now < accessUntil ? "due" : "past_due"
}

/** The subscription that a session starts or renews; undefined if there is none. */
export async function renewalOf(ctx: TxContext, session: ShownSession): Promise<Renewal | undefined> {
  if (session.product_id === null) return undefined
  const row = await ctx.db
    .selectFrom("invoices")
    .innerJoin("subscriptions", "subscriptions.id", "invoices.subscription_id")
    .innerJoin("products", "products.id", "invoices.product_id")
    .select(["invoices.sequence", "products.name", "subscriptions.max_periods"])
    .select(["subscriptions.trial_days", "subscriptions.has_trial"])
    .select(["subscriptions.billing_interval as interval", "subscriptions.billing_count as count"])
    .where("invoices.session_id", "=", session.id)
    .executeTakeFirst()
  if (!row) return undefined
  const { interval, count, sequence, max_periods } = row
  const trialDays = sequence === 1 && row.has_trial ? row.trial_days : 0
  return { product: shown(row.name), interval, count, trialDays, maxPeriods: max_periods }
}

/** The subscription that a paywall's page offers instead of a one-time payment; null if there is none. */
export async function subscriptionOffered(
  ctx: TxContext,
  paywall: Row<"paywalls">,
): Promise<PaywallPage["subscription"]> {
  const product = await productToSubscribe(ctx, paywall)
  if (!product?.billing_interval || product.billing_count === null) return null
  const { token } = networkOf(ctx.chain, product.chain_id)
  return {
    product: shown(product.name),
    amount: formatAmount(product.price, token.decimals),
    interval: product.billing_interval,
    count: product.billing_count,
    trialDays: product.trial_days,
    maxPeriods: product.max_periods,
  }
}
