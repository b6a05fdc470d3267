/** Whole jobs by the keyboard alone, in the console against the real sandbox, with a wallet that signs. */
import { readFileSync } from "node:fs"
import type { Browser } from "playwright-core"
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, expect, it } from "vitest"
import { newSandbox, type Sandbox, until } from "../../server/test/e2e/program.ts"
import { injectWallet, isSound, openBrowser } from "./browser.ts"
import { fillWorld, ownerOf, type World } from "./console-sales.ts"
import { press, shows, visitsOf } from "./console-visits.ts"

let browser: Browser
let sandbox: Sandbox
let world: World
const { open, go, close } = visitsOf(() => ({ browser, sandbox }))

beforeAll(async () => {
  await import("../src/console/build.ts")
  const limits = { LIMIT_PUBLIC: "0", LIMIT_AUTH: "0", LIMIT_CONSOLE: "0", LIMIT_PAGES: "0" }
  sandbox = await newSandbox(limits, "migrated")
  await Promise.all([sandbox.start(), openBrowser().then(found => (browser = found))])
  world = await fillWorld(sandbox)
})
afterAll(async () => {
  await close()
  await browser?.close()
  await sandbox.remove()
})

/** The payout wallet of the sandbox's merchant, which the console offers there beside those of the browser; it really signs. */
const SIGN = "Sign with the sandbox's payout wallet"
const checkout = (id: string) => ownerOf(sandbox).get(`/api/console/checkouts/${id}`)

it("shows in each tab what changes, by one stream that a tab holds for all", async () => {
  const { page, faults } = await open("/signed-in", world.name)
  const context = page.context()
  const streams: string[] = []
  context.on("request", request => {
    if (request.url().includes("/api/console/stream")) streams.push(request.url())
  })
  await go(page, "/checkouts")
  await until("the first tab holds the stream", () => streams.length === 1)
  const tabs = [await context.newPage(), await context.newPage()]
  for (const tab of tabs) await go(tab, "/checkouts")
  const { post } = ownerOf(sandbox)
  const { payTo } = await post("/api/console/checkouts", { amount: "3.21", description: "Order 7001" })
  for (const tab of [page, ...tabs]) await shows(tab, "Order 7001")
  await post("/sandbox/pay", { to: payTo, amount: "3.21", buyer: 1 })
  for (const tab of [page, ...tabs])
    await tab.getByRole("row").filter({ hasText: "Order 7001" }).getByText("Paid").waitFor()
  expect(streams).toHaveLength(1)
  // The tab that holds it closes, and another takes it over.
  await page.close()
  await until("another tab holds the stream", () => streams.length === 2)
  expect(faults).toEqual([])
})

it("captures a part of what is reserved, and releases the rest", async () => {
  const { page, faults } = await open(`/checkouts/${world.reserved}`, world.name)
  await shows(page, "Can be captured")
  await press(page, "Capture")
  await page.getByLabel("Amount").waitFor()
  await page.waitForFunction(() => document.activeElement instanceof HTMLInputElement)
  await page.keyboard.press("ControlOrMeta+A")
  await page.keyboard.type("24.50")
  await shows(page, "The rest stays reserved")
  await page.keyboard.press("Enter")
  await page.getByRole("dialog").waitFor({ state: "detached" })
  await until("a part is captured", async () => (await checkout(world.reserved)).escrow.captured === "24.50")
  await shows(page, "Can be refunded")
  await press(page, "Release the rest")
  await shows(page, "Release 39.50 USDC?")
  await press(page, "Release it")
  await until("the rest is released", async () => (await checkout(world.reserved)).escrow.released === "39.50")
  expect(faults).toEqual([])
})

it("refunds, with the allowance of the payout wallet", async () => {
  const { page, faults } = await open(`/checkouts/${world.captured}`, world.name)
  await shows(page, "Can be refunded")
  await press(page, "Refund")
  await page.getByLabel("Amount").waitFor()
  await page.waitForFunction(() => document.activeElement instanceof HTMLInputElement)
  await page.keyboard.press("ControlOrMeta+A")
  await page.keyboard.type("2")
  await press(page, "Reason", "Tab")
  await page.keyboard.press("Shift+Tab")
  await page.keyboard.type("One book was missing")
  await page.keyboard.press("Enter")
  await shows(page, "Allow the refund with your payout wallet", "To be allowed")
  await press(page, "Allow with the sandbox's payout wallet")
  await shows(page, "Allowed: the refund continues automatically")
  await until("it is refunded", async () => (await checkout(world.captured)).escrow.refunded === "2.00")
  await shows(page, "One book was missing", "Partly refunded")
  expect(faults).toEqual([])
})

