/**
 * Reads Transfer logs of any number of addresses from one endpoint, in requests of a size that it accepts. Nodes refuse
 * requests for three reasons: too many bytes, too many addresses in a call, too many blocks or results. Halving finds
 * the reason, and the result is kept with the endpoint.
 */
import { inTurns } from "../turns.ts"
import { isSameLog, keyOf } from "./agreement.ts"
import {
  type Endpoint,
  growLogRange,
  growLogSize,
  noteFault,
  noteSuccess,
  shrinkLogAddresses,
  shrinkLogBytes,
  shrinkLogRange,
} from "./endpoints.ts"
import type { Address, Hash } from "./hex.ts"
import { batch, MAX_ENTRIES, type RpcCall, RpcError, type RpcResult, withoutKey } from "./rpc.ts"
import { blockCall, logCall, readBlock, readManyTransfers, type Transfer } from "./transfers.ts"

/**
 * Entries in one request, not counting the block that is requested with the logs; fewer if the endpoint accepts fewer.
 */
const ENTRIES_PER_REQUEST = 40
const entriesOfRequest = ({ entries = MAX_ENTRIES }: Endpoint): number =>
  Math.max(1, Math.min(ENTRIES_PER_REQUEST, entries - 1))
/** Halvings in one reading: enough to get from the largest request to one with a single address and block. */
const MAX_REFUSALS = 30
/** A reading ends after this time, so that it does not outlive the caller's lease. */
const BUDGET_MS = 30_000
/**
 * A reading also ends after this many bytes, including answers that were too large. The sizes that the reading learned
 * are kept.
 */
const BUDGET_BYTES = 24 * 1024 * 1024
/**
 * The largest answer about one address in one block, which can't be split: about 45,000 logs, as many transfers as fit
 * into a block. This limit applies only if the other endpoints' answers are that large too; see
 * {@link LogQuery.isWide}.
 */
const WIDE_BYTES = 32 * 1024 * 1024
/** How many versions of one transfer are kept. An endpoint with two contradicts itself; a third adds nothing. */
const MAX_VERSIONS = 2
/** A request below this size is unlikely to be refused for its size, whatever the node says. */
const SMALL_BYTES = 32_000
/** A number of addresses that nodes are unlikely to refuse. */
const FEW_ADDRESSES = 50
/** Bytes of one address in a filter: a word in hexadecimal, its quotes and its comma. */
const BYTES_PER_ADDRESS = 69
const BYTES_PER_CALL = 300

/** What to read: the transfers of a token `to` these addresses, or `from` them. */
export interface LogQuery {
  token: Address
  side: "from" | "to"
  addresses: readonly Address[]
  /** Both ends included. */
  fromBlock: bigint
  toBlock: bigint
  /**
   * A block that the endpoint must show in each request: a node behind a load balancer can lag and still answer with
   * what it has.
   */
  has: { number: bigint; hash?: Hash }
  /** The maximum number of block ranges to read; all by default. */
  windows?: number
  /** Whether an answer about one address in one block may be as large as 32 MB instead of 8 MB. */
  isWide?: boolean
}

export interface LogReading {
  /** The transfers by {@link keyOf}; two under one key if they are reported in two versions. */
  versions: Map<string, Transfer[]>
  /** The last block up to which everything was read; the one before `fromBlock` if nothing was. */
  readTo: bigint
  /** Why nothing was read, in the node's words without the endpoint's key; undefined if something was read. */
  refusal: string | undefined
  /** Whether even the answer about one address in one block was too large. */
  isTooLarge: boolean
}

/** All transfers of a reading, including each version of a transfer. */
export const transfersOf = ({ versions }: Pick<LogReading, "versions">): Transfer[] => [...versions.values()].flat()

interface Window {
  from: bigint
  to: bigint
}

