import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { distance, nearest } from "./suggest-field.ts"

const known = [
  "name",
  "price",
  "currency",
  "contentType",
  "contentData",
  "contentUrl",
  "splitId",
  "payoutAddress",
  "id",
]

describe("nearest", () => {
  it.each([
    ["spiltId", "splitId"],
    ["splitID", "splitId"],
    ["split_id", "splitId"],
    ["pirce", "price"],
    ["Price", "price"],
    ["prices", "price"],
    ["payoutAdress", "payoutAddress"],
    ["payout-addres", "payoutAddress"],
    ["contentURL", "contentUrl"],
    ["contentTpye", "contentType"],
    ["curency", "currency"],
  ])("%s suggests %s", (typed, meant) => {
    expect(nearest(typed, known)).toBe(meant)
  })

  it.each(["amount", "x", "", "recipients", "address", "constructor", "p", "priceless", "n".repeat(200_000)])(
    "%.20s has no suggestion",
    typed => {
      expect(nearest(typed, known)).toBeUndefined()
    },
  )

  it("picks the nearest of several", () => {
    expect(nearest("contentDat", ["contentUrl", "contentDate", "contentData", "contentDat2"])).toBe("contentDate")
    expect(nearest("contentDara", ["contentDates", "contentData"])).toBe("contentData")
  })
})

describe("distance", () => {
  it.each([
    ["", "", 0],
    ["", "abc", 3],
    ["abc", "abc", 0],
    ["abc", "acb", 1],
    ["abcd", "badc", 2],
    ["kitten", "sitting", 3],
    // No letter is changed twice; the unrestricted distance would be 2.
    ["ca", "abc", 3],
  ])("%s to %s is %i", (a, b, far) => {
    expect(distance(a, b)).toBe(far)
  })

  it("is the same both ways, and never more than the longer text", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 8 })
    fc.assert(
      fc.property(text, text, (a, b) => {
        expect(distance(a, b)).toBe(distance(b, a))
        expect(distance(a, b)).toBeLessThanOrEqual(Math.max(a.length, b.length))
        expect(distance(a, b) === 0).toBe(a === b)
      }),
    )
  })
})
