/**
 * The one table of routes: who may call each, and which right a member and which scope an API key needs. The server
 * refuses to register a route that is not here. The document and the refusals are generated from this table.
 */
import type { RouteOptions } from "fastify"
import { checkRight, hasRight, type Right, type Role, rightTable, SCOPES, type Scope } from "./rights.ts"

type Method = "GET" | "POST" | "PUT" | "DELETE" | "OPTIONS"
/** A method and the pattern of a route, as they are registered. `ANY` means every method without a row of its own. */
type RouteName = `${Method | "ANY"} ${"/" | "*"}${string}`

/** The right that a member's role needs, and the scope for such routes. Without a scope, no key can use the route. */
interface Needs {
  right: Right
  scope: Scope | undefined
}

/**
 * `public`: no credential is needed. `operator`: METRICS_TOKEN. `wallet`: the token of a payer's wallet. `person`:
 * anyone signed in, for their own data and for no merchant. `member`: a person of the merchant, or an API key if the
 * route has a scope. `key`: an API key. `optional key`: an API key, or none. `bearer key`: any API key as a bearer
 * token, as MCP clients send it. The routes that MCP's tools call have rows of their own.
 */
export type RouteAccess = { by: "public" | "operator" | "wallet" | "person" | "bearer key" } | MerchantAccess

export interface MerchantAccess extends Needs {
  by: "member" | "key" | "optional key"
  name: RouteName
  /** The scopes with which a key can use the route (one is enough), limited to those that a key can have. */
  scopes: readonly Scope[]
  /**
   * Whether the route counts its decisions against a member's limit, if the member has the right only up to a limit.
   */
  isCounted: boolean
}

/** No credential is needed. */
const publicRoutes: RouteName[] = [
  "GET /healthz",
  "GET /readyz",
  "GET /docs",
  "GET /docs/*",
  "OPTIONS *",
  // Sign-in, and the keys of tokens
  "POST /api/auth/nonce",
  "POST /api/auth/verify",
  "POST /api/device",
  "POST /api/device/token",
  "GET /api/console/config",
  "POST /api/console/session",
  // Ends the session of a cookie. The route reads the cookie itself, because it also removes an invalid cookie.
  "DELETE /api/console/session",
  "GET /console",
  "GET /console/*",
  "GET /console/sign-in",
  "GET /console/callback",
  "GET /console/device",
  "POST /console/device",
  "GET /console/signed-in",
  "GET /console/assets/:name",
  "POST /api/subscriptions/nonce",
  "POST /api/subscriptions/token",
  "GET /.well-known/jwks.json",
  "GET /.well-known/did.json",
  "GET /receipts/:root",
  // Buyers and payers
  "GET /api/paywalls/:id",
  "POST /api/paywalls/:id/subscribe",
  "POST /api/paywalls/:id/pay",
  "GET /api/paywalls/:id/payments/:txHash",
  "POST /api/paywalls/:id/access/nonce",
  "POST /api/paywalls/:id/access",
  "POST /api/pay/sessions",
  "GET /api/pay/status/:id",
  "POST /api/pay/confirm",
  "POST /api/pay/payer-info",
  "POST /api/pay/authorize",
  "POST /api/pay/return-address/nonce",
  "POST /api/pay/return-address",
  "GET /api/deposits/:address",
  // Agents
  "GET /api/p/:slug",
  "ANY /api/p/:slug/*",
  "POST /api/agent/paywalls/:id/settle",
  "GET /api/agent/payments/:id",
  "GET /.well-known/x402",
  "GET /x402/supported",
  // Pages
  "GET /assets/:name",
  "GET /embed.js",
  "GET /pay/:sessionId",
  "GET /pay/:sessionId/events",
  "GET /pay/:sessionId/status",
  "GET /invoice/:id",
  "GET /paywall/:id",
  "GET /paywall/:id/subscribe",
  "GET /paywall/:id/events",
  "GET /paywall/:id/status",
  "GET /p/:slug",
  "GET /p/:slug/start",
  "GET /address/:address",
  "GET /subscriptions",
  "GET /receipt/:id",
  "GET /receipt/:id/file",
  "GET /verify",
  "GET /return/:paymentId",
  "GET /logo/:hash",
  // Only the sandbox has these
  "GET /",
  "GET /sandbox",
  "GET /sandbox/try/checkout",
  "GET /sandbox/try/paywall",
  "GET /sandbox/inbox",
  "POST /sandbox/inbox/:name",
  "POST /sandbox/faucet",
  "POST /sandbox/pay",
  "POST /sandbox/wallet",
  "POST /sandbox/clock",
  "POST /sandbox/mine",
  "POST /sandbox/reorg",
  "ANY /sandbox/oidc/*",
  // These routes answer that there is no stream to open and no session to end.
  "GET /mcp",
  "DELETE /mcp",
]

