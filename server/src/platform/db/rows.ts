// Made from schema.sql by `npm run schema`; do not edit. 627d4cf30d89000bb6ecf01fc814548427f498bbc920d26abebc96998150737e
import type { PublicKey } from "../../../../verify/src/format.ts";
import type { EscrowVersion } from "../chain/escrow-deployments.ts";
import type { Address, Hash } from "../chain/hex.ts";
import type { LaneName, PayoutKindName } from "./payout-kinds.ts";
import type { ReceiptDraft } from "./receipt-draft.ts";
import type { StandingAlarm } from "./standing-alarm.ts";
import type { ColumnType, Generated, JSONColumnType } from "kysely";
import type { Hex } from "viem";

interface Access {
  address: Address;
  calls_kept: number | null;
  /**
   * What is left of the calls of the grants; null: any number.
   */
  calls_left: number | null;
  expires_at: Date | null;
  /**
   * When the newest folded grant was granted; null: all must be folded again. The database resets it.
   */
  folded_at: Date | null;
  /**
   * Until when calls are not counted; `calls_kept` is how many are left from then on.
   */
  free_until: Date | null;
  paywall_id: string;
  /**
   * Since when access has lasted without a gap.
   */
  since_at: Date | null;
  tx_hash: Hash | null;
}

interface ApiKeys {
  /**
   * CIDRs of which one must have the caller's address; null for any address.
   */
  allowed_ips: string[] | null;
  beyond_by: "maker_left" | "maker_role" | null;
  /**
   * When it ends because its maker may no longer give it, unless another member adopts it; beyond_by is why.
   */
  beyond_until: Date | null;
  /**
   * Made by the sign-in of a device: it ends at once when its maker may no longer give it.
   */
  by_device: Generated<boolean>;
  created_at: Date;
  expires_at: Date | null;
  hash: string;
  id: string;
  last_used_at: Date | null;
  last4: string;
  /**
   * The person who made it, or last changed what it may do; null for keys of older versions.
   */
  made_by: string | null;
  merchant_id: string;
  name: string;
  prefix: string;
  /**
   * Of the secret before the last roll, which is valid until previous_until.
   */
  previous_hash: string | null;
  previous_until: Date | null;
  /**
   * Whole tokens in 24 hours, for each token; null for no cap. So is return_per_day.
   */
  refund_per_day: number | null;
  return_per_day: number | null;
  /**
   * What the key may do.
   */
  scopes: Generated<string[]>;
}

interface AuditEntries {
  /**
   * The kind of thing, a dot, and what happened to it.
   */
  action: string;
  actor_id: string | null;
  actor_issuer: string | null;
  actor_kind: "console" | "api_key" | "subscriber" | "operator" | "service";
  address: string | null;
  after: JSONColumnType<Record<string, unknown> | null>;
  /**
   * By the database's clock, in milliseconds.
   */
  at: Generated<Date>;
  /**
   * The columns that changed and their values, or all columns of a row that was made or deleted.
   */
  before: JSONColumnType<Record<string, unknown> | null>;
  chain_id: number | null;
  id: Generated<string>;
  /**
   * No foreign key: an entry outlives what it is about, and the log takes no lock on a merchant's row.
   */
  merchant_id: string;
  /**
   * In the order in which entries were written.
   */
  n: Generated<bigint>;
  object_id: string;
  request_id: string | null;
  route: string | null;
  user_agent: string | null;
}

interface Books {
  amount: bigint;
  at: Date;
  block_number: bigint | null;
  chain_id: number;
  /**
   * Null for a row of an escrow.
   */
  deposit_id: bigint | null;
  /**
   * `through`: out of a merchant's wallet and on to a payer.
   */
  direction: "in" | "out" | "through";
  /**
   * The session of an escrow; null for a row of a deposit.
   */
  escrow_id: string | null;
  /**
   * Always false: a transaction that was mined without moving anything is left out.
   */
  failed: boolean;
  id: string;
  merchant_id: string;
  payment_id: string | null;
  payout_id: string | null;
  /**
   * Null for a transfer to a deposit.
   */
  reason: PayoutKindName | "recovery" | "given_back" | "unknown" | "reclaim" | null;
  recipient: Address;
  sender: Address | null;
  state: "confirmed" | "mined" | "final";
  token: Address;
  transfer_id: bigint | null;
  /**
   * Null, like its block, for what a payer took back without the service.
   */
  tx_hash: Hash | null;
}

interface Branding {
  /**
   * As `#rrggbb`, in lower case.
   */
  accent_color: string | null;
  /**
   * Origins in their normal form.
   */
  allowed_origins: JSONColumnType<string[], string | undefined, string>;
  logo: Uint8Array | null;
  /**
   * SHA-256 in base64url: the name under which it is served, which changes with it.
   */
  logo_hash: string | null;
  logo_type: "image/png" | "image/jpeg" | "image/webp" | null;
  merchant_id: string;
}

interface BundleFailures {
  attempts: number;
  bundle_id: string;
  failed_at: Date;
  method: string;
  path: string;
  payment_id: string;
  reason: string;
  /**
   * When a repetition was answered.
   */
  served_at: Date | null;
}

interface BundleHeaders {
  bundle_id: string;
  name: string;
  sealed: string;
}

interface BundleRoutes {
  bundle_id: string;
  description: string | null;
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  n: number;
  path: string;
  /**
   * Zero: free.
   */
  price: bigint;
  shape: string;
}

interface Bundles {
  active: boolean;
  chain_id: number;
  created_at: Date;
  currency: string;
  description: string | null;
  id: string;
  /**
   * Whether `/.well-known/x402` lists it.
   */
  listed: boolean;
  merchant_id: string;
  name: string;
  openapi: JSONColumnType<Record<string, unknown> | null, string | null, string | null>;
  openapi_url: string | null;
  /**
   * Scheme, host and the start of every path, without a query and without a slash at its end.
   */
  origin_url: string;
  slug: string;
  split_id: string | null;
  updated_at: Date;
  /**
   * Increased by each change: what a process remembers of a bundle is used while this is the same.
   */
  version: number;
}

interface Changes {
  at: Generated<Date>;
  kind: "checkout" | "payment" | "payout" | "refund" | "subscription" | "invoice" | "delivery" | "webhook" | "payout_address";
  merchant_id: string;
  n: Generated<bigint>;
  object_id: string;
  /**
   * The transaction. A reader takes rows below `pg_snapshot_xmin` only: no transaction can still commit a row below those. By `n` alone, a row that commits after a greater one was read would be lost.
   */
  xid: Generated<string>;
}

