// Amounts: text and base units are the same value, always.
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { add, fromUnits, toUnits } from "../src/money.ts"

describe("money", () => {
  it.each([
    ["19.90", 6, 19_900_000n],
    ["0", 6, 0n],
    ["0.000001", 6, 1n],
    ["1.10000000", 6, 1_100_000n],
    ["-5", 6, -5_000_000n],
    ["12", 0, 12n],
  ])("toUnits(%j, %i) is %s", (text, decimals, units) => {
    expect(toUnits(text, decimals)).toBe(units)
  })

  it("takes a number that its text shows exactly, and no other", () => {
    expect([toUnits(5), toUnits(0.1), toUnits(19.9), toUnits(999_999_999.12)]).toEqual([
      5_000_000n,
      100_000n,
      19_900_000n,
      999_999_999_120_000n,
    ])
    for (const number of [0.1 + 0.2, 1e21, 1e-7, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 60])
      expect(() => toUnits(number)).toThrow(RangeError)
  })

  it.each(["", " 1", "1 ", "1.", ".5", "1,5", "0x10", "1e3", "+1", "１", "1.0000001", "--1", "1_000"])(
    "refuses %j",
    text => {
      expect(() => toUnits(text)).toThrow(RangeError)
    },
  )

  it("gives each amount of base units back", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }), fc.nat(18), (units, decimals) => {
        expect(toUnits(fromUnits(units, decimals), decimals)).toBe(units)
      }),
    )
    expect([fromUnits(5_000_000n), fromUnits(1n), fromUnits(-1_500_000n), fromUnits(7n, 0)]).toEqual([
      "5.00",
      "0.000001",
      "-1.50",
      "7",
    ])
  })

  it("adds exactly", () => {
    expect([add("0.10", "0.20"), add(), add("0.000001", "-0.000001"), add("1.999999", "0.000001")]).toEqual([
      "0.30",
      "0.00",
      "0.00",
      "2.00",
    ])
  })
})
