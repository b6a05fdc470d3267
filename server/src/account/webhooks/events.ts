/** The content of each event: the wire contract of `data`, from which the types and the API document are generated. */
import { type Static, type TSchema, Type } from "typebox"
import { exceptions } from "../../platform/db/columns.ts"
import { AddressText, Described, HashText, Money, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import type { EventType } from "./webhook.ts"

/** These save the receiver a lookup, and show which of two events is newer. */
const about = {
  description: Described(Nullable(Type.String()), "What was sold, as the merchant described it"),
  metadata: Described(
    Type.Unsafe<Record<string, unknown> | null>({ type: ["object", "null"], additionalProperties: true }),
    "The merchant's own data, given when the checkout was created",
  ),
  sequence: Described(
    Type.Integer({ minimum: 1 }),
    "Grows with each event about this session or payment. Events can arrive out of order: the one with the greatest sequence has the current state, and one with a smaller sequence than you have already handled is out of date",
  ),
}

const payment = {
  paymentId: Described(Type.String(), "The payment's id: use it as the key to recognize repeats"),
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
    "The session's id, or for a paywall's payment the payment's id: use it as the key to recognize repeats",
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
  receiptUrl: Described(Nullable(Type.String()), "The page of its receipt; null while it is not paid"),
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
      "Only where a refund is taken back: `payment.refunded` was sent of it, and the payer did not get it, nor will. What was paid stays paid, as `status` says",
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
  captureBefore: Described(Timestamp, "What is not captured by then goes back to the payer by itself"),
})

const refund = Type.Object({
  id: Described(Type.String(), "The session's id"),
  sessionId: Described(Type.String(), "The same"),
  refundId: Described(Type.String(), "Use it as the key to recognize repeats"),
  merchantId: Type.String(),
  amount: Described(Money, "Of this refund"),
  totalRefunded: Described(Money, "Of all refunds of the session up to this one"),
  originalAmount: Described(Money, "What was captured: once `totalRefunded` reaches it, `status` is `refunded`"),
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
  sessionId: Described(Nullable(Type.String()), "The checkout session whose address was paid, if it was one's"),
  paywallId: Described(Nullable(Type.String()), "The paywall whose address was paid, if it was one's"),
  bundleId: Described(Nullable(Type.String()), "The proxy bundle whose address was paid, if it was one's"),
  exception: Type.Enum(exceptions, { type: "string" }),
  payer: AddressText,
  amount: Described(
    Type.String(),
    "All of the payment, or of an overpaid one what it brought beyond the price. In base units where `decimals` is null",
  ),
  currency: Described(Type.String(), "The token's symbol; its address where the symbol is not known"),
  currencyVerified: Described(
    Type.Boolean(),
    "Whether this is the network's settlement token. If false, `currency` is only what a contract calls itself",
  ),
  token: AddressText,
  decimals: Nullable(Type.Integer()),
  chain: Type.String(),
  chainId: Type.Integer(),
  txHash: HashText,
  updatedAt: Described(
    Timestamp,
    "Events can arrive out of order: the one with the greatest time has the current state. The list of payments says what was decided since",
  ),
})

const renewal = Type.Object({
  subscriptionId: Type.String(),
  invoiceId: Described(Type.String(), "Use it as the key to recognize repeats"),
  checkoutSessionId: Described(Type.String(), "What the invoice is paid with; its own events say when it is paid"),
  amount: Money,
  currency: Type.String(),
  hostedUrl: Described(Type.String(), "The page to send the subscriber to"),
  dueAt: Described(Timestamp, "Three days after it the subscription is past due"),
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
    "Why it is canceled: `requested`, `unpaid`, or `completed` after its last period",
  ),
  payer: Nullable(AddressText),
  customerEmail: Nullable(Type.String()),
  paidUntil: Nullable(Timestamp),
  accessUntil: Nullable(Timestamp),
  invoiceId: Described(Nullable(Type.String()), "The invoice that can be paid now"),
  hostedUrl: Described(Nullable(Type.String()), "The page where that is paid"),
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
    payoutAddress: Described(AddressText, "The address that receives the money from `effectiveAt` on"),
    previousAddress: Nullable(AddressText),
    effectiveAt: Timestamp,
  }),
  "settings.split_changed": Type.Object({
    merchantId: Type.String(),
    change: Type.Enum(["created", "changed", "deleted", "attached", "detached"], { type: "string" }),
    splitId: Nullable(Type.String()),
    resourceId: Described(
      Nullable(Type.String()),
      "The paywall, product, payment link or subscription that the split was attached to or removed from; null where the split itself changed. The links of a product with `billingInterval` follow it, and have no event of their own",
    ),
    productId: Described(
      Nullable(Type.String()),
      "The product whose split it is, where it is that of the paywall's subscriptions, or the subscription was moved to that product; otherwise null",
    ),
    recipients: Type.Array(Type.Object({ address: AddressText, percent: Type.Number() }), {
      description: "Who is paid for payments from now on; when empty, the merchant alone",
    }),
  }),
  "settings.webhook_changed": Type.Object({
    merchantId: Type.String(),
    webhookId: Described(Nullable(Type.String()), "Null where the account's secret, which signs callbacks, was rolled"),
    change: Type.Enum(
      ["added", "moved", "paused", "deleted", "events_changed", "secret_rolled", "account_secret_rolled"],
      { type: "string" },
    ),
    url: Described(
      Nullable(Type.String()),
      "The endpoint's address, before the change where it was moved. The whole URL only in the event that is sent there; the other endpoints get an event with its origin, as paths and queries may have secrets. Of a listener, `listener:` and its id",
    ),
    newUrl: Described(
      Nullable(Type.String()),
      "The endpoint's new address, to the other endpoints its origin; null unless it was moved",
    ),
  }),
  ping: Type.Object({ webhookId: Type.String() }),
} satisfies Record<EventType, TSchema>

export type EventData = { [T in EventType]: Static<(typeof dataSchemas)[T]> }
