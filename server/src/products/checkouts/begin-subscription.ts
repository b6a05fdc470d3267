/** Creates a subscription together with the session that pays its first period. `subscriptions/` advances it later. */
import type { TxContext } from "../../platform/context.ts"
import type { BillingInterval, Row } from "../../platform/db/schema.ts"
import { newId } from "../../platform/ids.ts"
import type { OfferedProduct } from "./load-offer.ts"

/** A product that is billed once every period. */
export type RecurringProduct = OfferedProduct & { billing_interval: BillingInterval; billing_count: number }

export const isRecurring = (product: OfferedProduct | undefined): product is RecurringProduct =>
  product !== undefined && product.billing_interval !== null && product.billing_count !== null

/**
 * Writes a subscription with the product's current terms, and its first invoice. Both are hidden until the session is
 * paid.
 */
export async function beginSubscription(
  ctx: TxContext,
  session: Row<"checkout_sessions">,
  product: RecurringProduct,
): Promise<void> {
  const { merchant_id, chain_id, customer_email, created_at } = session
  const times = { created_at, updated_at: created_at }
  const { id } = await ctx.db
    .insertInto("subscriptions")
    .values({
      id: newId("sub"),
      merchant_id,
      chain_id,
      product_id: product.id,
      customer_email,
      billing_interval: product.billing_interval,
      billing_count: product.billing_count,
      trial_days: product.trial_days,
      max_periods: product.max_periods,
      ...times,
    })
    .returning("id")
    .executeTakeFirstOrThrow()
  const { amount, currency } = session
  await ctx.db
    .insertInto("invoices")
    .values({
      id: newId("inv"),
      subscription_id: id,
      merchant_id,
      sequence: 1,
      session_id: session.id,
      product_id: product.id,
      amount,
      currency,
      due_at: created_at,
      ...times,
    })
    .execute()
}
