/**
 * Writes the result of a verification round: new transfers, those that moved or are gone, those that are deep enough or
 * final, and where the next round starts.
 */
import { sql } from "kysely"
import { noteTroubles } from "../chain/endpoint-troubles.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import { type Changes, decide } from "./decide.ts"
import { countDeepCalls } from "./deep-calls.ts"
import type { Observation } from "./observe-chain.ts"
import {
  confirmTransfers,
  finalizeTransfers,
  linkSubmissions,
  storeTransfers,
  unfinalTransfers,
  wakeSold,
  watchedUpTo,
} from "./queries.ts"
import { statusMessage } from "./submission-faults.ts"
import { withoutFlood } from "./tokens.ts"
import { traceScan } from "./trace-scan.ts"

/**
 * Writes an observation; call it inside a transaction. Returns whether a submission ended. `startMs`: when the round
 * began, for traces.
 */
export async function recordObservation(
  ctx: TxContext,
  network: NetworkInfo,
  seen: Observation,
  startMs: number,
): Promise<boolean> {
  const { cursor } = seen
  // The fence: a worker that lost its lease must not write outdated results.
  const fence = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .where("claim_id", "=", cursor.claim_id)
    .forNoKeyUpdate()
    .executeTakeFirst()
  if (!fence) return false

  const ours = seen.found.flatMap(({ log, isSingle }) => {
    const deposit = seen.deposits.get(log.to)
    return deposit ? [{ ...log, depositId: deposit.id, isSingle }] : []
  })
  const changed = await storeTransfers(ctx, network, withoutFlood(network, ours))
  const { maxScanLag } = ctx.settings
  const unfinal = await unfinalTransfers(ctx, network.chainId)
  const changes = decide(network, seen, unfinal, { now: ctx.now(), maxScanLag })
  const ended = await write(ctx, network, changes)
  await wakeSold(ctx, changed, ended)
  await countDeepCalls(ctx, network, seen.quorum, seen.calls)
  await linkSubmissions(ctx, network, statusMessage.verifying)
  await noteTroubles(ctx, network, seen.troubles)
  if (changes.caughtUp) await watchedUpTo(ctx, changes.caughtUp.ids, changes.caughtUp.upTo)
  const finalized_number = sql<bigint>`greatest(finalized_number, ${seen.quorum.finalized}::bigint)`
  await ctx.db
    .updateTable("cursors")
    .set({ ...changes.cursor, finalized_number })
    .where("chain_id", "=", network.chainId)
    .execute()
  await traceScan(ctx, network, changes, changed, startMs)
  return changes.submissions.some(({ change }) => change.status === "failed")
}

/** Writes the decisions about transfers and submissions; returns the resources whose submissions ended. */
async function write(ctx: TxContext, network: NetworkInfo, changes: Changes): Promise<string[]> {
  for (const { row, change } of changes.doubts) {
    const facts = { network: network.name, txHash: row.tx_hash, state: row.state, change }
    ctx.log.warn(facts, "the canonical block at a transfer's height changed")
    await ctx.db.updateTable("transfers").set(change).where("id", "=", row.id).execute()
  }
  await confirmTransfers(ctx, changes.confirmed, false)
  await confirmTransfers(ctx, changes.confirmedAlone, true)
  await finalizeTransfers(ctx, changes.final)
  for (const { submission, change } of changes.submissions)
    await ctx.db
      .updateTable("submissions")
      .set(change)
      .where("id", "=", submission.id)
      .where("status", "=", "verifying")
      .execute()
  const ended = changes.submissions.filter(({ change }) => change.status === "failed")
  return ended.map(({ submission }) => submission.resource_id)
}
