/**
 * The rules of webhooks, pure: which events exist and who gets them, which URLs can be registered, when a delivery is
 * retried, what a signature covers.
 */
import { createHmac } from "node:crypto"
import { isIP } from "node:net"
import type { Settings } from "../../platform/config/settings.ts"
import type { DeliveryStatus } from "../../platform/db/schema.ts"
import { addressRule, notPublic } from "../../platform/net/public-address.ts"

/** How many deliveries the numbers of an endpoint count at most, the newest: so many are read in a third of a second. */
export const STATS_AT_MOST = 20_000

/** What `*` means, besides reversals of events that were sent. */
export const standardEvents = [
  "checkout.session.completed",
  "payment.refunded",
  "subscription.renewal.created",
] as const

/** Events for endpoints that subscribe to them by name. */
export const namedEvents = [
  "checkout.confirmed",
  "checkout.failed",
  "checkout.expired",
  "checkout.authorized",
  "checkout.voided",
  "paywall.granted",
  "payment.exception",
  "subscription.past_due",
  "subscription.canceled",
  "subscription.resumed",
] as const

/**
 * Events that reverse an earlier event: for endpoints that name them, for `*`, and for everyone who was sent the
 * earlier event.
 */
export const reversalEvents = ["checkout.session.reversed", "paywall.reversed"] as const

/**
 * Events that every endpoint gets, whatever its subscriptions, at its address when they are emitted: moving, pausing or
 * deleting the endpoint afterwards does not silence it.
 */
const unconditionalEvents = [
  "settings.payout_address_changed",
  "settings.split_changed",
  "settings.webhook_changed",
] as const

/** Whether an event is one of {@link unconditionalEvents}. */
export const isUnconditional = (type: EventType): boolean => unconditionalEvents.some(each => each === type)

/** The address that a listener has, as it has no URL: its deliveries are pulled. */
export const listenerUrl = (id: string): string => `listener:${id}`

/** Whether the id of an endpoint, or the name of a lane, is that of a listener. */
export const isListener = (id: string): boolean => id.startsWith("lsn_")

/** The origin of an endpoint's URL; a listener's whole address, in which nothing is secret. */
export const originOf = (url: string): string => (url.startsWith("listener:") ? url : new URL(url).origin)

/** The event that tries an endpoint; nobody can subscribe to it. */
export const PING = "ping"

/** The types that events can be filtered by. */
export const eventTypes = [...standardEvents, ...namedEvents, ...reversalEvents, ...unconditionalEvents, PING] as const

export type EventType = (typeof eventTypes)[number]

/** All subscriptions that can be registered. */
export const subscribable = ["*", ...standardEvents, ...namedEvents, ...reversalEvents, ...unconditionalEvents] as const

/** Whether an endpoint with these subscriptions gets an event. */
export function wants(subscriptions: readonly string[], type: EventType): boolean {
  if (isUnconditional(type) || subscriptions.includes(type)) return true
  return subscriptions.includes("*") && [...standardEvents, ...reversalEvents].some(each => each === type)
}

/**
 * Why a URL can't be registered, as words that complete "url …", or undefined. The parsed URL is checked, because other
 * spellings of an address (`http://2130706433`, `http://0177.1`) become literals once parsed.
 */
export function urlFault(
  url: string,
  { httpsOnly, allows }: { httpsOnly: boolean; allows: (address: string) => boolean },
): string | undefined {
  if (!/^https?:\/\/[^\s\\]+$/i.test(url) || !URL.canParse(url))
    return `must be an ${httpsOnly ? "https" : "http(s)"} address`
  const { protocol, username, password, hostname } = new URL(url)
  if (httpsOnly && protocol !== "https:") return "must be an https address: live mode sends nothing over http"
  if (username !== "" || password !== "") return "must not contain a user name or a password"
  if (url.includes("#")) return "must not have a fragment (#…): it is never sent"
  const host = hostname.replace(/^\[|\]$/g, "")
  if (isIP(host) !== 0 && !allows(host)) return notPublic(host)
  return undefined
}

