/**
 * Advances subscriptions: records the outcome of their invoices, folds and writes their state, and creates the
 * invoices that are due next. The job and the requests share this code. Each kind of read or write is one statement
 * for all subscriptions.
 */
import { emit, type NewEvent } from "../../account/webhooks/emit.ts"
import type { EventData } from "../../account/webhooks/events.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { newId } from "../../platform/ids.ts"
import { subscriptionChanges } from "../../platform/metrics.ts"
import { type BlockedBy, createRenewals } from "../checkouts/create-renewals.ts"
import { endPending } from "../checkouts/create-session.ts"
import { begins, claimFirst, type FirstClaim, noteFirst } from "./claim-first-subscription.ts"
import {
  anchorAtResume,
  CANCEL_AFTER_MS,
  type FoldedSubscription,
  firstPeriod,
  foldSubscription,
  NONE,
} from "./fold-subscription.ts"
import { factsOf, type Held, isEnded, lastOf } from "./load-subscription.ts"
import { changeEvent, changeOf, renewalEvent } from "./notify-subscription.ts"
import { insertInvoices, lostPayments, writeInvoices, writeSubscriptions } from "./queries.ts"

/** The wait before a retry while payments are paused, or while the merchant must change something. */
const BLOCKED_MS: Record<BlockedBy, number> = { payments_paused: 60_000, payout_address: 600_000, price: 600_000 }

/** A subscription that is being advanced. */
interface CurrentSubscription {
  before: Row<"subscriptions">
  held: Held
  folded: FoldedSubscription
  blockedBy: BlockedBy | null
  events: NewEvent<keyof EventData>[]
}

/**
 * Advances subscriptions that this transaction has locked, and returns their rows. Their events are emitted in the
 * same transaction.
 */
export async function advance(ctx: TxContext, given: readonly Held[]): Promise<Row<"subscriptions">[]> {
  if (given.length === 0) return []
  await reportLost(ctx, given)
  const all = await noteFirst(ctx, given)
  const standings = all.map(held => standingOf(ctx, held))
  const closing = standings.filter(({ folded, held }) => folded.isVoiding && held.isSessionHeld)
  await endPending(
    ctx,
    closing.map(({ held }) => held.session.id),
  )
  await writeInvoices(
    ctx,
    standings.flatMap(({ held }, i) => changed(all[i], held)),
  )
  await makeInvoices(ctx, standings)
  const rows = standings.map(standing => rowOf(ctx, standing))
  await writeSubscriptions(ctx, rows)
  await emit(ctx, ...standings.flatMap(({ events }) => events))
  return rows
}

/**
 * Returns a locked subscription in the state that its invoices' sessions determine now. Its row holds the result of
 * the last round, and an invoice may have been paid since then. Writes nothing.
 */
export function asOfNow(ctx: TxContext, before: Held): Held {
  const { held, folded } = presentOf(ctx, before)
  if (folded.status === null) return before
  const { status, cancelReason: cancel_reason, paidUntil: paid_until, accessUntil: access_until } = folded
  return { ...held, subscription: { ...held.subscription, status, cancel_reason, paid_until, access_until } }
}

function presentOf(ctx: TxContext, before: Held): Pick<CurrentSubscription, "held" | "folded"> {
  const held = noteLast(ctx, healed(ctx, begun(before)))
  return { held, folded: foldedOf(ctx, held) }
}

function standingOf(ctx: TxContext, before: Held): CurrentSubscription {
  const { held, folded } = presentOf(ctx, before)
  const standing = { before: before.subscription, held, folded, blockedBy: null, events: [] }
  if (!folded.isVoiding) return standing
  const last = lastOf(held.invoices)
  // An invoice that was paid when the subscription was canceled does not count as unpaid at that time, even if a
  // reorg removed its payment.
  const { canceled_at: canceledAt, paused_at: pausedAt, cancel_asked_by: canceledBy } = held.subscription
  const askedBy = pausedAt === null && canceledBy === "subscriber" ? "subscriber" : "merchant"
  const askedAt = canceledAt ? new Date(canceledAt.getTime() - 1) : ctx.now()
  const asked = last.void_asked_at ? {} : ({ void_asked_at: askedAt, void_asked_by: askedBy } as const)
  const voiding = withLast(held, { ...last, ...asked })
  // A session that was created after the locks were taken is not locked, so only the next round can close it.
  return { ...standing, held: voiding, folded: held.isSessionHeld ? folded : { ...folded, runAt: ctx.now() } }
}

