/** Explains why a checkout is in its state. Pure. */
import type { PaymentException } from "../../platform/db/columns.ts"
import type { Row, SessionStatus } from "../../platform/db/schema.ts"
import { acceptStep, type Decision, returnWords } from "./payment-standing.ts"
import { act, type NextAction, type Standing, timeText, wait } from "./standing.ts"

/** The escrow of a checkout. Amounts include their currency. */
export interface EscrowFacts {
  authorized: string
  captured: string
  refunded: string
  /** The amount that is neither captured nor released; null if it is zero. */
  left: string | null
  captureBefore: Date
  /** Until when money can be refunded; null if nothing can be refunded any more. */
  refundBefore: Date | null
  /** Whether a requested capture is not mined yet. */
  isCapturing: boolean
}

/** A payment, or the surplus of one, that waits for a decision. */
interface WaitingMoney extends Decision {
  id: string
  amount: string
}

/** The facts that decide the explanation of a checkout. */
export interface CheckoutFacts {
  id: string
  status: SessionStatus
  exception: PaymentException | null
  capture: Row<"checkout_sessions">["capture"]
  /** Includes the currency, as do `received` and `missing`. */
  amount: string
  received: string
  /** What is missing from a payment that arrived in part; null if nothing is missing. */
  missing: string | null
  expiresAt: Date
  now: Date
  /** The page at which the checkout is paid. */
  url: string
  /** Whether payments on its network are paused. */
  isPaused: boolean
  /** Why the hash that was submitted last does not pay for the checkout; null if that hash was not refused. */
  refusal: string | null
  /** How deep the newest transfer is, and how deep it has to be; null without a transfer. */
  depth: { have: number; need: number } | null
  /** The payment that pays for the checkout. */
  paymentId: string | null
  /** The payments, and surpluses of payments, that wait for a decision. Amounts include their currency. */
  open: readonly WaitingMoney[]
  escrow: EscrowFacts | null
}

/** Explains a checkout. */
export function explainCheckout(facts: CheckoutFacts): Standing {
  const { status: state, open } = facts
  const standing = standingOf(facts)
  const [first] = open
  if (!first || state === "refunded") return { state, ...standing }
  const what = first.amount === facts.received ? "The money that arrived" : first.amount
  const others = open.length > 1 ? ` ${open.length - 1} more also wait.` : ""
  const isListed = first.exception === "sanctioned"
  const from = isListed ? " It came from an address on a sanctions list." : ""
  return {
    state,
    word: state === "confirmed" ? "Paid, needs you" : "Needs you",
    why: `${standing.why} ${what} is waiting for your decision.${from}${others}`,
    next: [
      ...(isListed
        ? [act("See what you can do about this money.", "GET", `payments/${first.id}`)]
        : [
            acceptStep(first.id, first.amount, first),
            act(returnWords(first.amount, first), "POST", `payments/${first.id}/return`),
          ]),
      ...standing.next,
    ],
  }
}

type Part = Omit<Standing, "state">

function standingOf(facts: CheckoutFacts): Part {
  switch (facts.status) {
    case "pending":
      return pendingStanding(facts)
    case "verifying":
      return verifyingStanding(facts)
    case "authorized":
      return authorizedStanding(facts)
    case "confirmed":
      return confirmedStanding(facts)
    case "voided":
      return {
        word: "Released",
        why: `Nothing was paid. The reserved ${facts.escrow?.authorized ?? facts.amount} went back to the payer.`,
        next: [act("Create a new checkout if the payer should still pay.", "POST", "checkouts")],
      }
    case "partially_refunded":
    case "refunded":
      return refundedStanding(facts)
    case "failed":
      return failedStanding(facts)
    case "expired":
      return expiredStanding(facts)
  }
}

const seePayment = ({ paymentId }: CheckoutFacts, text: string): NextAction[] =>
  paymentId ? [act(text, "GET", `payments/${paymentId}`)] : []

function pendingStanding({
  id,
  amount,
  expiresAt,
  url,
  isPaused,
  refusal,
  capture,
  missing,
  received,
}: CheckoutFacts): Part {
  const until = timeText(expiresAt)
  const paused = isPaused ? " Payments on the checkout's network are currently paused, so nobody can pay it." : ""
  const why = refusal
    ? `Nobody has paid yet. The last submitted transaction does not pay for this checkout. ${refusal}`
    : missing
      ? `${received} of ${amount} arrived, so ${missing} is missing.`
      : `Nobody has paid yet. The payer has until ${until} to ${capture === "direct" ? "pay" : "reserve"} ${amount}.`
  return {
    word: missing ? "Partly paid" : "Waiting",
    why: why + paused,
    next: [
      wait(isPaused ? "Ask the operator of this service when payments resume." : `Send the payer this page: ${url}`),
      act("Close the checkout, so that nobody can pay it any more.", "DELETE", `checkouts/${id}`),
    ],
  }
}

function verifyingStanding({
  id,
  amount,
  depth,
  missing,
  received,
  expiresAt,
  now,
  capture,
  url,
}: CheckoutFacts): Part {
  if (missing)
    return {
      word: "Partly paid",
      why: `${received} of ${amount} arrived, so ${missing} is missing.`,
      next:
        now < expiresAt
          ? [wait(`The payer can send the rest until ${timeText(expiresAt)}, at ${url}`)]
          : [
              act(
                "Look again in a minute. Its time has ended, and it is being checked one last time.",
                "GET",
                `timeline/${id}`,
              ),
            ],
    }
  if (capture !== "direct")
    return {
      word: "Waiting",
      why: `The payer has signed, and ${amount} is being reserved in escrow.`,
      next: [wait("You don't need to do anything. This usually takes less than a minute.")],
    }
  return {
    word: "Waiting",
    why: depth
      ? `A payment was seen on chain and has ${depth.have} of the ${depth.need} required confirmations.`
      : "A transaction was submitted, and the service is looking for it on chain.",
    next: [wait("You don't need to do anything. Do not deliver before the checkout is confirmed.")],
  }
}

