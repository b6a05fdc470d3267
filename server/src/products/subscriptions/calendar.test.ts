import fc from "fast-check"
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest"
import { type Billing, boundary, intervals, isBoundary, nextBoundary } from "./calendar.ts"

const at = (text: string) => new Date(text)
const days = (anchor: string, interval: Billing["interval"], count: number, ns: number[]) =>
  ns.map(n => boundary(at(anchor), { interval, count }, n).toISOString().slice(0, 10))

describe("a billing period", () => {
  // 14 hours ahead of UTC, so a local date is another day than UTC's for more than half of the day.
  beforeAll(() => vi.stubEnv("TZ", "Pacific/Kiritimati"))
  afterAll(() => vi.unstubAllEnvs())

  it("keeps the day of its anchor, and takes a month's last day where there is no such day", () => {
    expect(new Date("2026-01-01T12:00:00Z").getDate()).toBe(2)
    expect(days("2027-01-31T10:00:00Z", "month", 1, [0, 1, 2, 3, 12, 13])).toEqual([
      "2027-01-31",
      "2027-02-28",
      "2027-03-31",
      "2027-04-30",
      "2028-01-31",
      "2028-02-29",
    ])
    expect(days("2028-02-29T00:00:00Z", "year", 1, [1, 2, 3, 4])).toEqual([
      "2029-02-28",
      "2030-02-28",
      "2031-02-28",
      "2032-02-29",
    ])
    expect(days("2026-11-30T23:59:59Z", "month", 3, [1, 2, 3])).toEqual(["2027-02-28", "2027-05-30", "2027-08-30"])
    expect(days("2026-12-31T23:30:00Z", "month", 12, [1, 2])).toEqual(["2027-12-31", "2028-12-31"])
    expect(days("2026-12-28T00:00:00Z", "week", 2, [1])).toEqual(["2027-01-11"])
    expect(days("2026-03-28T12:00:00Z", "day", 1, [1, 2])).toEqual(["2026-03-29", "2026-03-30"])
  })

  it("begins where the one before ended, and keeps the anchor's time of day, for any anchor and length", () => {
    const date = fc.date({ min: at("1999-12-25T00:00:00Z"), max: at("2105-01-01T00:00:00Z"), noInvalidDate: true })
    const billing = fc.record({ interval: fc.constantFrom(...intervals), count: fc.integer({ min: 1, max: 12 }) })
    fc.assert(
      fc.property(date, billing, fc.integer({ min: 0, max: 60 }), (anchor, billing, n) => {
        const start = boundary(anchor, billing, n)
        const end = boundary(anchor, billing, n + 1)
        expect(start < end).toBe(true)
        expect(nextBoundary(anchor, billing, start)).toEqual(end)
        expect(nextBoundary(anchor, billing, new Date(end.getTime() - 1))).toEqual(end)
        expect([start, end].map(each => isBoundary(anchor, billing, each))).toEqual([true, true])
        expect(isBoundary(anchor, billing, new Date(end.getTime() - 1))).toBe(false)
        expect(end.getTime() % 86_400_000).toBe(anchor.getTime() % 86_400_000)
      }),
    )
  })
})
