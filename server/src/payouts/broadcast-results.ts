/**
 * What a node's answer to a broadcast means. Pure. Advice, never evidence: whatever it says, the transaction may be mined,
 * and only the chain tells. So nothing here ever gives an intent another nonce.
 */
import type { RpcResult } from "../chain/rpc.ts"
import type { SendResult } from "../db/payout-rows.ts"

/** In this order: the first that fits decides. The words are those of geth, reth, op-geth, Nethermind, Erigon, Besu and anvil. */
const meanings: [SendResult, RegExp][] = [
  ["sent", /already (known|imported|exists)|alreadyknown|already in (the )?(mem)?pool|known transaction/i],
  [
    "look",
    /nonce.{0,20}(too low|already been used)|old ?nonce|replacement (transaction )?underpriced|could not replace/i,
  ],
  ["bump", /base ?fee|underpriced|fee ?too ?low|gas price (too low|below)/i],
  [
    "wait",
    /insufficient (funds|balance)|pool (is )?full|pool limit|rate|too many|limit exceeded|exceeds (the )?allowance|nonce too high|nonce gap/i,
  ],
  ["alarm", /intrinsic gas|invalid (sender|signature|chain)|gas limit|oversized|not supported|blob|initcode/i],
]

/**
 * sent: the node has it. look: something with this nonce is known or mined. wait: it may be taken later. bump: it pays too
 * little. alarm: it can't be mined as it is, which a person must look at. unknown: assume that it was sent.
 */
export function classifyAnswer(result: RpcResult | undefined): SendResult {
  if (!result) return "unknown"
  if (result.ok) return "sent"
  return meanings.find(([, pattern]) => pattern.test(result.error))?.[0] ?? "unknown"
}

const gravity: SendResult[] = ["sent", "look", "alarm", "bump", "wait", "unknown"]

/** One word for what several endpoints answered: one that has it outweighs all others. */
export const summaryOf = (results: readonly SendResult[]): SendResult =>
  gravity.find(each => results.includes(each)) ?? "unknown"
