/** The rows of splits and payouts; a part of `schema.ts`. */
import type { ColumnType, Generated, JSONColumnType } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import type { Optional } from "./columns.ts"
import type { LaneName, PayoutKindName } from "./payout-kinds.ts"

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
  lane: Generated<LaneName>
  address: Address
  next_nonce: bigint
  status: Generated<"active" | "halted">
  halted_reason: Optional<string>
  suspect_at: Optional<Date>
  /** The last block up to which all logs are compared with the rows. */
  checked_number: Optional<bigint>
  /** The last block of the range that is being compared, and the deposit up to which that is done; null between two. */
  checked_to: Optional<bigint>
  checked_position: Optional<bigint>
  check_at: Optional<Date>
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
  alarms: ColumnType<StandingAlarm[], StandingAlarm[] | undefined, StandingAlarm[]>
}

/** The row is only a lock for a merchant's budget, and has no content. */
export interface GasBudgets {
  merchant_id: string
}

/** Alarms of a wallet that stay active until their reason is gone. */
export type StandingAlarm =
  | "low_gas"
  | "gas_warning"
  | "fee_cap"
  | "rpc_unavailable"
  | "gas_total"
  | "transfer"
  | "stuck"
  | "given_up"
  | "unswept"
  | "signer"

export type PayoutState = "queued" | "held" | "assigned" | "mined" | "final" | "reverted" | "cancelled"
export type HeldReason =
  | "short"
  | "sanctions"
  | "simulation"
  | "low_gas"
  | "reverted"
  | "gas_budget"
  /** A refund whose merchant's wallet allows too little, or holds too little. */
  | "allowance"
  | "balance"
/** What a node's answer to a broadcast means; the mapping is in `txmanager/broadcast-results.ts`. */
export type SendResult = "sent" | "look" | "wait" | "bump" | "alarm" | "unknown"

/** Calls of an escrow. */
export type EscrowCallKind = Extract<PayoutKindName, "reserve" | "capture" | "void" | "refund">

export interface Payouts {
  id: string
  chain_id: number
  kind: PayoutKindName
  /** Set by the database, from the kind. */
  lane: Generated<LaneName>
  source_key: string
  /** Null if an authorization pays an address that is not ours (`x402/`), for a batch, and for calls of an escrow. */
  deposit_id: Optional<bigint>
  /** The session whose escrow is called; null for any other kind. */
  escrow_id: Optional<string>
  /** Set by the database, from the deposit if there is one. */
  merchant_id: Generated<string>
  payment_id: Optional<string>
  share: Optional<number>
  percent_e4: Optional<number>
  replaces: Optional<string>
  token: Address
  recipient: Address
  amount: bigint
  /** Of a return that the merchant carried out itself: how much of it was beyond the payment, in base units. */
  excess: Optional<bigint>
  to_address: Address
  data: `0x${string}`
  value: ColumnType<bigint, bigint | undefined, never>
  gas: Optional<bigint>
  payer: Optional<Address>
  auth_nonce: Optional<Hash>
  auth_digest: Optional<Hash>
  /** The batch that carries it out and has its nonce, attempts and gas; null for a call with a nonce of its own. */
  batch_id: Optional<string>
  relay_by: Optional<Date>
  reserved: boolean
  /** Cancelled by a person: it is not made again. */
  stopped: Generated<boolean>
  state: PayoutState
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
  /**
   * Of a relay that failed: whether another transaction carried its authorization out before; null while the chain has not
   * been asked.
   */
  preempted: Optional<boolean>
  /** In wei, from the receipt. */
  gas_cost: Optional<bigint>
  gas_cost_at: Optional<Date>
  /** When its receipt was first seen without the transfer that it should contain. */
  transfer_missing_at: Optional<Date>
  created_at: Date
  updated_at: Date
  /** Set by the database. */
  mined_at: Generated<Date | null>
  traceparent: Optional<string>
}

export interface TransactionAttempts {
  id: Generated<bigint>
  payout_id: string
  chain_id: number
  wallet: Address
  nonce: bigint
  n: number
  /** The signed bytes and their hash; null until it is signed. */
  raw: Optional<`0x${string}`>
  hash: Optional<Hash>
  /** The hash to sign; null for attempts from before it was stored, and for those adopted from the chain. */
  unsigned_hash: Optional<Hash>
  signed_at: Optional<Date>
  gas: bigint
  max_fee: bigint
  tip: bigint
  /** The most that its data may cost beside its gas, in wei. */
  data_fee: Generated<bigint>
  created_at: Generated<Date>
  sent_at: Optional<Date>
  sends: Generated<number>
  last_result: Optional<SendResult>
  /** Does not carry out its payout, and only uses up its nonce. */
  empty: Generated<boolean>
}

