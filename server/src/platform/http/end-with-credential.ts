/** Answers that last end with the credential that they were asked for with. */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../context.ts"

/**
 * Disconnects the caller of an answer that is being sent, within two seconds, when the API key or session of its request is revoked or its person
 * loses the role; within thirty where no notification comes. Does nothing for a request without either.
 */
export function endWithCredential(
  { log }: Pick<Context, "log">,
  request: FastifyRequest,
  { raw }: Pick<FastifyReply, "raw">,
): void {
  const { apiKey, member, sessionId, id: requestId, routeOptions } = request
  if (!(apiKey ?? member)) return
  const watch = request.server.identities.watch({ apiKey, member, sessionId })
  const end = () => {
    log.info({ requestId, route: routeOptions.url }, "answer cut off because its credential ended")
    raw.destroy()
  }
  watch.signal.addEventListener("abort", end, { once: true })
  raw.once("close", watch.close)
  if (raw.destroyed) watch.close()
}
