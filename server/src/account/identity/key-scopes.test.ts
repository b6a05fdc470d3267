/** What each scope of an API key opens, asked of every route that needs a credential of a merchant. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import {
  ids,
  prepare,
  type Route,
  routes,
  send,
  service,
  startEverything,
  stopEverything,
} from "../../../test/everything.ts"
import { SCOPES, type Scope } from "../../platform/http/rights.ts"
import { accessOf } from "../../platform/http/route-access.ts"

beforeAll(startEverything)
afterAll(stopEverything)

const create = async (scopes: Scope[], as = "shop") => {
  const answer = await service.call("POST", "/api/console/api-keys", { name: "Server", scopes }, { as })
  expect(answer).toMatchObject({ status: 201, body: { scopes } })
  return answer.body as { id: string; key: string }
}
const by = ({ key }: { key: string }) => ({ headers: { "x-api-key": key } })

/** Never by a key: it could make others that outlive it, change where the money goes, or who may. */
const isForPeople = ({ path }: Route) => /^\/api\/console\/(api-keys|settings\/|sessions|me|merchants|team)/.test(path)
/** The scopes of which a key needs one for a route. */
const opening = ({ method, path }: Route): readonly Scope[] => {
  const access = accessOf(method, path.replaceAll(/\{(\w+)\}/g, ":$1"))
  return access && "scopes" in access ? access.scopes : []
}
const consoleRoutes = routes.filter(route => route.isConsole && opening(route).length > 0)
const ownRoutes = routes.filter(route => route.needsKey)

