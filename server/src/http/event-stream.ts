/**
 * Server-sent events: a waiting page gets each new state over one connection, without asking. The number of streams is
 * limited for each IP address and in all, because each holds a connection.
 */
import { hash } from "node:crypto"
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { addressGroup } from "../limits/buckets.ts"
import { defaultBounds } from "./connections.ts"
import { goneSignal } from "./gone.ts"
import { awaitEnd, MAX_WAIT_S } from "./long-poll.ts"

/** An address may be an office: some people with two pages each. */
const MOST_BY_ADDRESS = 20
/** A quarter of the connections that the server keeps. */
const MOST_IN_ALL = Math.floor(defaultBounds.connections / 4)
/**
 * A page waits three times this long before it considers the network dead (`web/src/pay/live.ts`); proxies close
 * connections that are silent for a minute.
 */
const HEARTBEAT_MS = 10_000
/** How long the caller waits before it reconnects, in milliseconds. */
const RETRY_MS = 2_000
/**
 * A stream ends after this time and its page reconnects, so that a stream behind a dead network does not stay forever.
 */
const LIFE_MS = 600_000

/** The states that a stream sends. */
export interface Source<T> {
  read: () => Promise<T>
  /** Called once, after the first state was read. */
  opened: () => Promise<unknown>
  /** Whether no other state can follow soon. Then the stream ends, and the page does not reconnect. */
  isOver: (state: T) => boolean
  /** After how many milliseconds the state is read again without a wake-up. */
  pauseMs: (state: T) => number
}

const open = new Map<string, number>()
let total = 0

/**
 * Takes a place for a stream of this address. Returns the function that frees it, or undefined where no place is free.
 */
export function takeStream(ip: string): (() => void) | undefined {
  const group = addressGroup(ip)
  const mine = open.get(group) ?? 0
  if (mine >= MOST_BY_ADDRESS || total >= MOST_IN_ALL) return undefined
  open.set(group, mine + 1)
  total++
  let given = false
  return () => {
    if (given) return
    given = true
    total--
    const left = (open.get(group) ?? 1) - 1
    if (left > 0) open.set(group, left)
    else open.delete(group)
  }
}

/**
 * Sends the state now and whenever it changes, until it is over or the caller has disconnected. An error of the first
 * read is answered like that of any request; a later one ends the stream, and the page reconnects. Throws
 * `RATE_LIMITED`.
 */
export async function sendEvents<T>(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  { read, opened, isOver, pauseMs }: Source<T>,
): Promise<FastifyReply> {
  // Taken before the first read, which costs several queries.
  const giveBack = takeStream(request.ip)
  if (!giveBack)
    throw new ApiError(
      "RATE_LIMITED",
      undefined,
      "Too many live pages are open from your network. Close some, or ask for the status with `wait=25`.",
    )
  const first = await read()
    .then(async state => {
      await opened()
      return state
    })
    .catch(error => {
      giveBack()
      throw error
    })
  const { raw } = reply
  const signal = AbortSignal.any([ctx.signal, goneSignal(raw), AbortSignal.timeout(LIFE_MS)])
  const wakes = ctx.wakes.subscribe("payments")
  reply.hijack()
  raw.writeHead(200, {
    ...(reply.getHeaders() as Record<string, string>),
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    // A proxy that buffers the answer would show nothing for minutes.
    "x-accel-buffering": "no",
  })
  raw.write(`retry: ${RETRY_MS}\n\n`)
  let sent = ""
  let spokeAt = performance.now()
  try {
    for (let state = first; ; state = await read()) {
      const text = JSON.stringify(state)
      // While the caller does not read, nothing is added: later it gets only the newest state.
      const isReading = raw.writableLength === 0
      if (text !== sent && isReading) {
        raw.write(`data: ${text}\n\n`)
        sent = text
        spokeAt = performance.now()
      } else if (isReading && performance.now() - spokeAt > HEARTBEAT_MS) {
        // An event with data: comments, and events without data, are not passed to a page's script.
        raw.write("event: beat\ndata: {}\n\n")
        spokeAt = performance.now()
      }
      if (isOver(state) && text === sent) {
        raw.write("event: over\ndata: {}\n\n")
        break
      }
      if (signal.aborted) break
      await wakes.next(pauseMs(state), signal)
      if (signal.aborted) break
    }
  } catch (error) {
    ctx.log.warn({ err: error, requestId: request.id }, "a stream of events ended early")
  } finally {
    wakes.close()
    giveBack()
    raw.end()
  }
  return reply
}

/**
 * For pages behind a proxy that holds streams back: returns the state now, or with `wait` and `known` (the last
 * answer's `X-State`) once it differs. If too many requests wait already it answers at once: a page without an answer
 * would ask for money that was paid.
 */
export async function sendState<T>(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  { read, opened }: Source<T>,
): Promise<T> {
  const { wait, known } = request.query as { wait?: unknown; known?: unknown }
  const waitS = wait === String(MAX_WAIT_S) ? MAX_WAIT_S : 0
  const first = await read()
  await opened()
  const giveBack = waitS > 0 && markOf(first) === known ? takeStream(request.ip) : undefined
  try {
    const state =
      giveBack !== undefined ? await awaitEnd(ctx, reply, waitS, read, state => markOf(state) !== known) : first
    reply.headers({ "x-state": markOf(state), "cache-control": "no-store" })
    return state
  } finally {
    giveBack?.()
  }
}

const markOf = (state: unknown): string => hash("sha256", JSON.stringify(state), "base64url").slice(0, 22)
