/**
 * Reads the chain through all endpoints of a network, and reports what they agree on. Read-only. If a network has two
 * endpoints or more, no result here depends on one endpoint alone except what {@link Quorum.standingOf} calls `single`.
 *
 * A *voter* is an endpoint that responds for the right chain and whose finalized block has not gone backwards. An
 * error, or a list that lacks something, is never by itself evidence that the thing does not exist.
 */

import {
  blockAgreed,
  type Dissent,
  dissentAmong,
  keyOf,
  reachedBy,
  receiptAgreed,
  type Standing,
  standingOf,
  statementOf,
  timeOf,
  type Voter as VoterReports,
  votesNeeded,
} from "./agreement.ts"
import type { Endpoint } from "./endpoints.ts"
import { ask, awake } from "./endpoints.ts"
import type { Address, Hash } from "./hex.ts"
import type { Network } from "./networks.ts"
import { readLogs } from "./read-logs.ts"
import { hexNumber, RpcError, type RpcResult } from "./rpc.ts"
import { type Block, blockCall, type Receipt, readBlock, readReceipt, receiptCall, type Transfer } from "./transfers.ts"

/** An endpoint whose head is this many blocks behind the agreed head counts as behind. */
const MAX_LAG_BLOCKS = 5n
/** Windows of logs per round and endpoint: after downtime the scan catches up over several rounds. */
const WINDOWS_PER_ROUND = 5
/** What counts as final on a node that does not report it: over an hour on every network served. */
const FINAL_DEPTH = 2_000n

interface Voter extends VoterReports {
  /** The endpoint's message when it reported no log; undefined if it reported one, or was not asked. */
  refusal?: string
  endpoint: Endpoint
}

/** What the voters of a round report together, and how to ask them more. */
export interface Quorum extends QuorumView {
  /** Asks all voters for blocks and receipts that are not known yet, and for the blocks that those receipts name. */
  learn(heights: Iterable<bigint>, hashes: Iterable<Hash>): Promise<void>
  /**
   * Reads all transfers to these addresses from a block on; returns the last block that a quorum has certainly read.
   */
  scan(addresses: readonly Address[], from: bigint): Promise<bigint>
}

/** What the voters of a round have reported so far. It makes no calls. */
export interface QuorumView {
  /** The highest block that a quorum has; the only voter's head where one of two endpoints answers. */
  head: bigint
  /** The highest block that a quorum calls final; 0 where there is no quorum. */
  finalized: bigint
  voters: number
  /**
   * Endpoints that did not respond, or not for this chain, by their positions from 0; and those far behind the agreed
   * head.
   */
  silent: number[]
  behind: number[]
  /**
   * The block that a quorum reports at a height, and how many report it; undefined when there is none, or it was not
   * asked for.
   */
  blockAt(height: bigint): { block: Block; votes: number } | undefined
  /** The depth of this block according to a quorum, counting itself; 0 where it is not canonical. */
  depthOf(height: bigint, hash: Hash): bigint
  /**
   * The receipt that a quorum has, in a block that a quorum reports; null when a quorum has none; undefined when this
   * is not known.
   */
  receiptOf(hash: Hash): Receipt | null | undefined
  /**
   * What each voter reports for a transaction: null where it has none; no entry for a voter that did not answer or has
   * another block.
   */
  receiptsOf(hash: Hash): (Receipt | null)[]
  /** Every log that any voter reported in the scans so far, each statement once. */
  reported(): Transfer[]
  /** The verdict on a log from everything learned so far. */
  standingOf(log: Transfer): Standing
  /** The depth of this block according to any one voter; 0 where another voter has another block at its height. */
  depthAlone(height: bigint, hash: Hash): bigint
  /**
   * The time of a log's block: according to a quorum, or for a `single` log to its only voter; undefined when this is
   * not known.
   */
  timeOf(log: Transfer, standing: Standing): Date | undefined
  /**
   * How many voters have a block at this height and no receipt with a transfer of this key. A voter whose head is below
   * the height is behind, which is no evidence.
   */
  votesWithout(txHash: Hash, key: string, height: bigint): number
  dissent(): Dissent
  /** Endpoints that reported no log in a scan, however little was asked for, by their positions; and their messages. */
  refusals(): Map<number, string>
}

