import { createServer } from "node:http"
import { exportSPKI, generateKeyPair, importJWK, SignJWT, UnsecuredJWT } from "jose"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { AUDIENCE, startIssuer } from "../../../test/issuer.ts"
import { PAYOUT_ADDRESS, paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { addressOfTerms } from "../../platform/chain/deposit-terms.ts"
import { knownEscrows } from "../../platform/chain/escrow-deployments.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { termsOf } from "../../platform/chain/release-call.ts"
import { inTransaction } from "../../platform/context.ts"
import { applyPendingPayoutAddresses, changeSettings } from "../../products/settings/change-settings.ts"
import { tokenIssuer } from "./tokens.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(() => service.empty())

const url = "/api/console/settings"
const withToken = (token: string) =>
  service.call("GET", url, undefined, { headers: { authorization: `Bearer ${token}` } })
const seconds = () => Math.floor(Date.now() / 1_000)
const merchants = () =>
  service.ctx.db
    .selectFrom("members")
    .innerJoin("persons", "persons.id", "members.person_id")
    .select(["merchant_id as id", "iss", "sub", "role"])
    .execute()

describe("a bearer token", () => {
  it("creates its merchant on first use, once, and finds it again", async () => {
    const answers = await Promise.all(
      Array.from({ length: 10 }, async () => await withToken(await service.issuer.token("alice"))),
    )
    const ids = new Set(answers.map(answer => answer.body.merchantId))
    expect(ids.size).toBe(1)
    expect(await merchants()).toMatchObject([{ iss: service.issuer.issuer, sub: "alice" }])
    expect((await withToken(await service.issuer.token("bob"))).body.merchantId).not.toBe([...ids][0])
  })

  it("is refused when it is not valid, and creates nobody", async () => {
    const { issuer } = service
    const stranger = await generateKeyPair("ES256")
    const publicKey = await importJWK(issuer.publicJwk, "ES256")
    const claims = { iss: issuer.issuer, aud: AUDIENCE, sub: "eve", exp: seconds() + 600 }
    const bad: Record<string, string> = {
      expired: await issuer.token("eve", { exp: seconds() - 120 }),
      "not yet valid": await issuer.token("eve", { nbf: seconds() + 600 }),
      "without an end": await issuer.token("eve", { exp: undefined }),
      "of another issuer": await issuer.token("eve", { iss: "https://evil.example" }),
      "for another audience": await issuer.token("eve", { aud: "other" }),
      "without a subject": await issuer.token("eve", { sub: undefined }),
      "with an empty subject": await issuer.token(""),
      "with a subject that can't be stored": await issuer.token("eve\0"),
      "signed by another key": await new SignJWT(claims)
        .setProtectedHeader({ alg: "ES256", kid: "test" })
        .sign(stranger.privateKey),
      "of an unknown key": await issuer.token("eve", {}, { kid: "other" }),
      "without a signature": new UnsecuredJWT(claims).encode(),
      "signed with the public key as a secret": await new SignJWT(claims)
        .setProtectedHeader({ alg: "HS256", kid: "test" })
        .sign(new TextEncoder().encode(await exportSPKI(publicKey as CryptoKey))),
      "with a subject longer than any": await issuer.token("e".repeat(256)),
      "of another type": await issuer.token("eve", {}, { typ: "logout+jwt" }),
      "of our own type": await issuer.token("eve", {}, { typ: "console+jwt" }),
      "an ID token": await issuer.token("eve", { at_hash: "x" }),
      "an ID token of Cognito": await issuer.token("eve", { token_use: "id" }),
      "a refresh token of Keycloak": await issuer.token("eve", { typ: "Refresh" }),
      "a logout": await issuer.token("eve", { events: {} }),
      "cut short": (await issuer.token("eve")).slice(0, -4),
      nonsense: "a.b.c",
    }
    for (const [what, token] of Object.entries(bad)) {
      const { status, body } = await withToken(token)
      expect({ what, status, error: body.error }).toEqual({ what, status: 401, error: "UNAUTHORIZED" })
    }
    for (const authorization of ["", "Bearer", "Bearer ", "Basic YTpi", `bearer x y`])
      expect((await service.call("GET", url, undefined, { headers: { authorization } })).status).toBe(401)
    expect(await merchants()).toEqual([])
  })

  it("may have any type that providers give access tokens, and a subject of 255 characters", async () => {
    for (const typ of [undefined, "JWT", "jwt", "at+jwt", "application/at+jwt"])
      expect(
        (await withToken(await service.issuer.token("a".repeat(255), {}, { ...(typ ? { typ } : {}) }))).status,
      ).toBe(200)
    expect((await withToken(await service.issuer.token("alice", { typ: "Bearer", nonce: "x" }))).status).toBe(200)
  })

  it("may be a minute old: clocks differ", async () => {
    expect((await withToken(await service.issuer.token("alice", { exp: seconds() - 30 }))).status).toBe(200)
  })

  it("is no 401 when the issuer can't be asked, but a 503 that says so", async () => {
    const dead = await startService({ settings: { oidcIssuer: "http://127.0.0.1:1" } })
    // The one at /keyless announces keys, but there are none.
    const broken = createServer(({ url }, response) => {
      const issuer = `http://127.0.0.1:${port}/keyless`
      if (url === "/keyless/.well-known/openid-configuration")
        response.end(JSON.stringify({ issuer, jwks_uri: `${issuer}/jwks` }))
      else if (url === "/keyless/jwks") response.end(JSON.stringify({ keys: "none" }))
      else if (url === "/endless/.well-known/openid-configuration") {
        const chunk = Buffer.alloc(64 * 1024, " ")
        const more = () => {
          while (!response.destroyed) if (!response.write(chunk)) return void response.once("drain", more)
        }
        more()
      } else response.writeHead(502).end()
    })
    await new Promise<void>(resolve => broken.listen(0, "127.0.0.1", resolve))
    const port = (broken.address() as { port: number }).port
    try {
      for (const issuer of [
        "http://127.0.0.1:1",
        `http://127.0.0.1:${port}`,
        `http://127.0.0.1:${port}/keyless`,
        `http://127.0.0.1:${port}/endless`,
      ])
        await expect(
          tokenIssuer(issuer, AUDIENCE).verify(await service.issuer.token("alice", { iss: issuer })),
        ).rejects.toMatchObject({
          code: "IDENTITY_UNAVAILABLE",
        })
    } finally {
      broken.close()
      await dead.stop()
    }
  })

  it("are valid by the service's time, whatever this machine's clock says", async () => {
    const { issuer } = service.issuer
    const nowMs = Date.now()
    const token = await service.issuer.token("alice", { exp: Math.floor(nowMs / 1_000) + 600 })
    const at = (ms: number) => tokenIssuer(issuer, AUDIENCE, () => new Date(nowMs + ms)).verify(token)
    expect([await at(0), await at(700_000)]).toEqual([{ iss: issuer, sub: "alice" }, undefined])
    const expired = await service.issuer.token("alice", { exp: Math.floor(nowMs / 1_000) - 600 })
    const before = tokenIssuer(issuer, AUDIENCE, () => new Date(nowMs - 700_000))
    expect(await before.verify(expired)).toEqual({ iss: issuer, sub: "alice" })
  })

  it("asks an issuer that fails once in two seconds, whatever comes, and never for who is refused in any case", async () => {
    let asked = 0
    let isFailing = true
    let jwks = "/jwks"
    const server = createServer(async ({ url: path }, response) => {
      asked++
      const issuer = `http://127.0.0.1:${port}`
      if (isFailing) response.writeHead(500).end()
      else if (path?.endsWith("openid-configuration"))
        response.end(JSON.stringify({ issuer, jwks_uri: `${issuer}${jwks}` }))
      else if (path === "/none") response.end(JSON.stringify({ keys: [] }))
      else if (path === "/gone") response.writeHead(404).end()
      else response.end(await (await fetch(`${service.issuer.issuer}/jwks`)).text())
    })
    await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
    const { port } = server.address() as { port: number }
    const issuer = `http://127.0.0.1:${port}`
    let clockMs = performance.now()
    const clock = vi.spyOn(performance, "now").mockImplementation(() => clockMs)
    try {
      const tokens = tokenIssuer(issuer, AUDIENCE)
      const token = await service.issuer.token("alice", { iss: issuer })
      const unavailable = async (given = token, isRefused = false) =>
        expect(tokens.verify(given, isRefused)).rejects.toMatchObject({ code: "IDENTITY_UNAVAILABLE" })
      for (const wrong of ["x", "a.b.c", await service.issuer.token("alice")])
        expect(await tokens.verify(wrong)).toBeUndefined()
      await unavailable(token, true)
      expect(asked).toBe(0)
      for (let n = 0; n < 5; n++) await unavailable()
      expect(asked).toBe(1)
      isFailing = false
      clockMs += 2_001
      const alice = { iss: issuer, sub: "alice" }
      expect([await tokens.verify(token), await tokens.verify(token, true)]).toEqual([alice, alice])
      expect(asked).toBe(3)

      // With keys that are known, an issuer that fails keeps nobody out whose key is one of them.
      await tokens.check?.()
      isFailing = true
      const rotated = await service.issuer.token("alice", { iss: issuer }, { kid: "new" })
      const nowMs = Date.now()
      const later = vi.spyOn(Date, "now").mockImplementation(() => nowMs + 31_000)
      asked = 0
      for (let n = 0; n < 5; n++) await unavailable(rotated)
      expect([await tokens.verify(token), await tokens.verify(token, true), asked]).toEqual([alice, alice, 1])
      later.mockRestore()

      // It may move its keys, and have none.
      isFailing = false
      for (const [path, words] of [
        ["/none", ["the list is empty"]],
        ["/gone", ["can't be used"]],
        ["/moved", []],
      ] as const) {
        jwks = path
        await tokens.check?.()
        expect(tokens.troubles?.()).toEqual(words.map(each => expect.stringContaining(each)))
        // What was known before stays good.
        expect(await tokens.verify(token)).toEqual(alice)
      }
    } finally {
      clock.mockRestore()
      server.close()
    }
  })

  it("is found through an issuer whose name ends in a slash", async () => {
    const issuer = await startIssuer("/")
    try {
      const subject = await tokenIssuer(issuer.issuer, AUDIENCE).verify(await issuer.token("alice"))
      expect(subject).toEqual({ iss: issuer.issuer, sub: "alice" })
      expect(subject?.iss).toMatch(/\/$/)
    } finally {
      await issuer.stop()
    }
  })

  it("of an uninvited subject makes no merchant where sign-up is by invitation", async () => {
    const closed = await startService({ settings: { signup: "invite" } })
    try {
      const as = "carol"
      expect(await closed.call("GET", url, undefined, { as })).toMatchObject({
        status: 403,
        body: { error: "SIGNUP_CLOSED" },
      })
      await closed.ctx.db
        .insertInto("invitations")
        .values({ iss: closed.issuer.issuer, sub: as, created_at: new Date() })
        .execute()
      expect((await closed.call("GET", url, undefined, { as })).status).toBe(200)
    } finally {
      await closed.stop()
    }
  })
})

describe("/api/console/settings", () => {
  const put = (body: unknown, as = "alice") => service.call("PUT", url, body, { as })

  it("200: empty at first, and then what was set", async () => {
    const first = (await service.call("GET", url, undefined, { as: "alice" })).body
    expect(first).toEqual({
      merchantId: expect.stringMatching(/^mer_[a-z0-9]{24}$/),
      name: "",
      email: null,
      branding: { accentColor: null, logoUrl: null },
      allowedOrigins: [],
      currency: "USD",
      walletLock: false,
      approver: "service",
      payoutAddress: null,
      payoutAddresses: {},
      pendingPayoutAddresses: {},
      gasBudget: null,
      liveListeners: false,
      timeZone: null,
      webhookSecret: expect.stringMatching(/^whsec_….{5}$/),
    })
    const said = { name: "Shop", email: "a@b.example", payoutAddress: PAYOUT_ADDRESS.toLowerCase() }
    const whole = {
      ...first,
      ...said,
      payoutAddress: PAYOUT_ADDRESS,
      payoutAddresses: { "base-sepolia": PAYOUT_ADDRESS },
    }
    expect((await put(said)).body).toEqual(whole)
    expect((await put({ email: null })).body).toEqual({ ...whole, email: null })
    expect((await put({ payoutAddresses: { "base-sepolia": PAYOUT_ADDRESS } })).body).toEqual({ ...whole, email: null })
  })

  it("another approver gives every paywall an address that commits to it; in live mode it is the wallet by default", async () => {
    const live = await startService({ settings: { mode: "live" } })
    try {
      await live.merchant("alice")
      const as = { as: "alice" }
      const made = await live.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, as)
      for (const approver of ["service", "wallet", "wallet"])
        expect((await live.call("PUT", url, { approver }, as)).body.approver).toBe(approver)
      expect((await live.call("PUT", url, { approver: "nobody" }, as)).status).toBe(400)
      const { body } = await live.call("GET", "/api/console/deposits", undefined, as)
      const owner = PAYOUT_ADDRESS
      const factory = checksummed(paperNetwork.depositFactory)
      expect(body.data.map((each: { approver: string }) => each.approver)).toEqual([owner, factory, owner])
      const { payTo } = (await live.call("GET", `/api/paywalls/${made.body.id}`)).body
      expect(payTo).toBe(body.data[0].address)
      for (const { factory, salt, owner, approver, payeesHash, openAfter, address } of body.data) {
        const terms = { owner, approver, payeesHash, openAfter: BigInt(openAfter) }
        expect(addressOfTerms(factory, salt, terms)).toBe(address.toLowerCase())
      }
    } finally {
      await live.stop()
    }
  })

  it("400 for an address that would strand money, and nothing is changed", async () => {
    const wallet = `0x${"d1".repeat(20)}` as never
    const guarded = await startService({ settings: { serviceWallets: [wallet] } })
    try {
      await guarded.merchant("alice")
      const [address, collector, refundCollector] = ["e1", "e2", "e3"].map(byte => `0x${byte.repeat(20)}` as never)
      const escrow = { address, collector, refundCollector, version: "v1.1" } as never
      guarded.ctx.chain.networks[0] = { ...paperNetwork, escrow }
      const made = await guarded.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, { as: "alice" })
      const { payTo } = (await guarded.call("GET", `/api/paywalls/${made.body.id}`)).body
      const refused = [
        `0x${"0".repeat(40)}`,
        wallet,
        paperNetwork.token.address,
        paperNetwork.depositFactory,
        address,
        collector,
        refundCollector,
        ...knownEscrows.flatMap(each => [each.address, each.collector, each.operatorRefundCollector]),
        payTo,
        "0x12",
        PAYOUT_ADDRESS.replace("E", "e"),
      ]
      for (const payoutAddress of refused) {
        const { status, body } = await guarded.call("PUT", url, { name: "changed", payoutAddress }, { as: "alice" })
        expect({ payoutAddress, status, error: body.error, path: body.details?.[0].path }).toEqual({
          payoutAddress,
          status: 400,
          error: "VALIDATION_ERROR",
          path: "payoutAddresses.base-sepolia",
        })
      }
      expect((await guarded.call("GET", url, undefined, { as: "alice" })).body).toMatchObject({
        name: "",
        payoutAddress: PAYOUT_ADDRESS,
      })
    } finally {
      await guarded.stop()
    }
  })

  it.each([
    [{ payoutAddresses: { solana: PAYOUT_ADDRESS } }, "payoutAddresses.solana"],
    [{ email: "nobody" }, "email"],
    [{ payoutAdress: PAYOUT_ADDRESS }, "payoutAdress"],
    [{ payoutAddress: null }, "payoutAddress"],
  ])("400 for %j", async (body, path) => {
    expect(await put(body)).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR", details: [{ path }] } })
  })

  it("waits 24 hours with a change in live mode, visible to its owner, and only then moves the paywalls", async () => {
    const live = await startService({ settings: { mode: "live" } })
    const other = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
    try {
      await live.merchant("alice")
      const { id } = (await live.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, { as: "alice" })).body
      const payTo = async () => (await live.call("GET", `/api/paywalls/${id}`)).body.payTo
      const before = await payTo()
      const answer = (await live.call("PUT", url, { payoutAddress: other }, { as: "alice" })).body
      expect(answer.payoutAddress).toBe(PAYOUT_ADDRESS)
      const { address, effectiveAt } = answer.pendingPayoutAddresses["base-sepolia"]
      expect(address).toBe(other)
      expect(new Date(effectiveAt).getTime() - live.ctx.now().getTime()).toBeGreaterThan(23.9 * 3_600_000)
      await inTransaction(live.ctx, applyPendingPayoutAddresses)
      // Nor does a process whose clock is two days ahead, and what one asked for that is two days behind waits as long.
      const off = (days: number) => ({ ...live.ctx, now: () => new Date(Date.now() + days * 86_400_000) })
      expect(await inTransaction(off(2), applyPendingPayoutAddresses)).toBe(0)
      expect(await payTo()).toBe(before)
      const { merchantId } = answer
      await inTransaction(off(-2), ctx =>
        changeSettings(ctx, merchantId, { payoutAddresses: { "base-sepolia": other } }),
      )
      expect(await inTransaction(live.ctx, applyPendingPayoutAddresses)).toBe(0)
      await live.ctx.db
        .updateTable("payout_addresses")
        .set({ pending_at: sql<Date>`pending_at - interval '24 hours'` })
        .execute()
      expect(await inTransaction(live.ctx, applyPendingPayoutAddresses)).toBe(1)
      expect((await live.call("GET", url, undefined, { as: "alice" })).body).toMatchObject({
        payoutAddress: other,
        pendingPayoutAddresses: {},
      })
      expect(await payTo()).not.toBe(before)
      const deposits = await live.ctx.db.selectFrom("deposits").selectAll().orderBy("id").execute()
      expect(deposits.map(deposit => deposit.owner)).toEqual([PAYOUT_ADDRESS.toLowerCase(), other.toLowerCase()])
      for (const deposit of deposits)
        expect(addressOfTerms(deposit.factory, deposit.salt, termsOf(deposit))).toBe(deposit.address)
    } finally {
      await live.stop()
    }
  })
})
