/**
 * The transaction that deploys the deposit factory: through the deployer that has the same address on every network, so
 * that one operator gives one factory address everywhere, and money sent on another network can be fetched there. Pure.
 */
import { concat, encodeDeployData, getContractAddress, type Hex, zeroHash } from "viem"
import { depositFactoryAbi, depositFactoryBytecode } from "../chain/abi.ts"
import type { Address } from "../chain/hex.ts"

/** The canonical CREATE2 deployer: it takes 32 bytes of salt and the init code as calldata. */
const CREATE2_DEPLOYER = "0x4e59b44847b379578588920ca78fbf26c0b4956c" as Address

/** The deployment of this operator's factory, and the address that it will have. Sent a second time it reverts. */
export function factoryDeployment({ operator }: { operator: Address }): { to: Address; data: Hex; address: Address } {
  const bytecode = encodeDeployData({ abi: depositFactoryAbi, bytecode: depositFactoryBytecode, args: [operator] })
  const address = getContractAddress({ opcode: "CREATE2", from: CREATE2_DEPLOYER, salt: zeroHash, bytecode })
  return { to: CREATE2_DEPLOYER, data: concat([zeroHash, bytecode]), address: address.toLowerCase() as Address }
}
