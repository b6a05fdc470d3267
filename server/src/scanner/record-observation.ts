/**
 * Writes what a round of verification learnt: new transfers, those that moved or are gone, those that are deep enough or
 * final, and from where the next round goes on.
 */
import { sql } from "kysely"
import { votesNeeded } from "../chain/agreement.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { Block, Transfer } from "../chain/transfers.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { noteTroubles } from "./endpoint-troubles.ts"
import { judgeSubmissions } from "./judge-submissions.ts"
import { keyOfRow, type Observation } from "./observe-chain.ts"
import {
  confirmTransfers,
  finalizeTransfers,
  linkSubmissions,
  storeTransfers,
  unfinalTransfers,
  wakeSessions,
  watchedUpTo,
} from "./queries.ts"
import { lagAfter } from "./scan-lag.ts"
import { statusMessage } from "./submission-faults.ts"
import { withoutFlood } from "./tokens.ts"

/** Another block at a transfer's height must be seen twice, so far apart, where there is one endpoint. */
const SUSPICION_MS = 30_000

/** Writes what was seen; call it inside a transaction. Answers whether a submission ended. */
export async function recordObservation(ctx: TxContext, network: NetworkInfo, seen: Observation): Promise<boolean> {
  const { cursor, panel, backfill } = seen
  // The fence: a worker whose lease was taken over must not write what is by now old.
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
  await doubt(ctx, network, seen)
  await confirm(ctx, network, seen)
  const ended = await judgeSubmissions(ctx, network, seen)
  await wakeSessions(
    ctx,
    changed,
    ended.flatMap(submission => submission.session_id ?? []),
  )
  await linkSubmissions(ctx, network, statusMessage.verifying)
  await noteTroubles(ctx, network, seen.troubles)
  if (backfill) {
    const caughtUp = backfill.scannedTo >= panel.head && backfill.scannedTo >= cursor.block_number
    await watchedUpTo(ctx, backfill.ids, caughtUp ? undefined : backfill.scannedTo)
  }
  const checkpoint = nextCheckpoint(seen)
  const lag = panel.head - (checkpoint.block_number ?? cursor.block_number)
  await ctx.db
    .updateTable("cursors")
    .set({
      looked_at: ctx.now(),
      finalized_number: sql`greatest(finalized_number, ${panel.finalized}::bigint)`,
      ...checkpoint,
      ...lagAfter(cursor, lag > 0n ? lag : 0n, ctx.settings.maxScanLag, ctx.now()),
    })
    .where("chain_id", "=", network.chainId)
    .execute()
  return ended.length > 0
}

/**
 * From where the next round goes on: as far as a quorum surely read the logs and agrees on what is there. An endpoint that
 * lags must not take the scan back, and a reorg is not forgotten before all transfers in doubt were compared; after one the
 * scan goes back to the finalized block, as it may be deeper than the rescan.
 */
function nextCheckpoint({ cursor, panel, scannedTo, reorged, allCompared }: Observation): Partial<Row<"cursors">> {
  const at = (block: Block | undefined) =>
    block ? { block_number: block.number, block_hash: block.hash, block_time: block.time } : {}
  if (reorged && !allCompared) return {}
  if (reorged) return at(panel.blockAt(panel.finalized)?.block)
  if (scannedTo > cursor.block_number) return at(panel.blockAt(scannedTo)?.block)
  // A checkpoint of before its time was kept; read again to its end it stands where it stood.
  return cursor.block_time === null && scannedTo === cursor.block_number ? at(panel.blockAt(scannedTo)?.block) : {}
}

/**
 * Transfers whose height holds another block by the word of a quorum, while a quorum does not have them in a receipt: gone.
 * Where there is one endpoint it must say so twice. What one of two endpoints alone had reported is gone when neither has it.
 */
async function doubt(ctx: TxContext, network: NetworkInfo, { panel, cursor }: Observation): Promise<void> {
  const now = ctx.now()
  const quorum = votesNeeded(network.endpoints.length)
  for (const row of await unfinalTransfers(ctx, cursor.chain_id)) {
    const canonical = panel.blockAt(row.block_number)?.block
    if (!canonical && !row.single_source) continue
    const displaced = canonical !== undefined && canonical.hash !== row.block_hash
    const suspectedMs = row.suspect_at ? now.getTime() - row.suspect_at.getTime() : -1
    const sure = quorum > 1 || suspectedMs >= SUSPICION_MS
    const isNowhere = panel.votesWithout(row.tx_hash, keyOfRow(row), row.block_number) >= quorum
    let change: Partial<Pick<Row<"transfers">, "suspect_at" | "state" | "run_at">>
    if (isNowhere && ((displaced && sure) || row.single_source)) change = { state: "gone", run_at: now }
    else if (displaced !== (row.suspect_at !== null)) change = { suspect_at: displaced ? now : null }
    else continue
    ctx.log.warn(
      { txHash: row.tx_hash, state: row.state, change },
      "another block stands, or stood, at a transfer's height",
    )
    await ctx.db.updateTable("transfers").set(change).where("id", "=", row.id).execute()
  }
}

/**
 * Transfers whose block is canonical now: confirmed when deep enough, final when their block is. One of two endpoints may
 * confirm alone, while the other does not contradict; settling then counts the transfer towards small payments only.
 */
async function confirm(ctx: TxContext, network: NetworkInfo, { panel, cursor }: Observation): Promise<void> {
  const depth = BigInt(network.confirmations)
  const unfinal = await unfinalTransfers(ctx, cursor.chain_id)
  const isAgreed = (row: Row<"transfers">) => !row.single_source && panel.depthOf(row.block_number, row.block_hash) > 0n
  const seen = unfinal.filter(row => row.state === "seen")
  const deep = seen.filter(row => isAgreed(row) && panel.depthOf(row.block_number, row.block_hash) >= depth)
  const alone = network.endpoints.length === 2 ? seen.filter(row => !deep.includes(row) && isDeepAlone(row)) : []
  await confirmTransfers(ctx, deep, false)
  await confirmTransfers(ctx, alone, true)
  await finalizeTransfers(
    ctx,
    unfinal.filter(row => row.state === "confirmed" && isAgreed(row) && row.block_number <= panel.finalized),
  )

  function isDeepAlone(row: Row<"transfers">): boolean {
    if (panel.depthAlone(row.block_number, row.block_hash) < depth) return false
    return !row.single_source || panel.standingOf(transferOf(row)) === "single"
  }
}

/** A stored transfer as the log that it was read from. */
const transferOf = (row: Row<"transfers">): Transfer => ({
  txHash: row.tx_hash,
  token: row.token,
  from: row.from_address,
  to: row.to_address,
  value: row.value,
  blockNumber: row.block_number,
  blockHash: row.block_hash,
  logIndex: row.log_index,
  k: row.k,
  blockTime: row.block_time,
})
