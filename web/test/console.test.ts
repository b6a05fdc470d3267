/**
 * The console in Chromium against the real sandbox: what each page shows, how many requests it makes, whole jobs by keyboard, a return
 * that a wallet signs, and what stays when the server fails.
 */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import type { Browser, Page, Route } from "playwright-core"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { newSandbox, root, type Sandbox, until } from "../../server/test/e2e/program.ts"
import { injectWallet, isSound, openBrowser } from "./browser.ts"
import { canFail, failOn, faultNames, prepareFor } from "./console-faults.ts"
import { fillLists, keepsItsPlace, longLists } from "./console-lists.ts"
import { pagesOf } from "./console-pages.ts"
import { fillWorld, ownerOf, type World } from "./console-sales.ts"
import { press, shows, visitsOf } from "./console-visits.ts"
import { HOSTILE } from "./console-world.ts"

let browser: Browser
let sandbox: Sandbox
let world: World
const visits = visitsOf(() => ({ browser, sandbox }))

beforeAll(async () => {
  await import("../src/console/build.ts")
  // All of these tests together load more pages and parts in a minute than one person may.
  const limits = { LIMIT_PUBLIC: "0", LIMIT_AUTH: "0", LIMIT_CONSOLE: "0", LIMIT_PAGES: "0" }
  sandbox = await newSandbox(limits, "migrated")
  await Promise.all([sandbox.start(), openBrowser().then(found => (browser = found))])
  world = await fillWorld(sandbox)
})
afterAll(async () => {
  await visits.close()
  await browser?.close()
  await sandbox.remove()
})

/** At a page of the console, as the owner of the world's merchant; with `name` as that of another, in a session of its own. */
const open = (path = "/", name?: string) => visits.open(path, name ?? world.name, name !== undefined)
const { go } = visits
/** On a phone, from the right to the left. */
async function turnAround(page: Page): Promise<void> {
  await page.setViewportSize({ width: 390, height: 844 })
  await page.addInitScript(() =>
    addEventListener("DOMContentLoaded", () => document.documentElement.setAttribute("dir", "rtl")),
  )
}

describe.concurrent("each page", () => {
  it("shows what it is for, with at most three requests, and breaks no policy", async () => {
    const { page, calls, faults } = await open()
    const pages: [string, ...string[]][] = [
      ...pagesOf(world).map(({ path, shows }): [string, ...string[]] => [path, ...shows]),
      ["/", "473.85", "Order 1042"],
      [`/payers/${world.payer}`, "19.95"],
      ["/payments?status=reversed", "No payments with the state “Reversed by the chain”."],
      [
        `/payments/${world.waiting}`,
        "14.90",
        "less than the price of 19.90 USDC",
        "The money is waiting for your decision",
      ],
      [`/checkouts/${world.reserved}`, "64.00", "Reserved", "Capture until"],
    ]
    for (const [path, ...texts] of pages) {
      calls.clear()
      await go(page, path)
      await shows(page, ...texts)
      expect(calls.size, `${path}: ${[...calls].join(" ")}`).toBeLessThanOrEqual(3)
    }
    expect(faults).toEqual([])
    expect(await page.evaluate(() => "pwned" in globalThis)).toBe(false)
  })

  it("has no fault that axe finds, nor scrolls sideways, in light, dark and on a narrow screen", async () => {
    const paths = ["/", `/payments/${world.waiting}`, "/needs-you", "/checkouts/new", "/dev/states"]
    const look = async (pages: string[], change: (page: Page) => Promise<void>, rules?: string[]) => {
      const { page } = await open("/dev/states")
      // Before the pages are loaded: axe takes colours that change under it for those of before.
      await change(page)
      for (const path of pages) {
        await go(page, path)
        await page.waitForLoadState("networkidle")
        await isSound(page, rules)
      }
    }
    await Promise.all([
      look(paths, async () => undefined),
      // In the dark only colours differ.
      look(paths, page => page.emulateMedia({ colorScheme: "dark" }), ["color-contrast"]),
      look(["/", "/needs-you", `/splits/${world.split}`], page => page.setViewportSize({ width: 320, height: 700 })),
      // No language of the console is written from the right yet; its layout is ready for one.
      look(["/", "/payments", `/payments/${world.waiting}`], turnAround, ["color-contrast"]),
    ])
  })

  it("says what accepting does, of the money that waits alone", async () => {
    const { page, faults } = await open(`/checkouts/${world.overpaid}`)
    const [payment] = (await ownerOf(sandbox).get("/api/console/payments?exception=overpaid")).data
    for (const path of [`/checkouts/${world.overpaid}`, `/payments/${payment.id}`]) {
      await go(page, path)
      await page.getByRole("button", { name: "Accept", exact: true }).click()
      const dialog = page.getByRole("dialog")
      await dialog.getByText("It buys nothing more.").waitFor()
      await dialog.getByRole("button", { name: "Accept 1.80 USDC" }).waitFor()
      await dialog.getByRole("button", { name: "Cancel" }).click()
      await dialog.waitFor({ state: "detached" })
    }
    expect(faults).toEqual([])
  })

  it("keeps what payers and others wrote as text", async () => {
    const { page, faults } = await open("/checkouts")
    await page.getByRole("row").filter({ hasText: HOSTILE }).getByRole("link").click()
    await page.getByRole("heading", { name: "What happened" }).waitFor()
    await shows(page, HOSTILE)
    expect(await page.evaluate(() => "pwned" in globalThis)).toBe(false)
    expect(faults).toEqual([])
  })
})

