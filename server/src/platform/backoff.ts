/** How long to wait before something that failed is tried again. Pure. */

/** Returns `firstMs`, doubled for each of the `times` that failed before, and at most `maxMs`. */
export const backoffMs = (firstMs: number, times: number, maxMs: number): number =>
  Math.min(firstMs * 2 ** times, maxMs)
