/** Pulls a listener's deliveries from the service's stream, and opens a new stream when one breaks. */
import { setTimeout as sleep } from "node:timers/promises"
import { SluiceError } from "../../../sdk/src/errors.ts"
import { refusalOf } from "../request.ts"

/**
 * How long a stream may be silent. The service sends something every ten seconds, so a stream that is silent for
 * longer is broken.
 */
const MAX_SILENCE_MS = 30_000
const FIRST_PAUSE_MS = 500
const MAX_PAUSE_MS = 10_000

/** A delivery as the service provides it for sending. */
export interface Pulled {
  deliveryId: string
  /** Counted from 1; the result must contain the same number. */
  attempt: number
  event: string
  /** The address to which the original is sent, if this is a copy. */
  callbackUrl: string | null
  headers: Record<string, string>
  /** The exact bytes of the body, in base64. */
  body: string
}

interface Source {
  baseUrl: string
  apiKey: string
  listenerId: string
  signal: AbortSignal
  /** Called each time a stream is opened. */
  opened: () => void
  /** Called each time a stream breaks, with the reason. */
  broke: (reason: string) => void
}

/**
 * Yields deliveries until the signal aborts or the listener ends; in both cases it returns. Throws a {@link
 * SluiceError} if the same request would be refused again, for example because the key was revoked. `NOT_FOUND` means
 * that the listener has ended.
 */
export async function* pullDeliveries(source: Source): AsyncGenerator<Pulled> {
  for (let failures = 0; !source.signal.aborted; ) {
    let retryAfterS: number | undefined
    try {
      for await (const { event, data } of openStream(source, () => (failures = 0))) {
        if (event === "over") return
        if (event === "delivery") yield JSON.parse(data)
      }
      // Either the service has stopped, or the credential is no longer valid; the next request shows which.
      if (!source.signal.aborted) source.broke("the stream ended")
    } catch (error) {
      if (source.signal.aborted) return
      if (error instanceof SluiceError && !error.retryable) throw error
      retryAfterS = error instanceof SluiceError ? error.retryAfter : undefined
      source.broke((error as Error).message)
    }
    const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures++)
    await sleep(retryAfterS === undefined ? pauseMs : retryAfterS * 1_000, undefined, { signal: source.signal }).catch(
      () => {},
    )
  }
}

/** Yields the events of one stream, until the stream ends or is silent for too long. */
async function* openStream(
  { baseUrl, apiKey, listenerId, signal, opened }: Source,
  succeeded: () => void,
): AsyncGenerator<{ event: string; data: string }> {
  const silent = new AbortController()
  const timer = setTimeout(() => silent.abort(new Error("the service is silent")), MAX_SILENCE_MS)
  try {
    const response = await fetch(`${baseUrl}/api/console/listeners/${listenerId}/deliveries`, {
      headers: { accept: "text/event-stream", "x-api-key": apiKey },
      redirect: "manual",
      signal: AbortSignal.any([signal, silent.signal]),
    })
    if (!response.ok || !response.body) throw await refusalOf(baseUrl, response)
    succeeded()
    opened()
    let text = ""
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      timer.refresh()
      text += chunk
      const blocks = text.split("\n\n")
      text = blocks.pop() ?? ""
      for (const block of blocks) {
        const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1]
        yield { event: field("event") ?? "", data: field("data") ?? "" }
      }
    }
  } finally {
    clearTimeout(timer)
    // Closes the connection if the caller stopped in the middle of the stream.
    silent.abort()
  }
}
