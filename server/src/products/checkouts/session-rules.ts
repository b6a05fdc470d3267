/**
 * The rules of a checkout session. Pure: they compute its status from its terms and from what arrived on chain.
 * {@link transitions} lists every allowed change of status.
 */
import type { Token } from "../../platform/chain/network-facts.ts"
import type { PaymentException } from "../../platform/db/columns.ts"
import type { SessionStatus } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"

/** The statuses of a direct session. An escrow's status is folded from its calls (`escrow/fold-escrow.ts`). */
type DirectStatus = Exclude<SessionStatus, "authorized" | "voided" | "partially_refunded" | "refunded">

/**
 * The allowed changes of status. `failed` and `expired` end the payer's page, but not the possibility to pay: money
 * paid in time but found later still confirms the session. Only a reorg that removes the payment ends `confirmed`.
 */
export const transitions: Record<DirectStatus, readonly DirectStatus[]> = {
  pending: ["verifying", "confirmed", "failed", "expired"],
  verifying: ["confirmed", "failed", "expired", "pending"],
  confirmed: ["verifying", "failed", "expired", "pending"],
  failed: ["verifying", "confirmed", "expired", "pending"],
  // Never `pending` again: an ended session stays ended, unless the chain shows that it was paid or that money is on
  // its way.
  expired: ["verifying", "confirmed", "failed"],
}

/** A transfer of the settlement token to the session's address that is not gone. */
export interface Arrival {
  id: bigint
  value: bigint
  minedAt: Date
  /** Whether the transfer is deep enough to count. */
  confirmed: boolean
  /** Whether the transfer is part of the payment that the merchant accepted as the session's. */
  accepted?: boolean
}

export interface Facts {
  amount: bigint
  expiresAt: Date
  /** Whether other sessions took all uses of the link. */
  usedUp: boolean
  /** Whether a hash submitted in time is still being verified, or an authorization is in flight. */
  submitted: boolean
  /**
   * Whether a submitted hash turned out not to be a payment. Anyone may submit a hash, so this decides only how a
   * session ends.
   */
  refused: boolean
  /** How the session had ended by the last settlement; null if it had not ended. */
  ended: "failed" | "expired" | null
  /** Whether money in another token arrived. */
  wrongAsset: boolean
  /** Whether everything mined before the expiry was certainly scanned. */
  scannedPastExpiry: boolean
  /** The payment that the merchant accepted, with its exception; null if there is none. */
  accepted: { exception: PaymentException | null } | null
  /**
   * The sum that the merchant accepted in addition to the session's payment, in base units. It counts as received and
   * needs no decision.
   */
  beside: bigint
  /** The returned surplus of the session's payment, in base units, which no longer counts as received. */
  returnedSurplus: bigint
}

export interface Folded {
  status: DirectStatus
  exception: PaymentException | null
  /** The confirmed sum minus returned amounts, in base units. */
  received: bigint
  /** Whether more may arrive without the payer: unconfirmed transfers, submitted hashes, authorizations in flight. */
  inFlight: boolean
  /** The transfers that pay the session, up to the one that reached the amount; empty until one does. */
  paid: Arrival[]
  /** Confirmed transfers that pay nothing, and why. They need the merchant's decision. */
  rest: { arrivals: Arrival[]; exception: PaymentException } | undefined
}

/**
 * Computes a session's state. Transfers that were mined no later than the session's expiry add up. Those that reach the
 * amount pay the session, including the whole last transfer. Later money is `duplicate` if it would pay the whole
 * amount again, otherwise `overpaid`, and `late` after the expiry. A payment that the merchant accepted pays the
 * session, however much it lacks.
 */
