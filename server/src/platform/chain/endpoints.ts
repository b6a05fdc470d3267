/**
 * The RPC endpoints of a network, and what the process has learned about each. This includes how many blocks of logs
 * the endpoint accepts, its highest finalized block, and when it failed. This knowledge is kept in memory, and learned
 * again after a restart.
 */
import { backoffMs } from "../backoff.ts"
import type { ChainName } from "./network-facts.ts"
import { batch, MAX_ENTRIES, type RpcCall, RpcError, type RpcResult } from "./rpc.ts"

export interface Endpoint {
  url: string
  network: ChainName
  /** The endpoint's position in the setting, from 1. */
  position: number
  /** Milliseconds until an exchange is abandoned; 10,000 by default. */
  timeoutMs?: number
  /** Blocks in one `eth_getLogs`. */
  logRange: bigint
  /** Addresses in one `eth_getLogs`. */
  logAddresses: number
  /** The approximate size of one request for logs, in bytes. */
  logBytes: number
  /** When `logAddresses` or `logBytes` last changed, wall time in milliseconds. */
  logSizeChangedAt: number
  /** Calls in one request, and when that last changed, wall time in milliseconds; see `batch`. */
  entries: number
  entriesChangedAt: number
  /** The highest finalized block that the endpoint ever reported. */
  finalizedHigh: bigint
  failures: number
  /** Why the endpoint could not be used when it was last queried, in words without its key; undefined if it could. */
  said: string | undefined
  /** The endpoint is not queried before this wall time, in milliseconds. */
  silentUntil: number
  /** The size of all the endpoint's answers in bytes, unpacked. */
  bytes: number
  /**
   * How often the endpoint's answers were useless, and when they last were (wall time in milliseconds); see {@link
   * noteUseless}.
   */
  useless: number
  uselessAt: number
  /** Whether the last round continued without this endpoint's answer, and how many such answers are still pending. */
  isLate: boolean
  lateOpen: number
}

const MAX_LOG_RANGE = 10_000n
/** Some nodes refuse more. */
const MAX_LOG_ADDRESSES = 1_000
/** Half of nginx's default limit; some nodes refused 2.25 MB. */
const MAX_LOG_BYTES = 500_000
/** A learned size is kept this long before a larger one is tried, because each trial may cost a refused request. */
const LOG_SIZE_KEPT_MS = 600_000
const MAX_SILENCE_MS = 60_000
/** The first pause after useless answers: longer than a round, so that their cost drops immediately. */
const USELESS_MS = 4_000
/** Useless answers are forgotten after this time without another one. */
const USELESS_KEPT_MS = 600_000

export const newEndpoint = (network: ChainName, url: string, position = 1): Endpoint => ({
  url,
  network,
  position,
  logRange: MAX_LOG_RANGE,
  logAddresses: MAX_LOG_ADDRESSES,
  logBytes: MAX_LOG_BYTES,
  logSizeChangedAt: 0,
  entries: MAX_ENTRIES,
  entriesChangedAt: 0,
  finalizedHigh: 0n,
  failures: 0,
  said: undefined,
  silentUntil: 0,
  bytes: 0,
  useless: 0,
  uselessAt: 0,
  isLate: false,
  lateOpen: 0,
})

/**
 * The name of an endpoint in logs, alarms and errors. The name leaves out the path and user, which may contain its key.
 */
export const hostOf = ({ url }: Pick<Endpoint, "url">): string => new URL(url).host

/** Halves the range of logs to ask for, after the endpoint refused one with too many blocks or results. */
export function shrinkLogRange(endpoint: Endpoint, range: bigint): void {
  endpoint.logRange = range > 1n ? range / 2n : 1n
}

/** Puts fewer calls in one request, after the endpoint refused a request of this many bytes with more than one call. */
export function shrinkLogBytes(endpoint: Endpoint, bytes: number): void {
  Object.assign(endpoint, { logBytes: Math.floor(bytes / 2), logSizeChangedAt: Date.now() })
}

/** Puts half as many addresses in one call, after the endpoint refused a call with this many. */
export function shrinkLogAddresses(endpoint: Endpoint, addresses: number): void {
  const logAddresses = Math.max(1, Math.floor(addresses / 2))
  Object.assign(endpoint, { logAddresses, logSizeChangedAt: Date.now() })
}

