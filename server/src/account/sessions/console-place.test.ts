import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { cookieIn } from "../../platform/http/cookies.ts"
import { cookieNames, placeOf, returnPath } from "./console-place.ts"

describe("a request for the console", () => {
  const at = (consoleUrl: string, baseUrl = consoleUrl) => ({ consoleUrl, baseUrl })
  const local = at("http://127.0.0.1:4000")
  const one = at("https://pay.example")
  const two = at("https://console.example", "https://pay.example")

  it.each([
    [local, "127.0.0.1:4000", "here"],
    [local, "localhost:4000", "moved"],
    [local, "127.0.0.1:4001", "moved"],
    [local, "[::1]:4000", "moved"],
    [local, "192.168.0.9:4000", "plain"],
    [local, "evil.example:4000", "plain"],
    [local, undefined, "plain"],
    [at("http://localhost:4000"), "LOCALHOST:4000", "here"],
    [at("http://127.0.0.1"), "127.0.0.1", "here"],
    [at("http://pay.example"), "pay.example", "plain"],
    [at("http://pay.example"), "127.0.0.1", "plain"],
    [one, "pay.example", "here"],
    [one, "10.0.0.7:4000", "here"],
    [two, "console.example", "here"],
    [two, "Console.Example", "here"],
    [two, "pay.example", "moved"],
    [two, "evil.example", "elsewhere"],
    [two, undefined, "elsewhere"],
  ] as const)("%j at %s is %s", (places, host, expected) => {
    expect(placeOf(places, host)).toBe(expected)
  })

  it("has cookies that only https can set, where there is https", () => {
    expect(cookieNames(one)).toEqual({ session: "__Host-sluice", signIn: "__Host-sluice-sign-in" })
    expect(cookieNames(local)).toEqual({ session: "sluice-dev", signIn: "sluice-dev-sign-in" })
  })
})

describe("the path after a sign-in", () => {
  it.each(["/console", "/console/", "/console/payments?status=open&q=a%20b#row", "/console?x=1", "/console/a/../b"])(
    "%s is the console's",
    text => {
      expect(returnPath(text)).toBe(text.replace("a/../b", "b"))
    },
  )

  it.each([
    "",
    "https://evil.example/console/",
    "//evil.example/console/",
    "/\\evil.example",
    "/console\\..\\..\\evil",
    "/console//evil.example",
    "/console/..//evil.example",
    "/console/../api/console/settings",
    "/console/%2e%2e/p/evil",
    "/consoles",
    "/console.evil.example",
    "/console@evil.example",
    "javascript:alert(1)",
    "/console/\u0009/evil",
    "/console/\nx",
    "/console/é",
    `/console/${"a".repeat(2_000)}`,
    undefined,
    ["/console", "/console"],
  ])("%j is not", text => {
    expect(returnPath(text)).toBeUndefined()
  })

  it("never leaves the console, whatever it is made of", () => {
    const part = fc.constantFrom(
      "/",
      "console",
      "..",
      "%2e",
      "\\",
      "//",
      "@",
      ":",
      "evil.example",
      "?",
      "#",
      "\t",
      "api",
      ";",
    )
    fc.assert(
      fc.property(fc.array(part, { maxLength: 8 }), parts => {
        const path = returnPath(`/console${parts.join("")}`)
        if (path === undefined) return
        const { origin, pathname } = new URL(path, "https://pay.example")
        expect([origin, /^\/console(\/|$)/.test(pathname)]).toEqual(["https://pay.example", true])
      }),
      { numRuns: 2_000 },
    )
  })
})

it("a cookie is found by its whole name; sent twice it has no value", () => {
  expect(cookieIn("a=1; sluice-dev=x=y; b=2", "sluice-dev")).toBe("x=y")
  expect(cookieIn("not-sluice-dev=1; SLUICE-DEV=2", "sluice-dev")).toBeUndefined()
  expect(cookieIn(undefined, "sluice-dev")).toBeUndefined()
  expect(cookieIn("sluice-dev=1; sluice-dev=2", "sluice-dev")).toBe("")
  expect(cookieIn("sluice-dev", "sluice-dev")).toBe("")
})
