/**
 * Handles calls that paid 0G for a file of receipts and have no row in which they can be recorded. An older backup
 * was restored, and the row was lost or has been cancelled. A cancelled row never changes, so such a call gets a new
 * one.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { insertOwnCall } from "../../ledger/receipts/insert-own-call.ts"
import { readFile } from "../../ledger/receipts/zerog/read-file.ts"
import { storeData, storeKey } from "../../ledger/receipts/zerog/store-call.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { marked, withoutId } from "../../platform/chain/release-call.ts"
import type { Receipt } from "../../platform/chain/transfers.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { SignedTransaction } from "./read-transaction.ts"

/** A transaction that paid for a file, as its calldata proves. */
export interface LostStore {
  root: Hash
  /** Another call for the same file. */
  like: Row<"payouts">
}

/** The file for which a wallet's transaction paid 0G; undefined if it paid for none of ours. */
export async function lostStoreOf(
  ctx: TxContext,
  wallet: Row<"wallets">,
  { to, data, value }: SignedTransaction,
  { succeeded }: Receipt,
): Promise<LostStore | undefined> {
  const call = withoutId(data)
  if (wallet.lane !== "storage" || !succeeded || to === null || value === 0n || call === "0x") return undefined
  const like = await ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("chain_id", "=", wallet.chain_id)
    .where("kind", "=", "store")
    .where("to_address", "=", to)
    .where(sql<boolean>`left(data, ${call.length}) = ${call}`)
    .where(sql<boolean>`length(data) = ${data.length}`)
    .orderBy("created_at")
    .limit(1)
    .executeTakeFirst()
  const root = like?.source_key.split(":")[1] as Hash | undefined
  if (!like || root === undefined) return undefined
  const file = await readFile(ctx, root)
  const isOurs = typeof file !== "string" && withoutId(storeData(like.id, file, like.recipient)) === call
  return isOurs ? { root, like } : undefined
}

/**
 * Writes the row of such a transaction, so that it pays for the file instead of the calls that wait. The row is
 * queued. With `receipt`, the row is final and has no nonce, because another payout has the nonce. Must be called
 * under the wallet's lock.
 */
export async function writeLostStore(
  ctx: TxContext,
  { root, like }: LostStore,
  { value, hash }: SignedTransaction,
  receipt?: Receipt,
): Promise<Row<"payouts">> {
  await sql`select from receipt_batches where root = ${root} for no key update`.execute(ctx.db)
  const id = randomUUID()
  const { chain_id, merchant_id, recipient, to_address, gas } = like
  const mined = receipt && {
    tx_hash: hash,
    block_number: receipt.blockNumber,
    block_hash: receipt.blockHash,
    succeeded: true,
  }
  await sql`update payouts i set state = 'cancelled', held_reason = null, held_detail = 'another call paid for its receipts',
      updated_at = ${ctx.now()}
    where i.kind = 'store' and i.lane = 'storage' and i.chain_id = ${chain_id} and i.to_address = ${to_address}
      and i.state in ('queued', 'held') and starts_with(i.source_key, 'store:' || ${root})`.execute(ctx.db)
  const row = await insertOwnCall(ctx, {
    id,
    chain_id,
    kind: "store",
    source_key: storeKey(root, id),
    merchant_id,
    recipient,
    amount: value,
    value,
    to_address,
    data: marked(withoutId(like.data as Hash), id),
    gas,
    state: receipt ? "final" : "queued",
    ...mined,
  })
  await ctx.db
    .updateTable("receipt_batches")
    .set({ storage_id: id })
    .where("root", "=", root)
    .where("uploaded_at", "is", null)
    .execute()
  return row
}
