/**
 * Segments of a file as 0G's nodes take and give them: 1,024 chunks, with the hashes that prove them by the file's root.
 * Pure.
 */
import { concat, fromHex, toHex } from "../../../../../verify/src/bytes.ts"
import { CHUNK, type Hasher, leavesOf, levelsOf, rootOf, type Tree } from "../../../../../verify/src/merkle.ts"
import type { Hash } from "../../../platform/chain/hex.ts"
import { nodeAt } from "./submission.ts"

/** The chunks of a segment, 2 to the power of {@link LEVEL}. */
const CHUNKS = 1_024
const LEVEL = 10

/** A segment on the wire. `path` says of each hash of `lemma` between the first and the last whether it is on the right. */
export interface Segment {
  root: Hash
  /** Base64; whole chunks, without those that only pad the tree. */
  data: string
  index: number
  proof: { lemma: string[]; path: boolean[] }
  fileSize: number
}

const chunksOf = (size: number): number => Math.ceil(size / CHUNK)

/** How many segments a file of `size` bytes has. */
export const segmentsOf = (size: number): number => Math.ceil(chunksOf(size) / CHUNKS)

/** The levels of the nodes from the segments up to the root: how many each has. */
function widthsOf(size: number): number[] {
  const widths = [Math.ceil(leavesOf(chunksOf(size)) / CHUNKS)]
  for (let width = widths[0] ?? 1; width > 1; widths.push(width)) width = Math.ceil(width / 2)
  return widths
}

/** A segment of a file with its proof. */
export function segmentOf(file: Uint8Array, tree: Tree, index: number): Segment {
  const root = rootOf(tree) as Hash
  const whole = new Uint8Array(Math.min(CHUNKS, chunksOf(file.length) - index * CHUNKS) * CHUNK)
  whole.set(file.subarray(index * CHUNKS * CHUNK, index * CHUNKS * CHUNK + whole.length))
  const siblings: { hash: Hash; isLeft: boolean }[] = []
  const widths = widthsOf(file.length)
  let i = index
  for (const [k, width] of widths.entries()) {
    // The last node of an odd level moves up as it is.
    if (width > 1 && (i ^ 1) < width) siblings.push({ hash: nodeAt(tree, LEVEL + k, i ^ 1), isLeft: i % 2 === 0 })
    i >>= 1
  }
  // A file of one segment has its root alone, as 0G's own proofs do.
  const lemma = widths.length === 1 ? [root] : [nodeAt(tree, LEVEL, index), ...siblings.map(({ hash }) => hash), root]
  const data = Buffer.from(whole).toString("base64")
  return { root, data, index, proof: { lemma, path: siblings.map(({ isLeft }) => isLeft) }, fileSize: file.length }
}

/** The bytes of a segment that a node gave; undefined where they are not proven to be those of the file with this root. */
export function provenBytes(
  given: unknown,
  { root, size, index }: { root: Hash; size: number; index: number },
  hash: Hasher,
): Uint8Array | undefined {
  const { data, proof } = (given ?? {}) as { data?: unknown; proof?: { lemma?: unknown; path?: unknown } }
  const { lemma, path } = proof ?? {}
  if (typeof data !== "string" || !Array.isArray(lemma) || !Array.isArray(path)) return undefined
  const bytes = new Uint8Array(Buffer.from(data, "base64"))
  const from = index * CHUNKS
  if (bytes.length !== Math.min(CHUNKS, chunksOf(size) - from) * CHUNK) return undefined
  const leaves: Uint8Array[] = []
  for (let at = 0; at < bytes.length; at += CHUNK) leaves.push(hash(bytes.subarray(at, at + CHUNK)))
  const empty = hash(new Uint8Array(CHUNK))
  while (leaves.length < Math.min(CHUNKS, leavesOf(chunksOf(size)) - from)) leaves.push(empty)
  let reached = levelsOf(leaves, hash).at(-1)?.[0] ?? new Uint8Array()
  let used = 0
  let i = index
  for (const width of widthsOf(size)) {
    if (width > 1 && (i ^ 1) < width) {
      const sibling = lemma[used + 1]
      if (typeof sibling !== "string" || !/^0x[0-9a-f]{64}$/i.test(sibling)) return undefined
      if (path[used] !== (i % 2 === 0)) return undefined
      reached = hash(
        path[used] ? concat(reached, fromHex(sibling.toLowerCase())) : concat(fromHex(sibling.toLowerCase()), reached),
      )
      used += 1
    }
    i >>= 1
  }
  return used === path.length && toHex(reached) === root ? bytes : undefined
}
