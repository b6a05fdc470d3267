// Computes the address of a deposit without asking a chain, by the same rules as DepositFactory.addressOf. CREATE2 is
// EIP-1014, the code of a clone is ERC-1167, and its immutable arguments follow that code as OpenZeppelin's
// Clones.cloneDeterministicWithImmutableArgs places them.

import { concat, encodePacked, getContractAddress, type Hex } from "viem"
import type { Address } from "../chain/hex.ts"

/**
 * The address of the code that every deposit of a factory delegates to, in lower case. The factory's constructor
 * deploys it, with nonce 1.
 *
 * @example depositImplementation("0x5fbdb2315678afecb367f032d93f642f64180aa3") //
 * "0xa16e02e87b7454126e5e10d957a927a7f5b5d2be"
 */
export function depositImplementation(factory: Hex): Address {
  return getContractAddress({ from: factory, nonce: 1n }).toLowerCase() as Address
}

/**
 * The address of a deposit in lower case, the same before and after its deployment. `openAfter` is in Unix seconds and
 * throws outside uint64; `salt` is 32 bytes.
 *
 * @example const factory = "0x5fbdb2315678afecb367f032d93f642f64180aa3" depositAddress({
 *   factory,
 *   implementation: depositImplementation(factory),
 *   salt: "0x0000000000000000000000000000000000000000000000000000000000000001",
 *   owner: "0x70997970c51812dc3a010c7d01b50e0d17dc79c8",
 *   openAfter: 1893456000n, }) // "0xd9921527173dfe153452344486286c4d6c90af55"
 */
export function depositAddress(deposit: {
  factory: Hex
  implementation: Hex
  salt: Hex
  owner: Hex
  openAfter: bigint
}): Address {
  const { factory, implementation, salt, owner, openAfter } = deposit
  const terms = encodePacked(["address", "uint64"], [owner, openAfter])
  // 0x0049 is the length of the deployed code: 45 bytes of clone and 28 bytes of terms.
  const bytecode = concat([
    "0x6100493d81600a3d39f3363d3d373d3d3d363d73",
    implementation,
    "0x5af43d82803e903d91602b57fd5bf3",
    terms,
  ])
  return getContractAddress({ opcode: "CREATE2", from: factory, salt, bytecode }).toLowerCase() as Address
}
