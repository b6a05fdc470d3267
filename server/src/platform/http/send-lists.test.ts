import { once } from "node:events"
import { connect } from "node:net"
import type { Readable } from "node:stream"
import { setImmediate } from "node:timers/promises"
import Fastify from "fastify"
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { newId } from "../ids.ts"
import { inData, newestFirst, sendList } from "./send-lists.ts"
import { type PartsReply, sendParts } from "./send-parts.ts"

const PRODUCTS = 173

describe("a list", () => {
  let service: TestService
  let ids: string[]
  let url: string
  beforeAll(async () => {
    // So each list must release its place.
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
      // Groups of three with the same time.
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

  /** The pages from the first to the last, each asked for by the one before. */
  async function pages(limit: number, between = async () => {}): Promise<string[][]> {
    const found: string[][] = []
    for (let after = ""; ; await between()) {
      const query = `limit=${limit}${after && `&after=${after}`}`
      const { status, body } = await service.call("GET", `/api/console/products?${query}`, undefined, { as: "shop" })
      expect(status).toBe(200)
      found.push(body.data.map((product: { id: string }) => product.id))
      if (body.next === undefined) return found
      after = body.next
    }
  }

  it.each([25, 50, 60, 173, 1000])("of pages of %i is whole when each is asked for by the one before", async limit => {
    const found = await pages(limit)
    expect(found.flat()).toEqual(ids)
    expect(found.length).toBe(Math.ceil(PRODUCTS / limit))
  })

  it("shifts no row of the pages that follow when one is added", async () => {
    const { db } = service.ctx
    const { id: _, ...product } = await db
      .selectFrom("products")
      .selectAll()
      .orderBy("created_at", "desc")
      .executeTakeFirstOrThrow()
    const added: string[] = []
    const add = async () => {
      added.push(newId("prod"))
      const created_at = new Date(product.created_at.getTime() + 60_000)
      await db
        .insertInto("products")
        .values({ ...product, id: added.at(-1) ?? "", created_at })
        .execute()
    }
    expect((await pages(60, add)).flat()).toEqual(ids)
    await db.deleteFrom("products").where("id", "in", added).execute()
  })

  it.each(["added before its rows are read", "removed before they are counted"])(
    "names the next page where a row was %s",
    async when => {
      const { db } = service.ctx
      const { id: _, ...product } = await db.selectFrom("products").selectAll().executeTakeFirstOrThrow()
      const few = [newId("prod"), newId("prod")]
      const add = (id: string) =>
        db
          .insertInto("products")
          .values({ ...product, id, name: "few" })
          .execute()
      await add(few[0] as string)
      if (when.startsWith("removed")) await add(few[1] as string)
      const source = newestFirst(db.selectFrom("products").selectAll().where("name", "=", "few"))
      const read: typeof source.read = async (...place) => {
        if (when.startsWith("added")) await add(few[1] as string)
        const rows = await source.read(...place)
        if (when.startsWith("removed"))
          await db
            .deleteFrom("products")
            .where("id", "=", rows[0]?.id ?? "")
            .execute()
        return rows
      }
      const reply = {} as Parameters<typeof sendList>[1]
      const answer = await sendList(
        service.ctx,
        reply,
        { limit: 1, offset: 0 },
        { ...source, read },
        rows => rows,
        inData,
      )
      expect(answer).toMatchObject({ data: [expect.anything()], next: expect.any(String) })
      await db.deleteFrom("products").where("id", "in", few).execute()
    },
  )

  it("counts 1,500 rows after a page, so that who reads on below the total reads all", async () => {
    const { db } = service.ctx
    await sql`insert into products (id, merchant_id, chain_id, name, price, currency, active, created_at, updated_at)
      select 'prod_more' || lpad(n::text, 20, '0'), merchant_id, chain_id, name, price, currency, active, created_at - interval '1 day', updated_at
      from (select * from products limit 1) p, generate_series(1, ${1_650 - PRODUCTS}) n`.execute(db)
    const ends = async (query: string) => {
      const { body } = await service.call("GET", `/api/console/products?${query}`, undefined, { as: "shop" })
      return [body.data.length, body.total, body.totalIsLeast, typeof body.next]
    }
    expect(await ends("limit=1")).toEqual([1, 1_501, true, "string"])
    expect(await ends("limit=100")).toEqual([100, 1_600, true, "string"])
    expect(await ends("limit=1&offset=149")).toEqual([1, 1_650, undefined, "string"])
    expect(await ends("limit=100&offset=1550")).toEqual([100, 1_650, undefined, "undefined"])
    await db.deleteFrom("products").where("id", "like", "prod\\_more%").execute()
  })

  it("refuses what no page of it gave", async () => {
    const cursor = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url")
    const time = "2026-01-31T12:00:00.000Z"
    const bad = [
      "abc",
      "%20",
      "a".repeat(401),
      cursor({}),
      cursor([null, "1"]),
      cursor([time]),
      cursor(["soon", "prod_a"]),
      cursor(["-271821-04-20T00:00:00.000Z", "prod_a"]),
      cursor(["0000-01-01T00:00:00.000Z", "prod_a"]),
      cursor(["9999-12-31T23:59:59-23:59", "prod_a"]),
      cursor(["2026-01-31", "prod_a"]),
    ]
    const texts = [cursor([time, "a\u0000"]), cursor([time, 5]), cursor([time, "'"])]
    for (const after of [...bad, ...texts]) {
      const answer = await service.call("GET", `/api/console/products?after=${after}`, undefined, { as: "shop" })
      expect([after, answer.status, answer.body.details?.[0].path]).toEqual([after, 400, "after"])
    }
    for (const [list, after] of [
      ["audit", cursor([time, "prod_a"])],
      ["deposits", cursor([time, "1"])],
      ["deposits", cursor([null, "x"])],
    ])
      expect((await service.call("GET", `/api/console/${list}?after=${after}`, undefined, { as: "shop" })).status).toBe(
        400,
      )
  })

  it("is refused while the merchant has as many in progress, until one of them is closed", async () => {
    const products = service.ctx.db.updateTable("products")
    // More than any socket buffers.
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

  it("is not read for a HEAD beyond what was asked for first", async () => {
    let made = 0
    const parts = async function* () {
      while (made++ < 100_000) {
        // A turn of the event loop for each part, as a read of the database takes.
        await setImmediate()
        yield "a".repeat(1_000)
      }
    }
    let stream: Readable | undefined
    const app = Fastify()
    app.get("/file", async (_request, reply) => {
      stream = await sendParts(service.ctx, reply as never, "text/csv", parts())
      return stream
    })
    const address = await app.listen({ port: 0 })
    onTestFinished(() => app.close())
    expect((await fetch(`${address}/file`, { method: "HEAD" })).status).toBe(200)
    await expect.poll(() => stream?.destroyed, { timeout: 20_000 }).toBe(true)
    expect(made).toBeLessThan(100_000)
  })

  it("whose later part fails is cut off, not ended, and the log says so", async () => {
    const oldest = ids.at(-1) ?? ""
    const products = service.ctx.db.updateTable("products").where("id", "=", oldest)
    // The id of a network that this service does not have.
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
