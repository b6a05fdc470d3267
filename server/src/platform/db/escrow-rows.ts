/** The rows of escrows; a part of `schema.ts`. */
import type { ColumnType, Generated } from "kysely"
import type { EscrowVersion } from "../chain/escrow-deployments.ts"
import type { Address, Hash } from "../chain/hex.ts"
import type { Optional } from "./columns.ts"

/** Written once: the payer signs the hash of these columns. */
type Term<T> = ColumnType<T, T, never>

/** A call that was deep enough to count while it was in this block. */
export interface CountedCalls {
  payout_id: string
  block_hash: Hash
}

/** The escrow of a checkout session: its terms, and the sums of its calls (`payouts.escrow_id`) in base units. */
export interface Escrows {
  session_id: string
  merchant_id: string
  chain_id: Term<number>
  token: Term<Address>
  escrow: Term<Address>
  version: Term<EscrowVersion>
  collector: Term<Address>
  refund_collector: Term<Address | null>
  /** The relay wallet: only it may call the escrow for this session. */
  operator: Term<Address>
  /** The merchant's payout address when the session was made. */
  receiver: Term<Address>
  max_amount: Term<bigint>
  /** Whole seconds, like the two that follow. */
  pre_approval_expiry: Term<Date>
  authorization_expiry: Term<Date>
  refund_expiry: Term<Date>
  /** When the uncaptured rest goes back to the payer. */
  void_at: Term<Date>
  salt: Term<Hash>
  nonce: Term<Hash>
  /** Null until a reservation is written, and again when it ended without money. */
  payer: Optional<Address>
  auth_id: Optional<Hash>
  authorized: Generated<bigint>
  captured: Generated<bigint>
  voided: Generated<bigint>
  refunded: Generated<bigint>
  /** What the payer took back without the service. */
  reclaimed: Generated<bigint>
  /** When `reclaimed` was first known; the database sets it. */
  reclaimed_at: Generated<Date | null>
  authorized_at: Optional<Date>
  voided_at: Optional<Date>
  run_at: Optional<Date>
  /** Failed rounds since the last that advanced it. */
  failed_rounds: Generated<number>
  created_at: Date
  updated_at: Date
}
