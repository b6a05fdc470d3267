/**
 * Sign-in and sessions in Chromium: over https and at a loopback address, with the pages of attackers at other origins, and
 * with what merchants and payers write at the console's own origin.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Browser, BrowserContext, Page } from "playwright-core"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { routeTable } from "../../server/src/platform/http/route-access.ts"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { startService, type TestService } from "../../server/test/service.ts"
import { consoleAt } from "../../server/test/sign-in.ts"
import { isSound, newContext, openBrowser } from "./browser.ts"
import { frontOf, newCertificate, type Passed, type Site, serve } from "./front.ts"

let browser: Browser
let sandbox: Sandbox
beforeAll(async () => {
  // Names of other sites, and one that its owner has let point to this machine.
  const hosts = "MAP *.test 127.0.0.1"
  sandbox = await newSandbox({ LIMIT_PUBLIC: "0", LIMIT_AUTH: "0", LIMIT_CONSOLE: "0" }, "migrated")
  const opened = openBrowser(`--host-resolver-rules=${hosts}`)
  await Promise.all([sandbox.start(), opened.then(found => (browser = found))])
})
afterAll(async () => {
  await browser?.close()
  await sandbox.remove()
})

interface World {
  service: TestService
  /** Where the console is. */
  origin: string
  passed: Passed[]
  /** Origins of other people, of another site and of this one. */
  foreign: { crossSite: string; sameSite: string }
  context: BrowserContext
  close(): Promise<void>
}

async function newWorld(isSecure: boolean): Promise<World> {
  const service = await startService()
  const tls = isSecure ? newCertificate() : undefined
  const front = await frontOf(await service.listen(), tls)
  const evil: Site = await serve(attackersSite, tls)
  const origin = isSecure ? `https://pay.test:${front.port}` : `http://127.0.0.1:${front.port}`
  Object.assign(service.ctx.settings, consoleAt(origin))
  const context = await newContext(browser, { ignoreHTTPSErrors: true })
  return {
    service,
    origin,
    passed: front.passed,
    foreign: isSecure
      ? { crossSite: `https://evil.test:${evil.port}`, sameSite: `https://shop.pay.test:${evil.port}` }
      : { crossSite: `http://localhost:${evil.port}`, sameSite: `http://127.0.0.1:${evil.port}` },
    context,
    close: async () => {
      await context.close()
      await Promise.all([front.close(), evil.close()])
      await service.stop()
    },
  }
}

/** `/`: an empty page. `/to?url=`: a redirect. `/form?url=&body=`: a form that sends itself, as far as JSON can be so sent. */
function attackersSite(request: IncomingMessage, response: ServerResponse): void {
  const { pathname, searchParams } = new URL(request.url ?? "", "http://evil")
  const url = searchParams.get("url") ?? ""
  if (pathname === "/to") return void response.writeHead(302, { location: url }).end()
  response.writeHead(200, { "content-type": "text/html" })
  if (pathname !== "/form") return void response.end("<!doctype html><title>evil</title>")
  const [name = "", value = ""] = (searchParams.get("body") ?? "").split("=")
  response.end(`<!doctype html><form method="post" action="${url}" enctype="${searchParams.get("type")}">
<input name='${name}' value='${value}'></form><script>document.forms[0].submit()</script>`)
}

const words = (page: Page, text: string) => page.getByText(text, { exact: false }).first().waitFor()
const persons = async ({ service }: World) =>
  (await service.ctx.db.selectFrom("sessions").select("sub").orderBy("created_at").execute()).map(({ sub }) => sub)

/** Signs in at the provider, as a person does. */
async function signIn(world: World, sub: string, path = "/console/signed-in"): Promise<Page> {
  world.service.issuer.person = { sub, claims: {}, header: {} }
  const page = await world.context.newPage()
  await page.goto(`${world.origin}${path}`)
  await page.getByRole("link", { name: /^Sign in with / }).click()
  await words(page, "You are signed in")
  await words(page, "Sign out")
  return page
}

interface Init {
  method?: string
  headers?: Record<string, string>
  body?: string
}

