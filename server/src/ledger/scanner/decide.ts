/**
 * Decides what one round of verification changes. Pure: it turns the current rows, and what was read from the chain,
 * into row changes. `record-observation.ts` writes these changes.
 */
import { votesNeeded } from "../../platform/chain/agreement.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Block, Transfer } from "../../platform/chain/transfers.ts"
import type { Row } from "../../platform/db/schema.ts"
import { judgeSubmissions, type SubmissionChange } from "./judge-submissions.ts"
import { keyOfRow, type Observation } from "./observe-chain.ts"
import type { NamedBlock, UnfinalBlock } from "./read-unfinal-blocks.ts"
import { lagAfter } from "./watch-scan-lag.ts"

/** With one endpoint, a different block at a transfer's height must be seen twice, this far apart. */
const SUSPICION_MS = 30_000

type TransferRow = Row<"transfers">

/** A transfer that is gone, newly suspected, or no longer suspected. */
interface Doubt {
  row: TransferRow
  change: Partial<Pick<TransferRow, "suspect_at" | "state" | "run_at">>
}

/** The row changes that a round makes. */
export interface Changes {
  /** Changes of single transfers. */
  doubts: Doubt[]
  /**
   * Blocks that another block has replaced, and blocks that are in the chain again. The transfers in these blocks
   * change with the blocks.
   */
  suspected: NamedBlock[]
  restored: NamedBlock[]
  /**
   * Blocks that are deep enough according to a quorum, blocks that are deep enough according to one of two endpoints,
   * and final blocks. All agreed transfers in these blocks change with the blocks.
   */
  confirmed: NamedBlock[]
  confirmedAlone: NamedBlock[]
  final: NamedBlock[]
  /** Transfers that only one of two endpoints reports, and that are deep enough according to this endpoint. */
  singles: TransferRow[]
  submissions: SubmissionChange[]
  /**
   * The deposits whose scan had to catch up, and how far it got. `upTo` is undefined if the ordinary scan covers the
   * deposits again.
   */
  caughtUp: { ids: bigint[]; upTo: bigint | undefined }[]
  cursor: Partial<Row<"cursors">>
}

/** The current rows, including the round's new transfers: blocks with agreed transfers, and doubtful transfers. */
export interface Stored {
  blocks: readonly UnfinalBlock[]
  /** Transfers in displaced blocks, or from one endpoint alone. */
  doubted: readonly TransferRow[]
}

/** Returns the changes that follow from an observation and what is stored. */
export function decide(
  network: NetworkInfo,
  seen: Observation,
  stored: Stored,
  { now, maxScanLag }: { now: Date; maxScanLag: number },
): Changes {
  const { cursor, quorum, backfills } = seen
  const doubts = doubtsOf(network, seen, stored.doubted, now)
  const gone = new Set(doubts.filter(({ change }) => change.state === "gone").map(({ row }) => row.id))
  const isBack = (scannedTo: bigint) => scannedTo >= quorum.head && scannedTo >= cursor.block_number
  const checkpoint = nextCheckpoint(seen)
  const lag = quorum.head - (checkpoint.block_number ?? cursor.block_number)
  return {
    doubts,
    ...suspicions(seen, stored.blocks),
    ...standing(network, seen, stored.blocks),
    singles: deepSingles(
      network,
      seen,
      stored.doubted.filter(row => !gone.has(row.id)),
    ),
    submissions: judgeSubmissions(network, seen, now),
    caughtUp: backfills.map(({ ids, scannedTo }) => ({ ids, upTo: isBack(scannedTo) ? undefined : scannedTo })),
    cursor: { looked_at: now, ...checkpoint, ...lagAfter(cursor, lag > 0n ? lag : 0n, maxScanLag, now) },
  }
}

/**
 * Returns where the next round starts: the last block whose logs a quorum has read and agreed on. A lagging endpoint
 * must not move the scan back. After a reorg, the checkpoint stays until all doubtful transfers were compared. Then the
 * checkpoint moves back to the finalized block, because the reorg may be deeper than the rescan.
 */
