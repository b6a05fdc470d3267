/**
 * Bundles as their merchant makes them: what is accepted, what is shown, what stays secret, and where their money goes.
 */
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { renewDeposits } from "../../ledger/deposits/move-deposits.ts"
import { inTransaction } from "../../platform/context.ts"
import { describeBundle } from "./describe-bundle.ts"

const SECRET = "Bearer the-secret-of-the-origin"
const weather = {
  name: "Weather",
  slug: "weather",
  originUrl: "https://api.weather.example/v1/",
  originHeaders: { Authorization: SECRET, "x-key": "k1" },
  routes: [
    { method: "GET", path: "/forecast/:city", price: "0.05", description: "Seven days" },
    { method: "GET", path: "/cities", price: 0 },
  ],
}
const bundles = "/api/console/bundles"
const other = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  await service.merchant("rival")
})

const call = (method: "GET" | "POST" | "PUT" | "DELETE", url: string, body?: unknown, as = "shop") =>
  service.call(method, url, body, { as })
const make = async (more: object = {}): Promise<string> =>
  (await call("POST", bundles, { ...weather, ...more })).body.id
const read = async (id: string) => (await call("GET", `${bundles}/${id}`)).body
/** The rows of everything that a refused request could have written. */
const rows = async () => {
  const { rows } = await sql<{ n: number }>`select (select count(*) from bundles) + (select count(*) from bundle_routes)
    + (select count(*) from bundle_headers) + (select count(*) from slugs) + (select count(*) from deposits) as n`.execute(
    service.ctx.db,
  )
  return Number(rows[0]?.n)
}