/** What a page of the console is answered. */
const ask = (page: Page, path: string, init: Init = {}): Promise<number> =>
  page.evaluate(async ([path, init]) => (await fetch(path, init)).status, [path, init] as const)

describe.each([
  ["over https", true],
  ["at a loopback address", false],
])("%s", (_where, isSecure) => {
  let world: World
  beforeAll(async () => {
    world = await newWorld(isSecure)
  })
  afterAll(() => world.close())
  beforeEach(async () => {
    await world.context.clearCookies()
    for (const page of world.context.pages()) await page.close()
    await world.service.empty()
    await world.service.merchant("ada")
    world.passed.length = 0
  })

  it("a person signs in at the provider, is back where the sign-in began, and signs out", async () => {
    const page = await signIn(world, "ada", "/console/signed-in?q=1")
    expect(page.url()).toBe(`${world.origin}/console/signed-in?q=1`)
    await words(page, "ada")
    await isSound(page)
    const cookies = await world.context.cookies(world.origin)
    expect(cookies).toMatchObject([
      {
        name: isSecure ? "__Host-sluice" : "sluice-dev",
        httpOnly: true,
        secure: isSecure,
        sameSite: "Strict",
        path: "/",
        domain: new URL(world.origin).hostname,
      },
    ])
    expect(await page.evaluate(() => document.cookie)).toBe("")
    expect(await ask(page, "/api/console/settings")).toBe(200)
    const named = { method: "PUT", headers: { "content-type": "application/json" }, body: '{"name":"Ada\'s"}' }
    expect(await ask(page, "/api/console/settings", named)).toBe(200)
    await page.getByRole("button", { name: "Sign out" }).click()
    await words(page, "Sign in to the console")
    await isSound(page)
    expect(await ask(page, "/api/console/settings")).toBe(401)
    expect([await world.context.cookies(world.origin), await persons(world)]).toEqual([[], []])
  })

  it("a wallet signs in by a message that names this host", async () => {
    const account = privateKeyToAccount(generatePrivateKey())
    const page = await world.context.newPage()
    await page.exposeFunction("signWithAccount", (hex: `0x${string}`) => account.signMessage({ message: { raw: hex } }))
    await page.addInitScript(address => {
      const { signWithAccount } = globalThis as unknown as { signWithAccount: (hex: string) => Promise<string> }
      const request = async ({ method, params = [] }: { method: string; params?: string[] }) =>
        method === "personal_sign" ? signWithAccount(params[0] ?? "") : method === "eth_chainId" ? "0x14a34" : [address]
      Object.assign(globalThis, { ethereum: { request } })
    }, account.address)
    await page.goto(`${world.origin}/console/signed-in`)
    await page.getByRole("button", { name: "Sign in with a wallet" }).click()
    await words(page, "You are signed in")
    expect(await persons(world)).toEqual([`eip155:84532:${account.address}`])
  })

  it.each(["crossSite", "sameSite"] as const)("an attacker's page changes and reads nothing: %s", async from => {
    const { origin, foreign, passed } = world
    const own = await signIn(world, "ada")
    const before = passed.length
    const page = await world.context.newPage()
    await page.goto(foreign[from])
    await page.evaluate(attackFrom, origin)
    const json = '{"name":"Stolen","price":5,"x":"=y"}'
    for (const [path, body] of [
      ["/api/console/paywalls", json],
      ["/api/console/session", '{"merchantId":"=mer_x"}'],
      ["/console/sign-in", "a=b"],
    ] as const)
      for (const type of ["text/plain", "application/x-www-form-urlencoded"]) {
        const query = new URLSearchParams({ url: origin + path, body, type })
        await page.goto(`${foreign[from]}/form?${query}`)
        await page.waitForURL(`${origin}/**`)
      }
    for (const path of ["/api/console/settings", "/api/console/transactions.csv"]) {
      // By a redirect, also of an address that the person typed, and by a click.
      await page.goto(`${foreign[from]}/to?url=${encodeURIComponent(origin + path)}`).catch(() => {})
      await page.goto(foreign[from])
      await page.evaluate(url => location.assign(url), origin + path)
      await page.waitForURL(`${origin}/**`)
    }
    const reached = passed.slice(before).filter(({ path, method }) => path.startsWith("/api/") && method !== "OPTIONS")
    expect(reached.length).toBeGreaterThan(15)
    expect(reached.filter(({ status }) => status < 400)).toEqual([])
    // Nobody was signed out, or in as somebody else.
    expect(await persons(world)).toEqual(["ada"])
    expect(await ask(own, "/api/console/settings")).toBe(200)
    expect(await own.evaluate(async () => (await (await fetch("/api/console/paywalls")).json()).total)).toBe(0)
  })

  it("nobody is signed in as an attacker: by his return, with or without a sign-in of one's own, or by it twice", async () => {
    const { origin, foreign, service } = world
    const attacker = await newContext(browser, { ignoreHTTPSErrors: true })
    /** Begins a sign-in in a page, up to the provider's own page; returns the address that leads back from it. */
    const begin = async (page: Page, sub: string) => {
      service.issuer.person = { sub, claims: {}, header: {} }
      await page.goto(`${origin}/console/sign-in`)
      return (await page.getByRole("link", { name: "Continue" }).getAttribute("href")) ?? ""
    }
    service.issuer.isAsking = true
    const back = await begin(await attacker.newPage(), "mallory")
    const page = await world.context.newPage()
    const open = async (url: string) => {
      await page.goto(foreign.crossSite)
      await page.evaluate(url => location.assign(url), url)
      await words(page, "That did not work")
    }
    await open(back)
    // The victim has begun one too, and is at the provider.
    const own = await begin(page, "ada")
    service.issuer.isAsking = false
    const state = new URL(own).searchParams.get("state") ?? ""
    await open(back)
    await open(back.replace(/state=[^&]*/, `state=${state}`))
    expect(await persons(world)).toEqual([])
    const signed = await signIn(world, "ada")
    const used = world.passed.findLast(({ path }) => path.startsWith("/console/callback"))?.path ?? ""
    await page.goto(origin + used)
    await words(page, "was already used")
    expect([await persons(world), await ask(signed, "/api/console/settings")]).toEqual([["ada"], 200])
    await attacker.close()
  })

  it("a link of another site that would return elsewhere begins nothing", async () => {
    const page = await world.context.newPage()
    await page.goto(world.foreign.crossSite)
    const link = `${world.origin}/console/sign-in?return=${encodeURIComponent(`${world.foreign.crossSite}/console/`)}`
    await page.evaluate(url => location.assign(url), link)
    await words(page, "a page that is not the console's")
    expect(await world.service.ctx.db.selectFrom("sign_ins").select("hash").execute()).toEqual([])
  })

  it("a link in a mail opens the console for whoever is signed in, and the sign-in for others", async () => {
    const page = await world.context.newPage()
    const follow = async () => {
      await page.goto(world.foreign.crossSite)
      await page.evaluate(url => location.assign(url), `${world.origin}/console/signed-in?q=1`)
    }
    await follow()
    await words(page, "Sign in to the console")
    expect(page.url()).toBe(`${world.origin}/console/signed-in?q=1`)
    await signIn(world, "ada")
    await follow()
    await words(page, "Sign out")
    expect(page.url()).toBe(`${world.origin}/console/signed-in?q=1`)
  })

  it("a session that is revoked in one browser has ended in the other", async () => {
    const one = await signIn(world, "ada")
    const other = await newContext(browser, { ignoreHTTPSErrors: true })
    const two = await signIn({ ...world, context: other }, "ada")
    const revoke = async () => {
      const { data } = await (await fetch("/api/console/sessions")).json()
      const { id } = data.find(({ current }: { current: boolean }) => !current)
      return (await fetch(`/api/console/sessions/${id}`, { method: "DELETE" })).status
    }
    expect(await one.evaluate(revoke)).toBe(200)
    expect([await ask(two, "/api/console/settings"), await ask(one, "/api/console/settings")]).toEqual([401, 200])
    await two.reload()
    await words(two, "Sign in to the console")
    await other.close()
  })

  it("nothing that a merchant or a payer writes at this origin reaches the console", async () => {
    const { origin, service, passed } = world
    const shown = await hostileThings(service)
    const own = await signIn(world, "ada")
    const before = passed.length
    const page = await world.context.newPage()
    const seen: string[] = []
    page.on("dialog", dialog => void dialog.dismiss())
    await page.exposeFunction("hacked", (what: string) => void seen.push(what))
    for (const path of shown) {
      await page.goto(`${origin}${path}`, { waitUntil: "commit" }).catch(error => {
        // A file is saved.
        if (!/Download is starting|ERR_ABORTED/.test(String(error))) throw error
      })
      await page.waitForLoadState("load", { timeout: 5_000 }).catch(() => {})
    }
    const reached = passed.slice(before).filter(({ path }) => path.startsWith("/api/console/"))
    expect(reached.filter(({ status }) => status < 400)).toEqual([])
    // The documents of a merchant's server did run what they could.
    expect(passed.slice(before).some(({ path, status }) => path.endsWith("/free/page.html") && status === 200)).toBe(
      true,
    )
    expect(seen).toEqual([])
    expect(await ask(own, "/api/console/settings")).toBe(200)
  })
})

