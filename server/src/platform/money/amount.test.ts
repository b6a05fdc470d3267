import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { AmountError, formatAmount, parseAmount } from "./amount.ts"

describe("parseAmount", () => {
  it.each([
    ["5", 5_000_000n],
    ["5.00", 5_000_000n],
    ["0.001", 1_000n],
    ["33.333333", 33_333_333n],
    ["1000000", 1_000_000_000_000n],
    ["0.1", 100_000n],
  ])("reads %s as %d base units", (text, amount) => {
    expect(parseAmount(text, 6)).toBe(amount)
  })

  it.each([
    "",
    " 5",
    "-1",
    "+1",
    "1e3",
    "0x10",
    "05",
    "00.5",
    ".5",
    "5.",
    "1,000",
    "0",
    "0.000000",
    "0.0000001",
    "1000000.000001",
    "NaN",
  ])("refuses %j", text => {
    expect(() => parseAmount(text, 6)).toThrow(AmountError)
  })

  it.each([
    ["1.2345678", false],
    ["0.0000001", false],
    ["13.049999999999999", true],
    ["123456.70000000001", true],
    [`${0.1 + 0.2}`, true],
  ])("says of %s whether it may be a rounding error", (text, isNoise) => {
    const hint = isNoise
      ? ': it looks like a rounding error; compute it exactly and send it as text, such as "4.99"'
      : ""
    expect(() => parseAmount(text, 6)).toThrow(
      new AmountError(`has more than 6 decimals, the most that the token has${hint}`),
    )
  })

  it("gives back every amount that formatAmount wrote", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 1n, max: 10n ** 12n }), fc.constantFrom(2, 6), (amount, decimals) => {
        fc.pre(amount <= 1_000_000n * 10n ** BigInt(decimals))
        expect(parseAmount(formatAmount(amount, decimals), decimals)).toBe(amount)
      }),
    )
  })
})

describe("formatAmount", () => {
  it.each([
    [5_000_000n, "5.00"],
    [1_000n, "0.001"],
    [33_333_333n, "33.333333"],
    [0n, "0.00"],
    [-4_990_000n, "-4.99"],
    [4_900_000n, "4.90"],
  ])("writes %d as %s", (amount, text) => {
    expect(formatAmount(amount, 6)).toBe(text)
  })
})
