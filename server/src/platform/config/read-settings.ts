/** Reads the settings. Only this code reads `process.env`; it reports all faults together. */
import { type Mode, networkNames, networkSetting } from "../chain/network-facts.ts"
import type { NetworkSettings } from "../chain/networks.ts"
import type { SecretKeys } from "../secrets.ts"
import { liveFaults } from "./live-mode.ts"
import { networkSettings } from "./network-settings.ts"
import { networkSettingsTable } from "./network-settings-table.ts"
import { secretFilesOf, withSecretFiles } from "./secret-files.ts"
import type { Meaning } from "./setting.ts"
import { type SettingReader, settingReader } from "./setting-reader.ts"
import { type Bucket, type Settings, SettingsError, type WebhookSettings } from "./settings.ts"
import { settingsTable } from "./settings-table.ts"
import { tracingSettings } from "./tracing-settings.ts"
import { walletSettings } from "./wallet-keys.ts"
import { wrapped } from "./wrapped-text.ts"

/**
 * In wei. On Base, gas costs one or two hundredths of a gwei. There this budget pays for five to ten thousand payouts a
 * day, more than an honest merchant needs. This budget is also the most that people who repeatedly pay themselves can
 * cost the operator.
 */
const DEFAULT_GAS_BUDGET = 20_000_000_000_000_000n

/** In wei: as much as ten merchants' budgets. For operators that open an installation to strangers. */
const DEFAULT_TOTAL = 10n * DEFAULT_GAS_BUDGET
/** In wei: on Base enough for about two thousand relays of contract wallets. */
const DEFAULT_CONTRACT_BUDGET = 5_000_000_000_000_000n

/** This process's environment with `more`, for a program that this process starts. */
export const environmentWith = (more: Record<string, string>): Record<string, string | undefined> => ({
  ...process.env,
  ...more,
})

/**
 * Reads the settings from the environment. Throws a {@link SettingsError} that lists every fault. In the sandbox the
 * networks' and the issuer's values are placeholders: the sandbox's chain and identity provider are local, and their
 * addresses are known only once they run.
 */
export function readSettings(env?: Record<string, string | undefined>): Settings {
  const { settings, faults } = examineSettings(env)
  if (faults.length > 0) throw new SettingsError(faults)
  return settings
}

/** The settings with their faults. */
export interface Examined {
  /**
   * A setting with a fault has a placeholder value. So if there are faults, use these settings only for checks, never
   * to serve.
   */
  settings: Settings
  /** Each fault starts with the name of a setting. */
  faults: string[]
  /** Variables that look like settings but are not, or that belong to a network that is not served. */
  unknown: string[]
}

