/** The currency that a request names: it can only be the settlement token of the network. Pure. */
import type { ErrorDetail } from "../errors.ts"
import type { NetworkInfo } from "./networks.ts"

/** What is wrong with the currency of a request; nothing where it names none. */
export function currencyFaults({ name, token }: NetworkInfo, currency: string | undefined): ErrorDetail[] {
  if (currency === undefined || currency === token.symbol) return []
  return [{ path: "currency", message: `must be ${token.symbol}, the settlement token on ${name}` }]
}
