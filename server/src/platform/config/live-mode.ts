/**
 * The settings that live mode refuses to start with: they are fine for a sandbox or a test, but risk real money. Pure.
 * Each fault starts with the name of its setting, and none repeats a value that may be secret.
 */
import { type Hex, toHex } from "viem"
import { mnemonicToAccount, privateKeyToAddress } from "viem/accounts"
import { RELEASE_GAS } from "../chain/release-call.ts"
import { formatAmount } from "../money/amount.ts"
import { isPrivate } from "./private-url.ts"
import type { Settings } from "./settings.ts"

const MIN_CONFIRMATIONS = 3
const MIN_TOKEN_CHARACTERS = 16
/** In a random key, about 29 of the 31 steps from byte to byte differ. */
const MIN_DIFFERENT_STEPS = 16

const testNetworks: readonly string[] = ["base-sepolia"]

/** Whether something is wrong, and the fault to report if it is. */
type Rule = readonly [wrong: boolean, fault: string]

/** The settings that the wallets' keys came from, or should have come from. */
export interface KeySettings {
  payout: string
  relay: string
}

/**
 * Every reason why these settings can't be used in live mode; empty if they can. `keySettings` names the settings that
 * the wallets' keys came from.
 */
export function liveFaults(settings: Settings, keySettings: KeySettings): string[] {
  const { metricsToken, tracing, webhooks } = settings
  const rules: Rule[] = [
    [settings.sandboxPublic, "SANDBOX_PUBLIC must not be set: it opens the service to everyone"],
    [
      settings.databaseUrl === undefined && !settings.allowEmbeddedDb,
      "DATABASE_URL must be set: the embedded database serves one process; set ALLOW_EMBEDDED_DB=1 to use it anyway",
    ],
    ...secretKeyRules(settings),
    ...walletRules(settings, keySettings),
    ...publicAddressRules("BASE_URL", settings.baseUrl, "buyers and merchants reach it from the internet"),
    ...(settings.consoleUrl === settings.baseUrl
      ? []
      : publicAddressRules("CONSOLE_URL", settings.consoleUrl, "merchants reach it from the internet")),
    ...issuerRules(settings),
    [
      webhooks.allowCidrs.some(range => /\/0+$/.test(range)),
      "WEBHOOK_ALLOW_CIDRS must not open everything: any merchant could send requests into your network",
    ],
    [
      metricsToken !== undefined && metricsToken.length < MIN_TOKEN_CHARACTERS,
      `METRICS_TOKEN must have at least ${MIN_TOKEN_CHARACTERS} characters`,
    ],
    [
      tracing?.endpoint.startsWith("http:") === true && !isPrivate(tracing.endpoint),
      "OTEL_EXPORTER_OTLP_ENDPOINT must use https: only a collector on a private address may use http",
    ],
    ...networkRules(settings),
  ]
  return rules.filter(([wrong]) => wrong).map(([, fault]) => fault)
}

function secretKeyRules({ secretKeys: [secretKey], payoutWallet, relayWallet }: Settings): Rule[] {
  if (secretKey === undefined)
    return [[true, "SECRET_KEY must be set: 32 random bytes, as `openssl rand -hex 32` prints them"]]
  if (isGuessable(secretKey))
    return [[true, "SECRET_KEY is not random, so it can be guessed: use what `openssl rand -hex 32` prints"]]
  const wallet = walletOf(toHex(secretKey))
  return [
    [isDevelopmentWallet(wallet), "SECRET_KEY is a well-known development key"],
    [
      wallet !== undefined && (wallet === payoutWallet || wallet === relayWallet),
      "SECRET_KEY must not be a wallet's key: keep the two in different places",
    ],
  ]
}

