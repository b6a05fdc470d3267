/**
 * Reads the database and the chain for one round of verification, and writes nothing. `decide.ts` decides what to
 * change, and `record-observation.ts` writes the changes.
 *
 * Anyone can put any number of transfers on chain, and submit any hash. So the cost of a round may grow only with the
 * number of blocks that the round examines. All other work is linear in what the endpoints report, is limited, and
 * gives other work turns in between.
 */
import { keyOf } from "../../platform/chain/agreement.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { type Seen, troublesIn } from "../../platform/chain/note-endpoint-troubles.ts"
import { openQuorum, type Quorum, type QuorumView } from "../../platform/chain/quorum.ts"
import type { Judged } from "../../platform/chain/voters.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { inTurns } from "../../platform/turns.ts"
import { type MinedCall, uncountedCalls } from "./count-deep-calls.ts"
import { byAddress, type Found, findTransfers, lowest } from "./find-transfers.ts"
import {
  depositsAmong,
  depositsBehind,
  dueSubmissions,
  explainedSubmissions,
  type WatchedDeposit,
  watchedAddresses,
} from "./queries.ts"
import {
  type BlockWindow,
  type NamedBlock,
  singleTransfers,
  transfersIn,
  type UnfinalBlock,
  unfinalBlocks,
  unfinalBlocksBelow,
} from "./read-unfinal-blocks.ts"

/** How many blocks are scanned again in each round, because nodes index logs late, and shallow reorgs move the logs. */
const RESCAN_BLOCKS = 20n
/**
 * How many blocks are scanned again every {@link DEEP_MS}, for logs that a lagging node did not report. `DEEP_BLOCKS`
 * is twice the number of blocks in that time.
 */
const DEEP_BLOCKS = 600n
const DEEP_MS = 600_000
/**
 * A rescan that takes longer than `LONG_SCAN_MS` is repeated only after a pause of `RESCAN_SHARE` times its duration.
 */
const LONG_SCAN_MS = 250
const RESCAN_SHARE = 5
/**
 * How many receipts one round reads for submissions. The round reads the same number again for transfers about which
 * endpoints disagree.
 */
const RECEIPTS_PER_ROUND = 100
/** For how many transfers in displaced blocks, or from one endpoint alone, one round reads the receipts. */
const DOUBTS_PER_ROUND = 500
/** How many heights are compared at a time after a reorg. */
const HEIGHTS_PER_STEP = 50
/** Addresses that are behind by more than this when they return to the scan are read separately. */
const FAR_BLOCKS = 20_000n
/** How many addresses that are a little behind, and how many that are far behind, one round reads. */
const BEHIND_PER_ROUND = 5_000

/** Addresses whose scan had to catch up, and the block that the scan reached. */
interface Backfill {
  ids: bigint[]
  scannedTo: bigint
}

/** Everything that a round read. */
export interface Observation {
  cursor: Row<"cursors">
  quorum: QuorumView
  deposits: Map<Address, WatchedDeposit>
  submissions: Row<"submissions">[]
  /** New transfers from scans and receipts, without duplicates. */
  found: Found[]
  /** Whether there are more new transfers than one round stores. */
  isMore: boolean
  /** The last block up to which everything was read and agreed. */
  scannedTo: bigint
  backfills: Backfill[]
  /** Transfers in displaced blocks, or from one endpoint alone, whose receipts were read. */
  doubted: Row<"transfers">[]
  window: BlockWindow
  /** Blocks of our transfers that another block has replaced, except those that the round checks anyway. */
  displaced: NamedBlock[]
  /** Whether another block is now at the height of the last round's head. */
  reorged: boolean
  /** Whether all doubtful transfers could be compared with the canonical chain. */
  allCompared: boolean
  /** Escrow calls that may be deep enough, whose blocks were read. */
  calls: MinedCall[]
  /** Problems that the round found in the endpoints themselves. */
  troubles: Seen[]
}

/** Reads the database and the chain, and writes nothing. */
export async function observeChain(ctx: Context, network: Network, cursor: Row<"cursors">): Promise<Observation> {
  const watched = await watchedAddresses(ctx, network.chainId)
  const submissions = await dueSubmissions(ctx, network.chainId, RECEIPTS_PER_ROUND)
  const quorum = await openQuorum(network, cursor.block_number, ctx.signal, { alone: true })
  const readTo = await rescan(ctx, network, quorum, cursor, watched)
  const backfills = await scanBehind(ctx, network, quorum, cursor.block_number)
  const compared = await compareBlocks(ctx, network, cursor, { quorum, readTo, submissions })
  const { doubted, asked, reorged } = compared
  const named = new Set([...submissions, ...doubted].map(row => row.tx_hash))
  const { heldFrom, ...news } = await findTransfers(ctx, network, quorum, { named, asked, submissions })
  // The scan does not pass blocks with logs about which endpoints disagree, or with logs that are not stored yet. So
  // these blocks are read again.
  const sure = (to: bigint) => (heldFrom !== undefined && to >= heldFrom ? heldFrom - 1n : to)
  const scannedTo = sure(readTo)
  // The block where the next round may start.
  await quorum.learn(reorged ? [quorum.finalized] : scannedTo > cursor.block_number ? [scannedTo] : [], [])
  return {
    cursor,
    quorum,
    submissions,
    scannedTo,
    backfills: backfills.map(({ ids, scannedTo }) => ({ ids, scannedTo: sure(scannedTo) })),
    troubles: await troublesIn(network, quorum),
    ...compared,
    ...news,
  }
}

