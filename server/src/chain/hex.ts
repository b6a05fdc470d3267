/** Addresses and hashes as branded types, parsed once at the edge; inside the service they are always in lower case. */
import { getAddress } from "viem"

/** An EVM address in lower case. */
export type Address = `0x${string}` & { readonly __brand: "Address" }
/** A 32-byte hash in lower case. */
export type Hash = `0x${string}` & { readonly __brand: "Hash" }

export const ZERO_ADDRESS = `0x${"0".repeat(40)}` as Address

/**
 * The address in lower case from text in any case, or undefined when it is not an address or its mixed-case checksum
 * (EIP-55) is wrong.
 *
 * @example parseAddress("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913") // "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
 */
export function parseAddress(text: unknown): Address | undefined {
  if (typeof text !== "string" || !/^0x[0-9a-f]{40}$/i.test(text)) return undefined
  const digits = text.slice(2)
  const oneCase = digits === digits.toLowerCase() || digits === digits.toUpperCase()
  if (!oneCase && getAddress(text.toLowerCase()) !== text) return undefined
  return text.toLowerCase() as Address
}

/** The fault of a field that is not an address for {@link parseAddress}. */
export const NOT_AN_ADDRESS =
  "must be an address: 0x and 40 hexadecimal digits, with a valid checksum if its case is mixed"

/** The lower-case hash of a text in any case, or undefined when it is not 0x and 64 hexadecimal digits. */
export function parseHash(text: unknown): Hash | undefined {
  if (typeof text !== "string" || !/^0x[0-9a-f]{64}$/i.test(text)) return undefined
  return text.toLowerCase() as Hash
}

/** The EIP-55 form that every response uses. */
export const checksummed = (address: string): string => getAddress(address)
