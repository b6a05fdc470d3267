/** The server of a process without the API: its health and, with METRICS_TOKEN, its metrics. */
import type { Context } from "../context.ts"
import { nobodyKnown } from "./authenticate.ts"
import { healthRoutes, type Troubles } from "./health.ts"
import { openServer, type Server } from "./server.ts"

/** Opens the server, ready to listen. For `troublesNow` and `draining`, see {@link healthRoutes}. */
export function openHealthServer(
  ctx: Context,
  troublesNow: () => Promise<Troubles>,
  draining: AbortSignal = ctx.signal,
): Server {
  const app = openServer(ctx, nobodyKnown)
  app.register(async routes => healthRoutes(routes, ctx, troublesNow, draining))
  return app
}
