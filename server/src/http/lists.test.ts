import { afterAll, beforeAll, describe, expect, it, vi } from "vitest"
import { startService, type TestService } from "../../test/service.ts"
import { newId } from "../ids.ts"

const PRODUCTS = 173

describe("a list", () => {
  let service: TestService
  let ids: string[]
  beforeAll(async () => {
    service = await startService()
    const merchantId = await service.merchant("shop")
    const at = service.ctx.now().getTime()
    const products = Array.from({ length: PRODUCTS }, (_, i) => ({
      id: newId("prod"),
      merchant_id: merchantId,
      chain_id: 84532,
      name: `${i} ü "[]"`,
      price: 5_000_000n,
      currency: "USDC",
      active: true,
      // Three each of the same time.
      created_at: new Date(at + Math.floor(i / 3)),
      updated_at: new Date(at),
    }))
    await service.ctx.db.insertInto("products").values(products).execute()
    const newest = products.sort((a, b) => b.created_at.getTime() - a.created_at.getTime() || (a.id < b.id ? 1 : -1))
    ids = newest.map(({ id }) => id)
  })
  afterAll(() => service.stop())

  const list = async (query: string) => {
    const { status, body } = await service.call("GET", `/api/console/products?${query}`, undefined, { as: "shop" })
    expect({ status, total: body.total }).toEqual({ status: 200, total: PRODUCTS })
    return body.data.map((product: { id: string }) => product.id)
  }

  it.each([1, 49, 50, 51, 100, 150, 172, 173, 174, 1000])(
    "of at most %i is whole, in order, in parts or not",
    async limit => {
      for (const offset of [0, 1, 23, 73, 123, 173, 200])
        expect(await list(`limit=${limit}&offset=${offset}`)).toEqual(ids.slice(offset, offset + limit))
    },
  )

  it("whose later part fails is cut off, not ended, and the log says so", async () => {
    const oldest = ids.at(-1) ?? ""
    const products = service.ctx.db.updateTable("products").where("id", "=", oldest)
    // No network of this service.
    await products.set({ chain_id: 1 }).execute()
    const logged = vi.spyOn(service.ctx.log, "error")
    const url = await service.listen()
    const headers = { authorization: `Bearer ${await service.issuer.token("shop")}`, "x-request-id": "r-1" }
    const answer = await fetch(`${url}/api/console/products?limit=1000`, { headers })
    expect(answer.status).toBe(200)
    await expect(answer.text()).rejects.toThrow()
    const route = "/api/console/products"
    expect(logged).toHaveBeenCalledExactlyOnceWith(
      { err: expect.any(Error), requestId: "r-1", route },
      "answer cut off: the next part failed",
    )
    await products.set({ chain_id: 84532 }).execute()
  })
})
