/** The state of a checkout as its payer sees it. */
import type { Hash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import { payTosOf, sessionOf, shownOf } from "./create-session.ts"

/** What `GET /api/pay/status/:id` answers; `SESSION_NOT_FOUND`. `txHash` names the submission to report, by default the newest. */
export async function statusOf(ctx: Context, id: string, txHash?: Hash) {
  const session = await sessionOf(ctx, id)
  const payTo = (await payTosOf(ctx, [id])).get(id)
  if (!payTo) throw new Error("a session has no receiving address")
  const { confirmations } = networkOf(ctx.chain, session.chain_id)
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
  const depth = newest === undefined ? 0n : BigInt(newest.above) + 1n
  const shown = shownOf(ctx, session, payTo)
  const { payTo: shownPayTo, ...withoutPayTo } = shown
  return {
    sessionId: id,
    ...withoutPayTo,
    ...(shown.paused ? {} : { payTo: shownPayTo }),
    redirectUrl: session.status === "confirmed" ? shown.redirectUrl : null,
    payerFields: session.payer_fields ?? [],
    confirmations: Number(depth < 0n ? 0n : depth),
    requiredConfirmations: Number(confirmations),
    submission: await submissionOf(ctx, id, txHash),
  }
}

/** The submission of this hash, or else the newest; null where there is none. */
async function submissionOf(ctx: Context, sessionId: string, txHash: Hash | undefined) {
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
