/**
 * Writes what a round of verification learnt: new transfers, those that moved or are gone, those that are deep enough or
 * final, and from where the next round goes on.
 */
import { sql } from "kysely"
import type { Network } from "../chain/networks.ts"
import type { Block } from "../chain/transfers.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { judgeSubmissions } from "./judge-submissions.ts"
import { keyOf, type Panel } from "./look.ts"
import { keyOfRow, needsTwo, type Observation } from "./observe-chain.ts"
import {
  confirmTransfers,
  finalizeTransfers,
  linkSubmissions,
  storeTransfers,
  unfinalTransfers,
  wakeSessions,
  watchedUpTo,
} from "./queries.ts"
import { statusMessage } from "./reasons.ts"
import { withoutFlood } from "./tokens.ts"

/** Another block at a transfer's height must be seen twice, so far apart, where one endpoint alone says so. */
const SUSPICION_MS = 30_000

/** Writes what was seen; call it inside a transaction. Answers whether a submission ended. */
export async function recordObservation(ctx: Context, network: Network, seen: Observation): Promise<boolean> {
  const { cursor, panel, scan, backfill } = seen
  // The fence: a worker whose lease was taken over must not write what is by now old.
  const fence = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .where("claim_id", "=", cursor.claim_id)
    .forNoKeyUpdate()
    .executeTakeFirst()
  if (!fence) return false

  const receipts = [...seen.submissions, ...seen.doubted].map(row => panel.receiptOf(row.tx_hash))
  const found = [
    ...scan.transfers,
    ...(backfill?.transfers ?? []),
    ...receipts.flatMap(each => (each?.succeeded ? each.transfers : [])),
  ]
  const ours = [...new Map(found.map(transfer => [keyOf(transfer), transfer])).values()].flatMap(transfer => {
    const deposit = seen.deposits.get(transfer.to)
    const canonical = panel.blockAt(transfer.blockNumber)?.block
    const blockTime = transfer.blockTime ?? canonical?.time
    // Logs can be older than the blocks asked for after them; the block decides.
    if (!deposit || !blockTime || (canonical && canonical.hash !== transfer.blockHash)) return []
    return [{ ...transfer, depositId: deposit.id, blockTime }]
  })
  const changed = await storeTransfers(ctx, network, withoutFlood(network, ours))
  await doubt(ctx, seen)
  await confirm(ctx, network, seen)
  const ended = await judgeSubmissions(ctx, network, seen)
  await wakeSessions(
    ctx,
    changed,
    ended.flatMap(submission => submission.session_id ?? []),
  )
  await linkSubmissions(ctx, network, statusMessage.verifying)
  if (backfill)
    await watchedUpTo(ctx, backfill.ids, backfill.scannedTo < panel.head.number ? backfill.scannedTo : undefined)
  await ctx.db
    .updateTable("cursors")
    .set({
      looked_at: ctx.now(),
      finalized_number: sql`greatest(finalized_number, ${panel.finalized}::bigint)`,
      ...nextCheckpoint(seen),
    })
    .where("chain_id", "=", network.chainId)
    .execute()
  return ended.length > 0
}

/**
 * From where the next round goes on: from the head, or from as far as the logs were surely read. A node that lags must not
 * take the scan back, and a reorg is not forgotten before all transfers in doubt were compared; after one the scan goes
 * back to the finalized block, as it may be deeper than the rescan.
 */
function nextCheckpoint({ cursor, panel, scan, reorged, allCompared }: Observation): Partial<Row<"cursors">> {
  const at = (block: Block | undefined) => (block ? { block_number: block.number, block_hash: block.hash } : {})
  if (reorged && !allCompared) return {}
  if (reorged) return at(panel.blockAt(panel.finalized)?.block)
  if (panel.head.number < cursor.block_number) return {}
  if (scan.scannedTo >= panel.head.number) return at(panel.head)
  return scan.scannedTo > cursor.block_number ? at(panel.blockAt(scan.scannedTo)?.block) : {}
}

/** Transfers whose height holds another block: gone at once when two endpoints say so, else when it is so twice. */
async function doubt(ctx: Context, { panel, cursor }: Observation): Promise<void> {
  const now = ctx.now()
  for (const row of await unfinalTransfers(ctx, cursor.chain_id)) {
    const canonical = panel.blockAt(row.block_number)
    if (!canonical) continue
    const displaced = canonical.block.hash !== row.block_hash
    const suspectedMs = row.suspect_at ? now.getTime() - row.suspect_at.getTime() : -1
    const proven = displaced && (canonical.votes > 1 || suspectedMs >= SUSPICION_MS) && isNowhere(panel, row)
    let change: Partial<Pick<Row<"transfers">, "suspect_at" | "state" | "run_at">>
    if (proven) change = { state: "gone", run_at: now }
    else if (displaced !== (row.suspect_at !== null)) change = { suspect_at: displaced ? now : null }
    else continue
    ctx.log.warn(
      { txHash: row.tx_hash, state: row.state, change },
      "another block stands, or stood, at a transfer's height",
    )
    await ctx.db.updateTable("transfers").set(change).where("id", "=", row.id).execute()
  }
}

/** The transaction has no receipt, or one that no longer holds the transfer. An unanswered question is not "nowhere". */
function isNowhere(panel: Panel, row: Row<"transfers">): boolean {
  const receipt = panel.receiptOf(row.tx_hash)
  if (!receipt) return receipt === null
  return !(receipt.succeeded && receipt.transfers.some(transfer => keyOf(transfer) === keyOfRow(row)))
}

/** Transfers whose block is canonical now: confirmed when deep enough, final when their block is. */
async function confirm(ctx: Context, network: Network, { panel, scan, cursor }: Observation): Promise<void> {
  const deepest = panel.head.number - network.confirmations + 1n
  const standing = (await unfinalTransfers(ctx, cursor.chain_id)).filter(row => {
    if (panel.blockAt(row.block_number)?.block.hash !== row.block_hash) return false
    if (!needsTwo(ctx, network, row)) return true
    const key = keyOfRow(row)
    const votes = panel.receiptVotes({ txHash: row.tx_hash, key, blockHash: row.block_hash })
    return (
      Math.max(votes, scan.sightings.get(`${key} ${row.block_hash}`) ?? 0) > 1 &&
      (panel.blockAt(row.block_number)?.votes ?? 0) > 1
    )
  })
  await confirmTransfers(
    ctx,
    standing.filter(row => row.state === "seen" && row.block_number <= deepest),
  )
  await finalizeTransfers(
    ctx,
    standing.filter(row => row.state === "confirmed" && row.block_number <= panel.finalized),
  )
}
