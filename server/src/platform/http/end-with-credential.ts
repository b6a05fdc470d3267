/** Ends long-lived answers when the credential that they were requested with becomes invalid. */
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../context.ts"

/**
 * Disconnects the caller of an answer in progress when its API key or session is revoked, or its person loses the role.
 * The disconnection takes at most two seconds, or thirty if no notification arrives. A request with neither credential
 * is left alone.
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
