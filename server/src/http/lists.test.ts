import { once } from "node:events"
import { connect } from "node:net"
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest"
import { until } from "../../test/e2e/program.ts"
import { startService, type TestService } from "../../test/service.ts"
import { newId } from "../ids.ts"
import { type PartsReply, sendParts } from "./parts.ts"

const PRODUCTS = 173

describe("a list", () => {
  let service: TestService
  let ids: string[]
  let url: string
  beforeAll(async () => {
    // So that each list must release its place.
    service = await startService({ settings: { maxDownloads: 1 } })
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
  beforeAll(async () => {
    url = await service.listen()
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

  it("is refused while the merchant has as many in progress, until one of them is closed", async () => {
    const products = service.ctx.db.updateTable("products")
    // More than any socket takes unread.
    await products.set({ description: "x".repeat(60_000) }).execute()
    const { port, hostname } = new URL(url)
    const token = await service.issuer.token("shop")
    const socket = connect(Number(port), hostname)
    const path = "/api/console/products?limit=1000"
    socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`)
    await once(socket, "readable")
    const { status, headers, body } = await service.call("GET", path, undefined, { as: "shop" })
    expect({ status, error: body.error, retryAfter: body.retryAfter, header: headers["retry-after"] }).toEqual({
      status: 429,
      error: "RATE_LIMITED",
      retryAfter: 1,
      header: "1",
    })
    await service.merchant("rival")
    expect((await service.call("GET", path, undefined, { as: "rival" })).status).toBe(200)
    socket.destroy()
    const isFree = async () => (await service.call("GET", path, undefined, { as: "shop" })).status === 200
    await until("its place is free", isFree)
    await products.set({ description: null }).execute()
  })

  it("that nobody reads is cut off, and its place is free", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })
    const products = service.ctx.db.updateTable("products")
    await products.set({ description: "x".repeat(60_000) }).execute()
    const { port, hostname } = new URL(url)
    const socket = connect(Number(port), hostname)
    const path = "/api/console/products?limit=1000"
    const token = await service.issuer.token("shop")
    socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`)
    await once(socket, "readable")
    const status = async () => (await service.call("GET", path, undefined, { as: "shop" })).status
    expect(await status()).toBe(429)
    await until("it is cut off", async () => {
      vi.advanceTimersByTime(30_000)
      return (await status()) === 200
    })
    socket.destroy()
    vi.useRealTimers()
    await products.set({ description: null }).execute()
  })

  it("has places for each credential, so that a stolen key leaves the others theirs", async () => {
    const long = (request: Partial<PartsReply["request"]>) =>
      sendParts(
        service.ctx,
        {
          request: { id: "r", routeOptions: {}, merchantId: undefined, apiKey: undefined, ...request },
          raw: { once: vi.fn(), destroyed: false, destroy: vi.fn(), socket: null },
          type: () => {},
        },
        "text/csv",
        (async function* () {
          yield "a"
        })(),
      )
    const stolen = { apiKey: { id: "key_stolen" } }
    const held = await long(stolen)
    await expect(long(stolen)).rejects.toMatchObject({ code: "RATE_LIMITED" })
    for (const other of [{ apiKey: { id: "key_other" } }, { merchantId: "mer_1" }]) (await long(other)).destroy()
    held.destroy()
    await once(held, "close")
    ;(await long(stolen)).destroy()
  })

  it("whose later part fails is cut off, not ended, and the log says so", async () => {
    const oldest = ids.at(-1) ?? ""
    const products = service.ctx.db.updateTable("products").where("id", "=", oldest)
    // No network of this service.
    await products.set({ chain_id: 1 }).execute()
    const logged = vi.spyOn(service.ctx.log, "error")
    const headers = { authorization: `Bearer ${await service.issuer.token("shop")}`, "x-request-id": "r-1" }
    const answer = await fetch(`${url}/api/console/products?limit=1000`, { headers })
    expect(answer.status).toBe(200)
    await expect(answer.text()).rejects.toThrow()
    const route = "/api/console/products"
    expect(logged).toHaveBeenCalledExactlyOnceWith(
      { err: expect.any(Error), requestId: "r-1", route },
      "answer cut off because its next part failed",
    )
    await products.set({ chain_id: 84532 }).execute()
  })
})
