/** `/api/p/{slug}/{path}`: the APIs that merchants sell, each with its own methods, bodies and answers. */
import type { Context } from "../../platform/context.ts"
import type { Server } from "../../platform/http/server.ts"
import { openSlots, STREAM_BYTES } from "./call-slots.ts"
import { openForwarder } from "./forward.ts"
import { bundleFinder } from "./load-bundle.ts"
import { methods } from "./match-route.ts"
import type { Payments } from "./payments.ts"
import { serveCall } from "./serve-call.ts"

/** `payments` settles priced calls. Without it, these calls get the answer `PAYMENTS_PAUSED`. */
export function proxyRoutes(app: Server, ctx: Context, payments?: Payments): void {
  const forwarder = openForwarder(ctx.settings)
  const parts = { find: bundleFinder(), forwarder, places: openSlots(), payments }
  app.addHook("onClose", () => forwarder.close())
  // Bodies of any type are read as raw bytes here, whereas all other routes read only JSON.
  app.register(async calls => {
    calls.removeAllContentTypeParsers()
    calls.addContentTypeParser("*", { parseAs: "buffer" }, async (_request: unknown, body: Buffer) => body)
    calls.route({
      method: [...methods, "HEAD"],
      url: "/api/p/:slug/*",
      exposeHeadRoute: false,
      // Left out of the OpenAPI document, because the origins define the answers. docs/developers/x402-proxy.md
      // describes this route.
      schema: { hide: true },
      config: { streamBytes: STREAM_BYTES },
      handler: (request, reply) => serveCall(ctx, parts, request, reply),
    })
  })
}
