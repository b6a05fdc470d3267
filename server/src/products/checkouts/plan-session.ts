/**
 * Plans the consequences of everything that arrived for a session: its payment, the decisions that its merchant must
 * make, and its status. Pure.
 */
import type { relayStanding } from "../../ledger/relays/read-relay-status.ts"
import { sanctioned } from "../../ledger/scanner/submission-faults.ts"
import { type Classified, rowsOf } from "../../ledger/settlement/classify.ts"
import { exceptionOf, type Paid, type Plan } from "../../ledger/settlement/sellable.ts"
import { againTogether } from "../../ledger/settlement/waits.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { SessionTransfer } from "./load-session-batch.ts"
import { type Arrival, type Facts, type Folded, foldSession, messageOf, replayCaution } from "./session-rules.ts"

/** How long until the next check whether everything mined before the expiry has been scanned. */
const AGAIN_MS = 30_000

/** The facts on which the plan is based. */
export interface SessionFacts {
  session: Row<"checkout_sessions">
  network: NetworkInfo
  transfers: readonly Classified<SessionTransfer>[]
  /** Transfers that are left out because anyone can still send them back, and when to check each again. */
  again: ReadonlyMap<bigint, Date>
  /** The session's payments that count or may count again, in creation order. */
  payments: readonly Row<"payments">[]
  /** The surplus of the session's payment that the merchant has returned, in base units. */
  returnedSurplus: bigint
  /** Whether a hash submitted in time is still being verified, and whether any was refused. */
  submissions: { open: boolean; refused: boolean }
  /** Submitted transactions about whose money the merchant has decided. */
  decided: readonly Hash[]
  relay: Awaited<ReturnType<typeof relayStanding>>
  /** Whether everything mined before the expiry was certainly scanned. */
  scannedPastExpiry: boolean
  /** Whether transfers remain for another transaction. */
  isMore: boolean
  now: Date
}

export interface SessionPlan extends Plan {
  folded: Folded
  /** The new values of the session's row. */
  row: Pick<
    Row<"checkout_sessions">,
    "status" | "exception" | "received" | "message" | "payer" | "tx_hash" | "confirmed_at" | "run_at"
  >
  /** The payment that the merchant accepted as the session's. */
  acceptedId: string | undefined
  /** Transactions whose money arrived. Their submissions are done, whatever happens to that money. */
  arrived: string[]
  /** Transactions whose senders are on a sanctions list. */
  barred: string[]
  /** The last transfer that pays the session, or the accepted payment. */
  last: { txHash: Row<"payments">["tx_hash"]; payer: Row<"payments">["payer"] } | undefined
}

/** The payment that pays the session, as opposed to one accepted in addition. */
const mainOf = (payments: readonly Row<"payments">[]) =>
  payments.find(payment => payment.status === "granted" && !payment.beside)

const acceptedOf = (payments: readonly Row<"payments">[]) => {
  const main = mainOf(payments)
  return main?.accepted_at ? main : undefined
}

/** Whether a payment pays the session, or paid it until a reorg removed the payment. An open payment never paid. */
export const everPaid = ({ status, beside, accepted_at, exception }: Row<"payments">): boolean =>
  !beside && (status === "granted" || (status === "reversed" && (accepted_at !== null || exception === null)))

/** The facts for the session's rules, which assume that the link is not used up. */
function factsOf(facts: SessionFacts, sorted: Sorted): Facts {
  const { session, payments, submissions, relay, network, now } = facts
  const accepted = acceptedOf(payments)
  const ended = session.status === "failed" || session.status === "expired" ? session.status : null
  const beside = payments.filter(
    ({ status, beside, token }) => status === "granted" && beside && token === network.token.address,
  )
  return {
    amount: session.amount,
    expiresAt: session.expires_at,
    usedUp: false,
    submitted: submissions.open || relay.open,
    refused: submissions.refused,
    ended: now > session.expires_at ? ended : null,
    wrongAsset: sorted.others.length > 0,
    scannedPastExpiry: facts.scannedPastExpiry,
    accepted: accepted ? { exception: exceptionOf(accepted.exception ?? null) } : null,
    beside: beside.reduce((total, { amount }) => total + amount, 0n),
    returnedSurplus: facts.returnedSurplus,
  }
}

