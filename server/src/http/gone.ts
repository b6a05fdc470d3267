/** Callers who leave before they are answered. */
import type { ServerResponse } from "node:http"

/**
 * Aborts when the caller's connection is closed; at once where it already is. Whoever leaves while something is awaited is announced
 * to nobody, so that listening for "close" alone misses them: their calls held an origin's connections until it answered.
 */
export function goneSignal(raw: ServerResponse): AbortSignal {
  const gone = new AbortController()
  raw.once("close", () => gone.abort("gone"))
  if (raw.destroyed) gone.abort("gone")
  return gone.signal
}
