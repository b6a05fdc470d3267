/**
 * Every table and column is in the audit log, or in a list here with the reason why not: the author of a new one has to
 * decide. A column that no trigger names is never written to the log, so a forgotten one does not leak until then.
 */
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openTestDatabase } from "../../../test/database.ts"
import type { OpenDatabase } from "../../platform/db/open.ts"

const ENGINE = "the engine's own work, which follows from payments, the chain, and rows that are in the log"
const BUYER = "what buyers and payers do"
const SERVICE = "of the whole service, not of a merchant"

/** Tables without an entry. */
const unaudited: Record<string, string> = {
  ...Object.fromEntries(
    [
      "access",
      "books",
      "claim_books",
      "claims",
      "counted_calls",
      "cursors",
      "delivery_attempts",
      "deposit_books",
      "deposits",
      "endpoint_troubles",
      "figure_deltas",
      "figure_entries",
      "figures",
      "escrows",
      "foreign_nonces",
      "foreign_tokens",
      "put_away",
      "put_away_terms",
      "gas_budgets",
      "held_slugs",
      "invoices",
      "outflows",
      "outflow_watches",
      "noticed_outflows",
      "past_claims",
      "paywall_versions",
      "receipt_batches",
      "receipt_rounds",
      "receipts",
      "reconciliations",
      "resources",
      "screenings",
      "slugs",
      "sweep_parts",
      "token_scans",
      "tokens",
      "transaction_attempts",
      "transfers",
      "wallets",
      "movements",
      "transactions",
      "bundle_failures",
    ].map(table => [table, ENGINE]),
  ),
  ...Object.fromEntries(["return_addresses", "settlements", "submissions", "nonces"].map(table => [table, BUYER])),
  ...Object.fromEntries(
    ["installation", "invitations", "migrations", "rate_sources", "rates", "receipt_keys", "signing_keys"].map(
      table => [table, SERVICE],
    ),
  ),
  sessions: "a person's own sign-ins, of no merchant; each entry names the person",
  sign_ins: "sign-ins that have begun: nobody is known yet",
  device_sign_ins: "of no merchant until a person decides, which is an entry",
  device_guesses: "what a person typed, of no merchant",
  audit_entries: "the log itself",
  changes: "which rows of lists changed in the last 24 hours, without what they hold",
  mails: "what was sent to people about changes that are in the log",
  notification_choices: "what a person gets by mail, of their own",
  requests: "the log of requests, which has reads and what was refused too",
  operator_actions: "the operator's own log; what a command changes of a merchant's is in this one too",
  deliveries: "what was sent, with its attempts; `by_hand` marks what a merchant sent again",
  events: "written by what it reports, which is in the log",
  first_subscriptions: "which subscription of a payer is the first: it follows from their payments",
  checkout_terms: "the metadata of checkouts, whose changes are in the log",
  transaction_terms: "hashes of what checkouts have, whose changes are in the log",
  key_spends: "a count of refunds and returns, which are in the log",
  idempotency_keys: "the answer of a request whose change is in the log",
  persons: "of no merchant; who becomes a member of one is in the log",
  recipient_sets: "an entry of its split has the recipients",
  recipients: "an entry of its split has the recipients",
}

const KEY = "the object of the entry, its merchant or its network"
const TIME = "the entry has the time"
const DECIDED = "only the decision is an entry; the row has the rest, and the object's id leads to it"

/** Columns that no entry has, in any table. */
const everywhere: Record<string, string> = { id: KEY, merchant_id: KEY, created_at: TIME, updated_at: TIME }
/** Columns of audited tables that no entry has. */
const unrecorded: Record<string, Record<string, string>> = {
  members: { person_id: KEY },
  team_invitations: {
    hash: "a secret, which never changes",
    invited_by: "the actor of its entry",
    by_wallet: "follows from the lock",
  },
  payout_addresses: { chain_id: KEY, since: TIME },
  wallet_proofs: { address: KEY },
  branding: { logo: "up to 64 KB; `logo_hash` changes with it" },
  api_keys: {
    hash: "a secret; `last4` changes with it",
    previous_hash: "the same",
    last_used_at: "a use, not a change",
    made_by: "the actor of the entry",
  },
  payment_links: { uses: "a count" },
  splits: { set_id: "the recipients are in the entry" },
  webhooks: { failing_since: "what deliveries found", pulled_at: "when somebody last pulled it" },
  webhook_secrets: { webhook_id: KEY, expires_at: "follows from the next secret" },
  bundles: { version: "a count of changes" },
  bundle_headers: { bundle_id: KEY },
  bundle_routes: { bundle_id: KEY, n: "the order of the list", shape: "follows from the path" },
  surpluses: { payment_id: KEY, transfer_id: DECIDED, deposit_id: DECIDED, token: DECIDED, amount: DECIDED },
  refunds: { payout_id: DECIDED, notified_at: "the engine's" },
}
/** Tables where only decisions have entries. The engine owns all columns that no trigger names. */
const decisions = ["payments", "grants", "payouts", "checkout_sessions", "subscriptions"]

