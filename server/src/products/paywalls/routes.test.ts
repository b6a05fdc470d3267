import { mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"

const LISTED = "0x7F367cC41522cE07553e823bf3be79A889DEbe1B"
const buyer = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
const txHash = `0x${"ab".repeat(32)}`

let service: TestService
let folder: string
let list: string
let id: string

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "sluice-list-"))
  list = join(folder, "sdn.csv")
  writeFileSync(list, `36752,"SOMEONE",-0- ,"SDN","Digital Currency Address - ETH ${LISTED}; alt. ..."\n`)
  service = await startService({ settings: { sanctionsFile: list } })
})
afterAll(async () => {
  await service.stop()
  rmSync(folder, { recursive: true })
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  const made = await service.call(
    "POST",
    "/api/console/paywalls",
    { name: "Film", price: 5, contentUrl: "https://secret.example/", contentData: { key: "secret" } },
    { as: "shop" },
  )
  id = made.body.id
})

const submissions = () => service.ctx.db.selectFrom("submissions").selectAll().execute()
const pay = (body: unknown, paywall = id) => service.call("POST", `/api/paywalls/${paywall}/pay`, body)

describe("POST /api/paywalls/:id/pay", () => {
  it("200: verifying, in exactly the documented shape", async () => {
    expect(await pay({ txHash: txHash.toUpperCase().replace("X", "x"), address: buyer.toLowerCase() })).toMatchObject({
      status: 200,
      body: { status: "verifying", paywallId: id, address: buyer, txHash, message: expect.stringMatching(/verified/) },
    })
  })

  it.each([
    ["no hash", { address: buyer }],
    ["no body", undefined],
    ["a short hash", { txHash: txHash.slice(0, -1), address: buyer }],
    ["a number", { txHash: 5, address: buyer }],
    ["a bad hash and a bad address: the hash is reported first", { txHash: "x", address: "y" }],
  ])("400 INVALID_TX_HASH for %s", async (_what, body) => {
    expect(await pay(body)).toMatchObject({ status: 400, body: { error: "INVALID_TX_HASH" } })
    expect(await submissions()).toEqual([])
  })

  it.each([
    ["no address", { txHash }, "address"],
    ["a bad address", { txHash, address: "0x12" }, "address"],
    ["a wrong checksum", { txHash, address: buyer.replace("fCD6", "FCD6") }, "address"],
    ["an unknown field", { txHash, address: buyer, amount: 5 }, "amount"],
  ])("400 VALIDATION_ERROR for %s", async (_what, body, path) => {
    expect(await pay(body)).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR", details: [{ path }] } })
    expect(await submissions()).toEqual([])
  })

  it("403 SANCTIONS_MATCH for a listed address, before it is asked whether the paywall exists; the decision is kept", async () => {
    for (const paywall of [id, `pw_${"a".repeat(24)}`])
      expect(await pay({ txHash, address: LISTED }, paywall)).toMatchObject({
        status: 403,
        body: { error: "SANCTIONS_MATCH" },
      })
    expect(await submissions()).toEqual([])
    const kept = await service.ctx.db.selectFrom("screenings").selectAll().execute()
    expect(kept).toMatchObject([
      { address: LISTED.toLowerCase(), listed: true, source: "file", subject: `pay:${id}` },
      { address: LISTED.toLowerCase(), listed: true, source: "file" },
    ])
  })

  it("reads the list again when it changes", async () => {
    expect((await pay({ txHash, address: buyer })).status).toBe(200)
    writeFileSync(list, `${LISTED}\n${buyer}\n`)
    utimesSync(list, new Date(), new Date(Date.now() + 5_000))
    expect((await pay({ txHash, address: buyer })).status).toBe(403)
    writeFileSync(list, LISTED)
    utimesSync(list, new Date(), new Date(Date.now() + 9_000))
    expect((await pay({ txHash, address: buyer })).status).toBe(200)
  })

  it("404 PAYWALL_NOT_FOUND for an unknown id", async () => {
    expect(await pay({ txHash, address: buyer }, `pw_${"a".repeat(24)}`)).toMatchObject({
      status: 404,
      body: { error: "PAYWALL_NOT_FOUND" },
    })
    expect(await submissions()).toEqual([])
  })

  it("takes submissions for an inactive paywall", async () => {
    await service.call("DELETE", `/api/console/paywalls/${id}`, undefined, { as: "shop" })
    expect((await pay({ txHash, address: buyer })).status).toBe(200)
  })
})

