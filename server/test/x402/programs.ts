/** The programs of `docs/developers/x402-clients.md`, run as they stand there. */
import { type ChildProcess, execFile, spawn } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { freePort, isTaken, plainEnv, root, until } from "../e2e/program.ts"

/** What a program gives up after, in milliseconds; far more than one takes on a busy machine. */
const PATIENCE_MS = 180_000

export interface Programs {
  /** Their names in the guide. */
  names: string[]
  /** Runs one to its end; returns what it printed, by lines. Throws with its errors when it fails. */
  run(name: string, env: Record<string, string>): Promise<string[]>
  /** Starts a server, and waits until it listens; returns its address. It ends with `stop`. */
  serve(name: string, env: Record<string, string>): Promise<string>
  stop(): Promise<void>
}

/** Reads the guide. The programs lie beside the npm packages, where Node finds these; `python` runs those that are in it. */
export function openPrograms(python: () => string): Programs {
  const guide = readFileSync(join(root, "docs/developers/x402-clients.md"), "utf8")
  const blocks = [...guide.matchAll(/^```(?:js|python) (\S+)\n([\s\S]*?)^```$/gm)]
  const texts = new Map(blocks.map(([, name = "", text = ""]) => [name, text]))
  const folder = mkdtempSync(join(root, "node_modules/.x402-programs-"))
  for (const [name, text] of texts) writeFileSync(join(folder, name), text)
  const servers: ChildProcess[] = []
  // Not the test's own environment: a proxy of the machine is not for addresses on it.
  const options = (env: Record<string, string>) => ({ cwd: folder, env: { ...plainEnv(), ...env } })
  const commandOf = (name: string): string => {
    if (!texts.has(name)) throw new Error(`docs/developers/x402-clients.md has no ${name}`)
    return name.endsWith(".mjs") ? process.execPath : python()
  }
  return {
    names: [...texts.keys()],
    run: async (name, env) => {
      const { stdout } = await promisify(execFile)(commandOf(name), [name], { ...options(env), timeout: PATIENCE_MS })
      return stdout.trim().split("\n")
    },
    serve: async (name, env) => {
      const port = await freePort()
      const child = spawn(commandOf(name), [name], {
        ...options({ ...env, PORT: `${port}` }),
        stdio: ["ignore", "ignore", "pipe"],
      })
      servers.push(child)
      let errors = ""
      child.stderr?.on("data", chunk => (errors += chunk))
      await until(`${name} listens`, async () => child.exitCode !== null || (await isTaken(port)), PATIENCE_MS)
      if (child.exitCode !== null) throw new Error(`${name} ended: ${errors}`)
      return `http://127.0.0.1:${port}`
    },
    stop: async () => {
      for (const child of servers) if (child.exitCode === null && child.signalCode === null) await ended(child)
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

async function ended(child: ChildProcess): Promise<void> {
  const exit = new Promise(resolve => child.once("exit", resolve))
  child.kill("SIGKILL")
  await exit
}
