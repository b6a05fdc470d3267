/**
 * The sandbox: everything that Sluice needs around it, real and local. It consists of a chain with a token and the
 * deposit factory, an identity provider, two merchants, and five funded buyers. Every step first checks what exists,
 * and does only what is missing. So a start after a kill at any moment completes the previous start.
 */
import { rmSync } from "node:fs"
import { join } from "node:path"
import type { JWK } from "jose"
import type { Logger } from "pino"
import { parseUnits } from "viem"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { keptOf, newApiKey } from "../../account/identity/manage-api-keys.ts"
import { accountSecret } from "../../account/webhooks/manage-secrets.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { localSigner } from "../../platform/chain/signer.ts"
import { readJsonIfThere, writeFileAtomic } from "../../platform/config/data-dir.ts"
import type { Settings } from "../../platform/config/settings.ts"
import type { Context } from "../../platform/context.ts"
import type { Server } from "../../platform/http/server.ts"
import { newId } from "../../platform/ids.ts"
import { type ChainClient, walletOn } from "./chain-client.ts"
import { type Contracts, deployContracts, GAS_MONEY } from "./contracts.ts"
import { identityProvider, newSigningKey, requestToken } from "./identity-provider.ts"
import { type LocalChain, startLocalChain } from "./local-chain.ts"
import { sandboxPageRoutes } from "./page-routes.ts"
import { refuseForeign } from "./refuse-foreign.ts"
import { sandboxRoutes } from "./routes.ts"

const CHAIN_ID = 84532
const NETWORK = "base-sepolia"
const BUYERS = 5
const BUYER_FUNDS = parseUnits("10000", 6)
/** How long a submitted hash counts as work. A hash that nobody sent must not make the chain produce blocks forever. */
const BUSY_MS = 60_000

type Hex = `0x${string}`
type PrivateKey = Hex
type Buyer = { address: string; privateKey: PrivateKey }

/** Values that stay the same for the life of a sandbox and are never shown. */
interface Keys {
  deployer: PrivateKey
  payout: PrivateKey
  relay: PrivateKey
  /** The key of the guardian, who may pause the factory's releases and name another operator. */
  guardian: PrivateKey
  signing: JWK
  /** In hexadecimal; used as SECRET_KEY. */
  secretKey: string
  merchants: { id: string; name: string; secret: string; payoutKey: PrivateKey }[]
}

export interface Sandbox {
  settings: Settings
  now: () => Date
  /** Adds the sandbox's routes and identity provider to the server, and the merchants to the database. */
  extend(app: Server, ctx: Context): Promise<void>
  /** Writes sandbox.json and prints all addresses. The API must already be listening. */
  announce(ctx: Context): Promise<void>
}

