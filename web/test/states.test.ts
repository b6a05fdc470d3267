// Every state of the pages in a real browser, each held as long as it takes: the rows are written as the scan writes them, and
// settled by the service's own round. Real chains and wallets are in checkout.test.ts.
import { createServer, request as forward, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import type { Browser, Page } from "playwright-core"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Address, Hash } from "../../server/src/chain/hex.ts"
import { settleDue } from "../../server/src/settlement/settle.ts"
import { until } from "../../server/test/e2e/program.ts"
import { paperNetwork, startService, type TestService } from "../../server/test/service.ts"
import { addAxe, injectWallet, isSound, openBrowser, type TestWallet, type Visit, visit } from "./browser.ts"

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
  service = await startService()
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
let transfers = 0

async function make(method: "POST" | "PUT", path: string, body: object) {
  const answer = await service.call(method, path, body, { as: "shop" })
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
  return answer.body
}
const start = async (body: object = {}): Promise<string> =>
  (await make("POST", "/api/console/checkouts", { amount: "19.90", description: "Order 1001", ...body })).id

/** A transfer of whole cents to a session, as the scan stores it. */
async function arrive(id: string, cents: bigint): Promise<void> {
  const { ctx } = service
  const deposits = ctx.db.selectFrom("deposits").selectAll().where("resource_id", "=", id)
  const deposit = await deposits.executeTakeFirstOrThrow()
  const n = ++transfers
  await ctx.db
    .insertInto("transfers")
    .values({
      ...{ tx_hash: hashOf(n), block_hash: hashOf(n), block_number: 2n, log_index: n, k: 0, deposit_id: deposit.id },
      ...{ chain_id: paperNetwork.chainId, token: paperNetwork.token.address, to_address: deposit.address },
      ...{ from_address: PAYER, value: cents * 10_000n, state: "seen" },
      ...{ block_time: ctx.now(), run_at: null, created_at: ctx.now() },
    })
    .execute()
  await ctx.wakes.wake("payments")
}
/** What has arrived for a session is deep enough now. */
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
async function setSession(id: string, values: { status: "expired" | "failed"; exception?: "late" | "wrong_asset" }) {
  await service.ctx.db.updateTable("checkout_sessions").set(values).where("id", "=", id).execute()
}
const setRead = async (looked_at: Date) => {
  await service.ctx.db.updateTable("cursors").set({ looked_at }).execute()
  await service.ctx.wakes.wake("payments")
}

async function open(path: string, options: Parameters<typeof visit>[2] = {}, base = url): Promise<Page> {
  const opened = await visit(browser, { url: base }, options)
  visits.push(opened)
  if (options.javaScriptEnabled !== false) await addAxe(opened.page)
  await opened.page.goto(base + path)
  return opened.page
}
const stage = (page: Page, name: string) => page.locator(`[data-stage=${name}]`).waitFor()
/** The tab is hidden or shown. */
const turn = (page: Page, hidden: boolean) =>
  page.evaluate(hidden => {
    Object.defineProperty(document, "hidden", { configurable: true, value: hidden })
    document.dispatchEvent(new Event("visibilitychange"))
  }, hidden)
const payButtons = (page: Page) => page.getByRole("button", { name: /^Pay with/ }).count()

describe.concurrent("every state", () => {
  /** The path of a page in each state, and what shows that it is there. */
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
    late: async () => {
      const id = await start()
      await setSession(id, { status: "expired", exception: "late" })
      return [`/pay/${id}`, "[data-stage=expired]"]
    },
    "another token": async () => {
      const id = await start()
      await setSession(id, { status: "expired", exception: "wrong_asset" })
      return [`/pay/${id}`, "[data-stage=expired]"]
    },
    failed: async () => {
      const id = await start()
      await setSession(id, { status: "failed" })
      return [`/pay/${id}`, "[data-stage=failed]"]
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
    "no page": async () => ["/nothing", ".state"],
  }

  it("has no finding of axe, light and dark, in both directions, and fits 320 pixels", async () => {
    const looks = [
      { colorScheme: "light", locale: "en-US" },
      { colorScheme: "dark", locale: "ar" },
    ] as const
    const paths = await Promise.all(Object.values(states).map(async prepare => await prepare()))
    const check = async (look: (typeof looks)[number]) => {
      const page = await open("/nothing", { ...look, viewport: { width: 320, height: 700 } })
      for (const [i, [path, shown]] of paths.entries()) {
        await page.goto(url + path, { waitUntil: "commit" })
        // The script has taken the page over, where there is one.
        await page.locator(`#app ${shown}`).first().waitFor()
        await isSound(page).catch(error => {
          throw new Error(`${Object.keys(states)[i]}, ${look.colorScheme}: ${error.message}`)
        })
      }
    }
    await Promise.all(looks.map(check))
  })

  it("has its button on a phone's screen, however long a name is, and says what to do once its time is over", async () => {
    await service.merchant("long")
    const long = { as: "long" }
    // A small phone, less its browser's bars.
    const name = "The very long name of a shop for books ".repeat(5)
    expect((await service.call("PUT", "/api/console/settings", { name }, long)).status).toBe(200)
    const made = await service.call("POST", "/api/console/paywalls", { name, price: 5 }, long)
    const page = await open(`/paywall/${made.body.id}`, { viewport: { width: 375, height: 550 } })
    const box = await page.getByRole("button", { name: "Pay with the test wallet" }).boundingBox()
    expect((box?.y ?? 1_000) + (box?.height ?? 0)).toBeLessThanOrEqual(550)
    const [path] = (await states.late?.()) ?? [""]
    await page.goto(url + path)
    await page.getByText("Write to Blue Bottle Books, and give the address of this page.").waitFor()
  })

  it("shows the rest to pay beside what is still being confirmed", async () => {
    const [path] = (await states["a part is on its way"]?.()) ?? [""]
    const page = await open(path)
    await page.getByText("5.00 USDC is being confirmed. Please send the remaining 14.90 USDC.").waitFor()
    expect(await page.locator("h1").textContent()).toBe("14.90 USDC")
    await page.getByRole("tab", { name: "By hand" }).click()
    await page.getByText("14.90 USDC", { exact: true }).last().waitFor()
  })
})

