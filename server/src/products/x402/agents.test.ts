// What agents buy: a 402, a payment that is settled once and served once, and every way to try that twice.
import { EventEmitter } from "node:events"
import { mkdtempSync, writeFileSync } from "node:fs"
import { request as httpRequest } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { FastifyReply, FastifyRequest } from "fastify"
import { compactVerify, decodeProtectedHeader, importJWK } from "jose"
import { sql } from "kysely"
import { encodeFunctionData, type Hex, parseAbi } from "viem"
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { deployContractWallet } from "../../../test/anvil.ts"
import { failed } from "../../../test/node.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn, type Signed, signAuthorization } from "../../../test/relays.ts"
import { payoutLane } from "../../ledger/payouts/payout-lane.ts"
import { checkWallet } from "../../ledger/txmanager/lock-wallet.ts"
import type { Authorization } from "../../platform/chain/authorizations.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { MULTICALL3 } from "../../platform/chain/multicall.ts"
import { paywallItem } from "./load-item.ts"
import { takePayment } from "./take-payment.ts"

let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
let origin: string
beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
  origin = await rig.service.listen()
})
afterAll(() => rig?.stop())
beforeEach(() => on.begin())

const lower = (address: string) => address.toLowerCase() as Address
const decode = (header: unknown) => JSON.parse(Buffer.from(`${header}`, "base64").toString())
const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64")
const written = ({ authorization, signature }: Signed) => ({
  signature,
  authorization: Object.fromEntries(Object.entries(authorization).map(([name, value]) => [name, `${value}`])),
})

interface Required {
  accepts: { amount: string; payTo: Address }[]
}

/** What a client of version 2 sends for a 402. */
async function sign(buyer: PrivateKeyAccount, required: Required, given: Partial<Authorization> = {}): Promise<Signed> {
  const [{ amount, payTo } = { amount: "0", payTo: "0x" as Address }] = required.accepts
  const validBefore = BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000) + 60)
  const to = payTo.toLowerCase() as Address
  return await signAuthorization(buyer, rig.network, { to, value: BigInt(amount), validBefore, ...given })
}
const v2 = (required: Required, signed: Signed, identifier?: string) => ({
  x402Version: 2,
  accepted: required.accepts[0],
  payload: written(signed),
  ...(identifier ? { extensions: { "payment-identifier": { info: { required: false, id: identifier } } } } : {}),
})
const v1 = (signed: Signed) => ({ x402Version: 1, scheme: "exact", network: "base-sepolia", payload: written(signed) })

const get = (url: string, headers: Record<string, string> = {}) =>
  rig.service.request("GET", url, undefined, { headers })
const pay = (url: string, payload: object, headers: Record<string, string> = {}) =>
  get(url, { "payment-signature": encode(payload), ...headers })
const required = async (url: string): Promise<Required> => decode((await get(url)).headers["payment-required"])

/** A paywall for 0.50 with content, under a slug. */
async function paywall(slug = "report"): Promise<{ id: string; url: string }> {
  const body = { name: "Report", price: "0.50", slug, contentData: { text: "the content" } }
  const { body: made } = await rig.service.request("POST", "/api/console/paywalls", body, { as: "shop" })
  return { id: made.id, url: `/api/p/${slug}` }
}

const relayed = (count = 1) =>
  expect.poll(async () => (await on.relays()).length, { interval: 5, timeout: 20_000 }).toBeGreaterThanOrEqual(count)

/** Waits until this many relays are there, then lets the engine carry them out. */
async function carryOut(count = 1): Promise<void> {
  await relayed(count)
  await on.round()
}

/** Pays once and is served. */
async function bought(url: string, identifier?: string) {
  const asked = await required(url)
  const buyer = await on.buyer(5_000_000n)
  const signed = await sign(buyer, asked)
  const payload = v2(asked, signed, identifier)
  // Counted before paying, as the payment's own relay may be created at once.
  const relays = (await on.relays()).length
  const [answer] = await Promise.all([pay(url, payload), carryOut(relays + 1)])
  expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  return { answer, payload, signed, buyer }
}

const rows = async () => {
  const { rows } = await sql<{ n: number }>`select (select count(*) from payouts) + (select count(*) from settlements)
    + (select count(*) from payments) + (select count(*) from checkout_sessions) as n`.execute(rig.service.ctx.db)
  return Number(rows[0]?.n)
}

describe("a 402", () => {
  it("asks in both versions, the same each time, with an offer that anyone can check", async () => {
    const { url, id } = await paywall()
    const answer = await get(url)
    expect(answer.status).toBe(402)
    const header = decode(answer.headers["payment-required"])
    const entry = header.accepts[0]
    const { payTo } = (await get(`/api/paywalls/${id}`)).body
    expect(entry).toEqual({
      scheme: "exact",
      network: "eip155:84532",
      amount: "500000",
      asset: expect.stringMatching(new RegExp(`^${rig.token}$`, "i")),
      payTo,
      maxTimeoutSeconds: 60,
      extra: { name: "USDC", version: "2" },
    })
    expect(header.resource).toEqual({
      url: expect.stringMatching(/\/api\/p\/report$/),
      description: "Report",
      mimeType: "application/json",
    })
    const [first] = answer.body.accepts
    expect(answer.body.x402Version).toBe(1)
    expect(first).toMatchObject({
      scheme: "exact",
      network: "base-sepolia",
      maxAmountRequired: "500000",
      payTo,
      resource: header.resource.url,
    })
    expect((await required(url)).accepts).toEqual(header.accepts)

    const { signature } = header.extensions["offer-receipt"].info.offers[0]
    const { kid } = decodeProtectedHeader(signature)
    const did = (await get("/.well-known/did.json")).body
    const method = did.verificationMethod.find((each: { id: string }) => each.id === kid)
    const { payload } = await compactVerify(signature, await importJWK(method.publicKeyJwk, "ES256"))
    const offer = JSON.parse(new TextDecoder().decode(payload))
    expect(offer).toMatchObject({
      version: 1,
      amount: "500000",
      payTo,
      network: "eip155:84532",
      resourceUrl: header.resource.url,
    })
    const keys = (await get("/.well-known/jwks.json")).body
    expect(keys.keys.map((each: { kid: string }) => `${did.id}#${each.kid}`)).toContain(kid)
    expect(await rows()).toBe(0)
    // HEAD has the same headers, and takes no payment.
    const payment = encode(v2(header, await sign(await on.buyer(), header)))
    const head = await fetch(`${origin}${url}`, { method: "HEAD", headers: { "payment-signature": payment } })
    expect([head.status, decode(head.headers.get("payment-required")).accepts]).toEqual([402, header.accepts])
    expect(await rows()).toBe(0)
  })

  it("is not given for what is not there, is off, or is paused", async () => {
    const { id, url } = await paywall()
    expect((await get("/api/p/nothing-here")).body.error).toBe("LINK_NOT_FOUND")
    await checkWallet(rig.service.ctx, payoutLane(rig.network, rig.signer))
    const wallet = rig.service.ctx.db.updateTable("wallets").where("lane", "=", "payout")
    await wallet.set({ status: "halted", halted_reason: "by hand" }).execute()
    expect((await get(url)).body.error).toBe("PAYMENTS_PAUSED")
    await wallet.set({ status: "active", halted_reason: null }).execute()
    await rig.service.request("PUT", `/api/console/paywalls/${id}`, { active: false }, { as: "shop" })
    expect((await get(url)).body.error).toBe("INVALID_OPERATION")
  })
})

