/**
 * How far the logs that were surely read are behind the head: a scan that has stopped finds no payment, and must not
 * look like one that works. The lag is stored with the cursor, so that every process can report it.
 */
import type { Network } from "../chain/networks.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { scanBehind, scanLag } from "../metrics.ts"

/** A network without a completed round for this many rounds is in trouble. */
const MISSED_ROUNDS = 5
/**
 * Without a new lowest lag for this many rounds the scan is not catching up; one round reads 50,000 blocks of a good
 * node.
 */
const STUCK_ROUNDS = 3
/** Rounds count as at least this long, however short the interval is set. */
const LEAST_ROUND_MS = 5_000

type Lag = Pick<Row<"cursors">, "lag_blocks" | "lag_low" | "lag_low_at">

/** Returns what to write about the lag after a round that leaves the scan `lagBlocks` behind. */
export function lagAfter(before: Lag, lagBlocks: bigint, bound: number, now: Date): Lag {
  const isBehind = lagBlocks > BigInt(bound)
  const wasBehind = before.lag_blocks > BigInt(bound)
  // While the scan catches up, each round brings a new lowest lag. The lowest counts from when the scan falls behind.
  const isLower = !isBehind || !wasBehind || before.lag_low === null || lagBlocks < before.lag_low
  return isLower
    ? { lag_blocks: lagBlocks, lag_low: lagBlocks, lag_low_at: now }
    : { lag_blocks: lagBlocks, lag_low: before.lag_low, lag_low_at: before.lag_low_at }
}

/**
 * Reports the lag after a round as a metric, and logs when the scan falls behind or has caught up. Call it after the
 * commit.
 */
export async function logLag(ctx: Context, network: Network, before: Lag): Promise<void> {
  const after = await ctx.db
    .selectFrom("cursors")
    .select("lag_blocks")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirstOrThrow()
  const labels = { network: network.name }
  const bound = BigInt(ctx.settings.maxScanLag)
  const wasBehind = before.lag_blocks > bound
  const isBehind = after.lag_blocks > bound
  scanLag.set(labels, Number.parseInt(after.lag_blocks.toString(), 10))
  scanBehind.set(labels, isBehind ? 1 : 0)
  const facts = { ...labels, lagBlocks: `${after.lag_blocks}` }
  if (isBehind && !wasBehind) ctx.log.error(facts, "the scan is behind by more blocks than MAX_SCAN_LAG")
  if (wasBehind && !isBehind) ctx.log.info(facts, "the scan has caught up")
}

/** Whether no round has completed on a network for a while: its nodes don't respond, or no worker runs. */
export async function isStale(ctx: TxContext, chainId: number): Promise<boolean> {
  const cursor = await ctx.db
    .selectFrom("cursors")
    .select("looked_at")
    .where("chain_id", "=", chainId)
    .executeTakeFirst()
  return isOverdue(ctx, cursor)
}

function isOverdue(ctx: TxContext, cursor: Pick<Row<"cursors">, "looked_at"> | undefined): boolean {
  const roundMs = Math.max(ctx.settings.verifyIntervalMs, LEAST_ROUND_MS)
  return !cursor?.looked_at || ctx.now().getTime() - cursor.looked_at.getTime() > MISSED_ROUNDS * roundMs
}

/**
 * Returns what stops the scan (`faults`: payments may not be found at all), and what a person should check (`alarms`).
 */
export async function scanTroubles(ctx: Context): Promise<{ faults: string[]; alarms: string[] }> {
  const cursors = await ctx.db.selectFrom("cursors").selectAll().execute()
  const roundMs = Math.max(ctx.settings.verifyIntervalMs, LEAST_ROUND_MS)
  const now = ctx.now().getTime()
  const faults: string[] = []
  const alarms: string[] = []
  for (const { name, chainId } of ctx.chain.networks) {
    const cursor = cursors.find(row => row.chain_id === chainId)
    const isBehind = cursor !== undefined && cursor.lag_blocks > BigInt(ctx.settings.maxScanLag)
    if (isOverdue(ctx, cursor)) faults.push(`${name} has not been scanned recently`)
    else if (isBehind && now - (cursor.lag_low_at?.getTime() ?? now) > STUCK_ROUNDS * roundMs)
      faults.push(`the scan of ${name} is ${cursor.lag_blocks} blocks behind, and does not catch up`)
    else if (isBehind) alarms.push(`${name}: the scan is ${cursor.lag_blocks} blocks behind, and catches up`)
  }
  return { faults, alarms }
}
