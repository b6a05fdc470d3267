/**
 * What the scan costs and brings with the default settings: how many RPC calls a day an endpoint gets from an
 * installation that waits for payments, and how long after its confirmations a payment is confirmed. `script/bench calls
 * [--seconds 120] [--payments 20] [--verify-interval 5s]`: one process of the real program, a local chain with a block
 * every two seconds, and three endpoints that count.
 *
 * Calls are counted while nobody pays, after the checks of the start, for `--seconds` (whole minutes, so that what runs
 * each minute is in them). What runs hourly or daily is not. "Confirmed" is from the moment when the chain has as many
 * blocks as `CONFIRMATIONS` demands, until the status says so (polled ten times a second).
 */
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { parseArgs } from "node:util"
import type { Hex } from "viem"
import { testUsdcAbi } from "../server/src/platform/chain/abi.ts"
import { deployDepositFactory, deployTestUsdc, placeSharedContracts, startAnvil } from "../server/test/anvil.ts"
import { freePort, root, until } from "../server/test/e2e/program.ts"
import { AUDIENCE, startIssuer } from "../server/test/issuer.ts"

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "120" },
    payments: { type: "string", default: "20" },
    "verify-interval": { type: "string" },
  },
})
const seconds = Number(values.seconds)
const payments = Number(values.payments)
const ENDPOINTS = 3
const CONFIRMATIONS = 3
/** What the start asks is over by then: the checks, and the first round of each job. */
const START_MS = 60_000
/** Between two payments: not a multiple of the interval of the scan or the blocks. */
const APART_MS = 3_300
/** The keys of anvil's second and third account; the second is the factory's operator. */
const PAYOUT_KEY = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
const RELAY_KEY = "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a"

const say = (text: string) => process.stdout.write(`${text}\n`)

/** A front of the chain that counts calls by their methods. */
async function startFront(target: string): Promise<{ url: string; calls: Map<string, number>; requests: number }> {
  const front = { url: "", calls: new Map<string, number>(), requests: 0 }
  const server = createServer((request, response) => {
    const parts: Buffer[] = []
    request
      .on("data", part => parts.push(part))
      .on("end", async () => {
        const body = Buffer.concat(parts).toString()
        front.requests++
        for (const { method } of [JSON.parse(body)].flat()) front.calls.set(method, (front.calls.get(method) ?? 0) + 1)
        const answer = await fetch(target, { method: "POST", headers: { "content-type": "application/json" }, body })
        response.writeHead(200, { "content-type": "application/json" }).end(await answer.text())
      })
  })
  await new Promise<void>(done => server.listen(0, "127.0.0.1", done))
  server.unref()
  front.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return front
}

const anvil = await startAnvil({ slotsInAnEpoch: 10 })
const { client } = anvil
await placeSharedContracts(client)
const token = await deployTestUsdc(client)
const factory = await deployDepositFactory(client, anvil.accounts[1].address)
const payer = anvil.accounts[3]
await client.writeContractSync({
  address: token,
  abi: testUsdcAbi,
  functionName: "mint",
  args: [payer.address, 10n ** 12n],
})
await client.setIntervalMining({ interval: 2 })
const fronts = await Promise.all(Array.from({ length: ENDPOINTS }, () => startFront(anvil.rpcUrl)))
const issuer = await startIssuer()
const scratch = mkdtempSync(join(tmpdir(), "sluice-calls-"))
process.once("exit", () => rmSync(scratch, { recursive: true, force: true }))
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))
const port = await freePort()
const child = spawn(process.execPath, ["server/src/main.ts"], {
  cwd: root,
  stdio: ["ignore", 2, 2],
  env: {
    PATH: process.env.PATH ?? "",
    MODE: "test",
    LOG_LEVEL: "warn",
    PORT: `${port}`,
    DATA_DIR: scratch,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    RPC_BASE_SEPOLIA: fronts.map(({ url }) => url).join(","),
    TOKEN_BASE_SEPOLIA: token,
    DEPOSIT_FACTORY_BASE_SEPOLIA: factory,
    ESCROW_BASE_SEPOLIA: "off",
    PAYOUT_PRIVATE_KEY: PAYOUT_KEY,
    RELAY_PRIVATE_KEY: RELAY_KEY,
    CONFIRMATIONS: `${CONFIRMATIONS}`,
    ...(values["verify-interval"] ? { VERIFY_INTERVAL: values["verify-interval"] } : {}),
    ...Object.fromEntries(["CONSOLE", "CHECKOUT", "PUBLIC", "PAY_STATUS"].map(name => [`LIMIT_${name}`, "0"])),
  },
})
process.once("exit", () => child.kill("SIGKILL"))
const base = `http://127.0.0.1:${port}`
await until("it is ready", async () => (await fetch(`${base}/readyz`).catch(() => undefined))?.ok === true)

const headers = { authorization: `Bearer ${await issuer.token("shop")}`, "content-type": "application/json" }
// biome-ignore lint/suspicious/noExplicitAny: it reads what it expects.
async function call(method: string, path: string, body?: unknown): Promise<any> {
  const response = await fetch(`${base}${path}`, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) })
  const answer = (await response.json()) as object
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`)
  return answer
}
await call("PUT", "/api/console/settings", { payoutAddress: `0x${"ab".repeat(20)}` })
await call("POST", "/api/console/paywalls", { name: "it waits for payments", price: 5 })

/** Pays a checkout; returns how long after its confirmations it was confirmed, in milliseconds. */
async function pay(): Promise<number> {
  const { id, payTo } = (await call("POST", "/api/console/checkouts", { amount: 5 })) as { id: string; payTo: Hex }
  const transfer = { address: token, abi: testUsdcAbi, functionName: "transfer", args: [payTo, 5_000_000n] } as const
  const hash = await client.writeContract({ ...transfer, account: payer, gas: 100_000n })
  let deepAt: number | undefined
  for (;;) {
    if (deepAt === undefined) {
      const receipt = await client.getTransactionReceipt({ hash }).catch(() => undefined)
      const head = await client.getBlockNumber()
      if (receipt && head - receipt.blockNumber + 1n >= BigInt(CONFIRMATIONS)) deepAt = Date.now()
    }
    const { status } = await call("GET", `/api/pay/status/${id}`)
    if (status === "confirmed") return Date.now() - (deepAt ?? Date.now())
    await sleep(100)
  }
}

await sleep(START_MS)
for (const front of fronts) {
  front.calls.clear()
  front.requests = 0
}
await sleep(seconds * 1_000)
const perDay = (count: number) => Math.round((count * 86_400) / seconds)
for (const [i, { calls, requests }] of fronts.entries()) {
  const all = [...calls.values()].reduce((sum, n) => sum + n, 0)
  const methods = [...calls].sort((a, b) => b[1] - a[1]).map(([method, n]) => `${method} ${perDay(n)}`)
  say(`endpoint ${i + 1}: ${perDay(all)} calls a day in ${perDay(requests)} requests (${methods.join(", ")})`)
}
const open: Promise<number>[] = []
for (let i = 0; i < payments; i++) {
  open.push(pay())
  await sleep(APART_MS)
}
const took = (await Promise.all(open)).sort((a, b) => a - b)
const at = (share: number) =>
  ((took[Math.min(took.length - 1, Math.floor(share * took.length))] ?? 0) / 1_000).toFixed(1)
if (took.length > 0)
  say(`confirmed after its confirmations: p50 ${at(0.5)} s, p99 ${at(0.99)} s, most ${at(1)} s, of ${took.length}`)
process.exit(0)
