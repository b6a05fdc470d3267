/**
 * The exact sliding log. The log stores the times of each key's admissions, so that no window ever contains more than
 * the limit. A fixed window admits up to twice the limit, GCRA up to 2N − 1.
 *
 * This store is bounded, and serves one process. `shared-log.ts` makes the same decisions, step by step, for many
 * processes.
 */

export interface Count {
  key: string
  /** Admissions in any window, at least 1. */
  limit: number
}

export interface Verdict {
  admitted: boolean
  /** Milliseconds until the same request would be admitted; 0 if it was admitted. */
  waitMs: number
  /** The limit of the bucket that is closest to its limit. */
  limit: number
  remaining: number
  /** Milliseconds until that bucket's oldest admission leaves the window. */
  resetMs: number
}

export interface MemoryLog {
  /**
   * Counts a request against all of `counts` (at least one), or against none if one of them is full. An admission by
   * another store is recorded at `entryMs`, the time before that store was asked.
   */
  admit(counts: readonly Count[], nowMs?: number, entryMs?: number): Verdict
  /** The number of stored keys. */
  readonly size: number
}

/**
 * Whole milliseconds of a clock that never goes back. With a wall clock, setting the clock would unblock callers, or
 * block them.
 */
export const monotonicMs = (): number => Math.floor(performance.now())

/**
 * A log in this process's memory, by a clock in whole milliseconds. The log stores at most `maxKeys` keys, and always
 * the most recently used half of that number.
 */
export function memoryLog(options: { windowMs: number; maxKeys: number; clock?: () => number }): MemoryLog {
  const { windowMs, maxKeys, clock = monotonicMs } = options
  /** Admissions by key, oldest first; never empty. */
  const logs = recentlyUsed<number[]>(maxKeys)
  /** The logs of the current request, shared because a decision completes within one turn of the event loop. */
  const found: (number[] | undefined)[] = []

  return {
    get size() {
      return logs.size()
    },
    // Plain loops that allocate only the verdict. With iterators and closures, this code is a third slower
    // (script/bench limits).
    admit: (counts, clockMs = clock(), entryMs) => {
      // A clock that goes back must not admit anything extra, so a log's time stands still until the clock has caught
      // up. If that would take more than a window, all the log's times are set to now. Otherwise callers would be
      // blocked for as long as the clock was wrong.
      let blocking = Number.NEGATIVE_INFINITY
      let full = 0
      for (let i = 0; i < counts.length; i++) {
        const { key, limit } = counts[i] as Count
        const times = logs.get(key)
        found[i] = times
        if (!times) continue
        const { length } = times
        let now = times[length - 1] as number
        if (now > clockMs + windowMs) times.fill(clockMs)
        if (now < clockMs || now > clockMs + windowMs) now = clockMs
        const time = length < limit ? Number.NEGATIVE_INFINITY : (times[length - limit] as number)
        if (time <= blocking || time + windowMs <= now) continue
        blocking = time
        full = limit
      }
      if (full > 0) {
        // `| 0`: small integers are stored in the verdict itself, while any other number needs an object.
        const waitMs = (blocking + windowMs - clockMs) | 0
        return { admitted: false, waitMs, limit: full, remaining: 0, resetMs: waitMs }
      }
      const verdict = { admitted: true, waitMs: 0, limit: 0, remaining: 0, resetMs: 0 }
      for (let i = 0; i < counts.length; i++) {
        const { key, limit } = counts[i] as Count
        const times = enter(key, found[i], entryMs ?? clockMs, clockMs)
        const remaining = limit - times.length
        if (i > 0 && remaining >= verdict.remaining) continue
        verdict.limit = limit
        verdict.remaining = remaining
        verdict.resetMs = ((times[0] as number) + windowMs - clockMs) | 0
      }
      return verdict
    },
  }

  /** Entries are removed only here: if a refusal removed them, a clock that goes back would find room. */
  function enter(key: string, times: number[] | undefined, time: number, clockMs: number): number[] {
    if (!times) {
      const first = [time]
      logs.keep(key, first)
      return first
    }
    const newest = times[times.length - 1] as number
    const horizon = Math.max(clockMs, newest) - windowMs
    while (times.length > 0 && (times[0] as number) <= horizon) times.shift()
    times.push(Math.max(time, newest))
    return times
  }
}

/**
 * A map that stores at most `maxKeys` keys, and always the most recently used half of that number. The code uses two
 * maps, and drops the older as a whole, which costs less than a list in order of use.
 */
function recentlyUsed<V>(maxKeys: number) {
  const generation = Math.max(1, Math.floor(maxKeys / 2))
  let young = new Map<string, V>()
  let old = new Map<string, V>()

  function rejuvenated(key: string): V | undefined {
    const value = old.get(key)
    if (value === undefined) return undefined
    old.delete(key)
    keep(key, value)
    return value
  }

  function keep(key: string, value: V): void {
    if (young.size >= generation) {
      old = young
      young = new Map()
    }
    young.set(key, value)
  }

  return { size: () => young.size + old.size, get: (key: string) => young.get(key) ?? rejuvenated(key), keep }
}
