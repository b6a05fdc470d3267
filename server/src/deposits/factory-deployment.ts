/**
 * How the deposit factory is deployed: through the deployer that has the same address on every network, so that one guardian
 * and first operator give one factory address everywhere, and money sent on another network can be fetched there. Pure.
 */
import { encodeDeployData, type Hex } from "viem"
import { depositFactoryAbi, depositFactoryBytecode } from "../chain/abi.ts"
import { create2Deployment } from "../chain/create2.ts"

/**
 * The transaction that deploys the factory of this guardian and first operator, and the address, in lower case, that it will
 * have. Sent a second time it reverts. Whoever sends it has no influence on the factory.
 */
export const factoryDeployment = ({ guardian, operator }: { guardian: Hex; operator: Hex }) =>
  create2Deployment(
    encodeDeployData({ abi: depositFactoryAbi, bytecode: depositFactoryBytecode, args: [guardian, operator] }),
  )
