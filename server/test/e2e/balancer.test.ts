// Two API processes behind a load balancer that asks `/readyz`: whatever is gone besides the database, what a process can serve
// stays within reach, and the alarm says what is missing.
import { type ChildProcess, spawn } from "node:child_process"
import pg from "pg"
import type { Hex } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { type Balancer, startBalancer } from "../balancer.ts"
import { AUDIENCE, startIssuer, type TestIssuer } from "../issuer.ts"
import { fundPayers, payAll } from "../payers.ts"
import { postgresBinaries, startPostgres } from "../postgres.ts"
import { type RpcProxy, startProxy } from "../proxy.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

let postgres: Awaited<ReturnType<typeof startPostgres>>
let database: pg.Pool
let anvil: Anvil
let proxy: RpcProxy
let issuer: TestIssuer
let balancer: Balancer
let env: Record<string, string>
const processes: ChildProcess[] = []
const apis: { url: string; child: ChildProcess }[] = []
/** What callers ask for. Each answers 200 while the processes can serve it. */
let paths: string[]

/** Starts a process of a role on a free port, or on that of an earlier one. */
async function start(role: "api" | "worker", at?: string): Promise<{ url: string; child: ChildProcess }> {
  const port = at === undefined ? `${await freePort()}` : new URL(at).port
  const child = spawn(process.execPath, ["server/src/main.ts", "--role", role], {
    cwd: root,
    env: { ...env, ...(role === "api" ? { PORT: port } : { HEALTH_PORT: port }) },
    stdio: ["ignore", "inherit", "inherit"],
  })
  processes.push(child)
  return { url: `http://127.0.0.1:${port}`, child }
}

async function kill(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = new Promise(resolve => child.once("exit", resolve))
  child.kill(signal)
  await ended
}

const get = async (url: string) => {
  const response = await fetch(url).catch(() => undefined)
  return { status: response?.status, text: (await response?.text()) ?? "" }
}
const readyz = (at: string) => get(`${at}/readyz`)
const statusesBehindBalancer = () =>
  Promise.all(
    Array.from({ length: 10 }, () => paths).flatMap(all =>
      all.map(async path => (await get(balancer.url + path)).status),
    ),
  )
const allServed = () => Array(10 * paths.length).fill(200)
/** Lets the scan's last round be ten minutes ago: how long none ends is not waited for here. */
const age = () => database.query("update cursors set looked_at = looked_at - interval '10 minutes'")
const isFresh = async () =>
  (await database.query("select from cursors where looked_at > now() - interval '5 seconds'")).rows.length > 0
