/** The documents' site as the service serves it: whole, quiet in Chromium under its policy, readable without scripts, and found by search. */
import { execFileSync, spawnSync } from "node:child_process"
import { existsSync, globSync, readFileSync, statSync } from "node:fs"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import Fastify from "fastify"
import type { Browser } from "playwright-core"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openSite } from "../server/src/platform/http/built-site.ts"
import { docsPages } from "../server/src/platform/http/docs-pages.ts"
import type { Server } from "../server/src/platform/http/server.ts"
import { isSound, newContext, openBrowser, visit } from "../web/test/browser.ts"

const root = join(import.meta.dirname, "..")
const built = join(root, "web/dist/docs/current")
const app = Fastify()
let browser: Browser
let url: string
let pages: Map<string, string>

beforeAll(async () => {
  execFileSync(process.execPath, [join(root, "site/build.ts")], { stdio: ["ignore", "ignore", "inherit"] })
  const read = (name: string) => readFileSync(join(built, name), "utf8")
  pages = new Map(
    globSync("**/*.html", { cwd: built }).map(name => [`/docs/${name.replace(/index\.html$/, "")}`, read(name)]),
  )
  const document = JSON.parse(readFileSync(join(root, "docs/openapi.json"), "utf8"))
  docsPages(app as unknown as Server, () => document, openSite(built))
  await app.listen({ host: "127.0.0.1", port: 0 })
  url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`
  browser = await openBrowser()
})
afterAll(async () => {
  await browser?.close()
  await app.close()
})

/** The values of an attribute in a page. */
const valuesOf = (page: string, attribute: string): string[] =>
  [...page.matchAll(new RegExp(`\\s${attribute}="([^"]*)"`, "g"))].map(([, value = ""]) => value.replace(/&amp;/g, "&"))

