/** The HTTP API: the server and the list of everything it serves. */
import type { FastifyReply } from "fastify"
import { auditRoutes } from "./audit/routes.ts"
import { bookRoutes } from "./books/routes.ts"
import { transactionRoutes } from "./books/transaction-routes.ts"
import { catalogRoutes } from "./checkouts/catalog-routes.ts"
import { payRoutes } from "./checkouts/pay-routes.ts"
import { checkoutRoutes } from "./checkouts/routes.ts"
import { type Context, wallTime } from "./context.ts"
import { CLOCK_WRONG } from "./db/clock.ts"
import { foreignTokenRoutes } from "./deposits/foreign-token-routes.ts"
import { depositRoutes } from "./deposits/routes.ts"
import { termsRoute } from "./deposits/terms-route.ts"
import { ApiError } from "./errors.ts"
import { refundRoutes } from "./escrow/refund-routes.ts"
import { escrowRoutes } from "./escrow/routes.ts"
import { healthRoutes } from "./http/health.ts"
import { documentApi } from "./http/openapi.ts"
import { openServer, type Server } from "./http/server.ts"
import { apiKeyRoutes } from "./identity/api-key-routes.ts"
import { authRoutes } from "./identity/auth-routes.ts"
import { openIdentities } from "./identity/identities.ts"
import type { TokenIssuer } from "./identity/tokens.ts"
import { readAssets } from "./pages/assets.ts"
import { pageRoutes } from "./pages/routes.ts"
import { browserErrors } from "./pages/send-page.ts"
import { payoutRoutes } from "./payouts/routes.ts"
import { accessRoutes } from "./paywalls/access-routes.ts"
import { paywallConsoleRoutes } from "./paywalls/console-routes.ts"
import { paywallRoutes } from "./paywalls/routes.ts"
import { bundleConsoleRoutes } from "./proxy/console-routes.ts"
import { proxyRoutes } from "./proxy/routes.ts"
import { identityRoutes } from "./settings/routes.ts"
import { exceptionRoutes } from "./settlement/exception-routes.ts"
import { returnAddressRoutes } from "./settlement/return-address-routes.ts"
import type { SellingContext } from "./settlement/sellable.ts"
import { splitRoutes } from "./splits/routes.ts"
import { subscriptionRoutes } from "./subscriptions/routes.ts"
import { subscriberRoutes } from "./subscriptions/subscriber-routes.ts"
import { alarmsNow } from "./troubles.ts"
import { deliveryRoutes } from "./webhooks/delivery-routes.ts"
import { webhookDocument } from "./webhooks/events.ts"
import { webhookRoutes } from "./webhooks/routes.ts"
import { openSender, type Sender } from "./webhooks/send.ts"
import { callPayments } from "./x402/call-payments.ts"
import { facilitatorRoutes } from "./x402/facilitator-routes.ts"
import { agentRoutes } from "./x402/routes.ts"

/**
 * Opens the API, ready to listen; `sender` tries the URLs of webhooks. Once `draining` is aborted, it asks its callers
 * to reconnect, so that a load balancer sends them to another process. `standing` returns the alarms of this process's
 * own checks.
 */
export function openApp(
  ctx: SellingContext,
  tokens: TokenIssuer,
  sender: Sender = openSender(ctx.settings.webhooks, { now: () => wallTime(ctx) }),
  draining: AbortSignal = ctx.signal,
  standing: () => string[] = () => [],
): Server {
  const assets = readAssets()
  const app = openServer(ctx, openIdentities(ctx, tokens), undefined, browserErrors(assets))
  // When its request comes for a stream of events, which Fastify does not send, and for all else when it is sent: long-polls
  // and payments wait, and their connections would otherwise be kept until the stop breaks them.
  app.addHook("onRequest", async (_request, reply) => closeWhile(draining, reply))
  app.addHook("onSend", async (_request, reply) => closeWhile(draining, reply))
  app.addHook("onRequest", async request => refuseBesideTheClock(ctx, request.url))
  documentApi(app, ctx.settings, webhookDocument)
  // As a plugin: routes must come after the CORS plugin, or its hook does not see them.
  app.register(async routes => {
    const alarms = async () => [...(await alarmsNow(ctx, standing())), ...(tokens.troubles?.() ?? [])]
    healthRoutes(routes, ctx, alarms, draining)
    authRoutes(routes, ctx)
    identityRoutes(routes, ctx)
    apiKeyRoutes(routes, ctx)
    paywallConsoleRoutes(routes, ctx)
    paywallRoutes(routes, ctx)
    checkoutRoutes(routes, ctx)
    payRoutes(routes, ctx)
    catalogRoutes(routes, ctx)
    subscriptionRoutes(routes, ctx)
    transactionRoutes(routes, ctx)
    exceptionRoutes(routes, ctx)
    refundRoutes(routes, ctx)
    escrowRoutes(routes, ctx)
    returnAddressRoutes(routes, ctx)
    accessRoutes(routes, ctx)
    webhookRoutes(routes, ctx, sender)
    deliveryRoutes(routes, ctx)
    splitRoutes(routes, ctx)
    payoutRoutes(routes, ctx)
    bookRoutes(routes, ctx)
    depositRoutes(routes, ctx)
    termsRoute(routes, ctx)
    foreignTokenRoutes(routes, ctx)
    bundleConsoleRoutes(routes, ctx)
    proxyRoutes(routes, ctx, callPayments)
    agentRoutes(routes, ctx)
    facilitatorRoutes(routes, ctx)
    subscriberRoutes(routes, ctx)
    auditRoutes(routes, ctx)
    pageRoutes(routes, ctx, assets)
  })
  app.addHook("onClose", () => sender.close())
  return app
}

/** What comes anyway: a load balancer takes the process away only after it asked `/readyz` again. */
function refuseBesideTheClock({ clock }: Context, url: string): void {
  if (/^\/(healthz|readyz|metrics)\b/.test(url) || !clock?.isWrong()) return
  throw new ApiError("NOT_READY", undefined, `Not ready: ${CLOCK_WRONG}.`)
}

function closeWhile(draining: AbortSignal, reply: FastifyReply): void {
  if (draining.aborted) reply.header("connection", "close")
}