const metricOf = async (at: string) => {
  const response = await fetch(`${at}/metrics`, { headers: { authorization: "Bearer metrics" } })
  return /sluice_scan_stopped\{network="base-sepolia"\} (\d)/.exec(await response.text())?.[1]
}

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("behind a balancer", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
    database = new pg.Pool({ connectionString: postgres.url })
    database.on("error", () => {})
    anvil = await startAnvil({ slotsInAnEpoch: 10 })
    const token = await deployTestUsdc(anvil.client)
    await fundPayers(anvil, token)
    proxy = await startProxy(anvil.rpcUrl)
    issuer = await startIssuer()
    env = {
      ...plainEnv(),
      MODE: "test",
      LOG_LEVEL: "fatal",
      DATABASE_URL: postgres.url,
      SECRET_KEY: "5f".repeat(32),
      OIDC_ISSUER: issuer.issuer,
      OIDC_AUDIENCE: AUDIENCE,
      NETWORKS: "base-sepolia",
      RPC_BASE_SEPOLIA: proxy.url,
      TOKEN_BASE_SEPOLIA: token,
      DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
      VERIFY_INTERVAL: "1s",
      METRICS_TOKEN: "metrics",
      DRAIN: "300s",
      ...Object.fromEntries(
        ["CONSOLE", "CHECKOUT", "PAGES", "PAYWALL_PAY", "PAY_STATUS", "PAYWALL_VERIFY", "PUBLIC"].map(name => [
          `LIMIT_${name}`,
          "0",
        ]),
      ),
    }
    apis.push(await start("api"), await start("api"))
    balancer = await startBalancer(apis.map(({ url }) => url))
    await until("both are ready, before any worker runs", () => balancer.ready().length === 2)
    const worker = await start("worker")
    const call = async (method: string, path: string, body: unknown, headers: Record<string, string>) => {
      const sent = { method, headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) }
      const response = await fetch(balancer.url + path, sent)
      // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
      const answer = (await response.json()) as any
      if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`)
      return answer
    }
    const merchant = { authorization: `Bearer ${await issuer.token("shop")}` }
    await call("PUT", "/api/console/settings", { payoutAddress: anvil.accounts[2].address }, merchant)
    const paywall = await call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, merchant)
    const { key } = await call("POST", "/api/console/api-keys", { name: "Server" }, merchant)
    const checkout = await call("POST", "/api/checkouts", { amount: 5 }, { "x-api-key": key })
    const { payTo } = JSON.parse((await get(`${balancer.url}/api/paywalls/${paywall.id}`)).text) as { payTo: Hex }
    const [paid] = await payAll(anvil, token, [payTo])
    const verify = `/api/paywalls/${paywall.id}/verify?address=${paid?.from}`
    await anvil.client.mine({ blocks: 5 })
    await call("POST", `/api/paywalls/${paywall.id}/pay`, { txHash: paid?.txHash, address: paid?.from }, {})
    await until("the worker grants access", async () =>
      (await get(balancer.url + verify)).text.includes('"hasAccess":true'),
    )
    await kill(worker.child, "SIGTERM")
    paths = [verify, `/api/pay/status/${checkout.id}`, `/pay/${checkout.id}`, `/paywall/${paywall.id}`]
  })
  afterAll(async () => {
    await balancer?.stop()
    for (const child of processes) await kill(child, "SIGKILL")
    await database?.end()
    await postgres?.stop()
    await issuer?.stop()
    await proxy?.stop()
    await anvil?.stop()
  })

  it("status, access and pages are served while no worker runs, which is an alarm of each process", async () => {
    await age()
    await database.query("update cursors set run_at = run_at - interval '10 minutes'")
    for (const { url } of apis) {
      await until("the alarm says so", async () => (await readyz(url)).text.includes("no worker starts a round"))
      expect((await readyz(url)).status).toBe(200)
      expect(await metricOf(url)).toBe("1")
    }
    expect(balancer.ready()).toHaveLength(2)
    expect(await statusesBehindBalancer()).toEqual(allServed())
  })

  it("and while no endpoint answers, which makes no worker unready either", async () => {
    const worker = await start("worker")
    await until("the worker scans", isFresh)
    proxy.broken = "reset"
    await age()
    for (const { url } of [worker, ...apis]) {
      await until("the alarm says so", async () => (await readyz(url)).text.includes("rounds start, but none ends"))
      expect((await readyz(url)).status).toBe(200)
    }
    expect(balancer.ready()).toHaveLength(2)
    expect(await statusesBehindBalancer()).toEqual(allServed())
    // Also by a process that is replaced meanwhile: with what the last start found of the network.
    const [, second] = apis
    if (!second) throw new Error("no second process")
    await kill(second.child, "SIGKILL")
    await until("it is taken away", () => balancer.ready().length === 1)
    apis[1] = await start("api", second.url)
    await until("it is back", () => balancer.ready().length === 2)
    expect(await statusesBehindBalancer()).toEqual(allServed())
    proxy.broken = undefined
    await until("it scans again", isFresh)
    for (const { url } of [worker, ...apis]) {
      await until("the alarm ends", async () => !(await readyz(url)).text.includes("has not been scanned"))
      await until("the metric says so", async () => (await metricOf(url)) === "0")
    }
    await kill(worker.child, "SIGTERM")
  })

  it("a process that drains, or whose database is gone, gets no requests", async () => {
    const [first, second] = apis.map(({ url }) => url)
    apis[0]?.child.kill("SIGTERM")
    await until("it is taken away", () => !balancer.ready().includes(`${first}`))
    expect(balancer.ready()).toEqual([second])
    expect(await statusesBehindBalancer()).toEqual(allServed())
    postgres.pause()
    try {
      await until("none is left", () => balancer.ready().length === 0)
      expect(await readyz(`${second}`)).toMatchObject({ status: 503 })
    } finally {
      postgres.resume()
    }
    await until("it is back", () => balancer.ready().length === 1)
    expect(await statusesBehindBalancer()).toEqual(allServed())
  })
})