describe("the scopes of an API key", () => {
  let keys: Record<Scope, { id: string; key: string }>
  let logged: bigint
  beforeEach(async () => {
    await prepare()
    const made: [Scope, { id: string; key: string }][] = []
    for (const scope of SCOPES) made.push([scope, await create([scope])])
    keys = Object.fromEntries(made) as typeof keys
    const { n } = await service.ctx.db
      .selectFrom("audit_entries")
      .select("n")
      .orderBy("n", "desc")
      .executeTakeFirstOrThrow()
    logged = n
  })

  it("are sensible: there are routes of each kind", () => {
    for (const some of [consoleRoutes, ownRoutes, routes.filter(isForPeople)]) expect(some.length).toBeGreaterThan(5)
  })

  it("open what they name, and all else is 403, with the scope that is missing, and changes nothing", async () => {
    for (const route of [...consoleRoutes, ...ownRoutes])
      for (const scope of SCOPES) {
        if (opening(route).includes(scope)) continue
        const answer = await send(route, by(keys[scope]))
        expect(answer, `${route.name} with ${scope}`).toMatchObject({ status: 403, body: { error: "SCOPE_REQUIRED" } })
        for (const needed of opening(route)) expect(answer.body.message).toContain(`\`${needed}\``)
      }
    const since = await service.ctx.db.selectFrom("audit_entries").selectAll().where("n", ">", logged).execute()
    expect(since).toEqual([])
  })

  it("open each route that they name, and none is refused for its scope", async () => {
    for (const scope of SCOPES.filter(each => each !== "console"))
      for (const route of [...consoleRoutes, ...ownRoutes].filter(each => each.method === "GET")) {
        if (!opening(route).includes(scope)) continue
        const answer = await send(route, by(keys[scope]))
        expect(answer.status, `${route.name} with ${scope}: ${JSON.stringify(answer.body)}`).toBe(200)
      }
    // Of what changes things, with an id of nothing, so that all can be asked in any order.
    const nothing = { id: "none", grantId: "none" }
    for (const scope of ["catalog", "webhooks", "money"] as const)
      for (const route of consoleRoutes.filter(each => each.method !== "GET" && opening(each).includes(scope))) {
        const { splitId: _, originUrl: __, ...body } = { ...route.body?.example } as Record<string, unknown>
        const answer = await send(route, {
          ...by(keys[scope]),
          path: nothing,
          ...(route.body ? { body: JSON.stringify(body) } : {}),
        })
        expect([401, 403], `${route.name} with ${scope}: ${answer.body.message}`).not.toContain(answer.status)
      }
  })

  it("`console` opens every route of the console that a key can open, with the key as the actor of what it changes", async () => {
    for (const route of consoleRoutes.filter(each => opening(each).includes("console"))) {
      const answer = await send(route, by(keys.console))
      expect([401, 403], route.name).not.toContain(answer.status)
    }
    const actors = await service.ctx.db
      .selectFrom("audit_entries")
      .select(["actor_kind", "actor_id", "merchant_id"])
      .distinct()
      .where("n", ">", logged)
      .execute()
    const merchant = await service.merchant("shop")
    expect(actors).toEqual([{ actor_kind: "api_key", actor_id: keys.console.id, merchant_id: merchant }])
  })

  it("none opens the keys or the settings", async () => {
    const all = await create([...SCOPES])
    const changed = (route: Route) => route.path.startsWith("/api/console/settings") && route.method !== "GET"
    for (const route of routes.filter(each => (isForPeople(each) && opening(each).length === 0) || changed(each)))
      expect(await send(route, by(all)), route.name).toMatchObject({ status: 401, body: { error: "UNAUTHORIZED" } })
  })

  it("`catalog` sets neither a split nor an origin, and writes nothing", async () => {
    const forbidden = { splitId: ids.splits, originUrl: "https://api.example" }
    for (const [name, value] of Object.entries(forbidden))
      for (const path of ["products", "paywalls", "bundles", "payment-links"])
        for (const route of routes.filter(each => each.path.startsWith(`/api/console/${path}`) && each.body)) {
          if (!Object.hasOwn(route.body?.schema.properties ?? {}, name)) continue
          const body = JSON.stringify({ ...route.body?.example, [name]: value })
          const answer = await send(route, { ...by(keys.catalog), body })
          expect(answer, `${route.name} with ${name}`).toMatchObject({ status: 403, body: { error: "SCOPE_REQUIRED" } })
          // It makes no bundle at all: a bundle has an origin.
          if (route.name !== "POST /api/console/bundles") expect(answer.body.message).toContain(`\`${name}\``)
        }
    const since = await service.ctx.db.selectFrom("audit_entries").selectAll().where("n", ">", logged).execute()
    expect(since).toEqual([])
    const product = { name: "Report", price: 5 }
    const made = await service.call("POST", "/api/console/products", product, by(keys.catalog))
    expect(made.status, JSON.stringify(made.body)).toBe(201)
  })

  it("see only their merchant's, as a token does", async () => {
    const rival = await create(["console"], "rival")
    for (const route of consoleRoutes.filter(({ path }) => /\{\w+\}/.test(path))) {
      const answer = await send(route, by(rival))
      const status = route.path.startsWith("/api/console/splits/") ? 403 : 404
      expect(answer.status, `${route.name}: ${JSON.stringify(answer.body)}`).toBe(status)
      expect(answer.body.error).toMatch(status === 403 ? /^FORBIDDEN$/ : /NOT_FOUND$/)
    }
    const { body } = await service.call("GET", "/api/console/paywalls", undefined, by(rival))
    expect(body.paywalls.map(({ id }: { id: string }) => id)).not.toContain(ids.paywalls)
  })

  it("stop with the key's revocation; and beside a token, the token counts", async () => {
    const list = (headers: Record<string, string>, as?: string) =>
      service.call("GET", "/api/console/paywalls", undefined, { headers, ...(as ? { as } : {}) })
    const headers = { "x-api-key": keys.checkouts.key }
    expect((await list(headers)).status).toBe(403)
    expect((await list(headers, "shop")).status).toBe(200)
    expect((await list({ "x-api-key": keys.console.key })).status).toBe(200)
    await service.call("DELETE", `/api/console/api-keys/${keys.console.id}`, undefined, { as: "shop" })
    expect((await list({ "x-api-key": keys.console.key })).status).toBe(401)
    expect((await list({ "x-api-key": keys.console.key, authorization: "Bearer x" })).status).toBe(401)
  })
})
