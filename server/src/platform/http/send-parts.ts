/** Long answers: read, rendered and sent in parts, each when the caller has taken the previous one. */
import type { ServerResponse } from "node:http"
import { Readable } from "node:stream"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"

/** The part of a Fastify reply that is needed here, whatever the types of its route. */
export interface PartsReply {
  request: {
    id: string
    routeOptions: { url?: string | undefined }
    merchantId: string | undefined
    apiKey: { id: string } | undefined
  }
  raw: Pick<ServerResponse, "once" | "destroyed" | "destroy" | "socket">
  type(contentType: string): unknown
}

/** How many long answers this process is sending, by credential: an API key, or a merchant's own tokens. */
const underWay = new Map<string, number>()

/**
 * A caller that leaves data unread must take at least this much in each window. The slowest honest line takes far more.
 */
const MIN_BYTES = 65_536
const WINDOW_MS = 30_000

/**
 * Takes one of the credential's slots, or throws `RATE_LIMITED` if none is left. Returns the function that frees the
 * slot, once. Each credential has its own slots, so the holder of a stolen key does not use up those of the merchant's
 * other credentials.
 */
function takePlace(credential: string, most: number): () => void {
  const taken = underWay.get(credential) ?? 0
  if (taken >= most)
    throw new ApiError(
      "RATE_LIMITED",
      undefined,
      `${most} of your long lists or files are already being sent. Read one to its end or close it, then try again.`,
    )
  underWay.set(credential, taken + 1)
  let isTaken = true
  return () => {
    if (!isTaken) return
    isTaken = false
    const left = (underWay.get(credential) ?? 1) - 1
    if (left > 0) underWay.set(credential, left)
    else underWay.delete(credential)
  }
}

/**
 * Calls `drop` when the caller leaves data unread and takes less than `MIN_BYTES` in a window. Returns the function
 * that stops watching.
 */
function watchPace(raw: PartsReply["raw"], drop: () => void): () => void {
  const sent = () => (raw.socket ? raw.socket.bytesWritten - raw.socket.writableLength : 0)
  let before = sent()
  const timer = setInterval(() => {
    const now = sent()
    if ((raw.socket?.writableLength ?? 0) > 0 && now - before < MIN_BYTES) drop()
    before = now
  }, WINDOW_MS)
  return () => clearInterval(timer)
}

/** Disconnects a caller that reads a long answer slower than 2 KB a second, until the returned function is called. */
export const dropSlowReader = (
  { log }: Pick<Context, "log">,
  { raw, request: { id: requestId, routeOptions } }: Omit<PartsReply, "type">,
): (() => void) =>
  watchPace(raw, () => {
    log.warn({ requestId, route: routeOptions.url }, "answer cut off because its caller reads too slowly")
    raw.destroy()
  })

/**
 * Sends `parts` as one answer. Throws `RATE_LIMITED` if the credential already has `MAX_DOWNLOADS` in progress. A
 * caller that reads slower than 2 KB a second is disconnected. An error before the first part is answered like any
 * other. A later error is logged, and the connection is closed, so that nobody takes the part for the whole.
 */
export async function sendParts(
  { log, settings }: Pick<Context, "log" | "settings">,
  reply: PartsReply,
  contentType: string,
  parts: AsyncGenerator<string | Buffer>,
): Promise<Readable> {
  const { id: requestId, routeOptions, merchantId, apiKey } = reply.request
  const leave = takePlace(apiKey?.id ?? merchantId ?? "", settings.maxDownloads)
  const unwatch = dropSlowReader({ log }, reply)
  const giveBack = () => {
    unwatch()
    leave()
  }
  // The answer is closed after its last part, or earlier by the caller, by a limit or by us.
  reply.raw.once("close", giveBack)
  if (reply.raw.destroyed) giveBack()
  const first = await parts.next().catch(error => {
    giveBack()
    throw error
  })
  async function* logged(): AsyncGenerator<string | Buffer> {
    try {
      if (!first.done) yield first.value
      yield* parts
    } catch (error) {
      log.error({ err: error, requestId, route: routeOptions.url }, "answer cut off because its next part failed")
      throw error
    }
  }
  reply.type(contentType)
  const stream = Readable.from(logged()).once("close", giveBack)
  // Fastify answers a HEAD immediately, and would read the whole stream afterwards.
  reply.raw.once("close", () => stream.destroy())
  return stream
}