/** The undecided transfers, sorted by what they can be used for. */
interface Sorted {
  undecided: Classified<SessionTransfer>[]
  /** Transfers in the settlement token, from senders who are not on a sanctions list. */
  clean: Classified<SessionTransfer>[]
  /** Transfers in other tokens. */
  others: Classified<SessionTransfer>[]
}

function sort(transfers: readonly Classified<SessionTransfer>[]): Sorted {
  // Leaves out transfers in other tokens that belong to the session's own payment, which the merchant accepted.
  const undecided = transfers.filter(({ row, counted, isSettlementToken }) => {
    const isDecided = counted && (row.beside || !isSettlementToken)
    return row.state !== "gone" && row.payment_status !== "returned" && !isDecided
  })
  return {
    undecided,
    clean: undecided.filter(each => each.isSettlementToken && each.screening !== "listed"),
    others: undecided.filter(each => !each.isSettlementToken),
  }
}

function arrivalsOf({ session, payments, relay }: SessionFacts, { clean }: Sorted, isReplaced = false): Arrival[] {
  const isAccepted = acceptedOf(payments) !== undefined
  const late = new Date(session.expires_at.getTime() + 1)
  // Transfers that already pay come first and count as in time even if a reorg moves them: a payment keeps its
  // transfers.
  const inOrder = [...clean.filter(each => each.counted), ...clean.filter(each => !each.counted)]
  return inOrder.map(({ row, counted, sure, screening }) => ({
    id: row.id,
    value: row.value,
    // A relay is signed only in time. If its transaction is mined late, that is not the payer's fault.
    minedAt: isReplaced
      ? late
      : (counted || relay.hashes.has(row.tx_hash)) && row.block_time > session.expires_at
        ? session.expires_at
        : row.block_time,
    // A counted transfer stays confirmed while it moves to another block, or while its block may be gone.
    confirmed: counted || (sure && screening !== "unknown"),
    accepted: isAccepted && counted,
  }))
}

/** Whether the session would be confirmed, and whether by its first payment, which takes one use of its link. */
export function confirms(facts: SessionFacts): { isConfirmed: boolean; takesUse: boolean } {
  const sorted = sort(facts.transfers)
  const { status } = foldSession(factsOf(facts, sorted), arrivalsOf(facts, sorted), facts.now)
  const isConfirmed = status === "confirmed"
  return { isConfirmed, takesUse: isConfirmed && !facts.payments.some(everPaid) }
}

/** Why a session can't be confirmed, however much money arrives. */
export interface Barred {
  /** Other sessions took all uses of the link. */
  usedUp?: boolean
  /** A later invoice replaced the session's closed one, so any money is late. */
  isReplaced?: boolean
}

