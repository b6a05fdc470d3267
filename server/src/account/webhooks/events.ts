/** The content of each event: the wire contract of `data`, from which the types and the API document are generated. */
import { type Static, type TSchema, Type } from "typebox"
import { exceptions } from "../../platform/db/columns.ts"
import { AddressText, Described, HashText, Money, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import type { EventType } from "./webhook.ts"

/** These fields save the receiver a lookup, and show which of two events is newer. */
const about = {
  description: Described(Nullable(Type.String()), "What was sold, as the merchant described it"),
  metadata: Described(
    Type.Unsafe<Record<string, unknown> | null>({ type: ["object", "null"], additionalProperties: true }),
    "The merchant's own data, given when the checkout was created",
  ),
  sequence: Described(
    Type.Integer({ minimum: 1 }),
    "Grows with each event about this session or payment. Events can arrive out of order. The event with the greatest sequence has the current state; ignore an event with a smaller sequence than you have handled",
  ),
}

const payment = {
  paymentId: Described(Type.String(), "The payment's id; use it as the key to recognize repeats"),
  paywallId: Type.String(),
  payer: AddressText,
  amount: Money,
  currency: Type.String(),
  chain: Type.String(),
  chainId: Type.Integer(),
  txHash: HashText,
  ...about,
}

/** The fields of both published payloads; `id` and `sessionId` have the same value. */
const checkout = Type.Object({
  id: Described(
    Type.String(),
    "The session's id, or the payment's id for a payment to a paywall; use it as the key to recognize repeats",
  ),
  sessionId: Described(Type.String(), "The same"),
  merchantId: Type.String(),
  amount: Money,
  amountReceived: Money,
  currency: Type.String(),
  status: Type.Enum(
    [
      "pending",
      "verifying",
      "authorized",
      "confirmed",
      "voided",
      "partially_refunded",
      "refunded",
      "failed",
      "expired",
    ],
    { type: "string" },
  ),
  exception: Nullable(Type.String()),
  txHash: Nullable(HashText),
  payer: Nullable(AddressText),
  chain: Type.String(),
  chainId: Type.Integer(),
  explorerUrl: Described(Nullable(Type.String()), "Null without a transaction, and in the sandbox"),
  productId: Nullable(Type.String()),
  paywallId: Nullable(Type.String()),
  ...about,
  confirmedAt: Nullable(Timestamp),
  receiptUrl: Described(Nullable(Type.String()), "The page of its receipt; null until it is paid"),
  customerEmail: Type.Optional(Type.String()),
  payerInfo: Type.Optional(
    Type.Record(Type.String(), Type.String(), { description: "What the payer answered to `payerFields`" }),
  ),
  splits: Type.Optional(
    Type.Array(
      Type.Object({
        address: AddressText,
        amount: Money,
        percent: Type.Number(),
        txHash: Nullable(HashText),
      }),
      { description: "`txHash` is null if the share's transaction was not mined within five minutes" },
    ),
  ),
  zeroG: Type.Optional(
    Type.Object(
      {
        storageUri: Described(Type.String(), "`0g://`, the root, and where in its file the receipt is"),
        storageRoot: HashText,
        storageTxHash: Described(HashText, "The transaction on 0G's chain; it may not be mined yet"),
        anchorTxHash: Described(Nullable(HashText), "The transaction that wrote the root to the payment's chain"),
      },
      { description: "Where the receipt is in 0G's storage; only if its operator uses that, and it was known in time" },
    ),
  ),
})

/** A reversal of a payment, a reservation or a refund. */
const reversed = Type.Object({
  ...checkout.properties,
  refundId: Type.Optional(
    Described(
      Type.String(),
      "Only if a refund is taken back: `payment.refunded` was sent for it, but the payer did not and will not get it. The payment itself stays as `status` says",
    ),
  ),
})

/** A checkout whose money is in an escrow. */
const reserved = Type.Object({
  ...checkout.properties,
  authId: Described(HashText, "The payment's id in the escrow contract"),
  authorized: Described(Money, "What was reserved"),
  captured: Money,
  released: Described(Money, "What went back to the payer"),
  captureBefore: Described(Timestamp, "Money not captured by then goes back to the payer automatically"),
})

const refund = Type.Object({
  id: Described(Type.String(), "The session's id"),
  sessionId: Described(Type.String(), "The same"),
  refundId: Described(Type.String(), "Use it as the key to recognize repeats"),
  merchantId: Type.String(),
  amount: Described(Money, "Of this refund"),
  totalRefunded: Described(Money, "The total of the session's refunds up to this one"),
  originalAmount: Described(Money, "The captured amount: once `totalRefunded` reaches it, `status` is `refunded`"),
  currency: Type.String(),
  status: Type.Enum(["refunded", "partially_refunded"], { type: "string" }),
  reason: Described(Nullable(Type.String()), "As the merchant gave it"),
  txHash: Nullable(HashText),
  chain: Type.String(),
  chainId: Type.Integer(),
  explorerUrl: Described(Nullable(Type.String()), "Null in the sandbox"),
  refundRecipient: Described(AddressText, "The payer, who got the money"),
  productId: Nullable(Type.String()),
  ...about,
})

const waiting = Type.Object({
  paymentId: Described(
    Type.String(),
    "Accept or return the payment by this id: `POST /api/console/payments/{id}/accept` or `/return`",
  ),
  merchantId: Type.String(),
  sessionId: Described(Nullable(Type.String()), "The checkout session whose address was paid, if any"),
  paywallId: Described(Nullable(Type.String()), "The paywall whose address was paid, if any"),
  bundleId: Described(Nullable(Type.String()), "The proxy bundle whose address was paid, if any"),
  exception: Type.Enum(exceptions, { type: "string" }),
  payer: AddressText,
  amount: Described(
    Type.String(),
    "The whole payment, or the excess of an overpayment. In base units if `decimals` is null",
  ),
  currency: Described(Type.String(), "The token's symbol, or its address if the symbol is unknown"),
  currencyVerified: Described(
    Type.Boolean(),
    "Whether this is the network's settlement token. If false, `currency` is only the name that the contract gives itself",
  ),
  token: AddressText,
  decimals: Nullable(Type.Integer()),
  chain: Type.String(),
  chainId: Type.Integer(),
  txHash: HashText,
  updatedAt: Described(
    Timestamp,
    "Events can arrive out of order: the event with the latest time has the current state. The list of payments says what was decided since",
  ),
})

const renewal = Type.Object({
  subscriptionId: Type.String(),
  invoiceId: Described(Type.String(), "Use it as the key to recognize repeats"),
  checkoutSessionId: Described(Type.String(), "The checkout that pays the invoice; its own events say when it is paid"),
  amount: Money,
  currency: Type.String(),
  hostedUrl: Described(Type.String(), "The page to send the subscriber to"),
  dueAt: Described(Timestamp, "The subscription becomes past due three days later"),
  periodStart: Timestamp,
  periodEnd: Timestamp,
  merchantId: Type.String(),
  productId: Type.String(),
  customerEmail: Nullable(Type.String()),
  sequence: about.sequence,
})

const subscription = Type.Object({
  subscriptionId: Type.String(),
  merchantId: Type.String(),
  productId: Type.String(),
  status: Type.Enum(["active", "payment_due", "past_due", "paused", "canceled"], { type: "string" }),
  cancelReason: Described(
    Nullable(Type.String()),
    "Why it was canceled: `requested`, `unpaid`, or `completed` after its last period",
  ),
  payer: Nullable(AddressText),
  customerEmail: Nullable(Type.String()),
  paidUntil: Nullable(Timestamp),
  accessUntil: Nullable(Timestamp),
  invoiceId: Described(Nullable(Type.String()), "The invoice that can be paid now"),
  hostedUrl: Described(Nullable(Type.String()), "The page where that invoice is paid"),
  sequence: about.sequence,
})

/** What `data` is in each event. */
export const dataSchemas = {
  "checkout.session.completed": checkout,
  "payment.refunded": refund,
  "subscription.renewal.created": renewal,
  "payment.exception": waiting,
  "subscription.past_due": subscription,
  "subscription.canceled": subscription,
  "subscription.resumed": subscription,
  "checkout.confirmed": checkout,
  "checkout.failed": checkout,
  "checkout.expired": checkout,
  "checkout.authorized": reserved,
  "checkout.voided": reserved,
  "checkout.session.reversed": reversed,
  "paywall.granted": Type.Object({ ...payment, grantedAt: Timestamp }),
  "paywall.reversed": Type.Object({ ...payment, reversedAt: Timestamp }),
  "settings.payout_address_changed": Type.Object({
    merchantId: Type.String(),
    chain: Type.String(),
    payoutAddress: Described(AddressText, "The address that receives the money from `effectiveAt`"),
    previousAddress: Nullable(AddressText),
    effectiveAt: Timestamp,
  }),
  "settings.split_changed": Type.Object({
    merchantId: Type.String(),
    change: Type.Enum(["created", "changed", "deleted", "attached", "detached"], { type: "string" }),
    splitId: Nullable(Type.String()),
    resourceId: Described(
      Nullable(Type.String()),
      "The paywall, product, payment link or subscription that the split was attached to or removed from; null if the split itself changed. Links of a product with `billingInterval` follow the product and cause no event",
    ),
    productId: Described(
      Nullable(Type.String()),
      "The product that the split belongs to, if it is the product of the paywall's subscriptions or the subscription was moved to it; otherwise null",
    ),
    recipients: Type.Array(Type.Object({ address: AddressText, percent: Type.Number() }), {
      description: "Who receives payments from now on; if empty, only the merchant",
    }),
  }),
  "settings.webhook_changed": Type.Object({
    merchantId: Type.String(),
    webhookId: Described(Nullable(Type.String()), "Null if the account's secret, which signs callbacks, was rolled"),
    change: Type.Enum(
      ["added", "moved", "paused", "deleted", "events_changed", "secret_rolled", "account_secret_rolled"],
      { type: "string" },
    ),
    url: Described(
      Nullable(Type.String()),
      "The endpoint's address; if it was moved, the old one. Only the event sent to that address has the whole URL. Other endpoints get the origin, because paths and queries may contain secrets. For a listener, `listener:` and its id",
    ),
    newUrl: Described(
      Nullable(Type.String()),
      "The endpoint's new address, or its origin in events to other endpoints; null unless it was moved",
    ),
  }),
  ping: Type.Object({ webhookId: Type.String() }),
} satisfies Record<EventType, TSchema>

export type EventData = { [T in EventType]: Static<(typeof dataSchemas)[T]> }
