/**
 * How long a start takes, and what memory the processes hold: the sandbox of `script/server` with an empty DATA_DIR and
 * again, and an API process as a package, idle and a minute after load. `script/bench start [sandbox|api]`. Linux only.
 * Memory is the resident set of a process and of all that it started, which is their PSS and a little more: PSS itself
 * would divide the pages of the program `node` by all processes of the machine that run it.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { Agent } from "undici"
import { pack } from "../ops/pack.ts"
import { deployDepositFactory, deployTestUsdc, placeSharedContracts, startAnvil } from "../server/test/anvil.ts"
import { freePort, newSandbox, root, until } from "../server/test/e2e/program.ts"
import { AUDIENCE, startIssuer } from "../server/test/issuer.ts"
import { startPostgres } from "../server/test/postgres.ts"

const RUNS = 3
/** How long a process is left alone before its memory is read. */
const IDLE_MS = 15_000
const LOAD_MS = 30_000
const AFTER_LOAD_MS = 60_000
const CONNECTIONS = 32
const PAYOUT_ADDRESS = `0x${"ab".repeat(20)}`

const say = (text: string) => process.stdout.write(`${text}\n`)
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))

interface Held {
  name: string
  mb: number
}

/** The memory of a process and of all that it has started, in MB. */
function heldBy(pid: number): Held[] {
  const stats = readdirSync("/proc").flatMap(id => {
    const stat = /^\d+$/.test(id) ? readIfThere(`/proc/${id}/stat`) : undefined
    const [, name = "", parent] = /^\d+ \((.*)\) \w (\d+)/s.exec(stat ?? "") ?? []
    return parent === undefined ? [] : [{ id: Number(id), name, parent: Number(parent) }]
  })
  const family = stats.filter(({ id }) => id === pid)
  for (const { id } of family) family.push(...stats.filter(({ parent }) => parent === id))
  return family.map(({ id, name }) => {
    const [, kb = "0"] = /^VmRSS:\s+(\d+)/m.exec(readIfThere(`/proc/${id}/status`) ?? "") ?? []
    return { name, mb: Number(kb) / 1_024 }
  })
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8")
  } catch {
    // The process ended meanwhile.
    return undefined
  }
}

const total = (held: readonly Held[]) => held.reduce((sum, { mb }) => sum + mb, 0)
const shown = (held: readonly Held[]) =>
  `${total(held).toFixed(0)} MB (${held.map(({ name, mb }) => `${name} ${mb.toFixed(0)}`).join(", ")})`

/** Milliseconds until a URL answers 200. */
async function msUntilWell(url: string, startedAt: number): Promise<number> {
  for (;;) {
    const isWell = await fetch(url).then(
      ({ ok }) => ok,
      () => false,
    )
    if (isWell) return performance.now() - startedAt
    await sleep(10)
  }
}

async function measureSandbox(): Promise<void> {
  for (let run = 0; run < RUNS; run++) {
    const sandbox = await newSandbox()
    for (const which of ["fresh", "again"]) {
      const startedAt = performance.now()
      const { process, kill, output } = sandbox.spawn()
      const healthyMs = await msUntilWell(`${sandbox.url}/healthz`, startedAt)
      await until("the sandbox says what to try", () => output().includes("Try this"))
      const announcedMs = performance.now() - startedAt
      await sleep(IDLE_MS)
      const held = heldBy(process.pid ?? 0)
      const seconds = (ms: number) => `${(ms / 1_000).toFixed(2)} s`
      say(
        `sandbox, ${which}: /healthz after ${seconds(healthyMs)}, announced after ${seconds(announcedMs)}, ${shown(held)}`,
      )
      await kill("SIGTERM")
    }
    await sandbox.remove()
  }
}

