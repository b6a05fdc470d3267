/** Paths and routes: what is matched is exactly what is forwarded, whatever a caller writes. */
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { type Method, matchRoute, readTemplate, type Template } from "./match-route.ts"
import { readPath, splitUrl } from "./path.ts"

const templateOf = (text: string): Template => {
  const template = readTemplate(text)
  if (typeof template === "string") throw new Error(`${text} ${template}`)
  return template
}
const routesOf = (...routes: [method: Method, path: string][]) =>
  routes.map(([method, path]) => ({ method, path, template: templateOf(path) }))
const matched = (routes: ReturnType<typeof routesOf>, method: string, raw: string): string | undefined => {
  const path = readPath(raw)
  return typeof path === "string" ? `refused: ${path}` : matchRoute(routes, method, path)?.path
}

/**
 * The path as the strictest and the laxest server would read it: decoded as often as possible, `;` and dots resolved.
 */
function asOthersRead(text: string): string[] {
  const decode = (part: string): string => {
    try {
      const next = decodeURIComponent(part)
      return next === part ? part : decode(next)
    } catch {
      return part
    }
  }
  const whole = decode(text)
  const url = new URL(text, "http://origin.example")
  const withoutParameters = whole
    .split("/")
    .map(part => (/^\.{1,2};/.test(part) ? part.split(";", 1)[0] : part))
    .join("/")
  return [whole, decode(url.pathname), withoutParameters]
}

/** Parts that attackers write, and parts that anyone writes. */
const part = fc.oneof(
  fc.constantFrom(
    "users",
    "%75sers",
    "USERS",
    "admin",
    "7",
    "",
    ".",
    "..",
    "%2e",
    "%2E%2e",
    "..;",
    ".;a",
    "a;b=c",
    ":id",
  ),
  fc.constantFrom(
    "a%2Fb",
    "a%5Cb",
    "%00",
    "%0d%0a",
    "%252e%252e",
    "%252F",
    "%C0%AF",
    "%ff",
    "é",
    "a b",
    "\\",
    "@host",
    "*",
  ),
  fc.string({ maxLength: 6 }),
  fc.webPath().map(path => path.slice(1)),
)
const rawPath = fc.array(part, { minLength: 1, maxLength: 5 }).map(parts => `/${parts.join("/")}`)

describe("a path", () => {
  it("that is accepted is read the same by every server: nothing in it escapes, and its parts are its route's", () => {
    fc.assert(
      fc.property(rawPath, raw => {
        const path = readPath(raw)
        if (typeof path === "string") return
        // Written from its parts it is the same path, so what is forwarded is what was matched.
        expect(readPath(path.text)).toEqual(path)
        expect(path.text).toMatch(/^\/[!-~]*$/)
        // undici and WHATWG URLs pass it on as it is.
        expect(new URL(path.text, "http://origin.example").pathname).toBe(path.text)
        expect(new URL(path.text, "http://origin.example").host).toBe("origin.example")
        for (const read of asOthersRead(path.text)) {
          expect(read.split("/").length).toBe(path.parts.length + 1)
          expect(read.split(/[/\\]/).some(each => each === "." || each === "..")).toBe(false)
        }
      }),
      { numRuns: 3_000 },
    )
  })

  it("has one meaning, or is refused with the reason", () => {
    const refused = {
      "//evil.example/x": "must not have an empty part (`//`)",
      "/a//b": "must not have an empty part (`//`)",
      "/../admin": "must not have `.` or `..` as a part",
      "/users/%2e%2E/admin": "must not have `.` or `..` as a part",
      "/users/..;/admin": "must not have `.` or `..` as a part",
      "/users/a%2Fb": "must not have an encoded slash, backslash, dot or control character",
      "/users/%252e%252e%252fadmin": "must not have an encoded slash, backslash, dot or control character",
      "/users/a%0d%0aX: y": "must be percent-encoded, without `\\` or `#`",
      "/users/a%0d%0aX": "must not have an encoded slash, backslash, dot or control character",
      "/users/\\admin": "must be percent-encoded, without `\\` or `#`",
      "/users/%C0%AF": "must be percent-encoded UTF-8",
      "/users/a#b": "must be percent-encoded, without `\\` or `#`",
      "http://evil.example/": "must start with a slash",
    }
    for (const [raw, why] of Object.entries(refused)) expect(readPath(raw), raw).toBe(why)
    expect(readPath("/users/%61nna%20b/")).toEqual({ parts: ["users", "anna b", ""], text: "/users/anna%20b/" })
    expect(readPath("/a;b=c/@x:y+z,!$&'()*~")).toMatchObject({ text: "/a;b=c/@x:y+z,!$&'()*~" })
  })

  it("is what follows the slug in the URL, however the part before it is written", () => {
    expect(splitUrl("/api/p/shop/a/b?c=%20d")).toEqual({ path: "/a/b", query: "?c=%20d" })
    expect(splitUrl("/%61pi/p/shop/?")).toEqual({ path: "/", query: "?" })
    expect(splitUrl("/api/p/shop//evil.example/")).toEqual({ path: "//evil.example/", query: "" })
    for (const url of [
      "http://x/api/p/shop/a",
      "/api/p/shop",
      "/api/p/shop/a?b#c",
      "/api/p/shop/a?\u00e9",
      "/api/p//a",
    ])
      expect(splitUrl(url), url).toBeUndefined()
  })
})