describe("a payment", () => {
  it("of either version buys the content once, is granted like any other, and notifies nobody", async () => {
    const { id, url } = await paywall()
    await rig.service
      .call("POST", "/api/console/webhooks", { url: "http://127.0.0.1:9/", events: ["*"] }, { as: "shop" })
      .catch(() => {})
    const { answer, signed } = await bought(url)
    const { from } = signed.authorization
    expect(answer.body).toMatchObject({
      paywallId: id,
      amount: "0.50",
      currency: "USDC",
      contentData: { text: "the content" },
    })
    const settled = decode(answer.headers["payment-response"])
    expect(settled).toMatchObject({ success: true, transaction: answer.body.txHash, network: "eip155:84532" })
    expect(settled.payer.toLowerCase()).toBe(from)
    const { signature } = settled.extensions["offer-receipt"].info.receipt
    const [{ publicKeyJwk }] = (await get("/.well-known/did.json")).body.verificationMethod
    const { payload } = await compactVerify(signature, await importJWK(publicKeyJwk, "ES256"))
    expect(JSON.parse(new TextDecoder().decode(payload))).toMatchObject({
      transaction: answer.body.txHash,
      payer: settled.payer,
    })

    const signed1 = await sign(
      await on.buyer(),
      await required(`/api/agent/paywalls/${id}/settle`).catch(() => required(url)),
    )
    const settleUrl = `/api/agent/paywalls/${id}/settle`
    const [second] = await Promise.all([
      rig.service.request("POST", settleUrl, undefined, { headers: { "x-payment": encode(v1(signed1)) } }),
      carryOut(2),
    ])
    expect(second.status, JSON.stringify(second.body)).toBe(200)
    expect(decode(second.headers["x-payment-response"])).toMatchObject({ success: true, network: "base-sepolia" })

    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    expect((await get(`/api/paywalls/${id}/verify?address=${from}`)).body.hasAccess).toBe(true)
    const { body } = await rig.service.request("GET", "/api/console/transactions?type=agent", undefined, { as: "shop" })
    expect(body.data.map((row: { amount: string; status: string }) => [row.amount, row.status])).toEqual([
      ["0.50", "granted"],
      ["0.50", "granted"],
    ])
    const events = await rig.service.ctx.db.selectFrom("events").select("type").execute()
    expect(events.filter(({ type }) => !type.startsWith("settings."))).toEqual([])
  })

  it("that fifty requests bring at once is carried out once, and served to one of them", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked))
    const [answers] = await Promise.all([Promise.all(Array.from({ length: 50 }, () => pay(url, payload))), carryOut()])
    expect(answers.filter(({ status }) => status === 200).length).toBe(1)
    // A node that takes long on a busy machine counts as silent (503); such a request writes nothing.
    const others = answers.filter(({ status }) => status !== 200 && status !== 503)
    const kinds = [...new Set(others.map(({ status, body }) => `${status} ${body.error ?? body.status}`))].sort()
    // Some requests wait for it; beyond ten they are answered at once.
    expect(kinds).toEqual(["202 settlement_pending", "409 PAYMENT_ALREADY_SERVED"])
    const hash = answers.find(({ status }) => status === 200)?.body.txHash
    for (const { status, headers } of others)
      if (status === 409) expect(decode(headers["payment-response"]).transaction).toBe(hash)
      else expect(headers["sluice-retry-token"]).toBeUndefined()
    expect(await on.received(asked.accepts[0]?.payTo as Address)).toEqual([500_000n])
  })

  it("is served again to its retry token or its identifier, and to nobody else", async () => {
    const { id, url } = await paywall()
    const identifier = "order_0123456789abcdef"
    const { answer, payload, signed, buyer } = await bought(url, identifier)
    const again = await pay(url, v2(await required(url), signed))
    expect([again.status, again.body.error]).toEqual([409, "PAYMENT_ALREADY_SERVED"])
    expect(decode(again.headers["payment-response"]).transaction).toBe(answer.body.txHash)
    const same = await pay(url, payload)
    expect(same.body).toEqual(answer.body)
    const token = `${answer.headers["sluice-retry-token"]}`
    const retried = await rig.service.request("POST", `/api/agent/paywalls/${id}/settle`, undefined, {
      headers: { "sluice-retry-token": token },
    })
    expect(retried.body.contentData).toEqual({ text: "the content" })

    const asked = await required(url)
    const other = await pay(url, v2(asked, await sign(buyer, asked), identifier))
    expect([other.status, other.body.error]).toEqual([409, "PAYMENT_IDENTIFIER_USED"])
    const [name, mac = ""] = token.split(".")
    const forged = `${name}.${mac.startsWith("A") ? "B" : "A"}${mac.slice(1)}`
    for (const wrong of [forged, "x", `set_${"a".repeat(24)}.${token.split(".")[1]}`])
      expect((await get(url, { "sluice-retry-token": wrong })).status).toBe(400)
    const { url: elsewhere } = await paywall("other")
    expect((await get(elsewhere, { "sluice-retry-token": token })).status).toBe(400)
    rig.service.advance(86_400_001)
    expect((await get(url, { "sluice-retry-token": token })).status).toBe(400)
    expect((await on.relays()).length).toBe(1)
  })

  it("buys one thing: for another paywall, or with another signature, it is refused", async () => {
    const { url } = await paywall()
    const { url: elsewhere } = await paywall("other")
    const { signed, payload } = await bought(url)
    const asked = await required(elsewhere)
    const moved = await pay(elsewhere, v2(asked, signed))
    expect([moved.status, moved.body.error]).toEqual([409, "AUTHORIZATION_ALREADY_USED"])
    const forged = { ...payload, payload: { ...written(signed), signature: `0x${"11".repeat(65)}` } }
    expect((await pay(url, forged)).body.error).toBe("AUTHORIZATION_ALREADY_USED")
  })

  it("that takes long is answered 202, and its result is found without another payment", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked))
    const pending = await pay(url, payload, { prefer: "wait=0" })
    expect([pending.status, pending.body.status]).toEqual([202, "settlement_pending"])
    expect(pending.headers["retry-after"]).toBe("2")
    const status = new URL(pending.body.statusUrl).pathname
    expect((await get(status)).body).toMatchObject({ status: "pending", txHash: null })
    // Anybody can read the payment once it is broadcast, but a stranger gets no token and is not served.
    const stranger = await pay(url, payload, { prefer: "wait=0" })
    expect([stranger.status, stranger.headers["sluice-retry-token"]]).toEqual([202, undefined])
    await on.round()
    expect((await pay(url, payload, { prefer: "wait=0" })).status).not.toBe(200)
    expect((await get(status)).body).toMatchObject({ status: "settled", txHash: expect.any(String) })
    const token = `${pending.headers["sluice-retry-token"]}`
    expect((await get(url, { "sluice-retry-token": token })).body.contentData).toEqual({ text: "the content" })
    expect((await on.relays()).length).toBe(1)
  })

  it("whose 202 was lost is served to the same payment from the same place, once, when its lease is over", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked))
    // Over a socket, as its end is what counts.
    const headers = { "payment-signature": encode(payload), prefer: "wait=0" }
    const lost = await fetch(`${origin}${url}`, { headers })
    expect(lost.status).toBe(202)
    await lost.arrayBuffer()
    await on.round()
    const early = await fetch(`${origin}${url}`, { headers })
    expect([early.status, early.headers.get("sluice-retry-token")]).toEqual([202, null])
    await forgetLease()
    const remoteAddress = "192.0.2.9"
    expect((await rig.service.call("GET", url, undefined, { headers, remoteAddress })).status).toBe(409)
    const served = await fetch(`${origin}${url}`, { headers })
    expect([served.status, await served.json()]).toMatchObject([200, { contentData: { text: "the content" } }])
    expect((await fetch(`${origin}${url}`, { headers })).status).toBe(409)
  })

  it("whose answer was lost is served to the next request with it", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked))
    const cut = httpRequest(`${origin}${url}`, { headers: { "payment-signature": encode(payload) } })
    cut.on("error", () => {})
    cut.end()
    await relayed()
    cut.destroy()
    const { db } = rig.service.ctx
    const claim = () => db.selectFrom("settlements").select("claim_id").executeTakeFirst()
    await expect.poll(claim, { timeout: 20_000 }).toEqual({ claim_id: null })
    await on.round()
    const answer = await pay(url, payload)
    expect([answer.status, answer.body.contentData]).toEqual([200, { text: "the content" }])
    expect((await pay(url, payload)).status).toBe(409)
    expect((await on.relays()).length).toBe(1)
  })

  it("that somebody else carried out is found, and served", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const buyer = await on.buyer()
    const signed = await sign(buyer, asked)
    const { from, to, value, validAfter, validBefore, nonce } = signed.authorization
    const abi = parseAbi(["function transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"])
    const answer = pay(url, v2(asked, signed))
    await relayed()
    const args = [from, to, value, validAfter, validBefore, nonce, signed.signature] as const
    const { transactionHash } = await rig.anvil.client.writeContractSync({
      address: rig.token,
      abi,
      functionName: "transferWithAuthorization",
      args,
    })
    await on.round()
    expect((await answer).body).toMatchObject({ txHash: transactionHash, contentData: { text: "the content" } })
    expect(await on.received(to)).toEqual([500_000n])
  })

  it("that somebody else carried out before its first request is not served, and its money opens the paywall to its wallet", async () => {
    const { url, id } = await paywall()
    const asked = await required(url)
    const buyer = await on.buyer()
    const signed = await sign(buyer, asked)
    await carry(signed)
    // Whoever read the signature on chain sends it first, and then its payer does.
    for (const _ of ["a stranger", "the payer"]) {
      const { status, body } = await pay(url, v2(asked, signed))
      expect([status, body.error]).toEqual([402, "invalid_exact_evm_nonce_already_used"])
      expect(body.message).toContain("its money has arrived")
    }
    expect(await on.relays()).toEqual([])
    // A transfer that names nobody counts ten minutes after its block.
    rig.service.advance(11 * 60_000)
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    await on.look()
    expect((await get(`/api/paywalls/${id}/verify?address=${buyer.address}`)).body).toMatchObject({ hasAccess: true })
  })

  it("that its wallet took back is served after all where a reorg carries it out", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const buyer = await on.buyer()
    const signed = await sign(buyer, asked)
    const { client } = rig.anvil
    await client.setAutomine(false)
    const answer = pay(url, v2(asked, signed))
    await relayed()
    await on.round()
    const before = await client.snapshot()
    const args = [
      signed.authorization.from,
      signed.authorization.nonce,
      await on.signCancel(buyer, signed.authorization),
    ] as const
    const abi = parseAbi(["function cancelAuthorization(address,bytes32,bytes)"])
    const cancel = { address: rig.token, abi, functionName: "cancelAuthorization", args } as const
    // Before the relay in its block.
    await client.writeContract({ ...cancel, gas: 200_000n, maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n })
    await client.mine({ blocks: 1 })
    await on.round()
    expect((await answer).body.error).toBe("settlement_failed")
    await client.revert({ id: before })
    await client.setAutomine(true)
    await client.mine({ blocks: 2 })
    await on.round()
    await on.round()
    expect((await on.relays()).map(({ succeeded }) => succeeded)).toEqual([true])
    const { status, body } = await pay(url, v2(asked, signed), { prefer: "wait=0" })
    expect([status, body.contentData]).toEqual([200, { text: "the content" }])
  })

  it("that its wallet took back is not served, and another may be made", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const buyer = await on.buyer()
    const signed = await sign(buyer, asked)
    const answer = pay(url, v2(asked, signed))
    await relayed()
    const abi = parseAbi(["function cancelAuthorization(address,bytes32,bytes)"])
    const args = [
      signed.authorization.from,
      signed.authorization.nonce,
      await on.signCancel(buyer, signed.authorization),
    ] as const
    await rig.anvil.client.writeContractSync({ address: rig.token, abi, functionName: "cancelAuthorization", args })
    await on.round()
    const refused = await answer
    expect([refused.status, refused.body.error]).toEqual([402, "settlement_failed"])
    const next = v2(asked, await sign(buyer, asked))
    const [bought] = await Promise.all([pay(url, next), carryOut(2)])
    expect(bought.status).toBe(200)
  })

  it("that was accepted is paid, though the paywall is switched off before its block", async () => {
    const { id, url } = await paywall()
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked))
    const [answer] = await Promise.all([
      pay(url, payload),
      (async () => {
        await vi.waitUntil(async () => (await on.relays()).length === 1)
        const off = await rig.service.request("PUT", `/api/console/paywalls/${id}`, { active: false }, { as: "shop" })
        expect(off.status).toBe(200)
        // By the chain's clock it was accepted half an hour ago, and the paywall switched off ten minutes later.
        const { timestamp } = await rig.anvil.client.getBlock()
        const ago = (minutes: number) => new Date((Number(timestamp) - minutes * 60) * 1_000)
        const { db } = rig.service.ctx
        await db
          .updateTable("settlements")
          .set({ created_at: ago(30) })
          .execute()
        await sql`update paywall_versions set from_at = ${ago(60)}, until_at = ${ago(20)} where until_at is not null`.execute(
          db,
        )
        await carryOut()
      })(),
    ])
    expect(answer.status).toBe(200)
    await on.look()
    const payments = await rig.service.ctx.db.selectFrom("payments").select(["status", "exception"]).execute()
    expect(payments).toEqual([{ status: "granted", exception: null }])
  })

  it("of an old price or address is taken for an hour after a change", async () => {
    const { id, url } = await paywall()
    const asked = await required(url)
    await rig.service.request("PUT", `/api/console/paywalls/${id}`, { price: "0.90" }, { as: "shop" })
    const payload = v2(asked, await sign(await on.buyer(), asked))
    const [answer] = await Promise.all([pay(url, payload), carryOut()])
    expect([answer.status, answer.body.amount]).toEqual([200, "0.50"])
    // One that anyone could carry out after the hour would be served, and be too little in the books.
    rig.service.advance(3_550_000)
    const over = await pay(url, v2(asked, await sign(await on.buyer(), asked)))
    expect([over.status, over.body.error]).toEqual([402, "invalid_exact_evm_payload_authorization_value"])
    expect(over.body.message).toContain("The price has changed")
    const validBefore = BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000) + 20)
    const inTime = v2(asked, await sign(await on.buyer(), asked, { validBefore }))
    expect((await pay(url, inTime, { prefer: "wait=0" })).status).toBe(202)
    rig.service.advance(50_001)
    const late = await pay(url, v2(asked, await sign(await on.buyer(), asked)))
    expect([late.status, late.body.error]).toEqual([402, "invalid_exact_evm_payload_authorization_value"])
  })
})