export function foldSession(facts: Facts, arrivals: readonly Arrival[], now: Date): Folded {
  const confirmed = arrivals.filter(arrival => arrival.confirmed)
  const received = sum(confirmed) + facts.beside
  const inTime = confirmed.filter(arrival => arrival.minedAt <= facts.expiresAt)
  // One addition per transfer, because an address can receive a hundred thousand of them.
  let soFar = 0n
  const reached = inTime.findIndex(({ value }) => {
    soFar += value
    return soFar >= facts.amount
  })
  const inFlight = facts.submitted || arrivals.some(arrival => !arrival.confirmed)
  const rest = (arrivals: Arrival[], exception: PaymentException) =>
    arrivals.length > 0 ? { arrivals, exception } : undefined

  if (facts.accepted !== null || (reached >= 0 && !facts.usedUp)) {
    const paid = facts.accepted === null ? inTime.slice(0, reached + 1) : confirmed.filter(each => each.accepted)
    const counted = new Set(paid)
    const more = confirmed.filter(arrival => !counted.has(arrival))
    const over = sum(more) >= facts.amount ? "duplicate" : "overpaid"
    const surplus = sum(paid) - facts.amount
    // After a reorg, less surplus may exist than was returned. In that case, no part of the return counts here.
    const returned = surplus >= facts.returnedSurplus ? facts.returnedSurplus : 0n
    const own = surplus > returned ? "overpaid" : null
    const exception = more.length > 0 ? over : facts.accepted ? facts.accepted.exception : own
    const left = received - returned
    return { status: "confirmed", exception, received: left, inFlight, paid, rest: rest(more, over) }
  }
  const isOver = now > facts.expiresAt && facts.scannedPastExpiry && !inFlight
  const wrong = facts.wrongAsset ? "wrong_asset" : null
  const exception: PaymentException | null =
    confirmed.length === 0
      ? wrong
      : reached >= 0
        ? "duplicate"
        : confirmed.length > inTime.length
          ? "late"
          : "underpaid"
  const status = statusOf()
  return { status, exception, received, inFlight, paid: [], rest: exception ? rest(confirmed, exception) : undefined }

  function statusOf(): DirectStatus {
    // Other sessions used up the link, so no money can pay this one.
    if (reached >= 0) return "failed"
    const nothing = confirmed.length === 0 && !inFlight
    // A hash submitted after the end does not change how the session ended.
    if (nothing && facts.ended !== null) return facts.ended
    if (isOver) return nothing && !facts.wrongAsset && facts.refused ? "failed" : "expired"
    return nothing ? "pending" : "verifying"
  }
}

const sum = (arrivals: readonly Arrival[]): bigint => arrivals.reduce((total, arrival) => total + arrival.value, 0n)

/**
 * The sentence that keeps a payer from paying twice, to append to any other message. Until `until`, anyone can
 * execute the payer's earlier authorization, which failed on chain.
 */
export const replayCaution = (until: string, status: SessionStatus): string =>
  status === "expired"
    ? `Wait until ${until} before you pay again: until then anyone can execute your failed authorization.`
    : `Your failed authorization is public, and anyone can execute it until ${until}. To pay only once, sign again with the same wallet and nonce, or pay in another way after that time.`

/**
 * The payer's message: the session's state and what to do. `reason`: why the last attempt was not a payment.
 * `returned`: whether the merchant sent some of the session's money back.
 */
export function messageOf(
  session: Pick<Folded, "exception" | "received" | "inFlight"> & { status: SessionStatus; amount: bigint },
  token: Token,
  reason?: string | null,
  returned = false,
): string {
  const text = (amount: bigint) => `${formatAmount(amount, token.decimals)}`
  const { status, exception, received, inFlight, amount } = session
  const ask = "the merchant can accept or return it."
  if (status === "confirmed") {
    if (exception === "duplicate") return `The payment is confirmed. It was paid more than once: ${ask}`
    if (exception === "overpaid")
      return `The payment is confirmed. ${text(received)} of ${text(amount)} ${token.symbol} arrived; ask the merchant for the rest.`
    if (returned) return "The payment is confirmed, and the merchant has sent the excess back."
    return "The payment is confirmed."
  }
  if (status === "failed" && exception === "duplicate")
    return `This link was used up by another payment while yours was on its way: ${ask}`
  if (status === "expired") {
    if (exception === "late") return `The payment arrived after the time to pay: ${ask}`
    if (exception === "underpaid")
      return `${text(received)} of ${text(amount)} ${token.symbol} arrived before the time to pay ended: ${ask}`
    if (exception === "wrong_asset") return `Another token arrived instead of ${token.symbol}: ${ask}`
    if (returned) return "The time to pay has ended, and the merchant has sent back what arrived."
    return "The time to pay has ended. Start a new checkout."
  }
  if (status === "failed" && exception === null && !reason)
    return "The time to pay has ended, and no submitted transaction paid this checkout. Start a new checkout."
  if (exception === "late") return `Part of the payment arrived after the time to pay: ${ask}`
  // If asked for money that is already on its way, a payer would pay twice.
  if (exception === "underpaid" && inFlight)
    return `${text(received)} of ${text(amount)} ${token.symbol} arrived, and more is being verified. Wait before you send the rest.`
  if (exception === "underpaid")
    return `${text(received)} of ${text(amount)} ${token.symbol} arrived; send ${text(amount - received)} more.`
  if (reason) return reason
  if (returned && exception === null && status !== "verifying")
    return `The merchant has sent back what arrived. To pay, send ${text(amount)} ${token.symbol}.`
  if (exception === "wrong_asset") return `Another token arrived instead of ${token.symbol}: ${ask}`
  if (status === "verifying") return "The payment is being verified. It is confirmed once it is deep enough on chain."
  return `Send ${text(amount)} ${token.symbol}.`
}
