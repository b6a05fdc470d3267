// The shops whose framework is here anyway, as they are written, on the SDK's sources. The others: shops.long.ts.
import { execFile } from "node:child_process"
import { once } from "node:events"
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { freePort, plainEnv, root, until } from "../server/test/e2e/program.ts"
import { type Market, openMarket, tryShop } from "./rig.ts"

let market: Market
let folder: string
beforeAll(async () => {
  market = await openMarket()
  // Beside the npm packages, where Node finds these.
  folder = mkdtempSync(join(root, "node_modules/.shops-"))
  const sdk = join(folder, "node_modules/@sluice/sdk")
  mkdirSync(sdk, { recursive: true })
  symlinkSync(join(root, "sdk/src"), join(sdk, "src"))
  const buyer = "./src/buyer/buyer.ts"
  const exports = { ".": "./src/index.ts", "./buyer": buyer, "./*": "./src/middleware/*.ts" }
  writeFileSync(join(sdk, "package.json"), JSON.stringify({ name: "@sluice/sdk", type: "module", exports }))
})
afterAll(async () => {
  await market?.close()
  rmSync(folder, { recursive: true, force: true })
})

it.each(["express", "fastify"])("the shop on %s takes orders and sells its report", async name => {
  const file = join(folder, `${name}.mjs`)
  cpSync(join(root, "examples", name, "shop.mjs"), file)
  const shop = await market.open([process.execPath, file], folder)
  await tryShop(market, shop.url, shop.payTo)
  await shop.close()
})

/** Runs a program beside the packages; `output` has what it wrote until now. */
function run(name: string, text: string, env: Record<string, string>) {
  const file = join(folder, name)
  writeFileSync(file, text)
  let output = ""
  const { promise: ended, resolve, reject } = Promise.withResolvers<void>()
  const child = execFile(process.execPath, [file], { cwd: folder, env: { ...plainEnv(), ...env } }, error =>
    error && !child.killed ? reject(error) : resolve(),
  )
  child.stdout?.on("data", chunk => (output += chunk))
  return { ended, output: () => output, stop: () => child.kill() }
}

const blocksOf = (path: string, language: string): string[] =>
  [...readFileSync(join(root, path), "utf8").matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].flatMap(([, kind, text = ""]) =>
    kind === language ? [text] : [],
  )

it("the first code of the README takes a payment", async () => {
  const [text = "", ...more] = blocksOf("README.md", "ts")
  expect(more).toEqual([])
  const { sandbox } = market
  const env = { SLUICE_URL: sandbox.url, SLUICE_API_KEY: sandbox.file().merchants[0].apiKey }
  const program = run("readme.mjs", text, env)
  const link = () => /\/pay\/(cs_\w+)/.exec(program.output())?.[1]
  await until("the README has made its checkout", () => link() !== undefined)
  const { body } = await sandbox.call(`/api/pay/status/${link()}`)
  await sandbox.call("/sandbox/pay", { to: body.payTo, amount: body.amount })
  await program.ended
  expect(program.output()).toMatch(/^Send your customer to http\S+\nconfirmed 1001\n$/)
})

it("the server of docs/developers/webhooks.md takes an event once, and refuses what is not signed", async () => {
  const [text = "", ...more] = blocksOf("docs/developers/webhooks.md", "js")
  expect(more).toEqual([])
  const { sandbox } = market
  const headers = { "x-api-key": sandbox.file().merchants[0].apiKey }
  const port = await freePort()
  const endpoint = { url: `http://127.0.0.1:${port}`, events: ["checkout.confirmed"] }
  const ask = async (init: RequestInit) => (await fetch(endpoint.url, init)).status
  const start = async (env: Record<string, string>) => {
    const server = run("receiver.mjs", text, { PORT: `${port}`, ...env })
    await until("the receiver listens", async () => (await ask({}).catch(() => 0)) === 400)
    return server
  }
  const first = await start({})
  const { id, secret } = (await sandbox.call("/api/console/webhooks", endpoint, headers)).body.data
  first.stop()
  await first.ended
  const server = await start({ WEBHOOK_SECRET: secret })
  await sandbox.call(`/api/console/webhooks/${id}/test`, {}, headers)
  await until("the ping has arrived", () => /^ping/m.test(server.output()))
  const forged = { method: "POST", body: "{}", headers: { "webhook-id": "evt_1", "webhook-signature": "v1,abc" } }
  expect(await ask(forged)).toBe(400)
  // A caller who leaves in the middle of a body ends no server.
  const leaver = connect(port, "127.0.0.1")
  leaver.write("POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 9\r\n\r\nhalf")
  await once(leaver, "connect")
  leaver.resetAndDestroy()
  expect(await ask(forged)).toBe(400)
  expect(server.output().trim().split("\n")).toHaveLength(1)
  server.stop()
  await server.ended
})

it("the agent buys a shop's report and a checkout", async () => {
  const { sandbox, wallets } = market
  const file = join(folder, "express.mjs")
  cpSync(join(root, "examples/express/shop.mjs"), file)
  const shop = await market.open([process.execPath, file], folder)
  const wallet = await wallets.make()
  await sandbox.call("/sandbox/faucet", { address: wallet.address, amount: "10" })
  const ordered = await fetch(`${shop.url}/orders/agent-${new URL(shop.url).port}`, { method: "POST" })
  const { url } = (await ordered.json()) as { url: string }
  const program = run("buy.mjs", readFileSync(join(root, "examples/buyer/buy.mjs"), "utf8"), {
    BUYER_KEY: wallet.key,
    TOKEN: wallets.token,
    RESOURCE: `${shop.url}/weather`,
    PAGE: url,
  })
  await program.ended
  expect(program.output()).toBe('200 {"forecast":"sunny"}\nconfirmed\n')
  expect((await wallets.paid(wallet.address)).sort()).toEqual([19_900_000n, 50_000n])
  await shop.close()
})

it("the page about the SDK has no code that is not of these programs", () => {
  const programs = ["express", "fastify", "hono"].map(name => `${name}/shop.mjs`)
  const files = [...programs, "next/app/weather/route.js", "fastapi/shop.py", "buyer/buy.mjs"]
  const written = files.map(path => readFileSync(join(root, "examples", path), "utf8"))
  const blocks = [...blocksOf("docs/developers/sdk.md", "js"), ...blocksOf("docs/developers/sdk.md", "python")]
  expect(blocks).toHaveLength(7)
  expect(blocks.filter(block => !written.some(text => text.includes(block)))).toEqual([])
})
