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
  const counts =
    caller.subject === undefined
      ? [...(bucket && bucket !== "console" ? [count(bucket, caller.ip)] : []), count("public", caller.ip)]
      : [count("console", caller.subject)]
  return counts.filter(({ limit }) => limit > 0)
}
