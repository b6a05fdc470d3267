/** Percentages, which are kept in ten-thousandths. */

/**
 * A percentage as JSON shows it: the nearest double, which prints as the percentage was written.
 *
 * @example percentOf(333_333) // 33.3333
 */
export const percentOf = (percentE4: number): number => percentE4 / 10_000
