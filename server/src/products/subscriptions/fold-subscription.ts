/**
 * Folds a subscription's invoices and requests into its status, access and next invoice. Pure: the fold uses the
 * states of the invoices' sessions, so a reorg or a killed process leaves nothing to repair.
 */
import type { Row } from "../../platform/db/schema.ts"
import { type Billing, boundary, isBoundary, nextBoundary } from "./calendar.ts"

const DAY_MS = 86_400_000
/** How many days an invoice may be overdue before its subscription is `past_due` and access ends. */
export const GRACE_DAYS = 3
export const GRACE_MS = GRACE_DAYS * DAY_MS
/** How long after its due time an unpaid invoice cancels its subscription. The invoice's session lasts until then. */
export const CANCEL_AFTER_MS = 30 * DAY_MS
/** The wait before the next check whether a payment is final. */
const FINAL_MS = 60_000

export interface InvoiceFacts {
  periodStart: Date
  periodEnd: Date
  dueAt: Date
  /** `ended`: the session ended unpaid. `void`: the session ended after the invoice was voided. */
  state: "open" | "paid" | "ended" | "void"
  /** When the session was confirmed; null unless `paid`. */
  paidAt: Date | null
  /** Whether the payment is final, so that no reorg can remove it. */
  isFinal: boolean
  /**
   * Whether the invoice is for the current product, counted since the subscription moved there. These invoices count
   * towards `maxPeriods`.
   */
  isOfProduct: boolean
  /**
   * Whether the invoice was unpaid at an immediate cancellation. This is stored, because a reorg can move the
   * payment's time.
   */
  wasUnpaidAtCancel: boolean
}

export interface SubscriptionFacts {
  billing: Billing
  /** The start from which periods are counted, unless the paid period ends between two of their boundaries. */
  anchor: Date
  maxPeriods: number | null
  /** Whether access continues after the paid period. Only the payer's first subscription to a product has this grace. */
  hasGrace: boolean
  /** In order. The first invoice starts the subscription. */
  invoices: readonly InvoiceFacts[]
  pausedAt: Date | null
  /** When the subscription was canceled immediately; null if it was not. */
  canceledAt: Date | null
  /** Whether the subscription ends with the paid period. */
  cancelAtPeriodEnd: boolean
  /** How long before its period an invoice is created, in milliseconds. */
  aheadMs: number
}

export interface FoldedSubscription {
  /** Null until the first invoice is paid, and again after a reorg removed that payment. */
  status: Row<"subscriptions">["status"]
  /** Why the status is `canceled`: by request, unpaid, or after the last period. */
  cancelReason: Row<"subscriptions">["cancel_reason"]
  /** The end of the paid period; null if there is no status. */
  paidUntil: Date | null
  /**
   * The end of access to paywalls. It includes the grace after the paid period, or after the due time of an invoice
   * that the service created late.
   */
  accessUntil: Date | null
  /**
   * The invoice to create now. `graceUntil`: the end of access with this invoice. `anchor`: the new start from which
   * periods are counted.
   */
  next: (Pick<InvoiceFacts, "periodStart" | "periodEnd" | "dueAt"> & { graceUntil: Date; anchor: Date }) | null
  /** Whether to void the open invoice. Its session is closed unless someone started to pay. */
  isVoiding: boolean
  /** When time alone changes a part of this state; null if it never does. */
  runAt: Date | null
}

/** The fold of a subscription that has not started. */
export const NONE: FoldedSubscription = {
  status: null,
  cancelReason: null,
  paidUntil: null,
  accessUntil: null,
  next: null,
  isVoiding: false,
  runAt: null,
}

/** Folds a subscription at a given time. */
export function foldSubscription(facts: SubscriptionFacts, now: Date): FoldedSubscription {
  const paid = facts.invoices.filter(each => each.state === "paid")
  const first = paid[0]
  if (!first) return NONE
  const paidUntil = latest(paid.map(each => each.periodEnd))
  const open = facts.invoices.find(each => each.state === "open")
  const common = { paidUntil, accessUntil: paidUntil, cancelReason: null, next: null, isVoiding: false, runAt: null }
  if (facts.canceledAt !== null) {
    // An invoice that is paid after the cancellation still gives access for its own period.
    const since = facts.canceledAt
    const after = paid.filter(each => each.wasUnpaidAtCancel).map(each => each.periodEnd)
    const accessUntil = latest([since, ...after])
    return { ...common, status: "canceled", cancelReason: "requested", accessUntil, isVoiding: open !== undefined }
  }
  if (facts.invoices.at(-1)?.state === "ended") return { ...common, status: "canceled", cancelReason: "unpaid" }
  const isLast = facts.maxPeriods !== null && paid.filter(each => each.isOfProduct).length >= facts.maxPeriods
  if (facts.cancelAtPeriodEnd || isLast) {
    // An invoice whose payment has started can't be closed, possibly for a month, so the end does not wait for it.
    // Once the rest arrives, access lasts until the end of that invoice's period.
    const ending = { ...common, isVoiding: open !== undefined }
    const cancelReason = facts.cancelAtPeriodEnd ? "requested" : "completed"
    if (now >= paidUntil) return { ...ending, status: "canceled", cancelReason }
    return { ...ending, status: facts.pausedAt === null ? "active" : "paused", runAt: paidUntil }
  }
  if (facts.pausedAt !== null) return { ...common, status: "paused", isVoiding: open !== undefined }
  return open ? waiting(common, facts, open, paid, now) : renewing(common, facts, paid, now)
}

