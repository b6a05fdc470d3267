/**
 * `sluice invite SUBJECT [ISSUER]`: lets a subject become a merchant if sign-up is by invitation. The command is a
 * separate program that uses the environment of the service.
 */
import { type Address, checksummed, NOT_AN_ADDRESS, parseAddress } from "../../platform/chain/hex.ts"
import { noOwnerOf } from "../../platform/chain/known-contracts.ts"
import { isDevelopmentWallet } from "../../platform/config/live-mode.ts"
import { readSettings } from "../../platform/config/read-settings.ts"
import { issuerUrl } from "../../platform/config/setting-values.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { assertInstallation } from "../../platform/db/claim-installation.ts"
import type { Db } from "../../platform/db/open.ts"
import { openClock } from "../../platform/db/watch-clock.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { openForCommand } from "./open-for-command.ts"
import { parseCommandLine, parsedValue, runCommand, UsageError } from "./run-command.ts"

const usage = `Lets a subject of the identity provider become a merchant, if SIGNUP=invite (the default in live mode).

  sluice invite SUBJECT [ISSUER]

  SUBJECT  the \`sub\` of the person's tokens, exactly as it appears there.
  ISSUER   the \`iss\` of the tokens; OIDC_ISSUER by default. For a wallet it is BASE_URL, and the SUBJECT is
           eip155:CHAIN_ID:ADDRESS, with the chain id of a network that the service serves.

Run this command with the service's environment variables. The embedded database serves only one process: if you use it,
stop the service first.
Exits with 0 when the subject is invited, 1 when it is not, 2 for an invalid command line.
`

/** Invites a subject, who can then create one merchant; no-op if the subject is already invited. Returns a sentence. */
export async function invite(db: Db, { iss, sub }: Subject, now: Date): Promise<string> {
  const member = await db
    .selectFrom("persons")
    .innerJoin("members", "members.person_id", "persons.id")
    .select("merchant_id")
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .where("role", "=", "owner")
    .orderBy("members.created_at")
    .executeTakeFirst()
  if (member) return `${sub} of ${iss} is already the owner of the merchant ${member.merchant_id}.`
  const invited = await db
    .insertInto("invitations")
    .values({ iss, sub, created_at: now })
    .onConflict(conflict =>
      conflict
        .columns(["iss", "sub"])
        .doUpdateSet({ created_at: now, used_at: null })
        .where("invitations.used_at", "is not", null),
    )
    .returning("sub")
    .executeTakeFirst()
  return invited
    ? `Invited ${sub} of ${iss}: the first valid token creates a merchant.`
    : `${sub} of ${iss} was already invited.`
}

async function main(args: string[]): Promise<string> {
  const { positionals, values } = parseCommandLine(args, { allowPositionals: true })
  const [subject, issuer, ...more] = positionals
  if (values.help) return usage.trimEnd()
  if (!subject || more.length > 0) throw new UsageError("Name one subject, and its issuer if that is not OIDC_ISSUER.")
  const settings = readSettings()
  const iss = issuerOf(issuer, settings)
  const sub = iss === settings.baseUrl ? walletSubject(subject, settings) : subject
  const { db, close } = await openForCommand(settings)
  try {
    await assertInstallation(db, settings.mode)
    const said = [await invite(db, { iss, sub }, (await openClock(db)).now())]
    if (settings.oidcIssuer !== "" && iss !== settings.oidcIssuer && iss !== settings.baseUrl)
      said.push(`Note: OIDC_ISSUER is ${settings.oidcIssuer}, and tokens from other issuers are not accepted.`)
    if (settings.signup === "open") said.push("SIGNUP is open here, so nobody needs an invitation.")
    return said.join("\n")
  } finally {
    await close()
  }
}

function issuerOf(given: string | undefined, { oidcIssuer, baseUrl }: Settings): string {
  if (given === undefined && oidcIssuer === "")
    throw new UsageError("OIDC_ISSUER is not set: add the issuer as a second argument.")
  const iss = given === undefined ? oidcIssuer : parsedValue("The issuer", given, issuerUrl)
  // BASE_URL is stored without a trailing slash, and tokens have none either.
  return iss !== oidcIssuer && iss.replace(/\/+$/, "") === baseUrl ? baseUrl : iss
}

/**
 * The subject of a wallet's tokens, with the checksum that they contain. Throws a {@link UsageError} for a subject
 * that no token can have here. In live mode, also throws for a subject whose token anybody can get.
 */
export function walletSubject(
  text: string,
  { mode, networks }: { mode: Settings["mode"]; networks: readonly { name: string; chainId: number }[] },
): string {
  const [, chainId = "", written] = /^eip155:(\d+):(.*)$/s.exec(text.trim()) ?? []
  if (written === undefined)
    throw new UsageError(
      `The subject of a wallet must be eip155:CHAIN_ID:ADDRESS, such as eip155:${networks[0]?.chainId}:0x…, not ${text}.`,
    )
  if (!networks.some(network => `${network.chainId}` === chainId)) {
    const served = networks.map(network => `${network.chainId} (${network.name})`).join(", ")
    throw new UsageError(`The subject's network ${chainId} is not served here; it must be one of: ${served}.`)
  }
  const address = parseAddress(written)
  if (!address) throw new UsageError(`The subject's address ${written} ${NOT_AN_ADDRESS}.`)
  const fault = faultOf(address, mode)
  if (fault) throw new UsageError(`The subject's address ${checksummed(address)} ${fault}.`)
  return `eip155:${chainId}:${checksummed(address)}`
}

function faultOf(address: Address, mode: Settings["mode"]): string | undefined {
  if (mode === "live" && isDevelopmentWallet(address))
    return "is a well-known development account: anyone could sign in as this merchant"
  return noOwnerOf(address)
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("invite", main, { failed: "Nobody was invited." })
