import { randomBytes } from "node:crypto"
import { generatePrivateKey, mnemonicToAccount } from "viem/accounts"
import { describe, expect, it } from "vitest"
import { liveEnv } from "../../../test/live.ts"
import { liveWarnings } from "./live-mode.ts"
import { readSettings } from "./read-settings.ts"
import { SettingsError } from "./settings.ts"

type Env = Record<string, string | undefined>

const faultsOf = (change: Env): string[] => {
  try {
    readSettings({ ...liveEnv, ...change })
    return []
  } catch (error) {
    if (error instanceof SettingsError) return error.faults
    throw error
  }
}
/** Each refusal has its own message, and there is no other one. */
const expectFault = (change: Env, ...words: RegExp[]) =>
  expect(faultsOf(change)).toEqual(words.map(each => expect.stringMatching(each)))

const anvilKey = (addressIndex: number) => {
  const key = mnemonicToAccount("test test test test test test test test test test test junk", { addressIndex })
    .getHdKey()
    .privateKey?.toHex()
  return `0x${key}`
}

describe("live mode", () => {
  it("starts with valid settings", () => {
    expect(faultsOf({})).toEqual([])
    expect(readSettings(liveEnv)).toMatchObject({ mode: "live", signup: "invite" })
  })

  it("refuses what opens a sandbox", () => {
    expectFault({ SANDBOX_PUBLIC: "1" }, /^SANDBOX_PUBLIC must not be set/)
  })

  it("refuses the embedded database, unless it is allowed explicitly", () => {
    expectFault({ DATABASE_URL: "" }, /^DATABASE_URL must be set.*ALLOW_EMBEDDED_DB=1/)
    expectFault({ DATABASE_URL: "", ALLOW_EMBEDDED_DB: "0" }, /^DATABASE_URL must be set/)
    expect(faultsOf({ DATABASE_URL: "", ALLOW_EMBEDDED_DB: "1" })).toEqual([])
  })

  it("refuses a secret that is missing or has another size", () => {
    expectFault({ SECRET_KEY: "" }, /^SECRET_KEY must be set: .*openssl rand -hex 32/)
    for (const SECRET_KEY of ["abc", "password", "ab".repeat(31), "ab".repeat(33), "x".repeat(44)])
      expectFault({ SECRET_KEY }, /^SECRET_KEY must be 32 bytes in hex/)
  })

  it("accepts any random secret, in any notation", () => {
    for (let i = 0; i < 50; i++)
      for (const form of ["hex", "base64", "base64url"] as const) {
        const secret = randomBytes(32)
        const SECRET_KEY = secret.toString(form)
        expect(faultsOf({ SECRET_KEY })).toEqual([])
        expect(readSettings({ ...liveEnv, SECRET_KEY }).secretKeys).toEqual([secret])
      }
  })

  it.each([
    ["zeroes", "00".repeat(32)],
    ["one byte", "a7".repeat(32)],
    ["four bytes", "deadbeef".repeat(8)],
    ["digits", "0123456789abcdef".repeat(4)],
    ["a count", Buffer.from(Array.from({ length: 32 }, (_, i) => i)).toString("hex")],
    ["a count down", Buffer.from(Array.from({ length: 32 }, (_, i) => 200 - 3 * i)).toString("hex")],
    ["a word", Buffer.from("correcthorsecorrecthorsecorrecth").toString("base64")],
    ["a sentence", Buffer.from("my-secret-key-for-sluice-payment").toString("base64")],
    ["a number", "1".padStart(64, "0")],
  ])("refuses a secret that is %s", (_what, SECRET_KEY) => {
    expectFault({ SECRET_KEY }, /^SECRET_KEY is not random/)
  })

  it("refuses a secret that is the key of a wallet, ours or a well-known one", () => {
    expectFault({ SECRET_KEY: liveEnv.PAYOUT_PRIVATE_KEY }, /^SECRET_KEY must not be a wallet's key/)
    expectFault({ SECRET_KEY: liveEnv.RELAY_PRIVATE_KEY.slice(2) }, /^SECRET_KEY must not be a wallet's key/)
    expectFault({ SECRET_KEY: anvilKey(0) }, /^SECRET_KEY is a well-known development key/)
  })

  it.each(["PAYOUT_PRIVATE_KEY", "RELAY_PRIVATE_KEY"])("refuses to start without %s", name => {
    expectFault({ [name]: "" }, new RegExp(`^${name} must be set`))
  })

  it.each(["PAYOUT_PRIVATE_KEY", "RELAY_PRIVATE_KEY"])("refuses a well-known %s", name => {
    const keys = [0, 1, 9, 19].map(anvilKey)
    // The first key as anvil prints it, so that the test does not only compare the derivation with itself.
    expect(keys[0]).toBe("0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
    for (const key of [...keys, `0x${"1".padStart(64, "0")}`, `0x${"11".repeat(32)}`])
      expectFault({ [name]: key }, new RegExp(`^${name} is a well-known development key`))
    expect(faultsOf({ [name]: generatePrivateKey() })).toEqual([])
  })

  it("refuses one key for both wallets", () => {
    expectFault({ RELAY_PRIVATE_KEY: liveEnv.PAYOUT_PRIVATE_KEY }, /^RELAY_PRIVATE_KEY must differ from/)
  })

  it("refuses to be reached, or to send merchants, over http", () => {
    expectFault({ BASE_URL: "http://pay.example.com" }, /^BASE_URL must be an https address/)
    expectFault({ OIDC_ISSUER: "http://id.example.com" }, /^OIDC_ISSUER must be an https address/)
    expectFault({ BASE_URL: "" }, /^BASE_URL must be set/)
  })

  it.each([
    "localhost",
    "app.localhost",
    "LOCALHOST.",
    "sluice",
    "pay.internal",
    "printer.local",
    "box.home.arpa",
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "2130706433",
    "0.0.0.0",
    "10.1.2.3",
    "172.31.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[fc00::1]",
    "[fe80::1]",
    "[64:ff9b::a00:1]",
    "[2001:db8::1]",
    "[2002:7f00:1::]",
  ])("refuses to be at, or to trust, a host that can be reached only from inside: %s", host => {
    expectFault({ BASE_URL: `https://${host}` }, /^BASE_URL must not be a private or loopback address/)
    expectFault({ OIDC_ISSUER: `https://${host}/realm` }, /^OIDC_ISSUER must not be a private or loopback address/)
  })

  it.each(["pay.example.com", "pay.example.com:8443", "8.8.8.8", "172.32.0.1", "[2606:4700::1111]", "localhost.com"])(
    "accepts a public host: %s",
    host => {
      expect(faultsOf({ BASE_URL: `https://${host}`, OIDC_ISSUER: `https://${host}` })).toEqual([])
    },
  )

  it("refuses the identity provider of a sandbox", () => {
    for (const path of ["/sandbox/oidc", "/sandbox"])
      expectFault({ OIDC_ISSUER: `https://pay.example.com${path}` }, /^OIDC_ISSUER is a sandbox's identity provider/)
    expect(faultsOf({ OIDC_ISSUER: "https://sandbox.example.com/realms/sandboxes" })).toEqual([])
  })

  it("uses http for a node only on a private address, and repeats no key of an endpoint", () => {
    const fault = /^RPC_BASE must use https/
    expectFault({ RPC_BASE: "http://rpc.example.com/a-key" }, fault)
    expectFault({ RPC_BASE: "https://rpc.example.com,http://8.8.8.8/a-key" }, fault)
    expect(faultsOf({ RPC_BASE: "http://rpc.example.com/a-key" }).join()).not.toContain("a-key")
    for (const host of ["127.0.0.1:8545", "10.0.0.7", "node:8545", "base.node.internal", "[::1]:8545"])
      expect(faultsOf({ RPC_BASE: `http://${host}` })).toEqual([])
  })

  it("uses http for a collector of traces only on a private address", () => {
    expectFault(
      { OTEL_EXPORTER_OTLP_ENDPOINT: "http://otel.example.com" },
      /^OTEL_EXPORTER_OTLP_ENDPOINT must use https/,
    )
    for (const url of ["https://otel.example.com", "http://127.0.0.1:4318", "http://collector:4318"])
      expect(faultsOf({ OTEL_EXPORTER_OTLP_ENDPOINT: url })).toEqual([])
  })

  it("refuses a test network", () => {
    const more = { RPC_BASE_SEPOLIA: "https://rpc.example.com", DEPOSIT_FACTORY_BASE_SEPOLIA: `0x${"22".repeat(20)}` }
    expectFault({ ...more, NETWORKS: "base,base-sepolia" }, /^NETWORKS must not name base-sepolia/)
  })

  it("refuses too few confirmations", () => {
    expectFault({ CONFIRMATIONS: "2" }, /^CONFIRMATIONS must be at least 3/)
    expect(faultsOf({ CONFIRMATIONS: "3" })).toEqual([])
  })

  it("refuses a gas budget too small for a single payout", () => {
    const least = /^GAS_BUDGET must be 0 or at least 0.006, what one payout may cost at PAYOUT_MAX_FEE/
    for (const GAS_BUDGET of ["0.0059", "0.000000000000000001"]) expectFault({ GAS_BUDGET }, least)
    expectFault({ PAYOUT_MAX_FEE: "100" }, /^GAS_BUDGET must be 0 or at least 0.03/)
    for (const GAS_BUDGET of ["0", "0.0", "0.006", "3"]) expect(faultsOf({ GAS_BUDGET })).toEqual([])
    for (const GAS_BUDGET of ["-1", "1e18", "0.0000000000000000001", "x"])
      expect(faultsOf({ GAS_BUDGET })).toEqual([expect.stringMatching(/^GAS_BUDGET (must be|has more)/)])
  })

  it("refuses a short METRICS_TOKEN", () => {
    expectFault({ METRICS_TOKEN: "x".repeat(15) }, /^METRICS_TOKEN must have at least 16 characters/)
    expect(faultsOf({ METRICS_TOKEN: "x".repeat(16) })).toEqual([])
  })

  it("reports all faults at once, and each unreadable setting only once", () => {
    const faults = faultsOf({
      SECRET_KEY: "short",
      BASE_URL: "pay.example.com",
      CONFIRMATIONS: "1",
      RELAY_PRIVATE_KEY: "",
      TRUSTED_PROXIES: "::/0",
    })
    expect(faults.map(fault => fault.split(" ")[0]).sort()).toEqual([
      "BASE_URL",
      "CONFIRMATIONS",
      "RELAY_PRIVATE_KEY",
      "SECRET_KEY",
      "TRUSTED_PROXIES",
    ])
  })

  it("never repeats a secret", () => {
    for (const secret of ["deadbeef".repeat(8), `0x${"f".repeat(64)}`, "hunter2hunter2", anvilKey(3)])
      for (const name of ["SECRET_KEY", "PAYOUT_PRIVATE_KEY", "RELAY_PRIVATE_KEY", "METRICS_TOKEN"]) {
        const text = faultsOf({ [name]: secret }).join()
        expect(text).not.toContain(secret)
        // The curve's library prints a key that it refuses as a number.
        if (secret.startsWith("0x")) expect(text).not.toContain(`${BigInt(secret)}`)
      }
  })

  it("demands none of this elsewhere", () => {
    expect(readSettings({}).mode).toBe("sandbox")
    const { PAYOUT_PRIVATE_KEY: _, DATABASE_URL: __, BASE_URL: ___, ...rest } = liveEnv
    expect(readSettings({ ...rest, MODE: "test", CONFIRMATIONS: "1" }).mode).toBe("test")
  })
})

describe("liveWarnings", () => {
  const REDIS_URL = "rediss://limits.example.com"

  it("warns when limits are not shared", () => {
    expect(liveWarnings(readSettings(liveEnv), "all")).toEqual([expect.stringContaining("REDIS_URL")])
    expect(liveWarnings(readSettings({ ...liveEnv, REDIS_URL }), "all")).toEqual([])
    // A worker limits nobody.
    expect(liveWarnings(readSettings(liveEnv), "worker")).toEqual([])
  })

  it("warns when nobody is screened", () => {
    const warningsOf = (change: Env) => liveWarnings(readSettings({ ...liveEnv, REDIS_URL, ...change }), "all")
    const worldchain = {
      NETWORKS: "worldchain",
      RPC_WORLDCHAIN: "https://rpc.example.com",
      DEPOSIT_FACTORY_WORLDCHAIN: `0x${"22".repeat(20)}`,
    }
    expect(warningsOf({})).toEqual([])
    expect(warningsOf(worldchain)).toEqual([expect.stringContaining("SANCTIONS_FILE")])
    expect(warningsOf({ ...worldchain, SANCTIONS_FILE: "/etc/sluice/sdn.csv" })).toEqual([])
    expect(warningsOf({ ...worldchain, SANCTIONS_ORACLE_WORLDCHAIN: `0x${"33".repeat(20)}` })).toEqual([])
  })
})
