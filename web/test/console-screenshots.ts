/**
 * Takes pictures of the console's pages and states in web/screenshots/console, in both themes and three widths, and writes `index.html`
 * there, which shows them all. `script/screenshots console [NAME]`: those whose name contains NAME.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { Page } from "playwright-core"
import { visit } from "./browser.ts"
import { type ConsolePage, pagesOf } from "./console-pages.ts"
import { settled, signIn, startWorld } from "./console-pictures.ts"
import type { World } from "./console-sales.ts"

const folder = join(import.meta.dirname, "../screenshots/console")
const only = process.argv[2] ?? ""
const widths = [1440, 820, 390]
const shots: { name: string; file: string }[] = []

interface Scene {
  name: string
  path: string
  /** What is done before the picture. */
  before?: (page: Page) => Promise<unknown>
  /** The widths and the themes, all by default. */
  at?: number[]
  themes?: string[]
}

/** What is pictured beside each page as it is. */
const scenes = (world: World): Scene[] => [
  { name: "payment-partly-paid", path: `/payments/${world.underpaid.id}` },
  { name: "payment-waiting", path: `/payments/${world.waiting}` },
  {
    name: "needs-you-return",
    path: "/needs-you",
    before: page => page.getByRole("button", { name: "Return", exact: true }).first().click(),
  },
  {
    name: "needs-you-accept",
    path: "/needs-you",
    at: [1440],
    before: page => page.getByRole("button", { name: "Accept", exact: true }).first().click(),
  },
  {
    name: "checkout-new-faults",
    path: "/checkouts/new",
    at: [1440],
    before: async page => {
      await page.getByLabel("Amount").fill("x")
      await page.getByRole("button", { name: "Create checkout" }).click()
      await page.getByRole("alert").waitFor()
    },
  },
  { name: "link-qr", path: `/links/${world.link}`, at: [1440], before: page => page.getByText("QR code").click() },
  {
    name: "product-new-subscription",
    path: "/products/new",
    at: [1440, 390],
    before: page => page.getByLabel("Paid").selectOption("month"),
  },
  { name: "paywall-new-more", path: "/paywalls/new", at: [1440], before: page => more(page) },
  { name: "api-new-more", path: "/bundles/new", at: [1440], before: page => more(page) },
  {
    name: "checkout-new-reserved",
    path: "/checkouts/new",
    at: [1440, 390],
    before: async page => {
      await page.getByLabel("Capture", { exact: true }).selectOption("manual")
      await more(page)
    },
  },
  {
    name: "webhook-stats",
    path: `/webhooks/${world.webhook}`,
    at: [1440],
    before: page => page.getByRole("button", { name: "Show its statistics" }).click(),
  },
  {
    name: "key-new",
    path: "/developers",
    at: [1440, 390],
    before: async page => {
      await page.getByRole("button", { name: "Create key" }).first().click()
      await page.getByLabel("Accept, return").check()
    },
  },
  {
    name: "invite",
    path: "/team",
    at: [1440, 390],
    before: page => page.getByRole("button", { name: "Invite" }).click(),
  },
  {
    name: "audit-entry",
    path: "/audit",
    at: [1440, 390],
    before: async page => {
      await page
        .getByRole("button", { name: /^Payout address/ })
        .or(page.locator("td .plain-button"))
        .first()
        .click()
      await page.getByRole("dialog").waitFor()
    },
  },
  {
    name: "payout-address-lock",
    path: "/payout-address",
    at: [1440, 390],
    before: page => page.getByRole("button", { name: "Switch on, with the wallet" }).click(),
  },
  {
    name: "erasure-counted",
    path: "/erasure",
    at: [1440, 390],
    before: async page => {
      await page.getByLabel("The customer").fill("buyer1042@example.com")
      await page.keyboard.press("Enter")
      await page.getByText("Personal data goes from").waitFor()
    },
  },
  { name: "reserved", path: `/checkouts/${world.reserved}` },
  {
    name: "reserved-capture",
    path: `/checkouts/${world.reserved}`,
    at: [1440, 390],
    before: page => page.getByRole("button", { name: "Capture", exact: true }).click(),
  },
  {
    name: "captured-refund",
    path: `/checkouts/${world.captured}`,
    at: [1440, 390],
    before: page => page.getByRole("button", { name: "Refund", exact: true }).click(),
  },
  { name: "find", path: "/", before: page => find(page, "") },
  { name: "find-typed", path: "/", at: [1440], before: page => find(page, "1042") },
  { name: "help", path: "/", at: [1440], before: page => page.keyboard.press("?") },
  { name: "team", path: "/", at: [1440], before: page => page.getByRole("button", { name: /account menu/ }).click() },
  { name: "more", path: "/", at: [390], before: page => page.getByRole("button", { name: "More" }).click() },
]

