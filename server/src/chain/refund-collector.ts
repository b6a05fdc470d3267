/** How our refund collector is deployed: one escrow and operator give one address on every network. Pure. */
import { encodeDeployData, type Hex } from "viem"
import { refundCollectorAbi, refundCollectorBytecode } from "./abi.ts"
import { create2Deployment } from "./create2.ts"

/**
 * The transaction that deploys the collector that serves this escrow and this operator alone, and the address, in lower case,
 * that it will have. Whoever sends it has no influence on the collector.
 */
export const refundCollectorDeployment = ({ escrow, operator }: { escrow: Hex; operator: Hex }) =>
  create2Deployment(
    encodeDeployData({ abi: refundCollectorAbi, bytecode: refundCollectorBytecode, args: [escrow, operator] }),
  )