/** The part of an {@link Observation} that comes from comparing rows with the canonical chain. */
type Comparison = Pick<Observation, "doubted" | "displaced" | "reorged" | "allCompared" | "calls" | "window"> & {
  /** Transactions of logs that not all endpoints have, whose receipts were read. */
  asked: Set<Hash>
}

/**
 * Compares the blocks of our transfers with the canonical chain, and reads the receipts of doubtful transfers and
 * submissions.
 */
async function compareBlocks(
  ctx: Context,
  network: Network,
  cursor: Row<"cursors">,
  { quorum, readTo, submissions }: { quorum: Quorum; readTo: bigint; submissions: readonly Row<"submissions">[] },
): Promise<Comparison> {
  const { chainId } = network
  const checkpoint = quorum.blockAt(cursor.block_number)
  const reorged = checkpoint !== undefined && checkpoint.block.hash !== cursor.block_hash
  const judged = await quorum.judged()
  const placed = await blocksOf(judged.filter(({ standing }) => standing === "agreed"))
  const from = back(cursor.block_number, RESCAN_BLOCKS)
  const deepest = quorum.highest - network.confirmations + 1n
  const { finalized } = quorum
  const window = { deepest, finalized, from, to: readTo, isOdd: turnOf(ctx) % 2 === 1 }
  const blocks = await unfinalBlocks(ctx, chainId, window)
  const isChanging = ({ number, seen, confirmed, suspected }: UnfinalBlock) =>
    suspected || (seen && number <= deepest) || (confirmed && number <= finalized)
  const unsure = blocks.filter(block => isChanging(block) || !placed.has(nameOf(block)))
  const singles = await singleTransfers(ctx, chainId, { limit: DOUBTS_PER_ROUND, start: turnOf(ctx) })
  const calls = await uncountedCalls(ctx, chainId, deepest)
  const asked = unsettled(ctx, quorum, judged, singles)
  const open = await unexplained(ctx, network, judged, submissions)
  await quorum.learn(
    [
      ...unsure.map(({ number }) => number),
      ...singles.map(row => row.block_number),
      ...calls.map(call => call.blockNumber),
    ],
    // The transactions of strangers come last, because they may be too large to read.
    [...singles.map(row => row.tx_hash), ...asked, ...open],
  )
  const displaced = unsure.filter(({ number, hash }) => (quorum.blockAt(number)?.block.hash ?? hash) !== hash)
  const allCompared = !reorged || (await compareDownwards(ctx, network, quorum, displaced))
  const moved = await transfersIn(ctx, chainId, displaced, { limit: DOUBTS_PER_ROUND, start: turnOf(ctx) })
  await quorum.learn([], new Set(moved.map(row => row.tx_hash)))
  return { doubted: [...moved, ...singles], displaced, reorged, allCompared, calls, window, asked }
}

/** How long the last rescan took, in milliseconds, and when it ended, by `performance.now()`. */
const rescans = new WeakMap<Network["endpoints"], { tookMs: number; endedAt: number }>()

/**
 * Scans the watched addresses up to the head, and also rescans some earlier blocks. If a flood of dust makes the rescan
 * slow, only some rounds rescan, so that old blocks do not delay new ones.
 */
async function rescan(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  cursor: Row<"cursors">,
  watched: readonly Address[],
): Promise<bigint> {
  const isDeep = isDeepRound(ctx, cursor)
  const startedAt = performance.now()
  const last = rescans.get(network.endpoints)
  const isResting =
    last !== undefined && last.tookMs > LONG_SCAN_MS && startedAt - last.endedAt < RESCAN_SHARE * last.tookMs
  if (isResting && !isDeep) return await quorum.scan(network.token.address, watched, cursor.block_number)
  const scannedTo = await quorum.scan(
    network.token.address,
    watched,
    back(cursor.block_number, isDeep ? DEEP_BLOCKS : RESCAN_BLOCKS),
  )
  const endedAt = performance.now()
  rescans.set(network.endpoints, { tookMs: endedAt - startedAt, endedAt })
  return scannedTo
}

const nameOf = ({ number, hash }: NamedBlock): string => `${number} ${hash}`

async function blocksOf(judged: readonly Judged[]): Promise<Set<string>> {
  const names = new Set<string>()
  await inTurns(judged, ({ log }) => names.add(nameOf({ number: log.blockNumber, hash: log.blockHash })))
  return names
}

