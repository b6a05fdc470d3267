import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { makeOlder } from "../../../test/older-factory.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { renewDeposits } from "./move-deposits.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const DAY = 86_400_000

describe("renewDeposits", () => {
  it("replaces a receiving address before anyone may recover it, once, and leaves younger ones alone", async () => {
    const make = async () =>
      (await service.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, { as: "shop" })).body.id
    const payTo = async (id: string) => (await service.call("GET", `/api/paywalls/${id}`)).body.payTo
    const old = await make()
    service.advance(200 * DAY)
    const young = await make()
    const before = { old: await payTo(old), young: await payTo(young) }
    expect(await renewDeposits(service.ctx)).toBe(0)
    service.advance(120 * DAY)
    expect(await renewDeposits(service.ctx)).toBe(1)
    expect(await renewDeposits(service.ctx)).toBe(0)
    expect(await payTo(old)).not.toBe(before.old)
    expect(await payTo(young)).toBe(before.young)
    const deposits = await service.ctx.db
      .selectFrom("deposits")
      .selectAll()
      .where("resource_id", "=", old)
      .orderBy("id")
      .execute()
    expect(deposits.map(deposit => deposit.owner)).toEqual([deposits[0]?.owner, deposits[0]?.owner])
    expect(deposits[1]?.open_after_s).toBeGreaterThan((deposits[0]?.open_after_s ?? 0n) + 300n * 86_400n)
  })

  it("replaces the addresses of before the contracts that this version serves, once", async () => {
    const bundle = {
      name: "Weather",
      slug: "weather",
      originUrl: "https://api.weather.example",
      routes: [{ method: "GET", path: "/today", price: "0.5" }],
    }
    await service.call("POST", "/api/console/bundles", bundle, { as: "shop" })
    const calls = async () => (await service.call("GET", "/api/p/weather")).body.payTo
    const { body } = await service.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, { as: "shop" })
    const payTo = async () => (await service.call("GET", `/api/paywalls/${body.id}`)).body.payTo
    const before = [await payTo(), await calls()]
    await makeOlder(service.ctx.db)
    expect(await renewDeposits(service.ctx)).toBe(2)
    expect(await renewDeposits(service.ctx)).toBe(0)
    expect(before).not.toContain(await payTo())
    expect(before).not.toContain(await calls())
  })
})
