/**
 * Every column that can identify a customer, and how an erasure changes it. A test fails for a text, JSON or bytes
 * column that is neither here nor in {@link harmless}, so whoever adds a column must decide.
 */

/** The owners of rows. An erasure finds the rows of a table by their owner. */
export type Owner =
  | "checkout"
  | "subscription"
  | "refund"
  | "grant"
  | "event"
  | "delivery"
  | "call"
  | "answer"
  | "receipt"
  | "entry"

interface Personal {
  of: Owner
  /** SQL: the value that an erasure writes. */
  becomes: string
  /** What the column contains, and how long that is kept without an erasure. */
  holds: string
}

const WITH_CHECKOUT = "until the checkout is erased, or CUSTOMER_DATA_RETENTION has passed"
const WITH_EVENT = "as long as events: WEBHOOK_RETENTION"

/** For each `table.column`, how an erasure changes it. */
export const personal: Readonly<Record<string, Personal>> = {
  "checkout_sessions.customer_email": {
    of: "checkout",
    becomes: "null",
    holds: `an e-mail address; kept ${WITH_CHECKOUT}`,
  },
  "checkout_sessions.payer_info": {
    of: "checkout",
    becomes: "null",
    holds: `what the payer entered; kept ${WITH_CHECKOUT}`,
  },
  "checkout_sessions.payer_fields": {
    of: "checkout",
    becomes: "null",
    holds: `the merchant's own labels; kept ${WITH_CHECKOUT}`,
  },
  "checkout_sessions.metadata": {
    of: "checkout",
    becomes: "null",
    holds: `what the merchant stored; kept ${WITH_CHECKOUT}`,
  },
  "checkout_sessions.description": {
    of: "checkout",
    becomes: "null",
    holds: `the merchant's own text; kept ${WITH_CHECKOUT}`,
  },
  "checkout_sessions.redirect_url": {
    of: "checkout",
    becomes: "null",
    holds: `an address, which may name an order; kept ${WITH_CHECKOUT}`,
  },
  "checkout_sessions.callback_url": {
    of: "checkout",
    becomes: "null",
    holds: `an address, which may name an order; kept ${WITH_CHECKOUT}`,
  },
  "receipts.body": {
    of: "receipt",
    becomes: "body - 'what'",
    holds:
      "the signed data of a payment: the merchant's text, metadata and what the payer entered; kept for a few seconds, until it is signed",
  },
  "receipts.sealed": {
    of: "receipt",
    becomes: "null",
    holds:
      "the key of a receipt, and its data with salts; kept until the checkout or payer is erased. Anyone who has the receipt's link or file can still read it",
  },
  "subscriptions.customer_email": {
    of: "subscription",
    becomes: "null",
    holds: "an e-mail address; kept until it is erased",
  },
  "refunds.reason": {
    of: "refund",
    becomes: "null",
    holds: "the merchant's own words; kept until the checkout is erased",
  },
  "grants.revoke_reason": {
    of: "grant",
    becomes: "null",
    holds: "the merchant's own words; kept until the payer is erased",
  },
  "bundle_failures.path": {
    of: "call",
    becomes: "''",
    holds: "the path of a paid call; kept until the payer is erased",
  },
  "settlements.identifier": {
    of: "call",
    becomes: "null",
    holds: "the buyer's own id of a payment; kept until the payer is erased",
  },
  "events.body": {
    of: "event",
    becomes: `((body::jsonb - 'data') || jsonb_build_object('data', jsonb_build_object('erased', true,
      'sha256', encode(sha256(convert_to(body, 'utf8')), 'hex'))))::text`,
    holds: `all of the above, as sent; kept ${WITH_EVENT}`,
  },
  "deliveries.url": {
    of: "delivery",
    becomes: "case when url is not null then 'https://erased.invalid/' end",
    holds: `the callback's address; kept ${WITH_EVENT}`,
  },
  "delivery_attempts.answer": {
    of: "delivery",
    becomes: "null",
    holds: `what the merchant's server answered; kept ${WITH_EVENT}`,
  },
  "delivery_attempts.error": {
    of: "delivery",
    becomes: "case when error is not null then 'erased' end",
    holds: `the same, as quoted in errors; kept ${WITH_EVENT}`,
  },
  "idempotency_keys.answer": {
    of: "answer",
    becomes: "erased_answer(answer::jsonb)::text",
    holds: "the answer that a repeated request gets; kept 24 hours",
  },
  "audit_entries.before": {
    of: "entry",
    becomes: "erased_entry(before)",
    holds: "previous values of the columns above; kept until they are erased",
  },
  "audit_entries.after": {
    of: "entry",
    becomes: "erased_entry(after)",
    holds: "new values of the columns above; kept until they are erased",
  },
}

