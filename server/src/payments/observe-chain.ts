/**
 * What one round of verification learns: reads the database and the chain, and writes nothing. `record-observation.ts`
 * writes what follows from it.
 */
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { parseAmount } from "../money/amount.ts"
import { keyOf, openPanel, type Panel, type Scan } from "./look.ts"
import { depositsAmong, dueSubmissions, hotDeposits, unfinalTransfers, type WatchedDeposit } from "./queries.ts"

/** Blocks scanned again each round: nodes put logs into their index late, and shallow reorgs move them. */
const RESCAN_BLOCKS = 20n
/** Scanned again every {@link DEEP_MS}: what a node that lagged unnoticed did not tell. Twice the blocks of that time. */
const DEEP_BLOCKS = 600n
const DEEP_MS = 600_000
/** Receipts asked for in one round. */
const RECEIPTS_A_ROUND = 100
/** Heights compared at once when a reorg was noticed. */
const HEIGHTS_A_STEP = 50

/** All that a round learnt. */
export interface Observation {
  cursor: Row<"cursors">
  panel: Panel
  deposits: Map<Address, WatchedDeposit>
  submissions: Row<"submissions">[]
  unfinal: Row<"transfers">[]
  /** The scan of the hot addresses, and of those that have to be caught up with first. */
  scan: Scan
  backfill: (Scan & { ids: bigint[] }) | undefined
  /** Transfers that are not where they were: their height, and whether their receipt is anywhere, were asked for. */
  doubted: Row<"transfers">[]
  /** Whether another block stands where the head of the last round was. */
  reorged: boolean
  /** Whether all transfers in doubt could be compared with the canonical chain. */
  allCompared: boolean
}

/** Reads the database and the chain; writes nothing. */
export async function observeChain(ctx: Context, network: Network, cursor: Row<"cursors">): Promise<Observation> {
  const hot = await hotDeposits(ctx, network.chainId)
  const submissions = await dueSubmissions(ctx, network.chainId, RECEIPTS_A_ROUND)
  const unfinal = await unfinalTransfers(ctx, network.chainId)
  const deposits = new Map<Address, WatchedDeposit>()
  // Of a million addresses only those that this round can meet.
  const know = async (addresses: Address[], resources: string[] = []) => {
    const unknown = addresses.filter(address => !deposits.has(address))
    for (const deposit of await depositsAmong(ctx, network.chainId, unknown, resources))
      deposits.set(deposit.address, deposit)
  }
  for (const deposit of hot) deposits.set(deposit.address, deposit)
  await know(
    unfinal.map(row => row.to_address),
    submissions.map(resourceOf),
  )
  const panel = await openPanel(network, cursor.block_number, ctx.signal)

  const addresses = hot.map(deposit => deposit.address)
  const scan = await panel.scan(
    addresses,
    back(cursor.block_number, isDeepRound(ctx, cursor) ? DEEP_BLOCKS : RESCAN_BLOCKS),
  )
  const behind = hot.filter(deposit => deposit.watchedNumber !== null)
  const oldest = behind.reduce(
    (low, { watchedNumber }) => (watchedNumber !== null && watchedNumber < low ? watchedNumber : low),
    cursor.block_number,
  )
  const backfill =
    behind.length === 0
      ? undefined
      : {
          ...(await panel.scan(
            behind.map(deposit => deposit.address),
            back(oldest, RESCAN_BLOCKS),
          )),
          ids: behind.map(deposit => deposit.id),
        }

  const checkpoint = panel.blockAt(cursor.block_number)
  const reorged = checkpoint !== undefined && checkpoint.block.hash !== cursor.block_hash
  const inPlace = new Set(
    [...scan.transfers, ...(backfill?.transfers ?? [])].map(each => `${keyOf(each)} ${each.blockHash}`),
  )
  const deepest = panel.head.number - network.confirmations + 1n
  const start = back(cursor.block_number, RESCAN_BLOCKS)
  const doubted = unfinal.filter(
    row =>
      row.suspect_at ||
      (row.block_number >= start &&
        row.block_number <= scan.scannedTo &&
        !inPlace.has(`${keyOfRow(row)} ${row.block_hash}`)),
  )
  const changing = unfinal.filter(row =>
    row.state === "seen" ? row.block_number <= deepest : !row.suspect_at && row.block_number <= panel.finalized,
  )
  const inSight = [
    ...scan.transfers,
    ...unfinal.map(row => ({ txHash: row.tx_hash, from: row.from_address, to: row.to_address })),
  ]
  const explained = new Set(
    inSight.flatMap(({ txHash, from, to }) => {
      const resource = deposits.get(to)?.resource
      return [`${txHash} ${from} ${resource}`, `${txHash} ${resource}`]
    }),
  )
  const unexplained = submissions
    .filter(row => {
      const sender = row.paywall_id === null ? "" : `${row.address} `
      return !explained.has(`${row.tx_hash} ${sender}${resourceOf(row)}`)
    })
    .map(submission => submission.tx_hash)
  const untimed = scan.transfers.filter(each => !each.blockTime).map(each => each.blockNumber)
  const quorate = changing.filter(row => needsTwo(ctx, network, row)).map(row => row.tx_hash)
  await panel.learn(
    [...[...doubted, ...changing].map(row => row.block_number), ...untimed],
    [...doubted.map(row => row.tx_hash), ...unexplained, ...quorate],
  )
  const allCompared = !reorged || (await compareDownwards(panel, unfinal, doubted))
  // Where the next round may go on from.
  await panel.learn(reorged ? [panel.finalized] : scan.scannedTo > cursor.block_number ? [scan.scannedTo] : [], [])
  const receipts = [...submissions, ...doubted].map(
    row => panel.receiptOf(row.tx_hash) ?? panel.anyReceipt(row.tx_hash),
  )
  await panel.learn(
    receipts.flatMap(receipt => (receipt ? [receipt.blockNumber] : [])),
    [],
  )
  await know(receipts.flatMap(receipt => receipt?.transfers.map(transfer => transfer.to) ?? []))
  return { cursor, panel, deposits, submissions, unfinal, scan, backfill, doubted, reorged, allCompared }
}

