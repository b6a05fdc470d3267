// Shops behind `charge` and `paywall`, sold to a stock client, with a handler, a network and a wallet that fail at each step: whoever
// was charged has the content, and whoever has the content was charged.
import { createRequire } from "node:module"
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from "@x402/core/http"
import type { Hex } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Sandbox, until } from "../../server/test/e2e/program.ts"
import { startServer } from "../../server/test/local-server.ts"
import { charge, payerOf } from "../src/middleware/express.ts"
import * as onNext from "../src/middleware/next.ts"
import { newAddress, openTrade, PRICE, sell, type Trade, testSales, UNITS } from "./sales.ts"
import { type Failure, shops } from "./shops.ts"
import type { Wallets } from "./wallets.ts"

const expressShop = shops.express as NonNullable<(typeof shops)[string]>
const express = createRequire(import.meta.url)("express")

let trade: Trade
let sandbox: Sandbox
let wallets: Wallets
let apiKey: string
let paywall: { id: string; payTo: Hex }
beforeAll(async () => {
  trade = await openTrade()
  ;({ sandbox, wallets, apiKey, paywall } = trade)
})
afterAll(() => sandbox?.remove())

/** Waits until a wallet has access, with as many blocks as that takes. */
async function accessOf(address: Hex, id: string): Promise<void> {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "anvil_mine", params: ["0x8"] })
  const headers = { "content-type": "application/json" }
  await fetch(sandbox.file().rpcUrl, { method: "POST", headers, body })
  const verify = `/api/paywalls/${id}/verify?address=${address}`
  await until("the buyer has access", async () => (await sandbox.call(verify)).body.hasAccess === true)
}

testSales(() => trade, shops, ["charge", "paywall"])

