/**
 * Every setting, declared once: what it means, how it is read, what it is without a value. The only reader of
 * `process.env`; all faults are reported together.
 */
import type { Address } from "./chain/hex.ts"
import { type NetworkName, networkFacts, networkNames } from "./chain/networks.ts"
import type { Signer } from "./chain/signer.ts"
import { liveFaults } from "./live.ts"
import {
  address,
  bytes32,
  decimal,
  duration,
  flag,
  gwei,
  httpUrl,
  issuerUrl,
  list,
  listOf,
  oneOf,
  privateKey,
  text,
  whole,
} from "./setting-values.ts"

export type Mode = "sandbox" | "test" | "live"

/** What one network needs to be served. */
export interface NetworkSettings {
  name: NetworkName
  chainId: number
  rpcUrls: string[]
  token: Address
  /** Blocks, the one that holds the transfer included. */
  confirmations: number
  depositFactory: Address
  sanctionsOracle: Address | undefined
}

/** The names of the rate-limit buckets; `limits/buckets.ts` says what each counts. */
export type Bucket =
  | "auth"
  | "checkout"
  | "payConfirm"
  | "payStatus"
  | "console"
  | "paywallVerify"
  | "paywallPay"
  | "public"

export interface Settings {
  mode: Mode
  host: string
  port: number
  /** Without a slash at the end. */
  baseUrl: string
  consoleOrigins: string[]
  trustedProxies: string[]
  dataDir: string
  /** Undefined: the embedded database in `dataDir`. */
  databaseUrl: string | undefined
  /** Live mode takes the embedded database too. */
  allowEmbeddedDb: boolean
  sandboxPublic: boolean
  /** 32 bytes, under which secrets are encrypted at rest; in the sandbox undefined until it has made its own. */
  secretKey: Uint8Array | undefined
  oidcIssuer: string
  oidcAudience: string
  signup: "open" | "invite"
  /** The first is the default. */
  networks: NetworkSettings[]
  verifyIntervalMs: number
  sanctionsFile: string | undefined
  /** A decimal string in whole tokens: each token has decimals of its own. */
  minAmount: string
  /** Above this, in whole tokens, two endpoints must have a payment where a network has two. */
  quorumAbove: string
  /** A payment's deposit is swept at once above this, in whole tokens. */
  sweepAbove: string
  /** The most a payout pays for a unit of gas, in wei. */
  payoutMaxFee: bigint
  /** Signs for the payout wallet; undefined: no money moves out of deposits. */
  payoutSigner: Signer | undefined
  payoutWallet: Address | undefined
  relayWallet: Address | undefined
  /** Wallets of the service itself; they can't be a merchant's payout address. */
  serviceWallets: Address[]
  /** Requests a minute; 0 switches a bucket off. */
  limits: Record<Bucket, number>
  metricsPort: number | undefined
  metricsToken: string | undefined
  logLevel: string
  rpcPort: number
}

/** A problem with the settings; `faults` has one line for each. */
export class SettingsError extends Error {
  readonly faults: string[]
  constructor(faults: string[]) {
    super(`The settings are not right:\n${faults.map(fault => `  ${fault}`).join("\n")}`)
    this.name = "SettingsError"
    this.faults = faults
  }
}

interface Meaning {
  meaning: string
  /** The text that stands in when the variable is not set; none means "unset". */
  fallback?: string
  /** In words, where what stands in depends on other settings. */
  otherwise?: string
  /** What live mode demands of it, for the documents. */
  live?: string
}

interface Setting<T> extends Meaning {
  /** Throws an Error whose message completes "NAME …". */
  parse: (text: string) => T
}

const perMinute = (meaning: string, fallback: string): Setting<number> & { fallback: string } => ({
  meaning: `${meaning}, requests a minute; 0 switches it off`,
  fallback,
  parse: whole(0, 1_000_000),
})

