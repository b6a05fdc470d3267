/** SQL of the scan for tokens in which nothing is sold: which addresses are scanned, and how much is stored. */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Transfer } from "../../platform/chain/transfers.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { isHeld } from "../../platform/jobs/claim.ts"

/** A receiving address whose logs are read. */
export interface Watched {
  id: bigint
  address: Address
  merchant_id: string
}

/**
 * How many tokens are stored for each receiving address. The first ones found are kept, because a list of a thousand
 * worthless tokens helps nobody.
 */
const MAX_OF_A_DEPOSIT = 20
/** How many rows one step writes. */
const ROWS_PER_STEP = 500
/** The largest difference between the chain's clock and the clock that recorded when an address left the scan. */
const SKEW_MS = 600_000

/**
 * Returns the addresses after `after_id` that were in the scan at any time since `from_time`, in the order of their
 * ids.
 */
export async function watchedSince(
  ctx: Context,
  chainId: number,
  { after_id, from_time }: Pick<Row<"token_scans">, "after_id" | "from_time">,
  limit: number,
): Promise<Watched[]> {
  const since = new Date(from_time.getTime() - SKEW_MS)
  const of = sql`select id, address, merchant_id from deposits where chain_id = ${chainId} and id > ${after_id}`
  const { rows } = await sql<Watched>`select * from (
      (${of} and watched order by id limit ${limit})
      union all (${of} and not watched and dormant_since >= ${since} order by id limit ${limit})) as watched
    order by id limit ${limit}`.execute(ctx.db)
  return rows
}

/**
 * Writes the scan's position and findings in one transaction. If another process has taken over the job, writes nothing
 * and returns false.
 */
export async function writeProgress(
  ctx: Context,
  network: NetworkInfo,
  scan: Row<"token_scans">,
  next: Partial<Row<"token_scans">>,
  found: readonly { log: Transfer; deposit: Watched }[],
): Promise<boolean> {
  const { from_block, to_block, from_time, after_id, blocks, run_at = scan.run_at } = { ...scan, ...next }
  return await inTransaction(ctx, async ctx => {
    const { numUpdatedRows } = await ctx.db
      .updateTable("token_scans")
      .set({ from_block, to_block, from_time, after_id, blocks, ...(next.run_at ? { run_at } : {}) })
      .where(isHeld("token_scans", scan))
      .executeTakeFirst()
    if (numUpdatedRows === 0n) return false
    await store(ctx, network, found)
    return true
  })
}

/**
 * Writes one row per token at an address, until the address has {@link MAX_OF_A_DEPOSIT} rows. A known token's balance
 * is read again.
 */
async function store(
  ctx: TxContext,
  network: NetworkInfo,
  found: readonly { log: Transfer; deposit: Watched }[],
): Promise<void> {
  const ids = sqlArray("bigint", new Set(found.map(({ deposit }) => deposit.id)))
  const known = await sql<{ deposit_id: bigint; token: Address }>`select deposit_id, token from foreign_tokens
    where deposit_id = any(${ids})`.execute(ctx.db)
  const tokens = Map.groupBy(known.rows, row => row.deposit_id)
  const isKnown = new Set(known.rows.map(row => `${row.deposit_id} ${row.token}`))
  const counts = new Map([...tokens].map(([id, rows]) => [id, rows.length]))
  const again = new Set<string>()
  const rows = found.flatMap(({ log, deposit }) => {
    const key = `${deposit.id} ${log.token}`
    if (isKnown.has(key)) {
      again.add(key)
      return []
    }
    const count = counts.get(deposit.id) ?? 0
    if (count >= MAX_OF_A_DEPOSIT) return []
    counts.set(deposit.id, count + 1)
    isKnown.add(key)
    return [rowOf(ctx, network, log, deposit)]
  })
  const kept = rows.slice(0, ROWS_PER_STEP)
  if (kept.length > 0) await ctx.db.insertInto("foreign_tokens").values(kept).execute()
  if (again.size > 0)
    await sql`update foreign_tokens set check_at = least(check_at, ${ctx.now()})
      where deposit_id = any(${ids}) and deposit_id || ' ' || token = any(${sqlArray("text", again)})`.execute(ctx.db)
}

const rowOf = (ctx: TxContext, { chainId }: NetworkInfo, log: Transfer, deposit: Watched) => ({
  merchant_id: deposit.merchant_id,
  chain_id: chainId,
  deposit_id: deposit.id,
  token: log.token,
  tx_hash: log.txHash,
  block_number: log.blockNumber,
  from_address: log.from,
  value: log.value,
  found_at: ctx.now(),
  check_at: ctx.now(),
})
