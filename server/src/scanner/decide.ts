/**
 * Decides what follows from one round of verification. Pure: from what was read of the chain and the current rows to
 * the changes of the rows, which `record-observation.ts` writes.
 */
import { votesNeeded } from "../chain/agreement.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { Block, Transfer } from "../chain/transfers.ts"
import type { Row } from "../db/schema.ts"
import { judgeSubmissions, type SubmissionChange } from "./judge-submissions.ts"
import { keyOfRow, type Observation } from "./observe-chain.ts"
import { lagAfter } from "./scan-lag.ts"

/** With one endpoint, another block at a transfer's height must be seen twice, this far apart. */
const SUSPICION_MS = 30_000

type TransferRow = Row<"transfers">

/** A transfer that is gone, newly suspected, or no longer suspected. */
interface Doubt {
  row: TransferRow
  change: Partial<Pick<TransferRow, "suspect_at" | "state" | "run_at">>
}

/** The row changes of a round. */
export interface Changes {
  doubts: Doubt[]
  /**
   * Transfers that are deep enough according to a quorum, or to one of two endpoints; and those in a finalized block.
   */
  confirmed: TransferRow[]
  confirmedAlone: TransferRow[]
  final: TransferRow[]
  submissions: SubmissionChange[]
  /**
   * The deposits that the scan had to catch up on, and how far it got; undefined: the ordinary scan covers them again.
   */
  caughtUp: { ids: bigint[]; upTo: bigint | undefined } | undefined
  cursor: Partial<Row<"cursors">>
}

/**
 * Returns the changes that follow from an observation; `unfinal` are the transfers that are not final, including the
 * new ones.
 */
export function decide(
  network: NetworkInfo,
  seen: Observation,
  unfinal: readonly TransferRow[],
  { now, maxScanLag }: { now: Date; maxScanLag: number },
): Changes {
  const { cursor, quorum, backfill } = seen
  const doubts = doubtsOf(network, seen, unfinal, now)
  const gone = new Set(doubts.filter(({ change }) => change.state === "gone").map(({ row }) => row.id))
  const isBack = backfill && backfill.scannedTo >= quorum.head && backfill.scannedTo >= cursor.block_number
  const checkpoint = nextCheckpoint(seen)
  const lag = quorum.head - (checkpoint.block_number ?? cursor.block_number)
  return {
    doubts,
    ...standing(
      network,
      seen,
      unfinal.filter(row => !gone.has(row.id)),
    ),
    submissions: judgeSubmissions(network, seen, now),
    caughtUp: backfill && { ids: backfill.ids, upTo: isBack ? undefined : backfill.scannedTo },
    cursor: { looked_at: now, ...checkpoint, ...lagAfter(cursor, lag > 0n ? lag : 0n, maxScanLag, now) },
  }
}

/**
 * Where the next round starts: the last block whose logs a quorum has read and agrees on. A lagging endpoint must not
 * move the scan back. After a reorg the checkpoint stays until all transfers in doubt were compared, and then moves
 * back to the finalized block, because the reorg may be deeper than the rescan.
 */
function nextCheckpoint({ cursor, quorum, scannedTo, reorged, allCompared }: Observation): Partial<Row<"cursors">> {
  const at = (block: Block | undefined) =>
    block ? { block_number: block.number, block_hash: block.hash, block_time: block.time } : {}
  if (reorged && !allCompared) return {}
  if (reorged) return at(quorum.blockAt(quorum.finalized)?.block)
  if (scannedTo > cursor.block_number) return at(quorum.blockAt(scannedTo)?.block)
  // A checkpoint from before its time was stored has no time; when the scan ends at the same block again, it is written
  // with the time.
  return cursor.block_time === null && scannedTo === cursor.block_number ? at(quorum.blockAt(scannedTo)?.block) : {}
}

/**
 * Returns transfers that are gone or suspected. A transfer is gone if a quorum has another block at its height, and a
 * quorum has no receipt with it. With one endpoint, the endpoint must say so twice. A transfer that one of two
 * endpoints alone had reported is gone when neither has it.
 */
function doubtsOf(network: NetworkInfo, { quorum }: Observation, unfinal: readonly TransferRow[], now: Date): Doubt[] {
  const needed = votesNeeded(network.endpoints.length)
  return unfinal.flatMap((row): Doubt[] => {
    const canonical = quorum.blockAt(row.block_number)?.block
    if (!canonical && !row.single_source) return []
    const displaced = canonical !== undefined && canonical.hash !== row.block_hash
    const suspectedMs = row.suspect_at ? now.getTime() - row.suspect_at.getTime() : -1
    const sure = needed > 1 || suspectedMs >= SUSPICION_MS
    const isNowhere = quorum.votesWithout(row.tx_hash, keyOfRow(row), row.block_number) >= needed
    if (isNowhere && ((displaced && sure) || row.single_source))
      return [{ row, change: { state: "gone", run_at: now } }]
    return displaced !== (row.suspect_at !== null) ? [{ row, change: { suspect_at: displaced ? now : null } }] : []
  })
}

/**
 * Returns transfers whose block is canonical now: confirmed when deep enough, final when their block is. One of two
 * endpoints may confirm alone, while the other does not contradict; settlement then counts the transfer towards small
 * payments only.
 */
function standing(
  network: NetworkInfo,
  { quorum }: Observation,
  unfinal: readonly TransferRow[],
): Pick<Changes, "confirmed" | "confirmedAlone" | "final"> {
  const depth = BigInt(network.confirmations)
  const isAgreed = (row: TransferRow) => !row.single_source && quorum.depthOf(row.block_number, row.block_hash) > 0n
  const isDeepAlone = (row: TransferRow) =>
    quorum.depthAlone(row.block_number, row.block_hash) >= depth &&
    (!row.single_source || quorum.standingOf(transferOf(row)) === "single")
  const isSeen = unfinal.filter(row => row.state === "seen")
  const confirmed = isSeen.filter(row => isAgreed(row) && quorum.depthOf(row.block_number, row.block_hash) >= depth)
  const rest = network.endpoints.length === 2 ? isSeen.filter(row => !confirmed.includes(row)) : []
  return {
    confirmed,
    confirmedAlone: rest.filter(isDeepAlone),
    final: unfinal.filter(row => row.state === "confirmed" && isAgreed(row) && row.block_number <= quorum.finalized),
  }
}

/** Converts a stored transfer back to the log that it was read from. */
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
