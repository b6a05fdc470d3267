/** Sessions over HTTP: how one begins, what its cookie opens and to whom, and how it ends. In Chromium: web/test/sessions.test.ts. */
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { contents } from "../../../test/count-writes.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { newVisitor, type Visitor } from "../../../test/sign-in.ts"
import { signMessage } from "../../../test/wallet.ts"
import { openApp } from "../../app.ts"
import type { Server } from "../../platform/http/server.ts"
import { noteSignIn } from "../identity/find-member.ts"
import { accountSecret } from "../webhooks/manage-secrets.ts"
import { forgetEnded } from "./queries.ts"
import { SESSIONS_PER_PERSON } from "./session.ts"

let service: TestService
let second: Server
let origin: string
/** A merchant of the sandbox, as its start makes them. */
const shop = { id: `mer_${"s".repeat(24)}`, name: "Blue Bottle Books" }
const rival = { id: `mer_${"r".repeat(24)}`, name: "Harbour Radio" }

beforeAll(async () => {
  service = await startService()
  origin = await service.listen()
  Object.assign(service.ctx.settings, { baseUrl: origin, consoleUrl: origin })
  second = openApp(service.ctx, { verify: async () => undefined })
  await second.ready()
})
afterAll(async () => {
  await second.close()
  await service.stop()
})
beforeEach(async () => {
  await service.empty()
  const iss = service.ctx.settings.oidcIssuer
  const { db } = service.ctx
  const created_at = new Date()
  for (const { id, name } of [shop, rival]) {
    const person_id = id.replace(/^mer_/, "per_")
    await db.insertInto("merchants").values({ id, name, email: null, created_at }).execute()
    await db.insertInto("persons").values({ id: person_id, iss, sub: id, created_at }).execute()
    await db.insertInto("members").values({ merchant_id: id, person_id, role: "owner", created_at }).execute()
    await accountSecret(service.ctx, id)
  }
})

const json = { "content-type": "application/json" }
const own = () => ({ ...json, origin })
const signInTo = (visitor: Visitor, body: object, headers: Record<string, string> = own()) =>
  visitor.fetch("/api/console/session", { method: "POST", headers, body: JSON.stringify(body) })
async function signedIn(merchantId = shop.id): Promise<Visitor> {
  const visitor = newVisitor(origin)
  const answer = await signInTo(visitor, { merchantId })
  expect(answer.status, await answer.clone().text()).toBe(201)
  return visitor
}
const sessions = () => service.ctx.db.selectFrom("sessions").selectAll().execute()
const status = async (visitor: Visitor, headers: Record<string, string> = {}, init: RequestInit = {}) =>
  (await visitor.fetch("/api/console/settings", { ...init, headers })).status

