/** The settings of commands that need only a few settings, and that run where the others are not set. */
import type { Address } from "../chain/hex.ts"
import { type NetworkName, networkSetting } from "../chain/network-facts.ts"
import { examineSettings, nameIn } from "./read-settings.ts"
import { withSecretFiles } from "./secret-files.ts"
import { type Settings, SettingsError } from "./settings.ts"
import { settingsTable } from "./settings-table.ts"

/** Reads the location of the database, and only the settings that `sluice migrate` and `sluice backup` need. */
export function readDatabaseSettings(
  given: Record<string, string | undefined> = process.env,
): Pick<Settings, "databaseUrl" | "dataDir"> {
  const { env, faults } = withSecretFiles(given, ["DATABASE_URL"])
  if (faults.length > 0) throw new SettingsError(faults)
  const read = <T>(name: "DATABASE_URL" | "DATA_DIR", parse: (text: string) => T, fallback?: string): T | undefined => {
    const value = env[name] || fallback
    try {
      return value === undefined ? undefined : parse(value)
    } catch (error) {
      throw new SettingsError([`${name} ${(error as Error).message}`])
    }
  }
  const { DATABASE_URL, DATA_DIR } = settingsTable
  return {
    databaseUrl: read("DATABASE_URL", DATABASE_URL.parse),
    dataDir: read("DATA_DIR", DATA_DIR.parse, DATA_DIR.fallback) ?? DATA_DIR.fallback,
  }
}

/**
 * Reads the settings of `sluice deploy`: the network's endpoints and escrow, and the wallets. The wallets become the
 * operators of the factory and of the refund collector. Throws a {@link SettingsError} if one of these settings is set
 * but invalid.
 */
export function readDeploySettings(
  name: NetworkName,
  env: Record<string, string | undefined> = process.env,
): {
  rpcUrls: string[]
  escrow: Address | undefined
  payoutWallet: Address | undefined
  relayWallet: Address | undefined
  dataDir: string
} {
  const { settings, faults } = examineSettings({ ...env, MODE: "test", NETWORKS: name })
  const { rpcUrls = [], escrow } = settings.networks[0] ?? {}
  const wallets = (["PAYOUT", "RELAY"] as const).flatMap(wallet =>
    ["WALLET", "PRIVATE_KEY", "PRIVATE_KEY_FILE", "KEYSTORE", "KEYSTORE_PASSWORD_FILE", "SIGNER"].map(
      part => `${wallet}_${part}`,
    ),
  )
  const rpc = networkSetting("RPC", name)
  const own = [rpc, `${rpc}_FILE`, networkSetting("ESCROW", name), "KMS_ENDPOINT", ...wallets]
  const wrong = faults.filter(fault => own.includes(nameIn(fault)) && env[nameIn(fault)])
  if (wrong.length > 0) throw new SettingsError(wrong)
  const { payoutWallet, relayWallet, dataDir } = settings
  return { rpcUrls, escrow: escrow?.address, payoutWallet, relayWallet, dataDir }
}
