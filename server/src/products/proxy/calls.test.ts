/** Calls through bundles to real origins, over sockets; what x402 settles is replaced by a counter of payments. */
import { createHash } from "node:crypto"
import { once } from "node:events"
import { createServer, request as httpRequest, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { type AddressInfo, connect } from "node:net"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Context } from "../../platform/context.ts"
import { nobodyKnown } from "../../platform/http/authenticate.ts"
import { openServer } from "../../platform/http/server.ts"
import { openSlots, type Slots } from "./call-slots.ts"
import { openForwarder } from "./forward.ts"
import { headersForCaller } from "./headers.ts"
import { bundleFinder } from "./load-bundle.ts"
import type { Offer, Paid, Payments } from "./payments.ts"
import { proxyRoutes } from "./routes.ts"
import { drop, serveCall } from "./serve-call.ts"

const SECRET = "Bearer of-the-origin"
/** For the server that times out soon: the other servers wait as long as a loaded machine needs. */
const TIMEOUT_MS = 1_000

interface OriginRequest {
  method: string
  url: string
  headers: IncomingMessage["headers"]
  raw: string[]
  body: Buffer
}

let service: TestService
let ctx: Context
let address: { port: number }
let impatient: { port: number }
let apps: ReturnType<typeof openServer>[]
let origin: Server
let originUrl: string
let asked: OriginRequest[]
let respond: (response: ServerResponse, one: OriginRequest, request: IncomingMessage) => void
/** The fake of x402: a caller with `x-payment: good` has paid, once; a token works after the payment was given back. */
let offers: Offer[]
let spent: Set<string>
let givenBack: Map<string, { paid: Paid; boundTo: readonly string[] | undefined }>

const payments: Payments = {
  async take(_ctx, request, reply, offer) {
    offers.push(offer)
    const token = request.headers["payment-retry"]
    const kept = typeof token === "string" ? givenBack.get(token) : undefined
    if (kept && `${kept.boundTo}` === `${offer.boundTo}`) {
      givenBack.delete(token as string)
      return { ...kept.paid, isRetry: true }
    }
    const nonce = request.headers["x-payment"]
    if (typeof nonce !== "string" || spent.has(nonce)) {
      reply.code(402).send({ accepts: offer.prices.map(({ amount, payTo }) => ({ amount: `${amount}`, payTo })) })
      return undefined
    }
    spent.add(nonce)
    const paid = { payer: `0x${"b".repeat(40)}` as Address, txHash: `0x${"1".repeat(64)}` as Hash }
    return {
      ...paid,
      id: `x_${nonce}`,
      claimId: nonce,
      receipt: `receipt.${nonce}`,
      retryToken: `retry-${nonce}`,
      isRetry: false,
    }
  },
  unserved: async () => undefined,
  begin: async () => true,
  end: async () => true,
  release: async () => undefined,
  async giveBack(_ctx, paid) {
    givenBack.set(paid.retryToken, { paid, boundTo: offers.at(-1)?.boundTo })
    return true
  },
  giveBackLate: (ctx, paid) => payments.giveBack(ctx, paid),
}

beforeAll(async () => {
  service = await startService()
  ctx = service.ctx
  origin = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on("data", chunk => chunks.push(chunk))
    request.on("end", () => {
      const { method = "", url = "", headers, rawHeaders: raw } = request
      const one = { method, url, headers, raw, body: Buffer.concat(chunks) }
      asked.push(one)
      respond(response, one, request)
    })
  })
  origin.listen(0, "127.0.0.1")
  await once(origin, "listening")
  originUrl = `http://127.0.0.1:${(origin.address() as AddressInfo).port}`
  apps = []
  address = await serve(ctx)
  impatient = await serve({ ...ctx, settings: { ...ctx.settings, originTimeoutMs: TIMEOUT_MS } })
})
afterAll(async () => {
  for (const app of apps) await app.close()
  origin.closeAllConnections()
  origin.close()
  await service.stop()
})
/** The calls of all bundles, with the fake of x402, on a port of their own. */
async function serve(ctx: Context): Promise<{ port: number }> {
  const app = openServer(ctx, nobodyKnown)
  apps.push(app)
  app.register(async routes => proxyRoutes(routes, ctx, payments))
  await app.listen({ host: "127.0.0.1", port: 0 })
  return { port: (app.server.address() as AddressInfo).port }
}
let bundleId: string
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  ;[asked, offers, spent, givenBack] = [[], [], new Set(), new Map()]
  respond = response => response.writeHead(200, { "content-type": "text/plain" }).end("hello")
  bundleId = await make({ slug: "shop-api", originUrl: `${originUrl}/base` })
})

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
async function make(more: object, as = "shop"): Promise<string> {
  const free = methods.map(method => ({ method, path: "/free/:what", price: 0 }))
  const paid = methods.map(method => ({ method, path: "/paid/:what", price: "0.05" }))
  const originHeaders = { authorization: SECRET }
  const body = { name: "Shop", originHeaders, routes: [...free, ...paid], ...more }
  const made = await service.call("POST", "/api/console/bundles", body, { as })
  if (made.status !== 201) throw new Error(JSON.stringify(made.body))
  return made.body.id
}

