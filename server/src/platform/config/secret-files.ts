/**
 * The settings that hold a secret, and the files that may contain them: `SECRET_KEY_FILE` names a file with the value
 * of `SECRET_KEY`. Unlike the environment, a file is not passed on to every program that the process starts.
 */
import { type NetworkName, networkNames, networkSetting } from "../chain/network-facts.ts"
import type { SecretFile } from "./settings.ts"
import type { settingsTable } from "./settings-table.ts"
import { smallText } from "./small-text.ts"

/** The settings with a `…_FILE` form, in the order of the table. Each network's `RPC` setting has such a form too. */
const secretSettings = [
  "DATABASE_URL",
  "DATABASE_REPLICA_URL",
  "REDIS_URL",
  "SMTP_URL",
  "SECRET_KEY",
  "SECRET_KEY_OTHER",
  "OIDC_CLIENT_SECRET",
  "PAYOUT_PRIVATE_KEY",
  "RELAY_PRIVATE_KEY",
  "ZEROG_PRIVATE_KEY",
  "METRICS_TOKEN",
  "OTEL_EXPORTER_OTLP_HEADERS",
] as const satisfies (keyof typeof settingsTable)[]

type Env = Record<string, string | undefined>

/** The names of all `…_FILE` forms, in words for the documentation. */
export const secretFileNames: readonly string[] = [...secretSettings, "RPC_<NETWORK>"].map(fileOf)

/** The names of the `…_FILE` forms, only for these networks. */
export const secretFilesOf = (networks: readonly NetworkName[]): string[] =>
  [...secretSettings, ...networks.map(name => networkSetting("RPC", name))].map(fileOf)

function fileOf(setting: string): string {
  return `${setting}_FILE`
}

/** Settings, including the contents of the files that they name. */
export interface WithFiles {
  env: Env
  /** Each fault starts with the name of a setting. No fault repeats the contents of a file. */
  faults: string[]
  /** The files that were read. */
  files: SecretFile[]
}

/**
 * Reads the files that `…_FILE` settings name: all, or only those of the settings in `only`. One newline at the end is
 * not part of a value.
 */
export function withSecretFiles(given: Env, only?: readonly string[]): WithFiles {
  const read: WithFiles = { env: { ...given }, faults: [], files: [] }
  const names = secretFilesOf(networkNames).map(name => name.slice(0, -"_FILE".length))
  for (const setting of names.filter(name => only === undefined || only.includes(name))) {
    const name = fileOf(setting)
    const path = given[name]
    if (!path) continue
    read.files.push({ setting: name, path, isOfGroup: true })
    try {
      if (given[setting]) throw new Error(`can't be set together with ${setting}: set only one of them`)
      const value = smallText(path).replace(/\r?\n$/, "")
      if (value === "") throw new Error("names a file that is empty")
      read.env[setting] = value
    } catch (error) {
      read.faults.push(`${name} ${(error as Error).message}`)
    }
  }
  return read
}