describe("charge", () => {
  it("serves one of ten requests that bring one payment at once", async () => {
    const payTo = newAddress()
    const shop = await expressShop({ charge: { baseUrl: sandbox.url, apiKey, price: PRICE, payTo } }, () => undefined)
    const wallet = await wallets.make()
    const { fetch: pay, sent } = wallets.payer(wallet)
    // Signed for a shop that does not serve it.
    const other = await expressShop({ charge: { baseUrl: sandbox.url, apiKey, price: PRICE, payTo } }, () => "throws")
    expect((await pay(other.url)).status).toBe(500)
    const headers = { "payment-signature": sent[0] ?? "" }
    const answers = await Promise.all(Array.from({ length: 10 }, () => fetch(shop.url, { headers })))
    const texts = await Promise.all(answers.map(answer => answer.text()))
    expect(texts.filter(text => text.includes("sunny"))).toHaveLength(1)
    expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
    shop.stop()
    other.stop()
  })

  it("refuses a retry token for another URL, and after it was served", async () => {
    const sold = await sell(trade, expressShop, "charge", { settle: "before", failures: ["throws"] })
    const { shop, close, token = "", wallet, payTo } = sold
    const again = await fetch(shop.url, { headers: { "sluice-retry-token": token } })
    expect(again.status).toBe(409)
    const elsewhere = await fetch(`${shop.url}?city=oslo`, { headers: { "sluice-retry-token": token } })
    expect(elsewhere.status).toBe(400)
    const forged = await fetch(shop.url, { headers: { "sluice-retry-token": `${token.slice(0, -4)}AAAA` } })
    expect(forged.status).toBe(400)
    expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
    close()
  })

  it("gives nothing to a payment that no longer has its money once the handler has run", async () => {
    const payTo = newAddress()
    const sells = { charge: { baseUrl: sandbox.url, apiKey, price: "6", payTo } }
    const shop = await expressShop(sells, () => undefined)
    const wallet = await wallets.make()
    const answers = await Promise.all([1, 2].map(() => wallets.payer(wallet).fetch(shop.url)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 402])
    for (const answer of answers) expect((await answer.text()).includes("sunny")).toBe(answer.status === 200)
    expect(await wallets.paid(wallet.address, payTo)).toEqual([6_000_000n])
    shop.stop()
  })

  it("asks what the request costs, and nothing for what is free", async () => {
    const payTo = newAddress()
    const price = (request: { originalUrl: string }) => (request.originalUrl.includes("today") ? null : "0.25")
    const shop = await expressShop({ charge: { baseUrl: sandbox.url, apiKey, price, payTo } as never }, () => undefined)
    expect((await fetch(`${shop.url}?day=today`)).status).toBe(200)
    const asked = await fetch(`${shop.url}?day=2`)
    expect(asked.status).toBe(402)
    expect((await asked.json()).accepts[0]).toMatchObject({ maxAmountRequired: "250000", payTo })
    const head = await fetch(`${shop.url}?day=2`, { method: "HEAD" })
    expect([head.status, head.headers.has("payment-required")]).toEqual([402, true])
    shop.stop()
  })

  it("says that a payment can't be read, and that a price is none", async () => {
    const payTo = newAddress()
    const shop = await expressShop({ charge: { baseUrl: sandbox.url, apiKey, price: PRICE, payTo } }, () => undefined)
    for (const header of ["?", "e30=", Buffer.from('{"x402Version":3}').toString("base64")])
      expect((await fetch(shop.url, { headers: { "payment-signature": header } })).status).toBe(400)
    shop.stop()
    const open = (more: object) => () => charge({ baseUrl: sandbox.url, apiKey, price: PRICE, payTo, ...more } as never)
    expect(open({ payTo: "0x12" })).toThrow("payTo must be an address")
    expect(open({ price: "free" })).toThrow("is not an amount")
    expect(open({ baseUrl: "pay.example" })).toThrow("baseUrl")
    expect(() => onNext.withPaywall(async () => new Response(), { id: "x", baseUrl: sandbox.url, apiKey })).toThrow(
      "pw_",
    )
  })

  it("sells nothing, and says why, where the service is not what it must be", async () => {
    const page = await startServer((_request, response) => response.end("<h1>Welcome</h1>"))
    const moved = await startServer((request, response) =>
      response.writeHead(302, { location: `${sandbox.url}${request.url}` }).end(),
    )
    const wrong: [string, string, RegExp][] = [
      [page.url, apiKey, /is no facilitator/],
      [moved.url, apiKey, /redirects to .*supported: set baseUrl/],
      [sandbox.url, "sk_wrong", /refuses the API key/],
      ["http://127.0.0.1:9", apiKey, /No Sluice answers/],
    ]
    for (const [baseUrl, key, message] of wrong) {
      const options = { baseUrl, apiKey: key, price: PRICE, payTo: newAddress() }
      await expect(charge(options).ready()).rejects.toThrow(message)
      const shop = await expressShop({ charge: options }, () => undefined)
      const headers = { "payment-signature": Buffer.from('{"x402Version":2}').toString("base64") }
      for (const init of [{}, { headers }]) expect((await fetch(shop.url, init)).status).toBe(503)
      expect(shop.runs()).toBe(0)
      shop.stop()
    }
    await expect(
      charge({ baseUrl: sandbox.url, apiKey, price: PRICE, payTo: newAddress() }).ready(),
    ).resolves.toBeUndefined()
    page.stop()
    moved.stop()
  })

  it("holds at most ten megabytes, and charges nothing for more; streams where it settles first", async () => {
    const payTo = newAddress()
    const options = { baseUrl: sandbox.url, apiKey, price: PRICE, payTo }
    const parts = (count: number) =>
      new ReadableStream({
        pull: to => {
          if (count-- > 0) to.enqueue(new Uint8Array(1_000_000))
          else to.close()
        },
      })
    const many = async () => new Response(parts(11))
    const served = {
      after: onNext.withCharge(many, options),
      before: onNext.withCharge(many, { ...options, settle: "before" }),
    }
    const sizes: Record<string, number> = {}
    for (const [settle, GET] of Object.entries(served)) {
      const wallet = await wallets.make()
      const { client } = wallets.payer(wallet)
      const unpaid = await GET(new Request("http://shop.example/file"), {})
      const required = decodePaymentRequiredHeader(unpaid.headers.get("payment-required") ?? "")
      const header = encodePaymentSignatureHeader(await client.createPaymentPayload(required))
      const answer = await GET(
        new Request("http://shop.example/file", { headers: { "payment-signature": header } }),
        {},
      )
      sizes[`${settle} ${answer.status}`] = (await answer.arrayBuffer()).byteLength
      expect((await wallets.paid(wallet.address, payTo)).length).toBe(settle === "before" ? 1 : 0)
    }
    expect(sizes).toEqual({ "after 500": expect.any(Number), "before 200": 11_000_000 })
  })

  it("refuses to run before the route in Next", async () => {
    const GET = onNext.withCharge(async () => new Response("x"), {
      baseUrl: sandbox.url,
      apiKey,
      price: () => null,
      payTo: newAddress(),
    })
    const request = new Request("http://shop.example/")
    await expect(GET(request, { waitUntil: () => undefined })).rejects.toThrow("Wrap the handler in route.ts")
    const next = async () => new Response(null, { headers: { "x-middleware-next": "1" } })
    const passing = onNext.withCharge(next, { baseUrl: sandbox.url, apiKey, price: () => null, payTo: newAddress() })
    await expect(passing(request, {})).rejects.toThrow("Wrap the handler in route.ts")
  })
})

