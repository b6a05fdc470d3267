/** The wire contract of explanations: timelines, payments with all their parts, and why each is in its state. */
import { Type } from "typebox"
import { AddressText, Described, HashText, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { timelineKinds } from "./timeline.ts"

const amountFields = {
  amount: Type.String({
    examples: ["5.00"],
    description: "In whole tokens, with at least two decimals; in base units if `decimals` is null",
  }),
  currency: Type.String({ description: "The token's symbol, or its address if the symbol is unknown" }),
  decimals: Nullable(Type.Integer()),
}

/** Why an object is in its state, and what can be done now. */
const StandingShown = Type.Object({
  state: Type.String({ description: "The state, as on the object's own route" }),
  word: Type.String({ description: "The state in one or two words for people", examples: ["Needs you"] }),
  why: Type.String({ description: "Why it is in this state, as sentences" }),
  next: Type.Array(
    Type.Object({
      text: Type.String({ examples: ["Accept the payment: it then counts as paid in full."] }),
      route: Described(
        Nullable(Type.String({ examples: ["POST /api/console/payments/pay_tz4a98xxat96iws9zmbrgj3a/accept"] })),
        "The request that does it; null if it is done elsewhere or happens automatically",
      ),
    }),
    { description: "What you can do now, best first; never empty" },
  ),
})

const Entry = Type.Object({
  at: Described(Timestamp, "When it happened; can be in the future for something due"),
  kind: Type.Enum([...timelineKinds], { type: "string" }),
  text: Type.String(),
  actor: Type.Optional(
    Type.Object(
      {
        kind: Type.String({ description: "console, api_key, subscriber, operator or service" }),
        id: Described(
          Nullable(Type.String()),
          "The e-mail address or subject of a person, the id of a key, or an operator's name; null for API keys that ask",
        ),
      },
      { description: "Who decided it; left out if it happened automatically" },
    ),
  ),
  txHash: Nullable(HashText),
  object: Described(Nullable(Type.String()), "The id of the object that it happened to"),
})

const common = {
  id: Type.String(),
  type: Type.Enum(["payment", "checkout", "payout", "refund", "subscription", "invoice", "event"], { type: "string" }),
  status: StandingShown,
  data: Type.Array(Entry, { description: "Oldest first, at most the newest 500" }),
}

export const Timeline = Type.Object(common)

export const AnyId = Type.Object({
  id: Type.String({
    maxLength: 40,
    description:
      "Any id: of a payment, checkout, payout, refund, subscription, invoice, event, delivery, grant or settlement",
    examples: ["pay_tz4a98xxat96iws9zmbrgj3a"],
  }),
})

export const payoutKinds = ["share", "sweep", "return", "capture"] as const
const PayoutState = Type.Enum(["queued", "held", "assigned", "mined", "final", "reverted", "cancelled"], {
  type: "string",
})

const Transfer = Type.Object({
  txHash: HashText,
  from: AddressText,
  to: AddressText,
  ...amountFields,
  blockNumber: Type.String(),
  state: Type.Enum(["seen", "confirmed", "final", "gone"], { type: "string" }),
  at: Described(Timestamp, "The time of its block"),
})

const Part = Type.Object({
  id: Type.String(),
  kind: Type.String({ description: "share, sweep, return, authorize, settle, reserve, capture, void or refund" }),
  state: PayoutState,
  recipient: AddressText,
  ...amountFields,
  ofThis: Described(
    Nullable(Type.String()),
    "How much of a sweep's amount came from these payments; null for other kinds, which belong to one payment",
  ),
  txHash: Nullable(HashText),
  createdAt: Timestamp,
})

export const PaymentStory = Type.Object({
  ...common,
  payments: Type.Array(
    Type.Object({
      id: Type.String(),
      status: Type.String({ description: "granted, reversed, open or returned" }),
      exception: Nullable(Type.String()),
      payer: AddressText,
      ...amountFields,
      token: AddressText,
      baseUnits: Type.String({ description: "The amount, exact, in the token's smallest unit" }),
      chain: Type.String(),
      txHash: HashText,
      createdAt: Timestamp,
      buys: Type.Boolean({ description: "Whether accepting the open payment buys something, or is only paid out" }),
      acceptable: Type.Boolean({ description: "As in the list of payments that need a decision" }),
      returnAddress: Described(Nullable(AddressText), "The return address that the payer named by signature"),
      surplus: Described(Nullable(Type.String()), "The part of a granted payment that waits for your decision"),
    }),
    { description: "The payment, or the payments of the checkout, at most 50" },
  ),
  checkout: Type.Optional(
    Type.Object({
      id: Type.String(),
      status: Type.String(),
      amount: Type.String(),
      currency: Type.String(),
      description: Nullable(Type.String()),
      productId: Nullable(Type.String()),
      slug: Nullable(Type.String()),
      customerEmail: Nullable(Type.String()),
      payerInfo: Type.Unsafe<Record<string, string> | null>({ type: ["object", "null"], additionalProperties: true }),
      metadata: Type.Unsafe<Record<string, unknown> | null>({ type: ["object", "null"], additionalProperties: true }),
      expiresAt: Timestamp,
    }),
  ),
  address: Type.Optional(
    Type.Object(
      {
        address: AddressText,
        chain: Type.String(),
        owner: AddressText,
        approver: AddressText,
        factory: AddressText,
        salt: HashText,
        payeesHash: HashText,
        opensAt: Timestamp,
      },
      { description: "The receiving address and its terms; left out for escrow payments" },
    ),
  ),
  transfers: Type.Array(Transfer, { description: "Transfers that arrived, at most 400" }),
  payouts: Type.Array(Part, { description: "Payouts that carry or carried the money out; at most 200" }),
})

/** A payout in the list. */
export const payoutFields = {
  id: Type.String({ examples: ["po_0f8b2c1e5d7a4e0f9b3c6d8a1e2f4b5c"] }),
  kind: Type.Enum([...payoutKinds], {
    type: "string",
    description:
      "sweep: to your payout address, from many payments; share: to a recipient of a split, from one payment; return: to a payer; capture: from an escrow to your payout address",
  }),
  state: PayoutState,
  heldReason: Nullable(
    Type.String({ description: "short, sanctions, simulation, low_gas, reverted, gas_budget, allowance or balance" }),
  ),
  ...amountFields,
  baseUnits: Type.String({ description: "The amount, exact, in the token's smallest unit" }),
  token: AddressText,
  chain: Type.String(),
  recipient: AddressText,
  paymentId: Described(Nullable(Type.String()), "For a share or return; the payments of a sweep have a list"),
  sessionId: Described(Nullable(Type.String()), "Of a capture"),
  txHash: Nullable(HashText),
  blockNumber: Nullable(Type.String()),
  gasWei: Described(Nullable(Type.String()), "The cost of its transaction in wei; null until it is mined"),
  attempts: Type.Integer({ description: "How many transactions were signed for it; the chain includes only one" }),
  createdAt: Timestamp,
  minedAt: Nullable(Timestamp),
}

export const PayoutStory = Type.Object({
  ...payoutFields,
  status: StandingShown,
  paymentCount: Type.Integer({ description: "How many payments it includes a part of" }),
  replaces: Nullable(Type.String({ description: "The payout that failed on chain and that this one replaces" })),
  log: Type.Array(
    Type.Object({
      n: Type.Integer(),
      txHash: HashText,
      gas: Type.String(),
      maxFeePerGas: Type.String(),
      signedAt: Timestamp,
      sentAt: Nullable(Timestamp),
      sends: Type.Integer(),
      result: Nullable(Type.String({ description: "The node's last answer: sent, look, wait, bump, alarm, unknown" })),
    }),
    { description: "Each transaction signed for it, oldest first, at most 200" },
  ),
})

export const PayoutPart = Type.Object({
  paymentId: Described(Nullable(Type.String()), "Null for a capture, or if a reorg has since removed the payment"),
  status: Described(Nullable(Type.String()), "The payment's"),
  ...amountFields,
  baseUnits: Type.String({ description: "Its part of the payout, exact. All parts add up to the payout" }),
  payer: Nullable(AddressText),
  paywallId: Nullable(Type.String()),
  sessionId: Nullable(Type.String()),
  bundleId: Nullable(Type.String()),
  txHash: Described(Nullable(HashText), "The transfer that brought it"),
  at: Timestamp,
})
