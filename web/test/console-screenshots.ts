/**
 * Takes pictures of the console's pages and states in web/screenshots/console, in both themes and three widths, and writes `index.html`
 * there, which shows them all. `script/screenshots console [NAME]`: those whose name contains NAME.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { Page } from "playwright-core"
import { newSandbox } from "../../server/test/e2e/program.ts"
import { openBrowser, visit } from "./browser.ts"
import { fillSales, type Sales } from "./console-sales.ts"
import { type ConsoleWorld, fillConsole } from "./console-world.ts"

const folder = join(import.meta.dirname, "../screenshots/console")
const only = process.argv[2] ?? ""
const widths = [1440, 820, 390]
const shots: { name: string; file: string }[] = []

interface Scene {
  name: string
  path: string
  /** What is done before the picture. */
  before?: (page: Page) => Promise<unknown>
  /** The widths, all by default. */
  at?: number[]
}

const scenes = (world: ConsoleWorld & Sales): Scene[] => [
  { name: "home", path: "/" },
  { name: "payments", path: "/payments" },
  { name: "payments-filtered-empty", path: "/payments?status=reversed", at: [1440] },
  { name: "payment-paid", path: `/payments/${world.paid.id}` },
  { name: "payment-partly-paid", path: `/payments/${world.underpaid.id}` },
  { name: "payment-waiting", path: `/payments/${world.waiting}` },
  { name: "needs-you", path: "/needs-you" },
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
  { name: "checkouts", path: "/checkouts" },
  { name: "checkout-new", path: "/checkouts/new" },
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
  { name: "links", path: "/links" },
  { name: "link", path: `/links/${world.link}` },
  { name: "link-qr", path: `/links/${world.link}`, at: [1440], before: page => page.getByText("QR code").click() },
  { name: "link-new", path: "/links/new" },
  { name: "products", path: "/products" },
  { name: "product", path: `/products/${world.product}` },
  { name: "paywalls", path: "/paywalls" },
  { name: "paywall", path: `/paywalls/${world.paywall}` },
  { name: "paywall-new", path: "/paywalls/new", at: [1440] },
  { name: "webhooks", path: "/webhooks" },
  { name: "webhook", path: `/webhooks/${world.webhook}` },
  { name: "webhook-new", path: "/webhooks/new", at: [1440, 390] },
  { name: "delivery", path: `/webhooks/deliveries/${world.failed}` },
  { name: "payouts", path: "/payouts" },
  { name: "payout", path: `/payouts/${world.payout}` },
  { name: "keys", path: "/developers" },
  {
    name: "key-new",
    path: "/developers",
    at: [1440, 390],
    before: async page => {
      await page.getByRole("button", { name: "Create key" }).first().click()
      await page.getByLabel("Accept, return").check()
    },
  },
  { name: "members", path: "/team" },
  {
    name: "invite",
    path: "/team",
    at: [1440, 390],
    before: page => page.getByRole("button", { name: "Invite" }).click(),
  },
  { name: "audit", path: "/audit" },
  { name: "payout-address", path: "/payout-address" },
  {
    name: "payout-address-lock",
    path: "/payout-address",
    at: [1440, 390],
    before: page => page.getByRole("button", { name: "Switch on, with the wallet" }).click(),
  },
  { name: "settings", path: "/settings" },
  { name: "notifications", path: "/notifications", at: [1440, 390] },
  { name: "sessions", path: "/sessions" },
  { name: "erasure", path: "/erasure" },
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
  { name: "sandbox-tools", path: "/sandbox" },
  { name: "reserved", path: `/checkouts/${world.reserved}` },
  {
    name: "reserved-capture",
    path: `/checkouts/${world.reserved}`,
    at: [1440, 390],
    before: page => page.getByRole("button", { name: "Capture", exact: true }).click(),
  },
  { name: "captured", path: `/checkouts/${world.captured}` },
  {
    name: "captured-refund",
    path: `/checkouts/${world.captured}`,
    at: [1440, 390],
    before: page => page.getByRole("button", { name: "Refund", exact: true }).click(),
  },
  { name: "splits", path: "/splits" },
  { name: "split", path: `/splits/${world.split}` },
  { name: "split-new", path: "/splits/new", at: [1440, 390] },
  { name: "payers", path: "/payers" },
  { name: "payer", path: `/payers/${world.payer}` },
  { name: "subscriptions", path: "/subscriptions" },
  { name: "subscription", path: `/subscriptions/${world.subscription}` },
  { name: "invoices", path: "/invoices", at: [1440, 390] },
  { name: "apis", path: "/bundles" },
  { name: "api", path: `/bundles/${world.bundle}` },
  { name: "api-new", path: "/bundles/new", at: [1440, 390] },
  { name: "reports", path: "/reports" },
  { name: "addresses", path: "/addresses", at: [1440, 390] },
  { name: "listeners", path: "/listeners", at: [1440, 390] },
  { name: "requests", path: "/requests" },
  { name: "event-types", path: "/event-types", at: [1440, 390] },
  { name: "event-type", path: "/event-types/payment.exception", at: [1440, 390] },
  { name: "system", path: "/system" },
  { name: "find", path: "/", before: page => find(page, "") },
  { name: "find-typed", path: "/", at: [1440], before: page => find(page, "1042") },
  { name: "help", path: "/", at: [1440], before: page => page.keyboard.press("?") },
  { name: "team", path: "/", at: [1440], before: page => page.getByRole("button", { name: /account menu/ }).click() },
  { name: "more", path: "/", at: [390], before: page => page.getByRole("button", { name: "More" }).click() },
  { name: "states", path: "/dev/states" },
]

