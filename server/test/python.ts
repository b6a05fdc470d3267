/** Python with the packages of a `requirements.txt`: made once, beside the npm packages. */
import { execFile } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { root } from "./e2e/program.ts"

/** What pip says where there is no network, or no registry on it. */
const unreachable =
  /NewConnectionError|NameResolutionError|Network is unreachable|ProxyError|ConnectTimeout|ReadTimeout/

/** Its program and folder, or what keeps it from being there; `offline` where that is only that PyPI can't be reached. */
export type Python = { program: string; folder: string } | { missing: string; offline: boolean }

const run = (command: string, ...args: string[]): Promise<{ ok: boolean; output: string }> =>
  new Promise(resolve =>
    execFile(command, args, (error, stdout, stderr) =>
      resolve({ ok: error === null, output: `${stdout}${stderr}${error?.message ?? ""}` }),
    ),
  )

const CHECK = "import sys, venv, ensurepip; assert sys.version_info >= (3, 11); print(sys.version)"

/** Finds Python, and installs the packages where the ones in its folder are not those that `file`, a path in the clone, names. */
export async function findPython(name: string, file: string): Promise<Python> {
  const requirements = join(root, file)
  const folder = join(root, `node_modules/.${name}-python`)
  const stamp = join(folder, "sluice-stamp")
  const version = await run("python3", "-c", CHECK)
  if (!version.ok)
    return { missing: "Python 3.11 or newer with venv is missing: apt-get install python3-venv", offline: false }
  const program = join(folder, "bin/python")
  const wanted = createHash("sha256").update(version.output).update(readFileSync(requirements)).digest("hex")
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return { program, folder }
  rmSync(folder, { recursive: true, force: true })
  // All packages are in the file, each with its hashes: nothing is resolved, and nothing is built.
  const flags = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile", "--disable-pip-version-check"]
  const install = ["install", "--quiet", "--retries=1", ...flags, "-r", requirements]
  // The system's pip, where there is one: to put another one into the folder takes four seconds of CPU.
  const bare = await run("python3", "-m", "venv", "--without-pip", folder)
  let installed = bare.ok ? await run("python3", "-m", "pip", "--python", program, ...install) : bare
  if (!installed.ok && !unreachable.test(installed.output)) {
    const made = await run("python3", "-m", "venv", folder)
    if (!made.ok) return { missing: `no venv can be made: ${made.output}`, offline: false }
    installed = await run(program, "-m", "pip", ...install)
  }
  if (!installed.ok) return { missing: `pip failed: ${installed.output}`, offline: unreachable.test(installed.output) }
  writeFileSync(stamp, wanted)
  return { program, folder }
}
