/**
 * SQL of transfers that are not final, by their blocks. A block's hash fixes its content, so what a quorum says about a
 * block holds for each agreed transfer in it. The cost of a round grows with the number of blocks that it examines, not
 * with the number of transfers.
 */
import { sql } from "kysely"
import type { Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/** The range of blocks whose transfers may change. {@link unfinalBlocks} explains `isOdd`. */
export interface BlockWindow {
  deepest: bigint
  finalized: bigint
  from: bigint
  to: bigint
  isOdd: boolean
}

/** A block as a transfer's row identifies it. */
export interface NamedBlock {
  number: bigint
  hash: Hash
}

/** A block with agreed transfers that are not final, and whether it has any of each kind. */
export interface UnfinalBlock extends NamedBlock {
  seen: boolean
  confirmed: boolean
  suspected: boolean
}

/** How many blocks of each kind one round reads. */
const BLOCKS_PER_ROUND = 500
/**
 * The most rows in a statement. The embedded database runs statements in this process, so a long one would block it.
 */
const ROWS_PER_STATEMENT = 500
/** How many transfers one round confirms or makes final. Transfers in other blocks wait for the next round. */
export const CHANGES_PER_ROUND = 20_000

const isUnfinal = sql`state in ('seen', 'confirmed') and not single_source`

/**
 * Returns the blocks with transfers that may change in a round: seen ones that are deep, confirmed ones that are final
 * by now, suspected ones, and those in rescanned blocks. `isOdd` reverses the order, so that unreadable blocks do not
 * keep others out forever.
 */
export async function unfinalBlocks(
  ctx: TxContext,
  chainId: number,
  { deepest, finalized, from, to, isOdd }: BlockWindow,
): Promise<UnfinalBlock[]> {
  const order = sql.raw(isOdd ? "desc" : "asc")
  const blocks = (condition: ReturnType<typeof sql>) => sql`(select distinct block_number, block_hash from transfers
    where chain_id = ${chainId} and ${isUnfinal} and ${condition} order by block_number ${order} limit ${BLOCKS_PER_ROUND})`
  // One index scan per block, because a join of all of them read the whole table (measured with 200,000 rows).
  const has = (condition: ReturnType<typeof sql>) => sql`exists (select from transfers where chain_id = ${chainId}
    and block_number = b.block_number and block_hash = b.block_hash and ${isUnfinal} and ${condition})`
  const { rows } = await sql<UnfinalBlock>`
    select b.block_number as number, b.block_hash as hash, ${has(sql`state = 'seen'`)} as seen,
      ${has(sql`state = 'confirmed'`)} as confirmed, ${has(sql`suspect_at is not null`)} as suspected
    from (${blocks(sql`block_number <= ${finalized}`)}
      union ${blocks(sql`state = 'seen' and block_number <= ${deepest}`)}
      union ${blocks(sql`suspect_at is not null`)}
      union ${blocks(sql`block_number between ${from} and ${to}`)}) b
    order by 1`.execute(ctx.db)
  return rows
}

/** Returns the next blocks below a height with agreed transfers that are not final, the highest first. */
export async function unfinalBlocksBelow(
  ctx: TxContext,
  chainId: number,
  below: bigint | undefined,
  limit: number,
): Promise<NamedBlock[]> {
  const { rows } = await sql<NamedBlock>`
    select distinct block_number as number, block_hash as hash from transfers
    where chain_id = ${chainId} and ${isUnfinal} and (${below ?? null}::bigint is null or block_number < ${below ?? null}::bigint)
    order by block_number desc limit ${limit}`.execute(ctx.db)
  return rows
}

/**
 * Returns at most `limit` agreed transfers in these blocks that are not final. If there are more such transfers, starts
 * at position `start` modulo their number.
 */
export async function transfersIn(
  ctx: TxContext,
  chainId: number,
  blocks: readonly NamedBlock[],
  { limit, start }: { limit: number; start: number },
): Promise<Row<"transfers">[]> {
  if (blocks.length === 0) return []
  const among = sql`from transfers where chain_id = ${chainId} and ${isUnfinal}
    and block_number = any(${numbersOf(blocks)}) and block_hash = any(${hashesOf(blocks)})`
  const { rows: counted } = await sql<{ n: number }>`select count(*)::int as n ${among}`.execute(ctx.db)
  const count = counted[0]?.n ?? 0
  const offset = count > limit ? start % count : 0
  const { rows } = await sql<Row<"transfers">>`select * ${among} order by id limit ${limit} offset ${offset}`.execute(
    ctx.db,
  )
  return rows
}

/**
 * Returns at most `limit` transfers that only one endpoint has reported. If there are more such transfers, starts at
 * position `start` modulo their number.
 */
export async function singleTransfers(
  ctx: TxContext,
  chainId: number,
  { limit, start }: { limit: number; start: number },
): Promise<Row<"transfers">[]> {
  const among = sql`from transfers where chain_id = ${chainId} and single_source and state in ('seen', 'confirmed')`
  const { rows } = await sql<Row<"transfers">>`select * ${among} order by id limit ${limit}
    offset (select case when count(*) > ${limit} then ${start} % count(*) else 0 end ${among})`.execute(ctx.db)
  return rows
}

/** Reads these transfers again, without those that are final by now. */
export async function stillUnfinal(ctx: TxContext, ids: readonly bigint[]): Promise<Row<"transfers">[]> {
  if (ids.length === 0) return []
  const { rows } = await sql<Row<"transfers">>`select * from transfers
    where id = any(${sqlArray("bigint", ids)}) and state in ('seen', 'confirmed') order by id`.execute(ctx.db)
  return rows
}

/** Returns the positions of those transfers in these blocks that need no second check, as `HASH INDEX`. */
export async function placesIn(ctx: TxContext, chainId: number, blocks: readonly NamedBlock[]): Promise<Set<string>> {
  if (blocks.length === 0) return new Set()
  const { rows } = await sql<{ hash: Hash; places: string }>`
    select block_hash as hash, string_agg(log_index::text, ' ') as places from transfers
    where chain_id = ${chainId} and block_number = any(${numbersOf(blocks)}) and block_hash = any(${hashesOf(blocks)})
      and state <> 'gone' and not single_source group by 1`.execute(ctx.db)
  return new Set(rows.flatMap(({ hash, places }) => places.split(" ").map(place => `${hash} ${place}`)))
}

/** A transfer that a round changed: its id and its transaction's hash. */
export type Changed = Pick<Row<"transfers">, "id" | "tx_hash">

/**
 * Marks the seen transfers in these blocks as confirmed and due for settlement. `isSingle` means that only one of two
 * endpoints confirms them.
 */
export const confirmBlocks = (
  ctx: TxContext,
  chainId: number,
  blocks: readonly NamedBlock[],
  isSingle: boolean,
): Promise<Changed[]> => {
  const change = sql`state = 'confirmed', suspect_at = null, run_at = ${ctx.now()}, single_source = ${isSingle}`
  return changeIn(ctx, chainId, blocks, change, sql`state = 'seen'`)
}

/** Marks the confirmed transfers in these blocks as final. */
export const finalizeBlocks = (ctx: TxContext, chainId: number, blocks: readonly NamedBlock[]): Promise<Changed[]> =>
  changeIn(ctx, chainId, blocks, sql`state = 'final', suspect_at = null`, sql`state = 'confirmed'`)

/** Marks the transfers in these blocks as suspected from now on, or as no longer suspected. */
export const suspectBlocks = (
  ctx: TxContext,
  chainId: number,
  blocks: readonly NamedBlock[],
  isSuspected: boolean,
): Promise<Changed[]> =>
  isSuspected
    ? changeIn(ctx, chainId, blocks, sql`suspect_at = ${ctx.now()}`, sql`suspect_at is null`)
    : changeIn(ctx, chainId, blocks, sql`suspect_at = null`, sql`suspect_at is not null`)

async function changeIn(
  ctx: TxContext,
  chainId: number,
  blocks: readonly NamedBlock[],
  change: ReturnType<typeof sql>,
  condition: ReturnType<typeof sql>,
): Promise<Changed[]> {
  const changed: Changed[] = []
  for (const { number, hash } of blocks)
    for (let isMore = true; isMore; ) {
      if (changed.length >= CHANGES_PER_ROUND) return changed
      const { rows } = await sql<Changed>`update transfers set ${change} where id in (select id from transfers
          where chain_id = ${chainId} and block_number = ${number} and block_hash = ${hash} and ${isUnfinal} and ${condition}
          limit ${ROWS_PER_STATEMENT})
        returning id, tx_hash`.execute(ctx.db)
      for (const row of rows) changed.push(row)
      isMore = rows.length === ROWS_PER_STATEMENT
    }
  return changed
}

const numbersOf = (blocks: readonly NamedBlock[]) =>
  sqlArray(
    "bigint",
    blocks.map(({ number }) => number),
  )
const hashesOf = (blocks: readonly NamedBlock[]) =>
  sqlArray(
    "text",
    blocks.map(({ hash }) => hash),
  )