interface Sent {
  method?: string
  headers?: Record<string, string | string[]>
  body?: string | Buffer
  at?: { port: number }
}
/** One request with exactly this URL; nothing normalizes it. */
async function call(path: string, { method = "GET", headers = {}, body, at = address }: Sent = {}) {
  const length = body === undefined ? {} : { "content-length": `${Buffer.byteLength(body)}` }
  const request = httpRequest({
    ...at,
    host: "127.0.0.1",
    path,
    method,
    agent: false,
    headers: { ...headers, ...length },
  })
  request.end(body)
  const [response] = (await once(request, "response")) as [IncomingMessage]
  const chunks: Buffer[] = []
  for await (const chunk of response) chunks.push(chunk)
  const text = Buffer.concat(chunks).toString()
  return { status: response.statusCode ?? 0, headers: response.headers, text }
}
/** They make a browser keep something for the whole host, or send it something. */
const ofBrowsers = [
  "use-as-dictionary",
  "available-dictionary",
  "speculation-rules",
  "accept-ch",
  "critical-ch",
  "set-login",
  "sec-session-registration",
  "sec-session-challenge",
  "secure-session-registration",
  "shared-storage-write",
]
const json = (text: string) => JSON.parse(text)
async function textOf(response: IncomingMessage): Promise<string> {
  let text = ""
  for await (const chunk of response) text += chunk
  return text
}
const lastAsked = () => asked.at(-1) as OriginRequest

