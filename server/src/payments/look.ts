/**
 * Looks at the chain through all endpoints of a network, and says what they agree on. Reads only.
 *
 * A *voter* is an endpoint that answers for the right chain, does not lag, and contradicts neither itself nor the others.
 * An error, a null or an empty list from any of them is never evidence that something is not there.
 */
import type { Endpoint } from "../chain/endpoints.ts"
import { ask, awake, growLogRange, shrinkLogRange } from "../chain/endpoints.ts"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { hexNumber, type RpcCall, RpcError, type RpcResult } from "../chain/rpc.ts"
import {
  type Block,
  blockCall,
  type Receipt,
  readBlock,
  readReceipt,
  readTransfers,
  receiptCall,
  type Transfer,
  transferCalls,
} from "../chain/transfers.ts"

/** An endpoint whose head is so many blocks behind the best is left out of the round. */
const MAX_LAG_BLOCKS = 5n
/** Windows of logs in one round and endpoint: after downtime the scan catches up over several rounds. */
const WINDOWS_A_ROUND = 5
/** What counts as final on a node that can't tell: over an hour on every network served. */
const FINAL_DEPTH = 2_000n

interface Voter {
  endpoint: Endpoint
  head: Block
  finalized: bigint | undefined
  /** Canonical blocks by height, as this endpoint tells them. */
  blocks: Map<bigint, Block>
  /** Receipts by hash; null where it knows none. */
  receipts: Map<Hash, Receipt | null>
}

/** What the voters of a round say together. */
export interface Panel {
  /** The lowest head among the voters: what all of them have. */
  head: Block
  /** The lowest finalized block among them. */
  finalized: bigint
  voters: number
  /** The block that the voters agree on at a height, and how many said so; undefined when they don't, or did not answer. */
  blockAt(height: bigint): { block: Block; votes: number } | undefined
  /**
   * The receipt most voters told, from a block that is agreed on; null when every voter knows none; undefined: not known.
   */
  receiptOf(hash: Hash): Receipt | null | undefined
  /** What each voter tells of a transaction: null where it knows none, nothing of who did not answer or has another block. */
  receiptsOf(hash: Hash): (Receipt | null)[]
  /** How many voters tell that the transaction ended like this. */
  endVotes(receipt: Receipt): number
  /** Any receipt that a voter told, whether its block is canonical or not yet known to be. */
  anyReceipt(hash: Hash): Receipt | undefined
  /** How many voters have the transfer in this block, by their receipts. */
  receiptVotes(transfer: { txHash: Hash; key: string; blockHash: Hash }): number
  /** Asks all voters for blocks and receipts that are not known yet. */
  learn(heights: Iterable<bigint>, hashes: Iterable<Hash>): Promise<void>
  /** All transfers to these addresses from a block on, as far as `scannedTo`, the last block that is surely read. */
  scan(addresses: readonly Address[], from: bigint): Promise<Scan>
}

export interface Scan {
  transfers: Transfer[]
  /** Which endpoints reported a transfer in a block, by {@link keyOf} and block hash. */
  sightings: Map<string, number>
  scannedTo: bigint
}

/** Identifies a transfer however often its transaction is mined. */
export const keyOf = (transfer: { txHash: Hash; token: Address; to: Address; k: number }): string =>
  `${transfer.txHash} ${transfer.token} ${transfer.to} ${transfer.k}`