type Common = Omit<FoldedSubscription, "status"> & { paidUntil: Date }

/**
 * Folds a subscription that has an open invoice. The end of the invoice's session cancels the subscription, not the
 * time, because a payment in the last second counts.
 */
function waiting(
  common: Common,
  facts: SubscriptionFacts,
  open: InvoiceFacts,
  paid: readonly InvoiceFacts[],
  now: Date,
): FoldedSubscription {
  const accessUntil = accessWith(open, common.paidUntil, paid, facts)
  if (now < open.dueAt) return { ...common, accessUntil, status: "active", runAt: open.dueAt }
  // In arrears billing, access can end before the invoice is created.
  if (now < accessUntil) return { ...common, accessUntil, status: "payment_due", runAt: accessUntil }
  return { ...common, accessUntil, status: "past_due" }
}

/**
 * The end of access while an invoice is open. If the last period was paid before its end and this invoice is due
 * after its own period starts, the service was late. The grace then counts from the due time. Without that condition,
 * each period paid after access ended would get new grace, and daily plans would pay only one period in three. For a
 * subscription without grace, only a late invoice extends access. The extension is the time in which the invoice
 * could otherwise be paid in advance.
 */
function accessWith(
  next: Billed,
  paidUntil: Date,
  paid: readonly InvoiceFacts[],
  { hasGrace, aheadMs }: SubscriptionFacts,
): Date {
  const { dueAt } = next
  const last = paid.at(-1)
  const isPunctual = last?.paidAt != null && last.paidAt <= last.periodEnd
  if (hasGrace) return afterGrace(isPunctual ? latest([paidUntil, dueAt]) : paidUntil)
  return dueAt > paidUntil && isPaidAtStart(last) ? new Date(dueAt.getTime() + aheadOf(next, aheadMs)) : paidUntil
}

type Billed = Pick<InvoiceFacts, "periodStart" | "periodEnd" | "dueAt">

/** How long before its period an invoice is created: at most half a period, so that nobody pays two periods ahead. */
const aheadOf = ({ periodStart, periodEnd }: Omit<Billed, "dueAt">, aheadMs: number): number =>
  Math.min(aheadMs, (periodEnd.getTime() - periodStart.getTime()) / 2)

const afterGrace = (time: Date): Date => new Date(time.getTime() + GRACE_MS)

/**
 * Whether a period was paid no later than its start. Without grace, only such a payment is punctual. Otherwise, a
 * payment shortly before the period's end would get the grace of a late invoice, because the next invoice waits until
 * that payment is final.
 */
const isPaidAtStart = (last: InvoiceFacts | undefined): boolean =>
  last?.paidAt != null && last.paidAt <= last.periodStart

/**
 * Folds a subscription whose invoices are all paid. The next invoice is created before its period, once the last
 * payment is final.
 */
function renewing(
  common: Common,
  facts: SubscriptionFacts,
  paid: readonly InvoiceFacts[],
  now: Date,
): FoldedSubscription {
  const { anchor: counted, billing, aheadMs, hasGrace } = facts
  const periodStart = latest([common.paidUntil, counted])
  // The paid period can end between two boundaries: after a late payment, or if the invoice has other terms or was
  // created before a pause. A period costs its full price, so it gets its full length.
  const anchor = isBoundary(counted, billing, periodStart) ? counted : periodStart
  const periodEnd = nextBoundary(anchor, billing, periodStart)
  const ahead = aheadOf({ periodStart, periodEnd }, aheadMs)
  const makeAt = new Date(periodStart.getTime() - ahead)
  // Even without grace, nobody loses access as long as there is no invoice to pay yet.
  const unbilledMs = isPaidAtStart(paid.at(-1)) ? ahead : 0
  const accessUntil = new Date(common.paidUntil.getTime() + (hasGrace ? GRACE_MS : unbilledMs))
  const standing = { ...common, accessUntil, status: now < accessUntil ? ("active" as const) : ("past_due" as const) }
  if (now < makeAt) return { ...standing, runAt: makeAt }
  if (!paid.every(each => each.isFinal)) return { ...standing, runAt: new Date(now.getTime() + FINAL_MS) }
  const dueAt = latest([periodStart, now])
  const next = { periodStart, periodEnd, dueAt, anchor }
  const graceUntil = accessWith(next, common.paidUntil, paid, facts)
  return { ...standing, next: { ...next, graceUntil }, runAt: now }
}

/** The start from which periods are counted after a resume. Time without access is not billed. */
export const anchorAtResume = (anchor: Date, paidUntil: Date, now: Date): Date => (now < paidUntil ? anchor : now)

/**
 * The start from which periods of a new length are counted: the later of the anchor and the end of the paid period. The
 * anchor is later if time passed without access.
 */
export const anchorAtMove = (anchor: Date, paidUntil: Date): Date => latest([anchor, paidUntil])

/** The anchor and the end of the first period, which follows the free trial. */
export function firstPeriod(billing: Billing, trialDays: number, startedAt: Date): { anchor: Date; periodEnd: Date } {
  const anchor = new Date(startedAt.getTime() + trialDays * DAY_MS)
  return { anchor, periodEnd: boundary(anchor, billing, 1) }
}

const latest = (dates: readonly [Date, ...Date[]] | Date[]): Date =>
  new Date(Math.max(...dates.map(date => date.getTime())))
