import { createLocalJWKSet, decodeProtectedHeader, generateKeyPair, jwtVerify, SignJWT } from "jose"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { BASE_URL } from "../../../test/wallet.ts"
import { unseal } from "../../platform/secrets.ts"
import { negativeCache } from "./negative-cache.ts"
import { forgetRetiredKeys, signToken, TOKEN_TYPES, verifyConsoleToken } from "./use-signing-keys.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(() => service.empty())

const HOUR = 3_600_000
const DAY = 24 * HOUR
const soon = () => new Date(Date.now() + 60_000)
const consoleToken = (more = {}) =>
  signToken(service.ctx, { typ: TOKEN_TYPES.console, aud: "sluice", sub: "eip155:1:0x1", expiresAt: soon(), ...more })
const keys = () => service.ctx.db.selectFrom("signing_keys").selectAll().orderBy("created_at", "desc").execute()
const published = async () => (await service.call("GET", "/.well-known/jwks.json")).body.keys
/** As if all keys had been created this much earlier. */
const age = (ms: number) =>
  sql`update signing_keys set created_at = created_at - make_interval(secs => ${ms / 1_000})`.execute(service.ctx.db)
const settings = (token: string) =>
  service.call("GET", "/api/console/settings", undefined, { headers: { authorization: `Bearer ${token}` } })

describe("GET /.well-known/jwks.json", () => {
  it("200: the public keys, the first one made on demand, for any origin and for five minutes", async () => {
    const { status, headers, body } = await service.call("GET", "/.well-known/jwks.json", undefined, {
      headers: { origin: "https://shop.example" },
    })
    expect(status).toBe(200)
    expect(headers).toMatchObject({ "cache-control": "public, max-age=300", "access-control-allow-origin": "*" })
    const text = expect.stringMatching(/^[\w-]{43}$/)
    expect(body).toEqual({
      keys: [{ kty: "EC", crv: "P-256", x: text, y: text, kid: text, alg: "ES256", use: "sig" }],
    })
    expect(decodeProtectedHeader(await consoleToken()).kid).toBe(body.keys[0].kid)
  })

  it("429 like every public route", async () => {
    const limited = await startService({ settings: { limits: { ...service.ctx.settings.limits, public: 1 } } })
    try {
      const ask = async () => (await limited.call("GET", "/.well-known/jwks.json")).status
      expect([await ask(), await ask()]).toEqual([200, 429])
    } finally {
      await limited.stop()
    }
  })

  it("stores the private key encrypted", async () => {
    await published()
    const [key] = await keys()
    const jwk = JSON.parse(unseal(service.ctx.settings.secretKeys, "signing-key", key?.id ?? "", key?.sealed ?? ""))
    const row = JSON.stringify(key)
    expect(jwk.d).toMatch(/^[\w-]{43}$/)
    expect(row).not.toContain(jwk.d)
    expect(row).not.toContain('"d"')
  })
})

describe("the signing keys", () => {
  it("one is created, by any number of concurrent callers", async () => {
    await Promise.all(Array.from({ length: 10 }, () => consoleToken()))
    expect(await keys()).toHaveLength(1)
  })

  it("rotate after thirty days: the next is published for an hour before it signs, the last until its tokens have expired", async () => {
    const first = decodeProtectedHeader(await consoleToken()).kid
    await age(29 * DAY)
    expect(decodeProtectedHeader(await consoleToken()).kid).toBe(first)
    expect(await published()).toHaveLength(1)

    await age(DAY)
    const old = await consoleToken()
    expect(decodeProtectedHeader(old).kid).toBe(first)
    const both = (await published()).map((key: { kid: string }) => key.kid)
    expect(both).toHaveLength(2)
    expect(both[1]).toBe(first)

    await age(HOUR)
    const fresh = await consoleToken()
    expect(decodeProtectedHeader(fresh).kid).toBe(both[0])
    for (const token of [old, fresh]) expect((await settings(token)).status).toBe(200)
    await forgetRetiredKeys(service.ctx)
    expect(await published()).toHaveLength(2)

    await age(2 * HOUR)
    await forgetRetiredKeys(service.ctx)
    expect((await published()).map((key: { kid: string }) => key.kid)).toEqual([both[0]])
    expect((await settings(old)).status).toBe(401)
    expect((await settings(fresh)).status).toBe(200)
  })

  it("sign nothing when SECRET_KEY is another, and report it", async () => {
    await consoleToken()
    const ctx = { ...service.ctx, settings: { ...service.ctx.settings, secretKeys: [new Uint8Array(32).fill(8)] } }
    const token = { typ: TOKEN_TYPES.console, aud: "sluice", sub: "a", expiresAt: soon() }
    await expect(signToken(ctx, token)).rejects.toThrow("SECRET_KEY")
  })
})

