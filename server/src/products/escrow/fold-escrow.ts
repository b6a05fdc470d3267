/**
 * The state of an escrow: the fold of its calls. Pure: turns the rows of its payouts and their on-chain state into
 * amounts and the session's status. Nothing else moves an escrow's money, except a payer who reclaims the rest.
 */
import type { EscrowCallKind, PayoutState, SessionStatus } from "../../platform/db/schema.ts"

/** A call to the escrow: a row of `payouts`. */
export interface Call {
  kind: EscrowCallKind
  /** In base units. */
  amount: bigint
  state: PayoutState
  /** Whether the call's receipt reports success; null without a receipt. */
  succeeded: boolean | null
  /** Whether the call's block is as deep as the network's confirmations require. */
  deep: boolean
}

/** Returns the calls of these kinds, in their order. */
export const ofKind = <C extends Pick<Call, "kind">>(calls: readonly C[], ...kinds: readonly EscrowCallKind[]): C[] =>
  calls.filter(({ kind }) => kinds.includes(kind))

export interface EscrowFacts {
  calls: readonly Call[]
  /** The amount that the payer reclaimed without the service, in base units. */
  reclaimed: bigint
  expiresAt: Date
}

/** The state of an escrow. Amounts are in base units. */
export interface FoldedEscrow {
  status: SessionStatus
  authorized: bigint
  captured: bigint
  voided: bigint
  reclaimed: bigint
  refunded: bigint
  /** The amount held by the escrow, and the part that no open call will take. */
  capturable: bigint
  freeToCapture: bigint
  /** The amount captured and not refunded, and the part that no open refund will return. */
  refundable: bigint
  freeToRefund: bigint
  /** How many calls of each kind neither count nor have ended. */
  open: Record<EscrowCallKind, number>
}

/** Whether a call counts, may still count, or ended without an effect. */
export function standingOf({ state, succeeded, deep }: Omit<Call, "kind" | "amount">): "counts" | "open" | "ended" {
  if (state === "final" || (state === "mined" && succeeded && deep)) return "counts"
  return state === "reverted" || state === "cancelled" ? "ended" : "open"
}

/**
 * How many failed reservations, and how many ended ones in total, a checkout allows. Each failed reservation cost us
 * gas, and too many of the others would fill the database. A wallet may fail three times in a day (`failingPayers`). To
 * end a checkout for its buyer, strangers need four wallets that hold the checkout's amount.
 */
const MAX_FAILED = 12
const MAX_ENDED = 500

/** Whether a checkout accepts no more reservations, because too many ended without money. */
export function isSpent(calls: readonly Call[]): boolean {
  const ended = ofKind(calls, "reserve").filter(call => standingOf(call) === "ended")
  return ended.length >= MAX_ENDED || ended.filter(({ state }) => state === "reverted").length >= MAX_FAILED
}

/**
 * Computes the state of an escrow at a time. Unless a reservation counts, no other call counts, because a reorg that
 * removes the reservation removes its consequences. The refunded amount never exceeds the captured one.
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
    // A void takes the whole rest.
    freeToCapture: open.void > 0 ? 0n : positive(capturable - sum("capture", "open")),
    refundable,
    freeToRefund: positive(refundable - sum("refund", "open")),
    open,
  }

  function statusOf(): SessionStatus {
    if (captured > 0n) return refunded === 0n ? "confirmed" : refunded < captured ? "partially_refunded" : "refunded"
    if (isHeld) return capturable > 0n ? "authorized" : "voided"
    if (open.reserve > 0) return "verifying"
    // Exact: only this service can execute what a payer signed, and it accepts nothing after the checkout's end.
    if (isSpent(calls)) return "failed"
    if (now >= expiresAt)
      return ofKind(calls, "reserve").some(({ state }) => state === "reverted") ? "failed" : "expired"
    return "pending"
  }
}

const positive = (amount: bigint): bigint => (amount > 0n ? amount : 0n)
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b)
