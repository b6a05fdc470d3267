/**
 * Runs all checks of an installation, in order. `sluice doctor` runs all of them. A running service repeats the
 * checks whose results can change.
 */
// I/O: passes its arguments to the checks, including before the service starts, when there is no context.
import { liveWarnings } from "../../platform/config/live-mode.ts"
import type { Examined } from "../../platform/config/read-settings.ts"
import { type Role, roleFaults } from "../../platform/config/role-needs.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { checkBaseUrl, checkIssuer } from "./check-address.ts"
import { checkBackup } from "./check-backup.ts"
import { checkCertificate } from "./check-certificate.ts"
import { checkDatabase, type Query } from "./check-database.ts"
import { checkEscrow } from "./check-escrow.ts"
import { checkMail } from "./check-mail.ts"
import { checkContracts, checkNetworkState } from "./check-network.ts"
import { checkRates } from "./check-rates.ts"
import { checkReceiptAnchor, checkReceipts } from "./check-receipts.ts"
import { checkRedis } from "./check-redis.ts"
import { checkReplica } from "./check-replica.ts"
import { checkSecretKey } from "./check-secret-key.ts"
import { checkSecrets } from "./check-secrets.ts"
import { checkSigners } from "./check-signers.ts"
import { type Finding, fine } from "./finding.ts"

/** The installation to check, and the clock to use. */
export interface Installation {
  settings: Settings
  /** Undefined if the database is embedded. */
  query: Query | undefined
  now: () => Date
  signal: AbortSignal
}

/** Runs all checks for a process with this role, and changes nothing. Checks that need a faulty setting are skipped. */
export async function checkAll(
  installation: Installation,
  { faults, unknown }: Pick<Examined, "faults" | "unknown">,
  role: Role = "all",
): Promise<Finding[]> {
  const { settings, query, now, signal } = installation
  const faulty = new Set(faults.map(fault => fault.split(" ", 1)[0] ?? ""))
  const of = [checkSettings(settings, faults, role), strangers(unknown), checkSecrets(settings)]
  // At its start, the sandbox creates everything else that it needs.
  if (settings.mode === "sandbox") return [...of.flat(), ...(await checkDatabase(settings, query, now))]
  const parts = await Promise.all([
    ...of,
    checkSigners(settings, signal),
    faulty.has("DATABASE_URL") ? [] : checkDatabase(settings, query, now),
    ["DATABASE_URL", "SECRET_KEY"].some(name => faulty.has(name)) ? [] : checkSecretKey(settings, query, false),
    ["DATABASE_URL", "DATABASE_REPLICA_URL"].some(name => faulty.has(name)) ? [] : checkReplica(settings, query),
    ...settings.networks.flatMap(network => {
      const check = { settings, network, now, signal, faulty }
      return [checkNetworkState(check), checkContracts(check), checkEscrow(check), checkReceiptAnchor(check)]
    }),
    ["DATABASE_URL", "BACKUP_MAX_AGE"].some(name => faulty.has(name)) ? [] : checkBackup(settings, query),
    ["DATABASE_URL", "RATES"].some(name => faulty.has(name)) ? [] : checkRates(settings, query),
    faulty.has("DATABASE_URL") || !query ? [] : checkReceipts(settings, query),
    faulty.has("BASE_URL") ? [] : checkBaseUrl(settings, signal).then(found => [found]),
    faulty.has("BASE_URL") ? [] : checkCertificate(settings, now, signal),
    faulty.has("OIDC_ISSUER") ? [] : checkIssuer(settings),
    faulty.has("REDIS_URL") ? [] : checkRedis(settings),
    checkMail(settings),
  ])
  return parts.flat()
}

