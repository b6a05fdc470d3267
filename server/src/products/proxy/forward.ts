/** Handles one exchange with an origin: sends the whole request, and streams the answer. */
// I/O: sends requests to origins; needs no context, only the settings.
import { Readable } from "node:stream"
import { setImmediate } from "node:timers/promises"
import { Agent, type Dispatcher } from "undici"
import { wordsOf } from "../../account/webhooks/send.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { ApiError } from "../../platform/errors.ts"
import { joinedParts } from "../../platform/http/joined-parts.ts"
import { guardedConnector, openResolver, type Resolve } from "../../platform/net/connector.ts"
import { addressRule } from "../../platform/net/public-address.ts"
import { openAgents } from "./agents.ts"
import { failureOf } from "./origin-answer.ts"
import { openTimeLimit } from "./origin-time-limit.ts"

const CONNECT_TIMEOUT_MS = 10_000
/**
 * The most connections of a merchant to one origin: more than a busy origin needs, and fewer than a process's file
 * descriptors.
 */
const CONNECTIONS_TO_ONE = 100
/**
 * How many bytes are read ahead for a caller that is slower than its origin. A single part may be larger. This also
 * limits the number of one-byte parts, each of which takes 114 bytes of memory. With 16 KB, 95 callers of an origin
 * that sends one-byte parts crashed a process of 256 MB.
 */
const READ_AHEAD_BYTES = 256
/**
 * How many parts of one answer are read before other work gets a turn. Parsing a chunk takes a microsecond, and one
 * read may return 10,000 chunks.
 */
const PARTS_PER_TURN = 256
/** The size up to which smaller parts are joined. */
const PART_BYTES = 16 * 1024
/**
 * How long one answer may wait for its origin in total, as a multiple of the wait for the answer's start. By default
 * this is ten minutes, after which clients of language models give up too.
 */
const WHOLE_WAITS = 10

interface OriginCall {
  /** The merchant whose connections to the origin are used. */
  merchantId: string
  originUrl: string
  method: string
  /** The path as `path.ts` writes it, with the query appended. */
  path: string
  /** In the order name, value, name, value. */
  headers: string[]
  body: Buffer | undefined
}

/**
 * The origin's answer, or why there is none. `failure` is for the merchant, and `shown`, which contains no addresses,
 * for the caller. `wasSent`: whether the origin may have received any of the request.
 */
export type OriginAnswer =
  | { status: number; headers: Record<string, string | string[] | undefined>; body: Readable; failure?: undefined }
  | { failure: string; shown: string; wasSent: boolean }

export interface Forwarder {
  /** Forwards one request; never rejects. `signal` ends the request and the body of the answer. */
  forward(call: OriginCall, signal: AbortSignal): Promise<OriginAnswer>
  close(): Promise<void>
}

/**
 * Opens a forwarder for these settings. `resolve` and `ca` replace the system's name resolution and root
 * certificates. `maxWaitMs` replaces the total time that one answer may wait for the origin.
 */
export function openForwarder(
  { webhooks: { allowCidrs }, originTimeoutMs }: Settings,
  {
    resolve,
    ca,
    maxWaitMs = WHOLE_WAITS * originTimeoutMs,
  }: { resolve?: Resolve; ca?: string; maxWaitMs?: number } = {},
): Forwarder {
  const connect = guardedConnector({
    allows: addressRule(allowCidrs),
    resolve: resolve ?? openResolver({ systemToo: allowCidrs.length > 0 }),
    timeoutMs: Math.min(CONNECT_TIMEOUT_MS, originTimeoutMs),
    ca,
    // Answers of any size are passed on, as fast as the caller reads.
    answerBytes: Number.POSITIVE_INFINITY,
  })
  const agents = openAgents(
    () =>
      new Agent({
        connect,
        connections: CONNECTIONS_TO_ONE,
        allowH2: false,
        // `exchange` has a deadline that also covers connecting, and that informational answers do not extend.
        headersTimeout: 0,
        // The longest time between two parts, not counting the time in which the caller does not read.
        bodyTimeout: originTimeoutMs,
      }),
  )
  return {
    forward: (call, signal) =>
      exchange(agents.of(call.merchantId), call, signal, { timeoutMs: originTimeoutMs, maxWaitMs }),
    close: () => agents.close(),
  }
}

/**
 * Streams the same bytes, but joins all parts that have arrived. Otherwise, each chunk from the origin would take
 * three writes to the caller. Waits for the first part, and rejects if the answer ends before that part, so that
 * nothing has reached the caller.
 */
