/** Sign-in at an identity provider over HTTP, with the attacks on it; and what is served where the console has a host of its own. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { CLIENT } from "../../../test/issuer.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { consoleAt, goToProvider, newVisitor, signIn, type Visitor } from "../../../test/sign-in.ts"
import { openApp } from "../../app.ts"
import type { Context } from "../../platform/context.ts"

let service: TestService
let origin: string
beforeAll(async () => {
  service = await startService()
  origin = await service.listen()
  Object.assign(service.ctx.settings, consoleAt(origin))
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  Object.assign(service.issuer, { person: { sub: "ada", claims: {}, header: {} }, refusal: undefined })
})

const sessions = () => service.ctx.db.selectFrom("sessions").select(["iss", "sub", "way"]).execute()
const signIns = () => service.ctx.db.selectFrom("sign_ins").selectAll().execute()
/** What the provider's answer is answered with, by a browser that comes from there. */
async function open(visitor: Visitor, url: string): Promise<{ status: number; text: string }> {
  const answer = await visitor.fetch(url, { headers: { "sec-fetch-site": "cross-site" } })
  return { status: answer.status, text: await answer.text() }
}

describe("a sign-in at the provider", () => {
  it("ends with a session of the person, and a page that continues at the path that was wanted", async () => {
    const merchantId = await service.merchant("ada")
    const visitor = newVisitor(origin)
    const begun = await visitor.fetch("/console/sign-in?return=%2Fconsole%2Fpayments%3Fq%3D1")
    expect(begun.headers.getSetCookie()).toEqual([
      expect.stringMatching(/^sluice-dev-sign-in=\w{43}; Path=\/; Max-Age=600; HttpOnly; SameSite=Lax$/),
    ])
    const asked = new URL(begun.headers.get("location") ?? "").searchParams
    expect(Object.fromEntries(asked)).toMatchObject({
      client_id: CLIENT.id,
      redirect_uri: `${origin}/console/callback`,
      response_type: "code",
      scope: "openid email",
      code_challenge_method: "S256",
    })
    const [row] = await signIns()
    expect(JSON.stringify(row)).not.toContain(visitor.cookies.get("sluice-dev-sign-in"))
    const sent = await fetch(begun.headers.get("location") ?? "", { redirect: "manual" })
    const answer = await open(visitor, sent.headers.get("location") ?? "")
    expect(answer.status).toBe(200)
    expect(answer.text).toContain('http-equiv="refresh" content="0;url=/console/payments?q=1"')
    expect([...visitor.cookies.keys()]).toEqual(["sluice-dev"])
    expect(await sessions()).toEqual([{ iss: service.issuer.issuer, sub: "ada", way: "provider" }])
    expect(await signIns()).toEqual([])
    expect(await visitor.read("/api/console/settings")).toMatchObject({ merchantId })
    const page = await (await visitor.fetch("/console/signed-in")).text()
    expect(page).toContain("You are signed in")
    expect(page).toContain("ada")
  })

  it("is used once", async () => {
    const visitor = newVisitor(origin)
    const back = await goToProvider(visitor)
    const begun = visitor.cookies.get("sluice-dev-sign-in") ?? ""
    expect((await open(visitor, back)).status).toBe(200)
    visitor.cookies.set("sluice-dev-sign-in", begun)
    const again = await open(visitor, back)
    expect([again.status, again.text.includes("already used")]).toEqual([401, true])
    expect(await sessions()).toHaveLength(1)
  })

  it("is not finished in another browser: nobody signs a visitor in as himself", async () => {
    const attacker = newVisitor(origin)
    const victim = newVisitor(origin)
    const back = await goToProvider(attacker)
    expect((await open(victim, back)).status).toBe(401)
    const own = await goToProvider(victim)
    expect((await open(victim, back)).status).toBe(401)
    const mixed = new URL(back)
    mixed.searchParams.set("state", new URL(own).searchParams.get("state") ?? "")
    // The victim's own sign-in with the attacker's code: the verifier is another's.
    expect((await open(victim, mixed.href)).status).toBe(401)
    expect(victim.cookies.has("sluice-dev")).toBe(false)
    expect(await sessions()).toEqual([])
  })

  it("stays, where another site opens the return with a state of its own", async () => {
    const visitor = newVisitor(origin)
    const back = await goToProvider(visitor)
    for (const query of ["", "?state=x&code=y", "?state=&error=access_denied", "?state=a&state=b"])
      expect((await open(visitor, `/console/callback${query}`)).status).toBe(401)
    expect((await open(visitor, back)).status).toBe(200)
  })

  it("leads to no other site, and begins nothing by a link that would", async () => {
    for (const wanted of [
      "https://evil.example/",
      "//evil.example",
      "/\\evil.example",
      "/console/..//evil",
      "/pay/x",
      "",
    ]) {
      const answer = await open(newVisitor(origin), `/console/sign-in?return=${encodeURIComponent(wanted)}`)
      expect([wanted, answer.status]).toEqual([wanted, 400])
    }
    expect((await open(newVisitor(origin), "/console/sign-in?return=/console&return=/console")).status).toBe(400)
    expect(await signIns()).toEqual([])
    // Nor does one in the answer count.
    const visitor = newVisitor(origin)
    const answer = await open(visitor, `${await goToProvider(visitor)}&return=https%3A%2F%2Fevil.example`)
    expect(answer.text).toContain('content="0;url=/console"')
  })

  it("takes ten minutes at most", async () => {
    const visitor = newVisitor(origin)
    const back = await goToProvider(visitor)
    const [row] = await signIns()
    expect(Math.round(((row?.expires_at.getTime() ?? 0) - Date.now()) / 60_000)).toBe(10)
    await service.ctx.db.updateTable("sign_ins").set({ expires_at: new Date() }).execute()
    expect((await open(visitor, back)).status).toBe(401)
    expect(await sessions()).toEqual([])
  })

  const now = () => Math.floor(Date.now() / 1_000)
  it.each<[string, Record<string, unknown>, Record<string, string>]>([
    ["another client", { aud: "other" }, {}],
    ["another client beside ours", { aud: [CLIENT.id, "other"], azp: "other" }, {}],
    ["the API", { aud: "sluice" }, {}],
    ["another nonce", { nonce: "x" }, {}],
    ["no nonce", { nonce: undefined }, {}],
    ["another issuer", { iss: "https://evil.example" }, {}],
    ["an end in the past", { exp: 1 }, {}],
    ["no subject", { sub: undefined }, {}],
    ["a subject that can't be stored", { sub: "a\0" }, {}],
    ["a subject longer than any", { sub: "a".repeat(256) }, {}],
    ["a key that the provider does not have", {}, { kid: "other" }],
  ])("is refused with an ID token for %s", async (_what, claims, header) => {
    service.issuer.person = { sub: "ada", claims: { iat: now(), ...claims }, header }
    const visitor = newVisitor(origin)
    const answer = await open(visitor, await goToProvider(visitor))
    expect(answer.status, answer.text).toBe(401)
    expect(await sessions()).toEqual([])
    expect(visitor.cookies.has("sluice-dev")).toBe(false)
  })

  it("that the person does not finish is a sentence", async () => {
    service.issuer.refusal = { error: "access_denied", error_description: "<script>alert(1)</script>" }
    const visitor = newVisitor(origin)
    const answer = await open(visitor, await goToProvider(visitor))
    expect(answer.status).toBe(401)
    expect(answer.text).toContain("You did not finish signing in.")
    expect(answer.text).not.toContain("alert(1)")
  })

  it("is begun by no HEAD, no picture and no preload; it stores rows", async () => {
    const visitor = newVisitor(origin)
    const status = async (init: RequestInit) => (await visitor.fetch("/console/sign-in", init)).status
    expect(await status({ method: "HEAD" })).toBe(200)
    expect(await status({ headers: { "sec-fetch-dest": "image" } })).toBe(403)
    expect(await status({ headers: { "sec-fetch-dest": "iframe" } })).toBe(403)
    expect(await status({ headers: { "sec-purpose": "prefetch;prerender" } })).toBe(403)
    expect(await signIns()).toEqual([])
  })

  it("is a 503 while the provider is away, and works when it is back", async () => {
    const { oidcIssuer } = service.ctx.settings
    const away = { ...service.ctx, settings: { ...service.ctx.settings, oidcIssuer: "http://127.0.0.1:1" } } as Context
    const app = openApp(away as typeof service.ctx, { verify: async () => undefined })
    const headers = { host: new URL(origin).host }
    const begin = async () => (await app.inject({ url: "/console/sign-in", headers })).statusCode
    expect(await begin()).toBe(503)
    Object.assign(away.settings, { oidcIssuer })
    expect(await begin()).toBe(302)
    await app.close()
  })
})

