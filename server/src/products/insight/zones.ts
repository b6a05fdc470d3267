/**
 * Calendar periods in a time zone, and the rows of `figures` of which they consist. Since 1972 all clocks differ from
 * UTC by whole quarters of an hour, so each period consists of such quarters.
 */

export const intervals = ["hour", "day", "week", "month"] as const
export type Interval = (typeof intervals)[number]

/** The most periods in one answer: a week of hours, or half a year of days. */
export const MAX_PERIODS = 190
/** The lengths of time that rows cover, in seconds. */
const LENGTHS = [86_400, 21_600, 3_600, 900] as const
const QUARTER_MS = 900_000

/** A part of a period, made up of rows that cover `seconds` each; the times are in milliseconds. */
export interface Part {
  period: number
  seconds: number
  from: number
  until: number
}

/**
 * Returns the starts of the periods from the one that contains `from` to the last one before `to`, and then the end
 * of that last period, in milliseconds. Undefined if there are more than {@link MAX_PERIODS}.
 */
export function periodsOf(from: Date, to: Date, interval: Interval, zone: string): number[] | undefined {
  const first = Temporal.Instant.fromEpochMilliseconds(from.getTime()).toZonedDateTimeISO(zone)
  let start = startOf(first, interval)
  let next = after(start, interval)
  // When the clocks go back, the repeated hour starts twice.
  while (next.epochMilliseconds <= from.getTime()) [start, next] = [next, after(next, interval)]
  const bounds = [start.epochMilliseconds]
  while (start.epochMilliseconds < to.getTime()) {
    if (bounds.length > MAX_PERIODS) return undefined
    start = after(start, interval)
    bounds.push(start.epochMilliseconds)
  }
  return bounds
}

/** Returns the start of the period that is `count` periods before `start`, in milliseconds. */
export function periodsBefore(start: number, count: number, interval: Interval, zone: string): number {
  const end = Temporal.Instant.fromEpochMilliseconds(start).toZonedDateTimeISO(zone)
  if (interval === "hour") return start - count * 3_600_000
  if (interval === "month") return end.subtract({ months: count }).startOfDay().epochMilliseconds
  return end.subtract({ days: interval === "week" ? 7 * count : count }).startOfDay().epochMilliseconds
}

function startOf(at: Temporal.ZonedDateTime, interval: Interval): Temporal.ZonedDateTime {
  if (interval === "hour") return at.round({ smallestUnit: "hour", roundingMode: "floor" })
  if (interval === "day") return at.startOfDay()
  if (interval === "week") return at.subtract({ days: at.dayOfWeek - 1 }).startOfDay()
  return at.with({ day: 1 }).startOfDay()
}

function after(start: Temporal.ZonedDateTime, interval: Interval): Temporal.ZonedDateTime {
  if (interval === "day") return start.add({ days: 1 }).startOfDay()
  if (interval === "week") return start.add({ days: 7 }).startOfDay()
  if (interval === "month") return start.add({ months: 1 }).startOfDay()
  const next = start.add({ minutes: 60 - start.minute })
  if (next.offsetNanoseconds === start.offsetNanoseconds) return next
  // A clock change ends an hour, because the hours before and after the change may overlap on the clock.
  return start.getTimeZoneTransition("next") ?? next
}

/** Returns the parts of each period between the bounds, with the longest rows that fit. */
export const partsOf = (bounds: readonly number[]): Part[] =>
  bounds.slice(1).flatMap((until, period) => cover(period, toQuarter(bounds[period] ?? until), toQuarter(until), 0))

/** Returns the start of the quarter of an hour that contains a time in milliseconds. */
export const toQuarter = (ms: number): number => Math.floor(ms / QUARTER_MS) * QUARTER_MS

function cover(period: number, from: number, until: number, longest: number): Part[] {
  const seconds = LENGTHS[longest]
  if (from >= until || seconds === undefined) return []
  const ms = seconds * 1_000
  const first = Math.ceil(from / ms) * ms
  const last = Math.floor(until / ms) * ms
  if (first >= last) return cover(period, from, until, longest + 1)
  return [
    ...cover(period, from, first, longest + 1),
    { period, seconds, from: first, until: last },
    ...cover(period, last, until, longest + 1),
  ]
}
