/**
 * Handles the requests of a merchant or subscriber: pause, resume, cancel, change of product. Repeating a request
 * changes nothing.
 */
import { emitAttached, type SplitChange } from "../../ledger/splits/approve-splits.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { isRecurring } from "../checkouts/begin-subscription.ts"
import { ownProduct } from "../checkouts/manage-catalog.ts"
import { advance, asOfNow } from "./advance-subscription.ts"
import { claimFirst, isUndone } from "./claim-first-subscription.ts"
import { anchorAtMove, anchorAtResume } from "./fold-subscription.ts"
import { type Held, holdSubscription, isEnded, lastOf } from "./load-subscription.ts"
import { writeInvoices } from "./queries.ts"

/** Who must own the subscription: a merchant or a subscriber. */
export type Owner = { merchantId: string } | { payer: string }

const refused = (message: string) => new ApiError("INVALID_OPERATION", undefined, message)

/** Pauses a subscription: its open invoice is closed, and no other is created until it is resumed. */
export const pauseSubscription = (ctx: TxContext, owner: Owner, id: string): Promise<Row<"subscriptions">> =>
  change(ctx, owner, id, ({ subscription }) => (subscription.paused_at ? {} : { paused_at: ctx.now() }))

/**
 * How many invoices for one period are created while a subscriber repeatedly cancels and resumes. Each causes an
 * event.
 */
export const MAX_VOIDED = 3

/** Resumes a paused subscription, or withdraws the caller's own cancellation at the end of the period. */
export const resumeSubscription = (ctx: TxContext, owner: Owner, id: string): Promise<Row<"subscriptions">> =>
  change(ctx, owner, id, ({ subscription, invoices, session }) => {
    const { paused_at, cancel_asked_by, anchor, paid_until } = subscription
    // After too many voided invoices, the subscriber is refused. The merchant can then withdraw any cancellation.
    const lastOnes = invoices.slice(-MAX_VOIDED)
    const isOnePeriod = new Set(lastOnes.map(each => each.period_start?.getTime())).size === 1
    const isUsedUp = isOnePeriod && lastOnes.every(each => each.voided_at && each.void_asked_by === "subscriber")
    const left = "merchantId" in owner && isUsedUp ? null : removeAsker(cancel_asked_by, askerOf(owner))
    const isKept = left !== cancel_asked_by
    // Only the merchant can end a pause.
    const isPaused = paused_at !== null && "merchantId" in owner
    if (!isKept && !isPaused) {
      if (paused_at) throw refused("The merchant has paused this subscription, and only the merchant can resume it.")
      if (!cancel_asked_by) return {}
      throw refused(
        "payer" in owner
          ? "The merchant has canceled this subscription at the end of the paid period, and only the merchant can undo that."
          : "The subscriber has canceled this subscription at the end of the paid period, and only the subscriber can undo that.",
      )
    }
    const last = lastOf(invoices)
    // The open invoice can be paid until it is closed, and a second one would be for the same period.
    if (last.void_asked_at && !last.voided_at && !last.paid_at && !isEnded(session)) throw refused(stillOpen(session))
    if ("payer" in owner && isUsedUp)
      throw refused(
        "This subscription was canceled and resumed too often for its next period. Ask its merchant to resume it.",
      )
    const kept = { cancel_asked_by: left, cancel_at_period_end: left !== null }
    if (!isPaused || !anchor || !paid_until) return kept
    return { ...kept, paused_at: null, anchor: anchorAtResume(anchor, paid_until, ctx.now()) }
  })

/** Why the open invoice's session has not ended, and what will end it. */
function stillOpen({ status, exception }: Row<"checkout_sessions">): string {
  if (status === "pending") return "The open invoice of this subscription is being closed. Try again in a minute."
  if (exception === "underpaid")
    return "A part of this subscription's open invoice is paid. The merchant must first accept or return that payment (`/api/console/payments`)."
  return "A payment of this subscription's open invoice is in progress. Try again when that payment is confirmed or has failed."
}

type Asker = "merchant" | "subscriber"
type AskedBy = Row<"subscriptions">["cancel_asked_by"]

const askerOf = (owner: Owner): Asker => ("payer" in owner ? "subscriber" : "merchant")

const addAsker = (by: AskedBy, asker: Asker): AskedBy => (by === null || by === asker ? asker : "both")

function removeAsker(by: AskedBy, asker: Asker): AskedBy {
  if (by === "both") return asker === "merchant" ? "subscriber" : "merchant"
  return by === asker ? null : by
}

/** Cancels a subscription immediately, or at the end of the paid period. */
export const cancelSubscription = (
  ctx: TxContext,
  owner: Owner,
  id: string,
  at: "now" | "period_end",
): Promise<Row<"subscriptions">> =>
  change(ctx, owner, id, ({ subscription: { cancel_asked_by, paid_until } }) => {
    const asked = { cancel_asked_by: addAsker(cancel_asked_by, askerOf(owner)) }
    // If the paid period is already over, the subscription ends now.
    const isNow = at === "now" || !paid_until || paid_until <= ctx.now()
    if (isNow) return { ...asked, canceled_at: ctx.now() }
    return asked.cancel_asked_by === cancel_asked_by ? {} : { ...asked, cancel_at_period_end: true }
  })

