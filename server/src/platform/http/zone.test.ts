import { describe, expect, it } from "vitest"
import { zoneNamed } from "./zone.ts"

describe("a time zone", () => {
  it("has the name that it was asked by, in the database's spelling", () => {
    for (const zone of ["UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia", "US/Eastern", "Asia/Calcutta"])
      expect([zoneNamed(zone), zoneNamed(zone.toLowerCase())]).toEqual([zone, zone])
    for (const zone of Intl.supportedValuesOf("timeZone")) expect(zoneNamed(zone)).toBe(zone)
  })

  it.each([
    "",
    "Mars/Olympus",
    "Asia",
    "../etc/passwd",
    "+02:00",
    "+02",
    "Etc/Unknown",
    "Europe/Berlin ",
    "2026-01-01T00:00Z[UTC]",
    "T10+05",
    "T10Z",
    "T00:00[Asia/Kolkata]",
  ])("there is none called %j", name => expect(zoneNamed(name)).toBeUndefined())
})
