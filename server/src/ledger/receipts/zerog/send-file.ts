/**
 * Uploads a file to 0G's storage nodes after its root is in the `Flow` contract, and proves that they have it. An
 * upload can be repeated at any time, because nothing is sent to nodes that already have the file.
 */
// I/O: queries 0G's indexer and nodes.
import { hash } from "node:crypto"
import { rootOf, type Tree } from "../../../../../verify/src/merkle.ts"
import { provenBytes, SEGMENT_CHUNKS, segmentsOf } from "../../../../../verify/src/segments.ts"
import type { Hash } from "../../../platform/chain/hex.ts"
import {
  type Asking,
  giveSegments,
  hasAll,
  hostOf,
  NodeRefused,
  type Placed,
  type StorageNode,
  takeSegment,
  trustedNodes,
} from "./ask-nodes.ts"
import type { Place } from "./read-submitted.ts"
import { segmentOf } from "./segments.ts"

/** How many nodes get each segment. */
const COPIES = 2
/** How many segments a request has: 1.4 MB. */
const AT_ONCE = 4

/**
 * How far the upload of a file is. `why` is for the log. `pending` means that no node has read the file's transaction
 * yet.
 */
export type Upload = { state: "stored" } | { state: "pending" | "failed"; why: string }

/** A file, and the place that our own transaction gave it in the log of all files. */
interface Sent extends Place {
  bytes: Uint8Array
  tree: Tree
}

/** A node that has read the transaction, with the segments of the file that belong on this node. */
interface Holder {
  node: StorageNode
  part: number[]
  isFinal: boolean
}

/**
 * Uploads a file and reads it back with proofs, from a second node too if two nodes have the same segments. Queries the
 * nodes concurrently. Never rejects because of what an indexer or a node does.
 */
export async function uploadFile(ctx: Asking, indexer: string, file: Sent): Promise<Upload> {
  const placed: Placed = { root: rootOf(file.tree) as Hash, seq: file.seq, start: file.start }
  const faults: string[] = []
  const noting = <T>(work: Promise<T>): Promise<T | undefined> =>
    work.catch(error => {
      if (!(error instanceof NodeRefused)) throw error
      faults.push(error.message)
      return undefined
    })
  const nodes = (await noting(trustedNodes(ctx, indexer))) ?? []
  const count = segmentsOf(file.bytes.length)
  const asked = nodes.map(async (node): Promise<Holder[]> => {
    const isFinal = await noting(hasAll(ctx, node, placed))
    const part = Array.from({ length: count }, (_, i) => i).filter(i => belongs(node, placed, i))
    return isFinal === undefined ? [] : [{ node, part, isFinal }]
  })
  const holders = (await Promise.all(asked)).flat()
  if (holders.length === 0)
    return { state: "pending", why: faults[0] ?? `none of ${nodes.length} nodes has read its transaction` }
  // The hosts that have proven each segment. A host that is named twice counts as one copy.
  const copies = Array.from({ length: count }, () => new Set<string>())
  for (let left = holders; left.length > 0; ) {
    const chosen = chooseHolders(left, copies)
    if (chosen.length === 0) break
    left = left.filter(each => !chosen.includes(each))
    await Promise.all(chosen.map(each => bring(ctx, file, placed, each, { copies, faults, noting })))
  }
  const needed = copies.map(
    (_, i) => new Set(holders.flatMap(each => (each.part.includes(i) ? hostOf(each.node) : []))),
  )
  const lacking = copies.findIndex((has, i) => has.size < Math.min(COPIES, Math.max(1, needed[i]?.size ?? 0)))
  if (lacking < 0) return { state: "stored" }
  return { state: "failed", why: faults[0] ?? `no node has segment ${lacking}` }
}

/** Returns the nodes that give each segment as many copies as it needs, if none of these nodes fails. */
function chooseHolders(left: readonly Holder[], copies: readonly ReadonlySet<string>[]): Holder[] {
  const expected = copies.map(has => new Set(has))
  const chosen: Holder[] = []
  for (const each of left) {
    const host = hostOf(each.node)
    const useful = each.part.filter(i => (expected[i]?.size ?? COPIES) < COPIES && !expected[i]?.has(host))
    if (useful.length === 0) continue
    chosen.push(each)
    for (const i of each.part) expected[i]?.add(host)
  }
  return chosen
}

interface Progress {
  copies: readonly Set<string>[]
  faults: string[]
  noting: <T>(work: Promise<T>) => Promise<T | undefined>
}

/** Uploads a node's part unless the node has all of it, and reads that part back. */
async function bring(
  ctx: Asking,
  file: Sent,
  placed: Placed,
  { node, part, isFinal }: Holder,
  { copies, faults, noting }: Progress,
): Promise<void> {
  if (!isFinal) {
    for (let at = 0; at < part.length; at += AT_ONCE) {
      const segments = part.slice(at, at + AT_ONCE).map(i => segmentOf(file.bytes, file.tree, i))
      await noting(giveSegments(ctx, node, segments, file.seq))
    }
    // A node drops the segments that it was given if it never had all of its part.
    if ((await noting(hasAll(ctx, node, placed))) !== true) {
      faults.push(`${hostOf(node)} does not say yet that it has all of its part`)
      return
    }
  }
  for (const index of part) {
    const given = await noting(takeSegment(ctx, node, file.seq, index))
    if (provenBytes(given, { root: placed.root, size: file.bytes.length, index }, keccak))
      copies[index]?.add(hostOf(node))
    else if (given !== undefined) faults.push(`${hostOf(node)} gives another segment ${index}, or none`)
  }
}

const keccak = (bytes: Uint8Array): Uint8Array => hash("keccak-256", bytes, "buffer")

/** Whether a segment of the file belongs to the node's shard, by the segment's place in the whole log. */
const belongs = ({ shardId, numShard }: StorageNode, { start }: Place, index: number): boolean =>
  (Math.floor(start / SEGMENT_CHUNKS) + index) % numShard === shardId
