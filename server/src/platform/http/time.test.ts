import { describe, expect, it } from "vitest"
import { timeAt } from "./time.ts"

describe("a time in a request", () => {
  it.each([
    ["1970-01-01", "1970-01-01T00:00:00.000Z"],
    ["9998-12-31T23:59:59.999Z", "9998-12-31T23:59:59.999Z"],
    ["2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000Z"],
  ])("%s is accepted", (text, iso) => expect(timeAt("from", text).toISOString()).toBe(iso))

  // Postgres has no year 0, and JavaScript writes years above 9999 in a form of its own.
  it.each([
    "0000-01-01",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999Z",
    "9999-01-01",
    "9999-12-31T23:59:59-14:00",
  ])("%s is refused in words", text =>
    expect(() => timeAt("from", text)).toThrow(
      expect.objectContaining({
        code: "VALIDATION_ERROR",
        details: [{ path: "from", message: "`from` must be in the years 1970 to 9998." }],
      }),
    ),
  )
})
