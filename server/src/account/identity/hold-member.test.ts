// What a person does counts while the person has the role that the request was admitted with, also where the role changes while the
// request runs.
import { Type } from "typebox"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { inTransaction } from "../../platform/context.ts"
import { routeTable } from "../../platform/http/route-access.ts"
import { callingMerchant, openServer, type Server } from "../../platform/http/server.ts"
import { openIdentities } from "./open-identities.ts"
import { tokenIssuer } from "./tokens.ts"

const ANN = `per_${"a".repeat(24)}`

let service: TestService
let own: Server
let shop: string
/** Awaited by the route of `own`, once in front of its transaction, and once in it. */
let before: () => Promise<void>
let within: () => Promise<void>
beforeAll(async () => {
  service = await startService()
  const { ctx } = service
  const row = routeTable.get("POST /api/console/products")
  if (!row) throw new Error("the table has no such route")
  const identities = openIdentities(ctx, tokenIssuer(service.issuer.issuer, ctx.settings.oidcAudience))
  own = openServer(ctx, identities, undefined, undefined, { "POST /api/console/marks": row })
  const schema = { body: Type.Object({}), response: { 200: Type.Object({ made: Type.String() }) } }
  own.post("/api/console/marks", { schema }, async request => {
    const made = await callingMerchant(request)
    await before()
    await inTransaction(ctx, async ({ db }) => {
      await db.insertInto("installation").values({ key: "mark", value: made }).execute()
      await within()
    })
    return { made }
  })
  await own.ready()
})
afterAll(async () => {
  await own.close()
  await service.stop()
})
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
  before = async () => {}
  within = async () => {}
  const { db } = service.ctx
  const created_at = new Date()
  await db.insertInto("persons").values({ id: ANN, iss: service.issuer.issuer, sub: "ann", created_at }).execute()
  await db.insertInto("members").values({ merchant_id: shop, person_id: ANN, role: "developer", created_at }).execute()
})

const mark = async () => {
  const headers = { authorization: `Bearer ${await service.issuer.token("ann")}`, "content-type": "application/json" }
  const { statusCode, body } = await own.inject({ method: "POST", url: "/api/console/marks", headers, payload: "{}" })
  return { status: statusCode, body: JSON.parse(body) }
}
const marks = () => service.ctx.db.selectFrom("installation").select("value").where("key", "=", "mark").execute()
const change = (role: string) => service.call("PUT", `/api/console/team/${ANN}`, { role }, { as: "shop" })
const remove = () => service.call("DELETE", `/api/console/team/${ANN}`, undefined, { as: "shop" })

it("writes while nothing changes", async () => {
  expect(await mark()).toEqual({ status: 200, body: { made: shop } })
  expect(await marks()).toEqual([{ value: shop }])
})

it.each([
  ["is removed", remove],
  ["gets a role with less", () => change("viewer")],
  ["gets a role with more", () => change("admin")],
])("writes nothing where the person %s between the check and the transaction", async (_what, changed) => {
  before = async () => void (await changed())
  expect(await mark()).toMatchObject({ status: 403, body: { error: "ROLE_REQUIRED" } })
  expect(await marks()).toEqual([])
})

it("a removal waits for what has begun, and what begins after it is refused", async () => {
  const order: string[] = []
  let removed: Promise<unknown> = Promise.resolve()
  within = async () => {
    removed = remove().then(() => order.push("removed"))
    // The removal's request has come to its transaction, or waits for this one to begin it.
    await service.call("GET", "/healthz")
    order.push("written")
  }
  expect((await mark()).status).toBe(200)
  await removed
  expect(order).toEqual(["written", "removed"])
  within = async () => {}
  expect(await mark()).toMatchObject({ status: 400, body: { error: "MERCHANT_REQUIRED" } })
  expect(await marks()).toHaveLength(1)
})

it("a checkout that is started in the console is written only while the member holds, and in no other way", async () => {
  const { ctx } = service
  const start = async () =>
    (await service.call("POST", "/api/console/checkouts", { amount: 5 }, { as: "ann" })).body.error ?? "made"
  expect(await start()).toBe("made")
  // A database that ends the membership when the transaction begins, after the request was admitted.
  const { db } = ctx
  const ended = new Proxy(db, {
    get: (target, name) => {
      const value = Reflect.get(target, name)
      if (name !== "transaction") return typeof value === "function" ? value.bind(target) : value
      return () => ({
        execute: async (work: (db: typeof target) => Promise<unknown>) => {
          await target.deleteFrom("members").where("person_id", "=", ANN).execute()
          return await target.transaction().execute(work)
        },
      })
    },
  })
  ctx.db = ended
  try {
    expect(await start()).toBe("ROLE_REQUIRED")
  } finally {
    ctx.db = db
  }
  expect(await db.selectFrom("checkout_sessions").select("id").execute()).toHaveLength(1)
})
