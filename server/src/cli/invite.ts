/**
 * `sluice invite SUBJECT [ISSUER]`: lets a subject become a merchant where sign-up is by invitation. A program of its
 * own, which uses the environment of the service.
 */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { lockDataDir } from "../config/data-dir.ts"
import { issuerUrl } from "../config/setting-values.ts"
import { readSettings, type Settings } from "../config/settings.ts"
import { assertInstallation } from "../db/installation.ts"
import { type Db, openDatabase } from "../db/open.ts"
import type { Subject } from "../http/authenticate.ts"

const usage = `Lets a subject of the identity provider become a merchant, where SIGNUP=invite (as in live mode).

  sluice invite SUBJECT [ISSUER]

  SUBJECT  the \`sub\` of the person's tokens, exactly as it is there.
  ISSUER   the \`iss\` of the tokens; OIDC_ISSUER by default. BASE_URL for a wallet, whose SUBJECT is
           eip155:CHAIN_ID:ADDRESS with the address in its checksummed form.

It needs the environment of the service. The embedded database serves one process: stop the service first.
`

/** Invites a subject; a no-op if it is invited already. Returns the result as a sentence. */
export async function invite(db: Db, { iss, sub }: Subject, now: Date): Promise<string> {
  const merchant = await db
    .selectFrom("merchants")
    .select("id")
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .executeTakeFirst()
  if (merchant) return `${sub} of ${iss} is already the merchant ${merchant.id}.`
  const invited = await db
    .insertInto("invitations")
    .values({ iss, sub, created_at: now })
    .onConflict(conflict => conflict.doNothing())
    .returning("sub")
    .executeTakeFirst()
  return invited
    ? `Invited ${sub} of ${iss}: the first valid token creates a merchant.`
    : `${sub} of ${iss} was already invited.`
}

async function main(): Promise<string> {
  const { positionals, values } = parseArgs({ allowPositionals: true, options: { help: { type: "boolean" } } })
  const [sub, issuer, ...more] = positionals
  if (values.help) return usage.trimEnd()
  if (!sub || more.length > 0)
    throw new Error(`Name one subject, and its issuer if that is not the default.\n\n${usage}`)
  const settings = readSettings()
  const iss = issuerOf(issuer, settings)
  const { db, close } = await open(settings)
  try {
    await assertInstallation(db, settings.mode)
    const said = [await invite(db, { iss, sub }, new Date())]
    if (settings.oidcIssuer !== "" && iss !== settings.oidcIssuer && iss !== settings.baseUrl)
      said.push(`Note that OIDC_ISSUER is ${settings.oidcIssuer}: tokens of other issuers are not accepted.`)
    if (settings.signup === "open") said.push("SIGNUP is open here, so nobody needs an invitation.")
    return said.join("\n")
  } finally {
    await close()
  }
}

function issuerOf(given: string | undefined, { oidcIssuer }: Settings): string {
  if (given === undefined && oidcIssuer === "")
    throw new Error("OIDC_ISSUER is not set: name the issuer after the subject.")
  try {
    return given === undefined ? oidcIssuer : issuerUrl(given)
  } catch (error) {
    throw new Error(`The issuer ${(error as Error).message}.`)
  }
}

async function open(settings: Settings): Promise<{ db: Db; close: () => Promise<void> }> {
  const { databaseUrl, dataDir } = settings
  // A mistyped folder must not create a database that nobody serves.
  if (databaseUrl === undefined && !existsSync(join(dataDir, "db")))
    throw new Error(`There is no database in ${dataDir}. Start the service once, or check DATA_DIR and DATABASE_URL.`)
  const unlock = databaseUrl === undefined ? lockForUs(dataDir) : () => {}
  const database = await openDatabase(settings, () => {})
  return { db: database.db, close: () => database.close().finally(unlock) }
}

function lockForUs(dir: string): () => void {
  try {
    return lockDataDir(dir)
  } catch (error) {
    if ((error as { code?: unknown }).code !== "DATA_DIR_BUSY") throw error
    throw new Error(
      `The service is running on ${dir}, and its embedded database serves one process. Stop it, invite, and start it again.`,
    )
  }
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> =>
  main().then(
    said => void process.stdout.write(`${said}\n`),
    (error: Error) => {
      process.stderr.write(`\nNobody was invited. ${error.message}\n`)
      process.exitCode = 1
    },
  )
