/**
 * A call of one of the service's wallets that moves no merchant's money. Like any payout, the call is stored before it
 * is sent.
 */
import { ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"

type OwnCall = Pick<
  Row<"payouts">,
  "id" | "chain_id" | "source_key" | "merchant_id" | "recipient" | "amount" | "to_address" | "data" | "gas"
> & { kind: "anchor" | "store" } & Partial<
    Pick<Row<"payouts">, "value" | "state" | "tx_hash" | "block_number" | "block_hash" | "succeeded">
  >

/** Inserts the row of such a call and returns it. The row is `queued` unless `call` has another state. */
export async function insertOwnCall(ctx: TxContext, call: OwnCall): Promise<Row<"payouts">> {
  const now = ctx.now()
  return await ctx.db
    .insertInto("payouts")
    .values({
      state: "queued",
      token: ZERO_ADDRESS,
      reserved: false,
      run_at: dueNow(now),
      created_at: now,
      updated_at: now,
      ...call,
    })
    .returningAll()
    .executeTakeFirstOrThrow()
}
