/** The pure rules of refunds: what may be refunded, a refund's state, and what its merchant is told. */
import type { Row, SessionStatus } from "../../platform/db/schema.ts"

/** The state of a refund for its merchant. */
export type RefundStatus = "pending" | "needs_approval" | "succeeded" | "failed"

/** What decides whether a payment can be refunded, and how much of it. */
export interface RefundFacts {
  status: SessionStatus
  /** In base units: what was captured, and is neither refunded nor about to be refunded. */
  left: bigint
  /** The time after which no refund is signed. */
  refundBy: Date
  now: Date
}

/** Why a checkout that was not paid through escrow can't be refunded, and how its money can be returned. */
export const NOT_ESCROW =
  "Only escrow payments can be refunded here, and this checkout was paid straight to its receiving address. Return money that needs your decision with `POST /api/console/payments/:id/return`. Money already paid is yours, so send it to the payer from your payout wallet."

/** Why an escrow that this service can't call can't be refunded. */
export const NOT_OURS =
  "This service can't call the escrow of this checkout, because its relay wallet changed or it has no refund collector. Send the money to the payer from your payout wallet."

/** The message of a refund that its merchant withdrew. */
export const WITHDRAWN =
  "You withdrew the refund, and nothing was refunded. If your payout wallet has already approved the refund, reduce the allowance to what the other open refunds need, or to zero: `approve(collector, 0)`."

/** The message of a refund that counted until a reorg removed it, while it waits to be made again. */
export const REMADE =
  "A reorg removed a refund of this payment that had counted. The service creates it again automatically: read it again in a minute."

/** Returns why a checkout can't be refunded while nothing has been captured. */
export const notCaptured = (status: SessionStatus): string =>
  status === "authorized"
    ? "Nothing of this checkout is captured yet, so nothing can be refunded: release it with `POST /api/console/payments/void`, or capture less."
    : `Only a captured payment can be refunded; this checkout is ${status}.`

/** Returns how much can be refunded now, in base units above zero, or the reason in sentences why nothing can be. */
export function refundable({ status, left, refundBy, now }: RefundFacts): bigint | string {
  if (status !== "confirmed" && status !== "partially_refunded" && status !== "refunded") return notCaptured(status)
  if (status === "refunded") return "This checkout is fully refunded."
  if (now >= refundBy)
    return `The time to refund this checkout ended at ${refundBy.toISOString()}: send the money to the payer from your payout wallet.`
  if (left > 0n) return left
  return "This checkout is fully refunded, or will be: `GET /api/console/payments/refunds` lists its refunds."
}

/** The columns of a refund's call that decide its state. */
interface RefundCall extends Pick<Row<"payouts">, "state" | "held_reason" | "held_detail"> {
  /** Whether the call waits for an allowance while another refund from the same wallet is about to be mined. */
  behind: boolean
  /** Whether this service can still call the escrow. */
  ours: boolean
  /** When the merchant was notified that the refund counted. */
  notified_at: Date | null
}

/** Returns a refund's status according to its call on chain. `counts`: the call succeeded in a deep enough block. */
export function statusByChain({ state }: Pick<Row<"payouts">, "state">, counts: boolean): Row<"refunds">["status"] {
  if (counts) return "succeeded"
  return state === "cancelled" || state === "reverted" ? "failed" : "pending"
}

/** Returns a refund's status as its merchant sees it: `needs_approval` if it waits for the payout wallet. */
export function shownStatus(status: Row<"refunds">["status"], call: RefundCall): RefundStatus {
  const isShort = call.state === "held" && call.held_reason === "allowance"
  return status === "pending" && isShort && call.ours && !call.behind ? "needs_approval" : status
}

/** Returns what the merchant should know about a refund, in sentences; null if there is nothing to say. */
export function messageOf(status: Row<"refunds">["status"], call: RefundCall): string | null {
  const { state, held_reason: reason, held_detail, behind, ours } = call
  if (state === "reverted" && call.notified_at) return REMADE
  if (state === "reverted")
    return "The refund's transaction failed on chain, and nothing was refunded. Request the refund again."
  if (state === "cancelled") return held_detail ?? "It was not executed."
  if (status === "pending" && !ours && (state === "queued" || state === "held")) return NOT_OURS
  if (status !== "pending" || state !== "held") return null
  switch (reason) {
    case "allowance":
      if (behind)
        return "The refund waits until another refund from your payout wallet is mined. Then read this refund again: it says what the wallet must approve."
      return "Your payout wallet must approve the refund: send `approval.call` from that wallet. The refund then continues."
    case "balance":
      return "Your payout wallet's balance is too low for the refund. The refund continues when there is enough."
    case "sanctions":
      return "The refund waits because its payer is on a sanctions list."
    default:
      return "The refund can't be executed now, and will be retried."
  }
}

/**
 * Returns the total refunded once this refund counts, and the payment's resulting status. Both `before`, the sum of
 * the other refunds, and `captured` are in base units.
 */
export function totalWith(
  amount: bigint,
  { captured, before }: { captured: bigint; before: bigint },
): { total: bigint; status: "refunded" | "partially_refunded" } {
  const total = before + amount
  return { total, status: total >= captured ? "refunded" : "partially_refunded" }
}
