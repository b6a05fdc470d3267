/**
 * Server-sent events: a waiting page gets each new state over one connection, without polling. The number of streams is
 * limited, because each holds a connection (`waiter-slots.ts`). Their reads are shared (`shared-reads.ts`).
 */
import { hash } from "node:crypto"
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { addressGroup } from "../limits/buckets.ts"
import { awaitEnd, MAX_WAIT_S } from "./await-end.ts"
import { waitsOf } from "./open-waits.ts"
import type { Follower, Seen, Shared } from "./shared-reads.ts"
import type { Holder } from "./waiter-slots.ts"

/** One address may belong to an office: several people with two pages each. */
const MAX_BY_ADDRESS = 20
/**
 * A page waits three times this long before it considers the network dead (`web/src/pay/live.ts`); proxies close
 * connections that are silent for a minute.
 */
const HEARTBEAT_MS = 10_000
/** A caller that has read nothing is checked again after this many milliseconds. */
const UNREAD_MS = 2_000
/** How long the caller waits before it reconnects, in milliseconds. */
const RETRY_MS = 2_000
/**
 * A stream ends after this time and its page reconnects, so that a stream behind a dead network does not stay forever.
 */
const LIFE_MS = 600_000

/** The states that a stream sends. */
export interface Source<T> extends Shared<T> {
  /** Whether no other state can follow soon. If so, the stream ends and the page does not reconnect. */
  isOver: (state: T) => boolean
}

const holderOf = ({ ip }: FastifyRequest): Holder => ({ name: addressGroup(ip), most: MAX_BY_ADDRESS })

/**
 * Sends the current state and every change, until the state is final or the caller has disconnected. An error of the
 * first read is answered like that of any other request; a later one ends the stream, and the page reconnects. Throws
 * `RATE_LIMITED`.
 */
export async function sendEvents<T>(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  source: Source<T>,
): Promise<FastifyReply> {
  const { raw } = reply
  const waits = waitsOf(ctx)
  const follower = waits.follow(source)
  // Taken before the first read, which costs several queries.
  const giveBack = waits.pages.take(holderOf(request), follower.end)
  try {
    if (!giveBack)
      throw new ApiError(
        "RATE_LIMITED",
        undefined,
        "Too many live pages are open from your network. Close some, or ask for the status with `wait=25`.",
      )
    const first = await follower.fresh()
    reply.hijack()
    raw.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      // A proxy that buffers the answer would show nothing for minutes.
      "x-accel-buffering": "no",
    })
    raw.write(`retry: ${RETRY_MS}\n\n`)
    await sendStates(follower, first, reply, source.isOver).catch(error =>
      ctx.log.warn({ err: error, requestId: request.id }, "a stream of events ended early"),
    )
    raw.end()
    return reply
  } finally {
    giveBack?.()
    follower.close()
  }
}

/** Sends states until one is final, or the follower ends. */
async function sendStates<T>(
  follower: Follower<T>,
  first: Seen<T>,
  { raw }: Pick<FastifyReply, "raw">,
  isOver: (state: T) => boolean,
): Promise<void> {
  const life = setTimeout(follower.end, LIFE_MS).unref()
  raw.once("close", follower.end)
  let sent = ""
  let spokeAt = performance.now()
  let seen = first
  try {
    while (!raw.destroyed) {
      const { text } = seen
      // While the caller does not read, nothing is added: later the caller gets only the newest state. Bytes written a
      // moment ago wait until the end of this turn. Without the first condition, the first state came five seconds
      // late.
      const isReading = sent === "" || raw.writableLength === 0
      if (text !== sent && isReading) {
        raw.write(`data: ${text}\n\n`)
        sent = text
        spokeAt = performance.now()
      } else if (isReading && performance.now() - spokeAt >= HEARTBEAT_MS) {
        // An event with data, because comments and events without data do not reach a page's script.
        raw.write("event: beat\ndata: {}\n\n")
        spokeAt = performance.now()
      }
      if (isOver(seen.state) && text === sent) {
        raw.write("event: over\ndata: {}\n\n")
        return
      }
      const beatMs = Math.max(0, spokeAt + HEARTBEAT_MS - performance.now())
      seen = (await follower.next(seen, isReading ? beatMs : UNREAD_MS)) ?? seen
      if (follower.isEnded()) return
    }
  } finally {
    clearTimeout(life)
  }
}

/**
 * For pages behind a proxy that buffers streams: returns the state now, or with `wait` and `known` (the last answer's
 * `X-State`) once the state differs. If too many requests are waiting, the request is answered immediately, because a
 * page without an answer would ask for money that was already paid.
 */
export async function sendState<T>(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  source: Source<T>,
): Promise<T> {
  const { wait, known } = request.query as { wait?: unknown; known?: unknown }
  const state = await awaitEnd(ctx, reply, source, {
    waitS: wait === String(MAX_WAIT_S) ? MAX_WAIT_S : 0,
    places: waitsOf(ctx).pages,
    holder: holderOf(request),
    isOver: state => markOf(state) !== known,
  })
  reply.headers({ "x-state": markOf(state), "cache-control": "no-store" })
  return state
}

const markOf = (state: unknown): string => hash("sha256", JSON.stringify(state), "base64url").slice(0, 22)
