// The log of requests: what is in it, whose it is, what never is, and what it costs whoever is answered.
import Fastify from "fastify"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { startService, type TestService } from "../../../test/service.ts"
import type { Context } from "../../platform/context.ts"
import { registry } from "../../platform/metrics.ts"
import { logRequests } from "./log-requests.ts"
import { forgetOldRequests } from "./queries.ts"

const as = "shop"
const path = "/api/console/requests"
const DAY_MS = 86_400_000

let service: TestService
let merchantId: string
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  merchantId = await service.merchant(as)
  await settled()
  await service.ctx.db.deleteFrom("requests").execute()
})

const rows = () => service.ctx.db.selectFrom("requests").selectAll().orderBy("n").execute()
const allText = async () => JSON.stringify(await rows(), (_, value) => (typeof value === "bigint" ? `${value}` : value))
/** Resolves once everything that was answered so far is written: one more request, which is written last. */
async function settled(): Promise<void> {
  const id = `mark-${Math.random().toString(36).slice(2)}`
  await service.call("GET", "/api/console/settings", undefined, { as, headers: { "x-request-id": id } })
  await until("it is written", async () => (await rows()).some(({ request_id }) => request_id === id))
  await service.ctx.db.deleteFrom("requests").where("request_id", "=", id).execute()
}
const key = async (scopes: string[], fields: object = {}) =>
  (await service.call("POST", "/api/console/api-keys", { name: "server", scopes, ...fields }, { as })).body
const withKey = (secret: string, id: string) => ({ headers: { "x-api-key": secret, "x-request-id": id } })
const list = async (query = "", who = as) =>
  (await service.call("GET", `${path}${query}`, undefined, { as: who })).body.data

describe("an entry", () => {
  it("of a refused call says what was asked, by whom and why it failed, and has neither query nor body", async () => {
    const { key: secret, id } = await key(["checkouts"])
    const body = { amount: "-5", metadata: { secret: "in the body" } }
    const answer = await service.call("POST", "/api/checkouts?note=in-the-query", body, withKey(secret, "try-1"))
    await settled()
    const [entry] = await list("?status=4xx")
    expect(entry).toEqual({
      at: expect.stringMatching(/Z$/),
      requestId: "try-1",
      method: "POST",
      route: "/api/checkouts",
      status: answer.status,
      code: "VALIDATION_ERROR",
      keyId: id,
      personId: null,
      durationMs: expect.any(Number),
      refusal: JSON.stringify(answer.body),
    })
    expect(await allText()).not.toMatch(/in the body|in-the-query/)
  })

  it("of a person is that of the member, also where it was refused before the merchant was known", async () => {
    await service.call("PUT", "/api/console/settings", { name: 5 }, { as })
    await service.call("GET", "/api/console/team", undefined, { as })
    await settled()
    const [member] = await service.ctx.db
      .selectFrom("members")
      .selectAll()
      .where("merchant_id", "=", merchantId)
      .execute()
    const found = await list()
    expect(
      found.map(({ route, status, personId }: { route: string; status: number; personId: string }) => [
        route,
        status,
        personId,
      ]),
    ).toEqual([
      ["/api/console/team", 200, member?.person_id],
      ["/api/console/settings", 400, member?.person_id],
    ])
  })

  it("names a person of two merchants by what the request chose, and none where it chose neither or another's", async () => {
    await service.merchant("other")
    await service.call("POST", "/api/console/merchants", { name: "second" }, { as })
    const second = (await service.ctx.db.selectFrom("merchants").select("id").where("name", "=", "second").execute())[0]
      ?.id
    const [foreign] = await service.ctx.db
      .selectFrom("merchants")
      .select("id")
      .where("id", "not in", [merchantId, `${second}`])
      .execute()
    for (const chosen of [second, foreign?.id, undefined])
      await service.call(
        "PUT",
        "/api/console/settings",
        { name: 5 },
        {
          as,
          headers: chosen === undefined ? {} : { "sluice-merchant": chosen },
        },
      )
    await service.call("GET", path, undefined, {
      as,
      headers: { "sluice-merchant": merchantId, "x-request-id": "last" },
    })
    await until("it is written", async () => (await rows()).some(({ request_id }) => request_id === "last"))
    const refused = (await rows()).filter(({ status }) => status === 400)
    expect(refused.map(row => row.merchant_id)).toEqual([second])
  })

  it("keeps 1 KB of a refusal, and no half of a character", async () => {
    const fields = Array.from({ length: 60 }, (_, n) => [`${"ä".repeat(n % 7)}${n}`, 1])
    await service.call("POST", "/api/console/products", Object.fromEntries(fields), { as })
    await settled()
    const [entry] = await list("?status=refused")
    expect(Buffer.byteLength(entry.refusal)).toBeLessThanOrEqual(1_024)
    expect(Buffer.byteLength(entry.refusal)).toBeGreaterThan(1_000)
    expect(entry.refusal).not.toContain("\ufffd")
  })

  it("has no secret that an answer showed, nor the key that came with the request", async () => {
    const { key: secret } = await key(["webhooks"])
    await service.call("POST", "/api/console/webhooks", {}, withKey(secret, "one"))
    await service.call("POST", "/api/console/settings/webhook-secret/reveal", {}, { as })
    await settled()
    const all = await allText()
    expect(all).not.toMatch(/whsec_/)
    expect(all).not.toContain(secret)
  })
})

