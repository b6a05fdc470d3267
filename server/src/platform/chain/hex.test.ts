import fc from "fast-check"
import { getAddress, keccak256, toHex } from "viem"
import { describe, expect, it } from "vitest"
import { bytesOf, checksummed, keccak, parseAddress, parseHash } from "./hex.ts"

const usdc = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"

describe("parseAddress", () => {
  it("accepts any single case and a valid checksum, and stores lower case", () => {
    const upper = `0x${usdc.slice(2).toUpperCase()}`
    for (const text of [usdc, usdc.toLowerCase(), upper]) expect(parseAddress(text)).toBe(usdc.toLowerCase())
  })

  it("refuses a wrong mixed-case checksum and everything that is not an address", () => {
    const swapped = usdc.replace("fCD6", "FCD6")
    for (const bad of [
      swapped,
      usdc.slice(0, -1),
      `${usdc}0`,
      usdc.slice(2),
      "",
      5,
      null,
      undefined,
      `0x${"g".repeat(40)}`,
    ])
      expect(parseAddress(bad)).toBeUndefined()
  })

  it("shows addresses checksummed", () => {
    expect(checksummed(usdc.toLowerCase())).toBe(usdc)
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 20, maxLength: 20 }), bytes => {
        const address = `0x${Buffer.from(bytes).toString("hex")}`
        expect(checksummed(address)).toBe(getAddress(address))
      }),
    )
    for (const bad of ["", "0x12", `${usdc}0`, `0x${"g".repeat(40)}`]) expect(() => checksummed(bad)).toThrow()
  })
})

describe("parseHash", () => {
  it("takes 32 bytes in any case, lower-cased, and nothing else", () => {
    expect(parseHash(`0x${"Ab".repeat(32)}`)).toBe(`0x${"ab".repeat(32)}`)
    for (const bad of [`0x${"a".repeat(63)}`, `0x${"a".repeat(65)}`, "a".repeat(64), 7, undefined])
      expect(parseHash(bad)).toBeUndefined()
  })
})

describe("keccak", () => {
  it("is the library's, of bytes and of their digits", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), bytes => {
        const hash = keccak256(bytes)
        expect([keccak(bytes), keccak(toHex(bytes))]).toEqual([hash, hash])
      }),
    )
  })

  it.each(["0x0", "0x0g", "0xabcg00", "0x١٢", "0X12" as "0x12"] as const)(
    "hashes nothing for %s, which is no bytes",
    text => {
      expect(() => keccak(text)).toThrow("not hexadecimal digits")
      expect(() => bytesOf(text)).toThrow("not hexadecimal digits")
    },
  )
})
