/** The rows of subscriptions and their invoices; a part of `schema.ts`. */
import type { Generated } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { Optional } from "./columns.ts"

export type BillingInterval = "day" | "week" | "month" | "year"

/**
 * A product that one payer is billed for repeatedly. Without a status it has not begun: nobody has paid its first
 * invoice.
 */
export interface Subscriptions {
  id: string
  merchant_id: string
  chain_id: number
  /** The product of the next invoice. */
  product_id: string
  billing_interval: BillingInterval
  billing_count: number
  /** What its checkout promised; given where `has_trial`. */
  trial_days: number
  max_periods: number | null
  /** The wallet that paid first. It has the access, whichever wallet pays later. */
  payer: Optional<Address>
  /** Whether it is its payer's first of the product of its last invoice: it alone has days of grace. */
  is_first: Generated<boolean>
  /** Whether it was that of the product that it began with: it alone has a trial. */
  has_trial: Generated<boolean>
  customer_email: string | null
  started_at: Optional<Date>
  /** The time from which periods are counted. */
  anchor: Optional<Date>
  paused_at: Optional<Date>
  /** When cancelling was asked for; `cancel_at_period_end`: it takes effect with the end of the paid time. */
  canceled_at: Optional<Date>
  cancel_at_period_end: Generated<boolean>
  /** Who asked for either: each can only withdraw its own request. */
  cancel_asked_by: Optional<"merchant" | "subscriber" | "both">
  status: Optional<"active" | "payment_due" | "past_due" | "paused" | "canceled">
  cancel_reason: Optional<"requested" | "unpaid" | "completed">
  ended_at: Optional<Date>
  paid_until: Optional<Date>
  access_until: Optional<Date>
  event_sequence: Generated<number>
  /** Why the due invoice can't be made. */
  blocked_by: Optional<"payments_paused" | "payout_address" | "price">
  /** Failed rounds since the last that advanced it. */
  failed_rounds: Generated<number>
  run_at: Optional<Date>
  created_at: Date
  updated_at: Date
}

/** Which subscription of a payer to a product is the first. */
export interface FirstSubscriptions {
  payer: Address
  product_id: string
  subscription_id: string
}

/** The price of one period, and the session that it is paid with. */
export interface Invoices {
  id: string
  subscription_id: string
  merchant_id: string
  sequence: number
  session_id: string
  product_id: string
  amount: bigint
  currency: string
  /** Null for the first invoice until it is paid. */
  period_start: Optional<Date>
  period_end: Optional<Date>
  due_at: Date
  /** The same as its session's; null again when a reorg removes the payment. */
  paid_at: Optional<Date>
  /** Since when the invoice should not be paid any more. */
  void_asked_at: Optional<Date>
  /** Whose request that was: a pause is its merchant's. */
  void_asked_by: Optional<"merchant" | "subscriber">
  voided_at: Optional<Date>
  created_at: Date
  updated_at: Date
}
