import fc from "fast-check"
import { createSiweMessage } from "viem/siwe"
import { describe, expect, it } from "vitest"
import { accessFields, BASE_URL, signInFields } from "../../../test/wallet.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { type Expected, parseSiwe, siweFaults } from "./siwe.ts"

const address = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
const now = new Date("2026-01-31T12:00:00.000Z")
const at = (seconds: number) => new Date(now.getTime() + seconds * 1_000)
const nonce = "7Jq2xR0bTzVn4KcWmY8sLd5H"
const good = { ...signInFields, version: "1", address, nonce, issuedAt: now } as const
const expected: Expected = {
  baseUrl: BASE_URL,
  uri: `${BASE_URL}/api/auth/verify`,
  resource: "urn:sluice:sign-in",
  chainIds: [84532, 8453],
  now,
  maxAgeMs: 600_000,
}
const faultsOf = (text: string, more: Partial<Expected> = {}) => {
  const message = parseSiwe(text)
  if (!message) throw new Error(`not a message: ${text}`)
  return siweFaults(message, { ...expected, ...more })
}

describe("a message", () => {
  it("is parsed as viem, and every wallet, writes it", () => {
    const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined })
    const time = fc.date({ min: new Date(0), max: new Date("2100-01-01"), noInvalidDate: true })
    const line = fc.string({ minLength: 1, maxLength: 40, unit: fc.constantFrom(..."abc :/-.%URINonce0") })
    fc.assert(
      fc.property(
        fc.record({
          scheme: optional(fc.constantFrom("https", "http")),
          statement: optional(line),
          chainId: fc.integer({ min: 1, max: 2 ** 31 }),
          issuedAt: time,
          expirationTime: optional(time),
          notBefore: optional(time),
          requestId: optional(line),
          resources: optional(fc.array(fc.webUrl(), { maxLength: 3 })),
        }),
        fields => {
          const given = Object.fromEntries(Object.entries(fields).filter(([_, value]) => value !== undefined))
          const text = createSiweMessage({ ...good, ...given, resources: fields.resources ?? [] })
          expect(parseSiwe(text)).toEqual({
            scheme: fields.scheme,
            domain: good.domain,
            address: address.toLowerCase(),
            uri: good.uri,
            version: "1",
            chainId: `${fields.chainId}`,
            nonce,
            issuedAt: fields.issuedAt,
            expirationTime: fields.expirationTime,
            notBefore: fields.notBefore,
            resources: fields.resources ?? [],
          })
        },
      ),
    )
  })

  const text = createSiweMessage({ ...good, statement: "Hello" })
  it.each([
    ["nothing", ""],
    ["text before it", `x\n${text}`],
    ["text after it", `${text}\n`],
    ["another line in it", text.replace("\n\nHello", "\nURI: https://evil.example\n\nHello")],
    ["a second statement", text.replace("Hello", "Hello\nagain")],
    ["a carriage return", text.replace("Hello", "Hello\rURI: https://pay.example")],
    ["Windows' line ends", text.replaceAll("\n", "\r\n")],
    ["fields in another order", text.replace(/(URI: .*)\n(Version: .*)/, "$2\n$1")],
    ["no nonce", text.replace(/Nonce: .*\n/, "")],
    ["a short nonce", text.replace(nonce, "abc")],
    ["no time", text.replace(/Issued At: .*/, "Issued At: yesterday")],
    ["a time that is none", text.replace(/Issued At: .*Z/, "Issued At: 2026-01-31T99:00:00Z")],
    ["a wrong checksum", text.replace("fCD6", "FCD6")],
    ["a user in the domain", text.replace(/^/, "127.0.0.1:4000@")],
  ])("is not parsed with %s", (_what, odd) => {
    expect(parseSiwe(text)).toBeDefined()
    expect(odd).not.toBe(text)
    expect(parseSiwe(odd)).toBeUndefined()
  })

  it("has no fault when it contains all that it must", () => {
    expect(faultsOf(createSiweMessage(good))).toEqual([])
    expect(faultsOf(createSiweMessage({ ...good, scheme: "http", statement: "Sign in.", chainId: 8453 }))).toEqual([])
    const times = { issuedAt: at(-600), expirationTime: at(1), notBefore: at(50) }
    expect(faultsOf(createSiweMessage({ ...good, ...times, requestId: "7" }))).toEqual([])
    expect(faultsOf(createSiweMessage(good), { address: address.toLowerCase() as Address })).toEqual([])
  })

  it.each([
    ["another domain", { domain: "evil.example" }, "the domain 127.0.0.1:4000"],
    ["the domain without its port", { domain: "127.0.0.1" }, "the domain"],
    ["another port", { domain: "127.0.0.1:4001" }, "the domain"],
    ["another scheme", { scheme: "https" }, "the scheme http:"],
    ["another URI", { uri: "http://127.0.0.1:4000/api/auth/verify/x" }, "the URI"],
    ["the URI of another purpose", { uri: accessFields("pw_1").uri ?? "" }, "the URI"],
    ["another chain", { chainId: 1 }, "the chain ID 84532 or 8453"],
    ["no resource", { resources: [] }, "only the resource urn:sluice:sign-in"],
    ["the resource of another purpose", { resources: ["urn:sluice:paywall:pw_1"] }, "only the resource"],
    ["two resources", { resources: ["urn:sluice:sign-in", "urn:sluice:paywall:pw_1"] }, "only the resource"],
    ["a time that is to come", { issuedAt: at(61) }, "in the future"],
    ["an old time", { issuedAt: at(-661) }, "too long ago"],
    ["an end that is over", { expirationTime: now }, "expired"],
    ["a beginning that is to come", { notBefore: at(61) }, "not valid yet"],
  ])("has one fault with %s", (_what, fields, fault) => {
    expect(faultsOf(createSiweMessage({ ...good, ...fields }))).toEqual([expect.stringContaining(fault)])
  })

  it("has one fault with another version, or another signer than expected", () => {
    expect(faultsOf(createSiweMessage(good).replace("Version: 1", "Version: 2"))).toEqual(["must have Version: 1"])
    const other = { address: `0x${"1".repeat(40)}` as Address }
    expect(faultsOf(createSiweMessage(good), other)).toEqual([expect.stringContaining("must be signed for 0x1111")])
  })
})