describe("429 RATE_LIMITED", () => {
  it("after ten submissions a minute from one address, with the body and headers of the contract", async () => {
    const limited = await startService({
      settings: { limits: { ...service.ctx.settings.limits, paywallPay: 10, public: 30 } },
    })
    try {
      const once = () => limited.call("POST", `/api/paywalls/${id}/pay`, { txHash, address: buyer })
      for (let i = 1; i <= 10; i++) {
        const { status, headers } = await once()
        expect(status).toBe(404)
        expect(headers).toMatchObject({ "x-ratelimit-limit": "10", "x-ratelimit-remaining": String(10 - i) })
      }
      const { status, body, headers } = await once()
      expect(status).toBe(429)
      expect(body).toEqual({
        error: "RATE_LIMITED",
        message: expect.any(String),
        retryAfter: expect.any(Number),
        requestId: expect.any(String),
      })
      expect(body.retryAfter).toBeGreaterThan(0)
      expect(body.retryAfter).toBeLessThanOrEqual(60)
      expect(headers).toMatchObject({
        "retry-after": String(body.retryAfter),
        "x-ratelimit-limit": "10",
        "x-ratelimit-remaining": "0",
      })
      const reset = Number.parseInt(String(headers["x-ratelimit-reset"]), 10) - Date.now() / 1_000
      expect(reset).toBeGreaterThan(0)
      expect(reset).toBeLessThanOrEqual(61)
    } finally {
      await limited.stop()
    }
  })
})

describe("GET /api/paywalls/:id", () => {
  it("200: what a buyer needs, and nothing of what is sold", async () => {
    const { status, body } = await service.call("GET", `/api/paywalls/${id}`)
    expect(status).toBe(200)
    expect(body).toEqual({
      id,
      name: "Film",
      description: null,
      price: "5.00",
      currency: "USDC",
      contentType: "content",
      pricingModel: "one_time",
      active: true,
      chain: "base-sepolia",
      chainId: 84532,
      paused: false,
      subscriptionProductId: null,
      payTo: expect.stringMatching(/^0x[0-9a-fA-F]{40}$/),
      token: { address: paperNetwork.token.address, decimals: 6, symbol: "USDC" },
    })
  })

  it("200: no payTo when it is switched off", async () => {
    await service.call("DELETE", `/api/console/paywalls/${id}`, undefined, { as: "shop" })
    const { body } = await service.call("GET", `/api/paywalls/${id}`)
    expect(body).toMatchObject({ active: false })
    expect(body).not.toHaveProperty("payTo")
  })

  it("404 for an unknown id", async () => {
    expect(await service.call("GET", "/api/paywalls/pw_none")).toMatchObject({
      status: 404,
      body: { error: "PAYWALL_NOT_FOUND" },
    })
  })
})

describe("GET /api/paywalls/:id/verify", () => {
  it("200 { hasAccess: false } for an address without access", async () => {
    const { status, body } = await service.call("GET", `/api/paywalls/${id}/verify?address=${buyer}`)
    expect({ status, body }).toEqual({ status: 200, body: { hasAccess: false } })
  })

  it("400 for a malformed or missing address, 404 for an unknown paywall", async () => {
    for (const query of ["", "?address=", "?address=0x12", `?address=${buyer}&address=${buyer}`])
      expect(await service.call("GET", `/api/paywalls/${id}/verify${query}`)).toMatchObject({
        status: 400,
        body: { error: "VALIDATION_ERROR" },
      })
    expect(await service.call("GET", `/api/paywalls/pw_none/verify?address=${buyer}`)).toMatchObject({
      status: 404,
      body: { error: "PAYWALL_NOT_FOUND" },
    })
  })
})

describe("GET /api/paywalls/:id/payments/:txHash", () => {
  it("200 with the state of a submission, 404 without one", async () => {
    await service.ctx.db
      .insertInto("cursors")
      .values({
        chain_id: 84532,
        block_number: 1n,
        block_hash: txHash as never,
        finalized_number: 0n,
        run_at: new Date(),
      })
      .execute()
    const url = `/api/paywalls/${id}/payments/${txHash}?address=${buyer}`
    expect(await service.call("GET", url)).toMatchObject({ status: 404, body: { error: "PAYMENT_NOT_FOUND" } })
    await pay({ txHash, address: buyer })
    const { status, body } = await service.call("GET", url)
    expect(status).toBe(200)
    expect(body).toEqual({
      status: "verifying",
      paywallId: id,
      address: buyer,
      txHash,
      reason: null,
      message: expect.any(String),
      confirmations: 0,
      requiredConfirmations: 3,
    })
  })

  it.each([
    ["payments/0x12?address=0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "INVALID_TX_HASH"],
    [`payments/${txHash}`, "VALIDATION_ERROR"],
    [`payments/${txHash}?address=${buyer}&wait=26`, "VALIDATION_ERROR"],
    [`payments/${txHash}?address=${buyer}&wait=-1`, "VALIDATION_ERROR"],
  ])("400 for %s", async (path, error) => {
    expect(await service.call("GET", `/api/paywalls/${id}/${path}`)).toMatchObject({ status: 400, body: { error } })
  })
})
