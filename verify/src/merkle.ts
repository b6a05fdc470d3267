/**
 * The Merkle tree of a file as 0G computes it. Leaves are the Keccak-256 of 256 bytes each, and a node is the
 * Keccak-256 of its two halves. The last node of an odd level moves up unchanged. 0G builds the trees of segments of
 * 1,024 leaves first. That gives the same tree, because 1,024 is a power of two.
 */
import { concat, fromHex, toHex } from "./bytes.ts"
import { keccak256 } from "./keccak.ts"

/** The bytes of a leaf. */
export const CHUNK = 256

/** Keccak-256; the service passes a faster one. */
export type Hasher = (bytes: Uint8Array) => Uint8Array

/** The levels of a tree, the leaves first. */
export type Tree = readonly (readonly Uint8Array[])[]

/** How many leaves a file of this many chunks has: padded to a multiple of 1/16 of the next power of two. */
export function leavesOf(chunks: number): number {
  const power = 2 ** Math.ceil(Math.log2(chunks))
  const unit = Math.max(1, power / 16)
  return Math.ceil(chunks / unit) * unit
}

/** The tree of a file of at least one byte. */
export function treeOf(file: Uint8Array, hash: Hasher = keccak256): Tree {
  const chunks = Math.ceil(file.length / CHUNK)
  const padded = new Uint8Array(chunks * CHUNK)
  padded.set(file)
  const leaves: Uint8Array[] = []
  for (let i = 0; i < chunks; i++) leaves.push(hash(padded.subarray(i * CHUNK, (i + 1) * CHUNK)))
  const empty = hash(new Uint8Array(CHUNK))
  while (leaves.length < leavesOf(chunks)) leaves.push(empty)
  return levelsOf(leaves, hash)
}

/** The tree above these leaves, with them. */
export function levelsOf(leaves: readonly Uint8Array[], hash: Hasher): Tree {
  const levels = [leaves]
  for (let level = leaves; level.length > 1; ) {
    const above: Uint8Array[] = []
    for (let i = 0; i < level.length; i += 2) {
      const [left, right] = level.slice(i, i + 2)
      if (left) above.push(right ? hash(concat(left, right)) : left)
    }
    levels.push(above)
    level = above
  }
  return levels
}

/** The root, in hexadecimal. */
export const rootOf = (tree: Tree): string => toHex(tree.at(-1)?.[0] ?? new Uint8Array())

/** A range of leaves, the last excluded. */
interface Range {
  from: number
  to: number
}

/**
 * The hashes that prove a part of a file, in the order in which {@link rootOfPart} needs them. They are the hashes of
 * the largest subtrees that contain none of its leaves. `offset` is a multiple of {@link CHUNK}.
 */
export function pathOf(tree: Tree, offset: number, length: number): string[] {
  const path: string[] = []
  const part = rangeOf(offset, length)
  walk({ from: 0, to: tree[0]?.length ?? 0 }, part, {
    outside: ({ from, to }) => {
      const height = Math.ceil(Math.log2(to - from))
      path.push(toHex(tree[height]?.[from / 2 ** height] ?? new Uint8Array()))
    },
    leaf: () => {},
    node: () => {},
  })
  return path
}

/**
 * The root that follows from a part of a file of `size` bytes and its path. Throws if the path has the wrong number of
 * hashes for such a part, or the part is outside such a file.
 */
export function rootOfPart(part: Uint8Array, offset: number, size: number, path: readonly string[]): string {
  const isThere = Number.isSafeInteger(offset) && Number.isSafeInteger(size) && offset >= 0 && offset % CHUNK === 0
  if (!isThere || part.length === 0 || part.length % CHUNK !== 0 || offset + part.length > size)
    throw new Error("the receipt is not within its file")
  const waiting = [...path]
  const stack: Uint8Array[] = []
  walk({ from: 0, to: leavesOf(Math.ceil(size / CHUNK)) }, rangeOf(offset, part.length), {
    outside: () => {
      const hash = waiting.shift()
      if (hash === undefined || hash.length !== 66) throw new Error("the path is not whole")
      stack.push(fromHex(hash))
    },
    leaf: i => stack.push(keccak256(part.subarray(i * CHUNK - offset, (i + 1) * CHUNK - offset))),
    node: () => {
      const right = stack.pop()
      const left = stack.pop()
      if (left && right) stack.push(keccak256(concat(left, right)))
    },
  })
  if (waiting.length > 0) throw new Error("the path is too long")
  return toHex(stack[0] ?? new Uint8Array())
}

const rangeOf = (offset: number, length: number): Range => ({
  from: offset / CHUNK,
  to: Math.ceil((offset + length) / CHUNK),
})

interface Visitor {
  /** A subtree without any leaf of the part. */
  outside: (range: Range) => void
  leaf: (i: number) => void
  /** Called after both halves of a node. */
  node: () => void
}

function walk(range: Range, part: Range, visit: Visitor): void {
  const { from, to } = range
  if (to <= part.from || from >= part.to) {
    visit.outside(range)
    return
  }
  if (to - from === 1) {
    visit.leaf(from)
    return
  }
  // The largest power of two below the number of leaves: an odd last node moves up, so the left half is complete.
  const middle = from + 2 ** (Math.ceil(Math.log2(to - from)) - 1)
  walk({ from, to: middle }, part, visit)
  walk({ from: middle, to }, part, visit)
  visit.node()
}
