/**
 * What `script/test NAME` runs: the tests of one suite of `suites.ts`, on Postgres where it is installed. With `--long` those that
 * take too long for each submission, or need many packages: their folder has a lockfile of its own.
 */
import { spawn } from "node:child_process"
import { rmSync } from "node:fs"
import { postgresBinaries, startPostgres } from "./postgres.ts"
import { makeScratch } from "./scratch.ts"
import { suites } from "./suites.ts"

const args = process.argv.slice(2)
const names = args.filter(arg => arg !== "--long")
const [name = ""] = names
const folders = suites[name]
if (!folders || names.length > 1) {
  process.stderr.write(`script/test takes one of these names: ${Object.keys(suites).join(", ")}; and --long.\n`)
  process.exit(2)
}
const isLong = args.includes("--long")
const scratch = makeScratch()
process.env.TMPDIR = scratch
const { DATABASE_URL: _, ...environment } = process.env
const postgres = postgresBinaries() ? await startPostgres({ autovacuum: false }) : undefined
const child = spawn("npx", ["vitest", "run", ...folders], {
  stdio: ["ignore", "inherit", "inherit"],
  env: {
    ...environment,
    ...(isLong ? { TEST_LONG: "1" } : {}),
    ...(postgres ? { DATABASE_URL: postgres.socketUrl } : {}),
  },
})
const code = await new Promise<number | null>(resolve => child.once("close", resolve))
await postgres?.stop()
rmSync(scratch, { recursive: true, force: true })
process.exit(code ?? 1)