describe("the page of the console", () => {
  it("offers the ways there are, and runs only scripts that it names", async () => {
    const answer = await newVisitor(origin).fetch("/console/payments?q=1")
    const text = await answer.text()
    expect(text).toContain(`Sign in with ${new URL(service.issuer.issuer).host}`)
    expect(text).toContain("/console/sign-in?return=%2Fconsole%2Fpayments%3Fq%3D1")
    expect(text.match(/class="primary"/g)).toHaveLength(1)
    const policy = answer.headers.get("content-security-policy") ?? ""
    expect(policy).toMatch(/script-src 'nonce-[\w-]{22}' 'strict-dynamic';/)
    expect(policy).not.toContain("unsafe")
    expect(answer.headers.get("cache-control")).toBe("no-store")
  })

  it("is at BASE_URL's name of this machine, and needs https where others are on the way", async () => {
    const at = async (host: string, settings: object = {}) => {
      const ctx = { ...service.ctx, settings: { ...service.ctx.settings, ...settings } }
      const app = openApp(ctx, { verify: async () => undefined })
      const { statusCode, headers, payload } = await app.inject({ url: "/console?a=1", headers: { host } })
      await app.close()
      return { statusCode, location: headers.location, needsHttps: payload.includes("needs https") }
    }
    const { port } = new URL(origin)
    expect(await at(`localhost:${port}`)).toMatchObject({ statusCode: 302, location: `${origin}/console?a=1` })
    expect(await at("192.168.0.9:4000")).toMatchObject({ statusCode: 403, needsHttps: true })
    const plain = { mode: "test", ...consoleAt("http://pay.example") }
    expect(await at("pay.example", plain)).toMatchObject({ statusCode: 403, needsHttps: true })
  })

  it("sets cookies for https alone where the console is at https", async () => {
    const url = "https://pay.example"
    const ctx = { ...service.ctx, settings: { ...service.ctx.settings, ...consoleAt(url) } }
    const app = openApp(ctx, { verify: async () => undefined })
    const { headers } = await app.inject({ url: "/console/sign-in", headers: { host: "pay.example" } })
    expect(headers["set-cookie"]).toMatch(
      /^__Host-sluice-sign-in=\w{43}; Path=\/; Max-Age=600; Secure; HttpOnly; SameSite=Lax$/,
    )
    expect(new URL(String(headers.location)).searchParams.get("redirect_uri")).toBe(`${url}/console/callback`)
    await app.close()
  })
})

