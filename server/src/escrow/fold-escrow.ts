/**
 * How an escrow stands: the fold of its calls. Pure: the rows of its payouts and what the chain says of each go in, amounts and
 * the session's status come out. Nothing else moves money of an escrow, but what the payer takes back itself.
 */
import type { SessionStatus } from "../db/checkout-rows.ts"
import type { EscrowCallKind, PayoutState } from "../db/payout-rows.ts"

/** A call of the escrow: a row of `payouts`. */
export interface Call {
  kind: EscrowCallKind
  /** Base units. */
  amount: bigint
  state: PayoutState
  /** What its receipt says; null without one. */
  succeeded: boolean | null
  /** Whether its block is as deep as the network's confirmations ask. */
  deep: boolean
}

export interface EscrowFacts {
  calls: readonly Call[]
  /** What the payer took back itself, in base units. */
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
  /** Held by the escrow, and what of that no open call is to take. */
  capturable: bigint
  freeToCapture: bigint
  /** Captured and not refunded, and what of that no open refund is to return. */
  refundable: bigint
  freeToRefund: bigint
  /** Calls that neither count nor have ended: how many there are of each kind. */
  open: Record<EscrowCallKind, number>
}

/** Whether a call counts, may still, or has ended without an effect. */
export function standingOf({ state, succeeded, deep }: Omit<Call, "kind" | "amount">): "counts" | "open" | "ended" {
  if (state === "final" || (state === "mined" && succeeded && deep)) return "counts"
  return state === "reverted" || state === "cancelled" ? "ended" : "open"
}

/**
 * After so many reservations that failed on chain, or that ended in any way, no more are made: each of the first cost us gas, and
 * the others must not fill the database. A wallet may fail three times in a day (`failingPayers`), so strangers who want to end a
 * checkout for its buyer need four wallets that hold its amount.
 */
const MOST_FAILED = 12
const MOST_ENDED = 500

/** Whether so many reservations of a checkout ended without money that it takes no more. */
export function isSpent(calls: readonly Call[]): boolean {
  const ended = calls.filter(call => call.kind === "reserve" && standingOf(call) === "ended")
  return ended.length >= MOST_ENDED || ended.filter(({ state }) => state === "reverted").length >= MOST_FAILED
}

/**
 * How an escrow stands at a time. Without a reservation that counts nothing does: a reorg that takes it takes what followed
 * from it. What is refunded is never more than what is captured.
 */
export function foldEscrow({ calls, reclaimed: taken, expiresAt }: EscrowFacts, now: Date): FoldedEscrow {
  const sum = (kind: EscrowCallKind, standing: ReturnType<typeof standingOf>) =>
    calls
      .filter(call => call.kind === kind && standingOf(call) === standing)
      .reduce((total, { amount }) => total + amount, 0n)
  const openOf = (kind: EscrowCallKind) =>
    calls.filter(call => call.kind === kind && standingOf(call) === "open").length
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
      return calls.some(({ kind, state }) => kind === "reserve" && state === "reverted") ? "failed" : "expired"
    return "pending"
  }
}

const positive = (amount: bigint): bigint => (amount > 0n ? amount : 0n)
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b)
