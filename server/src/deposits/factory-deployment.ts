/**
 * How the deposit factory is deployed: through the deployer that has the same address on every network, so that one guardian
 * and first operator give one factory address everywhere, and money sent on another network can be fetched there. Pure.
 */
import { concat, encodeDeployData, getContractAddress, type Hex, zeroHash } from "viem"
import { depositFactoryAbi, depositFactoryBytecode } from "../chain/abi.ts"
import type { Address } from "../chain/hex.ts"

/** The canonical CREATE2 deployer: it takes 32 bytes of salt and the init code as calldata. */
const CREATE2_DEPLOYER = "0x4e59b44847b379578588920ca78fbf26c0b4956c" as Address

/**
 * The transaction that deploys the factory of this guardian and first operator, and the address, in lower case, that it will
 * have. Sent a second time it reverts. Whoever sends it has no influence on the factory.
 */
export function factoryDeployment(args: { guardian: Hex; operator: Hex }): {
  to: Address
  data: Hex
  address: Address
} {
  const init = encodeDeployData({
    abi: depositFactoryAbi,
    bytecode: depositFactoryBytecode,
    args: [args.guardian, args.operator],
  })
  const address = getContractAddress({ opcode: "CREATE2", from: CREATE2_DEPLOYER, salt: zeroHash, bytecode: init })
  return { to: CREATE2_DEPLOYER, data: concat([zeroHash, init]), address: address.toLowerCase() as Address }
}