/** Asks every endpoint where it stands and seats those that may vote; an {@link RpcError} when none may. */
export async function openPanel(network: Network, checkpoint: bigint, signal: AbortSignal): Promise<Panel> {
  const asked = awake(network.endpoints)
  const seats = await Promise.all(asked.map(endpoint => seat(endpoint, network, checkpoint, signal)))
  const present = seats.filter(voter => voter !== undefined)
  const best = present.reduce((high, voter) => (voter.head.number > high ? voter.head.number : high), 0n)
  const level = present.filter(voter => voter.head.number + MAX_LAG_BLOCKS >= best)
  // Whoever stands alone with its block at the checkpoint is on another chain than the others.
  const agreed = agreement(level, checkpoint)
  const voters = level.filter(
    voter => !agreed || (voter.blocks.get(checkpoint)?.hash ?? agreed.block.hash) === agreed.block.hash,
  )
  const [first] = voters
  if (!first) throw new RpcError(`${network.name}: no endpoint may vote`)
  const head = voters.reduce((low, voter) => (voter.head.number < low.number ? voter.head : low), first.head)
  const finals = voters.map(voter => voter.finalized).filter(number => number !== undefined)
  const deep = head.number > FINAL_DEPTH ? head.number - FINAL_DEPTH : 0n
  const endVotes = ({ txHash, blockHash, succeeded }: Receipt) =>
    voters.filter(({ receipts }) => {
      const told = receipts.get(txHash)
      return told?.blockHash === blockHash && told.succeeded === succeeded
    }).length
  return {
    head,
    finalized: finals.length === 0 ? deep : finals.reduce((low, number) => (number < low ? number : low)),
    voters: voters.length,
    blockAt: height => agreement(voters, height),
    receiptOf: hash => {
      const answers = voters.map(voter => voter.receipts.get(hash))
      const [standing] = answers
        .filter(receipt => receipt !== null && receipt !== undefined)
        .filter(receipt => agreement(voters, receipt.blockNumber)?.block.hash === receipt.blockHash)
        .sort((a, b) => endVotes(b) - endVotes(a))
      if (standing) return standing
      return answers.length > 0 && answers.every(receipt => receipt === null) ? null : undefined
    },
    receiptsOf: hash =>
      voters
        .map(voter => voter.receipts.get(hash))
        .filter(receipt => receipt !== undefined)
        .filter(told => told === null || agreement(voters, told.blockNumber)?.block.hash === told.blockHash),
    anyReceipt: hash =>
      voters.map(voter => voter.receipts.get(hash)).find(receipt => receipt !== null && receipt !== undefined) ??
      undefined,
    endVotes,
    receiptVotes: ({ txHash, key, blockHash }) =>
      voters.filter(voter => {
        const receipt = voter.receipts.get(txHash)
        return (
          receipt?.succeeded && receipt.blockHash === blockHash && receipt.transfers.some(each => keyOf(each) === key)
        )
      }).length,
    learn: async (heights, hashes) => {
      const numbers = [...new Set(heights)]
      const wanted = [...new Set(hashes)]
      await Promise.all(voters.map(voter => learn(voter, numbers, wanted, signal)))
    },
    scan: (addresses, from) => scan(network, voters, head, addresses, from, signal),
  }
}

async function seat(
  endpoint: Endpoint,
  network: Network,
  checkpoint: bigint,
  signal: AbortSignal,
): Promise<Voter | undefined> {
  const calls = [
    { method: "eth_chainId", params: [] },
    blockCall("latest"),
    blockCall("finalized"),
    blockCall(checkpoint),
  ]
  const results = await ask(endpoint, calls, signal)
  if (!results) return undefined
  const [chainId, latest, finalizedBlock, checkpointBlock] = results
  const head = blockOf(latest)
  if (!head || !chainId?.ok || String(chainId.value) !== hexNumber(network.chainId)) return undefined
  const finalized = blockOf(finalizedBlock)?.number
  // A finalized block that goes backwards is no such thing; its endpoint waits until it has caught up with itself.
  if (finalized !== undefined && finalized < endpoint.finalizedHigh) return undefined
  endpoint.finalizedHigh = finalized ?? endpoint.finalizedHigh
  const known = blockOf(checkpointBlock)
  return { endpoint, head, finalized, blocks: new Map(known ? [[checkpoint, known]] : []), receipts: new Map() }
}

/** What an entry holds, or undefined for an error, a null or what can't be read: one odd answer must not spoil the rest. */
function tolerant<T>(result: RpcResult | undefined, read: (value: unknown) => T): T | undefined {
  try {
    return result?.ok ? read(result.value) : undefined
  } catch (error) {
    if (error instanceof RpcError) return undefined
    throw error
  }
}

const blockOf = (result: RpcResult | undefined): Block | undefined => tolerant(result, readBlock)

