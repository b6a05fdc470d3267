/** Takes the pictures of the merchants' documents, in docs/merchants/pictures, and that of the README: `script/screenshots docs`. */
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { Page } from "playwright-core"
import { visit } from "./browser.ts"
import { settled, signIn, startWorld } from "./console-pictures.ts"

const folder = join(import.meta.dirname, "../../docs/merchants/pictures")
const WIDTH = 1120
/** Text stays sharp, and a picture is some 25 KB. */
const QUALITY = 72

/** By its name: where it is, how high, and what is done before. */
type Picture = readonly [name: string, path: string, height: number, before?: (page: Page) => Promise<unknown>]

const { sandbox, browser, world, end } = await startWorld()
const pictures: Picture[] = [
  ["home", "/", 760],
  ["payment", `/payments/${world.underpaid.id}`, 640],
  ["return", "/needs-you", 560, page => page.getByRole("button", { name: "Return", exact: true }).first().click()],
  ["payout", `/payouts/${world.payout}`, 520],
  ["reports", "/reports", 640],
  [
    "capture",
    `/checkouts/${world.reserved}`,
    560,
    page => page.getByRole("button", { name: "Capture", exact: true }).click(),
  ],
  ["subscriptions", "/subscriptions", 420],
  ["delivery", `/webhooks/deliveries/${world.failed}`, 560],
]

try {
  mkdirSync(folder, { recursive: true })
  const { page, close } = await visit(browser, sandbox, { colorScheme: "light", reducedMotion: "reduce" })
  await page.setViewportSize({ width: WIDTH, height: 760 })
  await signIn(page, sandbox.url, world.name)
  const devtools = await page.context().newCDPSession(page)
  for (const [name, path, height, before] of pictures) {
    await page.setViewportSize({ width: WIDTH, height })
    await page.goto(`${sandbox.url}/console${path}`)
    await settled(page)
    await before?.(page)
    await page.waitForTimeout(350)
    // Playwright writes no WebP, which is a third of a PNG here.
    const { data } = await devtools.send("Page.captureScreenshot", { format: "webp", quality: QUALITY })
    writeFileSync(join(folder, `${name}.webp`), Buffer.from(data, "base64"))
  }
  await page.setViewportSize({ width: 1440, height: 900 })
  await page.goto(`${sandbox.url}/console/payments/${world.waiting}`)
  await settled(page)
  await page.screenshot({ path: join(folder, "../../console.png") })
  await close()
} finally {
  await end()
}
process.stdout.write(`The pictures are in ${folder}.\n`)
