/**
 * Brings files of receipts to 0G: writes the call that pays for each, and once that is final, uploads the file and has the
 * nodes prove that they have it. A file stays in our own store too, so nothing here is in a hurry.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { decodeFunctionResult, encodeFunctionData } from "viem"
import { type Address, type Hash, parseAddress, ZERO_ADDRESS } from "../../../platform/chain/hex.ts"
import type { RpcCall } from "../../../platform/chain/rpc.ts"
import { type Context, inTransaction, type TxContext } from "../../../platform/context.ts"
import { withLease } from "../../../platform/jobs/claim.ts"
import { dueNow } from "../../../platform/jobs/due-now.ts"
import { askEach } from "../../txmanager/simulate-on-each.ts"
import { readBatch } from "../store-batches.ts"
import { uploadFile } from "./send-file.ts"
import type { Storage } from "./storage.ts"
import { storeData, storeFee } from "./store-call.ts"
import { flowAbi } from "./submission.ts"

const LEASE_MS = 120_000
/** How many files a round pays for, and uploads. */
const FILES = 16
/** A call took 525,000 for a file of 4 MB; what is not used costs nothing. */
const GAS = 1_500_000n

/** One round, with the wallet that pays; returns how many milliseconds the next may wait. */
export async function storageRound(ctx: Context, storage: Storage, wallet: Address): Promise<number> {
  const { chainId } = storage.chain
  const now = ctx.now()
  await ctx.db
    .insertInto("receipt_rounds")
    .values({ chain_id: chainId, run_at: now })
    .onConflict(conflict => conflict.doNothing())
    .execute()
  const nextRunAt = new Date(now.getTime() + ctx.settings.receipts.batchMs)
  const job = { table: "receipt_rounds", only: chainId, leaseMs: LEASE_MS, now, nextRunAt } as const
  await withLease(ctx.db, job, async () => {
    await writeCalls(ctx, storage, wallet)
    await uploadPaid(ctx, storage)
  })
  return ctx.settings.receipts.batchMs
}

/** SQL: whether a file `b` needs a call: it has none, or its last one ended without effect. */
const needsCall = sql<boolean>`b.uploaded_at is null and b.stored_at is not null and (b.storage_id is null
  or exists (select from payouts i where i.id = b.storage_id and i.state in ('reverted', 'cancelled')))`

/** Pays for files that nobody has paid for, at today's price. */
async function writeCalls(ctx: Context, storage: Storage, submitter: Address): Promise<void> {
  const { rows } = await sql<{ root: Hash }>`
    select b.root from receipt_batches b where ${needsCall} order by b.n limit ${FILES}`.execute(ctx.db)
  if (rows.length === 0) return
  const price = await readPrice(ctx, storage)
  if (price === undefined) {
    ctx.log.warn(
      { network: storage.chain.name },
      "the nodes of 0G's chain do not agree on the price; receipts are stored later",
    )
    return
  }
  for (const { root } of rows) {
    const file = await readBatch(ctx, root)
    if (!file) throw new Error(`the file ${root} is not in our store`)
    await inTransaction(ctx, ctx => writeCall(ctx, storage, { root, file, price, submitter }))
  }
  await ctx.wakes.wake("payouts")
}

async function writeCall(
  ctx: TxContext,
  { chain: { chainId }, flow }: Storage,
  { root, file, price, submitter }: { root: Hash; file: Uint8Array; price: bigint; submitter: Address },
): Promise<void> {
  // Another process may have written one since.
  const { rows } = await sql<{ merchant_id: string }>`
    select (select r.merchant_id from receipts r where r.root = b.root limit 1) as merchant_id
    from receipt_batches b where b.root = ${root} and ${needsCall} for no key update of b`.execute(ctx.db)
  const [first] = rows
  if (!first) return
  const id = randomUUID()
  const now = ctx.now()
  const data = storeData(id, file, { submitter, root })
  if (data === undefined) throw new Error(`the file ${root} has other bytes than its root says`)
  const value = storeFee(file, price)
  await ctx.db
    .insertInto("payouts")
    .values({
      id,
      chain_id: chainId,
      kind: "store",
      source_key: `store:${id}`,
      merchant_id: first.merchant_id,
      token: ZERO_ADDRESS,
      recipient: submitter,
      amount: value,
      value,
      to_address: flow,
      data,
      gas: GAS,
      reserved: false,
      state: "queued",
      run_at: dueNow(now),
      created_at: now,
      updated_at: now,
    })
    .execute()
  await ctx.db.updateTable("receipt_batches").set({ storage_id: id }).where("root", "=", root).execute()
}

/** The price of a chunk in wei, where all nodes that answer report the same. */
export async function readPrice(ctx: Context, { chain, flow }: Storage): Promise<bigint | undefined> {
  const market = await agreed(ctx, chain, { to: flow, name: "market" })
  const address = market === undefined ? undefined : parseAddress(`0x${market.slice(26)}`)
  if (!address) return undefined
  const price = await agreed(ctx, chain, { to: address, name: "pricePerSector" })
  return price === undefined
    ? undefined
    : decodeFunctionResult({ abi: flowAbi, functionName: "pricePerSector", data: price })
}

async function agreed(
  ctx: Context,
  chain: Storage["chain"],
  { to, name }: { to: Address; name: "market" | "pricePerSector" },
): Promise<`0x${string}` | undefined> {
  const data = encodeFunctionData({ abi: flowAbi, functionName: name })
  const call: RpcCall = { method: "eth_call", params: [{ to, data }, "latest"] }
  const answers = (await askEach(chain, [call], ctx.signal)).flatMap(([answer] = []) =>
    answer?.ok ? [`${answer.value}`] : [],
  )
  const [first] = new Set(answers)
  return new Set(answers).size === 1 && /^0x[0-9a-f]{64}$/.test(first ?? "") ? (first as `0x${string}`) : undefined
}

/** Uploads the files whose calls are final: a reorg takes none of them back. */
async function uploadPaid(ctx: Context, storage: Storage): Promise<void> {
  const { rows } = await sql<{ root: Hash }>`
    select b.root from receipt_batches b join payouts i on i.id = b.storage_id
    where b.uploaded_at is null and i.state = 'final' order by b.n limit ${FILES}`.execute(ctx.db)
  for (const { root } of rows) {
    const file = await readBatch(ctx, root)
    if (!file) throw new Error(`the file ${root} is not in our store`)
    const upload = await uploadFile(ctx, storage.indexer, file)
    if (upload.state === "stored")
      await ctx.db
        .updateTable("receipt_batches")
        .set({ storage_seq: BigInt(upload.seq), uploaded_at: ctx.now() })
        .where("root", "=", root)
        .execute()
    else ctx.log.warn({ root, reason: upload.why }, "0G does not have this file of receipts yet; it is tried again")
  }
}
