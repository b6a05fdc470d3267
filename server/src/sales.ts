/** Everything that is for sale: the kinds that settlement settles, in the order of their turn in a round. */
import { sessionSales } from "./checkouts/sell-session.ts"
import { accessSales } from "./paywalls/sell-access.ts"
import { bundleSales } from "./proxy/sell-bundle.ts"
import type { Sellable } from "./settlement/sellable.ts"
import { settledAmounts } from "./x402/settled-hashes.ts"

/** Passed on as `Context.sells`. */
export const sales: readonly Sellable[] = [accessSales, sessionSales, bundleSales(settledAmounts)]
