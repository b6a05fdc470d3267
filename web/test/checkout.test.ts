// A person pays a checkout in a real browser, against the real sandbox, with a wallet that really signs.
import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import type { Browser, Page } from "playwright-core"
import { createWalletClient, type Hex, http } from "viem"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { testUsdcAbi, testUsdcBytecode } from "../../server/src/platform/chain/abi.ts"
import { newSandbox, type Sandbox, until } from "../../server/test/e2e/program.ts"
import {
  injectWallet,
  isSoundEverywhere,
  newContext,
  openBrowser,
  type TestWallet,
  type Visit,
  visit,
} from "./browser.ts"

let sandbox: Sandbox
let browser: Browser
const visits: Visit[] = []

beforeAll(async () => {
  // All visitors share an address here, and conditions are polled: the limits are off, as they have tests of their own.
  const buckets = ["CONSOLE", "PUBLIC", "PAY_CONFIRM", "PAY_STATUS", "PAYWALL_PAY", "PAYWALL_VERIFY", "AUTH"]
  sandbox = await newSandbox(Object.fromEntries(buckets.map(bucket => [`LIMIT_${bucket}`, "0"])), "migrated")
  await Promise.all([sandbox.start(), openBrowser().then(opened => (browser = opened))])
})
afterAll(async () => {
  await browser?.close()
  await sandbox.remove()
})

/** A checkout of the first merchant. */
async function start(body: object = {}): Promise<{ id: string; url: string; payTo: string }> {
  const key = { "x-api-key": sandbox.file().merchants[0].apiKey }
  const made = await sandbox.call(
    "/api/console/checkouts",
    { amount: "19.90", description: "Order 1001", ...body },
    {
      authorization: `Bearer ${sandbox.file().merchants[0].accessToken}`,
      ...key,
    },
  )
  expect(made.status, JSON.stringify(made.body)).toBe(201)
  return made.body
}

const openPage = async (url: string, options: Parameters<typeof visit>[2] = {}, wallet?: TestWallet): Promise<Page> => {
  const opened = await visit(browser, sandbox, options)
  visits.push(opened)
  if (wallet) await injectWallet(opened.page, sandbox.file().rpcUrl, wallet)
  await opened.page.goto(url)
  return opened.page
}

/** A new wallet, with `usdc` of the sandbox's money, and with ether by default. */
async function newWallet(usdc: string | undefined, ether = true): Promise<TestWallet> {
  const account = privateKeyToAccount(generatePrivateKey())
  const { address } = account
  if (usdc !== undefined && ether) await sandbox.call("/sandbox/faucet", { address, amount: usdc })
  if (usdc !== undefined && !ether) await sandbox.call("/sandbox/pay", { to: address, amount: usdc })
  return { account, chainId: sandbox.file().chainId, asked: [] }
}

const payByHand = async (to: string, amount: string): Promise<string> =>
  (await sandbox.call("/sandbox/pay", { to, amount })).body.txHash

const stage = (page: Page, name: string) => page.locator(`[data-stage=${name}]`).waitFor()
const button = (page: Page, name: string | RegExp) => page.getByRole("button", { name })
const payWithPocket = (page: Page) => button(page, "Pay with Pocket").click()
const statusOf = async (id: string) => (await sandbox.call(`/pay/${id}/status`)).body

