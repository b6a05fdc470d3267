/**
 * Sends JSON-RPC in batches to one endpoint, and returns a result for each entry. Replies are paired by id, because
 * nodes may answer a batch in any order and drop entries; viem's batching pairs by position.
 */
import type { Hex } from "viem"
import { rpcCalls, rpcDuration } from "../metrics.ts"
import { AnswerTooLarge } from "../net/bounded-body.ts"
import { post, TooLate } from "./post.ts"
import { UselessAnswer } from "./sliced-json.ts"

export interface RpcCall {
  method: string
  params: readonly unknown[]
  /** The largest answer that is read, in bytes; by default the size that is expected for its method. */
  maxBytes?: number
}

/**
 * `error` says why there is no result; a missing result is never read as an empty one. `data`: the revert data of a
 * call. `isTooLarge`: the answer was larger than the limit.
 */
export type RpcResult = { ok: true; value: unknown } | { ok: false; error: string; data?: string; isTooLarge?: boolean }

/** The answer as a whole can't be used: no connection, a timeout, an HTTP error, or not JSON. */
export class RpcError extends Error {
  /** The status of the HTTP answer, if that was the error. */
  status?: number
  /**
   * Whether the answer only filled memory. No honest node sends such an answer, so the endpoint is queried less often.
   */
  isUseless?: boolean
}

/** The result of querying endpoints; undefined if too few endpoints answer. Other errors are thrown. */
export const unlessSilent = <T>(work: Promise<T>): Promise<T | undefined> =>
  work.catch(error => {
    if (error instanceof RpcError) return undefined
    throw error
  })

const TIMEOUT_MS = 10_000
/** Entries in one HTTP request; public endpoints refuse more than 100, some more than 50. */
export const MAX_ENTRIES = 50
/** A learned number of entries is used for this long, and then twice as many are tried. */
const ENTRIES_KEPT_MS = 600_000
const MB = 1024 * 1024
/** The largest answer to one request, unless one of its calls may have a larger one. */
const MAX_BYTES = 8 * MB
/** The expected size of a call's answer, if it is more than 1 MB: about 11,000 logs, as a list or in a receipt. */
const largeAnswers: Record<string, number> = {
  eth_getLogs: MAX_BYTES,
  eth_getTransactionReceipt: MAX_BYTES,
  eth_getBlockByNumber: 2 * MB,
  eth_getBlockByHash: 2 * MB,
}
/** The longest error message that is kept, in characters, because messages go into logs. */
const MAX_WORDS = 2_000
/** The longest message for the error of a whole exchange, which goes into alarms. */
const MAX_REFUSAL_WORDS = 200
/** Statuses that may refuse a batch. A smaller batch does not help if the message is about access or rate limits. */
const BATCH_STATUSES = [400, 405, 415, 422, 501]
const ABOUT_USE = /\brate\b|too many requests|quota|capacity|credit|throttl|unauthori|forbidden|api key|denied/i
/**
 * How many answers of one `batch` may be too large, and how many bytes the others may have in total, before the batch
 * stops asking.
 */
const MAX_TOO_LARGE = 8
const MAX_TOGETHER = 3 * MAX_BYTES

const maxBytesOf = ({ method, maxBytes }: RpcCall): number => maxBytes ?? largeAnswers[method] ?? MB

/** The largest answer to these calls that is read, in bytes: the sum of the expected sizes, up to {@link MAX_BYTES}. */
const maxBytes = (calls: readonly RpcCall[]): number => {
  const sizes = calls.map(maxBytesOf)
  return Math.max(Math.min(MAX_BYTES, sum(sizes)), ...sizes)
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, n) => total + n, 0)

/** An endpoint. `position` is its position in the setting, from 1, for the metrics. */
interface BatchEndpoint {
  url: string
  network: string
  position?: number
  timeoutMs?: number
  /** The unpacked bytes of the endpoint's answers are added here. */
  bytes?: number
  /**
   * How many calls the endpoint accepts in a request, and when that was learned, in ms. A single call is sent without a
   * list.
   */
  entries?: number
  entriesChangedAt?: number
}

