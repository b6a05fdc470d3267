// A limit that the operator sets for one merchant counts for its keys alone, from the next request on, and is in its audit log.
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { noLimits, startService, type TestService } from "../../../test/service.ts"
import { withActor } from "../../platform/actor.ts"
import { limitMerchant } from "./limit-merchant.ts"

let service: TestService
let shop: string
beforeAll(async () => {
  service = await startService({ settings: { limits: { ...noLimits, merchant: 3 } } })
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
})

const keyOf = async (as: string): Promise<string> =>
  (await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as })).body.key
const ask = async (key: string) =>
  await service.call("GET", "/api/checkouts", undefined, { headers: { "x-api-key": key } })
const by = { kind: "operator", id: "ann", route: "sluice merchant limit" } as const
const limit = (merchantId: string, perMinute: number | undefined) =>
  withActor(by, () => limitMerchant(service.ctx.db, { merchantId, bucket: "merchant", perMinute }))

it("counts at once for the keys of this merchant, until it is taken away", async () => {
  await service.merchant("rival")
  const key = await keyOf("shop")
  const rivals = await keyOf("rival")
  expect((await ask(key)).headers["x-ratelimit-limit"]).toBe("3")
  expect(await limit(shop, 600)).toBe(`Each API key of ${shop} may make 600 requests per minute in merchant.`)
  for (let i = 0; i < 5; i++)
    expect(await ask(key)).toMatchObject({ status: 200, headers: { "x-ratelimit-limit": "600" } })
  expect((await ask(rivals)).headers["x-ratelimit-limit"]).toBe("3")
  await limit(shop, 1)
  expect((await ask(await keyOf("shop"))).status).toBe(200)
  expect((await ask(key)).status).toBe(429)
  expect(await limit(shop, 0)).toBe(`${shop} has no limit in merchant.`)
  expect((await ask(key)).headers).not.toHaveProperty("x-ratelimit-limit")
  await limit(shop, undefined)
  expect((await ask(key)).headers["x-ratelimit-limit"]).toBe("3")
})

it("is in the merchant's audit log, by whom", async () => {
  await limit(shop, 600)
  await limit(shop, 700)
  await limit(shop, undefined)
  const entries = await service.ctx.db
    .selectFrom("audit_entries")
    .selectAll()
    .where("actor_kind", "=", "operator")
    .orderBy("n")
    .execute()
  expect(entries.map(({ action, actor_id, after }) => [action, actor_id, after])).toEqual([
    ["merchant_limit.created", "ann", { bucket: "merchant", per_minute: 600 }],
    ["merchant_limit.changed", "ann", { per_minute: 700 }],
    ["merchant_limit.deleted", "ann", null],
  ])
})

it("is refused for a merchant that is not there", async () => {
  await expect(limit(`mer_${"a".repeat(24)}`, 5)).rejects.toThrow("There is no merchant")
  expect(await service.ctx.db.selectFrom("merchant_limits").selectAll().execute()).toEqual([])
})
