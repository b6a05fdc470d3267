/**
 * Reads Transfer logs of any number of addresses from one endpoint, in requests of a size that it accepts. Nodes refuse
 * requests in three ways: too many bytes, too many addresses in a call, too many blocks or results. Halving finds out
 * which it was, and the result is kept with the endpoint.
 */
import {
  type Endpoint,
  growLogRange,
  growLogSize,
  noteFailure,
  noteSuccess,
  shrinkLogAddresses,
  shrinkLogBytes,
  shrinkLogRange,
} from "./endpoints.ts"
import type { Address, Hash } from "./hex.ts"
import { batch, type RpcCall, RpcError, type RpcResult } from "./rpc.ts"
import { blockCall, logCall, readBlock, readTransfers, type Transfer } from "./transfers.ts"

/** Entries in one request, not counting the block that is requested with the logs. */
const ENTRIES_PER_REQUEST = 40
/** Halvings in one reading: enough to get from the largest request to one with a single address and block. */
const MOST_REFUSALS = 30
/** A reading ends after this time, so that it does not outlive the caller's lease. */
const BUDGET_MS = 30_000
/** The size of a smaller request is unlikely to be the reason for its refusal, whatever the node says. */
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
   * A block that the endpoint must show in each request: a node behind a load balancer can lag, and answers with what
   * it has.
   */
  has: { number: bigint; hash?: Hash }
  /** How many ranges of blocks are read at most; all by default. */
  windows?: number
}

export interface LogReading {
  /** Each transfer once; twice where it is reported in two versions. */
  transfers: Transfer[]
  /** The last block up to which everything is read; the one before `fromBlock` when nothing is. */
  readTo: bigint
  /** Why it read nothing, in the node's words without its key; undefined when it read something. */
  refusal: string | undefined
}

interface Window {
  from: bigint
  to: bigint
  calls: RpcCall[]
}

/** Reads as far as the endpoint allows; a node that fails is not asked for a while, as in {@link ask}. */
export async function readLogs(endpoint: Endpoint, query: LogQuery, signal?: AbortSignal): Promise<LogReading> {
  const { logRange, logAddresses, logBytes } = endpoint
  const found = new Map<string, Transfer>()
  const among = new Set(query.addresses)
  let readTo = query.fromBlock - 1n
  let left = query.windows ?? Number.POSITIVE_INFINITY
  let refusal: string | undefined
  let refusals = 0
  const until = performance.now() + BUDGET_MS
  while (readTo < query.toBlock && left > 0 && refusals <= MOST_REFUSALS && performance.now() < until) {
    const windows = planWindows(endpoint, query, readTo + 1n, left)
    const outcome = await readWindows(endpoint, query, windows, signal)
    for (const each of outcome.transfers) if (isAsked(query, among, each)) found.set(statement(each), each)
    readTo = outcome.windows.at(-1)?.to ?? readTo
    left -= outcome.windows.length
    refusal = outcome.refused?.words
    if (!outcome.refused) {
      if (outcome.windows.length < windows.length) break
      if (windows.every(({ from, to }) => to - from + 1n >= endpoint.logRange)) growLogRange(endpoint)
      continue
    }
    refusals++
    if (!outcome.refused.mayBeSmaller || !askForLess(endpoint, outcome.refused)) break
  }
  const nothing = readTo < query.fromBlock && refusal !== undefined
  if (refusals === 0) growLogSize(endpoint)
  // An endpoint that refuses everything says nothing about sizes.
  if (nothing) Object.assign(endpoint, { logRange, logAddresses, logBytes })
  return { transfers: [...found.values()], readTo, refusal: nothing ? refusal : undefined }
}

/** Ignores logs that were not asked for: no other endpoint reads them, so none could deny them. */
const isAsked = ({ token, side, fromBlock, toBlock }: LogQuery, among: Set<Address>, each: Transfer): boolean =>
  each.token === token && each.blockNumber >= fromBlock && each.blockNumber <= toBlock && among.has(each[side])

/** The whole statement: a log that is reported in two versions counts as two, and the reader must see that. */
const statement = ({ txHash, token, from, to, value, blockNumber, blockHash, logIndex, k }: Transfer): string =>
  [txHash, token, from, to, value, blockNumber, blockHash, logIndex, k].join(" ")

/** As many windows as fit into one request; at least one. */
function planWindows(endpoint: Endpoint, query: LogQuery, from: bigint, most: number): Window[] {
  const windows: Window[] = []
  let entries = 0
  for (let start = from; start <= query.toBlock && windows.length < most; start += endpoint.logRange) {
    const end = start + endpoint.logRange - 1n
    const to = end < query.toBlock ? end : query.toBlock
    const calls: RpcCall[] = []
    for (let i = 0; i < query.addresses.length; i += endpoint.logAddresses)
      calls.push(logCall(query.token, query.side, query.addresses.slice(i, i + endpoint.logAddresses), start, to))
    entries += calls.length
    if (windows.length > 0 && entries > ENTRIES_PER_REQUEST) break
    windows.push({ from: start, to, calls })
  }
  return windows
}

