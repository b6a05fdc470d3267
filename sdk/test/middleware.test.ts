// Shops behind `charge` and `paywall`, sold to a stock client, with a handler, a network and a wallet that fail at each step: whoever
// was charged has the content, and whoever has the content was charged.
import type { Hex } from "viem"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { type Fault, startFaultyProxy } from "./faulty-proxy.ts"
import { type Failure, shops } from "./shops.ts"
import { openWallets, type Wallets } from "./wallets.ts"

const PRICE = "0.05"
const UNITS = 50_000n
const frameworks = Object.keys(shops)

let sandbox: Sandbox
let wallets: Wallets
let apiKey: string
let paywall: { id: string; payTo: Hex }
beforeAll(async () => {
  const buckets = ["AGENT", "CONSOLE", "FACILITATOR", "MERCHANT", "PUBLIC"]
  sandbox = await newSandbox(Object.fromEntries(buckets.map(name => [`LIMIT_${name}`, "0"])), "migrated")
  await sandbox.start()
  wallets = openWallets(sandbox)
  const [shop] = sandbox.file().merchants
  apiKey = shop.apiKey
  const auth = { authorization: `Bearer ${shop.accessToken}` }
  const { body } = await sandbox.call("/api/console/paywalls", { name: "Weather", price: PRICE }, auth)
  paywall = (await sandbox.call(`/api/paywalls/${body.id}`)).body
})
afterAll(() => sandbox?.remove())

const newAddress = (): Hex => privateKeyToAccount(generatePrivateKey()).address

interface Case {
  settle?: "after" | "before"
  failures?: Failure[]
  /** By path; each is used once, in this order. */
  faults?: { path: RegExp; fault: Fault }[]
  /** The wallet is emptied while the handler runs. */
  isEmptied?: boolean
}

/** Sells one call to a new wallet, which repeats it with each retry token that it is given. */
async function sell(
  framework: string,
  kind: "charge" | "paywall",
  { settle = "after", failures = [], faults = [] }: Case,
) {
  const left = [...faults]
  const proxy = await startFaultyProxy(sandbox.url, path => {
    const at = left.findIndex(each => each.path.test(path))
    return at < 0 ? undefined : left.splice(at, 1)[0]?.fault
  })
  const options = { baseUrl: proxy.url, apiKey, settle, timeoutMs: 20_000 }
  const payTo = kind === "charge" ? newAddress() : paywall.payTo
  const sells =
    kind === "charge" ? { charge: { ...options, price: PRICE, payTo } } : { paywall: { ...options, id: paywall.id } }
  const told = [...failures]
  const shop = await (shops[framework] as NonNullable<(typeof shops)[string]>)(sells, () => told.shift())
  const wallet = await wallets.make()
  const { fetch: pay, sent } = wallets.payer(wallet)
  const statuses: number[] = []
  let content: string | undefined
  let token: string | undefined
  for (let tries = 0; tries < 12 && content === undefined; tries++) {
    const answer = await (token ? fetch(shop.url, { headers: { "sluice-retry-token": token } }) : pay(shop.url)).catch(
      () => undefined,
    )
    statuses.push(answer?.status ?? 0)
    if (answer?.status === 200) content = await answer.text().catch(() => undefined)
    const next = answer?.headers.get("sluice-retry-token") ?? undefined
    if (next === undefined && answer?.status !== 200) break
    token = next ?? token
    if (content === undefined) await new Promise(resolve => setTimeout(resolve, 200))
  }
  const paid = await wallets.paid(wallet.address, payTo)
  const close = () => {
    proxy.stop()
    shop.stop()
  }
  return { statuses, content, paid, runs: shop.runs(), shop, close, payment: sent.at(-1), token, wallet, payTo, left }
}

const bought = { content: '{"forecast":"sunny"}', paid: [UNITS] }
const nothing = { content: undefined, paid: [] }

/** What each framework's shop sold, in parallel. */
const everywhere = async (
  kind: "charge" | "paywall",
  of: Case,
  check: (sold: Awaited<ReturnType<typeof sell>>) => void | Promise<void>,
) => {
  await Promise.all(
    frameworks.map(async framework => {
      const sold = await sell(framework, kind, of)
      expect(sold.left, framework).toEqual([])
      await check(sold)
      sold.close()
    }),
  )
}

