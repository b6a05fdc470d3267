import { SerializerSelector } from "@fastify/fast-json-stringify-compiler"
import { Ajv } from "ajv"
import type { FastifySchema } from "fastify"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Document, Operation } from "../../../test/contract.ts"
import { noLimits, startService, type TestService } from "../../../test/service.ts"
import { openApp } from "../../app.ts"
import { type ErrorCode, errorTable } from "../errors.ts"
import { errorsOf } from "./openapi-responses.ts"

let service: TestService
let document: Document
let operations: [name: string, operation: Operation][]
beforeAll(async () => {
  service = await startService({
    settings: { metricsToken: "m-token", baseUrl: "https://pay.example", limits: { ...noLimits, public: 2 } },
  })
  document = service.document
  operations = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => [`${method} ${path}`, operation] as [string, Operation]),
  )
})
afterAll(() => service.stop())

describe("the document", () => {
  it("is OpenAPI 3.1, with the address of the service", () => {
    expect(document).toMatchObject({ openapi: "3.1.0", servers: [{ url: "https://pay.example" }] })
  })

  it("says of each route what it is for, under a name and a tag that exist once", () => {
    const tags = (document as unknown as { tags: { name: string }[] }).tags.map(({ name }) => name)
    for (const [name, operation] of operations) {
      expect(operation, name).toMatchObject({
        summary: expect.stringMatching(/^[A-Z].*[^.]$/),
        tags: [expect.any(String)],
      })
      expect(tags, name).toContain(operation.tags?.[0])
    }
    const ids = operations.map(([_, { operationId }]) => operationId)
    expect(ids).not.toContain(undefined)
    expect(new Set(ids).size).toBe(ids.length)
  })

  it("has an example for each body, and a description for each parameter", () => {
    for (const [name, { requestBody, parameters = [] }] of operations) {
      if (requestBody) expect(requestBody.content["application/json"].example, name).toBeDefined()
      for (const each of parameters)
        if ("name" in each) expect(each, name).toMatchObject({ description: expect.any(String) })
    }
  })

  it("asks for a token on each console route, or for a key but to keys, to the team and to change settings, or for a session, for a key where a merchant's server calls, and nowhere else", () => {
    const others: Record<string, object[]> = {
      "post /api/checkouts": [{ apiKey: [] }],
      "get /api/checkouts": [{ apiKey: [] }],
      "get /api/checkouts/{id}": [{ apiKey: [] }],
      "get /api/subscriptions": [{ wallet: [] }],
      "get /api/subscriptions/{id}/invoices": [{ wallet: [] }],
      "post /api/subscriptions/{id}/cancel": [{ wallet: [] }],
      "post /api/subscriptions/{id}/resume": [{ wallet: [] }],
      "get /metrics": [{ metrics: [] }],
      "post /x402/verify": [{ apiKey: [] }],
      "post /x402/settle": [{ apiKey: [] }],
      "get /x402/settlements/{from}/{nonce}": [{ apiKey: [] }],
      "post /api/paywalls/{id}/consume": [{ apiKey: [] }],
      "get /api/paywalls/{id}/verify": [{}, { apiKey: [] }],
    }
    const expected = (name: string) => {
      if (/ \/api\/console\/(config|session)$/.test(name)) return []
      const isForPersons =
        / \/api\/console\/(api-keys|erasures|settings|sessions|notifications|me|merchants|team)\b/.test(name)
      if (isForPersons && !/^get .api.console.settings/.test(name)) return [{ bearer: [] }, { session: [] }]
      const ofConsole = [{ bearer: [] }, { apiKey: [] }, { session: [] }]
      return / \/api\/console\//.test(name) ? ofConsole : (others[name] ?? [])
    }
    for (const [name, { security }] of operations) expect(security, name).toEqual(expected(name))
  })

  it("declares every code of the table, and no other", () => {
    const declared = Object.keys(document.components.responses ?? {}).flatMap(name => name.split("."))
    // Calls through bundles are in no document of ours: their paths and answers are those of the merchants' APIs.
    const forwarded = ["ORIGIN_FAILED", "ORIGIN_BUSY"]
    expect(new Set([...declared, ...forwarded])).toEqual(new Set(Object.keys(errorTable)))
  })

  it("has only schemas that can be compiled, although each is compiled when it is first needed", async () => {
    const app = openApp(service.ctx, { verify: () => Promise.reject(new Error("nobody calls")) })
    const schemas: FastifySchema[] = []
    app.addHook("onRoute", ({ schema }) => void schemas.push(schema ?? {}))
    await app.ready()
    const compile = SerializerSelector()(app.getSchemas(), {})
    let compiled = 0
    for (const { body, querystring, params, response } of schemas) {
      for (const input of [body, querystring, params])
        if (input) compiled += new Ajv({ strict: false }).compile(input) ? 1 : 0
      for (const schema of Object.values(response ?? {})) compiled += compile({ schema } as never) ? 1 : 0
    }
    expect(compiled).toBeGreaterThan(300)
    await app.close()
  })

  it("links only to places inside it", () => {
    const text = JSON.stringify(document)
    const pointers = [...text.matchAll(/"\$ref":"#\/components\/(\w+)\/([^"]+)"/g)]
    expect(pointers.length).toBeGreaterThan(100)
    for (const [_, kind = "", name = ""] of pointers) expect(document.components[kind], name).toHaveProperty([name])
    expect(text).not.toContain("x-facts")
    expect(text).not.toContain("/sandbox")
  })

  it("gives each status the codes that have it", () => {
    const operation = document.paths["/api/paywalls/{id}/pay"]?.post
    const codes = Object.entries(operation?.responses ?? {}).map(([status, { $ref }]) => [
      status,
      $ref?.split("/").at(-1),
    ])
    expect(Object.fromEntries(codes)).toEqual({
      200: undefined,
      400: "VALIDATION_ERROR.INVALID_TX_HASH",
      403: "SANCTIONS_MATCH",
      404: "NOT_FOUND.PAYWALL_NOT_FOUND",
      409: "ALREADY_VERIFIED",
      413: "PAYLOAD_TOO_LARGE",
      415: "UNSUPPORTED_MEDIA_TYPE",
      429: "RATE_LIMITED",
      500: "INTERNAL_ERROR",
      503: "DATABASE_UNAVAILABLE.NOT_READY",
    })
  })
})