/** Runs the checks that a running service repeats. `isServing`: whether the process answers requests at BASE_URL. */
export async function checkAgain(installation: Installation, isServing: boolean): Promise<Finding[]> {
  const { settings, query, now, signal } = installation
  if (settings.mode === "sandbox") return []
  const parts = await Promise.all([
    checkSecrets(settings),
    checkDatabase(settings, query, now),
    checkSecretKey(settings, query, true),
    ...settings.networks.flatMap(network => {
      const check = { settings, network, now, signal, faulty: new Set<string>() }
      return [checkNetworkState(check), checkReceiptAnchor(check)]
    }),
    isServing ? checkBaseUrl(settings, signal).then(found => [found]) : [],
    isServing ? checkCertificate(settings, now, signal) : [],
  ])
  return parts.flat()
}

function checkSettings(settings: Settings, ofSettings: readonly string[], role: Role): Finding[] {
  const part = "settings"
  const faults = [...ofSettings, ...roleFaults(settings, role)]
  if (faults.length > 0)
    return faults.map(message => {
      const name = message.split(" ", 1)[0] ?? ""
      const todo = stepOf(name, message)
      return { part, check: name.toLowerCase(), level: "fault", message, ...(todo === undefined ? {} : { todo }) }
    })
  if (settings.mode === "sandbox")
    return [
      fine(
        part,
        "settings",
        "all settings are valid. The sandbox is local and needs nothing else; set MODE to check another mode",
      ),
    ]
  return [
    fine(part, "settings", `all settings are valid for MODE=${settings.mode}`),
    ...(role === "api" ? needlessKeys(settings) : []),
    ...(settings.mode === "live" ? liveWarnings(settings, role) : []).map((message): Finding => {
      return { part, check: "protection", level: "note", message }
    }),
  ]
}

/**
 * Reports keys that an API process does not need, because an attacker in such a process should find none. A key in a
 * KMS is not in the process, so both roles may name one.
 */
function needlessKeys({ payoutSigner, relaySigner }: Settings): Finding[] {
  const held = [
    { lane: "payout", signer: payoutSigner },
    { lane: "relay", signer: relaySigner },
  ].filter(({ signer }) => signer !== undefined && signer.remote === undefined)
  return held.map(({ lane }) => ({
    part: "settings",
    check: `${lane}_key`,
    level: "note",
    message: `this process has the key of the ${lane} wallet, but --role api signs nothing`,
    todo: `Set ${lane.toUpperCase()}_WALLET to the wallet's address, and remove the key.`,
  }))
}

/** How to get a value for a setting, if its fault does not explain that. */
const steps: [setting: RegExp, step: string][] = [
  [/^SECRET_KEY$/, "Set it to the output of `openssl rand -hex 32`, and keep a copy."],
  [
    /^(PAYOUT|RELAY)_PRIVATE_KEY$/,
    'Create a key (docs/operators/operations.md, "From nothing to a live network"), and keep a copy.',
  ],
  [/^OIDC_ISSUER$/, "Set it to your identity provider, or to BASE_URL if merchants sign in with their wallets."],
  [
    /^RPC_/,
    "Set it to the URLs of nodes, separated by commas; use nodes of three companies if real money is at stake (docs/operators/trust.md).",
  ],
  [/^DEPOSIT_FACTORY_/, "`sluice deploy` deploys one and prints this setting."],
]

/** The next step after a fault in a setting; undefined if the fault's own words already contain that step. */
function stepOf(name: string, fault: string): string | undefined {
  const step = steps.find(([setting]) => setting.test(name))?.[1]
  const [command] = /`[^`]+`/.exec(step ?? "") ?? []
  return command !== undefined && fault.includes(command) ? undefined : step
}

/**
 * Reports variables that look like settings but are not. Otherwise nobody would notice that a misspelt name has no
 * effect.
 */
function strangers(names: readonly string[]): Finding[] {
  return names.map(name => ({
    part: "settings",
    check: "unknown",
    level: "note",
    message: `${name} is set, but is not a setting of the served networks`,
    todo: "Check the spelling, and whether NETWORKS includes the setting's network. docs/operators/settings.md lists all settings.",
  }))
}