describe("a session", () => {
  it("begins with a new secret in a cookie that no script reads; only its hash is stored", async () => {
    const visitor = newVisitor(origin)
    const answer = await signInTo(visitor, { merchantId: shop.id })
    expect(answer.headers.getSetCookie()).toEqual([
      expect.stringMatching(/^sluice-dev=[0-9A-Za-z]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/),
    ])
    const secret = visitor.cookies.get("sluice-dev") ?? ""
    const body = (await answer.json()) as { createdAt: string; expiresAt: string }
    expect(body).toMatchObject({ id: expect.stringMatching(/^ses_/), way: "sandbox" })
    expect(Date.parse(body.expiresAt) - Date.parse(body.createdAt)).toBe(3_600_000)
    const [row] = await sessions()
    expect(row).toMatchObject({ sub: shop.id, iss: service.issuer.issuer, address: "127.0.0.1" })
    expect(JSON.stringify(row)).not.toContain(secret)
    expect((row?.expires_at.getTime() ?? 0) - (row?.created_at.getTime() ?? 0)).toBe(12 * 3_600_000)
    expect(await visitor.read("/api/console/settings")).toMatchObject({ merchantId: shop.id })
    // The same in another process.
    const headers = { cookie: visitor.cookie(), "sec-fetch-site": "same-origin", host: new URL(origin).host }
    expect((await second.inject({ url: "/api/console/settings", headers })).statusCode).toBe(200)
  })

  it("replaces the one that the browser had: a cookie that somebody planted is worth nothing afterwards", async () => {
    const visitor = await signedIn()
    const planted = visitor.cookies.get("sluice-dev")
    expect((await signInTo(visitor, { merchantId: rival.id })).status).toBe(201)
    expect(visitor.cookies.get("sluice-dev")).not.toBe(planted)
    expect((await sessions()).map(({ sub }) => sub)).toEqual([rival.id])
  })

  it("is by a wallet's signature too, once for each nonce, and makes no merchant", async () => {
    const account = privateKeyToAccount(generatePrivateKey())
    const visitor = newVisitor(origin)
    const { nonce } = (await service.call("POST", "/api/auth/nonce", {})).body
    const fields = { domain: new URL(origin).host, uri: `${origin}/api/auth/verify` }
    const signed = await signMessage(account, nonce, fields)
    expect((await signInTo(visitor, signed)).status).toBe(201)
    expect((await signInTo(newVisitor(origin), signed)).status).toBe(401)
    expect(await sessions()).toMatchObject([{ way: "wallet", iss: origin, sub: `eip155:84532:${account.address}` }])
    expect(await status(visitor)).toBe(400)
    expect(await visitor.read("/api/console/settings")).toMatchObject({ error: "MERCHANT_REQUIRED" })
    const merchants = await service.ctx.db.selectFrom("merchants").select("id").execute()
    expect(merchants).toHaveLength(2)
    const { body } = await service.call("POST", "/api/auth/verify", await other(account))
    expect(body.merchantId).toBeNull()
    const headers = { authorization: `Bearer ${body.accessToken}` }
    const made = (await service.call("GET", "/api/console/settings", undefined, { headers })).body
    expect(await visitor.read("/api/console/settings")).toMatchObject({ merchantId: made.merchantId })
  })
  const other = async (account: ReturnType<typeof privateKeyToAccount>) => {
    const { nonce } = (await service.call("POST", "/api/auth/nonce", {})).body
    return await signMessage(account, nonce, { domain: new URL(origin).host, uri: `${origin}/api/auth/verify` })
  }

  it("begins only from the console's own page", async () => {
    for (const from of ["https://evil.example", "null", "http://localhost:1", origin.replace("127.0.0.1", "localhost")])
      expect((await signInTo(newVisitor(origin), { merchantId: shop.id }, { ...json, origin: from })).status).toBe(403)
    expect((await signInTo(newVisitor(origin), { merchantId: shop.id }, json)).status).toBe(403)
    const bodies = [{}, { message: "x" }, { merchantId: "mer_x" }, { merchantId: `mer_${"x".repeat(24)}` }, { a: 1 }]
    for (const body of bodies) expect((await signInTo(newVisitor(origin), body)).status).toBe(400)
    expect(await sessions()).toEqual([])
  })

  it("has no sandbox's button elsewhere, nor for merchants that the sandbox did not make", async () => {
    const made = await service.merchant("somebody")
    expect((await signInTo(newVisitor(origin), { merchantId: made })).status).toBe(400)
    const { mode } = service.ctx.settings
    Object.assign(service.ctx.settings, { mode: "test" })
    expect((await signInTo(newVisitor(origin), { merchantId: shop.id })).status).toBe(400)
    Object.assign(service.ctx.settings, { mode })
    expect(await sessions()).toEqual([])
  })
})

