/** The whole program in a test: `script/server` in a data folder of its own, on ports of its own. */
import { type ChildProcess, spawn } from "node:child_process"
import { randomInt } from "node:crypto"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { copyTemplate, placeDatabase } from "../database.ts"

export const root = new URL("../../../", import.meta.url).pathname

/**
 * Below the ports that the system hands out for `listen(0)` and connections: one of those could be given to somebody else
 * before the program that it is for listens, or while that program is restarted. Each process of tests starts elsewhere.
 */
const PORTS = { first: 10_000, count: 20_000 }
let nextPort = randomInt(PORTS.count)

/** `fetch` refuses it ("bad port", https://fetch.spec.whatwg.org/#port-blocking); of PORTS it is the only one. */
const BLOCKED_PORT = 10_080

/** A loopback port that nothing listens on, and that no other call of this process gets. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORTS.first + (nextPort++ % PORTS.count)
    if (port !== BLOCKED_PORT && !(await isTaken(port))) return port
  }
}

/** Whether something listens on a loopback port. */
export async function isTaken(port: number): Promise<boolean> {
  return await new Promise(resolve => {
    const server = createServer()
    server.once("error", () => resolve(true)).listen(port, "127.0.0.1", () => server.close(() => resolve(false)))
  })
}

/** Waits until the condition holds; throws with `what` after `ms`, which is for what never comes, on any machine. */
export async function until(what: string, condition: () => Promise<boolean> | boolean, ms = 120_000): Promise<void> {
  for (const end = Date.now() + ms; !(await condition()); await sleep(50))
    if (Date.now() > end) throw new Error(`never: ${what}`)
}

export interface Sandbox {
  dir: string
  port: number
  rpcPort: number
  url: string
  /** Its own database where these tests run on Postgres. */
  databaseUrl: string | undefined
  /** Starts `script/server` and answers its process, at once. */
  spawn(...args: string[]): Run
  /** Starts it and waits until it is up. */
  start(...args: string[]): Promise<Run>
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  file(): any
  /** A request to the API; `body` makes it a POST. */
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  call(path: string, body?: unknown, headers?: Record<string, string>): Promise<{ status: number; body: any }>
  /** Ends what still runs and removes the folder. */
  remove(): Promise<void>
}

export interface Run {
  process: ChildProcess
  output(): string
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
  kill(signal: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }>
}

/**
 * What a program of ours needs of the test runner's environment, which has settings of its own (MODE, BASE_URL): in a whole run
 * the compiled modules and the programs of `bundle.ts`, too.
 */
export function plainEnv(): Record<string, string> {
  const { PATH = "", HOME = "", NODE_COMPILE_CACHE, TEST_BUNDLE } = process.env
  return {
    PATH,
    HOME,
    ...(NODE_COMPILE_CACHE ? { NODE_COMPILE_CACHE } : {}),
    ...(TEST_BUNDLE ? { NODE_OPTIONS: `--import=${TEST_BUNDLE}` } : {}),
  }
}

/**
 * A place for a sandbox, with nothing started. Its embedded database is `new`, which takes the first start four seconds of CPU, or
 * `migrated` as an earlier start left it. A `migrated` one is on Postgres in tests that run there.
 */
export async function newSandbox(
  env: Record<string, string> = {},
  database: "new" | "migrated" = "new",
): Promise<Sandbox> {
  const dir = mkdtempSync(join(tmpdir(), "sluice-e2e-"))
  const copy = database === "migrated" ? await copyTemplate() : undefined
  if (database === "migrated" && !copy) placeDatabase(join(dir, "data"))
  const port = await freePort()
  const rpcPort = await freePort()
  const url = `http://127.0.0.1:${port}`
  const runs: Run[] = []
  const spawnOne = (...args: string[]): Run => {
    const child = spawn(join(root, "script/server"), args, {
      env: {
        ...plainEnv(),
        DATA_DIR: join(dir, "data"),
        PORT: String(port),
        RPC_PORT: String(rpcPort),
        ...(copy ? { DATABASE_URL: copy.url } : {}),
        ...env,
      },
      stdio: ["ignore", "pipe", "pipe"],
    })
    let output = ""
    for (const stream of [child.stdout, child.stderr]) stream.on("data", chunk => (output += chunk))
    const ended = new Promise<Awaited<Run["ended"]>>(resolve =>
      child.once("exit", (code, signal) => resolve({ code, signal })),
    )
    const run: Run = {
      process: child,
      output: () => output,
      ended,
      kill: async signal => {
        child.kill(signal)
        return await ended
      },
    }
    runs.push(run)
    return run
  }
  return {
    dir: join(dir, "data"),
    port,
    rpcPort,
    url,
    databaseUrl: copy?.url,
    spawn: spawnOne,
    start: async (...args) => {
      const run = spawnOne(...args)
      let dead = false
      run.ended.then(() => (dead = true))
      await until("the sandbox is running", () => run.output().includes("Try this") || dead)
      if (dead) throw new Error(`it did not start:\n${run.output()}`)
      return run
    },
    file: () => JSON.parse(readFileSync(join(dir, "data", "sandbox.json"), "utf8")),
    call: async (path, body, headers = {}) => {
      const response = await fetch(url + path, {
        method: body === undefined ? "GET" : "POST",
        headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      return { status: response.status, body: await response.json() }
    },
    remove: async () => {
      for (const run of runs)
        if (run.process.exitCode === null && run.process.signalCode === null) await run.kill("SIGTERM")
      await copy?.drop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}
