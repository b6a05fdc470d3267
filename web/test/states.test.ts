// Every state of the pages in a real browser, each held as long as needed: the test writes rows as the scan does, and
// the service's own round settles them. Real chains and wallets are in checkout.test.ts.
import { randomUUID } from "node:crypto"
import { request as forward } from "node:http"
import type { Browser, Page } from "playwright-core"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { settleDue } from "../../server/src/ledger/settlement/settle.ts"
import type { Address, Hash } from "../../server/src/platform/chain/hex.ts"
import type { EscrowCallKind, PayoutState } from "../../server/src/platform/db/schema.ts"
import { advanceEscrows } from "../../server/src/products/escrow/advance-escrows.ts"
import { until } from "../../server/test/e2e/program.ts"
import { startServer } from "../../server/test/local-server.ts"
import { paperNetwork, startService, type TestService } from "../../server/test/service.ts"
import { type InvoiceMade, newInvoice, newRecurring, newSubscription } from "../../server/test/subscriptions.ts"
import { injectWallet, isSound, newContext, openBrowser, type TestWallet, type Visit, visit } from "./browser.ts"

let service: TestService
let url: string
let browser: Browser
const visits: Visit[] = []
const ALWAYS = new Date("2100-01-01")
/** The hardest colour to read, and a logo. */
const branding = {
  accentColor: "#ffd400",
  logo: "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAYAAACddGYaAAAAEklEQVR4AWLa4ir/H4aZGJAAAAAA//+SrePiAAAABklEQVQDAHmRBkqc11m3AAAAAElFTkSuQmCC",
}

beforeAll(async () => {
  await import("../build.ts")
  service = await startService({ settings: { serviceWallets: [RELAY], relayWallet: RELAY } })
  const addressOf = (byte: string) => `0x${byte.repeat(20)}` as Address
  const escrow = {
    version: "v1.1",
    address: addressOf("e5"),
    collector: COLLECTOR,
    refundCollector: addressOf("ec"),
  } as const
  Object.assign(service.ctx.chain, { networks: [{ ...paperNetwork, escrow }] })
  await service.ctx.db
    .insertInto("wallets")
    .values({
      chain_id: paperNetwork.chainId,
      lane: "relay",
      address: RELAY,
      next_nonce: 0n,
      status: "active",
      checked_number: 1n,
      run_at: ALWAYS,
    })
    .execute()
  url = await service.listen()
  await service.merchant("shop")
  await make("PUT", "/api/console/settings", { name: "Blue Bottle Books", branding })
  const read = { block_number: 3n, block_hash: hashOf(3), finalized_number: 1n, looked_at: ALWAYS }
  await service.ctx.db
    .insertInto("cursors")
    .values({ chain_id: paperNetwork.chainId, run_at: ALWAYS, ...read })
    .execute()
  browser = await openBrowser()
})
afterAll(async () => {
  await browser?.close()
  await service.stop()
})

const hashOf = (n: number): Hash => `0x${n.toString(16).padStart(64, "0")}` as Hash
const PAYER = `0x${"b0".repeat(20)}` as Address
const OTHER = `0x${"b1".repeat(20)}` as Address
const RELAY = `0x${"5e".repeat(20)}` as Address
const COLLECTOR = `0x${"c0".repeat(20)}` as Address
let transfers = 0

async function make(method: "POST" | "PUT", path: string, body: object) {
  const answer = await service.call(method, path, body, { as: "shop" })
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
  return answer.body
}
const start = async (body: object = {}): Promise<string> =>
  (await make("POST", "/api/console/checkouts", { amount: "19.90", description: "Order 1001", ...body })).id

/** A transfer of whole cents to a session, as the scan stores it. */
async function arrive(id: string, cents: bigint, change: { from?: Address; at?: Date } = {}): Promise<void> {
  const { ctx } = service
  const deposits = ctx.db.selectFrom("deposits").selectAll().where("resource_id", "=", id)
  const deposit = await deposits.executeTakeFirstOrThrow()
  const n = ++transfers
  await ctx.db
    .insertInto("transfers")
    .values({
      tx_hash: hashOf(n),
      block_hash: hashOf(n),
      block_number: 2n,
      log_index: n,
      k: 0,
      deposit_id: deposit.id,
      chain_id: paperNetwork.chainId,
      token: paperNetwork.token.address,
      to_address: deposit.address,
      from_address: change.from ?? PAYER,
      value: cents * 10_000n,
      state: "seen",
      block_time: change.at ?? ctx.now(),
      run_at: null,
      created_at: ctx.now(),
    })
    .execute()
  await ctx.wakes.wake("payments")
}
/** Makes everything that arrived for a session deep enough. */
async function confirm(id: string): Promise<void> {
  const { ctx } = service
  await ctx.db
    .updateTable("transfers")
    .set({ state: "confirmed", run_at: ctx.now() })
    .where("deposit_id", "in", query => query.selectFrom("deposits").select("id").where("resource_id", "=", id))
    .execute()
  await settleDue(ctx, paperNetwork)
  await ctx.wakes.wake("payments")
}
async function setSession(
  id: string,
  values: { status?: "expired" | "failed"; exception?: "late" | "wrong_asset" | "duplicate" },
) {
  await service.ctx.db.updateTable("checkout_sessions").set(values).where("id", "=", id).execute()
}
/** Writes a call of a session's escrow in whole cents, as the payout engine does, and advances the escrow. */
async function callEscrow(
  id: string,
  kind: EscrowCallKind,
  cents: bigint,
  state: PayoutState = "final",
): Promise<void> {
  const { ctx } = service
  const escrow = await ctx.db.selectFrom("escrows").selectAll().where("session_id", "=", id).executeTakeFirstOrThrow()
  const n = ++transfers
  const isMined = state === "final"
  const signed = { payer: PAYER, auth_nonce: hashOf(n), auth_digest: hashOf(n) }
  await ctx.db
    .insertInto("payouts")
    .values({
      id: randomUUID(),
      chain_id: paperNetwork.chainId,
      kind,
      source_key: `${kind}:${n}`,
      escrow_id: id,
      merchant_id: escrow.merchant_id,
      token: escrow.token,
      recipient: PAYER,
      amount: cents * 10_000n,
      to_address: escrow.escrow,
      data: "0x00000000",
      relay_by: ALWAYS,
      reserved: false,
      state,
      run_at: ALWAYS,
      created_at: ctx.now(),
      updated_at: ctx.now(),
      ...(kind === "reserve" ? signed : {}),
      ...(isMined
        ? { wallet: RELAY, nonce: BigInt(n), tx_hash: hashOf(n), block_number: 1n, block_hash: hashOf(1) }
        : {}),
      ...(isMined ? { succeeded: true } : {}),
    })
    .execute()
  // Made due only after the call is written: the states are prepared concurrently, and another one's round would find
  // nothing and make this escrow not due.
  await ctx.db
    .updateTable("escrows")
    .set({ payer: PAYER, auth_id: escrow.auth_id ?? hashOf(n), run_at: new Date(0) })
    .where("session_id", "=", id)
    .execute()
  await advanceEscrows(ctx)
}
const setRead = async (looked_at: Date) => {
  await service.ctx.db.updateTable("cursors").set({ looked_at }).execute()
  await service.ctx.wakes.wake("payments")
}

