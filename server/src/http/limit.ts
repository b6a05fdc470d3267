/** The step of a request at which it is counted, and told how near its caller is to the limit. */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../context.ts"
import { errorTable } from "../errors.ts"
import { type Caller, countsOf } from "../limits/buckets.ts"
import { pathOf } from "./path.ts"

/** Who is known to call; what is undefined was not given, or is not good. */
export type Credentials = Omit<Caller, "ip">

export const nobody: Credentials = { subject: undefined, apiKey: undefined }

/** Counts a request and writes the headers; the answer is false when the request was answered, with 429. */
export function limiter({ settings, limits }: Pick<Context, "settings" | "limits">) {
  return async (request: FastifyRequest, reply: FastifyReply, caller: Credentials): Promise<boolean> => {
    const counts = countsOf(settings.limits, request.method, pathOf(request), { ...caller, ip: request.ip })
    if (counts.length === 0) return true
    const verdict = await limits.admit(counts)
    reply.header("x-ratelimit-limit", verdict.limit)
    reply.header("x-ratelimit-remaining", verdict.remaining)
    // By this machine's wall clock, whatever the store's: it is the caller who compares.
    reply.header("x-ratelimit-reset", Math.ceil((Date.now() + verdict.resetMs) / 1_000))
    if (verdict.admitted) return true
    const retryAfter = Math.ceil(verdict.waitMs / 1_000)
    reply.header("retry-after", retryAfter)
    const { status, message } = errorTable.RATE_LIMITED
    void reply.code(status).send({ error: "RATE_LIMITED", message, retryAfter, requestId: request.id })
    return false
  }
}