/** Reads the settings from the environment, and collects everything that is wrong with them. */
export function examineSettings(given: Record<string, string | undefined> = process.env): Examined {
  const { env, ...fromFiles } = withSecretFiles(given)
  const reader = settingReader(env)
  const { read, required, faults } = reader
  faults.push(...fromFiles.faults)
  const mode = read("MODE") ?? "sandbox"
  const sandbox = mode === "sandbox"
  const signup = read("SIGNUP") ?? (mode === "live" ? "invite" : "open")
  const settings: Settings = {
    mode,
    signup,
    ...listenSettings(reader, mode),
    networks: networkSettings(reader, mode),
    ...walletSettings(reader, mode),
    ...amountSettings(reader, mode, signup),
    consoleOrigins: read("CONSOLE_ORIGINS"),
    trustedProxies: read("TRUSTED_PROXIES") ?? [],
    dataDir: read("DATA_DIR"),
    databaseUrl: read("DATABASE_URL"),
    replica: replicaSettings(reader),
    allowEmbeddedDb: read("ALLOW_EMBEDDED_DB"),
    backupMaxAgeMs: read("BACKUP_MAX_AGE") ?? (mode === "live" ? 2 * 86_400_000 : 0),
    redisUrl: read("REDIS_URL"),
    secretKeys: secretKeysIn(reader, mode),
    oidcIssuer: read("OIDC_ISSUER") ?? (sandbox ? "" : (required("OIDC_ISSUER") ?? "")),
    oidcAudience: read("OIDC_AUDIENCE"),
    oidcClient: clientSettings(reader),
    mail: mailSettingsOf(reader),
    rates: read("RATES"),
    ratesUrl: read("RATES_URL"),
    customerDataRetentionMs: read("CUSTOMER_DATA_RETENTION"),
    maxScanLag: read("MAX_SCAN_LAG"),
    verifyIntervalMs: read("VERIFY_INTERVAL") ?? (sandbox ? 2_000 : 5_000),
    sanctionsFile: read("SANCTIONS_FILE"),
    limits: limitSettings(reader),
    maxDownloads: read("MAX_DOWNLOADS"),
    healthPort: read("HEALTH_PORT"),
    drainMs: read("DRAIN") ?? (mode === "live" ? 5_000 : 0),
    metricsPort: read("METRICS_PORT"),
    metricsHost: read("METRICS_HOST"),
    metricsToken: read("METRICS_TOKEN"),
    logLevel: read("LOG_LEVEL") ?? (sandbox ? "warn" : "info"),
    tracing: tracingSettings(reader),
    rpcPort: read("RPC_PORT"),
    webhooks: webhookSettings(reader, mode),
    originTimeoutMs: read("ORIGIN_TIMEOUT"),
    receipts: receiptSettings(reader),
    invoiceAheadMs: read("INVOICE_AHEAD"),
  }
  settings.secretFiles.push(...fromFiles.files)
  faults.push(...faultsTogether(settings, reader))
  return { settings, faults, unknown: unknownIn(env, settings.networks) }
}

/** Names that start like settings; variables with other names belong to other programs. */
const LIKE_A_SETTING =
  /^(RPC|DEPOSIT_FACTORY|ESCROW|REFUND_COLLECTOR|SANCTIONS|PAYOUT|RECEIPT|RELAY|WEBHOOK|ZEROG|LIMIT|OIDC|METRICS|GAS_BUDGET|SANDBOX)_/

function unknownIn(env: Record<string, string | undefined>, networks: readonly NetworkSettings[]): string[] {
  const parts = Object.keys(networkSettingsTable)
  // If NETWORKS has a fault, none of its networks is known, and a variable may belong to any network.
  const names = networks.length > 0 ? networks.map(({ name }) => name) : networkNames
  const known = new Set([
    ...Object.keys(settingsTable),
    ...secretFilesOf(names),
    ...names.flatMap(name => parts.map(part => networkSetting(part, name))),
  ])
  return Object.keys(env).filter(name => env[name] && LIKE_A_SETTING.test(name) && !known.has(name))
}

function secretKeysIn({ read, required, faults }: SettingReader, mode: Mode): SecretKeys {
  const first = read("SECRET_KEY") ?? (mode === "test" ? required("SECRET_KEY") : undefined)
  const other = read("SECRET_KEY_OTHER")
  if (other && first && Buffer.from(first).equals(other)) faults.push("SECRET_KEY_OTHER must differ from SECRET_KEY")
  return [first, other].filter(key => key !== undefined)
}

function clientSettings({ env, read, faults }: SettingReader): Settings["oidcClient"] {
  const id = read("OIDC_CLIENT_ID")
  const secret = read("OIDC_CLIENT_SECRET")
  if (secret !== undefined && !env.OIDC_CLIENT_ID)
    faults.push("OIDC_CLIENT_SECRET must be the secret of OIDC_CLIENT_ID, which is not set")
  if (id !== undefined && id === read("OIDC_AUDIENCE"))
    faults.push(
      "OIDC_CLIENT_ID must differ from OIDC_AUDIENCE: otherwise the service would accept the console's ID tokens as access tokens",
    )
  return id === undefined ? undefined : { id, secret }
}

function mailSettingsOf({ env, read, faults }: SettingReader): Settings["mail"] {
  const url = read("SMTP_URL")
  const from = read("MAIL_FROM")
  const alarmsTo = read("MAIL_ALARMS")
  if (env.SMTP_URL && !env.MAIL_FROM) faults.push("MAIL_FROM must be set with SMTP_URL: mails need a sender")
  if (alarmsTo !== undefined && !env.SMTP_URL) faults.push("MAIL_ALARMS needs SMTP_URL")
  return url === undefined || from === undefined ? undefined : { url, from, alarmsTo }
}