function foldedOf(ctx: TxContext, held: Held): FoldedSubscription {
  const facts = factsOf(held, ctx.settings.invoiceAheadMs)
  return facts ? foldSubscription(facts, ctx.now()) : NONE
}

/** Starts a subscription whose first invoice was paid, or restarts it after a reorg removed the first payment. */
function begun(held: Held): Held {
  const beginning = begins(held)
  if (!beginning) return held
  const { subscription, invoices, session } = held
  const { startedAt, payer } = beginning
  const billing = { interval: subscription.billing_interval, count: subscription.billing_count }
  const trialDays = subscription.has_trial ? subscription.trial_days : 0
  const { anchor, periodEnd } = firstPeriod(billing, trialDays, startedAt)
  // Anyone with the checkout's link can enter an e-mail address, so it does not replace the merchant's.
  const customer_email = subscription.customer_email ?? session.customer_email
  return withLast(
    { ...held, subscription: { ...subscription, started_at: startedAt, anchor, payer, customer_email } },
    { ...lastOf(invoices), period_start: startedAt, period_end: periodEnd },
  )
}

const withLast = (held: Held, last: Row<"invoices">): Held => ({
  ...held,
  invoices: [...held.invoices.slice(0, -1), last],
})

/**
 * If the merchant's own fault blocked billing until access ended, periods are counted from now on, because nobody had
 * access in between.
 */
function healed(ctx: TxContext, held: Held): Held {
  const { anchor, blocked_by, paid_until, access_until } = held.subscription
  const isOver = access_until !== null && access_until <= ctx.now()
  if (!anchor || !paid_until || !isOver || !blocked_by || blocked_by === "payments_paused") return held
  return { ...held, subscription: { ...held.subscription, anchor: anchorAtResume(anchor, paid_until, ctx.now()) } }
}

/**
 * Records whether the last invoice is paid or void. Earlier invoices are void, or their payment was final when the
 * next one was created.
 */
function noteLast(ctx: TxContext, held: Held): Held {
  const { subscription, session } = held
  const last = lastOf(held.invoices)
  // Money that is found or accepted after a void still pays, because no later invoice covers that period.
  const isPaid = session.status === "confirmed"
  const paid_at = isPaid ? (last.paid_at ?? session.confirmed_at) : null
  const isVoid = last.void_asked_at !== null && isEnded(session)
  const voided_at = isPaid ? null : (last.voided_at ?? (isVoid ? ctx.now() : null))
  // Without its first payment, a subscription has not started, and its first invoice has no period.
  const period = last.sequence === 1 && !isPaid ? { period_start: null, period_end: null } : {}
  // A paid invoice must not be voided if a reorg opens it again. After a cancellation, these columns say what was
  // unpaid at that time.
  const unasked = isPaid && !subscription.canceled_at ? { void_asked_at: null, void_asked_by: null } : {}
  const noted = withLast(held, { ...last, paid_at, voided_at, ...unasked, ...period })
  const wasVoided = last.voided_at !== null
  const isBack = isPaid && !last.paid_at && (subscription.cancel_reason === "unpaid" || wasVoided)
  return isBack ? back(ctx, noted, wasVoided) : noted
}

/**
 * Restores an invoice that was paid after it was voided or had canceled its subscription. The invoice's period now
 * starts at its payment if that period passed without access, or if the invoice was closed and access has ended. The
 * reason is that a period costs its full price.
 */
