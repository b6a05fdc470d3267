/** Explains why a payment is in its state. Pure. */
import type { WaitingFor } from "../../platform/db/columns.ts"
import type { Row } from "../../platform/db/schema.ts"
import { explainPayout, type PayoutFacts } from "./payout-standing.ts"
import { act, type NextAction, nothing, type Standing, timeText, wait } from "./standing.ts"

/** The facts that decide the explanation of a payment. */
export interface PaymentFacts {
  id: string
  status: Row<"payments">["status"]
  exception: WaitingFor | null
  /** Includes the currency. */
  amount: string
  /** The amount that the payment should have had, with its currency; null if what was sold has no single price. */
  price: string | null
  payer: string
  /** The checkout that the payment pays for, while that checkout can still be paid. */
  openCheckout: string | null
  sessionId: string | null
  acceptedAt: Date | null
  returnedTo: string | null
  /** The amount above the price, with its currency. */
  surplus: { amount: string; state: Row<"surpluses">["state"] } | null
  /** Whether accepting it buys something. */
  buys: boolean
  /** False if a later invoice has replaced the closed invoice that it was for. */
  acceptable: boolean
  /** Whether another payment had paid when it was accepted. */
  beside: boolean
  /** Whether the payer has named the address to which the money should go back. */
  hasReturnAddress: boolean
  /**
   * The payouts that move the payment's money out: shares, sweeps and a return, except those that were cancelled or
   * replaced.
   */
  payouts: readonly PayoutFacts[]
  /** When the next sweep takes the payment's money; null if none of that money waits for a sweep. */
  sweepAt: Date | null
}

/** Explains a payment. */
export function explainPayment(facts: PaymentFacts): Standing {
  switch (facts.status) {
    case "granted":
      return grantedStanding(facts)
    case "open":
      return openStanding(facts)
    case "returned":
      return returnedStanding(facts)
    case "reversed":
      return {
        state: facts.status,
        word: "Reversed",
        why: `A reorg of the network removed the transaction of this payment of ${facts.amount}, so it no longer counts as paid.`,
        next: [
          wait(
            "Do not deliver yet. If the network includes the transaction again, the payment counts again automatically.",
          ),
          ...(facts.sessionId ? [act("See the checkout.", "GET", `timeline/${facts.sessionId}`)] : []),
        ],
      }
  }
}

function grantedStanding(facts: PaymentFacts): Standing {
  const { id, amount, acceptedAt, surplus, status: state } = facts
  const paid = acceptedAt
    ? `You accepted this payment of ${amount} on ${timeText(acceptedAt)}${facts.beside ? ". It bought nothing more." : ", so it counts as paid."}`
    : `This payment of ${amount} is confirmed.`
  if (surplus?.state === "open")
    return {
      state,
      word: "Needs you",
      why: `${paid} The payer sent ${surplus.amount} more than the price, and this excess is waiting for your decision.`,
      next: [
        act(`Keep the extra ${surplus.amount}.`, "POST", `payments/${id}/accept`),
        act(`Send the extra ${surplus.amount} back.`, "POST", `payments/${id}/return`),
      ],
    }
  const money = moneyOf(facts)
  return { state, word: "Paid", why: `${paid} ${money.why}`, next: money.next }
}

/** Where the money is, for a payment that counts. */
function moneyOf({ payouts, sweepAt }: PaymentFacts): Pick<Standing, "why" | "next"> {
  const held = payouts.find(({ state }) => state === "held")
  if (held) {
    const { why, next } = explainPayout(held)
    return { why: why.replace(/^This /, "Its "), next }
  }
  const moving = payouts.filter(({ state }) => state === "queued" || state === "assigned")
  if (moving.length > 0)
    return {
      why: "Its payout is in progress.",
      next: [wait("You don't need to do anything."), ...seeOf(moving)],
    }
  if (sweepAt)
    return {
      why: `Its money goes to your payout address with the next payout, at the latest on ${timeText(sweepAt)}.`,
      next: [wait("You don't need to do anything.")],
    }
  if (payouts.length === 0)
    return {
      why: "None of its money is waiting to be paid out.",
      next: [nothing],
    }
  const isSplit = payouts.some(({ kind }) => kind === "share")
  return {
    why: isSplit
      ? "Its money was divided and sent to the recipients of its split."
      : "Its money was sent to your payout address.",
    next: seeOf(payouts),
  }
}

const seeOf = (payouts: readonly PayoutFacts[]): NextAction[] =>
  payouts
    .slice(0, 3)
    .map(({ id, kind }) => act(`See the ${kind === "sweep" ? "payout" : kind}.`, "GET", `payouts/${id}`))

