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
  const seeCheckout = act("See the checkout that it belongs to.", "GET", `timeline/${sessionId}`)
  switch (state) {
    case "needs_approval":
      return {
        state,
        word: "Needs you",
        why: `This refund of ${amount} comes from your payout wallet, and the wallet has not approved it yet.`,
        next: [
          act("Approve it from your payout wallet: the refund says what to send.", "GET", `payments/refunds/${id}`),
          act("Withdraw it.", "DELETE", `payments/refunds/${id}`),
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
            ? [act("Withdraw it.", "DELETE", `payments/refunds/${id}`)]
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
        next: [wait("You need to do nothing."), seeCheckout],
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