describe("every page", () => {
  it("leads to pages and anchors that exist", async () => {
    const anchors = new Map([...pages].map(([path, page]) => [path, new Set(valuesOf(page, "id"))]))
    const dead: string[] = []
    for (const [path, page] of pages)
      for (const link of new Set([...valuesOf(page, "href"), ...valuesOf(page, "src")])) {
        if (/^(https?|data|mailto):/.test(link)) continue
        const { pathname, hash } = new URL(link, `${url}${path}`)
        const ids = anchors.get(pathname)
        // Its anchors are made by the page's script; one of them is opened below.
        if (pathname === "/docs/try") continue
        const known = ids ?? existsSync(join(built, pathname.replace(/^\/docs\/?/, "")))
        if (!known || (hash !== "" && hash !== "#_top" && !ids?.has(decodeURIComponent(hash.slice(1)))))
          dead.push(`${path}: ${link}`)
      }
    expect(pages.size).toBeGreaterThan(90)
    expect(dead).toEqual([])
  })

  it("has nothing inline, and nothing of another host", () => {
    const inline = [...pages].flatMap(([path, page]) =>
      [
        /<style/,
        /<script(?![^>]*\ssrc=)(?![^>]*type="(?!module))[^>]*>/,
        /<[a-z][^<>]*\sstyle="/,
        /<(script|link|img)[^>]*(src|href)="https?:(?![^>]*rel="canonical")/,
      ]
        .filter(pattern => pattern.test(page))
        .map(pattern => `${path}: ${pattern}`),
    )
    expect(inline).toEqual([])
  })

  it("is at most 250 KB with all that it loads, and 320 for the errors", () => {
    const sizeOf = (path: string): number => {
      const file = join(built, path.replace(/^\/docs\/?/, "").replace(/(^|\/)$/, "$1index.html"))
      return statSync(existsSync(`${file}.br`) ? `${file}.br` : file).size
    }
    const fonts = globSync("_astro/*.woff2", { cwd: built }).reduce(
      (sum, name) => sum + statSync(join(built, name)).size,
      0,
    )
    const heavy = [...pages].flatMap(([path, page]) => {
      const loaded = [...valuesOf(page, "src"), ...valuesOf(page, "href")].filter(link =>
        /^\/docs\/.*\.(js|css|png|webp)$/.test(link),
      )
      const bytes = [path, ...new Set(loaded)].reduce((sum, each) => sum + sizeOf(each), fonts)
      return bytes > (path === "/docs/developers/errors/" ? 320_000 : 250_000) ? [`${path}: ${bytes}`] : []
    })
    expect(heavy).toEqual([])
  })
})

const LOOKED_AT = ["/docs/", "/docs/merchants/first-payment/", "/docs/reference/checkouts/", "/docs/developers/sdk/"]

describe("in Chromium", () => {
  it("reports nothing, passes axe in both themes, and never scrolls sideways", async () => {
    for (const colorScheme of ["light", "dark"] as const) {
      const { page, faults, close } = await visit(
        browser,
        { url },
        { colorScheme, viewport: { width: 390, height: 844 } },
      )
      for (const path of LOOKED_AT) {
        await page.goto(`${url}${path}`)
        await isSound(page, colorScheme === "dark" ? ["color-contrast"] : undefined)
      }
      expect(faults).toEqual([])
      await close()
    }
  })

  it("can be read without JavaScript", async () => {
    const context = await newContext(browser, { javaScriptEnabled: false, viewport: { width: 1440, height: 900 } })
    const page = await context.newPage()
    for (const path of LOOKED_AT) {
      await page.goto(`${url}${path}`)
      expect(await page.locator("h1").isVisible(), path).toBe(true)
      expect((await page.locator("main").textContent())?.length, path).toBeGreaterThan(500)
    }
    await page.locator('a[href="/docs/reference/"]').first().waitFor({ state: "attached" })
    await context.close()
  })

  it("finds five things by search, under its own policy", async () => {
    const { page, faults, close } = await visit(browser, { url }, { viewport: { width: 1440, height: 900 } })
    await page.goto(`${url}/docs/`)
    await page.getByRole("button", { name: "Search" }).first().click()
    const field = page.locator("dialog input").first()
    for (const [words, path] of [
      ["escrow capture", "/docs/merchants/escrow/"],
      ["IDEMPOTENCY_MISMATCH", "/docs/developers/errors/"],
      ["SWEEP_ABOVE", "/docs/operators/settings/"],
      ["createCheckout", "/docs/reference/checkouts/"],
      ["restore a backup", "/docs/operators/operations/"],
    ] as const) {
      await field.fill(words)
      await page.locator(`dialog a[href^="${path}"]`).first().waitFor()
    }
    expect(faults).toEqual([])
    await close()
  })
})

describe("the page that tries the API", () => {
  it("opens the operation that the reference leads to, which takes an own key", async () => {
    const { page, faults, close } = await visit(browser, { url }, { viewport: { width: 1440, height: 900 } })
    await page.goto(`${url}/docs/reference/payment-links/`)
    await page.locator('a[href="/docs/try#/payment%20links/createPaymentLink"]').click()
    const operation = page.locator("#operations-payment_links-createPaymentLink")
    await operation.getByRole("button", { name: "Execute" }).waitFor()
    await operation.locator("button.authorization__btn").click()
    await page.locator(".auth-container input").first().waitFor()
    expect(faults).toEqual([])
    await close()
  })
})

describe("what the service answers", () => {
  it("is the site with its policy, and the pages of the API beside it", async () => {
    const policy = (await fetch(`${url}/docs/`)).headers.get("content-security-policy")
    expect(policy).toContain("script-src 'self' 'wasm-unsafe-eval'; style-src 'self';")
    expect((await fetch(`${url}/docs/errors`, { redirect: "manual" })).headers.get("location")).toBe(
      "/docs/developers/errors/",
    )
    expect((await fetch(`${url}/docs/merchants/escrow`, { redirect: "manual" })).headers.get("location")).toBe(
      "/docs/merchants/escrow/",
    )
    expect(await (await fetch(`${url}/docs/try`)).text()).toContain("swagger-ui-bundle.js")
    expect((await fetch(`${url}/docs/json`)).headers.get("content-type")).toContain("json")
    expect((await fetch(`${url}/docs/%2e%2e/index.html`)).status).not.toBe(200)
    const list = await (await fetch(`${url}/docs/llms.txt`)).text()
    const links = [...list.matchAll(/\]\((\/docs\/[^)]+\.md)\)/g)].map(([, link = ""]) => link)
    const missing = links.filter(link => !existsSync(join(built, link.slice("/docs/".length))))
    expect([links.length > 40, missing]).toEqual([true, []])
    const whole = await (await fetch(`${url}/docs/llms-full.txt`)).text()
    for (const title of ["# Your first payment", "# Reserve now, capture later: escrow", "# Settings"])
      expect(whole).toContain(`${title}\n`)
    expect((await fetch(`${url}/docs/changelog.xml`)).headers.get("content-type")).toContain("xml")
    const [picture] = globSync("**/*.webp", { cwd: built })
    expect((await fetch(`${url}/docs/${picture}`)).headers.get("content-type")).toBe("image/webp")
  })
})

describe("the documents", () => {
  const files = globSync("docs/**/*.md", { cwd: root }).concat("README.md", "sdk/README.md")
  const blocks = files.flatMap(file =>
    [...readFileSync(join(root, file), "utf8").matchAll(/^( *)```(\w+)[^\n]*\n([\s\S]*?)^ *```$/gm)].map(
      ([, indent = "", language, text = ""]) => ({ file, language, text: text.replaceAll(`\n${indent}`, "\n") }),
    ),
  )

  it("have blocks that their languages can parse", () => {
    const shell = blocks.filter(({ language }) => language === "sh")
    const bad = shell.filter(({ text }) => spawnSync("bash", ["-n"], { input: text }).status !== 0)
    for (const { text, language } of blocks) if (language === "json") JSON.parse(text)
    expect(shell.length).toBeGreaterThan(20)
    expect(bad).toEqual([])
  })

  it("are where the sources say", () => {
    const named = execFileSync(
      "git",
      ["grep", "-hoE", "\\bdocs/[a-z0-9/-]+\\.md\\b", "--", ":!site/site.test.ts", ":!*.sql"],
      { cwd: root, encoding: "utf8" },
    )
    const missing = [...new Set(named.trim().split("\n"))].filter(path => !existsSync(join(root, path)))
    expect(missing).toEqual([])
  })
})