/** An endpoint refused a whole request, and may accept a smaller one. */
class Refused {
  readonly error: RpcError
  constructor(error: RpcError) {
    this.error = error
  }
}

/**
 * Sends `calls` as batches of 50 and returns their results in the order of `calls`. Throws an {@link RpcError} if a
 * whole exchange fails, or takes longer than `timeoutMs` (10 s by default). Calls whose answers are too large together
 * are sent again in halves, so that one huge receipt does not block the rest. A batch that is refused as a whole is
 * halved too, and the endpoint gets smaller ones from then on.
 */
export async function batch(
  endpoint: BatchEndpoint,
  calls: readonly RpcCall[],
  signal?: AbortSignal,
): Promise<RpcResult[]> {
  const results: RpcResult[] = []
  const { entries: learned, entriesChangedAt } = endpoint
  let together = 0
  let tooLarge = 0
  const open: (readonly RpcCall[])[] = [calls]
  for (let part = open.shift(); part; part = open.shift()) {
    const most = endpoint.entries ?? MAX_ENTRIES
    if (part.length > most) {
      open.unshift(part.slice(0, most), part.slice(most))
      continue
    }
    if (together > MAX_TOGETHER || tooLarge > 2 * MAX_TOO_LARGE) {
      results.push(...part.map((): RpcResult => ({ ok: false, error: "the preceding answers are too large together" })))
      continue
    }
    let bytes = 0
    const read = (more: number) => {
      bytes += more
      endpoint.bytes = (endpoint.bytes ?? 0) + more
    }
    const answer = part.length === 0 ? [] : await oneBatch(endpoint, part, read, signal)
    if (answer instanceof Refused) {
      if (most === 1) {
        // An endpoint that refuses everything says nothing about sizes.
        Object.assign(endpoint, { entries: learned, entriesChangedAt })
        throw answer.error
      }
      Object.assign(endpoint, { entries: Math.max(1, part.length >> 1), entriesChangedAt: Date.now() })
      open.unshift(part)
    } else if (!(answer instanceof AnswerTooLarge)) {
      results.push(...answer)
      together += bytes
      if (part.length === most) growEntries(endpoint)
    } else if (++tooLarge <= MAX_TOO_LARGE && part.length > 1)
      open.unshift(part.slice(0, part.length >> 1), part.slice(part.length >> 1))
    else results.push(...part.map((): RpcResult => ({ ok: false, error: answer.message, isTooLarge: true })))
  }
  return results
}

/** Tries more entries again after a while, because the refusal may have been temporary. */
function growEntries(endpoint: BatchEndpoint): void {
  const { entries = MAX_ENTRIES, entriesChangedAt = 0 } = endpoint
  if (entries === MAX_ENTRIES || Date.now() - entriesChangedAt < ENTRIES_KEPT_MS) return
  Object.assign(endpoint, { entries: Math.min(2 * entries, MAX_ENTRIES), entriesChangedAt: Date.now() })
}

/**
 * Unique in this process, so that a surplus answer on a reused connection matches no call, rather than the next call.
 */
let nextId = 0

