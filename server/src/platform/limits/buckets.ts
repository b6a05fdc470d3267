/** The table of all limits: which requests count against which limit. */
import { hash } from "node:crypto"
import { isIPv4 } from "node:net"
import ipaddr from "ipaddr.js"
import type { Bucket, Settings } from "../config/settings.ts"
import { memoize } from "../net/memoize.ts"
import type { Count } from "./sliding-log.ts"

/** The credential by which a request is counted. All other requests are counted by their IP address. */
export type Credential = "none" | "token" | "apiKey"

export interface LimitRow {
  bucket: Bucket
  /** Undefined: any method. */
  method?: string
  /**
   * `:name` is one part of a path, `(a|b)` one of the listed parts; a final `/*` is everything that follows, or
   * nothing.
   */
  path: string
  credential: Credential
}

/**
 * All limits, each per minute. A request counts against the first row that matches it and accepts its credential;
 * otherwise against the first row that matches.
 */
export const limitRows: readonly LimitRow[] = [
  { bucket: "auth", method: "POST", path: "/api/auth/*", credential: "none" },
  { bucket: "auth", method: "POST", path: "/api/console/session", credential: "none" },
  { bucket: "device", path: "/api/device/*", credential: "none" },
  { bucket: "payConfirm", method: "POST", path: "/api/pay/confirm", credential: "none" },
  { bucket: "payConfirm", method: "POST", path: "/api/pay/authorize", credential: "none" },
  { bucket: "payConfirm", method: "POST", path: "/api/pay/payer-info", credential: "none" },
  { bucket: "payStatus", method: "GET", path: "/api/pay/status/:id", credential: "none" },
  { bucket: "paywallVerify", method: "GET", path: "/api/paywalls/:id/verify", credential: "none" },
  { bucket: "paywallPay", method: "POST", path: "/api/paywalls/:id/pay", credential: "none" },
  { bucket: "listener", path: "/api/console/listeners/:id/*", credential: "token" },
  { bucket: "listener", path: "/api/console/listeners/:id/*", credential: "apiKey" },
  { bucket: "console", path: "/api/console/*", credential: "token" },
  { bucket: "console", path: "/api/console/*", credential: "apiKey" },
  { bucket: "consume", method: "GET", path: "/api/paywalls/:id/verify", credential: "apiKey" },
  { bucket: "consume", method: "POST", path: "/api/paywalls/:id/consume", credential: "apiKey" },
  { bucket: "checkout", method: "POST", path: "/api/checkouts", credential: "apiKey" },
  { bucket: "merchant", path: "/api/checkouts/*", credential: "apiKey" },
  { bucket: "facilitator", path: "/x402/(verify|settle|settlements)/*", credential: "apiKey" },
  { bucket: "mcp", method: "POST", path: "/mcp", credential: "apiKey" },
  { bucket: "agent", path: "/api/(p|agent)/*", credential: "none" },
  { bucket: "linkStart", method: "POST", path: "/api/pay/sessions", credential: "none" },
  { bucket: "linkStart", path: "/p/:slug/start", credential: "none" },
  { bucket: "linkStart", method: "POST", path: "/api/paywalls/:id/subscribe", credential: "none" },
  { bucket: "linkStart", path: "/paywall/:id/subscribe", credential: "none" },
  // These pages store rows and send requests to the identity provider.
  { bucket: "public", path: "/console/sign-in", credential: "none" },
  { bucket: "public", path: "/console/callback", credential: "none" },
  { bucket: "public", method: "POST", path: "/console/device", credential: "none" },
  {
    bucket: "pages",
    path: "/(pay|paywall|p|receipt|return|address|logo|verify|invoice|subscriptions|console)/*",
    credential: "none",
  },
  { bucket: "public", path: "/*", credential: "none" },
]

/** The buckets that requests with an API key count against. The operator can set these limits for a single merchant. */
export const keyBuckets: readonly Bucket[] = [
  ...new Set(limitRows.filter(({ credential }) => credential === "apiKey").map(({ bucket }) => bucket)),
]

/** Buckets that count separately: their requests do not count against the address's total. */
const visits: ReadonlySet<Bucket> = new Set(["pages", "linkStart", "agent", "device"])

const patternOf = (path: string): RegExp =>
  new RegExp(`^${path.replace(/\/:\w+/g, "/[^/]+").replace(/\/\*$/, "(/.*)?")}$`)

const rows = limitRows.map(row => ({ ...row, pattern: patternOf(row.path) }))

/**
 * Whether a path has no limit. Machines that ask for health and metrics must always get an answer. A page of the
 * documents loads many parts together, and the sandbox's own routes are not part of the product. The files of the pages
 * and of the console are in memory, and browsers cache them.
 */