const cases: [string, Case, object][] = [
  ["serves once who pays", {}, { ...bought, statuses: [200], runs: 1 }],
  ["settles nothing when the handler throws", { failures: ["throws"] }, { ...nothing, statuses: [500] }],
  ["settles nothing when the handler answers 404", { failures: ["answers 404"] }, { ...nothing, statuses: [404] }],
  ["settles nothing when the handler breaks off", { failures: ["breaks off"] }, nothing],
  ["serves before a slow end, when told to settle first", { settle: "before" }, { ...bought, statuses: [200] }],
  [
    "gives a payer another call when the handler throws after the settlement",
    { settle: "before", failures: ["throws", "answers 500"] },
    { ...bought, statuses: [500, 500, 200], runs: 3 },
  ],
]

describe.each(["charge", "paywall"] as const)("%s", kind => {
  const settles = kind === "charge" ? /^\/x402\/settle/ : /^\/api\/agent\/paywalls\/\w+\/settle/
  it.each(cases)("%s", async (_, of, expected) => {
    await everywhere(kind, of, sold => expect(sold).toMatchObject(expected))
  })

  it("serves who paid although the answer of the settlement was lost", async () => {
    // A paywall is asked for its terms first.
    const first =
      kind === "paywall"
        ? [
            { path: settles, fault: undefined },
            { path: settles, fault: undefined },
          ]
        : []
    const lost = { path: settles, fault: "answer lost" as const }
    await everywhere(kind, { faults: [...first, lost] }, sold => expect(sold).toMatchObject(bought))
    await everywhere(kind, { faults: [...first, lost, lost, lost] }, sold => expect(sold).toMatchObject(bought))
    await everywhere(kind, { settle: "before", faults: [...first.slice(1), lost, lost, lost] }, sold =>
      expect(sold).toMatchObject(bought),
    )
  })

  it("charges nobody while the payment can't be verified, and serves nobody", async () => {
    const fault = { path: /^\/x402\/verify/, fault: "500" as const }
    const start = kind === "charge" ? [{ path: /^\/x402\/verify/, fault: undefined }] : []
    await everywhere(kind, { faults: [...start, fault, fault, fault] }, sold => {
      expect(sold).toMatchObject({ ...nothing, statuses: [503], runs: 0 })
    })
  })

  it("lets a payment be served once, whoever sends it, and never its retry token after that", async () => {
    await Promise.all(
      frameworks.map(async framework => {
        const { shop, close, payment = "", wallet, payTo } = await sell(framework, kind, {})
        const again = await Promise.all(
          Array.from({ length: 5 }, () => fetch(shop.url, { headers: { "payment-signature": payment } })),
        )
        for (const answer of again) expect([402, 409]).toContain(answer.status)
        for (const answer of again) expect(await answer.text()).not.toContain("sunny")
        expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
        close()
      }),
    )
  })
})

describe("charge", () => {
  it("serves one of ten requests that bring one payment at once", async () => {
    const start = shops.express as NonNullable<(typeof shops)[string]>
    const payTo = newAddress()
    const shop = await start({ charge: { baseUrl: sandbox.url, apiKey, price: PRICE, payTo } }, () => undefined)
    const wallet = await wallets.make()
    const { fetch: pay, sent } = wallets.payer(wallet)
    // Signed for a shop that does not serve it.
    const other = await start({ charge: { baseUrl: sandbox.url, apiKey, price: PRICE, payTo } }, () => "throws")
    expect((await pay(other.url)).status).toBe(500)
    const headers = { "payment-signature": sent[0] ?? "" }
    const answers = await Promise.all(Array.from({ length: 10 }, () => fetch(shop.url, { headers })))
    const texts = await Promise.all(answers.map(answer => answer.text()))
    expect(texts.filter(text => text.includes("sunny"))).toHaveLength(1)
    expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
    shop.stop()
    other.stop()
  })

  it("refuses a retry token for another URL, and after it was served", async () => {
    const {
      shop,
      token = "",
      wallet,
      payTo,
    } = await sell("express", "charge", { settle: "before", failures: ["throws"] })
    const again = await fetch(shop.url, { headers: { "sluice-retry-token": token } })
    expect(again.status).toBe(409)
    const elsewhere = await fetch(`${shop.url}?city=oslo`, { headers: { "sluice-retry-token": token } })
    expect(elsewhere.status).toBe(400)
    const forged = await fetch(shop.url, { headers: { "sluice-retry-token": `${token.slice(0, -4)}AAAA` } })
    expect(forged.status).toBe(400)
    expect(await wallets.paid(wallet.address, payTo)).toEqual([UNITS])
    shop.stop()
  })
})
