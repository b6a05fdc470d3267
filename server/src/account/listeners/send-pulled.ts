/** Answers with a listener's deliveries: immediately, after a wait, or for as long as the caller stays connected. */
import { setTimeout as sleep } from "node:timers/promises"
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { endWithCredential } from "../../platform/http/end-with-credential.ts"
import { waitsOf } from "../../platform/http/open-waits.ts"
import { claimPulled } from "./claim-pulled.ts"
import type { Pulled } from "./schema.ts"

/** The maximum number of streams and waits per merchant and process: three listeners with a few pullers each. */
const MAX_BY_MERCHANT = 12
/** How often to look for due deliveries without a wake-up, because retries become due without one. */
const POLL_MS = 5_000
/** The shortest pause between two checks, because a busy service is woken a thousand times a second. */
const MIN_PAUSE_MS = 50
const HEARTBEAT_MS = 10_000
/** A caller that reads nothing for this long is disconnected. */
const UNREAD_MS = 30_000
/** How long the caller waits before it reconnects, in milliseconds. */
const RETRY_MS = 1_000

interface From {
  merchantId: string
  id: string
}

/** Takes a waiting slot for a request; undefined if none is free. */
function takePlace(ctx: Context, { raw }: Pick<FastifyReply, "raw">, { merchantId }: From) {
  const left = new AbortController()
  const leave = () => left.abort()
  const giveBack = waitsOf(ctx).polls.take({ name: merchantId, most: MAX_BY_MERCHANT }, leave)
  if (!giveBack) return undefined
  raw.once("close", leave)
  const woken = ctx.wakes.subscribe("deliveries")
  const signal = AbortSignal.any([left.signal, ctx.signal])
  return {
    signal,
    next: async (ms: number) => {
      await woken.next(ms, signal)
      await sleep(MIN_PAUSE_MS, undefined, { signal }).catch(() => {})
    },
    close: () => {
      raw.off("close", leave)
      woken.close()
      giveBack()
    },
  }
}

/** Returns a listener's due deliveries, or none after `waitS` seconds, or immediately if no slot is free. */
export async function waitForPulled(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  { waitS, ...from }: From & { waitS: number },
): Promise<Pulled[]> {
  const until = performance.now() + waitS * 1_000
  const first = await claimPulled(ctx, from.merchantId, from.id)
  if (first.length > 0 || waitS === 0) return first
  const place = takePlace(ctx, reply, from)
  if (!place) return []
  endWithCredential(ctx, request, reply)
  try {
    for (let leftMs = waitS * 1_000; leftMs > 0 && !place.signal.aborted; leftMs = until - performance.now()) {
      await place.next(Math.min(POLL_MS, leftMs))
      const found = place.signal.aborted ? [] : await claimPulled(ctx, from.merchantId, from.id)
      if (found.length > 0) return found
    }
    return []
  } finally {
    place.close()
  }
}

/** Streams a listener's due deliveries until the caller leaves or the listener ends. Throws `RATE_LIMITED`. */
export async function streamPulled(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  from: From,
): Promise<FastifyReply> {
  const { raw } = reply
  const place = takePlace(ctx, reply, from)
  if (!place)
    throw new ApiError(
      "RATE_LIMITED",
      undefined,
      "Too many of your programs already pull deliveries. Stop some of them.",
    )
  try {
    // An error of the first claim, such as a 404, is answered like that of any other request.
    const first = await claimPulled(ctx, from.merchantId, from.id)
    reply.hijack()
    raw.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      // A proxy that buffers the answer would delay the deliveries.
      "x-accel-buffering": "no",
    })
    raw.write(`retry: ${RETRY_MS}\n\n`)
    endWithCredential(ctx, request, reply)
    await sendAll(ctx, raw, place, { ...from, first }).catch(error => {
      if (error instanceof ApiError && error.code === "NOT_FOUND") raw.write("event: over\ndata: {}\n\n")
      else ctx.log.warn({ err: error, requestId: request.id }, "a stream of deliveries ended early")
    })
    raw.end()
    return reply
  } finally {
    place.close()
  }
}

async function sendAll(
  ctx: Context,
  raw: FastifyReply["raw"],
  place: NonNullable<ReturnType<typeof takePlace>>,
  { merchantId, id, first }: From & { first: Pulled[] },
): Promise<void> {
  let found = first
  let spokeAt = performance.now()
  let readAt = spokeAt
  while (!place.signal.aborted) {
    for (const each of found) raw.write(`id: ${each.deliveryId}\nevent: delivery\ndata: ${JSON.stringify(each)}\n\n`)
    if (found.length > 0) spokeAt = performance.now()
    else if (performance.now() - spokeAt >= HEARTBEAT_MS) {
      raw.write(": beat\n\n")
      spokeAt = performance.now()
    }
    await place.next(POLL_MS)
    if (place.signal.aborted) return
    if (raw.writableLength === 0) readAt = performance.now()
    else if (performance.now() - readAt > UNREAD_MS) return void raw.destroy()
    // Nothing is claimed for a caller that does not read.
    found = raw.writableLength === 0 ? await claimPulled(ctx, merchantId, id) : []
  }
}
