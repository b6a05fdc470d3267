/**
 * Which headers pass between a caller and an origin. What belongs to one connection, what identifies or authorizes somebody to
 * another server than the one it was meant for, and what could make a server act on another request than the one that was paid
 * for, stays behind. Pure.
 */

/** Of one connection (RFC 9110, 7.6.1), in both directions; and what `Connection` names. */
const ofConnection = new Set([
  ...["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "expect"],
  ...["proxy-authenticate", "proxy-authorization", "proxy-authentication-info", "proxy-connection"],
])

/** What a caller's request keeps from the origin. */
const keptFromOrigin = new Set([
  // Made again for the origin.
  ...["host", "content-length"],
  // Credentials: those of the caller are for us, and the origin gets the merchant's.
  ...["authorization", "cookie", "cookie2", "x-api-key", "x-payment", "wallet-signature", "sign-in-with-x"],
  // Who and where the caller is: nobody has checked what it says.
  ...["forwarded", "via", "x-real-ip", "x-client-ip", "client-ip", "true-client-ip", "x-cluster-client-ip", "x-host"],
  ...["x-original-forwarded-for", "cf-connecting-ip", "cf-connecting-ipv6", "fastly-client-ip", "x-original-host"],
  // Another method or path than the one that was paid for.
  ...["x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"],
  // Of browsers: whether a page may read the answer is decided here.
  ...["origin", "referer"],
])
const prefixesKeptFromOrigin = ["x-forwarded", "payment-", "x-payment-", "sluice-", "proxy-", "sec-", "access-control-"]

/** What an origin's answer keeps from the caller. */
const keptFromCaller = new Set([
  // It would be set for our own host, whose pages and other bundles are no business of this origin.
  ...["set-cookie", "set-cookie2", "strict-transport-security", "public-key-pins", "expect-ct", "clear-site-data"],
  ...["alt-svc", "service-worker-allowed", "report-to", "reporting-endpoints", "nel", "x-frame-options"],
  ...["content-security-policy", "content-security-policy-report-only", "x-content-type-options"],
  // It asks for a credential of the origin, which the caller does not have.
  ...["www-authenticate", "authentication-info"],
  // An answer that was paid for is not stored by anyone in between.
  ...["cache-control", "expires", "pragma", "age", "surrogate-control", "cdn-cache-control"],
  // Elsewhere: redirects are not passed on, and paths of the origin are not ours.
  ...["location", "content-location", "refresh"],
  // A proxy in front of us would obey these.
  ...["x-sendfile", "x-lighttpd-send-file", "x-litespeed-location", "x-reproxy-url", "x-request-id", "via"],
])
const prefixesKeptFromCaller = [
  ...["access-control-", "x-accel-", "payment-", "x-payment", "sluice-", "proxy-", "x-ratelimit-"],
]

/** What is added to each answer: an origin's page must not act as a page of this service. */
const added = { "content-security-policy": "sandbox", "x-content-type-options": "nosniff" }

/** Names that a merchant can't add to the requests to its origin. */
export const isReservedHeader = (name: string): boolean =>
  ofConnection.has(name) ||
  ["host", "content-length", "forwarded", "via", "origin"].includes(name) ||
  ["sluice-", "payment-", "x-payment", "proxy-", "sec-", "x-forwarded"].some(prefix => name.startsWith(prefix))

const isToken = /^[!#$%&'*+.^`|~\w-]+$/
/** Whether a value can be sent: visible ASCII, spaces and tabs. */
export const isHeaderValue = (value: string): boolean => /^[\t\x20-\x7e]*$/.test(value)

/**
 * The headers for the origin, as name, value, name, value: the caller's without what stays behind, then `own`, which replaces
 * headers of the same name. `raw` is the caller's in the same form.
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
      // Many servers read `sluice_payment` and `sluice-payment` as the same name.
      !name.includes("_") &&
      isHeaderValue(value),
  )
  return [...passed, ...Object.entries(own)].flat()
}

/** The headers for the caller: the origin's without what stays behind, and what this service adds. */
export function headersForCaller(
  from: Readonly<Record<string, string | string[] | undefined>>,
): Record<string, string | string[]> {
  const named = namedByConnection([from.connection ?? []].flat())
  const passed = Object.entries(from).flatMap(([name, value]): [string, string | string[]][] => {
    const isKept =
      value === undefined ||
      !isToken.test(name) ||
      ofConnection.has(name) ||
      named.has(name) ||
      keptFromCaller.has(name) ||
      prefixesKeptFromCaller.some(prefix => name.startsWith(prefix)) ||
      // Node would refuse to send it, after the payment.
      ![value].flat().every(each => /^[\t\x20-\x7e\x80-\xff]*$/.test(each))
    return isKept ? [] : [[name, value]]
  })
  return { ...Object.fromEntries(passed), ...added }
}

/** The name by which this service recognizes a request that it has forwarded itself. */
const PSEUDONYM = "sluice"
export const VIA = `1.1 ${PSEUDONYM}`

/** Whether a request has passed a proxy of this kind before: an origin that leads back here would be asked for ever. */
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