/** Runs in a page of an attacker: everything that a page can send to another origin by itself. */
async function attackFrom(victim: string): Promise<void> {
  const body = JSON.stringify({ name: "Stolen", price: 5 })
  const settle = (...all: Promise<unknown>[]) => Promise.allSettled(all)
  const at = (path: string, init: RequestInit = {}) => fetch(`${victim}${path}`, { credentials: "include", ...init })
  const json = { "content-type": "application/json" }
  const session = JSON.stringify({ merchantId: "mer_x" })
  await settle(
    at("/api/console/settings"),
    at("/api/console/settings", { mode: "no-cors" }),
    at("/api/console/settings", { method: "HEAD", mode: "no-cors" }),
    at("/api/console/paywalls", { method: "POST", mode: "no-cors", body }),
    at("/api/console/paywalls", { method: "POST", headers: json, body }),
    at("/api/console/settings", { method: "PUT", headers: json, body: '{"name":"Stolen"}' }),
    at("/api/console/session", { method: "DELETE" }),
    at("/api/console/session", { method: "POST", mode: "no-cors", body: session }),
    at("/api/console/session", { method: "POST", headers: json, body: session }),
    at("/api/console/sessions"),
  )
  navigator.sendBeacon(`${victim}/api/console/paywalls`, body)
  const load = (make: () => HTMLElement) =>
    new Promise(resolve => {
      const element = make()
      element.onload = resolve
      element.onerror = resolve
      document.body.append(element)
    })
  const url = `${victim}/api/console/settings`
  await settle(
    load(() => Object.assign(document.createElement("img"), { src: url })),
    load(() => Object.assign(document.createElement("img"), { src: `/to?url=${encodeURIComponent(url)}` })),
    load(() => Object.assign(document.createElement("script"), { src: url })),
    load(() => Object.assign(document.createElement("link"), { rel: "stylesheet", href: url })),
    load(() => Object.assign(document.createElement("iframe"), { src: url })),
    load(() => Object.assign(document.createElement("object"), { data: url })),
    new Promise(resolve => {
      const source = new EventSource(url, { withCredentials: true })
      source.onerror = () => resolve(source.close())
    }),
  )
}

