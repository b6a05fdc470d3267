/** Fetches a file from 0G's storage nodes. What they give is checked by the file's root, so they are trusted in nothing. */
import { isIP } from "node:net"
import { addressRange, isPublicAddress } from "../../server/src/platform/net/public-address.ts"
import { keccak256 } from "./keccak.ts"
import { NotAllowed, post } from "./post.ts"
import { provenBytes, SEGMENT_CHUNKS, segmentsOf } from "./segments.ts"

/** Batches have at most 4 MB. */
export const MAX_BYTES = 16 * 1_048_576
/** How many of the nodes that an indexer names are asked. */
const MAX_NODES = 64

/**
 * Private networks. Not every address that is not public: a translation (IPv4 in IPv6, NAT64, 6to4) gives a public host such
 * an address.
 */
const inside = addressRange(
  [
    "10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16",
    "::1/128 fc00::/7 fe80::/10",
  ].flatMap(line => line.split(" ")),
)

/** Whether an IP address is of the user's machine or a private network; false for text that is not an IP address. */
export function isInside(address: string): boolean {
  const [plain = ""] = address.split("%")
  // A rule for IPv4 also matches that address in IPv6 (`::ffff:10.0.0.1`).
  return isIP(plain) !== 0 && inside.check(plain, isIP(plain) === 4 ? "ipv4" : "ipv6")
}

/** A node, and what it says of the file; it has the segments whose number in the whole log is `shardId` modulo `numShard`. */
interface Holder {
  url: string
  shardId: number
  numShard: number
  seq: number
  start: number
  size: number
}

/** Asks a node. */
type Call = (url: string, method: string, params: readonly unknown[]) => Promise<unknown>

/**
 * The bytes of the file with this root, as an indexer says where they are; throws a sentence where they can't be had. A node
 * at an address that is not public is asked only where the indexer is known to be in a private network: others must not
 * choose what in the user's network is asked.
 */
export async function fetchStored(
  indexer: string,
  root: string,
  rules = { isPublic: isPublicAddress, isInside },
): Promise<Uint8Array> {
  const { result, peer } = await post(indexer, "indexer_getFileLocations", [root], () => true).catch((error: Error) => {
    throw new Error(`The indexer can't be asked: ${error.message}.`)
  })
  const mayAskInside = peer !== undefined && rules.isInside(peer)
  const allows = (address: string): boolean => rules.isPublic(address) || mayAskInside
  const call: Call = async (url, method, params) => (await post(url, method, params, allows)).result
  const { holders, refused } = await holdersOf(call, Array.isArray(result) ? result : [], root)
  for (const size of new Set(holders.map(each => each.size))) {
    const file = await fileOf(
      call,
      holders.filter(each => each.size === size),
      { root, size },
    )
    if (file) return file
  }
  const note = refused === 0 ? "" : ` It names ${refused} at addresses that are not public, which were not asked.`
  throw new Error(
    holders.length === 0
      ? `None of 0G's nodes that ${indexer} names has the file ${root}.${note}`
      : `0G's nodes do not give all of the file ${root}.${note}`,
  )
}

/** The nodes that have the file, and how many were refused for their address. */
async function holdersOf(
  call: Call,
  named: { url?: unknown; config?: Record<string, unknown> }[],
  root: string,
): Promise<{ holders: Holder[]; refused: number }> {
  const asked = named.slice(0, MAX_NODES).map(async ({ url, config }) => {
    const info = (await call(`${url}`, "zgs_getFileInfo", [root, true])) as { tx?: Record<string, unknown> } | null
    const numbers = [config?.shardId, config?.numShard, info?.tx?.seq, info?.tx?.startEntryIndex, info?.tx?.size]
    const [shardId = 0, numShard = 0, seq = 0, start = 0, size = 0] = numbers.map(Number)
    return { url: `${url}`, shardId, numShard, seq, start, size }
  })
  const answers = await Promise.allSettled(asked)
  const holders = answers.flatMap(answer => (answer.status === "fulfilled" ? [answer.value] : [])).filter(isUsable)
  const refused = answers.filter(answer => answer.status === "rejected" && answer.reason instanceof NotAllowed).length
  return { holders, refused }
}

const isUsable = ({ shardId, numShard, seq, start, size }: Holder): boolean =>
  [shardId, numShard, seq, start, size].every(n => Number.isSafeInteger(n) && n >= 0) &&
  shardId < numShard &&
  size > 0 &&
  size <= MAX_BYTES

async function fileOf(
  call: Call,
  holders: readonly Holder[],
  { root, size }: { root: string; size: number },
): Promise<Uint8Array | undefined> {
  const file = new Uint8Array(segmentsOf(size) * SEGMENT_CHUNKS * 256)
  for (let index = 0; index < segmentsOf(size); index++) {
    const bytes = await segmentFrom(call, holders, { root, size, index })
    if (!bytes) return undefined
    file.set(bytes, index * SEGMENT_CHUNKS * 256)
  }
  return file.subarray(0, size)
}

async function segmentFrom(
  call: Call,
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
