/** Who is calling: which credential a path asks for, and whose the one is that came with the request. */
import type { IncomingHttpHeaders } from "node:http"
import type { FastifyRequest } from "fastify"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { type ApiKey, apiKeyOf, keysByHash } from "../identity/api-keys.ts"
import { recentMisses } from "../identity/negative-cache.ts"
import { type Lookup, sharedLookup } from "../identity/shared-lookup.ts"
import { namesUs, signingKeysById, verifyConsoleToken } from "../identity/signing-keys.ts"
import type { Subject, TokenIssuer } from "../identity/tokens.ts"

declare module "fastify" {
  interface FastifyRequest {
    /** Set on `/api/console/*` once the token is known to be good. */
    subject: Subject | undefined
    /** Set where an API key is asked for, or came, once it is known to be good. */
    apiKey: ApiKey | undefined
    /** Whose console request it is, set once its route has asked. */
    merchantId: string | undefined
  }
}

/** `token`: a bearer token. `key`: an API key. `optional key`: an API key, or none. */
export type Credential = "token" | "key" | "optional key"

/** All other paths are public. */
const rules: { path: RegExp; credential: Credential }[] = [
  { path: /^\/api\/console(\/|$)/, credential: "token" },
  { path: /^\/api\/checkouts(\/|$)/, credential: "key" },
  { path: /^\/api\/paywalls\/[^/]+\/consume$/, credential: "key" },
  { path: /^\/api\/paywalls\/[^/]+\/verify$/, credential: "optional key" },
]

/** The credential that a path, or the pattern of a route, asks for; undefined for none. */
export const credentialOf = (path: string): Credential | undefined =>
  rules.find(rule => rule.path.test(path))?.credential

/** Whether a path is for merchants only. */
export const isPrivate = (path: string): boolean => ["token", "key"].includes(credentialOf(path) ?? "")

export interface Caller {
  subject: Subject | undefined
  apiKey: ApiKey | undefined
}

/** Nobody whom we know. */
const stranger: Caller = { subject: undefined, apiKey: undefined }

/**
 * Tells who is calling, never throwing: `refusal` is what the request must be answered with, once it was counted. A
 * credential that came and is not good is refused even where none is needed, or a revoked key would seem to work. With
 * `isRefused` the address is over its limit: what it bears is looked up together with the others', as a good credential
 * among them must not be refused for its neighbours.
 */
export function authenticator(ctx: Context, tokens: TokenIssuer) {
  const misses = recentMisses()
  const keys = lookups(names => keysByHash(ctx, names))
  const signingKeys = lookups(names => signingKeysById(ctx, names))
  return async (
    path: string,
    headers: IncomingHttpHeaders,
    isRefused: boolean,
  ): Promise<Caller & { refusal?: unknown }> => {
    const credential = credentialOf(path)
    try {
      if (credential === "token") {
        const token = /^Bearer ([\w.~+/-]+=*)$/i.exec(headers.authorization ?? "")?.[1]
        const ours = async (token: string) => await verifyConsoleToken(ctx, misses, signingKeys(isRefused), token)
        const subject = token && (await (namesUs(ctx, token) ? ours(token) : tokens.verify(token)))
        return subject ? { ...stranger, subject } : { ...stranger, refusal: new ApiError("UNAUTHORIZED") }
      }
      const key = headers["x-api-key"]
      if (credential === undefined || (credential === "optional key" && key === undefined)) return stranger
      const apiKey = await apiKeyOf(ctx, misses, keys(isRefused), key)
      return apiKey ? { ...stranger, apiKey } : { ...stranger, refusal: keyNeeded() }
    } catch (error) {
      return { ...stranger, refusal: error }
    }
  }
}

/** The merchant whose API key a request bears; `UNAUTHORIZED` without one. */
export function callingMerchantByKey(request: FastifyRequest): string {
  if (!request.apiKey) throw keyNeeded()
  return request.apiKey.merchantId
}

/** Looks up at once, or for an address that is over its limit together with others. */
function lookups<R>(ask: (names: readonly string[]) => Promise<Map<string, R>>): (isRefused: boolean) => Lookup<R> {
  const together = sharedLookup(ask)
  const atOnce: Lookup<R> = async name => (await ask([name])).get(name)
  return isRefused => (isRefused ? together : atOnce)
}

const keyNeeded = () => new ApiError("UNAUTHORIZED", undefined, "A valid API key is needed: `x-api-key: sk_…`.")