/** Why the money of an open payment does not count automatically. */
const openWords: Record<WaitingFor, (facts: PaymentFacts) => string> = {
  underpaid: ({ amount, price }) =>
    `The payer sent ${amount}${price ? `, which is less than the price of ${price}` : ", which is less than the price"}.`,
  overpaid: ({ amount }) => `The payer sent ${amount} on top of what had already been paid.`,
  late: ({ amount, sessionId }) =>
    sessionId
      ? `${amount} arrived after the time to pay had ended.`
      : `${amount} arrived after the paywall was switched off or its address was replaced.`,
  duplicate: ({ amount, buys }) =>
    buys
      ? `${amount} arrived after another payment had used up what is for sale.`
      : `${amount} arrived for something that had already been paid: the payer paid twice.`,
  wrong_asset: ({ amount, price }) =>
    `The payer sent ${amount}, which is not the expected token${price ? ` (${price})` : ""}.`,
  sanctioned: ({ amount, payer }) =>
    `${amount} came from ${payer}, an address on a sanctions list, so it does not count.`,
  no_buyer: ({ amount }) =>
    `${amount} was minted, as bridges do, or sent by its own token contract, so there is no sender who could get access.`,
}

/** What decides about money that waits. */
export interface Decision {
  exception: WaitingFor | null
  /** Whether accepting it buys something. */
  buys: boolean
  /** False if a later invoice has replaced the closed invoice that it was for. */
  acceptable: boolean
  hasReturnAddress: boolean
}

/** The step that accepts money, or the reason why there is none; `what` names the money. */
export const acceptStep = (id: string, what: string, decision: Omit<Decision, "hasReturnAddress">): NextAction =>
  decision.acceptable
    ? act(acceptWords(what, decision), "POST", `payments/${id}/accept`)
    : wait("You can't accept it: it was for a closed invoice that a later invoice has replaced.")

function acceptWords(what: string, { exception, buys }: Pick<Decision, "exception" | "buys">): string {
  if (!buys) return `Accept ${what}: it is paid out, and buys nothing more.`
  if (exception === "underpaid") return `Accept ${what}: it then counts as paid in full.`
  if (exception === "wrong_asset") return `Accept ${what}: it then counts as paid, and you get this token.`
  return `Accept ${what}: it then counts as paid.`
}

/** What sending money back needs. */
export const returnWords = (what: string, { hasReturnAddress }: Pick<Decision, "hasReturnAddress">): string =>
  hasReturnAddress
    ? `Send ${what} back to the address that the payer named.`
    : `Send ${what} back. Ask the payer for an address first, because the sender may be an exchange.`

function openStanding(facts: PaymentFacts): Standing {
  const { id, exception, status: state, openCheckout } = facts
  const why = `${openWords[exception ?? "underpaid"](facts)} The money is waiting for your decision.`
  if (exception === "sanctioned")
    return {
      state,
      word: "Needs you",
      why,
      next: [
        wait("Take legal advice. While the address is listed, you can neither accept the payment nor send it back."),
        act("When the address is no longer listed, accept the payment.", "POST", `payments/${id}/accept`),
        act(`Or then ${returnWords("the money", facts).replace(/^S/, "s")}`, "POST", `payments/${id}/return`),
      ],
    }
  return {
    state,
    word: "Needs you",
    why,
    next: [
      acceptStep(id, "the payment", facts),
      act(returnWords("the money", facts), "POST", `payments/${id}/return`),
      ...(exception === "underpaid" && openCheckout
        ? [wait("Or wait: the payer can still send the rest, and then the payment counts automatically.")]
        : []),
    ],
  }
}

function returnedStanding({ id, amount, returnedTo, payouts, status: state }: PaymentFacts): Standing {
  const to = returnedTo ? ` to ${returnedTo}` : ""
  const decided = `You decided to send this payment of ${amount} back${to}.`
  const back = payouts.find(({ kind }) => kind === "return")
  if (!back)
    return {
      state,
      word: "Returned",
      why: `${decided} The return is being created.`,
      next: [act("Look again in a minute.", "GET", `payments/${id}`)],
    }
  const { why, next } = explainPayout(back)
  const others = next.filter(({ route }) => !isItself(route, id))
  return {
    state,
    word: "Returned",
    why: `${decided} ${why.replace(/^This /, "The ")}`,
    next: others.length > 0 ? others : [nothing],
  }
}

/** Whether an action only leads to the page that shows it. */
const isItself = (route: string | null, id: string): boolean => route === `GET /api/console/payments/${id}`