/** Starts everything around the service, in `DATA_DIR`. `fail` is called if the chain stops unexpectedly. */
export async function startSandbox(
  given: Settings,
  log: Logger,
  options: { reset: boolean; cleanups: (() => Promise<unknown> | unknown)[]; fail: (error: Error) => void },
): Promise<Sandbox> {
  const dir = given.dataDir
  const at = (name: string) => join(dir, name)
  if (options.reset)
    for (const name of ["db", "db.unfinished", "chain", "keys.json", "clock.json", "inbox.jsonl", "sandbox.json"])
      rmSync(at(name), { recursive: true, force: true })

  const keys = await ownKeys(at("keys.json"))
  const clock = { offsetMs: 0, ...(readJsonIfThere(at("clock.json")) as { offsetMs: number } | undefined) }
  const now = () => new Date(Date.now() + clock.offsetMs)
  let waiting = async () => false
  const chain = await startLocalChain({
    dir: at("chain"),
    port: given.rpcPort,
    chainId: CHAIN_ID,
    timeOffsetSeconds: Math.round(clock.offsetMs / 1_000),
    busy: () => waiting(),
    log,
  })
  options.cleanups.push(() => chain.stop())
  chain.exited.then(
    () => options.fail(new Error("The local chain stopped unexpectedly; start the sandbox again.")),
    () => {},
  )
  const deployer = privateKeyToAccount(keys.deployer)
  const buyers = buyersOf(at("sandbox.json"))
  const apiKeys = apiKeysOf(at("sandbox.json"), keys)
  const wallet = walletOn(chain.rpcUrl)
  const [payout, relay] = [keys.payout, keys.relay].map(key => privateKeyToAccount(key).address) as [Hex, Hex]
  const { address: guardian } = privateKeyToAccount(keys.guardian)
  const contracts = await deployContracts(wallet, deployer, { guardian, operator: payout, relay })
  const payoutAddresses = keys.merchants.map(({ payoutKey }) => privateKeyToAccount(payoutKey).address)
  await fund(wallet, deployer, contracts.token, [payout, relay, ...payoutAddresses], buyers)
  await chain.save()

  const settings = sandboxSettings(given, keys, contracts, chain.rpcUrl)
  return {
    settings,
    now,
    extend: async (app, ctx) => {
      waiting = () => somethingWaits(ctx)
      await seedMerchants(ctx, keys, settings.oidcIssuer)
      await seedApiKeys(ctx, apiKeys)
      const advance = (ms: number) => moveClock(ctx, chain, at("clock.json"), clock, ms)
      await app.register(async routes => {
        routes.addHook("onRequest", refuseForeign(settings))
        const { merchants } = keys
        await routes.register(identityProvider, {
          issuer: settings.oidcIssuer,
          audience: settings.oidcAudience,
          jwks: { keys: [keys.signing] },
          clients: merchants.map(({ id, secret }) => ({ clientId: id, clientSecret: secret })),
        })
        const parts = { ctx, chain, wallet, deployer, buyers, merchants, advance, inboxFile: at("inbox.jsonl") }
        sandboxRoutes(routes, parts)
        sandboxPageRoutes(routes, { ctx, merchants, buyers, rpcUrl: chain.rpcUrl, file: at("sandbox.json") })
      })
    },
    announce: async ctx => {
      const file = await sandboxFile(ctx, { keys, apiKeys, buyers, contracts, rpcUrl: chain.rpcUrl })
      await writeFileAtomic(at("sandbox.json"), `${JSON.stringify(file, null, 2)}\n`, 0o600)
      const accessToken = file.merchants[0]?.accessToken ?? ""
      process.stdout.write(welcome(settings.baseUrl, chain.rpcUrl, at("sandbox.json"), accessToken))
    },
  }
}

/** The settings of the service in this sandbox: its own chain, contracts, wallets and identity provider. */
function sandboxSettings(given: Settings, keys: Keys, contracts: Contracts, rpcUrl: string): Settings {
  const payoutSigner = localSigner(keys.payout)
  const relaySigner = localSigner(keys.relay)
  return {
    ...given,
    oidcIssuer: `http://${given.host.includes(":") ? `[${given.host}]` : given.host}:${given.port}/sandbox/oidc`,
    // The sandbox's provider has no sign-in page; the console has a button for each merchant.
    oidcClient: undefined,
    secretKeys: given.secretKeys.length > 0 ? given.secretKeys : [Buffer.from(keys.secretKey, "hex")],
    payoutSigner,
    relaySigner,
    payoutWallet: payoutSigner.address,
    relayWallet: relaySigner.address,
    serviceWallets: [payoutSigner, relaySigner, given.storageSigner].flatMap(signer => signer?.address ?? []),
    networks: [
      {
        name: NETWORK,
        chainId: CHAIN_ID,
        rpcUrls: [rpcUrl],
        token: contracts.token,
        confirmations: given.networks[0]?.confirmations ?? 3,
        depositFactory: contracts.depositFactory,
        escrow: contracts.escrow,
        sanctionsOracle: contracts.sanctionsOracle,
      },
    ],
  }
}

/**
 * The contents of sandbox.json: everything that a developer needs, with the tokens and keys of everyone in the sandbox.
 */
