/**
 * The terms of a deposit, to which its address commits: who can ever get its money. Computes everything about them
 * without a chain, by the rules of DepositFactory: CREATE2 (EIP-1014) of a plain clone (ERC-1167). Pure.
 */
import { concat, encodeAbiParameters, getContractAddress, type Hex, keccak256, zeroHash } from "viem"
import type { Address, Hash } from "./hex.ts"

/** A recipient of a split; `percentE4` is in ten-thousandths of a percent. */
export interface Payee {
  address: Address
  percentE4: number
}

/** The terms as the contract's functions take them. */
export interface TermsArgument {
  /** The merchant's payout address. */
  owner: Address
  /** The account whose signature sends money back to payers; nobody if zero. */
  approver: Address
  /** The hash of the split's payees; zero without a split. */
  payeesHash: Hash
  /** Unix seconds after which anyone may send everything to the owner. */
  openAfter: bigint
}

const PAYEES = [{ type: "address[]" }, { type: "uint256[]" }] as const
const TERMS = [
  { type: "bytes32" },
  { type: "address" },
  { type: "address" },
  { type: "bytes32" },
  { type: "uint64" },
] as const

/** The payees as the contract's functions take them: their addresses, and their percentages × 10⁴. */
export const payeeLists = (payees: readonly Payee[]): [Address[], bigint[]] => [
  payees.map(({ address }) => address),
  payees.map(({ percentE4 }) => BigInt(percentE4)),
]

/** Returns the hash by which an address commits to its payees, whose order counts; zero without payees. */
export const payeesHash = (payees: readonly Payee[]): Hash =>
  payees.length === 0 ? (zeroHash as Hash) : (keccak256(encodeAbiParameters(PAYEES, payeeLists(payees))) as Hash)

/**
 * Returns the address of the code that every deposit of a factory delegates to; the factory's constructor deploys it,
 * with nonce 1.
 */
export const implementationOf = (factory: Hex): Address =>
  getContractAddress({ from: factory, nonce: 1n }).toLowerCase() as Address

/**
 * Returns the address of a deposit in lower case, the same before and after it is deployed. `salt` is 32 bytes; throws
 * if `openAfter` is outside uint64.
 */
export function addressOfTerms(factory: Hex, salt: Hex, terms: TermsArgument): Address {
  const { owner, approver, payeesHash, openAfter } = terms
  const saltOfTerms = keccak256(encodeAbiParameters(TERMS, [salt, owner, approver, payeesHash, openAfter]))
  const bytecode = concat([
    "0x3d602d80600a3d3981f3363d3d373d3d3d363d73",
    implementationOf(factory),
    "0x5af43d82803e903d91602b57fd5bf3",
  ])
  return getContractAddress({
    opcode: "CREATE2",
    from: factory,
    salt: saltOfTerms,
    bytecode,
  }).toLowerCase() as Address
}