function receiptSettings({ env, read, faults }: SettingReader): Settings["receipts"] {
  const common = { batchMs: read("RECEIPT_BATCH"), anchorMs: read("RECEIPT_ANCHOR"), waitMs: read("RECEIPT_WAIT") }
  const rpcUrls = read("ZEROG_RPC")
  const flow = read("ZEROG_FLOW")
  const indexer = read("ZEROG_INDEXER")
  const chainId = read("ZEROG_CHAIN_ID")
  const maxFee = read("ZEROG_MAX_FEE")
  if (read("RECEIPT_STORE") !== "0g") return common
  for (const name of ["ZEROG_RPC", "ZEROG_FLOW", "ZEROG_INDEXER"])
    if (!env[name]) faults.push(`${name} must be set, as RECEIPT_STORE is 0g`)
  return { ...common, zerog: rpcUrls && flow && indexer ? { chainId, rpcUrls, flow, indexer, maxFee } : undefined }
}

function replicaSettings({ env, read, faults }: SettingReader): Settings["replica"] {
  const url = read("DATABASE_REPLICA_URL")
  const maxLagMs = read("REPLICA_MAX_LAG")
  if (url !== undefined && !env.DATABASE_URL)
    faults.push("DATABASE_REPLICA_URL must be a replica of DATABASE_URL, which is not set")
  return url === undefined ? undefined : { url, maxLagMs }
}

function listenSettings({ env, read, faults }: SettingReader, mode: Mode) {
  const host = read("HOST")
  const port = read("PORT")
  const sandboxPublic = read("SANDBOX_PUBLIC")
  const loopback = host === "localhost" || host === "::1" || /^127\./.test(host)
  if (mode === "sandbox" && !loopback && !sandboxPublic)
    faults.push("HOST must be a loopback address in the sandbox; set SANDBOX_PUBLIC=1 to open it to others")
  if (mode === "live" && !env.BASE_URL)
    faults.push("BASE_URL must be set: the https address at which callers reach the service")
  const baseUrl = read("BASE_URL") ?? `http://${host.includes(":") ? `[${host}]` : host}:${port}`
  return { host, port, baseUrl, consoleUrl: read("CONSOLE_URL") ?? baseUrl, sandboxPublic }
}

function amountSettings({ read }: SettingReader, mode: Mode, signup: Settings["signup"]) {
  const sandbox = mode === "sandbox"
  return {
    minAmount: read("MIN_AMOUNT"),
    quorumAbove: read("QUORUM_ABOVE"),
    sweepAbove: read("SWEEP_ABOVE"),
    payoutMaxFee: read("PAYOUT_MAX_FEE"),
    gasBudget: read("GAS_BUDGET") ?? (sandbox ? 0n : DEFAULT_GAS_BUDGET),
    gasBudgetTotal: read("GAS_BUDGET_TOTAL") ?? (mode === "live" && signup === "open" ? DEFAULT_TOTAL : 0n),
    relayContractBudget: read("RELAY_CONTRACT_BUDGET") ?? (sandbox ? 0n : DEFAULT_CONTRACT_BUDGET),
    smallPayout: read("SMALL_PAYOUT"),
  }
}

const limitSettings = ({ read }: SettingReader): Record<Bucket, number> => ({
  auth: read("LIMIT_AUTH"),
  checkout: read("LIMIT_CHECKOUT"),
  payConfirm: read("LIMIT_PAY_CONFIRM"),
  payStatus: read("LIMIT_PAY_STATUS"),
  console: read("LIMIT_CONSOLE"),
  paywallVerify: read("LIMIT_PAYWALL_VERIFY"),
  paywallPay: read("LIMIT_PAYWALL_PAY"),
  merchant: read("LIMIT_MERCHANT"),
  consume: read("LIMIT_CONSUME"),
  pages: read("LIMIT_PAGES"),
  linkStart: read("LIMIT_LINK_START"),
  agent: read("LIMIT_AGENT"),
  device: read("LIMIT_DEVICE"),
  listener: read("LIMIT_LISTENER"),
  mcp: read("LIMIT_MCP"),
  facilitator: read("LIMIT_FACILITATOR"),
  public: read("LIMIT_PUBLIC"),
})

