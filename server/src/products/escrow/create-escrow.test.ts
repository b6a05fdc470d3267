// Sessions with an escrow before anybody has signed: what their answers say, what is refused, and how they end.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { PAYOUT_ADDRESS, paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { paymentInfoHash } from "../../platform/chain/escrow.ts"
import { type Address, checksummed, type Hash, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import { advanceEscrows } from "./advance-escrows.ts"

const RELAYER = `0x${"4e".repeat(20)}` as Address
const escrow = {
  address: `0x${"e5".repeat(20)}` as Address,
  version: "v1.1" as const,
  collector: `0x${"c0".repeat(20)}` as Address,
  refundCollector: `0x${"4f".repeat(20)}` as Address,
}
let service: TestService
let key: string
let splitId: string
beforeAll(async () => {
  service = await startService({ settings: { relayWallet: RELAYER } })
  service.ctx.chain.networks[0] = { ...paperNetwork, escrow }
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  key = (await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as: "shop" })).body.key
  const recipients = ["11", "22"].map(digits => ({ address: `0x${digits.repeat(20)}`, percent: 50 }))
  const split = await service.call("POST", "/api/console/splits", { name: "All", recipients }, { as: "shop" })
  splitId = split.body.id
})

const create = (body: object) =>
  service.call("POST", "/api/checkouts", { amount: "5", ...body }, { headers: { "x-api-key": key } })
const statusOf = async (id: string) => (await service.call("GET", `/api/pay/status/${id}`)).body
const sessionOf = async (id: string) =>
  (await service.call("GET", `/api/checkouts/${id}`, undefined, { headers: { "x-api-key": key } })).body
const typesOf = async () =>
  (await service.ctx.db.selectFrom("events").select("type").where("type", "like", "checkout.%").execute()).map(
    ({ type }) => type,
  )