/** Payers' wallets, which got a token for their signature. */
const walletRoutes: RouteName[] = [
  "GET /api/subscriptions",
  "GET /api/subscriptions/:id/invoices",
  "POST /api/subscriptions/:id/cancel",
  "POST /api/subscriptions/:id/resume",
]

/** Anyone signed in, whatever merchants they belong to. */
const personRoutes: RouteName[] = [
  "GET /api/console/me",
  "POST /api/console/merchants",
  "POST /api/console/team/accept",
  "GET /api/console/sessions",
  "DELETE /api/console/sessions/:id",
]

/** The merchant's own routes: the right of a member, and the scope of a key. */
const merchantRoutes: Record<RouteName, readonly [Right, Scope?]> = {
  // A merchant's server
  "POST /api/checkouts": ["catalog", "checkouts"],
  "GET /api/checkouts": ["read", "checkouts"],
  "GET /api/checkouts/:id": ["read", "checkouts"],
  "GET /api/paywalls/:id/verify": ["read", "checkouts"],
  "POST /api/paywalls/:id/consume": ["catalog", "checkouts"],
  "POST /x402/verify": ["catalog", "checkouts"],
  "POST /x402/settle": ["catalog", "checkouts"],
  "GET /x402/settlements/:from/:nonce": ["read", "checkouts"],
  // Products
  "POST /api/console/paywalls": ["catalog", "catalog"],
  "GET /api/console/paywalls": ["read", "catalog"],
  "GET /api/console/paywalls/:id": ["read", "catalog"],
  "PUT /api/console/paywalls/:id": ["catalog", "catalog"],
  "DELETE /api/console/paywalls/:id": ["catalog", "catalog"],
  "GET /api/console/paywalls/:id/grants": ["read", "read"],
  "DELETE /api/console/paywalls/:id/grants/:grantId": ["payers", "console"],
  "POST /api/console/products": ["catalog", "catalog"],
  "GET /api/console/products": ["read", "catalog"],
  "GET /api/console/products/:id": ["read", "catalog"],
  "PUT /api/console/products/:id": ["catalog", "catalog"],
  "DELETE /api/console/products/:id": ["catalog", "catalog"],
  "POST /api/console/payment-links": ["catalog", "catalog"],
  "GET /api/console/payment-links": ["read", "catalog"],
  "GET /api/console/payment-links/:id": ["read", "catalog"],
  "PUT /api/console/payment-links/:id": ["catalog", "catalog"],
  "DELETE /api/console/payment-links/:id": ["catalog", "catalog"],
  // A new bundle includes its `originUrl`, which the scope `catalog` must not set.
  "POST /api/console/bundles": ["catalog", "console"],
  "GET /api/console/bundles": ["read", "catalog"],
  "GET /api/console/bundles/:id": ["read", "catalog"],
  "PUT /api/console/bundles/:id": ["catalog", "catalog"],
  "DELETE /api/console/bundles/:id": ["catalog", "catalog"],
  "GET /api/console/bundles/:id/failures": ["read", "catalog"],
  "POST /api/console/checkouts": ["catalog", "console"],
  "GET /api/console/checkouts": ["read", "read"],
  "GET /api/console/checkouts/:id": ["read", "read"],
  "PUT /api/console/checkouts/:id": ["catalog", "console"],
  "DELETE /api/console/checkouts/:id": ["catalog", "console"],
  // Subscriptions
  "GET /api/console/subscriptions": ["read", "read"],
  "GET /api/console/subscriptions.csv": ["read", "read"],
  "GET /api/console/subscriptions/:id": ["read", "read"],
  "PUT /api/console/subscriptions/:id": ["payers", "console"],
  "POST /api/console/subscriptions/:id/pause": ["payers", "console"],
  "POST /api/console/subscriptions/:id/resume": ["payers", "console"],
  "POST /api/console/subscriptions/:id/cancel": ["payers", "money"],
  "GET /api/console/invoices": ["read", "read"],
  "GET /api/console/invoices.csv": ["read", "read"],
  "GET /api/console/invoices/:id": ["read", "read"],
  // Money
  "GET /api/console/transactions": ["read", "read"],
  "GET /api/console/transactions.csv": ["read", "read"],
  "GET /api/console/transactions/totals": ["read", "read"],
  "GET /api/console/payments": ["read", "read"],
  "POST /api/console/payments/:id/accept": ["money", "money"],
  "POST /api/console/payments/:id/return": ["money", "money"],
  "POST /api/console/payments/return": ["money", "money"],
  "POST /api/console/payments/refund": ["money", "money"],
  "GET /api/console/payments/refunds": ["read", "read"],
  "GET /api/console/payments/refunds/:id": ["read", "read"],
  "DELETE /api/console/payments/refunds/:id": ["money", "money"],
  "POST /api/console/payments/capture": ["money", "money"],
  "POST /api/console/payments/void": ["money", "money"],
  "GET /api/console/payments/:id/shares": ["read", "read"],
  "GET /api/console/overview": ["read", "read"],
  "GET /api/console/balances": ["read", "read"],
  "GET /api/console/payments/:id": ["read", "read"],
  "GET /api/console/payouts": ["read", "read"],
  "GET /api/console/payouts.csv": ["read", "read"],
  "GET /api/console/payouts/:id": ["read", "read"],
  "GET /api/console/payouts/:id/payments": ["read", "read"],
  "GET /api/console/books": ["read", "read"],
  "GET /api/console/books.csv": ["read", "read"],
  "GET /api/console/reports/books.csv": ["read", "read"],
  "GET /api/console/reports/payouts.csv": ["read", "read"],
  "GET /api/console/reports/balance.csv": ["read", "read"],
  "GET /api/console/reports/tax.csv": ["read", "read"],
  "GET /api/console/receipts": ["read", "read"],
  // The lines of this file contain the keys of receipts. Anyone with the file can read what payers entered.
  "GET /api/console/receipts.ndjson": ["money", "console"],
  "GET /api/console/deposits": ["read", "read"],
  "GET /api/console/deposits.csv": ["read", "read"],
  "GET /api/console/foreign-tokens": ["read", "read"],
  "POST /api/console/splits": ["payouts", "console"],
  "GET /api/console/splits": ["read", "read"],
  "GET /api/console/splits/:id": ["read", "read"],
  "PUT /api/console/splits/:id": ["payouts", "console"],
  "DELETE /api/console/splits/:id": ["payouts", "console"],
  // What happened, and why
  "GET /api/console/timeline/:id": ["read", "read"],
  "GET /api/console/search": ["read", "read"],
  "GET /api/console/payers": ["read", "read"],
  "GET /api/console/payers/:payer": ["read", "read"],
  "GET /api/console/health": ["read", "read"],
  "GET /api/console/checkouts.csv": ["read", "read"],
  "GET /api/console/stream": ["read", "read"],
  "GET /api/console/changes": ["read", "read"],
  // Events
  "POST /api/console/webhooks": ["webhooks", "webhooks"],
  "GET /api/console/webhooks": ["read", "webhooks"],
  "GET /api/console/webhooks/:id": ["read", "webhooks"],
  "PUT /api/console/webhooks/:id": ["webhooks", "webhooks"],
  "DELETE /api/console/webhooks/:id": ["webhooks", "webhooks"],
  "POST /api/console/webhooks/:id/test": ["webhooks", "webhooks"],
  "POST /api/console/webhooks/:id/roll-secret": ["webhooks", "webhooks"],
  "POST /api/console/webhooks/:id/recover": ["webhooks", "webhooks"],
  "GET /api/console/webhooks/:id/deliveries": ["read", "webhooks"],
  "GET /api/console/webhooks/:id/stats": ["read", "webhooks"],
  "GET /api/console/event-types": ["read", "webhooks"],
  "POST /api/console/listeners": ["webhooks", "webhooks"],
  "GET /api/console/listeners": ["read", "webhooks"],
  "DELETE /api/console/listeners/:id": ["webhooks", "webhooks"],
  // This GET claims deliveries, which a key that only reads must not do.
  "GET /api/console/listeners/:id/deliveries": ["webhooks", "webhooks"],
  "POST /api/console/listeners/:id/results": ["webhooks", "webhooks"],
  "GET /api/console/deliveries": ["read", "webhooks"],
  "GET /api/console/deliveries/:id": ["read", "webhooks"],
  "POST /api/console/deliveries/:id/resend": ["webhooks", "webhooks"],
  "GET /api/console/events": ["read", "webhooks"],
  "GET /api/console/events/:id": ["read", "webhooks"],
  // The account. The holder of a stolen key must not create further keys, or change where the merchant's money goes.
  "GET /api/console/settings": ["read", "settings:read"],
  "PUT /api/console/settings": ["settings"],
  "GET /api/console/settings/key-limits": ["read", "settings:read"],
  "PUT /api/console/settings/key-limits": ["settings"],
  "POST /api/console/settings/webhook-secret": ["secrets"],
  "POST /api/console/settings/webhook-secret/reveal": ["secrets"],
  "POST /api/console/api-keys": ["keys"],
  "GET /api/console/api-keys": ["keys"],
  "PUT /api/console/api-keys/:id": ["keys"],
  "POST /api/console/api-keys/:id/roll": ["keys"],
  "POST /api/console/api-keys/:id/adopt": ["keys"],
  "DELETE /api/console/api-keys/:id": ["keys"],
  "GET /api/console/notifications": ["read"],
  "PUT /api/console/notifications": ["read"],
  "GET /api/console/team": ["read"],
  "PUT /api/console/team/:id": ["team"],
  // A member may leave. Removing other members needs the right `team`, which the route checks.
  "DELETE /api/console/team/:id": ["leave"],
  "POST /api/console/team/invitations": ["team"],
  "GET /api/console/team/invitations": ["team"],
  "DELETE /api/console/team/invitations/:id": ["team"],
  "POST /api/console/erasures": ["erasure"],
  "GET /api/console/erasures": ["erasure"],
  "GET /api/console/audit": ["audit", "console"],
  // Keys with `read` can't read these, because refused requests show what other people tried.
  "GET /api/console/requests": ["requests", "console"],
  "GET /api/console/requests/:id": ["requests", "console"],
  "GET /api/console/audit.csv": ["audit", "console"],
}