/**
 * All other columns: ids, states, hashes, our own words, and the merchant's people, settings and catalogue. Triggers
 * keep `checkout_terms` and `transaction_terms` in step with the checkout. `put_away_terms` has the terms of unpaid
 * checkouts, which an erasure restores first. `screenings` must be kept as evidence, and the wallets in them are
 * public.
 */
export const harmless: Readonly<Record<string, string>> = {
  access: "paywall_id",
  api_keys: "id merchant_id name hash prefix last4 scopes made_by allowed_ips previous_hash beyond_by",
  audit_entries: "merchant_id actor_kind actor_id actor_issuer action object_id address user_agent route request_id",
  branding: "merchant_id accent_color allowed_origins logo logo_type logo_hash",
  bundle_failures: "payment_id bundle_id method reason",
  bundle_headers: "bundle_id name sealed",
  bundle_routes: "bundle_id method path shape description",
  changes: "kind merchant_id object_id",
  bundles: "id merchant_id slug name description origin_url currency split_id openapi openapi_url",
  checkout_sessions:
    "id merchant_id currency link_id product_id status exception message split_id agent_caller capture traceparent",
  checkout_terms: "merchant_id value key session_id",
  claim_books: "payment_id",
  claims: "payment_id",
  deliveries: "id event_id merchant_id webhook_id lane order_key status",
  delivery_attempts: "delivery_id headers",
  deposits: "merchant_id resource_id",
  device_guesses: "person_id session_id",
  device_sign_ins: "id device_hash user_hash host scopes address decision for_merchant person_id session_id",
  endpoint_troubles: "kind answer",
  erasures: "id merchant_id asked_by",
  escrows: "session_id merchant_id version",
  events: "id merchant_id type dedupe_key traceparent order_key",
  figure_deltas: "merchant_id token figure",
  figures: "merchant_id token",
  first_subscriptions: "product_id subscription_id",
  foreign_tokens: "merchant_id",
  gas_budgets: "merchant_id",
  grants: "id payment_id paywall_id revoked_by",
  held_slugs: "slug merchant_id",
  idempotency_keys: "merchant_id route key request_hash",
  installation: "key value",
  invitations: "iss sub",
  invoices: "id subscription_id merchant_id session_id product_id currency void_asked_by",
  key_spends: "merchant_id kind object_id key_id token person_id",
  mails: "id merchant_id notice dedupe_key address subject body sealed status error",
  members: "merchant_id person_id role",
  merchant_limits: "merchant_id bucket",
  merchants: "id name email approver currency time_zone",
  nonces: "nonce purpose resource",
  notification_choices: "merchant_id person_id notice",
  noticed_outflows: "tx_hash deposit",
  operator_actions: "action by_user reason before after",
  outflows: "merchant_id reason",
  past_claims: "payment_id",
  payment_links: "id merchant_id slug title description currency product_id redirect_url split_id payer_fields",
  payments: "id status merchant_id exception resource_id traceparent",
  payout_addresses: "merchant_id",
  payouts: "kind source_key merchant_id payment_id data state held_reason held_detail lane escrow_id traceparent",
  paywall_versions: "paywall_id",
  paywalls:
    "id merchant_id name currency description content_type content_data content_url pricing_model slug split_id subscription_product_id",
  persons: "id iss sub email",
  products: "id merchant_id name description currency split_id billing_interval",
  put_away: "id merchant_id address salt submissions",
  put_away_terms: "merchant_id link_id product_id session deposit hash",
  rate_sources: "source",
  rates: "unit source",
  receipt_batches: "key_id bytes",
  receipt_keys: "id public_key sealed",
  receipts: "merchant_id type resource_id about hash path",
  recipients: "label",
  refunds: "id session_id merchant_id status",
  requests: "merchant_id request_id method route code api_key_id person_id refusal",
  resources: "id merchant_id",
  return_addresses: "resource_id message signature",
  screenings: "source subject",
  sessions: "id hash iss sub way address user_agent",
  settlements: "id merchant_id resource_id binding payload_hash caller",
  sign_ins: "hash state nonce verifier return_to",
  signing_keys: "id public_key sealed",
  slugs: "slug resource_id",
  splits: "id merchant_id name description",
  submissions: "status reason message resource_id traceparent",
  subscriptions: "id merchant_id product_id billing_interval status cancel_reason cancel_asked_by blocked_by",
  surpluses: "payment_id state",
  team_invitations: "id merchant_id hash email wallet role invited_by",
  tokens: "symbol",
  transaction_attempts: "raw last_result",
  transaction_terms: "merchant_id transaction_id",
  transfers: "state merchant_id",
  wallet_proofs: "merchant_id",
  wallets: "status halted_reason lane alarms",
  webhook_secrets: "merchant_id webhook_id sealed",
  webhooks: "id merchant_id url description events disabled_reason",
}