/** The table of settings, in the order in which `--help` prints them. */
export const settingsTable = {
  MODE: {
    meaning: "sandbox (everything local), test (a public test network) or live",
    fallback: "sandbox",
    parse: oneOf("sandbox", "test", "live"),
  },
  HOST: { meaning: "the address to listen on", fallback: "127.0.0.1", parse: text },
  SANDBOX_PUBLIC: {
    meaning: "1: the sandbox may listen on other addresses than loopback",
    fallback: "0",
    live: "must not be set",
    parse: flag,
  },
  PORT: { meaning: "the port to listen on", fallback: "4000", parse: whole(1, 65_535) },
  BASE_URL: {
    meaning: "how callers reach the service",
    otherwise: "http://HOST:PORT",
    live: "https, and not a private address",
    parse: httpUrl,
  },
  CONSOLE_ORIGINS: {
    meaning: "origins of browser consoles, comma-separated",
    fallback: "",
    parse: listOf(part => new URL(httpUrl(part)).origin),
  },
  TRUSTED_PROXIES: {
    meaning: "CIDRs whose X-Forwarded-For is believed, comma-separated",
    fallback: "",
    live: "not everyone",
    parse: list,
  },
  DATA_DIR: { meaning: "where the embedded database and the sandbox keep their files", fallback: ".data", parse: text },
  DATABASE_URL: {
    meaning: "a Postgres address",
    otherwise: "an embedded database in DATA_DIR",
    live: "must be set, unless ALLOW_EMBEDDED_DB=1",
    parse: text,
  },
  ALLOW_EMBEDDED_DB: { meaning: "1: live mode takes the embedded database too", fallback: "0", parse: flag },
  SECRET_KEY: {
    meaning: "32 random bytes in hexadecimal or base64, such as `openssl rand -hex 32` prints",
    otherwise: "the sandbox's own; needed elsewhere",
    live: "must be set, and random",
    parse: bytes32,
  },
  OIDC_ISSUER: {
    meaning: "the issuer of console tokens",
    otherwise: "the sandbox's own; needed elsewhere",
    live: "must be set; https, not a private address, not a sandbox's",
    parse: issuerUrl,
  },
  OIDC_AUDIENCE: { meaning: "the audience that console tokens must name", fallback: "sluice", parse: text },
  SIGNUP: {
    meaning: "open: the first valid token makes a merchant; invite: only for invited subjects",
    otherwise: "open, in live mode invite",
    parse: oneOf("open", "invite"),
  },
  NETWORKS: {
    meaning: `the networks to serve, the first is the default: ${networkNames.join(", ")}`,
    fallback: "base-sepolia",
    live: "no test network",
    parse: listOf(oneOf(...networkNames)),
  },
  CONFIRMATIONS: {
    meaning: "how many blocks deep a payment must be, its own block counted",
    fallback: "3",
    live: "at least 3",
    parse: whole(1, 1_000),
  },
  VERIFY_INTERVAL: {
    meaning: "how often pending payments are looked at",
    otherwise: "60s, in the sandbox 2s",
    parse: duration,
  },
  SANCTIONS_FILE: { meaning: "a list of sanctioned addresses (OFAC SDN format or one a line)", parse: text },
  PAYOUT_PRIVATE_KEY: {
    meaning: "the key of the wallet that moves money out of deposits",
    live: "must be set; no well-known key",
    parse: privateKey,
  },
  RELAY_PRIVATE_KEY: {
    meaning: "the key of the wallet that relays buyers' authorizations",
    live: "must be set; no well-known key, not the payout wallet's",
    parse: privateKey,
  },
  MIN_AMOUNT: { meaning: "the least price, in whole tokens", fallback: "0.01", parse: decimal },
  QUORUM_ABOVE: {
    meaning: "payments above this, in whole tokens, must be told by two RPC endpoints where a network has two",
    fallback: "100",
    parse: decimal,
  },
  SWEEP_ABOVE: {
    meaning: "what a deposit holds for its merchant is sent on at once above this, in whole tokens; else daily",
    fallback: "10",
    parse: decimal,
  },
  PAYOUT_MAX_FEE: {
    meaning:
      "the most a payout pays for a unit of gas, tip included, in gwei; while the network asks more, payouts wait",
    fallback: "20",
    parse: gwei,
  },
  LIMIT_AUTH: perMinute("POST /api/auth/*, by IP", "5"),
  LIMIT_CHECKOUT: perMinute("POST /api/checkouts, by API key", "10"),
  LIMIT_PAY_CONFIRM: perMinute("POST /api/pay/confirm, by IP", "10"),
  LIMIT_PAY_STATUS: perMinute("GET /api/pay/status/:id, by IP", "30"),
  LIMIT_CONSOLE: perMinute("/api/console/*, by token subject", "60"),
  LIMIT_PAYWALL_VERIFY: perMinute("GET /api/paywalls/:id/verify, by IP", "30"),
  LIMIT_PAYWALL_PAY: perMinute("POST /api/paywalls/:id/pay, by IP", "10"),
  LIMIT_PUBLIC: perMinute("all unauthenticated requests together, by IP", "30"),
  METRICS_PORT: { meaning: "a loopback port that serves /metrics", parse: whole(1, 65_535) },
  METRICS_TOKEN: {
    meaning: "the bearer token that opens /metrics on PORT",
    live: "at least 16 characters",
    parse: text,
  },
  LOG_LEVEL: {
    meaning: "fatal, error, warn, info, debug or trace",
    otherwise: "info, in the sandbox warn",
    parse: oneOf("fatal", "error", "warn", "info", "debug", "trace"),
  },
  RPC_PORT: { meaning: "the port of the sandbox's chain", fallback: "8545", parse: whole(1, 65_535) },
} satisfies Record<string, Setting<unknown>>

