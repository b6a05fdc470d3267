/**
 * Chromium as Debian packages it, against a running sandbox: pages that may reach no other origin, and an injected
 * wallet.
 */
import { existsSync } from "node:fs"
import axe from "axe-core"
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from "playwright-core"
import { createWalletClient, type Hex, http } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { expect } from "vitest"
import type { Sandbox } from "../../server/test/e2e/program.ts"

/** The same engine without windows: a new profile with a page takes 0.15 s of CPU, and 1.2 s in the whole browser. */
const SHELL = "/usr/lib/chromium/chromium-headless-shell"

/** One browser for all tests of a file; `more` are further arguments of Chromium. */
export const openBrowser = (...more: string[]): Promise<Browser> =>
  chromium.launch({
    executablePath: existsSync(SHELL) ? SHELL : "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--process-per-site", ...more],
    timeout: 120_000,
  })

/** A page, and everything that went wrong on it. */
export interface Visit {
  page: Page
  /** Requests to other origins, and errors of the console: none is expected. */
  faults: string[]
  close(): Promise<void>
}

/** A profile of its own. Spinners are stopped: ten waiting pages would draw sixty frames a second each. */
export async function newContext(browser: Browser, options: BrowserContextOptions = {}): Promise<BrowserContext> {
  const context = await browser.newContext({ locale: "en-US", ...options })
  // As long as `until` waits: on a busy machine ten pages share two cores with everything else.
  context.setDefaultTimeout(120_000)
  await context.addInitScript(() => {
    const still = new CSSStyleSheet()
    still.replaceSync(".spinner { animation: none !important }")
    document.adoptedStyleSheets = [still]
  })
  return context
}

/** A page in a profile of its own; `faults` collects requests to other origins, page errors and broken policies. */
export async function visit(
  browser: Browser,
  sandbox: Pick<Sandbox, "url">,
  options: BrowserContextOptions = {},
): Promise<Visit> {
  const context = await newContext(browser, options)
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: sandbox.url })
  const page = await context.newPage()
  const faults: string[] = []
  page.on("request", request => {
    const url = request.url()
    if (!url.startsWith(`${sandbox.url}/`) && !url.startsWith("data:")) faults.push(`request to ${url}`)
  })
  page.on("pageerror", error => faults.push(`error ${error.message}`))
  page.on("console", message => {
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      faults.push(`console ${message.text()}`)
  })
  return { page, faults, close: () => context.close() }
}

/** The rules of axe about colours. All other rules find the same in each colour scheme. */
const COLOUR_RULES = ["color-contrast", "link-in-text-block"]

/**
 * Expects that axe finds nothing, by all rules or by `rules`, and that nothing scrolls sideways, in the page's current
 * look.
 */
export async function isSound(page: Page, rules?: string[]): Promise<void> {
  // Loaded only here and not into every page: half a megabyte takes longer to load than most pages.
  if (await page.evaluate(() => !("axe" in globalThis))) await page.evaluate(axe.source)
  const findings = await page.evaluate(async rules => {
    const only = rules && { runOnly: { type: "rule", values: rules } }
    // Without `preload`, which took a third of the time. Only two rules need it: one that is off, and one for audio
    // players.
    const options = { resultTypes: ["violations"], iframes: false, preload: false, ...only } as const
    const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run(options as never)
    return violations.flatMap(({ id, nodes }) => nodes.map(node => `${id}: ${node.html.slice(0, 150)}`))
  }, rules)
  expect(findings).toEqual([])
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  expect(overflow).toBeLessThanOrEqual(0)
}

/** Expects the same in light and dark, and on a narrow screen. */
export async function isSoundEverywhere(page: Page): Promise<void> {
  const size = page.viewportSize()
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme })
    await page.setViewportSize({ width: 320, height: 700 })
    await isSound(page, colorScheme === "dark" ? COLOUR_RULES : undefined)
  }
  await page.emulateMedia({ colorScheme: null })
  if (size) await page.setViewportSize(size)
}

/** A test's wallet and its behaviour. */
export interface TestWallet {
  account: PrivateKeyAccount
  chainId: number
  /** Called before each request. What it throws is the wallet's answer. */
  before?: (method: string) => void | Promise<void>
  /** The methods that were requested. */
  asked: string[]
}

/**
 * Gives every page of the context a wallet that announces itself (EIP-6963) and really signs with the account's key.
 */
export async function injectWallet(page: Page, rpcUrl: string, wallet: TestWallet): Promise<void> {
  const client = createWalletClient({ account: wallet.account, transport: http(rpcUrl, { timeout: 120_000 }) })
  const answer = async (method: string, params: unknown[]): Promise<unknown> => {
    wallet.asked.push(method)
    await wallet.before?.(method)
    switch (method) {
      case "eth_requestAccounts":
      case "eth_accounts":
        return [wallet.account.address]
      case "eth_chainId":
        return `0x${wallet.chainId.toString(16)}`
      case "wallet_switchEthereumChain":
        wallet.chainId = Number((params[0] as { chainId: string }).chainId)
        return null
      case "eth_signTypedData_v4":
        return await wallet.account.signTypedData(JSON.parse(String(params[1])))
      case "personal_sign":
        return await wallet.account.signMessage({ message: { raw: params[0] as Hex } })
      case "eth_sendTransaction": {
        const { to, data } = params[0] as { to: Hex; data: Hex }
        return await client.sendTransaction({ to, data, chain: null })
      }
      default:
        return await client.request({ method, params } as never)
    }
  }
  await page.exposeFunction("askTestWallet", async (method: string, params: unknown[]) => {
    try {
      return { result: await answer(method, params) }
    } catch (error) {
      const { code, message } = error as { code?: number; message?: string }
      return { error: { code: code ?? -32603, message: message ?? String(error) } }
    }
  })
  await page.addInitScript(injected)
}

/** Runs inside the page. */
function injected(): void {
  const ask = (globalThis as unknown as { askTestWallet: (method: string, params: unknown[]) => Promise<Answer> })
    .askTestWallet
  interface Answer {
    result?: unknown
    error?: { code: number; message: string }
  }
  const provider = {
    request: async ({ method, params = [] }: { method: string; params?: unknown[] }) => {
      const { result, error } = await ask(method, params)
      if (error) throw Object.assign(new Error(error.message), { code: error.code })
      return result
    },
  }
  const icon =
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 1 1'><path fill='teal' d='M0 0h1v1H0z'/></svg>"
  const info = { uuid: "6f2a3a0e-0001-4000-8000-000000000001", name: "Pocket", icon, rdns: "example.pocket" }
  const announce = () =>
    dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail: Object.freeze({ info, provider }) }))
  addEventListener("eip6963:requestProvider", announce)
  announce()
}