/**
 * Asks every endpoint for its head and finalized block; throws an {@link RpcError} if fewer endpoints may vote than
 * must agree. With `alone`, one of two endpoints is enough.
 */
export async function openQuorum(
  network: Network,
  checkpoint: bigint,
  signal: AbortSignal,
  { alone = false } = {},
): Promise<Quorum> {
  const { endpoints } = network
  const needed = votesNeeded(endpoints.length)
  const ready = awake(endpoints)
  // The endpoints that failed recently may be the honest ones.
  const asked = endpoints.length > 2 && ready.length < needed ? endpoints : ready
  const admitted = await Promise.all(asked.map(endpoint => admitVoter(endpoint, network, checkpoint, signal)))
  const voters = admitted.filter(voter => voter !== undefined)
  if (voters.length === 0) throw new RpcError(`${network.name}: no endpoint may vote`)
  if (voters.length < needed && !(alone && endpoints.length === 2))
    throw new RpcError(`${network.name}: no endpoint may vote alone, ${needed} of ${endpoints.length} must agree`)
  const heads = voters.map(voter => voter.head.number)
  const head = reachedBy(heads, Math.min(needed, voters.length)) ?? 0n
  const finalized = reachedBy(voters.map(finalizedBy), needed) ?? 0n
  for (const voter of voters) rememberFinalized(voter, finalized)
  const present = new Set(voters.map(voter => voter.position))
  return {
    head,
    finalized,
    voters: voters.length,
    silent: endpoints.flatMap((_, position) => (present.has(position) ? [] : [position])),
    behind: behindOthers(voters, endpoints.length),
    blockAt: height => blockAgreed(voters, height, needed),
    depthOf: (height, hash) =>
      reachedBy(
        voters.map(voter => depthBy(voter, height, hash)),
        needed,
      ) ?? 0n,
    receiptOf: hash => receiptAgreed(voters, hash, needed),
    receiptsOf: hash =>
      voters
        .map(voter => voter.receipts.get(hash))
        .filter(receipt => receipt !== undefined)
        .filter(each => each === null || blockAgreed(voters, each.blockNumber, needed)?.block.hash === each.blockHash),
    reported: () => reportedBy(voters),
    standingOf: log => standingOf(voters, log, endpoints.length),
    depthAlone: (height, hash) => {
      const isDisputed = voters.some(({ blocks }) => (blocks.get(height)?.hash ?? hash) !== hash)
      const depths = voters.map(voter => depthBy(voter, height, hash))
      return isDisputed ? 0n : (reachedBy(depths, 1) ?? 0n)
    },
    timeOf: (log, standing) => timeOf(voters, log, standing === "single" ? 1 : needed),
    votesWithout: (txHash, key, height) =>
      voters.filter(({ blocks, receipts }) => {
        const receipt = blocks.has(height) ? receipts.get(txHash) : undefined
        if (!receipt) return receipt === null
        return !(receipt.succeeded && receipt.transfers.some(each => keyOf(each) === key))
      }).length,
    refusals: () =>
      new Map(voters.flatMap(({ position, refusal }) => (refusal === undefined ? [] : [[position, refusal]]))),
    dissent: () => dissentAmong(voters, reportedBy(voters), endpoints.length),
    learn: async (heights, hashes) => {
      const wanted = [...new Set(hashes)]
      await learnAll(voters, [...new Set(heights)], wanted, signal)
      const named = voters.flatMap(({ receipts }) => wanted.flatMap(hash => receipts.get(hash)?.blockNumber ?? []))
      await learnAll(voters, [...new Set(named)], [], signal)
    },
    scan: async (addresses, from) => {
      const among = new Set(addresses)
      const parts = await Promise.all(voters.map(voter => scanAlone(network, voter, among, from, signal)))
      return reachedBy(parts, needed) ?? from - 1n
    },
  }
}