/** Plans a session's new state. */
export function planSession(facts: SessionFacts, { usedUp = false, isReplaced = false }: Barred = {}): SessionPlan {
  const { session, payments, now } = facts
  const sorted = sort(facts.transfers)
  const { undecided, clean, others } = sorted
  const rules = { ...factsOf(facts, sorted), usedUp }
  const folded = foldSession(rules, arrivalsOf(facts, sorted, isReplaced), now)
  const accepted = acceptedOf(payments)
  const byId = new Map(clean.map(({ row }) => [row.id, row]))
  const rowsById = (arrivals: readonly Arrival[]) => arrivals.flatMap(({ id }) => byId.get(id) ?? [])
  const paid = rowsById(folded.paid)
  const rest = new Set(folded.rest?.arrivals.map(arrival => arrival.id))
  const resting = clean.filter(({ row }) => rest.has(row.id))
  const listed = undecided.filter(each => each.sure && each.screening === "listed")
  const isUnscreened = [...clean, ...others].some(
    ({ row, screening }) => screening === "unknown" && row.state !== "seen",
  )
  // The sender of a returned payment is not screened again, because its transfers are decided.
  const unknown = undecided.filter(each => each.stands && each.screening === "unknown")
  const again = againTogether(now, rowsOf(unknown))
  const lastPaid = paid.at(-1)
  const last = accepted
    ? { txHash: accepted.tx_hash, payer: accepted.payer }
    : lastPaid && { txHash: lastPaid.tx_hash, payer: lastPaid.from_address }
  return {
    folded,
    acceptedId: accepted?.id,
    ...(accepted ? { reversed: [], paid: [] } : paymentOf(session, paid, payments)),
    considered: rowsOf(undecided.filter(each => each.screening !== "unknown")),
    waiting: [
      { exception: folded.rest?.exception ?? "overpaid", transfers: rowsOf(resting) },
      { exception: "wrong_asset", transfers: rowsOf(others.filter(each => each.sure && each.screening === "clear")) },
      { exception: "sanctioned", transfers: rowsOf(listed) },
    ],
    arrived: [...new Set([...paid, ...rowsOf(resting)].map(row => row.tx_hash)), ...facts.decided],
    barred: rowsOf(listed.filter(each => each.isSettlementToken)).map(row => row.tx_hash),
    last,
    row: rowOf(facts, folded, { last, again, isUnscreened, isBarred: listed.length > 0 && folded.received === 0n }),
    again: new Map([...unknown.map(({ row }): [bigint, Date] => [row.id, again]), ...facts.again]),
    // If a sender can't be screened now, settling the session again immediately would not help.
    isMore: !isUnscreened && facts.isMore,
  }
}

/**
 * Builds the session's payment from these transfers. An open or reversed payment that now reaches the amount becomes
 * the session's payment and keeps its id. A payment that lost its transfers is reversed.
 */
function paymentOf(
  { amount }: Row<"checkout_sessions">,
  paid: readonly SessionTransfer[],
  payments: readonly Row<"payments">[],
): Pick<Plan, "paid" | "reversed"> {
  const main = mainOf(payments)
  if (paid.length === 0) return { paid: [], reversed: main ? [main] : [] }
  const claiming = new Set(paid.map(row => row.payment_id))
  const waited = payments.find(row => row.status === "open" && claiming.has(row.id))
  const known = main ?? payments.find(row => everPaid(row) && row.accepted_at === null) ?? waited
  const one: Paid = { transfers: paid, known: known?.id, price: amount }
  return { paid: [one], reversed: [] }
}

/** The new values of the session's row, including the message for its payer. */
function rowOf(
  { session, network, payments, returnedSurplus, relay, scannedPastExpiry, now }: SessionFacts,
  folded: Folded,
  {
    last,
    again,
    isUnscreened,
    isBarred,
  }: Pick<SessionPlan, "last"> & {
    again: Date
    isUnscreened: boolean
    isBarred: boolean
  },
): SessionPlan["row"] {
  const { status, exception, received } = folded
  // A session whose link other sessions used up stays `failed` after the expiry. Settling it again and again would
  // delay other sessions.
  const isOver = status === "failed" && scannedPastExpiry
  const ended = status === "confirmed" || status === "expired" || isOver
  const words = messageOf(
    { ...folded, amount: session.amount },
    network.token,
    isBarred ? sanctioned.message : status === "verifying" ? null : relay.failure,
    returnedSurplus > 0n || payments.some(payment => payment.status === "returned"),
  )
  const soon = new Date(now.getTime() + AGAIN_MS)
  const { replayableUntil: until } = relay
  const isReplayable = until !== undefined && !relay.open && status !== "confirmed"
  return {
    status,
    exception,
    received,
    message: isReplayable ? `${words} ${replayCaution(until, status)}` : words,
    payer: last?.payer ?? session.payer,
    tx_hash: last?.txHash ?? null,
    confirmed_at: status === "confirmed" ? (session.confirmed_at ?? now) : null,
    run_at: isUnscreened ? again : ended ? null : session.expires_at > now ? session.expires_at : soon,
  }
}