it("at a host of its own, only the console is served, its cookie works only there, and it is nowhere else", async () => {
  const visitor = await signIn(origin, service.issuer, "ada")
  await service.merchant("ada")
  const secret = visitor.cookies.get("sluice-dev")
  const places = { ...consoleAt("https://console.example"), baseUrl: "https://pay.example" }
  const ctx = { ...service.ctx, settings: { ...service.ctx.settings, ...places } }
  const app = openApp(ctx, { verify: async () => undefined })
  const get = async (host: string, url: string) => {
    const headers = { host, cookie: `__Host-sluice=${secret}`, "sec-fetch-site": "same-origin", accept: "text/html" }
    return await app.inject({ url, headers })
  }
  const status = async (host: string, url: string) => (await get(host, url)).statusCode
  expect(await status("console.example", "/console")).toBe(200)
  expect(await status("console.example", "/api/console/settings")).toBe(200)
  expect(await status("pay.example", "/api/console/settings")).toBe(401)
  expect((await get("pay.example", "/console/x")).headers.location).toBe("https://console.example/console/x")
  expect(await status("evil.example", "/console")).toBe(404)
  for (const path of [
    "/api/p/x/y.js",
    "/p/x",
    "/pay/x",
    "/docs",
    "/logo/x",
    "/embed.js",
    "/api/paywalls/x",
    "/sandbox",
  ])
    expect(await status("console.example", path), path).toBe(404)
  expect(await status("console.example", "/healthz")).toBe(200)
  await app.close()
})