describe("whose it is", () => {
  it("a stranger's 401 is in no merchant's log, whatever the stranger names", async () => {
    const headers = { "sluice-merchant": merchantId }
    expect((await service.call("GET", path, undefined, { headers })).status).toBe(401)
    for (const name of ["x-api-key", "authorization"])
      await service.call("GET", path, undefined, { headers: { ...headers, [name]: "Bearer no" } })
    await settled()
    expect(await rows()).toEqual([])
  })

  it("one id of two merchants shows each its own, and repeats as a list", async () => {
    await service.merchant("other")
    for (const who of [as, as, "other"])
      await service.call("GET", "/api/console/products", undefined, { as: who, headers: { "x-request-id": "same" } })
    await settled()
    const find = async (who: string) => (await service.call("GET", `${path}/same`, undefined, { as: who })).body.data
    expect((await find(as)).map(({ requestId }: { requestId: string }) => requestId)).toEqual(["same", "same"])
    expect(await find("other")).toHaveLength(1)
    expect((await service.call("GET", `${path}/nothing`, undefined, { as })).status).toBe(404)
  })

  it("is read by a key with `console`, and by none with `read`", async () => {
    const { key: reader } = await key(["read"])
    const { key: all } = await key(["console"])
    expect((await service.call("GET", path, undefined, withKey(reader, "a"))).status).toBe(403)
    expect((await service.call("GET", path, undefined, withKey(all, "b"))).status).toBe(200)
  })

  it("shows the merchant that somebody used its key from another address", async () => {
    const { key: secret, id } = await key(["read"], { allowedIps: ["192.0.2.0/24"] })
    await service.call("GET", "/api/console/products", undefined, withKey(secret, "stolen"))
    await settled()
    expect(await list("?status=4xx")).toMatchObject([{ keyId: id, code: "IP_NOT_ALLOWED", requestId: "stolen" }])
  })
})

describe("the list", () => {
  it("is filtered by status, kind of caller, key, person, route and time", async () => {
    const { key: secret, id } = await key(["read", "console"])
    await service.call("GET", "/api/console/products", undefined, withKey(secret, "a"))
    await service.call("GET", "/api/console/products/prod_none", undefined, withKey(secret, "b"))
    await service.call("GET", "/api/console/team", undefined, { as, headers: { "x-request-id": "c" } })
    await settled()
    const person = (await rows()).find(row => row.request_id === "c")?.person_id
    const ids = async (query: string) =>
      (await list(query))
        .map(({ requestId }: { requestId: string }) => requestId)
        .filter((each: string) => each.length === 1)
    expect(await ids("?status=2xx")).toEqual(["c", "a"])
    expect(await ids("?status=refused")).toEqual(["b"])
    expect(await ids("?by=key")).toEqual(["b", "a"])
    expect(await ids("?by=person")).toEqual(["c"])
    expect(await ids("?by=key&status=refused")).toEqual(["b"])
    expect(await ids(`?by=person&key=${id}`)).toEqual([])
    expect(await ids(`?key=${id}`)).toEqual(["b", "a"])
    expect(await ids(`?person=${person}`)).toEqual(["c"])
    expect(await ids(`?route=${encodeURIComponent("/api/console/products/:id")}`)).toEqual(["b"])
    expect(await ids(`?from=${new Date(service.ctx.now().getTime() + DAY_MS).toISOString()}`)).toEqual([])
    expect(await ids(`?to=${new Date(service.ctx.now().getTime() + DAY_MS).toISOString()}`)).toEqual(["c", "b", "a"])
    for (const wrong of [
      "?from=tomorrow",
      "?status=200",
      "?by=robot",
      "?key=no",
      "?person=no",
      "?from=2026-02-30T00:00:00Z",
    ])
      expect((await service.call("GET", `${path}${wrong}`, undefined, { as })).status, wrong).toBe(400)
  })

  it("forgets what is older than 30 days, and nothing else", async () => {
    const add = (
      days: number,
    ) => sql`insert into requests (merchant_id, at, request_id, method, route, status, duration_ms)
      select ${merchantId}, ${new Date(service.ctx.now().getTime() - days * DAY_MS)}, 'x' || n, 'GET', '/x', 200, 1 from generate_series(1, 6000) n`
    await add(31).execute(service.ctx.db)
    await add(29).execute(service.ctx.db)
    await forgetOldRequests(service.ctx)
    const left = await rows()
    expect(left).toHaveLength(6_000)
    expect(left.every(({ at }) => at.getTime() > service.ctx.now().getTime() - 30 * DAY_MS)).toBe(true)
  })
})

