/**
 * Reads the chain through all endpoints of a network, and reports what they agree on. Read-only. If a network has two
 * endpoints or more, a single endpoint decides nothing here except what {@link Quorum.standingOf} calls `single`.
 *
 * A *voter* is an endpoint that responds for the right chain and whose finalized block has not gone backwards. An error
 * or an incomplete list is never enough evidence that something does not exist.
 */
import {
  blockAgreed,
  type Dissent,
  dissentAmong,
  hasTransfer,
  type LogAgreement,
  reachedBy,
  receiptAgreed,
  standingOf,
  timeOf,
  votesNeeded,
} from "./agreement.ts"
import { awake, type Endpoint, isUseless, noteUseless } from "./endpoints.ts"
import type { Address, Hash } from "./hex.ts"
import { askInTime } from "./in-time.ts"
import type { ReachableChain } from "./networks.ts"
import type { LogReading } from "./read-logs.ts"
import { RpcError } from "./rpc.ts"
import { openSlowEndpoints } from "./slow-endpoints.ts"
import type { Block, Receipt, Transfer } from "./transfers.ts"
import {
  admitVoter,
  flooding,
  type Judged,
  judgeLogs,
  learnFrom,
  readLogsOf,
  takeReadings,
  type Verdicts,
  type Voter,
} from "./voters.ts"

/** An endpoint whose head is this many blocks behind the agreed head counts as behind. */
const MAX_LAG_BLOCKS = 5n
/** The depth at which a block is final if the node does not report finality: over an hour on every network served. */
const FINAL_DEPTH = 2_000n

/** The joint reports of a round's voters, with the functions that ask them for more. */
export interface Quorum extends QuorumView {
  /** Asks all voters for blocks and receipts that are not known yet, and for the blocks that those receipts name. */
  learn(heights: Iterable<bigint>, hashes: Iterable<Hash>): Promise<void>
  /**
   * Returns the endpoints whose answers were useless in this round or shortly before: floods, or answers that only fill
   * memory. These endpoints are queried less often from now on. Call it at the end of a round.
   */
  weed(): number[]
  /**
   * Reads all transfers of a token to these addresses, starting at a block. Returns the last block that a quorum has
   * certainly read.
   */
  scan(token: Address, addresses: readonly Address[], from: bigint): Promise<bigint>
}

/** The reports of a round's voters so far. Reading them makes no calls. */
export interface QuorumView {
  /** The highest block that a quorum has; the only voter's head if one of two endpoints answers. */
  head: bigint
  /** The highest block that may count. One of two endpoints may confirm alone; one of three may not. */
  highest: bigint
  /** The highest block that a quorum calls final; 0 if there is no quorum. */
  finalized: bigint
  voters: number
  /**
   * Endpoints, by position from 0, that did not respond, that serve another chain, or that are far behind the agreed
   * head.
   */
  silent: number[]
  behind: number[]
  /** Endpoints for which the round did not wait. */
  slow(): number[]
  /**
   * The block that a quorum reports at a height, and how many report it; undefined if there is none, or if no voter was
   * asked for it.
   */
  blockAt(height: bigint): { block: Block; votes: number } | undefined
  /** The depth of this block according to a quorum, counting the block itself; 0 if it is not canonical. */
  depthOf(height: bigint, hash: Hash): bigint
  /**
   * The receipt that a quorum has, in a block that a quorum reports; null if a quorum has none; undefined if this is
   * not known.
   */
  receiptOf(hash: Hash): Receipt | null | undefined
  /**
   * What each voter reports for a transaction: null if it has none. A voter that did not answer or has another block is
   * left out.
   */
  receiptsOf(hash: Hash): (Receipt | null)[]
  /** Every log that any voter reported in the scans so far, each statement once, with the verdict on it. */
  judged(): Promise<readonly Judged[]>
  /** The verdict on a log from everything learned so far. */
  standingOf(log: Transfer): LogAgreement
  /** The depth of this block according to any one voter; 0 if another voter has another block at its height. */
  depthAlone(height: bigint, hash: Hash): bigint
  /**
   * The time of a log's block, according to a quorum or, for a `single` log, to its only voter; undefined if not known.
   */
  timeOf(log: Transfer, standing: LogAgreement): Date | undefined
  /**
   * How many voters have a block at this height and no receipt with a transfer of this key. A voter whose head is below
   * the height is merely behind, which proves nothing.
   */
  votesWithout(txHash: Hash, key: string, height: bigint): number
  dissent(): Promise<Dissent>
  /** Endpoints that reported no log in a scan, even for the smallest request: their positions and messages. */
  refusals(): Map<number, string>
}

/**
 * Asks every endpoint for its head and finalized block; throws an {@link RpcError} if fewer endpoints may vote than
 * must agree. With `alone`, one of two endpoints is enough.
 */
