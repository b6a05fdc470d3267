/** Loads what settling a session needs: its locked row, the transfers that arrived, and what may still arrive. */
import { sql } from "kysely"
import { relayStanding } from "../../ledger/relays/read-relay-status.ts"
import { classify } from "../../ledger/settlement/classify.ts"
import { withoutPublic } from "../../ledger/settlement/find-public-approvals.ts"
import { type Part, type Screened, type StandingPayment, withoutRests } from "../../ledger/settlement/sellable.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { remainingValue } from "../../platform/db/remaining-value.ts"
import type { Row } from "../../platform/db/schema.ts"
import { allColumns, columnsOf } from "../../platform/db/whole-rows.ts"
import { type Batch, holdBatch, readBatch } from "./load-session-batch.ts"
import type { SessionFacts } from "./plan-session.ts"

/** How much later than the expiry the scan's last block must be, because nodes index logs late. */
const SCAN_SLACK_MS = 30_000
/** How long an address is watched again for its last scan. */
const LAST_SCAN_MS = 600_000

/** Everything that arrived for one session, from any sender. */
export interface SessionPart extends Part {
  session: Row<"checkout_sessions">
  deposit: Row<"deposits">
  batch: Batch
}

/** Locks the session's row until the transaction ends. Whoever changes the session's payments holds this lock. */
export const lockSession = (ctx: TxContext, id: string): Promise<Row<"checkout_sessions">> =>
  ctx.db
    .selectFrom("checkout_sessions")
    .modifyFront(sql`/* named: session_to_settle */`)
    .select(columnsOf("checkout_sessions"))
    .where("id", "=", id)
    .forNoKeyUpdate()
    .executeTakeFirstOrThrow()

/** Locks a session and the transfers that one transaction settles. Must be called inside that transaction. */
export async function holdSession(ctx: TxContext, id: string): Promise<SessionPart> {
  const session = await lockSession(ctx, id)
  const deposit = await ctx.db
    .selectFrom("deposits")
    .modifyFront(sql`/* named: deposit_of_session */`)
    .select(columnsOf("deposits"))
    .where("resource_id", "=", id)
    .executeTakeFirstOrThrow()
  const { merchant_id, chain_id } = session
  const network = networkOf(ctx.chain, chain_id)
  const batch = await holdBatch(ctx, deposit, network.token.address)
  const owner = { merchant_id, chain_id, resource_id: id }
  return { owner, network, payer: undefined, session, deposit, batch, standing: await decidedPayments(ctx, id) }
}

/** The session's payments that the merchant accepted or returned. The rules of the session don't count them again. */
async function decidedPayments(ctx: TxContext, sessionId: string): Promise<StandingPayment[]> {
  const { rows } = await sql<StandingPayment>`
    /* named: decided_payments */ select ${allColumns("p", "payments")}, has.there, has.sure from payments p join lateral (
      select coalesce(sum(${remainingValue}) filter (where t.state <> 'gone'), 0) as there,
        coalesce(sum(${remainingValue}) filter (where t.state in ('confirmed', 'final') and t.suspect_at is null
          and not t.single_source), 0) as sure
      from claims c join transfers t on t.id = c.transfer_id where c.payment_id = p.id having count(*) > 0) has on true
    where p.resource_id = ${sessionId} and (p.accepted_at is not null or p.status = 'returned') order by p.id`.execute(
    ctx.db,
  )
  return rows
}

/** Reads the facts of a locked session. The results of a reorg must already be written. */
export async function loadSession(ctx: TxContext, part: SessionPart, screened: Screened): Promise<SessionFacts> {
  const { session, deposit, network, batch } = part
  const { free, again } = await withoutPublic(ctx, withoutRests(await readBatch(ctx, batch)))
  const payments = await paymentsOf(ctx, session.id)
  return {
    session,
    network,
    transfers: classify(ctx, network, free, screened),
    again,
    payments,
    returnedSurplus: await returnedSurplusOf(ctx, payments),
    submissions: await submissionsOf(ctx, session, deposit, network.token.address),
    decided: await decidedSubmissions(ctx, session.id, deposit),
    relay: await relayStanding(ctx, deposit, network.token.address),
    // An expired session was scanned to its end, even if its address has left the scan since.
    scannedPastExpiry: session.status === "expired" || (await scannedPast(ctx, session, deposit)),
    isMore: batch.isMore,
    now: ctx.now(),
  }
}

