/** What those who take pictures of the console share: a sandbox with a merchant's week, a browser, a signed-in page. */
import type { Browser, Page } from "playwright-core"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { openBrowser } from "./browser.ts"
import { fillWorld, type World } from "./console-sales.ts"

interface Pictured {
  sandbox: Sandbox
  browser: Browser
  world: World
  end: () => Promise<void>
}

/** Starts both, with the console as its sources are now, and fills the sandbox. */
export async function startWorld(): Promise<Pictured> {
  const sandbox = await newSandbox({ LIMIT_PUBLIC: "0", LIMIT_AUTH: "0", LIMIT_CONSOLE: "0", LIMIT_PAGES: "0" })
  await import("../src/console/build.ts")
  const [browser] = await Promise.all([openBrowser(), sandbox.start()])
  const world = await fillWorld(sandbox)
  const end = async () => {
    await browser.close()
    await sandbox.remove()
  }
  return { sandbox, browser, world, end }
}

/** Signs in by the sandbox's button. */
export async function signIn(page: Page, url: string, name: string): Promise<void> {
  await page.goto(`${url}/console`)
  await page.getByRole("button", { name: `Sign in as ${name}` }).click()
  await page.getByRole("heading", { name: "Home" }).waitFor()
}

/** Waits until the page has what it shows; what is pictured while it loads has its bones. */
export async function settled(page: Page, isLoading = false): Promise<void> {
  await page.waitForLoadState("networkidle").catch(() => undefined)
  const bones = page.locator(".bone").first()
  if (!isLoading) await bones.waitFor({ state: "detached", timeout: 5_000 }).catch(() => undefined)
  await page.evaluate(() => document.fonts.ready)
  await page.waitForTimeout(200)
}
