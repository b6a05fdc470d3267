/** The API's shapes by short names. */
import type { components } from "../../../../tools/openapi/api.d.ts"

type Shapes = components["schemas"]
export type Transaction = Shapes["Transaction"]
export type Payment = Shapes["Payment"]
export type Checkout = Shapes["Checkout"]
export type PaymentLink = Shapes["PaymentLink"]
export type Product = Shapes["Product"]
export type PaywallListed = Shapes["PaywallListed"]
export type Paywall = Shapes["PaywallCreated"]
export type Webhook = Shapes["Webhook"]
export type Delivery = Shapes["Delivery"]
export type DeliveryWithAttempts = Shapes["DeliveryWithAttempts"]
export type DeliveryAttempt = Shapes["DeliveryAttempt"]
export type Me = Shapes["Me"]
export type Membership = Shapes["Membership"]
export type Right = Shapes["Right"]
export type Payout = Shapes["Payout"]
export type PayoutPart = Shapes["PayoutPart"]
export type PayoutStory = Shapes["PayoutStory"]
export type ApiKey = Shapes["ApiKey"]
export type Member = Shapes["TeamMember"]
export type Invitation = Shapes["TeamInvitation"]
export type AuditEntry = Shapes["AuditEntry"]
export type Settings = Shapes["Settings"]
export type KeyLimits = Shapes["KeyLimits"]
export type Session = Shapes["Session"]
export type Erasure = Shapes["Erasure"]
export type ErasureResult = Shapes["ErasureResult"]
export type Refund = Shapes["Refund"]
export type Split = Shapes["Split"]
export type SplitListed = Shapes["SplitListed"]
export type Payer = Shapes["Payer"]
export type PayerWhole = Shapes["PayerWhole"]
export type Subscription = Shapes["Subscription"]
export type SubscriptionWithInvoices = Shapes["SubscriptionWithInvoices"]
export type Invoice = Shapes["Invoice"]
export type BundleListed = Shapes["BundleListed"]
export type Bundle = Shapes["Bundle"]
export type BundleFailure = Shapes["BundleFailure"]
export type Health = Shapes["ServiceHealth"]
export type Grant = Shapes["Grant"]
export type Deposit = Shapes["Deposit"]
export type Listener = Shapes["Listener"]
export type ForeignToken = Shapes["ForeignToken"]

/** One page of a list, newest first. */
export interface Page<T> {
  data: T[]
  total: number
  totalIsLeast?: true
  next?: string
}
