/**
 * `sluice migrate`: brings the database to this version's schema and ends, so that a deployment of several processes
 * can migrate once, before any of them starts. It needs no keys and no network.
 */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { lockDataDir } from "../config/data-dir.ts"
import { readDatabaseSettings } from "../config/settings.ts"
import { openDatabase } from "../db/open.ts"

const usage = `Brings the database to this version's schema, and prints each migration that it applies.

  sluice migrate

It reads DATABASE_URL; without it, the embedded database in DATA_DIR. Back up first. Processes of the version before go on
meanwhile; stop older ones. A failed migration changes nothing.
`

/** Applies the missing migrations and reports each. Throws a sentence for the operator when that fails. */
async function main(print: (line: string) => void): Promise<void> {
  const { values } = parseArgs({ options: { help: { type: "boolean" } } })
  if (values.help) return print(usage.trimEnd())
  const settings = readDatabaseSettings()
  const { databaseUrl, dataDir } = settings
  // A mistyped folder must not create a database that nobody serves.
  if (databaseUrl === undefined && !existsSync(join(dataDir, "db")))
    throw new Error(`There is no database in ${dataDir}. Check DATA_DIR and DATABASE_URL.`)
  const unlock = databaseUrl === undefined ? lockDataDir(dataDir) : () => {}
  let steps = 0
  const report = (sentence: string) => {
    steps += 1
    print(sentence)
  }
  try {
    const database = await openDatabase(settings, () => {}, report)
    await database.close()
  } finally {
    unlock()
  }
  print(steps === 0 ? "The database has this version's schema already." : "The database has this version's schema now.")
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> =>
  main(line => void process.stdout.write(`${line}\n`)).catch((error: Error) => {
    process.stderr.write(`\nNothing was migrated. ${error.message}\n`)
    process.exitCode = 1
  })