describe.concurrent("a checkout", () => {
  it("is paid by a signature on a phone, and the merchant gets the answers to its fields", async () => {
    const session = await start({
      payerFields: ["name", "email", "constructor"],
      redirectUrl: "https://shop.example/thanks",
    })
    const wallet = await newWallet("50", false)
    const page = await openPage(session.url, { viewport: { width: 375, height: 700 }, isMobile: true }, wallet)
    await page.getByLabel("Name").fill("Ada")
    await page.getByLabel("Email").fill("ada")
    // Every object has a property of that name.
    expect(await page.getByLabel("Constructor").inputValue()).toBe("")
    await page.getByLabel("Constructor").fill("Babbage")
    await button(page, "Continue").click()
    await page.getByText("Please enter an e-mail address").waitFor()
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("field-email")
    await isSoundEverywhere(page)
    await page.getByLabel("Email").fill("ada@example.com")
    await page.reload()
    expect(await page.getByLabel("Email").inputValue()).toBe("ada@example.com")
    await button(page, "Continue").click()
    await payWithPocket(page)
    const afterSigning = page.locator("[data-stage=sent],[data-stage=confirming],[data-stage=paid]")
    await afterSigning.waitFor()
    // A payer who reloads now is not asked for money again.
    await page.reload()
    await afterSigning.waitFor()
    expect(await button(page, /Pay with/).count()).toBe(0)
    await stage(page, "paid")
    expect(wallet.asked).toContain("eth_signTypedData_v4")
    expect(wallet.asked).not.toContain("eth_sendTransaction")
    const back = page.getByRole("link", { name: "Back to Blue Bottle Books" })
    expect(await back.getAttribute("href")).toBe("https://shop.example/thanks")
    await button(page, "Stay here").click()
    const key = { "x-api-key": sandbox.file().merchants[0].apiKey }
    const { body } = await sandbox.call(`/api/checkouts/${session.id}`, undefined, key)
    expect(body.payerInfo).toEqual({ name: "Ada", email: "ada@example.com", constructor: "Babbage" })
  })

  it("is reserved by a signature in a wallet without ether, captured in part, and the rest is released", async () => {
    const session = await start({ capture: "manual" })
    const wallet = await newWallet("50", false)
    const page = await openPage(session.url, {}, wallet)
    await page.getByText(/^You authorize up to 19\.90 USDC\. Blue Bottle Books can take it until /).waitFor()
    await payWithPocket(page)
    await stage(page, "reserved")
    expect(wallet.asked.filter(method => method.startsWith("eth_s"))).toEqual(["eth_signTypedData_v4"])
    const sessionId = session.id
    const paid = async (name: "captured" | "released", amount: string) =>
      await until(`it is ${name}`, async () => (await statusOf(sessionId)).reservation[name] === amount)
    await merchant("/api/console/payments/capture", { sessionId, amount: "12.00" })
    await paid("captured", "12.00")
    await merchant("/api/console/payments/void", { sessionId })
    await paid("released", "7.90")
    await page.reload()
    await stage(page, "paid")
    await page.getByText("Blue Bottle Books took 12.00 of 19.90 USDC. The rest was returned to your wallet.").waitFor()
    await page.getByRole("link", { name: "View the receipt" }).click()
    await page.waitForURL(/\/receipt\/cs_/)
    expect(await page.locator("main").textContent()).toMatch(/Amount paid\s*12\.00 USDC.*Released\s*7\.90 USDC/s)
  })

  it("is paid by a transfer, after a refusal, on the right network, with enough money", async () => {
    const session = await start()
    const wallet = { ...(await newWallet(undefined)), chainId: 1 }
    const page = await openPage(session.url, {}, wallet)
    await button(page, "Send a normal transfer instead").click()
    await payWithPocket(page)
    await page.getByText("Your wallet is on another network").waitFor()
    await isSoundEverywhere(page)
    await button(page, "Switch to Base Sepolia").click()
    await page.getByText("You have 0.00 USDC. You need 19.90 USDC more.").waitFor()
    await sandbox.call("/sandbox/pay", { to: wallet.account.address, amount: "25" })
    await button(page, "Choose another way").click()
    await payWithPocket(page)
    await page.getByText("You have no ETH for the network fee.").waitFor()
    await isSoundEverywhere(page)
    await sandbox.call("/sandbox/faucet", { address: wallet.account.address, amount: "1" })
    await button(page, "Choose another way").click()
    wallet.before = method => {
      if (method === "eth_sendTransaction") throw Object.assign(new Error("declined"), { code: 4001 })
    }
    await payWithPocket(page)
    await page.getByText("You declined in your wallet. Nothing was sent.").waitFor()
    await isSoundEverywhere(page)
    delete wallet.before
    await payWithPocket(page)
    await stage(page, "paid")
    expect(wallet.asked).not.toContain("eth_signTypedData_v4")
  })

  it("is paid by hand, with the copied address and amount, and in two parts", async () => {
    const session = await start()
    const page = await openPage(session.url)
    await page.getByRole("tab", { name: "Manually" }).click()
    await isSoundEverywhere(page)
    const copied = async (what: string) => {
      await button(page, `Copy: ${what}`).click()
      return await page.evaluate(() => navigator.clipboard.readText())
    }
    expect([await copied("Amount"), await copied("Address")]).toEqual(["19.90", session.payTo])
    const terms = await page.getByRole("link", { name: "Where this money can go" }).getAttribute("href")
    expect(await (await fetch(new URL(terms ?? "", session.url))).text()).toContain(session.payTo)
    await payByHand(session.payTo, "15")
    await page.getByText("15.00 USDC has arrived. Please send the remaining 4.90 USDC.").waitFor()
    expect(await copied("Amount")).toBe("4.90")
    await payByHand(session.payTo, "4.90")
    await stage(page, "paid")
  })

  it("is paid from the first field to the receipt by keyboard alone, with the sandbox's wallet", async () => {
    const page = await openPage((await start({ payerFields: ["name"] })).url)
    /** Presses Tab until this has the focus; returns what had it on the way. */
    const tabTo = async (name: string): Promise<string[]> => {
      const way: string[] = []
      while (way.at(-1) !== name && way.length < 25) {
        await page.keyboard.press("Tab")
        way.push(await page.evaluate(() => (document.activeElement?.id || document.activeElement?.textContent) ?? ""))
      }
      expect(way.at(-1)).toBe(name)
      return way
    }
    await page.getByLabel("Name").waitFor()
    await tabTo("field-name")
    await page.keyboard.type("Ada")
    await page.keyboard.press("Enter")
    await button(page, "Pay with the test wallet").waitFor()
    // All tabs are one stop; the arrow keys move between them.
    expect((await tabTo("Pay with the test wallet")).slice(-2)).toEqual(["way-wallet", "Pay with the test wallet"])
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("ArrowRight")
    await page.getByText("Scan to open this page").waitFor()
    await isSoundEverywhere(page)
    await page.keyboard.press("ArrowLeft")
    await tabTo("Pay with the test wallet")
    await page.keyboard.press("Enter")
    await stage(page, "paid")
    await tabTo("View the receipt")
    await page.keyboard.press("Enter")
    await page.waitForURL(/\/receipt\//)
  })

  it("charges once, whoever pays it in two tabs", async () => {
    const session = await start()
    const wallet = await newWallet("100")
    const release = Promise.withResolvers<void>()
    let waiting = 0
    wallet.before = async method => {
      if (method !== "eth_signTypedData_v4") return
      if (++waiting === 2) release.resolve()
      await release.promise
    }
    const first = await openPage(session.url, {}, wallet)
    const second = await first.context().newPage()
    await injectWallet(second, sandbox.file().rpcUrl, wallet)
    await second.goto(session.url)
    await Promise.all([payWithPocket(first), payWithPocket(second)])
    await Promise.all([stage(first, "paid"), stage(second, "paid")])
    expect(await statusOf(session.id)).toMatchObject({ exception: null, amountReceived: "19.90" })
  })

  it("is not disturbed by a hash that somebody else submits, and says what is wrong with its payer's", async () => {
    const session = await start()
    const page = await openPage(session.url)
    await button(page, "Pay with the test wallet").waitFor()
    const foreign = await payByHand(sandbox.file().buyers[3].address, "1")
    expect((await sandbox.call("/api/pay/confirm", { sessionId: session.id, txHash: foreign })).status).toBe(200)
    await until("it is refused", async () => (await statusOf(session.id)).submission?.status === "failed")
    await page.getByRole("tab", { name: "Manually" }).click()
    expect(await page.locator("[data-stage=pay]").count()).toBe(1)
    expect(await page.getByText("That transaction").count()).toBe(0)
    await page.getByText("I have sent it").click()
    await page.getByLabel("Transaction hash").fill("0x12")
    await button(page, "Find my payment").click()
    await page.getByText("A transaction hash is 0x and 64 letters and digits.").waitFor()
    await isSoundEverywhere(page)
    const mine = await payByHand(sandbox.file().buyers[4].address, "1")
    await page.getByLabel("Transaction hash").fill(mine)
    await button(page, "Find my payment").click()
    await page.getByText("That transaction paid another address.").waitFor()
    expect(await page.locator("[data-stage=pay]").count()).toBe(1)
    await payByHand(session.payTo, "20")
    await stage(page, "paid")
    await page.getByText("You sent 20.00 USDC, which is more than 19.90 USDC.").waitFor()
  })

  it("says that another token arrived, and stays payable", async () => {
    const session = await start()
    const { rpcUrl, buyers } = sandbox.file()
    const account = privateKeyToAccount(buyers[2].privateKey as Hex)
    const client = createWalletClient({ account, transport: http(rpcUrl, { timeout: 120_000 }) })
    const { getTransactionReceipt } = await import("viem/actions")
    const deployed = await client.deployContract({
      abi: testUsdcAbi,
      bytecode: testUsdcBytecode,
      args: [],
      chain: null,
    })
    await sandbox.call("/sandbox/mine", { blocks: 1 })
    const { contractAddress } = await getTransactionReceipt(client, { hash: deployed })
    const address = contractAddress as Hex
    const args = [session.payTo as Hex, 19_900_000n] as const
    const txHash = await client.writeContract({ address, abi: testUsdcAbi, functionName: "mint", args, chain: null })
    await sandbox.call("/api/pay/confirm", { sessionId: session.id, txHash })
    const page = await openPage(session.url)
    await page.getByText("Something other than USDC arrived. It does not count.").waitFor()
    await button(page, "Pay with the test wallet").click()
    await stage(page, "paid")
  })

  it("can be read and paid without JavaScript", async () => {
    const session = await start()
    const page = await openPage(session.url, { javaScriptEnabled: false })
    const text = await page.locator("main").textContent()
    for (const part of ["Blue Bottle Books", "19.90", "Base Sepolia", session.payTo, sandbox.file().token.address])
      expect(text).toContain(part)
    await payByHand(session.payTo, "19.90")
    await until("it is confirmed", async () => (await statusOf(session.id)).status === "confirmed")
    await page.reload()
    expect(await page.locator("main").textContent()).toContain("Payment complete")
  })

  it("speaks the visitor's language, in its direction, with its numbers", async () => {
    const session = await start()
    const german = await openPage(session.url, { locale: "de-DE" })
    await button(german, "Mit der Test-Wallet zahlen").waitFor()
    expect(await german.locator("h1").textContent()).toBe("19,90 USDC")
    await german.getByText("Ihre Wallet zeigt 19.90 USDC").waitFor()
    const arabic = await openPage(`${session.url}?lang=ar`)
    await arabic.getByRole("tab", { name: "يدويًا" }).click()
    expect(await arabic.evaluate(() => getComputedStyle(document.body).direction)).toBe("rtl")
    await isSoundEverywhere(arabic)
    await arabic.getByRole("combobox").selectOption("fr")
    await arabic.getByText("Payer avec le portefeuille de test").waitFor()
  })

  it("shows what a merchant wrote as text, and leads nowhere but to http", async () => {
    const hostile =
      '<img src=x onerror="document.title=\'owned\'"></script><script>document.title="owned"</script>\u202egnp.exe\u0007'
    const session = await start({ description: hostile })
    const page = await openPage(session.url)
    await button(page, "Pay with the test wallet").waitFor()
    expect(await page.title()).toBe("Pay Blue Bottle Books")
    const shown = await page.locator(".what").textContent()
    expect(shown).toContain("<img src=x")
    expect(shown).not.toMatch(/\p{Cc}|\u202e/u)
    expect(await page.locator("img, .what script").count()).toBe(0)
  })
})

/** A request of the first merchant. */
const merchant = async (path: string, body?: object) => {
  const auth = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
  return (await sandbox.call(path, body, auth)).body
}

describe.concurrent("the other pages", () => {
  it("a paywall is unlocked by paying, and opens again without paying, for the wallet that paid alone", async () => {
    const film = {
      name: "Film",
      price: 5,
      contentUrl: "https://films.example/one",
      contentData: { code: "blue-42\u202ecod.exe" },
    }
    const { id } = await merchant("/api/console/paywalls", film)
    const url = `${sandbox.url}/paywall/${id}`
    const wallet = await newWallet("20")
    const page = await openPage(url, {}, wallet)
    await payWithPocket(page)
    await stage(page, "paid")
    await isSoundEverywhere(page)
    await button(page, "Open the content: Pocket").click()
    await page.getByText("blue-42cod.exe").waitFor()
    // All tests of this browser share one clipboard.
    await page.evaluate(() => {
      navigator.clipboard.writeText = async text => {
        document.title = text
      }
    })
    await button(page, "Copy: code").click()
    await button(page, "Copied").waitFor()
    expect(await page.title()).toBe("blue-42cod.exe")
    const link = page.getByRole("link", { name: "Open the content" })
    expect(await link.getAttribute("href")).toBe(film.contentUrl)
    await isSoundEverywhere(page)

    const later = await openPage(url, {}, wallet)
    await button(later, "I have already paid").click()
    await button(later, "Open the content: the test wallet").click()
    await later.getByText("This wallet has no access.").waitFor()
    await isSoundEverywhere(later)
    await button(later, "Open the content: Pocket").click()
    await later.getByText("blue-42").waitFor()
    expect(wallet.asked.filter(method => method === "eth_sendTransaction")).toHaveLength(1)
  })

  it("a link asks for the amount, and starts one checkout, whose receipt can be read", async () => {
    const { slug } = await merchant("/api/console/payment-links", { title: "Radio", description: "What you like" })
    const page = await openPage(`${sandbox.url}/p/${slug}`)
    await page.getByLabel("Amount in USDC").fill("five")
    await button(page, "Continue").click()
    await page.getByText("Enter an amount such as 5 or 4.99.").waitFor()
    await isSoundEverywhere(page)
    await page.getByLabel("Amount in USDC").fill("7,50")
    await button(page, "Continue").click()
    await page.waitForURL(/\/pay\/cs_/)
    await page.reload()
    expect(await page.locator("h1").textContent()).toBe("7.50 USDC")
    await button(page, "Pay with the test wallet").click()
    await stage(page, "paid")
    await page.getByRole("link", { name: "View the receipt" }).click()
    await page.waitForURL(/\/receipt\/cs_/)
    expect(await page.locator("main").textContent()).toMatch(/Receipt.*7\.50.*What you like.*cs_[a-z0-9]{24}/s)
  })

  it("a return is claimed by the wallet that paid, and by no other", async () => {
    const session = await start()
    await payByHand(session.payTo, "5")
    const waiting = async () => {
      const { data } = await merchant("/api/console/payments")
      return data.find((each: { sessionId: string }) => each.sessionId === session.id)?.id
    }
    await until("it waits", async () => (await waiting()) !== undefined)
    // While the rest can still be paid, the page asks for it and offers no return.
    expect(await (await fetch(session.url)).text()).not.toContain("/return/pay_")
    const page = await openPage(`${sandbox.url}/return/${await waiting()}`, {}, await newWallet(undefined))
    await isSoundEverywhere(page)
    await button(page, "Sign with Pocket").click()
    await page.getByText("Sign with the wallet that paid").waitFor()
    await page.getByLabel("Send it back to").fill("0x12")
    await button(page, "Sign with the test wallet").click()
    await page.getByText("Enter an address: 0x and 40 letters and digits.").waitFor()
    await page.getByLabel("Send it back to").fill(sandbox.file().buyers[1].address)
    await button(page, "Sign with the test wallet").click()
    await page.getByText("Saved").waitFor()
    await isSoundEverywhere(page)
  })
})

/** A merchant's site, with a link as in docs/developers/embedding.md; it records every message and event that it gets. */
async function openSite(link: string): Promise<{ url: string; stop: () => void }> {
  const text = `<!doctype html><html lang="en"><title>Shop</title><a data-sluice href="${link}">Pay now</a>
<script>window.got = []
addEventListener("message", event => got.push(event.data.type))
for (const type of ["sluice:paid", "sluice:close"]) addEventListener(type, event => got.push({ type, ...event.detail }))
</script><script src="${sandbox.url}/embed.js"></script>`
  const server = createServer((_request, response) => response.setHeader("content-type", "text/html").end(text))
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, stop: () => server.close() }
}
const gotOf = (page: Page) => page.evaluate(() => (globalThis as unknown as { got: unknown[] }).got)