interface CheckoutSessions {
  /**
   * The session was opened for an agent at a payment link: no merchant is notified of it.
   */
  agent: Generated<boolean>;
  /**
   * A MAC of the address of the caller that it was opened for.
   */
  agent_caller: string | null;
  amount: bigint;
  callback_url: string | null;
  /**
   * A session that is not `direct` has a row in `escrows` and no address.
   */
  capture: Generated<"direct" | "manual" | "automatic">;
  chain_id: number;
  confirmed_at: Date | null;
  created_at: Date;
  currency: string;
  customer_email: string | null;
  description: string | null;
  /**
   * When the personal data in it was erased; null: it was not.
   */
  erased_at: Date | null;
  /**
   * Numbers its events, which may arrive in another order.
   */
  event_sequence: Generated<number>;
  exception: "underpaid" | "overpaid" | "late" | "duplicate" | "wrong_asset" | null;
  expires_at: Date;
  id: string;
  link_id: string | null;
  merchant_id: string;
  /**
   * For the payer; null: the message of the status.
   */
  message: string | null;
  metadata: JSONColumnType<Record<string, unknown> | null, string | null, string | null>;
  /**
   * Whether the newest event about it says that it was paid: then a reversal is an event too.
   */
  notified_paid: Generated<boolean>;
  payer: Address | null;
  /**
   * The fields that the payer is asked for; `payer_info` is what was entered.
   */
  payer_fields: JSONColumnType<string[] | null, string | null, string | null>;
  payer_info: JSONColumnType<Record<string, string> | null, string | null, string | null>;
  product_id: string | null;
  /**
   * What has arrived and is confirmed, in the settlement token.
   */
  received: Generated<bigint>;
  /**
   * Copied when the session is made: later changes of the split do not touch it.
   */
  recipient_set_id: bigint | null;
  redirect_url: string | null;
  /**
   * When its expiry is checked next; null: it has ended.
   */
  run_at: Date | null;
  /**
   * The split that it was made with, for its response; the recipients were copied.
   */
  split_id: string | null;
  status: "pending" | "verifying" | "authorized" | "confirmed" | "voided" | "partially_refunded" | "refunded" | "failed" | "expired";
  /**
   * The span that made the row (W3C Trace Context); null if nothing is traced.
   */
  traceparent: string | null;
  tx_hash: Hash | null;
  updated_at: Date;
}

interface CheckoutTerms {
  /**
   * The checkout's.
   */
  created_at: Date;
  key: string;
  merchant_id: string;
  session_id: string;
  /**
   * In lower case, at most its first 200 characters; key too is cut there.
   */
  value: string;
}

interface ClaimBooks {
  claims: bigint;
  payment_id: string;
  transfer_ids: bigint;
}

interface Claims {
  /**
   * What a final return has sent back of the transfer while its payment had more, in base units.
   */
  given_back: Generated<bigint>;
  payment_id: string;
  transfer_id: bigint;
}

interface CountedCalls {
  block_hash: Hash;
  payout_id: string;
}

interface Cursors {
  block_hash: Hash;
  /**
   * The last head; `finalized_number` is the last finalized block that was seen.
   */
  block_number: bigint;
  /**
   * When that block was made, by which a checkout expires; null until the first round.
   */
  block_time: Date | null;
  chain_id: number;
  claim_id: string | null;
  finalized_number: bigint;
  /**
   * How often the worker that ended the last round makes one, in milliseconds.
   */
  interval_ms: Generated<number>;
  /**
   * How many blocks the logs are behind the head; `lag_low` is the lowest value since the scan fell behind, and `lag_low_at` when that was.
   */
  lag_blocks: Generated<bigint>;
  lag_low: bigint | null;
  lag_low_at: Date | null;
  lease_until: Date | null;
  looked_at: Date | null;
  run_at: Date;
}

interface Deliveries {
  /**
   * A resend counts from zero again.
   */
  attempts: Generated<number>;
  /**
   * The merchant asked for it: it is sent although the endpoint is paused.
   */
  by_hand: Generated<boolean>;
  claim_id: string | null;
  created_at: Date;
  event_id: string;
  id: string;
  /**
   * What shares a turn and a number of connections.
   */
  lane: string;
  lease_until: Date | null;
  merchant_id: string;
  /**
   * What is delivered in order: a payment, a session.
   */
  order_key: string;
  run_at: Date;
  seq: Generated<bigint>;
  status: "pending" | "delivered" | "failed" | "skipped";
  updated_at: Date;
  url: string | null;
  /**
   * The endpoint, or null for a callback to `url`. With both, `url` is where the endpoint was when this was emitted.
   */
  webhook_id: string | null;
}

interface DeliveryAttempts {
  /**
   * The first 4 KB of the response.
   */
  answer: string | null;
  delivery_id: string;
  duration_ms: number;
  /**
   * Why it failed, in words.
   */
  error: string | null;
  /**
   * What was sent, with the first characters of each signature alone; null of what a listener pulled, and of earlier versions.
   */
  headers: JSONColumnType<Record<string, string> | null, string | null, string | null>;
  id: Generated<bigint>;
  started_at: Date;
  /**
   * The status of the response; null if there was none.
   */
  status: number | null;
}

interface DepositBooks {
  committed: Generated<bigint>;
  deposit_id: bigint;
  inflow: Generated<bigint>;
  shortfall: Generated<bigint>;
  token: Address;
}

interface Deposits {
  address: Address;
  /**
   * Its signature sends money back to payers: nobody's if zero; the factory's own address means the service.
   */
  approver: Address;
  balanced_number: Generated<bigint | null>;
  chain_id: number;
  check_at: Date | null;
  created_at: Date;
  dormant_since: Date | null;
  factory: Address;
  id: Generated<bigint>;
  /**
   * Set by a trigger, like balanced_number: the final block at which the chain's balance last equalled the books.
   */
  merchant_id: Generated<string>;
  /**
   * From before addresses named an approver: the service does not know its terms, and can't move its money.
   */
  older_factory: Generated<boolean>;
  open_after_s: bigint;
  owner: Address;
  /**
   * The hash of the recipients of `recipient_set_id`; zero without a split.
   */
  payees_hash: Hash;
  /**
   * Null without a split.
   */
  recipient_set_id: bigint | null;
  resource_id: string;
  salt: Hash;
  /**
   * A watched address is in every scan of the logs; a dormant one has its balance read from time to time.
   */
  watched: Generated<boolean>;
  /**
   * The block up to which its transfers are known, if the ordinary scan does not cover it.
   */
  watched_number: bigint | null;
  /**
   * Until when it is watched though nothing is for sale there.
   */
  watched_until: Date;
}

interface DeviceGuesses {
  created_at: Date;
  n: Generated<bigint>;
  person_id: string;
  session_id: string;
}

interface DeviceSignIns {
  address: string | null;
  /**
   * When the device last asked for its key.
   */
  asked_at: Date | null;
  created_at: Date;
  decision: "approved" | "denied" | null;
  device_hash: string;
  expires_at: Date;
  /**
   * The merchant whose key it gets. No foreign key: a sign-in belongs to none before.
   */
  for_merchant: string | null;
  /**
   * The name that the device gave itself, and address the IP address that it asked from.
   */
  host: string;
  id: string;
  /**
   * How long the device has to wait between two questions; it grows when it does not.
   */
  interval_s: number;
  person_id: string | null;
  scopes: string[];
  /**
   * The session that approved it, which must still be there when the key is made. No foreign key: it may end.
   */
  session_id: string | null;
  /**
   * Of the code that the person types.
   */
  user_hash: string;
}

interface EndpointTroubles {
  /**
   * What it responded, without what may be a key.
   */
  answer: string | null;
  chain_id: number;
  /**
   * Whether it lasted long enough, or is clear enough, for an alarm.
   */
  is_alarm: boolean;
  kind: "silent" | "behind" | "contradiction" | "logs" | "slow" | "useless";
  last_at: Date;
  position: number;
  since: Date;
}

