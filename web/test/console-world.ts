/** A merchant's week in a sandbox: what the console's tests and pictures show. */
import { type Sandbox, until } from "../../server/test/e2e/program.ts"
import { serve } from "./front.ts"

type Running = Pick<Sandbox, "url" | "call" | "file">

/** Text that a payer or another merchant can write, and that must stay text. */
export const HOSTILE = `<img src=x onerror="window.pwned=1">"'><script>window.pwned=1</script>`

export interface ConsoleWorld {
  /** Paid in full; its description is `Order 1042`. */
  paid: { id: string; url: string; payTo: string }
  underpaid: { id: string; payTo: string }
  /** The id of a checkout that was paid with 1.80 USDC too much. */
  overpaid: string
  /** The id of the payment that waits for a decision. */
  waiting: string
  paywall: string
  link: string
  webhook: string
  /** A delivery that failed. */
  failed: string
  /** A payout that is sent. */
  payout: string
  name: string
}

/** Makes a product that is paid each month; answers its id. */
export async function makeMonthly(sandbox: Running): Promise<string> {
  const { accessToken } = sandbox.file().merchants[0]
  const product = { name: "Press pass", price: "9", billingInterval: "month" }
  const { body } = await sandbox.call("/api/console/products", product, { authorization: `Bearer ${accessToken}` })
  return body.id
}

/** Makes checkouts that are paid, partly paid, overpaid and paid twice; a link, a product, a paywall; endpoints that work and fail. */
export async function fillConsole(sandbox: Running): Promise<ConsoleWorld> {
  const { apiKey, accessToken, name } = sandbox.file().merchants[0]
  const auth = { authorization: `Bearer ${accessToken}` }
  const post = async (path: string, body: unknown, headers: Record<string, string> = auth) => {
    const answer = await sandbox.call(path, body, headers)
    if (answer.status >= 300) throw new Error(`${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const get = async (path: string) => (await sandbox.call(path, undefined, auth)).body
  const order = (body: object) => post("/api/checkouts", body, { "x-api-key": apiKey })
  const pay = (to: string, amount: string, buyer = 0) => post("/sandbox/pay", { to, amount, buyer })

  const { data: endpoint } = await post("/api/console/webhooks", {
    url: `${sandbox.url}/sandbox/inbox/shop`,
    events: ["*", "payment.exception"],
  })
  // It answers when it is added, and never again.
  const shop = await serve((_, response) => response.writeHead(204).end())
  const { data: broken } = await post("/api/console/webhooks", {
    url: `http://127.0.0.1:${shop.port}/hooks`,
    events: ["*"],
    description: "The old shop",
  })
  await shop.close()
  const link = await post("/api/console/payment-links", {
    title: "Support the radio",
    description: "As much as you like",
  })
  await post("/api/console/payment-links", { title: "Gift voucher", amount: "25", maxUses: 100 })
  await post("/api/console/products", { name: "The lighthouse film", price: "5" })
  const paywall = await post("/api/console/paywalls", {
    name: "The lighthouse film",
    description: "Half an hour, in English",
    price: "5",
    contentUrl: "https://films.example/lighthouse",
  })

  const orders = [
    ["1042", "19.90", "19.90"],
    ["1041", "19.90", "14.90"],
    ["1040", "250", "250"],
    ["1039", "48.20", "50.00"],
    ["1038", "12", "12"],
    ["1037", "0.05", "0.05"],
  ] as const
  const made = []
  for (const [i, [n, amount, sent]] of orders.entries()) {
    const checkout = await order({
      amount,
      description: `Order ${n}`,
      customerEmail: `buyer${n}@example.com`,
      metadata: { order: n, shop: "Lisbon" },
    })
    made.push(checkout)
    await pay(checkout.payTo, sent, i % 5)
  }
  await order({ amount: "7", description: HOSTILE, metadata: { [HOSTILE]: HOSTILE } })
  await order({
    amount: "31.40",
    description: "Invoice 77, Gold, for the reading room ".repeat(5).trim(),
    customerEmail: "long@example.com",
  })
  const [paid, underpaid] = made
  const waitingOf = async () =>
    (await get("/api/console/payments?status=open")).data.find(
      (each: { sessionId: string }) => each.sessionId === underpaid.id,
    )?.id
  await until("the underpaid one waits", async () => (await waitingOf()) !== undefined)
  await until("one is paid", async () => (await get(`/api/console/checkouts/${paid.id}`)).status === "confirmed")
  await pay(made[4].payTo, "12", 2)
  const ids = new Set(made.map(({ id }) => id))
  const all = async () =>
    (await get("/api/console/transactions?type=payment")).data.filter((each: { sessionId: string }) =>
      ids.has(each.sessionId),
    ).length ===
    orders.length + 1
  await until("all are there", all)
  const failedOf = async () => (await get(`/api/console/deliveries?webhookId=${broken.id}`)).data[0]
  await until("a delivery fails", async () => (await failedOf())?.attempts > 0)
  const payoutOf = async () =>
    (await get("/api/console/payouts")).data.find(
      (each: { state: string; amount: string }) => each.amount === "250.00" && ["mined", "final"].includes(each.state),
    )
  await until("a payout is sent", async () => (await payoutOf()) !== undefined)
  return {
    paid,
    underpaid,
    overpaid: made[3].id,
    waiting: await waitingOf(),
    paywall: paywall.id,
    link: link.id,
    webhook: endpoint.id,
    failed: (await failedOf()).id,
    payout: (await payoutOf()).id,
    name,
  }
}