describe("a bundle", () => {
  it("is made, listed, read, changed and deactivated, and its secrets are in no answer and in no row", async () => {
    const made = await call("POST", bundles, weather)
    expect(made).toMatchObject({ status: 201 })
    const { id } = made.body
    expect(made.body).toMatchObject({
      slug: "weather",
      url: `${service.ctx.settings.baseUrl}/api/p/weather`,
      originUrl: "https://api.weather.example/v1",
      originHeaders: ["authorization", "x-key"],
      active: true,
      listed: false,
      routes: [
        { method: "GET", path: "/forecast/:city", price: "0.05", description: "Seven days" },
        { method: "GET", path: "/cities", price: "0.00", description: null },
      ],
    })
    const change = { originHeaders: { "X-Key": null, "x-other": "o" }, routes: [weather.routes[1]], listed: true }
    const changed = await call("PUT", `${bundles}/${id}`, change)
    expect(changed.body).toMatchObject({ originHeaders: ["authorization", "x-other"], listed: true, name: "Weather" })
    expect(changed.body.routes).toHaveLength(1)
    const list = await call("GET", bundles)
    expect(list.body).toMatchObject({ total: 1, data: [{ id, slug: "weather" }] })
    const { rows: stored } =
      await sql`select b.*, h.* from bundles b join bundle_headers h on h.bundle_id = b.id`.execute(service.ctx.db)
    const everything = JSON.stringify([made.body, changed.body, list.body, await read(id), stored])
    expect(everything).not.toContain("the-secret")
    for (let i = 0; i < 2; i++) expect((await call("DELETE", `${bundles}/${id}`)).status).toBe(200)
    expect((await read(id)).active).toBe(false)
    expect(await describeBundle(service.ctx, "weather")).toBeUndefined()
  })

  it("of another merchant does not exist", async () => {
    const id = await make()
    for (const [method, url, body] of [
      ["GET", `${bundles}/${id}`, undefined],
      ["PUT", `${bundles}/${id}`, { originUrl: "https://evil.example" }],
      ["DELETE", `${bundles}/${id}`, undefined],
      ["GET", `${bundles}/${id}/failures`, undefined],
    ] as const)
      expect((await call(method, url, body, "rival")).status, url).toBe(404)
    expect((await read(id)).originUrl).toBe("https://api.weather.example/v1")
  })

  it("that moves to another host takes no header along: a stolen token can't have them sent elsewhere", async () => {
    const id = await make()
    const samePlace = await call("PUT", `${bundles}/${id}`, { originUrl: "https://api.weather.example/v2" })
    expect(samePlace.body.originHeaders).toEqual(["authorization", "x-key"])
    const moved = await call("PUT", `${bundles}/${id}`, {
      originUrl: "https://thief.example",
      originHeaders: { "x-key": "new" },
    })
    expect(moved.body.originHeaders).toEqual(["x-key"])
  })

  it("is described to agents with its routes and prices, without its origin", async () => {
    const id = await make({ openapi: { openapi: "3.1.0" }, openapiUrl: "https://weather.example/openapi.json" })
    const described = await describeBundle(service.ctx, "weather")
    expect(described).toMatchObject({
      id,
      currency: "USDC",
      openapi: { openapi: "3.1.0" },
      routes: [{ price: "0.05" }, {}],
    })
    expect(JSON.stringify(described)).not.toContain("api.weather.example")
    expect(await describeBundle(service.ctx, "nothing")).toBeUndefined()
  })

  it("is refused with every fault at once, and nothing is written", async () => {
    const before = await rows()
    const refused = async (more: object, ...faults: [path: string, words: string][]) => {
      const { status, body } = await call("POST", bundles, { ...weather, ...more })
      expect(status, JSON.stringify(body)).toBe(400)
      const found = body.details.map((each: { path: string; message: string }) => [each.path, each.message])
      expect(found.map(([path]: string[]) => path)).toEqual(faults.map(([path]) => path))
      for (const [i, [, words]] of faults.entries()) expect(found[i][1]).toContain(words)
      expect(await rows()).toBe(before)
    }
    const route = weather.routes[0]
    await refused(
      {
        routes: [
          { ...route, path: "/a//b" },
          { ...route, price: "0.001" },
          route,
          { ...route, path: "/forecast/:town" },
        ],
      },
      ["routes.0.path", "empty part"],
      ["routes.1.price", "at least 0.01"],
      ["routes.3.path", "must not match the same requests as GET /forecast/:city"],
    )
    for (const url of ["http://127.0.0.2.nip.io:x", "ftp://a.example", "https://u:p@a.example", "http://10.0.0.1"])
      await refused({ originUrl: url }, ["originUrl", "originUrl"])
    await refused({ originUrl: "https://a.example/?key=1" }, ["originUrl", "query"])
    await refused({ originUrl: `${service.ctx.settings.baseUrl}/api/p/weather` }, ["originUrl", "itself"])
    await refused(
      { originHeaders: { "Sluice-Payment": "x", "a b": "x", host: "x", x_y: "x", k: "a\nb", "K-2": "1", "k-2": "2" } },
      ["originHeaders.Sluice-Payment", "set by the service"],
      ["originHeaders.a b", "name of a header"],
      ["originHeaders.host", "set by the service"],
      ["originHeaders.x_y", "name of a header"],
      ["originHeaders.k", "visible ASCII"],
      ["originHeaders.K-2", "twice"],
      ["originHeaders.k-2", "twice"],
    )
    const many = Object.fromEntries(Array.from({ length: 21 }, (_, i) => [`x-${i}`, "v"]))
    await refused({ originHeaders: many }, ["originHeaders", "at most 20"])
    // Each would be a statement, in a transaction that holds the merchant's lock.
    const thousands = Object.fromEntries(Array.from({ length: 15_000 }, (_, i) => [`x-${i}`, null]))
    await refused({ originHeaders: thousands }, ["originHeaders", "at most 40 fields"])
    await refused({ openapi: { text: "x".repeat(130 * 1024) } }, ["openapi", "128 KB"])
  })
})