describe("the cookie", () => {
  it("works only for the console's own pages, in browsers that say which page asks", async () => {
    const visitor = await signedIn()
    const put = { method: "PUT", body: JSON.stringify({ name: "Changed" }) }
    const asked = (site: string | undefined, init: RequestInit = {}) => {
      const headers = { ...json, ...(site === undefined ? {} : { "sec-fetch-site": site }), cookie: visitor.cookie() }
      return fetch(`${origin}/api/console/settings`, { ...init, headers }).then(answer => answer.status)
    }
    expect([await asked("same-origin"), await asked("same-origin", put)]).toEqual([200, 200])
    for (const site of ["cross-site", "same-site", "none", "", undefined]) {
      expect(await asked(site), `GET ${site}`).toBe(403)
      expect(await asked(site, put), `PUT ${site}`).toBe(403)
      expect(await asked(site, { method: "HEAD" }), `HEAD ${site}`).toBe(403)
    }
  })

  it("is no credential anywhere else, nor beside another one, nor at another name of the machine", async () => {
    const visitor = await signedIn()
    const get = async (path: string, headers: Record<string, string> = {}) =>
      (await visitor.fetch(path, { headers })).status
    for (const path of ["/api/checkouts", "/x402/settlements/x", "/metrics", "/api/subscriptions"])
      expect([401, 404], path).toContain(await get(path))
    const token = `Bearer ${await service.issuer.token("somebody")}`
    expect(await get("/api/console/settings", { authorization: "Bearer x" })).toBe(401)
    expect(await get("/api/console/settings", { "x-api-key": "sk_test_x" })).toBe(401)
    const { merchantId } = await visitor.read("/api/console/settings", { headers: { authorization: token } })
    expect(merchantId).not.toBe(shop.id)
    const at = async (host: string) => {
      const headers = { cookie: visitor.cookie(), "sec-fetch-site": "same-origin", host }
      return (await second.inject({ url: "/api/console/settings", headers })).statusCode
    }
    const { port } = new URL(origin)
    expect([await at(`127.0.0.1:${port}`), await at(`localhost:${port}`), await at("evil.example")]).toEqual([
      200, 401, 401,
    ])
  })

  it.each(["", "x", "0".repeat(43), "'; drop table sessions", `${"0".repeat(42)}é`])("%j is a 401", async value => {
    const visitor = newVisitor(origin)
    visitor.cookies.set("sluice-dev", encodeURI(value))
    expect(await status(visitor)).toBe(401)
  })

  it("sent twice is a 401, whichever is right", async () => {
    const visitor = await signedIn()
    const cookie = `${visitor.cookie()}; sluice-dev=${"0".repeat(43)}`
    expect(await status(visitor, { cookie })).toBe(401)
  })

  it("changes nothing by any GET or HEAD", async () => {
    const visitor = await signedIn()
    const paths = Object.entries(service.document.paths).flatMap(([path, item]) =>
      path.startsWith("/api/console/") && "get" in item ? [path.replaceAll(/\{\w+\}/g, "x")] : [],
    )
    expect(paths.length).toBeGreaterThan(20)
    const before = await contents(service.ctx.db)
    for (const path of paths)
      for (const method of ["GET", "HEAD"])
        expect((await visitor.fetch(path, { method })).status, `${method} ${path}`).toBeLessThan(500)
    expect(await contents(service.ctx.db)).toEqual(before)
  })
})

describe("a person in a browser", () => {
  it("accepts an invitation by the address that the provider verified at the last sign-in, and names the merchant then", async () => {
    const address = "rival@x.example"
    const { token } = (
      await service.call("POST", "/api/console/team/invitations", { email: address, role: "viewer" }, { as: shop.id })
    ).body
    const visitor = await signedIn(rival.id)
    const subject = { iss: service.ctx.settings.oidcIssuer, sub: rival.id }
    const accept = async () => {
      const body = JSON.stringify({ token })
      const answer = await visitor.fetch("/api/console/team/accept", { method: "POST", headers: own(), body })
      return { status: answer.status, ...((await answer.json()) as object) }
    }
    expect(await accept()).toMatchObject({ error: "INVITATION_REFUSED" })
    await noteSignIn(service.ctx, { ...subject, email: address })
    await noteSignIn(service.ctx, subject)
    expect(await accept()).toMatchObject({ error: "INVITATION_REFUSED" })
    await noteSignIn(service.ctx, { ...subject, email: address })
    expect(await accept()).toMatchObject({ status: 200, merchantId: shop.id, role: "viewer" })
    expect(await visitor.read("/api/console/settings")).toMatchObject({ error: "MERCHANT_REQUIRED" })
    expect(await visitor.read(`/api/console/settings?merchant=${shop.id}`)).toMatchObject({ merchantId: shop.id })
  })
})

