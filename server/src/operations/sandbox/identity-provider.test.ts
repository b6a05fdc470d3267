// The provider as its callers meet it: over HTTP, beside other routes of the same server.
import { spawnSync } from "node:child_process"
import fastify, { type FastifyInstance } from "fastify"
import { createRemoteJWKSet, decodeJwt, type JWK, jwtVerify } from "jose"
import { afterAll, beforeAll, expect, test } from "vitest"
import { identityProvider, newSigningKey, requestToken } from "./identity-provider.ts"

const audience = "sluice"
const merchant = { clientId: "merchant_1", clientSecret: "a secret: 100%" }
const other = { clientId: "merchant_2", clientSecret: "another" }

let app: FastifyInstance
let issuer: string
let key: JWK

async function serve(): Promise<{ app: FastifyInstance; issuer: string }> {
  const app = fastify()
  app.post("/echo", async request => request.body)
  // The issuer holds the port, so the port comes first.
  const probe = fastify()
  const at = await probe.listen({ port: 0, host: "127.0.0.1" })
  await probe.close()
  const issuer = `${at}/sandbox/oidc`
  await identityProvider(app, { issuer, audience, jwks: { keys: [key] }, clients: [merchant, other] })
  await app.listen({ port: Number(new URL(at).port), host: "127.0.0.1" })
  return { app, issuer }
}

beforeAll(async () => {
  key = await newSigningKey()
  ;({ app, issuer } = await serve())
})

afterAll(async () => {
  await app.close()
})

const discovery = async (init?: RequestInit) =>
  (await (await fetch(`${issuer}/.well-known/openid-configuration`, init)).json()) as Record<string, string>

async function verify(token: string) {
  const { jwks_uri } = await discovery()
  return jwtVerify(token, createRemoteJWKSet(new URL(jwks_uri ?? "")), { issuer, audience })
}

test("discovery names the issuer and addresses under it, whatever host the caller used", async () => {
  const expected = { issuer, token_endpoint: `${issuer}/token`, jwks_uri: `${issuer}/jwks` }
  expect(await discovery()).toMatchObject(expected)
  const localhost = issuer.replace("127.0.0.1", "localhost")
  const answer = await app.inject({
    url: "/sandbox/oidc/.well-known/openid-configuration",
    headers: { host: new URL(localhost).host, "x-forwarded-host": "evil.example" },
  })
  expect(answer.json()).toMatchObject(expected)
})

test("the key set has the public part only", async () => {
  const { keys } = (await (await fetch(`${issuer}/jwks`)).json()) as { keys: JWK[] }
  const { d, ...published } = key
  expect(d).toBeTypeOf("string")
  expect(keys).toEqual([published])
})

test("a token is a JWT for the audience, of the client, good for seven days", async () => {
  const { payload, protectedHeader } = await verify(await requestToken(issuer, audience, merchant))
  expect(protectedHeader).toMatchObject({ typ: "at+jwt", alg: "ES256", kid: key.kid })
  expect(payload.sub).toBe(merchant.clientId)
  expect((payload.exp ?? 0) - (payload.iat ?? 0)).toBe(7 * 24 * 60 * 60)
  expect(decodeJwt(await requestToken(issuer, audience, other)).sub).toBe(other.clientId)
})

test("a token with a changed signature is not verified", async () => {
  const token = await requestToken(issuer, audience, merchant)
  await expect(verify(`${token.slice(0, -8)}AAAAAAAA`)).rejects.toThrow("signature")
})

test("a wrong secret, an unknown client and another audience are refused", async () => {
  await expect(requestToken(issuer, audience, { ...merchant, clientSecret: "wrong" })).rejects.toThrow(
    /401.*invalid_client/,
  )
  await expect(requestToken(issuer, audience, { ...merchant, clientId: "nobody" })).rejects.toThrow(
    /401.*invalid_client/,
  )
  await expect(requestToken(issuer, "https://elsewhere.example", merchant)).rejects.toThrow(/400.*invalid_target/)
})

test("tokens outlive a restart with the same key", async () => {
  const token = await requestToken(issuer, audience, merchant)
  await app.close()
  const old = issuer
  ;({ app, issuer } = await serve())
  const { jwks_uri } = await discovery()
  const checked = await jwtVerify(token, createRemoteJWKSet(new URL(jwks_uri ?? "")), { issuer: old, audience })
  expect(checked.payload.sub).toBe(merchant.clientId)
})

test("other routes still read their bodies, and unknown paths under the prefix are the provider's", async () => {
  const answer = await fetch(new URL("/echo", issuer), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ a: 1 }),
  })
  expect(await answer.json()).toEqual({ a: 1 })
  expect((await fetch(`${issuer}/nothing`)).status).toBe(404)
})

test("nothing is printed, neither by loading the provider nor by a token", () => {
  const source = `
    import fastify from "fastify"
    import { identityProvider, newSigningKey, requestToken } from "./identity-provider.ts"
    const app = fastify()
    const at = await app.listen({ port: 0, host: "127.0.0.1" })
    await app.close()
    const again = fastify()
    const o = { issuer: at + "/oidc", audience: "a", clients: [{ clientId: "c", clientSecret: "s" }] }
    await identityProvider(again, { ...o, jwks: { keys: [await newSigningKey()] } })
    await again.listen({ port: Number(new URL(at).port), host: "127.0.0.1" })
    await requestToken(o.issuer, o.audience, o.clients[0])
    await again.close()`
  const run = spawnSync(process.execPath, ["--input-type=module", "-e", source], {
    cwd: import.meta.dirname,
    encoding: "utf8",
  })
  expect(run).toMatchObject({ status: 0, stdout: "", stderr: "" })
})
