/** The command line as a process, for tests: what it prints, and how it ends. */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { expect } from "vitest"
import { bundleCli } from "../../ops/pack-cli.ts"
import type { Sandbox } from "../../server/test/e2e/program.ts"

export interface Ended {
  code: number
  out: string
  errors: string
}
export interface Started {
  child: ChildProcess
  /** What it has printed so far. */
  seen: { out: string; errors: string }
  ended: Promise<Ended>
}

/** The command line at one sandbox, with an API key of its shop. */
export interface Cli {
  apiKey: string
  env: Record<string, string>
  /** With `inTerminal` all that it prints is in `out`, as a terminal gets it. */
  start(args: string[], env?: Record<string, string>, inTerminal?: boolean): Started
  run(args: string[], env?: Record<string, string>): Promise<Ended>
  /** What a command prints with `--json`, which must succeed and be one line. */
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  json(...args: string[]): Promise<any>
}

let bundled: Promise<string> | undefined

/**
 * The program, as it is packed: it starts in a sixth of the time that the sources take, and tests start it a hundred times. It is
 * bundled once by each process of tests.
 */
export const programFile = async (): Promise<string> => (bundled ??= bundle())

async function bundle(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "sluice-cli-"))
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }')
  await bundleCli(folder)
  return join(folder, "sluice.js")
}

/** Makes a key with these scopes at a sandbox that runs. */
export async function openCli(
  sandbox: Sandbox,
  scopes: readonly string[] = ["read", "checkouts", "catalog", "webhooks"],
): Promise<Cli> {
  const file = await programFile()
  const { accessToken } = sandbox.file().merchants[0]
  const made = await sandbox.call(
    "/api/console/api-keys",
    { name: "cli", scopes },
    { authorization: `Bearer ${accessToken}` },
  )
  const apiKey = made.body.key as string
  const own = { SLUICE_API_KEY: apiKey, SLUICE_URL: sandbox.url }
  const start: Cli["start"] = (args, env = own, inTerminal = false) => {
    const { PATH = "" } = process.env
    const terminal = ["python3", "-c", "import pty, sys; pty.spawn(sys.argv[1:])"]
    const [program = "", ...given] = [...(inTerminal ? terminal : []), process.execPath, file, ...args]
    const child = spawn(program, given, {
      env: { PATH, HOME: sandbox.dir, SLUICE_CONFIG: join(sandbox.dir, "none.json"), TERM: "xterm", ...env },
      stdio: [args[0] === "mcp" ? "pipe" : "ignore", "pipe", "pipe"],
    })
    const seen = { out: "", errors: "" }
    child.stdout?.on("data", chunk => (seen.out += chunk))
    child.stderr?.on("data", chunk => (seen.errors += chunk))
    return { child, seen, ended: once(child, "close").then(([code]) => ({ code, ...seen })) }
  }
  const run: Cli["run"] = async (args, env) => await start(args, env).ended
  return {
    apiKey,
    env: own,
    start,
    run,
    json: async (...args) => {
      const { code, out, errors } = await run([...args, "--json"])
      expect([code, errors]).toEqual([0, ""])
      expect(out.trimEnd().split("\n")).toHaveLength(1)
      return JSON.parse(out)
    },
  }
}
