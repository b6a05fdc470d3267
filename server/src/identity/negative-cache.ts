/** API keys and key ids that were just looked up in vain: what is sent again and again is not looked up each time. */

/** Texts that are known not to be in the database. */
export interface Misses {
  has(text: string): boolean
  add(text: string): void
}

const REMEMBERED_MS = 1_000
/** 64 characters at most each: about 2 MB. */
const MOST = 10_000

/**
 * Misses of the last second. It refuses nothing that is good: both kinds of text are random, and nobody knows one before
 * it is in the database, so that what was missing once does not come later. Only misses are kept, so a revoked key stops
 * at once.
 */
export function recentMisses(clock = () => performance.now()): Misses {
  let misses = new Set<string>()
  let sinceMs = Number.NEGATIVE_INFINITY
  return {
    has: text => misses.has(text) && clock() - sinceMs < REMEMBERED_MS,
    add: text => {
      if (clock() - sinceMs >= REMEMBERED_MS || misses.size >= MOST) {
        misses = new Set()
        sinceMs = clock()
      }
      misses.add(text)
    },
  }
}
