// Secrets in files, wallets by their addresses alone, and what a role can't do without.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, describe, expect, it } from "vitest"
import { liveEnv, livePayoutWallet } from "../../../test/live.ts"
import { checkSecrets } from "../../operations/doctor/check-secrets.ts"
import { readDatabaseSettings, readDeploySettings } from "./command-settings.ts"
import { examineSettings, readSettings } from "./read-settings.ts"
import { roleFaults } from "./role-needs.ts"
import { secretFileNames } from "./secret-files.ts"
import { settingsTable } from "./settings-table.ts"

const dir = mkdtempSync(join(tmpdir(), "sluice-secrets-"))
afterAll(() => rmSync(dir, { recursive: true }))
function file(name: string, text: string): string {
  const path = join(dir, name)
  writeFileSync(path, text, { mode: 0o400 })
  return path
}
const faultsOf = (change: Record<string, string>) => examineSettings({ ...liveEnv, ...change }).faults

const values: Record<string, string> = {
  ...liveEnv,
  DATABASE_REPLICA_URL: "postgres://sluice@replica.internal/sluice",
  REDIS_URL: "rediss://limits.example.com",
  SECRET_KEY_OTHER: "ab12".repeat(16),
  OIDC_CLIENT_ID: "console",
  OIDC_CLIENT_SECRET: "a client's secret",
  METRICS_TOKEN: "0123456789abcdef",
  OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20x",
  SMTP_URL: "smtps://sluice:a%20password@mail.example.com:465",
  MAIL_FROM: "sluice@example.com",
  ZEROG_PRIVATE_KEY: `0x${"7f3b".repeat(16)}`,
  RPC_BASE: "https://rpc.example.com/?key=a&b=$(c)#d",
}

describe("a secret in a file", () => {
  const names = secretFileNames.map(name => name.replace("<NETWORK>", "BASE").replace(/_FILE$/, ""))

  it("is read as the setting itself, whatever newline ends it, and by no other name", () => {
    const { RPC_BASE: _, ...rest } = values
    for (const end of ["", "\n", "\r\n"]) {
      const files = Object.fromEntries(names.map(name => [`${name}_FILE`, file(name, `${values[name]}${end}`)]))
      for (const path of Object.values(files)) chmodSync(path, 0o600)
      const env = { ...Object.fromEntries(Object.entries(rest).filter(([name]) => !names.includes(name))), ...files }
      const examined = examineSettings(env)
      expect([examined.faults, examined.unknown]).toEqual([[], []])
      const fromFiles = readSettings(env)
      const plain = ({
        payoutSigner: _p,
        relaySigner: _r,
        storageSigner: _s,
        secretFiles: _f,
        ...settings
      }: typeof fromFiles) => settings
      expect(plain(fromFiles)).toEqual(plain(readSettings(values)))
      expect(fromFiles.secretFiles.map(({ setting }) => setting).sort()).toEqual(Object.keys(files).sort())
      expect(readDatabaseSettings(env).databaseUrl).toBe(liveEnv.DATABASE_URL)
      expect(readDeploySettings("base", env).payoutWallet).toBe(livePayoutWallet().toLowerCase())
    }
  })

  it("has this form wherever the setting holds a key, a password or a token", () => {
    const secret = Object.entries<{ meaning: string }>(settingsTable)
      .filter(([, { meaning }]) =>
        /\bkey of the wallet|32 random bytes|used only to decrypt|Postgres address|Redis address|streaming replica|that client's secret|bearer token|such as a token|mail server/.test(
          meaning,
        ),
      )
      .map(([name]) => name)
    expect(secret.length).toBe(12)
    expect([...secret, "RPC_BASE"].sort()).toEqual([...names].sort())
  })

  it.each([
    ["both are set", () => values.SECRET_KEY ?? "", "can't be set together with SECRET_KEY"],
    ["the file is absent", () => "", "can't be read: ENOENT"],
    ["the file is empty", () => "", "names a file that is empty"],
    ["it is a folder", () => "", "can't be read: EISDIR"],
  ])("is one fault that names the setting, and no value, where %s", (what, inEnv, fault) => {
    const path = {
      "the file is absent": join(dir, "nothing"),
      "the file is empty": file("empty", "\n"),
      "it is a folder": dir,
    }[what]
    const SECRET_KEY_FILE = path ?? file("both", `${values.SECRET_KEY}\n`)
    const faults = faultsOf({ SECRET_KEY: inEnv(), SECRET_KEY_FILE })
    expect(faults).toEqual([expect.stringContaining(`SECRET_KEY_FILE ${fault}`)])
    expect(faults[0]).not.toContain(values.SECRET_KEY)
    expect(faultsOf({ MODE: "test", SECRET_KEY: inEnv(), SECRET_KEY_FILE })).toEqual(faults)
  })

  it("is refused by its own parser in the same words, without what the file holds", () => {
    const faults = faultsOf({ PAYOUT_PRIVATE_KEY: "", PAYOUT_PRIVATE_KEY_FILE: file("short", "0x1234567\n") })
    expect(faults).toEqual([expect.stringMatching(/^PAYOUT_PRIVATE_KEY must be a private key/)])
    expect(faults[0]).not.toContain("1234567")
  })

  it("may be read by its group, as containers and units hand it over, and is an alarm where all may", () => {
    const SECRET_KEY_FILE = file("mode", `${values.SECRET_KEY}`)
    const found = (mode: number) => {
      chmodSync(SECRET_KEY_FILE, mode)
      const settings = readSettings({ ...liveEnv, SECRET_KEY: "", SECRET_KEY_FILE, DATA_DIR: dir })
      return checkSecrets(settings).map(({ level, message }) => `${level} ${message}`)
    }
    expect(found(0o440)).toEqual([expect.stringMatching(/^ok/)])
    expect(found(0o444)).toEqual([expect.stringMatching(/^alarm SECRET_KEY_FILE can be used by users other/)])
  })
})

