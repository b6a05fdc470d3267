/** Advances one subscription: notes what became of its invoices, folds them, writes that, and makes the invoice that is due next. */
import { networkOf } from "../chain/networks.ts"
import { createRenewalSession, endPending } from "../checkouts/create-session.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { ApiError } from "../errors.ts"
import { newId } from "../ids.ts"
import { subscriptionChanges } from "../metrics.ts"
import {
  CANCEL_AFTER_MS,
  type FoldedSubscription,
  firstPeriod,
  foldSubscription,
  GRACE_MS,
  NONE,
} from "./fold-subscription.ts"
import { factsOf, type Held, isEnded } from "./load-subscription.ts"
import { changeOf, notifyChange, notifyRenewal } from "./notify-subscription.ts"

/** While no session can be made: the network is paused, or the merchant has no payout address. */
const BLOCKED_MS = 60_000

/** Advances a subscription that this transaction holds, and answers its row; events are emitted in the same transaction. */
export async function advance(ctx: TxContext, held: Held): Promise<Row<"subscriptions">> {
  const before = held.subscription
  await reportLost(ctx, held)
  let now = await noteLast(ctx, begun(held))
  let folded = foldedOf(ctx, now)
  let runAt = folded.runAt
  let { accessUntil } = folded
  if (folded.isVoiding) {
    now = await voidLast(ctx, now)
    // Held by nobody who could close it: it was made since. The next look holds it.
    if (!now.isSessionHeld) runAt = ctx.now()
  }
  if (folded.next) {
    const made = await makeInvoice(ctx, now, folded.next)
    if ("invoices" in made) {
      now = made
      folded = foldedOf(ctx, now)
      ;({ runAt, accessUntil } = folded)
    } else {
      runAt = new Date(ctx.now().getTime() + BLOCKED_MS)
      // While the network is paused nobody can pay, so nobody loses access for it. What its merchant has to change ends with the grace:
      // else a price that is too low now would be access for ever.
      if (made.refused.code === "PAYMENTS_PAUSED") accessUntil = new Date(folded.next.dueAt.getTime() + GRACE_MS)
    }
  }
  return await write(ctx, before, now, { ...folded, runAt, accessUntil })
}

function foldedOf(ctx: TxContext, held: Held): FoldedSubscription {
  const facts = factsOf(held, ctx.settings.invoiceAheadMs)
  return facts ? foldSubscription(facts, ctx.now()) : NONE
}

/** A subscription whose first invoice was paid begins then; one whose first payment a reorg removed begins again. */
function begun(held: Held): Held {
  const { subscription, invoices, session } = held
  const [first, ...later] = invoices
  const { confirmed_at: startedAt, payer } = session
  const isBeginning = subscription.status === null && later.length === 0 && session.status === "confirmed"
  if (!isBeginning || !first || !startedAt) return held
  if (!payer) throw new Error("a confirmed session has no payer")
  const billing = { interval: subscription.billing_interval, count: subscription.billing_count }
  const { anchor, periodEnd } = firstPeriod(billing, subscription.trial_days, startedAt)
  return {
    ...held,
    subscription: {
      ...subscription,
      ...{ started_at: startedAt, anchor, payer, customer_email: session.customer_email },
    },
    invoices: [{ ...first, period_start: startedAt, period_end: periodEnd }],
  }
}

/** Notes whether the last invoice is paid, or void. All before it were paid for good when it was made, or are void. */
async function noteLast(ctx: TxContext, held: Held): Promise<Held> {
  const { invoices, session } = held
  const last = lastOf(held)
  // Money that was found after a void, or that the merchant accepted then, is not for nothing: no later invoice has its period.
  const isPaid = session.status === "confirmed"
  const paid_at = isPaid ? (last.paid_at ?? session.confirmed_at) : null
  const isVoid = last.void_asked_at !== null && isEnded(session)
  const voided_at = isPaid ? null : (last.voided_at ?? (isVoid ? ctx.now() : null))
  return await writeLast(ctx, held, { ...last, paid_at, voided_at }, invoices)
}

/** Logs each earlier invoice whose payment a reorg removed though it was final. The invoice stays paid: an operator decides. */
async function reportLost(ctx: TxContext, { subscription, invoices }: Held): Promise<void> {
  if (invoices.length < 2) return
  const earlier = invoices.slice(0, -1).filter(each => each.paid_at)
  if (earlier.length === 0) return
  const lost = await ctx.db
    .selectFrom("checkout_sessions")
    .select("id")
    .where(
      "id",
      "in",
      earlier.map(each => each.session_id),
    )
    .where("status", "<>", "confirmed")
    .execute()
  for (const { id: sessionId } of lost)
    ctx.log.error(
      { subscriptionId: subscription.id, sessionId },
      "a reorg removed the payment of an earlier invoice, which was final: the period stays paid, and money is missing for it",
    )
}

