/**
 * The RPC endpoints of a network, and what each has taught us: how many blocks of logs it takes at once, how far its
 * finalized block was, when it failed. Kept for the life of the process, learnt anew after a restart.
 */
import type { NetworkName } from "./networks.ts"
import { batch, type RpcCall, RpcError, type RpcResult } from "./rpc.ts"

export interface Endpoint {
  url: string
  network: NetworkName
  /** Blocks in one `eth_getLogs`. */
  logRange: bigint
  /** The highest finalized block it ever told. */
  finalizedHigh: bigint
  failures: number
  /** Not asked before this wall time, in milliseconds. */
  silentUntil: number
}

const MAX_LOG_RANGE = 10_000n
const MAX_SILENCE_MS = 60_000

export const newEndpoint = (network: NetworkName, url: string): Endpoint => ({
  url,
  network,
  logRange: MAX_LOG_RANGE,
  finalizedHigh: 0n,
  failures: 0,
  silentUntil: 0,
})

/** How an endpoint is named in logs, alarms and errors: without its path and user, which may hold its key. */
export const hostOf = ({ url }: Pick<Endpoint, "url">): string => new URL(url).host

/** The endpoint refused a range of logs (too many blocks, too many results): ask for half from now on. */
export function shrinkLogRange(endpoint: Endpoint): void {
  endpoint.logRange = endpoint.logRange > 1n ? endpoint.logRange / 2n : 1n
}

/** A full range went through: the next may be larger, as the refusal may have been about the number of results. */
export function growLogRange(endpoint: Endpoint): void {
  endpoint.logRange = endpoint.logRange * 2n < MAX_LOG_RANGE ? endpoint.logRange * 2n : MAX_LOG_RANGE
}

/**
 * Asks one endpoint; undefined when it could not be asked. After a failure it is left alone for 1 s, doubling to a minute
 * with each failure in a row.
 */
export async function ask(
  endpoint: Endpoint,
  calls: readonly RpcCall[],
  signal?: AbortSignal,
): Promise<RpcResult[] | undefined> {
  try {
    const results = await batch(endpoint, calls, signal)
    endpoint.failures = 0
    return results
  } catch (error) {
    if (!(error instanceof RpcError) || signal?.aborted) throw error
    endpoint.failures++
    endpoint.silentUntil = Date.now() + Math.min(1_000 * 2 ** Math.min(endpoint.failures - 1, 10), MAX_SILENCE_MS)
    return undefined
  }
}

/** Those that may be asked now; all of them when every one is being left alone: a late answer beats none. */
export function awake(endpoints: readonly Endpoint[]): readonly Endpoint[] {
  const ready = endpoints.filter(endpoint => endpoint.silentUntil <= Date.now())
  return ready.length > 0 ? ready : endpoints
}

/** The first endpoint's answer to all calls; the next is asked where one can't be reached, an {@link RpcError} after the last. */
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