/** A checkout whose time is over, and then each of these wallets paid it. */
async function late(...payers: Address[]): Promise<string> {
  const id = await start()
  const expires_at = new Date(service.ctx.now().getTime() - 60_000)
  await service.ctx.db.updateTable("checkout_sessions").set({ expires_at }).where("id", "=", id).execute()
  for (const from of payers) await arrive(id, 1_990n, { from })
  await confirm(id)
  await setSession(id, { status: "expired" })
  return id
}
/** Pauses a checkout: its receiving address belongs to an earlier factory, whose payout wallet is halted. */
async function pause(id: string): Promise<void> {
  const { db } = service.ctx
  const factory = `0x${"fb".repeat(20)}` as Address
  await db.updateTable("deposits").set({ factory }).where("resource_id", "=", id).execute()
  await db
    .insertInto("wallets")
    .values({
      chain_id: paperNetwork.chainId,
      lane: "payout",
      address: `0x${"ad".repeat(20)}` as Address,
      next_nonce: 0n,
      status: "halted",
      halted_reason: "a test",
      checked_number: 1n,
      run_at: ALWAYS,
    })
    .execute()
}

async function open(path: string, options: Parameters<typeof visit>[2] = {}, base = url): Promise<Page> {
  const opened = await visit(browser, { url: base }, options)
  visits.push(opened)
  await opened.page.goto(base + path)
  return opened.page
}
const stage = (page: Page, name: string) => page.locator(`[data-stage=${name}]`).waitFor()
/** Hides or shows the tab. */
const turn = (page: Page, hidden: boolean) =>
  page.evaluate(hidden => {
    Object.defineProperty(document, "hidden", { configurable: true, value: hidden })
    document.dispatchEvent(new Event("visibilitychange"))
  }, hidden)
const payButtons = (page: Page) => page.getByRole("button", { name: /^Pay with/ }).count()

const inDays = (days: number) => new Date(service.ctx.now().getTime() + days * 86_400_000)
const ended = { status: "canceled", cancel_reason: "unpaid", ended_at: new Date() } as const
/** A subscription to a product with a long name. */
async function subscribe(change: Parameters<typeof newSubscription>[4] = {}, payer: string = PAYER) {
  const product = await newRecurring(service, "shop", { name: `Press pass ${"W".repeat(60)}` })
  return await newSubscription(service, "shop", product, payer, change)
}
/** The second invoice of a subscription. */
async function invoice(
  fields: InvoiceMade["invoice"] = {},
  session: InvoiceMade["session"] = {},
  change: Parameters<typeof newSubscription>[4] = {},
): Promise<string> {
  const { id } = await subscribe(change)
  return (await newInvoice(service, "shop", id, { invoice: fields, session })).invoiceId
}
/** A subscription whose first invoice nobody has paid. */
async function unbegun() {
  const product = await newRecurring(service, "shop", { trialDays: 14 })
  const none = { payer: null, started_at: null, anchor: null, status: null, paid_until: null, access_until: null }
  const unpaid = { period_start: null, period_end: null, paid_at: null }
  const session = { status: "pending", confirmed_at: null, tx_hash: null, received: 0n } as const
  return await newSubscription(service, "shop", product, PAYER, none, { invoice: unpaid, session })
}
async function subscribable(): Promise<string> {
  const subscriptionProductId = await newRecurring(service, "shop")
  return (await make("POST", "/api/console/paywalls", { name: "Film", price: 5, subscriptionProductId })).id
}

