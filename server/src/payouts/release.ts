/** The call that moves money out of a deposit, and the mark by which it is found again. Pure. */
import { concat, encodeFunctionData, type Hex } from "viem"
import { depositFactoryAbi } from "../chain/abi.ts"
import type { Address } from "../chain/hex.ts"

/** Of the intent's id at the end of the calldata. */
export const ID_BYTES = 16

/**
 * The calldata of a release out of a deposit, ended by the intent's id (a UUID): the contract passes over it, and whoever
 * has lost the database can read from the chain what was paid.
 */
export function releaseData(
  intentId: string,
  deposit: { salt: Hex; owner: Address; open_after_s: bigint },
  { token, recipient, amount }: { token: Address; recipient: Address; amount: bigint },
): Hex {
  const call = encodeFunctionData({
    abi: depositFactoryAbi,
    functionName: "release",
    args: [deposit.salt, deposit.owner, deposit.open_after_s, token, recipient, amount],
  })
  return concat([call, `0x${intentId.replaceAll("-", "")}`])
}

/** The id of the intent whose calldata this is. */
export function intentIdIn(data: Hex): string {
  const hex = data.slice(-2 * ID_BYTES)
  return [8, 12, 16, 20, 32].map((end, i, ends) => hex.slice(i === 0 ? 0 : ends[i - 1], end)).join("-")
}
