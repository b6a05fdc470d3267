/** Checks which product's subscriptions may open a paywall. */
import { type NetworkInfo, networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { ErrorDetail } from "../../platform/errors.ts"
import { ownProduct } from "../checkouts/manage-catalog.ts"

/** Returns the faults of the product whose subscriptions open a paywall; none if there is no product. */
export async function subscriptionFaults(
  ctx: TxContext,
  merchantId: string,
  network: NetworkInfo,
  productId: string | null | undefined,
): Promise<ErrorDetail[]> {
  if (typeof productId !== "string") return []
  const path = "subscriptionProductId"
  const product = await ownProduct(ctx, merchantId, productId)
  if (!product?.billing_interval)
    return [{ path, message: "must be the id of one of your products that have a `billingInterval`" }]
  if (networkOf(ctx.chain, product.chain_id).name === network.name) return []
  return [{ path, message: `must be a product on ${network.name}, the network of the paywall` }]
}
