/** The calendar of subscriptions: the bounds of billing periods, in UTC, whatever the machine's time zone. Pure. */
import type { BillingInterval } from "../../platform/db/schema.ts"

/** The units of a period. */
export const intervals = ["day", "week", "month", "year"] as const satisfies readonly BillingInterval[]

/** The length of a period: `count` times `interval`. */
export interface Billing {
  interval: BillingInterval
  /** From 1 to 12. */
  count: number
}

const DAY_MS = 86_400_000

/**
 * The n-th boundary of periods counted from an anchor. In a month without the anchor's day, the boundary is on the
 * last day. Each boundary is counted from the anchor, not from the previous boundary, so the anchor's day returns in
 * the next month that has it.
 *
 * @example boundary(new Date("2027-01-31T10:00:00Z"), { interval: "month", count: 1 }, 1) // 2027-02-28T10:00:00Z
 */
export function boundary(anchor: Date, { interval, count }: Billing, n: number): Date {
  const steps = n * count
  if (interval === "day" || interval === "week")
    return new Date(anchor.getTime() + steps * (interval === "week" ? 7 : 1) * DAY_MS)
  const months = anchor.getUTCMonth() + steps * (interval === "year" ? 12 : 1)
  const moved = new Date(anchor)
  // Day 0 of a month is the last day of the month before it.
  const lastDay = new Date(Date.UTC(anchor.getUTCFullYear(), months + 1, 0)).getUTCDate()
  moved.setUTCFullYear(anchor.getUTCFullYear(), months, Math.min(anchor.getUTCDate(), lastDay))
  return moved
}

/** The first boundary after `start`. `start` must not be before the anchor. */
export const nextBoundary = (anchor: Date, billing: Billing, start: Date): Date =>
  boundary(anchor, billing, countBefore(anchor, billing, start) + 1)

/** Whether a period counted from this anchor starts at `start`. `start` must not be before the anchor. */
export const isBoundary = (anchor: Date, billing: Billing, start: Date): boolean =>
  boundary(anchor, billing, countBefore(anchor, billing, start)).getTime() === start.getTime()

/** The number of whole periods from the anchor to `start`. */
function countBefore(anchor: Date, billing: Billing, start: Date): number {
  // The first guess is exact for days and weeks. For months and years it is off by at most a few days per step, so
  // the search is short.
  const longestMs = { day: 1, week: 7, month: 31, year: 366 }[billing.interval] * billing.count * DAY_MS
  let n = Math.floor((start.getTime() - anchor.getTime()) / longestMs)
  while (boundary(anchor, billing, n + 1) <= start) n++
  return n
}
