import { createHash } from "node:crypto"
import { Writable } from "node:stream"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { openApp } from "../../app.ts"
import type { Server } from "../../platform/http/server.ts"
import { openLog } from "../../platform/log.ts"
import { newApiKey } from "./manage-api-keys.ts"
import { tokenIssuer } from "./tokens.ts"

const url = "/api/console/api-keys"
const address = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"

let service: TestService
/** Another instance of the service on the same database, whose log is kept. */
let second: Server
let logged = ""
const keep = new Writable({
  write: (chunk, _encoding, done) => {
    logged += chunk
    done()
  },
})
let id: string

beforeAll(async () => {
  service = await startService()
  const { ctx, issuer } = service
  const tokens = tokenIssuer(issuer.issuer, ctx.settings.oidcAudience)
  second = openApp({ ...ctx, log: openLog("trace", keep) }, tokens)
  await second.ready()
})
afterAll(async () => {
  await second.close()
  await service.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  logged = ""
  id = (await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })).body.id
})

const create = (name = "Server", as = "shop") => service.call("POST", url, { name }, { as })
const list = async (as = "shop") => (await service.call("GET", url, undefined, { as })).body
const consume = (key: string) =>
  service.call("POST", `/api/paywalls/${id}/consume`, { address }, { headers: { "x-api-key": key } })
const verify = (headers: Record<string, string>) =>
  service.call("GET", `/api/paywalls/${id}/verify?address=${address}`, undefined, { headers })

describe("/api/console/api-keys", () => {
  it("201: the key, once; 200: the list, newest first, without keys", async () => {
    const first = await create("First")
    expect(first).toMatchObject({ status: 201, headers: { "cache-control": "no-store" } })
    const { key, ...rest } = first.body
    expect(key).toMatch(/^sk_test_[0-9A-Za-z]{40}$/)
    expect(rest).toEqual({
      id: expect.stringMatching(/^key_[a-z0-9]{24}$/),
      name: "First",
      scopes: ["checkouts"],
      expiresAt: null,
      allowedIps: null,
      limits: { refundPerDay: null, returnPerDay: null },
      byDevice: false,
      ending: null,
      previousExpiresAt: null,
      prefix: "sk_test_",
      last4: key.slice(-4),
      createdAt: expect.any(String),
    })
    service.advance(1_000)
    const { body: second } = await create("Second")
    await create("Rival's", "rival")
    expect(await list()).toEqual({
      data: [
        { ...second, key: undefined, lastUsedAt: null },
        { ...rest, lastUsedAt: null },
      ],
      total: 2,
    })
    expect((await service.call("GET", `${url}?limit=1&offset=1`, undefined, { as: "shop" })).body).toMatchObject({
      data: [{ name: "First" }],
      total: 2,
    })
  })

  it("is another kind of key in live mode", async () => {
    expect(newApiKey("live")).toMatch(/^sk_live_[0-9A-Za-z]{40}$/)
    expect(newApiKey("test")).toMatch(/^sk_test_/)
  })

  it("uses all characters alike", () => {
    const counts = new Map<string, number>()
    for (let i = 0; i < 1_000; i++)
      for (const character of newApiKey("test").slice(8)) counts.set(character, (counts.get(character) ?? 0) + 1)
    expect(counts.size).toBe(62)
    // 40,000 draws of 62 characters: 645 each, with a tolerance of over six standard deviations (five are 126).
    for (const count of counts.values()) expect(Math.abs(count - 645)).toBeLessThan(160)
  })

  it("409 for one more than twenty, also of many at once, until one is revoked", async () => {
    for (let i = 0; i < 15; i++) expect((await create()).status).toBe(201)
    const answers = await Promise.all(Array.from({ length: 10 }, () => create()))
    expect(answers.map(({ status }) => status).sort()).toEqual([...Array(5).fill(201), ...Array(5).fill(409)])
    expect(await create()).toMatchObject({
      status: 409,
      body: { error: "INVALID_OPERATION", message: "You already have 20 API keys; revoke one first." },
    })
    const { data, total } = await list()
    expect(total).toBe(20)
    expect((await create("Server", "rival")).status).toBe(201)
    await service.call("DELETE", `${url}/${data[0].id}`, undefined, { as: "shop" })
    expect((await create()).status).toBe(201)
  })

  it("200 for a revocation, 404 for it again, for another merchant's and for none", async () => {
    const { body } = await create()
    const remove = (key: string, as = "shop") => service.call("DELETE", `${url}/${key}`, undefined, { as })
    expect(await remove(body.id, "rival")).toMatchObject({ status: 404, body: { error: "NOT_FOUND" } })
    expect((await consume(body.key)).status).toBe(200)
    expect(await remove(body.id)).toMatchObject({ status: 200, body: { deleted: true, id: body.id } })
    for (const gone of [body.id, `key_${"a".repeat(24)}`])
      expect(await remove(gone)).toMatchObject({ status: 404, body: { error: "NOT_FOUND" } })
    expect(await list()).toEqual({ data: [], total: 0 })
  })

  const named = (scopes: unknown) => ({ name: "a", scopes })
  it.each([
    {},
    { name: "" },
    { name: "x".repeat(201) },
    { name: "a", key: "sk_test_x" },
    named([]),
    named("console"),
    named(["settings"]),
    named(["read", "read"]),
    { name: "a", expiresAt: "2020-01-01T00:00:00Z" },
    { name: "a", expiresAt: "2026-02-30" },
    { name: "a", allowedIps: [] },
    { name: "a", allowedIps: ["10.0.0.0/33"] },
    { name: "a", allowedIps: ["10.1"] },
    { name: "a", allowedIps: ["::ffff:10.0.0.1"] },
    { name: "a", allowedIps: ["example.com"] },
    { name: "a", limits: { refundPerDay: -1 } },
    { name: "a", limits: { refundPerDay: 1.5 } },
    { name: "a", limits: { perDay: 1 } },
  ])("400 for %j", async body => {
    const answer = await service.call("POST", url, body, { as: "shop" })
    expect(answer).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR" } })
    expect(await list()).toEqual({ data: [], total: 0 })
  })

  it("401 without a token, and with a key in its place", async () => {
    const { key } = (await create()).body
    for (const headers of [{}, { "x-api-key": key }, { authorization: `Bearer ${key}` }])
      expect((await service.call("GET", url, undefined, { headers })).status).toBe(401)
  })
})

