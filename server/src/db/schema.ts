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
  paywall_id: Optional<string>
  session_id: Optional<string>
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
  paywall_id: Optional<string>
  session_id: Optional<string>
  chain_id: number
  tx_hash: Hash
  /** Who is said to have paid; a checkout need not know. */
  address: Address | null
  status: SubmissionStatus
  reason: Optional<FailureReason>
  message: string
  block_number: Optional<bigint>
  attempts: Generated<number>
  run_at: Optional<Date>
  submitted_at: Date
  updated_at: Date
}

export type PaymentException = "underpaid" | "overpaid" | "late" | "duplicate" | "wrong_asset"

interface Payments {
  id: string
  merchant_id: string
  paywall_id: Optional<string>
  session_id: Optional<string>
  chain_id: number
  payer: Address
  amount: bigint
  tx_hash: Hash
  status: "granted" | "reversed" | "open"
  exception: Optional<PaymentException>
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
  calls: Optional<number>
  calls_used: Generated<number>
}

interface Access {
  paywall_id: string
  address: Address
  expires_at: Optional<Date>
  tx_hash: Optional<Hash>
  since_at: Optional<Date>
  calls_left: Optional<number>
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

interface Products {
  id: string
  merchant_id: string
  chain_id: number
  name: string
  description: string | null
  price: bigint
  currency: string
  active: boolean
  created_at: Date
  updated_at: Date
}

interface PaymentLinks {
  id: string
  merchant_id: string
  chain_id: number
  slug: string
  title: string
  description: string | null
  /** Null: the payer says how much. */
  amount: bigint | null
  currency: string
  product_id: string | null
  redirect_url: string | null
  max_uses: number | null
  uses: Generated<number>
  expires_at: Date | null
  active: boolean
  created_at: Date
  updated_at: Date
}

export type SessionStatus = "pending" | "verifying" | "confirmed" | "failed" | "expired"

interface CheckoutSessions {
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
  exception: Optional<PaymentException>
  received: Generated<bigint>
  message: Optional<string>
  payer: Optional<Address>
  tx_hash: Optional<Hash>
  confirmed_at: Optional<Date>
  expires_at: Date
  run_at: Optional<Date>
  created_at: Date
  updated_at: Date
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

interface ApiKeys {
  id: string
  merchant_id: string
  name: string
  hash: string
  prefix: string
  last4: string
  created_at: Date
  last_used_at: Optional<Date>
}

interface SigningKeys {
  id: string
  public_key: JSONColumnType<Record<string, unknown>>
  sealed: string
  created_at: Date
}

interface Nonces {
  nonce: string
  purpose: string
  resource: string
  expires_at: Date
}

export type DisabledReason = "gone" | "failing"

interface Webhooks {
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

interface WebhookSecrets {
  id: Generated<bigint>
  merchant_id: string
  webhook_id: Optional<string>
  sealed: string
  created_at: Date
  expires_at: Optional<Date>
}

interface Events {
  id: string
  merchant_id: string
  type: string
  dedupe_key: string
  body: string
  created_at: Date
}

export type DeliveryStatus = "pending" | "delivered" | "failed" | "skipped"

interface Deliveries {
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

interface DeliveryAttempts {
  id: Generated<bigint>
  delivery_id: string
  started_at: Date
  duration_ms: number
  status: number | null
  error: string | null
  answer: string | null
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
  products: Products
  payment_links: PaymentLinks
  checkout_sessions: CheckoutSessions
  api_keys: ApiKeys
  signing_keys: SigningKeys
  nonces: Nonces
  webhooks: Webhooks
  webhook_secrets: WebhookSecrets
  events: Events
  deliveries: Deliveries
  delivery_attempts: DeliveryAttempts
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
