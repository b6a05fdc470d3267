/** Sends one request, and repeats it if that is safe. */
import { type ClientErrorCode, type ErrorDetail, SluiceError } from "./errors.ts"
import { pause } from "./pause.ts"
import type { Lane, Queue } from "./queue.ts"
import type { ErrorCode } from "./resources.ts"

/** How to reach the service. */
export interface Connection {
  /** The address of the service, without a trailing slash. */
  baseUrl: string
  /** The headers with the credential. */
  credential: Record<string, string>
  fetch: typeof fetch
  maxRetries: number
  timeoutMs: number
  /** How long one call may take with all its retries and pauses, in milliseconds. */
  totalTimeoutMs: number
  /** The queue in which calls wait for their turn, if the client has one. */
  queue: Queue | undefined
  /** Called with the rate limit that each answer reports. */
  heardLimits: (limits: RateLimit) => void
}

/** The rate limit that the last answer reported. */
export interface RateLimit {
  /** Requests per minute. */
  limit: number
  /** Requests left until `reset`. */
  remaining: number
  /** Seconds until all requests are available again. */
  reset: number
}

/** Options of one call. */
export interface RequestOptions {
  signal?: AbortSignal
  /** Milliseconds that one attempt may take. */
  timeoutMs?: number
  maxRetries?: number
  headers?: Record<string, string>
  /** Query parameters of a call that also has a body. */
  query?: Record<string, unknown>
  /** The token of a wallet, for the calls of `subscriber`; or of another person. */
  accessToken?: string
}

/** A request as an operation makes it. */
export interface Call {
  method: string
  /** Its path in the document: calls of one operation wait for each other in the queue. */
  operation: string
  path: string
  query?: Record<string, unknown> | undefined
  /** Its body as JSON. */
  text?: string | undefined
  /** Whether the operation is public: then no credential is sent. */
  isPublic: boolean
  /** Whether the answer is text. */
  isText: boolean
  /** Sent again in each retry, so that the call takes effect only once. */
  idempotencyKey?: string | undefined
  /** Whether it waits as long as a rate limit asks, however often. */
  isPatient?: boolean
}

const FIRST_PAUSE_MS = 500
const MAX_PAUSE_MS = 8_000

/**
 * Sends a call and returns the body of its answer. It repeats a read, a PUT, a DELETE and a POST with an idempotency
 * key. Reasons are a lost connection, a timeout, 408, 425, 429, a 5xx except 501, and a 409 for a call still running.
 * Throws a {@link SluiceError}, or the signal's reason.
 */
export async function send(connection: Connection, call: Call, options: RequestOptions = {}): Promise<unknown> {
  const isSafe = call.method !== "POST" || call.idempotencyKey !== undefined
  const lane = isSafe ? connection.queue?.laneOf(`${call.method} ${call.operation}`) : undefined
  if (!lane) return await sendNow(connection, call, options)
  return await lane.run(options.signal, () => sendNow(connection, call, options, lane))
}

async function sendNow(connection: Connection, call: Call, options: RequestOptions, lane?: Lane): Promise<unknown> {
  const { signal } = options
  const isSafe = call.method !== "POST" || call.idempotencyKey !== undefined
  const mostRetries = isSafe ? (options.maxRetries ?? connection.maxRetries) : 0
  const endsAt = Date.now() + (lane?.maxWaitMs ?? connection.totalTimeoutMs)
  for (let retries = 0; ; ) {
    signal?.throwIfAborted()
    await lane?.opened(signal)
    const outcome = await attempt(connection, call, options)
    if (!(outcome instanceof SluiceError)) return outcome
    const isLimited = outcome.code === "RATE_LIMITED"
    const isFree = isLimited && (lane !== undefined || call.isPatient === true)
    if (!outcome.retryable || (!isFree && retries >= mostRetries)) throw outcome
    const pauseMs = pauseOf(outcome, retries)
    if (Date.now() + pauseMs > endsAt) throw outcome
    if (isLimited) lane?.close(pauseMs)
    await pause(pauseMs, signal)
    if (!isFree) retries++
  }
}

