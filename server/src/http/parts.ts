/** Long answers: read, made and sent in parts, each when the caller has taken the one before. */
import type { ServerResponse } from "node:http"
import { Readable } from "node:stream"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"

/** What is needed of a Fastify reply, whatever the types of its route. */
export interface PartsReply {
  request: {
    id: string
    routeOptions: { url?: string | undefined }
    merchantId: string | undefined
    apiKey: { merchantId: string } | undefined
  }
  raw: Pick<ServerResponse, "once" | "destroyed">
  type(contentType: string): unknown
}

/** How many are on their way in this process, by merchant. */
const underWay = new Map<string, number>()

/** Takes a place of the merchant's, `RATE_LIMITED` where it has none left; answers what gives it back, once. */
function takePlace(merchantId: string, most: number): () => void {
  const taken = underWay.get(merchantId) ?? 0
  if (taken >= most)
    throw new ApiError(
      "RATE_LIMITED",
      undefined,
      `${most} of your long lists or files are being sent already. Read one to its end, or close it, then try again.`,
    )
  underWay.set(merchantId, taken + 1)
  let isTaken = true
  return () => {
    if (!isTaken) return
    isTaken = false
    const left = (underWay.get(merchantId) ?? 1) - 1
    if (left > 0) underWay.set(merchantId, left)
    else underWay.delete(merchantId)
  }
}

/**
 * Sends `parts` as one answer; `RATE_LIMITED` where the merchant has `MAX_DOWNLOADS` on their way. An error before the first part is an answer like any other; after it the connection is
 * closed, so that nobody takes the part for the whole, and the error is logged.
 */
export async function sendParts(
  { log, settings }: Pick<Context, "log" | "settings">,
  reply: PartsReply,
  contentType: string,
  parts: AsyncGenerator<string>,
): Promise<Readable> {
  const { merchantId, apiKey } = reply.request
  const giveBack = takePlace(merchantId ?? apiKey?.merchantId ?? "", settings.maxDownloads)
  // Read to its end, or given up by the caller, by a bound or by us.
  reply.raw.once("close", giveBack)
  if (reply.raw.destroyed) giveBack()
  const first = await parts.next().catch(error => {
    giveBack()
    throw error
  })
  async function* logged(): AsyncGenerator<string> {
    try {
      if (!first.done) yield first.value
      yield* parts
    } catch (error) {
      const { id: requestId, routeOptions } = reply.request
      log.error({ err: error, requestId, route: routeOptions.url }, "answer cut off because its next part failed")
      throw error
    }
  }
  reply.type(contentType)
  return Readable.from(logged()).once("close", giveBack)
}