/** Returns a number that differs in each round, to choose what the round reads if it can't read everything. */
const turnOf = (ctx: Context): number => Math.floor(ctx.now().getTime() / 1_000)

/**
 * Scans deposits that returned to the scan from the block where their scan stopped. Deposits that are far behind are
 * read separately, so that one that was away for months does not delay the others.
 */
async function scanBehind(ctx: Context, network: Network, quorum: Quorum, number: bigint): Promise<Backfill[]> {
  const far = back(number, FAR_BLOCKS)
  const backfills: Backfill[] = []
  for (const { after, before } of [
    { after: far, before: number },
    { after: -1n, before: far },
  ]) {
    const behind = await depositsBehind(ctx, network.chainId, { after, before, limit: BEHIND_PER_ROUND })
    const [first] = behind
    if (!first) continue
    const scannedTo = await quorum.scan(
      network.token.address,
      behind.map(deposit => deposit.address),
      back(first.watchedNumber, RESCAN_BLOCKS),
    )
    backfills.push({ ids: behind.map(deposit => deposit.id), scannedTo })
  }
  return backfills
}

/** Returns the transactions of submissions that no reported log or stored transfer explains. */
async function unexplained(
  ctx: Context,
  network: Network,
  judged: readonly Judged[],
  submissions: readonly Row<"submissions">[],
): Promise<Set<Hash>> {
  if (submissions.length === 0) return new Set()
  const resources = submissions.map(row => row.resource_id)
  const deposits = byAddress(await depositsAmong(ctx, network.chainId, [], resources))
  const stored = await explainedSubmissions(
    ctx,
    network,
    submissions.map(({ id }) => id),
  )
  const named = new Set(submissions.map(row => row.tx_hash))
  const explained = new Set<string>()
  await inTurns(judged, ({ log, standing }) => {
    if (!named.has(log.txHash) || (standing !== "agreed" && standing !== "single")) return
    const resource = deposits.get(log.to)?.resource
    explained.add(`${log.txHash} ${log.from} ${resource}`).add(`${log.txHash} ${resource}`)
  })
  const open = submissions.filter(row => {
    const sender = row.by_sender ? `${row.address} ` : ""
    return !stored.has(row.id) && !explained.has(`${row.tx_hash} ${sender}${row.resource_id}`)
  })
  return new Set(open.map(row => row.tx_hash))
}

/**
 * Returns the transactions of logs that an endpoint has but no quorum does. Their receipts decide about these logs.
 * Each round takes a limited and different part of the transactions, because an endpoint can invent any number of logs.
 */
function unsettled(
  ctx: Context,
  quorum: Quorum,
  judged: readonly Judged[],
  singles: readonly Row<"transfers">[],
): Set<Hash> {
  // With only one endpoint, the receipt adds nothing to the log.
  if (quorum.voters < 2) return new Set()
  const open = judged.filter(({ standing }) => standing === "open" || standing === "single")
  const hashes = [...new Set([...singles.map(row => row.tx_hash), ...open.map(({ log }) => log.txHash)])]
  if (hashes.length <= RECEIPTS_PER_ROUND) return new Set(hashes)
  const start = turnOf(ctx) % hashes.length
  return new Set([...hashes.slice(start), ...hashes.slice(0, start)].slice(0, RECEIPTS_PER_ROUND))
}

const back = (number: bigint, blocks: bigint): bigint => (number > blocks ? number - blocks : 0n)

/** Whether this is the first round in the current interval of ten minutes. */
const isDeepRound = (ctx: Context, cursor: Row<"cursors">): boolean =>
  Math.floor(ctx.now().getTime() / DEEP_MS) !== Math.floor((cursor.looked_at?.getTime() ?? 0) / DEEP_MS)

/** Returns the key of a stored transfer; see {@link keyOf}. */
export const keyOfRow = (row: Row<"transfers">): string =>
  keyOf({ txHash: row.tx_hash, token: row.token, to: row.to_address, k: row.k })

/**
 * After a reorg, compares the blocks of transfers that are not final with the canonical chain. Starts with the highest
 * block, and stops at the first that is still in the chain. Adds the other blocks to `displaced`. Returns false if a
 * height could not be read.
 */
async function compareDownwards(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  displaced: NamedBlock[],
): Promise<boolean> {
  const known = new Set(displaced.map(nameOf))
  for (let below: bigint | undefined; ; ) {
    const step = await unfinalBlocksBelow(ctx, network.chainId, below, HEIGHTS_PER_STEP)
    if (step.length === 0) return true
    await quorum.learn(new Set(step.map(block => block.number)), [])
    if (step.some(block => !quorum.blockAt(block.number))) return false
    const gone = step.filter(block => quorum.blockAt(block.number)?.block.hash !== block.hash)
    for (const block of gone) if (!known.has(nameOf(block))) displaced.push(block)
    if (gone.length < step.length) return true
    below = lowest(step.map(block => block.number))
  }
}
