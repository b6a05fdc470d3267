/** Everything that is for sale: the kinds that settlement settles, in the order in which they take turns in a round. */
import type { Sellable } from "./ledger/settlement/sellable.ts"
import { sessionSales } from "./products/checkouts/sell-session.ts"
import { accessSales } from "./products/paywalls/sell-access.ts"
import { bundleSales } from "./products/proxy/sell-bundle.ts"
import { settledAmounts } from "./products/x402/settle-again.ts"

/** Passed on as `Context.sells`. */
export const sales: readonly Sellable[] = [accessSales, sessionSales, bundleSales(settledAmounts)]
