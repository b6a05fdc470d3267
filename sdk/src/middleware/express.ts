/** Middleware for Express 4 and 5: `app.get("/weather", charge({ price: "0.05", payTo }), handler)`. */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Gate } from "./gate.ts"
import { askedOf, guard } from "./node.ts"
import { sellers } from "./rules.ts"

export type { ChargeOptions } from "./charge.ts"
export { payerOf } from "./gate.ts"
export type { PaywallOptions } from "./paywall.ts"
export { memoryStore, type Store } from "./retry-token.ts"

/** The parts of Express's request that are used. */
export interface ExpressRequest extends IncomingMessage {
  originalUrl: string
  protocol: string
  body?: unknown
}

/** A middleware of Express. `ready` rejects with the service's fault; until it resolves, priced calls are refused. */
export interface Middleware {
  (request: never, response: ServerResponse, next: (error?: unknown) => void): void
  ready(): Promise<void>
}

const adapt = (gate: Gate): Middleware => {
  const middleware = (request: ExpressRequest, response: ServerResponse, next: (error?: unknown) => void) => {
    const url = `${request.protocol}://${request.headers.host ?? "localhost"}${request.originalUrl}`
    guard(gate, askedOf(request, request, url, request.body), response, next).catch(next)
  }
  return Object.assign(middleware, { ready: gate.ready })
}

/**
 * `charge({ price, payTo })` sells a route, and `charge.mcp(prices, { payTo })` the tools of an MCP server (after
 * `express.json()`). `paywall({ id })` admits requests with an access token of a paywall, or with a payment for it.
 */
export const { charge, paywall } = sellers<ExpressRequest, Middleware>(adapt)
