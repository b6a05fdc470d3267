import { inspect } from "node:util"
import { describe, expect, it } from "vitest"
import { liveEnv } from "../../../test/live.ts"
import { knownEscrows } from "../chain/escrow-deployments.ts"
import { checksummed } from "../chain/hex.ts"
import { describeSettings, readSettings } from "./read-settings.ts"
import { SettingsError } from "./settings.ts"
import { settingsTable } from "./settings-table.ts"

const faultsOf = (env: Record<string, string>): string[] => {
  try {
    readSettings(env)
    return []
  } catch (error) {
    if (error instanceof SettingsError) return error.faults
    throw error
  }
}

describe("readSettings", () => {
  it("is a sandbox on loopback without a single variable", () => {
    expect(readSettings({})).toMatchObject({
      mode: "sandbox",
      host: "127.0.0.1",
      port: 4000,
      baseUrl: "http://127.0.0.1:4000",
      databaseUrl: undefined,
      signup: "open",
      verifyIntervalMs: 2_000,
      limits: { paywallPay: 10, console: 60 },
    })
  })

  it("keeps a key where nothing prints it", () => {
    const key = `0x${"7f3a".repeat(16)}`
    const settings = readSettings({ PAYOUT_PRIVATE_KEY: key })
    expect(settings.payoutSigner?.address).toBe(settings.payoutWallet)
    for (const text of [
      inspect(settings, { depth: 9, showHidden: true }),
      Object.values(settings.payoutSigner ?? {}).join(),
    ])
      expect(text).not.toContain("7f3a7f3a")
  })

  it("stores receipts with 0G only where its chain and a key are named, and that chain is no other network", () => {
    const zerog = {
      RECEIPT_STORE: "0g",
      ZEROG_RPC: "https://one.example,https://two.example",
      ZEROG_FLOW: `0x${"ab".repeat(20)}`,
      ZEROG_INDEXER: "https://indexer.example",
      ZEROG_PRIVATE_KEY: `0x${"7f3b".repeat(16)}`,
    }
    const { receipts, storageSigner, serviceWallets } = readSettings(zerog)
    expect(receipts.zerog).toMatchObject({ chainId: 16_661, rpcUrls: zerog.ZEROG_RPC.split(","), maxFee: 10n ** 16n })
    expect(serviceWallets).toContain(storageSigner?.address)
    expect(readSettings({ ...zerog, RECEIPT_STORE: "file" }).receipts.zerog).toBe(undefined)
    for (const name of ["ZEROG_RPC", "ZEROG_FLOW", "ZEROG_INDEXER"])
      expect(faultsOf({ ...zerog, [name]: "" })).toEqual([expect.stringMatching(`^${name} must be set`)])
    expect(faultsOf({ ...liveEnv, ...zerog, ZEROG_CHAIN_ID: "8453" })).toEqual([
      expect.stringMatching("^ZEROG_CHAIN_ID must be"),
    ])
  })

  it("reads several networks, the first is the default", () => {
    const settings = readSettings({
      ...liveEnv,
      OIDC_ISSUER: "https://id.example.com/",
      NETWORKS: "base, worldchain",
      RPC_BASE: "https://one.example,https://two.example/key",
      RPC_WORLDCHAIN: "https://three.example",
      TOKEN_WORLDCHAIN: `0x${"11".repeat(20)}`,
      DEPOSIT_FACTORY_BASE: `0x${"22".repeat(20)}`,
      DEPOSIT_FACTORY_WORLDCHAIN: `0x${"33".repeat(20)}`,
      CONFIRMATIONS: "5",
    })
    expect(settings).toMatchObject({ signup: "invite", verifyIntervalMs: 5_000 })
    // Exactly as it is written, because tokens name it this way.
    expect(settings.oidcIssuer).toBe("https://id.example.com/")
    expect(settings.networks).toMatchObject([
      { name: "base", chainId: 8453, rpcUrls: ["https://one.example", "https://two.example/key"], confirmations: 5 },
      { name: "worldchain", chainId: 480, token: `0x${"11".repeat(20)}` },
    ])
  })

  it("picks the escrow of a network by its address, with what belongs to it", () => {
    const networks = { RPC_BASE: "https://1.example", DEPOSIT_FACTORY_BASE: `0x${"22".repeat(20)}` }
    const escrowOf = (env: Record<string, string>) =>
      readSettings({ ...liveEnv, ...networks, ...env }).networks[0]?.escrow
    const [newest] = knownEscrows
    expect(escrowOf({})).toEqual({
      address: newest.address,
      version: "v1.1",
      collector: newest.collector,
      refundCollector: undefined,
    })
    const refundCollector = `0x${"44".repeat(20)}`
    for (const { address, version, collector } of knownEscrows)
      expect(escrowOf({ ESCROW_BASE: checksummed(address), REFUND_COLLECTOR_BASE: refundCollector })).toEqual({
        address,
        version,
        collector,
        refundCollector,
      })
    for (const none of ["", "off"]) expect(escrowOf({ ESCROW_BASE: none })).toBeUndefined()
    expect(
      escrowOf({
        NETWORKS: "worldchain",
        RPC_WORLDCHAIN: "https://1.example",
        DEPOSIT_FACTORY_WORLDCHAIN: `0x${"33".repeat(20)}`,
      }),
    ).toBeUndefined()
    const wrong = { ESCROW_BASE: `0x${"55".repeat(20)}`, REFUND_COLLECTOR_BASE: "0x1" }
    expect(faultsOf({ ...liveEnv, ...networks, ...wrong })).toEqual([
      expect.stringMatching(/^REFUND_COLLECTOR_BASE must be an address/),
      expect.stringMatching(
        /^ESCROW_BASE must be `off`, or an escrow that this version knows: 0xf96815976523E00e65Be8f34cA5e64b4f41EB19c/,
      ),
    ])
  })

  it("reports all faults at once, each with its name", () => {
    const faults = faultsOf({
      MODE: "prod",
      PORT: "99999",
      NETWORKS: "solana",
      MIN_AMOUNT: "-1",
      PAYOUT_PRIVATE_KEY: "0xabc",
      TRUSTED_PROXIES: "",
    })
    expect(faults.map(fault => fault.split(" ")[0])).toEqual([
      "MODE",
      "PORT",
      "NETWORKS",
      "PAYOUT_PRIVATE_KEY",
      "MIN_AMOUNT",
    ])
    expect(faults[2]).toBe("NETWORKS must be one of: base, worldchain, base-sepolia; not solana")
    expect(faultsOf({ NETWORKS: "," })).toEqual(["NETWORKS must name at least one network"])
  })

  it("demands outside the sandbox what has no default", () => {
    expect(faultsOf({ MODE: "test" }).map(fault => fault.split(" ")[0])).toEqual([
      "RPC_BASE_SEPOLIA",
      "DEPOSIT_FACTORY_BASE_SEPOLIA",
      "SECRET_KEY",
      "OIDC_ISSUER",
    ])
  })

  it("keeps the sandbox on loopback unless it is opened explicitly", () => {
    expect(faultsOf({ HOST: "0.0.0.0" })).toEqual([expect.stringContaining("SANDBOX_PUBLIC=1")])
    expect(faultsOf({ HOST: "0.0.0.0", SANDBOX_PUBLIC: "1" })).toEqual([])
  })

  it("believes X-Forwarded-For only from proxies that can be distinguished from callers", () => {
    const proxies = "10.0.0.0/8, fd00::/8,203.0.113.7,2001:db8::1"
    expect(readSettings({ TRUSTED_PROXIES: proxies }).trustedProxies).toEqual(proxies.split(/, ?/))
    for (const everyone of ["0.0.0.0/0", "::/0", "10.0.0.0/8, 0.0.0.0/00"])
      expect(faultsOf({ TRUSTED_PROXIES: everyone })).toEqual([
        expect.stringMatching(/^TRUSTED_PROXIES must not trust everyone/),
      ])
    for (const wrong of ["loopback", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8/8", "10.0.0.0/255.0.0.0", "a.b"])
      expect(faultsOf({ TRUSTED_PROXIES: wrong })).toEqual([
        expect.stringMatching(/^TRUSTED_PROXIES must be addresses/),
      ])
    for (const wrong of ["::ffff:10.0.0.1", "fe80::1%eth0", "fd00::/129"])
      expect(faultsOf({ TRUSTED_PROXIES: wrong })).toEqual([expect.stringContaining(`not ${wrong}`)])
  })

  it("takes one replica of the database that it reads, and never repeats its password", () => {
    const DATABASE_URL = "postgres://one,two/shop"
    const url = "postgres://u:hunter2@three/shop"
    expect(readSettings({ DATABASE_URL, DATABASE_REPLICA_URL: url }).replica).toEqual({ url, maxLagMs: 250 })
    expect(readSettings({ DATABASE_URL }).replica).toBeUndefined()
    for (const wrong of ["postgres://:hunter2@three,four/shop", "three:5432", "http://:hunter2@three"])
      expect(faultsOf({ DATABASE_URL, DATABASE_REPLICA_URL: wrong })).toEqual([
        "DATABASE_REPLICA_URL must be the postgres:// address of one host",
      ])
    expect(faultsOf({ DATABASE_REPLICA_URL: url })).toEqual([
      expect.stringMatching(/^DATABASE_REPLICA_URL must be a replica of DATABASE_URL/),
    ])
  })

  it("takes Redis as one server, by its sentinels or as a cluster, and never repeats its password", () => {
    for (const url of [
      "redis://127.0.0.1:6379/2",
      "rediss://user:hunter2@redis.example",
      "redis+sentinel://:hunter2@one,two:26380,[::1]:26381/mymaster/2?sentinelPassword=other",
      "rediss+cluster://one:7000,two",
    ])
      expect(readSettings({ REDIS_URL: url }).redisUrl).toBe(url)
    const wrong = [
      "127.0.0.1:6379",
      "http://:hunter2@redis.example",
      "redis:hunter2",
      "redis://:hunter2@ x",
      "redis://one,two",
      "redis://one/two",
      "redis+sentinel://one,two",
      "redis+sentinel://one,,two/mymaster",
      "redis+sentinel://:%zz@one/mymaster",
      "redis+cluster://one/2",
      "redis+other://one",
    ]
    for (const url of wrong)
      expect(faultsOf({ REDIS_URL: url })).toEqual([expect.stringMatching(/^REDIS_URL must be redis:\/\/HOST:PORT/)])
  })

  it("limits what a merchant may cost outside the sandbox by default", () => {
    expect(readSettings({}).gasBudget).toBe(0n)
    expect(readSettings(liveEnv).gasBudget).toBe(20_000_000_000_000_000n)
    expect(readSettings({ ...liveEnv, GAS_BUDGET: "0" }).gasBudget).toBe(0n)
    expect(readSettings({ GAS_BUDGET: "0.5" }).gasBudget).toBe(500_000_000_000_000_000n)
  })

  it("refuses one key for both wallets", () => {
    const key = `0x${"5".repeat(64)}`
    expect(faultsOf({ PAYOUT_PRIVATE_KEY: key, RELAY_PRIVATE_KEY: key })).toEqual([
      expect.stringMatching(/^RELAY_PRIVATE_KEY must differ from/),
    ])
    const { relaySigner, relayWallet } = readSettings({ RELAY_PRIVATE_KEY: key })
    expect(relaySigner?.address).toBe(relayWallet)
  })

  it("never repeats a key in its faults", () => {
    const key = `0x${"5".repeat(63)}`
    expect(faultsOf({ PAYOUT_PRIVATE_KEY: key }).join()).not.toContain("555")
  })
})

describe("describeSettings", () => {
  it("has a line for every setting", () => {
    for (const name of Object.keys(settingsTable)) expect(describeSettings()).toMatch(new RegExp(`^  ${name} `, "m"))
  })

  it("fits a terminal, except where one word does not", () => {
    const long = describeSettings()
      .split("\n")
      .filter(line => line.length > 120)
    expect(long).toEqual([])
  })
})

describe("traces", () => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318" }
  it("are off without an endpoint, whatever else is set", () => {
    expect(readSettings({ OTEL_SERVICE_NAME: "a", OTEL_TRACES_SAMPLER_ARG: "0.5" }).tracing).toBeUndefined()
    expect(readSettings(endpoint).tracing).toEqual({
      endpoint: "http://127.0.0.1:4318",
      protocol: "http/protobuf",
      headers: [],
      serviceName: undefined,
      resourceAttributes: [],
      ratio: 1,
    })
  })

  it.each([
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://a", "must be an http(s) address"],
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:hidden@b", "must have no password"],
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "http://a?token=hidden", "must have no password"],
    ["OTEL_EXPORTER_OTLP_HEADERS", "hidden", "must be key=value pairs"],
    ["OTEL_EXPORTER_OTLP_HEADERS", "a=hidden%0d%0ab", "must be key=value pairs"],
    ["OTEL_EXPORTER_OTLP_HEADERS", "a=hidden%zz", "must be key=value pairs"],
    ["OTEL_EXPORTER_OTLP_HEADERS", "a b=hidden", "must be key=value pairs"],
    ["OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be one of: http/protobuf, http/json; not grpc"],
    ["OTEL_TRACES_SAMPLER_ARG", "1.1", "must be a number from 0 to 1"],
    ["OTEL_TRACES_SAMPLER_ARG", "-0", "must be a number from 0 to 1"],
  ])("refuses %s=%s, and repeats no secret", (name, value, fault) => {
    const faults = faultsOf({ ...endpoint, [name]: value })
    expect(faults).toEqual([expect.stringContaining(`${name} ${fault}`)])
    expect(faults.join()).not.toContain("hidden")
  })
})