describe.concurrent("a merchant's site", () => {
  /** The second merchant, which alone has allowed sites. */
  const auth = () => ({ authorization: `Bearer ${sandbox.file().merchants[1].accessToken}` })
  const allow = async (allowedOrigins: string[]) => {
    const headers = { ...auth(), "content-type": "application/json" }
    const body = JSON.stringify({ allowedOrigins })
    const answer = await fetch(`${sandbox.url}/api/console/settings`, { method: "PUT", headers, body })
    expect(answer.status, await answer.text()).toBe(200)
  }
  const open = async (site: { url: string }) => {
    const page = await (await newContext(browser)).newPage()
    await page.goto(site.url)
    return page
  }

  it("shows the page in a dialog where it is allowed and hears of the payment, and says elsewhere that it can't", async ({
    expect,
  }) => {
    const { body } = await sandbox.call("/api/console/checkouts", { amount: "5" }, auth())
    const { id, url } = body
    const site = await openSite(url)
    const other = await openSite(url)
    await allow([site.url])

    const shop = await open(site)
    await shop.getByRole("link", { name: "Pay now" }).click()
    const dialog = shop.getByRole("dialog", { name: "Pay now" })
    const frame = dialog.locator("iframe").contentFrame()
    await frame.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
    await dialog.getByRole("button", { name: "Close" }).click()
    await shop.getByRole("link", { name: "Pay now" }).click()

    const elsewhere = await open(other)
    await elsewhere.getByRole("link", { name: "Pay now" }).click()
    // Without the policy that the browser enforces, the page is shown, but does not answer.
    const forced = await open(other)
    await forced.route(url, async route => {
      const response = await route.fetch()
      const { "content-security-policy": _, ...headers } = response.headers()
      await route.fulfill({ response, headers })
    })
    await forced.evaluate(address => {
      const frame = document.body.appendChild(document.createElement("iframe"))
      frame.onload = () => frame.contentWindow?.postMessage({ type: "sluice:hello" }, "*")
      frame.src = address
    }, url)

    await frame.getByRole("button", { name: "Pay with the test wallet" }).click()
    await frame.locator("[data-stage=paid]").waitFor()
    await forced.frameLocator("iframe").locator("[data-stage=paid]").waitFor()
    expect(await gotOf(forced)).toEqual([])
    await frame.getByRole("link", { name: "View the receipt" }).focus()
    await shop.keyboard.press("Escape")
    await dialog.waitFor({ state: "detached" })
    const got = async () => (await gotOf(shop)) as { type?: string }[]
    // The dialog disappears a moment before its end is announced.
    await expect
      .poll(async () => (await got()).filter(each => each.type))
      .toEqual([
        { type: "sluice:close", id: null },
        { type: "sluice:paid", id },
        { type: "sluice:close", id },
      ])
    // The first dialog may have been closed before its page was ready.
    const messages = new Set((await got()).filter(each => !each.type))
    expect([...messages]).toEqual(["sluice:ready", "sluice:paid", "sluice:close"])
    await elsewhere.getByText("This page can’t be shown here.").waitFor()
    expect(await elsewhere.getByRole("link", { name: "Open it in a new tab" }).getAttribute("href")).toBe(url)
    // A receipt has nothing to click that a surrounding site could abuse, and no use in a frame.
    const receipt = await fetch(`${sandbox.url}/receipt/${id}`)
    expect([receipt.status, receipt.headers.get("content-security-policy")]).toEqual([
      200,
      expect.stringMatching(/frame-ancestors 'none'$/),
    ])
    for (const { stop } of [site, other]) stop()
  })
})

