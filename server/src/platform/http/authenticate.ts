/** Decides which credential a request needs. The server's `Identities` find out who a credential belongs to. */
import type { IncomingHttpHeaders } from "node:http"
import { isIP } from "node:net"
import type { FastifyRequest } from "fastify"
import { ApiError } from "../errors.ts"
import { plainAddress } from "../limits/buckets.ts"
import { memoize } from "../net/memoize.ts"
import { addressRange } from "../net/public-address.ts"
import type { Role, Scope } from "./rights.ts"
import type { RouteAccess } from "./route-access.ts"

/** The person that a bearer token or a session identifies. */
export interface Subject {
  iss: string
  sub: string
  /** The person's e-mail address, if the issuer has verified it. */
  email?: string
}

/** A person's place in a merchant's team. */
export interface Member {
  personId: string
  merchantId: string
  role: Role
  /** The most that a member with the role support may decide about in a day: in whole tokens, for each token. */
  moneyPerDay?: number
}

/** A valid API key. */
export interface ApiKey {
  id: string
  merchantId: string
  scopes: readonly Scope[]
  /** CIDRs, one of which must contain the caller's address; null for any address. */
  allowedIps: readonly string[] | null
  /** SHA-256 of the secret in the request, in hexadecimal. */
  hash?: string
  /** Request limits that the operator set for the merchant, by bucket, replacing the settings. */
  limits?: Readonly<Record<string, number>> | null
}

declare module "fastify" {
  interface FastifyRequest {
    /** Set on `/api/console/*` once the token, or the cookie of a session, is verified. */
    subject: Subject | undefined
    /** The session that identified the subject, unless a token did. */
    sessionId: string | undefined
    /** Set once an API key that was required or sent is verified. */
    apiKey: ApiKey | undefined
    /** The wallet (CAIP-10) that signed in; set on a subscriber's routes once the token is verified. */
    wallet: string | undefined
    /** The membership that a person's request is for; set before the handler of a route that needs one. */
    member: Member | undefined
    /** The merchant of a console request; set before its handler. */
    merchantId: string | undefined
  }
}

/**
 * `token`: a person's bearer token, or the cookie of a session. `token or key`: one of these, or an API key with a
 * scope that the route requires. `wallet`: a subscriber's token. `key`: an API key. `optional key`: an API key, or
 * none. `bearer key`: an API key as a bearer token.
 */
export type Credential = "token" | "token or key" | "wallet" | "key" | "optional key" | "bearer key"

/**
 * The credential that a path without a route needs. Strangers learn nothing there, and pages of other sites read
 * nothing.
 */
const areas: { path: RegExp; credential: Credential }[] = [
  { path: /^\/api\/console(\/|$)/, credential: "token or key" },
  { path: /^\/api\/subscriptions(?!\/(nonce|token)$)(\/|$)/, credential: "wallet" },
  { path: /^\/api\/checkouts(\/|$)/, credential: "key" },
  { path: /^\/x402\/(verify|settle|settlements)(\/|$)/, credential: "key" },
  { path: /^\/api\/paywalls\/[^/]+\/consume$/, credential: "key" },
]

const areaOf = memoize((path: string): Credential | undefined => areas.find(area => area.path.test(path))?.credential)

/**
 * The credential that a request needs, according to the row of its route or, without a route, to its path; undefined if
 * it needs none.
 */
export function credentialOf(access: RouteAccess | undefined, path: string): Credential | undefined {
  if (access === undefined) return areaOf(path)
  if (access.by === "public" || access.by === "operator") return undefined
  if (access.by === "person") return "token"
  if (access.by === "member") return access.scopes.length > 0 ? "token or key" : "token"
  return access.by
}

/** Whether a path is for merchants only. */
export const isPrivate = (path: string): boolean => ["token or key", "key"].includes(areaOf(path) ?? "")

/** Whether a key may be used from an IP address. */
export function isFrom({ allowedIps }: ApiKey, ip: string): boolean {
  if (allowedIps === null) return true
  const address = plainAddress(ip) ?? ""
  return isIP(address) !== 0 && addressRange(allowedIps).check(address, isIP(address) === 4 ? "ipv4" : "ipv6")
}

/** Throws `SCOPE_REQUIRED` if a key has none of the scopes that a route requires. */
export function checkScope({ scopes }: ApiKey, access: RouteAccess | undefined): void {
  if (!access || !("scopes" in access) || access.scopes.some(scope => scopes.includes(scope))) return
  const names = access.scopes.map(scope => `\`${scope}\``).join(" or ")
  throw new ApiError("SCOPE_REQUIRED", undefined, `This request needs an API key with the scope ${names}.`)
}

