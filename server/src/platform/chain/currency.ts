/** Checks the currency of a request: only the settlement token of the network is allowed. Pure. */
import type { ErrorDetail } from "../errors.ts"
import type { NetworkInfo } from "./network-facts.ts"

/** Returns what is wrong with the currency of a request; empty if the request names none. */
export function currencyFaults({ name, token }: NetworkInfo, currency: string | undefined): ErrorDetail[] {
  if (currency === undefined || currency === token.symbol) return []
  return [{ path: "currency", message: `must be ${token.symbol}, the settlement token on ${name}` }]
}
