import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { allocate, WHOLE_E4 } from "./allocate.ts"

/** 2 to 50 percentages above zero that add up to exactly 100. */
const percents = fc
  .integer({ min: 2, max: 50 })
  .chain(n => fc.uniqueArray(fc.integer({ min: 1, max: WHOLE_E4 - 1 }), { minLength: n - 1, maxLength: n - 1 }))
  .map(cuts => [0, ...cuts.sort((a, b) => a - b), WHOLE_E4])
  .map(edges => edges.slice(1).map((edge, i) => edge - (edges[i] ?? 0)))

describe("allocate", () => {
  it("gives each recipient the floor, the last one the remainder too, in order, and distributes all of it", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 10n ** 18n }), percents, (amount, percentsE4) => {
        const parts = allocate(amount, percentsE4)
        expect(parts.length).toBe(percentsE4.length)
        expect(parts.reduce((sum, part) => sum + part, 0n)).toBe(amount)
        const floors = percentsE4.map(percent => (amount * BigInt(percent)) / 1_000_000n)
        expect(parts.slice(0, -1)).toEqual(floors.slice(0, -1))
        const rest = (parts.at(-1) ?? 0n) - (floors.at(-1) ?? 0n)
        expect(rest >= 0n && rest < BigInt(percentsE4.length)).toBe(true)
      }),
      { numRuns: 2_000 },
    )
  })

  it.each([
    [100n, [333_333, 333_333, 333_334], [33n, 33n, 34n]],
    [1n, [500_000, 500_000], [0n, 1n]],
    [5_000_000n, [300_000, 700_000], [1_500_000n, 3_500_000n]],
    [10_000n, [1, 999_999], [0n, 10_000n]],
  ])("divides %s by %s as %s", (amount, percentsE4, parts) => {
    expect(allocate(amount, percentsE4)).toEqual(parts)
  })

  it("refuses percentages that do not add up to the whole", () => {
    for (const wrong of [[], [500_000], [500_000, 500_001], [-1, 1_000_001]])
      expect(() => allocate(1n, wrong)).toThrow("must add up to 100")
    expect(() => allocate(-1n, [WHOLE_E4])).toThrow()
  })
})
