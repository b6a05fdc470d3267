/**
 * Handles batches that are on chain but not in the database, because an older backup was restored. A batch's calldata
 * contains the ids of its calls, so the batch is written again for those calls that wait here.
 */
import { sql } from "kysely"
import { writeBatch } from "../../ledger/txmanager/write-batches.ts"
import { batchDeployment, callsIn } from "../../platform/chain/authorization-batch.ts"
import { payoutIdIn, withoutId } from "../../platform/chain/release-call.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { SignedTransaction } from "./read-transaction.ts"

/** Returns the payouts without a nonce that a transaction of the relay wallet executes as a batch. */
export async function waitingIn(
  ctx: TxContext,
  wallet: Row<"wallets">,
  { to, data }: SignedTransaction,
): Promise<Row<"payouts">[]> {
  const isBatch = wallet.lane === "relay" && to === batchDeployment.address
  const { token, calls } = (isBatch ? callsIn(withoutId(data)) : undefined) ?? { token: undefined, calls: [] }
  const callOf = new Map(calls.map(call => [payoutIdIn(call), call]))
  if (callOf.size === 0) return []
  const rows = await ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("chain_id", "=", wallet.chain_id)
    .where("state", "in", ["queued", "held"])
    .where(sql<boolean>`id::text = any(${sqlArray("text", callOf.keys())})`)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()
  return rows.filter(({ id, to_address: target, data }) => target === token && callOf.get(id) === data)
}

/**
 * Writes a batch again, with those of its calls that wait here, and returns it in the state `queued`; undefined if
 * none waits. Must be called under the wallet's lock.
 */
export async function writeLostBatch(
  ctx: TxContext,
  wallet: Row<"wallets">,
  transaction: SignedTransaction,
): Promise<Row<"payouts"> | undefined> {
  const [first, ...others] = await waitingIn(ctx, wallet, transaction)
  if (!first) return undefined
  const { data, gas } = transaction
  return await writeBatch(ctx, payoutIdIn(data), [first, ...others], {
    to: batchDeployment.address,
    data: withoutId(data),
    gas,
  })
}
