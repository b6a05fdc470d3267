/**
 * The known deployments of the escrow, `AuthCaptureEscrow` of base/commerce-payments, which has the same address on
 * every network. The setting `ESCROW_<NETWORK>` chooses one. Code finds it at `network.escrow`, which is undefined if
 * there is none. Pure.
 */
import { concat, getContractAddress, padHex } from "viem"
import type { Address } from "./hex.ts"

/**
 * The versions of the contract's `charge` and `capture`: v1.1 takes the fee as an amount, v1.0 in hundredths of a
 * percent.
 */
export type EscrowVersion = "v1.1" | "v1.0"

/** An escrow and the contracts that pull tokens for it, on one network. */
export interface EscrowDeployment {
  address: Address
  version: EscrowVersion
  /**
   * Pulls payments with the payer's `ReceiveWithAuthorization` (EIP-3009), which names this contract as the recipient.
   */
  collector: Address
  /**
   * Our own contract, which pulls refunds from the merchant's allowance. If the field is undefined, the contract is not
   * deployed, and refunds are impossible.
   */
  refundCollector: Address | undefined
}

/** The fields that are the same on every network. */
interface KnownEscrow extends Omit<EscrowDeployment, "refundCollector"> {
  /** Pulls refunds from the operator's wallet. Never used: merchants pay their own refunds. */
  operatorRefundCollector: Address
}

/** The deployments that this version supports; the first is the default on Base and Base Sepolia. */
export const knownEscrows: readonly [KnownEscrow, ...KnownEscrow[]] = [
  // The v1.1.0 that the contracts' own README lists, audited in July 2026. Clients of x402 (2.27) accept only this one
  // and v1.0.
  {
    version: "v1.1",
    address: "0xf96815976523e00e65be8f34ca5e64b4f41eb19c" as Address,
    collector: "0x8612dfdc421f80336cd14e8ef9cb1e765db5ab88" as Address,
    operatorRefundCollector: "0x7a03443724d14798c4ab4622f1daaca761fea486" as Address,
  },
  // An earlier deployment with the same interface, named in earlier drafts of x402's scheme.
  {
    version: "v1.1",
    address: "0x13ac3b34322d12fe27d5e192d0c2b2266d4f29cb" as Address,
    collector: "0xea902b37036bcb4944577ec2101abdedf56ebd28" as Address,
    operatorRefundCollector: "0x6a1addeeb4bd9c5811a613e20c172b6ce61a4aab" as Address,
  },
  {
    version: "v1.0",
    address: "0xbdea0d1bcc5966192b070fdf62ab4ef5b4420cff" as Address,
    collector: "0x0e3df9510de65469c4518d7843919c0b8c7a7757" as Address,
    operatorRefundCollector: "0x934907bffd0901b6a21e398b9c53a4a38f02fa5d" as Address,
  },
]

/**
 * Returns the deployment at this address, with the refund collector of the network's settings; undefined if none is
 * known there.
 */
export function escrowAt(address: Address, refundCollector: Address | undefined): EscrowDeployment | undefined {
  const known = knownEscrows.find(each => each.address === address)
  return known && { address, version: known.version, collector: known.collector, refundCollector }
}

/**
 * Returns the address that holds the tokens of an operator's payments, in lower case. The address belongs to a clone of
 * the contract that the escrow creates first, with the operator's address as its salt. Pure; `getTokenStore` returns
 * the same.
 */
export function tokenStoreOf(escrow: Address, operator: Address): Address {
  const implementation = getContractAddress({ from: escrow, nonce: 1n })
  const bytecode = concat([
    "0x3d602d80600a3d3981f3363d3d373d3d3d363d73",
    implementation,
    "0x5af43d82803e903d91602b57fd5bf3",
  ])
  const salt = padHex(operator, { dir: "right", size: 32 })
  return getContractAddress({ opcode: "CREATE2", from: escrow, salt, bytecode }).toLowerCase() as Address
}
