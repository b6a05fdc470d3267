/** Who is calling: which credential a path asks for. Who a credential belongs to is known by the `Identities` that the server is given. */
import type { IncomingHttpHeaders } from "node:http"
import type { FastifyRequest } from "fastify"
import { ApiError } from "../errors.ts"

/** Whom a bearer token speaks for. */
export interface Subject {
  iss: string
  sub: string
}

/** An API key that is in force. */
export interface ApiKey {
  id: string
  merchantId: string
}

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

/** What the server asks about callers. */
export interface Identities {
  /**
   * Who is calling; never throws. `refusal` is what the request must be answered with, once it was counted. `isRefused` says
   * that the caller's address is over its limit.
   */
  authenticate(path: string, headers: IncomingHttpHeaders, isRefused: boolean): Promise<Caller & { refusal?: unknown }>
  /** The id of a subject's merchant, which is made on first sight; throws `SIGNUP_CLOSED`. */
  merchantOf(subject: Subject): Promise<string>
}

/** For a server of which no route asks for a credential. */
export const nobodyKnown: Identities = {
  authenticate: async () => ({ subject: undefined, apiKey: undefined }),
  merchantOf: async () => {
    throw new ApiError("UNAUTHORIZED")
  },
}

/** The merchant whose API key a request bears; `UNAUTHORIZED` without one. */
export function callingMerchantByKey(request: FastifyRequest): string {
  if (!request.apiKey) throw keyNeeded()
  return request.apiKey.merchantId
}

/** The refusal of a request whose API key is missing or not in force. */
export const keyNeeded = () =>
  new ApiError("UNAUTHORIZED", undefined, "This request needs a valid API key: `x-api-key: sk_…`.")
