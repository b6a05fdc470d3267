import { createServer } from "node:http"
import fc from "fast-check"
import { createRemoteJWKSet, decodeProtectedHeader, errors, jwtVerify } from "jose"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Anvil, deployContractWallet, startAnvil } from "../../../test/anvil.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { newInvoice, newRecurring, newSubscription } from "../../../test/subscriptions.ts"
import { accessFields, BASE_URL, type Fields, signInFields, signMessage } from "../../../test/wallet.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { inTransaction } from "../../platform/context.ts"
import { newId } from "../../platform/ids.ts"
import { callsOf } from "./paywall.ts"
import { accessOf, foldAccess, lockAccess } from "./read-access.ts"
import { publicPaywall } from "./submit-payment.ts"

const account = privateKeyToAccount(generatePrivateKey())
const other = privateKeyToAccount(generatePrivateKey())
const HOUR = 3_600_000

let service: TestService
let anvil: Anvil
let network: Network
let apiKey: string
let film: string

beforeAll(async () => {
  anvil = await startAnvil()
  network = { ...paperNetwork, endpoints: [newEndpoint("base-sepolia", anvil.rpcUrl)] }
  service = await startService()
})
afterAll(async () => {
  await service?.stop()
  await anvil?.stop()
})
beforeEach(async () => {
  await service.empty()
  service.ctx.chain.networks = [network]
  await service.merchant("shop")
  apiKey = await keyOf("shop")
  film = await paywall({ contentUrl: "https://secret.example/", contentData: { key: "secret" } })
})

const keyOf = async (as: string): Promise<string> =>
  (await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as })).body.key
const paywall = async (fields = {}): Promise<string> =>
  (await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5, ...fields }, { as: "shop" })).body.id
const nonceOf = async (path: string): Promise<string> => (await service.call("POST", path)).body.nonce
const accessNonce = (id: string) => nonceOf(`/api/paywalls/${id}/access/nonce`)
const verify = async (id: string, address: string = account.address) =>
  (await service.call("GET", `/api/paywalls/${id}/verify?address=${address}`)).body
const prove = (id: string, body: object, address: string = account.address) =>
  service.call("POST", `/api/paywalls/${id}/access`, { address, ...body })
const sign = async (id: string, fields: Fields = {}, by = account) =>
  await signMessage(by, await accessNonce(id), { ...accessFields(id), ...fields })
const open = async (id: string) => await prove(id, await sign(id))

/** Writes a grant as settlement does; returns its id. */
async function grant(id: string, fields: { address?: string; durationS?: bigint | null } = {}): Promise<string> {
  const { address = account.address, durationS } = fields
  return await inTransaction(service.ctx, async ctx => {
    const row = await ctx.db.selectFrom("paywalls").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
    const payer = address.toLowerCase() as never
    const now = ctx.now()
    const paid = { tx_hash: `0x${"5f".repeat(32)}` as never }
    const payment = {
      ...paid,
      id: newId("pay"),
      chain_id: 84532,
      payer,
      amount: 5n,
      status: "granted" as const,
      token: payer,
    }
    await lockAccess(ctx, id, payer)
    await ctx.db
      .insertInto("payments")
      .values({ ...payment, resource_id: id, merchant_id: row.merchant_id, created_at: now, updated_at: now })
      .execute()
    const grantId = newId("grant")
    await ctx.db
      .insertInto("grants")
      .values({
        ...paid,
        id: grantId,
        paywall_id: id,
        payment_id: payment.id,
        address: payer,
        granted_at: now,
        calls: callsOf(row.pricing_model),
        duration_s: durationS === undefined ? row.access_duration_s : durationS,
      })
      .execute()
    await foldAccess(ctx, id, payer)
    return grantId
  })
}

describe("POST /api/paywalls/:id/access/nonce", () => {
  it("200: a nonce; 404 for no paywall; 400 for a body with a field", async () => {
    const url = `/api/paywalls/${film}/access/nonce`
    const { status, body } = await service.call("POST", url)
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        nonce: expect.stringMatching(/^[0-9A-Za-z]{24}$/),
        resources: [expect.stringMatching(/^urn:sluice:paywall:pw_/)],
      },
    })
    const none = await service.call("POST", "/api/paywalls/pw_none/access/nonce")
    expect(none).toMatchObject({ status: 404, body: { error: "PAYWALL_NOT_FOUND" } })
    expect((await service.call("POST", url, { address: account.address })).status).toBe(400)
    expect(await service.ctx.db.selectFrom("nonces").selectAll().execute()).toHaveLength(1)
  })
})