async function joined(body: Readable, maxWaitMs: number): Promise<Readable> {
  body.on("error", () => undefined)
  const rest = partsOf(body, maxWaitMs)
  const first = await rest.next()
  async function* all() {
    if (!first.done) yield first.value
    yield* rest
  }
  const parts = Readable.from(all(), { objectMode: false, highWaterMark: READ_AHEAD_BYTES })
  // Needed because a generator that never started ends nothing. A generator that has started passes errors on by
  // itself.
  parts.once("close", () => body.destroy())
  return parts
}

const UNENDED = "did not end its answer"

async function* partsOf(body: Readable, maxWaitMs: number): AsyncGenerator<Buffer> {
  const patience = openTimeLimit(maxWaitMs, () => body.destroy(new Error("its answer took too long")))
  const joined = joinedParts(PART_BYTES)
  const take = function* () {
    const part = joined.take()
    if (part) yield part
  }
  let parts = 0
  try {
    patience.waits(0)
    for await (const first of body as AsyncIterable<Buffer>) {
      patience.ends()
      let bytes = 0
      for (let part: Buffer | null = first; part !== null; part = body.read()) {
        bytes += part.length
        if (++parts % PARTS_PER_TURN === 0) await setImmediate()
        if (joined.add(part)) continue
        yield* take()
        if (!joined.add(part)) yield part
      }
      yield* take()
      // The time in which the caller did not read is not the origin's fault.
      patience.waits(bytes)
    }
  } catch (error) {
    throw new ApiError("ORIGIN_FAILED", undefined, `The API behind this address ${UNENDED}.`, error)
  } finally {
    patience.ends()
  }
}

const UNASKED_CONTINUE =
  "answered 100 Continue, although the service never sends `Expect: 100-continue`; let it send only its answer"

/** Whether undici failed because the origin answered with status 100. No option makes undici skip such an answer. */
const isUnaskedContinue = (error: unknown): boolean => {
  const { code, message } = error as { code?: string; message?: string }
  return code === "UND_ERR_SOCKET" && message === "bad response"
}

/** Calls `onSend` before the first byte of a request is written to a connection. */
const noting =
  (onSend: () => void): Dispatcher.DispatcherComposeInterceptor =>
  dispatch =>
  (options, handler) => {
    const start = handler.onRequestStart?.bind(handler)
    handler.onRequestStart = (controller, context) => {
      start?.(controller, context)
      // A request that is aborted while it waits for its connection is never written.
      if (!controller.aborted) onSend()
    }
    return dispatch(options, handler)
  }

async function exchange(
  agent: Agent,
  { originUrl, method, path, headers, body }: OriginCall,
  signal: AbortSignal,
  { timeoutMs, maxWaitMs }: { timeoutMs: number; maxWaitMs: number },
): Promise<OriginAnswer> {
  let wasSent = false
  const sender = agent.compose(noting(() => (wasSent = true)))
  const late = new AbortController()
  const either = AbortSignal.any([signal, late.signal])
  // Undici aborts a request only once the request has a connection. While it is connecting, this promise rejects
  // instead.
  const aborted = new Promise<never>((_, reject) => {
    if (either.aborted) reject(either.reason)
    either.addEventListener("abort", () => reject(either.reason), { once: true })
  })
  aborted.catch(() => undefined)
  const timer = setTimeout(() => late.abort("late"), timeoutMs)
  try {
    const { origin, pathname } = new URL(originUrl)
    const request = sender.request({
      origin,
      path: (pathname === "/" ? "" : pathname) + path,
      method: method as "GET",
      headers,
      ...(body === undefined || body.length === 0 ? {} : { body }),
      signal: either,
      highWaterMark: READ_AHEAD_BYTES,
    })
    // If the deadline comes first, nobody waits for the end of the request.
    request.catch(() => undefined)
    const response = await Promise.race([request, aborted])
    const failure = failureOf(response.statusCode, [response.headers.location].flat()[0])
    // From now on, only the origin's pauses are limited.
    clearTimeout(timer)
    if (failure === undefined)
      return { status: response.statusCode, headers: response.headers, body: await joined(response.body, maxWaitMs) }
    response.body.on("error", () => undefined).destroy()
    return { failure, shown: `answered ${response.statusCode}`, wasSent }
  } catch (error) {
    if (late.signal.aborted) {
      const shown = `did not start its answer within ${timeoutMs / 1_000} s`
      return { failure: shown, shown, wasSent }
    }
    if (signal.aborted)
      return {
        failure: "did not get the whole request: the caller left",
        shown: "did not get the whole request",
        wasSent,
      }
    if (error instanceof ApiError) return { failure: UNENDED, shown: UNENDED, wasSent }
    if (isUnaskedContinue(error)) return { failure: UNASKED_CONTINUE, shown: "answered 100", wasSent }
    return { failure: `could not be reached: ${wordsOf(error as Error, null)}`, shown: "could not be reached", wasSent }
  } finally {
    clearTimeout(timer)
  }
}