function back(ctx: TxContext, held: Held, wasVoided: boolean): Held {
  const { access_until: accessUntil, canceled_at: canceledAt } = held.subscription
  const subscription = { ...held.subscription, cancel_reason: null }
  const last = lastOf(held.invoices)
  const { period_start, period_end, product_id } = last
  const now = ctx.now()
  const isOver = accessUntil !== null && accessUntil <= now
  const isUnused = wasVoided && canceledAt === null && isOver && period_start !== null && period_start <= now
  if (!period_start || !period_end || (period_end > now && !isUnused)) return { ...held, subscription }
  // The subscription has since moved to another product, so the period that was paid keeps its own length.
  if (product_id !== subscription.product_id) {
    const asLong = new Date(now.getTime() + period_end.getTime() - period_start.getTime())
    return withLast({ ...held, subscription }, { ...last, period_start: now, period_end: asLong })
  }
  const billing = { interval: subscription.billing_interval, count: subscription.billing_count }
  const { anchor, periodEnd } = firstPeriod(billing, 0, now)
  return withLast(
    { ...held, subscription: { ...subscription, anchor } },
    { ...last, period_start: anchor, period_end: periodEnd },
  )
}

/**
 * Logs each earlier invoice whose payment was final but was removed by a reorg. The invoice stays paid until an
 * operator decides.
 */
async function reportLost(ctx: TxContext, all: readonly Held[]): Promise<void> {
  const earlier = all.flatMap(({ invoices }) => invoices.slice(0, -1).filter(each => each.paid_at))
  for (const { subscriptionId, sessionId } of await lostPayments(ctx, earlier))
    ctx.log.error(
      { subscriptionId, sessionId },
      "a reorg removed the payment of an earlier invoice, which was final: the period stays paid, and money is missing for it",
    )
}

/** Returns the last invoice if one of its recorded fields changed. */
function changed(before: Held | undefined, now: Held): Row<"invoices">[] {
  const was = before && lastOf(before.invoices)
  const is = lastOf(now.invoices)
  const names = ["paid_at", "voided_at", "void_asked_at", "period_start", "period_end"] as const
  return names.some(name => was?.[name]?.getTime() !== is[name]?.getTime()) ? [is] : []
}

/** Creates the next invoices with their sessions and events, or records why an invoice can't be created now. */
async function makeInvoices(ctx: TxContext, standings: readonly CurrentSubscription[]): Promise<void> {
  const due = standings.flatMap(standing => (standing.folded.next ? [{ standing, next: standing.folded.next }] : []))
  if (due.length === 0) return
  const ids = new Set(due.map(({ standing }) => standing.held.subscription.product_id))
  const products = await ctx.db
    .selectFrom("products")
    .selectAll()
    .where("id", "in", [...ids])
    .execute()
  const byId = new Map(products.map(product => [product.id, product]))
  const made = await createRenewals(
    ctx,
    due.map(({ standing: { held }, next }) => {
      const { product_id, customer_email: customerEmail } = held.subscription
      const product = byId.get(product_id)
      if (!product) throw new Error("a subscription has no product")
      const expiresAt = new Date(next.dueAt.getTime() + CANCEL_AFTER_MS)
      return { product, before: held.session, customerEmail, expiresAt }
    }),
  )
  await noteMoved(
    ctx,
    due.flatMap(({ standing }, i) => (typeof made[i] === "string" ? [] : [standing])),
  )
  const invoices: Row<"invoices">[] = []
  for (const [i, { standing, next }] of due.entries()) {
    const session = made[i]
    if (session === undefined) throw new Error("a renewal has no answer")
    if (typeof session === "string") block(ctx, standing, next, session)
    else invoices.push(bill(ctx, standing, next, session))
  }
  await insertInvoices(ctx, invoices)
}

/** Records, for subscriptions that moved, whether each is the payer's first to the product that is billed now. */
async function noteMoved(ctx: TxContext, standings: readonly CurrentSubscription[]): Promise<void> {
  const moved = standings.filter(
    ({ held: { subscription, invoices } }) => lastOf(invoices).product_id !== subscription.product_id,
  )
  const claims = moved.flatMap(({ held: { subscription } }): FirstClaim[] => {
    const { id: subscriptionId, product_id: productId, chain_id: chainId, payer, started_at: startedAt } = subscription
    return payer && startedAt ? [{ payer, productId, subscriptionId, chainId, startedAt }] : []
  })
  const isFirst = await claimFirst(ctx, claims)
  for (const standing of moved) {
    const { subscription } = standing.held
    const is_first = isFirst(subscription.id, subscription.product_id)
    standing.held = { ...standing.held, subscription: { ...subscription, is_first } }
  }
}

