/**
 * Calls of `ReceiptAnchor`, which stores the roots of receipts and the keys that sign them. The contract has one
 * address on every network, and only its own code can be there (CREATE2).
 */
import { encodeFunctionData, type Hex, zeroHash } from "viem"
import { receiptAnchorAbi as abi, receiptAnchorBytecode } from "./abi.ts"
import { create2Deployment } from "./create2.ts"
import { ask, type Endpoint } from "./endpoints.ts"
import type { Address, Hash } from "./hex.ts"
import { marked } from "./release-call.ts"

/** The transaction that deploys it, and its address. */
export const anchorDeployment = create2Deployment(receiptAnchorBytecode)

/**
 * Whether the network has the contract, according to any endpoint. The contract's address is derived from its code, so
 * any code there is the contract. Ask this before a call, because a call to an address without code also succeeds.
 */
export async function hasReceiptAnchor(endpoints: readonly Endpoint[]): Promise<boolean> {
  const call = { method: "eth_getCode", params: [anchorDeployment.address, "finalized"] }
  const answers = await Promise.all(endpoints.map(endpoint => ask(endpoint, [call])))
  return answers.some(answer => answer?.[0]?.ok && /^0x[0-9a-f]{2}/i.test(`${answer[0].value}`))
}

/**
 * What a call writes: a key that is registered or revoked (by its thumbprint in base64url), or roots after the last one
 * that was written.
 */
export type Written = { key: string } | { revoked: string } | { prevRoot: Hash | null; roots: readonly Hash[] }

const thumbprintOf = (key: string): Hex => `0x${Buffer.from(key, "base64url").toString("hex")}`

/** Returns the calldata that writes for a factory, followed by the id of its payout (a UUID). */
export function anchorData(payoutId: string, factory: Address, written: Written): Hex {
  if ("key" in written)
    return marked(
      encodeFunctionData({ abi, functionName: "key", args: [factory, thumbprintOf(written.key)] }),
      payoutId,
    )
  if ("revoked" in written)
    return marked(
      encodeFunctionData({ abi, functionName: "revoke", args: [factory, thumbprintOf(written.revoked)] }),
      payoutId,
    )
  const args = [factory, written.prevRoot ?? zeroHash, written.roots] as const
  return marked(encodeFunctionData({ abi, functionName: "anchor", args }), payoutId)
}

/** A sufficient gas limit; unused gas costs nothing. */
export const anchorGas = (written: Written): bigint =>
  60_000n + 5_000n * BigInt("roots" in written ? written.roots.length : 1)