/** The catalog fields that decide who is paid, and which server gets the secrets of a bundle. */
const GUARDED = ["splitId", "originUrl"]

/** Throws `SCOPE_REQUIRED` if a key with only the scope `catalog` sets a field that decides where money goes. */
export function checkFields({ scopes }: ApiKey, access: RouteAccess | undefined, body: unknown): void {
  if (!access || !("scope" in access) || access.scope !== "catalog" || scopes.includes("console")) return
  const named = GUARDED.find(name => typeof body === "object" && body !== null && Object.hasOwn(body, name))
  if (named === undefined) return
  const message = `A key with the scope \`catalog\` can't set \`${named}\`. Use a key with the scope \`console\`, or sign in as a person.`
  throw new ApiError("SCOPE_REQUIRED", undefined, message)
}

export interface Caller {
  subject: Subject | undefined
  apiKey: ApiKey | undefined
  wallet?: string | undefined
  sessionId?: string | undefined
}

type Identified = Caller & { refusal?: unknown }

/** The credential that an answer was requested with: an API key, or a membership with the session of a browser. */
export interface Watched {
  apiKey: ApiKey | undefined
  member: Member | undefined
  sessionId: string | undefined
}

/**
 * Watches a credential while an answer lasts: `signal` aborts when the credential is revoked. Close the watch with the
 * answer.
 */
export interface Watch {
  signal: AbortSignal
  close(): void
}

/** Answers the server's questions about callers. */
export interface Identities {
  /**
   * Finds out who is calling, without a promise if no credential has to be verified; never throws. `refusal` is the
   * error that the request must get after it was counted. `credential` is what the request needs. `isRefused`: the
   * caller's address is over its limit.
   */
  authenticate(
    credential: Credential | undefined,
    headers: IncomingHttpHeaders,
    isRefused: boolean,
  ): Identified | Promise<Identified>
  /**
   * The membership that a person's request is for; `merchantId` is the merchant that it names. A person who was never a
   * member gets a new merchant if the request has a token, but not if it has a session. Throws `MERCHANT_REQUIRED`,
   * `SIGNUP_CLOSED`.
   */
  memberOf(subject: Subject, by: { sessionId: string | undefined; merchantId: string | undefined }): Promise<Member>
  /** Watches the credential of an answer that stays open. */
  watch(credential: Watched): Watch
}

/** For a server whose routes need no credential. */
export const nobodyKnown: Identities = {
  authenticate: () => ({ subject: undefined, apiKey: undefined }),
  memberOf: async () => {
    throw new ApiError("UNAUTHORIZED")
  },
  watch: () => ({ signal: new AbortController().signal, close: () => {} }),
}

/** The merchant whose API key a request carries; throws `UNAUTHORIZED` without one. */
export function callingMerchantByKey(request: FastifyRequest): string {
  if (!request.apiKey) throw keyNeeded()
  return request.apiKey.merchantId
}

/** The wallet (CAIP-10) that signed in; throws `UNAUTHORIZED` without one. */
export function callingWallet(request: FastifyRequest): string {
  if (!request.wallet) throw walletNeeded()
  return request.wallet
}

/** The refusal of a request whose wallet token is missing or invalid. */
export const walletNeeded = () =>
  new ApiError(
    "UNAUTHORIZED",
    undefined,
    "This request needs a valid token of a wallet: `Authorization: Bearer <token>`. Sign in with `POST /api/subscriptions/token`.",
  )

/** The refusal of a request whose session has ended. */
export const sessionNeeded = () =>
  new ApiError("UNAUTHORIZED", undefined, "You are signed out: this session has ended. Sign in again.")

/** The refusal of a request that needs an API key, but has an `Authorization` header, which takes precedence. */
export const keyAlone = () =>
  new ApiError(
    "UNAUTHORIZED",
    undefined,
    "This request needs an API key, `x-api-key: sk_…`, and no `Authorization`: if both are sent, `Authorization` decides.",
  )

/** The refusal of a request without a valid API key as its bearer token. */
export const bearerKeyNeeded = () =>
  new ApiError("UNAUTHORIZED", undefined, "This request needs a valid API key: `Authorization: Bearer sk_…`.")

/** The refusal of a request whose API key is missing or invalid. */
export const keyNeeded = () =>
  new ApiError("UNAUTHORIZED", undefined, "This request needs a valid API key: `x-api-key: sk_…`.")
