/** Shows which receipts 0G stores, what that cost, and what storing the rest will cost. Read-only. */
import { sql } from "kysely"
import { leavesOf } from "../../../../verify/src/merkle.ts"
import { readPrice } from "../../ledger/receipts/zerog/read-price.ts"
import { storageOf } from "../../ledger/receipts/zerog/storage.ts"
import type { Context } from "../../platform/context.ts"
import { ether } from "./unstick.ts"

/**
 * The files and their cost in the money of 0G's chain. `price`, and what follows from it, are null if 0G's nodes
 * can't be queried.
 */
export async function showStorage(ctx: Context) {
  const { zerog } = ctx.settings.receipts
  const { rows } = await sql<{ files: number; receipts: number; stored: number; stored_receipts: number }>`
    select count(*)::int as files, coalesce(sum(receipts), 0)::int as receipts, count(uploaded_at)::int as stored,
      coalesce(sum(receipts) filter (where uploaded_at is not null), 0)::int as stored_receipts
    from receipt_batches`.execute(ctx.db)
  const [{ files, receipts, stored, stored_receipts } = { files: 0, receipts: 0, stored: 0, stored_receipts: 0 }] = rows
  const { rows: paid } = await sql<{ calls: number; fees: bigint; gas: bigint }>`
    select count(*) filter (where succeeded)::int as calls, coalesce(sum(value) filter (where succeeded), 0)::numeric(78,0) as fees,
      coalesce(sum(gas_cost), 0)::numeric(78,0) as gas from payouts where kind = 'store' and state in ('mined', 'final', 'reverted')`.execute(
    ctx.db,
  )
  const [{ calls, fees, gas } = { calls: 0, fees: 0n, gas: 0n }] = paid
  const price = zerog ? await readPrice(ctx, storageOf(zerog)).catch(() => undefined) : undefined
  const due = await unpaid(ctx)
  return {
    store: zerog ? "0g" : "file",
    files,
    receipts,
    stored,
    storedReceipts: stored_receipts,
    calls,
    fees: ether(fees),
    gas: ether(gas),
    each: stored_receipts === 0 ? null : ether((fees + gas) / BigInt(stored_receipts)),
    /** The price for 256 bytes. */
    price: price === undefined ? null : ether(price),
    unpaid: due.files,
    unpaidFees: price === undefined ? null : ether(price * due.chunks),
    held: await held(ctx),
  }
}

/** The files for which no call has paid yet, and how many chunks 0G counts for them. */
async function unpaid(ctx: Context): Promise<{ files: number; chunks: bigint }> {
  const { rows } = await sql<{ chunks: number; n: number }>`
    select ceil(b.size / 256.0)::int as chunks, count(*)::int as n from receipt_batches b left join payouts i on i.id = b.storage_id
    where b.uploaded_at is null and (i.id is null or i.state not in ('mined', 'final')) group by 1`.execute(ctx.db)
  return {
    files: rows.reduce((sum, { n }) => sum + n, 0),
    chunks: rows.reduce((sum, { chunks, n }) => sum + BigInt(leavesOf(chunks)) * BigInt(n), 0n),
  }
}

/** The reasons why calls are held, with the number of calls. */
async function held(ctx: Context): Promise<Record<string, number>> {
  const { rows } = await sql<{ reason: string; n: number }>`
    select held_reason as reason, count(*)::int as n from payouts where kind = 'store' and state = 'held' group by 1`.execute(
    ctx.db,
  )
  return Object.fromEntries(rows.map(({ reason, n }) => [reason, n]))
}