it("makes a split that adds to 100, and sells a link with it", async () => {
  const { page, faults } = await open("/splits", world.name)
  const { buyers } = sandbox.file()
  await press(page, "Create split")
  await page.getByLabel("Name").first().waitFor()
  await page.waitForFunction(() => document.activeElement instanceof HTMLInputElement)
  await page.keyboard.type("Band")
  await page.keyboard.press("Tab")
  await page.keyboard.type(buyers[0].address)
  await page.keyboard.press("Tab")
  await page.keyboard.type("Singer")
  await press(page, "Recipient 2", "ControlOrMeta+A")
  await page.keyboard.type(buyers[1].address)
  await press(page, "Percent", "ControlOrMeta+A")
  await page.keyboard.type("12.3456")
  await shows(page, "100 % in all", "8.76544 USDC", "1.23456 USDC")
  await press(page, "Create split")
  await page.getByRole("heading", { name: "Band" }).waitFor()
  await press(page, "Sell with it")
  await page.getByLabel("Title").waitFor()
  await page.waitForFunction(() => document.activeElement instanceof HTMLInputElement)
  await page.keyboard.type("The concert")
  await page.keyboard.press("Tab")
  await page.keyboard.type("10")
  await shows(page, "Divides each payment")
  await page.keyboard.press("Enter")
  await page.getByRole("heading", { name: "The concert" }).waitFor()
  const { get, post } = ownerOf(sandbox)
  const { data } = await get("/api/console/payment-links")
  const link = data.find((each: { title: string }) => each.title === "The concert")
  expect(link.splitId).toMatch(/^spl_/)
  const sold = await post("/api/pay/sessions", { slug: link.slug })
  await post("/sandbox/pay", { to: sold.payTo, amount: "10", buyer: 3 })
  const shares = async () =>
    (await get("/api/console/payouts?kind=share")).data.map((each: { amount: string }) => each.amount).sort()
  await until("the shares are made", async () => (await shares()).length === 2)
  expect(await shares()).toEqual(["1.23456", "8.76544"])
  expect(faults).toEqual([])
})

it("invites a teammate, who reads everything and is refused a refund", async () => {
  const { page, faults } = await open("/team", world.name)
  const teammate = privateKeyToAccount(sandbox.file().buyers[4].privateKey)
  await press(page, "Invite")
  await page.getByLabel("E-mail address").waitFor()
  await press(page, "Or a wallet", "End")
  await page.keyboard.type(teammate.address)
  await page.keyboard.press("Enter")
  await shows(page, "It is shown only now.")
  const token = (await page.locator("pre.code").textContent()) ?? ""
  expect(faults).toEqual([])

  const other = await open("/")
  await injectWallet(other.page, sandbox.file().rpcUrl, {
    account: teammate,
    chainId: sandbox.file().chainId,
    asked: [],
  })
  await other.page.reload()
  await press(other.page, "Sign in with a wallet")
  await shows(other.page, "You don't belong to an account yet")
  // The link of the mail has it.
  await other.page.goto(`${sandbox.url}/console/team/accept#${token}`)
  await shows(other.page, "Accept an invitation")
  expect(other.page.url()).not.toContain(token)
  await press(other.page, "Accept")
  await shows(other.page, "Received, last 30 days")
  await go(other.page, `/checkouts/${world.captured}`)
  await shows(other.page, "The role owner, admin or finance can do this.")
  expect(await other.page.getByRole("button", { name: "Refund" }).isDisabled()).toBe(true)
  // The page hides it; the server decides.
  const refused = await other.page.evaluate(
    async sessionId =>
      await fetch("/api/console/payments/refund", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ sessionId, amount: "1" }),
      }).then(answer => answer.json()),
    world.captured,
  )
  expect(refused).toMatchObject({ error: "ROLE_REQUIRED" })
  expect(other.faults).toEqual([])
})

