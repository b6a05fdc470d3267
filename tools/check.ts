/**
 * `npm run check`: style, types, unused code, and whether what is generated is up to date. The steps need one core each, so two run at a
 * time, the longest first. Prints what the failed ones wrote, and ends with 1 where one failed.
 */
import { spawn } from "node:child_process"

const AT_ONCE = 2

/** The packages of the console, which its types and the search for unused code read. */
const first = "node web/src/console/build.ts"
const types = (folder: string) => `tsc -p ${folder} --checkers 1`
const steps = [
  types("."),
  types("web"),
  types("sdk"),
  "biome ci .",
  "npm run abi:check -w contracts",
  "knip",
  types("cli"),
  types("web/src/console"),
  "npm run docs:check",
  types("verify"),
  "npm run schema:check",
  "npm run types:check",
  // The second measures what the first makes.
  "npm run --silent build -w web && npm run --silent pages:size -w server",
]

let failed = false

/** Runs a command, whose programs are those of the npm packages. */
async function run(command: string): Promise<void> {
  const child = spawn(command, { shell: true, stdio: ["ignore", "pipe", "pipe"] })
  let output = ""
  for (const stream of [child.stdout, child.stderr]) stream.on("data", data => (output += data))
  const code = await new Promise(resolve => child.once("close", resolve))
  process.stdout.write(`${code === 0 ? "ok    " : "FAILED"} ${command}\n`)
  if (code === 0) return
  failed = true
  process.stdout.write(`${output}\n`)
}

async function runSome(): Promise<void> {
  for (let next = steps.shift(); next !== undefined; next = steps.shift()) await run(next)
}

await run(first)
await Promise.all(Array.from({ length: AT_ONCE }, runSome))
process.exitCode = failed ? 1 : 0