interface Erasures {
  asked_by: "email" | "payer" | "checkout" | "retention";
  checkouts: number;
  created_at: Date;
  deliveries_dropped: number;
  events: number;
  id: string;
  merchant_id: string;
  refunds: number;
  subscriptions: number;
}

interface Escrows {
  auth_id: Hash | null;
  authorization_expiry: ColumnType<Date, Date, never>;
  /**
   * The sum of the calls in base units, as are captured, voided and refunded.
   */
  authorized: Generated<bigint>;
  authorized_at: Date | null;
  captured: Generated<bigint>;
  chain_id: ColumnType<number, number, never>;
  collector: ColumnType<Address, Address, never>;
  created_at: Date;
  /**
   * The contract of the network when the session was made.
   */
  escrow: ColumnType<Address, Address, never>;
  /**
   * Failed rounds since the last that advanced it.
   */
  failed_rounds: Generated<number>;
  max_amount: ColumnType<bigint, bigint, never>;
  merchant_id: string;
  /**
   * What the payer signs: the hash of the terms, with the payer zero.
   */
  nonce: ColumnType<Hash, Hash, never>;
  /**
   * The relay wallet: only it may call the escrow for this session.
   */
  operator: ColumnType<Address, Address, never>;
  /**
   * Null until a reservation is written, and again when it ended without money.
   */
  payer: Address | null;
  /**
   * In whole seconds, like the two other expiries.
   */
  pre_approval_expiry: ColumnType<Date, Date, never>;
  /**
   * The merchant's payout address when the session was made.
   */
  receiver: ColumnType<Address, Address, never>;
  /**
   * What the payer took back without the service.
   */
  reclaimed: Generated<bigint>;
  /**
   * When `reclaimed` was first known; set by a trigger.
   */
  reclaimed_at: Generated<Date | null>;
  refund_collector: ColumnType<Address | null, Address | null, never>;
  refund_expiry: ColumnType<Date, Date, never>;
  refunded: Generated<bigint>;
  /**
   * When it is computed next; null while nothing can change without a call.
   */
  run_at: Date | null;
  salt: ColumnType<Hash, Hash, never>;
  session_id: string;
  token: ColumnType<Address, Address, never>;
  updated_at: Date;
  version: ColumnType<EscrowVersion, EscrowVersion, never>;
  /**
   * When the uncaptured rest goes back to the payer.
   */
  void_at: ColumnType<Date, Date, never>;
  voided: Generated<bigint>;
  voided_at: Date | null;
}

interface Events {
  /**
   * The body as every attempt sends it, byte for byte.
   */
  body: string;
  created_at: Date;
  /**
   * What happens once has one event, however often it is reported.
   */
  dedupe_key: string;
  /**
   * When its data was replaced by the SHA-256 of the body: it can't be sent any more.
   */
  erased_at: Date | null;
  id: string;
  merchant_id: string;
  /**
   * What it is about: the id of a session, payment or subscription. Null for events of versions that did not store it.
   */
  order_key: string | null;
  traceparent: string | null;
  type: string;
}

interface FigureDeltas {
  /**
   * In base units, below zero where an entry is no longer in the books.
   */
  amount: bigint;
  /**
   * The time of the entry of the books. What a reorg removes subtracts when that was noticed.
   */
  at: Date;
  chain_id: number;
  count: number;
  /**
   * The column of `figures`; what is received is counted in `transfers` too.
   */
  figure: "received" | "reversed" | "reserved" | "captured" | "released" | "returned" | "refunded" | "shares" | "swept" | "recovered" | "unknown" | "checkouts" | "paid" | "converted";
  merchant_id: string;
  n: Generated<bigint>;
  /**
   * Empty for counts of checkouts.
   */
  token: string;
}

interface FigureEntries {
  amount: bigint;
  at: Date;
  chain_id: number;
  count: number;
  figure: FigureDeltas["figure"];
  merchant_id: string;
  token: string;
}

interface Figures {
  at: Date;
  captured: bigint | null;
  chain_id: number;
  checkouts: bigint | null;
  /**
   * Of the checkouts made in this time, those that are paid; `paid` are those that were paid in it.
   */
  converted: bigint | null;
  merchant_id: string;
  paid: bigint | null;
  /**
   * Of the sums, most are of nothing: those are null, not 0, which a sum of many rows does not add up.
   */
  received: bigint | null;
  recovered: bigint | null;
  refunded: bigint | null;
  released: bigint | null;
  reserved: bigint | null;
  returned: bigint | null;
  reversed: bigint | null;
  /**
   * How long the row's time is, from `at` on; 0: all time, with 1970 as `at`.
   */
  seconds: number;
  shares: bigint | null;
  swept: bigint | null;
  /**
   * Empty for counts of checkouts.
   */
  token: string;
  transfers: bigint | null;
  unknown: bigint | null;
}

interface FirstSubscriptions {
  payer: Address;
  product_id: string;
  subscription_id: string;
}

interface ForeignNonces {
  block_number: bigint;
  chain_id: number;
  created_at: Date;
  nonce: bigint;
  tx_hash: Hash;
  wallet: Address;
}

interface ForeignTokens {
  /**
   * The balance that the token reports for the address, in base units; null until that is known.
   */
  balance: bigint | null;
  block_number: bigint;
  chain_id: number;
  check_at: Date;
  deposit_id: bigint;
  found_at: Date;
  from_address: Address;
  id: Generated<bigint>;
  merchant_id: string;
  token: Address;
  /**
   * The first transfer of it that was found.
   */
  tx_hash: Hash;
  value: bigint;
}

interface GasBudgets {
  merchant_id: string;
}

interface Grants {
  address: Address;
  /**
   * Null: any number of calls in its time.
   */
  calls: number | null;
  calls_used: Generated<number>;
  /**
   * Null: without end.
   */
  duration_s: bigint | null;
  granted_at: Date;
  id: string;
  payment_id: string;
  paywall_id: string;
  revoke_reason: string | null;
  revoked_at: Date | null;
  revoked_by: "merchant" | "reorg" | null;
  tx_hash: Hash;
}

interface IdempotencyKeys {
  answer: string | null;
  /**
   * Whose reservation it is, and until when; both are null once there is a response.
   */
  claim_id: string | null;
  expires_at: Date;
  key: string;
  lease_until: Date | null;
  merchant_id: string;
  request_hash: string;
  /**
   * Method and path as declared, such as `POST /api/console/paywalls`.
   */
  route: string;
  status: number | null;
}

interface Installation {
  key: string;
  value: string;
}

interface Invitations {
  created_at: Date;
  iss: string;
  sub: string;
  /**
   * When the person made a merchant with it: it counts once, until the operator invites again.
   */
  used_at: Date | null;
}

interface Invoices {
  amount: bigint;
  created_at: Date;
  currency: string;
  due_at: Date;
  id: string;
  merchant_id: string;
  /**
   * The same as its session's; null again when a reorg removes the payment.
   */
  paid_at: Date | null;
  period_end: Date | null;
  /**
   * Null for the first invoice until it is paid.
   */
  period_start: Date | null;
  product_id: string;
  sequence: number;
  session_id: string;
  subscription_id: string;
  updated_at: Date;
  /**
   * Since when the invoice should not be paid any more.
   */
  void_asked_at: Date | null;
  /**
   * Whose request `void_asked_at` was: a pause is its merchant's.
   */
  void_asked_by: "merchant" | "subscriber" | null;
  voided_at: Date | null;
}