const lastOf = ({ invoices }: Pick<Held, "invoices">): Row<"invoices"> => {
  const last = invoices.at(-1)
  if (!last) throw new Error("a subscription has no invoice")
  return last
}

/** Writes what changed of the last invoice; a period too. */
async function writeLast(
  ctx: TxContext,
  held: Held,
  last: Row<"invoices">,
  invoices: readonly Row<"invoices">[],
): Promise<Held> {
  const { paid_at, voided_at, void_asked_at, period_start, period_end } = last
  const fields = { paid_at, voided_at, void_asked_at, period_start, period_end }
  await ctx.db
    .updateTable("invoices")
    .set({ ...fields, updated_at: ctx.now() })
    .where("id", "=", last.id)
    .where(eb =>
      eb.or(Object.entries(fields).map(([name, value]) => eb(name as keyof typeof fields, "is distinct from", value))),
    )
    .execute()
  return { ...held, invoices: [...invoices.slice(0, -1), last] }
}

/** Ends the open invoice's session, if nobody has begun to pay it. */
async function voidLast(ctx: TxContext, held: Held): Promise<Held> {
  const last = lastOf(held)
  if (held.isSessionHeld) await endPending(ctx, last.merchant_id, last.session_id)
  return await writeLast(ctx, held, { ...last, void_asked_at: last.void_asked_at ?? ctx.now() }, held.invoices)
}

/** Makes the next invoice with its session and event, or answers why no session can be made. */
async function makeInvoice(
  ctx: TxContext,
  held: Held,
  { periodStart, periodEnd, dueAt }: NonNullable<FoldedSubscription["next"]>,
): Promise<Held | { refused: ApiError }> {
  const { subscription } = held
  const { id, merchant_id, customer_email: customerEmail } = subscription
  const product = await ctx.db
    .selectFrom("products")
    .selectAll()
    .where("id", "=", subscription.product_id)
    .executeTakeFirstOrThrow()
  let session: Row<"checkout_sessions">
  try {
    const expiresAt = new Date(dueAt.getTime() + CANCEL_AFTER_MS)
    session = await createRenewalSession(ctx, product, { before: held.session, customerEmail, expiresAt })
  } catch (error) {
    // These are thrown before anything is written, so that the transaction goes on.
    if (!(error instanceof ApiError)) throw error
    ctx.log.warn({ subscriptionId: id, err: error }, "an invoice can't be made now, and will be tried again")
    return { refused: error }
  }
  const now = ctx.now()
  const invoice = await ctx.db
    .insertInto("invoices")
    .values({
      ...{ id: newId("inv"), subscription_id: id, merchant_id, sequence: lastOf(held).sequence + 1 },
      ...{ session_id: session.id, product_id: product.id, amount: session.amount, currency: session.currency },
      ...{ period_start: periodStart, period_end: periodEnd, due_at: dueAt, created_at: now, updated_at: now },
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  const numbered = { ...subscription, event_sequence: subscription.event_sequence + 1 }
  await notifyRenewal(ctx, numbered, invoice, session)
  subscriptionChanges.inc({ network: networkOf(ctx.chain, subscription.chain_id).name, change: "invoiced" })
  const invoices = [...held.invoices, invoice]
  return { subscription: numbered, invoices, session, isSessionHeld: true, isFinal: false }
}

/** Writes the state of a subscription, and notifies the merchant of a change. */
async function write(
  ctx: TxContext,
  before: Row<"subscriptions">,
  held: Held,
  { status, cancelReason, paidUntil, accessUntil, runAt }: FoldedSubscription,
): Promise<Row<"subscriptions">> {
  const now = ctx.now()
  const change = changeOf(before.status, status)
  const { event_sequence, started_at, anchor, payer, customer_email } = held.subscription
  const fields = {
    ...{ status, cancel_reason: cancelReason, paid_until: paidUntil, access_until: accessUntil },
    ...{ started_at, anchor, payer, customer_email, run_at: runAt },
    ended_at: status === "canceled" ? (before.ended_at ?? now) : null,
    event_sequence: event_sequence + (change ? 1 : 0),
  }
  const row = await ctx.db
    .updateTable("subscriptions")
    .set({ ...fields, updated_at: now })
    .where("id", "=", before.id)
    .returningAll()
    .executeTakeFirstOrThrow()
  if (status === before.status) return row
  const last = lastOf(held)
  const isOpen = !last.paid_at && !last.void_asked_at && !isEnded(held.session)
  if (change) await notifyChange(ctx, change, row, isOpen ? last : undefined)
  ctx.log.info({ subscriptionId: row.id, from: before.status, to: status }, "subscription")
  subscriptionChanges.inc({ network: networkOf(ctx.chain, row.chain_id).name, change: status ?? "reversed" })
  return row
}
