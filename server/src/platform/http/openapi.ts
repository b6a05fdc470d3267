/**
 * The OpenAPI document and its page at /docs. Routes declare their input and answers in their schemas, and their own
 * errors in their `config`; `openapi-responses.ts` adds what follows from rules.
 */
import swagger from "@fastify/swagger"
import type { FastifyContextConfig } from "fastify"
import type { Settings } from "../config/settings.ts"
import { license, version } from "../version.ts"
import { type Credential, credentialOf } from "./authenticate.ts"
import { docsPages } from "./docs-pages.ts"
import { type Document, type Operations, withOperations } from "./openapi-document.ts"
import { named } from "./openapi-named.ts"
import { withSharedParameters } from "./openapi-parameters.ts"
import { places } from "./openapi-places.ts"
import { completed, facts } from "./openapi-responses.ts"
import { withSdk } from "./openapi-sdk.ts"
import { accessOf } from "./route-access.ts"
import type { Server } from "./server.ts"

const description = `Stablecoin payments that you host yourself.

- **Amounts** are decimal strings in answers (\`"5.00"\`), and numbers or decimal strings in requests, taken exactly as written.
- **Addresses** are accepted in any case and returned with their checksum; **hashes** are returned in lower case.
- **Times** are ISO 8601 in UTC with milliseconds.
- **Errors** have one flat shape, \`{ error, message, requestId, details? }\`; [the list of errors](/docs/errors) has every code.
- **Bodies** with a field that the route does not know are refused; unknown query parameters are ignored.
- **Lists** take \`limit\` and \`offset\`, are newest first, and return the \`total\`.`

const tags = [
  { name: "paywalls", description: "What a merchant sells behind paywalls, and the access that buyers were granted" },
  {
    name: "splits",
    description: "How a merchant's payments are divided among recipients, and what became of each share",
  },
  { name: "buyers", description: "What buyers and their pages read and send; without credentials" },
  { name: "insight", description: "What happened, why an object is in its state, and what you can do now" },
  { name: "payouts", description: "Payouts to merchants, recipients of splits and payers, and the payments in them" },
  { name: "receipts", description: "Proofs of payments that can be verified without this service" },
  { name: "checkouts", description: "Checkout sessions, one for each payment; for a merchant's server and console" },
  { name: "payers", description: "What a payer's page reads about a checkout; without credentials" },
  {
    name: "subscribers",
    description: "What a wallet has subscribed to; with a token that the wallet's signature gets",
  },
  { name: "subscriptions", description: "Subscriptions to products that are billed every period, and their invoices" },
  { name: "products", description: "What checkouts sell, with a price" },
  { name: "payment links", description: "Links that start a checkout for anyone who opens them" },
  { name: "bundles", description: "APIs with a price for each route, to which the service forwards calls" },
  {
    name: "transactions",
    description: "The payments that a merchant received, and payments that wait for its decision",
  },
  {
    name: "overview",
    description: "A merchant's figures: what came in and went out in a period, and what needs a decision",
  },
  {
    name: "books",
    description: "Every transfer into and out of a merchant's receiving addresses, and the terms of those addresses",
  },
  {
    name: "sign-in",
    description:
      "Sign-in with a wallet, the sessions of browsers, and the public keys of the tokens that the service signs",
  },
  { name: "webhooks", description: "Where events are delivered, and the result of each delivery" },
  { name: "settings", description: "The merchant's profile, and the addresses its money goes to" },
  { name: "team", description: "The persons of a merchant, their roles, and invitations" },
  {
    name: "request log",
    description: "The requests of a merchant's people and API keys, and their answers",
  },
  { name: "audit log", description: "Who changed a merchant's configuration, and who decided about its money" },
  { name: "agents", description: "What agents buy with x402, without an account or an API key" },
  { name: "facilitator", description: "Verifies and settles x402 payments for other servers, with an API key" },
  { name: "operation", description: "For the operator of the service" },
]

const securitySchemes = {
  bearer: {
    type: "http",
    scheme: "bearer",
    bearerFormat: "JWT",
    description:
      "A token of the installation's OIDC issuer (`OIDC_ISSUER`) for its audience (`OIDC_AUDIENCE`), or of `POST /api/auth/verify`",
  },
  apiKey: {
    type: "apiKey",
    in: "header",
    name: "x-api-key",
    description:
      "A key that a merchant created with `POST /api/console/api-keys`, with a scope for the request: `console` or, for a GET, `read` on `/api/console/*`; `checkouts` or, for a GET, `read` elsewhere",
  },
  session: {
    type: "apiKey",
    in: "cookie",
    name: "__Host-sluice",
    description:
      "The cookie of a browser that is signed in to the console (`POST /api/console/session`, `GET /console/sign-in`), for the console's own pages. It is called `sluice-dev` if the console is at a loopback address without https. If a request carries several credentials, a token decides before a key, and a key before a cookie",
  },
  wallet: {
    type: "http",
    scheme: "bearer",
    bearerFormat: "JWT",
    description: "A token of `POST /api/subscriptions/token`, for the wallet that signed",
  },
  metrics: { type: "http", scheme: "bearer", description: "The operator's `METRICS_TOKEN`" },
} as const

/** The credentials that a route accepts; an empty list means none. */
const securityOf = (method: string, url: string): Record<string, string[]>[] => {
  const byCredential = {
    token: [{ bearer: [] }, { session: [] }],
    "token or key": [{ bearer: [] }, { apiKey: [] }, { session: [] }],
    wallet: [{ wallet: [] }],
    key: [{ apiKey: [] }],
    "optional key": [{}, { apiKey: [] }],
    "bearer key": [{ apiKey: [] }],
  }
  const access = accessOf(method, url)
  const credential: Credential | undefined = credentialOf(access, url)
  return credential ? byCredential[credential] : access?.by === "operator" ? [{ metrics: [] }] : []
}

const finished = (document: Document): Document =>
  withSharedParameters(named(withOperations(document, withSdk), places))

/**
 * Adds the document, its page at `/docs` and its JSON at `/docs/json`. Call it before any route is added. `webhooks`
 * are the requests that the service sends.
 */
export function documentApi(app: Server, { baseUrl }: Settings, webhooks: Operations): void {
  app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: { title: "Sluice", version, description, license: { name: license } },
      servers: [{ url: baseUrl }],
      tags,
      components: { securitySchemes },
    },
    transform: ({ schema, url, route }) => {
      const { errors, idempotencyKey, walletLock, optionalBody }: FastifyContextConfig = route.config ?? {}
      const method = String(route.method)
      const more = facts({ method, url, errors, idempotencyKey, walletLock, optionalBody })
      return { url, schema: { ...schema, ...more, security: securityOf(method, url) } }
    },
    transformObject: found =>
      "openapiObject" in found ? finished({ ...completed(found.openapiObject as Document), webhooks }) : {},
  })
  app.register(async routes => docsPages(routes, () => app.swagger()))
}
