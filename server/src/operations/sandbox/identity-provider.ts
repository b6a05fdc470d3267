// The sandbox's identity provider: a real OpenID provider under a path of the same server. So tokens are checked
// through the same discovery and key set as in live mode.
import type { IncomingMessage, ServerResponse } from "node:http"
import type { FastifyInstance, FastifySchema } from "fastify"
import { calculateJwkThumbprint, exportJWK, generateKeyPair, type JWK } from "jose"
// The package's main entry prints a warning on every release of Node that is not LTS; its version is pinned.
// @ts-expect-error The package has no types; the part of it that is used is declared in ProviderInstance.
import { InvalidTarget } from "oidc-provider/lib/helpers/errors.js"
// @ts-expect-error
import { Provider } from "oidc-provider/lib/provider.js"

type Client = { clientId: string; clientSecret: string }
type ProviderInstance = { proxy: boolean; callback(): (request: IncomingMessage, response: ServerResponse) => void }

const ALGORITHM = "ES256"
const TOKEN_LIFE_SECONDS = 7 * 24 * 60 * 60
const DEFAULT_RESOURCE = "urn:sluice:api"

/**
 * Mounts the provider at the path of `issuer`, for example `http://127.0.0.1:4000/sandbox/oidc`. `jwks` contains
 * private keys from {@link newSigningKey}. Each client gets access tokens for `audience` through the
 * client_credentials grant.
 */
export async function identityProvider(
  app: FastifyInstance,
  o: { issuer: string; audience: string; jwks: { keys: JWK[] }; clients: Client[]; secure?: never },
): Promise<void> {
  const issuer = new URL(o.issuer)
  const prefix = issuer.pathname.replace(/\/$/, "")
  const provider: ProviderInstance = new Provider(o.issuer, {
    jwks: o.jwks,
    clients: o.clients.map(client => ({
      client_id: client.clientId,
      client_secret: client.clientSecret,
      grant_types: ["client_credentials"],
      response_types: [],
      redirect_uris: [],
      // The default is RS256, which is refused if no key supports it.
      id_token_signed_response_alg: ALGORITHM,
    })),
    // The default adapter keeps data in memory and warns about that. JWTs of client_credentials are never stored.
    adapter: () => ({ find: async () => undefined, upsert: async () => {}, destroy: async () => {} }),
    ttl: { ClientCredentials: TOKEN_LIFE_SECONDS },
    features: {
      // Login pages for a browser, which are on by default; nobody logs in here.
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        // A resource must be a URI, but an audience need not be one.
        defaultResource: () => DEFAULT_RESOURCE,
        getResourceServerInfo: (_ctx: unknown, resource: string) => {
          if (resource !== DEFAULT_RESOURCE && resource !== o.audience) throw new InvalidTarget()
          return {
            audience: o.audience,
            scope: "",
            accessTokenFormat: "jwt",
            jwt: { sign: { alg: ALGORITHM } },
          }
        },
      },
    },
  })
  // The provider builds the addresses in its discovery document from these two headers. They must name the issuer,
  // whatever host name the caller used, because tokens are checked against the issuer.
  provider.proxy = true
  const forwarded = { "x-forwarded-proto": issuer.protocol.slice(0, -1), "x-forwarded-host": issuer.host }
  const handle = provider.callback()

  await app.register(
    async scope => {
      // The provider reads the bodies of requests itself.
      scope.removeAllContentTypeParsers()
      scope.addContentTypeParser("*", (_request, _payload, done) => done(null))
      scope.all("/*", { schema: { hide: true } as FastifySchema }, async (request, reply) => {
        reply.hijack()
        const raw = request.raw as IncomingMessage & { originalUrl?: string }
        raw.originalUrl = raw.url ?? "/"
        raw.url = raw.originalUrl.slice(prefix.length)
        Object.assign(raw.headers, forwarded)
        handle(raw, reply.raw)
      })
    },
    { prefix },
  )
}

/** Creates a private key for signing tokens (ES256), as a JWK with kid, alg and use. */
export async function newSigningKey(): Promise<JWK> {
  const { privateKey } = await generateKeyPair(ALGORITHM, { extractable: true })
  const key = await exportJWK(privateKey)
  return { ...key, kid: await calculateJwkThumbprint(key), alg: ALGORITHM, use: "sig" }
}

/**
 * Fetches an access token (a JWT) for a client over HTTP, as any client would; throws the provider's answer if that
 * fails.
 */
export async function requestToken(issuer: string, audience: string, client: Client): Promise<string> {
  const { token_endpoint } = (await answer(await fetch(`${issuer}/.well-known/openid-configuration`))) as {
    token_endpoint: string
  }
  // RFC 6749 2.3.1: both parts are form-encoded before they are joined.
  const basic = [client.clientId, client.clientSecret].map(encodeURIComponent).join(":")
  const { access_token } = (await answer(
    await fetch(token_endpoint, {
      method: "POST",
      headers: { authorization: `Basic ${Buffer.from(basic).toString("base64")}` },
      body: new URLSearchParams({
        grant_type: "client_credentials",
        ...(URL.canParse(audience) ? { resource: audience } : {}),
      }),
    }),
  )) as { access_token: string }
  return access_token
}

async function answer(response: Response): Promise<unknown> {
  const text = await response.text()
  if (!response.ok) throw new Error(`${response.url} answered ${response.status}: ${text.slice(0, 300)}`)
  return JSON.parse(text)
}
