/**
 * `script/screenshots`: pictures of every page in each of its states, light and dark, on a phone and on a desktop, in
 * `web/screenshots`, for whoever changes how a page looks. Starts a sandbox of its own.
 */
import { mkdirSync, rmSync } from "node:fs"
import { join } from "node:path"
import type { Page } from "playwright-core"
import { newSandbox, root, until } from "../../server/test/e2e/program.ts"
import { openBrowser, visit } from "./browser.ts"

const folder = join(root, "web/screenshots")
const looks = [
  { name: "phone-light", viewport: { width: 390, height: 780 }, colorScheme: "light" },
  { name: "phone-dark", viewport: { width: 390, height: 780 }, colorScheme: "dark" },
  { name: "desktop-light", viewport: { width: 1200, height: 860 }, colorScheme: "light" },
  { name: "desktop-dark", viewport: { width: 1200, height: 860 }, colorScheme: "dark" },
] as const

rmSync(folder, { recursive: true, force: true })
const sandbox = await newSandbox({ LIMIT_PUBLIC: "0", LIMIT_PAY_CONFIRM: "0" })
const [browser] = await Promise.all([openBrowser(), sandbox.start()])
const { page } = await visit(browser, sandbox)

/** The page as it is now, in each look. */
async function shoot(name: string, shown: Page = page): Promise<void> {
  for (const { name: look, viewport, colorScheme } of looks) {
    mkdirSync(join(folder, look), { recursive: true })
    await shown.setViewportSize(viewport)
    await shown.emulateMedia({ colorScheme })
    await shown.screenshot({ path: join(folder, look, `${name}.png`), fullPage: true })
  }
}

const auth = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
const post = async (path: string, body: object) => (await sandbox.call(path, body, auth)).body
const order = (more: object = {}) =>
  post("/api/console/checkouts", {
    amount: "19.90",
    description: "Order 1001",
    redirectUrl: "https://shop.example/",
    ...more,
  })
const pay = (to: string, amount: string) => sandbox.call("/sandbox/pay", { to, amount })
const stage = (name: string) => page.locator(`[data-stage=${name}]`).waitFor()
const press = (name: string | RegExp) => page.getByRole("button", { name }).click()
const tab = (name: string) => page.getByRole("tab", { name }).click()

try {
  await page.goto((await order({ payerFields: ["name", "email"] })).url)
  await press("Continue")
  await shoot("checkout-fields")

  const first = await order()
  await page.goto(first.url)
  await page.getByRole("tab", { name: "Wallet" }).waitFor()
  await shoot("checkout-wallet")
  for (const name of ["Phone", "By hand"] as const) {
    await tab(name)
    await shoot(`checkout-${name.toLowerCase().replace(" ", "-")}`)
  }
  await page.goto(`${first.url}?lang=ar`)
  await page.getByRole("tab").first().waitFor()
  await shoot("checkout-arabic")
  await page.goto(first.url)
  await pay(first.payTo, "5")
  await stage("part")
  await shoot("checkout-part")
  await pay(first.payTo, "20")
  await page.locator("[data-stage=confirming],[data-stage=paid]").waitFor()
  await shoot("checkout-confirming")
  await stage("paid")
  await page.getByText("You sent 25.00 USDC").waitFor()
  await shoot("checkout-overpaid")

  const signed = await order()
  await page.goto(signed.url)
  await press(/test wallet/)
  await page.locator("[data-stage=sent],[data-stage=confirming]").waitFor()
  await shoot("checkout-sent")
  await stage("paid")
  await press("Stay here")
  await shoot("checkout-paid")
  await page.goto(`${sandbox.url}/receipt/${signed.id}`)
  await shoot("receipt")

  const film = {
    name: "The lighthouse film",
    description: "Half an hour, in English",
    price: 5,
    contentData: { Password: "blue-42" },
  }
  const { id } = await post("/api/console/paywalls", film)
  await page.goto(`${sandbox.url}/paywall/${id}`)
  await page.getByRole("tab").first().waitFor()
  await shoot("paywall")
  await press(/Pay with/)
  await stage("paid")
  await shoot("paywall-unlocked")
  await press("Open the content")
  await page.getByText("blue-42").waitFor()
  await shoot("paywall-content")

  const { slug } = await post("/api/console/payment-links", {
    title: "Support the radio",
    description: "As much as you like",
  })
  await page.goto(`${sandbox.url}/p/${slug}`)
  await page.getByRole("textbox").waitFor()
  await shoot("link")

  const part = await order()
  await pay(part.payTo, "5")
  const waiting = async () =>
    (await sandbox.call("/api/console/payments", undefined, auth)).body.data.find(
      (each: { sessionId: string }) => each.sessionId === part.id,
    )?.id
  await until("it waits", async () => (await waiting()) !== undefined)
  await page.goto(`${sandbox.url}/return/${await waiting()}`)
  await page.getByRole("textbox").waitFor()
  await shoot("return")

  const late = await order()
  await page.goto(late.url)
  await sandbox.call("/sandbox/clock", { advance: "25h" })
  await stage("expired")
  await shoot("checkout-expired")
  await pay(late.payTo, "19.90")
  await sandbox.call("/sandbox/mine", { blocks: 4 })
  await page.getByText("arrived too late").waitFor()
  await shoot("checkout-late")
  await page.goto(`${sandbox.url}/pay/cs_nothing`)
  await shoot("not-found")
  const plain = await visit(browser, sandbox, { javaScriptEnabled: false })
  await plain.page.goto((await order()).url)
  await shoot("checkout-without-script", plain.page)
  process.stdout.write(`The pictures are in ${folder}.\n`)
} finally {
  await browser.close()
  await sandbox.remove()
}
