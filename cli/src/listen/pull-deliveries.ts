/** Takes a listener's deliveries from the service's stream, and takes the stream up again when it breaks. */
import { setTimeout as sleep } from "node:timers/promises"
import { SluiceError } from "../../../sdk/src/errors.ts"
import { refusalOf } from "../request.ts"

/** The service sends something every ten seconds. A stream that is silent for longer has broken. */
const MAX_SILENCE_MS = 30_000
const FIRST_PAUSE_MS = 500
const MAX_PAUSE_MS = 10_000

/** A delivery as the service gives it to be sent. */
export interface Pulled {
  deliveryId: string
  /** From 1; it goes back into the result. */
  attempt: number
  event: string
  /** Where the original is sent, if this is a copy. */
  callbackUrl: string | null
  headers: Record<string, string>
  /** The exact bytes, in base64. */
  body: string
}

interface Source {
  baseUrl: string
  apiKey: string
  listenerId: string
  signal: AbortSignal
  /** Called each time that the stream is open. */
  opened: () => void
  /** Called once for each time that the stream breaks, with the reason. */
  broke: (reason: string) => void
}

/**
 * Yields deliveries until the signal, or the listener's end, which both return. Throws a {@link SluiceError} for a refusal that the
 * same request would get again, such as a revoked key; `NOT_FOUND` is a listener that has ended.
 */
export async function* pullDeliveries(source: Source): AsyncGenerator<Pulled> {
  for (let failures = 0; !source.signal.aborted; ) {
    let retryAfterS: number | undefined
    try {
      for await (const { event, data } of openStream(source, () => (failures = 0))) {
        if (event === "over") return
        if (event === "delivery") yield JSON.parse(data)
      }
      // The service has stopped, or the credential is no longer good; the next request shows which.
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

/** The events of one stream, until it ends or is silent for too long. */
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
    // Ends the connection of a caller that stopped in the middle.
    silent.abort()
  }
}
