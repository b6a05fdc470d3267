/**
 * Every route of the OpenAPI document with every input that it does not accept: each is refused in the one shape of errors,
 * with a code that the document declares (`call` checks that), and nothing is written.
 */
import { isDeepStrictEqual } from "node:util"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { wordsOfPattern } from "../src/platform/http/schemas.ts"
import type { Schema } from "./contract.ts"
import { contents, countWrites, writes } from "./count-writes.ts"
import {
  apiKeys,
  BUYER,
  committed,
  prepare,
  queryOf,
  type Route,
  routes,
  type Sent,
  send,
  service,
  signed,
  startEverything,
  stopEverything,
} from "./everything.ts"
import { AUDIENCE } from "./issuer.ts"
import { plainDocument } from "./plain-document.ts"

beforeAll(async () => {
  await startEverything()
  await countWrites(service.ctx.db)
})
afterAll(stopEverything)
/** What stands there before a request. */
let prepared: Record<string, unknown> | undefined
/** How many statements could have written when all was last found as it was prepared. */
let known: string | undefined
beforeEach(async () => {
  // Most requests leave no trace, which is what is tested: then all is as it was.
  if (
    prepared &&
    ((await writes(service.ctx.db)) === known || isDeepStrictEqual(await contents(service.ctx.db), prepared))
  )
    return
  await prepare()
  prepared = await contents(service.ctx.db)
  known = await writes(service.ctx.db)
})

/** That nothing was written since, or all of it was rolled back. */
async function expectAsPrepared(): Promise<void> {
  const now = await writes(service.ctx.db)
  if (now !== known) expect(await contents(service.ctx.db)).toEqual(prepared)
  known = now
}

/** Sends each and expects that it is refused, and that nothing was written in all. */
async function expectRefused(route: Route, all: Sent[], expected: { status?: number; error?: string } = {}) {
  for (const sent of all) {
    const { status, headers, body } = await send(route, sent)
    const what = `${route.name} with ${JSON.stringify(sent).slice(0, 300)}: ${status} ${JSON.stringify(body).slice(0, 500)}`
    expect(status, what).toBeGreaterThanOrEqual(400)
    expect(status, what).toBeLessThan(500)
    expect({ status, ...body }, what).toMatchObject(expected)
    expect(body.requestId, what).toBe(headers["x-request-id"])
    expect(body.message, what).toMatch(/^\S.*[.?]$/s)
    for (const { message } of body.details ?? []) {
      // The words of validators and frameworks are for programmers of servers.
      expect(message, what).not.toMatch(/must NOT|must match|must be equal|pattern|schema|string|integer|boolean|^$/)
      if (body.details.length === 1) expect(message, what).not.toMatch(/undefined|NaN/)
    }
  }
  await expectAsPrepared()
}

/** So deep that JSON can be parsed, and little else done with it. */
const nested = (depth: number): unknown => JSON.parse(`${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`)

const samples: unknown[] = [null, 5, -1.5, "text", "", true, [], [null], {}, { a: { b: [] } }]
const isOf = (type: string, value: unknown): boolean =>
  type === "null"
    ? value === null
    : type === "array"
      ? Array.isArray(value)
      : type === "object"
        ? typeof value === "object" && value !== null && !Array.isArray(value)
        : type === "integer"
          ? Number.isInteger(value)
          : typeof value === type