export async function openQuorum(
  chain: ReachableChain,
  checkpoint: bigint,
  signal: AbortSignal,
  { alone = false } = {},
): Promise<Quorum> {
  const { endpoints } = chain
  const needed = votesNeeded(endpoints.length)
  const patience = openSlowEndpoints(endpoints, alone)
  const due = dueEndpoints(endpoints, needed, patience.isLong)
  const voters: Voter[] = []
  const late = await askInTime(
    due,
    async endpoint => {
      const voter = await admitVoter(endpoint, chain, checkpoint, signal)
      return voter && (() => void voters.push(voter))
    },
    () => !patience.isLong && voters.length >= needed,
  )
  voters.sort((a, b) => a.position - b.position)
  if (voters.length === 0) throw new RpcError(`${chain.name}: no endpoint may vote${saidBy(endpoints)}`)
  if (voters.length < needed && !(alone && endpoints.length === 2)) {
    const words = `no endpoint may vote alone, ${needed} of ${endpoints.length} must agree`
    throw new RpcError(`${chain.name}: ${words}${saidBy(endpoints)}`)
  }
  const slow = new Set([...late, ...endpoints.filter(each => each.lateOpen > 0)])

  /** Asks the voters that are in time, and goes on once enough of them have answered. */
  const askVoters = async (question: (voter: Voter) => Promise<() => void>) => {
    const asked = new Map(voters.filter(({ isLate }) => !isLate).map(voter => [voter.endpoint, voter]))
    let answered = 0
    const late = await askInTime(
      [...asked.keys()],
      async endpoint => {
        const apply = await question(asked.get(endpoint) as Voter)
        return () => {
          apply()
          answered++
        }
      },
      () => !patience.isLong && answered >= needed,
    )
    for (const endpoint of late) {
      slow.add(endpoint)
      Object.assign(asked.get(endpoint) as Voter, { isLate: true })
    }
  }
  return quorumOf(endpoints, voters, slow, { askVoters, noteSettled: patience.note, signal })
}

/** The messages of unusable answers, by endpoint position, to end a sentence. */
function saidBy(endpoints: readonly Endpoint[]): string {
  const said = endpoints.flatMap((each, i) => (each.said === undefined ? [] : [`endpoint ${i + 1}: ${each.said}`]))
  return said.length > 0 ? ` (${said.join("; ")})` : ""
}

/**
 * Lists of endpoints where a quorum gave answers that were too large about one address in one block. The next answers
 * of such endpoints may be larger. The answers of a single endpoint may not.
 */
const wide = new WeakSet<readonly Endpoint[]>()

/** The endpoints to query: all except those that failed a moment ago, or whose late answer is still pending. */
function dueEndpoints(endpoints: readonly Endpoint[], needed: number, isLong: boolean): readonly Endpoint[] {
  const ready = awake(endpoints)
  // The endpoints that failed recently may be the honest ones.
  const due = endpoints.length > 2 && ready.length < needed ? endpoints : ready
  const free = due.filter(({ lateOpen }) => lateOpen === 0)
  return isLong || free.length < needed ? due : free
}

interface Asking {
  askVoters(question: (voter: Voter) => Promise<() => void>): Promise<void>
  /** Notes whether the endpoints that answered in time settled the question. */
  noteSettled(isSettled: boolean): void
  signal: AbortSignal
}

