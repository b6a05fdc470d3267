/**
 * Folds a subscription's invoices, and what its merchant or subscriber asked for, into its status, its access and its
 * next invoice. Pure: it reads the states of the invoices' sessions, so a reorg or a killed process leaves nothing to
 * repair.
 */
import type { Row } from "../../platform/db/schema.ts"
import { type Billing, boundary, isBoundary, nextBoundary } from "./calendar.ts"

const DAY_MS = 86_400_000
/** How many days after its due time an invoice may be paid before its subscription is `past_due` and access ends. */
export const GRACE_DAYS = 3
export const GRACE_MS = GRACE_DAYS * DAY_MS
/** How long after its due time an unpaid invoice cancels its subscription. The invoice's session lasts as long. */
export const CANCEL_AFTER_MS = 30 * DAY_MS
/** How soon to check again whether a payment is final. */
const FINAL_MS = 60_000

export interface InvoiceFacts {
  periodStart: Date
  periodEnd: Date
  dueAt: Date
  /** `ended`: its session ended unpaid. `void`: its session ended after the invoice was voided. */
  state: "open" | "paid" | "ended" | "void"
  /** When its session was confirmed; null unless `paid`. */
  paidAt: Date | null
  /** Whether the payment is final, so that no reorg can remove it. */
  isFinal: boolean
  /**
   * Whether it is for the current product, since the subscription was moved there. These count towards `maxPeriods`.
   */
  isOfProduct: boolean
  /**
   * Whether it was unpaid when the subscription was canceled at once. This is stored, because a reorg can move the
   * payment's time.
   */
  wasUnpaidAtCancel: boolean
}

export interface SubscriptionFacts {
  billing: Billing
  /** Where periods are counted from, unless the paid time ends between two boundaries of this anchor. */
  anchor: Date
  maxPeriods: number | null
  /** Whether access goes on after the paid time. Only the payer's first subscription to the product has it. */
  hasGrace: boolean
  /** In order. The first is the one that begins the subscription. */
  invoices: readonly InvoiceFacts[]
  pausedAt: Date | null
  /** When it was canceled at once; null if it was not. */
  canceledAt: Date | null
  /** Whether it is to end with the paid time. */
  cancelAtPeriodEnd: boolean
  /** How long before its period an invoice is created, in milliseconds. */
  aheadMs: number
}

export interface FoldedSubscription {
  /** Null until the first invoice is paid, and while a reorg has removed that payment. */
  status: Row<"subscriptions">["status"]
  /** Why it is `canceled`: it was asked for, nobody paid, or the last period is over. */
  cancelReason: Row<"subscriptions">["cancel_reason"]
  /** The end of the paid time. Null without a status. */
  paidUntil: Date | null
  /**
   * The end of its access to paywalls: with the grace after the paid time, or after the due time of an invoice that the
   * service created late.
   */
  accessUntil: Date | null
  /**
   * The invoice to create now. `graceUntil`: the end of access with it. `anchor`: where periods are counted from then
   * on.
   */
  next: (Pick<InvoiceFacts, "periodStart" | "periodEnd" | "dueAt"> & { graceUntil: Date; anchor: Date }) | null
  /** Whether the open invoice is to be voided: its session is closed if nobody has begun to pay it. */
  isVoiding: boolean
  /** When time alone changes a part of this; null: never. */
  runAt: Date | null
}

/** The fold of a subscription that has not begun. */
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
    // An invoice that was paid after the cancellation still opens its own period.
    const since = facts.canceledAt
    const after = paid.filter(each => each.wasUnpaidAtCancel).map(each => each.periodEnd)
    const accessUntil = latest([since, ...after])
    return { ...common, status: "canceled", cancelReason: "requested", accessUntil, isVoiding: open !== undefined }
  }
  if (facts.invoices.at(-1)?.state === "ended") return { ...common, status: "canceled", cancelReason: "unpaid" }
  const isLast = facts.maxPeriods !== null && paid.filter(each => each.isOfProduct).length >= facts.maxPeriods
  if (facts.cancelAtPeriodEnd || isLast) {
    // An invoice that somebody has begun to pay can't be closed, and may stay so for a month: the end does not wait for
    // it. Once the rest arrives, its period is open until its own end.
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
 * With an open invoice. Only the end of its session cancels the subscription, not the time: a payment in the last
 * second counts.
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
  // For arrears, access can be over before the invoice is created.
  if (now < accessUntil) return { ...common, accessUntil, status: "payment_due", runAt: accessUntil }
  return { ...common, accessUntil, status: "past_due" }
}

/**
 * The end of access while an invoice is open. If the payer paid the last period before it ended, and this invoice is
 * due after its period began, then the service was late and not the payer, so the grace counts from the due time.
 * Without the condition, each period paid after access had ended would get its grace again, and for daily periods only
 * one in three would be paid. Without grace only a late invoice moves the end of access, by the time in which it can
 * otherwise be paid before its period.
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

/** How long before its period an invoice is created: at most half a period, so that nobody pays for the day after next. */
const aheadOf = ({ periodStart, periodEnd }: Omit<Billed, "dueAt">, aheadMs: number): number =>
  Math.min(aheadMs, (periodEnd.getTime() - periodStart.getTime()) / 2)

const afterGrace = (time: Date): Date => new Date(time.getTime() + GRACE_MS)

/**
 * Whether a period was paid by its beginning. Without grace only this is punctual: who pays a period shortly before its
 * end would otherwise get the grace of a late invoice, as the next one waits until that payment is final.
 */
const isPaidAtStart = (last: InvoiceFacts | undefined): boolean =>
  last?.paidAt != null && last.paidAt <= last.periodStart

/** While all invoices are paid. The next invoice is created before its period, once the last payment is final. */
function renewing(
  common: Common,
  facts: SubscriptionFacts,
  paid: readonly InvoiceFacts[],
  now: Date,
): FoldedSubscription {
  const { anchor: counted, billing, aheadMs, hasGrace } = facts
  const periodStart = latest([common.paidUntil, counted])
  // A late payment, for an invoice with other terms or from before a pause, can move the end of the paid time off the
  // calendar. A period costs its whole price, so it gets its whole length.
  const anchor = isBoundary(counted, billing, periodStart) ? counted : periodStart
  const periodEnd = nextBoundary(anchor, billing, periodStart)
  const ahead = aheadOf({ periodStart, periodEnd }, aheadMs)
  const makeAt = new Date(periodStart.getTime() - ahead)
  // Without grace too, nobody loses access at once because there is no invoice to pay yet.
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

/** Where periods are counted from when a subscription is resumed. Time without access is not billed. */
export const anchorAtResume = (anchor: Date, paidUntil: Date, now: Date): Date => (now < paidUntil ? anchor : now)

/**
 * Where periods of another length are counted from: the end of the paid time, or the later anchor where time passed
 * without access.
 */
export const anchorAtMove = (anchor: Date, paidUntil: Date): Date => latest([anchor, paidUntil])

/** The period of the first invoice. A trial comes before it and is free. */
export function firstPeriod(billing: Billing, trialDays: number, startedAt: Date): { anchor: Date; periodEnd: Date } {
  const anchor = new Date(startedAt.getTime() + trialDays * DAY_MS)
  return { anchor, periodEnd: boundary(anchor, billing, 1) }
}

const latest = (dates: readonly [Date, ...Date[]] | Date[]): Date =>
  new Date(Math.max(...dates.map(date => date.getTime())))
