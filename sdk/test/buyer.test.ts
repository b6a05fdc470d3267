// A buyer pays checkouts, links, paywalls and calls through a network that loses what it asks and what it is answered: each once.
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { openBuyer } from "../src/buyer/buyer.ts"
import { type Fault, startFaultyProxy } from "./faulty-proxy.ts"
import { shops } from "./shops.ts"
import { NETWORK, openWallets, type Wallets } from "./wallets.ts"

let sandbox: Sandbox
let wallets: Wallets
let apiKey: string
let at: { paywall: string; link: string }
beforeAll(async () => {
  const buckets = ["AGENT", "CHECKOUT", "CONSOLE", "FACILITATOR", "LINK_START", "PAY_CONFIRM", "PAY_STATUS", "PUBLIC"]
  sandbox = await newSandbox(Object.fromEntries(buckets.map(name => [`LIMIT_${name}`, "0"])), "migrated")
  await sandbox.start()
  wallets = openWallets(sandbox)
  const [shop] = sandbox.file().merchants
  apiKey = shop.apiKey
  const auth = { authorization: `Bearer ${shop.accessToken}` }
  const { body } = await sandbox.call(
    "/api/console/paywalls",
    { name: "Report", price: "0.50", contentData: { text: "it" } },
    auth,
  )
  await sandbox.call("/api/console/payment-links", { title: "Tip", amount: "0.75", slug: "buyer-tip" }, auth)
  at = { paywall: `/paywall/${body.id}`, link: "/p/buyer-tip" }
})
afterAll(() => sandbox?.remove())

const checkout = async (): Promise<string> => {
  const { body } = await sandbox.call("/api/checkouts", { amount: "1.25" }, { "x-api-key": apiKey })
  return `/pay/${body.id}`
}

/** A buyer behind a proxy with these faults, in order, for requests that carry money. */
async function buying(faults: Fault[], more: object = {}) {
  const left = [...faults]
  const proxy = await startFaultyProxy(sandbox.url, (path, headers) => {
    const pays = path === "/api/pay/authorize" || headers["payment-signature"] !== undefined
    return pays || headers["sluice-retry-token"] ? left.shift() : undefined
  })
  const account = await wallets.make()
  const tokens = [{ network: NETWORK, address: wallets.token, decimals: 6 }]
  const options = { wallet: account, tokens, maxPerPayment: "2", ...more }
  return { account, proxy, left, options, buyer: openBuyer(options) }
}

describe.each(["checkout", "link", "paywall"] as const)("a %s", kind => {
  const price = { checkout: 1_250_000n, link: 750_000n, paywall: 500_000n }[kind]

  it.each([
    ["nothing fails", []],
    ["the payment is lost", ["lost"]],
    ["the answer is lost twice", ["answer lost", "answer lost"]],
    ["the service breaks", ["500", "answer lost", "500"]],
  ] as [string, Fault[]][])("is paid once where %s", async (_, faults) => {
    const { account, proxy, buyer, left } = await buying(faults)
    const bought = await buyer.pay(proxy.url + (kind === "checkout" ? await checkout() : at[kind]))
    if (kind === "checkout") expect(bought.status).toBe("confirmed")
    if (kind === "paywall") expect(bought.contentData).toEqual({ text: "it" })
    expect(await wallets.paid(account.address)).toEqual([price])
    if (kind !== "checkout") expect(left).toEqual([])
    proxy.stop()
  })
})

describe("a buyer", () => {
  it("that gave up goes on with its nonce, in another process too, and pays once", async () => {
    const all = new Map<string, string>()
    const store = {
      get: (name: string) => all.get(name),
      set: (name: string, value: string) => all.set(name, value),
      delete: (name: string) => all.delete(name),
    }
    const { account, proxy, buyer, options } = await buying(Array(3).fill("answer lost"), { store, timeoutMs: 1 })
    const address = proxy.url + at.paywall
    await expect(buyer.pay(address)).rejects.toMatchObject({ code: "PENDING" })
    const another = openBuyer({ ...options, timeoutMs: 60_000 })
    expect((await another.pay(address)).contentData).toEqual({ text: "it" })
    expect(await wallets.paid(account.address)).toEqual([500_000n])
    expect(all.size).toBe(0)
    // What was delivered is bought again.
    await another.pay(address)
    expect(await wallets.paid(account.address)).toEqual([500_000n, 500_000n])
    proxy.stop()
  })

  it("pays a call of a shop with our middleware, once although its handler failed", async () => {
    const { account, proxy, buyer } = await buying([])
    const payTo = privateKeyToAccount(generatePrivateKey()).address
    const failures = ["throws" as const]
    const charge = { baseUrl: sandbox.url, apiKey, price: "0.05", payTo, settle: "before" as const }
    const shop = await shops.express?.({ charge }, () => failures.shift())
    const url = `${shop?.url}`
    expect((await buyer.fetch(url)).status).toBe(500)
    expect(await (await buyer.fetch(url)).json()).toEqual({ forecast: "sunny" })
    expect(await wallets.paid(account.address)).toEqual([50_000n])
    shop?.stop()
    proxy.stop()
  })

  it("pays with a wallet that speaks EIP-1193", async () => {
    const { account, proxy, options } = await buying([])
    const request = async ({ method, params }: { method: string; params?: unknown }) => {
      expect(method).toBe("eth_signTypedData_v4")
      const [address, text] = params as [string, string]
      expect(address).toBe(account.address)
      return await account.signTypedData(JSON.parse(text))
    }
    const buyer = openBuyer({ ...options, wallet: { address: account.address, provider: { request } } })
    await buyer.pay(proxy.url + at.paywall)
    expect(await wallets.paid(account.address)).toEqual([500_000n])
    proxy.stop()
  })

  it("signs nothing above its caps, nor in another token, nor for what is not for sale", async () => {
    const { account, proxy, options } = await buying([])
    const pay = (more: object, path = at.paywall) => openBuyer({ ...options, ...more }).pay(proxy.url + path)
    await expect(pay({ maxPerPayment: "0.49" })).rejects.toMatchObject({ code: "OVER_CAP" })
    await expect(pay({ maxPerDay: "0.49" })).rejects.toMatchObject({ code: "OVER_CAP" })
    await expect(pay({ tokens: undefined })).rejects.toMatchObject({ code: "UNKNOWN_TOKEN" })
    await expect(pay({}, "/docs")).rejects.toMatchObject({ code: "NOT_PAYABLE" })
    await expect(pay({}, "/pay/cs_aaaaaaaaaaaaaaaaaaaaaaaa")).rejects.toMatchObject({ code: "NOT_PAYABLE" })
    expect(await wallets.paid(account.address)).toEqual([])
    const thrifty = openBuyer({ ...options, maxPerDay: "1.00" })
    for (let i = 0; i < 2; i++) await thrifty.pay(proxy.url + at.paywall)
    await expect(thrifty.pay(proxy.url + at.paywall)).rejects.toMatchObject({ code: "OVER_CAP" })
    expect(await wallets.paid(account.address)).toEqual([500_000n, 500_000n])
    proxy.stop()
  })
})