describe.concurrent("every state", () => {
  /** For each state: the path of a page, and an element that shows that the page is there. */
  const states: Record<string, () => Promise<[path: string, shown: string]>> = {
    "to pay": async () => [`/pay/${await start({ description: `Order ${"W".repeat(80)}` })}`, "[role=tab]"],
    "asks for answers": async () => [`/pay/${await start({ payerFields: ["name", "email"] })}`, "#field-name"],
    "a part is on its way": async () => {
      const id = await start()
      await arrive(id, 500n)
      return [`/pay/${id}`, "[data-stage=part]"]
    },
    "a part was paid": async () => {
      const id = await start()
      await arrive(id, 500n)
      await confirm(id)
      return [`/pay/${id}`, "[data-stage=part]"]
    },
    "being confirmed": async () => {
      const id = await start()
      await arrive(id, 1_990n)
      return [`/pay/${id}`, "[data-stage=confirming]"]
    },
    paid: async () => {
      const id = await start({ redirectUrl: "https://shop.example/thanks" })
      await arrive(id, 1_990n)
      await confirm(id)
      return [`/pay/${id}`, "[data-stage=paid]"]
    },
    "paid too much": async () => {
      const id = await start()
      await arrive(id, 2_500n)
      await confirm(id)
      return [`/pay/${id}`, "[data-stage=paid]"]
    },
    "paid twice": async () => {
      const id = await start()
      for (let i = 0; i < 2; i++) {
        await arrive(id, 1_990n)
        await confirm(id)
      }
      return [`/pay/${id}`, "[data-stage=paid]"]
    },
    paused: async () => {
      const id = await start()
      await pause(id)
      return [`/pay/${id}`, "[data-stage=paused]"]
    },
    receipt: async () => {
      const id = await start()
      await arrive(id, 1_990n)
      await confirm(id)
      return [`/receipt/${id}`, ".ledger"]
    },
    expired: async () => {
      const id = await start()
      await setSession(id, { status: "expired" })
      return [`/pay/${id}`, "[data-stage=expired]"]
    },
    late: async () => [`/pay/${await late(PAYER)}`, "a[href^='/return/']"],
    "late, from two wallets": async () => [`/pay/${await late(PAYER, OTHER)}`, "li a[href^='/return/']"],
    "where the money can go": async () => {
      const { payTo } = (await service.call("GET", `/api/pay/status/${await start()}`)).body
      return [`/address/${payTo}`, ".ledger"]
    },
    "another token": async () => {
      const id = await start()
      await setSession(id, { status: "expired", exception: "wrong_asset" })
      return [`/pay/${id}`, "[data-stage=expired]"]
    },
    "another token, in time": async () => {
      const id = await start({ description: "Order 1001, with a sentence about each of its many books. ".repeat(30) })
      await setSession(id, { exception: "wrong_asset" })
      return [`/pay/${id}`, "[data-stage=pay]:has-text('USDC')"]
    },
    failed: async () => {
      const id = await start()
      await setSession(id, { status: "failed" })
      return [`/pay/${id}`, "[data-stage=failed]"]
    },
    "used up": async () => {
      const id = await start()
      await setSession(id, { status: "failed", exception: "duplicate" })
      return [`/pay/${id}`, "[data-stage=failed]"]
    },
    "to be reserved": async () => [`/pay/${await start({ capture: "manual" })}`, "[role=tab]"],
    "being reserved": async () => {
      const id = await start({ capture: "manual" })
      await callEscrow(id, "reserve", 1_990n, "queued")
      return [`/pay/${id}`, "[data-stage=reserving]"]
    },
    reserved: async () => {
      const id = await start({ capture: "manual", redirectUrl: "https://shop.example/thanks" })
      await callEscrow(id, "reserve", 1_990n)
      return [`/pay/${id}`, "[data-stage=reserved]"]
    },
    "reserved, captured at once": async () => {
      const id = await start({ capture: "automatic" })
      await callEscrow(id, "reserve", 1_990n)
      return [`/pay/${id}`, "[data-stage=reserved]"]
    },
    "captured in part": async () => {
      const id = await start({ capture: "manual" })
      await callEscrow(id, "reserve", 1_990n)
      await callEscrow(id, "capture", 1_200n)
      return [`/pay/${id}`, "[data-stage=paid]"]
    },
    "captured, released and refunded in part": async () => {
      const id = await start({ capture: "manual" })
      for (const [kind, cents] of [
        ["reserve", 1_990n],
        ["capture", 1_200n],
        ["capture", 100n],
        ["void", 690n],
        ["refund", 200n],
      ] as const)
        await callEscrow(id, kind, cents)
      return [`/pay/${id}`, "[data-stage=paid]"]
    },
    released: async () => {
      const id = await start({ capture: "manual" })
      await callEscrow(id, "reserve", 1_990n)
      await callEscrow(id, "void", 1_990n)
      return [`/pay/${id}`, "[data-stage=released]"]
    },
    "refunded, its receipt": async () => {
      const id = await start({ capture: "manual" })
      for (const kind of ["reserve", "capture", "refund"] as const) await callEscrow(id, kind, 1_990n)
      return [`/receipt/${id}`, ".ledger"]
    },
    "a paywall": async () => {
      const { id } = await make("POST", "/api/console/paywalls", { name: "Film", price: 5 })
      return [`/paywall/${id}`, "[role=tab]"]
    },
    "a paywall that is not for sale": async () => {
      const { id } = await make("POST", "/api/console/paywalls", { name: "Film", price: 5 })
      await make("PUT", `/api/console/paywalls/${id}`, { active: false })
      return [`/paywall/${id}`, "[data-stage=paused]"]
    },
    "a link": async () => {
      const { slug } = await make("POST", "/api/console/payment-links", { title: "Radio" })
      return [`/p/${slug}`, "#amount"]
    },
    "a link that has ended": async () => {
      const { id, slug } = await make("POST", "/api/console/payment-links", { title: "Gift", amount: 5 })
      await make("PUT", `/api/console/payment-links/${id}`, { active: false })
      return [`/p/${slug}`, ".state"]
    },
    "a subscription's first checkout": async () => [`/pay/${(await unbegun()).sessionId}`, "[role=tab]"],
    "an invoice": async () => [`/invoice/${await invoice()}`, "[role=tab]"],
    "an invoice that is due": async () => [`/invoice/${await invoice({ due_at: inDays(-1) })}`, "[data-stage=pay] h2"],
    "an invoice that is overdue": async () => [
      `/invoice/${await invoice({ due_at: inDays(-5) })}`,
      "[data-stage=pay] h2",
    ],
    "an invoice that was withdrawn": async () => [
      `/invoice/${await invoice({ void_asked_at: new Date() })}`,
      "[data-stage=expired]",
    ],
    "an invoice that nobody paid": async () => [
      `/invoice/${await invoice({}, { status: "expired" }, ended)}`,
      "[data-stage=expired]",
    ],
    "an invoice that is paid": async () => [`/invoice/${(await subscribe()).invoiceId}`, "[data-stage=paid]"],
    "a paywall that a subscription opens": async () => [`/paywall/${await subscribable()}`, "[role=tab]"],
    "the page of a subscriber": async () => ["/subscriptions", "button"],
    "no page": async () => ["/nothing", ".state"],
  }

  it("has no finding of axe, light and dark, in both directions, and fits 320 pixels", async () => {
    const paths = await Promise.all(Object.values(states).map(async prepare => await prepare()))
    // Each state is loaded once, every other one in Arabic, and changed in place: loading takes most of the time.
    const check = async (locale: string, first: number) => {
      const page = await open("/nothing", { locale, viewport: { width: 320, height: 700 } })
      for (let i = first; i < paths.length; i += 2) {
        const [path, shown] = paths[i] ?? ["", ""]
        await page.emulateMedia({ colorScheme: "light" })
        await page.goto(url + path, { waitUntil: "commit" })
        // Waits until the script, where there is one, has taken the page over.
        await page.locator(`#app ${shown}`).first().waitFor()
        for (const colorScheme of ["light", "dark"] as const) {
          await page.emulateMedia({ colorScheme })
          await isSound(page).catch(error => {
            throw new Error(`${Object.keys(states)[i]}, ${locale}, ${colorScheme}: ${error.message}`)
          })
          await page.evaluate(() => {
            document.documentElement.dir = document.documentElement.dir === "rtl" ? "ltr" : "rtl"
          })
        }
      }
    }
    await Promise.all([check("en-US", 0), check("ar", 1)])
  })

  it("has its button on a phone's screen, however long a name is, and says what to do once its time is over", async () => {
    await service.merchant("long")
    const long = { as: "long" }
    // The size of a small phone without its browser's bars.
    const name = "The very long name of a shop for books ".repeat(5)
    const description = `${"Many words about a film. ".repeat(40)}The end.`
    expect((await service.call("PUT", "/api/console/settings", { name }, long)).status).toBe(200)
    const made = await service.call("POST", "/api/console/paywalls", { name, description, price: 5 }, long)
    const phone = { viewport: { width: 375, height: 600 } }
    const page = await open(`/paywall/${made.body.id}`, phone)
    const box = await page.getByRole("button", { name: "Pay with the test wallet" }).boundingBox()
    expect((box?.y ?? 1_000) + (box?.height ?? 0)).toBeLessThanOrEqual(600)
    // The rest can be reached by keyboard, and without a script.
    const plain = await open(`/paywall/${made.body.id}`, { ...phone, javaScriptEnabled: false })
    for (const each of [page, plain]) {
      const height = async () => (await each.locator(".what p").boundingBox())?.height ?? 0
      const short = await height()
      await each.locator(".what summary").focus()
      await each.keyboard.press("Enter")
      await each.getByText("Show less").waitFor()
      expect(await height()).toBeGreaterThan(3 * short)
      await each.keyboard.press("Enter")
      await each.getByText("Show more").waitFor()
      expect(await height()).toBe(short)
    }
    const [path] = (await states.late?.()) ?? [""]
    await page.goto(url + path)
    await page.getByText("Write to Blue Bottle Books and include the link to this page.").waitFor()
    const [ended] = (await states.expired?.()) ?? [""]
    await page.goto(url + ended)
    await page.getByText("If you have just sent the money, don't send it again").waitFor()
    // Pages without a script have each language too.
    await page.goto(`${url}/nothing`)
    await page.getByRole("link", { name: "Deutsch" }).click()
    await page.getByText("Diese Seite gibt es nicht").waitFor()
  })

  it("shows the rest to pay beside what is still being confirmed", async () => {
    const [path] = (await states["a part is on its way"]?.()) ?? [""]
    const page = await open(path)
    await page.getByText("5.00 USDC is being confirmed. Please send the remaining 14.90 USDC.").waitFor()
    expect(await page.locator("h1").textContent()).toBe("14.90 USDC")
    await page.getByRole("tab", { name: "Manually" }).click()
    await page.getByText("14.90 USDC", { exact: true }).last().waitFor()
  })
})

