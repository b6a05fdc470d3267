/** The rows of webhooks and events; a part of `schema.ts`. */
import type { Generated, JSONColumnType } from "kysely"
import type { Optional } from "./columns.ts"

export type DisabledReason = "gone" | "failing"

export interface Webhooks {
  id: string
  merchant_id: string
  url: string
  description: string | null
  events: JSONColumnType<string[], string, string>
  active: boolean
  disabled_reason: Optional<DisabledReason>
  failing_since: Optional<Date>
  created_at: Date
  updated_at: Date
  deleted_at: Optional<Date>
}

export interface WebhookSecrets {
  id: Generated<bigint>
  merchant_id: string
  webhook_id: Optional<string>
  sealed: string
  created_at: Date
  expires_at: Optional<Date>
  shown_at: Optional<Date>
}

export interface Events {
  id: string
  merchant_id: string
  type: string
  dedupe_key: string
  body: string
  created_at: Date
  traceparent: Optional<string>
}

export type DeliveryStatus = "pending" | "delivered" | "failed" | "skipped"

export interface Deliveries {
  id: string
  seq: Generated<bigint>
  event_id: string
  merchant_id: string
  webhook_id: Optional<string>
  url: Optional<string>
  lane: string
  order_key: string
  status: DeliveryStatus
  by_hand: Generated<boolean>
  attempts: Generated<number>
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
  created_at: Date
  updated_at: Date
}

export interface DeliveryAttempts {
  id: Generated<bigint>
  delivery_id: string
  started_at: Date
  duration_ms: number
  status: number | null
  error: string | null
  answer: string | null
}
