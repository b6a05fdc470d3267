/**
 * Computes everything about the terms of a deposit without a chain. A deposit's address commits to its terms, which say
 * who can ever get its money. The address follows DepositFactory: CREATE2 (EIP-1014) of a plain clone (ERC-1167). Pure.
 */
import { encodeAbiParameters, getContractAddress, type Hex, keccak256, numberToHex, zeroHash } from "viem"
import { memoize } from "../net/memoize.ts"
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

/** The digits of a value of this many bytes. */
function digits(value: Hex, bytes: number): string {
  if (value.length !== 2 + 2 * bytes || !/^0x[0-9a-f]+$/i.test(value))
    throw new Error(`${value} does not have ${bytes} bytes`)
  return value.slice(2)
}

const hashOf = (text: string): string => Buffer.from(keccak256(Buffer.from(text, "hex"), "bytes")).toString("hex")

/** The hash of the init code of a factory's deposits: all of them are the same clone. */
const cloneHashOf = memoize((factory: string) =>
  hashOf(
    `3d602d80600a3d3981f3363d3d373d3d3d363d73${digits(implementationOf(factory as Hex), 20)}5af43d82803e903d91602b57fd5bf3`,
  ),
)

/**
 * Returns the address of a deposit in lower case, the same before and after it is deployed. `salt` is 32 bytes; throws
 * if `openAfter` is outside uint64. The words are concatenated here, each padded to 32 bytes. A general encoder took
 * ten times as long, and took a fifth of the CPU time of a new checkout.
 */
export function addressOfTerms(factory: Hex, salt: Hex, terms: TermsArgument): Address {
  const made = hashOf(
    `ff${digits(factory, 20)}${depositSalt(salt, terms).slice(2)}${cloneHashOf(factory.toLowerCase())}`,
  )
  return `0x${made.slice(-40)}` as Address
}

/** Returns the hash of a deposit's salt and terms, from which its factory derives the address. */
export function depositSalt(salt: Hex, { owner, approver, payeesHash, openAfter }: TermsArgument): Hash {
  const words = [
    digits(salt, 32),
    digits(owner, 20),
    digits(approver, 20),
    digits(payeesHash, 32),
    digits(numberToHex(openAfter, { size: 8 }), 8),
  ]
  return `0x${hashOf(words.map(word => word.padStart(64, "0")).join(""))}` as Hash
}