/** Reads as far as the endpoint allows; a node that fails is skipped for a while, as in {@link ask}. */
export async function readLogs(endpoint: Endpoint, query: LogQuery, signal?: AbortSignal): Promise<LogReading> {
  const { logRange, logAddresses, logBytes } = endpoint
  const versions = new Map<string, Transfer[]>()
  const among = new Set(query.addresses)
  let readTo = query.fromBlock - 1n
  let left = query.windows ?? Number.POSITIVE_INFINITY
  let refusal: string | undefined
  let refusals = 0
  let isLeast = false
  let isTooLarge = false
  const until = performance.now() + BUDGET_MS
  const maxBytes = endpoint.bytes + BUDGET_BYTES
  const hasBudget = () => performance.now() < until && endpoint.bytes < maxBytes
  while (readTo < query.toBlock && left > 0 && refusals <= MAX_REFUSALS && hasBudget()) {
    const windows = planWindows(endpoint, query, readTo + 1n, left)
    const outcome = await readWindows(endpoint, query, windows, signal)
    await inTurns(outcome.transfers, each => {
      if (isAsked(query, among, each)) addVersion(versions, each)
    })
    readTo = outcome.windows.at(-1)?.to ?? readTo
    left -= outcome.windows.length
    refusal = outcome.refused?.words
    if (!outcome.refused) {
      if (outcome.windows.length < windows.length) break
      if (windows.every(({ from, to }) => to - from + 1n >= endpoint.logRange)) growLogRange(endpoint)
      continue
    }
    refusals++
    isTooLarge = outcome.refused.isTooLarge
    isLeast = !outcome.refused.mayBeSmaller || !askForLess(endpoint, outcome.refused)
    if (isLeast) break
  }
  const nothing = readTo < query.fromBlock && refusal !== undefined
  if (refusals === 0) growLogSize(endpoint)
  // An endpoint that refuses everything says nothing about sizes.
  if (nothing && (isLeast || refusals > MAX_REFUSALS)) Object.assign(endpoint, { logRange, logAddresses, logBytes })
  return { versions, readTo, refusal: nothing && isLeast ? refusal : undefined, isTooLarge: isLeast && isTooLarge }
}

/** Ignores logs that were not asked for: no other endpoint reads them, so none could deny them. */
const isAsked = ({ token, side, fromBlock, toBlock }: LogQuery, among: Set<Address>, each: Transfer): boolean =>
  each.token === token && each.blockNumber >= fromBlock && each.blockNumber <= toBlock && among.has(each[side])

/** Adds a transfer to those with its key, unless that version is already there. */
export function addVersion(versions: Map<string, Transfer[]>, transfer: Transfer): void {
  const key = keyOf(transfer)
  const known = versions.get(key)
  if (!known) versions.set(key, [transfer])
  else if (known.length < MAX_VERSIONS && !known.some(each => isSameLog(each, transfer))) known.push(transfer)
}

/** As many windows as fit into one request; at least one. */
function planWindows(endpoint: Endpoint, query: LogQuery, from: bigint, most: number): Window[] {
  const windows: Window[] = []
  let entries = 0
  for (let start = from; start <= query.toBlock && windows.length < most; start += endpoint.logRange) {
    const end = start + endpoint.logRange - 1n
    const to = end < query.toBlock ? end : query.toBlock
    entries += Math.ceil(query.addresses.length / endpoint.logAddresses)
    if (windows.length > 0 && entries > entriesOfRequest(endpoint)) break
    windows.push({ from: start, to })
  }
  return windows
}

/** One call of a reading: some addresses in one window. Only the calls of one request are made at a time. */
interface Entry {
  window: number
  addresses: readonly Address[]
}

function* entriesOf({ logAddresses }: Endpoint, { addresses }: LogQuery, windows: readonly Window[]): Generator<Entry> {
  for (const window of windows.keys())
    for (let i = 0; i < addresses.length; i += logAddresses)
      yield { window, addresses: addresses.slice(i, i + logAddresses) }
}

function callOf({ token, side, isWide }: LogQuery, addresses: readonly Address[], { from, to }: Window): RpcCall {
  const call = logCall(token, side, addresses, from, to)
  return isWide && from === to && addresses.length === 1 ? { ...call, maxBytes: WIDE_BYTES } : call
}

interface Refused {
  words: string
  /** The size of the request, and of its largest call. */
  bytes: number
  addresses: number
  range: bigint
  /** Whether the node may accept a smaller request, because it answered with a refusal. */
  mayBeSmaller: boolean
  /** Whether the service refused the answer because of its size. */
  isTooLarge: boolean
}