/** The token's calls that anyone can make with what is public. */
const tokenAbi = parseAbi([
  "function transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
  "function cancelAuthorization(address,bytes32,bytes)",
  "function transferFrom(address,address,uint256)",
  "function approve(address,uint256)",
  "function aggregate3((address target,bool allowFailure,bytes callData)[] calls) payable returns ((bool,bytes)[])",
])
const argsOf = ({ authorization: { from, to, value, validAfter, validBefore, nonce }, signature }: Signed) =>
  [from, to, value, validAfter, validBefore, nonce, signature] as const
const carry = (signed: Signed) =>
  rig.anvil.client.writeContractSync({
    address: rig.token,
    abi: tokenAbi,
    functionName: "transferWithAuthorization",
    args: argsOf(signed),
  })
const forgetLease = () =>
  sql`update settlements set lease_until = clock_timestamp() - interval '1 second'`.execute(rig.service.ctx.db)

describe("a thief", () => {
  it("who uses many nonces for nothing, beside one transfer, is served for none", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const buyer = await on.buyer()
    const signed = [await sign(buyer, asked), await sign(buyer, asked), await sign(buyer, asked)]
    const empty = await Promise.all(
      signed.map(({ authorization: { nonce, from } }) => sign(buyer, asked, { nonce, to: from, value: 0n })),
    )
    await rig.anvil.client.setBalance({ address: buyer.address, value: 10n ** 18n })
    const on3 = { abi: tokenAbi, address: rig.token } as const
    const approve = { ...on3, account: buyer, functionName: "approve", args: [MULTICALL3, 10n ** 18n] } as const
    await rig.anvil.client.writeContractSync(approve)
    const answers = signed.map(each => pay(url, v2(asked, each)))
    await relayed(3)
    const payTo = asked.accepts[0]?.payTo as Address
    const call = (callData: Hex) => ({ target: rig.token, allowFailure: false, callData })
    const calls = [
      ...empty.map(each =>
        call(encodeFunctionData({ abi: tokenAbi, functionName: "transferWithAuthorization", args: argsOf(each) })),
      ),
      call(encodeFunctionData({ abi: tokenAbi, functionName: "transferFrom", args: [buyer.address, payTo, 500_000n] })),
    ]
    await rig.anvil.client.writeContractSync({
      address: MULTICALL3,
      abi: tokenAbi,
      functionName: "aggregate3",
      args: [calls],
    })
    await on.round()
    expect((await Promise.all(answers)).map(({ body }) => body.error)).toEqual(Array(3).fill("settlement_failed"))
  })

  it("elsewhere, who repeats a payment that is public, is served neither when its buyer has gone nor later", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked))
    const headers = { "payment-signature": encode(payload), prefer: "wait=0" }
    const steal = () => rig.service.call("GET", url, undefined, { headers, remoteAddress: "192.0.2.9" })
    const cut = httpRequest(`${origin}${url}`, { headers: { "payment-signature": encode(payload) } })
    cut.on("error", () => {})
    cut.end()
    await relayed()
    await on.round()
    cut.destroy()
    expect((await steal()).body.error).toBe("PAYMENT_ALREADY_SERVED")
    await forgetLease()
    const stolen = await steal()
    expect([stolen.body.error, stolen.headers["sluice-retry-token"]]).toEqual(["PAYMENT_ALREADY_SERVED", undefined])
  })

  it("at the same place is not served after a 202 before the buyer's retry token is, and not after it", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked))
    const pending = await pay(url, payload, { prefer: "wait=0" })
    await on.round()
    expect((await pay(url, payload, { prefer: "wait=0" })).status).toBe(202)
    const token = `${pending.headers["sluice-retry-token"]}`
    expect((await get(url, { "sluice-retry-token": token })).status).toBe(200)
    // The end of an answer is recorded after the answer; until then the lease keeps others out.
    const answeredAt = () =>
      rig.service.ctx.db.selectFrom("settlements").select("answered_at").executeTakeFirstOrThrow()
    await expect.poll(async () => (await answeredAt()).answered_at).not.toBeNull()
    await forgetLease()
    expect((await pay(url, payload)).status).toBe(409)
  })
})

