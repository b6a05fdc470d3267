/** Explains why a subscription or an invoice is in its state. Pure. */
import type { Row } from "../../platform/db/schema.ts"
import type { InvoiceStatus } from "../subscriptions/schema.ts"
import { act, type NextAction, type Standing, timeText, wait } from "./standing.ts"

/** The facts that decide the explanation of a subscription. */
export interface SubscriptionFacts {
  id: string
  /** Null until the first invoice is paid. */
  status: Row<"subscriptions">["status"]
  paidUntil: Date | null
  accessUntil: Date | null
  cancelAtPeriodEnd: boolean
  cancelAskedBy: Row<"subscriptions">["cancel_asked_by"]
  cancelReason: Row<"subscriptions">["cancel_reason"]
  blockedBy: Row<"subscriptions">["blocked_by"]
  pausedAt: Date | null
  endedAt: Date | null
  /** The invoice that can be paid now, and its page. */
  invoice: { id: string; url: string; amount: string } | null
  /** When the unpaid invoice cancels the subscription. */
  cancelsAt: Date | null
}

/** Explains a subscription. */
export function explainSubscription(facts: SubscriptionFacts): Standing {
  const { status, blockedBy } = facts
  const standing = standingOf(facts)
  const state = status ?? "not_begun"
  if (blockedBy === null || status === "canceled") return { state, ...standing }
  return {
    state,
    word: standing.word,
    why: `${standing.why} ${blockWords[blockedBy].why}`,
    next: [blockWords[blockedBy].next, ...standing.next.filter(({ route }) => route !== null)],
  }
}

const blockWords: Record<NonNullable<Row<"subscriptions">["blocked_by"]>, { why: string; next: NextAction }> = {
  payout_address: {
    why: "The due invoice can't be created, because you have no payout address on the subscription's network.",
    next: act("Set a payout address for the network.", "PUT", "settings"),
  },
  price: {
    why: "The due invoice can't be created, because the product's price is below the minimum payment.",
    next: act("Raise the price of the product, or change its split.", "GET", "products"),
  },
  payments_paused: {
    why: "The due invoice can't be created, because payments on the subscription's network are paused.",
    next: wait("Wait: the service retries automatically. Ask the operator of this service when payments resume."),
  },
}

type Part = Omit<Standing, "state">
const askers = { merchant: "you", subscriber: "the subscriber", both: "you and the subscriber" } as const
const dateText = (at: Date | null): string => (at ? timeText(at) : "a date that is not known yet")

function standingOf(facts: SubscriptionFacts): Part {
  const { id, paidUntil, accessUntil, cancelAtPeriodEnd, cancelAskedBy, invoice, cancelsAt, pausedAt } = facts
  const path = `subscriptions/${id}`
  const pay = invoice ? [wait(`Send the subscriber the invoice of ${invoice.amount}: ${invoice.url}`)] : []
  switch (facts.status) {
    case null:
      return {
        word: "Not begun",
        why: "The subscription starts when its first invoice is paid. That has not happened yet, or a reorg removed the payment.",
        next: pay.length > 0 ? pay : [wait("You don't need to do anything until the first invoice is paid.")],
      }
    case "active":
      if (cancelAtPeriodEnd)
        return {
          word: "Ending",
          why: `The subscription is paid until ${dateText(paidUntil)} and ends then, as ${askers[cancelAskedBy ?? "merchant"]} asked.`,
          next: [act("Let the subscription continue, if you were the one who canceled it.", "POST", `${path}/resume`)],
        }
      return {
        word: "Active",
        why: `The subscription is paid until ${dateText(paidUntil)}.`,
        next: [
          wait("You don't need to do anything. The next invoice is created automatically."),
          ...pay,
          act("Pause it.", "POST", `${path}/pause`),
          act("Cancel it.", "POST", `${path}/cancel`),
        ],
      }
    case "payment_due":
      return {
        word: "Payment due",
        why: `The invoice is due and not paid yet. The subscriber keeps access until ${dateText(accessUntil)}.`,
        next: [...pay, act("See its invoices.", "GET", path)],
      }
    case "past_due":
      return {
        word: "Past due",
        why: `The invoice was not paid in time, so access ended on ${dateText(accessUntil)}.${cancelsAt ? ` The subscription will be canceled on ${timeText(cancelsAt)} if nobody pays.` : ""}`,
        next: [...pay, act("Cancel it now.", "POST", `${path}/cancel`)],
      }
    case "paused":
      return {
        word: "Paused",
        why: `You paused the subscription${pausedAt ? ` on ${timeText(pausedAt)}` : ""}: no invoices are created. Paid access lasts until ${dateText(accessUntil)}.`,
        next: [act("Resume it.", "POST", `${path}/resume`), act("Cancel it.", "POST", `${path}/cancel`)],
      }
    case "canceled":
      return canceledStanding(facts)
  }
}

function canceledStanding({ cancelReason, cancelAskedBy, endedAt, accessUntil }: SubscriptionFacts): Part {
  const on = endedAt ? ` on ${timeText(endedAt)}` : ""
  const why = {
    requested: `The subscription ended${on}, as ${askers[cancelAskedBy ?? "merchant"]} asked.`,
    unpaid: `The subscription ended${on}, because its last invoice was not paid within 30 days.`,
    completed: `The subscription ended${on}, after its last period.`,
  }[cancelReason ?? "requested"]
  return {
    word: "Canceled",
    why: `${why}${accessUntil && endedAt && accessUntil > endedAt ? ` Paid access lasts until ${timeText(accessUntil)}.` : ""}`,
    next: [
      wait("This subscription can't be resumed. The subscriber can start a new one at your payment link or paywall."),
    ],
  }
}

/** The facts that decide the explanation of an invoice. The amount includes its currency. */
export interface InvoiceFacts {
  status: InvoiceStatus
  amount: string
  dueAt: Date
  paidAt: Date | null
  now: Date
  url: string
  subscriptionId: string
  sessionId: string
}

/** Explains an invoice. */
export function explainInvoice({
  status: state,
  amount,
  dueAt,
  paidAt,
  now,
  url,
  subscriptionId,
  sessionId,
}: InvoiceFacts): Standing {
  const see = act("See its subscription.", "GET", `timeline/${subscriptionId}`)
  switch (state) {
    case "open":
      return {
        state,
        word: now < dueAt ? "Waiting" : "Due",
        why: `This invoice of ${amount} ${now < dueAt ? "is" : "was"} due on ${timeText(dueAt)} and is not paid yet.`,
        next: [wait(`Send the subscriber this page: ${url}`), see],
      }
    case "paid":
      return {
        state,
        word: "Paid",
        why: `This invoice of ${amount} was paid${paidAt ? ` on ${timeText(paidAt)}` : ""}.`,
        next: [wait("You don't need to do anything."), act("See the payment.", "GET", `timeline/${sessionId}`)],
      }
    case "unpaid":
      return {
        state,
        word: "Unpaid",
        why: `This invoice of ${amount} was due on ${timeText(dueAt)}. Nobody paid it in time.`,
        next: [see],
      }
    case "void":
      return {
        state,
        word: "Void",
        why: `This invoice of ${amount} does not have to be paid, because its subscription was paused or canceled first.`,
        next: [see],
      }
  }
}
