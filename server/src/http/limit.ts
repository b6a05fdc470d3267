/** The step of a request at which it is counted, and told how near its caller is to the limit. */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../context.ts"
import { errorTable } from "../errors.ts"
import { addressGroup, type Caller, countsOf } from "../limits/buckets.ts"
import { pathOf } from "./path.ts"

/** Who is known to call; what is undefined was not given, or is not good. */
export type Credentials = Omit<Caller, "ip">

export const nobody: Credentials = { subject: undefined, apiKey: undefined }

/** Addresses over their limit that are remembered; with more of them, some cost a query again. */
const MOST_REFUSED = 10_000

export interface Limiter {
  /** Counts a request and writes the headers; the answer is false when the request was answered, with 429. */
  admit(request: FastifyRequest, reply: FastifyReply, caller: Credentials): Promise<boolean>
  /** Whether the address of a request was refused, and would be again. */
  isRefused(request: FastifyRequest): boolean
}

/** The limits as a step of a request. */
export function limiter({ settings, limits }: Pick<Context, "settings" | "limits">): Limiter {
  /** Until when, by the monotonic clock. */
  const refused = new Map<string, number>()
  const isRefused = ({ ip }: FastifyRequest) => (refused.get(addressGroup(ip)) ?? 0) > performance.now()
  const admit = async (request: FastifyRequest, reply: FastifyReply, caller: Credentials): Promise<boolean> => {
    const counts = countsOf(settings.limits, request.method, pathOf(request), { ...caller, ip: request.ip })
    if (counts.length === 0) return true
    const verdict = await limits.admit(counts)
    reply.header("x-ratelimit-limit", verdict.limit)
    reply.header("x-ratelimit-remaining", verdict.remaining)
    // By this machine's wall clock, whatever the store's: it is the caller who compares.
    reply.header("x-ratelimit-reset", Math.ceil((Date.now() + verdict.resetMs) / 1_000))
    if (verdict.admitted) return true
    if (caller.subject === undefined && caller.apiKey === undefined) {
      if (refused.size >= MOST_REFUSED) refused.clear()
      refused.set(addressGroup(request.ip), performance.now() + verdict.waitMs)
    }
    const retryAfter = Math.ceil(verdict.waitMs / 1_000)
    reply.header("retry-after", retryAfter)
    const { status, message } = errorTable.RATE_LIMITED
    void reply.code(status).send({ error: "RATE_LIMITED", message, retryAfter, requestId: request.id })
    return false
  }
  return { admit, isRefused }
}