describe("a nonce", () => {
  it("whose first relay was cancelled comes back with what was signed now", async () => {
    const { url: dear } = await paywall("dear")
    await rig.service.request("POST", "/api/console/payment-links", { title: "Tip", slug: "tip-jar" }, { as: "shop" })
    const buyer = await on.buyer(500_000n)
    const first = await sign(buyer, await required(dear))
    const answer = pay(dear, v2(await required(dear), first))
    await relayed()
    await carry(await signAuthorization(buyer, rig.network, { to: rig.relayer.address, value: 400_000n }))
    await on.round()
    expect((await answer).body.error).toBe("settlement_failed")
    const cheap = "/api/p/tip-jar?amount=0.1"
    const asked = await required(cheap)
    const { nonce } = first.authorization
    const [second] = await Promise.all([pay(cheap, v2(asked, await sign(buyer, asked, { nonce }))), carryOut(2)])
    expect([second.status, second.body.amount]).toEqual([200, "0.10"])
    const row = await rig.service.ctx.db.selectFrom("settlements").selectAll().executeTakeFirstOrThrow()
    expect([row.amount, row.pay_to]).toEqual([100_000n, asked.accepts[0]?.payTo.toLowerCase()])
  })

  it("whose relay was cancelled, and that a checkout took since, is refused: the claim ends", async () => {
    const { url } = await paywall()
    const buyer = await on.buyer(500_000n)
    const asked = await required(url)
    const signed = await sign(buyer, asked)
    const answer = pay(url, v2(asked, signed))
    await relayed()
    await carry(await signAuthorization(buyer, rig.network, { to: rig.relayer.address, value: 500_000n }))
    await on.round()
    expect((await answer).body.error).toBe("settlement_failed")
    await rig.mint(lower(buyer.address), 6_000_000n)
    const session = await on.start()
    const { nonce } = signed.authorization
    expect((await on.submit(session, await on.sign(buyer, session, { nonce }))).status).toBe(200)
    expect((await pay(url, v2(asked, signed))).body.error).toBe("AUTHORIZATION_ALREADY_USED")
  })

  it("that its wallet cancelled while the relay was on its way has failed: its buyer may pay again at once", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const { client, accounts } = rig.anvil
    for (const isCancelled of [true, false]) {
      const buyer = await on.buyer(1_000_000n)
      const signed = await sign(buyer, asked)
      const pending = await pay(url, v2(asked, signed), { prefer: "wait=0" })
      await client.setAutomine(false)
      await on.round()
      const { from, nonce } = signed.authorization
      const fees = { maxPriorityFeePerGas: 9_000_000_000n, maxFeePerGas: 20_000_000_000n, gas: 300_000n }
      const call = { address: rig.token, abi: tokenAbi, account: accounts[5], ...fees } as const
      const cancel = [from, nonce, await on.signCancel(buyer, signed.authorization)] as const
      const other = argsOf(await sign(buyer, asked, { nonce, to: lower(rig.relayer.address) }))
      if (isCancelled) await client.writeContract({ ...call, functionName: "cancelAuthorization", args: cancel })
      else await client.writeContract({ ...call, functionName: "transferWithAuthorization", args: other })
      await client.mine({ blocks: 1 })
      await client.setAutomine(true)
      await client.mine({ blocks: 3 })
      await on.round()
      expect((await on.relays()).at(-1)?.state).toBe("reverted")
      const failed = { status: "failed", message: expect.stringContaining("Nothing was paid") }
      expect((await get(new URL(pending.body.statusUrl).pathname)).body).toMatchObject(failed)
      const refused = await pay(url, v2(asked, signed))
      expect([refused.status, refused.body.error]).toEqual([402, "settlement_failed"])
    }
  })

  it("that failed for good may be signed again, and is carried out then", async () => {
    const { url } = await paywall()
    const buyer = await on.buyer(500_000n)
    const asked = await required(url)
    const signed = await sign(buyer, asked)
    const pending = await pay(url, v2(asked, signed), { prefer: "wait=0" })
    await carry(await signAuthorization(buyer, rig.network, { to: rig.relayer.address, value: 500_000n }))
    await on.round()
    rig.service.advance(4_000_000)
    expect((await get(new URL(pending.body.statusUrl).pathname)).body.status).toBe("failed")
    const { db } = rig.service.ctx
    expect((await db.selectFrom("settlements").select("failed_at").executeTakeFirst())?.failed_at).not.toBeNull()
    await rig.mint(lower(buyer.address), 500_000n)
    const again = v2(asked, await sign(buyer, asked, { nonce: signed.authorization.nonce }))
    const [answer] = await Promise.all([pay(url, again), carryOut(2)])
    expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  })

  it("that its payer used itself after a 202 is found by the same payment, also where nodes refuse ranges beyond their head", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const signed = await sign(await on.buyer(), asked)
    const pending = await pay(url, v2(asked, signed), { prefer: "wait=0" })
    rig.proxy.spoil = (method, params, result) => {
      const { toBlock = "0x0" } = (params[0] ?? {}) as { toBlock?: string }
      if (method !== "eth_getLogs" || !toBlock.startsWith("0x") || BigInt(toBlock) < 5_000n) return result
      return failed("block range extends beyond current head block")
    }
    const { transactionHash } = await carry(signed)
    await on.round()
    expect((await pay(url, v2(asked, signed), { prefer: "wait=0" })).body.error).not.toBe(
      "invalid_exact_evm_nonce_already_used",
    )
    const token = `${pending.headers["sluice-retry-token"]}`
    expect((await get(url, { "sluice-retry-token": token })).body.txHash).toBe(transactionHash)
    // While no node answers, a transaction that was found stays found.
    rig.proxy.spoil = () => failed("down")
    expect((await get(new URL(pending.body.statusUrl).pathname)).body).toMatchObject({ status: "settled" })
  })
})

