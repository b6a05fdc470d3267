// An installation of several processes: an API and workers on one Postgres, a real chain behind a proxy that counts, and a
// worker that is killed in the middle of hundreds of payments.
import { type ChildProcess, spawn } from "node:child_process"
import pg from "pg"
import type { Hex } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { AUDIENCE, startIssuer, type TestIssuer } from "../issuer.ts"
import { fundPayers, payAll } from "../payers.ts"
import { postgresBinaries, startPostgres } from "../postgres.ts"
import { type RpcProxy, startProxy } from "../proxy.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

/** Enough for the worker to die among them; `script/bench load` drives thousands. */
const PAYMENTS = 300
/** Checkouts of the same merchant beside them, each with a callback. */
const CHECKOUTS = 50
const PAYOUT_ADDRESS = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"

let postgres: Awaited<ReturnType<typeof startPostgres>>
let anvil: Anvil
let token: Awaited<ReturnType<typeof deployTestUsdc>>
let proxy: RpcProxy
let issuer: TestIssuer
let database: pg.Pool
let env: Record<string, string>
const processes: ChildProcess[] = []

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("an API and workers on one Postgres", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
    database = new pg.Pool({ connectionString: postgres.url })
    // Idle connections notice when the server ends.
    database.on("error", () => {})
    anvil = await startAnvil({ slotsInAnEpoch: 10 })
    token = await deployTestUsdc(anvil.client)
    await fundPayers(anvil, token)
    proxy = await startProxy(anvil.rpcUrl)
    issuer = await startIssuer()
    env = {
      ...plainEnv(),
      MODE: "test",
      LOG_LEVEL: "warn",
      DATABASE_URL: postgres.url,
      SECRET_KEY: "5f".repeat(32),
      OIDC_ISSUER: issuer.issuer,
      OIDC_AUDIENCE: AUDIENCE,
      NETWORKS: "base-sepolia",
      RPC_BASE_SEPOLIA: proxy.url,
      TOKEN_BASE_SEPOLIA: token,
      DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
      VERIFY_INTERVAL: "1s",
      WEBHOOK_ALLOW_CIDRS: "127.0.0.0/8",
      ...Object.fromEntries(
        ["CONSOLE", "CHECKOUT", "PAYWALL_PAY", "PAYWALL_VERIFY", "PUBLIC"].map(name => [`LIMIT_${name}`, "0"]),
      ),
    }
  })
  afterAll(async () => {
    for (const child of processes) await kill(child, "SIGKILL")
    await database?.end()
    await postgres?.stop()
    await issuer?.stop()
    await proxy?.stop()
    await anvil?.stop()
  })

  it("grants each of 300 payments once, though the worker dies among them", async () => {
    const port = await freePort()
    const metricsPort = await freePort()
    start("api", { PORT: `${port}`, METRICS_PORT: `${metricsPort}` })
    const url = `http://127.0.0.1:${port}`
    await until("the API answers", () => answers(`${url}/.well-known/jwks.json`))
    const call = callerWith(url, { authorization: `Bearer ${await issuer.token("shop")}` })
    await call("PUT", "/api/console/settings", { payoutAddress: PAYOUT_ADDRESS })
    const shops = await eachOf(Array(PAYMENTS).fill(0), async (_, i) => {
      const { id } = await call("POST", "/api/console/paywalls", { name: `${i}`, price: 5 })
      return { id, payTo: (await call("GET", `/api/paywalls/${id}`)).payTo as Hex }
    })
    const { key } = await call("POST", "/api/console/api-keys", { name: "Server" })
    const callWithKey = callerWith(url, { "x-api-key": key })
    const sessions = await eachOf(Array(CHECKOUTS).fill(0), async () => {
      const body = { amount: 5, callbackUrl: `${proxy.url}/callback` }
      return (await callWithKey("POST", "/api/checkouts", body)) as { payTo: string }
    })
    const payTos = [...shops, ...sessions].map(({ payTo }) => payTo)
    const paid: Awaited<ReturnType<typeof payAll>> = []
    for (let i = 0; i < payTos.length; i += 100) paid.push(...(await payAll(anvil, token, payTos.slice(i, i + 100))))
    const sales = shops.map((shop, i) => ({ ...shop, ...(paid[i] as (typeof paid)[0]) }))
    await eachOf(sales, ({ id, txHash, from }) => call("POST", `/api/paywalls/${id}/pay`, { txHash, address: from }))
    await anvil.client.mine({ blocks: 3 })
    proxy.calls.clear()

    const grants = async () => (await database.query("select count(*)::int as n from grants")).rows[0].n as number
    const first = start("worker")
    await until("the first worker holds the network", async () => {
      const { rows } = await database.query("select claim_id from cursors where claim_id is not null")
      return rows.length > 0
    })
    const second = start("worker")
    await until("it grants", async () => (await grants()) > 0)
    await kill(first, "SIGKILL")
    const granted = await grants()
    expect(granted).toBeLessThan(PAYMENTS)
    // The dead one's lease runs out: by the database's clock, which is not waited for here.
    await database.query("update cursors set lease_until = clock_timestamp() - interval '1 second'")
    start("worker")
    await until("all are granted", async () => (await grants()) === PAYMENTS)
    const confirmed = "select count(*)::int as n from checkout_sessions where status = 'confirmed'"
    const sessionsPaid = async () => (await database.query(confirmed)).rows[0].n
    await until("all checkouts are confirmed", async () => (await sessionsPaid()) === CHECKOUTS)
    expect(second.exitCode).toBeNull()

    const rows = async (text: string) => (await database.query(text)).rows
    expect(await rows("select count(*)::int as n from payments where status = 'granted'")).toEqual([
      { n: payTos.length },
    ])
    expect(await rows("select count(*)::int as n, count(distinct payment_id)::int as p from claims")).toEqual([
      { n: payTos.length, p: payTos.length },
    ])
    expect(await rows("select paywall_id, address from grants group by 1, 2 having count(*) > 1")).toEqual([])
    for (const { id, from, txHash } of [sales[0], sales[PAYMENTS / 2], sales.at(-1)].map(
      sale => sale as (typeof sales)[0],
    ))
      expect(await call("GET", `/api/paywalls/${id}/verify?address=${from}`)).toMatchObject({ hasAccess: true, txHash })
    // The dead worker's round is looked up once more; still far from 1.5 calls a payment. The calls of each round beside are
    // not counted: a busy machine needs more rounds.
    const lookedUp = proxy.calls.get("eth_getTransactionReceipt") ?? 0
    expect(lookedUp, JSON.stringify([...proxy.calls])).toBeLessThan(1.5 * PAYMENTS)

    const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text()
    expect(metrics).toMatch(/http.*route="\/api\/paywalls\/:id\/pay"/)
    expect((await fetch(`${url}/metrics`)).status).toBe(404)
    for (const child of processes.filter(child => child !== first)) expect(await kill(child, "SIGTERM")).toBe(0)
    // A connection's counts are written at its end.
    expect(await rows("select deadlocks::int as n from pg_stat_database where datname = current_database()")).toEqual([
      { n: 0 },
    ])
  })

  it("answers probes in each role, reports a dead issuer, and drains before it stops", async () => {
    const port = await freePort()
    const healthPort = await freePort()
    const worker = start("worker", { HEALTH_PORT: `${healthPort}`, METRICS_TOKEN: "metrics" })
    const api = start("api", { PORT: `${port}`, DRAIN: "300s", OIDC_ISSUER: "http://127.0.0.1:1" })
    const ask = async (at: number, path: string, headers: Record<string, string> = {}) => {
      const response = await fetch(`http://127.0.0.1:${at}${path}`, { headers })
      return { status: response.status, text: await response.text(), connection: response.headers.get("connection") }
    }
    await until("the worker is ready", () => answers(`http://127.0.0.1:${healthPort}/readyz`))
    expect((await ask(healthPort, "/healthz")).status).toBe(200)
    expect((await ask(healthPort, "/metrics")).status).toBe(401)
    const metrics = await ask(healthPort, "/metrics", { authorization: "Bearer metrics" })
    expect(metrics.text).toContain("sluice_")
    expect((await ask(healthPort, "/api/paywalls/pw_x")).status).toBe(404)

    await until("the API is ready", () => answers(`http://127.0.0.1:${port}/readyz`))
    const words = "the identity provider http://127.0.0.1:1 can't be used"
    await until("the alarm names the issuer", async () => (await ask(port, "/readyz")).text.includes(words))
    api.kill("SIGTERM")
    await until("it says that it stops", async () =>
      (await ask(port, "/readyz")).text.includes("the process is stopping"),
    )
    const served = await ask(port, "/.well-known/jwks.json")
    expect([served.status, served.connection]).toEqual([200, "close"])
    expect(await kill(api, "SIGTERM")).toBe(0)
    expect(await kill(worker, "SIGTERM")).toBe(0)
  })

  it("answers probes while Postgres is down at its start, and starts when Postgres does", async () => {
    await postgres.kill()
    const ports = [await freePort(), await freePort()]
    const started = [start("api", { PORT: `${ports[0]}` }), start("worker", { HEALTH_PORT: `${ports[1]}` })]
    for (const port of ports) {
      await until("it answers", () => answers(`http://127.0.0.1:${port}/healthz`))
      const { message } = (await (await fetch(`http://127.0.0.1:${port}/readyz`)).json()) as { message: string }
      expect(message).toBe("Not ready: the database can't be reached yet.")
    }
    await postgres.start()
    for (const port of ports) await until("it is ready", () => answers(`http://127.0.0.1:${port}/readyz`))
    for (const child of started) expect(await kill(child, "SIGTERM")).toBe(0)
  })
})

function start(role: string, more: Record<string, string> = {}): ChildProcess {
  const child = spawn(process.execPath, ["server/src/main.ts", "--role", role], {
    cwd: root,
    env: { ...env, ...more },
    stdio: ["ignore", "inherit", "inherit"],
  })
  processes.push(child)
  return child
}

async function kill(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode
  const ended = new Promise<number | null>(resolve => child.once("exit", resolve))
  child.kill(signal)
  return await ended
}

const answers = (url: string): Promise<boolean> =>
  fetch(url).then(
    response => response.ok,
    () => false,
  )

/** Requests with a credential; throws at any answer but a 2xx. */
const callerWith =
  (url: string, credential: Record<string, string>) => async (method: string, path: string, body?: unknown) => {
    const headers = { ...credential, "content-type": "application/json" }
    const response = await fetch(url + path, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) })
    // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
    const answer = (await response.json()) as any
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`)
    return answer
  }

/** Works on all in order, ten at a time. */
async function eachOf<T, R>(items: readonly T[], work: (item: T, i: number) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  for (let start = 0; start < items.length; start += 10)
    results.push(...(await Promise.all(items.slice(start, start + 10).map((item, i) => work(item, start + i)))))
  return results
}
