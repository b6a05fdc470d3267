/** The limits as callers meet them: every row of the table, errors, and which proxy's `X-Forwarded-For` is trusted. */
import { afterAll, afterEach, describe, expect, it, vi } from "vitest"
import { noLimits, startService, type TestService } from "../../../test/service.ts"
import { NEW_KEY } from "../../account/identity/key-terms.ts"
import { createApiKey, newApiKey, revokeApiKey } from "../../account/identity/manage-api-keys.ts"
import { readSettings } from "../config/read-settings.ts"
import type { Settings } from "../config/settings.ts"
import { type Credential, countsOf, type LimitRow, limitRows, WINDOW_MS } from "../limits/buckets.ts"
import { processLimits } from "../limits/limiter.ts"
import { memoryLog } from "../limits/sliding-log.ts"

/** What the keys of these tests are made of. */
const SERVER = { name: "Server", terms: NEW_KEY, madeBy: undefined }
const defaults = readSettings({}).limits
const started: TestService[] = []
let clockMs = 1_000_000

/** A service with limits and a clock that this test moves. */
async function startLimited(limits: Settings["limits"], settings: Partial<Settings> = {}): Promise<TestService> {
  const log = memoryLog({ windowMs: WINDOW_MS, maxKeys: 1_000, clock: () => clockMs })
  const service = await startService({ settings: { ...settings, limits }, limits: processLimits(log) })
  started.push(service)
  return service
}
afterAll(() => Promise.all(started.splice(0).map(each => each.stop())))

/** Credentials with which a request is counted as the row says: each of another merchant, with a new key each time. */
const bearing: Record<
  Credential,
  (service: TestService) => Promise<{ as?: string; headers?: Record<string, string> }>
> = {
  none: async () => ({}),
  token: async () => ({ as: "shop" }),
  apiKey: async service => {
    const { key } = await createApiKey(service.ctx, await service.merchant("key holder"), SERVER)
    return { headers: { "x-api-key": key } }
  },
}
/** The identity that is known then. */
const aKey = { id: "key_1", merchantId: "mer_1" }
const known = { none: {}, token: { subject: "me" }, apiKey: { apiKey: aKey } }
const requestOf = ({ method = "GET", path }: LimitRow) => ({
  method: method as "GET" | "POST",
  path: path
    .replace(/:\w+/g, "x")
    .replace(/\((\w+)[^)]*\)/, "$1")
    .replace("*", "x"),
})