/** Values that a schema does not take, each wrong in one place; `good` is one that it takes. */
function wrongs(schema: Schema, good: unknown): unknown[] {
  const types = [schema.type ?? []].flat()
  const found: unknown[] = types.length > 0 ? samples.filter(value => !types.some(type => isOf(type, value))) : []
  if (types.includes("string")) found.push("\0", "a\0b", "\ud800", "\udc00\ud800", "x".repeat(100_000))
  if (schema.maxLength !== undefined) found.push("x".repeat(schema.maxLength + 1))
  if (schema.minimum !== undefined) found.push(schema.minimum - 1)
  if (schema.exclusiveMinimum !== undefined) found.push(schema.exclusiveMinimum)
  if (schema.maximum !== undefined) found.push(schema.maximum + 1, 1e300)
  if (types.includes("array")) found.push(...wrongs(schema.items ?? {}, undefined).map(value => [value]))
  if (types.includes("object")) {
    const base = (good ?? {}) as Record<string, unknown>
    const { properties = {}, additionalProperties: other = {}, required = [] } = schema
    for (const [name, property] of Object.entries(properties))
      found.push(...wrongs(property, base[name]).map(value => ({ ...base, [name]: value })))
    for (const name of required) found.push(Object.fromEntries(Object.entries(base).filter(([key]) => key !== name)))
    const odd: unknown[] =
      other === true ? [] : typeof other === "object" ? [nested(2_300), ...wrongs(other, undefined)] : [1]
    found.push(...[...odd, "\0"].map(value => ({ ...base, unheardOf: value })), { ...base, "a\0": 1 })
  }
  return found
}

it("the committed document is the one that is served, so that no route is left out", () => {
  const withoutServers = (document: object) => ({ ...document, servers: [] })
  expect(withoutServers(committed)).toEqual(withoutServers(plainDocument(service.document)))
  expect(routes.length).toBeGreaterThan(14)
})

