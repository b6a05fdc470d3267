/**
 * Classifies an endpoint's answer to a broadcast. Pure. The answer is a hint, never evidence: the transaction may be
 * mined no matter what the answer says, and only the chain decides. So no answer ever gives a payout another nonce.
 */
import type { RpcResult } from "../../platform/chain/rpc.ts"
import type { SendResult } from "../../platform/db/schema.ts"

/**
 * The first match decides. The patterns cover the errors of geth, reth, op-geth, Nethermind, Erigon, Besu and anvil.
 */
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
 * Classifies an endpoint's answer to a broadcast. `sent`: the node has the transaction. `look`: another transaction
 * with this nonce is known or mined. `wait`: the node may accept the transaction later. `bump`: the transaction's fee
 * is too low. `alarm`: the transaction can't be mined unchanged, and a person must act. `unknown`: assume that the
 * transaction was sent.
 */
export function classifyAnswer(result: RpcResult | undefined): SendResult {
  if (!result) return "unknown"
  if (result.ok) return "sent"
  return meanings.find(([, pattern]) => pattern.test(result.error))?.[0] ?? "unknown"
}

const gravity: SendResult[] = ["sent", "look", "alarm", "bump", "wait", "unknown"]

/** Combines the results of several endpoints. One `sent` outweighs all others. */
export const summaryOf = (results: readonly SendResult[]): SendResult =>
  gravity.find(each => results.includes(each)) ?? "unknown"
