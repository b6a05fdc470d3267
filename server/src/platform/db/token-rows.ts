/** The rows of the scan for tokens that nothing is sold for. */
import type { Generated } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import type { Optional } from "./columns.ts"

/** The scan for tokens that nobody sells for; see `scanner/scan-foreign-tokens.ts`. */
export interface TokenScans {
  chain_id: number
  /** The blocks that are read now, both included; none while `to_block` is below `from_block`. */
  from_block: bigint
  to_block: bigint
  /** The time of the block before them. */
  from_time: Date
  /** The deposits up to this id are read. */
  after_id: Generated<bigint>
  /** How many blocks are read next. */
  blocks: bigint
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
}

/** A token at a receiving address that nothing is sold for. */
export interface ForeignTokens {
  id: Generated<bigint>
  merchant_id: string
  chain_id: number
  deposit_id: bigint
  token: Address
  /** The first transfer of it that was found. */
  tx_hash: Hash
  block_number: bigint
  from_address: Address
  value: bigint
  found_at: Date
  /** The balance that the token reports for the address, in base units; null until that is known. */
  balance: Optional<bigint>
  check_at: Date
}
