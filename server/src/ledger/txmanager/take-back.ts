/** Returns a mined payout to `assigned` after a reorg displaced its block. The payout's bytes are then sent again. */
import { sql } from "kysely"
import { type Context, inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"

/**
 * Makes a payout without a receipt `assigned` again because its block was displaced. A trigger does the same for the
 * calls of a batch. Returns 1 if the payout changed, otherwise 0.
 */
export async function takeBack(
  ctx: Context,
  row: Pick<Row<"payouts">, "id" | "nonce" | "block_hash" | "tx_hash">,
): Promise<number> {
  ctx.log.warn({ payoutId: row.id, nonce: `${row.nonce}` }, "the block of a payout was displaced; the payout is resent")
  return await inTransaction(ctx, async ctx => {
    const back = await ctx.db
      .updateTable("payouts")
      .set({
        state: "assigned",
        tx_hash: null,
        block_number: null,
        block_hash: null,
        succeeded: null,
        transfer_missing_at: null,
        gas_cost: null,
        gas_cost_at: null,
        updated_at: ctx.now(),
      })
      .where("id", "=", row.id)
      .where("state", "=", "mined")
      .where("block_hash", "=", row.block_hash)
      .executeTakeFirst()
    // A transaction that was in a block was sent, even if its process died before it recorded the broadcast.
    const sends = sql<number>`case when hash = ${row.tx_hash} then greatest(sends, 1) else sends end`
    await ctx.db
      .updateTable("transaction_attempts")
      .set({ sent_at: null, sends })
      .where("payout_id", "=", row.id)
      .execute()
    return back.numUpdatedRows > 0n ? 1 : 0
  })
}