async function oneBatch(
  endpoint: BatchEndpoint,
  calls: readonly RpcCall[],
  read: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<RpcResult[] | AnswerTooLarge | Refused> {
  const firstId = nextId
  nextId += calls.length
  const list = calls.map(({ method, params }, i) => ({ jsonrpc: "2.0", id: firstId + i, method, params }))
  const body = endpoint.entries === 1 ? list[0] : list
  const { network, position = 1, timeoutMs = TIMEOUT_MS } = endpoint
  const count = ({ method }: RpcCall, result: "ok" | "error") =>
    rpcCalls.inc({ network, endpoint: `${position}`, method, result })
  const stop = rpcDuration.startTimer({ network, endpoint: `${position}` })
  let replies: unknown
  try {
    const bounds = { maxBytes: maxBytes(calls), timeoutMs, signal, read }
    const { status, json } = await post(endpoint.url, JSON.stringify(body), bounds)
    const refused = refusalOf(endpoint, calls, status, json)
    if (refused instanceof RpcError) throw refused
    if (refused) {
      for (const call of calls) count(call, "error")
      return refused
    }
    replies = json
  } catch (error) {
    for (const call of calls) count(call, "error")
    if (error instanceof RpcError) throw error
    // The error is about the request, not the endpoint. A caller that asked for a range then asks for less.
    if (error instanceof AnswerTooLarge) return error
    if (error instanceof UselessAnswer) throw Object.assign(new RpcError(error.message), { isUseless: true })
    // The address of an endpoint may contain its key, so only the cause is reported.
    throw new RpcError(error instanceof TooLate ? "no answer in time" : "no usable answer", {
      cause: error,
    })
  } finally {
    stop()
  }
  // Some providers return ids as strings.
  const byId = new Map<string, Record<string, unknown>>()
  for (const reply of Array.isArray(replies) ? replies : [replies])
    if (typeof reply === "object" && reply !== null) byId.set(String(reply.id), reply)
  return calls.map((call, i) => {
    const result = resultOf(byId.get(`${firstId + i}`))
    count(call, result.ok ? "ok" : "error")
    return result
  })
}

/** Why an answer refuses the whole request; undefined if it answers the calls. */
function refusalOf(
  endpoint: BatchEndpoint,
  calls: readonly RpcCall[],
  status: number,
  json: unknown,
): Refused | RpcError | undefined {
  const whole = Array.isArray(json) && json.length === 1 ? json[0] : json
  const { error, id } = (typeof whole === "object" && whole !== null ? whole : {}) as Record<string, unknown>
  const isOfAll = id === null || id === undefined || (whole === json && calls.length > 1)
  if (status < 300 && !(error && isOfAll)) return undefined
  const { message = error } = (typeof error === "object" && error !== null ? error : {}) as Record<string, unknown>
  const words = typeof message === "string" ? withoutKey(endpoint, message) : ""
  const said = status > 299 ? `HTTP ${status}${words && `: ${words}`}` : words || "an error without a message"
  const failure = Object.assign(new RpcError(said), status > 299 ? { status } : {})
  const isOfSize = status < 300 || BATCH_STATUSES.includes(status)
  return /batch/i.test(words) || (isOfSize && !ABOUT_USE.test(words)) ? new Refused(failure) : failure
}

/** An endpoint's message for logs and alarms: truncated, without addresses, and without anything that may be a key. */
export function withoutKey({ url }: Pick<BatchEndpoint, "url">, words: string): string {
  const { pathname, search, username, password } = new URL(url)
  const secrets = [...`${pathname}${search}`.split(/[/?&=]/), username, password].filter(part => part.length >= 8)
  const clean = secrets.reduce((text, secret) => text.replaceAll(secret, "…"), words)
  const plain = clean.replace(/https?:\/\/\S+|[\w-]{24,}/g, "…").replace(/\p{C}/gu, " ")
  return plain.slice(0, MAX_REFUSAL_WORDS)
}

function resultOf(reply: Record<string, unknown> | undefined): RpcResult {
  if (!reply) return { ok: false, error: "no reply" }
  if (reply.error) {
    const { message, data } = reply.error as { message?: unknown; data?: unknown }
    // A contract chooses its error text, and Postgres rejects text that contains NUL.
    const error = (typeof message === "string" ? message : "error").slice(0, MAX_WORDS).replace(/\p{Cc}+/gu, " ")
    return { ok: false, error, ...(typeof data === "string" ? { data } : {}) }
  }
  if (!("result" in reply)) return { ok: false, error: "the answer has no result and no error" }
  return { ok: true, value: reply.result }
}

/** A number as JSON-RPC writes it. */
export const hexNumber = (n: bigint | number): Hex => `0x${n.toString(16)}`
