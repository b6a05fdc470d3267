// A key that is revoked, or a session that is ended, after a request was admitted: the request writes nothing any more.
import { request as open } from "node:http"
import { text } from "node:stream/consumers"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { withActor } from "../../platform/actor.ts"
import { inTransaction } from "../../platform/context.ts"
import { newId } from "../../platform/ids.ts"
import { insertSession } from "../sessions/queries.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service?.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const newKey = async () =>
  (await service.call("POST", "/api/console/api-keys", { name: "A", scopes: ["console"] }, { as: "shop" })).body
const revoke = (id: string) => service.call("DELETE", `/api/console/api-keys/${id}`, undefined, { as: "shop" })
const products = () => service.ctx.db.selectFrom("products").select("name").execute()

/** Sends a request whose body is whole only after `between`, which begins once its key is admitted; returns the status. */
async function sendSlowly(path: string, order: object, scopes: string[], between: (id: string) => Promise<unknown>) {
  const url = new URL(path, await service.listen())
  const body = JSON.stringify(order)
  const { id, key } = (await service.call("POST", "/api/console/api-keys", { name: "A", scopes }, { as: "shop" })).body
  const headers = { "content-type": "application/json", "content-length": body.length, "x-api-key": key }
  const request = open(url, { method: "POST", headers })
  const answered = new Promise<number | undefined>((resolve, reject) => {
    request.once("error", reject)
    request.once("response", response => void text(response).then(() => resolve(response.statusCode)))
  })
  request.write(body.slice(0, 1))
  await until("the key is admitted", async () => {
    const keys = service.ctx.db.selectFrom("api_keys").select("last_used_at").where("id", "=", id)
    return (await keys.executeTakeFirst())?.last_used_at !== null
  })
  await between(id)
  request.end(body.slice(1))
  return await answered
}

it("refuses a request whose key was revoked while its body was on the way, and writes nothing", async () => {
  const send = (between: (id: string) => Promise<unknown>) =>
    sendSlowly("/api/console/products", { name: "Report", price: 5 }, ["console"], between)
  expect(await send(revoke)).toBe(401)
  expect(await products()).toEqual([])
  expect(await send(async () => {})).toBe(201)
  expect(await products()).toEqual([{ name: "Report" }])
})

it("admits a request again whose body took longer than a second, where no transaction reads the key", async () => {
  const aSecond = async () => {
    const at = performance.now()
    await until("a second has passed", () => performance.now() - at > 1_000)
  }
  const send = (between: (id: string) => Promise<unknown>) =>
    sendSlowly("/api/checkouts", { amount: 5 }, ["checkouts"], between)
  expect(await send(async id => await Promise.all([revoke(id), aSecond()]))).toBe(401)
  expect(await service.ctx.db.selectFrom("checkout_sessions").select("id").execute()).toEqual([])
  expect(await send(aSecond)).toBe(201)
})

it("needs the secret that the request carried: a rolled key without grace refuses the old one's transactions", async () => {
  const { id } = await newKey()
  const hashOf = async () =>
    (await service.ctx.db.selectFrom("api_keys").select("hash").where("id", "=", id).executeTakeFirstOrThrow()).hash
  const before = await hashOf()
  const roll = await service.call("POST", `/api/console/api-keys/${id}/roll`, { graceSeconds: 0 }, { as: "shop" })
  expect(roll.status).toBeLessThan(300)
  const by = (hash: string) =>
    withActor({ kind: "api_key", id, route: "POST /x", credential: { key: { id, hash } } }, () =>
      inTransaction(service.ctx, ctx => ctx.db.selectFrom("merchants").select("id").execute()),
    )
  await expect(by(before)).rejects.toMatchObject({ code: "UNAUTHORIZED" })
  expect(await by(await hashOf())).toHaveLength(1)
})

it("refuses each transaction of a session that was ended", async () => {
  const { ctx } = service
  const now = ctx.now()
  const id = newId("ses")
  const row = { id, hash: "ab".repeat(32), iss: "https://id.example", sub: "ada", way: "provider" as const }
  const times = { created_at: now, last_seen_at: now, expires_at: new Date(now.getTime() + 3_600_000) }
  await insertSession(ctx, { ...row, ...times, address: null, user_agent: null })
  const work = () =>
    withActor({ kind: "console", id: "ada", route: "POST /x", credential: { sessionId: id } }, () =>
      inTransaction(ctx, ctx => ctx.db.selectFrom("merchants").select("id").execute()),
    )
  expect(await work()).toHaveLength(1)
  await ctx.db.deleteFrom("sessions").where("id", "=", id).execute()
  await expect(work()).rejects.toMatchObject({ code: "UNAUTHORIZED" })
})
