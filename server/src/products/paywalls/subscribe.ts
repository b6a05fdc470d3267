/** Starts a checkout of the subscription that opens a paywall. */
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { createSession } from "../checkouts/create-session.ts"
import { ownProduct } from "../checkouts/manage-catalog.ts"

/** Returns the product whose subscription opens a paywall, if both are for sale; otherwise undefined. */
export async function productToSubscribe(
  ctx: TxContext,
  { merchant_id, subscription_product_id, active }: Row<"paywalls">,
): Promise<Row<"products"> | undefined> {
  if (!active || subscription_product_id === null) return undefined
  const product = await ownProduct(ctx, merchant_id, subscription_product_id)
  return product?.active ? product : undefined
}

/**
 * Creates a checkout of the product that opens a paywall, for anyone. The checkout redirects back to the paywall.
 * Throws `INVALID_OPERATION` if no such product is for sale, `PAYMENTS_PAUSED`, or `PAYOUT_ADDRESS_REQUIRED`.
 */
export async function startSubscription(ctx: Context, paywall: Row<"paywalls">): Promise<Row<"checkout_sessions">> {
  return await inTransaction(ctx, async ctx => {
    const product = await productToSubscribe(ctx, paywall)
    if (!product)
      throw new ApiError("INVALID_OPERATION", undefined, "Subscriptions to this paywall are currently not sold.")
    const redirectUrl = `${ctx.settings.baseUrl}/paywall/${paywall.id}`
    return (await createSession(ctx, paywall.merchant_id, { productId: product.id, redirectUrl })).session
  })
}
