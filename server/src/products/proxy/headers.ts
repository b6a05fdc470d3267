/**
 * Decides which headers pass between a caller and an origin. Three kinds are dropped. The first kind belongs to one
 * connection, and the second identifies or authorizes a client at another server. The third kind could make a server
 * act on a different request than the paid one. Pure.
 */

/**
 * The headers that belong to one connection (RFC 9110, 7.6.1), in both directions, in addition to those that
 * `Connection` names.
 */
const ofConnection = new Set([
  "connection",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "http2-settings",
  "expect",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-authentication-info",
  "proxy-connection",
])

/** Headers of the caller's request that the origin does not get. */
const keptFromOrigin = new Set([
  // The forwarder writes these for the origin.
  "host",
  "content-length",
  // Credentials. The caller's credentials are meant for this service, and the origin gets the merchant's.
  "authorization",
  "cookie",
  "cookie2",
  "x-api-key",
  "x-payment",
  "wallet-signature",
  "sign-in-with-x",
  // Unverified claims about who and where the caller is.
  "forwarded",
  "via",
  "x-real-ip",
  "x-client-ip",
  "client-ip",
  "true-client-ip",
  "x-cluster-client-ip",
  "x-host",
  "x-original-forwarded-for",
  "cf-connecting-ip",
  "cf-connecting-ipv6",
  "fastly-client-ip",
  "x-original-host",
  // These headers ask for another method or path than the paid one.
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-url",
  "x-rewrite-url",
  // Browsers send these, but this service decides whether a page may read the answer.
  "origin",
  "referer",
])
const prefixesKeptFromOrigin = ["x-forwarded", "payment-", "x-payment-", "sluice-", "proxy-", "sec-", "access-control-"]

/** Headers of an origin's answer that the caller does not get. */
const keptFromCaller = new Set([
  // This name would replace the prototype of the object that holds the reply's headers.
  "__proto__",
  // These headers would apply to our own host, and so to our pages and to other bundles, which the origin does not
  // own.
  "set-cookie",
  "set-cookie2",
  "strict-transport-security",
  "public-key-pins",
  "expect-ct",
  "clear-site-data",
  "alt-svc",
  "service-worker-allowed",
  "report-to",
  "reporting-endpoints",
  "nel",
  "x-frame-options",
  "content-security-policy",
  "content-security-policy-report-only",
  "x-content-type-options",
  "use-as-dictionary",
  "available-dictionary",
  "speculation-rules",
  "accept-ch",
  "critical-ch",
  "set-login",
  "shared-storage-write",
  // These ask for a credential for the origin, which the caller does not have.
  "www-authenticate",
  "authentication-info",
  // No intermediary may store a paid answer.
  "cache-control",
  "expires",
  "pragma",
  "age",
  "surrogate-control",
  "cdn-cache-control",
  // These point elsewhere: redirects are not followed, and the origin's paths are not ours.
  "location",
  "content-location",
  "refresh",
  // A proxy in front of this service would obey these headers.
  "x-sendfile",
  "x-lighttpd-send-file",
  "x-litespeed-location",
  "x-reproxy-url",
  "x-request-id",
  "via",
])
const prefixesKeptFromCaller = [
  "access-control-",
  "x-accel-",
  "payment-",
  "x-payment",
  "sluice-",
  "proxy-",
  "x-ratelimit-",
  // Sessions that a browser binds to a key, under both names in the draft, and all other browser headers.
  "sec-",
  "secure-session-",
  "attribution-reporting-",
]

/** Added to each answer, so that an origin's page can't act as a page of this service. */
const added = { "content-security-policy": "sandbox", "x-content-type-options": "nosniff" }

/** Whether a header of this name is reserved, so that a merchant can't add it to requests for its origin. */
export const isReservedHeader = (name: string): boolean =>
  ofConnection.has(name) ||
  ["host", "content-length", "forwarded", "via", "origin"].includes(name) ||
  ["sluice-", "payment-", "x-payment", "proxy-", "sec-", "x-forwarded"].some(prefix => name.startsWith(prefix))

const isToken = /^[!#$%&'*+.^`|~\w-]+$/
/** Whether a value can be sent: visible ASCII, spaces and tabs. */
export const isHeaderValue = (value: string): boolean => /^[\t\x20-\x7e]*$/.test(value)

/**
 * The headers for the origin, as name, value, name, value: the caller's (`raw`, in the same form) without those that
 * are dropped, then `own`. Headers in `own` replace the caller's headers of the same name.
 */
export function headersForOrigin(raw: readonly string[], own: Readonly<Record<string, string>>): string[] {
  const pairs = pairsOf(raw)
  const named = namedByConnection(pairs.filter(([name]) => name === "connection").map(([, value]) => value))
  const passed = pairs.filter(
    ([name, value]) =>
      !ofConnection.has(name) &&
      !named.has(name) &&
      !keptFromOrigin.has(name) &&
      !prefixesKeptFromOrigin.some(prefix => name.startsWith(prefix)) &&
      !Object.hasOwn(own, name) &&
      // Many servers treat `sluice_payment` and `sluice-payment` as the same name.
      !name.includes("_") &&
      isHeaderValue(value),
  )
  return [...passed, ...Object.entries(own)].flat()
}

/**
 * The headers for the caller of an answer with this status: the origin's without those that are dropped, and those
 * that this service adds.
 */
export function headersForCaller(
  status: number,
  from: Readonly<Record<string, string | string[] | undefined>>,
): Record<string, string | string[]> {
  const named = namedByConnection([from.connection ?? []].flat())
  const passed = Object.entries(from).flatMap(([name, value]): [string, string | string[]][] => {
    const isKept =
      value === undefined ||
      !isToken.test(name) ||
      ofConnection.has(name) ||
      named.has(name) ||
      // An answer with status 204 has no length, whatever the origin says (RFC 9110, 8.6).
      (status === 204 && name === "content-length") ||
      keptFromCaller.has(name) ||
      prefixesKeptFromCaller.some(prefix => name.startsWith(prefix)) ||
      // Node would refuse to send such a value, and only after the payment.
      ![value].flat().every(each => /^[\t\x20-\x7e\x80-\xff]*$/.test(each))
    return isKept ? [] : [[name, value]]
  })
  return { ...Object.fromEntries(passed), ...added }
}

/** The name by which this service recognizes requests that it forwarded itself. */
const PSEUDONYM = "sluice"
export const VIA = `1.1 ${PSEUDONYM}`

/** Whether a request already passed through this kind of proxy. An origin that leads back here would cause a loop. */
export const isLoop = (via: string | string[] | undefined): boolean =>
  [via ?? []]
    .flat()
    .join(",")
    .split(",")
    .some(hop => hop.trim().split(/\s+/)[1]?.toLowerCase() === PSEUDONYM)

const pairsOf = (raw: readonly string[]): [name: string, value: string][] =>
  raw.flatMap((name, i) => (i % 2 === 0 ? [[name.toLowerCase(), raw[i + 1] ?? ""] as [string, string]] : []))

const namedByConnection = (values: readonly string[]): Set<string> =>
  new Set(values.flatMap(value => value.split(",").map(name => name.trim().toLowerCase())))
