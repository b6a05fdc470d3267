/**
 * Declares every setting once: its meaning, its parser, its default. The settings, `--help`, the start-up errors and
 * `docs/operators/settings.md` are generated from it.
 */
import { networkNames } from "../chain/network-facts.ts"
import { parseRemoteWallet } from "../chain/signers/remote-key.ts"
import { defaultDataDir } from "./data-dir.ts"
import { mailSettings } from "./mail-settings-table.ts"
import { rates } from "./rates-value.ts"
import type { Setting } from "./setting.ts"
import {
  address,
  apiUrl,
  bytes32,
  cidr,
  decimal,
  duration,
  durationWithin,
  ether,
  flag,
  gwei,
  httpUrl,
  listOf,
  offOrDuration,
  oneOf,
  privateKey,
  proxies,
  redisUrl,
  replicaUrl,
  text,
  whole,
} from "./setting-values.ts"
import { signInSettings } from "./sign-in-settings-table.ts"
import { collectorUrl, pairs, ratio } from "./tracing-values.ts"

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
    meaning:
      "1: the sandbox may listen on addresses other than loopback, and its own routes also answer at BASE_URL's host",
    fallback: "0",
    live: "must not be set",
    parse: flag,
  },
  PORT: { meaning: "the port to listen on", fallback: "4000", parse: whole(1, 65_535) },
  BASE_URL: {
    meaning: "the address at which callers reach the service",
    otherwise: "http://HOST:PORT",
    live: "must be set; https, and not a private address",
    parse: httpUrl,
  },
  TRUSTED_PROXIES: {
    meaning: "addresses and CIDRs of proxies whose X-Forwarded-For is believed, comma-separated",
    fallback: "",
    parse: listOf(proxies),
  },
  DATA_DIR: {
    meaning: "where the embedded database and the sandbox keep their files",
    fallback: defaultDataDir,
    parse: text,
  },
  DATABASE_URL: {
    meaning:
      "a Postgres address; with several hosts (one,two:5433) whichever takes writes is used, and the next when it is lost",
    otherwise: "an embedded database in DATA_DIR",
    live: "must be set, unless ALLOW_EMBEDDED_DB=1",
    parse: text,
  },
  DATABASE_REPLICA_URL: {
    meaning: "the address of one streaming replica of DATABASE_URL, for lists, files and what payers see",
    otherwise: "everything is read from DATABASE_URL",
    parse: replicaUrl,
  },
  REPLICA_MAX_LAG: {
    meaning:
      "milliseconds that a read waits for the replica to have all that the primary has; a replica that takes longer is left out",
    fallback: "250",
    parse: whole(1, 10_000),
  },
  ALLOW_EMBEDDED_DB: { meaning: "1: live mode accepts the embedded database too", fallback: "0", parse: flag },
  BACKUP_MAX_AGE: {
    meaning:
      "how old the last backup may be that `sluice backup` made or, with `--done`, noted, before that is an alarm; 0s: no alarm",
    otherwise: "none, in live mode 2d",
    parse: durationWithin(0, 366 * 86_400),
  },
  REDIS_URL: {
    meaning:
      "a Redis address, through which several processes share the rate limits: redis://HOST:PORT, redis+sentinel://HOST:PORT,HOST:PORT/NAME or redis+cluster://HOST:PORT,HOST:PORT; rediss… with TLS",
    otherwise: "each process counts in its own memory",
    parse: redisUrl,
  },
  SECRET_KEY: {
    meaning: "32 random bytes in hexadecimal or base64, such as `openssl rand -hex 32` prints",
    otherwise: "the sandbox's own; needed elsewhere",
    live: "must be set, and random",
    parse: bytes32,
  },
  SECRET_KEY_OTHER: {
    meaning:
      "while SECRET_KEY is changed, the key that comes, or the one before: it decrypts too, and encrypts nothing",
    parse: bytes32,
  },
  ...signInSettings,
  NETWORKS: {
    meaning: `the networks to serve, the first is the default: ${networkNames.join(", ")}`,
    otherwise: "base-sepolia, in live mode base",
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
    meaning:
      "how often each network is scanned: how much later than its confirmations a payment is confirmed at most, some seconds for the work apart. What it costs is below",
    otherwise: "5s, in the sandbox 2s",
    parse: duration,
  },
  MAX_SCAN_LAG: {
    meaning: "how many blocks the scan of a network may be behind its head; beyond it, /readyz has an alarm",
    fallback: "300",
    parse: whole(20, 1_000_000),
  },
  SANCTIONS_FILE: { meaning: "a list of sanctioned addresses (OFAC SDN format or one a line)", parse: text },
  PAYOUT_WALLET: {
    meaning:
      "the address of the wallet that moves money out of deposits, for a process that has not its key (--role api)",
    otherwise: "that of the key",
    parse: address,
  },
  PAYOUT_PRIVATE_KEY: {
    meaning: "the key of the wallet that moves money out of deposits",
    live: "this, PAYOUT_KEYSTORE or PAYOUT_SIGNER must be set, but for --role api; no well-known key",
    parse: privateKey,
  },
  PAYOUT_KEYSTORE: {
    meaning:
      "a file with that key, encrypted (Web3 Secret Storage v3, as geth and foundry write it), instead of the key itself",
    live: "no well-known key",
    parse: text,
  },
  PAYOUT_KEYSTORE_PASSWORD_FILE: {
    meaning: "a file with the password of that file",
    live: "only its owner can read it",
    parse: text,
  },
  PAYOUT_SIGNER: {
    meaning:
      "where that key is kept instead, with the wallet's address: aws-kms:ARN/0x…, gcp-kms:projects/…/cryptoKeyVersions/1/0x… or web3signer:https://HOST:9000/0x…",
    live: "https, or a private address",
    parse: parseRemoteWallet,
  },
  RELAY_WALLET: {
    meaning: "the address of the wallet that relays buyers' authorizations, in the same way",
    otherwise: "that of the key",
    parse: address,
  },
  RELAY_PRIVATE_KEY: {
    meaning: "the key of the wallet that relays buyers' authorizations",
    live: "this, RELAY_KEYSTORE or RELAY_SIGNER must be set, but for --role api; no well-known key, not the payout wallet's",
    parse: privateKey,
  },
  RELAY_KEYSTORE: {
    meaning: "a file with that key, encrypted, instead of the key itself",
    live: "no well-known key, not the payout wallet's",
    parse: text,
  },
  RELAY_KEYSTORE_PASSWORD_FILE: {
    meaning: "a file with the password of that file",
    live: "only its owner can read it",
    parse: text,
  },
  RELAY_SIGNER: {
    meaning: "where that key is kept instead, in the same form as PAYOUT_SIGNER",
    live: "https, or a private address; not the payout wallet's",
    parse: parseRemoteWallet,
  },
  KMS_ENDPOINT: {
    meaning: "the address of the KMS's API in PAYOUT_SIGNER and RELAY_SIGNER, where it is a private endpoint",
    otherwise: "the provider's own",
    live: "https, or a private address",
    parse: apiUrl,
  },
  MIN_AMOUNT: { meaning: "the lowest price, in whole tokens", fallback: "0.01", parse: decimal },
  QUORUM_ABOVE: {
    meaning: "payments above this, in whole tokens, need both RPC endpoints where a network has two",
    fallback: "100",
    parse: decimal,
  },
  WEBHOOK_TIMEOUT: {
    meaning: "how long a delivery may take, including the answer's body",
    fallback: "30s",
    parse: durationWithin(1, 300),
  },
  WEBHOOK_PROBE_TIMEOUT: {
    meaning: "the same for the request that tries an address when a webhook is registered",
    fallback: "10s",
    parse: durationWithin(1, 60),
  },
  WEBHOOK_CONCURRENCY_PER_ENDPOINT: {
    meaning: "concurrent deliveries to one endpoint, of each process",
    fallback: "10",
    parse: whole(1, 1_000),
  },
  WEBHOOK_CONCURRENCY: {
    meaning: "concurrent deliveries in all, of each process",
    fallback: "500",
    parse: whole(1, 10_000),
  },
  WEBHOOK_ALLOW_CIDRS: {
    meaning:
      "ranges of private addresses that webhooks may reach, comma-separated: every merchant can send requests there",
    otherwise: "none, in the sandbox loopback",
    live: "not everything",
    parse: listOf(cidr),
  },
  WEBHOOK_RETENTION: {
    meaning: "how long events, their deliveries and attempts are kept",
    fallback: "90d",
    parse: durationWithin(86_400, 36_500 * 86_400),
  },
  ...mailSettings,
  RATES: {
    meaning:
      "where the rates come from by which lists and reports show the value of money in a merchant's own currency: ecb, the euro reference rates of the European Central Bank, or fixed:EUR=1.08,GBP=1.27, what one unit is worth in US dollars; USDC=0.9998 counts a token otherwise than at par",
    otherwise: "none: values are in US dollars",
    parse: rates,
  },
  RATES_URL: {
    meaning:
      "where the file of the European Central Bank is read; `sluice rates import` reads one where this can't be reached",
    fallback: "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-hist-90d.xml",
    parse: httpUrl,
  },
  CUSTOMER_DATA_RETENTION: {
    meaning:
      "how long the personal data in checkouts is kept, after which it is erased as with POST /api/console/erasures; what is still needed, such as that of an active subscription, is kept longer",
    otherwise: "until it is erased",
    parse: durationWithin(86_400, 36_500 * 86_400),
  },
  RECEIPT_BATCH: {
    meaning: "how long receipts are gathered before they are signed together and stored as one file",
    fallback: "5s",
    parse: durationWithin(1, 3_600),
  },
  RECEIPT_ANCHOR: {
    meaning:
      "how often the roots of these files are written to the chain of their payments, such as 1h, by the payout wallet and with `sluice deploy --contract receipt-anchor`; off: never, and nobody can verify a receipt without asking this service",
    fallback: "off",
    parse: offOrDuration(1, 30 * 86_400),
  },
  INVOICE_AHEAD: {
    meaning: "how long before a subscription's next period its invoice is made; of short periods, half a period",
    fallback: "3d",
    parse: durationWithin(0, 30 * 86_400),
  },
  ORIGIN_TIMEOUT: {
    meaning:
      "how long the origin of a proxied API may take to begin its answer, and between two parts of it; a slow answer has ten times as long in all",
    fallback: "60s",
    parse: durationWithin(1, 600),
  },
  SWEEP_ABOVE: {
    meaning: "a deposit's balance for its merchant is swept at once above this, in whole tokens; else daily",
    fallback: "10",
    parse: decimal,
  },
  PAYOUT_MAX_FEE: {
    meaning: "the most a payout pays per unit of gas, tip included, in gwei; while the network asks more, payouts wait",
    fallback: "20",
    parse: gwei,
  },
  GAS_BUDGET: {
    meaning:
      "ether that one merchant's payouts may cost in 24 hours, on all networks together; 0: no limit. Payouts beyond it wait. Relays for its buyers may use half of it; a reservation counts twice, a void not at all",
    otherwise: "0.02, in the sandbox 0",
    live: "0, or what one payout may cost at PAYOUT_MAX_FEE",
    parse: ether,
  },
  GAS_BUDGET_TOTAL: {
    meaning:
      "ether that the payouts and relays of all merchants together may cost in 24 hours; 0: no limit. Payouts beyond it wait, and relays are refused. Relays may use half of it. A reservation counts twice; the void or first capture that ends it is then free",
    otherwise: "0; in live mode with SIGNUP=open 0.2",
    parse: ether,
  },
  RELAY_CONTRACT_BUDGET: {
    meaning:
      "ether that relays of contract wallets may cost in 24 hours on each network; 0: no limit. More are refused",
    otherwise: "0.005, in the sandbox 0",
    parse: ether,
  },
  SMALL_PAYOUT: {
    meaning:
      "payouts below this, in whole tokens, and relays get at most three quarters of GAS_BUDGET, because strangers can cause many at little cost",
    fallback: "0.10",
    parse: decimal,
  },
  LIMIT_AUTH: perMinute("POST /api/auth/* and /api/console/session together, by IP", "5"),
  LIMIT_CHECKOUT: perMinute("POST /api/checkouts, by API key", "10"),
  LIMIT_PAY_CONFIRM: perMinute(
    "POST /api/pay/confirm, /api/pay/authorize and /api/pay/payer-info together, by IP",
    "10",
  ),
  LIMIT_PAY_STATUS: perMinute("GET /api/pay/status/:id, by IP", "30"),
  LIMIT_CONSOLE: perMinute("/api/console/*, by token subject", "60"),
  LIMIT_PAYWALL_VERIFY: perMinute("GET /api/paywalls/:id/verify, by IP", "30"),
  LIMIT_PAYWALL_PAY: perMinute("POST /api/paywalls/:id/pay, by IP", "10"),
  LIMIT_MERCHANT: perMinute("merchant routes without a limit of their own, by API key", "60"),
  LIMIT_CONSUME: perMinute("POST /api/paywalls/:id/consume and verify with an API key, by API key", "600"),
  LIMIT_PAGES: perMinute("the hosted pages together, with their parts, by IP", "600"),
  LIMIT_LINK_START: perMinute("checkouts started from payment links and paywalls, by IP", "30"),
  LIMIT_AGENT: perMinute("what agents buy (/api/p/* and /api/agent/*), by IP", "120"),
  LIMIT_DEVICE: perMinute("sign-ins of programs without a browser (/api/device*), by IP", "60"),
  LIMIT_LISTENER: perMinute("what pulls the deliveries of a listener and reports their results, by API key", "600"),
  LIMIT_MCP: perMinute("requests of assistants (/mcp), by API key; what their tools ask counts as any request", "120"),
  LIMIT_FACILITATOR: perMinute("the facilitator (/x402/*), by API key", "600"),
  LIMIT_PUBLIC: perMinute("all unauthenticated requests together, by IP", "30"),
  MAX_DOWNLOADS: {
    meaning:
      "how many long lists and CSV files each process sends to one API key, or to the tokens of one merchant, at the same time; more are answered 429",
    fallback: "10",
    parse: whole(1, 1_000),
  },
  HEALTH_PORT: {
    meaning:
      "the port on HOST where a process with --role worker answers /healthz, /readyz and, by METRICS_TOKEN, /metrics",
    otherwise: "none",
    parse: whole(1, 65_535),
  },
  DRAIN: {
    meaning:
      "how long a stopping process continues to serve while /readyz answers 503, so that no new request is sent to it",
    otherwise: "0s, in live mode 5s",
    parse: durationWithin(0, 300),
  },
  METRICS_PORT: { meaning: "a port on METRICS_HOST that serves /metrics to anyone", parse: whole(1, 65_535) },
  METRICS_HOST: { meaning: "the address that METRICS_PORT listens on", fallback: "127.0.0.1", parse: text },
  METRICS_TOKEN: {
    meaning: "the bearer token for /metrics on PORT",
    live: "at least 16 characters",
    parse: text,
  },
  LOG_LEVEL: {
    meaning:
      "fatal, error, warn, info, debug or trace; the signal SIGUSR2 switches a running process to debug, and back",
    otherwise: "info, in the sandbox warn",
    parse: oneOf("fatal", "error", "warn", "info", "debug", "trace"),
  },
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    meaning:
      "an OpenTelemetry collector (OTLP over HTTP) that traces are sent to, such as http://127.0.0.1:4318; /v1/traces is added",
    otherwise: "none, and nothing is traced",
    live: "https, or a private address",
    parse: collectorUrl,
  },
  OTEL_EXPORTER_OTLP_PROTOCOL: {
    meaning: "how traces are encoded: http/protobuf or http/json",
    fallback: "http/protobuf",
    parse: oneOf("http/protobuf", "http/json"),
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    meaning:
      "headers for the collector, such as a token: key=value pairs, comma-separated, with percent-encoded values",
    fallback: "",
    parse: pairs,
  },
  OTEL_SERVICE_NAME: { meaning: "the name of this service in traces", otherwise: "sluice", parse: text },
  OTEL_RESOURCE_ATTRIBUTES: {
    meaning: "extra attributes for every span, such as deployment.environment.name=production, in the same form",
    fallback: "",
    parse: pairs,
  },
  OTEL_TRACES_SAMPLER_ARG: {
    meaning: "the part of all traces that is recorded, from 0 to 1 (the sampler is parentbased_traceidratio)",
    fallback: "1",
    parse: ratio,
  },
  RPC_PORT: { meaning: "the port of the sandbox's chain", fallback: "8545", parse: whole(1, 65_535) },
} satisfies Record<string, Setting<unknown>>
