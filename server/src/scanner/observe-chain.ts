/**
 * Reads the database and the chain for one round of verification, and writes nothing. `decide.ts` decides what follows
 * from it, and `record-observation.ts` writes that.
 */

import { keyOf, type Standing } from "../chain/agreement.ts"
import { type Seen, troublesIn } from "../chain/endpoint-troubles.ts"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { openQuorum, type Quorum, type QuorumView } from "../chain/quorum.ts"
import type { Transfer } from "../chain/transfers.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { type MinedCall, uncountedCalls } from "./deep-calls.ts"
import { depositsAmong, dueSubmissions, unfinalTransfers, type WatchedDeposit, watchedDeposits } from "./queries.ts"

/** How many blocks are scanned again each round: nodes index logs late, and shallow reorgs move them. */
const RESCAN_BLOCKS = 20n
/**
 * How many blocks are scanned again every {@link DEEP_MS}, for logs that a lagging node did not report. Twice the
 * blocks of that time.
 */
const DEEP_BLOCKS = 600n
const DEEP_MS = 600_000
/** How many receipts one round reads for submissions, and as many for transfers that endpoints do not agree on. */
const RECEIPTS_PER_ROUND = 100
/** How many heights are compared at once after a reorg was noticed. */
const HEIGHTS_PER_STEP = 50

/** A transfer to one of our deposits, and whether only one of two endpoints has it. */
interface Found {
  log: Transfer & { blockTime: Date }
  isSingle: boolean
}

/** Everything that a round read. */
export interface Observation {
  cursor: Row<"cursors">
  quorum: QuorumView
  deposits: Map<Address, WatchedDeposit>
  submissions: Row<"submissions">[]
  unfinal: Row<"transfers">[]
  /** What the scans and the receipts show; each log once. */
  found: Found[]
  /** The last block up to which everything is read and agreed on. */
  scannedTo: bigint
  /** The deposits that the scan had to catch up on, and how far it got. */
  backfill: { ids: bigint[]; scannedTo: bigint } | undefined
  /** Transfers that may have moved: the block at their height and their receipt were read. */
  doubted: Row<"transfers">[]
  /** Whether another block is at the height of the last round's head. */
  reorged: boolean
  /** Whether all transfers in doubt could be compared with the canonical chain. */
  allCompared: boolean
  /** Calls of escrows that may be deep enough; their blocks were read. */
  calls: MinedCall[]
  /** What it showed about the endpoints themselves. */
  troubles: Seen[]
}

/** Reads the database and the chain; writes nothing. */
export async function observeChain(ctx: Context, network: Network, cursor: Row<"cursors">): Promise<Observation> {
  const watched = await watchedDeposits(ctx, network.chainId)
  const submissions = await dueSubmissions(ctx, network.chainId, RECEIPTS_PER_ROUND)
  const unfinal = await unfinalTransfers(ctx, network.chainId)
  const { deposits, know } = knownDeposits(ctx, network, watched)
  await know(
    unfinal.map(row => row.to_address),
    submissions.map(row => row.resource_id),
  )
  const quorum = await openQuorum(network, cursor.block_number, ctx.signal, { alone: true })

  const from = back(cursor.block_number, isDeepRound(ctx, cursor) ? DEEP_BLOCKS : RESCAN_BLOCKS)
  let scannedTo = await quorum.scan(
    watched.map(deposit => deposit.address),
    from,
  )
  const backfill = await scanBehind(quorum, watched, cursor.block_number)

  const checkpoint = quorum.blockAt(cursor.block_number)
  const reorged = checkpoint !== undefined && checkpoint.block.hash !== cursor.block_hash
  const inPlace = placesOf(quorum)
  const start = back(cursor.block_number, RESCAN_BLOCKS)
  const doubted = unfinal.filter(
    row =>
      row.suspect_at ||
      (row.block_number >= start &&
        row.block_number <= scannedTo &&
        !inPlace.has(`${keyOfRow(row)} ${row.block_hash}`)),
  )
  const deepest = quorum.head - network.confirmations + 1n
  const changing = unfinal.filter(row =>
    row.state === "seen"
      ? row.block_number <= deepest || row.single_source
      : !row.suspect_at && row.block_number <= quorum.finalized,
  )
  const asked = unsettled(ctx, quorum, unfinal)
  const calls = await uncountedCalls(ctx, network.chainId, deepest)
  await quorum.learn(
    [...[...doubted, ...changing].map(row => row.block_number), ...calls.map(call => call.blockNumber)],
    [...doubted.map(row => row.tx_hash), ...unexplained(quorum, unfinal, submissions, deposits), ...asked],
  )
  // A transfer that one endpoint alone has reported may be in no block; it is compared by its receipt.
  const agreedOnce = unfinal.filter(row => !row.single_source)
  const allCompared = !reorged || (await compareDownwards(quorum, agreedOnce, doubted))
  await know(
    [...submissions, ...doubted].flatMap(row => quorum.receiptOf(row.tx_hash)?.transfers ?? []).map(log => log.to),
  )
  const { found, heldFrom } = await foundOf(quorum, [...submissions, ...doubted], new Set(asked), deposits)
  // Blocks with logs that endpoints do not agree on yet are read again: the scan does not pass them.
  const sure = (to: bigint) => (heldFrom !== undefined && to >= heldFrom ? heldFrom - 1n : to)
  scannedTo = sure(scannedTo)
  if (backfill) backfill.scannedTo = sure(backfill.scannedTo)
  // The block at which the next round may start.
  await quorum.learn(reorged ? [quorum.finalized] : scannedTo > cursor.block_number ? [scannedTo] : [], [])
  return {
    cursor,
    quorum,
    deposits,
    submissions,
    unfinal,
    found,
    scannedTo,
    backfill,
    doubted,
    reorged,
    allCompared,
    calls,
    troubles: troublesIn(network, quorum),
  }
}