describe("errorsOf", () => {
  const of = (method: string, url: string, more = {}) => new Set<ErrorCode>(errorsOf({ method, url, ...more }))

  it("adds by rule what the route need not say", () => {
    expect(of("GET", "/healthz")).toEqual(new Set(["VALIDATION_ERROR", "INTERNAL_ERROR"]))
    const usual = ["VALIDATION_ERROR", "RATE_LIMITED", "INTERNAL_ERROR", "DATABASE_UNAVAILABLE", "NOT_READY"]
    expect([...of("GET", "/api/x")]).toEqual(usual)
    expect(of("GET", "/api/x/:id")).toContain("NOT_FOUND")
    for (const code of ["UNAUTHORIZED", "SIGNUP_CLOSED", "IDENTITY_UNAVAILABLE"] as const) {
      expect(of("GET", "/api/console/x")).toContain(code)
      expect(of("GET", "/api/consoles")).not.toContain(code)
    }
    for (const url of ["/api/checkouts", "/api/paywalls/:id/consume", "/api/paywalls/:id/verify"]) {
      expect(of("GET", url)).toContain("UNAUTHORIZED")
      expect(of("GET", url)).not.toContain("SIGNUP_CLOSED")
    }
    for (const code of ["PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"] as const) {
      expect(of("DELETE", "/api/x")).toContain(code)
      expect(of("GET", "/api/x")).not.toContain(code)
    }
    expect(of("POST", "/api/x", { idempotencyKey: true })).toContain("IDEMPOTENCY_MISMATCH")
    expect(of("POST", "/api/x", { errors: ["SLUG_TAKEN"] })).toContain("SLUG_TAKEN")
  })
})

describe("/docs", () => {
  it("shows the document in a page that runs no foreign code, and requests nothing by https on a service reached by http", async () => {
    const { status, headers, body } = await service.call("GET", "/docs/try")
    expect(status).toBe(200)
    expect(body).toContain("swagger-ui-bundle.js")
    const policy = String(headers["content-security-policy"])
    expect(policy).toMatch(/script-src 'self'( 'sha256-[^']+')* ?;/)
    expect(policy).not.toContain("upgrade-insecure-requests")
    expect((await service.call("GET", "/docs/static/swagger-ui-bundle.js")).status).toBe(200)
  })

  it("is available as JSON too, for pages of any origin, and is not limited", async () => {
    for (let i = 0; i < 5; i++) {
      const { status, headers, body } = await service.call("GET", "/docs/json", undefined, {
        headers: { origin: "https://shop.example" },
      })
      expect(status).toBe(200)
      expect(body).toEqual(document)
      expect(headers["access-control-allow-origin"]).toBe("*")
      expect(headers).not.toHaveProperty("x-ratelimit-limit")
    }
    expect((await service.call("GET", "/docs/static/nothing")).body).toMatchObject({ error: "NOT_FOUND" })
  })
})
