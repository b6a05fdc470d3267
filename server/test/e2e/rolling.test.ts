// An upgrade without a stop: the program of before the newest migration and this one work on one database at once, as they do while a
// deployment replaces one process after the other. Nobody gets a 5xx or a broken connection, and every payment is found.
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import type { Hex } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Address } from "../../src/platform/chain/hex.ts"
import { readMigrations } from "../../src/platform/db/migrate.ts"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { AUDIENCE, startIssuer, type TestIssuer } from "../issuer.ts"
import { fundPayers, payAll } from "../payers.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

const CLIENTS = 2
/** Answers of each process that an upgrade is watched for. */
const ANSWERS = 40

const git = (...args: string[]) => execFileSync("git", args, { cwd: root, maxBuffer: 2 ** 28 })
/** The commit that ROLLING names, or the last one before the newest migration; undefined where the history was not cloned. */
function older(): string | undefined {
  const { ROLLING } = process.env
  if (ROLLING && ROLLING !== "1") return ROLLING
  const [newest = ""] = git("log", "-1", "--format=%H", "--", "server/src/platform/db/migrations")
    .toString()
    .trim()
    .split("\n")
  const [, parent] = git("rev-list", "--parents", "-1", newest).toString().trim().split(" ")
  return parent
}

/** Installs what the older program depends on and this one does not, or in another version; in a folder outside of its workspaces. */
function installOlder(folder: string, target: string): void {
  const { dependencies } = JSON.parse(git("show", `${older()}:server/package.json`).toString())
  const versionOf = (name: string): string | undefined => {
    const file = join(root, "node_modules", name, "package.json")
    return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).version : undefined
  }
  const others = Object.entries(dependencies).filter(([name, version]) => versionOf(name) !== version)
  if (others.length === 0) return
  mkdirSync(folder)
  writeFileSync(
    join(folder, "package.json"),
    JSON.stringify({ type: "module", dependencies: Object.fromEntries(others) }),
  )
  const args = ["install", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"]
  execFileSync("npm", args, { cwd: folder, stdio: "pipe" })
  renameSync(join(folder, "node_modules"), target)
}

interface Program {
  child: ChildProcess
  url: string
  output: () => string
  ended: Promise<unknown>
}