describe("POST /api/paywalls/:id/access", () => {
  it("200: what was paid for, and a token of five minutes that a merchant's server can check", async () => {
    await grant(film)
    const { status, headers, body } = await open(film)
    expect({ status, cache: headers["cache-control"] }).toEqual({ status: 200, cache: "no-store" })
    expect(body).toEqual({
      accessToken: expect.any(String),
      expiresAt: expect.any(String),
      contentUrl: "https://secret.example/",
      contentData: { key: "secret" },
    })
    const lifeMs = new Date(body.expiresAt).getTime() - Date.now()
    expect(lifeMs).toBeLessThanOrEqual(300_000)
    expect(lifeMs).toBeGreaterThan(270_000)
    const { check, stop } = await merchantServer()
    try {
      const { payload } = await check(body.accessToken, film)
      expect(payload).toMatchObject({ iss: BASE_URL, aud: film, sub: `eip155:84532:${account.address}` })
      expect(new Date((payload.exp ?? 0) * 1_000).toISOString()).toBe(body.expiresAt)
      // The token of one paywall is refused by another, and so is a console token.
      await expect(check(body.accessToken, await paywall())).rejects.toThrow(errors.JWTClaimValidationFailed)
      const signedIn = await service.call(
        "POST",
        "/api/auth/verify",
        await signMessage(account, await nonceOf("/api/auth/nonce")),
      )
      expect(signedIn.status).toBe(200)
      await expect(check(signedIn.body.accessToken, film)).rejects.toThrow(errors.JWTClaimValidationFailed)
    } finally {
      stop()
    }
  })

  it("gives a token that opens no console, and takes no token for a signature", async () => {
    await grant(film)
    const { accessToken } = (await open(film)).body
    expect(decodeProtectedHeader(accessToken)).toMatchObject({ alg: "ES256", typ: "paywall-access+jwt" })
    const headers = { authorization: `Bearer ${accessToken}` }
    expect((await service.call("GET", "/api/console/settings", undefined, { headers })).status).toBe(401)
    expect((await service.call("POST", `/api/paywalls/${film}/access`, {}, { headers })).status).toBe(400)
  })

  it("gives no token that outlives the access, by whatever clock", async () => {
    service.advance(31 * 24 * HOUR)
    await grant(film, { durationS: 100n })
    service.advance(40_000)
    const { body } = await open(film)
    const lifeMs = new Date(body.expiresAt).getTime() - Date.now()
    expect(lifeMs).toBeLessThanOrEqual(60_000)
    expect(lifeMs).toBeGreaterThan(30_000)
  })

  it("403 without access, when it has ended, was revoked, or is another's; the signature is good once it is there", async () => {
    const signed = await sign(film)
    const expectNone = async () =>
      expect(await prove(film, signed)).toMatchObject({ status: 403, body: { error: "ACCESS_REQUIRED" } })
    await expectNone()
    await grant(film, { address: other.address })
    await grant(await paywall())
    await expectNone()
    const revoked = await grant(film)
    await service.call("DELETE", `/api/console/paywalls/${film}/grants/${revoked}`, undefined, { as: "shop" })
    await expectNone()
    await grant(film, { durationS: 5n })
    service.advance(5_000)
    await expectNone()
    await grant(film)
    expect((await prove(film, signed)).status).toBe(200)
  })

  it("400 for a malformed address, message or signature, and 404 for no paywall", async () => {
    await grant(film)
    const signed = await sign(film)
    for (const [fields, path] of [
      [{ address: "0x12" }, "address"],
      [{ message: "hello" }, "message"],
      [{ signature: undefined }, "signature"],
    ] as const)
      expect(await prove(film, { ...signed, ...fields })).toMatchObject({
        status: 400,
        body: { error: "VALIDATION_ERROR", details: [{ path }] },
      })
    expect(await prove("pw_none", signed)).toMatchObject({ status: 404, body: { error: "PAYWALL_NOT_FOUND" } })
    expect((await prove(film, signed)).status).toBe(200)
  })

  it("401 for another's name, and for another's signature", async () => {
    await grant(film)
    for (const body of [await sign(film, {}, other), await sign(film, { address: account.address }, other)])
      expect(await prove(film, body)).toMatchObject({ status: 401, body: { error: "SIGNATURE_REFUSED" } })
  })

  it("200 for a contract wallet that paid, and 503 while its network can't be asked", async () => {
    const contract = await deployContractWallet(anvil.client, account.address)
    await grant(film, { address: contract })
    const signed = await sign(film, { address: contract })
    service.ctx.chain.networks = [paperNetwork]
    expect(await prove(film, signed, contract)).toMatchObject({ status: 503, body: { error: "CHAIN_UNAVAILABLE" } })
    service.ctx.chain.networks = [network]
    expect((await prove(film, signed, contract)).status).toBe(200)
    const byOther = await sign(film, { address: contract }, other)
    expect((await prove(film, byOther, contract)).status).toBe(401)
  })

  it("takes a nonce once, of twenty at the same time", async () => {
    await grant(film)
    const signed = await sign(film)
    const answers = await Promise.all(Array.from({ length: 20 }, () => prove(film, signed)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(19).fill(401)])
    expect(await service.ctx.db.selectFrom("nonces").selectAll().execute()).toEqual([])
  })

  it("429 like all that is public", async () => {
    const limits = { ...service.ctx.settings.limits, public: 2 }
    const limited = await startService({ settings: { limits } })
    try {
      const statuses: number[] = []
      for (let i = 0; i < 3; i++) statuses.push((await limited.call("POST", "/api/paywalls/pw_x/access/nonce")).status)
      expect(statuses).toEqual([404, 404, 429])
    } finally {
      await limited.stop()
    }
  })
})