it("rolls a key, whose old secret works on beside the new one", async () => {
  const { page, faults } = await open("/developers", world.name)
  await shows(page, "sandbox.json")
  await page.keyboard.press("j")
  await page.keyboard.press("Enter")
  await shows(page, "Roll it")
  await press(page, "Make a new secret")
  await shows(page, "It is shown only now.")
  const secret = (await page.locator("pre.code").textContent()) ?? ""
  const ask = async (key: string) => (await sandbox.call("/api/checkouts", undefined, { "x-api-key": key })).status
  expect(await Promise.all([secret, sandbox.file().merchants[0].apiKey].map(ask))).toEqual([200, 200])
  await press(page, "I have it")
  await shows(page, "Old secret stops")
  expect(faults).toEqual([])
})

it("exports a quarter, whose lines add up to the payouts", async () => {
  const { page, faults } = await open("/reports", world.name)
  await shows(page, "Export payouts")
  const saved = page.waitForEvent("download")
  await press(page, "Export payouts")
  const download = await saved
  const text = readFileSync((await download.path()) ?? "", "utf8")
  const [head = "", ...lines] = text.trim().split("\n")
  expect(head).toContain("payoutId")
  expect(lines.some(line => line.includes("250.00"))).toBe(true)
  expect(faults).toEqual([])
})

it("erases a customer, after the count of what goes", async () => {
  const { page, faults } = await open("/erasure", world.name)
  await page.getByLabel("The customer").waitFor()
  await page.waitForFunction(() => document.activeElement instanceof HTMLInputElement)
  await page.keyboard.type("buyer1042@example.com")
  await page.keyboard.press("Enter")
  await shows(page, "Personal data goes from", "1 checkout")
  // One endpoint of this merchant is down, so an event still waits for it.
  await press(page, /^Drop the/, "Space")
  await press(page, "Erase the customer")
  await shows(page, "Erase buyer1042@example.com?")
  await press(page, "Erase for ever")
  await shows(page, "The customer's data is erased")
  expect((await checkout(world.paid.id)).customerEmail).toBeNull()
  await go(page, `/checkouts/${world.paid.id}`)
  await shows(page, "19.90")
  expect(await page.getByText("buyer1042@example.com").count()).toBe(0)
  expect(faults).toEqual([])
})

it("has no fault that axe finds in light, dark and on a narrow screen, on each page that the short form leaves out", async () => {
  const { page } = await open("/", world.name)
  const paths = [
    "/payouts",
    `/payouts/${world.payout}`,
    "/payers",
    `/payers/${world.payer}`,
    "/reports",
    "/addresses",
    "/subscriptions",
    `/subscriptions/${world.subscription}`,
    "/invoices",
    `/bundles/${world.bundle}`,
    "/bundles/new",
    "/splits",
    "/splits/new",
    "/developers",
    "/sandbox",
    "/settings",
    "/payout-address",
    "/sessions",
    "/notifications",
    "/audit",
    "/erasure",
    "/team",
    "/system",
    "/listeners",
    "/requests",
    "/event-types",
    "/event-types/payment.exception",
    `/webhooks/${world.webhook}`,
    `/checkouts/${world.captured}`,
  ]
  for (const colorScheme of ["light", "dark"] as const) {
    // Before a page is loaded: axe takes colours that change under it for those of before.
    await page.emulateMedia({ colorScheme })
    await page.setViewportSize({ width: 320, height: 700 })
    for (const path of paths) {
      await go(page, path)
      await page.waitForLoadState("networkidle")
      await isSound(page, colorScheme === "dark" ? ["color-contrast"] : undefined).catch((error: Error) => {
        throw new Error(`${path}, ${colorScheme}: ${error.message}`)
      })
    }
  }
})

/** The last: with the lock on, other jobs would need the wallet too. */
it("changes a payout address with the wallet, which counts at once", async () => {
  const { page, faults } = await open("/payout-address", world.name)
  await shows(page, "Wallet lock")
  await press(page, "Switch on, with the wallet")
  await shows(page, "Switch the wallet lock on?")
  await press(page, "Switch on")
  await shows(page, "Sign this change with your wallet")
  await press(page, SIGN)
  await shows(page, "The lock is on")
  const next = sandbox.file().buyers[2].address
  await press(page, "Payout address", "ControlOrMeta+A")
  await page.keyboard.type(next)
  await page.keyboard.press("Enter")
  await shows(page, "Sign this change with your wallet")
  await press(page, SIGN)
  await until("it is changed", async () => {
    const { payoutAddress } = await ownerOf(sandbox).get("/api/console/settings")
    return payoutAddress === next
  })
  expect(await page.getByRole("textbox", { name: "Payout address" }).inputValue()).toBe(next)
  expect(faults).toEqual([])
})
