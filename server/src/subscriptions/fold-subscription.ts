/**
 * How a subscription stands: the fold of its invoices and of what its merchant or subscriber asked for. Pure: the states of the
 * invoices' sessions go in; status, access and the next invoice come out. So a reorg or a killed process leaves nothing to repair.
 */
import type { Row } from "../db/schema.ts"
import { type Billing, boundary, isBoundary, nextBoundary } from "./calendar.ts"

const DAY_MS = 86_400_000
/** An invoice that is due may be paid so much later before its subscription is `past_due` and its access ends. */
export const GRACE_MS = 3 * DAY_MS
/** An invoice that is not paid so long after it was due cancels its subscription; its session lives as long. */
export const CANCEL_AFTER_MS = 30 * DAY_MS
/** How soon it is looked again whether a payment is final. */
const FINAL_MS = 60_000

export interface InvoiceFacts {
  periodStart: Date
  periodEnd: Date
  dueAt: Date
  /** `ended`: its session is over, unpaid. `void`: so, after it was not to be paid any more. */
  state: "open" | "paid" | "ended" | "void"
  /** When its session was confirmed; null unless `paid`. */
  paidAt: Date | null
  /** Whether a reorg can still take its payment back. */
  isFinal: boolean
  /** Whether it is for the product that the subscription has now, since it was moved there: these count towards `maxPeriods`. */
  isOfProduct: boolean
  /** Whether it was still to be paid when the subscription was canceled at once. No clock says so: a reorg moves the payment's time. */
  wasUnpaidAtCancel: boolean
}

export interface SubscriptionFacts {
  billing: Billing
  /** What periods are counted from, unless what is paid ends between two of its boundaries. */
  anchor: Date
  maxPeriods: number | null
  /** In their order. The first is the one that the subscription begins with. */
  invoices: readonly InvoiceFacts[]
  pausedAt: Date | null
  /** Since when it is canceled, as somebody asked. */
  canceledAt: Date | null
  /** Whether it ends with the time that is paid. */
  cancelAtPeriodEnd: boolean
  /** How long before its period an invoice is made. */
  aheadMs: number
}

export interface FoldedSubscription {
  /** Null until its first invoice is paid, and while a reorg has taken that payment. */
  status: Row<"subscriptions">["status"]
  /** Why it is `canceled`: somebody asked, nobody paid, or its last period is over. */
  cancelReason: Row<"subscriptions">["cancel_reason"]
  /** Until when it is paid. Null without a status. */
  paidUntil: Date | null
  /** Until when it opens paywalls: through the grace after the paid time, or after an invoice that the service made late. */
  accessUntil: Date | null
  /** The invoice to make now; `graceUntil`: how long access would last with it; `anchor`: what periods are counted from then. */
  next: (Pick<InvoiceFacts, "periodStart" | "periodEnd" | "dueAt"> & { graceUntil: Date; anchor: Date }) | null
  /** Whether the open invoice is not to be paid any more: its session is to be closed, if nobody has begun to pay it. */
  isVoiding: boolean
  /** When the clock alone changes something of this; null: never. */
  runAt: Date | null
}

/** A subscription that has not begun. */
export const NONE: FoldedSubscription = {
  ...{
    status: null,
    cancelReason: null,
    paidUntil: null,
    accessUntil: null,
    next: null,
    isVoiding: false,
    runAt: null,
  },
}

/** How a subscription stands at a time. */
export function foldSubscription(facts: SubscriptionFacts, now: Date): FoldedSubscription {
  const paid = facts.invoices.filter(each => each.state === "paid")
  const first = paid[0]
  if (!first) return NONE
  const paidUntil = latest(paid.map(each => each.periodEnd))
  const open = facts.invoices.find(each => each.state === "open")
  const common = { paidUntil, accessUntil: paidUntil, cancelReason: null, next: null, isVoiding: false, runAt: null }
  if (facts.canceledAt !== null) {
    // What was paid after it was canceled is not taken for nothing: it opens its own period.
    const since = facts.canceledAt
    const after = paid.filter(each => each.wasUnpaidAtCancel).map(each => each.periodEnd)
    const accessUntil = latest([since, ...after])
    return { ...common, status: "canceled", cancelReason: "requested", accessUntil, isVoiding: open !== undefined }
  }
  if (facts.invoices.at(-1)?.state === "ended") return { ...common, status: "canceled", cancelReason: "unpaid" }
  const isLast = facts.maxPeriods !== null && paid.filter(each => each.isOfProduct).length >= facts.maxPeriods
  if (facts.cancelAtPeriodEnd || isLast) {
    const isOver = now >= paidUntil && !open
    const cancelReason = facts.cancelAtPeriodEnd ? "requested" : "completed"
    if (isOver) return { ...common, status: "canceled", cancelReason }
    const status = facts.pausedAt === null ? "active" : "paused"
    return { ...common, status, isVoiding: open !== undefined, runAt: now < paidUntil ? paidUntil : null }
  }
  if (facts.pausedAt !== null) return { ...common, status: "paused", isVoiding: open !== undefined }
  return open ? waiting(common, open, paid, now) : renewing(common, facts, paid, now)
}

