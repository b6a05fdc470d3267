/** The rows of refunds; a part of `schema.ts`. */
import type { Generated } from "kysely"
import type { Optional } from "./columns.ts"

/** Money that goes back from a merchant's wallet to a payer: one call of an escrow. */
export interface Refunds {
  id: string
  session_id: string
  merchant_id: string
  amount: bigint
  /** The merchant's own words. */
  reason: string | null
  payout_id: string
  /** The state on chain: a reorg turns `succeeded` back into `pending`. */
  status: Generated<"pending" | "succeeded" | "failed">
  notified_at: Optional<Date>
  created_at: Date
  updated_at: Date
}
