/**
 * Finds new transfers to our deposits, from the scans and the receipts, that are sure enough to be stored. The work is
 * linear in what endpoints report, and other work gets turns in between.
 */
import { keyOf, type LogAgreement } from "../../platform/chain/agreement.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Quorum } from "../../platform/chain/quorum.ts"
import type { Transfer } from "../../platform/chain/transfers.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { inTurns } from "../../platform/turns.ts"
import { depositsAmong, type WatchedDeposit } from "./queries.ts"
import { type NamedBlock, placesIn } from "./read-unfinal-blocks.ts"

/** How many new transfers one round stores. The next round follows immediately. */
const STORED_PER_ROUND = 5_000
/** A transfer to one of our deposits. `isSingle` says whether only one of two endpoints has it. */
export interface Found {
  log: Transfer & { blockTime: Date }
  isSingle: boolean
}

/** The transfers that a round found, and up to which block they are complete. */
export interface Finding {
  deposits: Map<Address, WatchedDeposit>
  /** New transfers, without duplicates. */
  found: Found[]
  /** Whether there are more transfers than one round stores. */
  isMore: boolean
  /** The first block with a transfer that is not sure, or is not stored in this round. */
  heldFrom: bigint | undefined
}

/**
 * Finds the new transfers in reported logs and in these transactions' receipts. The receipts of `asked` decide about
 * logs that not all endpoints have.
 */
export async function findTransfers(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  {
    named,
    asked,
    submissions,
  }: { named: ReadonlySet<Hash>; asked: ReadonlySet<Hash>; submissions: readonly Row<"submissions">[] },
): Promise<Finding> {
  const deposits = await depositsMet(ctx, network, quorum, named, submissions)
  const all = await foundOf(quorum, new Set([...named, ...asked]), asked, deposits)
  const fresh = await newAmong(ctx, network, all.found, deposits)
  const later = fresh.slice(STORED_PER_ROUND).map(({ log }) => log.blockNumber)
  return {
    deposits,
    found: fresh.slice(0, STORED_PER_ROUND),
    isMore: later.length > 0,
    heldFrom: lowest([all.heldFrom, ...later]),
  }
}

export const byAddress = (deposits: readonly WatchedDeposit[]): Map<Address, WatchedDeposit> =>
  new Map(deposits.map(deposit => [deposit.address, deposit]))

/** Returns the lowest number; undefined if there is none. */
export const lowest = (numbers: readonly (bigint | undefined)[]): bigint | undefined =>
  numbers.reduce((low, each) => (each !== undefined && (low === undefined || each < low) ? each : low), undefined)

/**
 * Returns the deposits that the round's logs, receipts or submissions name. A network may have a million deposits in
 * all.
 */
async function depositsMet(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  named: ReadonlySet<Hash>,
  submissions: readonly Row<"submissions">[],
): Promise<Map<Address, WatchedDeposit>> {
  const addresses = new Set<Address>()
  await inTurns(named, hash => {
    for (const log of quorum.receiptOf(hash)?.transfers ?? []) addresses.add(log.to)
  })
  await inTurns(await quorum.judged(), ({ log, standing }) => {
    if (standing !== "denied") addresses.add(log.to)
  })
  const resources = submissions.map(row => row.resource_id)
  return byAddress(await depositsAmong(ctx, network.chainId, [...addresses], resources))
}

/**
 * Returns the logs that are sure enough to be stored, and the first block with a log that is not. A log that only one
 * of two endpoints has is stored only after the other endpoint was `asked` for its receipt.
 */
async function foundOf(
  quorum: Quorum,
  hashes: ReadonlySet<Hash>,
  asked: ReadonlySet<Hash>,
  deposits: ReadonlyMap<Address, WatchedDeposit>,
): Promise<{ found: Found[]; heldFrom: bigint | undefined }> {
  const logs: { log: Transfer; standing: LogAgreement }[] = []
  const take = (log: Transfer, standing: LogAgreement) => {
    if (standing !== "denied" && deposits.has(log.to)) logs.push({ log, standing })
  }
  // A transfer that only one endpoint reported may be deeper than any rescan, so only its receipt finds it.
  await inTurns(hashes, hash => {
    const receipt = quorum.receiptOf(hash)
    if (receipt?.succeeded) for (const log of receipt.transfers) take(log, "agreed")
  })
  await inTurns(await quorum.judged(), ({ log, standing }) => take(log, standing))
  // An open log is never stored, so it needs no block time. Times are not read for open logs, because an endpoint can
  // invent any number of blocks.
  const untimed = new Set<bigint>()
  await inTurns(logs, ({ log, standing }) => {
    if (standing !== "open" && !quorum.timeOf(log, standing)) untimed.add(log.blockNumber)
  })
  if (untimed.size > 0) await quorum.learn(untimed, [])
  const found = new Map<string, Found>()
  let heldFrom: bigint | undefined
  await inTurns(logs, ({ log, standing }) => {
    const canonical = quorum.blockAt(log.blockNumber)?.block
    // The block was read after the log, so the log may be older, and the block decides.
    if (canonical && canonical.hash !== log.blockHash) return
    const blockTime = quorum.timeOf(log, standing)
    const isSure = standing === "agreed" || (standing === "single" && (quorum.voters < 2 || asked.has(log.txHash)))
    const known = found.get(keyOf(log))
    if (blockTime && isSure && (!known || known.isSingle))
      found.set(keyOf(log), { log: { ...log, blockTime }, isSingle: standing === "single" })
    else if (!(blockTime && isSure)) heldFrom = lowest([heldFrom, log.blockNumber])
  })
  return { found: [...found.values()], heldFrom }
}

/**
 * Leaves out stored transfers, and puts each deposit's first transfer before any second one. So thousands of transfers
 * to one address can't keep other payments from being stored in this round.
 */
async function newAmong(
  ctx: Context,
  { chainId }: Network,
  found: readonly Found[],
  deposits: ReadonlyMap<Address, WatchedDeposit>,
): Promise<Found[]> {
  const blocks = new Map<Hash, NamedBlock>()
  for (const { log } of found) blocks.set(log.blockHash, { number: log.blockNumber, hash: log.blockHash })
  const places = await placesIn(ctx, chainId, [...blocks.values()])
  const ranks = new Map<bigint | undefined, number>()
  const fresh: { each: Found; rank: number }[] = []
  await inTurns(found, each => {
    if (!each.isSingle && places.has(`${each.log.blockHash} ${each.log.logIndex}`)) return
    const id = deposits.get(each.log.to)?.id
    const rank = ranks.get(id) ?? 0
    ranks.set(id, rank + 1)
    fresh.push({ each, rank })
  })
  return fresh.sort((a, b) => a.rank - b.rank).map(({ each }) => each)
}
