/**
 * The exact sliding log: per key the times of its admissions within the window, so that no window of that length ever
 * holds more than the limit. A fixed window admits twice the limit, GCRA up to 2N − 1.
 *
 * This store is for one process; it is bounded, the key that was used longest ago goes first.
 */

export interface Count {
  key: string
  /** Admissions in any window, at least 1. */
  limit: number
}

interface Verdict {
  admitted: boolean
  /** Milliseconds until the same request would be admitted; 0 when it was. */
  waitMs: number
  /** Of the bucket nearest to its limit; `resetAtMs` is when its oldest admission leaves the window. */
  limit: number
  remaining: number
  resetAtMs: number
}

export interface SlidingLog {
  /** Counts a request against all of `counts` (one at least), or against none when one of them is full. */
  admit(counts: readonly Count[], nowMs: number): Verdict
  readonly size: number
}

export function memoryLog(options: { windowMs: number; maxKeys: number }): SlidingLog {
  const { windowMs, maxKeys } = options
  /** Newest first, as in the shared store. */
  const logs = new Map<string, number[]>()
  return {
    get size() {
      return logs.size
    },
    admit: (counts, clockMs) => {
      const entries = counts.map(({ key, limit }) => ({ key, limit, times: logs.get(key) ?? [] }))
      // A clock that steps back must not admit anything extra.
      const now = Math.max(clockMs, ...entries.map(entry => entry.times[0] ?? 0))
      for (const entry of entries) entry.times = entry.times.filter(time => time > now - windowMs)
      const waits = entries.map(({ limit, times }) => {
        const blocking = times[limit - 1]
        return blocking === undefined ? 0 : blocking + windowMs - now
      })
      const waitMs = Math.max(...waits)
      for (const { key, times } of entries) {
        if (waitMs === 0) times.unshift(now)
        // Deleted first, so that the map's order is the order of use.
        logs.delete(key)
        if (times.length > 0) logs.set(key, times)
      }
      for (const oldest of logs.keys()) {
        if (logs.size <= maxKeys) break
        logs.delete(oldest)
      }
      const states = entries.map(({ limit, times }, i) => ({
        limit,
        remaining: Math.max(0, limit - times.length),
        resetAtMs: (times.at(-1) ?? now) + windowMs,
        waitMs: waits[i] ?? 0,
      }))
      const nearest = states.reduce((a, b) =>
        b.waitMs > a.waitMs || (b.waitMs === a.waitMs && b.remaining < a.remaining) ? b : a,
      )
      return {
        admitted: waitMs === 0,
        waitMs,
        limit: nearest.limit,
        remaining: nearest.remaining,
        resetAtMs: nearest.resetAtMs,
      }
    },
  }
}
