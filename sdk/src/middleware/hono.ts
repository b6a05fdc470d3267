/** Middleware for Hono 4: `app.get("/weather", charge({ price: "0.05", payTo }), handler)`. */
import { type Gate, isAnswer, notePayer } from "./gate.ts"
import { sellers } from "./rules.ts"
import { askedOf, finishWith, responseOf } from "./web.ts"

export type { ChargeOptions } from "./charge.ts"
export { payerOf } from "./gate.ts"
export type { PaywallOptions } from "./paywall.ts"
export { memoryStore, type Store } from "./retry-token.ts"

/** The parts of Hono's context that are used. */
export interface HonoContext {
  req: { raw: Request }
  res: Response
}

/** A middleware of Hono. `ready` rejects with the service's fault; until it resolves, priced calls are refused. */
export interface Middleware {
  // biome-ignore lint/suspicious/noExplicitAny: Hono's context has three parameters, which differ from app to app.
  (context: any, next: () => Promise<void>): Promise<Response | undefined>
  ready(): Promise<void>
}

const adapt = (gate: Gate): Middleware => {
  const middleware = async (context: HonoContext, next: () => Promise<void>): Promise<Response | undefined> => {
    const result = await gate.admit(askedOf(context.req.raw, context))
    if (isAnswer(result)) return responseOf(result)
    notePayer(context.req.raw, result.payer)
    await next()
    const finished = await finishWith(result, context.res)
    // Hono would add the headers of the answer that is replaced.
    context.res = undefined as never
    context.res = finished
    return undefined
  }
  return Object.assign(middleware, { ready: gate.ready })
}

/**
 * `charge({ price, payTo })` sells a route, and `charge.mcp(prices, { payTo })` the tools of an MCP server. `paywall({
 * id })` admits requests with an access token of a paywall, or with a payment for it.
 */
export const { charge, paywall } = sellers<HonoContext, Middleware>(adapt)
