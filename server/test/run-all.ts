/**
 * What `script/test` runs: the checks, then all tests on the embedded database, then those that use a database again on
 * Postgres. Those that need Redis start their own. Ends with the failures and one plain line of counts.
 */
import { spawnSync } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { postgresBinaries, startPostgres } from "./postgres.ts"
import { redisBinary } from "./redis.ts"

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
    assertionResults: { fullName: string; status: string; failureMessages: string[] }[]
  }[]
}

/**
 * Not run again on Postgres: tests that start no database, and of the others those about nodes, addresses, files, HTTP,
 * tokens or Redis, which are the same on any database. `pool.test.ts` starts a Postgres of its own in the first pass, and
 * `migrations.test.ts` opens the embedded database in any.
 */
const alike = [
  ...withoutDatabase(),
  "db/pool.test.ts",
  "db/migrations.test.ts",
  "sandbox/**",
  "config/live-mode.test.ts",
  "scanner/faulty-endpoints.test.ts",
  "scanner/networks.test.ts",
  "scanner/lying-*.test.ts",
  "scanner/scan-lag.test.ts",
  "payouts/hostile.test.ts",
  "payouts/lying-endpoint.test.ts",
  "cli/invite.test.ts",
  "identity/auth-routes.test.ts",
  "identity/signing-keys.test.ts",
  "http/limit.test.ts",
  "http/openapi.test.ts",
  "http/server.test.ts",
  "splits/least-amount.test.ts",
  "webhooks/addresses.test.ts",
  "cli/recover.test.ts",
  "cli/doctor.test.ts",
  "pages/pages.test.ts",
  "paywalls/console-routes.test.ts",
  "paywalls/routes.test.ts",
  "proxy/calls.test.ts",
  "proxy/console-routes.test.ts",
  "webhooks/routes.test.ts",
  "limits/**",
]

/** The test files under `server/src` that use none of the helpers that open a database. */
function withoutDatabase(): string[] {
  const folder = new URL("../src/", import.meta.url)
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(name => name.endsWith(".test.ts"))
  const opens = /startService|openTestDatabase|start\w*Rig|PGlite|DATABASE_URL/
  return files.filter(name => !opens.test(readFileSync(new URL(name, folder), "utf8")))
}

const counts = { passed: 0, failed: 0, skipped: 0 }
const failures: string[] = []
const scratch = mkdtempSync(join(tmpdir(), "sluice-test-"))
const compiled = join(scratch, "compiled")
const say = (text: string) => process.stdout.write(`${text}\n`)

function run(title: string, command: string, args: string[], env: Record<string, string> = {}): boolean {
  say(`\n— ${title}`)
  // A database of the caller's own must not be what the embedded suite runs on.
  const { DATABASE_URL: _, ...environment } = process.env
  // Hundreds of processes load the same modules: compiled once, a start of the program takes 0.75 s of CPU instead of 1.0 s.
  const rest = { ...environment, NODE_COMPILE_CACHE: compiled }
  return spawnSync(command, args, { stdio: "inherit", env: { ...rest, ...env } }).status === 0
}

function suite(title: string, paths: string[], env: Record<string, string> = {}): void {
  const file = join(scratch, `${paths.length}.json`)
  const args = ["vitest", "run", ...paths, "--reporter=default", "--reporter=json", `--outputFile.json=${file}`]
  const ok = run(title, "npx", args, env)
  const report = JSON.parse(readFileSync(file, "utf8")) as Report
  counts.passed += report.numPassedTests
  counts.skipped += report.numPendingTests
  // A file that can't be loaded has no failed test, but is a failure anyway.
  counts.failed += report.numFailedTests || (ok && report.success ? 0 : 1)
  failures.push(...failuresOf(report).map(failure => `${title}: ${failure}`))
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

// What is killed writes nothing to the cache of compiled modules, and most programs of the first tests are killed.
spawnSync(process.execPath, ["server/src/main.ts", "--help"], { env: { ...process.env, NODE_COMPILE_CACHE: compiled } })
if (!run("style, types, generated files", "npm", ["run", "--silent", "check"])) {
  counts.failed++
  failures.push("npm run check")
}
suite("all tests, embedded database", [])
if (postgresBinaries()) {
  const postgres = await startPostgres({ autovacuum: false })
  suite("tests with a database, on Postgres", ["server/src", ...alike.map(path => `--exclude=server/src/${path}`)], {
    DATABASE_URL: postgres.url,
  })
  await postgres.stop()
} else if (process.env.CI) {
  say("Postgres is missing.")
  counts.failed++
} else {
  say("Postgres is missing: its run is skipped.")
  counts.skipped++
}
if (!redisBinary()) say("Redis is missing: the tests named “on Redis” are skipped, under CI they fail.")
rmSync(scratch, { recursive: true, force: true })
// Repeated at the end, where a reader of a long log, or of its last lines alone, finds them.
for (const failure of failures) say(`\nFAILED ${failure}`)
say(`\n${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`)
process.exit(counts.failed === 0 ? 0 : 1)
