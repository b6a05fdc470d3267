/**
 * `script/screenshots`: pictures of every page in each of its states, light and dark, on a phone and on a desktop, in
 * `web/screenshots`, for people who change how a page looks. Starts a sandbox of its own.
 */
import { mkdirSync, rmSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import type { Page } from "playwright-core"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { newSandbox, root, until } from "../../server/test/e2e/program.ts"
import { injectWallet, openBrowser, type TestWallet, visit } from "./browser.ts"

const folder = join(root, "web/screenshots")
const looks = [
  { name: "phone-light", viewport: { width: 390, height: 780 }, colorScheme: "light" },
  { name: "phone-dark", viewport: { width: 390, height: 780 }, colorScheme: "dark" },
  { name: "desktop-light", viewport: { width: 1200, height: 860 }, colorScheme: "light" },
  { name: "desktop-dark", viewport: { width: 1200, height: 860 }, colorScheme: "dark" },
] as const

/** A logo of a shop, and its colour. */
const ACCENT = "#b4451f"
const LOGO = `<svg xmlns="http://www.w3.org/2000/svg" width="360" height="96" viewBox="0 0 180 48"><path d="M8 40V14l14-8 14 8v26z" fill="${ACCENT}"/><path d="M17 40V26h10v14z" fill="#fff"/><text x="46" y="33" font-family="serif" font-size="21" font-weight="700" fill="#1d1411">Lighthouse</text></svg>`

rmSync(folder, { recursive: true, force: true })
const sandbox = await newSandbox({
  LIMIT_PUBLIC: "0",
  LIMIT_PAY_CONFIRM: "0",
  LIMIT_PAY_STATUS: "0",
  LIMIT_CONSOLE: "0",
})
const [browser] = await Promise.all([openBrowser(), sandbox.start()])
const { page } = await visit(browser, sandbox)

/** Takes a picture of the page in each look. */
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

/** The pages of a merchant with a logo and a colour, and its site with the dialog. */
async function branded(): Promise<void> {
  const auth = { authorization: `Bearer ${sandbox.file().merchants[1].accessToken}` }
  const logo = await page.evaluate(async svg => {
    const image = new Image()
    image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`
    await image.decode()
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height })
    canvas.getContext("2d")?.drawImage(image, 0, 0)
    return canvas.toDataURL("image/png")
  }, LOGO)
  const link = { href: "" }
  const site = createServer((_request, response) => {
    response.setHeader("content-type", "text/html").end(`<!doctype html><html lang="en"><title>Lighthouse</title>
<meta name="viewport" content="width=device-width"><style>body{font:18px/1.6 Georgia,serif;margin:4rem auto;max-width:40rem;padding:0 1rem}</style>
<h1>The lighthouse film</h1><p>Half an hour on the last keeper of the north shore, in English.</p>
<p><a data-sluice href="${link.href}">Pay with USDC</a></p><script src="${sandbox.url}/embed.js" async></script>`)
  })
  await new Promise<void>(resolve => site.listen(0, "127.0.0.1", resolve))
  const origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`
  const settings = { name: "Lighthouse", branding: { accentColor: ACCENT, logo }, allowedOrigins: [origin] }
  const headers = { ...auth, "content-type": "application/json" }
  const init = { method: "PUT", headers, body: JSON.stringify(settings) }
  const answer = await fetch(`${sandbox.url}/api/console/settings`, init)
  if (!answer.ok) throw new Error(await answer.text())
  const film = { amount: 5, description: "The lighthouse film" }
  const { url, id } = (await sandbox.call("/api/console/checkouts", film, auth)).body
  link.href = url
  await page.goto(url)
  await page.getByRole("tab").first().waitFor()
  await shoot("branding")
  await page.goto(origin)
  await page.getByRole("link", { name: "Pay with USDC" }).click()
  const frame = page.frameLocator("iframe")
  await frame.getByRole("tab").first().waitFor()
  await shoot("embed")
  await frame.getByRole("button", { name: /test wallet/ }).click()
  await frame.locator("[data-stage=paid]").waitFor()
  await shoot("embed-paid")
  await page.goto(`${sandbox.url}/receipt/${id}`)
  await shoot("branding-receipt")
  // First a page that this site may not show, then one whose script fails.
  link.href = (await order()).url
  await page.goto(origin)
  await page.getByRole("link", { name: "Pay with USDC" }).click()
  await page.getByText("This page can’t be shown here.").waitFor()
  await shoot("embed-refused")
  link.href = (await sandbox.call("/api/console/checkouts", film, auth)).body.url
  await page.route("**/assets/*.js", route => route.abort())
  await page.goto(origin)
  await page.getByRole("link", { name: "Pay with USDC" }).click()
  await page.getByText("Open it in a new tab").waitFor()
  await shoot("embed-without-script")
  await page.unroute("**/assets/*.js")
  site.close()
}

/** The states of a wallet: it asks, it is on another network, it has too little. */
async function withWallet(): Promise<void> {
  const { page, close } = await visit(browser, sandbox)
  const account = privateKeyToAccount(generatePrivateKey())
  const held = new Promise<void>(() => {})
  const wallet: TestWallet = {
    account,
    chainId: 1,
    asked: [],
    before: method => (/^eth_s/.test(method) ? held : undefined),
  }
  await injectWallet(page, sandbox.file().rpcUrl, wallet)
  await page.goto((await order()).url)
  const pocket = page.getByRole("button", { name: "Pay with Pocket" })
  await pocket.waitFor()
  await shoot("wallets", page)
  await pocket.click()
  await page.getByRole("button", { name: /^Switch/ }).waitFor()
  await shoot("wallet-network", page)
  await page.getByRole("button", { name: /^Switch/ }).click()
  await page.getByRole("button", { name: "Get test money" }).waitFor()
  await shoot("wallet-low", page)
  await page.getByRole("button", { name: "Get test money" }).click()
  await page.getByText("Confirm in your wallet").waitFor()
  await shoot("wallet-confirm", page)
  await close()
}

/** One of several sums that wait for the merchant's decision. */
const waiting = (n: number) => ({
  paymentId: `pay_${n}`,
  payer: `0x${`${n}b`.repeat(20)}`,
  amount: "2.50",
  currency: "USDC",
  isAsked: true,
})

/** States that a sandbox reaches rarely or slowly: the page gets a state other than the server's. */
async function faked(): Promise<void> {
  const { url } = await order()
  const states = {
    "node-silent": ["unknown", { stale: true }],
    paused: ["paused", { paused: true, payTo: undefined }],
    failed: ["failed", { status: "failed" }],
    "used-up": ["failed", { status: "failed", exception: "duplicate" }],
    "wrong-token": [
      "pay",
      { exception: "wrong_asset", waiting: [{ ...waiting(1), currency: "EURX", isAsked: false }] },
    ],
    "wrong-token-late": ["expired", { status: "expired", exception: "wrong_asset", waiting: [waiting(1)] }],
    "expired-part": [
      "expired",
      { status: "expired", exception: "underpaid", amountReceived: "5.00", waiting: [1, 2].map(waiting) },
    ],
  } as const
  await page.route("**/events*", route => route.fulfill({ status: 503 }))
  for (const [name, [shown, change]] of Object.entries(states)) {
    await page.route("**/status*", async route => {
      const response = await route.fetch({ url: `${url}/status` })
      await route.fulfill({ response, json: { ...(await response.json()), ...change } })
    })
    for (const lang of ["en", "ar"]) {
      const answered = page.waitForResponse(/\/status/)
      await page.goto(`${url}?lang=${lang}`)
      await answered
      await stage(shown)
      if (lang === "en" || name === "wrong-token-late") await shoot(`${name}${lang === "en" ? "" : `-${lang}`}`)
    }
    await page.unroute("**/status*")
  }
  await page.route("**/status*", route => route.fulfill({ status: 429, headers: { "retry-after": "120" } }))
  await page.goto(url)
  await stage("unknown")
  await shoot("asked-to-wait")
  await page.unroute("**/status*")
  await page.unroute("**/events*")
}

/**
 * A reservation after the time to capture, and after its end. Both are days away, so the page gets a state other than
 * the server's.
 */
async function laterPhases(url: string, shown: string, name: string): Promise<void> {
  await page.route("**/events*", route => route.fulfill({ status: 503 }))
  const phases = [
    ["releasing", "automatically"],
    ["reclaimable", "You can withdraw it yourself"],
  ] as const
  for (const [phase, words] of phases) {
    await page.route("**/status*", async route => {
      const response = await route.fetch({ url: `${url}/status` })
      const status = await response.json()
      await route.fulfill({ response, json: { ...status, reservation: { ...status.reservation, phase } } })
    })
    await page.goto(url)
    await stage(shown)
    await page.getByText(words).waitFor()
    await shoot(`${name}-${phase}`)
    await page.unroute("**/status*")
  }
  await page.unroute("**/events*")
}

/** A payment that is reserved first, until nothing of it is left. */
async function reserved(): Promise<void> {
  const open = async (url: string, name: string, shown = page) => {
    await shown.goto(url)
    await stage(name)
  }
  const moved = async (id: string, name: "captured" | "released" | "refunded", amount: string) =>
    await until(`it is ${name}`, async () => (await sandbox.call(`/api/pay/status/${id}`)).body[name] === amount)
  const { id: sessionId, url } = await order({ capture: "manual" })
  await open(url, "pay")
  await shoot("escrow-to-sign")
  await tab("Phone")
  await shoot("escrow-phone")
  await tab("Wallet")
  await press(/test wallet/)
  await page.locator("[data-stage=reserving],[data-stage=reserved]").waitFor()
  await shoot("escrow-reserving")
  await stage("reserved")
  await press("Stay here")
  await shoot("escrow-reserved")
  await open(`${url}?lang=ar`, "reserved")
  await shoot("escrow-reserved-arabic")
  await laterPhases(url, "reserved", "escrow")
  await post("/api/console/payments/capture", { sessionId, amount: "12.00" })
  await moved(sessionId, "captured", "12.00")
  await open(url, "paid")
  await shoot("escrow-captured-part")
  await laterPhases(url, "paid", "escrow-captured-part")
  await post("/api/console/payments/void", { sessionId })
  await moved(sessionId, "released", "7.90")
  const { approval } = await post("/api/console/payments/refund", { sessionId, amount: "2.00" })
  await post("/sandbox/wallet", { method: "eth_sendTransaction", params: [approval.call], merchant: 0 })
  await moved(sessionId, "refunded", "2.00")
  await open(url, "paid")
  await shoot("escrow-refunded-part")
  await page.goto(`${sandbox.url}/receipt/${sessionId}`)
  await shoot("escrow-receipt")
  const plain = await visit(browser, sandbox, { javaScriptEnabled: false })
  await plain.page.goto(url)
  await shoot("escrow-refunded-part-without-script", plain.page)
  await plain.page.goto((await order({ capture: "manual" })).url)
  await plain.page.locator(".plain .note").waitFor()
  await shoot("escrow-to-sign-without-script", plain.page)
  await plain.close()

  const given = await order({ capture: "manual" })
  await page.goto(given.url)
  await press(/test wallet/)
  await stage("reserved")
  await press("Stay here")
  await post("/api/console/payments/void", { sessionId: given.id })
  await moved(given.id, "released", "19.90")
  await open(given.url, "released")
  await shoot("escrow-released")
  await page.goto(`${sandbox.url}/receipt/${given.id}`)
  await shoot("escrow-released-receipt")
  await page.goto((await order({ capture: "automatic" })).url)
  await press(/test wallet/)
  await stage("paid")
  await press("Stay here")
  await shoot("escrow-captured")
}

/** A subscription: at a paywall, its first checkout, its next invoice in each state, and its subscriber's page. */
async function subscribed(): Promise<void> {
  const get = async (path: string) => (await sandbox.call(path, undefined, auth)).body
  const { id: productId } = await post("/api/console/products", {
    name: "Press pass",
    price: 5,
    billingInterval: "day",
  })
  const archive = { name: "The archive", price: 20, subscriptionProductId: productId }
  await page.goto(`${sandbox.url}/paywall/${(await post("/api/console/paywalls", archive)).id}`)
  await page.getByRole("button", { name: /^Subscribe/ }).waitFor()
  await shoot("subscription-paywall")
  await page.goto((await post("/api/console/checkouts", { productId })).url)
  await page.getByText("Renews every day.").waitFor()
  await shoot("subscription-first")
  await press(/test wallet/)
  await page.getByText("Your subscription is paid until").waitFor()
  await shoot("subscription-begun")
  await sandbox.call("/sandbox/clock", { advance: "13h" })
  await sandbox.call("/sandbox/mine", { blocks: 12 })
  const open = async () => (await get("/api/console/invoices?status=open")).data[0]
  await until("the next invoice is made", async () => (await open()) !== undefined)
  const { id, checkoutSessionId } = await open()
  const url = `${sandbox.url}/invoice/${id}`
  await page.goto(url)
  await page.getByRole("tab").first().waitFor()
  await shoot("invoice")
  await page.goto(`${url}?lang=ar`)
  await page.getByRole("tab").first().waitFor()
  await shoot("invoice-arabic")
  await page.route("**/events*", route => route.fulfill({ status: 503 }))
  for (const [state, change] of Object.entries({
    due: {},
    past_due: {},
    void: { status: "expired" },
    canceled: { status: "expired" },
  })) {
    await page.route("**/status*", async route => {
      const response = await route.fetch({ url: `${sandbox.url}/pay/${checkoutSessionId}/status` })
      const status = await response.json()
      await route.fulfill({ response, json: { ...status, ...change, invoice: { ...status.invoice, state } } })
    })
    const answered = page.waitForResponse(/\/status/)
    await page.goto(url)
    await answered
    await page.locator("[data-stage] h2").waitFor()
    await shoot(`invoice-${state.replace("_", "-")}`)
    await page.unroute("**/status*")
  }
  await page.unroute("**/events*")
  const plain = await visit(browser, sandbox, { javaScriptEnabled: false })
  await plain.page.goto(url)
  await shoot("invoice-without-script", plain.page)
  await plain.page.goto(`${sandbox.url}/subscriptions`)
  await shoot("subscriptions-without-script", plain.page)
  await plain.close()
  await page.goto(`${sandbox.url}/subscriptions`)
  await page.getByRole("button", { name: /^Sign in/ }).waitFor()
  await shoot("subscriptions-sign-in")
  await press(/^Sign in/)
  await page.getByText("Invoices").click()
  await page.getByRole("link", { name: /receipt/ }).waitFor()
  await press("Cancel this subscription")
  await shoot("subscriptions")
  await press("Yes, cancel it")
  await page.getByText(/^It is canceled/).waitFor()
  await shoot("subscriptions-canceled")
  await everyState()
}

/** A subscriber's page with a subscription in each state, and with none. */
async function everyState(): Promise<void> {
  const states = [
    { product: "Active", openInvoice: null },
    { product: "Due", status: "payment_due" },
    { product: "Past due", status: "past_due" },
    { product: "Paused by its merchant", status: "paused", openInvoice: null },
    { product: "To end as its merchant asked", cancelAtPeriodEnd: true, openInvoice: null },
    { product: "Over", status: "canceled", openInvoice: null },
  ]
  const plain = { status: "active", cancelAtPeriodEnd: false, canResume: false, nextDueAt: null }
  for (const shown of [states, []]) {
    await page.route("**/api/subscriptions?*", async route => {
      const response = await route.fetch()
      const [one] = (await response.json()).data
      const openInvoice = { id: "inv_a", amount: "5.00", currency: "USDC", dueAt: one.paidUntil }
      const data = shown.map((each, i) => {
        const endsAt = each.cancelAtPeriodEnd ? one.paidUntil : null
        return { ...one, ...plain, endsAt, openInvoice, ...each, id: `sub_${i}` }
      })
      await route.fulfill({ response, json: { data, total: data.length } })
    })
    await page.goto(`${sandbox.url}/subscriptions`)
    await press(/^Sign in/)
    await page.getByText(shown.length > 0 ? "Over" : "No subscriptions", { exact: true }).waitFor()
    await shoot(shown.length > 0 ? "subscriptions-states" : "subscriptions-empty")
    await page.unroute("**/api/subscriptions?*")
  }
}

try {
  await page.goto((await order({ payerFields: ["name", "email"] })).url)
  await press("Continue")
  await shoot("checkout-fields")
  await branded()

  const first = await order()
  await page.goto(first.url)
  await page.getByRole("tab", { name: "Wallet" }).waitFor()
  await shoot("checkout-wallet")
  for (const name of ["Phone", "Manually"] as const) {
    await tab(name)
    await shoot(`checkout-${name.toLowerCase().replace(" ", "-")}`)
  }
  await page.goto(`${sandbox.url}/address/${first.payTo}`)
  await shoot("address")
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

  await pay(signed.payTo, "19.90")
  await page.goto(signed.url)
  await page.getByText("more than once").waitFor()
  await shoot("checkout-paid-twice")
  const long = await order({ description: "One of the many books of this order, and what is said of it. ".repeat(12) })
  await page.goto(long.url)
  await page.getByRole("tab").first().waitFor()
  await shoot("checkout-long-text")
  await page.getByText("Show more").click()
  await shoot("checkout-long-text-open")

  const film = {
    name: "The lighthouse film",
    description: "Half an hour, in English",
    price: 5,
    contentUrl: "https://films.example/lighthouse",
    contentData: { Password: "blue-42", Notes: "Play it in the dark.\nUse headphones." },
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
  const gift = await post("/api/console/payment-links", { title: "Gift", amount: 5 })
  const init = { method: "PUT", headers: { ...auth, "content-type": "application/json" }, body: '{"active":false}' }
  await fetch(`${sandbox.url}/api/console/payment-links/${gift.id}`, init)
  await page.goto(`${sandbox.url}/p/${gift.slug}`)
  await shoot("link-ended")

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
  await page.getByRole("link", { name: "Say where to send it back" }).waitFor()
  await shoot("checkout-late")
  await page.goto(`${late.url}?lang=de`)
  await page.locator("a[href^='/return/']").waitFor()
  await shoot("checkout-late-german")
  await page.goto(`${sandbox.url}/pay/cs_nothing`)
  await shoot("not-found")
  const plain = await visit(browser, sandbox, { javaScriptEnabled: false })
  await plain.page.goto((await order()).url)
  await shoot("checkout-without-script", plain.page)
  await plain.page.goto(`${sandbox.url}/p/${slug}`)
  await shoot("link-without-script", plain.page)
  await page.goto(`${sandbox.url}/sandbox`)
  await shoot("sandbox")
  await withWallet()
  await faked()
  await reserved()
  await subscribed()
  process.stdout.write(`The pictures are in ${folder}.\n`)
} finally {
  await browser.close()
  await sandbox.remove()
}
