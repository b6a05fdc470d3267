/**
 * Writes the first claims of payments, each with its relay. Concurrent claims share a transaction, so that ten cost
 * as much as one.
 */
import { type RawBuilder, sql } from "kysely"
import { type RelayRow, writeRelays } from "../../ledger/relays/accept-relay.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import { DatabaseUnavailable } from "../../platform/db/pool.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { traced } from "../../platform/tracing/trace.ts"
import { LEASE_S } from "./lease-settlement.ts"
import { settlementColumns } from "./settlement-columns.ts"

/** The rows of a payment and of its relay. */
export interface NewClaim {
  relay: RelayRow
  settlement: FirstClaim
}

/** The columns of a payment's row that its first claim sets. The database computes the row's block height and lease. */
type FirstClaim = Pick<
  Row<"settlements">,
  | ("id" | "merchant_id" | "chain_id" | "token" | "payer" | "nonce" | "digest" | "pay_to" | "amount" | "valid_before")
  | ("resource_id" | "binding" | "payload_hash" | "identifier" | "payout_id" | "claim_id" | "caller")
  | ("created_at" | "updated_at")
>

/**
 * How writing a claim ended: with the claim's row, as `lost` to a faster request, with an error, or with the need to
 * write it `alone`.
 */
type Written = { row: Row<"settlements"> } | { lost: true } | { error: unknown } | { alone: true }

/** The most claims per transaction. With more claims, a statement would have too many values. */
const CLAIMS_AT_ONCE = 100
/**
 * How long claims in one transaction wait for a lock. If another process holds the lock of one claim, the others wait
 * too.
 */
const SHARED_LOCK_MS = 250

/** Writes a payment's claim and relay, both or neither; undefined if another request was faster. */
export async function writeFirstClaim(ctx: Context, claim: NewClaim): Promise<Row<"settlements"> | undefined> {
  const together = (await gathered(ctx, claim)) ?? { lost: true }
  // A claim that is written alone waits only for its own lock, and its fault affects no others.
  const written = "alone" in together ? await writeAlone(ctx, claim) : together
  if ("error" in written) throw written.error
  return "row" in written ? written.row : undefined
}

const gathered = gatherBy(async (ctx: Context, claims: readonly NewClaim[]): Promise<Map<NewClaim, Written>> => {
  const written = new Map<NewClaim, Written>()
  for (let start = 0; start < claims.length; start += CLAIMS_AT_ONCE)
    for (const [claim, each] of await writeSome(ctx, claims.slice(start, start + CLAIMS_AT_ONCE)))
      written.set(claim, each)
  return written
})

async function writeSome(ctx: Context, claims: readonly NewClaim[]): Promise<Map<NewClaim, Written>> {
  const each = (end: Written) => new Map(claims.map((claim): [NewClaim, Written] => [claim, end]))
  const [only] = claims
  if (only && claims.length === 1) return each(await writeAlone(ctx, only))
  const links = claims.flatMap(({ relay }) => relay.traceparent ?? [])
  try {
    return await traced(ctx, "claim payments", { parent: null, links }, () =>
      inTransaction(ctx, async ctx => {
        await sql`select set_config('lock_timeout', ${`${SHARED_LOCK_MS}`}, true)`.execute(ctx.db)
        return await writeAll(ctx, claims)
      }),
    )
  } catch (error) {
    return each(isOfOne(error) ? { alone: true } : { error })
  }
}

async function writeAlone(ctx: Context, claim: NewClaim): Promise<Written> {
  try {
    return (await inTransaction(ctx, ctx => writeAll(ctx, [claim]))).get(claim) ?? { lost: true }
  } catch (error) {
    return error === forestalled ? { lost: true } : { error }
  }
}

/**
 * Whether a single claim can be the cause: its row exists, another transaction holds it, or the database refuses its
 * values. A database that is down would refuse each claim alone too, and only after an equally long wait for each.
 */
function isOfOne(error: unknown): boolean {
  const codeOf = (of: unknown) => `${(of as { code?: unknown } | undefined)?.code ?? ""}`
  const cause = error instanceof DatabaseUnavailable ? codeOf(error.cause) : ""
  return error === forestalled || cause === LOCK_NOT_AVAILABLE || /^(22|23|40P01$|P0001$)/.test(codeOf(error))
}

/** The Postgres error code when `lock_timeout` ended the wait for a lock. */
const LOCK_NOT_AVAILABLE = "55P03"

/**
 * The order in which relays and claims are written: by the unique keys for which each table's rows wait. So two
 * processes that write claims with the same nonces or identifiers don't deadlock. A transaction that waits for an
 * identifier already holds all of its nonces.
 */
const relayOrder = ({ settlement: { chain_id, token, payer, nonce } }: NewClaim): string =>
  [chain_id, token, payer, nonce].join(" ")
const claimOrder = (claim: NewClaim): string => `${claim.settlement.identifier ?? ""} ${relayOrder(claim)}`

const ordered = (claims: readonly NewClaim[], by: (claim: NewClaim) => string): NewClaim[] =>
  [...claims].sort((a, b) => (by(a) < by(b) ? -1 : 1))

/** Thrown if the relay was written but its claim was not, so that neither stays. */
const forestalled = new Error("another request was quicker")

async function writeAll(ctx: TxContext, claims: readonly NewClaim[]): Promise<Map<NewClaim, Written>> {
  const made = await writeRelays(
    ctx,
    ordered(claims, relayOrder).map(({ relay }) => relay),
  )
  const ours = ordered(claims, claimOrder).filter(({ relay }) => made.has(relay.id))
  const rows = ours.length === 0 ? [] : await insertClaims(ctx, ours)
  if (rows.length < ours.length) throw forestalled
  const byPayout = new Map(rows.map(row => [row.payout_id, row]))
  return new Map(
    claims.map((claim): [NewClaim, Written] => {
      const row = byPayout.get(claim.relay.id)
      return [claim, row ? { row } : { lost: true }]
    }),
  )
}

/** SQL: the height up to which a network is scanned at the time of the insert; 0 before the first scan. */
export const scannedOf = (chainId: RawBuilder<unknown>) =>
  sql<bigint>`coalesce((select block_number from cursors where chain_id = ${chainId}), 0)`

const COLUMNS = `id text, merchant_id text, chain_id integer, token text, payer text, nonce text, digest text, pay_to text,
  amount numeric, valid_before bigint, resource_id text, binding text, payload_hash text, identifier text, payout_id uuid,
  claim_id uuid, caller text, created_at timestamptz, updated_at timestamptz`
const NAMES = COLUMNS.replace(/ \w+(,|$)/g, "$1")

/** Inserts claims in the given order. Returns the rows that did not exist before. */
async function insertClaims(ctx: TxContext, claims: readonly NewClaim[]): Promise<Row<"settlements">[]> {
  const rows = claims.map(({ settlement }, n) => ({
    ...settlement,
    n,
    amount: `${settlement.amount}`,
    valid_before: `${settlement.valid_before}`,
  }))
  const written = await sql<Row<"settlements">>`
    /* named: write_claims */ insert into settlements as s (${sql.raw(NAMES)}, from_block, lease_until)
    select ${sql.raw(NAMES)}, ${scannedOf(sql`g.chain_id`)}, clock_timestamp() + make_interval(secs => ${LEASE_S})
    from (${rowsParameter(rows, `n integer, ${COLUMNS}`)}) g order by n
    on conflict do nothing returning ${settlementColumns}`.execute(ctx.db)
  return written.rows
}
