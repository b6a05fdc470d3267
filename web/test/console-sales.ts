/** What else the merchant of `console-world.ts` sells: reserved payments, a split, a subscription, an API behind a price. */
import { privateKeyToAccount } from "viem/accounts"
import { type Sandbox, until } from "../../server/test/e2e/program.ts"
import { type ConsoleWorld, fillConsole, makeMonthly } from "./console-world.ts"

type Running = Pick<Sandbox, "url" | "call" | "file">

/** Requests of the first merchant, as its owner; throws unless they succeed. */
export function ownerOf(sandbox: Running) {
  const auth = { authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` }
  const taken = ({ status, body }: Awaited<ReturnType<Running["call"]>>, path: string) => {
    if (status >= 300) throw new Error(`${path}: ${status} ${JSON.stringify(body)}`)
    return body
  }
  return {
    get: async (path: string) => taken(await sandbox.call(path, undefined, auth), path),
    post: async (path: string, body: unknown = {}) => taken(await sandbox.call(path, body, auth), path),
  }
}

/** A checkout whose money a buyer has reserved; answers its id. */
async function reserve(sandbox: Running, amount: string, description: string): Promise<string> {
  const { post } = ownerOf(sandbox)
  const { id } = await post("/api/console/checkouts", { amount, description, capture: "manual" })
  const { token, chainId, buyers } = sandbox.file()
  const { authorization: asked } = (await sandbox.call(`/api/pay/status/${id}`)).body
  const { primaryType, ...terms } = asked
  const buyer = privateKeyToAccount(buyers[1].privateKey)
  const fields = "address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce"
  const types = {
    [primaryType]: fields.split(",").map(field => {
      const [type = "", name = ""] = field.split(" ")
      return { type, name }
    }),
  }
  const message = { from: buyer.address, ...terms }
  const domain = { name: token.name, version: token.version, chainId, verifyingContract: token.address }
  const signature = await buyer.signTypedData({ domain, types, primaryType, message } as never)
  await post("/api/pay/authorize", { sessionId: id, authorization: message, signature })
  return id
}

/** Waits until a checkout of the merchant has a state. Not by the payers' route, which one address may ask 60 times a minute. */
const untilStatus = (sandbox: Running, id: string, state: string): Promise<void> =>
  until(`${id} is ${state}`, async () => (await ownerOf(sandbox).get(`/api/console/checkouts/${id}`)).status === state)

interface Sales {
  /** The id of a product that is paid each month. */
  product: string
  /** Reserved, and nothing of it captured. */
  reserved: string
  /** Captured whole. */
  captured: string
  split: string
  subscription: string
  bundle: string
  payer: string
  invoice: string
  key: string
  event: string
  /** The id of a request that was refused. */
  request: string
}

export type World = ConsoleWorld & Sales

/** Makes all of both at once, as each waits for blocks. */
export async function fillWorld(sandbox: Running): Promise<World> {
  const product = await makeMonthly(sandbox)
  const [filled, sales] = await Promise.all([fillConsole(sandbox), fillSales(sandbox, product)])
  return { ...filled, ...sales, product }
}

/** Makes one of each. */
async function fillSales(sandbox: Running, monthly: string): Promise<Omit<Sales, "product">> {
  const { get, post } = ownerOf(sandbox)
  const { buyers } = sandbox.file()
  const [reserved, captured] = [
    await reserve(sandbox, "64.00", "Camera, for a week"),
    await reserve(sandbox, "42.00", "Order 1043"),
  ]
  const split = await post("/api/console/splits", {
    name: "Author and publisher",
    recipients: [
      { address: buyers[3].address, percent: 33.3333, label: "Author" },
      { address: buyers[4].address, percent: 66.6667, label: "Publisher" },
    ],
  })
  const bundle = await post("/api/console/bundles", {
    name: "Weather",
    description: "Forecasts for any place, by the hour",
    originUrl: "http://127.0.0.1:9",
    routes: [
      { method: "GET", path: "/forecast", price: "0.02", description: "The next 48 hours" },
      { method: "POST", path: "/alerts", price: "0.10" },
    ],
  })
  const first = await post("/api/console/checkouts", { productId: monthly, customerEmail: "reader@shop.example" })
  await post("/sandbox/pay", { to: first.payTo, amount: "9", buyer: 2 })
  await Promise.all([untilStatus(sandbox, reserved, "authorized"), untilStatus(sandbox, captured, "authorized")])
  await post("/api/console/payments/capture", { sessionId: captured })
  await untilStatus(sandbox, captured, "confirmed")
  const subscriptionOf = async () => (await get("/api/console/subscriptions")).data[0]
  await until("the subscription began", async () => (await subscriptionOf()) !== undefined)
  const subscription = (await subscriptionOf()).id
  const request = "order-1042-again"
  const key = sandbox.file().merchants[0].apiKey
  await sandbox.call("/api/checkouts", { amount: "19,90" }, { "x-api-key": key, "x-request-id": request })
  return {
    reserved,
    captured,
    split: split.id,
    subscription,
    invoice: (await get(`/api/console/subscriptions/${subscription}`)).invoices[0].id,
    key: (await get("/api/console/api-keys")).data[0].id,
    event: (await get("/api/console/events?type=checkout.session.completed")).data[0].id,
    request,
    bundle: bundle.id,
    payer: buyers[0].address,
  }
}