describe("the end of a session", () => {
  const age = (column: "last_seen_at" | "expires_at", ms: number) =>
    service.ctx.db
      .updateTable("sessions")
      .set({ [column]: new Date(Date.now() - ms) })
      .execute()

  it("is an hour after its last use, which is noted once a minute", async () => {
    const visitor = await signedIn()
    await age("last_seen_at", 59 * 60_000)
    expect(await status(visitor)).toBe(200)
    const seen = (await sessions())[0]?.last_seen_at.getTime() ?? 0
    expect(Date.now() - seen).toBeLessThan(30_000)
    await status(visitor)
    expect((await sessions())[0]?.last_seen_at.getTime()).toBe(seen)
    await age("last_seen_at", 60 * 60_000)
    expect(await status(visitor)).toBe(401)
    expect((await visitor.read("/api/console/settings")).message).toContain("signed out")
  })

  it("comes although its page connects to a stream again and again by itself", async () => {
    const visitor = await signedIn()
    await age("last_seen_at", 59 * 60_000)
    const seen = (await sessions())[0]?.last_seen_at
    expect(await status(visitor, { accept: "text/event-stream" })).toBe(200)
    expect((await sessions())[0]?.last_seen_at).toEqual(seen)
  })

  it("is twelve hours after its beginning, however much it is used", async () => {
    const visitor = await signedIn()
    await age("expires_at", 0)
    expect(await status(visitor)).toBe(401)
  })

  it("is the sign-out, which a page of another origin can't cause", async () => {
    const visitor = await signedIn()
    const cookie = visitor.cookie()
    const foreign = { method: "DELETE", headers: { "sec-fetch-site": "same-site" } }
    expect((await visitor.fetch("/api/console/session", foreign)).status).toBe(403)
    const answer = await visitor.fetch("/api/console/session", { method: "DELETE" })
    expect([answer.status, await answer.json(), visitor.cookies.size]).toEqual([200, { signedOut: true }, 0])
    expect(await status(visitor, { cookie })).toBe(401)
    expect((await visitor.fetch("/api/console/session", { method: "DELETE" })).status).toBe(200)
    expect(await sessions()).toEqual([])
  })

  it("is its revocation by the person in another browser, at once, in every process; nobody else can", async () => {
    const one = await signedIn()
    const two = await signedIn()
    const stranger = await signedIn(rival.id)
    const { data } = await one.read("/api/console/sessions")
    expect(data.map(({ current }: { current: boolean }) => current)).toEqual([false, true])
    expect(JSON.stringify(data)).not.toMatch(/hash|[0-9A-Za-z]{43}/)
    const path = `/api/console/sessions/${data[0].id}`
    expect((await stranger.fetch(path, { method: "DELETE" })).status).toBe(404)
    expect(await status(two)).toBe(200)
    expect((await one.fetch(path, { method: "DELETE" })).status).toBe(200)
    const headers = { cookie: two.cookie(), "sec-fetch-site": "same-origin", host: new URL(origin).host }
    expect((await second.inject({ url: "/api/console/settings", headers })).statusCode).toBe(401)
    expect([await status(two), await status(one), await status(stranger)]).toEqual([401, 200, 200])
    expect((await one.fetch(path, { method: "DELETE" })).status).toBe(404)
  })

  it("is of the oldest where a person has too many", async () => {
    const first = await signedIn()
    for (let n = 0; n < SESSIONS_PER_PERSON; n++) await signedIn()
    expect(await sessions()).toHaveLength(SESSIONS_PER_PERSON)
    expect(await status(first)).toBe(401)
  })

  it("leaves no row: 1,000 that ended, 1,000 that were left, and 1,000 sign-ins that nobody finished", async () => {
    const kept = await signedIn()
    const now = Date.now()
    const rows = Array.from({ length: 2_000 }, (_, n) => ({
      id: `ses_${n}`,
      hash: `${n}`,
      iss: "i",
      sub: "s",
      way: "wallet" as const,
      address: null,
      user_agent: null,
      created_at: new Date(now - 43_200_000),
      last_seen_at: new Date(now - (n % 2 === 0 ? 0 : 3_600_000)),
      expires_at: new Date(now + (n % 2 === 0 ? 0 : 3_600_000)),
    }))
    await service.ctx.db.insertInto("sessions").values(rows).execute()
    const begun = Array.from({ length: 1_001 }, (_, n) => ({
      hash: `${n}`,
      state: "s",
      nonce: "n",
      verifier: "v",
      return_to: "/console",
      expires_at: new Date(n === 0 ? now + 60_000 : now),
    }))
    await service.ctx.db.insertInto("sign_ins").values(begun).execute()
    await forgetEnded(service.ctx)
    expect((await sessions()).map(({ sub }) => sub)).toEqual([shop.id])
    expect(await service.ctx.db.selectFrom("sign_ins").select("hash").execute()).toEqual([{ hash: "0" }])
    expect(await status(kept)).toBe(200)
  })
})

it("what a console must know before anyone is signed in is public, and has nothing of merchants but the sandbox's", async () => {
  await service.merchant("somebody")
  const { status, body } = await service.call("GET", "/api/console/config")
  expect(status).toBe(200)
  expect(body).toMatchObject({
    name: new URL(origin).host,
    mode: "sandbox",
    consoleUrl: origin,
    signIn: { ways: ["wallet", "sandbox"], provider: null, merchants: [rival, shop] },
    networks: [{ network: "base-sepolia", chainId: 84532, token: { symbol: "USDC", decimals: 6 } }],
  })
})
