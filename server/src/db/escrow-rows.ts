/** The rows of escrows; a part of `schema.ts`. */
import type { ColumnType, Generated } from "kysely"
import type { EscrowVersion } from "../chain/escrow-deployments.ts"
import type { Address, Hash } from "../chain/hex.ts"
import type { Optional } from "./schema.ts"

/** Written once: the payer signs the hash of these. */
type Term<T> = ColumnType<T, T, never>

/** A call that was deep enough to count while it was in this block. */
export interface CountedCalls {
  payout_id: string
  block_hash: Hash
}

/** The escrow of a checkout session: its terms, and what its calls (`payouts.escrow_id`) come to in base units. */
export interface Escrows {
  session_id: string
  merchant_id: string
  chain_id: Term<number>
  token: Term<Address>
  escrow: Term<Address>
  version: Term<EscrowVersion>
  collector: Term<Address>
  refund_collector: Term<Address | null>
  /** The relay wallet that alone may call the escrow for this session. */
  operator: Term<Address>
  /** The merchant's payout address of the time when the session was made. */
  receiver: Term<Address>
  max_amount: Term<bigint>
  /** Whole seconds, as are the two that follow. */
  pre_approval_expiry: Term<Date>
  authorization_expiry: Term<Date>
  refund_expiry: Term<Date>
  /** When what is not captured goes back to the payer. */
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
  /** What the payer took back itself. */
  reclaimed: Generated<bigint>
  /** Set by the database, when that was first known. */
  reclaimed_at: Generated<Date | null>
  authorized_at: Optional<Date>
  voided_at: Optional<Date>
  run_at: Optional<Date>
  /** Rounds since the last that advanced it. */
  failed_rounds: Generated<number>
  created_at: Date
  updated_at: Date
}