describe("each limit of the table", () => {
  let service: TestService | undefined
  const names = limitRows.map(row => [`${row.bucket}: ${row.method ?? "any"} ${row.path}`, row] as const)

  it("has the number that was published", () => {
    expect(defaults).toEqual({
      auth: 5,
      mcp: 120,
      checkout: 10,
      payConfirm: 10,
      payStatus: 30,
      console: 60,
      paywallVerify: 30,
      paywallPay: 10,
      merchant: 60,
      consume: 600,
      pages: 600,
      linkStart: 30,
      agent: 120,
      device: 60,
      listener: 600,
      facilitator: 600,
      public: 30,
    })
    expect(new Set(limitRows.map(({ bucket }) => bucket))).toEqual(new Set(Object.keys(defaults)))
  })

  it.each([
    ["POST", "/api/auth/verify", "auth", undefined],
    ["POST", "/api/checkouts", "checkout", "checkout"],
    ["GET", "/api/checkouts", "merchant", "merchant"],
    ["GET", "/api/checkouts/cs_1", "merchant", "merchant"],
    ["POST", "/api/pay/confirm", "payConfirm", undefined],
    ["POST", "/api/pay/authorize", "payConfirm", undefined],
    ["GET", "/api/pay/status/cs_1", "payStatus", undefined],
    ["GET", "/api/paywalls/pw_1/verify", "paywallVerify", "consume"],
    ["POST", "/api/paywalls/pw_1/consume", "consume", "consume"],
    ["POST", "/api/paywalls/pw_1/pay", "paywallPay", undefined],
    ["GET", "/api/paywalls/pw_1", undefined, undefined],
    ["GET", "/api/checkoutsx", undefined, undefined],
    ["DELETE", "/nowhere", undefined, undefined],
    ["PUT", "/api/console/nowhere", "console", "console"],
  ])("%s %s counts as it was published", (method, path, byAddress, byKey) => {
    const from = { subject: undefined, ip: "192.0.2.7" }
    const buckets = (apiKey: typeof aKey | undefined) =>
      countsOf(defaults, method, path, { ...from, apiKey }).map(({ key }) => key.replaceAll(":", " "))
    const anonymous = [...(byAddress ? [byAddress] : []), "public"].map(bucket => `{192.0.2.7} ${bucket}`)
    expect(buckets(undefined)).toEqual(anonymous)
    expect(buckets(aKey)).toEqual(byKey ? [`{mer_1} key_1 ${byKey}`, `{mer_1} ${byKey}`] : anonymous)
  })

  it("counts a page of the console, and none of its files", () => {
    const caller = { subject: undefined, apiKey: undefined, ip: "192.0.2.7" }
    expect(countsOf(defaults, "GET", "/console/payments", caller).map(({ key }) => key)).toEqual(["{192.0.2.7}:pages"])
    expect(countsOf(defaults, "GET", "/console/assets/main-ABCDEFGH.js", caller)).toEqual([])
  })

  it("counts a path under /api/console by its token's subject, whether the path exists or not", () => {
    const caller = { subject: "https://id.example me", apiKey: aKey, ip: "192.0.2.7" }
    const [count, ...more] = countsOf(defaults, "GET", "/api/console/nowhere", caller)
    expect(count?.key).toMatch(/^\{[\w-]{43}\}:console$/)
    expect(more).toEqual([])
    expect(countsOf(defaults, "GET", "/nowhere", caller).map(({ key }) => key)).toEqual(["{192.0.2.7}:public"])
  })

  it.each(names)("%s admits as many as documented, and one more after Retry-After", async (_name, row) => {
    service ??= await startLimited(defaults)
    const { method, path } = requestOf(row)
    const limit = defaults[row.bucket]
    // Another address for each row, so that they share no public bucket.
    const remoteAddress = `192.0.2.${limitRows.indexOf(row)}`
    const bears = await bearing[row.credential](service)
    // Assistants send a key as a bearer token.
    if (row.bucket === "mcp") bears.headers = { authorization: `Bearer ${bears.headers?.["x-api-key"]}` }
    const ask = async () => {
      const before = Date.now() / 1_000
      const answer = await service?.call(method, path, method === "POST" ? {} : undefined, {
        ...bears,
        remoteAddress,
      })
      const reset = Number(answer?.headers["x-ratelimit-reset"])
      // The seconds until the reset, as a range: it was computed at some time during the request and is rounded up.
      const least = reset - 1 - Date.now() / 1_000
      const most = reset - before
      return { status: answer?.status ?? 0, headers: answer?.headers ?? {}, body: answer?.body, least, most }
    }
    for (let i = 1; i <= limit; i++) {
      const { status, headers, least, most } = await ask()
      expect(status).not.toBe(429)
      expect(headers).toMatchObject({ "x-ratelimit-limit": `${limit}`, "x-ratelimit-remaining": `${limit - i}` })
      expect(headers).not.toHaveProperty("retry-after")
      expect(most).toBeGreaterThan(0)
      expect(least).toBeLessThanOrEqual(60)
      clockMs += 10
    }
    clockMs += 7_000
    const { status, headers, body, least, most } = await ask()
    const retryAfter = Math.ceil((WINDOW_MS - 7_000 - 10 * limit) / 1_000)
    expect(status).toBe(429)
    expect(body).toEqual({
      error: "RATE_LIMITED",
      message: expect.stringMatching(/./),
      retryAfter,
      requestId: headers["x-request-id"],
    })
    expect(headers).toMatchObject({
      "retry-after": `${retryAfter}`,
      "x-ratelimit-limit": `${limit}`,
      "x-ratelimit-remaining": "0",
    })
    expect(least).toBeLessThanOrEqual(retryAfter)
    expect(most).toBeGreaterThan(retryAfter - 1)
    clockMs += retryAfter * 1_000
    expect((await ask()).status).not.toBe(429)
  })

  it.each(names)(
    "%s counts by its own credential alone, and without one by its route and all of the address",
    (_name, row) => {
      const { method, path } = requestOf(row)
      const caller = { subject: undefined, apiKey: undefined, ip: "192.0.2.7" }
      const keys = (more: object) =>
        countsOf(defaults, method, path, { ...caller, ...more }).map(
          ({ key, limit }) => `${key.split(":").at(-1)} ${limit}`,
        )
      const own = `${row.bucket} ${defaults[row.bucket]}`
      // Twenty keys of a merchant, whichever they are, count together.
      const together = row.credential === "apiKey" ? [`${row.bucket} ${20 * defaults[row.bucket]}`] : []
      if (row.credential !== "none") expect(keys(known[row.credential])).toEqual([own, ...together])
      const without = keys({})
      // A payer who reloads a page must not use up what it needs to pay.
      const isVisit = ["pages", "linkStart", "agent", "device"].includes(row.bucket)
      if (!isVisit) expect(without.at(-1)).toBe(`public ${defaults.public}`)
      expect(without.length).toBe(isVisit || row.bucket === "public" ? 1 : 2)
      if (path !== "/api/paywalls/x/verify") expect(without).toContain(own)
      // A credential of another kind counts as none.
      const isForNone = row.credential === "none" && !/\/(verify|session)$/.test(path)
      if (isForNone) expect(keys({ subject: "me", apiKey: aKey })).toEqual(without)
    },
  )

  it.each(names)("%s holds in the store", (_name, row) => {
    const { method, path } = requestOf(row)
    const caller = { subject: undefined, apiKey: undefined, ip: "192.0.2.7", ...known[row.credential] }
    const log = memoryLog({ windowMs: WINDOW_MS, maxKeys: 10, clock: () => clockMs })
    const counts = countsOf({ ...noLimits, [row.bucket]: defaults[row.bucket] }, method, path, caller)
    for (let i = 0; i < defaults[row.bucket]; i++) expect(log.admit(counts).admitted).toBe(true)
    const refused = log.admit(counts)
    expect(refused).toMatchObject({ admitted: false, waitMs: WINDOW_MS })
    expect(log.admit(counts, clockMs + WINDOW_MS).admitted).toBe(true)
  })
})

