/** `sluice reencrypt`: encrypts all secrets in the database with SECRET_KEY, so that SECRET_KEY_OTHER can be dropped. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { sql } from "kysely"
import { withActor } from "../../platform/actor.ts"
import { lockDataDir } from "../../platform/config/data-dir.ts"
import { readSettings } from "../../platform/config/read-settings.ts"
import { assertInstallation } from "../../platform/db/claim-installation.ts"
import { isRecorded, reencrypt } from "../../platform/db/claim-secret-key.ts"
import { countLostSecrets, forgetLostSecrets } from "../../platform/db/forget-lost-secrets.ts"
import { type Db, openDatabase } from "../../platform/db/open.ts"
import type { SecretKeys } from "../../platform/secrets.ts"
import { operatorName } from "./operator-name.ts"
import { Failure, parseCommandLine, runCommand, UsageError } from "./run-command.ts"

const usage = `Encrypts all secrets in the database with SECRET_KEY, while the service runs. This is one step of changing that key.

  sluice reencrypt
  sluice reencrypt --lost [--yes]

Run this command with the service's environment variables, and with the previous key as SECRET_KEY_OTHER. You can remove
that setting afterwards. docs/operators/operations.md (SECRET_KEY) lists the steps in order. You can stop this command and
run it again at any time. The embedded database serves only one process: if you use it, stop the service first.

  --lost   the previous key is lost: counts the secrets that neither SECRET_KEY nor SECRET_KEY_OTHER decrypts. With --yes,
           removes them and records these keys as the installation's. Stop every process of the service first.

Exits with 0 when every secret is encrypted with SECRET_KEY, 1 when one is not, 2 for an invalid command line.
`

async function main(args: string[]): Promise<string> {
  const { values } = parseCommandLine(args, { options: { lost: { type: "boolean" }, yes: { type: "boolean" } } })
  if (values.help) return usage.trimEnd()
  if (values.yes && !values.lost) throw new UsageError("--yes belongs to --lost.")
  const settings = readSettings()
  const { databaseUrl, dataDir, secretKeys, mode } = settings
  if (secretKeys.length === 0)
    throw new Error("SECRET_KEY is not set: a sandbox has its own key, which is not changed.")
  // A mistyped folder must not create a database that no service uses.
  if (databaseUrl === undefined && !existsSync(join(dataDir, "db")))
    throw new Error(`There is no database in ${dataDir}. Check DATA_DIR and DATABASE_URL.`)
  const unlock = databaseUrl === undefined ? lockDataDir(dataDir) : () => {}
  try {
    const database = await openDatabase(settings, () => {})
    try {
      await assertInstallation(database.db, mode)
      if (values.lost) return await afterLoss(database.background, secretKeys, values.yes === true)
      const by = { kind: "operator", id: operatorName(), route: "sluice reencrypt" } as const
      const { changed, unreadable } = await withActor(by, () => reencrypt(database.background, secretKeys))
      const said = `${changed} secrets were encrypted again. All are now encrypted with SECRET_KEY: remove SECRET_KEY_OTHER.`
      if (unreadable === 0) return said
      throw new Failure(`${said} But no key decrypts ${unreadable} other secrets, which were left unchanged.`, 1)
    } finally {
      await database.close()
    }
  } finally {
    unlock()
  }
}

/** Removes what a lost key has encrypted or, with `isSure` false, says what would be removed. */
async function afterLoss(db: Db, keys: SecretKeys, isSure: boolean): Promise<string> {
  const by = { kind: "operator", id: operatorName(), route: "sluice reencrypt --lost" } as const
  const names = keys.length > 1 ? "SECRET_KEY and SECRET_KEY_OTHER" : "SECRET_KEY"
  if (isSure) await refuseWhileServed(db)
  const lost = await (isSure ? withActor(by, () => forgetLostSecrets(db, keys)) : countLostSecrets(db, keys))
  const list = lost.map(({ table, lost }) => `  ${table.padEnd(16)}${lost}`).join("\n")
  const removed = lost.length === 0 ? "No secret was lost." : `Removed:\n${list}`
  const next = keys.length > 1 ? "Start the service with both, and run `sluice reencrypt`." : "Start the service."
  if (isSure) return `${removed}\nThe database now records ${names}. ${next}`
  if (lost.length === 0 && (await isRecorded(db, keys)))
    return `${names} decrypts every secret in the database, so nothing is lost.`
  throw new Failure(
    `${lost.length === 0 ? `No secret is lost, but the database records another key than ${names}.` : `These secrets can't be decrypted with ${names}:\n${list}`}\nNothing was changed. If the other key is lost for good, stop every process of the service, and run this again with --yes.`,
    1,
  )
}

/** Throws if a process serves this database: it would go on encrypting with its own key. */
async function refuseWhileServed(db: Db): Promise<void> {
  const { rows } = await sql<{ n: number }>`select count(*)::int as n from pg_stat_activity
    where datname = current_database() and application_name = 'sluice-listen'`.execute(db)
  const n = rows[0]?.n ?? 0
  if (n > 0)
    throw new Failure(
      `${n} ${n === 1 ? "process of the service uses" : "processes of the service use"} this database. Stop every process, and run this again.`,
      1,
    )
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("reencrypt", main)
