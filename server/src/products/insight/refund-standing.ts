/** Explains why a refund is in its state. Pure. */
import type { RefundStatus } from "../escrow/refund.ts"
import { explainPayout, type PayoutFacts } from "./payout-standing.ts"
import { act, type Standing, wait } from "./standing.ts"

/** The facts that decide the explanation of a refund. */
export interface RefundFacts {
  id: string
  status: RefundStatus
  /** Includes the currency. */
  amount: string
  sessionId: string
  /** What the refund's merchant is told about its state; null if there is nothing to say. */
  message: string | null
  call: PayoutFacts
}

/** Explains a refund. */
export function explainRefund(facts: RefundFacts): Standing {
  const { id, status: state, amount, sessionId, message, call } = facts
  const seeCheckout = act("See the checkout.", "GET", `timeline/${sessionId}`)
  switch (state) {
    case "needs_approval":
      return {
        state,
        word: "Needs you",
        why: `This refund of ${amount} comes from your payout wallet, and the wallet has not approved it yet.`,
        next: [
          act(
            "Approve the refund from your payout wallet. The refund's details say which transaction to send.",
            "GET",
            `payments/refunds/${id}`,
          ),
          act("Withdraw the refund.", "DELETE", `payments/refunds/${id}`),
        ],
      }
    case "pending": {
      const { why, next } = explainPayout(call)
      return {
        state,
        word: "Waiting",
        why: call.state === "held" && message ? `This refund of ${amount} is on hold. ${message}` : why,
        next: [
          ...next.filter(({ route }) => !route?.includes(`/timeline/${sessionId}`)),
          ...(call.state === "queued" || call.state === "held"
            ? [act("Withdraw the refund.", "DELETE", `payments/refunds/${id}`)]
            : []),
          seeCheckout,
        ],
      }
    }
    case "succeeded":
      return {
        state,
        word: "Refunded",
        why: `${amount} was refunded to ${call.recipient}.`,
        next: [wait("You don't need to do anything."), seeCheckout],
      }
    case "failed":
      return {
        state,
        word: "Failed",
        why: `This refund of ${amount} failed. ${message ?? "Nothing was refunded."}`,
        next: [act("Request a new refund if the payer should still get one.", "POST", "payments/refund"), seeCheckout],
      }
  }
}