interface Refused {
  words: string
  /** Of the request, and of its largest call. */
  bytes: number
  addresses: number
  range: bigint
  /** Whether the node may accept a smaller request: it answered with a refusal. */
  mayBeSmaller: boolean
}

/** The windows that were read completely, from the first on, and what stopped the next. */
async function readWindows(
  endpoint: Endpoint,
  { has }: LogQuery,
  windows: readonly Window[],
  signal: AbortSignal | undefined,
): Promise<{ transfers: Transfer[]; windows: Window[]; refused?: Refused }> {
  const transfers: Transfer[] = []
  const entries = windows.flatMap((window, i) => window.calls.map(call => ({ call, window: i })))
  for (let start = 0; start < entries.length; ) {
    const part = requestOf(endpoint, entries, start)
    const at = windows[entries[start]?.window ?? 0]
    const done = windows.slice(0, entries[start]?.window)
    const calls = part.map(({ call }) => call)
    const addresses = Math.max(...calls.map(addressesOf))
    const size = { bytes: sum(calls.map(bytesOf)), addresses, range: at ? at.to - at.from + 1n : 1n }
    let results: RpcResult[]
    try {
      results = await batch(endpoint, [...calls, blockCall(has.number)], signal)
      noteSuccess(endpoint)
    } catch (error) {
      if (!(error instanceof RpcError) || signal?.aborted) throw error
      const mayBeSmaller = [400, 413, 414, 422].includes(error.status ?? 0)
      if (!mayBeSmaller) noteFailure(endpoint)
      return { transfers, windows: done, refused: { ...size, words: error.message, mayBeSmaller } }
    }
    const shown = results.pop()
    for (const [i, result] of results.entries()) {
      const read = readOr(result)
      if (read.ok) transfers.push(...read.transfers)
      else
        return {
          transfers,
          windows: windows.slice(0, part[i]?.window),
          refused: { ...size, words: withoutKey(endpoint, read.error), mayBeSmaller: true },
        }
    }
    if (!shows(shown, has)) return { transfers, windows: done }
    start += part.length
  }
  return { transfers, windows: [...windows] }
}

/** The entries from `start` on that fit into one request; at least one. */
function requestOf<T extends { call: RpcCall }>(endpoint: Endpoint, entries: readonly T[], start: number): T[] {
  const part: T[] = []
  let bytes = 0
  for (const entry of entries.slice(start, start + ENTRIES_PER_REQUEST)) {
    bytes += bytesOf(entry.call)
    if (part.length > 0 && bytes > endpoint.logBytes) break
    part.push(entry)
  }
  return part
}

const addressesOf = ({ params }: RpcCall): number => {
  const [filter] = params as [{ topics: unknown[] }]
  return sum(filter.topics.map(topic => (Array.isArray(topic) ? topic.length : 0)))
}

const bytesOf = (call: RpcCall): number => BYTES_PER_CALL + BYTES_PER_ADDRESS * addressesOf(call)

const sum = (numbers: readonly number[]): number => numbers.reduce((total, n) => total + n, 0)

function readOr(result: RpcResult): { ok: true; transfers: Transfer[] } | { ok: false; error: string } {
  try {
    return result.ok ? { ok: true, transfers: readTransfers(result.value) } : result
  } catch (error) {
    if (error instanceof RpcError) return { ok: false, error: error.message }
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
 * Asks for less from now on: of what the error names, or else of what is most likely too much; false when it can't be
 * reduced further. A wrong guess costs more requests until the size has grown again, but never a log.
 */
function askForLess(endpoint: Endpoint, { words, bytes, addresses, range }: Refused): boolean {
  const isLeast = addresses <= 1 && range <= 1n && bytes <= BYTES_PER_CALL + BYTES_PER_ADDRESS
  if (isLeast) return false
  const isAboutRange = /range|block|result|response|timed? ?out|query|10,?000/i.test(words)
  const isAboutSize = /address|topic|criteria|filter|entity|payload|body|request|param|HTTP 4/i.test(words)
  const namesRange = isAboutRange === isAboutSize ? bytes <= SMALL_BYTES : isAboutRange
  if (range > 1n && (namesRange || addresses <= FEW_ADDRESSES)) shrinkLogRange(endpoint, range)
  // First fewer calls in a request, then fewer addresses in a call: more calls cost the node no more than large ones.
  else if (bytes > BYTES_PER_CALL + BYTES_PER_ADDRESS * addresses) shrinkLogBytes(endpoint, bytes)
  else shrinkLogAddresses(endpoint, addresses)
  return true
}

const MOST_WORDS = 200

/** A node's error message, truncated, and without a key that its URL may contain. */
function withoutKey({ url }: Endpoint, words: string): string {
  const { pathname, search, username, password } = new URL(url)
  const secrets = [...`${pathname}${search}`.split(/[/?&=]/), username, password].filter(part => part.length >= 8)
  const clean = secrets.reduce((text, secret) => text.replaceAll(secret, "…"), words)
  return clean.replace(/\p{C}/gu, " ").slice(0, MOST_WORDS)
}