/** Doubles both sizes if nothing was refused for a while, because the refusal may have been temporary. */
export function growLogSize(endpoint: Endpoint): void {
  const isGreatest = endpoint.logAddresses === MAX_LOG_ADDRESSES && endpoint.logBytes === MAX_LOG_BYTES
  if (isGreatest || Date.now() - endpoint.logSizeChangedAt < LOG_SIZE_KEPT_MS) return
  endpoint.logAddresses = Math.min(2 * endpoint.logAddresses, MAX_LOG_ADDRESSES)
  endpoint.logBytes = Math.min(2 * endpoint.logBytes, MAX_LOG_BYTES)
  endpoint.logSizeChangedAt = Date.now()
}

/** Doubles the range after a full one succeeded, because the refusal may have been about the number of results. */
export function growLogRange(endpoint: Endpoint): void {
  endpoint.logRange = endpoint.logRange * 2n < MAX_LOG_RANGE ? endpoint.logRange * 2n : MAX_LOG_RANGE
}

/**
 * Queries one endpoint; returns undefined if it could not be queried. After a failure, the endpoint is skipped for 1 s.
 * Each further failure in a row doubles the pause, up to a minute.
 */
export async function ask(
  endpoint: Endpoint,
  calls: readonly RpcCall[],
  signal?: AbortSignal,
): Promise<RpcResult[] | undefined> {
  try {
    const results = await batch(endpoint, calls, signal)
    noteSuccess(endpoint)
    return results
  } catch (error) {
    if (!(error instanceof RpcError) || signal?.aborted) throw error
    noteFault(endpoint, error)
    return undefined
  }
}

/** Records that the endpoint responded. */
export function noteSuccess(endpoint: Endpoint): void {
  Object.assign(endpoint, { failures: 0, said: undefined })
}

/** Records that the endpoint could not be queried, so it is skipped for a while. */
function noteFailure(endpoint: Endpoint): void {
  endpoint.failures++
  endpoint.silentUntil = Date.now() + backoffMs(1_000, endpoint.failures - 1, MAX_SILENCE_MS)
}

/** Records a failed exchange: the endpoint could not be queried, or its answer was useless. */
export function noteFault(endpoint: Endpoint, error: RpcError): void {
  endpoint.said = error.message
  if (error.isUseless) noteUseless(endpoint)
  else noteFailure(endpoint)
}

/**
 * Records that the endpoint gave an answer that only cost resources. The endpoint is skipped for 4 s, and later for up
 * to a minute, whatever else it answers meanwhile. Otherwise an endpoint that is right about small things would be
 * asked for large ones each time.
 */
export function noteUseless(endpoint: Endpoint): void {
  const now = Date.now()
  endpoint.useless = now - endpoint.uselessAt < USELESS_KEPT_MS ? endpoint.useless + 1 : 1
  endpoint.uselessAt = now
  endpoint.silentUntil = now + backoffMs(USELESS_MS, endpoint.useless - 1, MAX_SILENCE_MS)
}

/** Whether the endpoint's answers were useless in the last ten minutes. */
export const isUseless = ({ useless, uselessAt }: Endpoint): boolean =>
  useless > 0 && Date.now() - uselessAt < USELESS_KEPT_MS

/**
 * Returns a function that always gives an endpoint the same copy, with failures of its own. If requests of one job hang
 * or are refused, that must not pause the endpoint for other work.
 */
export function endpointCopies(): (endpoint: Endpoint) => Endpoint {
  const copies = new WeakMap<Endpoint, Endpoint>()
  return endpoint => {
    const own = {
      failures: 0,
      said: undefined,
      silentUntil: 0,
      bytes: 0,
      useless: 0,
      uselessAt: 0,
      isLate: false,
      lateOpen: 0,
    }
    const copy = copies.get(endpoint) ?? { ...endpoint, ...own }
    copies.set(endpoint, copy)
    return copy
  }
}

/**
 * The endpoints that may be queried now. If all endpoints are paused, all are returned, because a late answer is better
 * than none.
 */
export function awake(endpoints: readonly Endpoint[]): readonly Endpoint[] {
  const ready = endpoints.filter(endpoint => endpoint.silentUntil <= Date.now())
  return ready.length > 0 ? ready : endpoints
}

/**
 * Returns one endpoint's answers to all calls. If an endpoint can't be reached, it asks the next one; throws an
 * {@link RpcError} after the last.
 */
export async function askAny(
  endpoints: readonly Endpoint[],
  calls: readonly RpcCall[],
  signal?: AbortSignal,
): Promise<RpcResult[]> {
  for (const endpoint of awake(endpoints)) {
    const results = await ask(endpoint, calls, signal)
    if (results) return results
  }
  throw new RpcError("no endpoint can be reached")
}
