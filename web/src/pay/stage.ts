/** What a payer is to see, decided from the state of the payment. Pure: the server and the browser both use it. */
import type { CheckoutStatus } from "../page-data.ts"

/**
 * pay: nothing arrived. part: some of it arrived. sent: it was signed or submitted here, and is not seen yet. confirming: all
 * of it is seen. unknown: the network is not read now. paused: nobody may pay now. The others are ends.
 */
export type Stage = "pay" | "part" | "sent" | "confirming" | "paid" | "expired" | "failed" | "paused" | "unknown"

/** What this browser did for the payment. */
export interface Own {
  /** The hash of a transfer that was sent or submitted here. */
  txHash?: string | undefined
}

/** The stage of a checkout. A hash that somebody else submitted does not change it: anyone may submit anything. */
export function stageOf(status: CheckoutStatus, own: Own): Stage {
  if (["authorized", "confirmed", "partially_refunded", "refunded"].includes(status.status)) return "paid"
  if (status.status === "voided") return "failed"
  if (status.status === "expired") return "expired"
  if (status.status === "failed") return "failed"
  const isAll = isZero(status.missing)
  if (!isZero(status.arriving) && isAll) return "confirming"
  if (status.relaying) return "sent"
  const { submission } = status
  const isOwn = submission !== null && own.txHash !== undefined && submission.txHash === own.txHash
  if (isOwn && submission.status === "verifying") return "sent"
  if (status.over && isZero(status.arriving)) return "expired"
  // All of it arrived, and what keeps it from counting is decided elsewhere.
  if (isAll) return "confirming"
  // A paywall that is switched off has no address.
  if (status.paused || status.payTo === undefined) return "paused"
  if (status.stale) return "unknown"
  return isZero(status.amountReceived) && isZero(status.arriving) ? "pay" : "part"
}

/** Whether decimal text is zero. */
export const isZero = (amount: string): boolean => !/[1-9]/.test(amount)

/** Whether a payer is asked for money in this stage. */
export const isPayable = (stage: Stage): boolean => stage === "pay" || stage === "part"
