/** Callers that disconnect before they are answered. */
import type { ServerResponse } from "node:http"

/**
 * Returns a signal that aborts when the caller's connection is closed, or immediately if it is closed already. If a
 * caller disconnects while something else is awaited, "close" is emitted before anybody listens. Code that only listens
 * misses the event. Such calls held an origin's connections until the origin answered.
 */
export function goneSignal(raw: ServerResponse): AbortSignal {
  const gone = new AbortController()
  raw.once("close", () => gone.abort("gone"))
  if (raw.destroyed) gone.abort("gone")
  return gone.signal
}