describe("a route", () => {
  const routes = routesOf(
    ["GET", "/"],
    ["GET", "/users/:id"],
    ["GET", "/users/me"],
    ["GET", "/:kind/me"],
    ["GET", "/users/:id/posts/:post"],
    ["GET", "/users/:id/posts/latest"],
    ["GET", "/users/me/posts/:post"],
    ["POST", "/users"],
    ["GET", "/slash/"],
    ["GET", "/%C3%A9/a%20b"],
  )

  it("is found by its parts: text before a parameter, from the left, and case and a last slash count", () => {
    expect(matched(routes, "GET", "/")).toBe("/")
    expect(matched(routes, "GET", "/users/7")).toBe("/users/:id")
    expect(matched(routes, "HEAD", "/users/7")).toBe("/users/:id")
    expect(matched(routes, "GET", "/users/m%65")).toBe("/users/me")
    expect(matched(routes, "GET", "/paywalls/me")).toBe("/:kind/me")
    expect(matched(routes, "GET", "/users/me/posts/latest")).toBe("/users/me/posts/:post")
    expect(matched(routes, "GET", "/users/7/posts/latest")).toBe("/users/:id/posts/latest")
    expect(matched(routes, "GET", "/slash/")).toBe("/slash/")
    expect(matched(routes, "GET", "/é/a%20b")).toMatch("refused")
    expect(matched(routes, "GET", "/%c3%a9/%61%20b")).toBe("/%C3%A9/a%20b")
    for (const [method, raw] of [
      ["POST", "/users/7"],
      ["GET", "/Users/7"],
      ["GET", "/users/"],
      ["GET", "/users/7/"],
      ["GET", "/slash"],
      ["GET", "/users/7/posts"],
      ["DELETE", "/"],
      ["OPTIONS", "/"],
      ["get", "/"],
    ] as const)
      expect(matched(routes, method, raw), `${method} ${raw}`).toBeUndefined()
  })

  it("is the same whatever the order of the routes, and a template matches itself filled in", () => {
    const literal = fc.constantFrom("a", "b", "users", "me")
    const template = fc
      .array(fc.oneof(literal, fc.constantFrom(":x", ":y")), { minLength: 1, maxLength: 4 })
      .map(parts => `/${parts.join("/")}`)
    fc.assert(
      fc.property(
        fc.array(template, { minLength: 1, maxLength: 8 }),
        fc.array(literal, { maxLength: 4 }),
        (texts, parts) => {
          const one = new Map(texts.map(text => [templateOf(text).shape, text]))
          const some = routesOf(...[...one.values()].map(text => ["GET", text] as [Method, string]))
          const raw = `/${parts.join("/")}`
          expect(matched(some.toReversed(), "GET", raw)).toBe(matched(some, "GET", raw))
          for (const { path, template } of some) {
            const filled = path.replaceAll(/:\w+/g, "z")
            const found = matched(some, "GET", filled)
            expect(found === undefined ? undefined : templateOf(found).shape).toBe(template.shape)
          }
        },
      ),
    )
  })

  it("has a template that can be read, and one that matches the same has its shape", () => {
    expect(templateOf("/users/:id").shape).toBe(templateOf("/%75sers/:name").shape)
    expect(templateOf("/users/:id").shape).not.toBe(templateOf("/users/%3Aid").shape)
    for (const bad of ["users", "/a//b", "/a/../b", "/a?b", "/:", "/:a-b", "/a%2Fb"])
      expect(typeof readTemplate(bad), bad).toBe("string")
  })
})