/** Why this service can't send to a URL, as words that follow its name, or undefined. */
export const receiverFault = ({ mode, webhooks }: Settings, url: string): string | undefined =>
  urlFault(url, { httpsOnly: mode === "live", allows: addressRule(webhooks.allowCidrs) })

const MINUTE_MS = 60_000
/** The delay after each attempt but the last. */
export const retryDelaysMs: readonly number[] = [1, 5, 30, 120, 480].map(minutes => minutes * MINUTE_MS)
/** Spreads the retries of deliveries that failed together. */
const JITTER = 0.1
const RETRY_AFTER_AT_MOST = 2

/** Why a status is not a success, in words, or null. */
export const faultOf = (status: number): string | null => {
  if (status >= 200 && status < 300) return null
  return status === 410 ? "answered 410: it wants no more events" : `answered ${status}`
}

/** The part of an attempt that decides what happens next. */
export interface Outcome {
  /** Null when no answer came. */
  status: number | null
  /** Null for a success. */
  error: string | null
  /** The delay that a 429 or 503 asked for. */
  retryAfterMs: number | undefined
}

/**
 * The state of a delivery after its `attempt`-th attempt of this count, and the milliseconds until its retry; `random`
 * is from 0 to 1. A Retry-After can only lengthen the delay, at most to twice.
 *
 * @example afterAttempt(6, { status: 500, error: "answered 500", retryAfterMs: undefined }, 0) // { status: "failed" }
 */
export function afterAttempt(
  attempt: number,
  { status, error, retryAfterMs = 0 }: Outcome,
  random: number,
): { status: DeliveryStatus; inMs?: number } {
  if (error === null) return { status: "delivered" }
  const delayMs = retryDelaysMs[attempt - 1]
  if (delayMs === undefined || status === 410) return { status: "failed" }
  const asked = Math.min(retryAfterMs, delayMs * RETRY_AFTER_AT_MOST)
  return { status: "pending", inMs: Math.round(Math.max(asked, delayMs * (1 + JITTER * random))) }
}

/** The milliseconds of a Retry-After header, in seconds or as a date; undefined when it can't be read. */
export function retryAfterOf(header: string | undefined, nowMs: number): number | undefined {
  if (header === undefined) return undefined
  if (/^\d{1,9}$/.test(header)) return Number.parseInt(header, 10) * 1_000
  // Date.parse accepts nearly any text as some year.
  const at = /^[A-Z][a-z]{2}, .* GMT$/.test(header) ? Date.parse(header) : Number.NaN
  return Number.isNaN(at) ? undefined : Math.max(0, at - nowMs)
}

/**
 * Whether an answer to the probe at registration shows that there is no receiver. A receiver that checks signatures has
 * to refuse the probe, so a refusal is fine.
 */
export const isNoReceiver = (status: number): boolean =>
  (status >= 300 && status < 400) || [404, 410, 502, 503, 504].includes(status)

const hmac = (key: string | Uint8Array, text: string) => createHmac("sha256", key).update(text)

/** The part of a secret that Standard Webhooks uses as the key. */
const keyBytes = (secret: string): Uint8Array => Buffer.from(secret.slice("whsec_".length), "base64")

/**
 * The headers that sign a body, `t` in Unix seconds. Every valid secret signs, newest first; the header with a single
 * signature uses the newest. The key of the first two headers is the whole secret, `whsec_` included.
 */
export function signatureHeaders(
  secrets: readonly string[],
  { eventId, body, t }: { eventId: string; body: string; t: number },
): Record<string, string> {
  const stamped = `${t}.${body}`
  const standard = `${eventId}.${stamped}`
  const [newest = ""] = secrets
  return {
    "service-signature": `t=${t},${secrets.map(secret => `v1=${hmac(secret, stamped).digest("hex")}`).join(",")}`,
    "x-service-signature": `sha256=${hmac(newest, body).digest("hex")}`,
    "webhook-id": eventId,
    "webhook-timestamp": `${t}`,
    "webhook-signature": secrets.map(secret => `v1,${hmac(keyBytes(secret), standard).digest("base64")}`).join(" "),
  }
}
