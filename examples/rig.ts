/** Runs a shop of an example against a sandbox, and buys from it. */
import { type ChildProcess, spawn } from "node:child_process"
import { createHmac } from "node:crypto"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { expect } from "vitest"
import { openWallets, type Wallets } from "../sdk/test/wallets.ts"
import { freePort, isTaken, newSandbox, plainEnv, type Sandbox, until } from "../server/test/e2e/program.ts"

const PATIENCE_MS = 240_000

export interface Market {
  sandbox: Sandbox
  wallets: Wallets
  /** Starts a shop: `command` is its program and arguments, `cwd` where it runs. */
  open(command: string[], cwd: string): Promise<{ url: string; payTo: `0x${string}`; close(): Promise<void> }>
  close(): Promise<void>
}

export async function openMarket(): Promise<Market> {
  const buckets = ["CHECKOUT", "CONSOLE", "FACILITATOR", "PUBLIC"]
  const sandbox = await newSandbox(Object.fromEntries(buckets.map(name => [`LIMIT_${name}`, "0"])), "migrated")
  await sandbox.start()
  const [{ apiKey, webhookSecret }] = sandbox.file().merchants
  return {
    sandbox,
    wallets: openWallets(sandbox),
    open: async ([program = "", ...args], cwd) => {
      const port = await freePort()
      const payTo = privateKeyToAccount(generatePrivateKey()).address
      const { NODE_OPTIONS: _, ...plain } = plainEnv()
      const env = {
        ...plain,
        SLUICE_URL: sandbox.url,
        SLUICE_API_KEY: apiKey,
        WEBHOOK_SECRET: webhookSecret,
        PAY_TO: payTo,
        PORT: `${port}`,
      }
      const child = spawn(program, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] })
      let output = ""
      for (const stream of [child.stdout, child.stderr]) stream.on("data", chunk => (output += chunk))
      const isUp = async () => child.exitCode !== null || (await isTaken(port))
      await until(`${program} ${args.join(" ")} listens`, isUp, PATIENCE_MS)
      if (child.exitCode !== null) throw new Error(`it ended: ${output}`)
      return { url: `http://127.0.0.1:${port}`, payTo, close: () => ended(child) }
    },
    close: async () => await sandbox.remove(),
  }
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return
  const exit = new Promise(resolve => child.once("exit", resolve))
  child.kill("SIGKILL")
  await exit
}

/** An order is paid and its event arrives, a false event is refused, and an agent buys the report for its price, once. */
export async function tryShop({ sandbox, wallets }: Market, url: string, payTo: `0x${string}`): Promise<void> {
  // An order is made once, whichever shop it is made in.
  const order = `${new URL(url).port}`
  const isNext = (await fetch(`${url}/orders/${order}`, { method: "POST" })).status === 404
  const ordered = isNext
    ? await fetch(`${url}/orders`, { method: "POST", body: JSON.stringify({ order }) })
    : await fetch(`${url}/orders/${order}`, { method: "POST" })
  expect(ordered.status).toBe(200)
  const { id } = (await ordered.json()) as { id: string }
  const { body: checkout } = await sandbox.call(`/api/pay/status/${id}`)
  await sandbox.call("/sandbox/pay", { to: checkout.payTo, amount: checkout.amount })
  const paid = async () => (await (await fetch(`${url}/paid`)).json()) as string[]
  await until("the event of the order arrives", async () => (await paid()).includes(order))
  const t = Math.floor(Date.now() / 1_000)
  const body = JSON.stringify({
    id: "evt_1",
    event: "checkout.session.completed",
    createdAt: "2026-01-01T00:00:00Z",
    data: { metadata: { order: "666" } },
  })
  const v1 = createHmac("sha256", "whsec_other").update(`${t}.${body}`).digest("hex")
  const headers = { "content-type": "application/json", "service-signature": `t=${t},v1=${v1}` }
  expect((await fetch(`${url}/webhooks`, { method: "POST", headers, body })).status).toBe(400)
  expect(await paid()).toEqual([order])

  expect((await fetch(`${url}/weather`)).status).toBe(402)
  const wallet = await wallets.make()
  const { fetch: pay, sent } = wallets.payer(wallet)
  const bought = await pay(`${url}/weather`)
  expect([bought.status, await bought.json()]).toEqual([200, { forecast: "sunny" }])
  expect(bought.headers.get("payment-response")).toMatch(/^ey/)
  expect(await wallets.paid(wallet.address, payTo)).toEqual([50_000n])
  const again = await fetch(`${url}/weather`, { headers: { "payment-signature": sent[0] ?? "" } })
  expect([again.status, (await again.text()).includes("sunny")]).toEqual([402, false])
}
