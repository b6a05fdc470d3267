/**
 * Selects the deposits whose logs the comparison reads: those that may have moved money in a range of blocks. An
 * address leaves the scan when nobody asks for it. If the address then receives money, its balance shows this, and the
 * address returns to the scan. Only an address with money can lose any, so a million unpaid addresses cost no call
 * here.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { outgoingKinds } from "../deposits/sum-deposits.ts"
import type { KnownDeposit } from "./note-outflows.ts"

/** A range of blocks, including both ends. */
export interface Blocks {
  from: bigint
  to: bigint
}

const columns = sql`d.id, d.address, d.factory, d.owner, d.approver, d.open_after_s, d.merchant_id`

/**
 * Returns the next deposits, by id, that may have moved money in these blocks. A deposit qualifies if it is in the
 * scan, left the scan after `since`, or has a final transfer or payout in the blocks. It also qualifies if it holds
 * money according to its rows, or is about to pay out.
 */
export async function movingDeposits(
  ctx: TxContext,
  { chainId, token }: NetworkInfo,
  { from, to, since }: Blocks & { since: Date },
  after: bigint,
  limit: number,
): Promise<KnownDeposit[]> {
  const part = sql`order by 1 limit ${limit}`
  const inBlocks = sql`chain_id = ${chainId} and state = 'final' and block_number between ${from} and ${to}
    and deposit_id > ${after}`
  const { rows } = await sql<KnownDeposit>`
    select ${columns} from deposits d join (
      (select id from deposits where chain_id = ${chainId} and watched and id > ${after} ${part})
      union (select id from deposits where chain_id = ${chainId} and not watched and dormant_since >= ${since}
        and id > ${after} ${part})
      union (select distinct deposit_id from transfers where ${inBlocks} ${part})
      union (select distinct deposit_id from payouts where ${inBlocks} and kind in ${outgoingKinds()} ${part})
      union (select distinct deposit_id from payouts where chain_id = ${chainId} and deposit_id > ${after}
        and state in ('queued', 'held', 'assigned', 'mined') ${part})
      union (select deposit_id from deposit_books where inflow > committed and token = ${token.address}
        and deposit_id > ${after} ${part})) moving on moving.id = d.id
    where d.chain_id = ${chainId} order by d.id limit ${limit}`.execute(ctx.db)
  return rows
}

/** Returns the deposits that have one of these addresses. */
export async function depositsNamed(
  ctx: TxContext,
  { chainId }: NetworkInfo,
  addresses: readonly Address[],
): Promise<KnownDeposit[]> {
  const { rows } = await sql<KnownDeposit>`
    select ${columns} from deposits d where d.chain_id = ${chainId}
      and d.address = any(${sqlArray("text", addresses)}) order by d.id`.execute(ctx.db)
  return rows
}

/**
 * Returns the last block up to which one step compares these deposits. The last block is `to`, or an earlier one if the
 * deposits have too many final transfers for memory. A step has at least one block, because strangers can send
 * thousands of transfers in a block.
 */
export async function endOfStep(
  ctx: TxContext,
  deposits: readonly bigint[],
  { from, to }: Blocks,
  maxTransfers: number,
): Promise<bigint> {
  const { rows } = await sql<{ number: bigint }>`
    select block_number as number from transfers where state = 'final' and deposit_id = any(${sqlArray("bigint", deposits)})
      and block_number between ${from} and ${to} order by block_number offset ${maxTransfers} limit 1`.execute(ctx.db)
  const [beyond] = rows
  if (!beyond) return to
  return beyond.number > from ? beyond.number - 1n : from
}

/** Returns the factories of a network's deposits: its own, and those of earlier versions and settings. */
export async function factoriesOf(ctx: TxContext, { chainId, depositFactory }: NetworkInfo): Promise<Address[]> {
  // Each step is one index lookup, no matter how many deposits a factory has.
  const { rows } = await sql<{ factory: Address }>`
    with recursive steps as (
      (select factory from deposits where chain_id = ${chainId} order by factory limit 1)
      union all
      select (select d.factory from deposits d where d.chain_id = ${chainId} and d.factory > steps.factory
        order by d.factory limit 1) from steps where steps.factory is not null)
    select factory from steps where factory is not null`.execute(ctx.db)
  return [...new Set([depositFactory, ...rows.map(row => row.factory)])]
}