interface KeySpends {
  /**
   * In units of 10⁻¹⁸ of the token, so that amounts of all networks add up.
   */
  amount: bigint;
  created_at: Date;
  /**
   * No foreign key: the merchant's cap counts what a key did that is revoked since. Or person_id, the member.
   */
  key_id: string | null;
  kind: "refund" | "return" | "accept" | "capture" | "void";
  merchant_id: string;
  /**
   * The refund's id, the payment's, or that of the call that captures or voids.
   */
  object_id: string;
  person_id: string | null;
  /**
   * The symbol of a token that is sold for, or the chain and address of another one.
   */
  token: string;
}

interface Mails {
  address: string;
  attempts: Generated<number>;
  /**
   * Null once it was sent, as it may have the link of an invitation, or was listed in a digest.
   */
  body: string | null;
  claim_id: string | null;
  created_at: Date;
  /**
   * What happens once is mailed to an address once, however often it is found.
   */
  dedupe_key: string;
  error: string | null;
  id: string;
  lease_until: Date | null;
  /**
   * Null for the operator's.
   */
  merchant_id: string | null;
  notice: string;
  run_at: Date;
  /**
   * The path of a link that has a token, under SECRET_KEY: it is put below the body when the mail is sent. Null once that is over.
   */
  sealed: string | null;
  /**
   * gathered: beyond what a person gets in an hour, so it waits for the digest; digested: it was listed in one.
   */
  status: Generated<"pending" | "sent" | "failed" | "gathered" | "digested">;
  subject: string;
  /**
   * When it was taken to be sent for the first time; these are counted in the bound of an hour.
   */
  taken_at: Date | null;
  updated_at: Date;
}

interface Members {
  created_at: Date;
  merchant_id: string;
  /**
   * Whole tokens that a member with the role support may accept, return, refund, capture and void in 24 hours, for each token.
   */
  money_per_day: Generated<number>;
  person_id: string;
  /**
   * Read at each request, and again by each transaction of it.
   */
  role: "owner" | "admin" | "developer" | "finance" | "support" | "viewer";
}

interface MerchantLimits {
  bucket: string;
  merchant_id: string;
  /**
   * Of each of its API keys; 0 for no limit.
   */
  per_minute: number;
}

interface Merchants {
  /**
   * Who signs returns; null: the mode's default.
   */
  approver: "wallet" | "service" | null;
  created_at: Date;
  /**
   * The currency of ISO 4217 in which lists and reports show the value of its money.
   */
  currency: Generated<string>;
  email: string | null;
  id: string;
  /**
   * Whether listeners can be made in live mode.
   */
  live_listeners: Generated<boolean>;
  name: string;
  /**
   * Whole tokens that all of its API keys together may refund in 24 hours, for each token; null for no cap. So is return_per_day.
   */
  refund_per_day: number | null;
  return_per_day: number | null;
  /**
   * The name of a zone of the IANA database, such as Asia/Kolkata: the console shows times in it. Null: in the zone of each browser.
   */
  time_zone: string | null;
  /**
   * If on, the payout address and the recipients of splits change only with the payout wallet's signature.
   */
  wallet_lock: Generated<boolean>;
}

interface Nonces {
  expires_at: Date;
  nonce: string;
  purpose: string;
  resource: string;
}

interface NoticedOutflows {
  chain_id: number;
  deposit: Address;
  noticed_at: Date;
  tx_hash: Hash;
}

interface NotificationChoices {
  by_mail: boolean;
  merchant_id: string;
  notice: string;
  person_id: string;
}

interface OperatorActions {
  action: "halt" | "resume" | "adopt" | "adopt foreign" | "unstick" | "retry" | "cancel" | "rotate receipt key";
  after: JSONColumnType<Record<string, unknown>>;
  at: Date;
  /**
   * What it changed, as it was; `after` as it is.
   */
  before: JSONColumnType<Record<string, unknown>>;
  /**
   * The name of the Unix user, as the command gave it.
   */
  by_user: string;
  chain_id: number;
  id: Generated<bigint>;
  payout_id: string | null;
  reason: string | null;
  wallet: Address | null;
}

interface Outflows {
  amount: bigint;
  block_hash: Hash;
  block_number: bigint;
  block_time: Date;
  chain_id: number;
  created_at: Date;
  deposit_id: bigint;
  id: Generated<string>;
  log_index: number;
  merchant_id: string;
  /**
   * The nonce of the approver's signature, if the money was given back.
   */
  nonce: Hash | null;
  /**
   * The return that this outflow carried out.
   */
  payout_id: string | null;
  reason: "recovery" | "given_back" | "unknown";
  recipient: Address;
  token: Address;
  tx_hash: Hash;
}

interface OutflowWatches {
  block_number: bigint;
  chain_id: number;
  claim_id: string | null;
  lease_until: Date | null;
  /**
   * When all blocks up to the scan's were last read.
   */
  read_at: Date;
  run_at: Date;
}

interface PastClaims {
  payment_id: string;
  transfer_id: bigint;
}

interface PaymentLinks {
  active: boolean;
  /**
   * Null: the payer decides how much.
   */
  amount: bigint | null;
  chain_id: number;
  created_at: Date;
  currency: string;
  description: string | null;
  expires_at: Date | null;
  id: string;
  /**
   * How many sessions may be confirmed; `uses` is how many were.
   */
  max_uses: number | null;
  merchant_id: string;
  /**
   * Names of the fields that the checkouts of the link ask for; null: none. The link is then not sold to agents, which can't answer.
   */
  payer_fields: JSONColumnType<string[] | null, string | null, string | null>;
  product_id: string | null;
  redirect_url: string | null;
  slug: string;
  split_id: string | null;
  title: string;
  updated_at: Date;
  uses: Generated<number>;
}

interface Payments {
  /**
   * When the merchant accepted it as paid.
   */
  accepted_at: Date | null;
  /**
   * Set by the database: an agent's authorization paid it (x402).
   */
  agent: Generated<boolean>;
  amount: bigint;
  /**
   * Accepted when the session was already paid by another payment.
   */
  beside: Generated<boolean>;
  chain_id: number;
  created_at: Date;
  /**
   * The deposit with the money of a payment that is, or was, open.
   */
  deposit_id: bigint | null;
  /**
   * Numbers its events, which may arrive in another order.
   */
  event_sequence: Generated<number>;
  exception: "underpaid" | "overpaid" | "late" | "duplicate" | "wrong_asset" | "sanctioned" | "no_buyer" | null;
  id: string;
  merchant_id: string;
  /**
   * Whether the newest event about it says that it was paid: then a reversal is an event too.
   */
  notified_paid: Generated<boolean>;
  /**
   * Until when the merchant's event waits for the shares; null: it is notified, or does not wait.
   */
  notify_by: Date | null;
  payer: Address;
  /**
   * Set by the database: a return failed or was cancelled; the merchant must be notified that the payment is open.
   */
  reopened: Generated<boolean>;
  resource_id: string;
  /**
   * When the merchant returned it; `returned_to` is the address.
   */
  returned_at: Date | null;
  returned_to: Address | null;
  status: "granted" | "reversed" | "open" | "returned";
  /**
   * When a sweep takes what no sweep has taken yet.
   */
  sweep_at: Date | null;
  /**
   * The token that was sent, which may be another than the network's.
   */
  token: Address;
  traceparent: string | null;
  tx_hash: Hash;
  updated_at: Date;
}

