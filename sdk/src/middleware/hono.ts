/** Middleware for Hono 4: `app.get("/weather", charge({ price: "0.05", payTo }), handler)`. */
import { type Gate, isAnswer, notePayer } from "./gate.ts"
import { sellers } from "./rules.ts"
import { askedOf, finishWith, responseOf } from "./web.ts"

export type { ChargeOptions } from "./charge.ts"
export { payerOf } from "./gate.ts"
export type { PaywallOptions } from "./paywall.ts"
export { memoryStore, type Store } from "./retry-token.ts"

/** What is read of Hono's context, and written to it. */
export interface HonoContext {
  req: { raw: Request }
  res: Response
}

/** A middleware of Hono. `ready` rejects with what is wrong with the service; until it resolves, every priced call is refused. */
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
 * `charge({ price, payTo })` sells a route, and `charge.mcp(prices, { payTo })` the tools of an MCP server. `paywall({ id })` lets pass
 * whoever holds an access token of a paywall, or pays for it.
 */
export const { charge, paywall } = sellers<HonoContext, Middleware>(adapt)