describe("charge.mcp", () => {
  it("sells a call of a priced tool, and charges for none that answers an error", async () => {
    const payTo = newAddress()
    const answers: Record<string, object> = {
      forecast: { result: { content: [{ type: "text", text: "sunny" }] } },
      broken: { result: { isError: true, content: [] } },
      missing: { error: { code: -32602, message: "no such tool" } },
      help: { result: { content: [] } },
    }
    const app = express()
    app.use(express.json())
    const prices = { forecast: PRICE, broken: PRICE, missing: PRICE }
    app.post("/mcp", charge.mcp(prices, { baseUrl: sandbox.url, apiKey, payTo }), (request: never, response: never) => {
      const { body } = request as { body: { params?: { name?: string } } }
      const found = { jsonrpc: "2.0", id: 1, ...answers[body.params?.name ?? "help"] }
      const res = response as import("node:http").ServerResponse
      res
        .writeHead(200, { "content-type": "text/event-stream" })
        .end(`event: message\ndata: ${JSON.stringify(found)}\n\n`)
    })
    const server = app.listen(0, "127.0.0.1")
    await new Promise(resolve => server.once("listening", resolve))
    const url = `http://127.0.0.1:${server.address().port}/mcp`
    const wallet = await wallets.make()
    const { fetch: pay } = wallets.payer(wallet)
    const call = (name: string, by: typeof fetch, method = "tools/call") =>
      by(url, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { name } }),
      })
    expect((await call("help", fetch)).status).toBe(200)
    expect((await call("forecast", fetch, "tools/list")).status).toBe(200)
    expect((await call("forecast", fetch)).status).toBe(402)
    for (const name of ["broken", "missing"]) expect((await call(name, pay)).status).toBe(200)
    expect(await wallets.paid(wallet.address, payTo)).toEqual([])
    expect(await (await call("forecast", pay)).text()).toContain("sunny")
    expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
    const text = await fetch(url, { method: "POST", headers: { "content-type": "text/plain" }, body: "{}" })
    expect(text.status).toBe(500)
    server.closeAllConnections()
    server.close()
  })
})

describe("paywall", () => {
  it("lets pass whoever proved the wallet that paid, and knows its address", async () => {
    const { shop, close, wallet } = await sell(trade, expressShop, "paywall", {})
    await accessOf(wallet.address, paywall.id)
    const { body: nonce } = await sandbox.call(`/api/paywalls/${paywall.id}/access/nonce`, {})
    const message = nonce.message.replaceAll("{address}", wallet.address)
    const signature = await wallet.signMessage({ message })
    const proof = { address: wallet.address, message, signature }
    const { body } = await sandbox.call(`/api/paywalls/${paywall.id}/access`, proof)
    const ask = (authorization: string) => fetch(shop.url, { headers: { authorization } })
    expect((await ask(`Bearer ${body.accessToken}`)).status).toBe(200)
    const [head, claims, signed = ""] = body.accessToken.split(".")
    const later = Buffer.from(JSON.stringify({ ...JSON.parse(Buffer.from(claims, "base64url").toString()), exp: 9e9 }))
    for (const forged of [
      `${head}.${later.toString("base64url")}.${signed}`,
      `${head}.${claims}.${signed.slice(0, -6)}AAAAAA`,
      `${Buffer.from('{"alg":"none","typ":"paywall-access+jwt"}').toString("base64url")}.${claims}.`,
      sandbox.file().merchants[0].accessToken,
      "x",
    ])
      expect((await ask(`Bearer ${forged}`)).status).toBe(402)
    const GET = onNext.withPaywall(async request => Response.json({ payer: payerOf(request) }), {
      id: paywall.id,
      baseUrl: sandbox.url,
      apiKey,
    })
    const own = new Request("http://shop.example/", { headers: { authorization: `Bearer ${body.accessToken}` } })
    expect(await (await GET(own, {})).json()).toEqual({ payer: wallet.address })
    const { body: other } = await sandbox.call(
      "/api/console/paywalls",
      { name: "Other", price: PRICE },
      { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` },
    )
    const elsewhere = onNext.withPaywall(async () => new Response("x"), { id: other.id, baseUrl: sandbox.url, apiKey })
    expect((await elsewhere(own, {})).status).toBe(402)
    close()
  })

  it("uses up a call that was paid for, once for each good answer", async () => {
    const auth = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
    const made = await sandbox.call(
      "/api/console/paywalls",
      { name: "Call", price: PRICE, pricingModel: "per_call" },
      auth,
    )
    expect(made.status).toBe(201)
    const { id, payTo } = (await sandbox.call(`/api/paywalls/${made.body.id}`)).body
    const wallet = await wallets.make()
    const buy = wallets.payer(wallet)
    expect((await buy.fetch(`${sandbox.url}/api/agent/paywalls/${id}/settle`, { method: "POST" })).status).toBe(200)
    expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
    await accessOf(wallet.address, id)
    const { body: nonce } = await sandbox.call(`/api/paywalls/${id}/access/nonce`, {})
    const message = nonce.message.replaceAll("{address}", wallet.address)
    const proof = { address: wallet.address, message, signature: await wallet.signMessage({ message }) }
    const { body } = await sandbox.call(`/api/paywalls/${id}/access`, proof)
    const failures: Failure[] = ["throws", undefined, undefined]
    const shop = await expressShop({ paywall: { id, baseUrl: sandbox.url, apiKey } }, () => failures.shift())
    const ask = async () => {
      const answer = await fetch(shop.url, { headers: { authorization: `Bearer ${body.accessToken}` } })
      return [answer.status, (await answer.text()).includes("sunny")]
    }
    expect([await ask(), await ask(), await ask()]).toEqual([
      [500, false],
      [200, true],
      [402, false],
    ])
    shop.stop()
  })
})