/**
 * The session's payments that count or may count again, in creation order. Open payments that lost their transfers are
 * left out; a flood of transfers leaves such payments behind.
 */
export async function paymentsOf(ctx: TxContext, sessionId: string): Promise<Row<"payments">[]> {
  const all = ctx.db
    .selectFrom("payments")
    .modifyFront(sql`/* named: payments_of_session */`)
    .select(columnsOf("payments"))
    .where("resource_id", "=", sessionId)
  const counting = all.where(eb =>
    eb.or([eb("status", "<>", "reversed"), eb("accepted_at", "is not", null), eb("exception", "is", null)]),
  )
  return await counting.orderBy("created_at").orderBy("id").execute()
}

/** The returned surplus of whichever of these payments pays the session, in base units. */
async function returnedSurplusOf(ctx: TxContext, payments: readonly Row<"payments">[]): Promise<bigint> {
  const paid = payments.find(({ status, beside }) => !beside && status === "granted")
  // Most sessions are settled before they are paid.
  if (!paid) return 0n
  const surplus = ctx.db.selectFrom("surpluses").select("amount").where("payment_id", "=", paid.id)
  return (await surplus.where("state", "=", "returned").executeTakeFirst())?.amount ?? 0n
}

/**
 * `open`: whether a hash that was submitted in time, and has no transfer here yet, is still being verified.
 * `refused`: whether any hash was refused. A refusal ends only its submission, which the status answer shows; the
 * session continues. Once money arrives, the submission of its hash is done, whatever happens to the money.
 */
async function submissionsOf(
  ctx: TxContext,
  { id, expires_at }: Row<"checkout_sessions">,
  { address }: Row<"deposits">,
  token: Address,
): Promise<SessionFacts["submissions"]> {
  const { rows } = await sql<SessionFacts["submissions"]>`
    /* named: submissions_of_session */ select coalesce(bool_or(s.status = 'failed'), false) as refused, coalesce(bool_or(
        case when s.status = 'verifying' and s.submitted_at <= ${expires_at} then not exists (select from transfers t
          where t.chain_id = s.chain_id and t.tx_hash = s.tx_hash and t.token = ${token} and t.to_address = ${address}
            and t.state <> 'gone') end), false) as open
    from submissions s where s.resource_id = ${id}`.execute(ctx.db)
  return rows[0] ?? { open: false, refused: false }
}

/**
 * The submitted transactions whose money the merchant returned, or accepted in addition to the session's payment.
 * Nothing else would end a later submission that names one of them.
 */
async function decidedSubmissions(ctx: TxContext, sessionId: string, { address }: Row<"deposits">): Promise<Hash[]> {
  const { rows } = await sql<{
    hash: Hash
  }>`/* named: decided_submissions */ select s.tx_hash as hash from submissions s
    where s.resource_id = ${sessionId} and s.status <> 'granted' and exists (select from transfers t
        join claims c on c.transfer_id = t.id join payments p on p.id = c.payment_id
      where t.chain_id = s.chain_id and t.tx_hash = s.tx_hash and t.to_address = ${address}
        and t.state in ('confirmed', 'final') and t.suspect_at is null
        and (p.status = 'returned' or (p.status = 'granted' and p.beside)))`.execute(ctx.db)
  return rows.map(({ hash }) => hash)
}

/**
 * Whether everything mined by the expiry has been scanned: the last block that was certainly read is later than the
 * expiry. Our own clock can't tell: the scan may lag, and a stalled chain may later produce blocks with earlier
 * times, as rollups do. Nothing expires on a chain without new blocks, and its next block lets everything that is due
 * expire. An address that left the scan is watched again for one last scan. Otherwise, only the hourly check would
 * find a payment made without the page.
 */
async function scannedPast(
  ctx: TxContext,
  session: Row<"checkout_sessions">,
  deposit: Row<"deposits">,
): Promise<boolean> {
  const seenAll = session.expires_at.getTime() + SCAN_SLACK_MS
  if (ctx.now() <= session.expires_at) return false
  if (deposit.watched && deposit.watched_number === null) {
    const cursor = await ctx.db
      .selectFrom("cursors")
      .select("block_time")
      .where("chain_id", "=", session.chain_id)
      .executeTakeFirst()
    return (cursor?.block_time?.getTime() ?? 0) > seenAll
  }
  await ctx.db
    .updateTable("deposits")
    .set({ watched: true, watched_until: new Date(ctx.now().getTime() + LAST_SCAN_MS) })
    .where("id", "=", deposit.id)
    .execute()
  return false
}
