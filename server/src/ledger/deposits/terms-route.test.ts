import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { addressOfTerms, payeesHash } from "../../platform/chain/deposit-terms.ts"
import type { Address } from "../../platform/chain/hex.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
  await service.merchant("shop")
})
afterAll(() => service.stop())

const terms = (address: string) => service.call("GET", `/api/deposits/${address}`)

async function payToOf(body: object): Promise<string> {
  const paywall = await service.call("POST", "/api/console/paywalls", { name: "a", price: 5, ...body }, { as: "shop" })
  return (await service.call("GET", `/api/paywalls/${paywall.body.id}`)).body.payTo
}

describe("GET /api/deposits/:address", () => {
  it("shows anyone the terms from which the address can be computed", async () => {
    const recipients = [
      { address: `0x${"a1".repeat(20)}`, percent: 33.3333 },
      { address: `0x${"b2".repeat(20)}`, percent: 66.6667 },
    ]
    const split = await service.call("POST", "/api/console/splits", { name: "s", recipients }, { as: "shop" })
    for (const body of [{}, { splitId: split.body.id }]) {
      const payTo = await payToOf(body)
      const { status, body: shown } = await terms(payTo.toLowerCase())
      expect([status, shown.address]).toEqual([200, payTo])
      expect(shown.payees.map((payee: { percentE4: number }) => payee.percentE4)).toEqual(
        "splitId" in body ? [333_333, 666_667] : [],
      )
      expect(payeesHash(shown.payees)).toBe(shown.payeesHash)
      const computed = addressOfTerms(shown.factory, shown.salt, { ...shown, openAfter: BigInt(shown.openAfter) })
      expect(computed).toBe(payTo.toLowerCase())
      expect(JSON.stringify(shown)).not.toMatch(/mer_|pw_/)
    }
  })

  it("vouches for no address that is not the service's, nor for terms that somebody altered", async () => {
    expect(await terms(`0x${"c3".repeat(20)}`)).toMatchObject({ status: 404, body: { error: "DEPOSIT_NOT_FOUND" } })
    expect(await terms("0x12")).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR" } })
    const payTo = await payToOf({})
    const thief = `0x${"d4".repeat(20)}` as Address
    await service.ctx.db
      .updateTable("deposits")
      .set({ owner: thief })
      .where("address", "=", payTo.toLowerCase() as Address)
      .execute()
    expect(await terms(payTo)).toMatchObject({ status: 404 })
  })
})