/** The block most voters name at a height; none when two have as many votes. */
function agreement(voters: readonly Voter[], height: bigint): { block: Block; votes: number } | undefined {
  const tally = new Map<Hash, { block: Block; votes: number }>()
  for (const voter of voters) {
    const block = voter.blocks.get(height)
    if (block) tally.set(block.hash, { block, votes: (tally.get(block.hash)?.votes ?? 0) + 1 })
  }
  const [first, second] = [...tally.values()].sort((a, b) => b.votes - a.votes)
  return first && first.votes > (second?.votes ?? 0) ? first : undefined
}

async function learn(
  voter: Voter,
  heights: readonly bigint[],
  hashes: readonly Hash[],
  signal: AbortSignal,
): Promise<void> {
  const numbers = heights.filter(height => !voter.blocks.has(height))
  const wanted = hashes.filter(hash => !voter.receipts.has(hash))
  if (numbers.length + wanted.length === 0) return
  const results = await ask(voter.endpoint, [...numbers.map(blockCall), ...wanted.map(receiptCall)], signal)
  numbers.forEach((height, i) => {
    const block = blockOf(results?.[i])
    if (block?.number === height) voter.blocks.set(height, block)
  })
  wanted.forEach((hash, i) => {
    const receipt = tolerant(results?.[numbers.length + i], value => readReceipt(value) ?? null)
    // A receipt of another transaction is no answer; nodes that mix replies up have been seen.
    if (receipt === null || receipt?.txHash === hash) voter.receipts.set(hash, receipt)
  })
}

async function scan(
  network: Network,
  voters: readonly Voter[],
  head: Block,
  addresses: readonly Address[],
  from: bigint,
  signal: AbortSignal,
): Promise<Scan> {
  if (addresses.length === 0) return { transfers: [], sightings: new Map(), scannedTo: head.number }
  const parts = await Promise.all(voters.map(voter => scanOne(network, voter, head, addresses, from, signal)))
  const transfers = new Map<string, Transfer>()
  const sightings = new Map<string, number>()
  for (const transfer of parts.flatMap(part => part.transfers)) {
    transfers.set(keyOf(transfer), transfer)
    const sighting = `${keyOf(transfer)} ${transfer.blockHash}`
    sightings.set(sighting, (sightings.get(sighting) ?? 0) + 1)
  }
  const scannedTo = parts.reduce((far, part) => (part.scannedTo > far ? part.scannedTo : far), from - 1n)
  return { transfers: [...transfers.values()], sightings, scannedTo }
}

/**
 * One voter's logs, window by window. They count as read only when the same batch shows that the node has the head: a
 * node behind a load balancer can be behind, and answers with what it has.
 */
async function scanOne(
  network: Network,
  { endpoint }: Voter,
  head: Block,
  addresses: readonly Address[],
  from: bigint,
  signal: AbortSignal,
): Promise<{ transfers: Transfer[]; scannedTo: bigint }> {
  const windows: { to: bigint; full: boolean; calls: RpcCall[] }[] = []
  for (let start = from; start <= head.number && windows.length < WINDOWS_A_ROUND; start += endpoint.logRange) {
    const end = start + endpoint.logRange - 1n
    const to = end < head.number ? end : head.number
    windows.push({ to, full: end <= head.number, calls: transferCalls(network.token.address, addresses, start, to) })
  }
  const results = await ask(endpoint, [...windows.flatMap(window => window.calls), blockCall(head.number)], signal)
  const hasHead = blockOf(results?.at(-1))?.hash === head.hash
  const transfers: Transfer[] = []
  let scannedTo = from - 1n
  let next = 0
  for (const window of windows) {
    const answers = results?.slice(next, next + window.calls.length) ?? []
    next += window.calls.length
    const read = answers.map(result => tolerant(result, readTransfers))
    transfers.push(...read.flatMap(part => part ?? []))
    if (answers.some(result => !result.ok)) shrinkLogRange(endpoint)
    if (!hasHead || read.length < window.calls.length || read.some(part => part === undefined)) break
    scannedTo = window.to
  }
  if (windows.every(window => window.full) && scannedTo === windows.at(-1)?.to) growLogRange(endpoint)
  return { transfers, scannedTo }
}