/** What a submission names: a paywall or a checkout session. */
export const resourceOf = ({ paywall_id, session_id }: Row<"submissions">): string => paywall_id ?? session_id ?? ""

const back = (number: bigint, blocks: bigint): bigint => (number > blocks ? number - blocks : 0n)

/** Whether this round is the first of its ten minutes. */
const isDeepRound = (ctx: Context, cursor: Row<"cursors">): boolean =>
  Math.floor(ctx.now().getTime() / DEEP_MS) !== Math.floor((cursor.looked_at?.getTime() ?? 0) / DEEP_MS)

/** The key of a stored transfer; see {@link keyOf}. */
export const keyOfRow = (row: Row<"transfers">): string =>
  keyOf({ txHash: row.tx_hash, token: row.token, to: row.to_address, k: row.k })

/** Whether the payment is so large, and the network has so many endpoints, that two of them must have it. */
export function needsTwo(ctx: Context, network: Network, row: Row<"transfers">): boolean {
  return network.endpoints.length > 1 && row.value > parseAmount(ctx.settings.quorumAbove, network.token.decimals)
}

/**
 * After a reorg: compares transfers that are not final with the canonical chain from the top down, until one stands where
 * it stood, and adds the others to `doubted`. False when a height could not be asked.
 */
async function compareDownwards(
  panel: Panel,
  unfinal: readonly Row<"transfers">[],
  doubted: Row<"transfers">[],
): Promise<boolean> {
  const heights = [...new Set(unfinal.map(row => row.block_number))].sort((a, b) => (a < b ? 1 : -1))
  for (let start = 0; start < heights.length; start += HEIGHTS_A_STEP) {
    const step = new Set(heights.slice(start, start + HEIGHTS_A_STEP))
    await panel.learn(step, [])
    const rows = unfinal.filter(row => step.has(row.block_number))
    if (rows.some(row => !panel.blockAt(row.block_number))) return false
    const displaced = rows.filter(row => panel.blockAt(row.block_number)?.block.hash !== row.block_hash)
    await panel.learn(
      [],
      displaced.map(row => row.tx_hash),
    )
    doubted.push(...displaced.filter(row => !doubted.includes(row)))
    if (displaced.length < rows.length) return true
  }
  return true
}