const webhookSettings = ({ read }: SettingReader, mode: Mode): WebhookSettings => ({
  timeoutMs: read("WEBHOOK_TIMEOUT"),
  probeTimeoutMs: read("WEBHOOK_PROBE_TIMEOUT"),
  concurrencyPerEndpoint: read("WEBHOOK_CONCURRENCY_PER_ENDPOINT"),
  concurrency: read("WEBHOOK_CONCURRENCY"),
  allowCidrs: read("WEBHOOK_ALLOW_CIDRS") ?? (mode === "sandbox" ? ["127.0.0.0/8", "::1/128"] : []),
  retentionMs: read("WEBHOOK_RETENTION"),
})

/** Faults of the settings as a whole, in addition to the faults of single settings that `reader` found. */
function faultsTogether(settings: Settings, { env, faults }: SettingReader): string[] {
  const { mode, payoutWallet, relayWallet } = settings
  const { zerog } = settings.receipts
  if (zerog && settings.networks.some(({ chainId }) => chainId === zerog.chainId))
    faults.push("ZEROG_CHAIN_ID must be the number of 0G's chain, and is that of a network where payments are made")
  const keySetting = (wallet: "PAYOUT" | "RELAY") =>
    [`${wallet}_SIGNER`, `${wallet}_KEYSTORE`].find(name => env[name]) ?? `${wallet}_PRIVATE_KEY`
  const keySettings = { payout: keySetting("PAYOUT"), relay: keySetting("RELAY") }
  // Live mode's own rules include this rule.
  if (mode !== "live")
    return payoutWallet !== undefined && payoutWallet === relayWallet
      ? [`${keySettings.relay} must differ from ${keySettings.payout}: each wallet needs its own nonces`]
      : []
  // An unreadable value was already reported, so faults about its placeholder are omitted.
  const reported = new Set(faults.map(nameIn))
  if (reported.has("PAYOUT_KEYSTORE_PASSWORD_FILE")) reported.add(keySettings.payout)
  if (reported.has("RELAY_KEYSTORE_PASSWORD_FILE")) reported.add(keySettings.relay)
  for (const name of secretFilesOf(networkNames)) if (reported.has(name)) reported.add(name.replace(/_FILE$/, ""))
  return liveFaults(settings, keySettings).filter(fault => !reported.has(nameIn(fault)))
}

/** The setting that a fault is about. */
export const nameIn = (fault: string): string => fault.split(" ", 1)[0] ?? ""

/** All settings in order, each with its default in words. Names of per-network settings end in `_<NETWORK>`. */
export function listSettings(): { name: string; meaning: string; standsIn: string; live: string }[] {
  const perNetwork = Object.entries<Meaning>(networkSettingsTable).map(([part, rest]): [string, Meaning] => [
    `${part}_<NETWORK>`,
    { ...rest, meaning: `for each network, such as ${networkSetting(part, "base")}: ${rest.meaning}` },
  ])
  const all = [...Object.entries<Meaning>(settingsTable), ...perNetwork]
  return all.map(([name, { meaning, fallback = "", otherwise: standsIn = fallback, live = "" }]) => {
    return { name, meaning, standsIn, live }
  })
}

const NAME_WIDTH = 34
const MEANING_WIDTH = 84

/** The text of `--help` about the settings, each with its default in parentheses. Lines have at most 120 characters. */
export const describeSettings = (): string =>
  listSettings()
    .flatMap(({ name, meaning, standsIn }) =>
      wrapped(`${meaning}${standsIn && ` (${standsIn})`}`, MEANING_WIDTH).map(
        (line, i) => `  ${(i === 0 ? name : "").padEnd(NAME_WIDTH)}${line}`,
      ),
    )
    .join("\n")