type Table = typeof settingsTable
type Name = keyof Table
type ValueOf<N extends Name> = Table[N] extends { fallback: string; parse: (text: string) => infer T }
  ? T
  : Table[N] extends { parse: (text: string) => infer T }
    ? T | undefined
    : never

/** The settings that exist once per network, by their first part. */
const networkSettingsTable = {
  RPC: {
    meaning: "RPC endpoints, comma-separated",
    otherwise: "the sandbox's chain; needed elsewhere",
    live: "must be set; https, or a node on a private address",
  },
  TOKEN: { meaning: "the settlement token", otherwise: "USDC" },
  DEPOSIT_FACTORY: {
    meaning: "the deposit factory whose operator is the payout wallet",
    otherwise: "the sandbox's; needed elsewhere",
    live: "must be set",
  },
  SANCTIONS_ORACLE: {
    meaning: "a contract with isSanctioned(address), which screens the buyers of all networks",
    otherwise: "Chainalysis' on base",
  },
} satisfies Record<string, Meaning>

const nameIn = (fault: string): string => fault.split(" ", 1)[0] ?? ""

const suffix = (name: NetworkName): string => name.toUpperCase().replaceAll("-", "_")

/**
 * The settings from the environment, or a {@link SettingsError} that lists every fault. In the sandbox the networks' and
 * the issuer's values are placeholders: its chain and its identity provider are local, and known once they run.
 */
