/** What settling a session has to know: its row, locked, what arrived, and what may still come. */
import { sql } from "kysely"
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { relayStanding } from "../payouts/relay-standing.ts"
import { classify } from "../settlement/classify.ts"
import { withoutPublic } from "../settlement/public-approval.ts"
import type { Part, Screened, Standing } from "../settlement/sellable.ts"
import type { SessionFacts } from "./plan-session.ts"
import { type Batch, holdBatch, readBatch } from "./session-batch.ts"

/** Nodes put logs into their index late: the scan has to be so far beyond the expiry, by the time of its last block. */
const LOOK_SLACK_MS = 30_000
/** How long an address that is scanned once more before its session expires stays in the scan. */
const LAST_SCAN_MS = 600_000

/** All that arrived for one session, whoever sent it. */
export interface SessionPart extends Part {
  session: Row<"checkout_sessions">
  deposit: Row<"deposits">
  batch: Batch
}

/** The session's row, held until the transaction ends: whoever changes its payments holds it. */
export const lockSession = (ctx: TxContext, id: string): Promise<Row<"checkout_sessions">> =>
  ctx.db.selectFrom("checkout_sessions").selectAll().where("id", "=", id).forNoKeyUpdate().executeTakeFirstOrThrow()

/** Locks a session and the transfers that one transaction settles of it; call it inside that transaction. */
export async function holdSession(ctx: TxContext, id: string): Promise<SessionPart> {
  const session = await lockSession(ctx, id)
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", id)
    .executeTakeFirstOrThrow()
  const { merchant_id, chain_id } = session
  const network = networkOf(ctx.chain, chain_id)
  const batch = await holdBatch(ctx, deposit, network.token.address)
  const owner = { merchant_id, chain_id, resource_id: id }
  return { owner, network, payer: undefined, session, deposit, batch, standing: await decidedPayments(ctx, id) }
}

/** The session's payments that the merchant has accepted or returned: no rule of the session counts them again. */
async function decidedPayments(ctx: TxContext, sessionId: string): Promise<Standing[]> {
  const { rows } = await sql<Standing>`
    select p.*, has.there, has.sure from payments p join lateral (
      select coalesce(sum(t.value) filter (where t.state <> 'gone'), 0) as there,
        coalesce(sum(t.value) filter (where t.state in ('confirmed', 'final') and t.suspect_at is null
          and not t.single_source), 0) as sure
      from claims c join transfers t on t.id = c.transfer_id where c.payment_id = p.id having count(*) > 0) has on true
    where p.resource_id = ${sessionId} and (p.accepted_at is not null or p.status = 'returned') order by p.id`.execute(
    ctx.db,
  )
  return rows
}

/** Reads what is known of a session that is held, after what a reorg removed was written. */
export async function loadSession(ctx: TxContext, part: SessionPart, screened: Screened): Promise<SessionFacts> {
  const { session, deposit, network, batch } = part
  const rows = await readBatch(ctx, batch)
  const { free, again } = await withoutPublic(ctx, rows)
  const payments = await ctx.db
    .selectFrom("payments")
    .selectAll()
    .where("resource_id", "=", session.id)
    .orderBy("created_at")
    .orderBy("id")
    .execute()
  // Whatever becomes of money that is here, what brought it is over: a hash, a relay.
  const here = rows.filter(row => row.state !== "gone" && row.token === network.token.address)
  const arrived = new Set(here.map(row => row.tx_hash))
  return {
    session,
    network,
    transfers: classify(ctx, network, free, screened),
    again,
    payments,
    submissions: await submissionsOf(ctx, session, arrived),
    relay: await relayStanding(ctx, deposit.id, arrived),
    // What has expired was scanned to its end; that its address has left the scan since changes nothing.
    lookedPastExpiry:
      session.status === "expired" || (batch.waiting === 0 && (await lookedPast(ctx, session, deposit))),
    left: batch.waiting,
    now: ctx.now(),
  }
}

/**
 * Whether a hash that was submitted in time, other than those that are in sight, is still looked at; and whether any was
 * refused. A refusal is a fact about its submission: the status answer has it, and the session goes on.
 */
async function submissionsOf(ctx: TxContext, session: Row<"checkout_sessions">, inSight: ReadonlySet<string>) {
  const rows = await ctx.db
    .selectFrom("submissions")
    .select(["tx_hash", "status", "submitted_at"])
    .where("resource_id", "=", session.id)
    .execute()
  const open = rows.some(
    row => row.status === "verifying" && row.submitted_at <= session.expires_at && !inSight.has(row.tx_hash),
  )
  return { open, refused: rows.some(row => row.status === "failed") }
}

/**
 * Whether everything mined by the expiry has been scanned: the last block that the scan has surely read was made after
 * it. No clock of ours says so: the scan may stand still, and a chain that does may make blocks of an earlier time
 * afterwards, as rollups do. So on a chain without new blocks nothing expires; its next block ends what is over. An address
 * that has left the scan comes back for this last look: who pays from elsewhere, without the page, is found only by the hour
 * otherwise.
 */
async function lookedPast(
  ctx: TxContext,
  session: Row<"checkout_sessions">,
  deposit: Row<"deposits">,
): Promise<boolean> {
  const seenAll = session.expires_at.getTime() + LOOK_SLACK_MS
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
