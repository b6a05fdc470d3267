/** Pages of the console in a browser, signed in: what the tests of the console share. */
import type { Browser, BrowserContext, Page } from "playwright-core"
import type { Sandbox } from "../../server/test/e2e/program.ts"
import { type Visit, visit } from "./browser.ts"

type State = Awaited<ReturnType<BrowserContext["storageState"]>>
const view = { viewport: { width: 1280, height: 900 }, reducedMotion: "reduce" } as const

/** Visits that are closed together; `calls` of a visit are its different requests to the API. */
export function visitsOf(given: () => { browser: Browser; sandbox: Sandbox }) {
  const visits: Visit[] = []
  const states = new Map<string, Promise<State>>()
  const signIn = async (name: string): Promise<State> => {
    const { browser, sandbox } = given()
    const { page, close } = await visit(browser, sandbox, view)
    await page.goto(`${sandbox.url}/console/signed-in`)
    await page.getByRole("button", { name: `Sign in as ${name}` }).click()
    await page.getByRole("button", { name: "Sign out" }).waitFor()
    const state = await page.context().storageState()
    await close()
    return state
  }
  /** By the sandbox's button. */
  const stateOf = (name: string, isOwn: boolean): Promise<State> => {
    if (isOwn) return signIn(name)
    const state = states.get(name) ?? signIn(name)
    states.set(name, state)
    return state
  }
  /** At a page, as the owner of the merchant; with `isOwn` in a session of its own. Without a name nobody is signed in. */
  const open = async (path: string, name?: string, isOwn = false): Promise<Visit & { calls: Set<string> }> => {
    const { browser, sandbox } = given()
    const visited = await visit(browser, sandbox, {
      ...view,
      ...(name === undefined ? {} : { storageState: await stateOf(name, isOwn) }),
    })
    visits.push(visited)
    const { page } = visited
    page.setDefaultTimeout(30_000)
    const calls = new Set<string>()
    page.on("request", request => {
      const { pathname, searchParams } = new URL(request.url())
      if (!pathname.startsWith("/api/") || pathname === "/api/console/stream") return
      // A page that is open for long reads what it shows again, from a moment later.
      searchParams.delete("from")
      calls.add(`${pathname}?${searchParams}`)
    })
    await page.goto(`${sandbox.url}/console${path}`)
    return { ...visited, calls }
  }
  const go = async (page: Page, path: string): Promise<void> => {
    await page.goto(`${given().sandbox.url}/console${path}`)
    await page.locator("main h1").first().waitFor()
  }
  const close = async (): Promise<void> => {
    for (const each of visits) await each.close()
  }
  return { open, go, close }
}

/** Waits until each text is there; a choice of a closed menu is not. */
export const shows = (page: Page, ...texts: string[]) =>
  Promise.all(texts.map(text => page.getByText(text, { exact: false }).filter({ visible: true }).first().waitFor()))

/** Moves the focus by Tab until it is on what has this name, and presses a key on it. */
export async function press(page: Page, name: string | RegExp, key = "Enter"): Promise<void> {
  const isOn = (): Promise<string> =>
    page.evaluate(() => {
      const { activeElement: at } = document
      if (!(at instanceof HTMLElement)) return ""
      const label = at.id ? document.querySelector(`label[for="${CSS.escape(at.id)}"]`)?.textContent : undefined
      return (at.getAttribute("aria-label") ?? label ?? at.closest("label")?.textContent ?? at.textContent ?? "").trim()
    })
  const matches = (text: string) => (typeof name === "string" ? text === name : name.test(text))
  for (let i = 0; i < MOST_TABS; i++) {
    if (matches(await isOn())) return await page.keyboard.press(key)
    await page.keyboard.press("Tab")
  }
  throw new Error(`Tab never reached ${name}`)
}

const MOST_TABS = 120