/** These routes call `countSpend` in the transaction that decides (`account/identity/count-key-spends.ts`). */
const counted: ReadonlySet<RouteName> = new Set([
  "POST /api/console/payments/:id/accept",
  "POST /api/console/payments/:id/return",
  "POST /api/console/payments/return",
  "POST /api/console/payments/refund",
  "POST /api/console/payments/capture",
  "POST /api/console/payments/void",
])

const isRead = (name: string): boolean => name.startsWith("GET ")

/**
 * The scopes with which a key can use a route, limited to those that a key can have; none if the route is only for
 * persons.
 */
function scopesOf(name: RouteName, by: RouteAccess["by"], { right, scope }: Needs): Scope[] {
  if (scope === undefined) return []
  const isWide = scope !== "settings:read"
  const opens = (each: Scope): boolean =>
    each === scope ||
    (isWide && each === "console" && by === "member") ||
    (isWide && each === "read" && right === "read" && isRead(name))
  return SCOPES.filter(opens)
}

function callersOf(path: string): "member" | "key" | "optional key" {
  if (path.startsWith("/api/console/")) return "member"
  return path === "/api/paywalls/:id/verify" ? "optional key" : "key"
}

function merchantAccess(name: RouteName, [right, scope]: readonly [Right, Scope?]): RouteAccess {
  const by = callersOf(name.slice(name.indexOf(" ") + 1))
  return { by, name, right, scope, scopes: scopesOf(name, by, { right, scope }), isCounted: counted.has(name) }
}

