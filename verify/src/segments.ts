/**
 * Segments of a file as 0G's nodes give them: 1,024 chunks, with the hashes that prove them by the file's root.
 */
import { concat, fromHex, toHex } from "./bytes.ts"
import { CHUNK, type Hasher, leavesOf, levelsOf } from "./merkle.ts"

/** The chunks of a segment, 2 to the power of {@link SEGMENT_LEVEL}. */
export const SEGMENT_CHUNKS = 1_024
/** The level of a segment's node above its chunks. */
export const SEGMENT_LEVEL = 10

/** How many chunks a file of `size` bytes has. */
export const chunksOf = (size: number): number => Math.ceil(size / CHUNK)

/** How many segments a file of `size` bytes has. */
export const segmentsOf = (size: number): number => Math.ceil(chunksOf(size) / SEGMENT_CHUNKS)

/** The levels of the nodes from the segments up to the root: how many each has. */
export function widthsOf(size: number): number[] {
  const widths = [Math.ceil(leavesOf(chunksOf(size)) / SEGMENT_CHUNKS)]
  for (let width = widths[0] ?? 1; width > 1; widths.push(width)) width = Math.ceil(width / 2)
  return widths
}

/** The bytes of a segment that a node gave; undefined where they are not proven to be those of the file with this root. */
export function provenBytes(
  given: unknown,
  { root, size, index }: { root: string; size: number; index: number },
  hash: Hasher,
): Uint8Array | undefined {
  const { data, proof } = (given ?? {}) as { data?: unknown; proof?: { lemma?: unknown; path?: unknown } }
  const { lemma, path } = proof ?? {}
  if (typeof data !== "string" || !Array.isArray(lemma) || !Array.isArray(path)) return undefined
  const bytes = fromBase64(data)
  const from = index * SEGMENT_CHUNKS
  if (bytes.length !== Math.min(SEGMENT_CHUNKS, chunksOf(size) - from) * CHUNK) return undefined
  const leaves: Uint8Array[] = []
  for (let at = 0; at < bytes.length; at += CHUNK) leaves.push(hash(bytes.subarray(at, at + CHUNK)))
  const empty = hash(new Uint8Array(CHUNK))
  while (leaves.length < Math.min(SEGMENT_CHUNKS, leavesOf(chunksOf(size)) - from)) leaves.push(empty)
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

/** Empty where the text is no base64. */
function fromBase64(text: string): Uint8Array {
  try {
    return Uint8Array.from(atob(text), character => character.charCodeAt(0))
  } catch {
    return new Uint8Array()
  }
}
