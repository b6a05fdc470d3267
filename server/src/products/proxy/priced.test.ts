/** Priced calls with real payments on a real chain: paid, forwarded, failed by their origin, repeated, settled. */
import { once } from "node:events"
import { createServer, request as httpRequest, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net"
import { text } from "node:stream/consumers"
import { compactVerify, importJWK } from "jose"
import { sql } from "kysely"
import { encodeFunctionData, parseAbi } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn, type Signed, signAuthorization } from "../../../test/relays.ts"
import { payoutLane } from "../../ledger/payouts/payout-lane.ts"
import { checkWallet } from "../../ledger/txmanager/lock-wallet.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { MULTICALL3 } from "../../platform/chain/multicall.ts"
import { ApiError } from "../../platform/errors.ts"
import { nobodyKnown } from "../../platform/http/authenticate.ts"
import { defaultBounds } from "../../platform/http/connections.ts"
import { openServer } from "../../platform/http/server.ts"
import { findCarriedOut } from "../x402/find-carried-out.ts"
import { callPayments } from "../x402/take-call-payment.ts"
import { proxyRoutes } from "./routes.ts"

let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
let listening: Promise<string>
let origin: Server
/** What reached the origin, with its receipt. */
let asked: { target: string; receipt: string | undefined; body: string }[]
let respond: (response: ServerResponse) => void
let bundleId: string

beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
  listening = rig.service.listen()
  origin = createServer(async (request, response) => {
    let body = ""
    for await (const chunk of request) body += chunk
    const receipt = request.headers["sluice-payment"] as string | undefined
    asked.push({ target: `${request.method} ${request.url}`, receipt, body })
    respond(response)
  })
  origin.listen(0, "127.0.0.1")
  await once(origin, "listening")
})
afterAll(async () => {
  origin.closeAllConnections()
  origin.close()
  await rig.stop()
})
beforeEach(async () => {
  await on.begin()
  asked = []
  respond = response => response.end('{"sunny":true}')
  const routes = ["GET", "POST"].map(method => ({ method, path: "/forecast/:city", price: "0.05" }))
  const originUrl = `http://127.0.0.1:${(origin.address() as AddressInfo).port}`
  const bundle = { name: "Weather", slug: "weather", originUrl, routes }
  bundleId = (await rig.service.call("POST", "/api/console/bundles", bundle, { as: "shop" })).body.id
})

const OSLO = "/api/p/weather/forecast/oslo?days=7"
const decode = (header: unknown) => JSON.parse(Buffer.from(`${header}`, "base64").toString())
const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64")
const json = (body: unknown) => (typeof body === "string" ? JSON.parse(body) : body)
const call = (url: string, headers: Record<string, string> = {}, body?: object) =>
  rig.service.request(body ? "POST" : "GET", url, body, { headers })

interface Required {
  accepts: [{ amount: string; payTo: Address }]
}
const required = async (url: string, body?: object): Promise<Required> =>
  decode((await call(url, {}, body)).headers["payment-required"])
async function sign(buyer: PrivateKeyAccount, { accepts: [{ amount, payTo }] }: Required): Promise<Signed> {
  const validBefore = BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000) + 60)
  const to = payTo.toLowerCase() as Address
  return await signAuthorization(buyer, rig.network, { to, value: BigInt(amount), validBefore })
}
/** The header of a client of version 2. */
const paymentOf = (asked: Required, { authorization, signature }: Signed) => {
  const numbers = Object.fromEntries(Object.entries(authorization).map(([name, value]) => [name, `${value}`]))
  const payload = { signature, authorization: numbers }
  return { "payment-signature": encode({ x402Version: 2, accepted: asked.accepts[0], payload }) }
}
/** Carries a payment out as anyone can who has read it. */
const carry = ({ authorization: a, signature }: Signed) =>
  rig.anvil.client.writeContractSync({
    address: rig.token,
    abi: parseAbi(["function transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"]),
    functionName: "transferWithAuthorization",
    args: [a.from, a.to, a.value, a.validAfter, a.validBefore, a.nonce, signature],
  })