describe.concurrent("a page that waits", () => {
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
    await page.getByRole("button", { name: "I did not confirm it" }).click()
    await page.getByText("You started a payment").waitFor({ state: "detached" })

    // Submitted, and not seen.
    await page.getByRole("tab", { name: "By hand" }).click()
    await page.getByText("I have sent it").click()
    await page.getByLabel("Transaction hash").fill(hashOf(0xabc))
    await page.getByRole("button", { name: "Find my payment" }).click()
    for (const isReloaded of [false, true]) {
      await stage(page, "sent")
      expect(await payButtons(page)).toBe(0)
      await isSound(page)
      if (!isReloaded) await page.reload()
    }
    // Seen, and not deep enough.
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

  it("gets its states by long-polls where a proxy holds the stream back", async () => {
    const id = await start()
    const paths: string[] = []
    const proxy = await startServer((incoming, answer) => {
      paths.push(incoming.url ?? "")
      const { method, headers } = incoming
      incoming.pipe(
        forward(url + incoming.url, { method, headers }, response => {
          // It sends nothing on before the answer is complete, which a stream never is.
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
    expect(await payButtons(page)).toBe(0)
    await page.unroute(live)
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
    // Its stream has ended, and takes no place.
    await arrive(id, 1_990n)
    await confirm(id)
    await page.clock.fastForward(60_000)
    await page.getByText("It was paid more than once.").waitFor()
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
})

describe.concurrent("a merchant's site", () => {
  it("stays where it is while a page comes slowly, or shows that its link has ended", async () => {
    const link = await make("POST", "/api/console/payment-links", { title: "Gift", amount: 5 })
    await make("PUT", `/api/console/payment-links/${link.id}`, { active: false })
    const slow = `/pay/${await start()}`
    const site = await startServer((_request, response) => {
      response.setHeader("content-type", "text/html")
      response.end(`<!doctype html><html lang="en"><title>Shop</title>
<a data-sluice href="${url}/p/${link.slug}">Ended</a><a data-sluice href="${url}${slow}">Slow</a><script>window.got = []
addEventListener("message", event => got.push(event.data.type))</script><script src="${url}/embed.js"></script>`)
    })
    await make("PUT", "/api/console/settings", { allowedOrigins: [site.url] })
    const context = await browser.newContext({ locale: "en-US" })
    const page = await context.newPage()
    await page.clock.install()
    await page.goto(site.url)
    await page.getByRole("link", { name: "Ended" }).click()
    await page.frameLocator("iframe").getByText("This link is not available").waitFor()
    await page.waitForFunction(() => (globalThis as unknown as { got: string[] }).got.includes("sluice:ready"))
    await page.getByRole("button", { name: "Close" }).click()

    const scripts = Promise.withResolvers<void>()
    await page.route(/\/assets\/.*\.js$/, async route => {
      await scripts.promise
      await route.continue()
    })
    await page.getByRole("link", { name: "Slow" }).click()
    await page.frameLocator("iframe").getByText("19.90").first().waitFor()
    await page.clock.fastForward(10_000)
    scripts.resolve()
    await page.frameLocator("iframe").getByRole("button", { name: "Pay with the test wallet" }).waitFor()
    await page.clock.fastForward(10_000)
    expect(page.url()).toBe(`${site.url}/`)
    await context.close()
    site.stop()
  })
})

describe("at the end", () => {
  it("hides the ways to pay while the node does not answer, and shows them when it does", async () => {
    const page = await open(`/pay/${await start()}`)
    await page.getByRole("button", { name: "Pay with the test wallet" }).waitFor()
    // The last round was a minute ago, and none follows.
    await setRead(new Date(service.ctx.now().getTime() - 60_000))
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

interface LocalServer {
  url: string
  stop: () => void
}

async function startServer(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<LocalServer> {
  const server = createServer(answer)
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    stop: () => {
      server.closeAllConnections()
      server.close()
    },
  }
}

/** A node at which every account is rich. */
const startRpc = () =>
  startServer(async (request, response) => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part as Buffer)
    const { id } = JSON.parse(Buffer.concat(parts).toString())
    response.setHeader("content-type", "application/json")
    response.end(JSON.stringify({ jsonrpc: "2.0", id, result: `0x${"f".repeat(12).padStart(64, "0")}` }))
  })