describe.concurrent("by the keyboard alone", () => {
  it("a person finds an order, a hash and an e-mail address, goes through a list, and sends a failed delivery again", async () => {
    const { page, faults } = await open()
    const { keyboard } = page
    await shows(page, "Received")
    const find = async (text: string, found: string) => {
      await keyboard.press("/")
      await page.getByPlaceholder(/Order, hash/).waitFor()
      await page.waitForFunction(() =>
        (document.activeElement as HTMLInputElement | null)?.placeholder?.startsWith("Order, hash"),
      )
      await keyboard.type(text)
      await page.locator(".mantine-Spotlight-action").filter({ hasText: found }).first().waitFor()
      await keyboard.press("Enter")
      await page.getByRole("heading", { name: "What happened" }).waitFor()
      await page.getByPlaceholder(/Order, hash/).waitFor({ state: "hidden" })
    }
    await find("order:1040", "Order 1040")
    await shows(page, "250.00")
    await find("buyer1041@example.com", "Order 1041")
    await shows(page, "14.90")
    // No part of it is an amount that is found before the whole is typed.
    await find("0.05", "amount")
    await shows(page, "Order 1037")
    await keyboard.press("g")
    await keyboard.press("p")
    await page.getByRole("heading", { name: "Payments" }).waitFor()
    await shows(page, "Order 1042")
    await keyboard.press("j")
    await keyboard.press("j")
    await keyboard.press("Enter")
    await page.getByRole("heading", { name: "What happened" }).waitFor()
    await keyboard.press("Escape")
    await page.getByRole("heading", { name: "Payments" }).waitFor()
    await keyboard.press("?")
    await shows(page, "These keys")
    await keyboard.press("Escape")
    // Keys are the dialog's until it is gone.
    await page.getByRole("dialog").waitFor({ state: "hidden" })
    await keyboard.press("g")
    await keyboard.press("w")
    await page.getByRole("heading", { name: "Deliveries" }).waitFor()
    await go(page, `/webhooks/deliveries/${world.failed}`)
    await page.getByRole("button", { name: "Send again" }).focus()
    await keyboard.press("Enter")
    await shows(page, "It is being resent")
    expect(faults).toEqual([])
  })
})