async function sandboxFile(ctx: Context, parts: Described) {
  const { keys, apiKeys, buyers, contracts, rpcUrl } = parts
  const { escrow } = contracts
  const { baseUrl, oidcIssuer, oidcAudience } = ctx.settings
  const token = ctx.chain.networks[0]?.token
  const merchants = await Promise.all(
    keys.merchants.map(async ({ id, name, secret, payoutKey }) => ({
      id,
      name,
      payoutAddress: privateKeyToAccount(payoutKey).address,
      accessToken: await requestToken(oidcIssuer, oidcAudience, { clientId: id, clientSecret: secret }),
      apiKey: apiKeys.get(id) ?? null,
      webhookSecret: await accountSecret(ctx, id),
    })),
  )
  return {
    baseUrl,
    rpcUrl,
    chain: NETWORK,
    chainId: CHAIN_ID,
    pid: process.pid,
    token: token && { ...token, address: checksummed(token.address) },
    merchants,
    buyers,
    wallets: { payout: privateKeyToAccount(keys.payout).address, relay: privateKeyToAccount(keys.relay).address },
    depositFactory: checksummed(contracts.depositFactory),
    escrow: {
      address: checksummed(escrow.address),
      version: escrow.version,
      collector: checksummed(escrow.collector),
      refundCollector: checksummed(escrow.refundCollector),
    },
  }
}

interface Described {
  keys: Keys
  apiKeys: Map<string, string>
  buyers: Buyer[]
  contracts: Contracts
  rpcUrl: string
}

type Account = ReturnType<typeof privateKeyToAccount>

async function ownKeys(path: string): Promise<Keys> {
  const known = readJsonIfThere(path) as Keys | undefined
  if (known?.secretKey && known.guardian) return known
  const merchant = (name: string) => ({
    id: newId("mer"),
    name,
    secret: generatePrivateKey().slice(2),
    payoutKey: generatePrivateKey(),
  })
  const keys: Keys = {
    deployer: generatePrivateKey(),
    payout: generatePrivateKey(),
    relay: generatePrivateKey(),
    guardian: generatePrivateKey(),
    signing: await newSigningKey(),
    secretKey: generatePrivateKey().slice(2),
    merchants: [merchant("Blue Bottle Books"), merchant("Harbour Radio")],
    // A sandbox from an older version keeps its existing keys.
    ...known,
  }
  await writeFileAtomic(path, JSON.stringify(keys), 0o600)
  return keys
}

/** The buyers from the last start, or new ones if the file no longer exists. */
function buyersOf(path: string): Buyer[] {
  const before = readJsonIfThere(path) as { buyers?: Buyer[] } | undefined
  if (before?.buyers?.length === BUYERS) return before.buyers
  return Array.from({ length: BUYERS }, () => {
    const privateKey = generatePrivateKey()
    return { address: privateKeyToAccount(privateKey).address, privateKey }
  })
}

/** The API key of each merchant: the one from the last start, or a new one if the file no longer exists. */
function apiKeysOf(path: string, { merchants }: Keys): Map<string, string> {
  const before = readJsonIfThere(path) as { merchants?: { id: string; apiKey?: string | null }[] } | undefined
  const known = new Map(before?.merchants?.map(merchant => [merchant.id, merchant.apiKey]))
  return new Map(merchants.map(({ id }) => [id, known.get(id) ?? newApiKey("sandbox")]))
}

/** Gives gas to every account that has none, and tokens to buyers who never had any. */
async function fund(
  wallet: ChainClient,
  deployer: Account,
  token: Address,
  wallets: string[],
  buyersToFund: Buyer[],
): Promise<void> {
  const buyers = buyersToFund.map(({ address }) => address)
  for (const address of [...wallets, ...buyers] as Address[])
    if ((await wallet.getBalance({ address })) === 0n) await wallet.setBalance({ address, value: GAS_MONEY })
  for (const buyer of buyers as Address[]) {
    const read = { address: token, abi: testUsdcAbi, functionName: "balanceOf", args: [buyer] } as const
    const isNew =
      (await wallet.getTransactionCount({ address: buyer })) === 0 && (await wallet.readContract(read)) === 0n
    if (!isNew) continue
    const mint = { address: token, abi: testUsdcAbi, functionName: "mint", args: [buyer, BUYER_FUNDS] } as const
    const hash = await wallet.writeContract({ ...mint, account: deployer, chain: null })
    await wallet.waitForTransactionReceipt({ hash })
  }
}