describe("a caller who leaves", () => {
  it("right after its request took the right to serve leaves it to the next request, for content and for a call", async () => {
    const { id, url } = await paywall()
    const { ctx } = rig.service
    for (const isRepeatable of [true, false]) {
      const asked = await required(url)
      const payload = v2(asked, await sign(await on.buyer(), asked))
      const { offer } = await paywallItem(ctx, id, url)
      const raw = Object.assign(new EventEmitter(), { destroyed: false })
      const leave = () => {
        raw.destroyed = true
        raw.emit("close")
      }
      // The settlement's headers are written between the two.
      const reply = { raw, headers: leave, header: () => reply } as unknown as FastifyReply
      const request = {
        ip: "127.0.0.1",
        headers: { "payment-signature": encode(payload) },
      } as unknown as FastifyRequest
      const count = (await on.relays()).length + 1
      const [paid] = await Promise.all([takePayment(ctx, request, reply, { ...offer, isRepeatable }), carryOut(count)])
      expect([paid, raw.destroyed]).toEqual([undefined, true])
      expect((await pay(url, payload)).status).toBe(200)
    }
  })
})

/** Sends what a retry token is for to a caller who leaves before it has come. */
async function cutRetry(id: string, url: string, token: string): Promise<void> {
  const raw = Object.assign(new EventEmitter(), { destroyed: false })
  const reply = { raw, headers: () => reply, header: () => reply } as unknown as FastifyReply
  const request = { ip: "127.0.0.1", headers: { "sluice-retry-token": token } } as unknown as FastifyRequest
  const { offer } = await paywallItem(rig.service.ctx, id, url)
  expect(await takePayment(rig.service.ctx, request, reply, offer)).toBeDefined()
  raw.emit("close")
}

describe("a repeated answer", () => {
  it("that is cut off does not make the payment alone good again", async () => {
    const { id, url } = await paywall()
    const { answer, payload } = await bought(url)
    const answered = () => rig.service.ctx.db.selectFrom("settlements").select("answered_at").executeTakeFirst()
    await expect.poll(async () => (await answered())?.answered_at ?? null).not.toBeNull()
    const token = `${answer.headers["sluice-retry-token"]}`
    await cutRetry(id, url, token)
    await forgetLease()
    expect((await pay(url, payload)).status).toBe(409)
    expect((await get(url, { "sluice-retry-token": token })).body).toEqual(answer.body)
  })
})