async function admitVoter(
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
  // A finalized block must not go backwards; such an endpoint has no vote until it has caught up with what it reported
  // before.
  if (finalized !== undefined && finalized < endpoint.finalizedHigh) return undefined
  const blocks = new Map([[head.number, head]])
  const known = blockOf(checkpointBlock)
  if (known?.number === checkpoint) blocks.set(checkpoint, known)
  const position = network.endpoints.indexOf(endpoint)
  return { endpoint, position, head, finalized, blocks, receipts: new Map(), logs: new Map(), readings: [] }
}

const finalizedBy = ({ finalized, head: { number } }: Voter): bigint =>
  finalized ?? (number > FINAL_DEPTH ? number - FINAL_DEPTH : 0n)

/** Limited to what is agreed on: an endpoint that once named a block far ahead regains its vote afterwards. */
function rememberFinalized({ endpoint, finalized }: Voter, agreed: bigint): void {
  if (finalized === undefined) return
  const sure = finalized < agreed ? finalized : agreed
  if (sure > endpoint.finalizedHigh) endpoint.finalizedHigh = sure
}

/** With two endpoints, the lower one may lag; with more, those below the head that two have. */
function behindOthers(voters: readonly Voter[], endpoints: number): number[] {
  const heads = voters.map(voter => voter.head.number)
  const head = reachedBy(heads, endpoints > 2 ? 2 : 1) ?? 0n
  return voters.filter(voter => voter.head.number + MAX_LAG_BLOCKS < head).map(voter => voter.position)
}

/** How many blocks a voter has from this one to its head, counting both; undefined if it does not have the block. */
const depthBy = ({ blocks, head }: Voter, height: bigint, hash: Hash): bigint | undefined =>
  blocks.get(height)?.hash === hash && head.number >= height ? head.number - height + 1n : undefined

function reportedBy(voters: readonly Voter[]): Transfer[] {
  const logs = voters.flatMap(voter => [...voter.logs.values()].flat())
  return [...new Map(logs.map(log => [statementOf(log), log])).values()]
}

/**
 * The value of an entry, or undefined for an error, a null or an unreadable value: one odd answer must not spoil the
 * rest.
 */
function tolerant<T>(result: RpcResult | undefined, read: (value: unknown) => T): T | undefined {
  try {
    return result?.ok ? read(result.value) : undefined
  } catch (error) {
    if (error instanceof RpcError) return undefined
    throw error
  }
}

const blockOf = (result: RpcResult | undefined): Block | undefined => tolerant(result, readBlock)

const learnAll = async (
  voters: readonly Voter[],
  heights: readonly bigint[],
  hashes: readonly Hash[],
  signal: AbortSignal,
): Promise<void> => void (await Promise.all(voters.map(voter => learn(voter, heights, hashes, signal))))

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
    // A receipt of another transaction is not an answer; some nodes mix up replies.
    if (receipt === null || receipt?.txHash === hash) voter.receipts.set(hash, receipt)
  })
}

/** Scans one voter's logs as far as its endpoint allows; returns the last block that was certainly read. */
async function scanAlone(
  network: Network,
  voter: Voter,
  addresses: ReadonlySet<Address>,
  from: bigint,
  signal: AbortSignal,
): Promise<bigint> {
  const { endpoint, head } = voter
  if (addresses.size === 0) return head.number
  const query = {
    token: network.token.address,
    side: "to",
    addresses: [...addresses],
    windows: WINDOWS_PER_ROUND,
  } as const
  const range = { fromBlock: from, toBlock: head.number, has: head }
  const { transfers, readTo, refusal } = await readLogs(endpoint, { ...query, ...range }, signal)
  for (const log of transfers) addLog(voter, log)
  if (refusal !== undefined) voter.refusal = refusal
  voter.readings.push({ from, to: readTo, addresses })
  return readTo
}

function addLog({ logs }: Voter, log: Transfer): void {
  const key = keyOf(log)
  const known = logs.get(key) ?? []
  if (!known.some(each => statementOf(each) === statementOf(log))) logs.set(key, [...known, log])
}