describe("what it costs", () => {
  it("payers' paths have no hook of it, and those of members and keys have", async () => {
    const app = Fastify()
    const hooked: Record<string, boolean> = {}
    logRequests(app as never, service.ctx)
    app.addHook("onRoute", ({ url, onResponse, onSend }) => {
      hooked[url] = onResponse !== undefined && onSend !== undefined
    })
    const ways = ["public", "wallet", "operator", "person", "optional key", "member", "key"]
    for (const by of ways) app.get(`/${by}`, { config: { access: { by } as never } }, async () => "")
    expect(Object.keys(hooked).filter(url => hooked[url])).toEqual(["/member", "/key"])
    await app.close()
  })

  it("drops and counts what is too much, and answers while the database takes nothing", async () => {
    const dropped = async () =>
      (await registry.getSingleMetric("sluice_request_log_dropped_total")?.get())?.values[0]?.value ?? 0
    const before = await dropped()
    let fail = (): void => {}
    const stuck = new Promise<never>((_, reject) => {
      fail = () => reject(new Error("no database"))
    })
    const executor = { transformQuery: () => ({}), compileQuery: () => ({}), executeQuery: () => stuck }
    const ctx = { ...service.ctx, db: { getExecutor: () => executor } } as unknown as Context
    const app = Fastify()
    logRequests(app as never, ctx)
    app.addHook("onRequest", (request, _, done) => {
      request.apiKey = { id: request.headers["x-key"], merchantId } as never
      done()
    })
    app.get("/key", { config: { access: { by: "key" } as never } }, async () => "fine")
    for (let n = 0; n < 2_600; n++) {
      const answer = await app.inject({ url: "/key", headers: { "x-key": "one" } })
      expect(answer.body).toBe("fine")
    }
    // 500 are being written and 2,000 of this key wait. Another's are still taken.
    expect((await dropped()) - before).toBe(100)
    await app.inject({ url: "/key", headers: { "x-key": "two" } })
    expect((await dropped()) - before).toBe(100)
    fail()
    await app.close()
    expect((await dropped()) - before).toBe(2_601)
  })
})

it("finds an id, what was refused, and what came with keys or from people, by an index", async () => {
  /** Writes 50,000 entries of which few were refused; few have no key, or few have one. */
  const fill = async (keyId: string | null, rareKeyId: string | null) => {
    await sql`truncate requests`.execute(service.ctx.db)
    await sql`insert into requests (merchant_id, at, request_id, method, route, status, duration_ms, api_key_id)
      select ${merchantId}, ${service.ctx.now()}::timestamptz - make_interval(secs => n), 'id' || n, 'GET', '/x',
        case n % 1000 when 0 then 404 else 200 end, 1, case n % 1000 when 1 then ${rareKeyId}::text else ${keyId}::text end
      from generate_series(1, 50000) n`.execute(service.ctx.db)
    await sql`analyze requests`.execute(service.ctx.db)
  }
  await fill(null, "key_rare")
  const planOf = async (query: string) =>
    (await sql.raw<Record<string, string>>(`explain ${query}`).execute(service.ctx.db)).rows
      .map(row => Object.values(row)[0])
      .join("\n")
  expect(
    await planOf(
      `select * from requests where merchant_id = '${merchantId}' and request_id = 'id40000' order by at desc, n desc limit 100`,
    ),
  ).toContain("requests_of_id")
  expect(
    await planOf(
      `select * from requests where merchant_id = '${merchantId}' and status >= 400 and status < 500 and status >= 400 order by at desc, n desc limit 51`,
    ),
  ).toContain("requests_refused")
  const planBy = (is: string) =>
    planOf(
      `select * from requests where merchant_id = '${merchantId}' and api_key_id ${is} order by at desc, n desc limit 51`,
    )
  expect(await planBy("is not null")).toContain("requests_of_keys")
  await fill("key_busy", null)
  expect(await planBy("is null")).toContain("requests_of_people")
})
