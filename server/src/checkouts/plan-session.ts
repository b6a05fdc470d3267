/** What all that arrived for a session comes to: its payment, what needs the merchant's decision, and its status. Pure. */
import type { NetworkInfo } from "../chain/networks.ts"
import type { Row } from "../db/schema.ts"
import type { relayStanding } from "../payouts/relay-standing.ts"
import { sanctioned } from "../scanner/submission-faults.ts"
import { type Classified, rowsOf } from "../settlement/classify.ts"
import type { Paid, Plan } from "../settlement/sellable.ts"
import type { SessionTransfer } from "./session-batch.ts"
import { type Arrival, type Facts, type Folded, foldSession, messageOf, replayCaution } from "./session-rules.ts"

/** How long until what can't be decided now is tried again. */
const AGAIN_MS = 30_000

/** What the plan follows from. */
export interface SessionFacts {
  session: Row<"checkout_sessions">
  network: NetworkInfo
  transfers: readonly Classified<SessionTransfer>[]
  /** When transfers are due again that are left out, because anyone can still send them back. */
  again: ReadonlyMap<bigint, Date>
  /** All of the session's, in the order in which they were made. */
  payments: readonly Row<"payments">[]
  /** Whether a hash that was submitted in time is still looked at, and whether any was refused. */
  submissions: { open: boolean; refused: boolean }
  relay: Awaited<ReturnType<typeof relayStanding>>
  /** Whether everything mined before the expiry has certainly been scanned. */
  lookedPastExpiry: boolean
  /** New transfers that are left for another transaction. */
  left: number
  now: Date
}

export interface SessionPlan extends Plan {
  folded: Folded
  /** How the session's row stands from now on. */
  row: Pick<
    Row<"checkout_sessions">,
    "status" | "exception" | "received" | "message" | "payer" | "tx_hash" | "confirmed_at" | "run_at"
  >
  /** The payment that the merchant let count as the session's. */
  acceptedId: string | undefined
  /** Transactions whose money is here: their submissions have done their work, whatever becomes of the money. */
  arrived: string[]
  /** Transactions of senders that are on a sanctions list. */
  barred: string[]
  /** The last transfer that pays it, or the payment that was accepted. */
  last: { txHash: Row<"payments">["tx_hash"]; payer: Row<"payments">["payer"] } | undefined
}

/** The payment that pays the session; one that was accepted beside it does not. */
const mainOf = (payments: readonly Row<"payments">[]) =>
  payments.find(payment => payment.status === "granted" && !payment.beside)

const acceptedOf = (payments: readonly Row<"payments">[]) => {
  const main = mainOf(payments)
  return main?.accepted_at ? main : undefined
}

/** Whether it pays the session, or did until a reorg removed it. A payment that only waited does not count. */
export const everPaid = ({ status, beside, accepted_at, exception }: Row<"payments">): boolean =>
  !beside && (status === "granted" || (status === "reversed" && (accepted_at !== null || exception === null)))

/** What the rules of a session need of these facts; the link is not used up yet. */
function factsOf(facts: SessionFacts, sorted: Sorted): Facts {
  const { session, payments, submissions, relay, transfers, now } = facts
  const accepted = acceptedOf(payments)
  const ended = session.status === "failed" || session.status === "expired" ? session.status : null
  const beside = transfers.filter(
    ({ row, isSettlementToken }) => row.beside && row.state !== "gone" && isSettlementToken,
  )
  return {
    amount: session.amount,
    expiresAt: session.expires_at,
    usedUp: false,
    submitted: submissions.open || relay.open,
    refused: submissions.refused,
    ended: now > session.expires_at ? ended : null,
    wrongAsset: sorted.others.length > 0,
    lookedPastExpiry: facts.lookedPastExpiry,
    accepted: accepted
      ? { exception: accepted.exception === "sanctioned" ? null : (accepted.exception ?? null) }
      : null,
    beside: beside.reduce((total, { row }) => total + row.value, 0n),
  }
}

/** The transfers that are not decided, by what can be done with them. */
interface Sorted {
  undecided: Classified<SessionTransfer>[]
  /** In the settlement token, from senders who are not listed. */
  clean: Classified<SessionTransfer>[]
  /** In other tokens. */
  others: Classified<SessionTransfer>[]
}

function sort(transfers: readonly Classified<SessionTransfer>[]): Sorted {
  // What the merchant has decided about is counted no more, but for the session's own payment.
  const undecided = transfers.filter(
    ({ row, counted, isSettlementToken }) =>
      row.state !== "gone" && row.payment_status !== "returned" && !(counted && (row.beside || !isSettlementToken)),
  )
  return {
    undecided,
    clean: undecided.filter(each => each.isSettlementToken && each.screening !== "listed"),
    others: undecided.filter(each => !each.isSettlementToken),
  }
}

/** Transfers that the merchant has returned, or accepted beside what paid: nothing else ends a submission that names them later. */
const decidedOf = (transfers: SessionFacts["transfers"]): SessionTransfer[] =>
  rowsOf(transfers.filter(({ row, stands }) => stands && (row.payment_status === "returned" || row.beside)))