/** The deposits that a round can meet. Of a million, it loads only the watched ones and those that it is asked to `know`. */
function knownDeposits(ctx: Context, network: Network, watched: readonly WatchedDeposit[]) {
  const deposits = new Map(watched.map(deposit => [deposit.address, deposit]))
  const know = async (addresses: Address[], resources: string[] = []) => {
    const unknown = [...new Set(addresses)].filter(address => !deposits.has(address))
    for (const deposit of await depositsAmong(ctx, network.chainId, unknown, resources))
      deposits.set(deposit.address, deposit)
  }
  return { deposits, know }
}

/** Scans the deposits that came back into the scan, each from the block where its scan stopped. */
async function scanBehind(quorum: Quorum, watched: readonly WatchedDeposit[], number: bigint) {
  const behind = watched.filter(deposit => deposit.watchedNumber !== null)
  if (behind.length === 0) return undefined
  const oldest = behind.reduce(
    (low, { watchedNumber }) => (watchedNumber !== null && watchedNumber < low ? watchedNumber : low),
    number,
  )
  const scannedTo = await quorum.scan(
    behind.map(deposit => deposit.address),
    back(oldest, RESCAN_BLOCKS),
  )
  return { ids: behind.map(deposit => deposit.id), scannedTo }
}

/** Returns the keys and block hashes of the logs that a quorum reported. */
const placesOf = (quorum: Quorum): Set<string> =>
  new Set(
    quorum
      .reported()
      .filter(log => quorum.standingOf(log) === "agreed")
      .map(log => `${keyOf(log)} ${log.blockHash}`),
  )

/** Returns the transactions of submissions that no stored transfer explains. */
function unexplained(
  quorum: Quorum,
  unfinal: readonly Row<"transfers">[],
  submissions: readonly Row<"submissions">[],
  deposits: ReadonlyMap<Address, WatchedDeposit>,
): Hash[] {
  const inSight = [
    ...quorum.reported().filter(log => ["agreed", "single"].includes(quorum.standingOf(log))),
    ...unfinal.map(row => ({ txHash: row.tx_hash, from: row.from_address, to: row.to_address })),
  ]
  const explained = new Set(
    inSight.flatMap(({ txHash, from, to }) => {
      const resource = deposits.get(to)?.resource
      return [`${txHash} ${from} ${resource}`, `${txHash} ${resource}`]
    }),
  )
  return submissions
    .filter(row => {
      const sender = row.by_sender ? `${row.address} ` : ""
      return !explained.has(`${row.tx_hash} ${sender}${row.resource_id}`)
    })
    .map(submission => submission.tx_hash)
}

/**
 * Returns the transactions of logs that some endpoint has and no quorum: their receipts decide. Each round takes a
 * limited number, and a different part of them, because an endpoint can make up any number.
 */
