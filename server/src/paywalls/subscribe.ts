/** A paywall that a subscription opens: how a checkout of it begins. */
import { ownProduct } from "../checkouts/catalog.ts"
import { createSession } from "../checkouts/create-session.ts"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { ApiError } from "../errors.ts"

/** The product whose subscription opens a paywall, while both are sold; undefined for none. */
export async function productToSubscribe(
  ctx: TxContext,
  { merchant_id, subscription_product_id, active }: Row<"paywalls">,
): Promise<Row<"products"> | undefined> {
  if (!active || subscription_product_id === null) return undefined
  const product = await ownProduct(ctx, merchant_id, subscription_product_id)
  return product?.active ? product : undefined
}

/**
 * A checkout of the product that opens a paywall, for anyone; it leads back to the paywall. `INVALID_OPERATION` where there is no
 * such product for sale, `PAYMENTS_PAUSED`, `PAYOUT_ADDRESS_REQUIRED`.
 */
export async function startSubscription(ctx: Context, paywall: Row<"paywalls">): Promise<Row<"checkout_sessions">> {
  return await inTransaction(ctx, async ctx => {
    const product = await productToSubscribe(ctx, paywall)
    if (!product) throw new ApiError("INVALID_OPERATION", undefined, "No subscription to this paywall is sold now.")
    const redirectUrl = `${ctx.settings.baseUrl}/paywall/${paywall.id}`
    return await createSession(ctx, paywall.merchant_id, { productId: product.id, redirectUrl })
  })
}