describe("a call", () => {
  it("reaches the origin with its method, path, query and body as they are, and the answer comes back as it is", async () => {
    const body = Buffer.from([0, 255, 1, 254])
    respond = response => response.writeHead(201, { "content-type": "image/png", etag: '"1"', link: "a" }).end(body)
    for (const method of methods) {
      const sent = { method, ...(method === "GET" ? {} : { body, headers: { "content-type": "image/png" } }) }
      const answer = await call("/api/p/shop-api/free/a%20b;c?x=1&x=%2F..%2F", sent)
      expect(answer).toMatchObject({ status: 201, headers: { "content-type": "image/png", etag: '"1"', link: "a" } })
      expect(Buffer.from(answer.text)).toEqual(Buffer.from(body.toString()))
      const { method: was, url, body: got } = lastAsked()
      expect([was, url]).toEqual([method, "/base/free/a%20b;c?x=1&x=%2F..%2F"])
      if (method !== "GET") expect(got).toEqual(body)
    }
    expect(await call("/%61pi/p/shop-api/fre%65/x")).toMatchObject({ status: 201 })
    expect(lastAsked().url).toBe("/base/free/x")
    expect(offers).toEqual([])
  })

  it("is answered 204, 304, 404 and to a HEAD as the origin does", async () => {
    for (const status of [204, 304, 404, 422]) {
      respond = response => response.writeHead(status, { etag: '"2"' }).end()
      expect(await call("/api/p/shop-api/free/x")).toMatchObject({ status, headers: { etag: '"2"' }, text: "" })
    }
    respond = response => response.writeHead(200, { "content-length": "1234" }).end()
    const head = await call("/api/p/shop-api/free/x", { method: "HEAD" })
    expect(head).toMatchObject({ status: 200, headers: { "content-length": "1234" }, text: "" })
    expect(lastAsked().method).toBe("HEAD")
  })

  it("is answered 204 without a length, whatever its origin announces", async () => {
    respond = (_response, _asked, { socket }) => socket.end("HTTP/1.1 204 a\r\ncontent-length: 5\r\n\r\n")
    for (const method of ["GET", "HEAD"]) {
      const { status, headers } = await call("/api/p/shop-api/free/x", { method })
      expect([status, headers["content-length"]]).toEqual([204, undefined])
    }
  })

  it("takes no credential, no address and no other method to the origin, and brings no cookie and no page back", async () => {
    respond = response =>
      response
        .writeHead(200, {
          "set-cookie": "sid=1",
          "access-control-allow-origin": "https://evil.example",
          "x-accel-redirect": "/etc",
          "cache-control": "public",
          "content-security-policy": "default-src *",
          connection: "x-hop, keep-alive",
          "x-hop": "1",
          "www-authenticate": "Basic",
          "payment-response": "x",
          "x-payment-response": "x",
          location: "https://evil.example",
          refresh: "0; url=https://evil.example",
          "x-fine": "yes",
          "strict-transport-security": "max-age=1",
          "service-worker-allowed": "/",
          "sluice-payment": "x",
          ...Object.fromEntries(ofBrowsers.map(name => [name, "x"])),
        })
        .end("<script>")
    const stripped = {
      authorization: "Bearer caller",
      cookie: "a=b",
      "x-api-key": "sk_test_1",
      "payment-signature": "p",
      te: "trailers",
      "x-payment": "p",
      "x-payment-id": "p",
      "x-forwarded-for": "1.2.3.4",
      forwarded: "for=1.2.3.4",
      "x-real-ip": "1",
      "sluice-payment": "forged",
      sluice_payment: "forged",
      connection: "x-secret-hop, close",
      "x-secret-hop": "1",
      "x-http-method-override": "DELETE",
      "x-original-url": "/admin",
      "x-rewrite-url": "/admin",
      origin: "null",
      "proxy-authorization": "Basic x",
      "sec-fetch-mode": "cors",
      "keep-alive": "5",
    }
    const passed = {
      accept: "text/*",
      "user-agent": "agent/1",
      "idempotency-key": "k",
      "x-mine": "m",
      range: "bytes=0-1",
    }
    const answer = await call("/api/p/shop-api/free/x", { headers: { ...stripped, ...passed } })
    const { headers } = lastAsked()
    expect(headers).toMatchObject({ ...passed, authorization: SECRET, via: "1.1 sluice" })
    expect(headers.host).toBe(new URL(originUrl).host)
    const left = Object.keys(headers).filter(
      name => name in stripped && !["authorization", "connection"].includes(name),
    )
    expect(left).toEqual([])
    expect(headers.connection).not.toContain("hop")
    expect(answer.headers).toMatchObject({
      "x-fine": "yes",
      "access-control-allow-origin": "*",
      "cache-control": "no-store",
      "content-security-policy": "sandbox",
      "x-content-type-options": "nosniff",
    })
    const gone = [
      "set-cookie",
      "x-accel-redirect",
      "x-hop",
      "www-authenticate",
      "payment-response",
      "x-payment-response",
    ]
    for (const name of [
      ...gone,
      "location",
      "refresh",
      "strict-transport-security",
      "service-worker-allowed",
      "sluice-payment",
      ...ofBrowsers,
    ])
      expect(answer.headers[name], name).toBeUndefined()
  })

  it("for what is not sold reaches nobody: other paths, other methods, other bundles, loops, and bodies that are too large", async () => {
    const refused: [path: string, status: number, sent?: Sent][] = [
      ["/api/p/shop-api/other", 404],
      ["/api/p/shop-api/free/x/", 404],
      ["/api/p/shop-api/Free/x", 404],
      ["/api/p/nothing/free/x", 404],
      ["/api/p/shop-api//127.0.0.1/x", 400],
      ["/api/p/shop-api/free/../paid/x", 400],
      ["/api/p/shop-api/free/%2e%2e", 400],
      ["/api/p/shop-api/free/a%2fb", 400],
      ["/api/p/shop-api/free/x", 400, { headers: { via: "1.1 cdn, 1.1 Sluice" } }],
      ["/api/p/shop-api/paid/x", 413, { method: "POST", body: Buffer.alloc(300_000), headers: { "x-payment": "n" } }],
    ]
    for (const [path, status, sent] of refused) expect((await call(path, sent)).status, path).toBe(status)
    await service.call("DELETE", `/api/console/bundles/${bundleId}`, undefined, { as: "shop" })
    expect((await call("/api/p/shop-api/free/x")).status).toBe(404)
    expect([asked, offers]).toEqual([[], []])
  })
})