/** Each row, keyed by the name of its route. */
export const routeTable: ReadonlyMap<string, RouteAccess> = new Map<string, RouteAccess>([
  ...publicRoutes.map(name => [name, { by: "public" }] as const),
  ["GET /metrics", { by: "operator" }],
  ["POST /mcp", { by: "bearer key" }],
  ...walletRoutes.map(name => [name, { by: "wallet" }] as const),
  ...personRoutes.map(name => [name, { by: "person" }] as const),
  ...Object.entries(merchantRoutes).map(([name, needs]) => [name, merchantAccess(name as RouteName, needs)] as const),
])

/** The row of a method and the pattern of a route; undefined if there is none. A HEAD has the row of its GET. */
export const accessOf = (method: string, url: string): RouteAccess | undefined =>
  routeTable.get(`${method === "HEAD" ? "GET" : method} ${url}`) ?? routeTable.get(`ANY ${url}`)

/**
 * The row of a route that is being registered; throws for a route without one. `more` are rows of routes that only a
 * test has.
 */
export function registeredAccess(
  { method, url }: Pick<RouteOptions, "method" | "url">,
  more: Record<string, RouteAccess> = {},
): RouteAccess {
  const rows = [method].flat().map(each => {
    const row = accessOf(each, url) ?? more[`${each === "HEAD" ? "GET" : each} ${url}`]
    if (row) return row
    throw new Error(
      `${each} ${url} is not in the table of routes: add it to platform/http/route-access.ts, with its right and its scope or as public`,
    )
  })
  const [first] = rows
  if (first === undefined || rows.some(row => row !== first))
    throw new Error(`${url} has methods with different rows in platform/http/route-access.ts: register each separately`)
  return first
}

/**
 * Throws `ROLE_REQUIRED` if a role lacks a right that a scope grants: a key must not do what its creator may not do.
 */
export function checkGivable(role: Role, scope: Scope): void {
  for (const right of rightsOf(scope)) checkRight({ role }, right)
}

/** Whether a role has all the rights that these scopes grant. */
export const mayGive = (role: Role, scopes: readonly Scope[]): boolean =>
  scopes.every(scope => rightsOf(scope).every(right => hasRight(role, right)))

const rightsOf = (scope: Scope): Right[] =>
  (Object.keys(rightTable) as Right[]).filter(right =>
    [...routeTable.values()].some(row => "scopes" in row && row.right === right && row.scopes.includes(scope)),
  )

declare module "fastify" {
  interface FastifyContextConfig {
    /** The route's row in the table of routes; the server sets it. */
    access?: RouteAccess
  }
}
