/** The call that moves money out of a deposit, and the mark by which it can be found on the chain. Pure. */
import { concat, encodeFunctionData, type Hex } from "viem"
import { depositFactoryAbi } from "./abi.ts"
import type { Address } from "./hex.ts"

/** Bytes of the payout's id at the end of the calldata. */
const ID_BYTES = 16

/**
 * The gas limit of any release: the first one of a deposit uses 118,000, later ones 63,000, and tokens behind a proxy
 * some more. An unused limit costs nothing, and one simulation is a tenth of the work of an estimate.
 */
export const RELEASE_GAS = 250_000n

/**
 * The calldata of a release out of a deposit, followed by the payout's id (a UUID). The contract ignores the id, and
 * after a loss of the database the chain still shows what was paid.
 */
export function releaseData(
  payoutId: string,
  deposit: { salt: Hex; owner: Address; open_after_s: bigint },
  { token, recipient, amount }: { token: Address; recipient: Address; amount: bigint },
): Hex {
  const call = encodeFunctionData({
    abi: depositFactoryAbi,
    functionName: "release",
    args: [deposit.salt, deposit.owner, deposit.open_after_s, token, recipient, amount],
  })
  return marked(call, payoutId)
}

/** A call followed by the payout's id, as in every call of a payout. */
export const marked = (call: Hex, payoutId: string): Hex => concat([call, `0x${payoutId.replaceAll("-", "")}`])

/** The id of the payout that this calldata belongs to. */
export function payoutIdIn(data: Hex): string {
  const hex = data.slice(-2 * ID_BYTES)
  return [8, 12, 16, 20, 32].map((end, i, ends) => hex.slice(i === 0 ? 0 : ends[i - 1], end)).join("-")
}

/** The calldata without the id at its end. `0x` where the calldata is too short. */
export const withoutId = (data: Hex): Hex =>
  data.length > 2 + 2 * ID_BYTES ? (data.slice(0, -2 * ID_BYTES) as Hex) : "0x"