describe.concurrent("the payments", () => {
  it("say what a filter adds up to, by days and reasons of one's choice, with the columns of one's choice", async () => {
    const { page, faults } = await open("/payments")
    const totals = page.locator("dl.totals")
    const auth = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
    const { body } = await sandbox.call("/api/console/transactions/totals?type=payment", undefined, auth)
    const sumOf = (...states: string[]): string => {
      const of = body.data.filter((each: { status: string }) => states.includes(each.status))
      return of.reduce((sum: number, { amount }: { amount: string }) => sum + Number(amount), 0).toFixed(2)
    }
    // Paid directly, and captured: one word for both.
    const paid = totals.locator("div").filter({ hasText: "Paid" })
    await paid.getByTitle(`${sumOf("granted", "confirmed")} USDC`).waitFor()
    await totals.getByTitle(`${sumOf("open")} USDC`).waitFor()
    await page.getByLabel("Reason").selectOption("underpaid")
    await shows(page, "1 payment with the reason “Partly paid”")
    expect(await totals.textContent()).toContain("14.90")
    await page.getByLabel("Reason").selectOption("")
    const amount = page.getByLabel("Exact amount")
    await amount.fill("1,234.50")
    await shows(page, "Enter an amount such as 49.00 or 1250.")
    await amount.fill("14,90")
    await shows(page, "1 payment with the amount “14,90”")
    expect(await totals.textContent()).toContain("14.90")
    expect(await page.getByRole("link", { name: "Export as CSV" }).getAttribute("href")).toContain("amount=14.90")
    await page.reload()
    await shows(page, "1 payment with the amount “14,90”")
    await amount.fill("1.1234567")
    await shows(page, "“amount” has more than 6 decimals, the most that the token has.")
    await amount.fill("123.45")
    await shows(page, "No payments with the amount “123.45”.")
    await page.getByRole("button", { name: "Clear the filter" }).click()
    await shows(page, "Order 1042")
    expect(await amount.inputValue()).toBe("")
    await page.getByLabel("Time").selectOption("own")
    await shows(page, "with a time from")
    await page.getByLabel("From").fill("2020-01-01")
    await page.getByLabel("To (inclusive)").fill("2020-01-31")
    await shows(page, "No payments with a time from Jan 1, 2020 to Jan 31, 2020.")
    expect(page.url()).toContain("from=2020-01-01")
    expect(await totals.count()).toBe(0)
    await page.getByRole("button", { name: "Clear the filter" }).click()
    await shows(page, "Order 1042")

    await page.getByRole("button", { name: "Columns" }).focus()
    await page.keyboard.press("Enter")
    await page.getByRole("menuitemcheckbox", { name: "Network" }).press("Enter")
    await page.getByRole("menuitemcheckbox", { name: "Payer" }).press("Enter")
    await page.keyboard.press("Escape")
    await page.reload()
    await shows(page, "Order 1042")
    const heads = await page.locator("table.list thead th").allTextContents()
    expect(heads).toEqual(["Amount", "State", "For", "Transaction", "Network", "When"])
    expect(faults).toEqual([])
  })
})

