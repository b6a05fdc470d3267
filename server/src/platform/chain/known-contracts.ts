/**
 * Addresses that nobody can own, the same on every network. A token that is sent to such an address is lost, or anyone
 * can take it.
 */
import { batchDeployment } from "./authorization-batch.ts"
import { knownEscrows } from "./escrow-deployments.ts"
import type { Address } from "./hex.ts"
import { MULTICALL3 } from "./multicall.ts"

const known: Record<string, string> = {
  [MULTICALL3]: "is Multicall3: anyone can take the tokens that it holds",
  [batchDeployment.address]: "is Sluice's batch contract for authorizations: anyone can take the tokens that it holds",
  "0x4e59b44847b379578588920ca78fbf26c0b4956c": "is a CREATE2 deployer",
  "0x000000000022d473030f116ddee9f6b43ac78ba3": "is Permit2, a contract that never pays out",
  "0x5ff137d4b0fdcd49dca30c7cf57e578a026d2789": "is the EntryPoint of account abstraction",
  "0x0000000071727de22e5e9d8baf0edac6f37da032": "is the EntryPoint of account abstraction",
  "0x4337084d9e255ff0702461cf8895ce9e3b5ff108": "is the EntryPoint of account abstraction",
  "0x000000000000000000000000000000000000dead": "is a burn address",
  ...Object.fromEntries(
    knownEscrows
      .flatMap(({ address, collector, operatorRefundCollector }) => [address, collector, operatorRefundCollector])
      .map(address => [address, "is a contract of the escrow"]),
  ),
}

/** Precompiles have the first addresses: those from 0x01, and 0x0100 for P-256. No key has such an address. */
const LAST_RESERVED = 0xffffn
/** Contracts of the OP stack on its rollups. */
const PREDEPLOYS = `0x42${"0".repeat(34)}`

/** Why nobody can own an address, in words that complete "address …"; undefined for any other address. */
export function noOwnerOf(address: Address): string | undefined {
  if (BigInt(address) === 0n) return "can't be the zero address"
  if (BigInt(address) <= LAST_RESERVED) return "is a precompiled contract of the network: use a wallet"
  if (address.startsWith(PREDEPLOYS)) return "is a contract of the network: use a wallet"
  const words = known[address]
  return words && `${words}: use a wallet`
}