describe("what somebody else carried out", () => {
  const statusOf = async (pending: { body: { statusUrl: string } }) =>
    (await get(new URL(pending.body.statusUrl).pathname)).body
  const tokenOf = (pending: { headers: Record<string, unknown> }) => ({
    "sluice-retry-token": `${pending.headers["sluice-retry-token"]}`,
  })
  /** A payment in progress, which somebody else may carry out. */
  async function begun() {
    const { url } = await paywall()
    const asked = await required(url)
    const buyer = await on.buyer(500_000n)
    const signed = await sign(buyer, asked)
    const pending = await pay(url, v2(asked, signed), { prefer: "wait=0" })
    expect(pending.status).toBe(202)
    return { url, buyer, signed, pending }
  }

  it.each(["before", "after"])("is granted at once where the scan reads it %s it is found", async when => {
    // Other tests have moved the service's clock: ten minutes after its block a transfer counts in any case.
    rig.service.advance(Date.now() - rig.service.ctx.now().getTime())
    const { pending, signed } = await begun()
    const scan = async () => {
      await rig.anvil.client.mine({ blocks: 3 })
      await on.look()
    }
    const shown = async () => {
      const { body } = await rig.service.request("GET", "/api/console/transactions", undefined, { as: "shop" })
      return body.data.map(({ type, status }: Record<string, string>) => [type, status])
    }
    await carry(signed)
    await on.round()
    if (when === "before") await scan()
    expect((await shown()).filter(([, status]: string[]) => status === "granted")).toEqual([])
    expect((await statusOf(pending)).status).toBe("settled")
    if (when === "after") await scan()
    else await on.look()
    expect(await shown()).toEqual([["agent", "granted"]])
  })

  it("is no proof any more where a reorg made it fail", async () => {
    const { url, buyer, signed, pending } = await begun()
    const { client } = rig.anvil
    const other = privateKeyToAccount(generatePrivateKey())
    await client.setBalance({ address: other.address, value: 10n ** 18n })
    const data = encodeFunctionData({ abi: tokenAbi, functionName: "transferWithAuthorization", args: argsOf(signed) })
    const fees = { maxFeePerGas: 10n ** 11n, maxPriorityFeePerGas: 1n, chainId: 84532 }
    const raw = await other.signTransaction({ type: "eip1559", to: rig.token, data, gas: 300_000n, nonce: 0, ...fees })
    const before = await client.snapshot()
    await client.sendRawTransactionSync({ serializedTransaction: raw })
    await on.round()
    expect((await get(url, tokenOf(pending))).status).toBe(200)
    await client.revert({ id: before })
    await carry(await signAuthorization(buyer, rig.network, { to: rig.relayer.address, value: 500_000n }))
    const mined = await client.sendRawTransactionSync({ serializedTransaction: raw, throwOnReceiptRevert: false })
    expect(mined.status).toBe("reverted")
    expect(await statusOf(pending)).toMatchObject({ status: "failed", txHash: null })
    expect((await get(url, tokenOf(pending))).body.error).toBe("settlement_failed")
  })

  it("is not denied while its receipt is missing for a moment", async () => {
    const { url, signed, pending } = await begun()
    const { transactionHash } = await carry(signed)
    await on.round()
    rig.proxy.spoil = (method, _params, result) => (method === "eth_getTransactionReceipt" ? null : result)
    expect((await get(url, tokenOf(pending))).status).toBe(202)
    rig.proxy.spoil = (_method, _params, result) => result
    expect((await get(url, tokenOf(pending))).body.txHash).toBe(transactionHash)
  })

  it("is found where the scan was far behind when the payment was claimed", async () => {
    await rig.anvil.client.mine({ blocks: 2_100 })
    const { pending, signed } = await begun()
    const { transactionHash } = await carry(signed)
    await on.round()
    expect(await statusOf(pending)).toMatchObject({ status: "settled", txHash: transactionHash })
  })

  it("is asked of the chain once in a while, however often its status is asked for", async () => {
    const { url, pending, buyer } = await begun()
    await carry(await signAuthorization(buyer, rig.network, { to: rig.relayer.address, value: 500_000n }))
    await on.round()
    const asked = () => rig.proxy.calls.get("eth_getLogs") ?? 0
    const before = asked()
    const answers = await Promise.all(Array.from({ length: 20 }, () => statusOf(pending)))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set(["failed"]))
    expect(asked() - before).toBe(1)
    rig.service.advance(15_001)
    await statusOf(pending)
    expect(asked() - before).toBe(2)
    // A request to be served asks the chain again.
    expect((await get(url, tokenOf(pending))).status).toBe(402)
    expect(asked() - before).toBe(3)
  })
})

describe("an authorization without an end", () => {
  it("is carried out like any other, and its status can be read", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked, { validBefore: 2n ** 256n - 1n }))
    const pending = await pay(url, payload, { prefer: "wait=0" })
    expect([pending.status, pending.body.status]).toEqual([202, "settlement_pending"])
    await on.round()
    expect((await get(new URL(pending.body.statusUrl).pathname)).body.status).toBe("settled")
  })
})

describe("a contract wallet", () => {
  it("pays by its own word (ERC-1271), with the gas that it showed", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const owner = await on.buyer()
    const address = lower(await deployContractWallet(rig.anvil.client, owner.address))
    await rig.mint(address, 500_000n)
    const payload = v2(asked, await sign(owner, asked, { from: address }))
    const [answer] = await Promise.all([pay(url, payload), carryOut()])
    expect([answer.status, lower(answer.body.payer)]).toEqual([200, address])
  })
})

describe("what was paid", () => {
  it("is served by its retry token when the paywall is off, and sold to nobody else", async () => {
    const { id, url } = await paywall()
    const { answer } = await bought(url)
    await rig.service.request("PUT", `/api/console/paywalls/${id}`, { active: false }, { as: "shop" })
    const token = `${answer.headers["sluice-retry-token"]}`
    expect((await get(url, { "sluice-retry-token": token })).body).toEqual(answer.body)
    expect((await get(url)).body.error).toBe("INVALID_OPERATION")
  })

  it("is not served again where the merchant has revoked it", async () => {
    const { id, url } = await paywall()
    const { answer } = await bought(url)
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    const { body } = await rig.service.request("GET", `/api/console/paywalls/${id}/grants`, undefined, { as: "shop" })
    await rig.service.request("DELETE", `/api/console/paywalls/${id}/grants/${body.data[0].id}`, {}, { as: "shop" })
    const token = `${answer.headers["sluice-retry-token"]}`
    expect((await get(url, { "sluice-retry-token": token })).body.error).toBe("ACCESS_REQUIRED")
  })

  it("is served again where the process died while it answered, when its lease is over", async () => {
    const { url } = await paywall()
    const { payload } = await bought(url)
    const answered = () => rig.service.ctx.db.selectFrom("settlements").select("answered_at").executeTakeFirst()
    await expect.poll(async () => (await answered())?.answered_at ?? null).not.toBeNull()
    await sql`update settlements set answered_at = null`.execute(rig.service.ctx.db)
    const underWay = await pay(url, payload, { prefer: "wait=0" })
    expect([underWay.status, underWay.headers["sluice-retry-token"]]).toEqual([202, undefined])
    expect(underWay.body.message).toContain("repeat this one")
    await forgetLease()
    expect((await pay(url, payload)).status).toBe(200)
    await forgetLease()
    expect((await pay(url, payload)).status).toBe(409)
  })
})

