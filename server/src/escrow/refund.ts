/** The rules of refunds, pure: what may be refunded, where a refund stands, and what its merchant is sent of it. */
import type { SessionStatus } from "../db/checkout-rows.ts"
import type { Row } from "../db/schema.ts"

/** Where a refund stands, as its merchant sees it. */
export type RefundStatus = "pending" | "needs_approval" | "succeeded" | "failed"

/** What decides whether, and how much of, a payment can be refunded. */
export interface RefundFacts {
  status: SessionStatus
  /** Base units: captured, and neither refunded nor about to be. */
  left: bigint
  /** From then on no refund is signed. */
  refundBy: Date
  now: Date
}

/** Says why a checkout that was not paid through escrow has no refund, and how its money goes back. */
export const NOT_ESCROW =
  "Only a payment through escrow can be refunded here, and this checkout was paid straight to its receiving address. Money that needs your decision goes back with `POST /api/console/payments/:id/return`; what was paid is yours, so send it to the payer from your payout wallet."

/** Says why no refund of an earlier escrow can be made. */
export const NOT_OURS =
  "This service can't call the escrow of this checkout: it has another relay wallet now, or no refund collector. Send the money to the payer from your payout wallet."

/** Says what became of a refund that its merchant withdrew. */
export const WITHDRAWN =
  "You withdrew it, and nothing was refunded. If your payout wallet has approved it already, approve what the other open refunds need, or nothing: `approve(collector, 0)`."

/** Says why a checkout of which nothing was captured has no refund. */
export const notCaptured = (status: SessionStatus): string =>
  status === "authorized"
    ? "Nothing of this checkout is captured yet, so nothing can be refunded: release it with `POST /api/console/payments/void`, or capture less."
    : `Only a captured payment can be refunded; this checkout is ${status}.`

/** How much can be refunded now, in base units and above zero; or why nothing can, in sentences. */
export function refundable({ status, left, refundBy, now }: RefundFacts): bigint | string {
  if (status !== "confirmed" && status !== "partially_refunded" && status !== "refunded") return notCaptured(status)
  if (status === "refunded") return "All of this checkout is refunded."
  if (now >= refundBy)
    return `The time to refund this checkout ended at ${refundBy.toISOString()}: send the money to the payer from your payout wallet.`
  if (left > 0n) return left
  return "All of this checkout is refunded, or about to be: `GET /api/console/payments/refunds` lists its refunds."
}

/** What decides where a refund stands: parts of its call. */
interface RefundCall extends Pick<Row<"payouts">, "state" | "held_reason" | "held_detail"> {
  /** Whether it waits for an allowance while another refund of its wallet is about to be mined. */
  behind: boolean
  /** Whether this service can still call its escrow. */
  ours: boolean
}

/** The status that the chain gives a refund. `counts`: its call succeeded in a block that is deep enough. */
export function statusByChain({ state }: Pick<Row<"payouts">, "state">, counts: boolean): Row<"refunds">["status"] {
  if (counts) return "succeeded"
  return state === "cancelled" || state === "reverted" ? "failed" : "pending"
}

/** A refund's status as its merchant sees it: one that waits for the payout wallet's approval is named. */
export function shownStatus(status: Row<"refunds">["status"], call: RefundCall): RefundStatus {
  const isShort = call.state === "held" && call.held_reason === "allowance"
  return status === "pending" && isShort && call.ours && !call.behind ? "needs_approval" : status
}

/** What its merchant should know of a refund, in sentences; null where there is nothing to do or to know. */
export function messageOf(status: Row<"refunds">["status"], call: RefundCall): string | null {
  const { state, held_reason: reason, held_detail, behind, ours } = call
  if (state === "reverted") return "Its transaction failed on chain, and nothing was refunded. Ask for it again."
  if (state === "cancelled") return held_detail ?? "It was not carried out."
  if (status === "pending" && !ours && (state === "queued" || state === "held")) return NOT_OURS
  if (status !== "pending" || state !== "held") return null
  switch (reason) {
    case "allowance":
      if (behind)
        return "It waits until another refund of your payout wallet is mined. Read it again then: it says what the wallet has to approve."
      return "Your payout wallet has to approve it: send `approval.call` from there. The refund then continues."
    case "balance":
      return "Your payout wallet holds too little for it. It continues once there is enough."
    case "sanctions":
      return "It waits, as its payer is on a sanctions list."
    default:
      return "It can't be carried out now, and is retried."
  }
}

/**
 * The total that was refunded once this refund counts, and the payment's status then. `captured` and `before`, what other
 * refunds returned, are base units.
 */
export function totalWith(
  amount: bigint,
  { captured, before }: { captured: bigint; before: bigint },
): { total: bigint; status: "refunded" | "partially_refunded" } {
  const total = before + amount
  return { total, status: total >= captured ? "refunded" : "partially_refunded" }
}
