/**
 * How far the logs that were surely read are behind the head: a scan that has stopped finds no payment, and must not
 * look like one that works. The lag is stored with the cursor, so that every process can report it.
 */
import type { Network } from "../../platform/chain/networks.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import type { Row } from "../../platform/db/schema.ts"
import { scanBehind, scanLag, scanStopped } from "../../platform/metrics.ts"

/** A network without a completed round for this many rounds is in trouble. */
const MISSED_ROUNDS = 5
/**
 * Without a new lowest lag for this many rounds the scan is not catching up; one round reads 50,000 blocks of a good
 * node.
 */
const STUCK_ROUNDS = 3
/** Rounds count as at least this long, however short the interval is: slow endpoints make them longer. */
const MIN_ROUND_MS = 10_000

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
  return isOverdue(ctx, await cursorOf(ctx.db, chainId))
}

/** The block up to which a network is scanned; undefined before the first round. */
export const scannedBlock = async (db: Db, chainId: number): Promise<bigint | undefined> =>
  (await cursorOf(db, chainId))?.block_number

/** Whoever waits for a payment asks for it. */
const cursorOf = gatherRows(async (db: Db, chainIds: readonly number[]) => {
  const cursors = db.selectFrom("cursors").select(["chain_id", "block_number", "looked_at", "interval_ms"])
  const rows = await cursors.where("chain_id", "in", chainIds).execute()
  return new Map(rows.map(row => [row.chain_id, row]))
})

type Rounds = Pick<Row<"cursors">, "looked_at" | "interval_ms">

/** By the setting of the worker: a process with another one would call a scan overdue that is not. */
const roundMsOf = ({ interval_ms }: Rounds): number => Math.max(interval_ms, MIN_ROUND_MS)

/** The same, of a cursor that was read; undefined before the first round. */
export const isOverdue = (ctx: TxContext, cursor: Rounds | undefined): boolean =>
  !cursor?.looked_at || ctx.now().getTime() - cursor.looked_at.getTime() > MISSED_ROUNDS * roundMsOf(cursor)

/** A worker takes a network's round within this time of when it is due, also after a round that failed. */
const TAKEN_MS = 15_000

/**
 * Returns what a person should check about the scans, in words for everyone, and shows in the gauge which of them stand
 * still. No process can mend them by serving less, so they are alarms of every process and make none unready.
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
    if (isStuck) return [`the scan of ${name} is ${cursor.lag_blocks} blocks behind, and does not catch up`]
    return isBehind ? [`${name}: the scan is ${cursor.lag_blocks} blocks behind, and catches up`] : []
  })
}

function overdueMessage(cursor: Row<"cursors"> | undefined, now: number): string {
  const since = cursor?.looked_at ? ` since ${cursor.looked_at.toISOString()}` : ""
  // The claim of a round sets when the next one is due, also where the round then fails.
  const isTaken =
    cursor && (cursor.run_at.getTime() > now - TAKEN_MS || (cursor.lease_until && cursor.lease_until.getTime() > now))
  const cause = isTaken ? "rounds are begun, and none ends" : "no worker begins a round"
  return `has not been scanned${since}, and payments are not found: ${cause}`
}
