/**
 * Sends spans to a collector (OTLP over HTTP) in the background. The SDK's own batch processor and exporter are not
 * used. The SDK's parts send any number of requests in parallel when they flush, and wait for a collector that sends
 * single bytes. The SDK has no metric for dropped spans.
 */
import type { ISerializer } from "@opentelemetry/otlp-transformer"
import type { ReadableSpan, SpanProcessor } from "@opentelemetry/sdk-trace"
import { Agent } from "undici"
import { spanResults } from "../metrics.ts"

/** How many spans may wait. Further ones are dropped, so that a hanging collector costs only a few megabytes. */
const MAX_QUEUED = 4_096
const BATCH = 512
/** How long a span waits for more spans before it is sent. */
const DELAY_MS = 2_000
/** The deadline of one exchange, including the whole answer. */
const TIMEOUT_MS = 10_000
/** The maximum size of an answer, which is normally a few hundred bytes. */
const ANSWER_BYTES = 64 * 1024
const TRIES = 5
const FIRST_PAUSE_MS = 1_000
/** Statuses after which a batch is sent again, as OTLP specifies. A broken connection is retried too. */
const RETRYABLE = [429, 502, 503, 504]

interface Collector {
  url: string
  headers: ReadonlyMap<string, string>
  contentType: string
  serializer: ISerializer<ReadableSpan[], { partialSuccess?: { rejectedSpans?: number } }>
}

/** Called once when the collector starts to fail, and once when it works again. */
export type Report = (isFailing: boolean, words: string) => void

/** `closing` is aborted when the exporter no longer waits for anything, `over` when it no longer sends anything. */
interface Ends {
  closing: AbortController
  over: AbortController
}

/** A processor of ended spans. The processor never throws, and callers only ever wait for its `close`. */
export function exportSpans(
  collector: Collector,
  report: Report,
): SpanProcessor & { close: (maxMs: number) => Promise<void> } {
  const agent = new Agent({ connections: 1, pipelining: 1 })
  const ends = { closing: new AbortController(), over: new AbortController() }
  const sendBatch = batchSender(agent, collector, ends, report)
  let queue: ReadableSpan[] = []
  let timer: NodeJS.Timeout | undefined
  let sending: Promise<void> | undefined

  function send(): void {
    clearTimeout(timer)
    timer = undefined
    sending ??= sendAll().finally(() => {
      sending = undefined
    })
  }

  async function sendAll(): Promise<void> {
    while (queue.length > 0) {
      const batch = queue.slice(0, BATCH)
      queue = queue.slice(BATCH)
      // A batch that can't be encoded must not end the process.
      await sendBatch(batch).catch(() => spanResults.inc({ result: "failed" }, batch.length))
    }
  }

  const flush = async (): Promise<void> => {
    while (queue.length > 0 || sending) {
      send()
      await sending
    }
  }

  const close = async (maxMs: number): Promise<void> => {
    ends.closing.abort()
    const timer = setTimeout(() => ends.over.abort(), maxMs)
    await flush()
    clearTimeout(timer)
    ends.over.abort()
    await agent.destroy()
  }

  return {
    onStart: () => {},
    onEnd: span => {
      if ((span.spanContext().traceFlags & 1) === 0) return
      if (ends.closing.signal.aborted || queue.length >= MAX_QUEUED) return spanResults.inc({ result: "dropped" })
      queue.push(span)
      if (queue.length >= BATCH) send()
      else timer ??= setTimeout(send, DELAY_MS).unref()
    },
    forceFlush: flush,
    shutdown: () => close(TIMEOUT_MS),
    close,
  }
}

/** Sends a batch, with retries, and counts what happened to its spans. */
function batchSender(agent: Agent, collector: Collector, { closing, over }: Ends, report: Report) {
  let isFailing = false
  const said = (fault: string | undefined): void => {
    const failed = fault !== undefined
    if (failed !== isFailing) report(failed, fault ?? "spans are exported again")
    isFailing = failed
  }
  return async (batch: ReadableSpan[]): Promise<void> => {
    const body = collector.serializer.serializeRequest(batch)
    let pauseMs = FIRST_PAUSE_MS
    for (let n = 1; body && !over.signal.aborted; n++) {
      const { rejected, fault, isFinal } = await post(agent, collector, body, over.signal)
      said(fault)
      if (rejected !== undefined) {
        spanResults.inc({ result: "exported" }, batch.length - rejected)
        if (rejected > 0) spanResults.inc({ result: "rejected" }, rejected)
        return
      }
      if (isFinal || n === TRIES || closing.signal.aborted) break
      await pause(pauseMs, closing.signal)
      pauseMs *= 2
    }
    spanResults.inc({ result: "failed" }, batch.length)
  }
}

/**
 * The result of an exchange: how many spans were rejected, or a fault. A fault is final if a retry would fail the same
 * way.
 */
interface Posted {
  rejected?: number
  fault?: string
  isFinal?: boolean
}

/** Posts once; never rejects. */
async function post(
  agent: Agent,
  { url, headers, contentType, serializer }: Collector,
  body: Uint8Array,
  over: AbortSignal,
): Promise<Posted> {
  const { origin, pathname } = new URL(url)
  const signal = AbortSignal.any([over, AbortSignal.timeout(TIMEOUT_MS)])
  try {
    const { statusCode, body: answer } = await agent.request({
      origin,
      path: pathname,
      method: "POST",
      body,
      signal,
      headers: { ...Object.fromEntries(headers), "content-type": contentType },
    })
    const read = await firstBytes(answer)
    if (statusCode >= 200 && statusCode < 300) return { rejected: rejectedIn(serializer, read) }
    return { fault: `the collector answered ${statusCode}`, isFinal: !RETRYABLE.includes(statusCode) }
  } catch (error) {
    const { code, name } = error as { code?: string; name?: string }
    return { fault: `the collector can't be reached (${code ?? name ?? "Error"})` }
  }
}

async function firstBytes(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    bytes += chunk.length
    // Leaving the loop closes the connection.
    if (bytes > ANSWER_BYTES) break
  }
  return Buffer.concat(chunks)
}

/**
 * How many spans an answer reports as rejected. 0 if the answer can't be read, because the spans were accepted and
 * nothing else is known.
 */
function rejectedIn(serializer: Collector["serializer"], answer: Buffer): number {
  if (answer.length === 0 || answer.length > ANSWER_BYTES) return 0
  try {
    return Number(serializer.deserializeResponse(answer).partialSuccess?.rejectedSpans ?? 0) || 0
  } catch {
    return 0
  }
}

/** Waits this long, or until the signal. */
const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise(resolve => {
    if (signal.aborted) return resolve()
    const timer = setTimeout(resolve, ms).unref()
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer)
        resolve()
      },
      { once: true },
    )
  })