describe("after its time", () => {
  // Each open page keeps asking for its state.
  beforeAll(async () => {
    await Promise.all(visits.map(opened => opened.close()))
  })

  it("a checkout that nobody paid has expired, and money that comes then is late", async () => {
    const unpaid = await start()
    const late = await start()
    const part = await start()
    const page = await openPage(unpaid.url)
    const latePage = await openPage(late.url)
    const partPage = await openPage(part.url)
    await payByHand(part.payTo, "5")
    await stage(partPage, "part")
    await sandbox.call("/sandbox/mine", { blocks: 4 })
    await until("it counts", async () => (await statusOf(part.id)).exception === "underpaid")
    await sandbox.call("/sandbox/clock", { advance: "25h" })
    await stage(page, "expired")
    await stage(partPage, "expired")
    await partPage.getByText("5.00 of 19.90 USDC arrived before time ran out.").waitFor()
    expect(await button(page, /Pay/).count()).toBe(0)
    await stage(latePage, "expired")
    await payByHand(late.payTo, "19.90")
    await sandbox.call("/sandbox/mine", { blocks: 4 })
    await latePage.getByText("Your payment arrived too late").waitFor()
    expect(await partPage.getByRole("link", { name: "Say where to send it back" }).count()).toBe(1)
    await latePage.getByRole("link", { name: "Say where to send it back" }).click()
    await latePage.waitForURL(/\/return\/pay_/)
    await button(latePage, "Sign with the test wallet").waitFor()
    await latePage.getByText("must decide what happens to 19.90 USDC.").waitFor()
  })

  it("a subscription's next invoice is paid on its page, and the wallet that pays it cancels it", async () => {
    const daily = { name: "Daily news", price: "2.50", billingInterval: "day" }
    const { id: productId } = await merchant("/api/console/products", daily)
    const { id: sessionId, url } = await merchant("/api/console/checkouts", { productId })
    const wallet = await newWallet("50")
    const page = await openPage(url, {}, wallet)
    await page.getByText("Renews every day. You pay each invoice yourself; nothing is charged automatically.").waitFor()
    await payWithPocket(page)
    await stage(page, "paid")
    await page.getByText(/^Your subscription is paid until /).waitFor()
    // The next invoice is made once the payment is final. A round that finds it reversible checks again a minute later.
    await sandbox.call("/sandbox/mine", { blocks: 12 })
    const entries = async () => (await merchant(`/api/console/books?sessionId=${sessionId}`)).data
    const isFinal = ({ status }: { status: string }) => status === "final"
    await until("the first payment is final", async () => (await entries()).some(isFinal))
    // Half a day before its period.
    await sandbox.call("/sandbox/clock", { advance: "13h" })
    const open = async () => (await merchant("/api/console/invoices?status=open")).data[0]?.id
    await until("the next invoice is made", async () => (await open()) !== undefined)
    await page.goto(`${sandbox.url}/invoice/${await open()}`)
    await page.getByText("Daily news").waitFor()
    await isSoundEverywhere(page)
    await payWithPocket(page)
    await stage(page, "paid")
    await page.goto(`${sandbox.url}/subscriptions`)
    await button(page, "Sign in with Pocket").click()
    await page.getByText("Invoices").click()
    await until("both have a receipt", async () => (await page.getByRole("link", { name: /receipt/ }).count()) === 2)
    await button(page, "Cancel this subscription").click()
    await isSoundEverywhere(page)
    await button(page, "Yes, cancel it").click()
    await page.getByText(/^It is canceled, and ends on /).waitFor()
    const { data } = await merchant("/api/console/subscriptions")
    expect(data).toMatchObject([{ productId, cancelAtPeriodEnd: true, status: "active" }])
  })

  it("asks for no money while the chain's node stands still, and recovers by itself", async () => {
    const session = await start()
    const page = await openPage(session.url)
    await button(page, "Pay with the test wallet").waitFor()
    // The node and its keeper, which are a process group.
    const group = -Number(readFileSync(join(sandbox.dir, "chain", "chain.pid"), "utf8"))
    process.kill(group, "SIGSTOP")
    // After the jump nothing was read for five rounds. The chain's clock follows when its node continues.
    const moved = sandbox.call("/sandbox/clock", { advance: "1m" })
    try {
      await stage(page, "unknown")
      await page.getByText("Please don't pay yet.").waitFor()
      expect(await button(page, /Pay/).count()).toBe(0)
      expect(await page.getByText(session.payTo).count()).toBe(0)
    } finally {
      process.kill(group, "SIGCONT")
    }
    expect((await moved).status).toBe(200)
    await button(page, "Pay with the test wallet").click()
    await stage(page, "paid")
  })

  it("no page asked another server for anything, or broke a rule of its policy", async () => {
    expect(visits.length).toBeGreaterThan(8)
    const { headers } = await fetch(`${sandbox.url}/sandbox`)
    expect([headers.get("x-content-type-options"), headers.get("referrer-policy")]).toEqual(["nosniff", "no-referrer"])
    expect(visits.flatMap(({ faults }) => faults)).toEqual([])
  })
})