interface PayoutAddresses {
  address: Address;
  chain_id: number;
  merchant_id: string;
  pending_address: Address | null;
  pending_at: Date | null;
  /**
   * Since when it is in force: the one that has been longest signs for the wallet lock.
   */
  since: Generated<Date>;
}

interface Payouts {
  amount: bigint;
  auth_digest: Hash | null;
  auth_nonce: Hash | null;
  /**
   * The batch that contains it and has its nonce, attempts and gas; null for a call with a nonce of its own.
   */
  batch_id: string | null;
  block_hash: Hash | null;
  block_number: bigint | null;
  chain_id: number;
  checks: Generated<number>;
  created_at: Date;
  data: Hex;
  /**
   * Null for an authorization that pays another server's address, for a batch, and for calls of an escrow.
   */
  deposit_id: bigint | null;
  /**
   * The session whose escrow is called; null for any other kind.
   */
  escrow_id: string | null;
  /**
   * Of a return that the merchant made itself: how much of it was beyond the payment.
   */
  excess: bigint | null;
  /**
   * Null: that of a release.
   */
  gas: bigint | null;
  /**
   * In wei, from the receipt.
   */
  gas_cost: bigint | null;
  gas_cost_at: Date | null;
  held_detail: string | null;
  held_reason: "short" | "sanctions" | "simulation" | "low_gas" | "reverted" | "gas_budget" | "allowance" | "balance" | null;
  /**
   * Its 16 bytes end the calldata, so that payouts can be found on the chain again.
   */
  id: string;
  kind: "share" | "sweep" | "return" | "authorize" | "settle" | "batch" | "reserve" | "capture" | "void" | "refund" | "anchor" | "store";
  /**
   * Set by a trigger, from the kind.
   */
  lane: Generated<LaneName>;
  /**
   * Set by a trigger, from the deposit if there is one.
   */
  merchant_id: Generated<string>;
  /**
   * Set by a trigger.
   */
  mined_at: Generated<Date | null>;
  nonce: bigint | null;
  /**
   * Whose authorization it is; `auth_nonce` is its nonce, `auth_digest` the EIP-712 hash that was signed.
   */
  payer: Address | null;
  payment_id: string | null;
  percent_e4: number | null;
  /**
   * Of a relay that failed: whether another transaction used its authorization before; null until the chain was asked.
   */
  preempted: boolean | null;
  recipient: Address;
  /**
   * If it is not signed by then it is cancelled: the authorization, or what it pays, would expire before it is mined.
   */
  relay_by: Date | null;
  /**
   * The reverted payout that this one replaces.
   */
  replaces: string | null;
  /**
   * Whether the deposit's book counts it; what does not fit is held.
   */
  reserved: boolean;
  /**
   * When it is tried next, while it has no nonce; `checks` is how often that failed.
   */
  run_at: Date;
  /**
   * Which recipient of the payment's set; `percent_e4` is its part.
   */
  share: number | null;
  /**
   * Why the money moves: one payout for each cause.
   */
  source_key: string;
  state: "queued" | "held" | "assigned" | "mined" | "final" | "reverted" | "cancelled";
  /**
   * Cancelled by a person: it is not made again.
   */
  stopped: Generated<boolean>;
  succeeded: boolean | null;
  to_address: Address;
  token: Address;
  traceparent: string | null;
  /**
   * When its receipt was first seen without the transfer that it should contain.
   */
  transfer_missing_at: Date | null;
  /**
   * The attempt that is mined.
   */
  tx_hash: Hash | null;
  updated_at: Date;
  value: ColumnType<bigint, bigint | undefined, never>;
  wallet: Address | null;
}

interface Paywalls {
  access_duration_s: bigint | null;
  active: boolean;
  chain_id: number;
  content_data: JSONColumnType<Record<string, unknown> | null, string | null, string | null>;
  content_type: string;
  content_url: string | null;
  created_at: Date;
  currency: string;
  description: string | null;
  id: string;
  /**
   * Whether `/.well-known/x402` lists it.
   */
  listed: Generated<boolean>;
  merchant_id: string;
  name: string;
  price: bigint;
  pricing_model: string;
  slug: string | null;
  split_id: string | null;
  /**
   * Subscribers of this product have access.
   */
  subscription_product_id: string | null;
  updated_at: Date;
}

interface PaywallVersions {
  active: boolean;
  deposit_id: bigint;
  from_at: Date;
  n: number;
  paywall_id: string;
  price: bigint;
  until_at: Date | null;
}

interface Persons {
  created_at: Date;
  /**
   * As the issuer had verified it when the person last signed in or became a member.
   */
  email: string | null;
  id: string;
  iss: string;
  sub: string;
  /**
   * Whether the person is or was a member of a merchant: such a one gets none by itself.
   */
  was_member: Generated<boolean>;
}

interface Products {
  active: boolean;
  billing_count: number | null;
  /**
   * The length of a period, with `billing_count`; null for a product that is no subscription.
   */
  billing_interval: "day" | "week" | "month" | "year" | null;
  chain_id: number;
  created_at: Date;
  currency: string;
  description: string | null;
  id: string;
  /**
   * How many periods are billed; null: until it is cancelled.
   */
  max_periods: number | null;
  merchant_id: string;
  name: string;
  price: bigint;
  split_id: string | null;
  trial_days: Generated<number>;
  updated_at: Date;
}

interface PutAway {
  /**
   * The receiving address, as bytes; `salt` too.
   */
  address: Buffer;
  chain_id: number;
  /**
   * When its balance is read next.
   */
  check_at: Date;
  created_at: Date;
  expires_at: Date;
  /**
   * The id of the checkout session.
   */
  id: string;
  merchant_id: string;
  open_after_s: bigint;
  salt: Buffer;
  /**
   * Hashes that were submitted to it and refused.
   */
  submissions: JSONColumnType<Record<string, unknown>[] | null, string | null, string | null>;
  terms_id: bigint;
  updated_at: Date;
  /**
   * The block up to which it is known that nothing came.
   */
  watched_number: bigint;
}

interface PutAwayTerms {
  deposit: JSONColumnType<Record<string, unknown>>;
  /**
   * SHA-256 of `session` and `deposit`.
   */
  hash: Buffer;
  id: Generated<bigint>;
  /**
   * A column of its own, like product_id and recipient_set_id, so that what the rows refer to is not deleted meanwhile.
   */
  link_id: string | null;
  merchant_id: string;
  product_id: string | null;
  recipient_set_id: bigint | null;
  /**
   * All columns that `put_away` does not have; `deposit` has those of the address.
   */
  session: JSONColumnType<Record<string, unknown>>;
}

interface Rates {
  published_at: Date;
  source: "ecb" | "fixed";
  /**
   * A currency of ISO 4217, or the symbol of a settlement token.
   */
  unit: string;
  usd: bigint;
  /**
   * Until when it counts if no newer one is published; null: until there is a newer one.
   */
  valid_until: Date | null;
}

interface RateSources {
  complete_until: Date;
  /**
   * When the source is asked again.
   */
  next_at: Date;
  source: "ecb" | "fixed";
}

