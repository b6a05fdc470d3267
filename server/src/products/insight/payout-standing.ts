/** Explains why a payout, a return or a call of an escrow is in its state. Pure. */
import type { HeldReason, Row } from "../../platform/db/schema.ts"
import { act, type NextAction, nothing, type Standing, timeText, wait } from "./standing.ts"

type Kind = Row<"payouts">["kind"]

/** The facts that decide the explanation of a payout. */
export interface PayoutFacts {
  /** The payout's id, as the merchant sees it. */
  id: string
  kind: Kind
  state: Row<"payouts">["state"]
  heldReason: HeldReason | null
  /** What a node or the service said about the reason. */
  heldDetail: string | null
  /** Includes the currency. */
  amount: string
  recipient: string
  /** When the payout is tried next; null if only a person can cause the next try. */
  triedAt: Date | null
  minedAt: Date | null
  /** Whether a person cancelled the payout. */
  stopped: boolean
  /** The payment to which the payout belongs; for an escrow's call, `sessionId` is its checkout. */
  paymentId: string | null
  sessionId: string | null
  /** The refund that the payout executes. */
  refundId: string | null
  /** The payout that was made in place of this one. */
  replacedBy: string | null
}

const nouns: Record<Kind, string> = {
  share: "share",
  sweep: "payout",
  return: "return",
  authorize: "payment",
  settle: "payment",
  batch: "batch of payments",
  reserve: "reservation",
  capture: "capture",
  void: "release",
  refund: "refund",
  anchor: "note of receipts",
  store: "storage of receipts",
}

/** What the payout has done once it succeeded: "… was sent to 0x…". */
function doneWords({ kind, amount, recipient }: PayoutFacts): string {
  switch (kind) {
    case "share":
      return `This share of ${amount} was sent to ${recipient}`
    case "sweep":
      return `${amount} was sent to your payout address ${recipient}`
    case "return":
      return `${amount} was sent back to ${recipient}`
    case "authorize":
    case "settle":
    case "batch":
      return `The payer's ${amount} was collected`
    case "reserve":
      return `The payer's ${amount} was reserved in escrow`
    case "capture":
      return `${amount} was captured from escrow and sent to ${recipient}`
    case "void":
      return `${amount} was released from escrow to the payer`
    case "refund":
      return `${amount} was refunded to ${recipient}`
    case "anchor":
      return "Receipts were written to the chain"
    case "store":
      return "0G was paid to store receipts"
  }
}

/** Explains a payout. */
export function explainPayout(facts: PayoutFacts): Standing {
  const { state, kind } = facts
  const noun = nouns[kind]
  switch (state) {
    case "queued":
      return {
        state,
        word: "Waiting",
        why: `This ${noun} of ${facts.amount} is waiting to be sent.`,
        next: [wait(`You don't need to do anything. The ${noun} is usually sent within a minute.`)],
      }
    case "held":
      return heldStanding(facts, noun)
    case "assigned":
      return {
        state,
        word: "Sending",
        why: `This ${noun} of ${facts.amount} is signed, and its transaction is on the way to the network.`,
        next: [
          wait("You don't need to do anything. If the network is slow, the transaction is resent with a higher fee."),
        ],
      }
    case "mined":
      return {
        state,
        word: "Sent",
        why: `${doneWords(facts)}${onDate(facts)}. It is not final on the network yet.`,
        next: [wait("You don't need to do anything. If a reorg removes the transaction, it is resent.")],
      }
    case "final":
      return {
        state,
        word: "Sent",
        why: `${doneWords(facts)}${onDate(facts)}. This is final.`,
        next: [finalNext(facts)],
      }
    case "reverted":
      return revertedStanding(facts, noun)
    case "cancelled":
      return cancelledStanding(facts, noun)
  }
}

const onDate = ({ minedAt }: PayoutFacts): string => (minedAt ? ` on ${timeText(minedAt)}` : "")

function finalNext({ kind, id, paymentId, sessionId }: PayoutFacts): NextAction {
  if (kind === "sweep") return act("See which payments this payout includes.", "GET", `payouts/${id}/payments`)
  if (paymentId !== null) return act("See the payment that the money comes from.", "GET", `payments/${paymentId}`)
  if (sessionId !== null) return act("See the checkout.", "GET", `timeline/${sessionId}`)
  return nothing
}

