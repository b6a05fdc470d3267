/**
 * `sluice migrate`: migrates the database to this version's schema, then ends. So a deployment of several processes
 * can migrate once, before any of them starts. The command needs no keys and no network.
 */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { readDatabaseSettings } from "../../platform/config/command-settings.ts"
import { lockDataDir } from "../../platform/config/data-dir.ts"
import { openDatabase } from "../../platform/db/open.ts"
import { parseCommandLine, runCommand } from "./run-command.ts"

const usage = `Brings the database to this version's schema, and prints each migration that it applies.

  sluice migrate

It migrates the database of DATABASE_URL, or without that setting the embedded database in DATA_DIR. Back up first.
Processes of the previous version can continue meanwhile; stop older ones. A failed migration changes nothing.

Exits with 0 when the database has this version's schema, 1 when it does not, 2 for an invalid command line.
`

/**
 * Applies the missing migrations and reports each. Throws an Error with a sentence for the operator if a migration
 * fails.
 */
async function main(args: string[]): Promise<string> {
  const { values } = parseCommandLine(args, {})
  if (values.help) return usage.trimEnd()
  const settings = readDatabaseSettings()
  const { databaseUrl, dataDir } = settings
  // A mistyped folder must not create a database that no service uses.
  if (databaseUrl === undefined && !existsSync(join(dataDir, "db")))
    throw new Error(`There is no database in ${dataDir}. Check DATA_DIR and DATABASE_URL.`)
  const unlock = databaseUrl === undefined ? lockDataDir(dataDir) : () => {}
  let steps = 0
  const report = (sentence: string) => {
    steps += 1
    process.stdout.write(`${sentence}\n`)
  }
  try {
    const database = await openDatabase(settings, () => {}, report)
    await database.close()
  } finally {
    unlock()
  }
  return steps === 0 ? "The database already has this version's schema." : "The database now has this version's schema."
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("migrate", main, { failed: "Nothing was migrated." })
