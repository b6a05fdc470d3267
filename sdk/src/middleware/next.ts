/** Wrappers for route handlers of Next.js 13 and newer: `export const GET = withCharge(handler, { price: "0.05", payTo })`. */
import type { ChargeOptions } from "./charge.ts"
import { afterThrow, type Gate, isAnswer, notePayer } from "./gate.ts"
import type { ToolPrices } from "./mcp.ts"
import type { PaywallOptions } from "./paywall.ts"
import { type McpOptions, sellers } from "./rules.ts"
import { askedOf, finishWith, responseOf } from "./web.ts"

export type { ChargeOptions } from "./charge.ts"
export { payerOf } from "./gate.ts"
export type { PaywallOptions } from "./paywall.ts"
export { memoryStore, type Store } from "./retry-token.ts"

/** A route handler of Next. */
export type Handler<R extends Request = Request, C = unknown> = (request: R, context: C) => Response | Promise<Response>

const NOT_HERE =
  "Next's middleware.ts (proxy.ts) runs before the route, and can't know whether its handler succeeded. Wrap the handler in route.ts instead."

const wrap =
  (gate: Gate) =>
  <R extends Request, C>(handler: Handler<R, C>) => {
    const wrapped = async (request: R, context: C): Promise<Response> => {
      if (typeof (context as { waitUntil?: unknown } | undefined)?.waitUntil === "function") throw new Error(NOT_HERE)
      const result = await gate.admit(askedOf(request))
      if (isAnswer(result)) return responseOf(result)
      notePayer(request, result.payer)
      let response: Response
      try {
        response = await handler(request, context)
      } catch (error) {
        if (!result.isSettled) throw error
        return responseOf(await afterThrow(result, error))
      }
      if (response.headers.has("x-middleware-next")) throw new Error(NOT_HERE)
      return await finishWith(result, response)
    }
    return Object.assign(wrapped, { ready: gate.ready })
  }

const { charge, paywall } = sellers<Request, ReturnType<typeof wrap>>(wrap)

/** Sells a route: the handler's answer is sent once its payment is settled. */
export const withCharge = <R extends Request, C>(handler: Handler<R, C>, options: ChargeOptions<Request>) =>
  charge(options)(handler)

/** Sells tools of an MCP server, each at its price. */
export const withMcpCharge = <R extends Request, C>(handler: Handler<R, C>, prices: ToolPrices, options: McpOptions) =>
  charge.mcp(prices, options)(handler)

/** Admits requests with an access token of a paywall, or with a payment for it. */
export const withPaywall = <R extends Request, C>(handler: Handler<R, C>, options: PaywallOptions) =>
  paywall(options)(handler)
