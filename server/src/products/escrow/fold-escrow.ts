/**
 * The state of an escrow: the fold of its calls. Pure: from the rows of its payouts and their state on chain to amounts
 * and the session's status. Nothing else moves money of an escrow, except that the payer can take back what is left.
 */
import type { EscrowCallKind, PayoutState, SessionStatus } from "../../platform/db/schema.ts"

/** A call of the escrow: a row of `payouts`. */
export interface Call {
  kind: EscrowCallKind
  /** Base units. */
  amount: bigint
  state: PayoutState
  /** Whether its receipt reports success; null without one. */
  succeeded: boolean | null
  /** Whether its block is as deep as the network's confirmations require. */
  deep: boolean
}

/** Returns the calls of these kinds, in their order. */
export const ofKind = <C extends Pick<Call, "kind">>(calls: readonly C[], ...kinds: readonly EscrowCallKind[]): C[] =>
  calls.filter(({ kind }) => kinds.includes(kind))

export interface EscrowFacts {
  calls: readonly Call[]
  /** What the payer took back without the service, in base units. */
  reclaimed: bigint
  expiresAt: Date
}

/** Amounts in base units. */
export interface FoldedEscrow {
  status: SessionStatus
  authorized: bigint
  captured: bigint
  voided: bigint
  reclaimed: bigint
  refunded: bigint
  /** Held by the escrow, and the part of that which no open call will take. */
  capturable: bigint
  freeToCapture: bigint
  /** Captured and not refunded, and the part of that which no open refund will return. */
  refundable: bigint
  freeToRefund: bigint
  /** How many calls of each kind neither count nor have ended. */
  open: Record<EscrowCallKind, number>
}

/** Whether a call counts, may still count, or has ended without an effect. */
export function standingOf({ state, succeeded, deep }: Omit<Call, "kind" | "amount">): "counts" | "open" | "ended" {
  if (state === "final" || (state === "mined" && succeeded && deep)) return "counts"
  return state === "reverted" || state === "cancelled" ? "ended" : "open"
}

/**
 * After this many reservations that failed on chain, or that ended in any way, a checkout takes no more: each failed
 * one cost us gas, and the others must not fill the database. A wallet may fail three times in a day (`failingPayers`),
 * so strangers who want to end a checkout for its buyer need four wallets that hold its amount.
 */
const MAX_FAILED = 12
const MAX_ENDED = 500

/** Whether so many reservations of a checkout ended without money that it takes no more. */
export function isSpent(calls: readonly Call[]): boolean {
  const ended = ofKind(calls, "reserve").filter(call => standingOf(call) === "ended")
  return ended.length >= MAX_ENDED || ended.filter(({ state }) => state === "reverted").length >= MAX_FAILED
}

/**
 * Computes the state of an escrow at a time. Without a reservation that counts, no other call counts: a reorg that
 * removes the reservation removes what followed from it. The refunded amount is never more than the captured one.
 */
export function foldEscrow({ calls, reclaimed: taken, expiresAt }: EscrowFacts, now: Date): FoldedEscrow {
  const sum = (kind: EscrowCallKind, standing: ReturnType<typeof standingOf>) =>
    ofKind(calls, kind)
      .filter(call => standingOf(call) === standing)
      .reduce((total, { amount }) => total + amount, 0n)
  const openOf = (kind: EscrowCallKind) => ofKind(calls, kind).filter(call => standingOf(call) === "open").length
  const open = {
    reserve: openOf("reserve"),
    capture: openOf("capture"),
    void: openOf("void"),
    refund: openOf("refund"),
  }
  const authorized = sum("reserve", "counts")
  const isHeld = authorized > 0n
  const captured = isHeld ? sum("capture", "counts") : 0n
  const voided = isHeld ? sum("void", "counts") : 0n
  const reclaimed = isHeld ? taken : 0n
  const refunded = least(sum("refund", "counts"), captured)
  const capturable = positive(authorized - captured - voided - reclaimed)
  const refundable = captured - refunded
  const amounts = { authorized, captured, voided, reclaimed, refunded }
  return {
    ...amounts,
    status: statusOf(),
    capturable,
    // A void takes all that is left.
    freeToCapture: open.void > 0 ? 0n : positive(capturable - sum("capture", "open")),
    refundable,
    freeToRefund: positive(refundable - sum("refund", "open")),
    open,
  }

  function statusOf(): SessionStatus {
    if (captured > 0n) return refunded === 0n ? "confirmed" : refunded < captured ? "partially_refunded" : "refunded"
    if (isHeld) return capturable > 0n ? "authorized" : "voided"
    if (open.reserve > 0) return "verifying"
    // Exact: only this service can carry out what a payer signed, and it accepts nothing after the end.
    if (isSpent(calls)) return "failed"
    if (now >= expiresAt)
      return ofKind(calls, "reserve").some(({ state }) => state === "reverted") ? "failed" : "expired"
    return "pending"
  }
}

const positive = (amount: bigint): bigint => (amount > 0n ? amount : 0n)
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b)