describe.concurrent("a page that waits", () => {
  it("leads the payer of money that waits to its return, and each where there are several", async () => {
    const page = await open(`/pay/${await late(PAYER)}`)
    await page.getByRole("link", { name: "Say where to send it back" }).click()
    await page.getByText("Blue Bottle Books must decide what happens to 19.90 USDC.").waitFor()
    expect(page.url()).toMatch(/\/return\/pay_[a-z0-9]+\?lang=en$/)

    const several = await late(PAYER, OTHER)
    const plain = await open(`/pay/${several}?lang=de`, { javaScriptEnabled: false })
    await page.goto(`${url}/pay/${several}?lang=de`)
    for (const each of [page, plain]) {
      const links = each.getByRole("link", { name: /^19,90 USDC von 0x[bB][01]/ })
      await links.nth(1).waitFor()
      expect(new Set(await links.evaluateAll(all => all.map(link => link.getAttribute("href")))).size).toBe(2)
    }
    // What the merchant has decided about is no longer offered.
    const all = service.ctx.db.updateTable("payments").set({ status: "granted", accepted_at: new Date(), beside: true })
    await all.where("resource_id", "=", several).execute()
    await plain.reload()
    expect(await plain.getByRole("link", { name: /^19,90/ }).count()).toBe(0)
  })

  it("names every transaction of a payment that came in several, and its receipt is the checkout's", async () => {
    const id = await start({ redirectUrl: "https://shop.example/thanks" })
    for (let i = 0; i < 2; i++) {
      await arrive(id, 1_990n)
      await confirm(id)
    }
    const page = await open(`/pay/${id}`)
    await page.getByText("39.80 USDC").waitFor()
    expect(await page.locator(".hashes code").count()).toBe(2)
    expect(await page.getByRole("link", { name: "Say where to send it back" }).count()).toBe(1)
    const payments = await service.ctx.db.selectFrom("payments").selectAll().where("resource_id", "=", id).execute()
    const paid = payments.find(({ status }) => status === "granted")?.id
    for (const number of [id, paid]) {
      await page.goto(`${url}/receipt/${number}`)
      expect(await page.locator(".ledger code").allTextContents()).toEqual([expect.stringMatching(/^0x/), id])
      await page.getByRole("link", { name: "Back to Blue Bottle Books" }).waitFor()
    }
    const plain = await open(`/pay/${id}`, { javaScriptEnabled: false })
    await plain.locator(".live.good .tick").waitFor()
  })

  it("is the same after a reload, and asks for no money again", async () => {
    const id = await start()
    const rpc = await startRpc()
    const held = Promise.withResolvers<void>()
    const wallet: TestWallet = {
      account: privateKeyToAccount(generatePrivateKey()),
      chainId: paperNetwork.chainId,
      asked: [],
      before: async method => {
        if (method === "eth_sendTransaction") await held.promise
      },
    }
    const page = await open("/nothing", { viewport: { width: 320, height: 700 } })
    await injectWallet(page, rpc.url, wallet)
    await page.goto(`${url}/pay/${id}`)
    await page.getByRole("button", { name: "Send a normal transfer instead" }).click()
    await page.getByRole("button", { name: "Pay with Pocket" }).click()
    await page.getByText("Confirm in your wallet").waitFor()
    await page.getByText("Approve the transfer of 19.90 USDC.").waitFor()
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme })
      await isSound(page)
    }
    await page.reload()
    await page.getByText("Don't pay again.").waitFor()
    await isSound(page)
    await page.getByRole("button", { name: "I didn't confirm it" }).click()
    await page.getByText("You started a payment").waitFor({ state: "detached" })

    // Submitted, but not seen.
    await page.getByRole("tab", { name: "Manually" }).click()
    await page.getByText("I have sent it").click()
    await page.getByLabel("Transaction hash").fill(hashOf(0xabc))
    await page.getByRole("button", { name: "Find my payment" }).click()
    for (const isReloaded of [false, true]) {
      await stage(page, "sent")
      expect(await payButtons(page)).toBe(0)
      await isSound(page)
      if (!isReloaded) await page.reload()
    }
    // Seen, but not deep enough.
    await arrive(id, 1_990n)
    for (const isReloaded of [false, true]) {
      await stage(page, "confirming")
      expect(await payButtons(page)).toBe(0)
      if (!isReloaded) await page.reload()
    }
    await confirm(id)
    await stage(page, "paid")
    await page.reload()
    await stage(page, "paid")
    held.reject(Object.assign(new Error("declined"), { code: 4001 }))
    rpc.stop()
  })

  /** A checkout's page with a wallet that answers when it is released; `id` is of a checkout of 19.90 USDC. */
  async function withWallet(before: (method: string) => unknown = () => {}) {
    const id = await start()
    const rpc = await startRpc()
    const account = privateKeyToAccount(generatePrivateKey())
    const wallet: TestWallet = {
      account,
      chainId: paperNetwork.chainId,
      asked: [],
      before: async method => void (await before(method)),
    }
    const page = await open("/nothing", { viewport: { width: 320, height: 700 } })
    await injectWallet(page, rpc.url, wallet)
    await page.goto(`${url}/pay/${id}`)
    const press = (name: string) => page.getByRole("button", { name }).click()
    const payByTransfer = async () => {
      await press("Send a normal transfer instead")
      await press("Pay with Pocket")
    }
    const timesAsked = (method: string) => wallet.asked.filter(each => each === method).length
    // Each open page holds a stream, and the server has a few for an address.
    const stop = async () => {
      rpc.stop()
      await page.close()
    }
    return { id, page, wallet, press, payByTransfer, timesAsked, stop }
  }
  /** Hides the page for a minute or more, and shows it again; it learns nothing before the returned function is called. */
  async function away(page: Page, ms: number): Promise<() => void> {
    await turn(page, true)
    const events = Promise.withResolvers<void>()
    await page.route("**/events*", async route => {
      await events.promise
      await route.continue()
    })
    await page.evaluate(ms => {
      const before = Date.now
      Date.now = () => before() + ms
    }, ms)
    await turn(page, false)
    await page.getByText("This page is not up to date").waitFor()
    return events.resolve
  }

  it("asks a wallet for nothing more once an attempt is given up", async () => {
    const first = Promise.withResolvers<void>()
    const last = Promise.withResolvers<void>()
    let n = 0
    const { page, press, payByTransfer, timesAsked, stop } = await withWallet(method => {
      if (method === "eth_requestAccounts" && n++ === 0) return first.promise
      return method === "eth_sendTransaction" ? last.promise : undefined
    })
    await payByTransfer()
    await page.getByText("Connecting to your wallet").waitFor()
    await press("Cancel")
    await press("Pay with Pocket")
    await page.getByRole("heading", { name: "Confirm in your wallet" }).waitFor()
    // What was pressed is gone, and the keyboard goes on at the step's words.
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Confirm in your wallet")
    first.resolve()
    last.resolve()
    await stage(page, "sent")
    expect([timesAsked("eth_requestAccounts"), timesAsked("eth_call"), timesAsked("eth_sendTransaction")]).toEqual([
      2, 1, 1,
    ])
    await stop()
  })

  it.each(["given up", "failed"])(
    "offers no other way to pay while a transfer that was %s may have been sent",
    async how => {
      const held = Promise.withResolvers<void>()
      const { page, press, payByTransfer, stop } = await withWallet(method =>
        method !== "eth_sendTransaction"
          ? undefined
          : how === "failed"
            ? Promise.reject(new Error("node"))
            : held.promise,
      )
      await payByTransfer()
      // Cancel is there from the first step on: given up before the wallet is asked for money, nothing may have been sent.
      if (how === "given up") {
        await page.getByRole("heading", { name: "Confirm in your wallet" }).waitFor()
        await press("Cancel")
      }
      await page.getByText("You started a payment").waitFor()
      if (how === "failed") await page.getByText("Your wallet reported a problem: node").waitFor()
      expect([await payButtons(page), await page.getByRole("tab").count()]).toEqual([0, 0])
      await isSound(page)
      await press("I didn't confirm it")
      await page.getByRole("button", { name: "Pay with Pocket" }).waitFor()
      held.resolve()
      await stop()
    },
  )

  it("says what the wallet was asked for, and to decline it where that has changed or is paid", async () => {
    const held = Promise.withResolvers<void>()
    const { id, page, payByTransfer, stop } = await withWallet(method =>
      method === "eth_sendTransaction" ? held.promise : undefined,
    )
    await payByTransfer()
    await page.getByText("Approve the transfer of 19.90 USDC.").waitFor()
    await arrive(id, 990n)
    await page.getByText("Your wallet was asked for 19.90 USDC, but 10.00 USDC is due now.").waitFor()
    expect(await page.getByText("Approve the transfer").count()).toBe(0)
    await isSound(page)
    await arrive(id, 1_000n)
    await stage(page, "confirming")
    await page.getByText("Your wallet may still have a request open").waitFor()
    await isSound(page)
    held.resolve()
    await stop()
  })

  it("submits the hash of a transfer until the server takes it, also after a reload", async () => {
    const { id, page, payByTransfer, stop } = await withWallet()
    const limited = {
      status: 429,
      contentType: "application/json",
      body: JSON.stringify({ error: "RATE_LIMITED", message: "" }),
    }
    let refused = 0
    await page.route("**/api/pay/confirm", async route => {
      refused++
      await route.fulfill(limited)
    })
    await payByTransfer()
    for (const isReloaded of [false, true]) {
      await stage(page, "sent")
      await page.getByText("Don't pay again.").waitFor()
      expect(await payButtons(page)).toBe(0)
      if (!isReloaded) await page.reload()
    }
    await until("it is submitted again", () => refused > 1)
    await page.unroute("**/api/pay/confirm")
    const submissions = () =>
      service.ctx.db.selectFrom("submissions").select("id").where("resource_id", "=", id).execute()
    await until("the server knows it", async () => (await submissions()).length === 1)
    await stage(page, "sent")
    await page.getByText("Not showing up?").click()
    await page.getByRole("button", { name: "Pay another way" }).click()
    await page.getByText("Your earlier transfer may still arrive.").waitFor()
    await stop()
  })

  it("offers only the same signature again where the answer to one was lost", async () => {
    const { id, page, press, timesAsked, stop } = await withWallet()
    await page.route("**/api/pay/authorize", route => route.abort())
    await press("Pay with Pocket")
    await page.getByText("We don't know yet whether your payment was accepted.").waitFor()
    expect([
      await page.getByRole("tab").count(),
      await page.getByText("Send a normal transfer instead").count(),
    ]).toEqual([0, 0])
    await isSound(page)
    await press("Pay with Pocket")
    await until("it is signed again", () => timesAsked("eth_signTypedData_v4") === 2)
    const nonces = await page.evaluate(id => JSON.parse(localStorage.getItem(`sluice:${id}`) ?? "{}").nonces, id)
    expect(Object.keys(nonces)).toHaveLength(1)
    // That the second one was one too many says nothing about the first.
    await page.getByText("We can't reach the server.").waitFor()
    await page.unroute("**/api/pay/authorize")
    const body = JSON.stringify({ error: "RATE_LIMITED", message: "" })
    await page.route("**/api/pay/authorize", route =>
      route.fulfill({ status: 429, contentType: "application/json", body }),
    )
    await press("Pay with Pocket")
    await page.getByText("There were too many requests from your network.").waitFor()
    await page.getByText("We don't know yet whether your payment was accepted.").waitFor()
    expect(await page.getByRole("tab").count()).toBe(0)
    await stop()
  })

  it("asks for no money when it is shown again after a while, until it has learned what happened meanwhile", async () => {
    const { page, stop } = await withWallet()
    await page.getByRole("button", { name: "Pay with Pocket" }).waitFor()
    const back = await away(page, 3_600_000)
    expect(await payButtons(page)).toBe(0)
    back()
    await page.getByRole("button", { name: "Pay with Pocket" }).waitFor()
    await stop()
  })

  it("uses a signature that was made while the page was hidden for long, as by a wallet on a phone", async () => {
    const held = Promise.withResolvers<void>()
    const { page, press, timesAsked, stop } = await withWallet(method =>
      method === "eth_signTypedData_v4" ? held.promise : undefined,
    )
    let posted = 0
    await page.route("**/api/pay/authorize", async route => {
      posted++
      await route.abort()
    })
    await press("Pay with Pocket")
    await until("the wallet asks", () => timesAsked("eth_signTypedData_v4") === 1)
    await away(page, 60_000)
    held.resolve()
    await until("it is handed in", () => posted === 1)
    await stop()
  })

  it("says where a reorg removed a payment, and that it may come back", async () => {
    const id = await start()
    await arrive(id, 1_990n)
    await confirm(id)
    const page = await open(`/pay/${id}`)
    await stage(page, "paid")
    const { ctx } = service
    const ofSession = ctx.db.selectFrom("deposits").select("id").where("resource_id", "=", id)
    await ctx.db
      .updateTable("transfers")
      .set({ state: "gone", run_at: ctx.now() })
      .where("deposit_id", "in", ofSession)
      .execute()
    await settleDue(ctx, paperNetwork)
    await page.reload()
    await page.getByText("The network removed it. If it comes back, it counts again.").waitFor()
    await stage(page, "pay")
    await isSound(page)
    await page.close()
  })

  it("keeps each request for a transfer apart, whatever becomes of an earlier one", async () => {
    const asked = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    let n = 0
    const { id, page, press, payByTransfer, stop } = await withWallet(method =>
      method === "eth_sendTransaction" ? asked[n++]?.promise : undefined,
    )
    // A hash that the server knows, and that is refused.
    await page.getByRole("tab", { name: "Manually" }).click()
    await page.getByText("I have sent it").click()
    await page.getByLabel("Transaction hash").fill(hashOf(0xabcd))
    await press("Find my payment")
    await stage(page, "sent")
    const refused = { status: "failed", reason: "no_transfer" } as const
    await service.ctx.db.updateTable("submissions").set(refused).where("resource_id", "=", id).execute()
    await service.ctx.wakes.wake("payments")
    await page.getByText("That transaction sent no USDC.").waitFor()
    await page.getByRole("tab", { name: "Wallet" }).click()
    await payByTransfer()
    await page.getByRole("heading", { name: "Confirm in your wallet" }).waitFor()
    await press("Cancel")
    await page.getByText("You started a payment").waitFor()
    await press("I didn't confirm it")
    // The first request is still open in the wallet.
    await page.getByText("Your wallet may still have a request open").waitFor()
    await press("Pay with Pocket")
    await page.getByRole("heading", { name: "Confirm in your wallet" }).waitFor()
    // It is declined, and the second one is sent.
    asked[0]?.reject(Object.assign(new Error("declined"), { code: 4001 }))
    asked[1]?.resolve()
    await stage(page, "sent")
    await page.getByText("Your wallet may still have a request open").waitFor({ state: "detached" })
    expect(await payButtons(page)).toBe(0)
    await stop()
  })

  it("offers a transfer to whom the service can't relay for", async () => {
    const { page, press, stop } = await withWallet()
    const body = JSON.stringify({ error: "RELAY_UNAVAILABLE", message: "" })
    await page.route("**/api/pay/authorize", route =>
      route.fulfill({ status: 503, contentType: "application/json", body }),
    )
    await press("Pay with Pocket")
    await page.getByText("Payment without a fee is not possible right now.").waitFor()
    await page.getByRole("button", { name: "Send a normal transfer instead" }).waitFor()
    await stop()
  })

  it("goes on with an attempt when it knows again what happened while a phone showed its wallet", async () => {
    const held = Promise.withResolvers<void>()
    const { page, press, timesAsked, stop } = await withWallet(method =>
      method === "eth_requestAccounts" ? held.promise : undefined,
    )
    await press("Pay with Pocket")
    await until("it connects", () => timesAsked("eth_requestAccounts") === 1)
    const back = await away(page, 60_000)
    held.resolve()
    back()
    await until("it asks for the signature", () => timesAsked("eth_signTypedData_v4") === 1)
    await stop()
  })

  it("rests when nothing happens: a page that was paid draws nothing", async () => {
    const id = await start()
    await arrive(id, 1_990n)
    await confirm(id)
    const page = await open(`/pay/${id}`)
    await stage(page, "paid")
    const frames = await page.evaluate(async () => {
      const wanted = requestAnimationFrame
      let n = 0
      globalThis.requestAnimationFrame = callback => {
        n++
        return wanted(callback)
      }
      for (let i = 0; i < 20; i++) await new Promise(resolve => wanted(resolve))
      return n
    })
    expect(frames).toBeLessThan(5)
    await page.close()
  })

  it("of a reservation shows no address, and the same after a reload, until what was captured, released and refunded", async () => {
    const id = await start({ capture: "manual", redirectUrl: "https://shop.example/thanks" })
    const page = await open(`/pay/${id}`)
    await page.getByText(/^You authorize up to 19\.90 USDC\. Blue Bottle Books can take it until /).waitFor()
    expect(await page.getByRole("tab").allTextContents()).toEqual(["Wallet", "Phone"])
    // Parts for pages without a script are hidden at first.
    expect(await page.locator("#app .plain").count()).toBe(0)
    expect(await page.getByRole("button", { name: "Send a normal transfer instead" }).count()).toBe(0)
    // Signed, then cancelled before it reached the chain.
    await callEscrow(id, "reserve", 1_990n, "queued")
    await stage(page, "reserving")
    expect(await payButtons(page)).toBe(0)
    const { db } = service.ctx
    await db.updateTable("payouts").set({ state: "cancelled", held_reason: null }).where("escrow_id", "=", id).execute()
    await db
      .updateTable("escrows")
      .set({ run_at: new Date(0) })
      .where("session_id", "=", id)
      .execute()
    await advanceEscrows(service.ctx)
    await page.getByText("The reservation did not go through. Nothing was taken from your wallet.").waitFor()
    await isSound(page)

    await callEscrow(id, "reserve", 1_990n)
    for (const isReloaded of [false, true]) {
      await stage(page, "reserved")
      expect(await payButtons(page)).toBe(0)
      await page.getByRole("link", { name: "Back to Blue Bottle Books" }).waitFor()
      if (!isReloaded) await page.reload()
    }
    await callEscrow(id, "capture", 1_200n)
    await callEscrow(id, "void", 790n)
    await callEscrow(id, "refund", 200n)
    const ledger = /Reserved\s*19\.90 USDC.*Amount paid\s*12\.00 USDC.*Released\s*7\.90 USDC.*Refunded\s*2\.00 USDC/s
    await page.reload()
    await stage(page, "paid")
    await page
      .getByText(
        "Blue Bottle Books took 12.00 of 19.90 USDC. The rest was returned to your wallet. 2.00 USDC was refunded",
      )
      .waitFor()
    expect(await page.locator(".ledger").textContent()).toMatch(ledger)
    expect(await page.locator(".ledger code").count()).toBe(4)

    const plain = await open(`/pay/${id}`, { javaScriptEnabled: false })
    for (const path of [`/pay/${id}`, `/receipt/${id}`]) {
      await plain.goto(url + path)
      const text = await plain.locator("main").textContent()
      expect(text).toMatch(ledger)
      expect(text?.match(/0x[0-9a-f]{64}/g)).toHaveLength(4)
    }
    await plain.goto(`${url}/pay/${await start({ capture: "automatic" })}`)
    await plain.getByText("This payment needs JavaScript and a wallet in your browser").waitFor()
    const text = (await plain.locator("main").textContent()) ?? ""
    expect(text).not.toMatch(/0x/)
  })

  it("gets its states by long-polls where a proxy holds the stream back", async () => {
    const id = await start()
    const paths: string[] = []
    const proxy = await startServer((incoming, answer) => {
      paths.push(incoming.url ?? "")
      const { method, headers } = incoming
      incoming.pipe(
        forward(url + incoming.url, { method, headers }, response => {
          // This proxy sends nothing before the answer is complete, which a stream's never is.
          if (incoming.url?.includes("/events")) return
          answer.writeHead(response.statusCode ?? 500, response.headers)
          response.pipe(answer)
        }),
      )
    })
    const page = await open(`/pay/${id}`, {}, proxy.url)
    await until("it asks with wait", () => paths.some(path => path.includes("/status?wait=25")))
    expect(paths.filter(path => path.includes("/events"))).toHaveLength(1)
    await arrive(id, 1_990n)
    await stage(page, "confirming")
    await confirm(id)
    await stage(page, "paid")
    proxy.stop()
  })

  it("asks for no money that it can't see arrive, follows nothing while hidden, and sees a second payment", async () => {
    const id = await start()
    const page = await open("/nothing")
    await page.clock.install()
    const live = /\/(events|status)\?/
    const streams = /\/events$/
    await page.route(live, route => route.abort())
    await page.route(streams, route => route.abort())
    await page.goto(`${url}/pay/${id}`)
    await page.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
    await page.clock.fastForward(10_000)
    await stage(page, "unknown")
    await page.getByText("This page is not up to date").waitFor()
    expect(await payButtons(page)).toBe(0)
    // The server says how long the page must wait.
    let asked = 0
    const refuse = { status: 429, headers: { "retry-after": "300" } }
    await page.unroute(live)
    await page.unroute(streams)
    await page.route(streams, route => route.fulfill(refuse))
    await page.route(live, route => {
      asked++
      return route.fulfill(refuse)
    })
    const waits = page.getByText(/^There were too many requests.*This page will refresh at \d+:\d+ [AP]M\.$/)
    await turn(page, true)
    await turn(page, false)
    await waits.waitFor()
    expect([asked, await payButtons(page)]).toEqual([1, 0])
    await page.clock.fastForward(290_000)
    expect(asked).toBe(1)
    await page.unroute(live)
    await page.clock.fastForward(10_000)
    await page.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
    expect(await waits.count()).toBe(0)
    const opened = page.waitForResponse(streams)
    await page.unroute(streams)
    await turn(page, true)
    await turn(page, false)
    await opened
    await page.getByRole("button", { name: "Pay with the test wallet" }).waitFor()

    const closed = page.waitForEvent("requestfailed", request => streams.test(request.url()))
    await turn(page, true)
    await closed
    await arrive(id, 1_990n)
    await confirm(id)
    expect(await page.locator("[data-stage=pay]").count()).toBe(1)
    await turn(page, false)
    await stage(page, "paid")
    // Its stream has ended and holds no place.
    await arrive(id, 1_990n)
    await confirm(id)
    await page.clock.fastForward(60_000)
    await page.getByText("This was paid more than once.").waitFor()
  })

  it("asks for no money while a network swallows what the server sends, and goes on afterwards", async () => {
    const id = await start()
    let isSwallowed = false
    const proxy = await startServer((incoming, answer) => {
      if (isSwallowed) return
      const { method, headers } = incoming
      incoming.pipe(
        forward(url + incoming.url, { method, headers }, response => {
          answer.writeHead(response.statusCode ?? 500, response.headers)
          response.on("data", part => isSwallowed || answer.write(part))
          response.on("end", () => isSwallowed || answer.end())
        }),
      )
    })
    const page = await open("/nothing", {}, proxy.url)
    await page.clock.install()
    await page.addInitScript(countEvents)
    await page.goto(`${proxy.url}/pay/${id}`)
    const heard = (type: "message" | "beat") =>
      page.waitForFunction(type => (globalThis as unknown as { heard: Record<string, number> }).heard[type], type)
    const pay = page.getByRole("button", { name: "Pay with the test wallet" })
    await pay.waitFor()
    await heard("message")
    // Beats keep a stream alive on which nothing changes. The page gives a silent one up after 30 seconds of its clock,
    // which runs on while the server's ten seconds pass.
    await page.clock.fastForward(10_000)
    await heard("beat")
    await page.clock.fastForward(22_000)
    expect([await page.locator("[data-stage=pay]").count(), await pay.count()]).toEqual([1, 1])

    isSwallowed = true
    await page.clock.fastForward(30_000)
    await stage(page, "unknown")
    await page.getByText("We can't reach the server.").waitFor()
    expect(await payButtons(page)).toBe(0)
    await arrive(id, 500n)
    isSwallowed = false
    // The request without an answer is abandoned.
    await until("it asks again", async () => {
      await page.clock.fastForward(10_000)
      return (await page.locator("[data-stage=part]").count()) > 0
    })
    await pay.waitFor()
    proxy.stop()
  })

  it("a link leads to its checkout without JavaScript, with the amount that was typed", async () => {
    const { slug } = await make("POST", "/api/console/payment-links", { title: "Radio", description: "What you like" })
    const page = await open(`/p/${slug}`, { javaScriptEnabled: false })
    await page.getByLabel("Amount in USDC").fill("five")
    await page.getByRole("button", { name: "Continue" }).click()
    await page.getByText("Enter an amount such as 5 or 4.99.").waitFor()
    await page.getByLabel("Amount in USDC").fill("7,50")
    await page.getByRole("button", { name: "Continue" }).click()
    await page.waitForURL(/\/pay\/cs_/)
    const text = await page.locator("main").textContent()
    expect(text).toMatch(/Blue Bottle Books.*7\.50.*0x[0-9a-fA-F]{40}/s)
  })
})

