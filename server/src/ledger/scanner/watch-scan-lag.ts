/**
 * Measures how far the agreed logs are behind the head, because a scan that has stopped finds no payments and must not
 * look healthy. The lag is stored with the cursor, so that any process can report it.
 */
import type { Network } from "../../platform/chain/networks.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import type { Row } from "../../platform/db/schema.ts"
import { scanBehind, scanLag, scanStopped } from "../../platform/metrics.ts"

/** After this many intervals without a completed round, a network has a problem. */
const MISSED_ROUNDS = 5
/**
 * A scan that reaches no new lowest lag for this many rounds is not catching up. With a good node, one round reads
 * 50,000 blocks.
 */
const STUCK_ROUNDS = 3
/**
 * The shortest time that is assumed for a round, even if the interval is shorter, because slow endpoints lengthen
 * rounds.
 */
const MIN_ROUND_MS = 10_000

type Lag = Pick<Row<"cursors">, "lag_blocks" | "lag_low" | "lag_low_at">

/** Returns what to write about the lag after a round that leaves the scan `lagBlocks` blocks behind. */
export function lagAfter(before: Lag, lagBlocks: bigint, bound: number, now: Date): Lag {
  const isBehind = lagBlocks > BigInt(bound)
  const wasBehind = before.lag_blocks > BigInt(bound)
  // While the scan catches up, each round reaches a new lowest lag. The record of the lowest lag starts when the scan
  // falls behind.
  const isLower = !isBehind || !wasBehind || before.lag_low === null || lagBlocks < before.lag_low
  return isLower
    ? { lag_blocks: lagBlocks, lag_low: lagBlocks, lag_low_at: now }
    : { lag_blocks: lagBlocks, lag_low: before.lag_low, lag_low_at: before.lag_low_at }
}

/**
 * Reports the lag after a round as a metric, and logs when the scan falls behind or has caught up. Call this after the
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

/** Whether a network has completed no round for some time, because its nodes do not respond or no worker runs. */
export async function isStale(ctx: TxContext, chainId: number): Promise<boolean> {
  return isOverdue(ctx, await cursorOf(ctx.db, chainId))
}

/** Returns the block up to which a network is scanned; undefined before the first round. */
export const scannedBlock = async (db: Db, chainId: number): Promise<bigint | undefined> =>
  (await cursorOf(db, chainId))?.block_number

/** Requests share one read, because every request that waits for a payment reads the cursor. */
const cursorOf = gatherRows(async (db: Db, chainIds: readonly number[]) => {
  const cursors = db.selectFrom("cursors").select(["chain_id", "block_number", "looked_at", "interval_ms"])
  const rows = await cursors.where("chain_id", "in", chainIds).execute()
  return new Map(rows.map(row => [row.chain_id, row]))
})

type Rounds = Pick<Row<"cursors">, "looked_at" | "interval_ms">

/** Uses the worker's interval: a process with a different setting would report a healthy scan as overdue. */
const roundMsOf = ({ interval_ms }: Rounds): number => Math.max(interval_ms, MIN_ROUND_MS)

/**
 * Whether a cursor that was already read has completed no round for some time. True for undefined, before the first
 * round.
 */
export const isOverdue = (ctx: TxContext, cursor: Rounds | undefined): boolean =>
  !cursor?.looked_at || ctx.now().getTime() - cursor.looked_at.getTime() > MISSED_ROUNDS * roundMsOf(cursor)

/** A worker starts a network's round at most this long after the round is due, even after a failed round. */
const TAKEN_MS = 15_000

/**
 * Returns what a person should check about the scans, in words that may be public. Also sets the gauge that shows which
 * scans have stopped. Serving less would fix nothing, so these alarms make no process unready.
 */
export async function scanAlarms(ctx: Context): Promise<string[]> {
  const cursors = await ctx.db.selectFrom("cursors").selectAll().execute()
  const now = ctx.now().getTime()
  return ctx.chain.networks.flatMap(({ name, chainId }) => {
    const cursor = cursors.find(row => row.chain_id === chainId)
    const isOver = isOverdue(ctx, cursor)
    const isBehind = cursor !== undefined && cursor.lag_blocks > BigInt(ctx.settings.maxScanLag)
    const isStuck = isBehind && now - (cursor.lag_low_at?.getTime() ?? now) > STUCK_ROUNDS * roundMsOf(cursor)
    scanStopped.set({ network: name }, isOver || isStuck ? 1 : 0)
    if (isOver) return [`${name} ${overdueMessage(cursor, now)}`]
    if (isStuck) return [`the scan of ${name} is ${cursor.lag_blocks} blocks behind and does not catch up`]
    return isBehind ? [`${name}: the scan is ${cursor.lag_blocks} blocks behind and is catching up`] : []
  })
}

function overdueMessage(cursor: Row<"cursors"> | undefined, now: number): string {
  const since = cursor?.looked_at ? ` since ${cursor.looked_at.toISOString()}` : ""
  // Claiming a round schedules the next one, even if the round then fails.
  const isTaken =
    cursor && (cursor.run_at.getTime() > now - TAKEN_MS || (cursor.lease_until && cursor.lease_until.getTime() > now))
  const cause = isTaken ? "rounds start, but none ends" : "no worker starts a round"
  return `has not been scanned${since}, so payments are not found: ${cause}`
}