describe("a refused payment", () => {
  const now = () => BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000))
  const other = `0x${"ab".repeat(20)}` as Address
  const cases: [string, string, (asked: Required) => Promise<object>][] = [
    [
      "of another scheme",
      "unsupported_scheme",
      async asked => ({ ...v1(await sign(await on.buyer(), asked)), scheme: "upto" }),
    ],
    [
      "of another network",
      "invalid_network",
      async asked => ({ ...v1(await sign(await on.buyer(), asked)), network: "base" }),
    ],
    [
      "to another address",
      "invalid_exact_evm_payload_recipient_mismatch",
      async asked => v1(await sign(await on.buyer(), asked, { to: other })),
    ],
    [
      "of less",
      "invalid_exact_evm_payload_authorization_value",
      async asked => v1(await sign(await on.buyer(), asked, { value: 499_999n })),
    ],
    [
      "of more",
      "invalid_exact_evm_payload_authorization_value",
      async asked => v1(await sign(await on.buyer(), asked, { value: 500_001n })),
    ],
    [
      "that accepted another amount",
      "invalid_payment_requirements",
      async asked => {
        const payload = v2(asked, await sign(await on.buyer(), asked))
        return { ...payload, accepted: { ...payload.accepted, amount: "1" } }
      },
    ],
    [
      "that is not valid yet",
      "invalid_exact_evm_payload_authorization_valid_after",
      async asked => v1(await sign(await on.buyer(), asked, { validAfter: now() + 60n })),
    ],
    [
      "that ends in five seconds",
      "invalid_exact_evm_payload_authorization_valid_before",
      async asked => v1(await sign(await on.buyer(), asked, { validBefore: now() + 5n })),
    ],
    [
      "with another's signature",
      "invalid_exact_evm_payload_signature",
      async asked => {
        const signed = await sign(await on.buyer(), asked, { from: other })
        return v1(signed)
      },
    ],
    [
      "of a wallet that is not deployed (ERC-6492)",
      "invalid_exact_evm_payload_signature",
      async asked => {
        const signed = await sign(await on.buyer(), asked)
        return v1({ ...signed, signature: `0x${"00".repeat(32)}${"6492".repeat(16)}` })
      },
    ],
    [
      "of a wallet that holds too little",
      "insufficient_funds",
      async asked => v1(await sign(await on.buyer(499_999n), asked)),
    ],
  ]
  it.each(cases)("%s is answered %s, and nothing is written", async (_name, reason, make) => {
    const { url } = await paywall()
    const asked = await required(url)
    const payload = await make(asked)
    const header = "accepted" in payload ? "payment-signature" : "x-payment"
    const answer = await get(url, { [header]: encode(payload) })
    expect([answer.status, answer.body.error], answer.body.message).toEqual([402, reason])
    expect(decode(answer.headers["payment-required"])).toMatchObject({ error: reason, accepts: asked.accepts })
    expect(await rows()).toBe(0)
  })

  it("that can't be read is answered 400 with every fault", async () => {
    const { url } = await paywall()
    for (const header of ["%%%", "bm90IGpzb24=", "x".repeat(17_000)])
      expect((await get(url, { "payment-signature": header })).body.error).toBe("VALIDATION_ERROR")
    const faulty = {
      x402Version: 3,
      payload: { signature: "0x1", authorization: { from: "0x1", value: 5, nonce: "0x" } },
    }
    const { status, body } = await get(url, { "payment-signature": encode(faulty) })
    expect(status).toBe(400)
    expect(body.details.map(({ path }: { path: string }) => path)).toEqual([
      "PAYMENT-SIGNATURE.x402Version",
      "PAYMENT-SIGNATURE.payload.authorization.nonce",
      "PAYMENT-SIGNATURE.payload.signature",
      "PAYMENT-SIGNATURE.scheme",
      "PAYMENT-SIGNATURE.network",
      "PAYMENT-SIGNATURE.payload.authorization.from",
      "PAYMENT-SIGNATURE.payload.authorization.to",
      "PAYMENT-SIGNATURE.payload.authorization.value",
      "PAYMENT-SIGNATURE.payload.authorization.validAfter",
      "PAYMENT-SIGNATURE.payload.authorization.validBefore",
    ])
    expect(await rows()).toBe(0)
  })

  it("is one beyond three that their wallet can't pay for, and as many as it can pay for are taken", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const claim = async (buyer: PrivateKeyAccount, count: number) => {
      const signed = await Promise.all(Array.from({ length: count }, () => sign(buyer, asked)))
      const answers = await Promise.all(signed.map(each => pay(url, v2(asked, each), { prefer: "wait=0" })))
      return answers.map(({ status, body }) => body.error ?? status).sort()
    }
    const poor = await on.buyer(1_000_000n)
    expect(await claim(poor, 8)).toEqual([...Array(5).fill(202), ...Array(3).fill("insufficient_funds")])
    expect(await claim(poor, 1)).toEqual(["insufficient_funds"])
    expect(await claim(await on.buyer(5_000_000n), 10)).toEqual(Array(10).fill(202))
    expect((await on.relays()).length).toBe(15)
  })

  it("with a forged signature has nobody screened: its address may be a stranger's", async () => {
    const { url } = await paywall()
    const file = join(mkdtempSync(join(tmpdir(), "sluice-")), "list.txt")
    writeFileSync(file, other)
    Object.assign(rig.service.ctx.settings, { sanctionsFile: file })
    try {
      const asked = await required(url)
      const forged = await pay(url, v2(asked, await sign(await on.buyer(), asked, { from: other })))
      expect([forged.status, forged.body.error]).toEqual([402, "invalid_exact_evm_payload_signature"])
    } finally {
      Object.assign(rig.service.ctx.settings, { sanctionsFile: undefined })
    }
  })

  it("is one whose nonce was used on chain", async () => {
    const { url } = await paywall()
    const asked = await required(url)
    const buyer = await on.buyer()
    const signed = await sign(buyer, asked)
    const abi = parseAbi(["function cancelAuthorization(address,bytes32,bytes)"])
    const args = [
      signed.authorization.from,
      signed.authorization.nonce,
      await on.signCancel(buyer, signed.authorization),
    ] as const
    await rig.anvil.client.writeContractSync({ address: rig.token, abi, functionName: "cancelAuthorization", args })
    expect((await pay(url, v2(asked, signed))).body.error).toBe("invalid_exact_evm_nonce_already_used")
    expect(await rows()).toBe(0)
  })
})