describe("a console token of ours", () => {
  it("can be verified with the published keys, and is refused when anything about it is wrong", async () => {
    const token = await consoleToken()
    const keySet = createLocalJWKSet({ keys: await published() })
    const { payload } = await jwtVerify(token, keySet, { issuer: BASE_URL, audience: "sluice", typ: "console+jwt" })
    expect(payload).toMatchObject({ sub: "eip155:1:0x1", jti: expect.any(String), iat: expect.any(Number) })
    expect((await settings(token)).status).toBe(200)

    const { kid = "" } = decodeProtectedHeader(token)
    const stranger = await generateKeyPair("ES256")
    const forged = (header: object, key: Parameters<SignJWT["sign"]>[0] = stranger.privateKey) =>
      new SignJWT({ iss: BASE_URL, aud: "sluice", sub: "eip155:1:0x1" })
        .setProtectedHeader({ alg: "ES256", typ: "console+jwt", ...header })
        .setExpirationTime("1h")
        .sign(key)
    const bad = {
      "of another type": await consoleToken({ typ: TOKEN_TYPES.paywallAccess }),
      "of no type": await consoleToken({ typ: "JWT" }),
      "for another audience": await consoleToken({ aud: "pw_1" }),
      expired: await consoleToken({ expiresAt: new Date(Date.now() - 90_000) }),
      "signed by another key": await forged({ kid }),
      "of an unknown key": await forged({ kid: "a".repeat(43) }),
      "of a key that can't be stored": await forged({ kid: "a\0" }),
      "of no key": await forged({}),
      "signed with the public key as a secret": await forged(
        { kid, alg: "HS256" },
        new TextEncoder().encode(JSON.stringify((await published())[0])),
      ),
      "cut short": token.slice(0, -3),
    }
    for (const [what, each] of Object.entries(bad)) {
      const { status, body } = await settings(each)
      expect({ what, status, error: body.error }).toEqual({ what, status: 401, error: "UNAUTHORIZED" })
    }
  })

  it.each([1, null, {}, [], true, ["a"], "", "é".repeat(43)])("401 where its key id is %j", async kid => {
    const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url")
    const claims = { iss: BASE_URL, aud: "sluice", sub: "a", exp: 9_999_999_999 }
    const token = `${part({ alg: "ES256", typ: "console+jwt", kid })}.${part(claims)}.${"A".repeat(86)}`
    expect(await settings(token)).toMatchObject({ status: 401, body: { error: "UNAUTHORIZED" } })
  })

  it("is no token of the identity provider, nor one of its tokens ours", async () => {
    const theirs = await service.issuer.token("alice", { iss: BASE_URL })
    expect((await settings(theirs)).status).toBe(401)
    expect(
      await verifyConsoleToken(
        service.ctx,
        negativeCache(),
        async () => undefined,
        await service.issuer.token("alice"),
      ),
    ).toBeUndefined()
  })

  it("is the only token for the console where the service is its own issuer", async () => {
    const alone = await startService({ settings: { oidcIssuer: BASE_URL } })
    try {
      const ask = (token: string) =>
        alone.call("GET", "/api/console/settings", undefined, { headers: { authorization: `Bearer ${token}` } })
      const token = { typ: TOKEN_TYPES.console, aud: "sluice", sub: "eip155:1:0x1", expiresAt: soon() }
      expect((await ask(await signToken(alone.ctx, token))).status).toBe(200)
      expect((await ask(await alone.issuer.token("alice"))).status).toBe(401)
      expect((await ask("a.b.c")).status).toBe(401)
    } finally {
      await alone.stop()
    }
  })
})