describe("the slug of a bundle", () => {
  it("is refused where a paywall or a link has it, the other way round, and to all but one of a race", async () => {
    await call("POST", "/api/console/paywalls", { name: "Film", price: 5, slug: "film" })
    await call("POST", "/api/console/payment-links", { title: "Gift", slug: "gift" })
    await make()
    const taken = { status: 409, body: { error: "SLUG_TAKEN" } }
    for (const slug of ["film", "gift", "weather"])
      expect(await call("POST", bundles, { ...weather, slug })).toMatchObject(taken)
    expect(await call("POST", "/api/console/paywalls", { name: "A", price: 5, slug: "weather" })).toMatchObject(taken)
    expect(await call("POST", "/api/console/payment-links", { title: "A", slug: "weather" })).toMatchObject(taken)
    const raced = await Promise.all([
      call("POST", bundles, { ...weather, slug: "raced" }),
      call("POST", "/api/console/paywalls", { name: "A", price: 5, slug: "raced" }),
      call("POST", "/api/console/payment-links", { title: "A", slug: "raced" }),
      call("POST", bundles, { ...weather, slug: "raced" }, "rival"),
    ])
    expect(raced.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409])
  })

  it("that was given up is held for its merchant", async () => {
    const id = await make()
    expect((await call("PUT", `${bundles}/${id}`, { slug: "weather-2" })).status).toBe(200)
    expect((await call("POST", bundles, weather, "rival")).status).toBe(409)
    expect((await call("POST", bundles, weather)).status).toBe(201)
  })
})

describe("the address of a bundle", () => {
  it("is a new one whenever it would pay somebody else, and before its money may be recovered", async () => {
    const id = await make()
    const seen = [(await read(id)).payTo]
    const expectNew = async () => {
      const { payTo } = await read(id)
      expect(seen).not.toContain(payTo)
      seen.push(payTo)
    }
    await call("PUT", "/api/console/settings", { payoutAddress: other })
    await expectNew()
    const recipients = [
      { address: other, percent: 70 },
      { address: "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC", percent: 30 },
    ]
    const split = await call("POST", "/api/console/splits", { name: "Two", recipients })
    await call("PUT", `${bundles}/${id}`, { splitId: split.body.id })
    await expectNew()
    await call("PUT", `/api/console/splits/${split.body.id}`, { recipients: recipients.toReversed() })
    await expectNew()
    // Free routes are not divided, priced ones must be worth it.
    const cheap = { routes: [{ method: "GET", path: "/", price: "0.01" }] }
    expect((await call("PUT", `${bundles}/${id}`, cheap)).status).toBe(400)
    const more = Array.from({ length: 6 }, (_, i) => ({ address: `0x${`${i + 1}`.repeat(40)}`, percent: 15 }))
    const tooMany = [...more, { address: other, percent: 10 }]
    expect((await call("PUT", `/api/console/splits/${split.body.id}`, { recipients: tooMany })).status).toBe(400)
    await call("DELETE", `/api/console/splits/${split.body.id}`)
    await expectNew()
    expect((await read(id)).splitId).toBeNull()
    expect(await renewDeposits(service.ctx)).toBe(0)
    service.advance(310 * 86_400_000)
    expect(await renewDeposits(service.ctx)).toBe(1)
    await expectNew()
    expect(await renewDeposits(service.ctx)).toBe(0)
  })

  it("belongs to an existing bundle: one with an address can't be deleted, nor become another merchant's", async () => {
    const id = await make()
    const refused = (statement: string) =>
      expect(inTransaction(service.ctx, ctx => sql.raw(statement).execute(ctx.db))).rejects.toThrow(/violates/)
    await refused(`delete from bundles where id = '${id}'`)
    await refused(
      `update bundles set merchant_id = (select merchant_id from members m join persons p on p.id = m.person_id where p.sub = 'rival') where id = '${id}'`,
    )
    await refused(`update bundles set id = 'pw_x' where id = '${id}'`)
    expect(
      (await service.ctx.db.selectFrom("resources").selectAll().where("id", "=", id).executeTakeFirst())?.chain_id,
    ).toBe(paperNetwork.chainId)
  })
})
