/**
 * Determines which escrow calls are deep enough to count. A height alone proves nothing. A reorg may have displaced a
 * call's block before the rows say so, while the scan has passed the same height on the new fork.
 */
import { sql } from "kysely"
import type { Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { QuorumView } from "../../platform/chain/quorum.ts"
import type { TxContext } from "../../platform/context.ts"

/** For how many calls one round reads the blocks, oldest first. */
const CALLS_PER_ROUND = 200

/** A mined call, and its block according to the row. */
export interface MinedCall {
  id: string
  blockNumber: bigint
  blockHash: Hash
}

/** Returns the successful calls up to a height that are not counted in their block yet. */
export async function uncountedCalls(ctx: TxContext, chainId: number, upTo: bigint): Promise<MinedCall[]> {
  const { rows } = await sql<MinedCall>`
    select i.id, i.block_number as "blockNumber", i.block_hash as "blockHash" from payouts i
      left join counted_calls c on c.payout_id = i.id
    where i.chain_id = ${chainId} and i.escrow_id is not null and i.state = 'mined' and i.succeeded
      and i.block_number <= ${upTo} and c.block_hash is distinct from i.block_hash
    order by i.block_number, i.id limit ${CALLS_PER_ROUND}`.execute(ctx.db)
  return rows
}

/**
 * Counts the calls whose block a quorum reports as deep as the network's confirmations require. A call counts until its
 * own block is displaced, because after any reorg the scan's height falls back to the final block.
 */
export async function countDeepCalls(
  ctx: TxContext,
  { confirmations }: NetworkInfo,
  quorum: QuorumView,
  calls: readonly MinedCall[],
): Promise<void> {
  const deep = calls.filter(({ blockNumber, blockHash }) => quorum.depthOf(blockNumber, blockHash) >= confirmations)
  if (deep.length === 0) return
  await ctx.db
    .insertInto("counted_calls")
    .values(deep.map(({ id, blockHash }) => ({ payout_id: id, block_hash: blockHash })))
    .onConflict(conflict =>
      conflict.column("payout_id").doUpdateSet(eb => ({ block_hash: eb.ref("excluded.block_hash") })),
    )
    .execute()
}
