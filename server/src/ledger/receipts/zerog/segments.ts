/**
 * Segments of a file as 0G's nodes accept them: 1,024 chunks, with the hashes that prove the chunks against the file's
 * root. Pure.
 */
import { CHUNK, rootOf, type Tree } from "../../../../../verify/src/merkle.ts"
import { chunksOf, SEGMENT_CHUNKS, SEGMENT_LEVEL, widthsOf } from "../../../../../verify/src/segments.ts"
import type { Hash } from "../../../platform/chain/hex.ts"
import { nodeAt } from "./submission.ts"

/**
 * A segment on the wire. For each hash of `lemma` between the first and the last, `path` says whether that hash is on
 * the right.
 */
export interface Segment {
  root: Hash
  /** Whole chunks in base64, without chunks that only pad the tree. */
  data: string
  index: number
  proof: { lemma: string[]; path: boolean[] }
  fileSize: number
}

/** Returns a segment of a file with its proof. */
export function segmentOf(file: Uint8Array, tree: Tree, index: number): Segment {
  const root = rootOf(tree) as Hash
  const whole = new Uint8Array(Math.min(SEGMENT_CHUNKS, chunksOf(file.length) - index * SEGMENT_CHUNKS) * CHUNK)
  whole.set(file.subarray(index * SEGMENT_CHUNKS * CHUNK, index * SEGMENT_CHUNKS * CHUNK + whole.length))
  const siblings: { hash: Hash; isLeft: boolean }[] = []
  const widths = widthsOf(file.length)
  let i = index
  for (const [k, width] of widths.entries()) {
    // The last node of an odd level moves up unchanged.
    if (width > 1 && (i ^ 1) < width)
      siblings.push({ hash: nodeAt(tree, SEGMENT_LEVEL + k, i ^ 1), isLeft: i % 2 === 0 })
    i >>= 1
  }
  // The proof for a file of one segment contains only the root, as 0G's own proofs do.
  const lemma =
    widths.length === 1 ? [root] : [nodeAt(tree, SEGMENT_LEVEL, index), ...siblings.map(({ hash }) => hash), root]
  const data = Buffer.from(whole).toString("base64")
  return { root, data, index, proof: { lemma, path: siblings.map(({ isLeft }) => isLeft) }, fileSize: file.length }
}