describe.concurrent("a link", () => {
  it("of one price leads back to the checkout that was started from it, while that can be paid", async () => {
    const { slug } = await make("POST", "/api/console/payment-links", { title: "Coffee", amount: 3 })
    const page = await open(`/p/${slug}`)
    const visited = async () => {
      await page.waitForURL(/\/pay\/cs_/)
      await page.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
      return /cs_\w+/.exec(page.url())?.[0] ?? ""
    }
    const first = await visited()
    await page.goto(`${url}/p/${slug}`)
    expect(await visited()).toBe(first)
    await setSession(first, { status: "expired" })
    await page.goto(`${url}/p/${slug}`)
    expect(await visited()).not.toBe(first)
  })

  it("that the browser loads ahead starts its checkout once somebody looks at it", async () => {
    const { slug } = await make("POST", "/api/console/payment-links", { title: "Tea", amount: 3 })
    const page = await open("/nothing")
    await page.addInitScript(() => Object.defineProperty(document, "prerendering", { value: true, writable: true }))
    const started: string[] = []
    page.on("request", request => request.method() === "POST" && started.push(new URL(request.url()).pathname))
    await page.goto(`${url}/p/${slug}`, { waitUntil: "networkidle" })
    expect(started).toEqual([])
    await page.evaluate(() => document.dispatchEvent(new Event("prerenderingchange")))
    await page.waitForURL(/\/pay\/cs_/)
    expect(started).toEqual(["/api/pay/sessions"])
  })
})

