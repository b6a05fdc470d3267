/**
 * The rows as Kysely sees them. `npm run schema` generates `rows.ts` from the catalogue; this file names the types that
 * other code uses. bigint: numeric and int8 columns.
 */
import type { Selectable } from "kysely"
import type { PayoutKindName } from "./payout-kinds.ts"
import type { DB } from "./rows.ts"

export type Database = DB

export type Row<T extends keyof Database> = Selectable<Database[T]>

export type SubmissionStatus = Row<"submissions">["status"]
export type FailureReason = NonNullable<Row<"submissions">["reason"]>
export type SessionStatus = Row<"checkout_sessions">["status"]
export type BillingInterval = Row<"subscriptions">["billing_interval"]

export type SignInWay = Row<"sessions">["way"]

export type PayoutState = Row<"payouts">["state"]
/** Why a payout is held. `allowance` and `balance`: a refund whose merchant's wallet allows or holds too little. */
export type HeldReason = NonNullable<Row<"payouts">["held_reason"]>
/** The meaning of a node's answer to a broadcast; the mapping is in `txmanager/broadcast-results.ts`. */
export type SendResult = NonNullable<Row<"transaction_attempts">["last_result"]>
/** Calls of an escrow. */
export type EscrowCallKind = Extract<PayoutKindName, "reserve" | "capture" | "void" | "refund">
export type OperatorAction = Row<"operator_actions">["action"]

export type DeliveryStatus = Row<"deliveries">["status"]
export type DisabledReason = NonNullable<Row<"webhooks">["disabled_reason"]>

export type { StandingAlarm } from "./standing-alarm.ts"