type Next = NonNullable<FoldedSubscription["next"]>

/** Records why the next invoice can't be created, and when to try again. */
function block(ctx: TxContext, standing: CurrentSubscription, { graceUntil }: Next, blockedBy: BlockedBy): void {
  const runAt = new Date(ctx.now().getTime() + BLOCKED_MS[blockedBy])
  const { blocked_by: blockedBefore, access_until: accessUntil } = standing.before
  // A pause of payments must not restore access that ended through the merchant's own fault.
  const isOver = accessUntil !== null && accessUntil <= ctx.now()
  const isMerchants = blockedBefore !== null && blockedBefore !== "payments_paused" && isOver
  standing.blockedBy = isMerchants ? blockedBefore : blockedBy
  standing.folded = { ...standing.folded, runAt }
  // Nobody can pay while payments on the network are paused, so nobody loses access. If the merchant must change
  // something, access ends with the grace period. Otherwise a price that is too low would give access forever.
  if (standing.blockedBy !== "payments_paused") return
  const status = ctx.now() < graceUntil ? "active" : "past_due"
  standing.folded = { ...standing.folded, accessUntil: graceUntil, status }
}

/** Adds the next invoice and its event to the subscription. */
function bill(
  ctx: TxContext,
  standing: CurrentSubscription,
  { periodStart, periodEnd, dueAt, anchor }: Next,
  session: Row<"checkout_sessions">,
): Row<"invoices"> {
  const { held } = standing
  const { id, merchant_id, product_id, chain_id, event_sequence } = held.subscription
  const now = ctx.now()
  const invoice: Row<"invoices"> = {
    id: newId("inv"),
    subscription_id: id,
    merchant_id,
    sequence: lastOf(held.invoices).sequence + 1,
    session_id: session.id,
    product_id,
    amount: session.amount,
    currency: session.currency,
    period_start: periodStart,
    period_end: periodEnd,
    due_at: dueAt,
    created_at: now,
    updated_at: now,
    paid_at: null,
    void_asked_at: null,
    void_asked_by: null,
    voided_at: null,
  }
  const subscription = { ...held.subscription, anchor, event_sequence: event_sequence + 1 }
  const invoices = [...held.invoices, invoice]
  standing.held = { ...held, subscription, invoices, session, isSessionHeld: true, isFinal: false }
  standing.folded = foldedOf(ctx, standing.held)
  standing.events.push(renewalEvent(ctx, subscription, invoice, session))
  const { name: network } = networkOf(ctx.chain, chain_id)
  ctx.onCommit(() => subscriptionChanges.inc({ network, change: "invoiced" }))
  return invoice
}

/** Builds a subscription's new row. A change of status adds an event. */
function rowOf(ctx: TxContext, standing: CurrentSubscription): Row<"subscriptions"> {
  const { before, held, blockedBy, events } = standing
  const { status, cancelReason, paidUntil, accessUntil, runAt } = standing.folded
  const change = changeOf(before.status, status)
  const now = ctx.now()
  const row: Row<"subscriptions"> = {
    ...held.subscription,
    status,
    cancel_reason: cancelReason,
    paid_until: paidUntil,
    access_until: accessUntil,
    run_at: runAt,
    blocked_by: blockedBy,
    failed_rounds: 0,
    updated_at: now,
    ended_at: status === "canceled" ? (before.ended_at ?? now) : null,
    event_sequence: held.subscription.event_sequence + (change ? 1 : 0),
  }
  if (status === before.status) return row
  const last = lastOf(held.invoices)
  const isOpen = !last.paid_at && !last.void_asked_at && !isEnded(held.session)
  if (change) events.push(changeEvent(ctx, change, row, isOpen ? last : undefined))
  const { name: network } = networkOf(ctx.chain, row.chain_id)
  ctx.onCommit(() => {
    ctx.log.info({ subscriptionId: row.id, from: before.status, to: status }, "subscription")
    subscriptionChanges.inc({ network, change: status ?? "reversed" })
  })
  return row
}