/** What an attacker writes wherever he can: it asks the console by every way that a document has. */
const SCRIPT = `(async () => {
  const url = "/api/console/settings"
  const answer = await fetch(url, { credentials: "include" }).catch(() => undefined)
  if (answer && answer.ok) globalThis.hacked?.("read")
  await fetch("/api/console/paywalls", { method: "POST", credentials: "include", body: "{}" }).catch(() => {})
  await navigator.serviceWorker?.register("worker.js").then(() => globalThis.hacked?.("worker"), () => {})
  const image = new Image(); image.src = url
  const frame = document.createElement("iframe"); frame.src = url; document.documentElement.append(frame)
  setTimeout(() => { location.href = url }, 0)
})()`
const MARKUP = `"><img src=/api/console/settings onerror="${SCRIPT.replaceAll('"', "&quot;")}"><script>${SCRIPT}</script>`

const documents: Record<string, [type: string, body: string]> = {
  "/free/page.html": [
    "text/html",
    `<!doctype html><meta http-equiv="refresh" content="1;url=/api/console/settings">${MARKUP}
<form method="post" action="/api/console/paywalls"></form><script>document.forms[0].submit()</script>`,
  ],
  "/free/script.js": ["text/javascript", SCRIPT],
  "/free/worker.js": ["text/javascript", "self.addEventListener('fetch', () => {})"],
  "/free/picture.svg": [
    "image/svg+xml",
    `<svg xmlns="http://www.w3.org/2000/svg"><script>//<![CDATA[\n${SCRIPT}\n//]]></script></svg>`,
  ],
  "/free/file.xml": [
    "application/xml",
    `<?xml version="1.0"?><x:html xmlns:x="http://www.w3.org/1999/xhtml"><x:script>//<![CDATA[\n${SCRIPT}\n//]]></x:script></x:html>`,
  ],
  "/free/page.xhtml": [
    "application/xhtml+xml",
    `<html xmlns="http://www.w3.org/1999/xhtml"><head/><body><script>//<![CDATA[\n${SCRIPT}\n//]]></script></body></html>`,
  ],
  "/free/file.pdf": [
    "application/pdf",
    "%PDF-1.4\n1 0 obj<</Type/Catalog/OpenAction<</S/URI/URI(/api/console/settings)>>>>endobj\ntrailer<</Root 1 0 R>>",
  ],
  "/free/unnamed": ["", `<html>${MARKUP}</html>`],
  "/free/text": ["text/plain", `<html>${MARKUP}</html>`],
}

