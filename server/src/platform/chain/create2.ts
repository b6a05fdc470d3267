/**
 * Deploys through the deployer that has the same address on every network, so an init code has one address everywhere.
 * Pure.
 */
import { concat, getContractAddress, type Hex, zeroHash } from "viem"
import type { Address } from "./hex.ts"

/** The canonical CREATE2 deployer: it takes 32 bytes of salt and the init code as calldata. */
const CREATE2_DEPLOYER = "0x4e59b44847b379578588920ca78fbf26c0b4956c" as Address

/**
 * Returns the transaction that deploys this init code with salt zero, and the lower-case address that the contract will
 * have. The transaction reverts if it is sent again. The sender has no influence on the contract.
 */
export function create2Deployment(bytecode: Hex): { to: Address; data: Hex; address: Address } {
  const address = getContractAddress({ opcode: "CREATE2", from: CREATE2_DEPLOYER, salt: zeroHash, bytecode })
  return { to: CREATE2_DEPLOYER, data: concat([zeroHash, bytecode]), address: address.toLowerCase() as Address }
}
