/**
 * Stock x402 clients and servers, unmodified from npm and PyPI, on a running sandbox: the programs of
 * `docs/developers/x402-clients.md`, and what the packages can do beside them.
 */
import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader, HTTPFacilitatorClient } from "@x402/core/http"
import type { PaymentPayload } from "@x402/core/types"
import { ExactEvmScheme } from "@x402/evm"
import {
  decodeSignedOffers,
  extractOffersFromPaymentRequired,
  extractReceiptFromResponse,
  findAcceptsObjectFromSignedOffer,
  verifyOfferSignatureJWS,
  verifyReceiptMatchesOffer,
  verifyReceiptSignatureJWS,
} from "@x402/extensions/offer-receipt"
import { appendPaymentIdentifierToExtensions } from "@x402/extensions/payment-identifier"
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch"
import { createPublicClient, erc20Abi, type Hex, http } from "viem"
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { exact } from "x402/schemes"
import { useFacilitator as openFacilitatorV1 } from "x402/verify"
import { wrapFetchWithPayment as wrapFetchV1 } from "x402-fetch"
import { newSandbox, type Sandbox, until } from "../e2e/program.ts"
import { findPython, type Python } from "../python.ts"
import { openPrograms } from "./programs.ts"

const NETWORK = "eip155:84532"
/** Above every cap that a stock client has by itself. */
const PRICE = 1_500_000n
/** What the servers of the guide ask. */
const WEATHER = 50_000n

let python: Python
const programs = openPrograms(() => {
  if ("missing" in python) throw new Error(python.missing)
  return python.program
})

let sandbox: Sandbox
let shop: { apiKey: string; accessToken: string }
let token: Hex
let chain: ReturnType<typeof createPublicClient>
/** Where a paywall, a payment link and a call of an API are bought. */
let resources: { paywall: string; link: string; call: string }
/** The receipts that the API gets with paid calls. */
const receipts: unknown[] = []
const origin = createServer((request, response) => {
  receipts.push(request.headers["sluice-payment"])
  response.end(JSON.stringify({ path: request.url, forecast: "windy" }))
})
let paywall: { id: string; payTo: Hex }

beforeAll(async () => {
  sandbox = await newSandbox({}, "migrated")
  ;[python] = await Promise.all([findPython("x402", "server/test/x402/requirements.txt"), sandbox.start()])
  if ("missing" in python && process.env.CI && !python.offline) throw new Error(python.missing)
  if ("missing" in python) process.stderr.write(`\nSTOCK PYTHON IS NOT TESTED: ${python.missing}\n\n`)
  const file = sandbox.file()
  token = file.token.address
  shop = file.merchants[0]
  chain = createPublicClient({ transport: http(file.rpcUrl) })
  const auth = { authorization: `Bearer ${shop.accessToken}` }
  const content = { name: "Weather", price: "1.50", slug: "weather", contentData: { forecast: "sunny" } }
  const { body } = await sandbox.call("/api/console/paywalls", content, auth)
  paywall = (await sandbox.call(`/api/paywalls/${body.id}`)).body
  const link = await sandbox.call("/api/console/payment-links", { title: "Tip", amount: "1.50", slug: "a-tip" }, auth)
  expect(link.status).toBe(201)
  origin.listen(0, "127.0.0.1")
  await once(origin, "listening")
  const originUrl = `http://127.0.0.1:${(origin.address() as AddressInfo).port}`
  const routes = [{ method: "GET", path: "/forecast/:city", price: "1.50" }]
  const bundle = await sandbox.call("/api/console/bundles", { name: "API", slug: "an-api", originUrl, routes }, auth)
  expect(bundle.status).toBe(201)
  const at = `${sandbox.url}/api/p`
  resources = { paywall: `${at}/weather`, link: `${at}/a-tip`, call: `${at}/an-api/forecast/oslo?days=7` }
})
afterAll(async () => {
  await programs.stop()
  await sandbox?.remove()
  origin.close()
})

interface Wallet {
  key: Hex
  account: PrivateKeyAccount
}

/** A new wallet with 10 USDC and no gas. */
async function newWallet(): Promise<Wallet> {
  const key = generatePrivateKey()
  const account = privateKeyToAccount(key)
  const { body } = await sandbox.call("/sandbox/faucet", { address: account.address, amount: "10" })
  await chain.waitForTransactionReceipt({ hash: body.txHash })
  return { key, account }
}