describe("a subscription", () => {
  const DAY = 24 * HOUR
  const inDays = (days: number) => new Date(service.ctx.now().getTime() + days * DAY)
  const change = (id: string, body: object) => service.call("PUT", `/api/console/paywalls/${id}`, body, { as: "shop" })
  const setSubscription = (id: string, values: object) =>
    service.ctx.db.updateTable("subscriptions").set(values).where("id", "=", id).execute()
  const shown = async (id: string) =>
    (await service.call("GET", `/paywall/${id}/status?address=${account.address}`)).body.accessUntil

  it("opens a paywall as long as its access lasts, for verify, the token and the page alike", async () => {
    const product = await newRecurring(service, "shop")
    const series = await paywall({ subscriptionProductId: product })
    expect(await verify(series)).toEqual({ hasAccess: false })
    const { id, sessionId } = await newSubscription(service, "shop", product, account.address)
    const session = service.ctx.db.selectFrom("checkout_sessions").select("tx_hash").where("id", "=", sessionId)
    const { tx_hash } = await session.executeTakeFirstOrThrow()
    /** When access ends, as every route reports it; null for no access. */
    const opens = async () => {
      const { hasAccess, expiresAt = null, txHash = null } = await verify(series)
      const status = (await open(series)).status
      expect([status, await shown(series), txHash]).toEqual(hasAccess ? [200, expiresAt, tx_hash] : [403, null, null])
      return expiresAt && new Date(expiresAt)
    }
    expect(await opens()).toEqual(await untilOf(id))
    expect(await verify(series, other.address)).toEqual({ hasAccess: false })
    expect(await verify(film)).toEqual({ hasAccess: false })
    // Asked for together, each is answered for itself.
    const whole = await Promise.all([series, film].map(async each => publicPaywall(service.ctx, each)))
    const asked = whole.flatMap(each => [account, other].map(({ address }) => [each, address.toLowerCase()] as const))
    const found = await Promise.all(asked.map(([each, of]) => accessOf(service.ctx, each, of as Address)))
    expect(found.map(access => access?.txHash)).toEqual([tx_hash, undefined, undefined, undefined])

    // Due, within its grace: the paid period is over, but access is not.
    await setSubscription(id, { status: "payment_due", paid_until: inDays(-1), access_until: inDays(2) })
    expect(await opens()).toEqual(await untilOf(id))
    await setSubscription(id, { status: "past_due", access_until: service.ctx.now() })
    expect(await opens()).toBeNull()
    await setSubscription(id, { status: "paused", paid_until: inDays(9), access_until: inDays(9) })
    expect(await opens()).toEqual(await untilOf(id))
    await setSubscription(id, { access_until: inDays(-1) })
    expect(await opens()).toBeNull()
    const ended = { status: "canceled", cancel_reason: "requested", ended_at: service.ctx.now() }
    await setSubscription(id, { ...ended, access_until: inDays(9) })
    expect(await opens()).toEqual(await untilOf(id))
    await setSubscription(id, { access_until: service.ctx.now() })
    expect(await opens()).toBeNull()
  })

  it("opens what was paid for last, until the product that it changed to is paid and its period begins", async () => {
    const basic = await newRecurring(service, "shop")
    const pro = await newRecurring(service, "shop", { name: "Pro" })
    const news = await paywall({ subscriptionProductId: basic })
    const archive = await paywall({ subscriptionProductId: pro })
    const opens = async () => [(await verify(news)).hasAccess, (await verify(archive)).hasAccess]
    const { id } = await newSubscription(service, "shop", basic, account.address)
    await setSubscription(id, { product_id: pro })
    const next = await newInvoice(service, "shop", id)
    expect(await opens()).toEqual([true, false])
    await service.ctx.db
      .updateTable("invoices")
      .set({ paid_at: service.ctx.now() })
      .where("id", "=", next.invoiceId)
      .execute()
    await service.ctx.db
      .updateTable("checkout_sessions")
      .set({ tx_hash: `0x${"9a".repeat(32)}` as never })
      .where("id", "=", next.sessionId)
      .execute()
    // Its period has not begun.
    expect(await opens()).toEqual([true, false])
    await service.ctx.db
      .updateTable("invoices")
      .set({ period_start: service.ctx.now() })
      .where("id", "=", next.invoiceId)
      .execute()
    expect(await opens()).toEqual([false, true])
    expect(await verify(archive)).toMatchObject({ txHash: `0x${"9a".repeat(32)}` })
    // A contract of the same address may be somebody else's on another network.
    await setSubscription(id, { chain_id: 8453 })
    expect(await opens()).toEqual([false, false])
  })

  it("gives the later of its end and a grant's, and its calls are not counted", async () => {
    const product = await newRecurring(service, "shop")
    const api = await paywall({ pricingModel: "per_call", subscriptionProductId: product })
    const consume = async () =>
      (
        await service.call(
          "POST",
          `/api/paywalls/${api}/consume`,
          { address: account.address },
          { headers: { "x-api-key": apiKey } },
        )
      ).body
    await grant(api, { durationS: 3_600n })
    const { id } = await newSubscription(service, "shop", product, account.address)
    expect(new Date((await verify(api)).expiresAt)).toEqual(await untilOf(id))
    for (let i = 0; i < 2; i++) expect(await consume()).toEqual({ allowed: true, remaining: null })
    await setSubscription(id, { access_until: new Date(service.ctx.now().getTime() + 60_000) })
    expect(new Date((await verify(api)).expiresAt).getTime()).toBeGreaterThan(service.ctx.now().getTime() + HOUR / 2)
    service.advance(61_000)
    expect([await consume(), await consume()]).toEqual([
      { allowed: true, remaining: 0 },
      { allowed: false, remaining: 0 },
    ])
  })

  it("is of the merchant's own recurring product on the paywall's network, can be changed and taken away, and is started by anyone", async () => {
    await service.merchant("rival")
    const product = await newRecurring(service, "shop")
    const once = (await service.call("POST", "/api/console/products", { name: "Book", price: 5 }, { as: "shop" })).body
    const elsewhere = await newRecurring(service, "shop")
    await service.ctx.db.updateTable("products").set({ chain_id: 8453 }).where("id", "=", elsewhere).execute()
    service.ctx.chain.networks = [network, { ...network, name: "base" as const, chainId: 8453 }]
    const refused = { status: 400, body: { error: "VALIDATION_ERROR", details: [{ path: "subscriptionProductId" }] } }
    for (const bad of [await newRecurring(service, "rival"), once.id, elsewhere, "prod_none", 7]) {
      expect(await change(film, { subscriptionProductId: bad, name: "Changed" })).toMatchObject(refused)
      const body = { name: "New", price: 5, subscriptionProductId: bad }
      expect(await service.call("POST", "/api/console/paywalls", body, { as: "shop" })).toMatchObject(refused)
    }
    const read = async () => [
      (await service.call("GET", `/api/console/paywalls/${film}`, undefined, { as: "shop" })).body,
      (await service.call("GET", `/api/paywalls/${film}`)).body,
    ]
    for (const each of await read()) expect(each).toMatchObject({ name: "Film", subscriptionProductId: null })
    const start = () => service.call("POST", `/api/paywalls/${film}/subscribe`)
    expect(await start()).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    expect((await change(film, { subscriptionProductId: product })).body).toMatchObject({
      subscriptionProductId: product,
    })
    for (const each of await read()) expect(each).toMatchObject({ subscriptionProductId: product })
    expect((await change(film, { name: "Film" })).body.subscriptionProductId).toBe(product)

    await newSubscription(service, "shop", product, account.address)
    expect((await verify(film)).hasAccess).toBe(true)
    const started = await start()
    expect(started).toMatchObject({ status: 201, body: { amount: "5.00", currency: "USDC" } })
    const session = service.ctx.db.selectFrom("checkout_sessions").selectAll().where("id", "=", started.body.sessionId)
    expect(await session.executeTakeFirst()).toMatchObject({
      product_id: product,
      redirect_url: `${BASE_URL}/paywall/${film}`,
    })
    await change(film, { active: false })
    expect(await start()).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    await change(film, { active: true })
    await service.call("PUT", `/api/console/products/${product}`, { active: false }, { as: "shop" })
    expect(await start()).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    // Subscribers keep their access. Once the paywall names no product, nobody has access by a subscription.
    expect((await verify(film)).hasAccess).toBe(true)
    expect((await change(film, { subscriptionProductId: null })).body.subscriptionProductId).toBeNull()
    expect(await verify(film)).toEqual({ hasAccess: false })
  })

  const untilOf = async (id: string) =>
    (await service.ctx.db.selectFrom("subscriptions").select("access_until").where("id", "=", id).executeTakeFirst())
      ?.access_until
})

