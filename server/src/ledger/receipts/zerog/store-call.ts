/** The call that has 0G keep a file: its calldata, its key and its fee. Pure. */
import { encodeFunctionData, type Hex } from "viem"
import { leavesOf, type Tree } from "../../../../../verify/src/merkle.ts"
import { chunksOf } from "../../../../../verify/src/segments.ts"
import type { Address, Hash } from "../../../platform/chain/hex.ts"
import { marked } from "../../../platform/chain/release-call.ts"
import { flowAbi, submissionOf } from "./submission.ts"

/**
 * The calldata, followed by the id of its payout (a UUID). `submitter` is for whom the file is submitted, whoever pays: any
 * address but zero, which the contract refuses.
 */
export function storeData(
  payoutId: string,
  { bytes, tree }: { bytes: Uint8Array; tree: Tree },
  submitter: Address,
): Hex {
  const submission = submissionOf(tree, bytes.length, submitter)
  return marked(encodeFunctionData({ abi: flowAbi, functionName: "submit", args: [submission] }), payoutId)
}

/** The `source_key` of a call, which says for ever which file it is for. */
export const storeKey = (root: Hash, payoutId: string): string => `store:${root}:${payoutId}`

/**
 * What 0G takes for a file of `size` bytes, in wei, at a price of a chunk. The contract keeps what is paid beyond that and
 * spends it on whoever comes next, so it is paid exactly; less is refused.
 */
export const storeFee = (size: number, pricePerSector: bigint): bigint =>
  BigInt(leavesOf(chunksOf(size))) * pricePerSector
