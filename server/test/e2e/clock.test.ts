// Two workers and two API processes on one Postgres, where the clock of one machine is a day ahead: its processes do nothing that
// outlives them, and say why. What the others do is right.
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createServer, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { AUDIENCE, startIssuer, type TestIssuer } from "../issuer.ts"
import { postgresBinaries, startPostgres } from "../postgres.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

const DAY_MS = 86_400_000

let postgres: Awaited<ReturnType<typeof startPostgres>>
let anvil: Anvil
let issuer: TestIssuer
let database: pg.Pool
let env: Record<string, string>
let dir: string
/** Each request's time of signing, in milliseconds ahead of its arrival. */
const signedAheadMs: number[] = []
const receiver = createServer((request: IncomingMessage, response) => {
  request.resume()
  signedAheadMs.push(Number(request.headers["webhook-timestamp"]) * 1_000 - Date.now())
  // The endpoint is tried when it is made; its first delivery fails, so that a retry is scheduled.
  response.writeHead(signedAheadMs.length === 2 ? 500 : 200).end()
})
const processes: ChildProcess[] = []

const rows = async (text: string) => (await database.query(text)).rows
const ask = async (url: string, method = "GET") => {
  const response = await fetch(url, { method })
  return { status: response.status, text: await response.text() }
}

/** Starts a process whose clock is ahead by what the returned function was last given. */
async function start(role: "api" | "worker", aheadMs: number) {
  const port = await freePort()
  const file = join(dir, `${port}`)
  writeFileSync(file, `${aheadMs}`)
  const shift = `--import=${join(root, "server/test/shifted-date.ts")}`
  const child = spawn(process.execPath, [shift, "server/src/main.ts", "--role", role], {
    cwd: root,
    env: { ...env, [role === "api" ? "PORT" : "HEALTH_PORT"]: `${port}`, CLOCK_AHEAD_FILE: file },
    stdio: ["ignore", "pipe", "inherit"],
  })
  let log = ""
  child.stdout?.on("data", chunk => (log += chunk))
  processes.push(child)
  const url = `http://127.0.0.1:${port}`
  await until("it started", () => log.includes('"msg":"started"') || child.exitCode !== null)
  return {
    url,
    log: () => log,
    setAhead: (ms: number) => writeFileSync(file, `${ms}`),
    ready: () => ask(`${url}/readyz`),
    rounds: async () => {
      const response = await fetch(`${url}/metrics`, { headers: { authorization: "Bearer metrics" } })
      return [...(await response.text()).matchAll(/^sluice_loop_rounds_total\{.*result="done".*\} (\d+)/gm)].length
    },
    stop: () => {
      const ended = new Promise(resolve => child.once("exit", resolve))
      child.kill("SIGTERM")
      return ended
    },
  }
}

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("a machine whose clock is a day ahead, beside one that is right", () => {
  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), "sluice-clock-"))
    postgres = await startPostgres()
    database = new pg.Pool({ connectionString: postgres.url })
    // Idle connections notice when the server ends.
    database.on("error", () => {})
    anvil = await startAnvil()
    issuer = await startIssuer()
    await new Promise<void>(resolve => receiver.listen(0, "127.0.0.1", resolve))
    env = {
      ...plainEnv(),
      MODE: "test",
      DATABASE_URL: postgres.url,
      SECRET_KEY: "5f".repeat(32),
      OIDC_ISSUER: issuer.issuer,
      OIDC_AUDIENCE: AUDIENCE,
      NETWORKS: "base-sepolia",
      RPC_BASE_SEPOLIA: anvil.rpcUrl,
      TOKEN_BASE_SEPOLIA: await deployTestUsdc(anvil.client),
      DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
      METRICS_TOKEN: "metrics",
      WEBHOOK_ALLOW_CIDRS: "127.0.0.0/8",
    }
  })
  afterAll(async () => {
    for (const child of processes) child.kill("SIGKILL")
    receiver.close()
    await database?.end()
    await postgres?.stop()
    await issuer?.stop()
    await anvil?.stop()
    rmSync(dir, { recursive: true })
  })

  it("does nothing that outlives it, is not ready and says why, until its clock is right", async () => {
    // Some seconds are no fault, and what is stored has the database's time.
    const api = await start("api", 50_000)
    await until("the API is ready", async () => (await api.ready()).status === 200)
    expect((await ask(`${api.url}/api/auth/nonce`, "POST")).status).toBe(200)
    const [nonce] = await rows("select extract(epoch from expires_at - clock_timestamp())::int as s from nonces")
    expect(nonce.s).toBeGreaterThan(500)
    expect(nonce.s).toBeLessThanOrEqual(600)

    const wrong = await start("worker", DAY_MS)
    const refused = await wrong.ready()
    expect([refused.status, JSON.parse(refused.text).message]).toEqual([
      503,
      // What the newest block says follows it, while that is new: this chain makes none by itself.
      expect.stringMatching(/^Not ready: the clocks of this machine and of Postgres differ by more than a minute[.;]/),
    ])
    expect((await ask(`${wrong.url}/healthz`)).status).toBe(200)
    const lines = () => wrong.log().match(/this process runs no jobs and is not ready/g)
    await until("it says so in its log", () => lines() !== null)
    const wrongApi = await start("api", -DAY_MS)
    expect((await wrongApi.ready()).status).toBe(503)
    expect(await ask(`${wrongApi.url}/api/auth/nonce`, "POST")).toMatchObject({ status: 503 })

    // A whole life of a right worker beside it: a delivery that fails once, and its retry.
    const token = await issuer.token("shop")
    const call = async (method: string, path: string, body: unknown) => {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
      const response = await fetch(api.url + path, { method, headers, body: JSON.stringify(body) })
      // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
      const answer = (await response.json()) as any
      expect([answer, response.ok]).toEqual([answer, true])
      return answer
    }
    const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`
    const made = await call("POST", "/api/console/webhooks", { url, events: ["*"] })
    await call("POST", `/api/console/webhooks/${made.data.id}/test`, {})
    expect(await rows("select created_at <= clock_timestamp() as past from webhooks")).toEqual([{ past: true }])
    const right = await start("worker", 0)
    expect((await right.ready()).status).toBe(200)
    await until("the right worker has worked", async () => (await right.rounds()) > 5)
    const retries = () =>
      rows("select run_at < clock_timestamp() + interval '1 hour' as soon from deliveries where attempts > 0")
    await until("the first attempt failed", async () => (await retries()).length > 0)
    expect(await retries()).toEqual([{ soon: true }])
    expect(signedAheadMs.map(ms => Math.abs(ms) < 10_000)).toEqual([true, true])
    expect(await wrong.rounds()).toBe(0)
    expect(await rows("select count(*)::int as n from nonces")).toEqual([{ n: 1 }])

    // Alone, it still does nothing; then its clock is set right, and it recovers by itself.
    await right.stop()
    expect(await wrong.rounds()).toBe(0)
    expect(lines()).toHaveLength(1)
    wrong.setAhead(0)
    await until("it is ready", async () => (await wrong.ready()).status === 200)
    await until("it works", async () => (await wrong.rounds()) > 5)
    expect(await rows("select count(*)::int as n from nonces")).toEqual([{ n: 1 }])
  })
})
