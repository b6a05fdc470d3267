/**
 * What `script/test` runs: the checks and, beside them, all tests, each on the database that `engines.ts` says. Those that need
 * Redis start their own. Ends with the failures and one plain line of counts.
 */
import { spawn } from "node:child_process"
import { existsSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { bundlePrograms } from "./bundle.ts"
import { longest } from "./longest.ts"
import { postgresBinaries, startPostgres } from "./postgres.ts"
import { redisBinary } from "./redis.ts"
import { makeScratch } from "./scratch.ts"

interface Report {
  numPassedTests: number
  numFailedTests: number
  numPendingTests: number
  numFailedTestSuites: number
  success: boolean
  testResults: {
    name: string
    status: string
    message: string
    startTime: number
    endTime: number
    assertionResults: { fullName: string; status: string; failureMessages: string[] }[]
  }[]
}

/** A file that takes longer should be among `longest`. */
const LONG_MS = 12_000

const counts = { passed: 0, failed: 0, skipped: 0 }
const failures: string[] = []
const scratch = makeScratch()
process.env.TMPDIR = scratch
const compiled = join(scratch, "compiled")
const say = (text: string) => process.stdout.write(`${text}\n`)

// A database of the caller's own must not be what the tests run on.
const { DATABASE_URL: _, ...environment } = process.env
// Hundreds of processes load the same modules: compiled once, they take 0.25 s of CPU less in each.
const env = { ...environment, NODE_COMPILE_CACHE: compiled }

/** Runs a command, and answers whether it ended well and what it wrote. */
async function run(command: string[], stdio: "inherit" | "pipe", more: Record<string, string> = {}) {
  const [file = "", ...args] = command
  const child = spawn(file, args, { stdio: ["ignore", stdio, stdio], env: { ...env, ...more } })
  let output = ""
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", data => (output += data))
  const code = await new Promise(resolve => child.once("close", resolve))
  return { ok: code === 0, output }
}

async function tests(more: Record<string, string>): Promise<void> {
  const file = join(scratch, "report.json")
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`]
  const { ok } = await run(["npx", "vitest", "run", ...reporters], "inherit", more)
  if (!existsSync(file)) {
    counts.failed++
    failures.push("vitest ended without a report")
    return
  }
  const report = JSON.parse(readFileSync(file, "utf8")) as Report
  counts.passed += report.numPassedTests
  counts.skipped += report.numPendingTests
  // A file that can't be loaded has no failed test, but is a failure anyway.
  counts.failed += report.numFailedTests || (ok && report.success ? 0 : 1)
  failures.push(...failuresOf(report))
  const late = report.testResults.filter(
    ({ name, startTime, endTime }) => endTime - startTime > LONG_MS && !longest.some(path => name.endsWith(`/${path}`)),
  )
  for (const { name, startTime, endTime } of late)
    say(`${name} took ${Math.round((endTime - startTime) / 1_000)} s: server/test/longest.ts should name it.`)
}

/** One text per failed test, or per file that could not be loaded: its name and the beginning of its message. */
function failuresOf(report: Report): string[] {
  const start = (message = "") => message.split("\n").slice(0, 12).join("\n")
  return report.testResults.flatMap(({ name, status, message, assertionResults }) => {
    const failed = assertionResults.filter(result => result.status === "failed")
    const texts = failed.map(result => `${name} > ${result.fullName}\n${start(result.failureMessages[0])}`)
    return texts.length > 0 || status === "passed" ? texts : [`${name}\n${start(message)}`]
  })
}

// The checks use one core at most times, and the tests wait for blocks, browsers and processes.
// The sandboxes of the tests build the site at the lowest priority, and whoever needs it waits for them: it is built once, at once.
const site = run([process.execPath, "site/build.ts"], "pipe")
const checks = run(["npm", "run", "--silent", "check"], "pipe")
// Programs take half the CPU to start from a few large files.
const TEST_BUNDLE = await bundlePrograms(join(scratch, "bundle"))
// What is killed writes nothing to the cache of compiled modules, and most programs of the first tests are killed.
await run([process.execPath, `--import=${TEST_BUNDLE}`, "server/src/main.ts", "--help"], "pipe")
const postgres = postgresBinaries() ? await startPostgres({ autovacuum: false }) : undefined
if (!postgres && process.env.CI) counts.failed++
if (!postgres) say("Postgres is missing: all tests run on the embedded database, and those of Postgres are skipped.")
await tests({ TEST_BUNDLE, ...(postgres ? { DATABASE_URL: postgres.socketUrl } : {}) })
await postgres?.stop()
const built = await site
if (!built.ok) {
  counts.failed++
  failures.push(`site/build.ts\n${built.output}`)
}
const { ok, output } = await checks
say(`\n— style, types, generated files\n${output}`)
if (!ok) {
  counts.failed++
  failures.push("npm run check")
}
if (!redisBinary()) say("Redis is missing: the tests named “on Redis” are skipped, under CI they fail.")
rmSync(scratch, { recursive: true, force: true })
// Repeated at the end, where a reader of a long log, or of its last lines alone, finds them.
for (const failure of failures) say(`\nFAILED ${failure}`)
say(`\n${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`)
process.exit(counts.failed === 0 ? 0 : 1)
