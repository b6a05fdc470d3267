/** The step that counts a request, and shows its caller how much of the limit is left. */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../context.ts"
import { errorTable } from "../errors.ts"
import { addressGroup, type Caller, countsOf } from "../limits/buckets.ts"
import type { Verdict } from "../limits/sliding-log.ts"
import type { ErrorPage } from "./error-page.ts"
import { pathOf } from "./path.ts"
import { whenReady } from "./when-ready.ts"

/** The verified identities of the caller. An undefined identity was not given, or is not valid. */
export type Credentials = Omit<Caller, "ip">

export const nobody: Credentials = { subject: undefined, apiKey: undefined }

/** How many addresses over their limit are remembered. Beyond this number, some addresses cost a query again. */
const MAX_REFUSED = 10_000

export interface Limiter {
  /** Counts a request and writes the headers; returns false when the request was answered with 429. */
  admit(request: FastifyRequest, reply: FastifyReply, caller: Credentials): boolean | Promise<boolean>
  /** Whether the address of a request was refused, and would be refused again now. */
  isRefused(request: FastifyRequest): boolean
}

/** Rate limiting as a step of a request. `errorPage` creates the page that a browser gets instead of JSON. */
export function limiter({ settings, limits }: Pick<Context, "settings" | "limits">, errorPage?: ErrorPage): Limiter {
  /** The time until which each address is refused, by the monotonic clock. */
  const refused = new Map<string, number>()
  const isRefused = ({ ip }: FastifyRequest) => (refused.get(addressGroup(ip)) ?? 0) > performance.now()
  const admit: Limiter["admit"] = (request, reply, caller) => {
    const counts = countsOf(settings.limits, request.method, pathOf(request), { ...caller, ip: request.ip })
    return counts.length === 0 || whenReady(limits.admit(counts), verdict => answer(request, reply, caller, verdict))
  }
  const answer = (request: FastifyRequest, reply: FastifyReply, caller: Credentials, verdict: Verdict): boolean => {
    reply.header("x-ratelimit-limit", verdict.limit)
    reply.header("x-ratelimit-remaining", verdict.remaining)
    // By this machine's wall clock, whichever clock the store uses, because the caller compares the value with wall
    // time.
    reply.header("x-ratelimit-reset", Math.ceil((Date.now() + verdict.resetMs) / 1_000))
    if (verdict.admitted) return true
    if (caller.subject === undefined && caller.apiKey === undefined) {
      if (refused.size >= MAX_REFUSED) refused.clear()
      refused.set(addressGroup(request.ip), performance.now() + verdict.waitMs)
    }
    const retryAfter = Math.ceil(verdict.waitMs / 1_000)
    reply.header("retry-after", retryAfter)
    const { status, message } = errorTable.RATE_LIMITED
    const page = errorPage?.(request, reply, "RATE_LIMITED")
    void reply.code(status).send(page ?? { error: "RATE_LIMITED", message, retryAfter, requestId: request.id })
    return false
  }
  return { admit, isRefused }
}
