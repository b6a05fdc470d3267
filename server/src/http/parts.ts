/** Long answers: read, rendered and sent in parts, each when the caller has taken the one before. */
import type { ServerResponse } from "node:http"
import { Readable } from "node:stream"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"

/** The part of a Fastify reply that is needed, whatever the types of its route. */
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

/** How many are being sent by this process, by merchant. */
const underWay = new Map<string, number>()

/**
 * Takes one of the merchant's places, or throws `RATE_LIMITED` where none is left; returns a function that gives it
 * back, once.
 */
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
 * Sends `parts` as one answer; throws `RATE_LIMITED` where the merchant already has `MAX_DOWNLOADS` in progress. An
 * error before the first part is answered like any other. After the first part the connection is closed, so that nobody
 * mistakes the part for the whole, and the error is logged.
 */
export async function sendParts(
  { log, settings }: Pick<Context, "log" | "settings">,
  reply: PartsReply,
  contentType: string,
  parts: AsyncGenerator<string>,
): Promise<Readable> {
  const { merchantId, apiKey } = reply.request
  const giveBack = takePlace(merchantId ?? apiKey?.merchantId ?? "", settings.maxDownloads)
  // Read to its end, or ended early by the caller, a limit or us.
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
