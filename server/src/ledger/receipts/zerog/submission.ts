/**
 * What 0G's `Flow` contract is told to keep: the roots of the whole subtrees into which a file's leaves divide, the
 * largest first. Pure.
 */
import { type Hex, parseAbi } from "viem"
import { toHex } from "../../../../../verify/src/bytes.ts"
import type { Tree } from "../../../../../verify/src/merkle.ts"
import type { Address, Hash } from "../../../platform/chain/hex.ts"

/** The functions of 0G's contracts that are called, and the event that tells nodes about a file. */
export const flowAbi = parseAbi([
  "struct SubmissionNode { bytes32 root; uint256 height; }",
  "struct SubmissionData { uint256 length; bytes tags; SubmissionNode[] nodes; }",
  "struct Submission { SubmissionData data; address submitter; }",
  "function submit(Submission submission) payable returns (uint256, bytes32, uint256, uint256)",
  "function market() view returns (address)",
  "function pricePerSector() view returns (uint256)",
  "event Submit(address indexed sender, bytes32 indexed identity, uint256 submissionIndex, uint256 startPos, uint256 length, SubmissionData submission)",
  "error NotEnoughFee(uint256 price, uint256 amount, uint256 paid)",
])

/** The argument of `Flow.submit`. `length` is in bytes, and a node of height h has 2^h chunks. */
export interface Submission {
  data: { length: bigint; tags: Hex; nodes: { root: Hash; height: bigint }[] }
  submitter: Address
}

/** Returns the submission of a file of `size` bytes with this tree. */
export function submissionOf(tree: Tree, size: number, submitter: Address): Submission {
  const nodes: Submission["data"]["nodes"] = []
  const leaves = tree[0]?.length ?? 0
  for (let from = 0; from < leaves; ) {
    const height = Math.floor(Math.log2(leaves - from))
    nodes.push({ root: nodeAt(tree, height, from / 2 ** height), height: BigInt(height) })
    from += 2 ** height
  }
  return { data: { length: BigInt(size), tags: "0x", nodes }, submitter }
}

/** Returns the hash of a node, by its level above the leaves and its position in that level. */
export const nodeAt = (tree: Tree, level: number, i: number): Hash =>
  toHex(tree[level]?.[i] ?? new Uint8Array()) as Hash