/** All that ever left a wallet, as the chain has it. */
async function paidBy({ account }: Wallet): Promise<{ to: Hex; value: bigint; transaction: Hex }[]> {
  const args = { from: account.address }
  const query = { address: token, abi: erc20Abi, eventName: "Transfer", args, fromBlock: 0n, strict: true } as const
  const logs = await chain.getContractEvents(query)
  return logs.map(({ args: { to, value }, transactionHash }) => ({ to, value, transaction: transactionHash }))
}

interface Payer {
  client: x402Client
  fetch: typeof fetch
  /** The payment that was sent last, as its header has it. */
  sent(): string
}

/** `@x402/fetch` with its caps raised. */
function payerOf({ account }: Wallet): Payer {
  let sent = ""
  const client = new x402Client().register(NETWORK, new ExactEvmScheme(account))
  client.setSpendControls({ allowedAssets: [{ network: NETWORK, asset: token }] })
  const recording: typeof fetch = async (input, init) => {
    const request = new Request(input, init)
    sent = request.headers.get("payment-signature") ?? sent
    return await fetch(request)
  }
  return { client, fetch: wrapFetchWithPayment(recording, client), sent: () => sent }
}

const resend = (url: string, payment: string) => fetch(url, { headers: { "PAYMENT-SIGNATURE": payment } })

const settledBy = (response: Response) => decodePaymentResponseHeader(response.headers.get("PAYMENT-RESPONSE") ?? "")

/** Requirements of a server that has its own address. */
const requirements = (payTo: Hex) => ({
  scheme: "exact" as const,
  network: NETWORK as `${string}:${string}`,
  amount: `${WEATHER}`,
  asset: token,
  payTo,
  maxTimeoutSeconds: 60,
  extra: { name: "USDC", version: "2" },
})

const newAddress = (): Hex => privateKeyToAccount(generatePrivateKey()).address

/** Whether a program can't be run here, which is reported when the tests begin. */
const lacksPython = (name: string): boolean => name.endsWith(".py") && "missing" in python

describe("the clients of docs/developers/x402-clients.md", () => {
  const buyers = programs.names.filter(name => !name.startsWith("seller"))
  const served: string[] = []

  it("are these", () => {
    expect(buyers).toEqual(["fetch.mjs", "axios.mjs", "fetch-v1.mjs", "buyer.py"])
  })

  it.for(buyers)("%s pays a paywall, a payment link and a call of an API, each once", async (name, { skip }) => {
    if (lacksPython(name)) skip()
    const buy = async (resource: string) => {
      const wallet = await newWallet()
      const [answer = "", transaction] = await programs.run(name, {
        RESOURCE: resource,
        BUYER_KEY: wallet.key,
        TOKEN: token,
      })
      return { wallet, answer, transaction, paid: await paidBy(wallet) }
    }
    const before = receipts.length
    // The first one alone: Python's modules were installed without being compiled, and the others find what it compiled.
    const content = await buy(resources.paywall)
    const [tip, call] = await Promise.all([buy(resources.link), buy(resources.call)])
    expect(content.paid).toEqual([{ to: paywall.payTo, value: PRICE, transaction: content.transaction }])
    expect(content.answer).toMatch(/^200 .*"forecast":"sunny"/)
    expect(tip.paid).toEqual([{ to: expect.any(String), value: PRICE, transaction: tip.transaction }])
    expect(tip.answer).toMatch(/^200 /)
    expect(call.paid).toEqual([{ to: expect.any(String), value: PRICE, transaction: call.transaction }])
    expect(call.answer).toBe('200 {"path":"/forecast/oslo?days=7","forecast":"windy"}')
    expect(receipts.slice(before)).toEqual([expect.stringMatching(/^eyJ/)])
    served.push(content.wallet.account.address)
  })

  it("have access once their payments are confirmed", async () => {
    for (const address of served) {
      const check = `/api/paywalls/${paywall.id}/verify?address=${address}`
      const hasAccess = async () =>
        (await sandbox.call(check, undefined, { "x-api-key": shop.apiKey })).body.hasAccess === true
      await until("the buyer has access", hasAccess)
    }
  })
})