/** Why a held payout does not move; `noun` and the amount in `facts` describe the payout. */
const heldWords: Record<HeldReason, (noun: string, facts: PayoutFacts) => string> = {
  short: noun =>
    `This ${noun} is on hold because part of its money may be missing: a reorg is moving that part, or has removed it.`,
  sanctions: (noun, { recipient }) =>
    `This ${noun} is on hold because ${recipient}, or the address that paid, is on a sanctions list.`,
  simulation: (noun, { heldDetail }) =>
    `This ${noun} is on hold because the transfer would fail right now${heldDetail ? `: ${sentenceOf(heldDetail)}` : "."}`,
  low_gas: noun => `This ${noun} is on hold because the service has too little gas to send it.`,
  reverted: noun => `This ${noun} is on hold because its previous transaction failed on chain.`,
  gas_budget: noun => `This ${noun} is on hold because today's gas budget for your payouts is used up.`,
  allowance: noun => `This ${noun} is on hold because your payout wallet has not approved it yet.`,
  balance: noun => `This ${noun} is on hold because the balance of your payout wallet is too low for it.`,
}

/** A detail as the end of a sentence: a missing full stop is added. */
const sentenceOf = (detail: string): string => (/[.!?]$/.test(detail) ? detail : `${detail}.`)

function heldStanding(facts: PayoutFacts, noun: string): Standing {
  const reason = facts.heldReason ?? "simulation"
  return {
    state: facts.state,
    word: "On hold",
    why: `${heldWords[reason](noun, facts)} No money has been sent.`,
    next: heldNext(facts, reason),
  }
}

function heldNext({ kind, triedAt, id, paymentId, refundId }: PayoutFacts, reason: HeldReason): NextAction[] {
  const again = triedAt
    ? wait(`You don't need to do anything. The ${nouns[kind]} is retried automatically, next on ${timeText(triedAt)}.`)
    : wait(
        `Ask the operator of this service to retry the ${nouns[kind]} ${id}, because it is not retried automatically.`,
      )
  switch (reason) {
    case "allowance":
      return refundId === null
        ? [again]
        : [
            act(
              "Approve the refund from your payout wallet. The refund's details say which transaction to send.",
              "GET",
              `payments/refunds/${refundId}`,
            ),
          ]
    case "balance":
      return [wait("Add funds to your payout wallet. The refund then continues automatically.")]
    case "sanctions":
      return [wait(`Ask the operator of this service what to do. Give them the id ${id}.`)]
    case "low_gas":
      return [
        wait(`You don't need to do anything. The ${nouns[kind]} continues automatically when the operator adds gas.`),
      ]
    case "gas_budget":
      return [again, act("See your gas budget.", "GET", "settings")]
    case "simulation":
      return kind === "return" && paymentId !== null
        ? [again, act("If the address can't receive this token, see the return.", "GET", `payments/${paymentId}`)]
        : [again]
    case "short":
    case "reverted":
      return [again]
  }
}

function revertedStanding(
  { state, amount, kind, replacedBy, refundId, sessionId }: PayoutFacts,
  noun: string,
): Standing {
  const why = `The transaction of this ${noun} of ${amount} failed on chain. No money moved.`
  const followed = replacedBy
    ? [act("See its replacement.", "GET", `timeline/${replacedBy}`)]
    : kind === "refund"
      ? [
          act(
            `See the refund${refundId ? "" : "s"}, and request a new one.`,
            "GET",
            `payments/refunds${refundId ? `/${refundId}` : ""}`,
          ),
        ]
      : kind === "share" || kind === "sweep" || kind === "return"
        ? [wait(`You don't need to do anything. The service creates the ${noun} again automatically.`)]
        : sessionId !== null
          ? [act(`See the checkout, and request the ${noun} again.`, "GET", `timeline/${sessionId}`)]
          : [wait("The payer must pay again.")]
  return { state, word: "Failed", why, next: followed }
}

function cancelledStanding(facts: PayoutFacts, noun: string): Standing {
  const { state, amount, kind, stopped, heldDetail, paymentId, sessionId, refundId } = facts
  const detail = heldDetail ? ` ${capital(sentenceOf(heldDetail))}` : ""
  const by = stopped ? " by the operator of this service" : ""
  const why = `This ${noun} of ${amount} was cancelled${by} before it was sent. No money moved.${detail}`
  const next = (): NextAction => {
    if (kind === "return" && paymentId !== null)
      return act("The payment is open again: decide what to do with it.", "GET", `payments/${paymentId}`)
    if (kind === "refund" && refundId !== null) return act("See the refund.", "GET", `payments/refunds/${refundId}`)
    if (stopped) return wait(`Ask the operator of this service why. The ${noun} is not created again automatically.`)
    if (kind === "share" || kind === "sweep")
      return wait("You don't need to do anything. Another payout pays what is still owed to you.")
    if (sessionId !== null) return act("See the checkout.", "GET", `timeline/${sessionId}`)
    return wait("The payer must pay again.")
  }
  return { state, word: "Cancelled", why, next: [next()] }
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1)
