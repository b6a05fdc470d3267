/** The call that has 0G keep a file: its calldata and its fee. Pure. */
import { hash } from "node:crypto"
import { encodeFunctionData, type Hex } from "viem"
import { rootOf, treeOf } from "../../../../../verify/src/merkle.ts"
import { type Address, type Hash, ZERO_ADDRESS } from "../../../platform/chain/hex.ts"
import { marked } from "../../../platform/chain/release-call.ts"
import { feeOf, flowAbi, submissionOf } from "./submission.ts"

const keccak = (bytes: Uint8Array): Uint8Array => hash("keccak-256", bytes, "buffer")

const submissionFor = (file: Uint8Array, submitter: Address) => {
  const tree = treeOf(file, keccak)
  return { root: rootOf(tree), submission: submissionOf(tree, file.length, submitter) }
}

/** For whom a file is submitted, whoever pays: any address but zero, which the contract refuses. */
interface Named {
  submitter: Address
  root: Hash
}

/** The calldata, followed by the id of its payout (a UUID); undefined where the file has another root. */
export function storeData(payoutId: string, file: Uint8Array, { submitter, root }: Named): Hex | undefined {
  const made = submissionFor(file, submitter)
  if (made.root !== root) return undefined
  return marked(encodeFunctionData({ abi: flowAbi, functionName: "submit", args: [made.submission] }), payoutId)
}

/** What it costs at a price of a chunk, in wei. */
export const storeFee = (file: Uint8Array, pricePerSector: bigint): bigint =>
  feeOf(submissionFor(file, ZERO_ADDRESS).submission, pricePerSector)