describe("an answer", () => {
  it("of 100 MB streams: the origin sends no more than its caller reads, and every byte arrives", async () => {
    const part = Buffer.alloc(64 * 1024, "sluice")
    const count = 1_600
    let sent = 0
    respond = async response => {
      response.writeHead(200)
      for (; sent < count; sent++) if (!response.write(part)) await once(response, "drain")
      response.end()
    }
    const request = httpRequest({ ...address, host: "127.0.0.1", path: "/api/p/shop-api/free/x", agent: false }).end()
    const [response] = (await once(request, "response")) as [IncomingMessage]
    // Nobody reads. The sockets' buffers fill once; then the origin must wait too.
    let before = -1
    await until("the origin waits for the reader", async () => {
      const waits = sent === before
      before = sent
      return waits && sent > 0
    })
    expect(sent).toBeLessThan(count / 2)
    const digest = createHash("sha256")
    const expected = createHash("sha256")
    for await (const chunk of response) digest.update(chunk)
    for (let i = 0; i < count; i++) expected.update(part)
    expect(digest.digest("hex")).toBe(expected.digest("hex"))
  })

  it("in chunks of one byte is passed on in far fewer", async () => {
    const text = Array.from({ length: 50_000 }, (_, n) => `${n % 10}`).join("")
    respond = (_response, _asked, { socket }) => {
      const chunks = [...text].map(byte => `1\r\n${byte}\r\n`).join("")
      socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`)
    }
    expect((await call("/api/p/shop-api/free/x")).text).toBe(text)
    const forwarder = openForwarder(ctx.settings)
    const asking = { merchantId: "mer_1", originUrl, method: "GET", path: "/x", headers: [], body: undefined }
    const parts: Buffer[] = []
    let turns = 0
    let isOver = false
    const count = () => {
      turns++
      if (!isOver) setImmediate(count)
    }
    // Counted from the beginning: the first part is read before the answer is there.
    count()
    const found = await forwarder.forward(asking, new AbortController().signal)
    if (found.failure !== undefined) throw new Error(found.failure)
    for await (const part of found.body) parts.push(part)
    isOver = true
    await forwarder.close()
    // Other work gets its turn after about 256 chunks; one read brings 10,000.
    expect(turns).toBeGreaterThan(150)
    expect(Buffer.concat(parts).toString()).toBe(text)
    expect(parts.length).toBeLessThan(100)
  })

  it("is one of fifty that stream to one caller, and a hundred of one merchant; one that pays takes the place of a free one", async () => {
    const open: ServerResponse[] = []
    respond = response => {
      response.writeHead(200).write("first")
      open.push(response)
    }
    const at = await serve({ ...ctx, settings: { ...ctx.settings, trustedProxies: ["127.0.0.1"] } })
    await make({ slug: "second", originUrl })
    await service.merchant("other")
    await make({ slug: "other-api", originUrl }, "other")
    const from = (address: string) => ({ "x-forwarded-for": address })
    const fill = (slug: string, address: string) =>
      Promise.all(
        Array.from({ length: 50 }, async () => {
          const path = `/api/p/${slug}/free/x`
          const request = httpRequest({ ...at, host: "127.0.0.1", path, agent: false, headers: from(address) }).end()
          const [response] = (await once(request, "response")) as [IncomingMessage]
          return response
        }),
      )
    const paid = (slug: string, address: string, headers = {}) =>
      call(`/api/p/${slug}/paid/x`, { at, headers: { ...from(address), ...headers } })
    const first = await fill("shop-api", "2001:db8:1:2::3")
    const busy = await paid("other-api", "2001:db8:1:2::4", { "x-payment": "n" })
    expect([busy.status, json(busy.text).error, busy.headers["retry-after"]]).toEqual([503, "ORIGIN_BUSY", "2"])
    expect((await paid("shop-api", "192.0.2.1")).status).toBe(402)
    offers = []
    const second = await fill("second", "192.0.2.1")
    // The hundred places are taken, and who holds fifty of them gets no other.
    expect((await paid("shop-api", "192.0.2.1", { "x-payment": "n" })).status).toBe(503)
    expect([offers.length, asked.length]).toEqual([0, 100])
    expect((await paid("other-api", "192.0.2.2")).status).toBe(402)
    const ends = [...first, ...second].map(each => textOf(each).catch(error => error.code))
    respond = response => response.end("paid")
    expect(await paid("shop-api", "192.0.2.2", { "x-payment": "n" })).toMatchObject({ status: 200, text: "paid" })
    // The call that came first gave its place: of fifty that were begun together, any may have come first.
    expect(await Promise.race(ends)).toBe("ECONNRESET")
    for (const response of open) response.end(" last")
    const texts = await Promise.all(ends)
    expect(texts.filter(text => text === "first last")).toHaveLength(99)
    await until("a place is free again", async () => (await paid("shop-api", "192.0.2.1")).status === 402)
  })

  it("is served where ten addresses keep 500 calls open to five merchants whose origins hang", async () => {
    const at = await serve({ ...ctx, settings: { ...ctx.settings, trustedProxies: ["127.0.0.1"] } })
    respond = (response, { url }) => void (url.includes("hangs") || response.end("answer"))
    const slow = ["slow-0", "slow-1", "slow-2", "slow-3", "slow-4"]
    for (const slug of slow) {
      await service.merchant(slug)
      await make({ slug, originUrl: `${originUrl}/hangs` }, slug)
    }
    const from = (address: string, path: string, headers = {}) =>
      call(path, { at, headers: { "x-forwarded-for": address, ...headers } })
    const ends = slow.flatMap((slug, nth) =>
      Array.from({ length: 100 }, (_, i) => from(`192.0.2.${2 * nth + (i % 2)}`, `/api/p/${slug}/free/x`)),
    )
    await until("all 500 wait for their origins", () => asked.length === 500)
    for (let nth = 0; nth < 7; nth++) {
      const paid = await from("198.51.100.1", "/api/p/shop-api/paid/x", { "x-payment": `n${nth}` })
      expect(paid).toMatchObject({ status: 200, text: "answer" })
      expect(await from("198.51.100.1", "/api/p/shop-api/free/x")).toMatchObject({ status: 200, text: "answer" })
    }
    // The call that came first, whichever it was, was ended for the first of these and left its place to the others.
    const ended = await Promise.race(ends)
    expect([ended.status, json(ended.text).error]).toEqual([503, "ORIGIN_BUSY"])
    expect(asked.length).toBe(514)
    origin.closeAllConnections()
    const statuses = await Promise.all(ends.map(async each => (await each).status))
    expect(statuses.filter(status => status === 503)).toHaveLength(1)
  })

  it("that was ended for another before its payment was proven pays nothing, and one that was paid for before keeps its payment", async () => {
    const released: string[] = []
    let isPaidBefore = false
    const app = openServer(ctx, nobodyKnown)
    apps.push(app)
    app.get("/api/p/:slug/*", (request, reply) => {
      let isEnded = false
      let endIt = () => {}
      const places: Slots = {
        take: (_newcomer, end) => {
          endIt = end
          return { keep: () => !isEnded, leave: () => undefined }
        },
      }
      const ending: Payments = {
        ...payments,
        take: async (...of) => {
          isEnded = true
          endIt()
          if (!isPaidBefore) of[3].onProven()
          return await payments.take(...of)
        },
        release: async (_ctx, { id }) => void released.push(id),
      }
      const find = bundleFinder()
      return serveCall(ctx, { find, forwarder: openForwarder(ctx.settings), places, payments: ending }, request, reply)
    })
    await app.listen({ host: "127.0.0.1", port: 0 })
    const at = app.server.address() as AddressInfo
    const pay = (nonce: string) => call("/api/p/shop-api/paid/x", { at, headers: { "x-payment": nonce } })
    const first = await pay("first")
    expect([first.status, json(first.text).message]).toEqual([503, expect.stringContaining("Nothing was paid")])
    expect([spent.size, released]).toEqual([0, []])
    isPaidBefore = true
    const second = await pay("second")
    expect([second.status, json(second.text).message]).toEqual([503, expect.stringContaining("Your payment is kept")])
    expect([released, asked.length]).toEqual([["x_second"], 0])
  })

  describe("of one merchant's origin", () => {
    let forwarder: ReturnType<typeof openForwarder>
    let left: AbortController
    const ask = (merchantId: string, path: string) =>
      forwarder.forward({ merchantId, originUrl, method: "GET", path, headers: [], body: undefined }, left.signal)
    beforeEach(() => {
      forwarder = openForwarder(ctx.settings)
      left = new AbortController()
      respond = (response, { url }) => {
        response.writeHead(200).write("first")
        if (url === "/short") response.end()
      }
    })
    afterEach(() => {
      left.abort()
      return forwarder.close()
    })

    it("does not wait for the calls of another merchant to the same origin", async () => {
      await Promise.all(Array.from({ length: 100 }, () => ask("mer_1", "/long")))
      expect(await ask("mer_2", "/long")).toMatchObject({ status: 200 })
    })

    it("continues while 600 other merchants are called, and then has connections again", async () => {
      const found = await ask("mer_1", "/long")
      for (let nth = 0; nth < 600; nth++) drop(await ask(`mer_x${nth}`, "/short"))
      expect(found).toMatchObject({ status: 200, body: { destroyed: false } })
      drop(found)
      expect(await ask("mer_1", "/long")).toMatchObject({ status: 200 })
    })
  })

  it("begins before the origin has ended, and an origin whose caller has left is stopped", async () => {
    let closed = false
    respond = response => {
      response.on("close", () => (closed = true))
      response.writeHead(200).write("first")
    }
    const request = httpRequest({ ...address, host: "127.0.0.1", path: "/api/p/shop-api/free/x", agent: false }).end()
    const [response] = (await once(request, "response")) as [IncomingMessage]
    const [first] = await once(response, "data")
    expect(String(first)).toBe("first")
    expect(closed).toBe(false)
    request.destroy()
    await until("the origin's connection is closed", () => closed)
  })

  it("is not asked for where its caller left before the API was found, and its place is free", async () => {
    const places = openSlots()
    let asked = 0
    const forwarder = {
      forward: async () => {
        asked++
        return { failure: "asked", shown: "was asked", wasSent: true }
      },
      close: async () => {},
    }
    const app = openServer(ctx, nobodyKnown)
    apps.push(app)
    let finding = () => {}
    let ended: Promise<unknown> | undefined
    app.get("/api/p/:slug/*", async (request, reply) => {
      const left = once(reply.raw, "close")
      const find: ReturnType<typeof bundleFinder> = async (...of) => {
        finding()
        await left
        return await bundleFinder()(...of)
      }
      ended = serveCall(ctx, { find, forwarder, places, payments }, request, reply)
      return await ended
    })
    await app.listen({ host: "127.0.0.1", port: 0 })
    const { port } = app.server.address() as AddressInfo
    for (const path of ["free", "paid"]) {
      const isFinding = new Promise<void>(resolve => (finding = resolve))
      const request = httpRequest({ host: "127.0.0.1", port, path: `/api/p/shop-api/${path}/x`, agent: false })
      request.on("error", () => undefined).end()
      await isFinding
      request.destroy()
      await ended
    }
    expect([asked, offers.length]).toEqual([0, 0])
    const { id } = await service.ctx.db.selectFrom("merchants").select("id").executeTakeFirstOrThrow()
    const taken = Array.from({ length: 100 }, (_, nth) => {
      const newcomer = { merchantId: id, caller: `${nth}`, bytes: 0, isFree: true }
      return places.take(newcomer, () => {})
    })
    expect(taken).not.toContain(undefined)
  })

  it("that breaks off before its first byte is a failure like any other, in our own shape", async () => {
    respond = (_response, _asked, { socket }) =>
      socket.end("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-origin: a\r\ncontent-length: 100\r\n\r\n")
    const { status, headers, text } = await call("/api/p/shop-api/free/x")
    expect([status, headers["content-type"], headers["x-origin"]]).toEqual([
      502,
      "application/json; charset=utf-8",
      undefined,
    ])
    expect(json(text)).toEqual({
      error: "ORIGIN_FAILED",
      message: "The API behind this address did not end its answer. Try again later.",
      requestId: headers["x-request-id"],
    })
    const paid = await call("/api/p/shop-api/paid/x", { headers: { "x-payment": "cut" } })
    expect([paid.status, json(paid.text)]).toMatchObject([
      502,
      { message: expect.stringContaining("do not pay again"), retryToken: "retry-cut" },
    ])
  })

  it("that does not come, as its caller left, stops the origin as well", async () => {
    for (const method of ["POST", "GET"]) {
      let closed = false
      respond = response => response.on("close", () => (closed = true))
      const headers = { "x-payment": method, "content-length": "0" }
      const request = httpRequest({
        ...address,
        host: "127.0.0.1",
        path: "/api/p/shop-api/paid/x",
        method,
        headers,
      })
      request.on("error", () => undefined).end()
      await until("the origin was asked", () => lastAsked()?.method === method)
      request.destroy()
      await until("the origin's connection is closed", () => closed)
    }
    expect(givenBack.size).toBe(0)
    const { body } = await service.call("GET", `/api/console/bundles/${bundleId}/failures`, undefined, { as: "shop" })
    expect(body.total).toBe(0)
  })
})

/** Faults of an origin, each with a part of what its merchant is shown. */
const failures: [name: string, how: (response: ServerResponse) => void, reason: string][] = [
  ["answers 503", response => response.writeHead(503).end("inner secret"), "answered 503"],
  ["refuses its merchant", response => response.writeHead(401).end(), "answered 401"],
  ["has no quota left", response => response.writeHead(429).end(), "answered 429"],
  ["asks to be paid", response => response.writeHead(402).end(), "answered 402"],
  [
    "redirects",
    response => response.writeHead(302, { location: "http://169.254.169.254/" }).end(),
    "redirects are not",
  ],
  ["closes the connection", response => response.destroy(), "the connection was closed"],
  [
    "says first that it waits for more",
    response => {
      response.writeContinue()
      response.end("hello")
    },
    "answered 100 Continue",
  ],
  ["does not begin", () => undefined, "did not start its answer within 1 s"],
]

describe("an origin that fails", () => {
  it.each(failures)(
    "and %s: 502, the payment is kept, and the same call is repeated without another",
    async (_, how, reason) => {
      const answered = respond
      respond = how
      const path = "/api/p/shop-api/paid/x?q=1"
      const post = { method: "POST", body: "order", headers: { "content-type": "text/plain" } }
      const at = reason.startsWith("did not start") ? impatient : address
      const failed = await call(path, { ...post, at, headers: { ...post.headers, "x-payment": "n1" } })
      expect(failed.status).toBe(502)
      expect(json(failed.text)).toMatchObject({ error: "ORIGIN_FAILED", retryToken: "retry-n1" })
      expect(failed.text).not.toMatch(/inner secret|169\.254|127\.0\.0\.1/)
      expect(lastAsked().headers["sluice-payment"]).toBe("receipt.n1")
      const listed = async () =>
        (await service.call("GET", `/api/console/bundles/${bundleId}/failures`, undefined, { as: "shop" })).body
      const once = { paymentId: "x_n1", method: "POST", path: "/paid/x", attempts: 1, servedAt: null }
      expect(await listed()).toMatchObject({ total: 1, data: [{ ...once, reason: expect.stringContaining(reason) }] })
      const retry = { "payment-retry": "retry-n1" }
      // The token is valid for the call that was paid for, and for no other.
      respond = answered
      for (const [otherPath, other] of [
        ["/api/p/shop-api/paid/y?q=1", post],
        ["/api/p/shop-api/paid/x?q=2", post],
        [path, { ...post, body: "orders" }],
        [path, { ...post, method: "PUT" }],
      ] as const)
        expect((await call(otherPath, { ...other, headers: { ...post.headers, ...retry } })).status).toBe(402)
      expect(await call(path, { ...post, headers: { ...post.headers, ...retry } })).toMatchObject({
        status: 200,
        text: "hello",
      })
      expect((await listed()).data[0].servedAt).not.toBeNull()
      expect((await call(path, { ...post, headers: { ...post.headers, ...retry } })).status).toBe(402)
      expect(spent.size).toBe(1)
    },
  )

  it("after its answer has begun cuts the answer off, and the payment is kept too", async () => {
    respond = response => response.writeHead(200, { "content-length": "10" }).write("half")
    const request = httpRequest({
      ...impatient,
      host: "127.0.0.1",
      path: "/api/p/shop-api/paid/x",
      agent: false,
      headers: { "x-payment": "n2" },
    }).end()
    const [response] = (await once(request, "response")) as [IncomingMessage]
    const text = async () => {
      for await (const _ of response);
    }
    await expect(text()).rejects.toThrow("aborted")
    await until("the payment is given back", () => givenBack.has("retry-n2"))
  })

  it("by a byte now and then, without end, is cut off, and the payment is kept; one that comes steadily is not", async () => {
    const forwarder = openForwarder(ctx.settings, { maxWaitMs: 2_000 })
    const parts = { find: bundleFinder(), forwarder, places: openSlots(), payments }
    const app = openServer(ctx, nobodyKnown)
    apps.push(app)
    app.get("/api/p/:slug/*", (request, reply) => serveCall(ctx, parts, request, reply))
    await app.listen({ host: "127.0.0.1", port: 0 })
    const { port } = app.server.address() as AddressInfo
    const stopped: string[] = []
    respond = (response, { url }) => {
      response.writeHead(200)
      const drip = setInterval(() => response.write(url.endsWith("steady") ? "x".repeat(4_096) : "x"), 20)
      response.on("close", () => {
        clearInterval(drip)
        stopped.push(url)
      })
    }
    const read = async (what: string) => {
      const path = `/api/p/shop-api/paid/${what}`
      const headers = { "x-payment": what }
      const request = httpRequest({ host: "127.0.0.1", port, path, headers, agent: false }).end()
      const [response] = (await once(request, "response")) as [IncomingMessage]
      return response
    }
    const steady = await read("steady")
    let bytes = 0
    steady.on("error", () => undefined).on("data", data => (bytes += data.length))
    const dripping = await read("drips")
    const text = async () => {
      for await (const _ of dripping);
    }
    await expect(text()).rejects.toThrow("aborted")
    await until("the payment is given back", () => givenBack.has("retry-drips"))
    // It is listed a moment after the payment was given back.
    const listed = async () =>
      (await service.call("GET", `/api/console/bundles/${bundleId}/failures`, undefined, { as: "shop" })).body.data
    await expect.poll(listed).toMatchObject([{ path: "/paid/drips", reason: "did not end its answer" }])
    await until("the origin's connection is closed", () => stopped.length > 0)
    expect(stopped).toEqual(["/base/paid/drips"])
    const before = bytes
    await until("the other one continues", () => bytes > before + 16_384)
    steady.destroy()
    await forwarder.close()
  })

  it("and costs nothing is answered 502 without a token", async () => {
    respond = response => response.writeHead(500).end()
    const { status, text } = await call("/api/p/shop-api/free/x")
    expect([status, json(text).retryToken]).toEqual([502, undefined])
  })
})

describe("a price", () => {
  it("is asked for before the origin is, and a payment serves once", async () => {
    const path = "/api/p/shop-api/paid/x"
    const unpaid = await call(path)
    expect([unpaid.status, asked.length]).toEqual([402, 0])
    const { payTo } = json(unpaid.text).accepts[0]
    const whole = await service.call("GET", `/api/console/bundles/${bundleId}`, undefined, { as: "shop" })
    expect(payTo).toBe(whole.body.payTo.toLowerCase())
    const [{ prices, sold } = {} as Offer] = offers
    expect(prices).toMatchObject([{ amount: 50_000n, deposit: { resource_id: bundleId } }])
    expect(sold).toMatchObject({ url: `${ctx.settings.baseUrl}${path}`, description: "Shop: GET /paid/:what" })
    expect((await call(path, { headers: { "x-payment": "n" } })).status).toBe(200)
    expect(lastAsked().headers["sluice-payment"]).toBe("receipt.n")
    expect((await call(path, { headers: { "x-payment": "n" } })).status).toBe(402)
    expect(asked).toHaveLength(1)
    // What the service itself asks for, where x402 is wired in.
    expect((await service.call("GET", path)).body.accepts).toMatchObject([{ maxAmountRequired: "50000" }])
  })

  it("that changed, or headers that changed, hold for the next call", async () => {
    const change = {
      originHeaders: { authorization: "new" },
      routes: [{ method: "GET", path: "/paid/:what", price: 0 }],
    }
    expect((await call("/api/p/shop-api/paid/x")).status).toBe(402)
    await service.call("PUT", `/api/console/bundles/${bundleId}`, change, { as: "shop" })
    expect((await call("/api/p/shop-api/paid/x")).status).toBe(200)
    expect(lastAsked().headers.authorization).toBe("new")
  })
})

describe("addresses that are not public", () => {
  const settings = () => ({ ...ctx.settings, webhooks: { ...ctx.settings.webhooks, allowCidrs: [] as string[] } })
  const ask = (forwarder: ReturnType<typeof openForwarder>, url: string) =>
    forwarder.forward(
      { merchantId: "mer_1", originUrl: url, method: "GET", path: "/", headers: [], body: undefined },
      new AbortController().signal,
    )

  it("are not asked, however they are written or resolved, and the caller is not shown them", async () => {
    const { port } = new URL(originUrl)
    const forwarder = openForwarder(settings(), { resolve: async () => ["127.0.0.1"] })
    const hosts = ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]
    for (const host of [...hosts, "169.254.169.254", "10.0.0.1", "[fd00::1]", "inner.example", "localhost"]) {
      const answer = await ask(forwarder, `http://${host}:${port}`)
      expect(answer.failure, host).toMatch(/not public|not a public address/)
      expect(answer).toMatchObject({ shown: "could not be reached" })
    }
    await forwarder.close()
    expect(asked).toEqual([])
  })

  it("are not asked after a name has changed either, and one private address among public ones is enough", async () => {
    const { port } = new URL(originUrl)
    let addresses = ["127.0.0.1"]
    const allowed = { ...settings().webhooks, allowCidrs: ["127.0.0.1/32"] }
    const forwarder = openForwarder({ ...settings(), webhooks: allowed }, { resolve: async () => addresses })
    respond = response => response.writeHead(200, { connection: "close" }).end()
    expect((await ask(forwarder, `http://api.example:${port}`)).failure).toBeUndefined()
    addresses = ["127.0.0.1", "127.0.0.2"]
    expect((await ask(forwarder, `http://api.example:${port}`)).failure).toContain("not public")
    addresses = ["127.0.0.2"]
    expect((await ask(forwarder, `http://api.example:${port}`)).failure).toContain("not public")
    await forwarder.close()
    expect(asked).toHaveLength(1)
  })
})

it("a request whose headers end twice, or whose length is announced twice, reaches no origin", async () => {
  const smuggled = [
    "POST /api/p/shop-api/free/x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET",
    "POST /api/p/shop-api/free/x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "GET /api/p/shop-api/free/x HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n",
  ]
  for (const text of smuggled) {
    const socket = connect(address.port, "127.0.0.1").end(text)
    let got = ""
    for await (const chunk of socket) got += chunk
    expect(got).toMatch(/^HTTP\/1.1 400/)
  }
  expect(asked).toEqual([])
})

it("no header of an origin sets the prototype of the reply's headers", () => {
  const from = Object.fromEntries([
    ["__proto__", ["b", "c"]],
    ["x-own", "a"],
  ])
  expect(Object.keys(headersForCaller(200, from))).toEqual([
    "x-own",
    "content-security-policy",
    "x-content-type-options",
  ])
})