describe("API keys", () => {
  it("of one merchant admit twenty times the limit of one together, however often they are recreated", async () => {
    const service = await startLimited({ ...noLimits, merchant: 2 })
    const merchantId = await service.merchant("shop")
    const statuses: number[] = []
    for (let i = 0; i < 21; i++) {
      const { key, row } = await createApiKey(service.ctx, merchantId, SERVER)
      for (const _ of [1, 2])
        statuses.push(
          (await service.call("GET", "/api/checkouts", undefined, { headers: { "x-api-key": key } })).status,
        )
      await revokeApiKey(service.ctx, merchantId, row.id)
    }
    expect(statuses).toEqual([...Array(40).fill(200), 429, 429])
  })

  it("that are unknown cost the database nearly nothing once their address is refused, and a valid one among them is served", async () => {
    const service = await startLimited({ ...noLimits, public: 2 })
    const { key } = await createApiKey(service.ctx, await service.merchant("shop"), SERVER)
    const ask = async (key: string) =>
      (await service.call("GET", "/api/checkouts", undefined, { headers: { "x-api-key": key } })).status
    expect([await ask(newApiKey("test")), await ask(newApiKey("test")), await ask(newApiKey("test"))]).toEqual([
      401, 401, 429,
    ])
    const executed = vi.spyOn(service.ctx.db.getExecutor(), "executeQuery")
    const all = await Promise.all([key, ...Array.from({ length: 200 }, () => newApiKey("test"))].map(ask))
    expect(all).toEqual([200, ...Array(200).fill(429)])
    expect(executed.mock.calls.filter(([{ sql }]) => sql.includes("from api_keys"))).toHaveLength(1)
  })
})

