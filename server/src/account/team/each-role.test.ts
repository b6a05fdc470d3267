/**
 * Each role and each scope against each route and method, asked of the real service: what the table of routes does not allow is refused,
 * with who may do it, and nothing is written.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { contents, countWrites, writes } from "../../../test/count-writes.ts"
import {
  personOf,
  prepare,
  type Route,
  routes,
  send,
  service,
  signed,
  startEverything,
  stopEverything,
} from "../../../test/everything.ts"
import { hasRight, type Right, ROLES, type Role, rightTable, SCOPES } from "../../platform/http/rights.ts"
import { accessOf, type MerchantAccess, routeTable } from "../../platform/http/route-access.ts"

const keyOfScope: Record<string, string> = {}
/** What stands there before a request. */
let prepared: Record<string, unknown>
let known: string | undefined

beforeAll(async () => {
  await startEverything()
  await countWrites(service.ctx.db)
})
afterAll(stopEverything)
beforeEach(async () => {
  if (prepared && (await writes(service.ctx.db)) === known) return
  await prepare()
  await hire()
  for (const scope of SCOPES) {
    const made = await service.call("POST", "/api/console/api-keys", { name: "A", scopes: [scope] }, { as: "shop" })
    keyOfScope[scope] = made.body.key
    // Used, so that it is not noted for another minute.
    await service.call("GET", "/api/console/paywalls", undefined, { headers: { "x-api-key": made.body.key } })
  }
  prepared = await contents(service.ctx.db)
  known = await writes(service.ctx.db)
})

/** A member of the shop for each role but the owner's, whose subject is the name of the role. */
async function hire(): Promise<void> {
  const { db } = service.ctx
  const merchant_id = await service.merchant("shop")
  const created_at = new Date()
  for (const role of ROLES.filter(each => each !== "owner")) {
    const id = `per_${role.padEnd(24, "z")}`
    await db.insertInto("persons").values({ id, iss: service.issuer.issuer, sub: role, created_at }).execute()
    await db.insertInto("members").values({ merchant_id, person_id: id, role, created_at }).execute()
  }
}

async function expectNothingWritten(what: string): Promise<void> {
  const now = await writes(service.ctx.db)
  if (now !== known) expect(await contents(service.ctx.db), what).toEqual(prepared)
  known = now
}

const patternOf = ({ path }: Route) => path.replaceAll(/\{(\w+)\}/g, ":$1")
const rowOf = (route: Route) => accessOf(route.method, patternOf(route))
const isMember = (row: ReturnType<typeof rowOf>): row is MerchantAccess => row?.by === "member"
const memberRoutes = routes.flatMap(route => {
  const row = rowOf(route)
  return isMember(row) ? [{ route, row }] : []
})
const subjectOf = (role: Role) => (role === "owner" ? "shop" : role)

/** What an example of a route asks for beyond the right of the route. */
const parts: Record<string, Right> = {
  "PUT /api/console/settings": "payouts",
  "DELETE /api/console/team/{id}": "team",
}
const mayWhole = (role: Role, { route, row }: { route: Route; row: MerchantAccess }): boolean =>
  hasRight(role, row.right) && hasRight(role, parts[route.name] ?? row.right)

it("the tests see every route that needs a credential, as the service registers them", () => {
  const documented = new Set(routes.map(rowOf))
  const missing = [...routeTable].filter(([_, row]) => row.by !== "public" && !documented.has(row))
  // A stream has no end to wait for. Every role may read it, and products/changes/stream.test.ts does. MCP is for keys alone, and
  // has another contract than the document's.
  expect(missing.map(([name]) => name)).toEqual(["POST /mcp", "GET /api/console/stream"])
  expect(memberRoutes.length).toBeGreaterThan(85)
})

