/**
 * Declares every setting once: its meaning, its parser, its default. The settings, `--help`, the startup errors and
 * `docs/operators/settings.md` are generated from this table.
 */
import { networkNames } from "../chain/network-facts.ts"
import { parseRemoteWallet } from "../chain/signers/remote-key.ts"
import { defaultDataDir } from "./data-dir.ts"
import { mailSettings } from "./mail-settings-table.ts"
import { rates } from "./rates-value.ts"
import { receiptSettings } from "./receipt-settings-table.ts"
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
  meaning: `requests per minute: ${meaning}. 0: no limit`,
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
      "1: the sandbox may listen on addresses other than loopback, and also serves its own routes at BASE_URL's host",
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
    meaning: "the addresses and CIDRs of proxies whose X-Forwarded-For is trusted, comma-separated",
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
      "a Postgres address. If it names several hosts (one,two:5433), the service uses one that accepts writes, and switches to another if that one is lost",
    otherwise: "an embedded database in DATA_DIR",
    live: "must be set, unless ALLOW_EMBEDDED_DB=1",
    parse: text,
  },
  DATABASE_REPLICA_URL: {
    meaning: "the address of one streaming replica of DATABASE_URL, for lists, files and payers' pages",
    otherwise: "everything is read from DATABASE_URL",
    parse: replicaUrl,
  },
  REPLICA_MAX_LAG: {
    meaning:
      "how many milliseconds a read waits for the replica to catch up with the primary. If the replica needs longer, the primary serves the read",
    fallback: "250",
    parse: whole(1, 10_000),
  },
  ALLOW_EMBEDDED_DB: { meaning: "1: live mode also accepts the embedded database", fallback: "0", parse: flag },
  BACKUP_MAX_AGE: {
    meaning:
      "how old the last backup (made by `sluice backup`, or recorded with `sluice backup --done`) may be before an alarm is raised; 0s: no alarm",
    otherwise: "none; in live mode 2d",
    parse: durationWithin(0, 366 * 86_400),
  },
  REDIS_URL: {
    meaning:
      "a Redis address through which several processes share the rate limits: redis://HOST:PORT, redis+sentinel://HOST:PORT,HOST:PORT/NAME or redis+cluster://HOST:PORT,HOST:PORT. For TLS, use rediss instead of redis",
    otherwise: "each process counts in its own memory",
    parse: redisUrl,
  },
  SECRET_KEY: {
    meaning: "32 random bytes in hexadecimal or base64, such as the output of `openssl rand -hex 32`",
    otherwise: "the sandbox's own; required elsewhere",
    live: "must be set, and random",
    parse: bytes32,
  },
  SECRET_KEY_OTHER: {
    meaning: "the next or the previous key while SECRET_KEY is being changed. It is used only to decrypt",
    parse: bytes32,
  },
  ...signInSettings,
  NETWORKS: {
    meaning: `the networks to serve: ${networkNames.join(", ")}. The first one listed is the default`,
    otherwise: "base-sepolia; in live mode base",
    live: "no test network",
    parse: listOf(oneOf(...networkNames)),
  },
  CONFIRMATIONS: {
    meaning: "how many blocks deep a payment must be, counting its own block",
    fallback: "3",
    live: "at least 3",
    parse: whole(1, 1_000),
  },
  VERIFY_INTERVAL: {
    meaning:
      "how often each network is scanned. Once a payment has enough confirmations, it is confirmed within this time plus a few seconds. docs/operators/settings.md says what the scan costs",
    otherwise: "5s; in the sandbox 2s",
    parse: duration,
  },
  MAX_SCAN_LAG: {
    meaning: "how many blocks a network's scan may lag behind the newest block before /readyz reports an alarm",
    fallback: "300",
    parse: whole(20, 1_000_000),
  },
  SANCTIONS_FILE: {
    meaning: "a file with sanctioned addresses (OFAC SDN format, or one address per line)",
    parse: text,
  },
  PAYOUT_WALLET: {
    meaning:
      "the address of the wallet that moves money out of deposits, for a process without that wallet's key (--role api)",
    otherwise: "the address of the key",
    parse: address,
  },
  PAYOUT_PRIVATE_KEY: {
    meaning: "the key of the wallet that moves money out of deposits",
    live: "this, PAYOUT_KEYSTORE or PAYOUT_SIGNER must be set, except with --role api; no well-known key",
    parse: privateKey,
  },
  PAYOUT_KEYSTORE: {
    meaning:
      "an encrypted file with that key, instead of the key itself (Web3 Secret Storage v3, as geth and foundry write it)",
    live: "no well-known key",
    parse: text,
  },
  PAYOUT_KEYSTORE_PASSWORD_FILE: {
    meaning: "a file with the keystore's password",
    live: "readable only by its owner",
    parse: text,
  },
  PAYOUT_SIGNER: {
    meaning:
      "the remote signer that holds that key instead, followed by the wallet's address: aws-kms:ARN/0x…, gcp-kms:projects/…/cryptoKeyVersions/1/0x… or web3signer:https://HOST:9000/0x…",
    live: "https, or a private address",
    parse: parseRemoteWallet,
  },
  RELAY_WALLET: {
    meaning: "the address of the wallet that relays buyers' authorizations, for a process without that wallet's key",
    otherwise: "the address of the key",
    parse: address,
  },
  RELAY_PRIVATE_KEY: {
    meaning: "the key of the wallet that relays buyers' authorizations",
    live: "this, RELAY_KEYSTORE or RELAY_SIGNER must be set, except with --role api; no well-known key, and not the payout wallet's",
    parse: privateKey,
  },
  RELAY_KEYSTORE: {
    meaning: "an encrypted file with that key, instead of the key itself",
    live: "no well-known key, and not the payout wallet's",
    parse: text,
  },
  RELAY_KEYSTORE_PASSWORD_FILE: {
    meaning: "a file with the keystore's password",
    live: "readable only by its owner",
    parse: text,
  },
  RELAY_SIGNER: {
    meaning: "the remote signer that holds that key instead, in the same form as PAYOUT_SIGNER",
    live: "https, or a private address; not the payout wallet's",
    parse: parseRemoteWallet,
  },
  KMS_ENDPOINT: {
    meaning: "the address of a private endpoint for the KMS in PAYOUT_SIGNER and RELAY_SIGNER",
    otherwise: "the provider's own",
    live: "https, or a private address",
    parse: apiUrl,
  },
  MIN_AMOUNT: { meaning: "the lowest price, in whole tokens", fallback: "0.01", parse: decimal },
  QUORUM_ABOVE: {
    meaning: "if a network has two RPC endpoints, both must report payments above this amount, in whole tokens",
    fallback: "100",
    parse: decimal,
  },
  WEBHOOK_TIMEOUT: {
    meaning: "how long a delivery may take, including the answer's body",
    fallback: "30s",
    parse: durationWithin(1, 300),
  },
  WEBHOOK_PROBE_TIMEOUT: {
    meaning: "how long the test request may take when a webhook is registered",
    fallback: "10s",
    parse: durationWithin(1, 60),
  },
  WEBHOOK_CONCURRENCY_PER_ENDPOINT: {
    meaning: "how many concurrent deliveries each process sends to one endpoint",
    fallback: "10",
    parse: whole(1, 1_000),
  },
  WEBHOOK_CONCURRENCY: {
    meaning: "how many concurrent deliveries each process sends in total",
    fallback: "500",
    parse: whole(1, 10_000),
  },
  WEBHOOK_ALLOW_CIDRS: {
    meaning:
      "the ranges of private addresses that webhooks may reach, comma-separated. Every merchant can send requests to these addresses",
    otherwise: "none; in the sandbox loopback",
    live: "no range that covers every address",
    parse: listOf(cidr),
  },
  WEBHOOK_RETENTION: {
    meaning: "how long events, their deliveries and their attempts are kept",
    fallback: "90d",
    parse: durationWithin(86_400, 36_500 * 86_400),
  },
  ...mailSettings,
  RATES: {
    meaning:
      "the source of the rates that convert amounts in lists and reports to a merchant's own currency: ecb (the euro reference rates of the European Central Bank), or fixed:EUR=1.08,GBP=1.27 (the value of one unit in US dollars). USDC=0.9998 gives a token a value other than one dollar",
    otherwise: "none: values are in US dollars",
    parse: rates,
  },
  RATES_URL: {
    meaning:
      "the address of the European Central Bank's file. If it can't be reached, import the file with `sluice rates import`",
    fallback: "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-hist-90d.xml",
    parse: httpUrl,
  },
  CUSTOMER_DATA_RETENTION: {
    meaning:
      "how long personal data in checkouts is kept before the service erases it, as POST /api/console/erasures does. Data that is still needed, such as an active subscription's, is kept longer",
    otherwise: "until a merchant erases it",
    parse: durationWithin(86_400, 36_500 * 86_400),
  },
  ...receiptSettings,
  INVOICE_AHEAD: {
    meaning: "how long before a subscription's next period the invoice is created; for short periods, half a period",
    fallback: "3d",
    parse: durationWithin(0, 30 * 86_400),
  },
  ORIGIN_TIMEOUT: {
    meaning:
      "how long a proxied API's origin may take to begin its answer, and how long the origin may pause within the answer. The whole answer may take ten times as long",
    fallback: "60s",
    parse: durationWithin(1, 600),
  },
  SWEEP_ABOVE: {
    meaning:
      "a merchant's balance in a deposit is swept immediately if it is above this amount, in whole tokens. Other balances are swept daily",
    fallback: "10",
    parse: decimal,
  },
  PAYOUT_MAX_FEE: {
    meaning:
      "the most that a payout pays per unit of gas, tip included, in gwei. While the network's price is higher, payouts wait",
    fallback: "20",
    parse: gwei,
  },
  GAS_BUDGET: {
    meaning:
      "how much ether one merchant's payouts may cost in 24 hours, on all networks together; 0: no limit. Payouts beyond this budget wait. Relays for the merchant's buyers may use half of the budget. A reservation counts twice, and a void does not count",
    otherwise: "0.02; in the sandbox 0",
    live: "either 0, or no less than the cost of one payout at PAYOUT_MAX_FEE",
    parse: ether,
  },
  GAS_BUDGET_TOTAL: {
    meaning:
      "how much ether the payouts and relays of all merchants together may cost in 24 hours; 0: no limit. Payouts beyond this budget wait, and relays are refused. Relays may use half of the budget. A reservation counts twice, and the void or first capture that ends it is then free",
    otherwise: "0; in live mode with SIGNUP=open 0.2",
    parse: ether,
  },
  RELAY_CONTRACT_BUDGET: {
    meaning:
      "how much ether the relays of contract wallets may cost in 24 hours on each network; 0: no limit. Relays beyond this budget are refused",
    otherwise: "0.005; in the sandbox 0",
    parse: ether,
  },
  SMALL_PAYOUT: {
    meaning:
      "an amount in whole tokens. Payouts below this amount, together with relays, may use at most three quarters of GAS_BUDGET, because strangers can cause many of both at little cost",
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
  LIMIT_CONSOLE: perMinute("/api/console/*, by token subject or API key", "60"),
  LIMIT_PAYWALL_VERIFY: perMinute("GET /api/paywalls/:id/verify, by IP", "30"),
  LIMIT_PAYWALL_PAY: perMinute("POST /api/paywalls/:id/pay, by IP", "10"),
  LIMIT_MERCHANT: perMinute("/api/checkouts/*, except POST /api/checkouts, by API key", "60"),
  LIMIT_CONSUME: perMinute("POST /api/paywalls/:id/consume, and GET /api/paywalls/:id/verify, by API key", "600"),
  LIMIT_PAGES: perMinute("the hosted pages and the console's pages together, without their assets, by IP", "600"),
  LIMIT_LINK_START: perMinute("checkouts started from payment links and paywalls, by IP", "30"),
  LIMIT_AGENT: perMinute("agents' purchases (/api/p/* and /api/agent/*), by IP", "120"),
  LIMIT_DEVICE: perMinute("sign-ins for programs that have no browser (/api/device*), by IP", "60"),
  LIMIT_LISTENER: perMinute("listeners' requests (/api/console/listeners/:id/*), by token subject or API key", "600"),
  LIMIT_MCP: perMinute(
    "requests from assistants (/mcp), by API key. Requests made by their tools count toward the usual limits",
    "120",
  ),
  LIMIT_FACILITATOR: perMinute("the facilitator (/x402/*), by API key", "600"),
  LIMIT_PUBLIC: perMinute(
    "all unauthenticated requests together, except those that LIMIT_PAGES, LIMIT_LINK_START, LIMIT_AGENT and LIMIT_DEVICE count, by IP",
    "30",
  ),
  MAX_DOWNLOADS: {
    meaning:
      "how many long lists and CSV files each process sends at the same time to one API key, or to one merchant's tokens. Further requests get 429",
    fallback: "10",
    parse: whole(1, 1_000),
  },
  HEALTH_PORT: {
    meaning:
      "the port on HOST where a process with --role worker answers /healthz, /readyz and, with METRICS_TOKEN, /metrics",
    otherwise: "none",
    parse: whole(1, 65_535),
  },
  DRAIN: {
    meaning:
      "how long a stopping process continues to serve while /readyz answers 503, so that load balancers stop sending it requests",
    otherwise: "0s; in live mode 5s",
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
      "fatal, error, warn, info, debug or trace. The signal SIGUSR2 switches a running process to debug and back",
    otherwise: "info; in the sandbox warn",
    parse: oneOf("fatal", "error", "warn", "info", "debug", "trace"),
  },
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    meaning:
      "an OpenTelemetry collector (OTLP over HTTP) that receives the traces, such as http://127.0.0.1:4318. The service appends /v1/traces",
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
    meaning:
      "extra attributes for every span, in the same form as the headers, such as deployment.environment.name=production",
    fallback: "",
    parse: pairs,
  },
  OTEL_TRACES_SAMPLER_ARG: {
    meaning: "the fraction of traces to record, from 0 to 1 (the sampler is parentbased_traceidratio)",
    fallback: "1",
    parse: ratio,
  },
  RPC_PORT: { meaning: "the port of the sandbox's chain", fallback: "8545", parse: whole(1, 65_535) },
} satisfies Record<string, Setting<unknown>>