/** Inserts the merchants and their owners. Their ids stay the same, but the issuer's address changes with the port. */
async function seedMerchants(ctx: Context, keys: Keys, issuer: string): Promise<void> {
  for (const { id, name, payoutKey } of keys.merchants) {
    await ctx.db
      .insertInto("merchants")
      .values({ id, name, email: null, created_at: ctx.now() })
      .onConflict(conflict => conflict.doNothing())
      .execute()
    const person = id.replace(/^mer_/, "per_")
    await ctx.db
      .insertInto("persons")
      .values({ id: person, iss: issuer, sub: id, created_at: ctx.now() })
      .onConflict(conflict => conflict.column("id").doUpdateSet({ iss: issuer }))
      .execute()
    await ctx.db
      .insertInto("members")
      .values({ merchant_id: id, person_id: person, role: "owner", created_at: ctx.now() })
      .onConflict(conflict => conflict.doNothing())
      .execute()
    const address = privateKeyToAccount(payoutKey).address.toLowerCase() as Address
    await ctx.db
      .insertInto("payout_addresses")
      .values({ merchant_id: id, chain_id: CHAIN_ID, address })
      .onConflict(conflict => conflict.doNothing())
      .execute()
  }
}

/**
 * Writes each merchant's sandbox key. Each merchant's key is always in the same row, where a new key replaces the old
 * one. The key has all scopes, so that the command line works without a sign-in.
 */
async function seedApiKeys(ctx: Context, apiKeys: Map<string, string>): Promise<void> {
  const scopes = ["checkouts", "console", "settings:read"]
  for (const [merchantId, key] of apiKeys) {
    const id = merchantId.replace(/^mer_/, "key_")
    await ctx.db
      .insertInto("api_keys")
      .values({ id, merchant_id: merchantId, name: "sandbox.json", scopes, ...keptOf(key), created_at: ctx.now() })
      .onConflict(conflict => conflict.column("id").doUpdateSet({ scopes, ...keptOf(key) }))
      .execute()
  }
}

/** Whether blocks are needed: a transfer lacks confirmations, a payout is not final, or a hash was just submitted. */
async function somethingWaits(ctx: Context): Promise<boolean> {
  const transfer = await ctx.db
    .selectFrom("transfers")
    .select("id")
    .where("state", "=", "seen")
    .limit(1)
    .executeTakeFirst()
  if (transfer) return true
  const payout = ctx.db.selectFrom("payouts").select("id").where("state", "in", ["assigned", "mined"])
  if (await payout.limit(1).executeTakeFirst()) return true
  const since = new Date(ctx.now().getTime() - BUSY_MS)
  const submission = ctx.db
    .selectFrom("submissions")
    .select("id")
    .where("status", "=", "verifying")
    .where("submitted_at", ">", since)
  return (await submission.limit(1).executeTakeFirst()) !== undefined
}

/**
 * Moves the time of the service and of the chain. The file is written first, so that a kill in between never leaves
 * the chain ahead of the service's clock.
 */
async function moveClock(
  ctx: Context,
  chain: LocalChain,
  path: string,
  clock: { offsetMs: number },
  ms: number,
): Promise<Date> {
  const offsetMs = clock.offsetMs + ms
  await writeFileAtomic(path, JSON.stringify({ offsetMs }), 0o600)
  clock.offsetMs = offsetMs
  await chain.advance(Math.round(ms / 1_000))
  for (const channel of ["verify", "payouts", "deliveries", "housekeeping"] as const) await ctx.wakes.wake(channel)
  return ctx.now()
}

const welcome = (baseUrl: string, rpcUrl: string, file: string, accessToken: string): string => `
Sluice sandbox is running. Nothing here is worth anything; stop it with Ctrl-C.

  start     ${baseUrl}/sandbox
  API       ${baseUrl}
  chain     ${rpcUrl} (${NETWORK}, chain id ${CHAIN_ID})
  details   ${file}: tokens, keys, addresses

Try this: create a paywall.

  curl -s ${baseUrl}/api/console/paywalls \\
    -H 'Authorization: Bearer ${accessToken}' \\
    -H 'Content-Type: application/json' \\
    -d '{"name":"My first paywall","price":5}'

`