describe("a payment link", () => {
  it("sells a checkout of its own to each agent, with a receipt, and no event", async () => {
    const link = { title: "Donation", slug: "donate", amount: 2 }
    await rig.service.request("POST", "/api/console/payment-links", link, { as: "shop" })
    const url = "/api/p/donate"
    const { accepts } = await required(url)
    expect((await required(url)).accepts).toEqual(accepts)
    const { answer, payload } = await bought(url)
    expect(answer.body).toMatchObject({
      amount: "2.00",
      receiptUrl: expect.stringMatching(/\/receipt\/cs_/),
    })
    const token = `${answer.headers["sluice-retry-token"]}`
    expect((await get(url, { "sluice-retry-token": token })).body).toEqual(answer.body)
    expect((await pay(url, payload)).body.error).toBe("PAYMENT_ALREADY_SERVED")
    expect((await required(url)).accepts).not.toEqual(accepts)
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    expect(await on.status(answer.body.sessionId)).toMatchObject({ status: "confirmed" })
    const events = await rig.service.ctx.db.selectFrom("events").select("type").execute()
    expect(events.filter(({ type }) => !type.startsWith("settings."))).toEqual([])
  })

  it("that asks its payer for fields is not sold to an agent, even one that was asked to pay it before", async () => {
    const link = { title: "Mug", slug: "mug", amount: 2 }
    const { body } = await rig.service.request("POST", "/api/console/payment-links", link, { as: "shop" })
    const url = "/api/p/mug"
    const asked = await required(url)
    const payload = v2(asked, await sign(await on.buyer(), asked))
    const payerFields = ["name", "address"]
    await rig.service.request("PUT", `/api/console/payment-links/${body.id}`, { payerFields }, { as: "shop" })
    const sessions = () => rig.service.ctx.db.selectFrom("checkout_sessions").select("id").execute()
    const known = await sessions()
    expect(await rig.service.call("GET", url)).toMatchObject({
      status: 410,
      body: { error: "LINK_UNAVAILABLE", message: expect.stringMatching(/asks its payer for name, address.*\/p\/mug/) },
    })
    expect(await pay(url, payload)).toMatchObject({ status: 410, body: { error: "LINK_UNAVAILABLE" } })
    expect(await sessions()).toEqual(known)
    expect(await on.relays()).toEqual([])
  })

  it("with one use is paid by one of two agents, and the other keeps its money", async () => {
    const link = { title: "Ticket", slug: "one-place", amount: 2, maxUses: 1 }
    await rig.service.request("POST", "/api/console/payment-links", link, { as: "shop" })
    const url = "/api/p/one-place"
    const first = await required(url)
    const elsewhere = await rig.service.call("GET", url, undefined, { remoteAddress: "192.0.2.9" })
    const second = decode(elsewhere.headers["payment-required"]) as Required
    expect(second.accepts).not.toEqual(first.accepts)
    const payloads = [v2(first, await sign(await on.buyer(), first)), v2(second, await sign(await on.buyer(), second))]
    const [answers] = await Promise.all([Promise.all(payloads.map(payload => pay(url, payload))), carryOut(2)])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 402])
    expect((await on.relays()).map(({ state }) => state).sort()).toEqual(["cancelled", "mined"])
  })

  it("with one use is paid by who can pay: a relay whose wallet was emptied takes no place", async () => {
    const link = { title: "Ticket", slug: "last-place", amount: 2, maxUses: 1 }
    await rig.service.request("POST", "/api/console/payment-links", link, { as: "shop" })
    const url = "/api/p/last-place"
    const remoteAddress = "192.0.2.9"
    const elsewhere = (headers: Record<string, string> = {}) =>
      rig.service.call("GET", url, undefined, { remoteAddress, headers })
    const empty = await on.buyer(2_000_000n)
    const first = await required(url)
    const refused = pay(url, v2(first, await sign(empty, first)))
    await relayed(1)
    await carry(await signAuthorization(empty, rig.network, { to: rig.relayer.address, value: 2_000_000n }))
    const second = decode((await elsewhere()).headers["payment-required"]) as Required
    const payload = v2(second, await sign(await on.buyer(), second))
    const honest = elsewhere({ "payment-signature": encode(payload) })
    await relayed(2)
    await on.round()
    expect((await refused).status).toBe(402)
    await on.round()
    expect((await honest).status).toBe(200)
  })

  it("asks two agents of one place for one checkout, and is paid by the first: the other keeps its money and asks again", async () => {
    await rig.service.request(
      "POST",
      "/api/console/payment-links",
      { title: "Tip", slug: "tip-two", amount: 2 },
      { as: "shop" },
    )
    const url = "/api/p/tip-two"
    const first = await required(url)
    const second = await required(url)
    expect(second.accepts).toEqual(first.accepts)
    const payloads = [v2(first, await sign(await on.buyer(), first)), v2(second, await sign(await on.buyer(), second))]
    const [answers] = await Promise.all([Promise.all(payloads.map(payload => pay(url, payload))), carryOut(2)])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 402])
    expect(await on.received(first.accepts[0]?.payTo as Address)).toEqual([2_000_000n])
    const refused = answers.find(({ status }) => status === 402)
    const { accepts } = decode(refused?.headers["payment-required"])
    expect(accepts).not.toEqual(first.accepts)
    expect((await required(url)).accepts).toEqual(accepts)
  })

  it("sells no checkout that is over, and honours what was claimed in time", async () => {
    const made = { title: "Report", slug: "old-402", amount: 2 }
    const { body: link } = await rig.service.request("POST", "/api/console/payment-links", made, { as: "shop" })
    const url = "/api/p/old-402"
    const switchTo = (active: boolean) =>
      rig.service.request("PUT", `/api/console/payment-links/${link.id}`, { active }, { as: "shop" })
    const { db } = rig.service.ctx
    const first = await required(url)
    const claimed = v2(first, await sign(await on.buyer(), first))
    const pending = await pay(url, claimed, { prefer: "wait=0" })
    expect(pending.status).toBe(202)
    const second = await required(url)
    expect(second.accepts).not.toEqual(first.accepts)
    const late = v2(second, await sign(await on.buyer(), second))
    await switchTo(false)
    expect((await pay(url, late)).body.error).toBe("LINK_UNAVAILABLE")
    await switchTo(true)
    await sql`update checkout_sessions set expires_at = ${rig.service.ctx.now()}, created_at = created_at - interval '1 day'`.execute(
      db,
    )
    const refused = await pay(url, late)
    expect([refused.status, refused.body.error]).toEqual([402, "invalid_payment_requirements"])
    expect(decode(refused.headers["payment-required"]).accepts).not.toEqual(second.accepts)
    expect((await on.relays()).length).toBe(1)
    await switchTo(false)
    await on.round()
    expect((await get(url, { "sluice-retry-token": `${pending.headers["sluice-retry-token"]}` })).status).toBe(200)
  })

  it("has its relay signed before its checkout ends", async () => {
    await rig.service.request(
      "POST",
      "/api/console/payment-links",
      { title: "T", slug: "ends", amount: 2 },
      { as: "shop" },
    )
    const asked = await required("/api/p/ends")
    const ends = new Date(rig.service.ctx.now().getTime() + 20_000)
    await rig.service.ctx.db.updateTable("checkout_sessions").set({ expires_at: ends }).execute()
    const answer = await pay("/api/p/ends", v2(asked, await sign(await on.buyer(), asked)), { prefer: "wait=0" })
    expect(answer.status).toBe(202)
    expect((await on.relays()).map(({ relay_by }) => relay_by)).toEqual([ends])
  })

  it("asks for the amount where it leaves it open", async () => {
    await rig.service.request("POST", "/api/console/payment-links", { title: "Tip", slug: "tip-jar" }, { as: "shop" })
    expect((await get("/api/p/tip-jar")).body.error).toBe("VALIDATION_ERROR")
    expect((await required("/api/p/tip-jar?amount=3")).accepts[0]?.amount).toBe("3000000")
  })
})

describe("/.well-known/x402", () => {
  it("lists what merchants want to be found, with the prices of now", async () => {
    await paywall("hidden")
    const { id } = await paywall("found")
    await rig.service.request("PUT", `/api/console/paywalls/${id}`, { listed: true }, { as: "shop" })
    const bundle = {
      name: "Weather",
      slug: "weather",
      originUrl: "https://api.weather.example/v1",
      listed: true,
      routes: [
        { method: "GET", path: "/today", price: "0.02" },
        { method: "GET", path: "/cities", price: 0 },
        { method: "GET", path: "/at/:city", price: "0.02" },
      ],
    }
    expect((await rig.service.request("POST", "/api/console/bundles", bundle, { as: "shop" })).status).toBe(201)
    const { body } = await get("/.well-known/x402")
    expect(body.resources).toEqual([
      expect.stringMatching(/\/api\/p\/found$/),
      expect.stringMatching(/\/api\/p\/weather\/today$/),
    ])
    expect(body.items[0].accepts).toEqual((await required("/api/p/found")).accepts)
    await rig.service.request("PUT", `/api/console/paywalls/${id}`, { active: false }, { as: "shop" })
    expect((await get("/.well-known/x402")).body.resources.length).toBe(1)
  })

  it("lists something of each merchant, however much one of them lists", async () => {
    const routes = Array.from({ length: 100 }, (_, n) => ({ method: "GET", path: `/route-${n}`, price: "0.02" }))
    const list = (slug: string, routes: object[], as: string) => {
      const bundle = { name: slug, slug, originUrl: "https://api.example.com", listed: true, routes }
      return rig.service.request("POST", "/api/console/bundles", bundle, { as })
    }
    await list("early", routes.slice(0, 2), "shop")
    await rig.service.merchant("flood")
    for (let nth = 0; nth < 6; nth++) expect((await list(`flood-${nth}`, routes, "flood")).status).toBe(201)
    const { resources } = (await get("/.well-known/x402")).body as { resources: string[] }
    expect([resources.length, resources.filter(each => each.includes("/early/")).length]).toEqual([500, 2])
  })
})