interface ReceiptBatches {
  /**
   * The call that writes its root to the chain.
   */
  anchor_id: string | null;
  /**
   * Null once the store has them.
   */
  bytes: Uint8Array | null;
  chain_id: number;
  created_at: Date;
  key_id: string;
  n: Generated<bigint>;
  prev_root: Hash | null;
  receipts: number;
  /**
   * The Merkle root of its bytes, as 0G computes it.
   */
  root: Hash;
  size: number;
  /**
   * The newest call that has 0G keep it; null where it is in no other store than ours.
   */
  storage_id: string | null;
  /**
   * Before this it is not brought to 0G: a try failed, or one goes on; null: at once.
   */
  storage_run_at: Date | null;
  /**
   * Its number among all files of 0G.
   */
  storage_seq: bigint | null;
  /**
   * How often bringing it to 0G failed.
   */
  storage_tries: Generated<number>;
  stored_at: Date | null;
  /**
   * When 0G's nodes had proven that they have it.
   */
  uploaded_at: Date | null;
}

interface ReceiptKeys {
  /**
   * The call that registers it on the chain.
   */
  anchor_id: string | null;
  chain_id: number;
  created_at: Date;
  factory: Address;
  /**
   * The thumbprint of the public key (RFC 7638).
   */
  id: string;
  public_key: JSONColumnType<PublicKey>;
  /**
   * The call that revokes it on the chain.
   */
  revoke_id: string | null;
  /**
   * The private key, sealed under SECRET_KEY. Null once that was lost: then the key signs nothing more.
   */
  sealed: string | null;
}

interface ReceiptRounds {
  anchored_at: Date | null;
  chain_id: number;
  claim_id: string | null;
  lease_until: Date | null;
  run_at: Date;
}

interface Receipts {
  /**
   * The id of the payment, or of the call of an escrow.
   */
  about: string;
  amount: bigint;
  /**
   * What is signed and could change until then; null once it is.
   */
  body: JSONColumnType<ReceiptDraft | null, string, string | null>;
  byte_length: number | null;
  byte_offset: number | null;
  chain_id: number;
  /**
   * Of the signed receipt; the next one of the merchant names it.
   */
  hash: string | null;
  merchant_id: string;
  n: Generated<bigint>;
  /**
   * The hashes that prove it within its batch, 32 bytes each.
   */
  path: Uint8Array | null;
  resource_id: string;
  root: Hash | null;
  /**
   * Its key and its facts with their salts, sealed under SECRET_KEY. Null once they are erased: then only its holders can read it.
   */
  sealed: string | null;
  /**
   * Its place in the merchant's chain of receipts, from 1 on, without a gap.
   */
  seq: number | null;
  settled_at: Date;
  token: Address;
  type: "payment" | "refund" | "reversed" | "capture" | "void";
}

interface Recipients {
  address: Address;
  label: string | null;
  /**
   * Ten-thousandths of a percent: 1,000,000 is all of it.
   */
  percent_e4: number;
  position: number;
  set_id: bigint;
}

interface RecipientSets {
  created_at: Date;
  id: Generated<bigint>;
}

interface Reconciliations {
  chain_id: number;
  claim_id: string | null;
  deposit_position: bigint | null;
  /**
   * When what moved is compared next.
   */
  hour_at: Date;
  lease_until: Date | null;
  /**
   * The last block up to which the balances of deposits where something moved are compared.
   */
  moved_number: bigint | null;
  moved_position: bigint | null;
  /**
   * The block at which that goes on now; `moved_position` is the deposit up to which it is done. Null between two.
   */
  moved_to: bigint | null;
  /**
   * When everything is compared next; the positions are where that continues, null between two.
   */
  pass_at: Date;
  payout_position: string | null;
  run_at: Date;
  transfer_position: bigint | null;
}

interface Refunds {
  amount: bigint;
  created_at: Date;
  id: string;
  merchant_id: string;
  /**
   * When its merchant was notified: once, whatever a reorg does afterwards.
   */
  notified_at: Date | null;
  payout_id: string;
  /**
   * The merchant's own words.
   */
  reason: string | null;
  session_id: string;
  /**
   * The state on chain: a reorg turns `succeeded` back into `pending`.
   */
  status: Generated<"pending" | "succeeded" | "failed">;
  updated_at: Date;
}

interface Requests {
  api_key_id: string | null;
  /**
   * When it was answered.
   */
  at: Date;
  /**
   * The error's code; null where it was not refused.
   */
  code: string | null;
  duration_ms: number;
  merchant_id: string;
  method: string;
  n: Generated<bigint>;
  person_id: string | null;
  /**
   * The first 1 KB of the answer, where that is an error.
   */
  refusal: string | null;
  /**
   * The caller may have chosen it, and more than once.
   */
  request_id: string;
  /**
   * The pattern, such as `/api/console/payments/:id`: what a path or a query has may be secret.
   */
  route: string;
  status: number;
}

interface Resources {
  chain_id: number;
  id: string;
  merchant_id: string;
}

interface ReturnAddresses {
  address: Address;
  id: Generated<bigint>;
  message: string;
  named_at: Date;
  payer: Address;
  /**
   * The paywall or session that `payer` sent money to.
   */
  resource_id: string;
  signature: string;
}

interface Screenings {
  address: Address;
  id: Generated<bigint>;
  listed: boolean;
  screened_at: Date;
  source: string;
  subject: string;
}

interface Sessions {
  /**
   * The IP address that signed in, and user_agent the browser.
   */
  address: string | null;
  created_at: Date;
  expires_at: Date;
  /**
   * Of what the browser's cookie holds.
   */
  hash: string;
  id: string;
  iss: string;
  /**
   * Accurate to a minute. An hour later it has ended.
   */
  last_seen_at: Date;
  sub: string;
  user_agent: string | null;
  /**
   * How the person signed in: at the identity provider, with a wallet, or by the sandbox's button.
   */
  way: "provider" | "wallet" | "sandbox";
}

interface Settlements {
  amount: bigint;
  /**
   * When its caller got what was bought, or a token for it: the payment alone buys nothing more.
   */
  answered_at: Date | null;
  /**
   * SHA-256 of the request that the payment is for, and of the payload that came with it.
   */
  binding: string;
  /**
   * A MAC of the address that the first request came from.
   */
  caller: Generated<string>;
  chain_id: number;
  /**
   * Which request may serve what was bought, until its lease expires.
   */
  claim_id: string | null;
  created_at: Date;
  digest: Hash;
  /**
   * When it became certain that it can't be paid.
   */
  failed_at: Date | null;
  found_block: bigint | null;
  /**
   * Whether the block of the transaction that was found is final; before, a reorg may remove it.
   */
  found_final: Generated<boolean>;
  /**
   * Another sender's transaction that used the authorization.
   */
  found_hash: Hash | null;
  /**
   * The chain's height when it was claimed: the search for another sender's transaction starts here.
   */
  from_block: bigint;
  id: string;
  /**
   * The caller's own id of the payment (extension payment-identifier).
   */
  identifier: string | null;
  lease_until: Date | null;
  merchant_id: string;
  nonce: Hash;
  pay_to: Address;
  payer: Address;
  payload_hash: string;
  /**
   * The relay in progress, or the last one.
   */
  payout_id: string;
  /**
   * Null if another server sells it.
   */
  resource_id: string | null;
  /**
   * Set when the merchant's server failed: until then its retry token repeats the call.
   */
  retry_until: Date | null;
  served_at: Date | null;
  token: Address;
  updated_at: Date;
  /**
   * Unix time in seconds.
   */
  valid_before: bigint;
}