export const isUnlimited = (path: string): boolean =>
  /^\/(healthz|readyz|metrics|embed\.js|(docs|sandbox|assets|console\/assets)(\/.*)?)$/.test(path)

export const WINDOW_MS = 60_000

/**
 * How many API keys a merchant may have at a time. Together, these keys are admitted at most this many times the limit
 * of one key, even if they are revoked and created again.
 */
export const KEYS_PER_MERCHANT = 20

/**
 * The caller that is counted: the subject of a valid token, a valid API key, otherwise an IP address (undefined if the
 * peer has disconnected).
 */
export interface Caller {
  subject: string | undefined
  apiKey: { id: string; merchantId: string; limits?: Readonly<Record<string, number>> | null } | undefined
  ip: string | undefined
}

/**
 * The counters of a request; empty if it is not limited. With a credential that the route accepts, only the credential
 * counts. A subject is hashed, because it may be long, may contain a brace, and may identify a person. Without a
 * credential, the request is counted by its IP address: for its route, and for all requests of that address. A visit of
 * a page counts only against its own bucket. Payers who reload a page, open it twice, or share an address in one room
 * must still be able to pay.
 */
export function countsOf(limits: Settings["limits"], method: string, path: string, caller: Caller): Count[] {
  // A HEAD runs the route of its GET.
  const fitting = fittingOf(`${method === "HEAD" ? "GET" : method} ${path}`)
  if (!fitting) return []
  for (const { bucket, credential } of fitting) {
    if (credential === "token" && caller.subject !== undefined)
      return countsAgainst(limits, hash("sha256", caller.subject, "base64url"), [bucket])
    if (credential === "apiKey" && caller.apiKey !== undefined) return keyCounts(limits, caller.apiKey, bucket)
  }
  const bucket = fitting[0]?.bucket ?? "public"
  const isOne = bucket === "public" || visits.has(bucket)
  return countsAgainst(limits, addressGroup(caller.ip), isOne ? [bucket] : [bucket, "public"])
}

/** The rows that match a method and a path, separated by a space; undefined if requests are not limited. */
const fittingOf = memoize((request: string) => {
  const method = request.slice(0, request.indexOf(" "))
  const path = request.slice(request.indexOf(" ") + 1)
  if (isUnlimited(path)) return undefined
  return rows.filter(row => (row.method ?? method) === method && row.pattern.test(path))
})

/** The keys of one caller have the same hash tag, so that a cluster stores and decides them together. */
const countsAgainst = (limits: Settings["limits"], id: string, buckets: Bucket[]): Count[] =>
  buckets.filter(bucket => limits[bucket] > 0).map(bucket => ({ key: `{${id}}:${bucket}`, limit: limits[bucket] }))

/** A key counts on its own, and together with all keys that its merchant has or had. */
function keyCounts(
  limits: Settings["limits"],
  { id, merchantId, limits: own }: NonNullable<Caller["apiKey"]>,
  bucket: Bucket,
): Count[] {
  const limit = own?.[bucket] ?? limits[bucket]
  if (limit <= 0) return []
  const key = `{${merchantId}}`
  return [
    { key: `${key}:${id}:${bucket}`, limit },
    { key: `${key}:${bucket}`, limit: limit * KEYS_PER_MERCHANT },
  ]
}

/**
 * An IP address in its usual form. An IPv4 address written as IPv6 becomes IPv4, and a port added by a proxy is
 * removed. Undefined for text that is not an address.
 *
 * @example plainAddress("[2001:DB8::1]:443") // "2001:db8::1"
 */
export function plainAddress(ip: string | undefined): string | undefined {
  return ip === undefined || isIPv4(ip) ? ip : parsed(ip)?.toString().split("%")[0]
}

function parsed(ip: string): ipaddr.IPv4 | ipaddr.IPv6 | undefined {
  const bare = ip.replace(/^\[(.*)\](:\d+)?$/, "$1").replace(/^(\d+\.\d+\.\d+\.\d+):\d+$/, "$1")
  return ipaddr.isValid(bare) ? ipaddr.process(bare) : undefined
}

/**
 * The group in which an IP address is counted. An IPv4 address is its own group, even if written as IPv6. An IPv6
 * address counts as its /64, because one customer has all of it. A port added by a proxy is ignored. Texts that are not
 * addresses share a group.
 *
 * @example addressGroup("::ffff:192.0.2.7") // "192.0.2.7"
 * @example addressGroup("2001:db8:1:2:3:4:5:6") // "2001:db8:1:2"
 */
export function addressGroup(ip: string | undefined): string {
  if (ip === undefined || isIPv4(ip)) return ip ?? "nowhere"
  const address = parsed(ip)
  if (!address) return "nowhere"
  return address instanceof ipaddr.IPv6
    ? address.parts
        .slice(0, 4)
        .map(part => part.toString(16))
        .join(":")
    : address.toString()
}