export function readSettings(env: Record<string, string | undefined> = process.env): Settings {
  const faults: string[] = []
  const attempt = <T>(name: string, value: string, parse: (text: string) => T): T | undefined => {
    try {
      return parse(value)
    } catch (error) {
      faults.push(`${name} ${(error as Error).message}`)
      return undefined
    }
  }
  function read<N extends Name>(name: N): ValueOf<N> {
    const setting: Setting<unknown> = settingsTable[name]
    const value = env[name] || setting.fallback
    return (value === undefined ? undefined : attempt(name, value, setting.parse)) as ValueOf<N>
  }
  const required = (name: string): undefined => {
    faults.push(`${name} must be set when MODE is not sandbox`)
    return undefined
  }

  const mode = read("MODE") ?? "sandbox"
  const sandbox = mode === "sandbox"
  const host = read("HOST")
  const port = read("PORT")
  const loopback = host === "localhost" || host === "::1" || /^127\./.test(host)
  const sandboxPublic = read("SANDBOX_PUBLIC")
  if (sandbox && !loopback && !sandboxPublic)
    faults.push("HOST must be a loopback address in the sandbox; SANDBOX_PUBLIC=1 opens it to others on purpose")

  const confirmations = read("CONFIRMATIONS")
  const networks = (read("NETWORKS") ?? []).map(name => networkSettings(name))
  if (networks.length === 0) faults.push("NETWORKS must name at least one network")
  function networkSettings(name: NetworkName): NetworkSettings {
    const facts = networkFacts[name]
    const variable = (part: keyof typeof networkSettingsTable) => `${part}_${suffix(name)}`
    const get = <T>(part: keyof typeof networkSettingsTable, parse: (text: string) => T, fallback?: string) => {
      const value = env[variable(part)] || fallback
      if (value !== undefined) return attempt(variable(part), value, parse)
      return sandbox ? undefined : required(variable(part))
    }
    return {
      name,
      chainId: facts.chainId,
      rpcUrls: get("RPC", listOf(httpUrl)) ?? [],
      token: get("TOKEN", address, facts.usdc) ?? facts.usdc,
      confirmations,
      depositFactory: get("DEPOSIT_FACTORY", address) ?? facts.usdc,
      sanctionsOracle: env[variable("SANCTIONS_ORACLE")] ? get("SANCTIONS_ORACLE", address) : facts.sanctionsOracle,
    }
  }

  const payoutSigner = read("PAYOUT_PRIVATE_KEY")
  const payoutWallet = payoutSigner?.address
  const relayWallet = read("RELAY_PRIVATE_KEY")?.address
  const settings: Settings = {
    mode,
    host,
    port,
    baseUrl: read("BASE_URL") ?? `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    consoleOrigins: read("CONSOLE_ORIGINS"),
    trustedProxies: read("TRUSTED_PROXIES"),
    dataDir: read("DATA_DIR"),
    databaseUrl: read("DATABASE_URL"),
    allowEmbeddedDb: read("ALLOW_EMBEDDED_DB"),
    sandboxPublic,
    secretKey: read("SECRET_KEY") ?? (mode === "test" ? required("SECRET_KEY") : undefined),
    oidcIssuer: read("OIDC_ISSUER") ?? (sandbox ? "" : (required("OIDC_ISSUER") ?? "")),
    oidcAudience: read("OIDC_AUDIENCE"),
    signup: read("SIGNUP") ?? (mode === "live" ? "invite" : "open"),
    networks,
    verifyIntervalMs: read("VERIFY_INTERVAL") ?? (sandbox ? 2_000 : 60_000),
    sanctionsFile: read("SANCTIONS_FILE"),
    minAmount: read("MIN_AMOUNT"),
    quorumAbove: read("QUORUM_ABOVE"),
    sweepAbove: read("SWEEP_ABOVE"),
    payoutMaxFee: read("PAYOUT_MAX_FEE"),
    payoutSigner,
    payoutWallet,
    relayWallet,
    serviceWallets: [payoutWallet, relayWallet].filter(wallet => wallet !== undefined),
    limits: {
      auth: read("LIMIT_AUTH"),
      checkout: read("LIMIT_CHECKOUT"),
      payConfirm: read("LIMIT_PAY_CONFIRM"),
      payStatus: read("LIMIT_PAY_STATUS"),
      console: read("LIMIT_CONSOLE"),
      paywallVerify: read("LIMIT_PAYWALL_VERIFY"),
      paywallPay: read("LIMIT_PAYWALL_PAY"),
      public: read("LIMIT_PUBLIC"),
    },
    metricsPort: read("METRICS_PORT"),
    metricsToken: read("METRICS_TOKEN"),
    logLevel: read("LOG_LEVEL") ?? (sandbox ? "warn" : "info"),
    rpcPort: read("RPC_PORT"),
  }
  if (mode === "live") {
    // What can't be read has been told; what stands in for it is not worth another fault.
    const told = new Set(faults.map(nameIn))
    faults.push(...liveFaults(settings).filter(fault => !told.has(nameIn(fault))))
  }
  if (faults.length > 0) throw new SettingsError(faults)
  return settings
}

/** All settings in order, each with its default in words; those of a network have `_<NETWORK>` in their names. */
export function listSettings(): { name: string; meaning: string; standsIn: string; live: string }[] {
  const perNetwork = Object.entries<Meaning>(networkSettingsTable).map(([part, rest]): [string, Meaning] => [
    `${part}_<NETWORK>`,
    { ...rest, meaning: `${rest.meaning}, such as ${part}_${suffix("base")}` },
  ])
  const all = [...Object.entries<Meaning>(settingsTable), ...perNetwork]
  return all.map(([name, { meaning, fallback = "", otherwise: standsIn = fallback, live = "" }]) => {
    return { name, meaning, standsIn, live }
  })
}

/** What `--help` prints of the settings: a line each, with the default. */
export const describeSettings = (): string =>
  listSettings()
    .map(({ name, meaning, standsIn }) => `  ${name.padEnd(26)}${meaning}${standsIn && ` (${standsIn})`}`)
    .join("\n")