describe.concurrent("an invoice", () => {
  it("is paid like any checkout, says when it is due, and is withdrawn while its page is open", async () => {
    const { id } = await subscribe()
    const { invoiceId, sessionId } = await newInvoice(service, "shop", id, { invoice: { due_at: inDays(-1) } })
    const page = await open(`/invoice/${invoiceId}`)
    const other = await open(`/invoice/${await invoice()}`)
    await page
      .getByText(/^Renews every month\. You pay each invoice yourself; nothing is charged automatically\.$/)
      .waitFor()
    await page.getByText("Payment is due").waitFor()
    await page.getByText(/^Pay by .* to keep your access\.$/).waitFor()
    expect(await page.getByText("Pay before").count()).toBe(0)
    expect(await payButtons(page)).toBe(1)
    await arrive(sessionId, 500n)
    await stage(page, "confirming")
    await confirm(sessionId)
    await stage(page, "paid")
    await page.getByText("Blue Bottle Books").first().waitFor()
    const receipt = page.getByRole("link", { name: "View the receipt" })
    expect(await receipt.getAttribute("href")).toBe(`/receipt/${sessionId}?lang=en`)

    await other.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
    const invoices = service.ctx.db.updateTable("invoices").set({ void_asked_at: service.ctx.now() })
    await invoices.where("id", "=", other.url().split("/").at(-1) ?? "").execute()
    await service.ctx.wakes.wake("payments")
    await other.getByText("This invoice was withdrawn").waitFor()
    expect(await payButtons(other)).toBe(0)
  })

  it("can be read without JavaScript in each state, and a subscription can be started", async () => {
    const plain = await open("/nothing", { javaScriptEnabled: false })
    const read = async (path: string) => {
      await plain.goto(url + path)
      return (await plain.locator("main").textContent()) ?? ""
    }
    expect(await read(`/invoice/${await invoice({ due_at: inDays(-5) })}`)).toMatch(
      /Press pass.*Renews every month.*Period.*–.*Due.*UTC.*Payment is overdue.*5\.00 USDC.*0x[0-9a-fA-F]{40}/s,
    )
    expect(await read(`/invoice/${await invoice({ void_asked_at: new Date() })}`)).toMatch(/was withdrawn(?!.*0x)/s)
    expect(await read(`/invoice/${(await subscribe()).invoiceId}`)).toMatch(
      /Your subscription is paid until .* UTC\..*View the receipt.*Manage your subscriptions/s,
    )
    expect(await read(`/pay/${(await unbegun()).sessionId}`)).toMatch(
      /starts with 14 days free.*Renews every month.*0x[0-9a-fA-F]{40}/s,
    )
    expect(await read("/subscriptions")).toContain("This page needs JavaScript and a wallet in your browser")
    expect(await read("/invoice/inv_nothing")).toContain("This page does not exist")
    await read(`/paywall/${await subscribable()}`)
    await plain.getByRole("button", { name: "Subscribe: 5.00 USDC every month" }).click()
    await plain.waitForURL(/\/pay\/cs_/)
    expect(await plain.locator("main").textContent()).toMatch(/5\.00 USDC.*0x[0-9a-fA-F]{40}/s)
  })
})

