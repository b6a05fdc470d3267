/** The gates that each adapter offers, with the options that its users write. */
import { type ChargeOptions, chargeGate, type Price } from "./charge.ts"
import { type Gate, isGood } from "./gate.ts"
import { type ToolPrices, toolRules } from "./mcp.ts"
import { type PaywallOptions, paywallGate } from "./paywall.ts"

/** Options of `charge.mcp`, in addition to the prices. */
export type McpOptions = Omit<ChargeOptions<never>, "price" | "settle">

/** Creates `paywall` and `charge` from a function that turns a gate into a framework's middleware. */
export function sellers<Native, Middleware>(adapt: (gate: Gate) => Middleware) {
  const charge = (options: ChargeOptions<Native>): Middleware => {
    const { price } = options
    const priceOf = async (request: Native): Promise<Price> =>
      typeof price === "function" ? await price(request) : price
    return adapt(
      chargeGate(options as ChargeOptions<never>, {
        price: asked => priceOf(asked.native as Native),
        isServed: ({ status }) => isGood(status),
      }),
    )
  }
  /** Sells tools of an MCP server over HTTP, each at its price. */
  charge.mcp = (prices: ToolPrices, options: McpOptions): Middleware => {
    for (const price of Object.values(prices))
      if (!/^\d+(\.\d+)?$/.test(price)) throw new TypeError(`${price} is no price`)
    return adapt(chargeGate({ ...options, price: "0" }, toolRules(prices)))
  }
  const paywall = (options: PaywallOptions): Middleware => adapt(paywallGate(options))
  return { charge, paywall }
}
