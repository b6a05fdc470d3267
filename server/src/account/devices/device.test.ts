import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { defaultScopes, keyName, newUserCode, typedCode } from "./device.ts"

describe("the code that a person types", () => {
  it("is read as it was made, however it is written", () => {
    const blank = fc.constantFrom("", " ", "-", "\t")
    fc.assert(
      fc.property(fc.array(blank, { minLength: 8, maxLength: 8 }), fc.boolean(), (between, isLower) => {
        const code = newUserCode()
        expect(code).toMatch(/^[BCDFGHJKLMNPQRSTVWXZ]{8}$/)
        const written = [...code].map((letter, i) => `${between[i]}${letter}`).join("")
        expect(typedCode(isLower ? written.toLowerCase() : written)).toBe(code)
      }),
    )
  })

  it.each([undefined, null, 5, [], "", "WDJBMJH", "WDJBMJHTT", "WDJBMJHA", "WDJBMJH1", "ẄDJBMJHT", " ".repeat(100)])(
    "%j is none",
    text => {
      expect(typedCode(text)).toBeUndefined()
    },
  )
})

it("a key's name is cut by characters, at what the database takes", () => {
  expect(keyName("laptop", "ann@shop.example")).toBe("CLI, laptop, ann@shop.example")
  const long = keyName("laptop", "😀".repeat(300))
  expect([...long]).toHaveLength(200)
  expect(long.isWellFormed()).toBe(true)
})

it("a device that names no scopes may only read, but in the sandbox", () => {
  expect([defaultScopes("live"), defaultScopes("test")]).toEqual([["read"], ["read"]])
  expect(defaultScopes("sandbox")).toEqual(["read", "webhooks", "checkouts", "catalog"])
})
