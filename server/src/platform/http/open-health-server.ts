/** The server of a process without the API: its health and, with METRICS_TOKEN, its metrics. */
import type { Context } from "../context.ts"
import { nobodyKnown } from "./authenticate.ts"
import { healthRoutes } from "./health-routes.ts"
import { openServer, type Server } from "./server.ts"

/** Opens the server, ready to listen. For `alarmsNow` and `draining`, see {@link healthRoutes}. */
export function openHealthServer(
  ctx: Context,
  alarmsNow: () => Promise<string[]>,
  draining: AbortSignal = ctx.signal,
): Server {
  const app = openServer(ctx, nobodyKnown)
  app.register(async routes => healthRoutes(routes, ctx, alarmsNow, draining))
  return app
}
