/** Reads the time of the newest block: a clock that is neither this machine's nor the database's. */
// I/O: queries the endpoints, even before the service has connected, when there is no context.
import type { NetworkSettings } from "./networks.ts"
import { batch, type RpcCall, type RpcResult } from "./rpc.ts"

/** The call whose result {@link blockOf} reads. */
export const NEWEST_BLOCK: RpcCall = { method: "eth_getBlockByNumber", params: ["latest", false] }

/** The number of a block and its time in milliseconds; undefined if an endpoint answers with anything else. */
export function blockOf(result: RpcResult | undefined): { number: number; timeMs: number } | undefined {
  if (!result?.ok || typeof result.value !== "object" || result.value === null) return undefined
  const { number, timestamp } = result.value as Record<string, unknown>
  const height = numberOf(number)
  const seconds = numberOf(timestamp)
  return height === undefined || seconds === undefined ? undefined : { number: height, timeMs: seconds * 1_000 }
}

/** The number that hexadecimal digits stand for; undefined for anything else. */
export const numberOf = (text: unknown): number | undefined =>
  typeof text === "string" && /^0x[0-9a-f]{1,12}$/i.test(text) ? Number.parseInt(text, 16) : undefined

/**
 * The latest time, in ms, that an endpoint reports; undefined if none answers. A single endpoint can falsify this time,
 * because the times are not compared.
 */
export async function newestBlockMs(
  networks: readonly Pick<NetworkSettings, "name" | "rpcUrls">[],
  signal: AbortSignal,
): Promise<number | undefined> {
  const asked = networks.flatMap(({ name, rpcUrls }) =>
    rpcUrls.map(url => batch({ url, network: name }, [NEWEST_BLOCK], signal).catch((): RpcResult[] => [])),
  )
  const times = (await Promise.all(asked)).flatMap(([result]) => blockOf(result)?.timeMs ?? [])
  return times.length > 0 ? Math.max(...times) : undefined
}
