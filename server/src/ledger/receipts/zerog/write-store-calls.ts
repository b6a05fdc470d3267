/**
 * Writes the calls that pay 0G for files of receipts. Writing these calls needs no node of 0G and no lease, because the
 * row of each file is locked while its call is written.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { Address, Hash } from "../../../platform/chain/hex.ts"
import { type Context, inTransaction, type TxContext } from "../../../platform/context.ts"
import { insertOwnCall } from "../insert-own-call.ts"
import { type File, isDue, postponeWithAlarm, readFile, waitOf } from "./read-file.ts"
import { readPrice } from "./read-price.ts"
import type { Storage } from "./storage.ts"
import { storeData, storeFee, storeKey } from "./store-call.ts"

/** The most files that a round pays for. */
const FILES = 16
/** A call took 525,000 gas for a file of 4 MB. Unused gas costs nothing. */
const GAS = 1_500_000n

/** Runs one round with the wallet that pays, and returns how many milliseconds the next round may wait. */
export async function storeCallsRound(ctx: Context, storage: Storage, submitter: Address): Promise<number> {
  await cancelElsewhere(ctx, storage)
  const { rows } = await sql<{ root: Hash; size: number; tries: number }>`
    select b.root, b.size, b.storage_tries as tries from receipt_batches b
    where ${needsCall(ctx, storage)} order by b.n limit ${FILES}`.execute(ctx.db)
  if (rows.length > 0) await writeCalls(ctx, storage, submitter, rows)
  return ctx.settings.receipts.batchMs
}

/** SQL: whether a call `i` is for the contract that the settings name. */
const isHere = ({ chain: { chainId }, flow }: Storage) =>
  sql<boolean>`i.chain_id = ${chainId} and i.to_address = ${flow}`

const hasEnded = sql<boolean>`i.state in ('reverted', 'cancelled')`

/**
 * SQL: whether a file `b` needs a call now. Either the file has no call at this contract, or its last call there ended
 * without effect a while ago. A call that a person cancelled is not replaced.
 */
const needsCall = (ctx: TxContext, storage: Storage) => sql<boolean>`b.uploaded_at is null and b.stored_at is not null
  and ${isDue(ctx)} and not exists (select from payouts i where i.id = b.storage_id and ${isHere(storage)}
    and (not ${hasEnded} or i.stopped or i.updated_at > ${ctx.now()}::timestamptz - ${waitOf}))`

/**
 * Cancels calls without a nonce that are for a chain or contract other than the one that the settings name, because the
 * settings were corrected.
 */
async function cancelElsewhere(ctx: Context, storage: Storage): Promise<void> {
  // The files of these calls wait as after any call that ended. Otherwise two processes with different settings would
  // keep cancelling each other's calls.
  const { rows } = await sql<{ id: string }>`
    with ended as (update payouts i set state = 'cancelled', held_reason = null, updated_at = ${ctx.now()},
      held_detail = 'the settings name another contract of 0G'
    where i.kind = 'store' and i.lane = 'storage' and i.state in ('queued', 'held') and not (${isHere(storage)}) returning i.id),
      waiting as (update receipt_batches b set storage_tries = storage_tries + 1, storage_run_at = ${ctx.now()}::timestamptz + ${waitOf}
        from ended where b.storage_id = ended.id)
    select id from ended`.execute(ctx.db)
  if (rows.length > 0)
    ctx.log.warn(
      { calls: rows.length },
      "calls for another contract of 0G are cancelled, because the settings name this one",
    )
}

async function writeCalls(
  ctx: Context,
  storage: Storage,
  submitter: Address,
  files: readonly { root: Hash; size: number; tries: number }[],
): Promise<void> {
  const price = await readPrice(ctx, storage)
  if (price === undefined) {
    ctx.log.warn(
      { network: storage.chain.name },
      "too few endpoints of 0G's chain agree on the price, or it is 0; receipts are stored later",
    )
    return
  }
  for (const { root, size, tries } of files) {
    const fault = await payFor(ctx, storage, submitter, price, { root, size }).catch((error: Error) => error.message)
    if (fault !== undefined && !ctx.signal.aborted) await postponeWithAlarm(ctx, { root, tries }, fault)
  }
  await ctx.wakes.wake("payouts")
}

/** Writes the call for a file. If something is wrong with the file, returns a sentence about it. */
async function payFor(
  ctx: Context,
  storage: Storage,
  submitter: Address,
  price: bigint,
  { root, size }: { root: Hash; size: number },
): Promise<string | undefined> {
  const file = await readFile(ctx, root)
  if (typeof file === "string") return file
  if (file.bytes.length !== size) return `the file ${root} has ${file.bytes.length} bytes, and its row says ${size}`
  const fee = storeFee(size, price)
  if (fee > storage.maxFee) return `its fee of ${fee} wei exceeds ZEROG_MAX_FEE`
  await inTransaction(ctx, ctx => writeCall(ctx, storage, { root, file, fee, submitter }))
  return undefined
}

async function writeCall(
  ctx: TxContext,
  storage: Storage,
  { root, file, fee, submitter }: { root: Hash; file: File; fee: bigint; submitter: Address },
): Promise<void> {
  // Another process may have written a call meanwhile. The lock is a separate, earlier statement, because a statement
  // that waits for the lock doesn't see that call.
  await sql`select from receipt_batches where root = ${root} for no key update`.execute(ctx.db)
  const { rows } = await sql<{ merchant_id: string; known: string | null; is_again: boolean }>`
    select (select r.merchant_id from receipts r where r.root = b.root limit 1) as merchant_id,
      (select i.id from payouts i where i.kind = 'store' and i.lane = 'storage' and ${isHere(storage)} and (not ${hasEnded} or i.stopped)
        and starts_with(i.source_key, 'store:' || b.root) order by i.stopped limit 1) as known,
      exists (select from payouts i where i.id = b.storage_id and ${isHere(storage)}) as is_again
    from receipt_batches b where b.root = ${root} and ${needsCall(ctx, storage)}`.execute(ctx.db)
  const [first] = rows
  if (!first) return
  // The settings may name an earlier contract again, where the file's call may still be mined, or was mined already. No
  // file is paid for twice at one contract.
  const id = first.known ?? (await insertCall(ctx, storage, first.merchant_id, { root, file, fee, submitter }))
  await sql`update receipt_batches set storage_id = ${id}, storage_tries = storage_tries + ${first.is_again ? 1 : 0}
    where root = ${root}`.execute(ctx.db)
}

async function insertCall(
  ctx: TxContext,
  { chain: { chainId }, flow }: Storage,
  merchantId: string,
  { root, file, fee, submitter }: { root: Hash; file: File; fee: bigint; submitter: Address },
): Promise<string> {
  const id = randomUUID()
  await insertOwnCall(ctx, {
    id,
    chain_id: chainId,
    kind: "store",
    source_key: storeKey(root, id),
    merchant_id: merchantId,
    recipient: submitter,
    amount: fee,
    value: fee,
    to_address: flow,
    data: storeData(id, file, submitter),
    gas: GAS,
  })
  return id
}