function nextCheckpoint({ cursor, quorum, scannedTo, reorged, allCompared }: Observation): Partial<Row<"cursors">> {
  const at = (block: Block | undefined) =>
    block ? { block_number: block.number, block_hash: block.hash, block_time: block.time } : {}
  if (reorged && !allCompared) return {}
  if (reorged) return at(quorum.blockAt(quorum.finalized)?.block)
  if (scannedTo > cursor.block_number) return at(quorum.blockAt(scannedTo)?.block)
  // A checkpoint from before block times were stored has no time. Such a checkpoint is written with its time once the
  // scan ends at the same block again.
  return cursor.block_time === null && scannedTo === cursor.block_number ? at(quorum.blockAt(scannedTo)?.block) : {}
}

/**
 * Returns transfers that are gone, and transfers of a single endpoint that became suspected or are no longer suspected.
 * A transfer is gone if a quorum has another block at its height, and a quorum has no receipt with the transfer. With
 * one endpoint, that endpoint must report this twice. A transfer that only one of two endpoints reported is gone when
 * neither endpoint has it.
 */
function doubtsOf(network: NetworkInfo, { quorum }: Observation, doubted: readonly TransferRow[], now: Date): Doubt[] {
  const needed = votesNeeded(network.endpoints.length)
  return doubted.flatMap((row): Doubt[] => {
    const canonical = quorum.blockAt(row.block_number)?.block
    if (!canonical && !row.single_source) return []
    const displaced = canonical !== undefined && canonical.hash !== row.block_hash
    const suspectedMs = row.suspect_at ? now.getTime() - row.suspect_at.getTime() : -1
    const sure = needed > 1 || suspectedMs >= SUSPICION_MS
    const mayBeGone = (displaced && sure) || row.single_source
    if (mayBeGone && quorum.votesWithout(row.tx_hash, keyOfRow(row), row.block_number) >= needed)
      return [{ row, change: { state: "gone", run_at: now } }]
    // The other transfers are suspected together with their blocks.
    if (!row.single_source || displaced === (row.suspect_at !== null)) return []
    return [{ row, change: { suspect_at: displaced ? now : null } }]
  })
}

/** Returns the blocks that another block replaced, and the blocks that are in the chain again. */
function suspicions(
  { quorum, displaced }: Observation,
  blocks: readonly UnfinalBlock[],
): Pick<Changes, "suspected" | "restored"> {
  const hashAt = (number: bigint) => quorum.blockAt(number)?.block.hash
  return {
    suspected: displaced,
    restored: blocks.filter(block => block.suspected && hashAt(block.number) === block.hash),
  }
}

/**
 * Returns the blocks that are canonical now. A block is confirmed when it is deep enough, and final when it is
 * finalized. One of two endpoints may confirm alone if the other does not contradict it. Settlement then counts the
 * block's transfers only for small payments.
 */
function standing(
  network: NetworkInfo,
  { quorum }: Observation,
  blocks: readonly UnfinalBlock[],
): Pick<Changes, "confirmed" | "confirmedAlone" | "final"> {
  const depth = BigInt(network.confirmations)
  const depthOf = ({ number, hash }: NamedBlock) => quorum.depthOf(number, hash)
  const confirmed = blocks.filter(block => block.seen && depthOf(block) >= depth)
  const rest = network.endpoints.length === 2 ? blocks.filter(block => block.seen && !confirmed.includes(block)) : []
  return {
    confirmed,
    confirmedAlone: rest.filter(({ number, hash }) => quorum.depthAlone(number, hash) >= depth),
    final: blocks.filter(block => block.confirmed && depthOf(block) > 0n && block.number <= quorum.finalized),
  }
}

/**
 * Returns the transfers that only one of two endpoints reports, and that are deep enough according to this endpoint.
 */
function deepSingles(network: NetworkInfo, { quorum }: Observation, doubted: readonly TransferRow[]): TransferRow[] {
  if (network.endpoints.length !== 2) return []
  return doubted.filter(
    row =>
      row.single_source &&
      row.state === "seen" &&
      quorum.depthAlone(row.block_number, row.block_hash) >= network.confirmations &&
      quorum.standingOf(transferOf(row)) === "single",
  )
}

/** Converts a stored transfer back to its log. */
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
