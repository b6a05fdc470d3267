/** The HTTP API: the server and the list of everything it serves. */
import type { FastifyReply, FastifyRequest } from "fastify"
import { auditRoutes } from "./account/audit/routes.ts"
import { deviceRoutes } from "./account/devices/routes.ts"
import { apiKeyRoutes } from "./account/identity/api-key-routes.ts"
import { authRoutes } from "./account/identity/auth-routes.ts"
import { keyLimitRoutes } from "./account/identity/key-limit-routes.ts"
import { openIdentities } from "./account/identity/open-identities.ts"
import type { TokenIssuer } from "./account/identity/tokens.ts"
import { listenerRoutes } from "./account/listeners/routes.ts"
import { notificationRoutes } from "./account/notifications/routes.ts"
import { logRequests } from "./account/requests/log-requests.ts"
import { requestRoutes } from "./account/requests/routes.ts"
import { openSessions } from "./account/sessions/open-sessions.ts"
import { sessionRoutes } from "./account/sessions/routes.ts"
import { personRoutes } from "./account/team/person-routes.ts"
import { teamRoutes } from "./account/team/routes.ts"
import { deliveryRoutes } from "./account/webhooks/delivery-routes.ts"
import { webhookDocument } from "./account/webhooks/event-document.ts"
import { webhookRoutes } from "./account/webhooks/routes.ts"
import { openSender, type Sender } from "./account/webhooks/send.ts"
import { reportRoutes } from "./ledger/books/report-routes.ts"
import { bookRoutes } from "./ledger/books/routes.ts"
import { transactionRoutes } from "./ledger/books/transaction-routes.ts"
import { foreignTokenRoutes } from "./ledger/deposits/foreign-token-routes.ts"
import { depositRoutes } from "./ledger/deposits/routes.ts"
import { termsRoute } from "./ledger/deposits/terms-route.ts"
import { payoutRoutes } from "./ledger/payouts/routes.ts"
import { receiptRoutes } from "./ledger/receipts/routes.ts"
import { exceptionRoutes } from "./ledger/settlement/exception-routes.ts"
import { returnAddressRoutes } from "./ledger/settlement/return-address-routes.ts"
import type { SellingContext } from "./ledger/settlement/sellable.ts"
import { splitRoutes } from "./ledger/splits/routes.ts"
import { alarmsNow } from "./operations/doctor/list-alarms.ts"
import type { Settings } from "./platform/config/settings.ts"
import { type Context, wallTime } from "./platform/context.ts"
import { ApiError } from "./platform/errors.ts"
import { healthRoutes } from "./platform/http/health-routes.ts"
import { documentApi } from "./platform/http/openapi.ts"
import { pathOf } from "./platform/http/path.ts"
import { openServer, type Server } from "./platform/http/server.ts"
import { changeRoutes } from "./products/changes/routes.ts"
import { catalogRoutes } from "./products/checkouts/catalog-routes.ts"
import { payRoutes } from "./products/checkouts/pay-routes.ts"
import { checkoutRoutes } from "./products/checkouts/routes.ts"
import { consoleRoutes } from "./products/console/routes.ts"
import { erasureRoutes } from "./products/erasure/routes.ts"
import { refundRoutes } from "./products/escrow/refund-routes.ts"
import { escrowRoutes } from "./products/escrow/routes.ts"
import { healthInsightRoutes } from "./products/insight/health-routes.ts"
import { overviewRoutes } from "./products/insight/overview-routes.ts"
import { payerRoutes } from "./products/insight/payer-routes.ts"
import { payoutInsightRoutes } from "./products/insight/payout-routes.ts"
import { searchRoutes } from "./products/insight/search-routes.ts"
import { timelineRoutes } from "./products/insight/timeline-routes.ts"
import { mcpRoutes } from "./products/mcp/routes.ts"
import { readAssets } from "./products/pages/assets.ts"
import { pageRoutes } from "./products/pages/routes.ts"
import { browserErrors } from "./products/pages/send-page.ts"
import { accessRoutes } from "./products/paywalls/access-routes.ts"
import { paywallConsoleRoutes } from "./products/paywalls/console-routes.ts"
import { paywallRoutes } from "./products/paywalls/routes.ts"
import { bundleConsoleRoutes } from "./products/proxy/console-routes.ts"
import { proxyRoutes } from "./products/proxy/routes.ts"
import { identityRoutes } from "./products/settings/routes.ts"
import { subscriptionRoutes } from "./products/subscriptions/routes.ts"
import { subscriberRoutes } from "./products/subscriptions/subscriber-routes.ts"
import { facilitatorRoutes } from "./products/x402/facilitator-routes.ts"
import { agentRoutes } from "./products/x402/routes.ts"
import { callPayments } from "./products/x402/take-call-payment.ts"