function authorizedStanding({ escrow, capture, amount, now }: CheckoutFacts): Part {
  const reserved = escrow?.authorized ?? amount
  if (escrow?.isCapturing)
    return {
      word: "Capturing",
      why: `${reserved} is reserved in escrow, and your capture is in progress.`,
      next: [wait("You don't need to do anything.")],
    }
  if (escrow && now >= escrow.captureBefore)
    return {
      word: "Releasing",
      why: `The time to capture ended on ${timeText(escrow.captureBefore)}, so ${reserved} is going back to the payer.`,
      next: [wait("You don't need to do anything. To be paid after all, create a new checkout.")],
    }
  const before = escrow ? ` If nobody captures it by ${timeText(escrow.captureBefore)}, it goes back to the payer.` : ""
  if (capture === "automatic")
    return {
      word: "Reserved",
      why: `The payer's ${reserved} is reserved in escrow and will be captured for you automatically.`,
      next: [wait("You don't need to do anything."), act("Release it to the payer instead.", "POST", "payments/void")],
    }
  return {
    word: "Reserved",
    why: `The payer's ${reserved} is reserved in escrow and waits for you.${before}`,
    next: [act("Capture it.", "POST", "payments/capture"), act("Release it to the payer.", "POST", "payments/void")],
  }
}

function confirmedStanding(facts: CheckoutFacts): Part {
  const { amount, received, escrow, exception, capture } = facts
  if (capture === "direct") {
    const why =
      exception === "underpaid" || exception === "late" || exception === "wrong_asset"
        ? `The checkout is paid because you accepted what arrived: ${received}.`
        : `The checkout is paid: ${amount} arrived and is confirmed.`
    return {
      word: "Paid",
      why,
      next: [
        wait("You can deliver."),
        ...seePayment(facts, "See where the money is now."),
        wait("To give the price back, send it from your own wallet. Ask the payer for an address first."),
      ],
    }
  }
  const captured = escrow?.captured ?? amount
  const left = escrow?.left ? ` ${escrow.left} is still reserved.` : ""
  return {
    word: "Paid",
    why: `The checkout is paid: ${captured} was captured from escrow and is in your payout wallet.${left}`,
    next: [
      wait("You can deliver."),
      ...(escrow?.left
        ? [
            act(`Capture more by ${timeText(escrow.captureBefore)}.`, "POST", "payments/capture"),
            act("Release the rest to the payer.", "POST", "payments/void"),
          ]
        : []),
      ...(escrow?.refundBefore
        ? [act(`Refund all or part of the payment by ${timeText(escrow.refundBefore)}.`, "POST", "payments/refund")]
        : []),
    ],
  }
}

function refundedStanding({ status, escrow, amount, id }: CheckoutFacts): Part {
  const isAll = status === "refunded"
  const why = isAll
    ? `The checkout was paid and fully refunded: ${escrow?.refunded ?? amount}.`
    : `The checkout was paid, and ${escrow?.refunded ?? "a part"} of ${escrow?.captured ?? amount} was refunded.`
  return {
    word: isAll ? "Refunded" : "Partly refunded",
    why,
    next: [
      ...(!isAll && escrow?.refundBefore
        ? [act(`Refund more of the payment by ${timeText(escrow.refundBefore)}.`, "POST", "payments/refund")]
        : []),
      act("See each refund.", "GET", `checkouts/${id}`),
    ],
  }
}

const newCheckout = act("Create a new checkout if the payer should still pay.", "POST", "checkouts")

function failedStanding({ capture, exception, expiresAt, now, refusal }: CheckoutFacts): Part {
  if (exception === "duplicate")
    return {
      word: "Failed",
      why: "Another payment used up the payment link while this payment was on its way.",
      next: [newCheckout],
    }
  if (capture !== "direct" && now < expiresAt)
    return {
      word: "Failed",
      why: "Nothing was paid: too many of the signed payments failed on chain.",
      next: [newCheckout],
    }
  const why =
    capture === "direct"
      ? `Nothing was paid. The time to pay ended on ${timeText(expiresAt)}, and the submitted transaction does not pay for the checkout.${refusal ? ` ${refusal}` : ""}`
      : `Nothing was paid. The time to pay ended on ${timeText(expiresAt)}, and the signed payment failed on chain.`
  return { word: "Failed", why, next: [newCheckout] }
}

/** Why a checkout that received money is over without being paid. */
const expiredWords: Record<PaymentException, (facts: CheckoutFacts) => string> = {
  underpaid: ({ received, amount }) => `Only ${received} of ${amount} arrived before the time to pay ended.`,
  late: ({ received, expiresAt }) => `${received} arrived after the time to pay had ended on ${timeText(expiresAt)}.`,
  wrong_asset: ({ amount }) => `Another token arrived instead of ${amount}, and the time to pay has ended.`,
  duplicate: ({ received }) => `${received} arrived, and the time to pay has ended.`,
  overpaid: ({ received }) => `${received} arrived, and the time to pay has ended.`,
}

function expiredStanding(facts: CheckoutFacts): Part {
  const { exception, expiresAt } = facts
  if (exception === null)
    return {
      word: "Expired",
      why: `The checkout was not paid. The time to pay ended on ${timeText(expiresAt)}.`,
      next: [
        newCheckout,
        wait(
          "If money arrives at the checkout's address later, the money appears here, and you decide what to do with it.",
        ),
      ],
    }
  return { word: "Expired", why: expiredWords[exception](facts), next: [newCheckout] }
}