describe("a signature for one thing", () => {
  it("is rejected elsewhere, by each part that it names", async () => {
    const series = await paywall()
    const onBase = { ...network, name: "base" as const, chainId: 8453 }
    service.ctx.chain.networks = [network, onBase]
    for (const id of [film, series]) await grant(id)
    interface Door {
      name: string
      nonce: () => Promise<string>
      fields: Fields
      open: (body: object) => Promise<{ status: number; body: unknown }>
    }
    const paywallDoor = (id: string): Door => ({
      name: id,
      nonce: () => accessNonce(id),
      fields: accessFields(id),
      open: body => prove(id, body),
    })
    const signIn: Door = {
      name: "sign-in",
      nonce: () => nonceOf("/api/auth/nonce"),
      fields: signInFields,
      open: body => service.call("POST", "/api/auth/verify", body),
    }
    const doors = [signIn, paywallDoor(film), paywallDoor(series)]
    const all = { uri: 0, resources: 0, nonce: 0 }
    for (const made of doors)
      for (const tried of doors) {
        // Every part of a message is for `made`, except the parts that an attacker got right for `tried`.
        for (const parts of subsets(Object.keys(all))) {
          const of = (part: string) => (parts.includes(part) ? tried : made)
          const fields = { ...made.fields, uri: of("uri").fields.uri, resources: of("resources").fields.resources }
          const signed = await signMessage(account, await of("nonce").nonce(), fields as Fields)
          const { status } = await tried.open(signed)
          const whole = made === tried || parts.length === 3
          expect({ made: made.name, tried: tried.name, parts, status }).toMatchObject({ status: whole ? 200 : 401 })
        }
        for (const fields of [{ domain: "evil.example" }, { domain: "127.0.0.1:4001" }, { chainId: 1 }]) {
          const signed = await signMessage(account, await tried.nonce(), { ...tried.fields, ...fields })
          expect((await tried.open(signed)).status).toBe(401)
        }
      }
    // Served, but not where the paywall is: a contract of the same address may have another owner there.
    const elsewhere = await signMessage(account, await accessNonce(film), { ...accessFields(film), chainId: 8453 })
    expect((await prove(film, elsewhere)).status).toBe(401)
    const signedIn = await signMessage(account, await signIn.nonce(), { ...signInFields, chainId: 8453 })
    expect((await signIn.open(signedIn)).status).toBe(200)
  })
})