describe.concurrent("a subscriber", () => {
  it("signs in with a wallet, sees its subscriptions alone, pays, and cancels and goes on", async () => {
    const account = privateKeyToAccount(generatePrivateKey())
    const wallet: TestWallet = { account, chainId: paperNetwork.chainId, asked: [] }
    const page = await open("/nothing", { viewport: { width: 320, height: 700 } })
    await injectWallet(page, "http://127.0.0.1:1", wallet)
    const enter = async () => {
      await page.goto(`${url}/subscriptions`)
      await page.getByRole("button", { name: "Sign in with Pocket" }).click()
    }
    await enter()
    await page.getByText("This wallet has no subscriptions here.").waitFor()
    await isSound(page)
    const active = await subscribe({}, account.address)
    const late = await subscribe({ status: "past_due" }, account.address)
    const { invoiceId } = await newInvoice(service, "shop", late.id, { invoice: { due_at: inDays(-5) } })
    await subscribe({ status: "paused", paused_at: new Date() }, account.address)
    await subscribe(ended, account.address)
    await enter()
    await page.locator("[data-subscription]").first().waitFor()
    const shown = page.locator("[data-subscription]")
    expect(await shown.evaluateAll(all => all.map(each => each.getAttribute("data-subscription")).sort())).toEqual([
      "active",
      "canceled",
      "past_due",
      "paused",
    ])
    const due = page.locator("[data-subscription=past_due]").getByRole("link", { name: "Pay 5.00 USDC" })
    expect(await due.getAttribute("href")).toBe(`/invoice/${invoiceId}?lang=en`)
    const first = page.locator("[data-subscription=active]")
    await first.getByText("Invoices").click()
    const receipt = first.getByRole("link", { name: /^View the receipt/ })
    expect(await receipt.getAttribute("href")).toBe(`/receipt/${active.sessionId}?lang=en`)
    await first.getByRole("button", { name: "Cancel this subscription" }).click()
    await page.waitForFunction(() => document.activeElement?.textContent === "Keep it")
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme })
      await isSound(page)
    }
    await first.getByRole("button", { name: "Yes, cancel it" }).click()
    await first.getByText(/^It is canceled, and ends on /).waitFor()
    await first.getByText("Ending").waitFor()
    const row = service.ctx.db.selectFrom("subscriptions").select("cancel_at_period_end").where("id", "=", active.id)
    expect(await row.executeTakeFirst()).toEqual({ cancel_at_period_end: true })
    await first.getByRole("button", { name: "Continue this subscription" }).click()
    await first.getByText("It continues. Nothing has changed.").waitFor()
    expect(await row.executeTakeFirst()).toEqual({ cancel_at_period_end: false })
    expect(wallet.asked).not.toContain("eth_sendTransaction")
    // The sign-in has expired.
    await page.route("**/api/subscriptions/**", route =>
      route.fulfill({ status: 401, json: { error: "UNAUTHORIZED", message: "Sign in." } }),
    )
    await first.getByRole("button", { name: "Cancel this subscription" }).click()
    await first.getByRole("button", { name: "Yes, cancel it" }).click()
    await page.getByText("Your session has expired. Please sign in again.").waitFor()
    await page.getByRole("button", { name: "Sign in with Pocket" }).waitFor()
  })
})