/** Names of columns that could hold a secret. */
const SUSPICIOUS = /secret|sealed|hash|token|password|signature|nonce|private|raw|salt|content|credential/
const harmless: Record<string, string> = {
  "branding.logo_hash": "the public name of the logo",
  "paywalls.content_type": "a word for the kind of content",
}

interface Trigger {
  table: string
  shown: string[]
  hidden: string[]
}

let database: OpenDatabase
let columns: { table: string; column: string }[]
let triggers: Trigger[]
beforeAll(async () => {
  database = await openTestDatabase()
  const found = await sql<{ table: string; column: string }>`
    select table_name as table, column_name as column from information_schema.columns
    where table_schema = 'public' order by 1, ordinal_position`.execute(database.db)
  columns = found.rows
  const { rows } = await sql<{ table: string; name: string; args: string }>`
    select c.relname as table, p.proname as name, encode(t.tgargs, 'escape') as args
    from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
    where p.proname in ('write_audit_entry', 'write_audit_of_routes')`.execute(database.db)
  triggers = rows.map(({ table, name, args }) => {
    if (name === "write_audit_of_routes")
      return { table, shown: ["method", "path", "price", "description"], hidden: [] }
    const [, , shown = "", hidden = ""] = args.split("\\000")
    const list = (names: string) => names.split(",").filter(each => each !== "")
    return { table, shown: list(shown), hidden: list(hidden) }
  })
})
afterAll(() => database.close())

describe("the audit log", () => {
  it("has each table, or a reason why not", () => {
    const audited = new Set(triggers.map(({ table }) => table))
    const tables = new Set(columns.map(({ table }) => table))
    expect([...tables].filter(table => !audited.has(table) && !(table in unaudited))).toEqual([])
    expect(Object.keys(unaudited).filter(table => audited.has(table) || !tables.has(table))).toEqual([])
  })

  it("has each column of these, or a reason why not", () => {
    const missing = columns.filter(({ table, column }) => {
      const own = triggers.filter(trigger => trigger.table === table)
      if (own.length === 0 || decisions.includes(table)) return false
      const recorded = own.some(({ shown, hidden }) => [...shown, ...hidden].includes(column))
      const excused = column in (unrecorded[table] ?? {})
      return recorded ? excused : !excused && !(column in everywhere)
    })
    expect(missing.map(({ table, column }) => `${table}.${column}`)).toEqual([])
  })

  it("names no column that is not there, and shows none that may be secret", () => {
    // What `audited` adds to a row.
    const added = ["recipients", "payout"]
    const known = new Set(columns.map(({ table, column }) => `${table}.${column}`))
    const named = triggers.flatMap(({ table, shown, hidden }) =>
      [...shown, ...hidden].map(column => ({ table, column })),
    )
    expect(named.filter(({ table, column }) => !known.has(`${table}.${column}`) && !added.includes(column))).toEqual([])
    const shown = triggers.flatMap(({ table, shown }) => shown.map(column => `${table}.${column}`))
    expect(shown.filter(name => SUSPICIOUS.test(name.split(".")[1] ?? "") && !(name in harmless))).toEqual([])
    const hidden = triggers.flatMap(({ table, hidden }) => hidden.map(column => `${table}.${column}`))
    expect([...new Set(hidden)].sort()).toEqual([
      "bundle_headers.sealed",
      "paywalls.content_data",
      "paywalls.content_url",
      "webhook_secrets.sealed",
    ])
  })
})