function arrivalsOf({ session, payments, relay }: SessionFacts, { clean }: Sorted): Arrival[] {
  const isAccepted = acceptedOf(payments) !== undefined
  // What pays already comes first and was in time, wherever in the chain it moves: a payment keeps its transfers.
  const inOrder = [...clean.filter(each => each.counted), ...clean.filter(each => !each.counted)]
  return inOrder.map(({ row, counted, sure, screening }) => ({
    id: row.id,
    value: row.value,
    // A relay is only signed in time. How soon it is mined is not the payer's to answer for.
    minedAt:
      (counted || relay.hashes.has(row.tx_hash)) && row.block_time > session.expires_at
        ? session.expires_at
        : row.block_time,
    // What counts already goes on doing so while it moves to another block, or is only suspected to be gone.
    confirmed: counted || (sure && screening !== "unknown"),
    accepted: isAccepted && counted,
  }))
}

/** Whether the session would be confirmed by a payment that is its first, and so takes one of its link's uses. */
export function takesUse(facts: SessionFacts): boolean {
  const sorted = sort(facts.transfers)
  const { status } = foldSession(factsOf(facts, sorted), arrivalsOf(facts, sorted), facts.now)
  return status === "confirmed" && !facts.payments.some(everPaid)
}

/** What has to happen; `usedUp` when others have taken all uses of the session's link. */
export function planSession(facts: SessionFacts, usedUp: boolean): SessionPlan {
  const { session, transfers, payments, now } = facts
  const sorted = sort(facts.transfers)
  const { undecided, clean, others } = sorted
  const rules = { ...factsOf(facts, sorted), usedUp }
  const folded = foldSession(rules, arrivalsOf(facts, sorted), now)
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
  const again = new Date(now.getTime() + AGAIN_MS)
  const unknown = transfers.filter(each => each.stands && each.screening === "unknown")
  const lastPaid = paid.at(-1)
  const last = accepted
    ? { txHash: accepted.tx_hash, payer: accepted.payer }
    : lastPaid && { txHash: lastPaid.tx_hash, payer: lastPaid.from_address }
  return {
    folded,
    acceptedId: accepted?.id,
    ...(accepted ? { reversed: [], paid: [] } : paymentOf(session, paid, payments)),
    looked: rowsOf(undecided.filter(each => each.screening !== "unknown")),
    waiting: [
      { exception: folded.rest?.exception ?? "overpaid", transfers: rowsOf(resting) },
      { exception: "wrong_asset", transfers: rowsOf(others.filter(each => each.sure && each.screening === "clear")) },
      { exception: "sanctioned", transfers: rowsOf(listed) },
    ],
    arrived: [...rowsById([...folded.paid, ...(folded.rest?.arrivals ?? [])]), ...decidedOf(transfers)].map(
      row => row.tx_hash,
    ),
    barred: rowsOf(listed.filter(each => each.isSettlementToken)).map(row => row.tx_hash),
    last,
    row: rowOf(facts, folded, { last, again, isUnscreened, isBarred: listed.length > 0 && folded.received === 0n }),
    again: new Map([...unknown.map(({ row }): [bigint, Date] => [row.id, again]), ...facts.again]),
    // What nobody can screen is not tried again at once.
    isMore: !isUnscreened && facts.left > 0,
  }
}

/**
 * The session's payment, of these transfers. One that waited, or was reversed, and became enough is the session's payment from
 * then on, under the same id; one that has lost its transfers is reversed.
 */
function paymentOf(
  { amount }: Row<"checkout_sessions">,
  paid: readonly SessionTransfer[],
  payments: readonly Row<"payments">[],
): Pick<Plan, "paid" | "reversed"> {
  const main = mainOf(payments)
  if (paid.length === 0) return { paid: [], reversed: main ? [main] : [] }
  const waited = payments.find(row => row.status === "open" && paid.some(({ payment_id }) => payment_id === row.id))
  const known = main ?? payments.find(row => everPaid(row) && row.accepted_at === null) ?? waited
  const one: Paid = { transfers: paid, known: known?.id, price: amount }
  return { paid: [one], reversed: [] }
}

/** How the session's row stands, in the words for its payer. */
function rowOf(
  { session, network, payments, relay, lookedPastExpiry, now }: SessionFacts,
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
  // A link used up by others stays so past the expiry: looked at for ever, such sessions would keep the others waiting.
  const isOver = status === "failed" && lookedPastExpiry
  const ended = status === "confirmed" || status === "expired" || isOver
  const words = messageOf(
    { ...folded, amount: session.amount },
    network.token,
    isBarred ? sanctioned.message : status === "verifying" ? null : relay.failure,
    payments.some(payment => payment.status === "returned"),
  )
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
    run_at: isUnscreened ? again : ended ? null : session.expires_at > now ? session.expires_at : again,
  }
}
