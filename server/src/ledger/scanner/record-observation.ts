/**
 * Writes the result of a verification round: transfers that are new, moved, gone, deep enough or final, and the block
 * where the next round starts.
 */
import { sql } from "kysely"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import { noteTroubles } from "../../platform/chain/note-endpoint-troubles.ts"
import type { TxContext } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import { payerName } from "../../platform/jobs/wake-payload.ts"
import type { SellingTx } from "../settlement/sellable.ts"
import { countDeepCalls } from "./count-deep-calls.ts"
import { type Changes, decide } from "./decide.ts"
import type { SubmissionChange } from "./judge-submissions.ts"
import { withoutFlood } from "./learn-tokens.ts"
import type { Observation } from "./observe-chain.ts"
import { confirmSingle, linkSubmissions, storeTransfers, wakeSold, watchedUpTo } from "./queries.ts"
import {
  CHANGES_PER_ROUND,
  type Changed,
  confirmBlocks,
  finalizeBlocks,
  stillUnfinal,
  suspectBlocks,
  unfinalBlocks,
} from "./read-unfinal-blocks.ts"
import { statusMessage } from "./submission-faults.ts"
import { traceScan } from "./trace-scan.ts"

/**
 * Writes an observation. Call this inside a transaction. Returns the wake-up names of submissions that ended, and
 * whether the next round should follow immediately. `startMs` is when the round started, for traces.
 */
export async function recordObservation(
  ctx: SellingTx,
  network: NetworkInfo,
  seen: Observation,
  startMs: number,
): Promise<{ ended: string[]; isMore: boolean }> {
  const { cursor } = seen
  // The fence: a worker that lost its lease must not write outdated results.
  const fence = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .where("claim_id", "=", cursor.claim_id)
    .forNoKeyUpdate()
    .executeTakeFirst()
  if (!fence) return { ended: [], isMore: false }

  const ours = seen.found.flatMap(({ log, isSingle }) => {
    const deposit = seen.deposits.get(log.to)
    return deposit ? [{ ...log, depositId: deposit.id, isSingle }] : []
  })
  const at = await storeTransfers(ctx, network, withoutFlood(network, ours))
  const { maxScanLag } = ctx.settings
  const stored = await storedNow(ctx, network, seen)
  const changes = decide(network, seen, stored, { now: ctx.now(), maxScanLag })
  const { changed, ended: resources } = await write(ctx, network, changes)
  await wakeSold(ctx, [...new Set(at)], resources)
  await countDeepCalls(ctx, network, seen.quorum, seen.calls)
  await linkSubmissions(ctx, network, statusMessage.verifying, {
    submissions: seen.submissions.map(({ id }) => id),
    hashes: new Set([...ours.map(({ txHash }) => txHash), ...changed.map(row => row.tx_hash)]),
  })
  await noteTroubles(ctx, network, seen.troubles)
  for (const { ids, upTo } of changes.caughtUp) await watchedUpTo(ctx, ids, upTo)
  const finalized_number = sql<bigint>`greatest(finalized_number, ${seen.quorum.finalized}::bigint)`
  await ctx.db
    .updateTable("cursors")
    .set({ ...changes.cursor, finalized_number, interval_ms: ctx.settings.verifyIntervalMs })
    .where("chain_id", "=", network.chainId)
    .execute()
  await traceScan(ctx, network, changed, at, startMs)
  const ended = failedOf(changes).map(({ resource_id: id, address }) => payerName(id, address ?? undefined))
  return { ended, isMore: seen.isMore || changed.length >= CHANGES_PER_ROUND }
}

async function storedNow(ctx: TxContext, network: NetworkInfo, seen: Observation) {
  const blocks = await unfinalBlocks(ctx, network.chainId, seen.window)
  const ids = seen.doubted.map(row => row.id)
  return { blocks, doubted: await stillUnfinal(ctx, ids) }
}

/** Writes decisions, and returns the changed transfers, and the resources whose submissions ended. */
async function write(
  ctx: TxContext,
  network: NetworkInfo,
  changes: Changes,
): Promise<{ changed: Changed[]; ended: string[] }> {
  const { chainId } = network
  for (const { row, change } of changes.doubts)
    await ctx.db.updateTable("transfers").set(change).where("id", "=", row.id).execute()
  for (const row of changes.singles) await confirmSingle(ctx, row)
  const suspected = await suspectBlocks(ctx, chainId, changes.suspected, true)
  const doubted = changes.doubts.map(({ row }) => row)
  if (suspected.length + doubted.length > 0) {
    const facts = {
      network: network.name,
      transfers: suspected.length,
      gone: doubted.map(row => row.tx_hash).slice(0, 20),
    }
    ctx.log.warn(facts, "the canonical block at the height of transfers changed")
  }
  const changed = [
    ...doubted,
    ...changes.singles,
    ...(await suspectBlocks(ctx, chainId, changes.restored, false)),
    ...(await finalizeBlocks(ctx, chainId, changes.final)),
    ...(await confirmBlocks(ctx, chainId, changes.confirmed, false)),
    ...(await confirmBlocks(ctx, chainId, changes.confirmedAlone, true)),
  ]
  const [postponed, over] = [true, false].map(isLater =>
    changes.submissions.filter(({ change }) => (change.status === undefined) === isLater),
  ) as [SubmissionChange[], SubmissionChange[]]
  await postpone(ctx, postponed)
  for (const { submission, change } of over)
    await ctx.db
      .updateTable("submissions")
      .set(change)
      .where("id", "=", submission.id)
      .where("status", "=", "verifying")
      .execute()
  return { changed, ended: failedOf(changes).map(({ resource_id: id }) => id) }
}

/**
 * Writes when submissions are looked up again. One statement postpones all submissions, because with each block the
 * submissions of all payments under way may be due.
 */
async function postpone(ctx: TxContext, changes: readonly SubmissionChange[]): Promise<void> {
  if (changes.length === 0) return
  const rows = changes.map(({ submission: { id, attempts }, change }) => {
    const { run_at, block_number } = change
    return { id: `${id}`, run_at, attempts: change.attempts ?? attempts, block_number: block_number?.toString() }
  })
  await sql`/* named: postpone_submissions */ update submissions s set run_at = c.run_at, attempts = c.attempts, updated_at = ${ctx.now()},
      block_number = coalesce(c.block_number, s.block_number)
    from (${rowsParameter(rows, "id bigint, run_at timestamptz, attempts integer, block_number bigint")}) c
    where s.id = c.id and s.status = 'verifying'`.execute(ctx.db)
}

const failedOf = ({ submissions }: Changes) =>
  submissions.flatMap(({ submission, change }) => (change.status === "failed" ? [submission] : []))
