/**
 * What the catalogue does not say about types. Addresses, hashes and amounts are domains, and a check that lists words is a
 * union, so neither is here. Comments in the database could hold these types, but changing one would take a migration.
 */

/** TypeScript's names for types of the database, as the drivers read them (`bigintParsers`). */
export const scalars: Record<string, string> = {
  evm_address: "Address",
  evm_hash: "Hash",
  base_units: "bigint",
  int8: "bigint",
  numeric: "bigint",
  timestamptz: "Date",
}

/** Where the types are from. */
export const imports: Record<string, string> = {
  Address: "../chain/hex.ts",
  EscrowVersion: "../chain/escrow-deployments.ts",
  Hash: "../chain/hex.ts",
  Hex: "viem",
  LaneName: "./payout-kinds.ts",
  PayoutKindName: "./payout-kinds.ts",
  PublicKey: "../../../../verify/src/format.ts",
  ReceiptDraft: "./receipt-draft.ts",
  StandingAlarm: "./standing-alarm.ts",
}

/** Columns that a trigger fills, so that an insert may leave them out. */
export const generated: ReadonlySet<string> = new Set([
  "deposits.merchant_id",
  "deposits.balanced_number",
  "escrows.reclaimed_at",
  "payouts.merchant_id",
  "payouts.mined_at",
  "transfers.merchant_id",
  "transfers.reorged_at",
])

/** Written as text, and read as what it holds. */
const json = (type: string) => `JSONColumnType<${type}>`
const jsonOrNull = (type: string) => `JSONColumnType<${type} | null, string | null, string | null>`
/** Written once: the payer signs the hash of these columns. */
const term = (type: string) => `ColumnType<${type}, ${type}, never>`
const document = "Record<string, unknown>"

/** The whole type of a column, with null if it may be null. */
export const columnTypes: Record<string, string> = {
  "audit_entries.after": json(`${document} | null`),
  "audit_entries.before": json(`${document} | null`),
  "branding.allowed_origins": "JSONColumnType<string[], string | undefined, string>",
  "branding.logo": "Uint8Array | null",
  "bundles.openapi": jsonOrNull(document),
  "checkout_sessions.metadata": jsonOrNull(document),
  "checkout_sessions.payer_fields": jsonOrNull("string[]"),
  "checkout_sessions.payer_info": jsonOrNull("Record<string, string>"),
  "delivery_attempts.headers": jsonOrNull("Record<string, string>"),
  "noticed_outflows.deposit": "Address",
  "noticed_outflows.tx_hash": "Hash",
  "operator_actions.after": json(document),
  "operator_actions.before": json(document),
  "paywalls.content_data": jsonOrNull(document),
  "payment_links.payer_fields": jsonOrNull("string[]"),
  "payouts.lane": "Generated<LaneName>",
  "payouts.data": "Hex",
  "payouts.value": "ColumnType<bigint, bigint | undefined, never>",
  "put_away.submissions": jsonOrNull(`${document}[]`),
  "put_away_terms.deposit": json(document),
  "put_away_terms.session": json(document),
  "receipt_batches.bytes": "Uint8Array | null",
  "receipt_keys.public_key": json("PublicKey"),
  "receipts.body": "JSONColumnType<ReceiptDraft | null, string, string | null>",
  "receipts.path": "Uint8Array | null",
  "signing_keys.public_key": json(document),
  "transaction_attempts.raw": "Hex | null",
  "wallets.alarms": "ColumnType<StandingAlarm[], StandingAlarm[] | undefined, StandingAlarm[]>",
  "webhooks.events": "JSONColumnType<string[], string, string>",

  "escrows.chain_id": term("number"),
  "escrows.token": term("Address"),
  "escrows.escrow": term("Address"),
  "escrows.version": term("EscrowVersion"),
  "escrows.collector": term("Address"),
  "escrows.refund_collector": term("Address | null"),
  "escrows.operator": term("Address"),
  "escrows.receiver": term("Address"),
  "escrows.max_amount": term("bigint"),
  "escrows.pre_approval_expiry": term("Date"),
  "escrows.authorization_expiry": term("Date"),
  "escrows.refund_expiry": term("Date"),
  "escrows.void_at": term("Date"),
  "escrows.salt": term("Hash"),
  "escrows.nonce": term("Hash"),

  "books.id": "string",
  "books.merchant_id": "string",
  "books.direction": `"in" | "out" | "through"`,
  "books.reason": `PayoutKindName | "recovery" | "given_back" | "unknown" | "reclaim" | null`,
  "books.state": `"confirmed" | "mined" | "final"`,
  "books.chain_id": "number",
  "books.deposit_id": "bigint | null",
  "books.token": "Address",
  "books.amount": "bigint",
  "books.sender": "Address | null",
  "books.recipient": "Address",
  "books.tx_hash": "Hash | null",
  "books.block_number": "bigint | null",
  "books.at": "Date",
  "books.transfer_id": "bigint | null",
  "books.payout_id": "string | null",
  "books.payment_id": "string | null",
  "books.escrow_id": "string | null",
  "books.failed": "boolean",

  "figures.seconds": "number",
  "figure_entries.merchant_id": "string",
  "figure_entries.at": "Date",
  "figure_entries.chain_id": "number",
  "figure_entries.token": "string",
  "figure_entries.figure": `FigureDeltas["figure"]`,
  "figure_entries.amount": "bigint",
  "figure_entries.count": "number",

  "transactions.id": "string",
  "transactions.merchant_id": "string",
  "transactions.type": `"payment" | "agent" | Exclude<PayoutKindName, "authorize" | "settle" | "batch" | "reserve" | "anchor" | "store">`,
  "transactions.status": `Payments["status"] | Payouts["state"] | CheckoutSessions["status"]`,
  "transactions.exception": `Payments["exception"]`,
  "transactions.chain_id": "number",
  "transactions.token": "Address",
  "transactions.amount": "bigint",
  "transactions.tx_hash": "Hash | null",
  "transactions.payer": "Address | null",
  "transactions.recipient": "Address | null",
  "transactions.resource_id": "string | null",
  "transactions.payment_id": "string | null",
  "transactions.created_at": "Date",
  "transactions.source": `"payments" | "payouts" | "settlements" | "escrows" | "calls" | "refunds"`,
  "transactions.payout_id": "string | null",
  "transactions.out_of": "bigint | null",
  "transactions.units": "bigint",
}