/** The paths of everything that is public and has hostile parts, of every public route: each with what it is about. */
async function hostileThings(service: TestService): Promise<string[]> {
  const origin = await serve((request, response) => {
    const [type, body] = documents[request.url?.split("?")[0] ?? ""] ?? ["text/html", MARKUP]
    response.writeHead(200, { ...(type && { "content-type": type }), "service-worker-allowed": "/" }).end(body)
  })
  origins.push(origin)
  const make = async (path: string, body: object) => {
    const made = await service.call("POST", `/api/console/${path}`, body, { as: "ada" })
    expect(made.status, JSON.stringify(made.body)).toBeLessThan(300)
    return made.body
  }
  await service.call("PUT", "/api/console/settings", { name: MARKUP.slice(0, 200) }, { as: "ada" })
  const text = MARKUP.slice(0, 190)
  const paywall = await make("paywalls", { name: text, description: MARKUP.slice(0, 900), price: 5, slug: "wall" })
  await make("payment-links", { slug: "donate", title: text })
  const checkout = await make("checkouts", { amount: 5, description: text, payerFields: ["name"] })
  const route = { method: "GET", path: "/free/:file", price: "0" }
  await make("bundles", { name: text, originUrl: `http://127.0.0.1:${origin.port}`, slug: "api", routes: [route] })
  const ids: Record<string, string> = {
    "/api/paywalls/:id": paywall.id,
    "/api/paywalls/:id/verify": paywall.id,
    "/paywall/:id": paywall.id,
    "/p/:slug": "donate",
    "/p/:slug/start": "donate",
    "/api/p/:slug": "api",
    "/receipt/:id": checkout.id,
    "/invoice/:id": checkout.id,
  }
  const paths = [...routeTable].flatMap(([name, { by }]) => {
    const [method, path = ""] = name.split(" ")
    const isAsked = (by === "public" || by === "optional key") && (method === "GET" || method === "ANY")
    // The console's own; and the sandbox's, which has a test of its own.
    if (!isAsked || /^\/(console|api\/console|sandbox|$)/.test(path) || path.endsWith("/events")) return []
    if (path.endsWith("*"))
      return path === "/api/p/:slug/*" ? Object.keys(documents).map(each => `/api/p/api${each}`) : []
    const filled = path.replaceAll(
      /:(\w+)/g,
      (_, name) => ids[path] ?? (name === "sessionId" ? checkout.id : paywall.id),
    )
    return [`${filled}?lang=en`]
  })
  expect(paths.length).toBeGreaterThan(30)
  return [...paths, `/nowhere/${encodeURIComponent(MARKUP.slice(0, 100))}`]
}
const origins: Site[] = []
afterAll(() => Promise.all(origins.map(each => each.close())))

