/**
 * Asks one endpoint in a round, and keeps what it reports. An error or an incomplete list is never enough evidence that
 * something does not exist. Reports that only one endpoint makes are bounded before they are compared, because a single
 * endpoint can invent any number of logs.
 */
import { inTurns } from "../turns.ts"
import { isSameLog, type LogAgreement, type Voter as VoterReports, verdictOn } from "./agreement.ts"
import { ask, type Endpoint } from "./endpoints.ts"
import type { Address, Hash } from "./hex.ts"
import type { ReachableChain } from "./networks.ts"
import { addVersion, type LogReading, readLogs } from "./read-logs.ts"
import { hexNumber, RpcError, type RpcResult, withoutKey } from "./rpc.ts"
import { type Block, blockCall, type Receipt, readBlock, readReceipt, receiptCall, type Transfer } from "./transfers.ts"

/** Windows of logs per round and endpoint: after downtime the scan catches up over several rounds. */
const WINDOWS_PER_ROUND = 5
/**
 * How many logs an endpoint may report alone in a scan. Beyond that number, the endpoint counts as having read no
 * further.
 */
const MAX_ALONE = 2_000
/** How many logs that some voter lacks are compared again to find which endpoints differ. */
const MAX_DISPUTED = 300
/** An endpoint floods if its answers in a round exceed this size, and are this many times as large as any other's. */
const FLOOD_BYTES = 4 * 1024 * 1024
const FLOOD_RATIO = 4

/** An endpoint that takes part in a round, and what it has reported. */
export interface Voter extends VoterReports {
  endpoint: Endpoint
  /** The endpoint's message if it reported no log; undefined if it reported one, or was not asked. */
  refusal?: string
  /** The bytes of the endpoint's answers before this round. */
  bytesBefore: number
  /** Whether the round continued without this voter, which is then not asked again in this round. */
  isLate: boolean
}

/**
 * Asks an endpoint for its chain, head and finalized block. Undefined if the endpoint may not vote: it does not
 * respond, is on another chain, or its finalized block has gone backwards.
 */
