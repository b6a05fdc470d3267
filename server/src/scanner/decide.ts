/**
 * What follows from one round of verification: pure, from what was read of the chain and the rows as they are, to the changes
 * of the rows. `record-observation.ts` writes them.
 */
import { votesNeeded } from "../chain/agreement.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { Block, Transfer } from "../chain/transfers.ts"
import type { Row } from "../db/schema.ts"
import { judgeSubmissions, type SubmissionChange } from "./judge-submissions.ts"
import { keyOfRow, type Observation } from "./observe-chain.ts"
import { lagAfter } from "./scan-lag.ts"

/** Another block at a transfer's height must be seen twice, so far apart, where there is one endpoint. */
const SUSPICION_MS = 30_000

type TransferRow = Row<"transfers">

/** A transfer that is gone, or that is suspected from now on or no longer. */
interface Doubt {
  row: TransferRow
  change: Partial<Pick<TransferRow, "suspect_at" | "state" | "run_at">>
}

/** What a round changes of the rows. */
export interface Changes {
  doubts: Doubt[]
  /** Deep enough according to a quorum, or to one of two endpoints; and in a finalized block. */
  confirmed: TransferRow[]
  confirmedAlone: TransferRow[]
  final: TransferRow[]
  submissions: SubmissionChange[]
  /** The deposits that the scan had to catch up with, and how far it is; undefined: the ordinary scan has them again. */
  caughtUp: { ids: bigint[]; upTo: bigint | undefined } | undefined
  cursor: Partial<Row<"cursors">>
}

/** The changes that follow from an observation, where `unfinal` are the transfers that are not final, the new ones included. */
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
 * From where the next round goes on: as far as a quorum surely read the logs and agrees on what is there. An endpoint that
 * lags must not take the scan back, and a reorg is not forgotten before all transfers in doubt were compared; after one the
 * scan goes back to the finalized block, as it may be deeper than the rescan.
 */
function nextCheckpoint({ cursor, quorum, scannedTo, reorged, allCompared }: Observation): Partial<Row<"cursors">> {
  const at = (block: Block | undefined) =>
    block ? { block_number: block.number, block_hash: block.hash, block_time: block.time } : {}
  if (reorged && !allCompared) return {}
  if (reorged) return at(quorum.blockAt(quorum.finalized)?.block)
  if (scannedTo > cursor.block_number) return at(quorum.blockAt(scannedTo)?.block)
  // A checkpoint of before its time was kept; read again to its end it stands where it stood.
  return cursor.block_time === null && scannedTo === cursor.block_number ? at(quorum.blockAt(scannedTo)?.block) : {}
}

/**
 * Transfers whose height holds another block according to a quorum, while a quorum does not have them in a receipt: gone.
 * Where there is one endpoint it must say so twice. What one of two endpoints alone had reported is gone when neither has it.
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
 * Transfers whose block is canonical now: confirmed when deep enough, final when their block is. One of two endpoints may
 * confirm alone, while the other does not contradict; settling then counts the transfer towards small payments only.
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
