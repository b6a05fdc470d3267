/** `sluice reencrypt`: encrypts all secrets in the database with SECRET_KEY, so that SECRET_KEY_OTHER can be dropped. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { withActor } from "../../platform/actor.ts"
import { lockDataDir } from "../../platform/config/data-dir.ts"
import { readSettings } from "../../platform/config/read-settings.ts"
import { assertInstallation } from "../../platform/db/claim-installation.ts"
import { reencrypt } from "../../platform/db/claim-secret-key.ts"
import { openDatabase } from "../../platform/db/open.ts"
import { operatorName } from "./operator-name.ts"
import { Failure, parseCommandLine, runCommand } from "./run-command.ts"

const usage = `Encrypts all secrets in the database with SECRET_KEY, while the service runs. This is a step of changing that key.

  sluice reencrypt

It needs the environment of the service, with the previous key as SECRET_KEY_OTHER, which you can remove afterwards.
docs/operators/operations.md (SECRET_KEY) has the order of the steps. You can stop this command and run it again at any time.
The embedded database serves one process: stop the service first.

Exits with 0 when every secret is encrypted with SECRET_KEY, 1 when one is not, 2 for a wrong command line.
`

async function main(args: string[]): Promise<string> {
  const { values } = parseCommandLine(args, {})
  if (values.help) return usage.trimEnd()
  const settings = readSettings()
  const { databaseUrl, dataDir, secretKeys, mode } = settings
  if (secretKeys.length === 0)
    throw new Error("SECRET_KEY is not set: a sandbox has its own key, which is not changed.")
  // A mistyped folder must not create a database that nobody serves.
  if (databaseUrl === undefined && !existsSync(join(dataDir, "db")))
    throw new Error(`There is no database in ${dataDir}. Check DATA_DIR and DATABASE_URL.`)
  const unlock = databaseUrl === undefined ? lockDataDir(dataDir) : () => {}
  try {
    const database = await openDatabase(settings, () => {})
    try {
      await assertInstallation(database.db, mode)
      const by = { kind: "operator", id: operatorName(), route: "sluice reencrypt" } as const
      const { changed, unreadable } = await withActor(by, () => reencrypt(database.background, secretKeys))
      const said = `${changed} secrets were encrypted again. All are now encrypted with SECRET_KEY: remove SECRET_KEY_OTHER.`
      if (unreadable === 0) return said
      throw new Failure(`${said} But no key decrypts ${unreadable} of them, so they were left unchanged.`, 1)
    } finally {
      await database.close()
    }
  } finally {
    unlock()
  }
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("reencrypt", main)
