/** The settings as the service uses them. */
import type { Address } from "../chain/hex.ts"
import type { Mode } from "../chain/network-facts.ts"
import type { NetworkSettings } from "../chain/networks.ts"
import type { Signer } from "../chain/signer.ts"
import type { SecretKeys } from "../secrets.ts"
import type { Rates } from "./rates-value.ts"
import type { TracingSettings } from "./tracing-settings.ts"

/** The names of the rate-limit buckets; `limits/buckets.ts` says what each counts. */
export type Bucket =
  | "auth"
  | "checkout"
  | "payConfirm"
  | "payStatus"
  | "console"
  | "paywallVerify"
  | "paywallPay"
  | "merchant"
  | "consume"
  | "pages"
  | "linkStart"
  | "agent"
  | "device"
  | "listener"
  | "mcp"
  | "facilitator"
  | "public"

export interface Settings {
  mode: Mode
  host: string
  port: number
  /** Without a slash at the end. */
  baseUrl: string
  consoleOrigins: string[]
  /** The address of the console, without a slash at the end: `baseUrl`, or a host of its own. */
  consoleUrl: string
  trustedProxies: string[]
  dataDir: string
  /** Undefined for the embedded database in `dataDir`. */
  databaseUrl: string | undefined
  /** The maximum age of the last known backup, in milliseconds; 0 for any age. */
  backupMaxAgeMs: number
  /** Whether live mode also accepts the embedded database. */
  allowEmbeddedDb: boolean
  /**
   * A replica of `databaseUrl`, and how long a read waits for the replica to replay everything; undefined if there is
   * none.
   */
  replica: { url: string; maxLagMs: number } | undefined
  /** Undefined if requests are counted in each process's memory. */
  redisUrl: string | undefined
  sandboxPublic: boolean
  /**
   * The keys of secrets at rest: SECRET_KEY, and SECRET_KEY_OTHER if it is set. In the sandbox, the keys are empty
   * until it has created its own.
   */
  secretKeys: SecretKeys
  oidcIssuer: string
  oidcAudience: string
  /** The console as a client of the issuer; undefined if nobody signs in to the console there. */
  oidcClient: { id: string; secret: string | undefined } | undefined
  signup: "open" | "invite"
  /** How mail is sent; undefined if no mail is sent. */
  mail: MailSettings | undefined
  /** The source of currency rates; undefined if values are in US dollars. */
  rates: Rates | undefined
  ratesUrl: string
  /** How long the personal data in checkouts is kept, in milliseconds; undefined: until it is erased. */
  customerDataRetentionMs: number | undefined
  /** The first network is the default. */
  networks: NetworkSettings[]
  verifyIntervalMs: number
  /** In blocks. */
  maxScanLag: number
  sanctionsFile: string | undefined
  /** A decimal string in whole tokens, because each token has its own decimals. */
  minAmount: string
  /** Above this amount, in whole tokens, both endpoints must report a payment if a network has two. */
  quorumAbove: string
  /** Above this amount, in whole tokens, a payment's deposit is swept immediately. */
  sweepAbove: string
  /** The most that a payout pays for a unit of gas, in wei. */
  payoutMaxFee: bigint
  /** The most that a merchant's payouts may cost in 24 hours, in wei; 0: no limit. */
  gasBudget: bigint
  /** The most that the payouts and relays of all merchants may cost in 24 hours, in wei; 0: no limit. */
  gasBudgetTotal: bigint
  /** The most that relays of contract wallets may cost in 24 hours on each network, in wei; 0: no limit. */
  relayContractBudget: bigint
  /** Below this amount, in whole tokens, payouts get only a part of a merchant's gas budget. */
  smallPayout: string
  /** Signs for the payout wallet; undefined: no money moves out of deposits. */
  payoutSigner: Signer | undefined
  payoutWallet: Address | undefined
  /** Signs for the relay wallet; undefined: no authorization is relayed. */
  relaySigner: Signer | undefined
  relayWallet: Address | undefined
  /** Signs for the wallet that pays 0G for storage. */
  storageSigner?: Signer | undefined
  /** The files that hold keys and passwords, each with the setting that names it. */
  secretFiles: SecretFile[]
  /** Wallets of the service itself; a merchant's payout address can't be one of them. */
  serviceWallets: Address[]
  /** Requests a minute; 0 switches a bucket off. */
  limits: Record<Bucket, number>
  /** The port on which a process without the API answers probes; undefined: none. */
  healthPort: number | undefined
  /** How long a process continues to serve after it was told to stop. */
  drainMs: number
  /** How many long answers one merchant may receive at the same time. */
  maxDownloads: number
  metricsPort: number | undefined
  metricsHost: string
  metricsToken: string | undefined
  logLevel: string
  /** The receiver of traces; undefined if nothing is traced. */
  tracing: TracingSettings | undefined
  rpcPort: number
  webhooks: WebhookSettings
  /** How long a bundle's origin may take to start its answer, and between two parts of the answer. */
  originTimeoutMs: number
  receipts: ReceiptSettings
  /** How long before its period an invoice is created. */
  invoiceAheadMs: number
}

/** A file that holds a secret. */
export interface SecretFile {
  /** The setting that names it. */
  setting: string
  path: string
  /**
   * Whether the file's group may read it, because tools that pass secrets to containers and units use the group for
   * that.
   */
  isOfGroup?: boolean
}

/** How mail is sent. */
export interface MailSettings {
  /** The mail server, with its login. */
  url: string
  from: string
  /** The recipient of the service's alarms. */
  alarmsTo: string | undefined
}

/** How 0G is reached. */
export interface ZerogSettings {
  chainId: number
  rpcUrls: string[]
  /** The address of 0G's `Flow` contract. */
  flow: Address
  indexer: string
  /** The maximum fee of one file, in wei of 0G's chain. */
  maxFee: bigint
}

/** How receipts are kept. */
interface ReceiptSettings {
  /** 0G, where files are stored too; if undefined, they are stored only in `dataDir`. */
  zerog?: ZerogSettings | undefined
  /** How long an event waits for the transaction that stores its receipt on 0G. */
  waitMs?: number
  /** How long receipts are gathered for one file. */
  batchMs: number
  /** How often roots are written to the chain; undefined: never. */
  anchorMs: number | undefined
}

/** How events are delivered. */
export interface WebhookSettings {
  /** The deadline of a whole exchange, including the answer's body. */
  timeoutMs: number
  /** The deadline of the request that tests a URL when it is registered. */
  probeTimeoutMs: number
  /** Concurrent requests of each process to one endpoint, and to all. */
  concurrencyPerEndpoint: number
  concurrency: number
  /** Address ranges that are allowed as destinations although they are not public. */
  allowCidrs: string[]
  /** How long events and their attempts are kept. */
  retentionMs: number
}

/** A problem with the settings; `faults` has one line for each fault. */
export class SettingsError extends Error {
  readonly faults: string[]
  constructor(faults: string[]) {
    super(`The settings are not valid:\n${faults.map(fault => `  ${fault}`).join("\n")}`)
    this.name = "SettingsError"
    this.faults = faults
  }
}
