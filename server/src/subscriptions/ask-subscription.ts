/** What a merchant or subscriber asks of a subscription: pause, resume, cancel, another product. Asked again, it changes nothing. */
import { isRecurring } from "../checkouts/begin-subscription.ts"
import { ownProduct } from "../checkouts/catalog.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { ApiError, invalid } from "../errors.ts"
import { advance } from "./advance-subscription.ts"
import { anchorAtResume } from "./fold-subscription.ts"
import { type Held, holdSubscription, isEnded } from "./load-subscription.ts"

/** Whose subscription it has to be. */
export type Owner = { merchantId: string } | { payer: string }

const refused = (message: string) => new ApiError("INVALID_OPERATION", undefined, message)

/** Pauses a subscription: its open invoice is closed, and none is made until it is resumed. */
export const pauseSubscription = (ctx: TxContext, owner: Owner, id: string): Promise<Row<"subscriptions">> =>
  change(ctx, owner, id, ({ subscription }) => (subscription.paused_at ? {} : { paused_at: ctx.now() }))

/** Resumes a paused subscription, or keeps one that was to end with its period. */
export const resumeSubscription = (ctx: TxContext, owner: Owner, id: string): Promise<Row<"subscriptions">> =>
  change(ctx, owner, id, ({ subscription, invoices, session }) => {
    const { paused_at, cancel_at_period_end, anchor, paid_until } = subscription
    if (!paused_at && !cancel_at_period_end) return {}
    if ("payer" in owner && !cancel_at_period_end)
      throw refused("This subscription is paused by its merchant, who alone can resume it.")
    const last = invoices.at(-1)
    // Until it is closed it can be paid, and a second invoice beside it would be for the same period.
    if (last?.void_asked_at && !last.voided_at && !last.paid_at && !isEnded(session))
      throw refused(
        session.status === "pending"
          ? "The open invoice of this subscription is being closed. Try again in a minute."
          : "Somebody is paying the open invoice of this subscription. Try again once that payment is confirmed or over.",
      )
    // A pause is the merchant's: its subscriber takes back what itself asked for.
    if ("payer" in owner) return { cancel_at_period_end: false }
    if (!paused_at || !anchor || !paid_until) return { paused_at: null, cancel_at_period_end: false }
    return { paused_at: null, cancel_at_period_end: false, anchor: anchorAtResume(anchor, paid_until, ctx.now()) }
  })

/** Cancels a subscription at once, or with the time that is paid. */
export const cancelSubscription = (
  ctx: TxContext,
  owner: Owner,
  id: string,
  at: "now" | "period_end",
): Promise<Row<"subscriptions">> =>
  change(ctx, owner, id, ({ subscription: { cancel_at_period_end, paid_until } }) => {
    // Where the paid time is over, its end is now.
    const isNow = at === "now" || !paid_until || paid_until <= ctx.now()
    if (isNow) return { canceled_at: ctx.now() }
    return cancel_at_period_end ? {} : { cancel_at_period_end: true }
  })

/** Has the next invoice made for another product. Its periods are counted from where the paid time ends, if they are of another length. */
export async function moveSubscription(
  ctx: TxContext,
  merchantId: string,
  id: string,
  productId: string,
): Promise<Row<"subscriptions">> {
  const product = await ownProduct(ctx, merchantId, productId)
  return await change(ctx, { merchantId }, id, ({ subscription, invoices, session }) => {
    if (!product?.active || !isRecurring(product))
      throw invalid("productId", "must be the id of one of your active products with `billingInterval`")
    if (product.chain_id !== subscription.chain_id)
      throw invalid("productId", "must be a product on the network of the subscription")
    if (product.id === subscription.product_id) return {}
    const { id: product_id, billing_interval, billing_count, max_periods } = product
    const terms = { product_id, billing_interval, billing_count, max_periods }
    const isSamePace =
      billing_interval === subscription.billing_interval && billing_count === subscription.billing_count
    if (isSamePace) return terms
    const last = invoices.at(-1)
    if (last && !last.paid_at && !last.voided_at && !isEnded(session))
      throw refused(
        "An invoice of this subscription is open, and the new product has periods of another length. Change it once that invoice is paid, or pause the subscription first.",
      )
    return { ...terms, anchor: subscription.paid_until }
  })
}

type Change = Partial<
  Pick<
    Row<"subscriptions">,
    | "paused_at"
    | "canceled_at"
    | "cancel_at_period_end"
    | "anchor"
    | "product_id"
    | "billing_interval"
    | "billing_count"
    | "max_periods"
  >
>

/** Changes a subscription that has begun and is not over, and advances it at once; `NOT_FOUND`, `INVALID_OPERATION`. */
async function change(
  ctx: TxContext,
  owner: Owner,
  id: string,
  changeOf: (held: Held) => Change,
): Promise<Row<"subscriptions">> {
  const held = await holdSubscription(ctx, id)
  const { subscription } = held ?? {}
  const isTheirs =
    "merchantId" in owner ? subscription?.merchant_id === owner.merchantId : subscription?.payer === owner.payer
  if (!held || !subscription?.status || !isTheirs) throw new ApiError("NOT_FOUND")
  if (subscription.status === "canceled")
    throw refused("This subscription is canceled. Its subscriber can start a new one with a new checkout.")
  const fields = changeOf(held)
  if (Object.keys(fields).length > 0)
    await ctx.db.updateTable("subscriptions").set(fields).where("id", "=", id).execute()
  return await advance(ctx, { ...held, subscription: { ...subscription, ...fields } })
}
