/**
 * How the deposit factory is deployed: through a deployer that has the same address on every network. So the same
 * guardian and first operator give the same factory address everywhere, and money sent on another network can be
 * fetched there. Pure.
 */
import { encodeDeployData, type Hex } from "viem"
import { depositFactoryAbi, depositFactoryBytecode } from "../../platform/chain/abi.ts"
import { create2Deployment } from "../../platform/chain/create2.ts"

/**
 * The transaction that deploys the factory of this guardian and first operator, and the factory's address in lower
 * case. Sent a second time it reverts. Its sender has no influence on the factory.
 */
export const factoryDeployment = ({ guardian, operator }: { guardian: Hex; operator: Hex }) =>
  create2Deployment(
    encodeDeployData({ abi: depositFactoryAbi, bytecode: depositFactoryBytecode, args: [guardian, operator] }),
  )