describe("an API key", () => {
  it("authenticates its merchant; any other text, and none, is a 401 that says what is needed", async () => {
    const { key } = (await create()).body
    expect((await consume(key)).status).toBe(200)
    const almost = key.slice(0, -1) + (key.endsWith("a") ? "b" : "a")
    for (const wrong of [
      almost,
      key.slice(0, -1),
      `${key}a`,
      `${key} `.repeat(2),
      key.toUpperCase(),
      "",
      newApiKey("live"),
    ])
      expect(await consume(wrong)).toMatchObject({
        status: 401,
        body: { error: "UNAUTHORIZED", message: expect.stringContaining("x-api-key") },
      })
    const without = await service.call("POST", `/api/paywalls/${id}/consume`, { address })
    expect(without).toMatchObject({ status: 401, body: { error: "UNAUTHORIZED" } })
    // Without a key nobody can learn which routes exist.
    expect((await service.call("POST", "/api/checkouts", {})).status).toBe(401)
  })

  it("may be sent where none is needed, but must be valid", async () => {
    const { key } = (await create()).body
    expect((await verify({})).status).toBe(200)
    expect((await verify({ "x-api-key": key })).status).toBe(200)
    expect(await verify({ "x-api-key": newApiKey("test") })).toMatchObject({
      status: 401,
      body: { error: "UNAUTHORIZED" },
    })
  })

  it("is refused by every other instance with the next request once it is revoked", async () => {
    const { id: keyId, key } = (await create()).body
    const ask = async () =>
      (
        await second.inject({
          method: "POST",
          url: `/api/paywalls/${id}/consume`,
          headers: { "x-api-key": key, "content-type": "application/json" },
          payload: JSON.stringify({ address }),
        })
      ).statusCode
    expect(await ask()).toBe(200)
    expect((await service.call("DELETE", `${url}/${keyId}`, undefined, { as: "shop" })).status).toBe(200)
    expect(await ask()).toBe(401)
  })

  it("and a key id that are not ours are not looked up each time they come, and no valid one is refused because of it", async () => {
    let queries = 0
    const counted = service.ctx.db.withPlugin({
      transformQuery: ({ node }) => {
        queries++
        return node
      },
      transformResult: async ({ result }) => result,
    })
    const { ctx, issuer } = service
    const own = openApp({ ...ctx, db: counted }, tokenIssuer(issuer.issuer, ctx.settings.oidcAudience))
    const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url")
    const header = { alg: "ES256", typ: "console+jwt", kid: "a".repeat(43) }
    const token = `${part(header)}.${part({ iss: ctx.settings.baseUrl })}.${"A".repeat(86)}`
    const inject = async (url: string, headers: Record<string, string>) =>
      (await own.inject({ url, headers })).statusCode
    try {
      const wrong = newApiKey("test")
      const startedAt = performance.now()
      for (let i = 0; i < 50; i++) {
        expect(await inject("/api/checkouts", { "x-api-key": wrong })).toBe(401)
        expect(await inject("/api/console/settings", { authorization: `Bearer ${token}` })).toBe(401)
      }
      // One query for each of the two texts in each second that passed, and the first.
      const seconds = Math.ceil((performance.now() - startedAt) / 1_000)
      expect(queries).toBeGreaterThan(0)
      expect(queries).toBeLessThanOrEqual(4 * (seconds + 1))
      const { id: keyId, key } = (await create()).body
      const ask = () => inject(`/api/paywalls/${id}/verify?address=${address}`, { "x-api-key": key })
      expect([await ask(), await ask()]).toEqual([200, 200])
      await service.call("DELETE", `${url}/${keyId}`, undefined, { as: "shop" })
      expect(await ask()).toBe(401)
    } finally {
      await own.close()
    }
  })

  it("shows when it was last used, written at most once a minute", async () => {
    const { key } = (await create()).body
    const usedAt = async () => (await list()).data[0].lastUsedAt
    expect(await usedAt()).toBeNull()
    await Promise.all(Array.from({ length: 10 }, () => verify({ "x-api-key": key })))
    const first = await usedAt()
    expect(Math.abs(new Date(first).getTime() - service.ctx.now().getTime())).toBeLessThan(30_000)
    service.advance(20_000)
    await verify({ "x-api-key": key })
    expect(await usedAt()).toBe(first)
    service.advance(41_000)
    await verify({ "x-api-key": key })
    expect(new Date(await usedAt()).getTime() - new Date(first).getTime()).toBeGreaterThanOrEqual(60_000)
  })

  it("appears in no log, table or error, and its hash in one table only", async () => {
    const { key } = (await create()).body
    const made = await second.inject({
      method: "POST",
      url,
      headers: { authorization: `Bearer ${await service.issuer.token("shop")}`, "content-type": "application/json" },
      payload: JSON.stringify({ name: "Logged" }),
    })
    const keys: string[] = [key, made.json().key]
    const answers: string[] = []
    for (const each of [...keys, `${key.slice(0, -1)}_`])
      for (const [method, path] of [
        ["POST", `/api/paywalls/${id}/consume`],
        ["POST", "/api/paywalls/none/consume"],
        ["GET", `/api/paywalls/${id}/verify?address=1`],
        ["GET", `/api/checkouts/${each}`],
        ["GET", `/${each}`],
      ] as const) {
        const response = await second.inject({
          method,
          url: path,
          headers: { "x-api-key": each, authorization: `Bearer ${each}`, "content-type": "application/json" },
          ...(method === "POST" ? { payload: JSON.stringify({ address: 5 }) } : {}),
        })
        answers.push(response.payload)
      }
    // A fault of our own is logged with its cause.
    await service.ctx.db.schema.alterTable("api_keys").renameTo("away").execute()
    const broken = await second.inject({ url: "/api/checkouts", headers: { "x-api-key": key } })
    await service.ctx.db.schema.alterTable("away").renameTo("api_keys").execute()
    expect(broken.statusCode).toBe(500)
    expect(logged).toContain("a request failed")
    openLog("info", keep).info({
      req: { headers: { "x-api-key": key } },
      merchant: { apiKey: key },
      authorization: key,
    })
    const tables = await sql<{
      name: string
    }>`select tablename as name from pg_tables where schemaname = 'public'`.execute(service.ctx.db)
    let stored = ""
    for (const { name } of tables.rows)
      stored += (
        await sql<{ text: string | null }>`select string_agg(t::text, ' ') as text from ${sql.table(name)} t`.execute(
          service.ctx.db,
        )
      ).rows[0]?.text
    const secret = (each: string) => each.slice(8, -4)
    for (const each of keys) {
      expect(logged).not.toContain(secret(each))
      expect(answers.join() + broken.payload).not.toContain(secret(each))
      expect(stored).not.toContain(secret(each))
      const hash = createHash("sha256").update(each).digest("hex")
      expect(stored.split(hash)).toHaveLength(2)
      expect(logged).not.toContain(hash)
    }
  })
})
