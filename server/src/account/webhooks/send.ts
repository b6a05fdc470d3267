/**
 * One exchange with a receiver: a signed POST and its result in words. The exchange is the same for all destinations.
 */
// I/O: sends one request to a receiver; needs no context, only the settings.
import type { IncomingHttpHeaders } from "node:http"
import { Agent, type Dispatcher } from "undici"
import type { WebhookSettings } from "../../platform/config/settings.ts"
import { guardedConnector, openResolver, type Resolve } from "../../platform/net/connector.ts"
import { memoize } from "../../platform/net/memoize.ts"
import { addressRule, isPublicAddress } from "../../platform/net/public-address.ts"
import { faultOf, type Outcome, retryAfterOf, signatureHeaders } from "./webhook.ts"

/** How many bytes of an answer are stored, and how many are read at most. */
const KEPT_BYTES = 4 * 1024
const READ_BYTES = 64 * 1024
/** How long a connection may be idle between two deliveries, in milliseconds. */
const MAX_IDLE_MS = 30_000
const USER_AGENT = "Sluice-Webhooks/1"

interface Message {
  url: string
  /** Newest first. */
  secrets: readonly string[]
  eventId: string
  /** The delivery's id: the same in every attempt. */
  idempotencyKey: string
  body: string
  /** The attempt's span, for a receiver that continues the trace. */
  traceparent?: string | undefined
}

export interface Attempt extends Outcome {
  durationMs: number
  /** The first 4 KB of the answer's body; null when no answer came. */
  answer: string | null
  /** The headers that were sent, as {@link shownHeaders}; null if nothing was sent. */
  headers: Record<string, string> | null
}

export interface Sender {
  /** Sends and never rejects: errors are part of the result. The deadline covers the whole exchange. */
  send(message: Message, options: { timeoutMs: number; signal?: AbortSignal | undefined }): Promise<Attempt>
  /**
   * Whether this URL's host resolved to a private address at the last connection, which only an allowed range permits.
   */
  isPrivate(url: string): boolean
  close(): Promise<void>
}

/**
 * Opens a sender for these settings. `now` gives the time of signatures. `resolve` and `ca` replace the system's name
 * resolution and root certificates.
 */
export function openSender(
  { allowCidrs, timeoutMs, probeTimeoutMs }: WebhookSettings,
  { resolve, ca, now = () => new Date() }: { resolve?: Resolve; ca?: string; now?: () => Date } = {},
): Sender {
  const privateHosts = new Set<string>()
  const agent = new Agent({
    connect: guardedConnector({
      allows: addressRule(allowCidrs),
      resolve: resolve ?? openResolver({ systemToo: allowCidrs.length > 0 }),
      timeoutMs: Math.max(timeoutMs, probeTimeoutMs),
      ca,
      connected: (host, address) => {
        if (isPublicAddress(address)) privateHosts.delete(host)
        else privateHosts.add(host)
      },
    }),
    allowH2: false,
    // `exchange` has a deadline for the whole exchange. Undici's time-outs apply between two bytes.
    headersTimeout: 0,
    bodyTimeout: 0,
    // A receiver may ask to keep a connection for longer, and undici would keep its sockets open for ten minutes.
    keepAliveMaxTimeout: MAX_IDLE_MS,
  })
  return {
    send: (message, options) => exchange({ agent, now }, message, options),
    isPrivate: url => privateHosts.has(new URL(url).hostname),
    close: () => agent.destroy(),
  }
}

/**
 * Sends one request with undici's handlers. Undici's promises, streams and signals took half of the time that a
 * delivery takes in this process (measured).
 */
function exchange(
  { agent, now }: { agent: Agent; now: () => Date },
  message: Message,
  { timeoutMs, signal }: { timeoutMs: number; signal?: AbortSignal | undefined },
): Promise<Attempt> {
  const startedAt = performance.now()
  const { promise, resolve } = Promise.withResolvers<Attempt>()
  let request: ReturnType<typeof requestOf> | undefined
  let connection: Dispatcher.DispatchController | undefined
  let status: number | null = null
  let headers: IncomingHttpHeaders = {}
  let answer: Buffer[] | undefined
  let read = 0
  let isOver = false
  const end = (error: string | null, retryAfterMs?: number): void => {
    if (isOver) return
    isOver = true
    clearTimeout(timer)
    signal?.removeEventListener("abort", stop)
    const durationMs = Math.round(performance.now() - startedAt)
    const shown = request ? shownHeaders(request.headers) : null
    resolve({ status, error, answer: answer ? storable(answer) : null, headers: shown, retryAfterMs, durationMs })
  }
  const answered = (status: number): void => end(fault(status, headers), retryAfterMsOf(status, headers, now()))
  const abort = (): void => connection?.abort(new Error("aborted"))
  const giveUp = (error: string): void => {
    end(error)
    abort()
  }
  const timer = setTimeout(() => giveUp(lateness(status, timeoutMs)), timeoutMs)
  const stop = (): void => giveUp("the service stopped before the answer came")
  if (signal?.aborted) stop()
  signal?.addEventListener("abort", stop, { once: true })
  if (isOver) return promise
  const failed = (error: Error): void => end(wordsOf(error, status))
  try {
    request = requestOf(message, now())
    agent.dispatch(request, {
      onRequestStart: controller => {
        connection = controller
        // The exchange ended during the connection set-up.
        if (isOver) abort()
      },
      onResponseStart: (_, statusCode, given) => {
        if (statusCode < 200) return
        status = statusCode
        headers = given
      },
      onResponseData: (_, chunk) => {
        answer ??= []
        if (read < KEPT_BYTES) answer.push(chunk.subarray(0, KEPT_BYTES - read))
        read += chunk.length
        // The status is known, and reading the rest of a gigabyte would not change it.
        if (read < READ_BYTES || status === null) return
        answered(status)
        abort()
      },
      onResponseEnd: () => {
        answer ??= []
        answered(status ?? 0)
      },
      onResponseError: (_, error) => failed(error),
    })
  } catch (error) {
    failed(error as Error)
  }
  return promise
}