// By hand, before a release: ROLLING=1 npx vitest run server/test/e2e/rolling.test.ts. The older program is the last commit before the
// newest migration (ROLLING=COMMIT: that one), with whatever faults it had, so that not every change can be asked to pass this. It takes 26 to
// 32 s of CPU, the history, and the packages of that commit.
describe.runIf(process.env.ROLLING && postgresBinaries() && older())(
  "an upgrade of one process after the other",
  () => {
    const dir = mkdtempSync(join(tmpdir(), "sluice-rolling-"))
    const programs: Program[] = []
    let postgres: TestPostgres
    let anvil: Anvil
    let token: Address
    let issuer: TestIssuer
    let env: Record<string, string>

    beforeAll(async () => {
      const before = join(dir, "before")
      mkdirSync(before)
      const archive = git("archive", older() ?? "", "package.json", "server/src", "web/src")
      execFileSync("tar", ["-x", "-C", before], { input: archive })
      symlinkSync(join(root, "node_modules"), join(before, "node_modules"))
      installOlder(join(dir, "packages"), join(before, "server/node_modules"))
      ;[postgres, anvil, issuer] = await Promise.all([
        startPostgres(),
        startAnvil({ slotsInAnEpoch: 10 }),
        startIssuer(),
      ])
      token = await deployTestUsdc(anvil.client)
      await fundPayers(anvil, token)
      env = {
        ...plainEnv(),
        MODE: "test",
        LOG_LEVEL: "warn",
        // A second signal ends it.
        DRAIN: "300s",
        DATABASE_URL: postgres.url,
        SECRET_KEY: "5f".repeat(32),
        OIDC_ISSUER: issuer.issuer,
        OIDC_AUDIENCE: AUDIENCE,
        NETWORKS: "base-sepolia",
        RPC_BASE_SEPOLIA: anvil.rpcUrl,
        TOKEN_BASE_SEPOLIA: token,
        ESCROW_BASE_SEPOLIA: "off",
        DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
        VERIFY_INTERVAL: "1s",
        ...Object.fromEntries(
          ["CONSOLE", "CHECKOUT", "PAYWALL_VERIFY", "PAY_STATUS", "PUBLIC"].map(name => [`LIMIT_${name}`, "0"]),
        ),
      }
    })
    afterAll(async () => {
      for (const { child } of programs) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL")
      await Promise.all([postgres?.stop(), anvil?.stop(), issuer?.stop()])
      rmSync(dir, { recursive: true, force: true })
    })

    async function start(folder: string, role: "api" | "worker"): Promise<Program> {
      const port = `${await freePort()}`
      const child = spawn(process.execPath, [join(folder, "server/src/main.ts"), "--role", role], {
        env: { ...env, PORT: port, HEALTH_PORT: port },
      })
      let output = ""
      for (const stream of [child.stdout, child.stderr]) stream.on("data", chunk => (output += chunk))
      const program = { child, url: `http://127.0.0.1:${port}`, output: () => output, ended: once(child, "exit") }
      programs.push(program)
      await until(`a ${role} is up`, async () => {
        expect(child.exitCode, output).toBeNull()
        return await fetch(`${program.url}/readyz`).then(
          answer => answer.ok || role === "api",
          () => false,
        )
      })
      return program
    }

    it("answers every request, and finds every payment", async () => {
      const before = readdirSync(join(dir, "before/server/src/platform/db/migrations"))
      const hadBaseline = existsSync(join(dir, "before/server/src/platform/db/schema"))
      const later = readMigrations().slice(hadBaseline ? 1 : 0)
      expect(later.filter(({ name }) => !before.includes(name)).length).toBeGreaterThan(0)

      const oldApi = await start(join(dir, "before"), "api")
      const oldWorker = await start(join(dir, "before"), "worker")
      /** As a balancer does: to those that are ready, in turn. */
      let ready = [oldApi]
      const unready = new Map<Program, string>()
      const apis = [oldApi]
      const answers = new Map<Program, number>()
      const failures: string[] = []
      let turn = 0
      async function send(method: string, path: string, credential: Record<string, string>, body?: unknown) {
        const program = ready[turn++ % ready.length]
        if (!program) throw new Error(`no process is ready: ${[...unready.values()].join(" ")}`)
        const headers = { ...credential, ...(body ? { "content-type": "application/json" } : {}) }
        const request = { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) }
        const answer = await fetch(program.url + path, request).catch((error: Error) => `${error.cause}`)
        answers.set(program, (answers.get(program) ?? 0) + 1)
        const text = typeof answer === "string" ? answer : await answer.text()
        if (typeof answer === "string" || !answer.ok) failures.push(`${method} ${path}: ${text}`)
        return JSON.parse(text)
      }
      const bearer = { authorization: `Bearer ${await issuer.token("shop")}` }
      await until("the API is ready", async () => (await fetch(`${oldApi.url}/readyz`)).ok)
      await send("PUT", "/api/console/settings", bearer, { payoutAddress: anvil.accounts[2].address })
      const key = { "x-api-key": (await send("POST", "/api/console/api-keys", bearer, { name: "Server" })).key }
      const over = new AbortController()
      const balancer = (async () => {
        for (; !over.signal.aborted; await sleep(50)) {
          // One may be taken off the list meanwhile.
          const probed = [...apis]
          const asked = await Promise.all(
            probed.map(api =>
              fetch(`${api.url}/readyz`).then(
                async answer => {
                  unready.set(api, await answer.text())
                  return answer.ok
                },
                (error: Error) => {
                  unready.set(api, `${error.cause}`)
                  return false
                },
              ),
            ),
          )
          ready = probed.filter((_, i) => asked[i])
        }
      })()
      const client = async () => {
        // With a pause: the processes that start beside it need the CPU.
        for (; !over.signal.aborted && failures.length === 0; await sleep(50)) {
          const { id } = await send("POST", "/api/console/paywalls", bearer, { name: "One", price: 1 })
          await send("GET", `/api/paywalls/${id}`, {})
          await send("GET", `/api/paywalls/${id}/verify?address=${anvil.accounts[3].address}`, {})
          const session = await send("POST", "/api/checkouts", key, { amount: 1 })
          await send("GET", `/api/pay/status/${session.id}`, {})
          for (const list of ["paywalls", "transactions", "webhooks"]) await send("GET", `/api/console/${list}`, bearer)
        }
      }
      const load = Array.from({ length: CLIENTS }, client)
      const sales: { id: string; payTo: string }[] = []
      const sell = async () => {
        const sold = await Promise.all(
          Array.from({ length: 5 }, () => send("POST", "/api/checkouts", key, { amount: 5 })),
        )
        sales.push(...sold)
        await payAll(
          anvil,
          token,
          sold.map(({ payTo }) => payTo as Hex),
        )
        await anvil.client.mine({ blocks: 3 })
      }
      const answered = async (...by: Program[]) => {
        const goals = by.map(program => [program, (answers.get(program) ?? 0) + ANSWERS] as const)
        await until("enough requests are answered", () => {
          expect(failures).toEqual([])
          return goals.every(([program, goal]) => (answers.get(program) ?? 0) >= goal)
        })
      }

      await sell()
      await answered(oldApi)
      const stopOldWorker = async () => {
        oldWorker.child.kill("SIGTERM")
        expect(await oldWorker.ended).toEqual([0, null])
      }
      // Workers of before it take what is not signed yet for an altered row (docs/operators/operations.md).
      const knowsUnsigned = before.includes("0060_unsigned.sql")
      if (!knowsUnsigned) await stopOldWorker()
      // The first process of the new version migrates, and the old ones go on.
      const api = await start(root, "api")
      apis.push(api)
      await sell()
      await answered(oldApi, api)
      const worker = await start(root, "worker")
      await sell()
      if (knowsUnsigned) await stopOldWorker()
      oldApi.child.kill("SIGTERM")
      await until("the balancer leaves the old one out", () => !ready.includes(oldApi))
      await answered(api)
      oldApi.child.kill("SIGTERM")
      expect(await oldApi.ended).toEqual([0, null])
      apis.shift()
      await sell()
      for (const { id } of sales)
        await until(
          "it is confirmed",
          async () => (await send("GET", `/api/pay/status/${id}`, {})).status === "confirmed",
        )
      over.abort()
      await Promise.all([balancer, ...load])
      expect(failures).toEqual([])
      for (const { child, ended } of [api, worker]) {
        // Two signals of one name that wait together are one.
        for (const signal of ["SIGTERM", "SIGINT"] as const) child.kill(signal)
        await ended
      }
    })
  },
)