describe("the sandbox", () => {
  it("signs in as a merchant by one click, at the name that its address has", async () => {
    const context = await newContext(browser)
    const page = await context.newPage()
    await page.goto(`${sandbox.url.replace("127.0.0.1", "localhost")}/console/signed-in`)
    expect(page.url()).toBe(`${sandbox.url}/console/signed-in`)
    await page.getByRole("button", { name: "Sign in as Blue Bottle Books" }).click()
    await words(page, "You are signed in")
    await words(page, "Blue Bottle Books")
    expect(await ask(page, "/api/console/settings")).toBe(200)
    await context.close()
  })

  it("gives pages of other origins, and of a name that was rebound, neither its clock nor its money nor a session", async () => {
    const context = await newContext(browser)
    const page = await context.newPage()
    const site = await serve(attackersSite)
    const { now } = (await sandbox.call("/sandbox/clock", { advance: "0s" })).body
    const [merchant] = sandbox.file().merchants
    const attack = async ([target, merchantId]: string[]) => {
      const statuses: (number | string)[] = []
      const send = async (path: string, init: RequestInit = {}) =>
        statuses.push(
          await fetch(`${target}${path}`, init).then(
            ({ status, type }) => status || type,
            () => "blocked",
          ),
        )
      const post = (body: object, mode: RequestMode = "cors") => ({
        method: "POST",
        mode,
        headers: mode === "cors" ? { "content-type": "application/json" } : {},
        body: JSON.stringify(body),
      })
      for (const mode of ["cors", "no-cors"] as const) {
        await send("/sandbox/clock", post({ advance: "30d" }, mode))
        await send("/sandbox/faucet", post({ address: `0x${"1".repeat(40)}` }, mode))
        await send("/api/console/session", post({ merchantId }, mode))
        await send("/sandbox/try/checkout", { mode })
        await send("/sandbox/inbox", { mode })
      }
      return statuses
    }
    const input = [sandbox.url, merchant.id]
    for (const from of [
      `http://localhost:${site.port}`,
      `http://127.0.0.1:${site.port}`,
      `http://evil.test:${site.port}`,
    ]) {
      await page.goto(from)
      const found = await page.evaluate(attack, input)
      expect(
        found.every(each => each === "blocked" || each === "opaque"),
        `${from}: ${found}`,
      ).toBe(true)
    }
    // The page was loaded before its name was rebound; now its own origin is this sandbox.
    const rebound = `http://rebound.test:${sandbox.port}`
    await page.route(`${rebound}/attack`, route => route.fulfill({ contentType: "text/html", body: "evil" }))
    await page.goto(`${rebound}/attack`)
    const answered = await page.evaluate(attack, [rebound, merchant.id])
    expect(answered.filter(each => typeof each === "number" && each < 400)).toEqual([])
    expect((await page.goto(`${rebound}/sandbox`))?.status()).toBe(403)
    expect((await page.goto(`${rebound}/console`))?.status()).toBe(403)
    await words(page, "The console needs https")
    const after = (await sandbox.call("/sandbox/clock", { advance: "0s" })).body.now
    expect(Date.parse(after) - Date.parse(now)).toBeLessThan(86_400_000)
    expect(await context.cookies()).toEqual([])
    await site.close()
    await context.close()
  })

  it("its page and its tools work from its own page, as from a program", async () => {
    const context = await newContext(browser)
    const page = await context.newPage()
    await page.goto(`${sandbox.url}/sandbox`)
    await page.getByRole("link", { name: "Try a checkout" }).click()
    await page.waitForURL(/\/pay\/cs_/)
    const post = { method: "POST", headers: { "content-type": "application/json" }, body: '{"advance":"1s"}' }
    expect(await ask(page, "/sandbox/clock", post)).toBe(200)
    await context.close()
  })
})
