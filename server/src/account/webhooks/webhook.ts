/** The pure rules of webhooks: the events and who gets them, valid URLs, retry times, and what a signature covers. */
import { createHmac } from "node:crypto"
import { isIP } from "node:net"
import type { Settings } from "../../platform/config/settings.ts"
import type { DeliveryStatus } from "../../platform/db/schema.ts"
import { addressRule, notPublic } from "../../platform/net/public-address.ts"

/**
 * The maximum number of deliveries that an endpoint's statistics count, newest first. Reading these deliveries takes a
 * third of a second.
 */
export const STATS_AT_MOST = 20_000

/** The events that `*` covers, in addition to reversals of events that were sent. */
export const standardEvents = [
  "checkout.session.completed",
  "payment.refunded",
  "subscription.renewal.created",
] as const

/** Events only for endpoints that subscribe to them by name. */
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
 * Events that reverse an earlier event. An endpoint gets such an event if it names the event, uses `*`, or was sent the
 * earlier event.
 */
export const reversalEvents = ["checkout.session.reversed", "paywall.reversed"] as const

/**
 * Events that every endpoint gets at the address that it has at the time, whatever its subscriptions. Moving, pausing
 * or deleting the endpoint afterwards does not silence such events.
 */
const unconditionalEvents = [
  "settings.payout_address_changed",
  "settings.split_changed",
  "settings.webhook_changed",
] as const

/** Whether an event is one of {@link unconditionalEvents}. */
export const isUnconditional = (type: EventType): boolean => unconditionalEvents.some(each => each === type)

/** A listener's address. A listener has no URL, because its deliveries are pulled. */
export const listenerUrl = (id: string): string => `listener:${id}`

/** Whether an endpoint id or a lane's name belongs to a listener. */
export const isListener = (id: string): boolean => id.startsWith("lsn_")

/** The origin of an endpoint's URL, or a listener's whole address, which contains nothing secret. */
export const originOf = (url: string): string => (url.startsWith("listener:") ? url : new URL(url).origin)

/** The event that tests an endpoint; nobody can subscribe to it. */
export const PING = "ping"

/** Event types that can be used as a filter. */
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
 * Why a URL can't be registered, in words that complete "url …"; undefined if it can. The check uses the parsed URL,
 * because parsing turns other spellings of an address (`http://2130706433`, `http://0177.1`) into literals.
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

/** Why this service can't send to a URL, in words that follow the URL's name; undefined if it can. */
export const receiverFault = ({ mode, webhooks }: Settings, url: string): string | undefined =>
  urlFault(url, { httpsOnly: mode === "live", allows: addressRule(webhooks.allowCidrs) })

const MINUTE_MS = 60_000
/** The delay after each attempt except the last. */
export const retryDelaysMs: readonly number[] = [1, 5, 30, 120, 480].map(minutes => minutes * MINUTE_MS)
/** Spreads the retries of deliveries that failed together. */
const JITTER = 0.1
const RETRY_AFTER_AT_MOST = 2

/** Why a status is not a success, in words; null for a success. */
export const faultOf = (status: number): string | null => {
  if (status >= 200 && status < 300) return null
  return status === 410 ? "answered 410, so it wants no more events" : `answered ${status}`
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
 * The state of a delivery after attempt number `attempt` of the current count, and the milliseconds until its retry.
 * `random` is from 0 to 1. A Retry-After can only lengthen the delay, to at most twice its length.
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

/** Parses a Retry-After header, in seconds or as a date, to milliseconds; undefined if it is unreadable. */
export function retryAfterOf(header: string | undefined, nowMs: number): number | undefined {
  if (header === undefined) return undefined
  if (/^\d{1,9}$/.test(header)) return Number.parseInt(header, 10) * 1_000
  // Date.parse reads almost any text as some year.
  const at = /^[A-Z][a-z]{2}, .* GMT$/.test(header) ? Date.parse(header) : Number.NaN
  return Number.isNaN(at) ? undefined : Math.max(0, at - nowMs)
}

/**
 * Whether the answer to the registration probe shows that there is no receiver. A refusal is fine, because a receiver
 * that checks signatures must refuse the probe.
 */
export const isNoReceiver = (status: number): boolean =>
  (status >= 300 && status < 400) || [404, 410, 502, 503, 504].includes(status)

const hmac = (key: string | Uint8Array, text: string) => createHmac("sha256", key).update(text)

/** The part of a secret that is the Standard Webhooks key. */
const keyBytes = (secret: string): Uint8Array => Buffer.from(secret.slice("whsec_".length), "base64")

/**
 * The headers that sign a body, `t` in Unix seconds. Every valid secret signs, newest first. The single-signature
 * header uses the newest. The key of the first two headers is the whole secret, including `whsec_`.
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