function walletRules({ payoutWallet, relayWallet, gasBudget, payoutMaxFee }: Settings, names: KeySettings): Rule[] {
  const keyRules = (name: string, wallet: string | undefined, task: string): Rule[] => [
    [
      wallet === undefined,
      `${name} must be set, or ${name.replace("PRIVATE_KEY", "KEYSTORE")} or ${name.replace("PRIVATE_KEY", "SIGNER")}: this wallet ${task}. With --role api the address is enough: ${name.replace("PRIVATE_KEY", "WALLET")}`,
    ],
    [
      wallet !== undefined && isDevelopmentWallet(wallet),
      `${name} is a well-known development key: anyone can take what the wallet holds`,
    ],
  ]
  const least = RELEASE_GAS * payoutMaxFee
  return [
    ...keyRules(names.payout, payoutWallet, "moves money out of deposits"),
    ...keyRules(names.relay, relayWallet, "relays buyers' authorizations"),
    [
      payoutWallet !== undefined && payoutWallet === relayWallet,
      `${names.relay} must differ from ${names.payout}: two senders with one wallet would use the same nonces`,
    ],
    [
      gasBudget > 0n && gasBudget < least,
      `GAS_BUDGET must be 0 or at least ${formatAmount(least, 18)}, what one payout may cost at PAYOUT_MAX_FEE`,
    ],
  ]
}

function issuerRules({ oidcIssuer }: Settings): Rule[] {
  if (oidcIssuer === "") return []
  return [
    ...publicAddressRules("OIDC_ISSUER", oidcIssuer, "merchants sign in there from the internet"),
    [
      `${new URL(oidcIssuer).pathname}/`.includes("/sandbox/"),
      "OIDC_ISSUER is a sandbox's identity provider, which issues tokens to anyone",
    ],
  ]
}

function networkRules({ networks }: Settings): Rule[] {
  return [
    ...networks.flatMap(({ name, rpcUrls }): Rule[] => [
      [testNetworks.includes(name), `NETWORKS must not name ${name}, a test network: its tokens are worthless`],
      [
        rpcUrls.some(url => url.startsWith("http:") && !isPrivate(url)),
        `RPC_${name.toUpperCase().replaceAll("-", "_")} must use https: only a node on a private address may use http`,
      ],
    ]),
    [
      networks.some(({ confirmations }) => confirmations < MIN_CONFIRMATIONS),
      `CONFIRMATIONS must be at least ${MIN_CONFIRMATIONS}: reorgs remove blocks that are less deep`,
    ],
  ]
}

/**
 * Warnings, logged at startup, about missing protections in live mode. A worker needs no warning about rate limits,
 * because it has none to share.
 */
export function liveWarnings({ sanctionsFile, networks, redisUrl }: Settings, role: string): string[] {
  const screened = sanctionsFile !== undefined || networks.some(({ sanctionsOracle }) => sanctionsOracle !== undefined)
  return [
    ...(screened ? [] : ["No buyer is screened: SANCTIONS_FILE is not set, and no network has a sanctions oracle"]),
    ...(redisUrl === undefined && role !== "worker"
      ? ["Rate limits are not shared: without REDIS_URL each process applies the full limits on its own"]
      : []),
  ]
}

function publicAddressRules(name: string, url: string, why: string): Rule[] {
  return [
    [!url.startsWith("https://"), `${name} must be an https address`],
    [isPrivate(url), `${name} must not be a private or loopback address: ${why}`],
  ]
}

/**
 * Whether a key looks as if it was repeated, counted up or typed. One in 10^13 random keys of 32 bytes consists only of
 * visible characters.
 */
function isGuessable(key: Uint8Array): boolean {
  const steps = key.slice(1).map((byte, i) => byte - (key[i] ?? 0))
  return new Set(steps).size < MIN_DIFFERENT_STEPS || key.every(byte => byte >= 0x20 && byte < 0x7f)
}

/** The wallet of a key; undefined if the key is invalid. The library's own error would repeat the key. */
function walletOf(key: Hex): string | undefined {
  try {
    return privateKeyToAddress(key).toLowerCase()
  } catch {
    return undefined
  }
}

/** Whether the key of this wallet is public, because it comes from a development tool. */
export const isDevelopmentWallet = (wallet: string | undefined): boolean => developmentWallets().has(wallet)

let known: Set<string | undefined> | undefined

/** Wallets whose keys are public: those of anvil and Hardhat, of the first numbers, and of one byte repeated. */
function developmentWallets(): ReadonlySet<string | undefined> {
  known ??= new Set([
    ...Array.from({ length: 20 }, (_, addressIndex) =>
      mnemonicToAccount("test test test test test test test test test test test junk", {
        addressIndex,
      }).address.toLowerCase(),
    ),
    ...Array.from({ length: 20 }, (_, i) => walletOf(toHex(i + 1, { size: 32 }))),
    ...Array.from({ length: 254 }, (_, i) => walletOf(toHex(new Uint8Array(32).fill(i + 1)))),
  ])
  return known
}
