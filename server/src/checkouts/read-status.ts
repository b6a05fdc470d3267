/** The state of a checkout as its payer sees it. */
import type { Hash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import { paidStatuses, shownToPayer } from "../escrow/show-escrow.ts"
import { sessionOf } from "./create-session.ts"
import { paidAtOf, shownOf } from "./show-session.ts"

/**
 * The answer of `GET /api/pay/status/:id`; `SESSION_NOT_FOUND`. `txHash` names the submission to report, by default the
 * newest.
 */
export async function statusOf(ctx: TxContext, id: string, txHash?: Hash) {
  const session = await sessionOf(ctx, id)
  const paidAt = (await paidAtOf(ctx, [session])).get(id)
  if (!paidAt) throw new Error("a session has no receiving address")
  const network = networkOf(ctx.chain, session.chain_id)
  const { confirmations } = network
  const depth = await (paidAt.escrow ? depthOfCall(ctx, id) : depthOfTransfer(ctx, id))
  const shown = shownOf(ctx, session, paidAt)
  const { payTo, ...withoutPayTo } = shown
  const { escrow, paused } = paidAt
  const isDone = paidStatuses.includes(session.status)
  return {
    sessionId: id,
    ...withoutPayTo,
    ...(paused || payTo === null ? {} : { payTo }),
    capture: session.capture,
    ...(escrow ? shownToPayer(network, session, escrow, { payable: !paused && ctx.now() < session.expires_at }) : {}),
    redirectUrl: isDone ? shown.redirectUrl : null,
    payerFields: session.payer_fields ?? [],
    confirmations: Number(depth < 0n ? 0n : depth),
    requiredConfirmations: Number(confirmations),
    submission: await submissionOf(ctx, id, txHash),
  }
}

/** The depth of a session's newest transfer, its own block counted; 0 without one. */
async function depthOfTransfer(ctx: TxContext, id: string): Promise<bigint> {
  const newest = await ctx.db
    .selectFrom("transfers")
    .innerJoin("deposits", "deposits.id", "transfers.deposit_id")
    .innerJoin("cursors", "cursors.chain_id", "transfers.chain_id")
    .select(eb => eb(eb.ref("cursors.block_number"), "-", eb.ref("transfers.block_number")).as("above"))
    .where("deposits.resource_id", "=", id)
    .where("transfers.state", "<>", "gone")
    .orderBy("transfers.block_number", "desc")
    .limit(1)
    .executeTakeFirst()
  return newest === undefined ? 0n : BigInt(newest.above) + 1n
}

/** The depth of the reservation of a session's escrow; 0 without one. */
async function depthOfCall(ctx: TxContext, id: string): Promise<bigint> {
  const newest = await ctx.db
    .selectFrom("payouts")
    .innerJoin("cursors", "cursors.chain_id", "payouts.chain_id")
    .select(eb => eb(eb.ref("cursors.block_number"), "-", eb.ref("payouts.block_number")).as("above"))
    .where("payouts.escrow_id", "=", id)
    .where("payouts.kind", "=", "reserve")
    .where("payouts.succeeded", "=", true)
    .limit(1)
    .executeTakeFirst()
  return newest === undefined || newest.above === null ? 0n : BigInt(newest.above) + 1n
}

/** The submission of this hash, or else the newest; null where there is none. */
async function submissionOf(ctx: TxContext, sessionId: string, txHash: Hash | undefined) {
  const row = await ctx.db
    .selectFrom("submissions")
    .select(["tx_hash", "status", "reason", "message"])
    .where("resource_id", "=", sessionId)
    .$if(txHash !== undefined, query => query.where("tx_hash", "=", txHash as Hash))
    .orderBy("submitted_at", "desc")
    .orderBy("id", "desc")
    .limit(1)
    .executeTakeFirst()
  return row ? { txHash: row.tx_hash, status: row.status, reason: row.reason, message: row.message } : null
}
