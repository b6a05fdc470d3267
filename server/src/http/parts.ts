/** Long answers: read, made and sent in parts, each when the caller has taken the one before. */
import { Readable } from "node:stream"
import type { Context } from "../context.ts"

/** What is needed of a Fastify reply, whatever the types of its route. */
export interface PartsReply {
  request: { id: string; routeOptions: { url?: string | undefined } }
  type(contentType: string): unknown
}

/**
 * Sends `parts` as one answer. An error before the first part is an answer like any other; after it the connection is
 * closed, so that nobody takes the part for the whole, and the error is logged.
 */
export async function sendParts(
  { log }: Pick<Context, "log">,
  reply: PartsReply,
  contentType: string,
  parts: AsyncGenerator<string>,
): Promise<Readable> {
  const first = await parts.next()
  async function* logged(): AsyncGenerator<string> {
    try {
      if (!first.done) yield first.value
      yield* parts
    } catch (error) {
      const { id: requestId, routeOptions } = reply.request
      log.error({ err: error, requestId, route: routeOptions.url }, "answer cut off: the next part failed")
      throw error
    }
  }
  reply.type(contentType)
  return Readable.from(logged())
}
