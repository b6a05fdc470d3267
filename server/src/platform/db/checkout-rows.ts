/** The rows of products, payment links and checkout sessions; a part of `schema.ts`. */
import type { Generated, JSONColumnType } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import type { Optional, PaymentException } from "./columns.ts"
import type { BillingInterval } from "./subscription-rows.ts"

export interface Products {
  id: string
  merchant_id: string
  chain_id: number
  name: string
  description: string | null
  price: bigint
  currency: string
  split_id: Optional<string>
  active: boolean
  /** The length of a period, for a subscription product; both are null for any other. */
  billing_interval: Optional<BillingInterval>
  billing_count: Optional<number>
  trial_days: Generated<number>
  /** How many periods are billed; null: until somebody cancels. */
  max_periods: Optional<number>
  created_at: Date
  updated_at: Date
}

export interface PaymentLinks {
  id: string
  merchant_id: string
  chain_id: number
  slug: string
  title: string
  description: string | null
  /** Null: the payer decides how much. */
  amount: bigint | null
  currency: string
  product_id: string | null
  split_id: Optional<string>
  redirect_url: string | null
  max_uses: number | null
  uses: Generated<number>
  expires_at: Date | null
  active: boolean
  created_at: Date
  updated_at: Date
}

export type SessionStatus =
  | "pending"
  | "verifying"
  | "authorized"
  | "confirmed"
  | "voided"
  | "partially_refunded"
  | "refunded"
  | "failed"
  | "expired"
/** `direct`: paid at once. The others reserve the money, and capture it by the merchant's call or automatically. */
type Capture = "direct" | "manual" | "automatic"

export interface CheckoutSessions {
  id: string
  merchant_id: string
  chain_id: number
  amount: bigint
  currency: string
  description: string | null
  redirect_url: string | null
  callback_url: string | null
  link_id: string | null
  product_id: string | null
  customer_email: string | null
  payer_fields: JSONColumnType<string[] | null, string | null, string | null>
  payer_info: JSONColumnType<Record<string, string> | null, string | null, string | null>
  metadata: JSONColumnType<Record<string, unknown> | null, string | null, string | null>
  status: SessionStatus
  /** A session that is not `direct` has a row in `escrows` and no address. */
  capture: Generated<Capture>
  exception: Optional<PaymentException>
  received: Generated<bigint>
  message: Optional<string>
  split_id: Optional<string>
  recipient_set_id: Optional<bigint>
  payer: Optional<Address>
  tx_hash: Optional<Hash>
  confirmed_at: Optional<Date>
  expires_at: Date
  run_at: Optional<Date>
  /** The session was opened for an agent at a payment link: no merchant is notified of it. */
  agent: Generated<boolean>
  /** A MAC of the address of the caller that it was opened for. */
  agent_caller: Optional<string>
  created_at: Date
  updated_at: Date
  notified_paid: Generated<boolean>
  event_sequence: Generated<number>
  traceparent: Optional<string>
}
