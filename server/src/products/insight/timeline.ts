/** Lists the rows of a story in the order of their events. Pure. */
import { checksummed } from "../../platform/chain/hex.ts"
import type { Row } from "../../platform/db/schema.ts"
import { payoutIdOf } from "../../platform/ids.ts"
import type { DecisionRow, DeliveryRow, StoryRows } from "./load-story.ts"
import { timeText } from "./standing.ts"

/** Who made a decision. */
interface TimelineActor {
  kind: Row<"audit_entries">["actor_kind"]
  /** A person's e-mail address or subject, a key's id or an operator's name; null if the caller may not see it. */
  id: string | null
}

/** One event of a story. */
export interface TimelineEntry {
  at: Date
  kind: (typeof timelineKinds)[number]
  text: string
  actor?: TimelineActor
  txHash: string | null
  /** The id of the object that the event is about. */
  object: string | null
}

/** The kinds of entries. */
export const timelineKinds = [
  "created",
  "submitted",
  "seen",
  "gone",
  "confirmed",
  "needs_decision",
  "decided",
  "due",
  "paid",
  "payout",
  "signed",
  "sent",
  "ended",
  "event",
  "delivery",
] as const

/** The most entries of a story that are listed: the newest ones. */
const MAX_ENTRIES = 500

/** Lists a story's events, oldest first. `showsPeople`: whether the caller may see who the people are. */
export function timelineOf(rows: StoryRows, showsPeople: boolean): TimelineEntry[] {
  const all = [
    ...rows.sessions.flatMap(row => sessionEntries(row)),
    ...rows.submissions.map(submissionEntry),
    ...rows.transfers.flatMap(row => transferEntries(row, rows)),
    ...rows.payments.flatMap(row => paymentEntries(row, rows)),
    ...rows.subscriptions.flatMap(subscriptionEntries),
    ...rows.invoices.flatMap(invoiceEntries),
    ...rows.payouts.flatMap(row => payoutEntries(row, rows)),
    ...rows.attempts.flatMap(row => attemptEntries(row, rows)),
    ...rows.events.map(eventEntry),
    ...rows.deliveries.flatMap(deliveryEntries),
    ...rows.decisions.flatMap(row => decisionEntries(row, showsPeople)),
  ]
  return all.toSorted((a, b) => a.at.getTime() - b.at.getTime()).slice(-MAX_ENTRIES)
}

const entry = (
  at: Date,
  kind: TimelineEntry["kind"],
  text: string,
  object: string | null,
  txHash: string | null = null,
): TimelineEntry => ({ at, kind, text, txHash, object })

function sessionEntries({
  id,
  created_at,
  confirmed_at,
  tx_hash,
  status,
  expires_at,
  updated_at,
  capture,
}: Row<"checkout_sessions">) {
  const isOver = status === "expired" || status === "failed"
  return [
    entry(created_at, "created", "The checkout was created.", id),
    ...(confirmed_at ? [entry(confirmed_at, "confirmed", "The checkout was confirmed as paid.", id, tx_hash)] : []),
    ...(status === "voided"
      ? [entry(updated_at, "ended", "The money reserved for the checkout was released.", id)]
      : []),
    ...(isOver && capture === "direct"
      ? [entry(expires_at, "ended", "The time to pay the checkout ended.", id)]
      : isOver
        ? [entry(updated_at, "ended", "The checkout ended without a payment.", id)]
        : []),
  ]
}

const submissionEntry = ({ submitted_at, status, message, tx_hash, resource_id }: Row<"submissions">): TimelineEntry =>
  entry(
    submitted_at,
    "submitted",
    status === "failed"
      ? `The payer submitted a transaction that does not pay: ${message}`
      : "The payer submitted the transaction that pays.",
    resource_id,
    tx_hash,
  )

