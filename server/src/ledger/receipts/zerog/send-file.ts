/**
 * Brings a file to 0G's storage nodes whose root is in the `Flow` contract, and proves that they have it. It may be called
 * again at any time: nodes that have it take nothing.
 */
// I/O: asks 0G's indexer and nodes.
import { hash } from "node:crypto"
import { rootOf, treeOf } from "../../../../../verify/src/merkle.ts"
import { provenBytes, SEGMENT_CHUNKS, segmentsOf } from "../../../../../verify/src/segments.ts"
import type { Hash } from "../../../platform/chain/hex.ts"
import {
  type Asking,
  type FileInfo,
  fileInfo,
  giveSegments,
  NodeRefused,
  type StorageNode,
  takeSegment,
  trustedNodes,
} from "./ask-nodes.ts"
import { segmentOf } from "./segments.ts"

/** How many nodes get each segment. */
const COPIES = 2
/** Segments in a request: 1.4 MB. */
const AT_ONCE = 4

/** How far a file is; `why` is for the log. `pending`: no node has read its transaction yet. */
export type Upload = { state: "stored"; seq: number } | { state: "pending" | "failed"; why: string }

/** Uploads a file and reads it back with proofs, from a second node too where two have the same segments. Never rejects for what a node does. */
export async function uploadFile(ctx: Asking, indexer: string, file: Uint8Array): Promise<Upload> {
  const tree = treeOf(file, keccak)
  const root = rootOf(tree) as Hash
  const count = segmentsOf(file.length)
  const faults: string[] = []
  const noting = <T>(work: Promise<T>): Promise<T | undefined> =>
    work.catch(error => {
      if (!(error instanceof NodeRefused)) throw error
      faults.push(error.message)
      return undefined
    })
  const nodes = (await noting(trustedNodes(ctx, indexer))) ?? []
  const infos = new Map<StorageNode, FileInfo>()
  for (const node of nodes) {
    const info = await noting(fileInfo(ctx, node, root))
    if (info) infos.set(node, info)
  }
  /** Gives a node all of its part, and asks whether it has it: it drops what it was given of a file that it never had all of. */
  const give = async (node: StorageNode, { seq }: FileInfo, part: readonly number[]): Promise<boolean> => {
    for (let at = 0; at < part.length; at += AT_ONCE) {
      const segments = part.slice(at, at + AT_ONCE).map(i => segmentOf(file, tree, i))
      await noting(giveSegments(ctx, node, segments, seq))
    }
    if ((await noting(fileInfo(ctx, node, root)))?.isFinal) return true
    faults.push(`${new URL(node.url).host} does not say yet that it has all of its part`)
    return false
  }
  if (infos.size === 0)
    return { state: "pending", why: faults[0] ?? `none of ${nodes.length} nodes has read its transaction` }
  const copies = Array.from({ length: count }, () => 0)
  let seq: number | undefined
  for (const [node, info] of infos) {
    const part = [...copies.keys()].filter(i => has(node, info, i))
    if (part.every(i => (copies[i] ?? 0) >= COPIES)) continue
    if (!info.isFinal && !(await give(node, info, part))) continue
    for (const index of part) {
      const given = await noting(takeSegment(ctx, node, info.seq, index))
      if (!provenBytes(given, { root, size: file.length, index }, keccak)) {
        if (given !== undefined) faults.push(`${new URL(node.url).host} gives another segment ${index}, or none`)
        continue
      }
      copies[index] = (copies[index] ?? 0) + 1
      seq ??= info.seq
    }
  }
  const lacking = copies.findIndex((n, i) => n < Math.min(COPIES, Math.max(1, holders(nodes, infos, i))))
  if (lacking >= 0 || seq === undefined)
    return { state: "failed", why: faults[0] ?? `no node has segment ${Math.max(0, lacking)}` }
  return { state: "stored", seq }
}

const keccak = (bytes: Uint8Array): Uint8Array => hash("keccak-256", bytes, "buffer")

/** Whether a segment of the file belongs to the node's shard, by its place in the whole log. */
const has = ({ shardId, numShard }: StorageNode, { start }: FileInfo, index: number): boolean =>
  (Math.floor(start / SEGMENT_CHUNKS) + index) % numShard === shardId

/** How many nodes answer for a segment. Where none does, it is missing. */
const holders = (nodes: readonly StorageNode[], infos: ReadonlyMap<StorageNode, FileInfo>, index: number): number =>
  nodes.filter(node => {
    const info = infos.get(node)
    return info !== undefined && has(node, info, index)
  }).length