/**
 * Opens the API, ready to listen; `sender` tests the URLs of webhooks. Once `draining` is aborted, the API asks its
 * callers to reconnect, so that a load balancer sends them to another process. `standing` returns the alarms of this
 * process's own checks.
 */
export function openApp(
  ctx: SellingContext,
  tokens: TokenIssuer,
  sender: Sender = openSender(ctx.settings.webhooks, { now: () => wallTime(ctx) }),
  draining: AbortSignal = ctx.signal,
  standing: () => string[] = () => [],
): Server {
  const assets = readAssets()
  const app = openServer(ctx, openIdentities(ctx, tokens, openSessions(ctx)), undefined, browserErrors(assets))
  addHooks(app, ctx, draining)
  documentApi(app, ctx.settings, webhookDocument)
  // Routes are added in a plugin, because the CORS plugin's hook sees only routes that are added after it.
  app.register(async routes => {
    const alarms = async () => [...(await alarmsNow(ctx, standing())), ...(tokens.troubles?.() ?? [])]
    healthRoutes(routes, ctx, alarms, draining)
    authRoutes(routes, ctx)
    sessionRoutes(routes, ctx)
    deviceRoutes(routes, ctx)
    identityRoutes(routes, ctx)
    apiKeyRoutes(routes, ctx)
    keyLimitRoutes(routes, ctx)
    personRoutes(routes, ctx)
    teamRoutes(routes, ctx)
    notificationRoutes(routes, ctx)
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
    listenerRoutes(routes, ctx)
    splitRoutes(routes, ctx)
    payoutRoutes(routes, ctx)
    bookRoutes(routes, ctx)
    reportRoutes(routes, ctx)
    receiptRoutes(routes, ctx)
    erasureRoutes(routes, ctx)
    overviewRoutes(routes, ctx)
    depositRoutes(routes, ctx)
    termsRoute(routes, ctx)
    foreignTokenRoutes(routes, ctx)
    bundleConsoleRoutes(routes, ctx)
    proxyRoutes(routes, ctx, callPayments)
    agentRoutes(routes, ctx)
    facilitatorRoutes(routes, ctx)
    subscriberRoutes(routes, ctx)
    auditRoutes(routes, ctx)
    requestRoutes(routes, ctx)
    timelineRoutes(routes, ctx)
    payoutInsightRoutes(routes, ctx)
    searchRoutes(routes, ctx)
    payerRoutes(routes, ctx)
    healthInsightRoutes(routes, ctx)
    changeRoutes(routes, ctx)
    mcpRoutes(routes, ctx)
    pageRoutes(routes, ctx, assets)
    consoleRoutes(routes, ctx, assets)
  })
  app.addHook("onClose", () => sender.close())
  return app
}

function addHooks(app: Server, ctx: Context, draining: AbortSignal): void {
  // The first hook is for event streams, which Fastify does not send itself. The second hook is for all other answers.
  // Long-polls and payments wait, and their connections would otherwise be kept until the stop breaks them.
  app.addHook("onRequest", async (_request, reply) => closeWhile(draining, reply))
  app.addHook("onSend", async (_request, reply) => closeWhile(draining, reply))
  app.addHook("onRequest", async request => refuseBesideTheClock(ctx, request.url))
  const consoleHost = ownHostOfConsole(ctx.settings)
  if (consoleHost !== undefined) app.addHook("onRequest", async request => refuseBesideTheConsole(consoleHost, request))
  logRequests(app, ctx)
}

/**
 * Refuses requests while the clock is wrong. Some requests still arrive, because a load balancer takes the process out
 * of rotation only after its next `/readyz` probe.
 */
function refuseBesideTheClock({ clock }: Context, url: string): void {
  const trouble = /^\/(healthz|readyz|metrics)\b/.test(url) ? undefined : clock?.trouble()
  if (trouble !== undefined) throw new ApiError("NOT_READY", undefined, `Not ready: ${trouble}.`)
}

/** The paths served at the console's own host. Merchants and payers contribute content to all other paths. */
const OF_CONSOLE = /^\/(console|api\/console|api\/auth|assets)(\/|$)|^\/(healthz|readyz|metrics)$/

/** If the console has its own host, its origin serves no content that other people write. */
function refuseBesideTheConsole(host: string, request: FastifyRequest): void {
  if (request.headers.host?.toLowerCase() === host && !OF_CONSOLE.test(pathOf(request))) throw new ApiError("NOT_FOUND")
}

function ownHostOfConsole({ consoleUrl, baseUrl }: Settings): string | undefined {
  const { host } = new URL(consoleUrl)
  return host === new URL(baseUrl).host ? undefined : host
}

function closeWhile(draining: AbortSignal, reply: FastifyReply): void {
  if (draining.aborted) reply.header("connection", "close")
}
