/** Decides what a payer sees, from the state of the payment. Pure: the server and the browser both use it. */
import type { CheckoutStatus } from "../page-data.ts"

/**
 * pay: nothing arrived. part: some of it arrived. sent: it was signed or submitted here, but is not seen yet.
 * confirming: all of it is seen. unknown: the network can't be read now. paused: nobody may pay now. reserving and
 * reserved: a payment that the merchant captures later. The other stages are final.
 */
export type Stage =
  | "pay"
  | "part"
  | "sent"
  | "confirming"
  | "reserving"
  | "reserved"
  | "paid"
  | "released"
  | "refunded"
  | "expired"
  | "failed"
  | "paused"
  | "unknown"

/** The actions of this browser for the payment. */
export interface Own {
  /** The hash of a transfer that was sent or submitted here. */
  txHash?: string | undefined
  /** Whether it was sent so recently that the server may not know it yet. */
  isSending?: boolean
}

/**
 * The stage of a checkout. A hash that someone else submitted does not change it, because anyone may submit anything.
 */
export function stageOf(status: CheckoutStatus, own: Own): Stage {
  const ended = ends[status.status]
  if (ended) return ended
  if (status.reservation) return reservingStage(status)
  const isAll = isZero(status.missing)
  if (!isZero(status.arriving) && isAll) return "confirming"
  if (status.relaying) return "sent"
  const { submission } = status
  const isOwn = submission !== null && own.txHash !== undefined && submission.txHash === own.txHash
  if (isOwn && submission.status === "verifying") return "sent"
  if (own.txHash !== undefined && own.isSending && submission === null) return "sent"
  // While the network can't be read, nobody knows whether a payment arrived in time.
  if (status.over && isZero(status.arriving)) return status.stale ? "unknown" : "expired"
  // A part is being confirmed, and a payment sent now would come too late to complete it.
  if (status.over) return "confirming"
  // All of it arrived. Other code decides whether it counts.
  if (isAll) return "confirming"
  // A paywall that is switched off has no address.
  if (status.paused || status.payTo === undefined) return "paused"
  if (status.stale) return "unknown"
  return isZero(status.amountReceived) && isZero(status.arriving) ? "pay" : "part"
}

const ends: Partial<Record<CheckoutStatus["status"], Stage>> = {
  confirmed: "paid",
  partially_refunded: "paid",
  refunded: "refunded",
  authorized: "reserved",
  voided: "released",
  expired: "expired",
  failed: "failed",
}

/** The stage before a reservation: one signature reserves everything or nothing. */
function reservingStage(status: CheckoutStatus): Stage {
  if (status.relaying || status.status === "verifying") return "reserving"
  if (status.over) return status.stale ? "unknown" : "expired"
  if (status.paused || !status.gasless || !status.reservation?.terms) return "paused"
  return status.stale ? "unknown" : "pay"
}

/** Whether decimal text is zero. */
export const isZero = (amount: string): boolean => !/[1-9]/.test(amount)

/** Whether a payer is asked for money in this stage. */
export const isPayable = (stage: Stage): boolean => stage === "pay" || stage === "part"

/** Whether little more can happen: money was captured, released or refunded, or the merchant will decide later. */
export const isSettled = ({ status, reservation, invoice }: CheckoutStatus): boolean =>
  status === "authorized"
    ? reservation?.capture === "manual" && reservation.phase === "held"
    : // A subscription starts a moment after its first payment.
      invoice !== null && ["confirmed", "partially_refunded", "refunded", "voided"].includes(status)

/** Whether this payer is done. A payment that is captured immediately is not done before its capture. */
export const isDone = (stage: Stage, { reservation }: CheckoutStatus): boolean =>
  stage === "paid" || (stage === "reserved" && reservation?.capture === "manual" && reservation.phase === "held")