async function find(page: Page, text: string): Promise<void> {
  await page.locator("body").press("/")
  const field = page.getByPlaceholder(/Order, hash/)
  await field.waitFor()
  if (text) await field.fill(text)
  await page.waitForTimeout(600)
}

/** Signs in by the sandbox's button. */
async function signIn(page: Page, url: string, name: string): Promise<void> {
  await page.goto(`${url}/console`)
  await page.getByRole("button", { name: `Sign in as ${name}` }).click()
  await page.getByRole("heading", { name: "Home" }).waitFor()
}

async function settled(page: Page): Promise<void> {
  await page.waitForLoadState("networkidle").catch(() => undefined)
  await page
    .locator(".bone")
    .first()
    .waitFor({ state: "detached", timeout: 5_000 })
    .catch(() => undefined)
  await page.evaluate(() => document.fonts.ready)
  await page.waitForTimeout(200)
}

rmSync(folder, { recursive: true, force: true })
mkdirSync(folder, { recursive: true })
const sandbox = await newSandbox({ LIMIT_PUBLIC: "0", LIMIT_AUTH: "0", LIMIT_CONSOLE: "0" })
await import("../src/console/build.ts")
const [browser] = await Promise.all([openBrowser(), sandbox.start()])
try {
  const filled = await fillConsole(sandbox)
  const world = { ...filled, ...(await fillSales(sandbox, filled.product)) }
  for (const theme of ["light", "dark"] as const) {
    const { page, close } = await visit(browser, sandbox, { colorScheme: theme, reducedMotion: "reduce" })
    await page.setViewportSize({ width: 1440, height: 900 })
    await page.goto(`${sandbox.url}/console`)
    await page.getByRole("button", { name: "Sign in as" }).first().waitFor()
    if ("sign-in".includes(only)) await shoot(page, "sign-in", theme, 1440)
    await signIn(page, sandbox.url, world.name)
    for (const { name, path, before, at = widths } of scenes(world).filter(each => each.name.includes(only)))
      for (const width of at) {
        await page.setViewportSize({ width, height: width === 390 ? 844 : 900 })
        await page.goto(`${sandbox.url}/console${path}`)
        await settled(page)
        await before?.(page)
        if (before) await page.waitForTimeout(350)
        await shoot(page, name, theme, width)
      }
    await close()
  }
} finally {
  writeFileSync(join(folder, "index.html"), sheet())
  await browser.close()
  await sandbox.remove()
}
process.stdout.write(`The pictures are in ${folder}; index.html shows all.\n`)

async function shoot(page: Page, name: string, theme: string, width: number): Promise<void> {
  const file = `${name}-${width}-${theme}.png`
  await page.screenshot({ path: join(folder, file), fullPage: true })
  shots.push({ name, file })
}

/** The contact sheet: all pictures of a page beside each other. */
function sheet(): string {
  const byName = Map.groupBy(shots, ({ name }) => name)
  const rows = [...byName].map(
    ([name, files]) =>
      `<h2>${name}</h2><div>${files.map(({ file }) => `<a href="${file}"><img src="${file}" alt="${file}" loading="lazy"></a>`).join("")}</div>`,
  )
  return `<!doctype html><meta charset="utf-8"><title>The console, every page and state</title>
<style>body{font:14px system-ui;margin:24px;background:#ddd}div{display:flex;gap:12px;overflow-x:auto;align-items:flex-start}img{height:320px;border:1px solid #999}</style>
${rows.join("\n")}
`
}