describe("a checkout with an escrow", () => {
  it("names the escrow to its merchant and, to its payer, exactly what to sign", async () => {
    const asked = { capture: "manual", expiresIn: 3_600, captureWithin: 86_400, refundWithin: 60 }
    const { status, body } = await create(asked)
    expect(status).toBe(201)
    const ends = Date.parse(body.expiresAt)
    const seconds = (ms: number) => Math.floor(ms / 1_000)
    const iso = (ms: number) => new Date(seconds(ms) * 1_000).toISOString()
    expect(body).toMatchObject({
      status: "pending",
      capture: "manual",
      payTo: null,
      authId: null,
      amountReceived: "0.00",
    })
    expect(body.escrow).toEqual({
      address: checksummed(escrow.address),
      collector: checksummed(escrow.collector),
      refundCollector: checksummed(escrow.refundCollector),
      receiver: PAYOUT_ADDRESS,
      authorized: "0.00",
      captured: "0.00",
      released: "0.00",
      refunded: "0.00",
      capturable: "0.00",
      refundable: "0.00",
      authorizeBefore: iso(ends + 3_600_000),
      captureBefore: iso(seconds(ends + 86_400_000) * 1_000 - 3_600_000),
      refundBefore: iso(seconds(ends + 86_400_000) * 1_000 + 60_000),
    })
    const row = await service.ctx.db.selectFrom("escrows").selectAll().executeTakeFirstOrThrow()
    // The nonce is the hash of the terms with the payer zero: whoever changed one of them would change it.
    const info = {
      operator: RELAYER,
      payer: ZERO_ADDRESS,
      receiver: PAYOUT_ADDRESS.toLowerCase() as Address,
      token: paperNetwork.token.address,
      maxAmount: 5_000_000n,
      preApprovalExpiry: seconds(ends + 3_600_000),
      authorizationExpiry: seconds(ends + 86_400_000),
      refundExpiry: seconds(ends + 86_400_000) + 60,
      minFeeBps: 0,
      maxFeeBps: 0,
      feeReceiver: ZERO_ADDRESS,
      salt: BigInt(row.salt),
    }
    const shown = await statusOf(body.id)
    expect(shown).toMatchObject({
      status: "pending",
      capture: "manual",
      captured: "0.00",
      released: "0.00",
      refunded: "0.00",
    })
    expect(shown).not.toHaveProperty("payTo")
    expect(shown.authorization).toEqual({
      primaryType: "ReceiveWithAuthorization",
      to: checksummed(escrow.collector),
      value: "5000000",
      validAfter: "0",
      validBefore: `${seconds(ends + 3_600_000)}`,
      nonce: paymentInfoHash(info, paperNetwork.chainId, escrow.address),
    })
    expect((await create(asked)).body.escrow.address).toBe(body.escrow.address)
    const nonces = await service.ctx.db.selectFrom("escrows").select("nonce").execute()
    expect(new Set(nonces.map(({ nonce }) => nonce)).size).toBe(2)
    expect(await sessionOf(body.id)).toEqual({ ...body, openCalls: [], refunds: [] })
    expect((await service.call("GET", "/api/console/checkouts", undefined, { as: "shop" })).body.total).toBe(2)
  })

  it("has no address, so no transfer pays it, and no hash is taken for one", async () => {
    const { id } = (await create({ capture: "automatic" })).body
    expect(await service.ctx.db.selectFrom("deposits").selectAll().execute()).toEqual([])
    const answer = await service.call("POST", "/api/pay/confirm", { sessionId: id, txHash: `0x${"5f".repeat(32)}` })
    expect(answer).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    expect(await service.ctx.db.selectFrom("submissions").selectAll().execute()).toEqual([])
  })

  it("gives a short time to capture a shorter time to void", async () => {
    const { body } = await create({ capture: "manual", captureWithin: 3_600 })
    const row = await service.ctx.db.selectFrom("escrows").selectAll().executeTakeFirstOrThrow()
    expect(row.authorization_expiry.getTime() - row.void_at.getTime()).toBe(900_000)
    expect(row.void_at.getTime()).toBeGreaterThan(Date.parse(body.expiresAt))
  })

  it.each<[string, object, string[]]>([
    ["a split", { splitId: "split" }, ["capture"]],
    ["a way that does not exist", { capture: "later" }, ["capture"]],
    ["too short a time to capture", { captureWithin: 3_599 }, ["captureWithin"]],
    ["too long a time to refund", { refundWithin: 31_536_001 }, ["refundWithin"]],
    [
      "times without an escrow",
      { capture: "direct", captureWithin: 3_600, refundWithin: 0 },
      ["captureWithin", "refundWithin"],
    ],
    ["times and nothing else", { capture: undefined, refundWithin: 0 }, ["refundWithin"]],
  ])("is refused with %s, and leaves nothing", async (_name, change, paths) => {
    const split = "splitId" in change ? { splitId } : {}
    const { status, body } = await create({ capture: "manual", ...change, ...split })
    expect(status).toBe(400)
    expect(body.details.map(({ path }: { path: string }) => path)).toEqual(paths)
    expect(await service.ctx.db.selectFrom("checkout_sessions").selectAll().execute()).toEqual([])
    expect(await service.ctx.db.selectFrom("escrows").selectAll().execute()).toEqual([])
  })

  it("is refused where a link has a limited number of uses, and counts a use of any other link when it is paid", async () => {
    const link = { slug: "seats", title: "Seats", amount: 5, maxUses: 2 }
    await service.call("POST", "/api/console/payment-links", link, { as: "shop" })
    await service.call("POST", "/api/console/payment-links", { ...link, slug: "open", maxUses: null }, { as: "shop" })
    const fromLink = (slug: string) =>
      service.call("POST", "/api/checkouts", { slug, capture: "manual" }, { headers: { "x-api-key": key } })
    expect((await fromLink("seats")).body.details[0].path).toBe("capture")
    expect((await fromLink("open")).status).toBe(201)
  })

  it("is refused where no escrow or no relay wallet is configured, and leaves nothing", async () => {
    const { networks } = service.ctx.chain
    const { settings } = service.ctx
    for (const [network, relayWallet] of [
      [paperNetwork, RELAYER],
      [{ ...paperNetwork, escrow }, undefined],
    ] as const) {
      networks[0] = network
      settings.relayWallet = relayWallet
      const { status, body } = await create({ capture: "manual" })
      expect({ status, path: body.details?.[0]?.path }).toEqual({ status: 400, path: "capture" })
    }
    networks[0] = { ...paperNetwork, escrow }
    settings.relayWallet = RELAYER
    expect(await service.ctx.db.selectFrom("checkout_sessions").selectAll().execute()).toEqual([])
  })

  it("expires at its time without any block, and its merchant is notified once", async () => {
    const { id } = (await create({ capture: "manual", expiresIn: 300 })).body
    await advanceEscrows(service.ctx)
    expect((await statusOf(id)).status).toBe("pending")
    service.advance(300_000)
    await Promise.all([advanceEscrows(service.ctx), advanceEscrows(service.ctx)])
    await advanceEscrows(service.ctx)
    expect(await statusOf(id)).toMatchObject({ status: "expired" })
    expect(await statusOf(id)).not.toHaveProperty("authorization")
    expect(await typesOf()).toEqual(["checkout.expired"])
    const { run_at } = await service.ctx.db.selectFrom("escrows").selectAll().executeTakeFirstOrThrow()
    expect(run_at).toBeNull()
  })

  it("is closed by its merchant, and expires at once", async () => {
    const { id } = (await create({ capture: "manual" })).body
    const closed = await service.call("DELETE", `/api/console/checkouts/${id}`, undefined, { as: "shop" })
    expect(closed.status).toBe(200)
    await advanceEscrows(service.ctx)
    expect((await statusOf(id)).status).toBe("expired")
  })

  it("shows a page without an address", async () => {
    const { id } = (await create({ capture: "manual" })).body
    expect((await service.call("GET", `/pay/${id}`)).status).toBe(200)
  })
})

it("a session's terms are the ones that were signed for: the database refuses another state of its amounts", async () => {
  const { id } = (await create({ capture: "manual" })).body
  const write = (change: object) =>
    service.ctx.db.updateTable("escrows").set(change).where("session_id", "=", id).execute()
  const payer = { payer: RELAYER, auth_id: `0x${"0a".repeat(32)}` as Hash }
  await expect(write({ authorized: 5n })).rejects.toThrow(/escrows_check/)
  await write({ ...payer, authorized: 5n, captured: 3n })
  await expect(write({ voided: 3n })).rejects.toThrow(/escrows_check/)
  await expect(write({ refunded: 4n })).rejects.toThrow(/escrows_check/)
})
