// The pages as HTTP: what they answer, what they are allowed to load, and what they cost a visitor. The browser is in
// web/test.
import { hash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { get, type IncomingMessage } from "node:http"
import { join } from "node:path"
import { brotliDecompressSync } from "node:zlib"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { catalogues } from "../../../../web/src/i18n/all.ts"
import { en } from "../../../../web/src/i18n/en.ts"
import { languageOf } from "../../../../web/src/i18n/languages.ts"
import { amountTyped } from "../../../../web/src/ui/amounts.ts"
import { isLong } from "../../../../web/src/ui/long.ts"
import { shown } from "../../../../web/src/ui/shown.ts"
import { until } from "../../../test/e2e/program.ts"
import { noLimits, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { waitsOf } from "../../platform/http/open-waits.ts"
import { acceptsBrotli } from "./assets.ts"
import { html, httpLink } from "./html.ts"

let service: TestService
let url: string
beforeAll(async () => {
  // Builds what the pages load, unless it exists.
  await import("../../../../web/build.ts")
  service = await startService({
    settings: { limits: { ...noLimits, public: 6, linkStart: 20 }, trustedProxies: ["127.0.0.1"] },
  })
  url = await service.listen()
  await service.merchant("shop")
  const now = new Date()
  const read = { block_number: 1n, block_hash: `0x${"b1".repeat(32)}` as Hash, finalized_number: 1n, looked_at: now }
  await service.ctx.db
    .insertInto("cursors")
    .values({ chain_id: 84532, run_at: now, ...read })
    .execute()
})
afterAll(() => service.stop())

const start = async (body: object = {}): Promise<string> => {
  const made = await service.call("POST", "/api/console/checkouts", { amount: 5, ...body }, { as: "shop" })
  expect(made.status, JSON.stringify(made.body)).toBe(201)
  return made.body.id
}
/** The readable part of a page, without the data of its script. */
const bodyOf = (text: string) => text.split('<script type="application/json"')[0]
const scanned = (at: Date | null) => service.ctx.db.updateTable("cursors").set({ looked_at: at }).execute()
// A page shows no address when the network was last read too long ago, and the tests before may take long.
beforeEach(async () => {
  await scanned(new Date())
})

describe("the page of a checkout", () => {
  it("may load from its own server only, runs no inline script, and sends its address to no other", async () => {
    const answer = await fetch(`${url}/pay/${await start()}`)
    expect(answer.status).toBe(200)
    expect(answer.headers.get("content-security-policy")).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    )
    expect(answer.headers.get("referrer-policy")).toBe("no-referrer")
    expect(answer.headers.get("cache-control")).toBe("no-store")
    expect(await answer.text()).not.toMatch(/<script(?![^>]*(src=|application\/json))|style=|onclick/)
  })

  it("uses up nothing of what a visitor may ask of the API", async () => {
    const id = await start()
    for (let i = 0; i < 10; i++) {
      expect((await fetch(`${url}/pay/${id}`)).status).toBe(200)
      expect((await fetch(`${url}/pay/${id}/status`)).status).toBe(200)
    }
    const answer = await fetch(`${url}/api/pay/status/${id}`)
    expect([answer.status, answer.headers.get("x-ratelimit-remaining")]).toEqual([200, "5"])
  })

  it("is a page of its own for an unknown id, in the visitor's language, without a trace of what failed", async () => {
    const pages = ["pay", "paywall", "p", "receipt", "return"]
    const paths = pages.flatMap(page => ["cs_nothing", "%3Cscript%3E", "a".repeat(90)].map(id => `${page}/${id}`))
    for (const path of paths) {
      const answer = await fetch(`${url}/${path}`)
      const text = await answer.text()
      expect([answer.status, answer.headers.get("content-type")]).toEqual([404, "text/html; charset=utf-8"])
      expect(text).toContain("This page does not exist")
      expect(text).not.toMatch(/SESSION_NOT_FOUND|<script|\.ts:/)
    }
  })

  it("says to a browser that a path leads nowhere; other clients and all of the API get JSON", async () => {
    const ask = async (path: string, accept: string) => {
      const answer = await fetch(url + path, { headers: { accept, "x-forwarded-for": "192.0.2.8" } })
      const text = await answer.text()
      return [answer.headers.get("content-type"), /<h1[^>]*>(.*)<\/h1>/.exec(text)?.[1] ?? JSON.parse(text).error]
    }
    const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
    const malformed = ["/pay/%00", "/p/%ff", "/pay/%zz", `/pay/${"a".repeat(300)}`]
    for (const path of ["/", "/wp-login.php", "/pay", "/logo/none", "/assets/none.js", ...malformed])
      expect([path, ...(await ask(path, browser))]).toEqual([
        path,
        "text/html; charset=utf-8",
        "This page does not exist",
      ])
    expect((await ask("/?lang=de", browser))[1]).toBe("Diese Seite gibt es nicht")
    expect(await ask("/wp-login.php", "*/*")).toEqual([expect.stringMatching(/^application\/json/), "NOT_FOUND"])
    const codes = new Set<string>()
    while (!codes.has("RATE_LIMITED")) codes.add((await ask("/api/nothing", browser))[1])
    expect([...codes]).toEqual(["NOT_FOUND", "RATE_LIMITED"])
    expect((await ask("/nothing", browser))[1]).toBe("This page can&#39;t be shown right now")
  })

  it("says without a script until when to pay, in which languages it can be read, and the rest of a long text", async () => {
    const text = `${"Words about an order. ".repeat(20)}<b>`
    const id = await start({ description: text })
    const expires_at = new Date(Date.UTC(2099, 4, 6, 7, 8))
    await service.ctx.db.updateTable("checkout_sessions").set({ expires_at }).where("id", "=", id).execute()
    const body = bodyOf(await (await fetch(`${url}/pay/${id}?lang=de`)).text())
    expect(body).toContain("Zahlen Sie bis 06.05.2099, 07:08 UTC")
    expect(body).toContain(`${text.slice(0, -3)}&lt;b&gt;</bdi></p><details><summary>`)
    expect(body).toContain('<a href="?lang=fr" lang="fr" hreflang="fr">Français</a>')
    expect([isLong("Order 1001"), isLong("a\n".repeat(4)), isLong("书".repeat(72)), isLong("书".repeat(73))]).toEqual([
      false,
      true,
      false,
      true,
    ])
  })

  it("asks nobody for money while the network is not read", async () => {
    const id = await start()
    const read = async () => await (await fetch(`${url}/pay/${id}`)).text()
    expect(bodyOf(await read())).toMatch(/0x[0-9a-fA-F]{40}/)
    await scanned(null)
    const text = await read()
    await scanned(new Date())
    expect(text).toContain("We can&#39;t see the network right now")
    expect(bodyOf(text)).not.toMatch(/0x[0-9a-fA-F]{40}/)
  })

  it("is compressed for those who take brotli", async () => {
    const path = `${url}/pay/${await start()}`
    const answer = await new Promise<IncomingMessage>(resolve =>
      get(path, { headers: { "accept-encoding": "gzip, br" } }, resolve),
    )
    expect(answer.headers["content-encoding"]).toBe("br")
    const parts: Buffer[] = []
    for await (const part of answer) parts.push(part as Buffer)
    expect(brotliDecompressSync(Buffer.concat(parts)).toString()).toContain("<!doctype html>")
    expect(["br", "gzip, br;q=0.5", "br;q=0", "gzip", "brotli", undefined].map(acceptsBrotli)).toEqual([
      true,
      true,
      false,
      false,
      false,
      false,
    ])
  })
})

describe("the other pages", () => {
  const make = (path: string, body: object) => service.call("POST", path, body, { as: "shop" })

  it("a paywall shows its price and address, and nothing that has to be paid for", async () => {
    const film = { name: "Film <b>", price: 5, contentUrl: "https://secret.example/", contentData: { code: "secret" } }
    const { body } = await make("/api/console/paywalls", film)
    const text = await (await fetch(`${url}/paywall/${body.id}`)).text()
    expect(bodyOf(text)).toMatch(/Film &lt;b&gt;.*5\.00.*0x[0-9a-fA-F]{40}/s)
    expect(text).not.toContain("secret")
  })

  it("a slug of a paywall leads to its page, and a link that is over says so", async () => {
    const { body: paywall } = await make("/api/console/paywalls", { name: "Film", price: 5, slug: "film" })
    const answer = await fetch(`${url}/p/film`, { redirect: "manual" })
    expect([answer.status, answer.headers.get("location")]).toEqual([302, `/paywall/${paywall.id}`])
    const german = await fetch(`${url}/p/film?lang=de`, { redirect: "manual" })
    expect(german.headers.get("location")).toBe(`/paywall/${paywall.id}?lang=de`)
    const { body: link } = await make("/api/console/payment-links", { title: "Gift", amount: 5, slug: "gift" })
    expect(await (await fetch(`${url}/p/gift`)).text()).toContain("Gift")
    await service.call("PUT", `/api/console/payment-links/${link.id}`, { active: false }, { as: "shop" })
    expect(await (await fetch(`${url}/p/gift`)).text()).toContain("This link is not available")
  })
})

describe("a merchant's branding", () => {
  const png =
    "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAYAAACddGYaAAAAEklEQVR4AWLa4ir/H4aZGJAAAAAA//+SrePiAAAABklEQVQDAHmRBkqc11m3AAAAAElFTkSuQmCC"
  const change = (body: object) => service.call("PUT", "/api/console/settings", body, { as: "shop" })
  const policyOf = async (path: string) =>
    Object.fromEntries(
      ((await fetch(`${url}${path}`)).headers.get("content-security-policy") ?? "")
        .split("; ")
        .map(part => [part.split(" ", 1)[0], part.slice(part.indexOf(" ") + 1)]),
    )

  it("is on its pages; the logo comes from this server and can do nothing else than be a picture", async () => {
    const branding = { accentColor: "#FFD400", logo: `data:image/png;base64,${png}` }
    const { status, body } = await change({ branding })
    expect([status, body.branding.accentColor]).toEqual([200, "#ffd400"])
    const { pathname } = new URL(body.branding.logoUrl)
    const path = `/pay/${await start()}`
    const text = await (await fetch(`${url}${path}`)).text()
    expect(bodyOf(text)).toContain(`<img class="logo" src="${pathname}" alt="">`)
    const style = /<style>([^<]*)<\/style>/.exec(text)?.[1] ?? ""
    expect(style).toContain("--button:#ffd400")
    expect((await policyOf(path))["style-src"]).toBe(`'self' 'sha256-${hash("sha256", style, "base64")}'`)

    const logo = await fetch(url + pathname)
    expect(Buffer.from(await logo.arrayBuffer()).toString("base64")).toBe(png)
    expect(
      ["content-type", "x-content-type-options", "content-security-policy"].map(name => logo.headers.get(name)),
    ).toEqual(["image/png", "nosniff", "default-src 'none'; sandbox"])
    expect((await fetch(`${url}/logo/nothing`)).status).toBe(404)
    const gone = (await change({ branding: { accentColor: null, logo: null } })).body.branding
    expect(gone).toEqual({ accentColor: null, logoUrl: null })
    expect((await fetch(url + pathname)).status).toBe(404)
    expect(await (await fetch(url + path)).text()).not.toMatch(/class="logo"|<style/)
  })

  it("is changed as a whole or not at all, and a part that is not named stays", async () => {
    await change({ branding: { accentColor: "#123456" }, allowedOrigins: ["https://shop.example"] })
    const bad = [
      { branding: { logo: "data:image/svg+xml;base64,PHN2Zy8+" } },
      { branding: { logo: `data:image/jpeg;base64,${png}`, accentColor: "#ffffff" } },
      { branding: { accentColor: "red" } },
      { allowedOrigins: ["https://other.example", "https://*.shop.example"], name: "Other" },
    ]
    const before = (await service.call("GET", "/api/console/settings", undefined, { as: "shop" })).body
    for (const body of bad) expect((await change(body)).body).toMatchObject({ error: "VALIDATION_ERROR" })
    expect((await change(bad[3] as object)).body.details).toMatchObject([{ path: "allowedOrigins.1" }])
    expect((await service.call("GET", "/api/console/settings", undefined, { as: "shop" })).body).toEqual(before)
    const { branding, allowedOrigins } = (await change({ branding: { logo: null } })).body
    expect([branding.accentColor, allowedOrigins]).toEqual(["#123456", ["https://shop.example"]])
    await change({ branding: { accentColor: null }, allowedOrigins: [] })
  })

  it("names the sites that may show what is paid in a frame: nobody else may, and no other page may be framed", async () => {
    const { body: paywall } = await service.call(
      "POST",
      "/api/console/paywalls",
      { name: "F", price: 5 },
      { as: "shop" },
    )
    const { body: link } = await service.call("POST", "/api/console/payment-links", { title: "F" }, { as: "shop" })
    const paid = [`/pay/${await start()}`, `/paywall/${paywall.id}`, `/p/${link.slug}`]
    const framers = async (path: string) => (await policyOf(path))["frame-ancestors"]
    for (const path of paid) expect([path, await framers(path)]).toEqual([path, "'none'"])
    await change({ allowedOrigins: ["https://shop.example/", "http://127.0.0.1:3000"] })
    await service.merchant("rival")
    const other = (await service.call("POST", "/api/console/checkouts", { amount: 5 }, { as: "rival" })).body.id
    for (const path of paid)
      expect([path, await framers(path)]).toEqual([path, "https://shop.example http://127.0.0.1:3000"])
    for (const path of [`/pay/${other}`, "/pay/cs_nothing", "/receipt/nothing"])
      expect([path, await framers(path)]).toEqual([path, "'none'"])
    await change({ allowedOrigins: [] })
  })

  it("has a script for the merchant's site, of at most 3 KB", async () => {
    const answer = await fetch(`${url}/embed.js`)
    expect([answer.status, answer.headers.get("cross-origin-resource-policy")]).toEqual([200, "cross-origin"])
    const text = await answer.text()
    expect(text.length).toBeLessThanOrEqual(3_072)
    // A classic script: what it names must not become global, and it can't import.
    expect(text).toMatch(/^\(\(\)=>\{[\s\S]*\}\)\(\);?\s*$/)
    expect(text).not.toMatch(/\b(import|export)\b/)
  })
})

describe("a link's form without a script", () => {
  const go = (path: string, method = "GET") => fetch(url + path, { method, redirect: "manual" })
  const sessions = () => service.ctx.db.selectFrom("checkout_sessions").select("id").execute()

  it("starts a checkout, and says what was wrong with the amount; a HEAD starts none", async () => {
    const { body } = await service.call("POST", "/api/console/payment-links", { title: "Radio" }, { as: "shop" })
    const form = await (await go(`/p/${body.slug}?lang=de`)).text()
    expect(form).toContain(`<form class="stack plain" action="/p/${body.slug}/start">`)
    const before = (await sessions()).length
    const bad = ["", "0", "five", "-1", "1e3", "0,00", "12345678", "1,000", "25.000"]
    expect(bad.map(amountTyped)).toEqual(bad.map(() => undefined))
    expect(["1000", "0,125", "1.0000"].map(amountTyped)).toEqual(["1000", "0.125", "1.0000"])
    expect((await go(`/p/${body.slug}/start?amount=1&amount=2`)).status).toBe(400)
    const refused = await go(`/p/${body.slug}/start?amount=five`)
    // The link creates a checkout, so it counts in the limits like starting one from a script.
    expect([refused.status, refused.headers.get("x-ratelimit-limit")]).toEqual([400, "20"])
    expect(await refused.text()).toContain('<p class="fault" id="amount-fault">Enter an amount such as 5 or 4.99.</p>')
    expect((await go(`/p/${body.slug}/start?amount=5`, "HEAD")).status).toBe(404)
    expect((await go("/p/nothing/start?amount=5")).status).toBe(404)
    const picture = { "sec-fetch-site": "cross-site", "sec-fetch-dest": "image" }
    expect((await fetch(`${url}/p/${body.slug}/start?amount=5`, { headers: picture })).status).toBe(403)
    const document = { "sec-fetch-site": "same-origin", "sec-fetch-dest": "document", "sec-fetch-mode": "navigate" }
    const ahead = [
      { "sec-purpose": "prefetch" },
      { "sec-purpose": "prefetch;prerender", purpose: "prefetch" },
      { purpose: "prefetch" },
      { "x-purpose": "preview" },
      { "x-moz": "prefetch" },
    ]
    for (const purpose of ahead)
      for (const path of [`/p/${body.slug}/start?amount=5`, "/paywall/pw_none/subscribe"]) {
        const headers = { ...document, ...purpose } as Record<string, string>
        const answer = await fetch(url + path, { headers, redirect: "manual" })
        expect([answer.status, answer.headers.get("cache-control")]).toEqual([403, "no-store"])
      }
    expect((await sessions()).length).toBe(before)
    // A link on another site.
    const headers = { ...picture, "sec-fetch-dest": "document" }
    expect((await fetch(`${url}/p/${body.slug}/start?amount=5`, { headers, redirect: "manual" })).status).toBe(303)
    const started = await go(`/p/${body.slug}/start?amount=7,50&lang=de`)
    expect([started.status, started.headers.get("location")]).toEqual([
      303,
      expect.stringMatching(/^\/pay\/cs_\w+\?lang=de$/),
    ])
    expect(bodyOf(await (await go(started.headers.get("location") ?? "")).text())).toContain("7,50")
  })
})

describe("the stream of a checkout", () => {
  it("sends the state at once, and each that follows", async () => {
    const id = await start()
    const gone = new AbortController()
    const answer = await fetch(`${url}/pay/${id}/events`, { signal: gone.signal })
    expect(answer.headers.get("content-type")).toBe("text/event-stream; charset=utf-8")
    expect(answer.headers.get("x-accel-buffering")).toBe("no")
    const states: string[] = []
    const decoder = new TextDecoder()
    for await (const part of answer.body ?? []) {
      const data = /data: (.*)/.exec(decoder.decode(part))?.[1]
      if (data) states.push(JSON.parse(data).status)
      if (states.length === 1) {
        const failed = { status: "failed" as const, updated_at: new Date() }
        await service.ctx.db.updateTable("checkout_sessions").set(failed).where("id", "=", id).execute()
        await service.ctx.wakes.wake("payments")
      }
      if (states.length === 2) break
    }
    gone.abort()
    expect(states).toEqual(["pending", "failed"])
  })

  it("still shows the state to a page that found no place, at once", async () => {
    const id = await start()
    const places: (() => void)[] = []
    const take = () => waitsOf(service.ctx).pages.take({ name: "127.0.0.1", most: 20 }, () => {})
    // A stream that was closed before gives its place back a moment later.
    await until("all places are taken", async () => {
      for (let place = take(); place; place = take()) places.push(place)
      return places.length === 20
    })
    expect((await fetch(`${url}/pay/${id}/events`)).status).toBe(429)
    const first = await fetch(`${url}/pay/${id}/status?wait=0&known=`)
    const again = await fetch(`${url}/pay/${id}/status?wait=25&known=${first.headers.get("x-state")}`)
    expect([again.status, ((await again.json()) as { status: string }).status]).toEqual([200, "pending"])
    for (const giveBack of places) giveBack()
  })

  it("answers no HEAD, which would hold a place and learn nothing", async () => {
    for (const path of [`/pay/${await start()}/events`, "/paywall/pw_any/events"])
      expect((await fetch(url + path, { method: "HEAD" })).status).toBe(404)
  })

  it("is an error like any other for an unknown id", async () => {
    const answer = await fetch(`${url}/pay/cs_nothing/events`)
    expect([answer.status, ((await answer.json()) as { error: string }).error]).toEqual([404, "SESSION_NOT_FOUND"])
  })
})

describe("the payer's answers", () => {
  it("are stored before any payment, and only for fields that were asked for", async () => {
    const id = await start({ payerFields: ["name"] })
    const post = (body: object) =>
      service.call("POST", "/api/pay/payer-info", { sessionId: id, ...body }, { remoteAddress: "192.0.2.9" })
    expect((await post({ payerInfo: { colour: "red" } })).body.details).toMatchObject([{ path: "payerInfo.colour" }])
    const stored = async () =>
      (await service.call("GET", `/api/console/checkouts/${id}`, undefined, { as: "shop" })).body.payerInfo
    expect(await stored()).toBeNull()
    expect((await post({ payerInfo: { name: "Ada" } })).status).toBe(200)
    expect(await stored()).toEqual({ name: "Ada" })
    await service.ctx.db.updateTable("checkout_sessions").set({ status: "failed" }).where("id", "=", id).execute()
    expect((await post({ payerInfo: { name: "Eve" } })).body.error).toBe("SESSION_EXPIRED")
    expect(await stored()).toEqual({ name: "Ada" })
  })
})

describe("the languages", () => {
  it("are chosen by the address, then by what the browser accepts", () => {
    const choices = [
      languageOf("fr", "de"),
      languageOf("xx", "pt-BR,pt;q=0.9,en;q=0.5"),
      languageOf(undefined, "it, de;q=0.3, es;q=0.7"),
      languageOf(undefined, "de;q=0, *"),
      languageOf("toString", undefined),
    ]
    expect(choices).toEqual(["fr", "pt", "es", "en", "en"])
  })

  it("have no word that no page uses", () => {
    const root = new URL("../../../../", import.meta.url).pathname
    const files = ["web/src", "server/src/products/pages"].flatMap(folder =>
      readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
        .filter(name => /\.tsx?$/.test(name) && !/\.test\.|i18n/.test(name))
        .map(name => readFileSync(join(root, folder, name), "utf8")),
    )
    const used = new Set(
      [...files.join("\n").matchAll(/"(\w+)"|catalogues\[lang\]\.(\w+)/g)].flatMap(found => found.slice(1)),
    )
    expect(Object.keys(en).filter(key => !used.has(key))).toEqual([])
  })

  it("have every part of each sentence that English has", () => {
    const parts = (text: string) => [...new Set(text.match(/\{\w+\}/g))].sort()
    for (const [language, catalogue] of Object.entries(catalogues))
      for (const [key, text] of Object.entries(en))
        expect([language, key, parts(catalogue[key as keyof typeof en])]).toEqual([language, key, parts(text)])
  })
})

describe("a receiving address's page", () => {
  const read = async (payTo: string, lang = "en") => await fetch(`${url}/address/${payTo}?lang=${lang}`)
  const payToOf = async (id: string) => (await (await fetch(`${url}/pay/${id}/status`)).json()) as { payTo: string }

  it("says in words who can get its money, with the shares, and names no merchant", async () => {
    const recipients = [60, 40].map((percent, i) => ({ address: `0x${`a${i}`.repeat(20)}`, percent }))
    const split = await service.call("POST", "/api/console/splits", { name: "s", recipients }, { as: "shop" })
    const id = await start({ splitId: split.body.id })
    const { payTo } = await payToOf(id)
    const { owner } = (await service.call("GET", `/api/deposits/${payTo}`)).body
    const text = await (await read(payTo.toLowerCase())).text()
    const shares = [...text.matchAll(/<dt>([^<]*)<\/dt><dd><code dir="ltr">([^<]*)/g)].map(([, name, value]) => [
      name,
      value?.toLowerCase(),
    ])
    expect(shares.slice(0, 4)).toEqual([
      ["Address", payTo.toLowerCase()],
      ["Gets 60%", `0x${"a0".repeat(20)}`],
      ["Gets 40%", `0x${"a1".repeat(20)}`],
      ["The merchant", owner.toLowerCase()],
    ])
    expect(text).toContain(`href="/api/deposits/${payTo}"`)
    expect(text).toContain("on Base Sepolia can only be paid out as listed here")
    expect(text).not.toMatch(/mer_|cs_|shop/)
    expect(await (await read(payTo, "de")).text()).toContain("Wohin dieses Geld gehen kann")
    // The checkout links it while there is something to pay, and not afterwards.
    const page = async () => bodyOf(await (await fetch(`${url}/pay/${id}`)).text())
    expect(await page()).toContain(`href="/address/${payTo}?lang=en"`)
    await service.ctx.db.updateTable("checkout_sessions").set({ status: "expired" }).where("id", "=", id).execute()
    expect(await page()).not.toContain("/address/")
  })

  it("does not exist for any other address, nor for terms that somebody altered", async () => {
    const { payTo } = await payToOf(await start())
    const approver = `0x${"d4".repeat(20)}` as Address
    const altered = service.ctx.db.updateTable("deposits").set({ approver })
    await altered.where("address", "=", payTo.toLowerCase() as Address).execute()
    for (const address of [payTo, `0x${"c3".repeat(20)}`, "0x12", "none"]) {
      const answer = await read(address)
      expect([answer.status, await answer.text()]).toEqual([404, expect.stringContaining("This page does not exist")])
    }
  })
})

describe("what is written into a page", () => {
  it("is escaped, and carries no character that changes the text around it", () => {
    expect(html`<p title="${'"><script>'}">${"<b>&'"}</p>`.markup).toBe(
      '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&amp;&#39;</p>',
    )
    expect(shown("a\u202eb\u0007c\u2066d\nە")).toBe("abcd\nە")
    // Fillers, tags, and the Braille pattern without a dot: a payer would see no payee.
    expect(["\u200b\u3164\u00ad", "\u{e0041}\u{e0042}", "\u2800 \u200d"].map(shown)).toEqual(["", "", ""])
    expect(["❤️", "👩‍🚀", "می‌خواهم"].map(shown)).toEqual(["❤️", "👩‍🚀", "می‌خواهم"])
    expect(["javascript:alert(1)", "data:text/html,x", "http://a.example/", "no", null].map(httpLink)).toEqual([
      null,
      null,
      "http://a.example/",
      null,
      null,
    ])
  })
})
