/**
 * Reads the balances of put-away checkouts' addresses: daily until 30 days after the checkout's end, then every 30
 * days. Money at an address brings its checkout back, and the scan then finds the transfers.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { watch } from "../deposits/make-deposits.ts"
import { bringBack, nextCheck } from "../deposits/put-away.ts"
import { ADDRESSES_PER_CALL, compareBalances, type Said } from "./read-balances.ts"

/** How many addresses one round reads, in 10 calls. */
const ADDRESSES_PER_ROUND = 5_000
/**
 * How many addresses one round brings back although too few endpoints report money there. A single endpoint may lie
 * about all addresses.
 */
const DOUBTS_PER_ROUND = 100
/** How many blocks an endpoint that reports balances may lag behind the scan. */
const LAG_BLOCKS = 600

/** Reads the balances that are due. */
export async function checkPutAway(ctx: Context, network: Network): Promise<void> {
  const { rows: due } = await sql<{ id: string; address: Address }>`
    select id, '0x' || encode(address, 'hex') as address from put_away
    where chain_id = ${network.chainId} and check_at <= ${ctx.now()} order by check_at limit ${ADDRESSES_PER_ROUND}`.execute(
    ctx.db,
  )
  let doubtsLeft = DOUBTS_PER_ROUND
  for (let start = 0; start < due.length; start += ADDRESSES_PER_CALL) {
    const part = due.slice(start, start + ADDRESSES_PER_CALL)
    const expected = part.map(({ address }) => ({ address, balance: 0n }))
    const said = await compareBalances(ctx, network, expected)
    const idsOf = (which: Said) => part.flatMap(({ id }, i) => (said[i] === which ? [id] : []))
    await checkLater(ctx, network, idsOf("same"))
    const doubts = idsOf("doubtful")
    const found = [...idsOf("other"), ...doubts.slice(0, doubtsLeft)]
    await checkLater(ctx, network, doubts.slice(doubtsLeft), false)
    doubtsLeft = Math.max(0, doubtsLeft - doubts.length)
    if (found.length === 0) continue
    await bringBack(ctx, { ids: found })
    await watch(ctx, ...found)
    await ctx.wakes.wake("verify")
  }
}

/**
 * Schedules the next check of these addresses. With `isKnown`, the transfers to these addresses are known up to the
 * recent blocks.
 */
async function checkLater(ctx: Context, { chainId }: Network, ids: readonly string[], isKnown = true): Promise<void> {
  if (ids.length === 0) return
  const known = isKnown
    ? sql`greatest(p.watched_number, c.block_number - ${LAG_BLOCKS}::bigint)`
    : sql`p.watched_number`
  await sql`update put_away p set check_at = ${nextCheck(ctx, sql`p.expires_at`)}, watched_number = ${known}
    from cursors c where c.chain_id = ${chainId} and p.id = any(${sqlArray("text", ids)})`.execute(ctx.db)
}