describe.each(routes.map(route => [route.name, route] as const))("%s", (_name, route) => {
  it("takes its own examples: what is refused below is refused for its one fault", async () => {
    const own = await signed[route.name]?.()
    const { status, body } = await send(route, own ? { body: JSON.stringify(own) } : {})
    // Without a payment, what is sold to agents asks for one.
    if (status === 402) expect(body.accepts).toHaveLength(1)
    else expect(status, JSON.stringify(body)).toBeLessThan(300)
  })

  it("refuses queries that it can't read", async () => {
    const numbers = [
      "",
      "abc",
      "-1",
      "1.5",
      "NaN",
      "Infinity",
      "99999999999999999999",
      "null",
      "[]",
      "{}",
      "true",
      "0&",
    ]
    const texts = ["", "5", "null", "{}", "%ED%A0%80", "%zz", "x".repeat(5_000), `${BUYER}&`]
    const bad = route.query.flatMap(({ name, schema, required }) => {
      const { pattern } = schema as { pattern?: string }
      const isTaken = (text: string) => pattern !== undefined && new RegExp(pattern).test(text)
      const values = schema.type === "integer" ? numbers : texts.filter(text => !isTaken(text))
      // A name twice: which of the two was meant?
      const twice = values.map(value => (value.endsWith("&") ? `${value}${name}=${value.slice(0, -1)}` : value))
      const missing = required ? [{ query: queryOf(route, name) }] : []
      return [...twice.map(value => ({ query: `${queryOf(route, name)}&${name}=${value}` })), ...missing]
    })
    const unstorable = ["a=%00", "%00=a", "a=1&a=2%00"].map(query => ({ query: `${queryOf(route)}&${query}` }))
    await expectRefused(route, [...bad, ...unstorable], { status: 400, error: "VALIDATION_ERROR" })
  })

  if (route.params.length > 0)
    it("refuses paths that lead nowhere", async () => {
      const texts = [
        "%zz",
        "%",
        "%00",
        "%ED%A0%80",
        "%C0%80",
        "",
        "%20",
        "x",
        "-1",
        "null",
        "..%2f..",
        "%27%3B--",
        "%F0%9F%92%A9",
      ]
      const long = [101, 20_000].map(length => "x".repeat(length))
      const bad = route.params.flatMap(({ name }) => [...texts, ...long].map(text => ({ path: { [name]: text } })))
      await expectRefused(route, bad)
    })

  if (route.body)
    it("refuses bodies that it does not take", async () => {
      const { schema, example } = route.body as NonNullable<Route["body"]>
      const bad = wrongs(schema, example).map(body => ({ body: JSON.stringify(body) }))
      expect(bad.length).toBeGreaterThan(10)
      await expectRefused(route, bad, { status: 400 })
      if (route.operation.requestBody?.required) await expectRefused(route, [{ body: undefined }], { status: 400 })
    })

  if (route.method !== "GET")
    it("refuses what is no JSON body at all", async () => {
      const texts = [
        "{",
        "nul",
        '{"a":1,}',
        "{'a':1}",
        "\0",
        "\ufeff\ufeff{}",
        '{"a":1,"a":1}',
        '{"__proto__":{"a":1}}',
        "[".repeat(100_000),
      ]
      await expectRefused(
        route,
        texts.map(body => ({ body })),
        { status: 400 },
      )
      await expectRefused(route, [{ body: JSON.stringify({ name: "x".repeat(1_000_000) }) }], { status: 413 })
      const types = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", "%"]
      const others = types.map(type => ({ body: "{}", headers: { "content-type": type } }))
      await expectRefused(route, others, { status: 415, error: "UNSUPPORTED_MEDIA_TYPE" })
    })

  if (route.takesKey)
    it("refuses keys that can't be one", async () => {
      const keys = ["", " ", "a b", "x".repeat(256), "\u00e4", "a\tb"]
      const bad = keys.map(key => ({ headers: { "idempotency-key": key } }))
      await expectRefused(route, bad, { status: 400, error: "VALIDATION_ERROR" })
    })

  if (route.isConsole)
    it("refuses whoever has no good token", async () => {
      const { issuer } = service
      const now = Math.floor(Date.now() / 1_000)
      const tokens = [
        await issuer.token("shop", { exp: now - 120 }),
        await issuer.token("shop", { nbf: now + 600 }),
        await issuer.token("shop", { iss: "https://evil.example" }),
        await issuer.token("shop", { aud: `${AUDIENCE}-other` }),
        await issuer.token("shop", {}, { kid: "other" }),
        (await issuer.token("shop")).slice(0, -4),
        "a.b.c",
      ]
      const authorizations = [
        ...tokens.map(token => `Bearer ${token}`),
        "Bearer",
        "Basic c2hvcDo=",
        " ",
        tokens[0] ?? "",
      ]
      const bad = authorizations.map(authorization => ({ headers: { authorization } }))
      await expectRefused(route, bad, { status: 401, error: "UNAUTHORIZED" })
    })

  if (route.needsKey) {
    it("refuses whoever has no good key", async () => {
      const { shop } = apiKeys
      const keys = ["", " ", shop.slice(0, -1), `${shop}a`, shop.toLowerCase(), `${shop}, ${shop}`, "sk_test_", "a"]
      const other = `sk_test_${"a".repeat(40)}`
      const bad = [...keys, other].map(key => ({ headers: { "x-api-key": key } }))
      await expectRefused(route, bad, { status: 401, error: "UNAUTHORIZED" })
    })

    if (route.params.length > 0)
      it("has nothing of the shop's for another merchant's key", async () => {
        await expectRefused(route, [{ headers: { "x-api-key": apiKeys.rival } }], { status: 404 })
      })
  }

  if (route.isConsole && route.params.length > 0)
    it("has nothing of the shop's for another merchant", async () => {
      // Only splits have an answer of their own, unlike what does not exist.
      await expectRefused(route, [{ as: "rival" }], { status: route.path.includes("/splits/") ? 403 : 404 })
    })
})

describe("faults", () => {
  it("patterns have words of their own", () => {
    const patterns = JSON.stringify(routes.map(({ query, body }) => [query, body?.schema])).matchAll(
      /"pattern":("(?:[^"\\]|\\.)*")/g,
    )
    const all = [...new Set([...patterns].map(match => JSON.parse(match[1] ?? '""') as string))]
    expect(all.length).toBeGreaterThan(10)
    expect(all.filter(pattern => wordsOfPattern(pattern) === undefined)).toEqual([])
  })
})
