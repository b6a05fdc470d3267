/** The wire contract for subscribers: signing in with a wallet, and the wallet's subscriptions. */
import { type Static, Type } from "typebox"
import { Signature, SignedMessage, signedExample } from "../../account/identity/schema.ts"
import { AddressText, Described, ListEnd, Money, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"
import { intervals } from "./calendar.ts"

export const SubscriptionId = Type.Object({
  id: Type.String({ description: "The subscription's id", examples: ["sub_tz4a98xxat96iws9zmbrgj3a"] }),
})

export const SubscriberNonce = Strict(
  { address: Described(AddressText, "The wallet that signs") },
  { address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" },
)
export const SubscriberSignIn = Strict(
  { message: Described(SignedMessage, "What the wallet signed, in the form of EIP-4361"), signature: Signature },
  signedExample,
)
export const SubscriberToken = Type.Object({
  accessToken: Type.String({ description: "A bearer token for `/api/subscriptions`" }),
  expiresAt: Timestamp,
  address: AddressText,
})

const invoice = {
  id: Type.String({ pattern: idPattern("inv") }),
  url: Type.String({ description: "Where it is shown, and paid" }),
  amount: Money,
  currency: Type.String(),
  dueAt: Timestamp,
}

export const SubscriberSubscription = Type.Object({
  id: Type.String({ pattern: idPattern("sub") }),
  merchant: Type.String(),
  product: Type.String(),
  amount: Described(Money, "What the next period costs"),
  currency: Type.String(),
  chain: Type.String(),
  billingInterval: Type.Enum([...intervals], { type: "string" }),
  billingCount: Type.Integer(),
  status: Type.Enum(["active", "payment_due", "past_due", "paused", "canceled"], { type: "string" }),
  startedAt: Timestamp,
  paidUntil: Timestamp,
  accessUntil: Timestamp,
  cancelAtPeriodEnd: Type.Boolean({ description: "Canceled: it ends with the paid period" }),
  canResume: Type.Boolean({ description: "Whether the wallet can undo that; it can't if the merchant canceled" }),
  nextDueAt: Nullable(
    Type.String({
      format: "date-time",
      description: "When the next payment is due; null while an invoice is open, or if none follows",
    }),
  ),
  endsAt: Nullable(
    Type.String({ format: "date-time", description: "When it ends automatically; null if it continues" }),
  ),
  openInvoice: Type.Union([Type.Object(invoice), Type.Null()]),
})
export const SubscriberSubscriptions = Type.Object({
  data: Type.Array(SubscriberSubscription),
  ...ListEnd,
})
export type SubscriberSubscription = Static<typeof SubscriberSubscription>

export const SubscriberInvoices = Type.Object({
  data: Type.Array(
    Type.Object({
      ...invoice,
      status: Type.Enum(["open", "paid", "void", "unpaid"], { type: "string" }),
      periodStart: Timestamp,
      periodEnd: Timestamp,
      paidAt: Nullable(Timestamp),
      receiptUrl: Nullable(Type.String()),
    }),
  ),
  ...ListEnd,
})
