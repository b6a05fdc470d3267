/**
 * Which tests run on which database. A test file runs on Postgres, unless it is named here: production runs on Postgres, and
 * a test takes half of the CPU there. Where no Postgres is at hand everything runs on the embedded database.
 */

/** They see no Postgres: they start programs and give each its database, use none, or open the embedded one by themselves. */
export const ownDatabase = [
  "server/test/chaos/**/*.test.ts",
  "server/test/e2e/**/*.test.ts",
  "cli/**/*.test.ts",
  "contracts/**/*.test.ts",
  "server/src/platform/db/migrations.test.ts",
]

/**
 * They run on the embedded database too, for the reason beside each. It is Postgres compiled to WebAssembly and answers a
 * statement alike. What differs is around it: everything shares one connection, on which transactions wait for each other;
 * its own driver parses types, notifies and reports errors. Each feature with statements has a file here, which
 * `tidy.test.ts` holds. Its folder, lock and recovery are tested by the programs of `e2e`.
 */
export const onBoth: Record<string, string> = {
  "server/src/platform/db/db.test.ts": "int8 and numeric by its driver, rollback, many transactions at once",
  "server/src/platform/db/migrated.test.ts": "the rows of an older version, and the service that goes on with them",
  "server/src/platform/db/schema.test.ts": "what its driver answers for each column",
  "server/src/platform/db/sql-array.test.ts": "arrays as parameters",
  "server/src/platform/context.test.ts": "an error in a transaction",
  "server/src/platform/jobs/jobs.test.ts": "leases, wakes, and rivals on one connection",
  "server/src/platform/http/run-idempotently.test.ts": "a key that many requests bring at once, on one connection",
  "server/src/products/subscriptions/advance-subscriptions.test.ts":
    "intervals and nulls as it reads them, and four jobs on one connection",
  "server/src/ledger/settlement/settle.test.ts": "many settle one transfer at once, on one connection",
  "server/src/account/listeners/listeners.test.ts": "several pull one listener at once, on one connection",
  "server/src/products/changes/changes.test.ts": "numbers of transactions, and their bounds, as its driver reads them",
  "server/src/products/notices/notices.test.ts": "what joins laterally and reads JSON, as its driver answers",
  "server/src/account/notifications/mail.test.ts": "mails that are claimed and sent, on one connection",
  "server/src/account/requests/requests.test.ts": "batches of JSON with times, written beside the answers",
  "server/src/account/webhooks/claim-deliveries.test.ts": "rivals deliver the same events, on one connection",
  "server/src/products/x402/verify-and-settle.test.ts": "fifty settle one payment at once, on one connection",
  "server/src/account/identity/identity.test.ts": "first tokens at once make one merchant",
  "server/src/account/sessions/sessions.test.ts": "sessions that many requests read, and rows that end",
  "server/src/account/devices/devices.test.ts": "codes that are typed at once, and a key that is asked for at once",
  "server/src/account/team/team.test.ts": "invitations and changes of roles at once leave an owner",
  "server/src/products/checkouts/splits.test.ts": "a checkout from its session to its payouts and events",
  "server/src/ledger/payouts/hostile.test.ts": "payouts, held ones, and tokens that emit nothing",
  "server/src/ledger/relays/one-endpoint.test.ts": "payouts, relays, and what is held",
  "server/src/ledger/txmanager/pick-due.test.ts": "whose turn it is, by literals that an index repeats",
  "server/src/products/escrow/create-escrow.test.ts": "reservations, and the states that the database refuses",
  "server/src/ledger/deposits/move-deposits.test.ts": "addresses that replace others",
  "server/src/products/paywalls/routes.test.ts": "submissions, and exact answers of the API",
  "server/src/products/subscriptions/subscriber-routes.test.ts": "what a subscriber sees, exactly",
  "server/src/products/proxy/console-routes.test.ts": "a slug that several ask for at once, on one connection",
  "server/src/ledger/splits/routes.test.ts": "lists of rows in one answer",
  "server/src/account/audit/audit.test.ts": "who acts in a transaction, on one connection that all share",
  "server/src/products/insight/overview.test.ts":
    "sums, time zones and arrays of times as it reads them, and two that fold at once",
  "server/src/ledger/books/read-books.test.ts": "sums and times of what moved, in files too",
  "server/src/products/insight/search.test.ts": "each form of a search, and the fields of metadata that triggers keep",
  "server/src/ledger/receipts/make-batches.test.ts":
    "bytes and JSON as it reads them, and two that make batches at once",
  "server/src/ledger/rates/rates.test.ts": "rates as numeric, by time zones of its own, and what is stored at once",
  "server/src/products/erasure/erasure.test.ts": "JSON and bytes that an erasure rewrites, on one connection",
  "server/src/products/settings/change-branding.test.ts": "settings of a merchant as one document",
  "server/src/products/settings/change-settings.test.ts": "the time zones that its database knows",
  "server/src/products/mcp/mcp.test.ts": "payments that an assistant returns at once under one cap, on one connection",
  "server/src/platform/http/write-csv-lines.test.ts": "what it makes of numeric, times and text in long files",
}