/**
 * Moves a subscription to another product with its next invoice. If the length of the periods changes, they are
 * counted from the end of the paid period.
 */
export async function moveSubscription(
  ctx: TxContext,
  merchantId: string,
  id: string,
  productId: string,
): Promise<Row<"subscriptions">> {
  const product = await ownProduct(ctx, merchantId, productId)
  const splits = await splitsOfMove(ctx, merchantId, id, productId)
  const row = await change(ctx, { merchantId }, id, async ({ subscription, invoices, session }) => {
    if (!product?.active || !isRecurring(product))
      throw invalid("productId", "must be the id of one of your active products with `billingInterval`")
    if (product.chain_id !== subscription.chain_id)
      throw invalid("productId", "must be a product on the network of the subscription")
    if (product.id === subscription.product_id) return {}
    const { id: product_id, billing_interval, billing_count, max_periods } = product
    const { payer, anchor, paid_until, started_at: startedAt } = subscription
    if (!payer || !startedAt || !anchor || !paid_until) throw new Error("a subscription that is moved has not begun")
    // The grace changes with the next invoice; an invoice that is open keeps its terms.
    await claimFirst(ctx, [{ payer, productId, subscriptionId: id, chainId: subscription.chain_id, startedAt }])
    const terms = { product_id, billing_interval, billing_count, max_periods }
    const isSamePace =
      billing_interval === subscription.billing_interval && billing_count === subscription.billing_count
    if (isSamePace) return terms
    const last = invoices.at(-1)
    if (last && !last.paid_at && !last.voided_at && !isEnded(session))
      throw refused(
        "This subscription has an open invoice, and the new product has periods of another length. Change the product when that invoice is paid, or pause the subscription first.",
      )
    return { ...terms, anchor: anchorAtMove(anchor, paid_until) }
  })
  if (splits.after !== undefined) await emitAttached(ctx, merchantId, id, splits.before, splits.after, productId)
  return row
}

/**
 * The split of a subscription's payments before and after a move to another product. `after` is undefined if the
 * subscription or product does not exist.
 */
export async function splitsOfMove(
  ctx: TxContext,
  merchantId: string,
  id: string,
  productId: string,
): Promise<SplitChange> {
  const present = await ctx.db
    .selectFrom("subscriptions")
    .innerJoin("products", "products.id", "subscriptions.product_id")
    .select("products.split_id")
    .where("subscriptions.id", "=", id)
    .where("subscriptions.merchant_id", "=", merchantId)
    .executeTakeFirst()
  const after = present && (await ownProduct(ctx, merchantId, productId))?.split_id
  return { before: present?.split_id ?? null, after }
}

type Change = Partial<
  Pick<
    Row<"subscriptions">,
    | "paused_at"
    | "canceled_at"
    | "cancel_at_period_end"
    | "cancel_asked_by"
    | "anchor"
    | "product_id"
    | "billing_interval"
    | "billing_count"
    | "max_periods"
  >
>

/**
 * Changes a subscription that has started and is not canceled, and advances it immediately. Throws `NOT_FOUND`,
 * `INVALID_OPERATION`.
 */
async function change(
  ctx: TxContext,
  owner: Owner,
  id: string,
  changeOf: (held: Held) => Change | Promise<Change>,
): Promise<Row<"subscriptions">> {
  const held = await holdSubscription(ctx, id)
  const { subscription } = held ?? {}
  const isTheirs =
    "merchantId" in owner ? subscription?.merchant_id === owner.merchantId : subscription?.payer === owner.payer
  if (!held || !subscription?.status || !isTheirs || isUndone(held)) throw new ApiError("NOT_FOUND")
  const present = asOfNow(ctx, held)
  if (present.subscription.status === "canceled")
    throw refused("This subscription is canceled. Its subscriber can start a new one with a new checkout.")
  const fields = await changeOf(present)
  if (Object.keys(fields).length > 0)
    await ctx.db.updateTable("subscriptions").set(fields).where("id", "=", id).execute()
  const asked = { ...held, subscription: { ...subscription, ...fields } }
  const [row] = await advance(ctx, [fields.canceled_at ? await closeLast(ctx, asked, fields.canceled_at) : asked])
  if (!row) throw new Error("a subscription was not advanced")
  return row
}

/**
 * Marks the last invoice as unpaid at the cancellation. If it is paid later, that payment gives access for its own
 * period.
 */
async function closeLast(ctx: TxContext, held: Held, canceledAt: Date): Promise<Held> {
  const last = lastOf(held.invoices)
  if (last.paid_at || held.session.status === "confirmed") return held
  const closed = { ...last, void_asked_at: canceledAt }
  await writeInvoices(ctx, [closed])
  return { ...held, invoices: [...held.invoices.slice(0, -1), closed] }
}