function unsettled(ctx: Context, quorum: Quorum, unfinal: readonly Row<"transfers">[]): Hash[] {
  // If only one endpoint can be asked, its receipt adds nothing to its log.
  if (quorum.voters < 2) return []
  const inPlace = placesOf(quorum)
  const open = quorum.reported().filter(log => ["open", "single"].includes(quorum.standingOf(log)))
  const alone = unfinal.filter(row => row.single_source && !inPlace.has(`${keyOfRow(row)} ${row.block_hash}`))
  const hashes = [...new Set([...alone.map(row => row.tx_hash), ...open.map(log => log.txHash)])]
  if (hashes.length <= RECEIPTS_PER_ROUND) return hashes
  const start = Math.floor(ctx.now().getTime() / 1_000) % hashes.length
  return [...hashes.slice(start), ...hashes.slice(0, start)].slice(0, RECEIPTS_PER_ROUND)
}

/**
 * Returns the logs that are sure enough to be stored, and the first block with one that is not. A log that one of two
 * endpoints has is stored once the other was `asked` for its receipt.
 */
async function foundOf(
  quorum: Quorum,
  named: readonly { tx_hash: Hash }[],
  asked: ReadonlySet<Hash>,
  deposits: ReadonlyMap<Address, WatchedDeposit>,
): Promise<{ found: Found[]; heldFrom: bigint | undefined }> {
  // A transfer that one endpoint alone had reported may be deeper than any rescan: only its receipt finds it.
  const hashes = new Set([...named.map(row => row.tx_hash), ...asked])
  const receipts = [...hashes].flatMap(hash => quorum.receiptOf(hash) ?? [])
  const agreed = receipts.flatMap(receipt => (receipt.succeeded ? receipt.transfers : []))
  const logs = [
    ...agreed.map(log => ({ log, standing: "agreed" as Standing })),
    ...quorum.reported().map(log => ({ log, standing: quorum.standingOf(log) })),
  ].filter(({ log, standing }) => standing !== "denied" && deposits.has(log.to))
  // An open log is not stored, whatever its time is, and an endpoint can make up any number of blocks.
  const untimed = logs.filter(({ log, standing }) => standing !== "open" && !quorum.timeOf(log, standing))
  await quorum.learn(
    untimed.map(({ log }) => log.blockNumber),
    [],
  )
  const found = new Map<string, Found>()
  let heldFrom: bigint | undefined
  for (const { log, standing } of logs) {
    const canonical = quorum.blockAt(log.blockNumber)?.block
    // A log can be older than the block that was read after it; the block decides.
    if (canonical && canonical.hash !== log.blockHash) continue
    const blockTime = quorum.timeOf(log, standing)
    const isSure = standing === "agreed" || (standing === "single" && (quorum.voters < 2 || asked.has(log.txHash)))
    const known = found.get(keyOf(log))
    if (blockTime && isSure && (!known || known.isSingle))
      found.set(keyOf(log), { log: { ...log, blockTime }, isSingle: standing === "single" })
    else if (!(blockTime && isSure) && (heldFrom === undefined || log.blockNumber < heldFrom))
      heldFrom = log.blockNumber
  }
  return { found: [...found.values()], heldFrom }
}

const back = (number: bigint, blocks: bigint): bigint => (number > blocks ? number - blocks : 0n)

/** Whether this is the first round of its ten minutes. */
const isDeepRound = (ctx: Context, cursor: Row<"cursors">): boolean =>
  Math.floor(ctx.now().getTime() / DEEP_MS) !== Math.floor((cursor.looked_at?.getTime() ?? 0) / DEEP_MS)

/** The key of a stored transfer; see {@link keyOf}. */
export const keyOfRow = (row: Row<"transfers">): string =>
  keyOf({ txHash: row.tx_hash, token: row.token, to: row.to_address, k: row.k })

/**
 * After a reorg: compares transfers that are not final with the canonical chain, highest block first, until one is
 * still in its block. Adds the others to `doubted`. Returns false if a height could not be read.
 */
async function compareDownwards(
  quorum: Quorum,
  unfinal: readonly Row<"transfers">[],
  doubted: Row<"transfers">[],
): Promise<boolean> {
  const heights = [...new Set(unfinal.map(row => row.block_number))].sort((a, b) => (a < b ? 1 : -1))
  for (let start = 0; start < heights.length; start += HEIGHTS_PER_STEP) {
    const step = new Set(heights.slice(start, start + HEIGHTS_PER_STEP))
    await quorum.learn(step, [])
    const rows = unfinal.filter(row => step.has(row.block_number))
    if (rows.some(row => !quorum.blockAt(row.block_number))) return false
    const displaced = rows.filter(row => quorum.blockAt(row.block_number)?.block.hash !== row.block_hash)
    await quorum.learn(
      [],
      displaced.map(row => row.tx_hash),
    )
    doubted.push(...displaced.filter(row => !doubted.includes(row)))
    if (displaced.length < rows.length) return true
  }
  return true
}