/** The voters' reports together, and the functions that ask the voters for more. */
function quorumOf(
  endpoints: readonly Endpoint[],
  voters: Voter[],
  slow: ReadonlySet<Endpoint>,
  asking: Asking,
): Quorum {
  const needed = votesNeeded(endpoints.length)
  const { askVoters, noteSettled, signal } = asking
  const heads = voters.map(voter => voter.head.number)
  const head = reachedBy(heads, Math.min(needed, voters.length)) ?? 0n
  const finalized = reachedBy(voters.map(finalizedBy), needed) ?? 0n
  for (const voter of voters) rememberFinalized(voter, finalized)
  const positions = (isAmong: (endpoint: Endpoint) => boolean) =>
    endpoints.flatMap((endpoint, position) => (isAmong(endpoint) ? [position] : []))
  const heard = new Set([...voters.map(voter => voter.endpoint), ...slow])
  let verdicts: Promise<Verdicts> | undefined
  const judge = () => {
    verdicts ??= judgeLogs(voters, endpoints.length)
    return verdicts
  }
  const learnAll = async (heights: readonly bigint[], hashes: readonly Hash[]) => {
    if (heights.length + hashes.length === 0) return
    verdicts = undefined
    await askVoters(voter => learnFrom(voter, heights, hashes, signal))
    const areKnown = heights.every(height => blockAgreed(voters, height, needed))
    noteSettled(areKnown && hashes.every(hash => receiptAgreed(voters, hash, needed) !== undefined))
  }
  return {
    head,
    highest: endpoints.length === 2 ? (reachedBy(heads, 1) ?? head) : head,
    finalized,
    voters: voters.length,
    silent: positions(endpoint => !heard.has(endpoint) && !isUseless(endpoint)),
    behind: behindOthers(voters, endpoints.length),
    slow: () => positions(endpoint => slow.has(endpoint)),
    weed: () => {
      for (const { endpoint } of flooding(voters)) noteUseless(endpoint)
      return positions(isUseless)
    },
    judged: async () => (await judge()).judged,
    dissent: async () => dissentAmong(voters, (await judge()).disputed, endpoints.length),
    ...verdictsOf(voters, endpoints.length),
    learn: async (heights, hashes) => {
      const wanted = [...new Set(hashes)]
      await learnAll([...new Set(heights)], wanted)
      const named = voters.flatMap(({ receipts }) => wanted.flatMap(hash => receipts.get(hash)?.blockNumber ?? []))
      await learnAll([...new Set(named)], [])
    },
    scan: async (token, addresses, from) => {
      if (addresses.length === 0) return reachedBy(heads, needed) ?? from - 1n
      verdicts = undefined
      const readings = new Map<Voter, LogReading>()
      await askVoters(async voter => {
        // With three endpoints, at most one has blocks beyond the agreed head. Such blocks count in a later round.
        const to = endpoints.length > 2 && head < voter.head.number ? head : voter.head.number
        const reading = await readLogsOf(token, voter, addresses, { from, to, isWide: wide.has(endpoints) }, signal)
        return () => void readings.set(voter, reading)
      })
      const tooLarge = [...readings.values()].filter(({ isTooLarge }) => isTooLarge).length
      if (tooLarge >= needed) wide.add(endpoints)
      else if (tooLarge === 0 && readings.size >= needed) wide.delete(endpoints)
      const parts = await takeReadings(readings, from, new Set(addresses))
      noteSettled((await judge()).judged.every(({ standing }) => standing !== "open"))
      return reachedBy(parts, needed) ?? from - 1n
    },
  }
}

/** The voters' verdicts so far on a block, a transaction or a log. */
function verdictsOf(voters: readonly Voter[], endpoints: number) {
  const needed = votesNeeded(endpoints)
  const verdicts: Omit<QuorumView, Heads | "slow" | "judged" | "dissent"> = {
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
    standingOf: log => standingOf(voters, log, endpoints),
    depthAlone: (height, hash) => {
      const isDisputed = voters.some(({ blocks }) => (blocks.get(height)?.hash ?? hash) !== hash)
      const depths = voters.map(voter => depthBy(voter, height, hash))
      return isDisputed ? 0n : (reachedBy(depths, 1) ?? 0n)
    },
    timeOf: (log, standing) => timeOf(voters, log, standing === "single" ? 1 : needed),
    votesWithout: (txHash, key, height) =>
      voters.filter(({ blocks, receipts }) => {
        const receipt = blocks.has(height) ? receipts.get(txHash) : undefined
        return receipt ? !hasTransfer(receipt, key) : receipt === null
      }).length,
    refusals: () =>
      new Map(voters.flatMap(({ position, refusal }) => (refusal === undefined ? [] : [[position, refusal]]))),
  }
  return verdicts
}

/** The known facts about the endpoints when a round starts. */
type Heads = "head" | "highest" | "finalized" | "voters" | "silent" | "behind"

const finalizedBy = ({ finalized, head: { number } }: Voter): bigint =>
  finalized ?? (number > FINAL_DEPTH ? number - FINAL_DEPTH : 0n)

/** Limited to the agreed value, so that an endpoint that once named a block far ahead regains its vote afterwards. */
function rememberFinalized({ endpoint, finalized }: Voter, agreed: bigint): void {
  if (finalized === undefined) return
  const sure = finalized < agreed ? finalized : agreed
  if (sure > endpoint.finalizedHigh) endpoint.finalizedHigh = sure
}

/** With two endpoints, the lower one may lag. With more endpoints, any that is below the head of two others may lag. */
function behindOthers(voters: readonly Voter[], endpoints: number): number[] {
  const heads = voters.map(voter => voter.head.number)
  const head = reachedBy(heads, endpoints > 2 ? 2 : 1) ?? 0n
  return voters.filter(voter => voter.head.number + MAX_LAG_BLOCKS < head).map(voter => voter.position)
}

/** How many blocks a voter has from this one to its head, counting both; undefined if it does not have the block. */
const depthBy = ({ blocks, head }: Voter, height: bigint, hash: Hash): bigint | undefined =>
  blocks.get(height)?.hash === hash && head.number >= height ? head.number - height + 1n : undefined
