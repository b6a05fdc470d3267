/**
 * Limits how long one answer may make us wait for its origin in total. Otherwise, an origin that sends a byte now and
 * then would keep a slot forever.
 */
// I/O: a timer; needs no context.

/**
 * How many bytes extend the wait by one second. A language model sends more while it writes: a few hundred bytes per
 * token, at dozens of tokens a second. While it thinks, it sends almost nothing.
 */
const BYTES_PER_SECOND = 2_048

export interface TimeLimit {
  /** Starts waiting for the origin, after it sent `bytes`. */
  waits(bytes: number): void
  /** Ends waiting for the origin. */
  ends(): void
}

/**
 * Calls `ranOut` once the total wait for the origin reaches `maxMs`. Every 2 KB that the origin sends extend the
 * remaining wait by a second, up to `maxMs`.
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
