/** Addresses in requests. */

import { invalid } from "../errors.ts"
import { type Address, NOT_AN_ADDRESS, parseAddress } from "./hex.ts"

/** The address that a field of a request holds, in lower case; a `VALIDATION_ERROR` when it is none. */
export function addressField(path: string, text: string): Address {
  const address = parseAddress(text)
  if (!address) throw invalid(path, NOT_AN_ADDRESS)
  return address
}
