import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { tokenIssuer } from "../../account/identity/tokens.ts"
import { openApp } from "../../app.ts"
import { isPrivate, nobodyKnown } from "./authenticate.ts"
import { checkRight, hasRight, type Right, ROLES, rightTable, type Scope, scopeTable } from "./rights.ts"
import { type MerchantAccess, type RouteAccess, registeredAccess, routeTable } from "./route-access.ts"
import { openServer } from "./server.ts"

let service: TestService
beforeAll(async () => {
  service = await startService({ settings: { metricsToken: "m-token" } })
})
afterAll(() => service.stop())

const merchantRoutes = [...routeTable.values()].filter((row): row is MerchantAccess => "right" in row)
const found = (name: string): MerchantAccess => {
  const row = merchantRoutes.find(each => each.name === name)
  if (!row) throw new Error(`no row for ${name}`)
  return row
}

describe("the table of routes", () => {
  it("has no row without a route", async () => {
    const app = openApp(service.ctx, tokenIssuer(service.issuer.issuer, service.ctx.settings.oidcAudience))
    const registered = new Set<RouteAccess>()
    app.addHook("onRoute", ({ config }) => void (config?.access && registered.add(config.access)))
    await app.ready()
    await app.close()
    const ofSandbox = (name: string) => /^\w+ \/(sandbox(\/.*)?)?$/.test(name)
    const missing = [...routeTable].filter(([name, row]) => !registered.has(row) && !ofSandbox(name))
    expect(missing.map(([name]) => name)).toEqual([])
  })

  it("refuses a route without a row, also with another method, and says where to add it", () => {
    const app = openServer(service.ctx, nobodyKnown)
    expect(() => app.get("/api/console/everything", async () => ({}))).toThrow(
      "GET /api/console/everything is not in the table of routes: add it to platform/http/route-access.ts, with its right and its scope or as public",
    )
    expect(() => app.put("/api/console/webhooks", async () => ({}))).toThrow("PUT /api/console/webhooks is not in")
    expect(() => registeredAccess({ method: ["GET", "PUT"], url: "/api/console/settings" })).toThrow("different rows")
  })

  it("keeps the pages of other sites from what belongs to a merchant", () => {
    const open = merchantRoutes.filter(({ by, name }) => by !== "optional key" && !isPrivate(name.split(" ")[1] ?? ""))
    expect(open).toEqual([])
  })

  it("uses every right and every scope", () => {
    const rights = new Set<Right>(merchantRoutes.map(({ right }) => right))
    expect([...rights].sort()).toEqual(Object.keys(rightTable).sort())
    const scopes = new Set<Scope | undefined>(merchantRoutes.map(({ scope }) => scope))
    expect(new Set([...scopes, undefined])).toEqual(new Set([...Object.keys(scopeTable), undefined]))
  })

  it("lets every role read, an owner do all, and no role more than an owner", () => {
    for (const right of Object.keys(rightTable) as Right[]) expect(hasRight("owner", right), right).toBe(true)
    for (const role of ROLES) expect(hasRight(role, "read"), role).toBe(true)
    const changing = merchantRoutes.filter(({ name, right }) => !name.startsWith("GET ") && right === "read")
    // What a person is mailed is the person's own.
    expect(changing.map(({ name }) => name)).toEqual(["PUT /api/console/notifications"])
    expect(() => checkRight({ role: "developer" }, "money")).toThrow(
      "Your role here, developer, does not allow this. You need the role owner, admin or finance to accept, return, refund, capture and void payments.",
    )
  })
})

describe("the scopes that open a route", () => {
  it("are its own, `console` in the console, and `read` for what reads", () => {
    expect(found("POST /api/checkouts").scopes).toEqual(["checkouts"])
    expect(found("GET /api/checkouts").scopes).toEqual(["checkouts", "read"])
    expect(found("GET /api/console/paywalls").scopes).toEqual(["read", "console", "catalog"])
    expect(found("POST /api/console/payments/refund").scopes).toEqual(["console", "money"])
    expect(found("GET /api/console/settings").scopes).toEqual(["settings:read"])
  })

  it("change nothing but what they name", () => {
    const changes = (scope: Scope) =>
      merchantRoutes.filter(({ name, scopes }) => !name.startsWith("GET ") && scopes.includes(scope))
    const paths = (scope: Scope) => [
      ...new Set(changes(scope).map(({ name }) => name.split("/").slice(1, 4).join("/"))),
    ]
    expect(changes("read")).toEqual([])
    expect(changes("settings:read")).toEqual([])
    expect(paths("catalog")).toEqual(
      ["paywalls", "products", "payment-links", "bundles"].map(each => `api/console/${each}`),
    )
    expect(paths("webhooks")).toEqual(["webhooks", "listeners", "deliveries"].map(each => `api/console/${each}`))
    expect(paths("money")).toEqual(["subscriptions", "payments"].map(each => `api/console/${each}`))
  })

  it("are none for keys and secrets, nor for changes of settings and the team", () => {
    for (const row of merchantRoutes)
      if (
        !/^GET .api.console.settings/.test(row.name) &&
        / \/api\/console\/(api-keys|erasures|settings|notifications|team)/.test(row.name)
      )
        expect(row.scopes, row.name).toEqual([])
      else expect(row.scopes.length, row.name).toBeGreaterThan(0)
  })
})