/** The windows that were read completely, starting with the first, and what stopped the next one. */
async function readWindows(
  endpoint: Endpoint,
  query: LogQuery,
  windows: readonly Window[],
  signal: AbortSignal | undefined,
): Promise<{ transfers: Transfer[]; windows: Window[]; refused?: Refused }> {
  const transfers: Transfer[] = []
  for (const part of requestsOf(endpoint, entriesOf(endpoint, query, windows))) {
    const first = part[0]?.window ?? 0
    const range = windows[first]
    const counts = part.map(({ addresses }) => addresses.length)
    const size = {
      bytes: sum(counts.map(bytesOf)),
      addresses: Math.max(...counts),
      range: range ? range.to - range.from + 1n : 1n,
    }
    const calls = part.map(({ window, addresses }) => callOf(query, addresses, windows[window] as Window))
    let results: RpcResult[]
    try {
      results = await batch(endpoint, [...calls, blockCall(query.has.number)], signal)
      noteSuccess(endpoint)
    } catch (error) {
      if (!(error instanceof RpcError) || signal?.aborted) throw error
      const mayBeSmaller = [400, 413, 414, 422].includes(error.status ?? 0)
      if (!mayBeSmaller) noteFault(endpoint, error)
      return {
        transfers,
        windows: windows.slice(0, first),
        refused: { ...size, words: error.message, mayBeSmaller, isTooLarge: false },
      }
    }
    const shown = results.pop()
    for (const [i, result] of results.entries()) {
      const read = await readOr(result)
      if (!read.ok)
        return {
          transfers,
          windows: windows.slice(0, part[i]?.window),
          refused: {
            ...size,
            words: withoutKey(endpoint, read.error),
            mayBeSmaller: true,
            isTooLarge: read.isTooLarge,
          },
        }
      for (const transfer of read.transfers) transfers.push(transfer)
    }
    if (!shows(shown, query.has)) return { transfers, windows: windows.slice(0, first) }
  }
  return { transfers, windows: [...windows] }
}

/** Groups entries into requests, as many as fit into each; at least one. */
function* requestsOf(endpoint: Endpoint, entries: Iterable<Entry>): Generator<Entry[]> {
  const { logBytes } = endpoint
  let part: Entry[] = []
  let bytes = 0
  for (const entry of entries) {
    const more = bytesOf(entry.addresses.length)
    if (part.length >= entriesOfRequest(endpoint) || (part.length > 0 && bytes + more > logBytes)) {
      yield part
      part = []
      bytes = 0
    }
    part.push(entry)
    bytes += more
  }
  if (part.length > 0) yield part
}

const bytesOf = (addresses: number): number => BYTES_PER_CALL + BYTES_PER_ADDRESS * addresses

const sum = (numbers: readonly number[]): number => numbers.reduce((total, n) => total + n, 0)

async function readOr(
  result: RpcResult,
): Promise<{ ok: true; transfers: Transfer[] } | { ok: false; error: string; isTooLarge: boolean }> {
  try {
    if (!result.ok) return { ...result, isTooLarge: result.isTooLarge ?? false }
    return { ok: true, transfers: await readManyTransfers(result.value) }
  } catch (error) {
    if (error instanceof RpcError) return { ok: false, error: error.message, isTooLarge: false }
    throw error
  }
}

function shows(result: RpcResult | undefined, has: LogQuery["has"]): boolean {
  try {
    const block = result?.ok ? readBlock(result.value) : undefined
    return block?.number === has.number && (has.hash === undefined || block.hash === has.hash)
  } catch (error) {
    if (error instanceof RpcError) return false
    throw error
  }
}

/**
 * Makes later requests smaller in what the error names, or else in what is most likely too large. Returns false if
 * nothing can be reduced further. A wrong guess costs more requests until the size has grown again, but never a log.
 */
function askForLess(endpoint: Endpoint, { words, bytes, addresses, range, isTooLarge }: Refused): boolean {
  const isLeast = addresses <= 1 && range <= 1n && bytes <= BYTES_PER_CALL + BYTES_PER_ADDRESS
  if (isLeast) return false
  // Reduced to an eighth, because each trial costs 8 MB. Blocks are reduced first, because a flood is in few of them.
  if (isTooLarge && range > 1n) {
    shrinkLogRange(endpoint, range / 4n)
    return true
  }
  const isAboutRange = /range|block|result|response|timed? ?out|query|10,?000/i.test(words)
  const isAboutSize = /address|topic|criteria|filter|entity|payload|body|request|param|HTTP 4/i.test(words)
  const namesRange = isAboutRange === isAboutSize ? bytes <= SMALL_BYTES : isAboutRange
  if (range > 1n && (namesRange || addresses <= FEW_ADDRESSES)) shrinkLogRange(endpoint, range)
  // First fewer calls in a request, then fewer addresses in a call: many small calls cost the node no more than a few
  // large ones.
  else if (bytes > BYTES_PER_CALL + BYTES_PER_ADDRESS * addresses) shrinkLogBytes(endpoint, bytes)
  else shrinkLogAddresses(endpoint, addresses)
  return true
}
