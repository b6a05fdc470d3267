/** Deploys and recognizes our refund collector: it has the same address on every network. Pure. */
import { encodeDeployData, type Hex, pad } from "viem"
import { refundCollectorAbi, refundCollectorBytecode, refundCollectorRuntime } from "./abi.ts"
import { create2Deployment } from "./create2.ts"
import type { Address } from "./hex.ts"
import { immutablesOf } from "./immutables.ts"

/**
 * Returns the transaction that deploys the collector for only this escrow and operator, and its future lower-case
 * address. The sender has no influence on the collector.
 */
export const refundCollectorDeployment = ({ escrow, operator }: { escrow: Hex; operator: Hex }) =>
  create2Deployment(
    encodeDeployData({ abi: refundCollectorAbi, bytecode: refundCollectorBytecode, args: [escrow, operator] }),
  )

/** Whether deployed code is this version's refund collector, with this escrow and, if one is given, this operator. */
export function isRefundCollector(code: unknown, escrow: Address, operator: Address | undefined): boolean {
  const words = immutablesOf(String(code).toLowerCase(), refundCollectorRuntime)
  return words?.[0] === pad(escrow) && (operator === undefined || words[1] === pad(operator))
}