/** Waits for this many relays, then carries them out. */
async function carryOut(count: number): Promise<void> {
  const relays = async () => (await on.relays()).length
  await expect.poll(relays, { interval: 5, timeout: 20_000 }).toBeGreaterThanOrEqual(count)
  await on.round()
}
/** Requests, signs and pays; returns the answer and the header that paid. */
async function paid(url: string, body?: object) {
  const asked = await required(url, body)
  const payment = paymentOf(asked, await sign(await on.buyer(), asked))
  const count = (await on.relays()).length + 1
  const [answer] = await Promise.all([call(url, payment, body), carryOut(count)])
  return { answer, payment, payTo: asked.accepts[0].payTo.toLowerCase() as Address }
}
const stored = () => rig.service.ctx.db.selectFrom("settlements").selectAll().execute()
/** As after the time that its process has for an answer. */
const forgetLease = () =>
  sql`update settlements set lease_until = clock_timestamp() - interval '1 second'`.execute(rig.service.ctx.db)
const failures = async () =>
  (await rig.service.call("GET", `/api/console/bundles/${bundleId}/failures`, undefined, { as: "shop" })).body.data

describe("a priced call", () => {
  it("is asked for by its price, forwarded once it is paid, with a receipt that anyone can check", async () => {
    const asks = await call(OSLO)
    expect(asks.status).toBe(402)
    expect(decode(asks.headers["payment-required"])).toMatchObject({
      resource: { url: `${rig.service.ctx.settings.baseUrl}${OSLO}`, description: "Weather: GET /forecast/:city" },
      accepts: [{ amount: "50000" }],
    })
    const { answer, payment, payTo } = await paid(OSLO)
    expect([answer.status, json(answer.body)]).toEqual([200, { sunny: true }])
    const { transaction } = decode(answer.headers["payment-response"])
    expect(asked.map(({ target }) => target)).toEqual(["GET /forecast/oslo?days=7"])
    const [{ publicKeyJwk }] = (await call("/.well-known/did.json")).body.verificationMethod
    const { payload } = await compactVerify(`${asked[0]?.receipt}`, await importJWK(publicKeyJwk, "ES256"))
    expect(JSON.parse(new TextDecoder().decode(payload))).toMatchObject({ transaction })
    expect((await call(OSLO, payment)).body.error).toBe("PAYMENT_ALREADY_SERVED")
    expect(await on.received(payTo)).toEqual([50_000n])
  })

  it("is what was paid for, and no other: another path, query, body or method gets nothing for its payment", async () => {
    const forecast = { days: 7 }
    const url = "/api/p/weather/forecast/oslo"
    const asks = await required(url, forecast)
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    const [first] = await Promise.all([call(url, payment, forecast), carryOut(1)])
    expect(first.status).toBe(200)
    const others: [string, object?][] = [
      ["/api/p/weather/forecast/bergen", forecast],
      [`${url}?x=1`, forecast],
      [url, { days: 8 }],
      [url],
    ]
    for (const [other, body] of others)
      expect((await call(other, payment, body)).body.error, other).toBe("AUTHORIZATION_ALREADY_USED")
    expect(asked).toHaveLength(1)
    expect(JSON.parse(asked[0]?.body ?? "")).toEqual(forecast)
  })

  it("that is ended for another call while its payment is checked is not paid for, and its payment is good afterwards", async () => {
    const { ctx } = rig.service
    const onProven = () => {
      throw new ApiError("ORIGIN_BUSY")
    }
    const ended: typeof callPayments = {
      ...callPayments,
      take: (ctx, request, reply, offer) => callPayments.take(ctx, request, reply, { ...offer, onProven }),
    }
    const app = openServer(ctx, nobodyKnown)
    app.register(async routes => proxyRoutes(routes, ctx, ended))
    onTestFinished(() => app.close())
    const asks = await required(OSLO)
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    expect((await app.inject({ method: "GET", url: OSLO, headers: payment })).json().error).toBe("ORIGIN_BUSY")
    expect([await stored(), await on.relays(), asked]).toEqual([[], [], []])
    expect((await Promise.all([call(OSLO, payment), carryOut(1)]))[0].status).toBe(200)
  })

  it("that its origin fails is kept for its payer, and repeated without another payment", async () => {
    respond = response => response.writeHead(503).end()
    const { answer, payment } = await paid(OSLO)
    const { status, body, headers } = answer
    expect([status, body.error]).toEqual([502, "ORIGIN_FAILED"])
    expect(headers["sluice-retry-token"]).toBe(body.retryToken)
    const { transaction } = decode(headers["payment-response"])
    expect(await failures()).toMatchObject([{ method: "GET", path: "/forecast/oslo", attempts: 1, servedAt: null }])
    // The payment itself is public once it is mined; the token is not.
    expect((await call(OSLO, payment)).status).toBe(409)
    const token = { "sluice-retry-token": body.retryToken }
    expect((await call(OSLO, token)).status).toBe(502)
    expect(await failures()).toMatchObject([{ attempts: 2, servedAt: null }])
    respond = response => response.end("{}")
    for (const other of ["/api/p/weather/forecast/bergen?days=7", "/api/p/weather/forecast/oslo?days=8"])
      expect((await call(other, token)).status).toBe(400)
    const again = await call(OSLO, token)
    expect([again.status, decode(again.headers["payment-response"]).transaction]).toEqual([200, transaction])
    expect((await failures())[0].servedAt).not.toBeNull()
    // Once its answer is recorded, the token ends.
    await expect.poll(async () => (await call(OSLO, token)).body.error).toBe("PAYMENT_ALREADY_SERVED")
    expect((await on.relays()).length).toBe(1)
    expect(asked).toHaveLength(3)
  })

  it("is not sold while payments are paused, and one that was paid for is still made", async () => {
    respond = response => response.writeHead(503).end()
    const { answer } = await paid(OSLO)
    const asks = await required(OSLO)
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    await checkWallet(rig.service.ctx, payoutLane(rig.network, rig.signer))
    const wallet = rig.service.ctx.db.updateTable("wallets").where("lane", "=", "payout")
    await wallet.set({ status: "halted", halted_reason: "by hand" }).execute()
    for (const headers of [{}, payment]) expect((await call(OSLO, headers)).body.error).toBe("PAYMENTS_PAUSED")
    respond = response => response.end("{}")
    expect((await call(OSLO, { "sluice-retry-token": answer.body.retryToken })).status).toBe(200)
    expect((await on.relays()).length).toBe(1)
  })

  it("can be repeated for 24 hours", async () => {
    respond = response => response.destroy()
    const { answer } = await paid(OSLO)
    rig.service.advance(86_400_001)
    expect((await call(OSLO, { "sluice-retry-token": answer.body.retryToken })).status).toBe(400)
  })

  it("is paid once by fifty requests at a time, and one of them reaches the origin", async () => {
    const asks = await required(OSLO)
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    const [answers] = await Promise.all([
      Promise.all(Array.from({ length: 50 }, () => call(OSLO, payment))),
      carryOut(1),
    ])
    // Ten requests wait for it and are refused; the others are answered at once that it is in progress.
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 409 || status === 202)).toHaveLength(49)
    expect([asked.length, (await on.relays()).length]).toEqual([1, 1])
  })

  it("whose caller left before its answer is forwarded again for the same payment where it only reads, and else was served", async () => {
    const base = await listening
    for (const [n, method] of ["POST", "GET"].entries()) {
      const forecast = method === "POST" ? { days: n } : undefined
      const text = forecast && JSON.stringify(forecast)
      const asks = await required(OSLO, forecast)
      const payment = paymentOf(asks, await sign(await on.buyer(), asks))
      let closed = false
      respond = response => response.on("close", () => (closed = true))
      const headers = { ...payment, ...(text ? { "content-type": "application/json" } : {}) }
      const cut = httpRequest(`${base}${OSLO}`, { method, headers })
      cut.on("error", () => undefined).end(text)
      await carryOut(n + 1)
      await expect.poll(() => asked.filter(each => each.target.startsWith(method)).length, { timeout: 20_000 }).toBe(1)
      cut.destroy()
      await expect.poll(() => closed, { timeout: 20_000 }).toBe(true)
      // A call that only reads is released. Any other call counts as answered when its caller disconnects.
      const ended = () => stored().then(rows => rows.every(row => row.claim_id === null || row.answered_at !== null))
      await expect.poll(ended, { timeout: 20_000 }).toBe(true)
      respond = response => response.end("{}")
      const again = async () => (await call(OSLO, { ...payment, prefer: "wait=0" }, forecast)).status
      if (method === "POST") expect(await again()).toBe(409)
      else await expect.poll(again, { timeout: 20_000 }).toBe(200)
      expect(await again()).toBe(409)
    }
    expect((await on.relays()).length).toBe(2)
    expect(await failures()).toEqual([])
  })

  it("whose caller left before the origin was connected to is forwarded for the same payment, whatever its method", async () => {
    const base = await listening
    // It accepts connections but begins no TLS.
    const silent = createTcpServer().listen(0, "127.0.0.1")
    const connected = once(silent, "connection")
    await once(silent, "listening")
    const move = (originUrl: string) =>
      rig.service.call("PUT", `/api/console/bundles/${bundleId}`, { originUrl }, { as: "shop" })
    expect((await move(`https://127.0.0.1:${(silent.address() as AddressInfo).port}`)).status).toBe(200)
    const forecast = { days: 7 }
    const asks = await required(OSLO, forecast)
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    const headers = { ...payment, "content-type": "application/json" }
    const cut = httpRequest(`${base}${OSLO}`, { method: "POST", headers })
    cut.on("error", () => undefined).end(JSON.stringify(forecast))
    await carryOut(1)
    const [socket] = await connected
    cut.destroy()
    await expect.poll(async () => (await stored()).map(row => row.claim_id), { timeout: 20_000 }).toEqual([null])
    await move(`http://127.0.0.1:${(origin.address() as AddressInfo).port}`)
    expect((await call(OSLO, payment, forecast)).status).toBe(200)
    expect((await call(OSLO, payment, forecast)).status).toBe(409)
    expect([asked.length, (await on.relays()).length]).toEqual([1, 1])
    socket.destroy()
    silent.close()
  })

  it("whose process is killed before its answer is forwarded for the same payment again, once its lease is over", async () => {
    let waiting: ServerResponse | undefined
    respond = response => {
      waiting = response
    }
    const asks = await required(OSLO)
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    const hanging = call(OSLO, payment).catch(() => undefined)
    await carryOut(1)
    await expect.poll(() => asked.length, { timeout: 20_000 }).toBe(1)
    // No caller was answered yet, so none is reported; a stranger is never answered.
    const now = { ...payment, prefer: "wait=0" }
    const underWay = await call(OSLO, now)
    expect([underWay.status, underWay.headers["sluice-retry-token"]]).toEqual([202, undefined])
    const remoteAddress = "192.0.2.9"
    const stranger = () => rig.service.call("GET", OSLO, undefined, { headers: now, remoteAddress })
    expect((await stranger()).status).toBe(409)
    await forgetLease()
    expect((await stranger()).status).toBe(409)
    respond = response => response.end("{}")
    const served = await call(OSLO, payment)
    expect(served.status).toBe(200)
    expect([asked.length, (await on.relays()).length]).toEqual([2, 1])
    // If the first request's origin answers after all, that is not a second answer.
    waiting?.end("late")
    expect((await hanging)?.body.error).toBe("PAYMENT_ALREADY_SERVED")
    const token = { "sluice-retry-token": `${served.headers["sluice-retry-token"]}` }
    for (const again of [payment, token]) expect((await call(OSLO, again)).body.error).toBe("PAYMENT_ALREADY_SERVED")
  })

  /** A call whose answer has begun and does not end by itself. */
  async function streaming() {
    const base = await listening
    let answered: ServerResponse | undefined
    respond = response => {
      answered = response
      response.write("a")
    }
    const asks = await required(OSLO)
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    const request = httpRequest(`${base}${OSLO}`, { headers: payment })
    request.on("error", () => undefined)
    const begun = once(request, "response")
    request.end()
    await carryOut(1)
    const [answer] = await begun
    answer.on("error", () => undefined).resume()
    const token = { "sluice-retry-token": `${answer.headers["sluice-retry-token"]}` }
    const again = (headers: Record<string, string>) => call(OSLO, { ...headers, prefer: "wait=0" })
    return { request, payment, token, again, end: () => answered?.end() }
  }
  const answered = () => expect.poll(async () => (await stored())[0]?.answered_at ?? null).not.toBeNull()

  it("whose answer streams for as long as it likes is made once: neither its payment nor its token makes it again", async () => {
    vi.useFakeTimers({ toFake: ["setInterval"] })
    try {
      const { payment, token, again, end } = await streaming()
      for (const proof of [payment, token]) expect((await again(proof)).status).toBe(202)
      await forgetLease()
      vi.advanceTimersByTime(20_000)
      const left = async () => Number((await stored())[0]?.lease_until) - Date.now()
      await expect.poll(left).toBeGreaterThan(60_000)
      for (const proof of [payment, token]) expect((await again(proof)).status).toBe(202)
      end()
      await answered()
      for (const proof of [payment, token]) expect((await again(proof)).body.error).toBe("PAYMENT_ALREADY_SERVED")
      expect(asked).toHaveLength(1)
    } finally {
      vi.useRealTimers()
    }
  })

  it("whose caller leaves in the middle of its answer was served", async () => {
    const { request, payment, token, again } = await streaming()
    request.destroy()
    await answered()
    await forgetLease()
    for (const proof of [payment, token]) expect((await again(proof)).body.error).toBe("PAYMENT_ALREADY_SERVED")
    expect(asked).toHaveLength(1)
  })

  it("whose process is killed in the middle of its answer is made again by its token, once its lease is over", async () => {
    const { request, payment, token, again } = await streaming()
    await forgetLease()
    respond = response => response.end("{}")
    expect((await again(token)).status).toBe(200)
    for (const proof of [payment, token]) expect((await again(proof)).body.error).toBe("PAYMENT_ALREADY_SERVED")
    expect(asked).toHaveLength(2)
    request.destroy()
  })

  it("that does more than read is made once, though its process is killed in the middle of its answer", async () => {
    const base = await listening
    respond = response => void response.write("a")
    const asks = await required(OSLO, {})
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    const headers = { ...payment, "content-type": "application/json" }
    const request = httpRequest(`${base}${OSLO}`, { method: "POST", headers })
    request.on("error", () => undefined)
    const begun = once(request, "response")
    request.end("{}")
    await carryOut(1)
    const [answer] = await begun
    await forgetLease()
    const token = { "sluice-retry-token": `${answer.headers["sluice-retry-token"]}` }
    for (const proof of [payment, token])
      expect((await call(OSLO, proof, {})).body.error).toBe("PAYMENT_ALREADY_SERVED")
    expect(asked).toHaveLength(1)
    request.destroy()
  })

  it("that is not sold any more is kept: its payer is answered what to do, its merchant sees it, and a route that is back serves it", async () => {
    respond = response => response.writeHead(503).end()
    const { answer, payment } = await paid(OSLO)
    const { transaction } = decode(answer.headers["payment-response"])
    const token = { "sluice-retry-token": answer.body.retryToken }
    const change = (body: object) => rig.service.call("PUT", `/api/console/bundles/${bundleId}`, body, { as: "shop" })
    const { routes } = (await change({})).body
    for (const gone of [{ routes: [{ method: "GET", path: "/else", price: "0.05" }] }, { active: false }]) {
      await change(gone)
      for (const proof of [token, payment]) {
        const refused = await call(OSLO, proof)
        expect([refused.status, refused.body.error]).toEqual([409, "INVALID_OPERATION"])
        expect(refused.body.message).toContain(transaction)
      }
      expect((await call(OSLO)).status).toBe(404)
      expect((await call("/api/p/weather/forecast/bergen", token)).status).toBe(404)
    }
    expect(await failures()).toMatchObject([{ reason: expect.stringContaining("no longer sold"), servedAt: null }])
    await change({ active: true, routes })
    respond = response => response.end("{}")
    expect((await call(OSLO, token)).status).toBe(200)
    await change({ active: false })
    for (const proof of [token, payment]) expect((await call(OSLO, proof)).status).toBe(404)
  })

  it("whose process was killed before it answered 502 is forwarded again for the same payment", async () => {
    respond = response => response.writeHead(503).end()
    const { answer, payment } = await paid(OSLO)
    expect(answer.status).toBe(502)
    await expect.poll(async () => (await stored())[0]?.answered_at ?? null).not.toBeNull()
    // The state after a process that recorded the failure and then died.
    await sql`update settlements set answered_at = null`.execute(rig.service.ctx.db)
    await forgetLease()
    respond = response => response.end("{}")
    expect((await call(OSLO, payment)).status).toBe(200)
    expect((await failures())[0].servedAt).not.toBeNull()
  })

  /** Has the database refuse all changes of payments, from `begin` to `end`. */
  async function outage() {
    const { db } = rig.service.ctx
    const end = () => sql`drop trigger if exists outage on settlements`.execute(db)
    onTestFinished(async () => void (await end()))
    await sql`create or replace function outage() returns trigger language plpgsql as $$ begin
      raise 'the database system is shutting down' using errcode = '57P01'; end $$`.execute(db)
    const begin = () =>
      sql`create trigger outage before update on settlements for each row execute function outage()`.execute(db)
    return { begin, end }
  }
  const ofLast = async () => {
    const row = (await stored()).at(-1)
    return { answered: row?.answered_at != null, served: row?.served_at != null, retry: row?.retry_until != null }
  }
  /** The payment alone is good for nothing, and its token for the call. */
  async function expectKept(payment: Record<string, string>, token: string, body?: object): Promise<void> {
    await expect.poll(ofLast, { timeout: 20_000 }).toEqual({ answered: true, served: false, retry: true })
    respond = response => response.end("{}")
    expect((await call(OSLO, payment, body)).body.error).toBe("PAYMENT_ALREADY_SERVED")
    expect((await call(OSLO, { "sluice-retry-token": token }, body)).status).toBe(200)
  }
  /** Pays for a call whose answer has begun, and returns that answer. */
  async function streamed(base: string) {
    const asks = await required(OSLO)
    const payment = paymentOf(asks, await sign(await on.buyer(), asks))
    const answered = once(httpRequest(base + OSLO, { headers: payment, agent: false }).end(), "response")
    await carryOut(1)
    const [answer] = await answered
    return { payment, token: answer.headers["sluice-retry-token"], answer: answer as IncomingMessage }
  }

  it.each([
    ["GET, its origin fails", undefined, (response: ServerResponse) => response.writeHead(503).end()],
    ["POST, its origin fails", { days: 1 }, (response: ServerResponse) => response.writeHead(503).end()],
    ["GET, its origin answers", undefined, (response: ServerResponse) => response.end("{}")],
  ])("is kept for its token where the database fails with it: %s", async (_what, body, answers) => {
    const { begin, end } = await outage()
    respond = response => void begin().then(() => answers(response))
    const { answer, payment } = await paid(OSLO, body)
    expect(answer.status).toBeGreaterThanOrEqual(500)
    await end()
    await expectKept(payment, `${answer.headers["sluice-retry-token"]}`, body)
  })

  it("that its origin cuts off is kept for its token, though the database fails at that moment", async () => {
    const { begin, end } = await outage()
    let cutOff = async () => {}
    respond = response => {
      response.writeHead(200, { "content-length": "100000" }).write("x".repeat(5_000))
      cutOff = async () => {
        await begin()
        response.destroy()
      }
    }
    const { payment, token, answer } = await streamed(await listening)
    const closed = once(answer.on("error", () => {}).resume(), "close").catch(() => {})
    await cutOff()
    await closed
    await end()
    await expectKept(payment, token)
  })

  it("is not cut off to make room for others' connections", async () => {
    const { promise: made, resolve: finish } = Promise.withResolvers<void>()
    respond = response => {
      response.write("x".repeat(1_000))
      void made.then(() => response.end("y"))
    }
    const bounds = { ...defaultBounds, connections: 3 }
    const app = openServer(rig.service.ctx, nobodyKnown, bounds, undefined, { "GET /waits": { by: "public" } })
    proxyRoutes(app, rig.service.ctx, callPayments)
    const cut: Socket[] = []
    app.get("/waits", () => new Promise(() => {}))
    const base = await app.listen({ host: "127.0.0.1", port: 0 })
    onTestFinished(async () => {
      origin.closeAllConnections()
      await app.close()
    })
    const { answer } = await streamed(base)
    for (let i = 1; i <= 4; i++) {
      const socket = connect(Number(new URL(base).port), "127.0.0.1").on("error", () => {})
      socket.once("close", () => cut.push(socket))
      socket.write("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n")
    }
    await expect.poll(() => cut.length, { interval: 5 }).toBe(2)
    finish()
    expect(await text(answer)).toBe(`${"x".repeat(1_000)}y`)
    await expect.poll(ofLast).toMatchObject({ served: true })
  })

  it("that another transaction settled beside dust is booked, and the dust is not", async () => {
    const asks = await required(OSLO)
    const buyer = await on.buyer()
    const signed = await sign(buyer, asks)
    const pending = await call(OSLO, { ...paymentOf(asks, signed), prefer: "wait=0" })
    expect(pending.status).toBe(202)
    const { authorization: a, signature } = signed
    const { client } = rig.anvil
    const [account] = client.account ? [client.account.address] : []
    await rig.mint(account as Address, 7n)
    const abi = parseAbi([
      "function approve(address,uint256)",
      "function transferFrom(address,address,uint256)",
      "function transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
      "function aggregate3((address target,bool allowFailure,bytes callData)[] calls) payable returns ((bool,bytes)[])",
    ])
    await client.writeContractSync({ address: rig.token, abi, functionName: "approve", args: [MULTICALL3, 7n] })
    const calls = [
      encodeFunctionData({ abi, functionName: "transferFrom", args: [account as Address, a.to, 7n] }),
      encodeFunctionData({
        abi,
        functionName: "transferWithAuthorization",
        args: [a.from, a.to, a.value, a.validAfter, a.validBefore, a.nonce, signature],
      }),
    ].map(callData => ({ target: rig.token, allowFailure: false, callData }))
    await client.writeContractSync({ address: MULTICALL3, abi, functionName: "aggregate3", args: [calls] })
    await on.round()
    const token = { "sluice-retry-token": `${pending.headers["sluice-retry-token"]}` }
    expect((await call(OSLO, token)).status).toBe(200)
    await client.mine({ blocks: 3 })
    await on.look()
    rig.service.advance(700_000)
    await on.look()
    const { body } = await rig.service.call("GET", "/api/console/transactions", undefined, { as: "shop" })
    const shown = body.data.map(({ status, amount }: Record<string, string>) => `${status} ${amount}`)
    expect(shown.sort()).toEqual(["granted 0.05", "open 0.000007"])
  })

  it("that its payer carried out and did not come back for is not served once its money was returned", async () => {
    const asks = await required(OSLO)
    const signed = await sign(await on.buyer(), asks)
    const payment = paymentOf(asks, signed)
    const pending = await call(OSLO, { ...payment, prefer: "wait=0" })
    await carry(signed)
    await on.round()
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    rig.service.advance(700_000)
    await on.look()
    const as = { as: "shop" }
    const open = await rig.service.call("GET", "/api/console/payments?status=open", undefined, as)
    expect(open.body.data).toMatchObject([{ exception: "late", status: "open" }])
    const back = `/api/console/payments/${open.body.data[0].id}/return`
    const returned = await rig.service.call("POST", back, { address: signed.authorization.from, confirm: true }, as)
    expect(returned.status, JSON.stringify(returned.body)).toBe(200)
    for (const proof of [payment, { "sluice-retry-token": `${pending.headers["sluice-retry-token"]}` }]) {
      const refused = await call(OSLO, { ...proof, prefer: "wait=0" })
      expect([refused.status, refused.body.error]).toEqual([409, "INVALID_OPERATION"])
      expect(refused.body.message).toContain("returned the money")
    }
    expect(asked).toEqual([])
  })

  it("that its payer carried out is the agent's payment in the books, found in time or when it is asked for", async () => {
    const { ctx } = rig.service
    const as = { as: "shop" }
    const books = async () => {
      const { body } = await rig.service.call("GET", "/api/console/transactions", undefined, as)
      return body.data.map(({ type, status, exception }: Record<string, string>) => [type, status, exception])
    }
    for (const isInTime of [true, false]) {
      const asks = await required(OSLO)
      const signed = await sign(await on.buyer(), asks)
      const pending = await call(OSLO, { ...paymentOf(asks, signed), prefer: "wait=0" })
      // Other tests have moved the service's clock.
      await rig.anvil.client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(ctx.now().getTime() / 1_000)) })
      await carry(signed)
      await on.round()
      await rig.anvil.client.mine({ blocks: 3 })
      await on.look()
      rig.service.advance(isInTime ? 60_000 : 700_000)
      if (isInTime) await findCarriedOut(ctx, rig.network)
      await on.look()
      expect((await books())[0]).toEqual(isInTime ? ["agent", "granted", null] : ["payment", "open", "late"])
      const token = { "sluice-retry-token": `${pending.headers["sluice-retry-token"]}` }
      expect((await call(OSLO, token)).status).toBe(200)
      await on.look()
      expect((await books())[0]).toEqual(["agent", "granted", null])
    }
  })

  it("is in the books as an agent's payment, which emits no event; other money at its address waits", async () => {
    const { payTo } = await paid(OSLO)
    await rig.mint(payTo, 70_000n)
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    rig.service.advance(700_000)
    await on.look()
    const { body } = await rig.service.call("GET", "/api/console/transactions", undefined, { as: "shop" })
    const found = await rig.service.call("GET", `/api/console/transactions?q=${bundleId}`, undefined, { as: "shop" })
    expect(found.body).toEqual(body)
    expect(new Set(body.data.map((each: { bundleId: string }) => each.bundleId))).toEqual(new Set([bundleId]))
    const shown = body.data.map(({ type, status, exception, amount }: Record<string, string>) => [
      type,
      status,
      exception,
      amount,
    ])
    expect(shown.sort()).toEqual([
      ["agent", "granted", null, "0.05"],
      ["payment", "open", "late", "0.07"],
    ])
    const events = await rig.service.ctx.db.selectFrom("events").select(["type", "body"]).execute()
    const others = events.filter(({ type }) => !type.startsWith("settings."))
    const waits = { sessionId: null, paywallId: null, bundleId: expect.stringMatching(/^bdl_/) }
    expect(others.map(({ type, body }) => [type, JSON.parse(body).data])).toMatchObject([["payment.exception", waits]])
  })
})
