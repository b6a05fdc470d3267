/** The rows of subscriptions and their invoices; a part of `schema.ts`. */
import type { Generated } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { Optional } from "./schema.ts"

export type BillingInterval = "day" | "week" | "month" | "year"

/** A product that one payer is billed for again and again. Without a status it has not begun: nobody has paid its first invoice. */
export interface Subscriptions {
  id: string
  merchant_id: string
  chain_id: number
  /** What the next invoice is for. */
  product_id: string
  billing_interval: BillingInterval
  billing_count: number
  trial_days: number
  max_periods: number | null
  /** Who paid first; whoever pays later, access is this wallet's. */
  payer: Optional<Address>
  customer_email: string | null
  started_at: Optional<Date>
  /** What periods are counted from. */
  anchor: Optional<Date>
  paused_at: Optional<Date>
  /** Asked for; `cancel_at_period_end`: with the time that is paid. */
  canceled_at: Optional<Date>
  cancel_at_period_end: Generated<boolean>
  /** Who asked for either: each takes back only what it asked for. */
  cancel_asked_by: Optional<"merchant" | "subscriber" | "both">
  status: Optional<"active" | "payment_due" | "past_due" | "paused" | "canceled">
  cancel_reason: Optional<"requested" | "unpaid" | "completed">
  ended_at: Optional<Date>
  paid_until: Optional<Date>
  access_until: Optional<Date>
  event_sequence: Generated<number>
  /** Why the invoice that is due can't be made. */
  blocked_by: Optional<"payments_paused" | "payout_address" | "price">
  /** Rounds in which it could not be advanced, since the last in which it was. */
  failed_rounds: Generated<number>
  run_at: Optional<Date>
  created_at: Date
  updated_at: Date
}

/** What one period costs, and the session that it is paid with. */
export interface Invoices {
  id: string
  subscription_id: string
  merchant_id: string
  sequence: number
  session_id: string
  product_id: string
  amount: bigint
  currency: string
  /** Of the first, null until it is paid. */
  period_start: Optional<Date>
  period_end: Optional<Date>
  due_at: Date
  /** As its session says; null again when a reorg removes the payment. */
  paid_at: Optional<Date>
  /** Since when nobody is to pay it any more. */
  void_asked_at: Optional<Date>
  voided_at: Optional<Date>
  created_at: Date
  updated_at: Date
}