export async function admitVoter(
  endpoint: Endpoint,
  chain: ReachableChain,
  checkpoint: bigint,
  signal: AbortSignal,
): Promise<Voter | undefined> {
  const bytesBefore = endpoint.bytes
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
  const refused = [chainId, latest].find(result => result?.ok === false)
  if (refused?.ok === false) endpoint.said = withoutKey(endpoint, refused.error)
  if (!head || !chainId?.ok || chainId.value !== hexNumber(chain.chainId)) return undefined
  const finalized = blockOf(finalizedBlock)?.number
  // A finalized block must not go backwards. The endpoint gets its vote back when it has caught up with its earlier
  // report.
  if (finalized !== undefined && finalized < endpoint.finalizedHigh) return undefined
  const blocks = new Map([[head.number, head]])
  const known = blockOf(checkpointBlock)
  if (known?.number === checkpoint) blocks.set(checkpoint, known)
  const position = chain.endpoints.indexOf(endpoint)
  const reports = { head, finalized, blocks, receipts: new Map(), logs: new Map(), readings: [] }
  return { endpoint, position, bytesBefore, isLate: false, ...reports }
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

/**
 * Asks a voter for blocks and receipts that it has not reported yet; returns a function that adds them to the voter's
 * reports.
 */
export async function learnFrom(
  voter: Voter,
  heights: readonly bigint[],
  hashes: readonly Hash[],
  signal: AbortSignal,
): Promise<() => void> {
  const numbers = heights.filter(height => !voter.blocks.has(height))
  const wanted = hashes.filter(hash => !voter.receipts.has(hash))
  if (numbers.length + wanted.length === 0) return () => {}
  // Blocks are asked for separately. Receipts may be too large together, and blocks decide about everybody's payments.
  const headers = numbers.length > 0 ? await ask(voter.endpoint, numbers.map(blockCall), signal) : []
  const blocks = numbers.map((_, i) => blockOf(headers?.[i]))
  const results = wanted.length > 0 && headers ? await ask(voter.endpoint, wanted.map(receiptCall), signal) : []
  const receipts: (Receipt | null | undefined)[] = []
  await inTurns(wanted.keys(), i => {
    receipts.push(tolerant(results?.[i], value => readReceipt(value) ?? null))
  })
  return () => {
    for (const [i, block] of blocks.entries())
      if (block && block.number === numbers[i]) voter.blocks.set(block.number, block)
    for (const [i, hash] of wanted.entries()) {
      const receipt = receipts[i]
      // A receipt of another transaction is not an answer; some nodes mix up replies.
      if (receipt === null || receipt?.txHash === hash) voter.receipts.set(hash, receipt)
    }
  }
}

/** Reads the logs of one voter's endpoint, both ends included, as far as the endpoint allows. */
export async function readLogsOf(
  token: Address,
  { endpoint, head }: Voter,
  addresses: readonly Address[],
  { from, to, isWide }: { from: bigint; to: bigint; isWide: boolean },
  signal: AbortSignal,
): Promise<LogReading> {
  const query = { token, side: "to", addresses, windows: WINDOWS_PER_ROUND, isWide } as const
  return await readLogs(endpoint, { ...query, fromBlock: from, toBlock: to, has: head }, signal)
}

/**
 * Adds readings of the same addresses, from the same block, to the voters' reports; returns the last block that each
 * has certainly read. With several voters, one that alone reports thousands of logs counts as having read only up to
 * those logs.
 */
export async function takeReadings(
  readings: ReadonlyMap<Voter, LogReading>,
  from: bigint,
  addresses: ReadonlySet<Address>,
): Promise<bigint[]> {
  const parts: bigint[] = []
  for (const [voter, reading] of readings) {
    const others = [...readings.values()].filter(each => each !== reading)
    const alone: Transfer[] = []
    if (others.length > 0)
      await inTurns(reading.versions, ([key, versions]) => {
        for (const log of versions)
          if (!others.some(each => each.versions.get(key)?.some(other => isSameLog(other, log)))) alone.push(log)
      })
    const beyond = alone.sort((a, b) => (a.blockNumber < b.blockNumber ? -1 : 1))[MAX_ALONE]
    if (reading.refusal !== undefined) voter.refusal = reading.refusal
    const readTo = beyond && beyond.blockNumber <= reading.readTo ? beyond.blockNumber - 1n : reading.readTo
    voter.readings.push({ from, to: readTo, addresses })
    parts.push(readTo)
    if (!beyond && voter.logs.size === 0) voter.logs = reading.versions
    else {
      const kept = new Set(alone.slice(0, MAX_ALONE))
      await inTurns([...reading.versions.values()].flat(), log => {
        if (!beyond || log.blockNumber < beyond.blockNumber || kept.has(log)) addVersion(voter.logs, log)
      })
    }
  }
  return parts
}

/** A log that some voter reported, with the verdict on it. */
export interface Judged {
  log: Transfer
  standing: LogAgreement
}

/** All reported logs with their verdicts, each statement once, and some of those that not every voter has. */
export interface Verdicts {
  judged: Judged[]
  disputed: Transfer[]
}

/** Compares the logs of all voters. */
export async function judgeLogs(voters: readonly Voter[], endpoints: number): Promise<Verdicts> {
  const judged: Judged[] = []
  const disputed: Transfer[] = []
  for (const [i, voter] of voters.entries()) {
    const before = voters.slice(0, i)
    await inTurns(voter.logs, ([key, versions]) => {
      for (const log of versions) {
        if (before.some(({ logs }) => logs.get(key)?.some(other => isSameLog(other, log)))) continue
        const { standing, isUnanimous } = verdictOn(voters, log, endpoints)
        judged.push({ log, standing })
        if (!isUnanimous && disputed.length < MAX_DISPUTED) disputed.push(log)
      }
    })
  }
  return { judged, disputed }
}

/**
 * The voters whose answers were much larger than those of each of at least two others. Returns none if another voter
 * was late or refused, because its answer might have been as large.
 */
export function flooding(voters: readonly Voter[]): Voter[] {
  if (voters.length < 3) return []
  const used = (voter: Voter) => voter.endpoint.bytes - voter.bytesBefore
  return voters.filter(voter => {
    const others = voters.filter(other => other !== voter)
    if (others.some(({ isLate, refusal }) => isLate || refusal !== undefined)) return false
    const most = Math.max(...others.map(used))
    return used(voter) > FLOOD_BYTES && used(voter) > FLOOD_RATIO * most
  })
}
