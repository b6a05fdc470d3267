/** The delay before a failed attempt is retried. Pure. */

/** Returns `firstMs`, doubled for each of the `times` earlier failures, and at most `maxMs`. */
export const backoffMs = (firstMs: number, times: number, maxMs: number): number =>
  Math.min(firstMs * 2 ** times, maxMs)