describe.concurrent("the account", () => {
  it("makes a key that is shown once and opens what it may, and revokes it", async () => {
    const { page, faults } = await open("/developers")
    await page.getByRole("button", { name: "Create key" }).first().click()
    await page.getByLabel("Name").fill("Till")
    await page.getByLabel(/Read everything but/).check()
    await page.getByLabel("Create key").getByRole("button", { name: "Create key" }).click()
    await shows(page, "It is shown only now.")
    const key = (await page.locator("pre.code").textContent()) ?? ""
    const ask = async () => (await sandbox.call("/api/console/balances", undefined, { "x-api-key": key })).status
    expect(await ask()).toBe(200)
    await page.getByRole("link", { name: "Till" }).click()
    await shows(page, "Roll it")
    await page.getByRole("button", { name: "Revoke" }).click()
    await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click()
    await shows(page, "The key no longer works")
    expect(await ask()).toBe(401)
    expect(faults).toEqual([])
  })

  it("invites by the keyboard alone, shows the invitation once, and revokes it", async () => {
    const { page, faults } = await open("/team")
    await page.getByRole("button", { name: "Invite" }).focus()
    await page.keyboard.press("Enter")
    await page.getByLabel("E-mail address").waitFor()
    await page.keyboard.type("grace@example.com")
    await page.keyboard.press("Enter")
    await shows(page, "It is shown only now.", "grace@example.com")
    await page.getByRole("button", { name: "Revoke" }).click()
    await shows(page, "can no longer be accepted")
    await page.getByRole("region", { name: "Invitations" }).waitFor({ state: "detached" })
    expect(faults).toEqual([])
  })

  it("takes the token of an invitation's link out of the address bar, and says why it is not accepted", async () => {
    const { page } = await open("/team/accept#not-a-token")
    await shows(page, "Only the person named in an invitation can accept it.")
    expect(page.url()).not.toContain("not-a-token")
    expect(await page.getByLabel("The invitation").inputValue()).toBe("not-a-token")
    await page.getByRole("button", { name: "Accept" }).click()
    await shows(page, "That did not work")
  })

  it("has the page that each mail leads to", async () => {
    const paths = ["/needs-you", "/payments/pay_x", "/payouts/po_x", "/webhooks/x", "/team", "/settings", "/sessions"]
    const { page } = await open("/reports")
    for (const path of paths) {
      await page.goto(`${sandbox.url}/console${path}`)
      await page.locator("main").first().waitFor()
      expect(await page.getByText("There is no such page").count(), path).toBe(0)
    }
  })
})

// On the embedded database nothing but the service can write.
describe.skipIf(process.env.DATABASE_URL === undefined)("lists of 10,000 rows", () => {
  it("draw few of them, and are at their place when one comes back", async () => {
    const { page, faults } = await open("/links", await fillLists(sandbox))
    for (const list of longLists) {
      await go(page, list[0])
      await keepsItsPlace(page, list, 250)
    }
    expect(faults).toEqual([])
  })
})

