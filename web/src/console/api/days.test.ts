import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { dayAfter, dayAt, isZone, nameOfToday, offsetAt, startOfDay, startTime, utcOf, zonesToChoose } from "./days.ts"

const zones = [
  "UTC",
  "Asia/Kolkata",
  "Asia/Kathmandu",
  "America/St_Johns",
  "Europe/Berlin",
  "Pacific/Apia",
  "Pacific/Kiritimati",
  "Pacific/Chatham",
  "Australia/Lord_Howe",
  "America/Sao_Paulo",
  "Africa/Casablanca",
  "America/Havana",
]
const DAY_MS = 86_400_000
const LAST = Date.parse("2037-12-31T00:00:00Z") / DAY_MS
const someDay = fc.nat(LAST).map(days => new Date(days * DAY_MS).toISOString().slice(0, 10))
const at = (text: string) => Temporal.Instant.from(text).epochMilliseconds

describe("a day in a zone", () => {
  it("begins when the calendar of the runtime says, in each zone and on each day", () => {
    fc.assert(
      fc.property(fc.constantFrom(...zones), someDay, (zone, day) => {
        const { epochMilliseconds } = Temporal.PlainDate.from(day).toZonedDateTime(zone)
        expect(startOfDay(day, zone)).toBe(epochMilliseconds)
      }),
      { numRuns: 3_000 },
    )
  })

  it.each(zones)("begins so beside each change of the clocks: %s", zone => {
    let change = Temporal.Instant.from("1970-01-01T00:00Z").toZonedDateTimeISO(zone).getTimeZoneTransition("next")
    while (change && change.year < 2038) {
      for (const days of [-1, 0, 1]) {
        const day = change.toPlainDate().add({ days })
        expect(startOfDay(day.toString(), zone), `${day}`).toBe(day.toZonedDateTime(zone).epochMilliseconds)
      }
      change = change.getTimeZoneTransition("next")
    }
  })

  it("has the times from its begin to that of the next day", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...zones),
        fc.integer({ min: at("1970-01-02T00:00Z"), max: at("2037-12-30T00:00Z") }),
        (zone, time) => {
          const local = Temporal.Instant.fromEpochMilliseconds(time).toZonedDateTimeISO(zone)
          expect(dayAt(time, zone)).toBe(local.toPlainDate().toString())
          expect(offsetAt(time, zone)).toBe(local.offsetNanoseconds / 1e6)
        },
      ),
      { numRuns: 3_000 },
    )
  })

  it.each([
    ["2026-11-30", "Asia/Kolkata", "2026-11-29T18:30:00Z"],
    ["2026-11-30", "Asia/Kathmandu", "2026-11-29T18:15:00Z"],
    ["2026-11-30", "America/St_Johns", "2026-11-30T03:30:00Z"],
    // The days on which the clocks of Berlin change, and those after.
    ["2026-03-29", "Europe/Berlin", "2026-03-28T23:00:00Z"],
    ["2026-03-30", "Europe/Berlin", "2026-03-29T22:00:00Z"],
    ["2026-10-25", "Europe/Berlin", "2026-10-24T22:00:00Z"],
    ["2026-10-26", "Europe/Berlin", "2026-10-25T23:00:00Z"],
    // Midnight came twice, and on another day not at all.
    ["2006-10-29", "America/St_Johns", "2006-10-29T02:30:00Z"],
    ["2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00:00Z"],
    // Apia skipped the 30th to change its side of the date line.
    ["2011-12-29", "Pacific/Apia", "2011-12-29T10:00:00Z"],
    ["2011-12-30", "Pacific/Apia", "2011-12-30T10:00:00Z"],
    ["2011-12-31", "Pacific/Apia", "2011-12-30T10:00:00Z"],
  ])("%s in %s begins at %s", (day, zone, text) => expect(startOfDay(day, zone)).toBe(at(text)))

  it.each(["", "2026-02-30", "2026-13-01", "2026-1-1", "today", "2026-01-01T00:00:00Z", undefined])(
    "%j is none",
    text => {
      expect([utcOf(text), startOfDay(text, "Asia/Kolkata"), startTime(text, "Asia/Kolkata")]).toEqual([
        undefined,
        undefined,
        undefined,
      ])
      if (text !== undefined) expect(dayAfter(text, 1)).toBe(text)
    },
  )

  it("a day begins at a time of UTC", () => {
    expect(startTime("2020-01-01", "Asia/Kathmandu")).toBe("2019-12-31T18:15:00.000Z")
  })

  it("has one after it, by the calendar", () => {
    expect([dayAfter("2026-02-28", 1), dayAfter("2028-02-28", 1), dayAfter("2026-01-01", -1)]).toEqual([
      "2026-03-01",
      "2028-02-29",
      "2025-12-31",
    ])
  })
})

describe("the zones to choose from", () => {
  it("have the names of today, each once, and there is one for each that the runtime has", () => {
    const offered = zonesToChoose()
    expect(new Set(offered).size).toBe(offered.length)
    expect(offered).toEqual(expect.arrayContaining(["UTC", "Asia/Kolkata", "Asia/Kathmandu", "Europe/Kyiv"]))
    expect(offered.filter(zone => nameOfToday(zone) !== zone || !isZone(zone))).toEqual([])
    for (const zone of Intl.supportedValuesOf("timeZone")) {
      const clock = (name: string) => Temporal.Instant.fromEpochMilliseconds(0).toZonedDateTimeISO(name)
      expect(clock(nameOfToday(zone)).equals(clock(zone)), zone).toBe(true)
    }
  })
})