/** A network with a token and a factory, on a chain of its own. */
async function openNetwork(): Promise<{ settings: Record<string, string>; stop: () => Promise<void> }> {
  const anvil = await startAnvil({ slotsInAnEpoch: 10 })
  await placeSharedContracts(anvil.client)
  const token = await deployTestUsdc(anvil.client)
  const factory = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
  const settings = {
    RPC_BASE_SEPOLIA: anvil.rpcUrl,
    TOKEN_BASE_SEPOLIA: token,
    DEPOSIT_FACTORY_BASE_SEPOLIA: factory,
    PAYOUT_WALLET: anvil.accounts[1].address,
  }
  return { settings, stop: anvil.stop }
}

async function measureApi(): Promise<void> {
  const scratch = mkdtempSync(join(tmpdir(), "sluice-start-"))
  process.once("exit", () => rmSync(scratch, { recursive: true, force: true }))
  await pack(scratch)
  const app = join(scratch, "package")
  symlinkSync(join(root, "node_modules"), join(app, "node_modules"))
  const [postgres, issuer, network] = await Promise.all([startPostgres({ fsync: true }), startIssuer(), openNetwork()])
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const env = {
    ...network.settings,
    PATH: process.env.PATH ?? "",
    NODE_ENV: "production",
    MODE: "test",
    LOG_LEVEL: "warn",
    PORT: `${port}`,
    DATA_DIR: join(scratch, "data"),
    DATABASE_URL: postgres.url,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    ...Object.fromEntries(["CHECKOUT", "CONSOLE", "MERCHANT", "PAY_STATUS", "PUBLIC"].map(of => [`LIMIT_${of}`, "0"])),
  }
  mkdirSync(env.DATA_DIR)
  const start = (): ChildProcess => {
    const child = spawn(process.execPath, [join(app, "bin/sluice.js"), "start", "--role", "api"], {
      cwd: app,
      env,
      stdio: ["ignore", 2, 2],
    })
    process.once("exit", () => child.kill("SIGKILL"))
    return child
  }
  let child = start()
  const stopped = async () => {
    const ended = new Promise(resolve => child.once("exit", resolve))
    child.kill("SIGTERM")
    await ended
  }
  // The first start makes the tables.
  await msUntilWell(`${url}/readyz`, 0)
  await stopped()
  const startedAt = performance.now()
  child = start()
  const healthyMs = await msUntilWell(`${url}/healthz`, startedAt)
  say(`API as a package: /healthz after ${(healthyMs / 1_000).toFixed(2)} s`)
  await sleep(IDLE_MS)
  say(`  idle ${shown(heldBy(child.pid ?? 0))}`)
  const requests = await load(url, await issuer.token("shop"))
  say(`  after ${requests} requests ${shown(heldBy(child.pid ?? 0))}`)
  await sleep(AFTER_LOAD_MS)
  say(`  a minute later ${shown(heldBy(child.pid ?? 0))}`)
  await stopped()
  for (const part of [issuer, network, postgres]) await part.stop()
}

/** Checkouts, their status and lists of them, on many connections; returns how many requests were answered. */
async function load(url: string, token: string): Promise<number> {
  const agent = new Agent({ connections: CONNECTIONS })
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
  const ask = async (method: "GET" | "POST" | "PUT", path: string, body?: unknown): Promise<string> => {
    const { statusCode, body: answer } = await agent.request({
      origin: url,
      path,
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await answer.text()
    if (statusCode >= 300) throw new Error(`${method} ${path}: ${statusCode} ${text}`)
    return text
  }
  await ask("PUT", "/api/console/settings", { payoutAddress: PAYOUT_ADDRESS })
  const until = performance.now() + LOAD_MS
  let requests = 0
  const caller = async () => {
    while (performance.now() < until) {
      const { id } = JSON.parse(await ask("POST", "/api/console/checkouts", { amount: 5, metadata: { order: "1" } }))
      for (let i = 0; i < 5; i++) await ask("GET", `/api/pay/status/${id}`)
      await ask("GET", "/api/console/checkouts?limit=20")
      requests += 7
    }
  }
  await Promise.all(Array.from({ length: CONNECTIONS }, caller))
  await agent.close()
  return requests
}

const only = process.argv[2]
if (only !== "api") await measureSandbox()
if (only !== "sandbox") await measureApi()
process.exit(0)