describe.concurrent("a merchant's site", () => {
  it("stays where it is while a page comes slowly, or never, or is refused, and offers another tab", async () => {
    const link = await make("POST", "/api/console/payment-links", { title: "Gift", amount: 5 })
    await make("PUT", `/api/console/payment-links/${link.id}`, { active: false })
    const slow = `/pay/${await start()}`
    await service.merchant("strict")
    const refused = `/pay/${(await service.call("POST", "/api/console/checkouts", { amount: 5 }, { as: "strict" })).body.id}`
    const links = { Ended: `/p/${link.slug}`, Slow: slow, Broken: slow, Never: "/pay/never", Refused: refused }
    const site = await startServer((_request, response) => {
      response.setHeader("content-type", "text/html")
      response.end(`<!doctype html><html lang="en"><title>Shop</title>
${Object.entries(links).map(([name, path]) => `<a data-sluice href="${url}${path}">${name}</a>`)}<script>window.got = []
addEventListener("message", event => got.push(event.data.type))</script><script src="${url}/embed.js"></script>`)
    })
    await make("PUT", "/api/console/settings", { allowedOrigins: [site.url] })
    const context = await newContext(browser)
    const page = await context.newPage()
    await page.clock.install()
    await page.goto(site.url)
    const frame = page.frameLocator("iframe")
    const tab = page.getByText("Open it in a new tab")
    const failed = page.getByText("This page can’t be shown here.")
    const open = (name: keyof typeof links) => page.getByRole("link", { name, exact: true }).click()
    const close = () => page.getByRole("button", { name: "Close" }).click()
    await open("Ended")
    await frame.getByText("This link is not available").waitFor()
    await page.waitForFunction(() => (globalThis as unknown as { got: string[] }).got.includes("sluice:ready"))
    await close()

    const scripts = Promise.withResolvers<void>()
    const files = /\/assets\/.*\.js$/
    await page.route(files, async route => {
      await scripts.promise
      await route.continue()
    })
    await open("Slow")
    await frame.getByText("19.90").first().waitFor()
    await page.clock.fastForward(12_000)
    await tab.waitFor()
    // The page is shown and readable.
    expect(await failed.count()).toBe(0)
    scripts.resolve()
    await frame.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
    await tab.waitFor({ state: "detached" })
    await page.clock.fastForward(20_000)
    expect(await tab.count()).toBe(0)
    await close()

    await page.unroute(files)
    await page.route(files, route => route.abort())
    await open("Broken")
    await frame.getByText("19.90").first().waitFor()
    await until("its silence is noticed", async () => {
      await page.clock.fastForward(8_000)
      return await tab.isVisible()
    })
    expect(await failed.count()).toBe(0)
    await close()

    await page.route("**/pay/never", () => {})
    await open("Never")
    // Twelve seconds in all, including the real time that passes.
    await page.clock.fastForward(4_000)
    expect(await failed.count()).toBe(0)
    await page.clock.fastForward(8_000)
    await failed.waitFor()
    await close()

    // At once, because the browser has refused it.
    await open("Refused")
    await failed.waitFor()
    expect([await tab.getAttribute("href"), await tab.getAttribute("target")]).toEqual([url + refused, "_blank"])
    expect(page.url()).toBe(`${site.url}/`)
    await context.close()
    site.stop()
  })
})

describe("at the end", () => {
  it("hides the ways to pay while the node does not answer, and shows them when it does", async () => {
    const page = await open(`/pay/${await start()}`)
    await page.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
    // The last round was ten minutes ago, twice what a worker of one round a minute may take, and no other follows.
    await setRead(new Date(service.ctx.now().getTime() - 600_000))
    await stage(page, "unknown")
    await page.getByText("Please don't pay yet.").waitFor()
    const addresses = page.getByText(/0x[0-9a-fA-F]{40}/).filter({ visible: true })
    expect([await payButtons(page), await addresses.count()]).toEqual([0, 0])
    await isSound(page)
    await setRead(ALWAYS)
    await page.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
  })

  it("asked no other server for anything, and broke no rule of its policy", () => {
    expect(visits.length).toBeGreaterThan(5)
    expect(visits.flatMap(({ faults }) => faults)).toEqual([])
  })
})

/** Runs inside the page: counts the events of its streams, each before the page's own listener gets it. */
function countEvents(): void {
  const heard = { message: 0, beat: 0 }
  const Stream = EventSource
  Object.assign(globalThis, {
    heard,
    EventSource: class extends Stream {
      constructor(address: string) {
        super(address)
        for (const type of ["message", "beat"] as const)
          this.addEventListener(type, () => {
            heard[type]++
          })
      }
    },
  })
}

/** A node where every account has plenty of money. */
const startRpc = () =>
  startServer(async (request, response) => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part as Buffer)
    const { id } = JSON.parse(Buffer.concat(parts).toString())
    response.setHeader("content-type", "application/json")
    response.end(JSON.stringify({ jsonrpc: "2.0", id, result: `0x${"f".repeat(12).padStart(64, "0")}` }))
  })
