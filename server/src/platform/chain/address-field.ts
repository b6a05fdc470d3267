/** Addresses in requests. */
import { invalid } from "../errors.ts"
import { type Address, NOT_AN_ADDRESS, parseAddress } from "./hex.ts"

/**
 * Returns the address that a field of a request holds, in lower case; throws `VALIDATION_ERROR` if it is not an
 * address.
 */
export function addressField(path: string, text: string): Address {
  const address = parseAddress(text)
  if (!address) throw invalid(path, NOT_AN_ADDRESS)
  return address
}
