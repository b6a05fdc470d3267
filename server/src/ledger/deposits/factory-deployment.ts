/**
 * Deploys the deposit factory through a deployer that has the same address on every network. So the same guardian and
 * first operator lead to the same factory address everywhere, and money sent on the wrong network can be recovered
 * there. Pure.
 */
import { encodeDeployData, type Hex } from "viem"
import { depositFactoryAbi, depositFactoryBytecode } from "../../platform/chain/abi.ts"
import { create2Deployment } from "../../platform/chain/create2.ts"

/**
 * Returns the transaction that deploys the factory of this guardian and first operator, and the factory's address in
 * lower case. A second deployment reverts. The sender of the transaction does not affect the factory's address.
 */
export const factoryDeployment = ({ guardian, operator }: { guardian: Hex; operator: Hex }) =>
  create2Deployment(
    encodeDeployData({ abi: depositFactoryAbi, bytecode: depositFactoryBytecode, args: [guardian, operator] }),
  )
