/** The rows of splits and payouts; a part of `schema.ts`. */
import type { ColumnType, Generated } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import type { Optional } from "./schema.ts"

export interface RecipientSets {
  id: Generated<bigint>
  created_at: Date
}

export interface Recipients {
  set_id: bigint
  position: number
  address: Address
  percent_e4: number
  label: string | null
}

export interface Splits {
  id: string
  merchant_id: string
  name: string
  description: string | null
  set_id: bigint
  created_at: Date
  updated_at: Date
}

export interface Wallets {
  id: Generated<number>
  chain_id: number
  address: Address
  next_nonce: bigint
  status: Generated<"active" | "halted">
  halted_reason: Optional<string>
  suspect_at: Optional<Date>
  checked_number: Optional<bigint>
  check_at: Optional<Date>
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
}

export type IntentState = "queued" | "held" | "assigned" | "mined" | "final" | "reverted" | "cancelled"
export type HeldReason = "short" | "sanctions" | "simulation" | "low_gas" | "reverted"
/** What a node's answer to a broadcast means; `payouts/answers.ts` says which is which. */
export type SendResult = "sent" | "look" | "wait" | "bump" | "alarm" | "unknown"

export interface Intents {
  id: string
  chain_id: number
  kind: "share" | "sweep" | "return" | "authorize" | "capture" | "void" | "refund" | "settle"
  source_key: string
  deposit_id: bigint
  /** Set by the database, from the deposit. */
  merchant_id: Generated<string>
  payment_id: Optional<string>
  share: Optional<number>
  percent_e4: Optional<number>
  replaces: Optional<string>
  token: Address
  recipient: Address
  amount: bigint
  to_address: Address
  data: `0x${string}`
  value: ColumnType<bigint, bigint | undefined, never>
  reserved: boolean
  state: IntentState
  held_reason: Optional<HeldReason>
  held_detail: Optional<string>
  run_at: Date
  checks: Generated<number>
  wallet: Optional<Address>
  nonce: Optional<bigint>
  tx_hash: Optional<Hash>
  block_number: Optional<bigint>
  block_hash: Optional<Hash>
  succeeded: Optional<boolean>
  created_at: Date
  updated_at: Date
  /** Set by the database. */
  mined_at: Generated<Date | null>
}

export interface Attempts {
  id: Generated<bigint>
  intent_id: string
  chain_id: number
  wallet: Address
  nonce: bigint
  n: number
  raw: `0x${string}`
  hash: Hash
  gas: bigint
  max_fee: bigint
  tip: bigint
  created_at: Generated<Date>
  sent_at: Optional<Date>
  sends: Generated<number>
  last_result: Optional<SendResult>
}

export interface SweepParts {
  intent_id: string
  transfer_id: bigint
  amount: bigint
}

export interface DepositBooks {
  deposit_id: bigint
  token: Address
  inflow: Generated<bigint>
  committed: Generated<bigint>
  shortfall: Generated<bigint>
}

/** What left a deposit and no intent meant. */
export interface Outflows {
  id: Generated<string>
  chain_id: number
  deposit_id: bigint
  merchant_id: string
  reason: "recovery" | "unknown"
  tx_hash: Hash
  token: Address
  recipient: Address
  amount: bigint
  block_number: bigint
  block_hash: Hash
  log_index: number
  block_time: Date
  created_at: Date
}

export interface Reconciliations {
  chain_id: number
  hour_at: Date
  moved_number: Optional<bigint>
  pass_at: Date
  deposit_position: Optional<bigint>
  transfer_position: Optional<bigint>
  intent_position: Optional<string>
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
}

/** A view of every log into and out of deposits. */
export interface Books {
  id: string
  merchant_id: string
  direction: "in" | "out"
  /** Of what went out. */
  reason: Intents["kind"] | Outflows["reason"] | null
  state: "confirmed" | "mined" | "final"
  chain_id: number
  deposit_id: bigint
  token: Address
  amount: bigint
  sender: Address | null
  recipient: Address
  tx_hash: Hash
  block_number: bigint
  at: Date
  transfer_id: bigint | null
  intent_id: string | null
  payment_id: string | null
}
