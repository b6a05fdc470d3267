// The client against the real service over a socket: what it sends, what it returns, and how it fails.
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { startServer } from "../../server/test/local-server.ts"
import { startService, type TestService } from "../../server/test/service.ts"
import { leftOut } from "../../tools/openapi/sdk-resources.ts"
import { Sluice, SluiceError } from "../src/index.ts"
import { table } from "../src/resources.ts"

let service: TestService
let baseUrl: string
let sluice: Sluice
beforeAll(async () => {
  service = await startService()
  baseUrl = await service.listen()
})
afterAll(() => service?.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  const scopes = ["checkouts", "console"]
  const { body } = await service.call("POST", "/api/console/api-keys", { name: "sdk", scopes }, { as: "shop" })
  sluice = new Sluice({ baseUrl: `${baseUrl}/`, apiKey: body.key })
})

const errorOf = async (work: Promise<unknown>): Promise<SluiceError> => {
  const error = await work.then(
    () => undefined,
    error => error,
  )
  expect(error).toBeInstanceOf(SluiceError)
  return error
}

describe("the client", () => {
  it("has every operation of the document but those that are left out with a reason", () => {
    const called = Object.values(table).flatMap(calls => Object.values(calls).map(line => line.split(" ", 2).join(" ")))
    const all = Object.entries(
      service.document.paths as Record<string, Record<string, { operationId: string }>>,
    ).flatMap(([path, item]) =>
      Object.entries(item)
        .filter(([, { operationId }]) => !leftOut[operationId])
        .map(([method]) => `${method.toUpperCase()} ${path}`),
    )
    expect(called.sort()).toEqual(all.sort())
    for (const [name, calls] of Object.entries(table))
      for (const method of Object.keys(calls))
        expect((sluice as never as Record<string, Record<string, unknown>>)[name]?.[method]).toBeTypeOf("function")
  })

  it("makes a checkout, reads it, changes it, and lists it", async () => {
    const made = await sluice.checkouts.create({ amount: "19.90", metadata: { order: "1001" } })
    expect(made).toMatchObject({ amount: "19.90", status: "pending", metadata: { order: "1001" } })
    expect(await sluice.checkouts.get(made.id)).toMatchObject({ id: made.id })
    const listed = await sluice.checkouts.list().all(10)
    expect(listed.map(({ id }) => id)).toEqual([made.id])
    expect((await sluice.pay.status(made.id)).status).toBe("pending")
  })

  it("answers what an envelope holds, and text for a file", async () => {
    expect(await sluice.webhooks.list().all(1)).toEqual([])
    expect(await sluice.transactions.export()).toMatch(/^\W*id,/)
    const split = await sluice.splits.list().page()
    expect(split).toMatchObject({ total: 0 })
  })

  it("goes through all pages of a list, and on from one", async () => {
    const ids: string[] = []
    for (let i = 0; i < 7; i++) ids.unshift((await sluice.checkouts.create({ amount: i + 1 })).id)
    const read: string[] = []
    for await (const { id } of sluice.checkouts.list({ limit: 3 })) read.push(id)
    expect(read).toEqual(ids)
    const list = sluice.checkouts.list()
    const first = await list.page({ limit: 2 })
    const second = await list.page({ limit: 2, after: first.next as string })
    expect([...first.data, ...second.data].map(({ id }) => id)).toEqual(ids.slice(0, 4))
    await expect(sluice.checkouts.list({ limit: 3 }).all(6)).rejects.toThrow(RangeError)
  })

  it("makes one of two calls with one key, and says the key in the error of another body", async () => {
    const [one, two] = [
      await sluice.checkouts.create({ amount: "5" }, { idempotencyKey: "order-1" }),
      await sluice.checkouts.create({ amount: "5" }, { idempotencyKey: "order-1" }),
    ]
    expect(one.id).toBe(two.id)
    const error = await errorOf(sluice.checkouts.create({ amount: "6" }, { idempotencyKey: "order-1" }))
    expect(error).toMatchObject({
      code: "IDEMPOTENCY_MISMATCH",
      status: 422,
      retryable: false,
      idempotencyKey: "order-1",
      docUrl: `${baseUrl}/docs/errors#IDEMPOTENCY_MISMATCH`,
    })
  })

  it("throws the service's error with its code, its details and the id of the request", async () => {
    const missing = await errorOf(sluice.checkouts.get("cs_aaaaaaaaaaaaaaaaaaaaaaaa"))
    expect(missing).toMatchObject({ code: "SESSION_NOT_FOUND", status: 404 })
    expect(missing.requestId).toMatch(/^[0-9a-f-]{36}$/)
    const invalid = await errorOf(sluice.checkouts.create({ amount: "-1" }))
    expect(invalid).toMatchObject({ code: "VALIDATION_ERROR", details: [{ path: "amount" }] })
    const stranger = await errorOf(new Sluice({ baseUrl, apiKey: "sk_none" }).checkouts.create({ amount: "1" }))
    expect(stranger).toMatchObject({ code: "UNAUTHORIZED", status: 401, retryable: false })
  })

  it("shows the rate limit, and how long to wait where that is too long", async () => {
    const limits = { ...service.ctx.settings.limits, checkout: 3 }
    const limited = await startService({ settings: { limits } })
    try {
      await limited.merchant("shop")
      const { body } = await limited.call("POST", "/api/console/api-keys", { name: "sdk" }, { as: "shop" })
      const client = new Sluice({ baseUrl: await limited.listen(), apiKey: body.key, totalTimeoutMs: 1_000 })
      expect(client.rateLimit).toBeUndefined()
      for (let i = 0; i < 3; i++) await client.checkouts.create({ amount: 1 })
      expect(client.rateLimit).toMatchObject({ limit: 3, remaining: 0 })
      const error = await errorOf(client.checkouts.create({ amount: 1 }))
      expect(error).toMatchObject({ code: "RATE_LIMITED", status: 429, retryable: true })
      expect(error.retryAfter).toBeGreaterThan(0)
    } finally {
      await limited.stop()
    }
  })

  it("waits in a list for as often as the rate limit refuses, and goes on where it was", async () => {
    const asked: string[] = []
    const busy = await startServer((request, response) => {
      asked.push(`${request.url}`)
      const refused = asked.length % 4 !== 0
      response.writeHead(refused ? 429 : 200, { "content-type": "application/json", "retry-after": "0" })
      const after = new URL(`http://x${request.url}`).searchParams.get("after")
      const limited = { error: "RATE_LIMITED", message: "Too many requests.", requestId: "r", retryAfter: 0 }
      response.end(
        JSON.stringify(
          refused ? limited : { data: [{ id: after ?? "first" }], total: 2, ...(after ? {} : { next: "second" }) },
        ),
      )
    })
    const client = new Sluice({ baseUrl: busy.url, apiKey: "k", maxRetries: 0 })
    const rows = await client.checkouts.list({ limit: 1 }).all(9)
    expect(rows.map(({ id }) => id)).toEqual(["first", "second"])
    expect(asked).toEqual([
      ...Array(4).fill("/api/checkouts?limit=1"),
      ...Array(4).fill("/api/checkouts?limit=1&after=second"),
    ])
    expect(await errorOf(client.checkouts.list().page())).toMatchObject({ code: "RATE_LIMITED" })
    busy.stop()
  })

  it("says what is missing before anything is sent", () => {
    vi.stubEnv("SLUICE_URL", undefined)
    vi.stubEnv("SLUICE_API_KEY", undefined)
    expect(() => new Sluice({ apiKey: "k" })).toThrow("baseUrl")
    expect(() => new Sluice({ baseUrl: "pay.example.com", apiKey: "k" })).toThrow("http")
    expect(() => new Sluice({ baseUrl })).toThrow("SLUICE_API_KEY")
    vi.stubEnv("SLUICE_URL", baseUrl)
    vi.stubEnv("SLUICE_API_KEY", "k")
    expect(new Sluice()).toBeInstanceOf(Sluice)
    vi.unstubAllEnvs()
    expect(() => sluice.checkouts.get("")).toThrow("needs {id}")
    for (const id of [undefined, ".", ".."]) expect(() => sluice.checkouts.get(id as never)).toThrow("needs {id}")
    expect(() => sluice.checkouts.create({ amount: 1n as never })).toThrow("BigInt")
  })

  it("follows no redirect, and calls an answer that is not the service's unreadable", async () => {
    const seen: (string | undefined)[] = []
    const other = await startServer((request, response) => {
      seen.push(request.headers["x-api-key"] as string | undefined)
      if (request.url === "/elsewhere") return void response.end("{}")
      if (request.url?.includes("cs_moved")) return void response.writeHead(302, { location: "/elsewhere" }).end()
      response.writeHead(200, { "content-type": "text/html" }).end("<h1>Sign in to the hotel's network</h1>")
    })
    const client = new Sluice({ baseUrl: other.url, apiKey: "k", maxRetries: 0 })
    expect(await errorOf(client.checkouts.get("cs_moved"))).toMatchObject({ code: "UNREADABLE_ANSWER", status: 302 })
    expect(await errorOf(client.checkouts.get("cs_page"))).toMatchObject({ code: "UNREADABLE_ANSWER", status: 200 })
    expect(seen).toEqual(["k", "k"])
    other.stop()
    expect(await errorOf(client.checkouts.get("cs_gone"))).toMatchObject({ code: "CONNECTION_FAILED", retryable: true })
  })

  it("ends at the caller's signal with the caller's reason, and at its own time with TIMEOUT", async () => {
    const silent = await startServer(() => {})
    const client = new Sluice({ baseUrl: silent.url, apiKey: "k", maxRetries: 0, timeoutMs: 50 })
    expect(await errorOf(client.checkouts.get("cs_1"))).toMatchObject({ code: "TIMEOUT", status: undefined })
    const stop = new AbortController()
    const call = client.checkouts.get("cs_1", { signal: stop.signal, timeoutMs: 60_000 })
    stop.abort(new Error("closed"))
    await expect(call).rejects.toThrow("closed")
    silent.stop()
  })

  it("waits until a checkout has a status, or says which one it had", async () => {
    const { id } = await sluice.checkouts.create({ amount: "5" })
    expect((await sluice.checkouts.waitUntil(id, { status: ["pending", "confirmed"] })).id).toBe(id)
    const late = await errorOf(sluice.checkouts.waitUntil(id, { status: "confirmed", timeoutMs: 1 }))
    expect(late).toMatchObject({ code: "TIMEOUT", message: expect.stringContaining(`${id} is pending`) })
  })
})