// They wait for the pages' own rhythm, so they wait together; the payment changes what was looked at before.
describe.concurrent("when the server does not answer as it should", () => {
  it("has each route among the pages that are tried and pictured", () => {
    const source = readFileSync(join(root, "web/src/console/main.tsx"), "utf8")
    const routes = [...source.matchAll(/page\("([^"]+)"/g)].map(([, route]) => route)
    expect(
      pagesOf(world)
        .map(({ route }) => route)
        .sort(),
    ).toEqual(routes.sort())
  })

  it("a checkout is made, and its payment arrives while the page is open", async () => {
    const { page, faults } = await open()
    await shows(page, "Received")
    await page.keyboard.press("c")
    await page.getByLabel("Amount").waitFor()
    await page.keyboard.type("7.5")
    // Past the products, where they are read already.
    await press(page, "What it is for", "End")
    await page.keyboard.type("Order 2001")
    await page.keyboard.press("Enter")
    await shows(page, "The payer's page", "7.50")
    const id = page.url().split("/").at(-1)
    const { body } = await sandbox.call(`/api/pay/status/${id}`)
    await sandbox.call("/sandbox/pay", { to: body.payTo, amount: "7.5" })
    await page.locator(".pill.good").getByText("Paid").waitFor()
    await shows(page, "The checkout was confirmed as paid.")
    expect(faults).toEqual([])
  })

  /** Each page by one of the faults here, so that each fault meets every fifth page; by all of them in the long form. */
  it.each(faultNames)("each page says so, and goes on: %s", async fault => {
    const { page } = await visits.open("/signed-in", world.name)
    await prepareFor(fault, page)
    const pages = pagesOf(world).filter(canFail)
    for (const each of pages.filter((_, i) => faultNames[i % faultNames.length] === fault))
      await failOn(page, sandbox.url, each, fault).catch((error: Error) => {
        throw new Error(`${each.path}: ${error.message}`)
      })
  })

  it("says that a page's file did not come, keeps what is around it, and loads it when it is asked to again", async () => {
    const { page } = await open("/links")
    await shows(page, "Support the radio")
    await page.waitForLoadState("networkidle")
    await page.route("**/console/assets/*", route => route.fulfill({ status: 429 }))
    await page.getByRole("link", { name: "Needs you" }).click()
    await page.locator("main").getByText("This part could not be loaded").waitFor()
    await shows(page, "Links")
    await page.unroute("**/console/assets/*")
    await page.locator("main").getByRole("button", { name: "Try again" }).click()
    await shows(page, "Partly paid")
  })

  it("says so where its first file does not come, and where there is no connection", async () => {
    const { page } = await open("/links")
    await shows(page, "Support the radio")
    await page.context().setOffline(true)
    await shows(page, "You are offline", "Support the radio")
    await page.context().setOffline(false)
    await page.getByText("You are offline").waitFor({ state: "detached" })
    await page.route("**/console/assets/main-*.js", route => route.fulfill({ status: 503 }))
    await page.reload()
    await shows(page, "The console could not be loaded", "Load it again")
  })

  /** The stream is down too: the page asks by itself. */
  const withoutStream = (page: Page) => page.route("**/api/console/stream*", route => route.fulfill({ status: 503 }))

  const failWith =
    (status: number, body: object, headers = {}) =>
    (route: Route) =>
      route.fulfill({ status, headers, json: { requestId: "req-of-the-test", message: "It broke.", ...body } })

  it("says what failed, with the id of the request, and tries again", async () => {
    const { page } = await open("/links")
    await shows(page, "Support the radio")
    await page.route("**/api/console/products*", failWith(500, { error: "INTERNAL_ERROR" }))
    await page.getByRole("link", { name: "Products" }).click()
    await shows(page, "This could not be loaded", "It broke.", "req-of-the-test")
    await page.unroute("**/api/console/products*")
    await page.getByRole("button", { name: "Try again" }).click()
    await shows(page, "Press pass")
  })

  it("keeps the rows that it has, says as of when, and recovers", async () => {
    const { page } = await open("/links")
    await withoutStream(page)
    await go(page, "/payments")
    await shows(page, "Order 1042")
    await page.route("**/api/console/transactions*", failWith(500, { error: "INTERNAL_ERROR" }))
    await shows(page, "As of", "It broke.")
    await shows(page, "Order 1042")
    await page.unroute("**/api/console/transactions*")
    await page.getByText("As of").waitFor({ state: "detached" })
  })

  it("counts down after too many requests, and goes on", async () => {
    const { page } = await open("/links")
    await withoutStream(page)
    await go(page, "/payments")
    await shows(page, "Order 1042")
    const limited = failWith(429, { error: "RATE_LIMITED", retryAfter: 3 }, { "retry-after": "3" })
    await page.route("**/api/console/transactions*", limited)
    await shows(page, "Too many requests this minute.", "Order 1042")
    await page.unroute("**/api/console/transactions*")
    await page.getByText("Too many requests").waitFor({ state: "detached" })
  })

  it("asks to sign in over the page, which keeps what was typed", async () => {
    const { page } = await open("/checkouts/new", world.name)
    await page.getByLabel("Amount").fill("3")
    await page.getByLabel("What it is for").fill("Order 3001")
    await page.evaluate(async () => await fetch("/api/console/session", { method: "DELETE" }))
    await page.getByRole("button", { name: "Create checkout" }).click()
    await shows(page, "You were signed out")
    await page
      .getByRole("dialog")
      .getByRole("button", { name: `Sign in as ${world.name}` })
      .click()
    await page.getByRole("dialog").waitFor({ state: "detached" })
    expect(await page.getByLabel("What it is for").inputValue()).toBe("Order 3001")
    await page.getByRole("button", { name: "Create checkout" }).click()
    await shows(page, "The payer's page")
  })

  it("says which role may, where this one may not", async () => {
    const { page } = await open("/needs-you")
    await page.route(`${sandbox.url}/console/needs-you`, async route => {
      const answer = await route.fetch()
      const text = await answer.text()
      await route.fulfill({ response: answer, body: text.replaceAll('"money",', "") })
    })
    await page.reload()
    await shows(page, "The role owner, admin or finance can do this.")
    expect(await page.getByRole("button", { name: "Accept", exact: true }).first().isDisabled()).toBe(true)
  })
})

/** The last, as it moves the clock by a day. */
it("a return is signed by the payout wallet where the lock asks for it, and said in words before", async () => {
  const account = privateKeyToAccount(generatePrivateKey())
  const [, { name, accessToken, apiKey }] = sandbox.file().merchants
  const settings = async (change: object, headers: Record<string, string> = {}) => {
    const answer = await fetch(`${sandbox.url}/api/console/settings`, {
      method: "PUT",
      headers: { authorization: `Bearer ${accessToken}`, "content-type": "application/json", ...headers },
      body: JSON.stringify(change),
    })
    return { status: answer.status, body: await answer.json() }
  }
  expect(await settings({ payoutAddress: account.address })).toMatchObject({ status: 200 })
  await sandbox.call("/sandbox/clock", { advance: "25h" })
  const asked = (await settings({ walletLock: true })).body.details[0].typedData
  const signature = await account.signTypedData(asked)
  const locked = await settings({ walletLock: true }, { "wallet-signature": `${asked.message.nonce} ${signature}` })
  expect(locked.status, JSON.stringify(locked.body)).toBe(200)
  const order = { amount: "5", description: "Order 5001" }
  const { body: checkout } = await sandbox.call("/api/checkouts", order, { "x-api-key": apiKey })
  await sandbox.call("/sandbox/pay", { to: checkout.payTo, amount: "2" })
  const waiting = async () => {
    const { body } = await sandbox.call("/api/console/payments?status=open", undefined, {
      authorization: `Bearer ${accessToken}`,
    })
    return body.total === 1
  }
  await until("it waits", waiting)

  const { page, faults } = await open("/", name)
  await injectWallet(page, sandbox.file().rpcUrl, { account, chainId: sandbox.file().chainId, asked: [] })
  await go(page, "/needs-you")
  await page.getByRole("button", { name: "Return", exact: true }).click()
  const dialog = page.getByRole("dialog")
  await dialog.getByLabel("Send it to").fill(sandbox.file().buyers[0].address)
  await dialog.getByLabel(/The payer gave me this address/).check()
  await dialog.getByRole("button", { name: "Return 2.00 USDC" }).click()
  await shows(page, "Sign this change with your wallet", "Return payment", "waits for the merchant")
  await page.getByRole("button", { name: "Sign with Pocket" }).click()
  await shows(page, "2.00 USDC on the way back")
  await shows(page, "Nothing needs you")

  // The same merchant in a zone that is not the browser's, whose days begin at a quarter past.
  await go(page, "/settings")
  await page.getByLabel("Time zone").selectOption({ label: "Kathmandu" })
  await page.getByLabel("Account", { exact: true }).getByRole("button", { name: "Save" }).click()
  await until("the zone is saved", async () => (await settings({})).body.timeZone === "Asia/Kathmandu")
  const asked2020 = page.waitForRequest(request => request.url().includes("from=2019-12-31T18%3A15%3A00.000Z"))
  await go(page, "/payments?from=2020-01-01")
  await asked2020
  await shows(page, "Times in Asia/Kathmandu", "a time from Jan 1, 2020")
  const title = await page.locator("table time").first().getAttribute("title")
  expect(title).toMatch(/GMT\+5:45, Asia\/Kathmandu\n.* UTC, your browser \(UTC\)$/)
  expect(faults).toEqual([])
})
