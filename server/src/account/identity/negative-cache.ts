/** API keys and key ids whose lookup just failed, so that repeated requests don't query the database each time. */

/** Strings that are known to be missing from the database. */
export interface NegativeCache {
  has(text: string): boolean
  add(text: string): void
}

const REMEMBERED_MS = 1_000
/** The maximum number of strings, each of at most 64 characters: about 2 MB. */
const MOST = 10_000

/**
 * Failed lookups of the last second. The cache never refuses a valid string. Keys and key ids are random, and nobody
 * knows one before it is stored, so a missing string does not appear later. Only failures are cached, so a revoked key
 * stops working immediately.
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