const more = (page: Page) => page.locator("details.more-fields summary").click()

/** The states of the pages that read something: `?dev=` of the sandbox makes them. The catalogue of events never changes. */
function statesOf(page: ConsolePage): Scene[] {
  if (page.kind === "form" || page.kind === "still") return []
  const isFixed = page.name.startsWith("event-type")
  const states = [
    "loading",
    "error",
    "forbidden",
    ...(isFixed ? [] : ["stale"]),
    ...(page.kind === "list" ? ["empty"] : []),
  ]
  const shown = states.map(state => ({
    name: `${page.name}~${state}`,
    path: `${page.path}?dev=${state}`,
    at: [1440],
    themes: ["light"],
    ...(state === "stale"
      ? { before: (page: Page) => page.getByText("As of").first().waitFor({ timeout: 9_000 }) }
      : {}),
  }))
  const none = page.none ? [{ name: `${page.name}~filtered`, path: `${page.path}?${page.none}`, at: [1440, 390] }] : []
  return [...shown, ...none]
}

async function find(page: Page, text: string): Promise<void> {
  await page.locator("body").press("/")
  const field = page.getByPlaceholder(/Order, hash/)
  await field.waitFor()
  if (text) await field.fill(text)
  await page.waitForTimeout(600)
}

rmSync(folder, { recursive: true, force: true })
mkdirSync(folder, { recursive: true })
const { sandbox, browser, world, end } = await startWorld()
try {
  for (const theme of ["light", "dark"] as const) {
    const { page, close } = await visit(browser, sandbox, { colorScheme: theme, reducedMotion: "reduce" })
    await page.setViewportSize({ width: 1440, height: 900 })
    await page.goto(`${sandbox.url}/console`)
    await page.getByRole("button", { name: "Sign in as" }).first().waitFor()
    if ("sign-in".includes(only)) await shoot(page, "sign-in", theme, 1440)
    await signIn(page, sandbox.url, world.name)
    const all = [...pagesOf(world).flatMap(each => [each, ...statesOf(each)]), ...scenes(world)] as Scene[]
    const wanted = all.filter(({ name, themes }) => name.includes(only) && (themes ?? [theme]).includes(theme))
    for (const { name, path, before, at = widths } of wanted)
      for (const width of at) {
        await page.setViewportSize({ width, height: width === 390 ? 844 : 900 })
        await page.goto(`${sandbox.url}/console${path}`)
        await settled(page, name.endsWith("~loading"))
        await before?.(page).catch(error => process.stderr.write(`${name}: ${String(error).split("\n")[0]}\n`))
        if (before) await page.waitForTimeout(350)
        await shoot(page, name, theme, width)
      }
    await close()
  }
} finally {
  writeFileSync(join(folder, "index.html"), sheet())
  await end()
}
process.stdout.write(`The pictures are in ${folder}; index.html shows all.\n`)

async function shoot(page: Page, name: string, theme: string, width: number): Promise<void> {
  const file = `${name}-${width}-${theme}.png`
  await page.screenshot({ path: join(folder, file), fullPage: true })
  shots.push({ name, file })
}

/** The contact sheet: all pictures of a page beside each other. */
function sheet(): string {
  const byName = Map.groupBy(shots, ({ name }) => name.replace(/~.*/, ""))
  const rows = [...byName].map(
    ([name, files]) =>
      `<h2>${name}</h2><div>${files.map(({ file }) => `<a href="${file}"><img src="${file}" alt="${file}" loading="lazy"><br>${file.replace(".png", "")}</a>`).join("")}</div>`,
  )
  return `<!doctype html><meta charset="utf-8"><title>The console, every page and state</title>
<style>body{font:14px system-ui;margin:24px;background:#ddd}div{display:flex;gap:12px;overflow-x:auto;align-items:flex-start}img{height:320px;border:1px solid #999}</style>
${rows.join("\n")}
`
}