describe("stock clients", () => {
  it("sign nothing above their caps", async () => {
    const wallet = await newWallet()
    const { client, fetch: pay } = payerOf(wallet)
    client.setSpendControls({})
    await expect(pay(resources.paywall)).rejects.toThrow("rejected by spendControls")
    await expect(wrapFetchV1(fetch, wallet.account)(resources.paywall)).rejects.toThrow("exceeds maximum")
    expect(await paidBy(wallet)).toEqual([])
  })

  it("pay a paywall by its id", async () => {
    const wallet = await newWallet()
    const response = await payerOf(wallet).fetch(`${sandbox.url}/api/agent/paywalls/${paywall.id}/settle`, {
      method: "POST",
    })
    expect(response.status).toBe(200)
    const { transaction } = settledBy(response)
    expect(await paidBy(wallet)).toEqual([{ to: paywall.payTo, value: PRICE, transaction }])
  })

  it("get the same answer again for a payment with an id, and a conflict for another payment with it", async () => {
    const wallet = await newWallet()
    const { client, fetch: pay, sent } = payerOf(wallet)
    client.onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions ?? {}, "order_2026_000000017")
    })
    const first = await pay(resources.paywall)
    const content = await first.text()
    const again = await resend(resources.paywall, sent())
    expect({ status: again.status, content: await again.text() }).toEqual({ status: 200, content })
    const { transaction } = settledBy(first)
    expect(settledBy(again)).toMatchObject({ success: true, transaction })
    expect((await pay(resources.paywall)).status).toBe(409)
    expect(await paidBy(wallet)).toHaveLength(1)
  })

  it("are not given the content again for a payment without an id, and do not pay again", async () => {
    const wallet = await newWallet()
    const { fetch: pay, sent } = payerOf(wallet)
    const { transaction } = settledBy(await pay(resources.paywall))
    const again = await resend(resources.paywall, sent())
    expect(await again.text()).not.toContain("sunny")
    expect(await paidBy(wallet)).toEqual([{ to: paywall.payTo, value: PRICE, transaction }])
  })

  it("verify the signed offer and the signed receipt by the ids of their keys", async () => {
    const unpaid = await fetch(resources.paywall)
    const required = decodePaymentRequiredHeader(unpaid.headers.get("PAYMENT-REQUIRED") ?? "")
    const offers = extractOffersFromPaymentRequired(required)
    expect(offers.map(offer => findAcceptsObjectFromSignedOffer(offer, required.accepts))).toEqual(required.accepts)
    const [offer] = await Promise.all(offers.map(each => verifyOfferSignatureJWS(each as never)))
    expect(offer).toMatchObject({ resourceUrl: resources.paywall, amount: `${PRICE}`, payTo: paywall.payTo })
    const wallet = await newWallet()
    const response = await payerOf(wallet).fetch(resources.paywall)
    const receipt = extractReceiptFromResponse(response)
    expect(await verifyReceiptSignatureJWS(receipt as never)).toMatchObject({ network: NETWORK })
    const [decoded] = decodeSignedOffers(offers)
    expect(verifyReceiptMatchesOffer(receipt as never, decoded as never, [wallet.account.address])).toBe(true)
  })
})

describe("the servers of docs/developers/x402-clients.md", () => {
  const sellers = programs.names.filter(name => name.startsWith("seller"))

  it("are these", () => {
    expect(sellers).toEqual(["seller.mjs", "seller.py"])
  })

  it.for(sellers)("%s is paid through the facilitator, and serves a payment once", async (name, { skip }) => {
    if (lacksPython(name)) skip()
    const payTo = newAddress()
    const env = { SLUICE_URL: sandbox.url, SLUICE_API_KEY: shop.apiKey, TOKEN: token, PAY_TO: payTo }
    const url = `${await programs.serve(name, env)}/weather`
    const wallet = await newWallet()
    const { fetch: pay, sent } = payerOf(wallet)
    const response = await pay(url)
    expect({ status: response.status, body: await response.json() }).toEqual({ status: 200, body: { forecast: "sun" } })
    const { transaction, payer } = settledBy(response)
    expect(payer).toBe(wallet.account.address)
    expect(await paidBy(wallet)).toEqual([{ to: payTo, value: WEATHER, transaction }])
    const again = await resend(url, sent())
    expect({ status: again.status, body: await again.text() }).toEqual({ status: 402, body: "{}" })
    expect(await paidBy(wallet)).toHaveLength(1)
  })

  // The id is the buyer's choice, and no stock server looks at it: it must not make one payment good for twenty answers.
  it.each([
    ["without an id", {}],
    ["with an id of the buyer", { "payment-identifier": { info: { required: false, id: "order_2026_000000018" } } }],
  ])("seller.mjs serves one of 20 requests that send the same payment at once, %s", async (_, extensions) => {
    const payTo = newAddress()
    const env = { SLUICE_URL: sandbox.url, SLUICE_API_KEY: shop.apiKey, TOKEN: token, PAY_TO: payTo }
    const url = `${await programs.serve("seller.mjs", env)}/weather`
    const wallet = await newWallet()
    const unpaid = await fetch(url)
    const required = decodePaymentRequiredHeader(unpaid.headers.get("PAYMENT-REQUIRED") ?? "")
    const payload = await payerOf(wallet).client.createPaymentPayload(required)
    const header = encodePaymentSignatureHeader({ ...payload, extensions })
    const answers = await Promise.all(Array.from({ length: 20 }, () => resend(url, header)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(19).fill(402)])
    expect(await paidBy(wallet)).toHaveLength(1)
  })
})

