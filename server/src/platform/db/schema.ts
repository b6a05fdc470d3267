/** The rows as Kysely sees them; `migrations/` is the source of truth. bigint: numeric and int8 columns. */
import type { Generated, JSONColumnType, Selectable } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import type { AuditEntries } from "./audit-rows.ts"
import type { BundleFailures, BundleHeaders, BundleRoutes, Bundles } from "./bundle-rows.ts"
import type { CheckoutSessions, PaymentLinks, Products } from "./checkout-rows.ts"
import type { Optional, WaitingFor } from "./columns.ts"
import type { CountedCalls, Escrows } from "./escrow-rows.ts"
import type { Branding, Invitations, Merchants, PayoutAddresses, WalletProofs } from "./merchant-rows.ts"
import type {
  Books,
  ClaimBooks,
  DepositBooks,
  ForeignNonces,
  GasBudgets,
  NoticedOutflows,
  OperatorActions,
  Outflows,
  OutflowWatches,
  PastClaims,
  Payouts,
  RecipientSets,
  Recipients,
  Reconciliations,
  Settlements,
  Splits,
  SweepParts,
  TransactionAttempts,
  Wallets,
} from "./payout-rows.ts"
import type { Paywalls, PaywallVersions } from "./paywall-rows.ts"
import type { PutAway, PutAwayTerms } from "./put-away-rows.ts"
import type { Refunds } from "./refund-rows.ts"
import type { Cursors, EndpointTroubles } from "./scan-rows.ts"
import type { FirstSubscriptions, Invoices, Subscriptions } from "./subscription-rows.ts"
import type { Surpluses } from "./surplus-rows.ts"
import type { ForeignTokens, TokenScans } from "./token-rows.ts"
import type { Deliveries, DeliveryAttempts, Events, WebhookSecrets, Webhooks } from "./webhook-rows.ts"

interface Installation {
  key: string
  value: string
}

/** The resources that are for sale, of every kind; triggers on the kinds' tables maintain it. */
interface Resources {
  id: string
  merchant_id: string
  chain_id: number
}

interface Deposits {
  id: Generated<bigint>
  chain_id: number
  address: Address
  factory: Address
  salt: Hash
  owner: Address
  /** Its signature sends money back to payers: nobody's if zero; the factory's own address means the service. */
  approver: Address
  /** From before addresses named an approver: this version does not know its terms, and can't move its money. */
  older_factory: Generated<boolean>
  /** The hash of the recipients of `recipient_set_id`; zero without a split. */
  payees_hash: Hash
  recipient_set_id: Optional<bigint>
  open_after_s: bigint
  resource_id: string
  created_at: Date
  watched: Generated<boolean>
  watched_until: Date
  watched_number: Optional<bigint>
  dormant_since: Optional<Date>
  check_at: Optional<Date>
  /** The database sets both on insert. */
  merchant_id: Generated<string>
  balanced_number: Generated<bigint | null>
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
  /** Whether only one of two endpoints reports it; see `chain/agreement.ts`. */
  single_source: Generated<boolean>
  suspect_at: Optional<Date>
  run_at: Optional<Date>
  created_at: Date
  /** Whether a granted or returned payment claims it; it may be set late, but is never wrongly true. */
  applied: Generated<boolean>
  /** The database sets both. */
  merchant_id: Generated<string>
  reorged_at: Generated<Date | null>
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
  resource_id: string
  chain_id: number
  tx_hash: Hash
  /** The claimed payer; null if a checkout does not know it. */
  address: Address | null
  /** Whether only a transfer from `address` answers it; otherwise a transfer from anybody does. */
  by_sender: boolean
  status: SubmissionStatus
  reason: Optional<FailureReason>
  message: string
  block_number: Optional<bigint>
  attempts: Generated<number>
  run_at: Optional<Date>
  submitted_at: Date
  updated_at: Date
  traceparent: Optional<string>
}