function transferEntries(row: Row<"transfers">, { money }: StoryRows): TimelineEntry[] {
  const { chain_id, token, value, from_address, block_number, state, tx_hash, reorged_at, created_at } = row
  const amount = money({ chain_id, token, amount: value })
  const states = {
    seen: "It waits for confirmations.",
    confirmed: "It has enough confirmations, but is not final yet.",
    final: "It is final.",
    gone: "A reorg has since removed it.",
  }
  const seen = `${amount} from ${checksummed(from_address)} was seen in block ${block_number}. ${states[state]}`
  return [
    entry(created_at, "seen", seen, null, tx_hash),
    ...(reorged_at
      ? [entry(reorged_at, "gone", `A reorg moved or removed this transfer of ${amount}.`, null, tx_hash)]
      : []),
  ]
}

function paymentEntries(payment: Row<"payments">, { money, surpluses }: StoryRows): TimelineEntry[] {
  const { id, status, exception, created_at, updated_at, tx_hash, accepted_at, sweep_at, chain_id } = payment
  const amount = money(payment)
  const surplus = surpluses.find(({ payment_id }) => payment_id === id)
  const extra = surplus && money({ chain_id, token: surplus.token, amount: surplus.amount })
  const waited = exception !== null && (status !== "granted" || accepted_at !== null)
  return [
    waited
      ? entry(
          created_at,
          "needs_decision",
          `${amount} was counted and needed your decision: ${reasonWords[exception]}.`,
          id,
          tx_hash,
        )
      : entry(created_at, "confirmed", `The payment of ${amount} was confirmed.`, id, tx_hash),
    ...(extra ? [entry(created_at, "needs_decision", `${extra} of it was above the price.`, id, tx_hash)] : []),
    ...(status === "reversed"
      ? [entry(updated_at, "gone", `A reorg reversed the payment of ${amount}.`, id, tx_hash)]
      : []),
    ...(sweep_at ? [entry(sweep_at, "due", `Its money is paid out by ${timeText(sweep_at)} at the latest.`, id)] : []),
  ]
}

const reasonWords: Record<NonNullable<Row<"payments">["exception"]>, string> = {
  underpaid: "it was too small",
  overpaid: "it came on top of the paid amount",
  late: "it came too late",
  duplicate: "it was paid twice",
  wrong_asset: "it was in another token",
  sanctioned: "its sender is on a sanctions list",
  no_buyer: "it had no payer",
}

function subscriptionEntries({ id, started_at, paused_at, canceled_at, ended_at, created_at }: Row<"subscriptions">) {
  return [
    started_at
      ? entry(started_at, "created", "The subscription began.", id)
      : entry(created_at, "created", "A checkout for the subscription was created.", id),
    ...(paused_at ? [entry(paused_at, "decided", "The subscription was paused.", id)] : []),
    ...(canceled_at ? [entry(canceled_at, "decided", "The cancellation of the subscription was requested.", id)] : []),
    ...(ended_at ? [entry(ended_at, "ended", "The subscription ended.", id)] : []),
  ]
}

function invoiceEntries({ id, sequence, created_at, due_at, paid_at, voided_at }: Row<"invoices">): TimelineEntry[] {
  return [
    entry(created_at, "created", `Invoice ${sequence} was created, due on ${timeText(due_at)}.`, id),
    ...(paid_at ? [entry(paid_at, "paid", `Invoice ${sequence} was paid.`, id)] : []),
    ...(voided_at ? [entry(voided_at, "ended", `Invoice ${sequence} was voided.`, id)] : []),
  ]
}

const payoutWords: Record<Row<"payouts">["kind"], string> = {
  share: "share",
  sweep: "payout",
  return: "return",
  authorize: "gasless payment",
  settle: "agent's payment",
  batch: "batch of payments",
  reserve: "reservation in escrow",
  capture: "capture",
  void: "release from escrow",
  refund: "refund",
  anchor: "note of receipts",
  store: "storage of receipts",
}