/** Full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter"), or the pause that the service asked for. */
function pauseOf({ retryAfter }: SluiceError, retries: number): number {
  const randomMs = Math.random() * Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** retries)
  return retryAfter === undefined ? randomMs : retryAfter * 1_000 + randomMs
}

/** Sends the call once. Returns the answer's body, or the error; throws only the caller's reason to stop. */
async function attempt(connection: Connection, call: Call, options: RequestOptions): Promise<unknown> {
  const late = AbortSignal.timeout(options.timeoutMs ?? connection.timeoutMs)
  const signal = options.signal ? AbortSignal.any([options.signal, late]) : late
  const failed = (code: ClientErrorCode, message: string, cause?: unknown, response?: Response) =>
    errorOf(connection, call, response, { code, message }, cause)
  let response: Response
  let text: string
  try {
    response = await connection.fetch(addressOf(connection, call, options), {
      method: call.method,
      headers: headersOf(connection, call, options),
      signal,
      // A redirect would send the credential to another address.
      redirect: "manual",
      ...(call.text === undefined ? {} : { body: call.text }),
    })
    text = await response.text()
  } catch (cause) {
    options.signal?.throwIfAborted()
    if (late.aborted) return failed("TIMEOUT", `No whole answer came in time: ${call.method} ${call.path}.`, cause)
    return failed("CONNECTION_FAILED", `The service can't be reached at ${connection.baseUrl}.`, cause)
  }
  reportLimits(connection, response)
  if (response.ok && call.isText) return text
  const body = parse(text)
  if (response.ok && body !== undefined) return body
  const isOurs = typeof (body as { error?: unknown } | undefined)?.error === "string"
  if (isOurs) return errorOf(connection, call, response, body as Record<string, unknown>)
  const what = response.ok ? "an answer that is not JSON" : "an answer that is not the service's"
  return failed("UNREADABLE_ANSWER", `${connection.baseUrl} sent ${what} (HTTP ${response.status}).`, text, response)
}

function addressOf({ baseUrl }: Connection, { path, query }: Call, options: RequestOptions): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries({ ...query, ...options.query }))
    if (value !== undefined && value !== null)
      search.append(name, value instanceof Date ? value.toISOString() : `${value}`)
  return `${baseUrl}${path}${search.size > 0 ? `?${search}` : ""}`
}

const headersOf = ({ credential }: Connection, call: Call, { headers, accessToken }: RequestOptions) => ({
  accept: call.isText ? "text/csv" : "application/json",
  ...(call.text === undefined ? {} : { "content-type": "application/json" }),
  ...(accessToken !== undefined ? { authorization: `Bearer ${accessToken}` } : call.isPublic ? {} : credential),
  ...(call.idempotencyKey === undefined ? {} : { "idempotency-key": call.idempotencyKey }),
  ...headers,
})

function errorOf(
  { baseUrl }: Connection,
  { idempotencyKey }: Call,
  response: Response | undefined,
  body: Record<string, unknown>,
  cause?: unknown,
): SluiceError {
  const code = (body.error ?? body.code) as ErrorCode | ClientErrorCode
  const after = Number(body.retryAfter ?? response?.headers.get("retry-after") ?? Number.NaN)
  return new SluiceError(
    `${body.message}`,
    {
      code,
      status: response?.status,
      requestId: (body.requestId as string | undefined) ?? response?.headers.get("x-request-id") ?? undefined,
      details: body.details as ErrorDetail[] | undefined,
      retryAfter: Number.isFinite(after) ? after : undefined,
      idempotencyKey,
      docUrl: `${baseUrl}/docs/errors#${code}`,
      body,
    },
    cause === undefined ? undefined : { cause },
  )
}

function reportLimits({ heardLimits }: Connection, { headers }: Response): void {
  const [limit, remaining, reset] = ["limit", "remaining", "reset"].map(name => headers.get(`x-ratelimit-${name}`))
  if (limit && remaining && reset)
    heardLimits({ limit: Number(limit), remaining: Number(remaining), reset: Number(reset) })
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
