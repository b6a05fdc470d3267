/** The call that pays 0G to keep a file: its calldata, its key and its fee. Pure. */
import { encodeFunctionData, type Hex } from "viem"
import { leavesOf, type Tree } from "../../../../../verify/src/merkle.ts"
import { chunksOf } from "../../../../../verify/src/segments.ts"
import type { Address, Hash } from "../../../platform/chain/hex.ts"
import { marked } from "../../../platform/chain/release-call.ts"
import { flowAbi, submissionOf } from "./submission.ts"

/**
 * Returns the calldata, followed by the id of the call's payout (a UUID). `submitter` is the address for which the file
 * is submitted, no matter who pays. The contract accepts any address but zero.
 */
export function storeData(
  payoutId: string,
  { bytes, tree }: { bytes: Uint8Array; tree: Tree },
  submitter: Address,
): Hex {
  const submission = submissionOf(tree, bytes.length, submitter)
  return marked(encodeFunctionData({ abi: flowAbi, functionName: "submit", args: [submission] }), payoutId)
}

/** Returns the `source_key` of a call, which permanently says which file the call pays for. */
export const storeKey = (root: Hash, payoutId: string): string => `store:${root}:${payoutId}`

/**
 * Returns 0G's fee for a file of `size` bytes, in wei, at a given price per chunk. The contract keeps any excess and
 * spends it on the next submission, so the exact fee is paid. A lower fee is refused.
 */
export const storeFee = (size: number, pricePerSector: bigint): bigint =>
  BigInt(leavesOf(chunksOf(size))) * pricePerSector
