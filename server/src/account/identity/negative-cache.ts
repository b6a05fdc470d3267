/**
 * API keys and key ids whose lookup has just failed: repeated requests with them do not query the database each time.
 */

/** Texts that are known not to be in the database. */
export interface NegativeCache {
  has(text: string): boolean
  add(text: string): void
}

const REMEMBERED_MS = 1_000
/** At most 64 characters each: about 2 MB. */
const MOST = 10_000

/**
 * Failed lookups of the last second. The cache never refuses a valid text: both kinds are random, and nobody knows one
 * before it is in the database, so a text that was missing once does not appear later. Only failed lookups are kept, so
 * a revoked key stops at once.
 */
export function negativeCache(clock = () => performance.now()): NegativeCache {
  let absent = new Set<string>()
  let sinceMs = Number.NEGATIVE_INFINITY
  return {
    has: text => absent.has(text) && clock() - sinceMs < REMEMBERED_MS,
    add: text => {
      if (clock() - sinceMs >= REMEMBERED_MS || absent.size >= MOST) {
        absent = new Set()
        sinceMs = clock()
      }
      absent.add(text)
    },
  }
}
