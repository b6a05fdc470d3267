// Periods by the clocks of a zone, beside the clocks that Intl has, over both changes of each zone.
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { type Interval, MAX_PERIODS, partsOf, periodsBefore, periodsOf } from "./zones.ts"

const QUARTER_MS = 900_000
const zones = ["UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe"]
/** Both changes of the two zones whose clocks change, in 2026. */
const changes = ["2026-03-08T05:30Z", "2026-11-01T04:30Z", "2026-04-04T15:00Z", "2026-10-03T15:30Z"].map(Date.parse)

/** What a clock of the zone shows, to the hour, with its offset. */
function clock(zone: string): (ms: number) => { day: string; hour: string; weekday: string } {
  const format = new Intl.DateTimeFormat("en-CA", {
    timeZone: zone,
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    hourCycle: "h23",
    weekday: "short",
    timeZoneName: "longOffset",
  })
  return ms => {
    const part = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]))
    const day = `${part.year}-${part.month}-${part.day}`
    return { day, hour: `${day} ${part.hour} ${part.timeZoneName}`, weekday: part.weekday ?? "" }
  }
}

/** The name of the period that a moment is in, by its clock alone. */
function nameOf(at: (ms: number) => ReturnType<ReturnType<typeof clock>>, interval: Interval, ms: number): string {
  const { day, hour, weekday } = at(ms)
  if (interval === "hour") return hour
  if (interval === "day") return day
  if (interval === "month") return day.slice(0, 7)
  const since = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].indexOf(weekday)
  return new Date(Date.parse(day) - since * 86_400_000).toISOString().slice(0, 10)
}

const asked = fc.record({
  zone: fc.constantFrom(...zones),
  interval: fc.constantFrom<Interval>("hour", "day", "week", "month"),
  change: fc.constantFrom(...changes),
  before: fc.integer({ min: 1, max: 90 * 3_600_000 }),
  after: fc.integer({ min: 0, max: 90 * 3_600_000 }),
})

describe("the periods of a zone", () => {
  it("begin when the clock shows another hour, day, week or month, and only then", () => {
    fc.assert(
      fc.property(asked, ({ zone, interval, change, before, after }) => {
        const from = new Date(change - before)
        const to = new Date(change + after)
        const bounds = periodsOf(from, to, interval, zone) ?? []
        expect(bounds[0]).toBeLessThanOrEqual(from.getTime())
        expect(bounds[1]).toBeGreaterThan(from.getTime())
        expect(bounds.at(-1)).toBeGreaterThanOrEqual(to.getTime())
        expect(bounds.at(-2)).toBeLessThan(to.getTime())
        const at = clock(zone)
        const starts: number[] = []
        for (let ms = bounds[0] ?? 0; ms <= (bounds.at(-1) ?? 0); ms += QUARTER_MS)
          if (nameOf(at, interval, ms) !== nameOf(at, interval, ms - QUARTER_MS)) starts.push(ms)
        expect(bounds).toEqual(starts)
      }),
      { numRuns: 120 },
    )
  })

  it("are made of rows that lie in them, without a gap and without a quarter twice", () => {
    fc.assert(
      fc.property(asked, ({ zone, interval, change, before, after }) => {
        const bounds = periodsOf(new Date(change - before), new Date(change + after), interval, zone) ?? []
        let next = bounds[0]
        for (const { period, seconds, from, until } of partsOf(bounds)) {
          expect(from).toBe(next)
          expect([from % (seconds * 1_000), until % (seconds * 1_000)]).toEqual([0, 0])
          expect(from).toBeGreaterThanOrEqual(bounds[period] ?? Number.NaN)
          expect(until).toBeLessThanOrEqual(bounds[period + 1] ?? Number.NaN)
          next = until
        }
        expect(next).toBe(bounds.at(-1))
      }),
    )
  })

  it("of a day are one row in UTC, and at most twelve elsewhere", () => {
    const rows = (zone: string) => {
      const bounds = periodsOf(new Date("2026-01-10"), new Date("2026-01-11"), "day", zone) ?? []
      return Math.max(
        ...[0, 1].map(which =>
          partsOf(bounds)
            .filter(({ period }) => period === which)
            .reduce((sum, { seconds, from, until }) => sum + (until - from) / seconds / 1_000, 0),
        ),
      )
    }
    expect(zones.map(rows)).toEqual([1, 12, 12, 12, 9])
  })

  it("before a time are as many, by the calendar", () => {
    const start = Date.parse("2026-04-05T00:00+11:00")
    const before = (count: number, interval: Interval) =>
      new Date(periodsBefore(start, count, interval, "Australia/Lord_Howe")).toISOString()
    expect(before(1, "day")).toBe("2026-04-03T13:00:00.000Z")
    // The clocks went forward in October.
    expect(before(200, "day")).toBe("2025-09-16T13:30:00.000Z")
    expect(before(1, "month")).toBe("2026-03-04T13:00:00.000Z")
    expect(before(2, "hour")).toBe("2026-04-04T11:00:00.000Z")
  })

  it("are not counted beyond the most", () => {
    const from = new Date("2026-01-01")
    const until = (days: number) => new Date(from.getTime() + days * 86_400_000)
    expect(periodsOf(from, until(MAX_PERIODS), "day", "UTC")).toHaveLength(MAX_PERIODS + 1)
    expect(periodsOf(from, until(MAX_PERIODS + 1), "day", "UTC")).toBeUndefined()
    expect(periodsOf(new Date(0), until(2_000_000), "hour", "UTC")).toBeUndefined()
  })
})
