/** Middleware for Fastify 4 and 5: `app.get("/weather", { preHandler: charge({ price: "0.05", payTo }) }, handler)`. */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Gate } from "./gate.ts"
import { askedOf, guard } from "./node.ts"
import { sellers } from "./rules.ts"

export type { ChargeOptions } from "./charge.ts"
export { payerOf } from "./gate.ts"
export type { PaywallOptions } from "./paywall.ts"
export { memoryStore, type Store } from "./retry-token.ts"

/** The parts of Fastify's request that are used. */
export interface FastifyRequest {
  raw: IncomingMessage
  protocol: string
  host?: string
  hostname?: string
  originalUrl?: string
  body?: unknown
}

/** A `preHandler` of Fastify. `ready` rejects with the service's fault; until it resolves, priced calls are refused. */
export interface Hook {
  // biome-ignore lint/suspicious/noExplicitAny: Fastify's types have nine parameters, which differ from app to app.
  (request: any, reply: { raw: ServerResponse; hijack(): unknown }, done: (error?: Error) => void): void
  ready(): Promise<void>
}

const adapt = (gate: Gate): Hook => {
  const hook = (request: FastifyRequest, reply: Parameters<Hook>[1], done: (error?: Error) => void) => {
    const host = request.host ?? request.hostname ?? "localhost"
    const url = `${request.protocol}://${host}${request.originalUrl ?? request.raw.url}`
    let isAdmitted = false
    const proceed = () => {
      isAdmitted = true
      done()
    }
    guard(gate, askedOf(request, request.raw, url, request.body), reply.raw, proceed)
      .then(() => isAdmitted || reply.hijack())
      .catch(done)
  }
  return Object.assign(hook, { ready: gate.ready })
}

/**
 * `charge({ price, payTo })` sells a route, and `charge.mcp(prices, { payTo })` the tools of an MCP server. `paywall({
 * id })` admits requests with an access token of a paywall, or with a payment for it.
 */
export const { charge, paywall } = sellers<FastifyRequest, Hook>(adapt)