describe.each(memberRoutes.map(each => [each.route.name, each] as const))("%s", (name, { route, row }) => {
  it("refuses each role that may not, says who may, and writes nothing", async () => {
    for (const role of ROLES.filter(each => !mayWhole(each, { route, row }))) {
      const body = await signed[name]?.()
      const answer = await send(route, { as: subjectOf(role), ...(body ? { body: JSON.stringify(body) } : {}) })
      const what = `${name} as ${role}: ${JSON.stringify(answer.body)}`
      expect(answer, what).toMatchObject({ status: 403, body: { error: "ROLE_REQUIRED" } })
      const right = hasRight(role, row.right) ? (parts[name] ?? row.right) : row.right
      for (const other of ROLES)
        if (hasRight(other, right)) expect(answer.body.message.split(" need the role ")[1], what).toContain(other)
      expect(answer.body.message, what).toContain(`Your role here, ${role},`)
    }
    await expectNothingWritten(name)
  })

  it("refuses a key without its scope, and writes nothing", async () => {
    for (const scope of SCOPES.filter(each => !row.scopes.includes(each))) {
      const answer = await send(route, { headers: { "x-api-key": keyOfScope[scope] ?? "" } })
      const error = row.scopes.length === 0 ? "UNAUTHORIZED" : "SCOPE_REQUIRED"
      expect(answer.body.error, `${name} with ${scope}`).toBe(error)
      for (const each of row.scopes) expect(answer.body.message, name).toContain(`\`${each}\``)
    }
    await expectNothingWritten(name)
  })

  it("has nothing for who is no member, even by the merchant's name, and writes nothing", async () => {
    const headers = { "sluice-merchant": await merchantOf("shop") }
    for (const as of ["rival", "stranger"]) {
      const answer = await send(route, { as, headers })
      expect(answer, `${name} as ${as}`).toMatchObject({ status: 400, body: { error: "MERCHANT_REQUIRED" } })
      expect(JSON.stringify(answer.body), name).not.toContain(headers["sluice-merchant"])
    }
    await expectNothingWritten(name)
  })

  it("lets each role that may, and each key with its scope", async () => {
    for (const role of ROLES.filter(each => mayWhole(each, { route, row }))) {
      const body = await signed[name]?.()
      const answer = await send(route, { as: subjectOf(role), ...(body ? { body: JSON.stringify(body) } : {}) })
      expect([401, 403], `${name} as ${role}: ${JSON.stringify(answer.body)}`).not.toContain(answer.status)
      expect(answer.body.error, `${name} as ${role}`).not.toBe("MERCHANT_REQUIRED")
    }
    for (const scope of row.scopes) {
      const answer = await send(route, { headers: { "x-api-key": keyOfScope[scope] ?? "" } })
      expect([401, 403], `${name} with ${scope}: ${JSON.stringify(answer.body)}`).not.toContain(answer.status)
    }
  })
})

const merchantOf = async (as: string): Promise<string> =>
  (await service.call("GET", "/api/console/settings", undefined, { as })).body.merchantId

describe("a route for a merchant's server, and one for a person", () => {
  const others = routes.flatMap(route => {
    const row = rowOf(route)
    return row && (row.by === "key" || row.by === "person") ? [{ route, row }] : []
  })
  it.each(others.map(each => [each.route.name, each] as const))(
    "%s takes no other credential",
    async (name, { route, row }) => {
      expect(others.length).toBeGreaterThan(8)
      if (row.by === "key") {
        const headers = { authorization: `Bearer ${await service.issuer.token("shop")}` }
        expect((await send(route, { headers })).body.error, name).toBe("UNAUTHORIZED")
      }
      for (const scope of SCOPES) {
        if ("scopes" in row && row.scopes.includes(scope)) continue
        const answer = await send(route, { headers: { "x-api-key": keyOfScope[scope] ?? "" } })
        expect(answer.body.error, `${name} with ${scope}`).toBe(row.by === "key" ? "SCOPE_REQUIRED" : "UNAUTHORIZED")
      }
      await expectNothingWritten(name)
    },
  )

  it("a person of any role, and of none, has the routes of persons", () => {
    for (const name of Object.keys(personOf)) expect(others.map(({ route }) => route.name)).toContain(name)
  })

  it("every right that a role lacks is asked for somewhere", () => {
    const asked = new Set(memberRoutes.map(({ row }) => row.right))
    for (const right of Object.keys(rightTable) as Right[]) expect(asked).toContain(right)
  })
})