interface Payments {
  id: string
  merchant_id: string
  resource_id: string
  chain_id: number
  payer: Address
  amount: bigint
  tx_hash: Hash
  status: "granted" | "reversed" | "open" | "returned"
  exception: Optional<WaitingFor>
  created_at: Date
  updated_at: Date
  sweep_at: Optional<Date>
  notify_by: Optional<Date>
  token: Address
  /** The deposit with the money of a payment that is, or was, open. */
  deposit_id: Optional<bigint>
  accepted_at: Optional<Date>
  /** Accepted when the session was already paid. */
  beside: Generated<boolean>
  returned_at: Optional<Date>
  returned_to: Optional<Address>
  notified_paid: Generated<boolean>
  /** Set by the database: an agent's authorization paid it (x402). */
  agent: Generated<boolean>
  /** Set by the database: a return failed or was cancelled; the merchant must be notified that the payment is open. */
  reopened: Generated<boolean>
  event_sequence: Generated<number>
  traceparent: Optional<string>
}

interface ReturnAddresses {
  id: Generated<bigint>
  resource_id: string
  payer: Address
  address: Address
  message: string
  signature: string
  named_at: Date
}

interface Tokens {
  chain_id: number
  address: Address
  symbol: string | null
  decimals: number | null
  asked_at: Date
}

interface Claims {
  transfer_id: bigint
  payment_id: string
  /** What a final return has sent back of the transfer while its payment had more, in base units. */
  given_back: Generated<bigint>
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
  /** When the newest folded grant was granted; null: all must be folded again. The database resets it. */
  folded_at: Optional<Date>
  /** Until when calls are not counted, and how many are left from then on. */
  free_until: Optional<Date>
  calls_kept: Optional<number>
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

interface ApiKeys {
  id: string
  merchant_id: string
  name: string
  hash: string
  prefix: string
  last4: string
  scopes: Generated<string[]>
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

/** A view of payments and payouts. */
interface Transactions {
  id: string
  merchant_id: string
  type: "payment" | "agent" | Exclude<Row<"payouts">["kind"], "authorize" | "settle" | "batch" | "reserve">
  /** For a payment through escrow, its session's status. */
  status: Row<"payments">["status"] | Row<"payouts">["state"] | Row<"checkout_sessions">["status"]
  exception: WaitingFor | null
  chain_id: number
  token: Address
  amount: bigint
  tx_hash: Hash | null
  payer: Address | null
  recipient: Address | null
  /** Null if an agent paid another server. */
  resource_id: string | null
  payment_id: string | null
  created_at: Date
  /** The table, or the kind of payouts, of the row. */
  source: "payments" | "payouts" | "settlements" | "escrows" | "calls" | "refunds"
  payout_id: string | null
  /** The deposit that a payout takes the money from. */
  out_of: bigint | null
}

export interface Database {
  installation: Installation
  merchants: Merchants
  branding: Branding
  invitations: Invitations
  payout_addresses: PayoutAddresses
  wallet_proofs: WalletProofs
  resources: Resources
  paywalls: Paywalls
  deposits: Deposits
  put_away: PutAway
  put_away_terms: PutAwayTerms
  paywall_versions: PaywallVersions
  transfers: Transfers
  endpoint_troubles: EndpointTroubles
  submissions: Submissions
  payments: Payments
  settlements: Settlements
  surpluses: Surpluses
  claims: Claims
  return_addresses: ReturnAddresses
  tokens: Tokens
  grants: Grants
  access: Access
  cursors: Cursors
  token_scans: TokenScans
  foreign_tokens: ForeignTokens
  screenings: Screenings
  idempotency_keys: IdempotencyKeys
  transactions: Transactions
  bundles: Bundles
  bundle_routes: BundleRoutes
  bundle_headers: BundleHeaders
  bundle_failures: BundleFailures
  products: Products
  payment_links: PaymentLinks
  checkout_sessions: CheckoutSessions
  escrows: Escrows
  counted_calls: CountedCalls
  refunds: Refunds
  subscriptions: Subscriptions
  first_subscriptions: FirstSubscriptions
  invoices: Invoices
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
  gas_budgets: GasBudgets
  payouts: Payouts
  transaction_attempts: TransactionAttempts
  sweep_parts: SweepParts
  deposit_books: DepositBooks
  claim_books: ClaimBooks
  past_claims: PastClaims
  audit_entries: AuditEntries
  foreign_nonces: ForeignNonces
  operator_actions: OperatorActions
  outflows: Outflows
  outflow_watches: OutflowWatches
  noticed_outflows: NoticedOutflows
  reconciliations: Reconciliations
  books: Books
}

export type Row<T extends keyof Database> = Selectable<Database[T]>