describe("what counts", () => {
  const limits = { ...noLimits, public: 2 }
  afterEach(() => {
    clockMs += WINDOW_MS
  })

  it.each([
    ["a path that is not there", 404, (s: TestService) => s.call("GET", "/nowhere")],
    ["a console path without a token", 401, (s: TestService) => s.call("GET", "/api/console/settings")],
    [
      "a console path with a bad token",
      401,
      (s: TestService) =>
        s.call("GET", "/api/console/settings", undefined, { headers: { authorization: "Bearer a.b.c" } }),
    ],
    [
      "a body that is too large",
      413,
      (s: TestService) => s.call("POST", "/api/paywalls/x/pay", { txHash: "x".repeat(1_000_000) }),
    ],
    ["broken JSON", 400, (s: TestService) => s.call("POST", "/api/paywalls/x/pay", "{")],
    ["a URL that can't be decoded", 400, (s: TestService) => s.call("GET", "/api/paywalls/%zz")],
    ["a very long parameter", 404, (s: TestService) => s.call("GET", `/api/paywalls/${"x".repeat(200)}`)],
  ])("%s is limited, with headers", async (_what, expected, send) => {
    const service = started.at(-1)?.ctx.settings.limits === limits ? started.at(-1) : await startLimited(limits)
    if (!service) throw new Error("not started")
    for (const [status, remaining] of [
      [expected, "1"],
      [expected, "0"],
      [429, "0"],
    ]) {
      const answer = await send(service)
      expect(answer.status).toBe(status)
      expect(answer.headers).toMatchObject({ "x-ratelimit-limit": "2", "x-ratelimit-remaining": remaining })
      expect(answer.headers["x-ratelimit-reset"]).toMatch(/^\d{10}$/)
      expect(answer.headers["x-request-id"]).toBeDefined()
    }
  })

  it("HEAD counts against the route of its GET", () => {
    const caller = { subject: undefined, apiKey: undefined, ip: "192.0.2.7" }
    const of = (method: string) => countsOf(defaults, method, "/api/paywalls/:id/verify", caller)
    expect(of("HEAD")).toEqual(of("GET"))
  })
})

describe("X-Forwarded-For", () => {
  const limits = { ...noLimits, public: 1 }
  let service: TestService
  /** Whether two requests count as one caller: the second one is then refused. */
  const isOneCaller = async (a: [peer: string, forwarded: string], b: [peer: string, forwarded: string]) => {
    clockMs += WINDOW_MS
    const ask = ([remoteAddress, forwarded]: [string, string]) =>
      service.call("GET", "/nowhere", undefined, { remoteAddress, headers: { "x-forwarded-for": forwarded } })
    expect((await ask(a)).status).toBe(404)
    return (await ask(b)).status === 429
  }
  const start = async () => {
    service ??= await startLimited(limits, { trustedProxies: ["10.0.0.0/8", "2001:db8:ff::/48"] })
  }

  it("changes nothing when it comes from a peer that is not a trusted proxy", async () => {
    await start()
    expect(await isOneCaller(["203.0.113.5", "192.0.2.1"], ["203.0.113.5", "192.0.2.2"])).toBe(true)
    expect(await isOneCaller(["203.0.113.5", "192.0.2.1"], ["203.0.113.6", "192.0.2.1"])).toBe(false)
    expect(await isOneCaller(["11.0.0.1", "10.0.0.1"], ["11.0.0.1", "10.0.0.2"])).toBe(true)
  })

  it("from a trusted proxy counts the client: the last address that is not a proxy", async () => {
    await start()
    expect(await isOneCaller(["10.0.0.1", "192.0.2.1"], ["10.9.9.9", "192.0.2.1"])).toBe(true)
    expect(await isOneCaller(["10.0.0.1", "192.0.2.1"], ["10.0.0.1", "192.0.2.2"])).toBe(false)
    // Entries that the client itself wrote are further left.
    expect(await isOneCaller(["10.0.0.1", "1.1.1.1, 192.0.2.1"], ["10.0.0.1", "2.2.2.2,192.0.2.1"])).toBe(true)
    expect(await isOneCaller(["10.0.0.1", "192.0.2.1, 10.0.0.2"], ["10.0.0.3", "192.0.2.1"])).toBe(true)
    expect(await isOneCaller(["10.0.0.1", "10.0.0.7, 192.0.2.1, 10.0.0.2"], ["10.0.0.1", "192.0.2.1"])).toBe(true)
    expect(await isOneCaller(["::ffff:10.0.0.1", "192.0.2.1"], ["10.0.0.1", "192.0.2.1"])).toBe(true)
    expect(await isOneCaller(["2001:db8:ff::1", "192.0.2.1"], ["10.0.0.1", "::ffff:192.0.2.1"])).toBe(true)
  })

  it("counts a caller as no more addresses than it has, whatever it writes into the header", async () => {
    await start()
    expect(await isOneCaller(["10.0.0.1", "192.0.2.1:4711"], ["10.0.0.1", "192.0.2.1:4712"])).toBe(true)
    expect(await isOneCaller(["10.0.0.1", "[2001:db8::1]:80"], ["10.0.0.1", "2001:db8::2"])).toBe(true)
    expect(await isOneCaller(["10.0.0.1", "unknown"], ["10.0.0.1", "secret-7"])).toBe(true)
  })
})