describe("POST /api/paywalls/:id/consume", () => {
  const consume = (id: string, options: { key?: string; address?: string; headers?: Record<string, string> } = {}) => {
    const { key = apiKey, address = account.address, headers = {} } = options
    return service.call(
      "POST",
      `/api/paywalls/${id}/consume`,
      { address },
      { headers: { "x-api-key": key, ...headers } },
    )
  }
  const taken = { allowed: true, remaining: 0 }
  const none = { allowed: false, remaining: 0 }
  const grants = async (id: string) =>
    (await service.call("GET", `/api/console/paywalls/${id}/grants`, undefined, { as: "shop" })).body.data

  it("200: takes one call off a grant, and a grant that is used up is no access", async () => {
    const api = await paywall({ pricingModel: "per_call" })
    expect((await consume(api)).body).toEqual(none)
    await grant(api)
    expect(await verify(api)).toMatchObject({ hasAccess: true })
    expect((await open(api)).status).toBe(200)
    expect(await grants(api)).toMatchObject([{ calls: 1, callsUsed: 0, accessDuration: 300 }])
    expect((await consume(api)).body).toEqual(taken)
    expect(await grants(api)).toMatchObject([{ calls: 1, callsUsed: 1 }])
    expect(await verify(api)).toEqual({ hasAccess: false })
    expect((await open(api)).status).toBe(403)
    expect((await consume(api)).body).toEqual(none)
    expect((await consume(api, { address: other.address })).body).toEqual(none)
  })

  it("200: counts down over several grants, and lets a call pass with its time", async () => {
    const api = await paywall({ pricingModel: "per_call" })
    for (let i = 0; i < 3; i++) await grant(api)
    expect((await consume(api)).body).toEqual({ allowed: true, remaining: 2 })
    service.advance(899_000)
    expect((await consume(api)).body).toEqual({ allowed: true, remaining: 1 })
    service.advance(2_000)
    expect((await consume(api)).body).toEqual(none)
    await grant(api)
    expect((await consume(api)).body).toEqual(taken)
  })

  it("200: of access from before calls were counted, each payment is worth one", async () => {
    const api = await paywall({ pricingModel: "per_call" })
    for (let i = 0; i < 3; i++) await grant(api)
    // The state after the migration.
    await service.ctx.db.updateTable("access").set({ since_at: null, calls_left: 1, folded_at: null }).execute()
    for (const remaining of [2, 1, 0]) expect((await consume(api)).body).toEqual({ allowed: true, remaining })
    expect((await consume(api)).body).toEqual(none)
  })

  it("200: a revoked grant's call is gone", async () => {
    const api = await paywall({ pricingModel: "per_call" })
    const [first] = [await grant(api), await grant(api)]
    await consume(api)
    await service.call("DELETE", `/api/console/paywalls/${api}/grants/${first}`, undefined, { as: "shop" })
    expect((await consume(api)).body).toEqual(taken)
    expect((await consume(api)).body).toEqual(none)
  })

  it("200: where calls are not counted, all are allowed while access holds", async () => {
    expect((await consume(film)).body).toEqual(none)
    await grant(film, { durationS: 60n })
    for (let i = 0; i < 3; i++) expect((await consume(film)).body).toEqual({ allowed: true, remaining: null })
    expect(await verify(film)).toMatchObject({ hasAccess: true })
    service.advance(60_000)
    expect((await consume(film)).body).toEqual(none)
  })

  it("200: after access whose calls aren't counted, as many calls as were paid for since", async () => {
    const api = await paywall({ accessDuration: 300 })
    await grant(api)
    await service.call("PUT", `/api/console/paywalls/${api}`, { pricingModel: "per_call" }, { as: "shop" })
    for (let i = 0; i < 2; i++) await grant(api)
    for (let i = 0; i < 3; i++) expect((await consume(api)).body).toEqual({ allowed: true, remaining: null })
    service.advance(300_000)
    expect(await verify(api)).toMatchObject({ hasAccess: true })
    for (const remaining of [1, 0]) expect((await consume(api)).body).toEqual({ allowed: true, remaining })
    expect((await consume(api)).body).toEqual(none)
    expect(await verify(api)).toEqual({ hasAccess: false })
    expect((await grants(api)).map((each: { callsUsed: number }) => each.callsUsed).sort()).toEqual([0, 1, 1])
  })

  it("gives one call to one of twenty at the same time", async () => {
    const api = await paywall({ pricingModel: "per_call" })
    await grant(api)
    const answers = await Promise.all(Array.from({ length: 20 }, () => consume(api)))
    expect(answers.filter(({ body }) => body.allowed)).toHaveLength(1)
    expect(answers.every(({ status }) => status === 200)).toBe(true)
  })

  it("gives as many calls as were paid, whoever races for them", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 6 }),
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 0, max: 3 }),
        async (paid, racers, laterPaid) => {
          const api = await paywall({ pricingModel: "per_call" })
          for (let i = 0; i < paid; i++) await grant(api)
          const work = [
            ...Array.from({ length: racers }, () => consume(api)),
            ...Array.from({ length: laterPaid }, async () => void (await grant(api))),
          ]
          const answers = (await Promise.all(work)).filter(answer => answer !== undefined)
          const rest = await Promise.all(Array.from({ length: paid + laterPaid + 2 }, () => consume(api)))
          const allowed = [...answers, ...rest].filter(({ body }) => body.allowed)
          expect(allowed).toHaveLength(paid + laterPaid)
          const used = (await grants(api)).map((each: { callsUsed: number }) => each.callsUsed)
          expect(used).toEqual(Array(paid + laterPaid).fill(1))
          expect(await verify(api)).toEqual({ hasAccess: false })
        },
      ),
      { numRuns: 15 },
    )
  })

  it("is carried out once when it is sent again with its Idempotency-Key", async () => {
    const api = await paywall({ pricingModel: "per_call" })
    for (let i = 0; i < 2; i++) await grant(api)
    const once = () => consume(api, { headers: { "idempotency-key": "call-1" } })
    const answers = await Promise.all(Array.from({ length: 5 }, once))
    // Some may find the first one still running.
    for (const { status } of answers) expect([200, 409]).toContain(status)
    const again = await once()
    expect(again).toMatchObject({ headers: { "idempotent-replayed": "true" }, body: { allowed: true, remaining: 1 } })
    const another = { headers: { "idempotency-key": "call-1" }, address: other.address }
    expect(await consume(api, another)).toMatchObject({ status: 422, body: { error: "IDEMPOTENCY_MISMATCH" } })
    expect((await consume(api)).body).toEqual(taken)
  })

  it("400 for a malformed address, 401 without a key, 404 for another merchant's paywall and for none", async () => {
    await service.merchant("rival")
    await grant(film)
    expect(await consume(film, { address: "0x12" })).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR" } })
    expect(await consume(film, { key: "" })).toMatchObject({ status: 401, body: { error: "UNAUTHORIZED" } })
    const notFound = { status: 404, body: { error: "PAYWALL_NOT_FOUND" } }
    expect(await consume(film, { key: await keyOf("rival") })).toMatchObject(notFound)
    expect(await consume("pw_none")).toMatchObject(notFound)
    // A console token is no API key.
    const headers = { authorization: `Bearer ${await service.issuer.token("shop")}` }
    const body = { address: account.address }
    expect((await service.call("POST", `/api/paywalls/${film}/consume`, body, { headers })).status).toBe(401)
  })

  it("is for the console's origins only, as pages must not hold keys", async () => {
    const preflight = { origin: "https://shop.example", "access-control-request-method": "POST" }
    const { headers } = await service.call("GET", `/api/paywalls/${film}/consume`, undefined, {
      method: "OPTIONS",
      headers: preflight,
    })
    expect(headers["access-control-allow-origin"]).not.toBe("*")
    expect(headers["access-control-allow-origin"]).not.toBe("https://shop.example")
  })
})

const subsets = (all: string[]): string[][] =>
  Array.from({ length: 2 ** all.length }, (_, bits) => all.filter((_, i) => (bits >> i) % 2 === 1))

/** A merchant's server: it knows the service's address and its paywall's id, and asks for the keys over HTTP. */
async function merchantServer() {
  const relay = createServer((request, response) => {
    service
      .call("GET", request.url ?? "")
      .then(({ body }) => response.setHeader("content-type", "application/json").end(JSON.stringify(body)))
  })
  await new Promise<void>(resolve => relay.listen(0, "127.0.0.1", resolve))
  const { port } = relay.address() as { port: number }
  const keys = createRemoteJWKSet(new URL(`http://127.0.0.1:${port}/.well-known/jwks.json`))
  const check = (token: string, audience: string) =>
    jwtVerify(token, keys, { issuer: BASE_URL, audience, typ: "paywall-access+jwt", algorithms: ["ES256"] })
  return {
    check,
    stop: () => {
      relay.closeAllConnections()
      relay.close()
    },
  }
}
