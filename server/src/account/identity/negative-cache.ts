/** API keys and key ids whose lookup just failed, so that repeated requests don't query the database each time. */

/** Texts that are known to be missing in the database. */
export interface NegativeCache {
  has(text: string): boolean
  add(text: string): void
}

const REMEMBERED_MS = 1_000
/** The most texts, of at most 64 characters each: about 2 MB. */
const MOST = 10_000

/**
 * Failed lookups of the last second. The cache never refuses a valid text: both kinds are random and nobody knows one
 * before it is stored, so a missing text does not appear later. Only failures are kept, so a revoked key stops
 * immediately.
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