interface SigningKeys {
  created_at: Date;
  /**
   * The thumbprint of the public key (RFC 7638).
   */
  id: string;
  public_key: JSONColumnType<Record<string, unknown>>;
  /**
   * The private key, sealed under SECRET_KEY.
   */
  sealed: string;
}

interface SignIns {
  expires_at: Date;
  /**
   * Of what the browser's cookie holds.
   */
  hash: string;
  nonce: string;
  /**
   * A path below /console.
   */
  return_to: string;
  state: string;
  /**
   * Proves to the provider that whoever brings the code also began the sign-in (PKCE, RFC 7636).
   */
  verifier: string;
}

interface Splits {
  created_at: Date;
  description: string | null;
  id: string;
  merchant_id: string;
  name: string;
  set_id: bigint;
  updated_at: Date;
}

interface Submissions {
  /**
   * The claimed payer; null if a checkout does not know it.
   */
  address: Address | null;
  attempts: Generated<number>;
  block_number: bigint | null;
  /**
   * Whether only a transfer from `address` answers it; otherwise a transfer from anyone does.
   */
  by_sender: boolean;
  chain_id: number;
  id: Generated<bigint>;
  message: string;
  reason: "reverted" | "no_transfer" | "wrong_recipient" | "wrong_sender" | "wrong_asset" | "underpaid" | "already_used" | "not_found" | "sanctioned" | "late" | null;
  resource_id: string;
  /**
   * When its receipt is asked for next; null: its transfers, or its end, are known.
   */
  run_at: Date | null;
  status: "verifying" | "granted" | "failed" | "reversed";
  submitted_at: Date;
  traceparent: string | null;
  tx_hash: Hash;
  updated_at: Date;
}

interface Subscriptions {
  access_until: Date | null;
  /**
   * The time from which periods are counted.
   */
  anchor: Date | null;
  billing_count: number;
  billing_interval: "day" | "week" | "month" | "year";
  /**
   * Why the due invoice can't be made.
   */
  blocked_by: "payments_paused" | "payout_address" | "price" | null;
  /**
   * Who asked for either: each can only withdraw its own request.
   */
  cancel_asked_by: "merchant" | "subscriber" | "both" | null;
  cancel_at_period_end: Generated<boolean>;
  cancel_reason: "requested" | "unpaid" | "completed" | null;
  /**
   * When cancelling was asked for; with `cancel_at_period_end` it takes effect when the paid time ends.
   */
  canceled_at: Date | null;
  chain_id: number;
  created_at: Date;
  customer_email: string | null;
  /**
   * When it was first known to be canceled; null before.
   */
  ended_at: Date | null;
  event_sequence: Generated<number>;
  /**
   * Failed rounds since the last that advanced it.
   */
  failed_rounds: Generated<number>;
  /**
   * Whether it was its payer's first of the product that it started with: only that one has a trial.
   */
  has_trial: Generated<boolean>;
  id: string;
  /**
   * Whether it is its payer's first of the product of its last invoice: only that one has days of grace.
   */
  is_first: Generated<boolean>;
  max_periods: number | null;
  merchant_id: string;
  paid_until: Date | null;
  paused_at: Date | null;
  /**
   * The wallet that paid first. It has the access, whichever wallet pays later.
   */
  payer: Address | null;
  /**
   * The product of the next invoice.
   */
  product_id: string;
  /**
   * When it is computed next; null while nothing can change without a payment or a request.
   */
  run_at: Date | null;
  started_at: Date | null;
  /**
   * The result of the last computation.
   */
  status: "active" | "payment_due" | "past_due" | "paused" | "canceled" | null;
  /**
   * What its checkout promised; given if `has_trial`.
   */
  trial_days: number;
  updated_at: Date;
}

interface Surpluses {
  amount: bigint;
  deposit_id: bigint;
  payment_id: string;
  returned_at: Date | null;
  returned_to: Address | null;
  state: "open" | "accepted" | "returned";
  token: Address;
  /**
   * The transfer that holds it: all of it is one sender's, and in one deposit.
   */
  transfer_id: bigint;
}

interface SweepParts {
  amount: bigint;
  payout_id: string;
  transfer_id: bigint;
}

interface TeamInvitations {
  /**
   * Whether the payout wallet signed it.
   */
  by_wallet: boolean;
  created_at: Date;
  /**
   * Who may accept it, if it names no wallet (CAIP-10): the letters of ASCII are in lower case.
   */
  email: string | null;
  expires_at: Date;
  /**
   * Of its token: SHA-256 in hexadecimal.
   */
  hash: string;
  id: string;
  invited_by: string;
  merchant_id: string;
  role: "owner" | "admin" | "developer" | "finance" | "support" | "viewer";
  wallet: string | null;
}

interface Tokens {
  address: Address;
  asked_at: Date;
  chain_id: number;
  decimals: number | null;
  symbol: string | null;
}

interface TokenScans {
  /**
   * The deposits up to this id are read.
   */
  after_id: Generated<bigint>;
  /**
   * How many blocks are read next.
   */
  blocks: bigint;
  chain_id: number;
  claim_id: string | null;
  /**
   * The first block that is read now; none is while `to_block`, the last, is below it.
   */
  from_block: bigint;
  /**
   * The time of the block before `from_block`.
   */
  from_time: Date;
  lease_until: Date | null;
  run_at: Date;
  to_block: bigint;
}

interface TransactionAttempts {
  chain_id: number;
  /**
   * By the database's clock: several processes measure the times between attempts.
   */
  created_at: Generated<Date>;
  /**
   * The most that its data may cost in addition to its gas, in wei.
   */
  data_fee: Generated<bigint>;
  /**
   * It does not make its payout's call, and only uses its nonce.
   */
  empty: Generated<boolean>;
  gas: bigint;
  hash: Hash | null;
  id: Generated<bigint>;
  last_result: "sent" | "look" | "wait" | "bump" | "alarm" | "unknown" | null;
  max_fee: bigint;
  n: number;
  nonce: bigint;
  payout_id: string;
  /**
   * The signed bytes; null, like their hash, until it is signed.
   */
  raw: Hex | null;
  sends: Generated<number>;
  sent_at: Date | null;
  signed_at: Date | null;
  tip: bigint;
  /**
   * The hash to sign; null for attempts from before it was stored, and for those adopted from the chain.
   */
  unsigned_hash: Hash | null;
  wallet: Address;
}

interface Transactions {
  amount: bigint;
  chain_id: number;
  created_at: Date;
  exception: Payments["exception"];
  id: string;
  merchant_id: string;
  /**
   * The deposit that a payout takes the money from.
   */
  out_of: bigint | null;
  payer: Address | null;
  payment_id: string | null;
  payout_id: string | null;
  recipient: Address | null;
  /**
   * Null if an agent paid another server.
   */
  resource_id: string | null;
  /**
   * The table, or the kind of payouts, of the row.
   */
  source: "payments" | "payouts" | "settlements" | "escrows" | "calls" | "refunds";
  /**
   * For a payment through escrow, its session's status.
   */
  status: Payments["status"] | Payouts["state"] | CheckoutSessions["status"];
  token: Address;
  tx_hash: Hash | null;
  type: "payment" | "agent" | Exclude<PayoutKindName, "authorize" | "settle" | "batch" | "reserve" | "anchor" | "store">;
  /**
   * The amount as indexes have it: a condition on `amount` would read all of a merchant's rows.
   */
  units: bigint;
}

