/**
 * Reads the Transfer logs of every token to some addresses from one endpoint, in a number of calls that is fixed in
 * advance. Anyone can emit such logs for free. So if a request is refused, or its answer is too large, its range is
 * halved only while calls are left.
 */
import type { Endpoint } from "./endpoints.ts"
import type { Address } from "./hex.ts"
import { batch, RpcError } from "./rpc.ts"
import { type Block, blockCall, logCall, readBlock, readTransfers, type Transfer } from "./transfers.ts"

/** About 1,500 logs: parsing them takes a few milliseconds, and blocks the rest of the process. */
const MAX_BYTES = 1024 * 1024

/** What to read, both ends of the range included. */
export interface AnyTokenQuery {
  addresses: readonly Address[]
  fromBlock: bigint
  toBlock: bigint
  /** A block that the endpoint must show with each answer, because a lagging endpoint answers with what it has. */
  has: Block
}

/** How many calls may still be made to an endpoint; `readAnyToken` reduces the number. */
export interface Allowance {
  calls: number
  /** By `performance.now()`. */
  until: number
}

/**
 * Returns the transfers, each once. `too much`: they can't be read in the calls that are left. `silent`: the endpoint
 * can't be queried, or does not show the block. A single address in a single block that is still refused is left out.
 */
export async function readAnyToken(
  endpoint: Endpoint,
  { addresses, fromBlock, toBlock, has }: AnyTokenQuery,
  allowance: Allowance,
  signal: AbortSignal,
): Promise<Transfer[] | "too much" | "silent"> {
  const found: Transfer[] = []
  const open: Part[] = [{ addresses, fromBlock, toBlock }]
  for (let part = open.pop(); part; part = open.pop()) {
    if (allowance.calls <= 0 || performance.now() > allowance.until) return "too much"
    allowance.calls--
    const logs = await readPart(endpoint, part, has, signal)
    if (logs === "silent") return "silent"
    if (logs === "refused") open.push(...halves(part))
    else found.push(...logs)
  }
  return found
}

type Part = Pick<AnyTokenQuery, "addresses" | "fromBlock" | "toBlock">

/**
 * Halves the number of blocks if it is at least the number of addresses; otherwise, halves the number of addresses. So
 * the range shrinks to one address in one block, whether a flood or a node's limit on blocks was the reason.
 */
function halves({ addresses, fromBlock, toBlock }: Part): Part[] {
  const blocks = toBlock - fromBlock + 1n
  if (blocks > 1n && blocks >= addresses.length) {
    const middle = fromBlock + blocks / 2n
    return [
      { addresses, fromBlock: middle, toBlock },
      { addresses, fromBlock, toBlock: middle - 1n },
    ]
  }
  if (addresses.length < 2) return []
  const half = addresses.length >> 1
  return [addresses.slice(half), addresses.slice(0, half)].map(part => ({ addresses: part, fromBlock, toBlock }))
}

async function readPart(
  endpoint: Endpoint,
  { addresses, fromBlock, toBlock }: Part,
  has: Block,
  signal: AbortSignal,
): Promise<Transfer[] | "refused" | "silent"> {
  const logs = { ...logCall(undefined, "to", addresses, fromBlock, toBlock), maxBytes: MAX_BYTES }
  try {
    const [result, shown] = await batch(endpoint, [logs, blockCall(has.number)], signal)
    if (!result?.ok) return "refused"
    const block = shown?.ok ? readBlock(shown.value) : undefined
    if (block?.hash !== has.hash) return "silent"
    const among = new Set(addresses)
    return readTransfers(result.value).filter(
      log => among.has(log.to) && log.blockNumber >= fromBlock && log.blockNumber <= toBlock,
    )
  } catch (error) {
    if (!(error instanceof RpcError) || signal.aborted) throw error
    return [400, 413, 414, 422].includes(error.status ?? 0) ? "refused" : "silent"
  }
}
