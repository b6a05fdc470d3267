/** The HTTP API: the server and the list of everything it serves. */
import type { Context } from "./context.ts"
import { documentApi } from "./http/document.ts"
import { healthRoutes } from "./http/health.ts"
import { openServer, type Server } from "./http/server.ts"
import { identityRoutes } from "./identity/routes.ts"
import type { TokenIssuer } from "./identity/tokens.ts"
import { payoutRoutes } from "./payouts/routes.ts"
import { paywallConsoleRoutes } from "./paywalls/console-routes.ts"
import { paywallRoutes } from "./paywalls/routes.ts"
import { splitRoutes } from "./splits/routes.ts"

/** The API, ready to listen. */
export function openApp(ctx: Context, tokens: TokenIssuer): Server {
  const app = openServer(ctx, tokens)
  documentApi(app, ctx.settings)
  // As a plugin: routes must come after the CORS plugin, or its hook does not see them.
  app.register(async routes => {
    healthRoutes(routes, ctx)
    identityRoutes(routes, ctx)
    paywallConsoleRoutes(routes, ctx)
    paywallRoutes(routes, ctx)
    splitRoutes(routes, ctx)
    payoutRoutes(routes, ctx)
  })
  return app
}