type Common = Omit<FoldedSubscription, "status"> & { paidUntil: Date }

/** While an invoice is open. Its session's end, and no clock, cancels the subscription: a payment at the last second counts. */
function waiting(common: Common, open: InvoiceFacts, paid: readonly InvoiceFacts[], now: Date): FoldedSubscription {
  const accessUntil = graceAfter(common.paidUntil, open.dueAt, paid)
  if (now < open.dueAt) return { ...common, accessUntil, status: "active", runAt: open.dueAt }
  // Of arrears, access can be over when the invoice is made.
  if (now < accessUntil) return { ...common, accessUntil, status: "payment_due", runAt: accessUntil }
  return { ...common, accessUntil, status: "past_due" }
}

/**
 * Until when access lasts while an invoice is to be paid. Who paid the last period before it ended was not late: the service was, if the
 * invoice is due after its period began. Else each period that is paid when access has ended would open the grace again, and of days one
 * in three be paid.
 */
function graceAfter(paidUntil: Date, dueAt: Date, paid: readonly InvoiceFacts[]): Date {
  const last = paid.at(-1)
  const isPunctual = last?.paidAt != null && last.paidAt <= last.periodEnd
  return new Date((isPunctual ? latest([paidUntil, dueAt]) : paidUntil).getTime() + GRACE_MS)
}

/** While all invoices are paid: the next is made ahead of its period, once no reorg can take the last payment back. */
function renewing(
  common: Common,
  { anchor: counted, billing, aheadMs }: SubscriptionFacts,
  paid: readonly InvoiceFacts[],
  now: Date,
): FoldedSubscription {
  const periodStart = latest([common.paidUntil, counted])
  // Money that came late, for an invoice of other terms or of before a pause, moves the end of what is paid off the calendar. A period
  // costs its whole price, so it has its whole length.
  const anchor = isBoundary(counted, billing, periodStart) ? counted : periodStart
  const periodEnd = nextBoundary(anchor, billing, periodStart)
  const accessUntil = new Date(common.paidUntil.getTime() + GRACE_MS)
  // Of short periods, half: the payer of a day is not asked for a day that begins after the next.
  const ahead = Math.min(aheadMs, (periodEnd.getTime() - periodStart.getTime()) / 2)
  const makeAt = new Date(periodStart.getTime() - ahead)
  const standing = { ...common, accessUntil, status: now < accessUntil ? ("active" as const) : ("past_due" as const) }
  if (now < makeAt) return { ...standing, runAt: makeAt }
  if (!paid.every(each => each.isFinal)) return { ...standing, runAt: new Date(now.getTime() + FINAL_MS) }
  const dueAt = latest([periodStart, now])
  const graceUntil = graceAfter(common.paidUntil, dueAt, paid)
  return { ...standing, next: { periodStart, periodEnd, dueAt, graceUntil, anchor }, runAt: now }
}

/** What periods are counted from when a subscription is resumed: time that nobody had is not billed. */
export const anchorAtResume = (anchor: Date, paidUntil: Date, now: Date): Date => (now < paidUntil ? anchor : now)

/** What periods of another length are counted from: the end of what is paid, or of time that nobody had. */
export const anchorAtMove = (anchor: Date, paidUntil: Date): Date => latest([anchor, paidUntil])

/** The period of the first invoice: a trial comes before it, and is a gift. */
export function firstPeriod(billing: Billing, trialDays: number, startedAt: Date): { anchor: Date; periodEnd: Date } {
  const anchor = new Date(startedAt.getTime() + trialDays * DAY_MS)
  return { anchor, periodEnd: boundary(anchor, billing, 1) }
}

const latest = (dates: readonly [Date, ...Date[]] | Date[]): Date =>
  new Date(Math.max(...dates.map(date => date.getTime())))
