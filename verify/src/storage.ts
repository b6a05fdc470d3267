/** Fetches a file from 0G's storage nodes. What they give is checked by the file's root, so they are trusted in nothing. */
import { keccak256 } from "./keccak.ts"
import { provenBytes, SEGMENT_CHUNKS, segmentsOf } from "./segments.ts"

/** Batches have at most 4 MB. */
const MAX_BYTES = 16 * 1_048_576
const TIMEOUT_MS = 30_000

/** A node, and what it says of the file; it has the segments whose number in the whole log is `shardId` modulo `numShard`. */
interface Holder {
  url: string
  shardId: number
  numShard: number
  seq: number
  start: number
  size: number
}

async function call(url: string, method: string, params: unknown[]): Promise<unknown> {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })
  const headers = { "content-type": "application/json" }
  const response = await fetch(url, { method: "POST", headers, body, signal: AbortSignal.timeout(TIMEOUT_MS) })
  return ((await response.json()) as { result?: unknown }).result
}

/** The bytes of the file with this root, as an indexer says where they are; throws a sentence where they can't be had. */
export async function fetchStored(indexer: string, root: string): Promise<Uint8Array> {
  const holders = await holdersOf(indexer, root)
  for (const size of new Set(holders.map(each => each.size))) {
    const file = await fileOf(
      holders.filter(each => each.size === size),
      { root, size },
    )
    if (file) return file
  }
  throw new Error(
    holders.length === 0
      ? `None of 0G's nodes that ${indexer} names has the file ${root}.`
      : `0G's nodes do not give all of the file ${root}.`,
  )
}

async function holdersOf(indexer: string, root: string): Promise<Holder[]> {
  const found = await call(indexer, "indexer_getFileLocations", [root])
  const named = (Array.isArray(found) ? found : []) as { url?: unknown; config?: Record<string, unknown> }[]
  const holders = named.map(async ({ url, config }) => {
    const info = (await call(`${url}`, "zgs_getFileInfo", [root, true])) as { tx?: Record<string, unknown> } | null
    const numbers = [config?.shardId, config?.numShard, info?.tx?.seq, info?.tx?.startEntryIndex, info?.tx?.size]
    const [shardId = 0, numShard = 0, seq = 0, start = 0, size = 0] = numbers.map(Number)
    return { url: `${url}`, shardId, numShard, seq, start, size }
  })
  const answers = await Promise.allSettled(holders)
  return answers.flatMap(answer => (answer.status === "fulfilled" ? [answer.value] : [])).filter(isUsable)
}

const isUsable = ({ shardId, numShard, seq, start, size }: Holder): boolean =>
  [shardId, numShard, seq, start, size].every(n => Number.isSafeInteger(n) && n >= 0) &&
  shardId < numShard &&
  size > 0 &&
  size <= MAX_BYTES

async function fileOf(
  holders: readonly Holder[],
  { root, size }: { root: string; size: number },
): Promise<Uint8Array | undefined> {
  const file = new Uint8Array(segmentsOf(size) * SEGMENT_CHUNKS * 256)
  for (let index = 0; index < segmentsOf(size); index++) {
    const bytes = await segmentFrom(holders, { root, size, index })
    if (!bytes) return undefined
    file.set(bytes, index * SEGMENT_CHUNKS * 256)
  }
  return file.subarray(0, size)
}

async function segmentFrom(
  holders: readonly Holder[],
  part: { root: string; size: number; index: number },
): Promise<Uint8Array | undefined> {
  for (const { url, shardId, numShard, seq, start } of holders) {
    if ((Math.floor(start / SEGMENT_CHUNKS) + part.index) % numShard !== shardId) continue
    const given = await call(url, "zgs_downloadSegmentWithProofByTxSeq", [seq, part.index]).catch(() => undefined)
    const bytes = provenBytes(given, part, keccak256)
    if (bytes) return bytes
  }
  return undefined
}