export interface ForeignNonces {
  chain_id: number
  wallet: Address
  nonce: bigint
  tx_hash: Hash
  block_number: bigint
  created_at: Date
}

export type OperatorAction = "halt" | "resume" | "adopt" | "adopt foreign" | "unstick" | "retry" | "cancel"

export interface OperatorActions {
  id: Generated<bigint>
  at: Date
  action: OperatorAction
  by_user: string
  reason: Optional<string>
  chain_id: number
  wallet: Optional<Address>
  payout_id: Optional<string>
  before: JSONColumnType<Record<string, unknown>>
  after: JSONColumnType<Record<string, unknown>>
}

/** A signed authorization (x402), bound to the request that it pays for. */
export interface Settlements {
  id: string
  merchant_id: string
  chain_id: number
  token: Address
  payer: Address
  nonce: Hash
  digest: Hash
  pay_to: Address
  amount: bigint
  /** Unix time in seconds. */
  valid_before: bigint
  /** Null if another server sells it. */
  resource_id: Optional<string>
  binding: string
  payload_hash: string
  identifier: Optional<string>
  payout_id: string
  from_block: bigint
  /** Another sender's transaction that carried it out. */
  found_hash: Optional<Hash>
  found_block: Optional<bigint>
  found_final: Generated<boolean>
  /** A MAC of the address that the first request came from. */
  caller: Generated<string>
  claim_id: Optional<string>
  lease_until: Optional<Date>
  served_at: Optional<Date>
  /** When its caller got what was bought, or a token for it: the payment alone is worth nothing more. */
  answered_at: Optional<Date>
  /** When it became certain that it can't be paid. */
  failed_at: Optional<Date>
  /** Set when the merchant's server failed: until then its retry token repeats the call. */
  retry_until: Optional<Date>
  created_at: Date
  updated_at: Date
}

export interface SweepParts {
  payout_id: string
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

/** The sum of a payment's claims, kept by triggers. */
export interface ClaimBooks {
  payment_id: string
  claims: bigint
  transfer_ids: bigint
}

/** A payment that held a transfer earlier, and made payouts from it. */
export interface PastClaims {
  transfer_id: bigint
  payment_id: string
}

/** A transfer out of a deposit without a payout. */
export interface Outflows {
  id: Generated<string>
  chain_id: number
  deposit_id: bigint
  merchant_id: string
  reason: "recovery" | "given_back" | "unknown"
  tx_hash: Hash
  token: Address
  recipient: Address
  amount: bigint
  block_number: bigint
  block_hash: Hash
  log_index: number
  block_time: Date
  created_at: Date
  /** The nonce of the approver's signature, if the money was given back. */
  nonce: Optional<Hash>
  /** The return that this outflow carried out. */
  payout_id: Optional<string>
}

/** How far the reports of the factories are read; see `reconciliation/watch-outflows.ts`. */
export interface OutflowWatches {
  chain_id: number
  block_number: bigint
  /** When all blocks up to the scan's were last read. */
  read_at: Date
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
}

/** An outflow that halted the payout wallets when it happened. */
export interface NoticedOutflows {
  chain_id: number
  tx_hash: Hash
  deposit: Address
  noticed_at: Date
}

export interface Reconciliations {
  chain_id: number
  hour_at: Date
  /** The last block up to which the balances of deposits where something moved are compared. */
  moved_number: Optional<bigint>
  /** The block at which that goes on now, and the deposit up to which it is done; null between two. */
  moved_to: Optional<bigint>
  moved_position: Optional<bigint>
  pass_at: Date
  deposit_position: Optional<bigint>
  transfer_position: Optional<bigint>
  payout_position: Optional<string>
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
}

/** A view of every transfer into and out of deposits and escrows. */
export interface Books {
  id: string
  merchant_id: string
  /** `through`: out of a merchant's wallet and on to a payer. */
  direction: "in" | "out" | "through"
  /** Null for a transfer to a deposit. */
  reason: Payouts["kind"] | Outflows["reason"] | "reclaim" | null
  state: "confirmed" | "mined" | "final"
  chain_id: number
  /** Null for a row of an escrow. */
  deposit_id: bigint | null
  token: Address
  amount: bigint
  sender: Address | null
  recipient: Address
  /** Null, like its block, for what a payer took back without the service. */
  tx_hash: Hash | null
  block_number: bigint | null
  at: Date
  transfer_id: bigint | null
  payout_id: string | null
  payment_id: string | null
  /** The session of an escrow; null for a row of a deposit. */
  escrow_id: string | null
  /** Always false: a transaction that was mined without moving anything is left out. */
  failed: boolean
}
