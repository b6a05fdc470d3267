/** Who is calling: which credential a path asks for, and whose the one is that came with the request. */
import type { IncomingHttpHeaders } from "node:http"
import type { FastifyRequest } from "fastify"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { type ApiKey, apiKeyOf } from "../identity/api-keys.ts"
import { type Misses, recentMisses } from "../identity/misses.ts"
import { namesUs, verifyConsoleToken } from "../identity/signing-keys.ts"
import type { Subject, TokenIssuer } from "../identity/tokens.ts"

declare module "fastify" {
  interface FastifyRequest {
    /** Set on `/api/console/*` once the token is known to be good. */
    subject: Subject | undefined
    /** Set where an API key is asked for, or came, once it is known to be good. */
    apiKey: ApiKey | undefined
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
 * credential that came and is not good is refused even where none is needed, or a revoked key would seem to work.
 */
export function authenticator(ctx: Context, tokens: TokenIssuer) {
  const misses = recentMisses()
  return async (path: string, headers: IncomingHttpHeaders): Promise<Caller & { refusal?: unknown }> => {
    const credential = credentialOf(path)
    try {
      if (credential === "token") {
        const subject = await subjectOf(ctx, tokens, misses, headers.authorization)
        return subject ? { ...stranger, subject } : { ...stranger, refusal: new ApiError("UNAUTHORIZED") }
      }
      const key = headers["x-api-key"]
      if (credential === undefined || (credential === "optional key" && key === undefined)) return stranger
      const apiKey = await apiKeyOf(ctx, misses, key)
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

async function subjectOf(
  ctx: Context,
  tokens: TokenIssuer,
  misses: Misses,
  authorization: string | undefined,
): Promise<Subject | undefined> {
  const token = /^Bearer ([\w.~+/-]+=*)$/i.exec(authorization ?? "")?.[1]
  if (token === undefined) return undefined
  return namesUs(ctx, token) ? await verifyConsoleToken(ctx, misses, token) : await tokens.verify(token)
}

const keyNeeded = () => new ApiError("UNAUTHORIZED", undefined, "A valid API key is needed: `x-api-key: sk_…`.")