describe("the stock clients of facilitators", () => {
  const keyed = () => ({ verify: { "x-api-key": shop.apiKey }, settle: { "x-api-key": shop.apiKey } })
  const open = () =>
    new HTTPFacilitatorClient({
      url: `${sandbox.url}/x402`,
      createAuthHeaders: async () => ({ ...keyed(), supported: {} }),
    })

  it("find both versions, without a key", async () => {
    const { kinds, signers } = await open().getSupported()
    const extra = { asset: token, decimals: 6, name: "USDC", version: "2" }
    expect(kinds).toContainEqual({ x402Version: 2, scheme: "exact", network: NETWORK, extra })
    expect(kinds).toContainEqual({ x402Version: 1, scheme: "exact", network: "base-sepolia", extra })
    expect(signers["eip155:*"]).toContain(sandbox.file().wallets.relay)
  })

  it("get the transaction of what was settled before", async () => {
    const wallet = await newWallet()
    const accepted = requirements(newAddress())
    const { client } = payerOf(wallet)
    const resource = { url: "https://api.example/weather" }
    const payload: PaymentPayload = await client.createPaymentPayload({ x402Version: 2, resource, accepts: [accepted] })
    expect(await open().verify(payload, accepted)).toEqual({ isValid: true, payer: wallet.account.address })
    const first = await open().settle(payload, accepted)
    expect(first).toEqual({
      success: true,
      payer: wallet.account.address,
      transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/),
      network: NETWORK,
    })
    const { transaction } = first
    expect(await open().settle(payload, accepted)).toMatchObject({
      success: false,
      errorReason: "duplicate_settlement",
      transaction,
    })
    expect(await paidBy(wallet)).toEqual([{ to: accepted.payTo, value: WEATHER, transaction }])
  })

  it("get a reason for what is not valid, and nothing is sent", async () => {
    const wallet = await newWallet()
    const accepted = requirements(newAddress())
    const { client } = payerOf(wallet)
    const resource = { url: "https://api.example/weather" }
    const payload = await client.createPaymentPayload({ x402Version: 2, resource, accepts: [accepted] })
    const dearer = { ...accepted, amount: "50001" }
    const verified = await open().verify(payload, dearer)
    expect(verified).toMatchObject({ isValid: false, invalidReason: expect.stringMatching(/^invalid_/) })
    expect(await open().settle(payload, dearer)).toMatchObject({ success: false, transaction: "" })
    expect(await paidBy(wallet)).toEqual([])
  })

  it("of version 1 verify and settle", async () => {
    const wallet = await newWallet()
    const { amount, network: _, ...terms } = requirements(newAddress())
    const resource = { resource: "https://api.example/weather", description: "", mimeType: "application/json" }
    const wanted = { ...terms, ...resource, network: "base-sepolia" as const, maxAmountRequired: amount }
    const payment = await exact.evm.createPayment(wallet.account, 1, wanted)
    const facilitator = openFacilitatorV1({
      url: `http://127.0.0.1:${sandbox.port}/x402`,
      createAuthHeaders: async () => ({ ...keyed(), supported: {} }),
    })
    expect(await facilitator.verify(payment, wanted)).toMatchObject({ isValid: true })
    const settled = await facilitator.settle(payment, wanted)
    expect(settled).toMatchObject({ success: true, network: "base-sepolia", payer: wallet.account.address })
    expect(await paidBy(wallet)).toEqual([{ to: terms.payTo, value: WEATHER, transaction: settled.transaction }])
  })
})
