/** Which requests count against which limit: the one table. */
import type { Bucket, Settings } from "../settings.ts"
import type { Count } from "./sliding-log.ts"

/** Routes with a limit of their own. All limits are requests a minute, by caller. */
const rows: { bucket: Bucket; method?: string; path: RegExp }[] = [
  { bucket: "auth", method: "POST", path: /^\/api\/auth\// },
  { bucket: "checkout", method: "POST", path: /^\/api\/checkouts$/ },
  { bucket: "payConfirm", method: "POST", path: /^\/api\/pay\/confirm$/ },
  { bucket: "payStatus", method: "GET", path: /^\/api\/pay\/status\/[^/]+$/ },
  { bucket: "console", path: /^\/api\/console(\/|$)/ },
  { bucket: "paywallVerify", method: "GET", path: /^\/api\/paywalls\/[^/]+\/verify$/ },
  { bucket: "paywallPay", method: "POST", path: /^\/api\/paywalls\/[^/]+\/pay$/ },
]

/**
 * Whether a path has no limit. Health and metrics are asked by machines that must always get an answer, a page of the
 * documents asks for many parts at once, and the sandbox's own routes are no product.
 */
export const isUnlimited = (path: string): boolean => /^\/(healthz|readyz|metrics|(docs|sandbox)(\/.*)?)$/.test(path)

export const WINDOW_MS = 60_000

/** Who is counted: a token's subject for the console, else an IP address. */
export interface Caller {
  subject: string | undefined
  ip: string
}

/**
 * What a request counts against; empty when it is not limited. A caller without a valid credential counts by IP, against
 * its route and against all that the IP does.
 */
export function countsOf(limits: Settings["limits"], method: string, path: string, caller: Caller): Count[] {
  if (isUnlimited(path)) return []
  const bucket = rows.find(row => (row.method ?? method) === method && row.path.test(path))?.bucket
  const count = (name: Bucket, who: string): Count => ({ key: `${name} ${who}`, limit: limits[name] })
  const from = addressGroup(caller.ip)
  const counts =
    caller.subject === undefined
      ? [...(bucket && bucket !== "console" ? [count(bucket, from)] : []), count("public", from)]
      : [count("console", caller.subject)]
  return counts.filter(({ limit }) => limit > 0)
}

/**
 * Who an IP address stands for: an IPv4 address, also when it is written as IPv6, or the /64 of an IPv6 address, of which
 * one customer has all.
 *
 * @example addressGroup("::ffff:192.0.2.7") // "192.0.2.7"
 * @example addressGroup("2001:db8:1:2:3:4:5:6") // "2001:db8:1:2"
 */
export function addressGroup(ip: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(ip)
  if (mapped?.[1]) return mapped[1]
  if (!ip.includes(":")) return ip
  const [head = "", tail] = (ip.split("%", 1)[0] ?? "").toLowerCase().split("::")
  const left = head === "" ? [] : head.split(":")
  const right = tail === undefined || tail === "" ? [] : tail.split(":")
  const zeros = tail === undefined ? [] : Array(Math.max(0, 8 - left.length - right.length)).fill("0")
  return [...left, ...zeros, ...right]
    .slice(0, 4)
    .map(group => group.replace(/^0+(?=.)/, ""))
    .join(":")
}
