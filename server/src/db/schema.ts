/** The rows as Kysely sees them; the truth is in `migrations/`. bigint: numeric and int8 columns. */
import type { ColumnType, Generated, JSONColumnType, Selectable } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"

/** Nullable, and may be left out of an insert. */
type Optional<T> = ColumnType<T | null, T | null | undefined, T | null>

interface Installation {
  key: string
  value: string
}

interface Merchants {
  id: string
  iss: string
  sub: string
  name: string
  email: string | null
  created_at: Date
}

interface Invitations {
  iss: string
  sub: string
  created_at: Date
}

interface PayoutAddresses {
  merchant_id: string
  chain_id: number
  address: Address
  pending_address: Optional<Address>
  pending_at: Optional<Date>
}

interface Paywalls {
  id: string
  merchant_id: string
  chain_id: number
  name: string
  price: bigint
  currency: string
  description: string | null
  content_type: string
  content_data: JSONColumnType<Record<string, unknown> | null, string | null, string | null>
  content_url: string | null
  pricing_model: string
  access_duration_s: bigint | null
  slug: string | null
  active: boolean
  created_at: Date
  updated_at: Date
  split_id: Optional<string>
}

interface Deposits {
  id: Generated<bigint>
  chain_id: number
  address: Address
  factory: Address
  salt: Hash
  owner: Address
  open_after_s: bigint
  paywall_id: string
  created_at: Date
  hot: Generated<boolean>
  hot_until: Date
  watched_number: Optional<bigint>
  cooled_at: Optional<Date>
  check_at: Optional<Date>
}

interface PaywallVersions {
  paywall_id: string
  n: number
  price: bigint
  active: boolean
  deposit_id: bigint
  from_at: Date
  until_at: Optional<Date>
  recipient_set_id: Optional<bigint>
}

type TransferState = "seen" | "confirmed" | "final" | "gone"

interface Transfers {
  id: Generated<bigint>
  chain_id: number
  tx_hash: Hash
  token: Address
  to_address: Address
  k: number
  deposit_id: bigint
  from_address: Address
  value: bigint
  block_number: bigint
  block_hash: Hash
  log_index: number
  block_time: Date
  state: TransferState
  suspect_at: Optional<Date>
  run_at: Optional<Date>
  created_at: Date
}

export type SubmissionStatus = "verifying" | "granted" | "failed" | "reversed"
export type FailureReason =
  | "reverted"
  | "no_transfer"
  | "wrong_recipient"
  | "wrong_sender"
  | "wrong_asset"
  | "underpaid"
  | "already_used"
  | "not_found"
  | "sanctioned"
  | "late"

interface Submissions {
  id: Generated<bigint>
  paywall_id: string
  chain_id: number
  tx_hash: Hash
  address: Address
  status: SubmissionStatus
  reason: Optional<FailureReason>
  message: string
  block_number: Optional<bigint>
  attempts: Generated<number>
  run_at: Optional<Date>
  submitted_at: Date
  updated_at: Date
}

interface Payments {
  id: string
  paywall_id: string
  chain_id: number
  payer: Address
  amount: bigint
  tx_hash: Hash
  status: "granted" | "reversed"
  created_at: Date
  updated_at: Date
  recipient_set_id: Optional<bigint>
  sweep_at: Optional<Date>
}

interface Claims {
  transfer_id: bigint
  payment_id: string
}

interface Grants {
  id: string
  payment_id: string
  paywall_id: string
  address: Address
  tx_hash: Hash
  duration_s: bigint | null
  granted_at: Date
  revoked_at: Optional<Date>
  revoked_by: Optional<"merchant" | "reorg">
  revoke_reason: Optional<string>
}

interface Access {
  paywall_id: string
  address: Address
  expires_at: Optional<Date>
  tx_hash: Optional<Hash>
}

interface Cursors {
  chain_id: number
  block_number: bigint
  block_hash: Hash
  finalized_number: bigint
  looked_at: Optional<Date>
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
}

interface Screenings {
  id: Generated<bigint>
  address: Address
  listed: boolean
  source: string
  subject: string
  screened_at: Date
}

interface IdempotencyKeys {
  merchant_id: string
  route: string
  key: string
  request_hash: string
  claim_id: string | null
  lease_until: Date | null
  status: number | null
  answer: string | null
  expires_at: Date
}

interface RecipientSets {
  id: Generated<bigint>
  created_at: Date
}

interface Recipients {
  set_id: bigint
  position: number
  address: Address
  percent_e4: number
  label: string | null
}

interface Splits {
  id: string
  merchant_id: string
  name: string
  description: string | null
  set_id: bigint
  created_at: Date
  updated_at: Date
}

interface Wallets {
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

interface Intents {
  id: string
  chain_id: number
  kind: "share" | "sweep" | "return" | "authorize" | "capture" | "void" | "refund" | "settle"
  source_key: string
  deposit_id: bigint
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
}

interface Attempts {
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

interface SweepParts {
  intent_id: string
  transfer_id: bigint
  amount: bigint
}

interface DepositBooks {
  deposit_id: bigint
  token: Address
  inflow: Generated<bigint>
  committed: Generated<bigint>
  shortfall: Generated<bigint>
}

export interface Database {
  installation: Installation
  merchants: Merchants
  invitations: Invitations
  payout_addresses: PayoutAddresses
  paywalls: Paywalls
  deposits: Deposits
  paywall_versions: PaywallVersions
  transfers: Transfers
  submissions: Submissions
  payments: Payments
  claims: Claims
  grants: Grants
  access: Access
  cursors: Cursors
  screenings: Screenings
  idempotency_keys: IdempotencyKeys
  recipient_sets: RecipientSets
  recipients: Recipients
  splits: Splits
  wallets: Wallets
  intents: Intents
  attempts: Attempts
  sweep_parts: SweepParts
  deposit_books: DepositBooks
}

export type Row<T extends keyof Database> = Selectable<Database[T]>