interface TransactionTerms {
  /**
   * The payment's; of one through escrow, when it was authorized.
   */
  created_at: Date;
  merchant_id: string;
  /**
   * The MD5 of a name and a value, as `terms_of_checkout` makes it: no personal data, and 16 bytes of each.
   */
  term: string;
  /**
   * The payment's id; of one through escrow, the checkout's.
   */
  transaction_id: string;
}

interface Transfers {
  /**
   * Whether a granted or returned payment claims it; it may be set late, but is never wrongly true.
   */
  applied: Generated<boolean>;
  block_hash: Hash;
  block_number: bigint;
  block_time: Date;
  chain_id: number;
  created_at: Date;
  deposit_id: bigint;
  from_address: Address;
  id: Generated<bigint>;
  k: number;
  log_index: number;
  /**
   * Set by a trigger, like reorged_at: when a reorg removed it, or mined it again with another value or sender.
   */
  merchant_id: Generated<string>;
  reorged_at: Generated<Date | null>;
  /**
   * When settling reads it; null: nothing to do.
   */
  run_at: Date | null;
  /**
   * Whether only one of two endpoints reports it; see `chain/agreement.ts`.
   */
  single_source: Generated<boolean>;
  state: "seen" | "confirmed" | "final" | "gone";
  /**
   * When another block was first seen at this height; one observation is not evidence.
   */
  suspect_at: Date | null;
  to_address: Address;
  token: Address;
  tx_hash: Hash;
  value: bigint;
}

interface WalletProofs {
  address: Address;
  /**
   * Whether its key signed, which is the same on every network; otherwise its contract did, on this network.
   */
  by_key: boolean;
  chain_id: number;
  merchant_id: string;
  proven_at: Date;
}

interface Wallets {
  address: Address;
  /**
   * The alarms of the wallet's last round.
   */
  alarms: ColumnType<StandingAlarm[], StandingAlarm[] | undefined, StandingAlarm[]>;
  chain_id: number;
  check_at: Date | null;
  /**
   * The last block up to which all logs are compared with the rows.
   */
  checked_number: bigint | null;
  checked_position: bigint | null;
  /**
   * The last block of the range that is being compared; `checked_position` is the deposit up to which that is done. Null between two.
   */
  checked_to: bigint | null;
  claim_id: string | null;
  halted_reason: string | null;
  id: Generated<number>;
  /**
   * Relays never queue behind payouts: each lane has a wallet, a loop and a limit of its own.
   */
  lane: Generated<"payout" | "relay" | "storage">;
  lease_until: Date | null;
  next_nonce: bigint;
  run_at: Date;
  status: Generated<"active" | "halted">;
  /**
   * Since when a nonce seems to be used by a transaction that is not the service's; one observation is not evidence.
   */
  suspect_at: Date | null;
}

interface Webhooks {
  active: boolean;
  /**
   * A listener that also gets a copy of what is sent to callback URLs.
   */
  copies_callbacks: Generated<boolean>;
  created_at: Date;
  deleted_at: Date | null;
  description: string | null;
  /**
   * Why the service switched it off: it answered 410, or has failed for days.
   */
  disabled_reason: "gone" | "failing" | null;
  events: JSONColumnType<string[], string, string>;
  /**
   * Since when every attempt has failed.
   */
  failing_since: Date | null;
  id: string;
  merchant_id: string;
  /**
   * Of a listener, when somebody last asked for its deliveries, by the database's clock; null for an endpoint that has a URL.
   */
  pulled_at: Date | null;
  updated_at: Date;
  url: string;
}

interface WebhookSecrets {
  created_at: Date;
  expires_at: Date | null;
  id: Generated<bigint>;
  merchant_id: string;
  sealed: string;
  /**
   * When it was shown: it is shown once.
   */
  shown_at: Date | null;
  webhook_id: string | null;
}

export interface DB {
  access: Access;
  api_keys: ApiKeys;
  audit_entries: AuditEntries;
  books: Books;
  branding: Branding;
  bundle_failures: BundleFailures;
  bundle_headers: BundleHeaders;
  bundle_routes: BundleRoutes;
  bundles: Bundles;
  changes: Changes;
  checkout_sessions: CheckoutSessions;
  checkout_terms: CheckoutTerms;
  claim_books: ClaimBooks;
  claims: Claims;
  counted_calls: CountedCalls;
  cursors: Cursors;
  deliveries: Deliveries;
  delivery_attempts: DeliveryAttempts;
  deposit_books: DepositBooks;
  deposits: Deposits;
  device_guesses: DeviceGuesses;
  device_sign_ins: DeviceSignIns;
  endpoint_troubles: EndpointTroubles;
  erasures: Erasures;
  escrows: Escrows;
  events: Events;
  figure_deltas: FigureDeltas;
  figure_entries: FigureEntries;
  figures: Figures;
  first_subscriptions: FirstSubscriptions;
  foreign_nonces: ForeignNonces;
  foreign_tokens: ForeignTokens;
  gas_budgets: GasBudgets;
  grants: Grants;
  idempotency_keys: IdempotencyKeys;
  installation: Installation;
  invitations: Invitations;
  invoices: Invoices;
  key_spends: KeySpends;
  mails: Mails;
  members: Members;
  merchant_limits: MerchantLimits;
  merchants: Merchants;
  nonces: Nonces;
  noticed_outflows: NoticedOutflows;
  notification_choices: NotificationChoices;
  operator_actions: OperatorActions;
  outflow_watches: OutflowWatches;
  outflows: Outflows;
  past_claims: PastClaims;
  payment_links: PaymentLinks;
  payments: Payments;
  payout_addresses: PayoutAddresses;
  payouts: Payouts;
  paywall_versions: PaywallVersions;
  paywalls: Paywalls;
  persons: Persons;
  products: Products;
  put_away: PutAway;
  put_away_terms: PutAwayTerms;
  rate_sources: RateSources;
  rates: Rates;
  receipt_batches: ReceiptBatches;
  receipt_keys: ReceiptKeys;
  receipt_rounds: ReceiptRounds;
  receipts: Receipts;
  recipient_sets: RecipientSets;
  recipients: Recipients;
  reconciliations: Reconciliations;
  refunds: Refunds;
  requests: Requests;
  resources: Resources;
  return_addresses: ReturnAddresses;
  screenings: Screenings;
  sessions: Sessions;
  settlements: Settlements;
  sign_ins: SignIns;
  signing_keys: SigningKeys;
  splits: Splits;
  submissions: Submissions;
  subscriptions: Subscriptions;
  surpluses: Surpluses;
  sweep_parts: SweepParts;
  team_invitations: TeamInvitations;
  token_scans: TokenScans;
  tokens: Tokens;
  transaction_attempts: TransactionAttempts;
  transaction_terms: TransactionTerms;
  transactions: Transactions;
  transfers: Transfers;
  wallet_proofs: WalletProofs;
  wallets: Wallets;
  webhook_secrets: WebhookSecrets;
  webhooks: Webhooks;
}