function payoutEntries(payout: Row<"payouts">, { money }: StoryRows): TimelineEntry[] {
  const { kind, state, recipient, created_at, updated_at, mined_at, block_number, held_reason, tx_hash } = payout
  const id = payoutIdOf(payout.id)
  const what = `The ${payoutWords[kind]} of ${money(payout)} to ${checksummed(recipient)}`
  const isOver = state === "reverted" || state === "cancelled"
  return [
    entry(created_at, "payout", `${what} was created.`, id),
    ...(state === "held" ? [entry(updated_at, "payout", `${what} is on hold (${held_reason}).`, id)] : []),
    ...(mined_at && !isOver
      ? [entry(mined_at, "paid", `${what} was sent, in block ${block_number}.`, id, tx_hash)]
      : []),
    ...(isOver
      ? [
          entry(
            updated_at,
            "ended",
            `${what} ${state === "reverted" ? "failed on chain" : "was cancelled"}.`,
            id,
            tx_hash,
          ),
        ]
      : []),
  ]
}

function attemptEntries(attempt: Row<"transaction_attempts">, { payouts }: StoryRows): TimelineEntry[] {
  const { payout_id, n, signed_at, created_at, sent_at, sends, hash } = attempt
  const payout = payouts.find(({ id, batch_id }) => id === payout_id || batch_id === payout_id)
  const object = payout ? payoutIdOf(payout.id) : null
  const of = payout ? payoutWords[payout.kind] : "money"
  // The database numbers attempts from 0, which a reader would take for an error.
  const what = n === 0 ? `The transaction of the ${of}` : `The transaction of the ${of}, attempt ${n + 1},`
  return [
    entry(signed_at ?? created_at, "signed", `${what} was signed.`, object, hash),
    ...(sent_at
      ? [
          entry(
            sent_at,
            "sent",
            `${what} was handed to the network${sends > 1 ? `, the last of ${sends} times` : ""}.`,
            object,
            hash,
          ),
        ]
      : []),
  ]
}

const eventEntry = ({ id, type, created_at }: StoryRows["events"][number]): TimelineEntry =>
  entry(created_at, "event", `The event ${type} was emitted.`, id)

function deliveryEntries({
  id,
  url,
  status,
  attempts,
  updated_at,
  run_at,
  last_status,
  last_error,
}: DeliveryRow): TimelineEntry[] {
  const tries = attempts === 1 ? "1 attempt" : `${attempts} attempts`
  const why = last_error ?? (last_status === null ? "no answer" : `the answer ${last_status}`)
  const words = {
    delivered: `${url} accepted the event after ${tries}.`,
    failed: `${url} did not accept the event in ${tries}: ${why}`,
    skipped: `The event was not sent to ${url}, which was switched off.`,
    pending:
      attempts === 0
        ? `The event waits to be sent to ${url}.`
        : `${url} has not accepted the event in ${tries}. It will be retried on ${timeText(run_at)}: ${why}`,
  }
  return [entry(updated_at, "delivery", words[status], id)]
}

/** Each decision in words, by its audit action. Other audit entries are not part of a story. */
const decisionWords: Record<string, string> = {
  "payment.accepted": "The payment was accepted",
  "payment.returned": "The return of the payment was requested",
  "surplus.accepted": "The excess of the payment was accepted",
  "surplus.returned": "The return of the excess was requested",
  "grant.revoked": "Access was revoked",
  "refund.created": "A refund was requested",
  "refund.withdrawn": "The refund was withdrawn",
  "checkout.captured": "A capture was requested",
  "checkout.voided": "A release was requested",
  "checkout.changed": "The checkout was changed",
  "payout.changed": "The payout was changed manually",
  "subscription.changed": "The subscription was changed",
}

function decisionEntries(row: DecisionRow, showsPeople: boolean): TimelineEntry[] {
  const { action, at, actor_kind: kind, actor_id, email, object_id } = row
  const words = decisionWords[action]
  if (words === undefined) return []
  const actor = { kind, id: showsPeople ? (email ?? actor_id) : null }
  return [{ ...entry(at, "decided", `${words} ${actorWords(actor)}.`, object_id), actor }]
}

function actorWords({ kind, id }: TimelineActor): string {
  switch (kind) {
    case "console":
      return `by ${id ?? "a member of your team"}`
    case "api_key":
      return `with the API key ${id ?? "of a server"}`
    case "subscriber":
      return "by the subscriber"
    case "operator":
      return "by the operator of this service"
    case "service":
      return "by the service"
  }
}