const lateness = (status: number | null, timeoutMs: number): string =>
  `${status === null ? "no answer" : `answered ${status}, but did not finish its answer`} within ${timeoutMs / 1_000} s`

/** Cached, because most deliveries go to a URL that was just used. */
const addressOf = memoize(url => {
  const { origin, pathname, search } = new URL(url)
  return { origin, path: pathname + search }
})

/** The headers of a delivery that is signed at `t`, in Unix seconds. */
export const deliveryHeaders = (
  { secrets, eventId, idempotencyKey, body, traceparent }: Omit<Message, "url">,
  t: number,
): Record<string, string> => ({
  "content-type": "application/json",
  "user-agent": USER_AGENT,
  "idempotency-key": idempotencyKey,
  ...(traceparent === undefined ? {} : { traceparent }),
  ...signatureHeaders(secrets, { eventId, body, t }),
})

/**
 * A delivery's headers for its log. Eight characters of a signature show whether a receiver computed the same one. With
 * a whole signature, a reader of the log could send the event again.
 */
const shownHeaders = (headers: Record<string, string>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name,
      name.endsWith("signature") ? value.replaceAll(/(v1=|v1,|sha256=)([\w+/]{8})[\w+/=]*/g, "$1$2…") : value,
    ]),
  )

/** Signatures use wall time, whatever the service's clock says. */
const requestOf = (message: Message, now: Date) => ({
  ...addressOf(message.url),
  method: "POST" as const,
  headers: deliveryHeaders(message, Math.floor(now.getTime() / 1_000)),
  body: message.body,
})

/** Text that Postgres accepts, whatever the bytes were. */
const storable = (chunks: Buffer[]): string => Buffer.concat(chunks).toString("utf8").replaceAll("\0", "\ufffd")

/** Why an answer with this status is not a success, or null. */
function fault(status: number, headers: IncomingHttpHeaders): string | null {
  const location = [headers.location].flat()[0]
  if (status >= 300 && status < 400 && location !== undefined)
    return `answered ${status}, a redirect to ${location.slice(0, 500)}; redirects are not followed`
  return faultOf(status)
}

/** The delay that an answer asks for, if its status is 429 or 503. */
const retryAfterMsOf = (status: number, headers: IncomingHttpHeaders, now: Date): number | undefined =>
  status === 429 || status === 503 ? retryAfterOf([headers["retry-after"]].flat()[0], now.getTime()) : undefined

const CLOSED = "the connection was closed before the answer was complete"

const words: Record<string, string> = {
  ECONNREFUSED: "the connection was refused",
  ECONNRESET: CLOSED,
  EPIPE: CLOSED,
  UND_ERR_SOCKET: CLOSED,
  UND_ERR_CLOSED: CLOSED,
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: CLOSED,
  EHOSTUNREACH: "there is no route to its address",
  ENETUNREACH: "there is no route to its address",
  ETIMEDOUT: "the connection could not be established in time",
  UND_ERR_CONNECT_TIMEOUT: "the connection could not be established in time",
  UND_ERR_HEADERS_OVERFLOW: "its answer has too many headers",
  TOO_LARGE: "its answer is too large",
  // Thrown by undici for a status below 100.
  ERR_ASSERTION: "its answer is not HTTP",
}

/** Whether a code of OpenSSL or Node reports a defect of the certificate. */
const isCertificate = (code: string): boolean =>
  /CERT|ALTNAME|UNABLE_TO_(GET|VERIFY|DECODE)|SELF_SIGNED|CRL|INVALID_(CA|PURPOSE)|HOSTNAME_MISMATCH/.test(code)

/** Why an exchange failed, in words without an address. `status` is set if an answer had started. */
export function wordsOf(
  error: Error & { code?: string; cause?: unknown; errors?: Error[] },
  status: number | null,
): string {
  // Either all addresses of a name failed, or the error was wrapped. Only the first cause is reported.
  const inner = error.errors?.[0] ?? (error.code === undefined ? error.cause : undefined)
  if (inner instanceof Error && inner !== error) return wordsOf(inner, status)
  const code = error.code ?? ""
  // Undici reports this for an interim answer that only a request with `Expect` may get.
  if (error.message === "bad response") return "it answered 100 Continue, which was not requested"
  if (code === "DNS" || code === "REFUSED") return error.message
  // The error's own message would contain the address.
  if ("address" in error && words[code] === undefined) return `the connection failed (${code})`
  const known =
    words[code] ??
    (isCertificate(code)
      ? `its certificate is not valid: ${error.message}`
      : /^(ERR_SSL|EPROTO|ERR_TLS)/.test(code)
        ? `no secure connection could be established (${code})`
        : error.name === "HTTPParserError"
          ? "its answer is not HTTP"
          : `${error.message}${code && ` (${code})`}`)
  return status === null ? known : `answered ${status}, but ${known}`
}