describe("a process without the wallets' keys", () => {
  const addresses = {
    PAYOUT_PRIVATE_KEY: "",
    RELAY_PRIVATE_KEY: "",
    PAYOUT_WALLET: livePayoutWallet(),
    RELAY_WALLET: `0x${"ab".repeat(20)}`,
  }

  it("can serve requests by the addresses, and nothing else", () => {
    const settings = readSettings({ ...liveEnv, ...addresses })
    expect(settings).toMatchObject({
      payoutWallet: livePayoutWallet().toLowerCase(),
      relayWallet: addresses.RELAY_WALLET,
      serviceWallets: [livePayoutWallet().toLowerCase(), addresses.RELAY_WALLET],
      payoutSigner: undefined,
      relaySigner: undefined,
    })
    expect(roleFaults(settings, "api")).toEqual([])
    for (const role of ["all", "worker"] as const)
      expect(roleFaults(settings, role)).toEqual([
        expect.stringMatching(`^PAYOUT_PRIVATE_KEY must be set, .*--role ${role} signs for PAYOUT_WALLET`),
        expect.stringMatching(`^RELAY_PRIVATE_KEY must be set, .*--role ${role} signs for RELAY_WALLET`),
      ])
    expect(roleFaults(readSettings(liveEnv), "worker")).toEqual([])
    expect(roleFaults(readSettings({}), "all")).toEqual([])
  })

  it("with RECEIPT_STORE=0g only --role api does without the key of the wallet that pays there", () => {
    const zerog = {
      RECEIPT_STORE: "0g",
      ZEROG_RPC: "https://one.example",
      ZEROG_FLOW: `0x${"ab".repeat(20)}`,
      ZEROG_INDEXER: "https://indexer.example",
    }
    expect(roleFaults(readSettings(zerog), "api")).toEqual([])
    expect(roleFaults(readSettings({ ...zerog, RECEIPT_STORE: "file" }), "worker")).toEqual([])
    for (const role of ["all", "worker"] as const)
      expect(roleFaults(readSettings(zerog), role)).toEqual([
        expect.stringMatching(`^ZEROG_PRIVATE_KEY must be set, .*--role ${role} signs for the wallet that pays`),
      ])
    expect(roleFaults(readSettings({ ...zerog, ZEROG_PRIVATE_KEY: `0x${"7f3b".repeat(16)}` }), "all")).toEqual([])
  })

  it("is refused where it has no address either, and where the address is not that of the key", () => {
    expect(faultsOf({ ...addresses, PAYOUT_WALLET: "" })).toEqual([
      expect.stringMatching(/^PAYOUT_PRIVATE_KEY must be set, .*With --role api the address is enough: PAYOUT_WALLET/),
    ])
    expect(faultsOf({ PAYOUT_WALLET: addresses.RELAY_WALLET })).toEqual([
      `PAYOUT_WALLET is not the wallet of the key, which is ${livePayoutWallet()}`,
    ])
    expect(faultsOf({ PAYOUT_WALLET: livePayoutWallet() })).toEqual([])
    expect(faultsOf({ SECRET_KEY_OTHER: liveEnv.SECRET_KEY })).toEqual(["SECRET_KEY_OTHER must differ from SECRET_KEY"])
  })
})
