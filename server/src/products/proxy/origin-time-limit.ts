/**
 * How long one answer may make us wait for its origin, all its pauses together. Otherwise an origin that sends a byte
 * now and then keeps a place for ever.
 */
// I/O: a timer; needs no context.

/**
 * What gives a second back. A language model's stream of events is faster while it writes: some hundred bytes for each
 * of dozens of tokens a second. While it thinks, it sends next to nothing.
 */
const BYTES_PER_SECOND = 2_048

export interface TimeLimit {
  /** The origin is waited for from now on, after it has sent `bytes`. */
  waits(bytes: number): void
  /** The origin is waited for no longer. */
  ends(): void
}

/**
 * Calls `ranOut` once the origin has been waited for `maxMs` in all. Each 2 KB that it sends give a second back, never
 * beyond `maxMs`.
 */
export function openTimeLimit(maxMs: number, ranOut: () => void): TimeLimit {
  let leftMs = maxMs
  let sinceMs: number | undefined
  let timer: NodeJS.Timeout | undefined
  return {
    waits: bytes => {
      leftMs = Math.min(maxMs, leftMs + (bytes / BYTES_PER_SECOND) * 1_000)
      sinceMs = performance.now()
      timer = setTimeout(ranOut, leftMs).unref()
    },
    ends: () => {
      if (sinceMs === undefined) return
      leftMs -= performance.now() - sinceMs
      sinceMs = undefined
      clearTimeout(timer)
    },
  }
}
