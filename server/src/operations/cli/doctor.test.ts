// The command on a real chain and a real Postgres: it names each thing that is wrong, and nothing else.
import { spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { once } from "node:events"
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import pg from "pg"
import { type Hex, parseEther } from "viem"
import { privateKeyToAddress } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import {
  type Anvil,
  deployDepositFactory,
  deployTestUsdc,
  placeSharedContracts,
  startAnvil,
} from "../../../test/anvil.ts"
import { freePort, plainEnv, root } from "../../../test/e2e/program.ts"
import { foundry, keystoreOf } from "../../../test/keystore.ts"
import { failed } from "../../../test/node.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../../../test/postgres.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { type RemoteSigners, startRemoteSigners } from "../../../test/remote-signers.ts"
import { startService } from "../../../test/service.ts"
import { batchDeployment } from "../../platform/chain/authorization-batch.ts"
import { examineSettings } from "../../platform/config/read-settings.ts"
import { openPostgres } from "../../platform/db/open.ts"
import { checkDatabase } from "../doctor/check-database.ts"
import { type Finding, isBad } from "../doctor/finding.ts"
import { standingAlarms } from "../doctor/read-standing-alarms.ts"
import { checkAll } from "../doctor/run-checks.ts"
import { examine } from "./doctor.ts"
import { findingsText } from "./print-findings.ts"
import { settingsOf } from "./signer.ts"

const keyOf = (name: string): Hex => `0x${createHash("sha256").update(name).digest("hex")}`
const payoutKey = keyOf("payout of the doctor")
const relayKey = keyOf("relay of the doctor")
const [payout, relay] = [payoutKey, relayKey].map(privateKeyToAddress) as [Hex, Hex]

let anvil: Anvil
let proxy: RpcProxy
/** A signer of the payout wallet. */
let signers: RemoteSigners
let healthy: ReturnType<typeof createServer>
let dir: string
let env: Record<string, string>
/** An address that refuses connections. */
let nobody: string

beforeAll(async () => {
  anvil = await startAnvil()
  await placeSharedContracts(anvil.client)
  proxy = await startProxy(anvil.rpcUrl)
  signers = await startRemoteSigners(payoutKey)
  healthy = createServer((request, response) => {
    response.writeHead(200, { "content-type": "application/json" })
    response.end(request.url === "/healthz" ? '{"status":"ok"}' : "{}")
  })
  await new Promise<void>(resolve => healthy.listen(0, "127.0.0.1", resolve))
  nobody = `http://127.0.0.1:${await freePort()}`
  dir = mkdtempSync(join(tmpdir(), "sluice-doctor-"))
  const baseUrl = `http://127.0.0.1:${(healthy.address() as AddressInfo).port}`
  env = {
    MODE: "test",
    BASE_URL: baseUrl,
    OIDC_ISSUER: baseUrl,
    DATA_DIR: join(dir, "data"),
    SECRET_KEY: keyOf("secret").slice(2),
    NETWORKS: "base-sepolia",
    RPC_BASE_SEPOLIA: `${anvil.rpcUrl},${proxy.url}`,
    TOKEN_BASE_SEPOLIA: await deployTestUsdc(anvil.client),
    DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, payout),
    ESCROW_BASE_SEPOLIA: "off",
    PAYOUT_PRIVATE_KEY: payoutKey,
    RELAY_PRIVATE_KEY: relayKey,
  }
})
afterAll(async () => {
  await Promise.all([anvil.stop(), proxy.stop(), signers.stop(), new Promise(resolve => healthy.close(resolve))])
  rmSync(dir, { recursive: true })
})
beforeEach(async () => {
  for (const address of [payout, relay]) await anvil.client.setBalance({ address, value: parseEther("1") })
  // The chain's clock is a moment old, whatever the machine did meanwhile.
  await anvil.client.mine({ blocks: 1 })
  proxy.spoil = (_method, _params, result) => result
  proxy.broken = undefined
  signers.fault = () => undefined
})

const seen = ({ part, check, level }: Finding) => `${part} ${check} ${level}`
/** The findings with these variables that are bad, as `part check level`, and the whole text for a person. */
async function diagnosis(change: Record<string, string> = {}) {
  const findings = await examine({ ...env, ...change })
  return {
    bad: findings.filter(isBad).map(seen),
    text: findingsText(findings, { width: 100, coloured: false }),
    findings,
  }
}
/** Settings with the payout key behind a signer, and the wallet that the settings give it. */
const bySigner = (wallet = payout) => ({
  PAYOUT_PRIVATE_KEY: "",
  PAYOUT_SIGNER: `web3signer:${signers.url}/${wallet.toLowerCase()}`,
})
/** A finding's words on one line. */
const joined = (text: string): string => text.replace(/\n {9,11}(?! )/g, " ")

describe("a signer", () => {
  it("that signs for its wallet is in order", async () => {
    const { bad, text } = await diagnosis(bySigner())
    expect(bad).toEqual([])
    expect(text).toContain("the payout wallet's signer answers, and signs for the wallet")
  })

  it.each<[string, () => Record<string, string>, RegExp]>([
    ["refuses", () => bySigner(), /signer does not sign, so .* It answered HTTP 403: .*not authorized/],
    ["has another key", () => bySigner(), /does not sign for the wallet, so .* It signs for a wallet other than 0x/],
    [
      "is not there",
      () => ({ ...bySigner(), PAYOUT_SIGNER: `web3signer:${nobody}/${payout}` }),
      /can't be reached: ECONNREFUSED/,
    ],
  ])("that %s is an alarm", async (what, change, words) => {
    if (what !== "is not there") signers.fault = () => (what === "refuses" ? "refuse" : "other key")
    const { bad, text } = await diagnosis(change())
    expect(bad).toEqual(["secrets payout_signer alarm"])
    expect(joined(text).replace(/\s+/g, " ")).toMatch(words)
  })

  it("that has not the wallet's key is an alarm, and what it has is printed for the setting", async () => {
    const { bad } = await diagnosis({ ...bySigner(), PAYOUT_SIGNER: `web3signer:${signers.url}/${relay}` })
    expect(bad).toContain("secrets payout_signer alarm")
    const signal = new AbortController().signal
    const known = await settingsOf(signers.keyOf("web3signer"), undefined, signal)
    expect(known).toEqual([`web3signer:${signers.url}/${payout}`])
    const gone = { kind: "web3signer", name: nobody } as const
    await expect(settingsOf(gone, undefined, signal)).rejects.toThrow(/^The signer can't be reached: ECONNREFUSED\.$/)
  })
})

describe("what the doctor finds", () => {
  it("nothing, where everything is in order", async () => {
    const { bad, text, findings } = await diagnosis()
    expect(bad).toEqual([])
    expect(findings.filter(each => each.level === "note").map(seen)).toEqual(["database engine note"])
    expect(text).toContain("All checks passed.")
    expect(text).toContain("RPC endpoint 2 of 2 answers at block")
    expect(text).toContain("the payout wallet has gas for")
    for (const key of [payoutKey, relayKey, env.SECRET_KEY ?? ""]) expect(JSON.stringify(findings)).not.toContain(key)
  })

  it("a note where an API process has a wallet's key", async () => {
    const signal = new AbortController().signal
    const notes = async (change: Record<string, string>, role: "api" | "worker") => {
      const { settings, ...wrong } = examineSettings({ ...env, ...change })
      const found = await checkAll({ settings, query: undefined, now: () => new Date(), signal }, wrong, role)
      return found.filter(({ check }) => /^(payout|relay)_key$/.test(check)).map(seen)
    }
    expect(await notes({}, "api")).toEqual(["settings payout_key note", "settings relay_key note"])
    expect(await notes(bySigner(), "api")).toEqual(["settings relay_key note"])
    expect(await notes({}, "worker")).toEqual([])
  })

  it("a note where agents' payments can't share a transaction", async () => {
    const { client } = anvil
    const { address } = batchDeployment
    const code = (await client.getCode({ address })) ?? "0x"
    await client.setCode({ address, bytecode: "0x" })
    const { bad, text, findings } = await diagnosis()
    await client.setCode({ address, bytecode: code })
    expect([bad, findings.filter(each => each.level === "note").map(seen)]).toEqual([
      [],
      ["database engine note", "base-sepolia authorization_batch note"],
    ])
    expect(joined(text)).toMatch(/sent one by one.*sluice deploy --contract authorization-batch/s)
  })

  const at = (name: string) => `base-sepolia ${name}`
  it.each<[string, () => Promise<Record<string, string>> | Record<string, string>, string[], RegExp]>([
    ["no payout key", () => ({ PAYOUT_PRIVATE_KEY: "" }), [at("payout_key alarm")], /no payout key.*PAYOUT_KEYSTORE/],
    ["one endpoint", () => ({ RPC_BASE_SEPOLIA: anvil.rpcUrl }), [at("endpoints alarm")], /Add endpoints of other/],
    [
      "two endpoints of one host",
      () => ({ RPC_BASE_SEPOLIA: `${proxy.url}/a,${proxy.url}/b` }),
      [at("endpoints alarm")],
      /all RPC endpoints have the same host/,
    ],
    [
      "an empty wallet",
      async () => {
        await anvil.client.setBalance({ address: payout, value: 0n })
        return {}
      },
      [at("payout_wallet alarm")],
      new RegExp(
        `too little ether for gas.*Send ether to ${payout}, which has 0: at current prices, 100 typical payouts cost`,
      ),
    ],
    [
      "a wallet that will soon be empty",
      async () => {
        await anvil.client.setBalance({ address: relay, value: parseEther("0.006") })
        return {}
      },
      [at("relay_wallet alarm")],
      /the relay wallet has gas for fewer than 100 payouts/,
    ],
    [
      "an endpoint of another chain",
      () => {
        proxy.spoil = (method, _params, result) => (method === "eth_chainId" ? "0x2105" : result)
        return {}
      },
      [at("endpoint_2 alarm"), at("token fault")],
      /RPC endpoint 2 of 2 serves chain 8453, not 84532/,
    ],
    [
      "an endpoint that is down",
      () => {
        proxy.broken = 503
        return {}
      },
      // With only one of two endpoints, the wallets' balances are not known.
      [at("endpoint_2 alarm"), at("payout_wallet alarm"), at("relay_wallet alarm")],
      /RPC endpoint 2 of 2 does not answer.*HTTP 503/,
    ],
    [
      "an endpoint without logs",
      () => {
        proxy.spoil = (method, _params, result) => (method === "eth_getLogs" ? failed("not in your plan") : result)
        return {}
      },
      [at("endpoint_2 alarm")],
      /RPC endpoint 2 of 2 refuses eth_getLogs.*not in your plan/,
    ],
    [
      "an endpoint without a newest block",
      () => {
        proxy.spoil = (method, params, result) =>
          method === "eth_getBlockByNumber" && params[0] === "latest" ? null : result
        return {}
      },
      [at("endpoint_2 alarm"), at("payout_wallet alarm"), at("relay_wallet alarm")],
      /RPC endpoint 2 of 2 does not answer.*reports no newest block/,
    ],
    [
      "no endpoint at all",
      () => ({ RPC_BASE_SEPOLIA: `${nobody},http://127.0.0.2:1` }),
      [at("endpoint_1 fault"), at("endpoint_2 fault"), at("token fault"), at("factory fault")],
      /RPC endpoint 1 of 2 does not answer/,
    ],
    [
      "no factory",
      () => ({ DEPOSIT_FACTORY_BASE_SEPOLIA: `0x${"12".repeat(20)}` }),
      [at("factory fault")],
      /there is no deposit factory at 0x1212.*`sluice deploy --network base-sepolia --guardian ADDRESS`/,
    ],
    [
      "another contract as the factory",
      () => ({ DEPOSIT_FACTORY_BASE_SEPOLIA: env.TOKEN_BASE_SEPOLIA ?? "" }),
      [at("factory fault")],
      /is not the deposit factory of this version/,
    ],
    [
      "a factory of another operator",
      async () => ({ DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, relay) }),
      [at("factory fault")],
      /the operator of the deposit factory .* is 0x/,
    ],
    [
      "another token",
      () => ({ TOKEN_BASE_SEPOLIA: env.DEPOSIT_FACTORY_BASE_SEPOLIA ?? "" }),
      [at("token fault")],
      /Check RPC_BASE_SEPOLIA and TOKEN_BASE_SEPOLIA/,
    ],
    [
      "a BASE_URL that nobody serves",
      () => ({ BASE_URL: nobody, OIDC_ISSUER: nobody }),
      ["address base_url alarm"],
      /ECONNREFUSED/,
    ],
    [
      "a BASE_URL of another program, and an issuer that is none",
      () => ({ BASE_URL: `${env.BASE_URL}/other` }),
      ["address base_url alarm", "address oidc_issuer alarm"],
      /BASE_URL answers with HTTP 200, but not as Sluice/,
    ],
    ["a Redis that is down", () => ({ REDIS_URL: "redis://127.0.0.1:1" }), ["address redis alarm"], /Check REDIS_URL/],
    [
      "a well-known key",
      async () => {
        const key = keyOfAnvil
        const operator = privateKeyToAddress(key)
        return {
          PAYOUT_PRIVATE_KEY: key,
          DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, operator),
        }
      },
      ["secrets payout_key alarm"],
      /the payout wallet has a well-known development key/,
    ],
    [
      "the secrets of a sandbox",
      () => ({ DATA_DIR: folder({ "keys.json": JSON.stringify({ secretKey: env.SECRET_KEY, relay: relayKey }) }) }),
      ["secrets sandbox_keys alarm"],
      /SECRET_KEY and the relay wallet's key of a sandbox must not be used with MODE=test/,
    ],
    [
      "a keystore that others can read",
      () => {
        const files = { key: keystoreOf(payoutKey, "pass", foundry), password: "pass\n" }
        const at = folder(files)
        chmodSync(join(at, "key"), 0o644)
        return {
          PAYOUT_PRIVATE_KEY: "",
          PAYOUT_KEYSTORE: join(at, "key"),
          PAYOUT_KEYSTORE_PASSWORD_FILE: join(at, "password"),
        }
      },
      ["secrets file_mode alarm"],
      /PAYOUT_KEYSTORE can be used by users other than its owner \(mode 644\).*chmod go= /,
    ],
    [
      "settings that are not valid, and the rest beside them",
      () => ({ SECRET_KEY: "short", DEPOSIT_FACTORY_BASE_SEPOLIA: "0x1", RPC_BASE_SEPOLIA: anvil.rpcUrl }),
      ["settings deposit_factory_base_sepolia fault", "settings secret_key fault", at("endpoints alarm")],
      /deploys one and prints this.*SECRET_KEY must be 32 bytes.*→ Set it to the output of `openssl.*2 faults and 1 alarm: the service does not start/s,
    ],
    [
      "a network that does not exist, once and by its name",
      () => ({ NETWORKS: "bse" }),
      ["settings networks fault"],
      /NETWORKS must be one of: base, worldchain, base-sepolia; not bse\.\n\n/,
    ],
    ["a misspelt setting", () => ({ RPC_BASESEPOLIA: "x", RPC_BASE: "x" }), [], /RPC_BASESEPOLIA is set, but is not a/],
    [
      "an unreachable Postgres",
      () => ({ DATABASE_URL: "postgres://user:hunter2@127.0.0.1:1/x" }),
      ["database connection fault"],
      /the database can't be used: no connection \(ECONNREFUSED\)/,
    ],
  ])("%s", async (_what, change, bad, words) => {
    const found = await diagnosis(await change())
    expect(found.bad.sort()).toEqual([...bad].sort())
    expect(joined(found.text)).toMatch(words)
    expect(found.text).not.toMatch(/hunter2|[0-9a-f]{64}/)
  })

  const keyOfAnvil: Hex = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
  let folders = 0
  function folder(files: Record<string, string>): string {
    const path = join(dir, `folder-${folders++}`)
    mkdirSync(path)
    for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text, { mode: 0o600 })
    return path
  }

  it.each([
    ["ahead", 3_600_000, /the newest block is 3[56]\d\d s old: the clock of this machine is ahead/],
    ["behind", -60_000, /the newest block is \d\d s in the future: the clock of this machine is behind/],
  ])("a clock that is %s", async (_what, ms, words) => {
    const { settings, ...wrong } = examineSettings(env)
    const signal = new AbortController().signal
    const now = () => new Date(Date.now() + ms)
    const findings = await checkAll({ settings, query: undefined, now, signal }, wrong)
    expect(findings.filter(isBad).map(seen)).toEqual(["base-sepolia clock alarm"])
    expect(findings.find(isBad)?.message).toMatch(words)
  })

  it("live mode refuses to start with a sandbox's keys", async () => {
    const { settings } = examineSettings({ ...env, MODE: "live" })
    settings.dataDir = folder({ "keys.json": JSON.stringify({ secretKey: env.SECRET_KEY }) })
    const found = await checkAll(
      { settings, query: undefined, now: () => new Date(), signal: AbortSignal.abort() },
      { faults: ["RPC_BASE_SEPOLIA x", "BASE_URL x"], unknown: [] },
    )
    expect(found.map(seen)).toContain("secrets sandbox_keys fault")
  })
})

describe("the step after a fault of a setting", () => {
  /** What is said of these settings where nothing else is set. */
  const said = async (change: Record<string, string>) => {
    const { settings, faults } = examineSettings({ MODE: "test", NETWORKS: "base", ...change })
    const found = await checkAll(
      { settings, query: undefined, now: () => new Date(), signal: AbortSignal.abort() },
      // Nothing is asked: only what the settings themselves say is compared here.
      {
        faults: [...faults, ...["RPC_BASE", "BASE_URL", "OIDC_ISSUER", "REDIS_URL"].map(name => `${name} -`)],
        unknown: [],
      },
    )
    return found.filter(({ part, message }) => part === "settings" && !message.endsWith(" -"))
  }

  it("is there where it adds one, and never repeats the fault", async () => {
    const found = await said({ SECRET_KEY: "5f".repeat(32), PORT: "x", LOG_LEVEL: "loud", CONFIRMATIONS: "0" })
    const steps = Object.fromEntries(found.map(({ check, todo }) => [check, todo]))
    expect(steps).toEqual({
      port: undefined,
      log_level: undefined,
      confirmations: undefined,
      oidc_issuer: expect.stringContaining("BASE_URL if merchants sign in with their wallets"),
      rpc_base: expect.stringContaining("the URLs of nodes"),
      deposit_factory_base: "`sluice deploy` deploys one and prints this setting.",
    })
    const live = await said({ MODE: "live" })
    expect(live.find(({ check }) => check === "secret_key")).toEqual({
      part: "settings",
      check: "secret_key",
      level: "fault",
      message: "SECRET_KEY must be set: 32 random bytes, as `openssl rand -hex 32` prints them",
    })
  })
})

describe.runIf(postgresBinaries())("the doctor of a Postgres", () => {
  let careless: TestPostgres
  let durable: TestPostgres
  beforeAll(async () => {
    ;[careless, durable] = await Promise.all([startPostgres(), startPostgres({ fsync: true })])
  })
  afterAll(() => Promise.all([careless.stop(), durable.stop()]))

  it("is content with one that is durable, before and after its first start, and changes nothing in it", async () => {
    const before = await diagnosis({ DATABASE_URL: durable.url })
    expect(before.bad).toEqual([])
    expect(before.text).toContain("the database is empty: the first start creates its tables.")
    const database = await openPostgres(durable.url, () => {})
    await database.close()
    const after = await diagnosis({ DATABASE_URL: durable.url })
    expect(after.bad).toEqual([])
    expect(after.text).toContain("the schema is this version's.")
    expect(after.text).toMatch(/Postgres \d+(\.\d+)? answers/)
  })

  it("compares its clock, and knows a wrong database", async () => {
    const { settings, ...wrong } = examineSettings({ ...env, DATABASE_URL: durable.url })
    const client = new pg.Client({ connectionString: durable.url })
    await client.connect()
    const query = async (text: string) => (await client.query(text)).rows
    const now = () => new Date(Date.now() + 60_000)
    const found = await checkAll({ settings, query, now, signal: new AbortController().signal }, wrong)
    expect(found.filter(isBad).map(seen)).toEqual(["database clock alarm"])
    expect(found.find(isBad)?.message).toMatch(/is (5|6)\d s ahead of the clock of Postgres/)
    // A standby answers as a primary does, until something is written.
    const standby = async (text: string) =>
      (await query(text)).map(row => ("standby" in row ? { ...row, standby: true } : row))
    const installation = { settings, query: standby, now: () => new Date(), signal: new AbortController().signal }
    const unwritable = await checkAll(installation, wrong)
    expect(unwritable.filter(isBad).map(seen)).toEqual(["database connection fault"])
    expect(unwritable.find(isBad)?.message).toBe("the database is a standby, where nothing can be written")
    await client.end()
    const none = await diagnosis({ DATABASE_URL: durable.url.replace(/\/postgres$/, "/none") })
    expect(none.text).toContain("the database can't be used: there is no such database.")
  })

  it("takes a limit of temporary files for no full disk", async () => {
    await (await openPostgres(durable.url, () => {})).close()
    const client = new pg.Client({ connectionString: durable.url })
    await client.connect()
    await client.query("set temp_file_limit = '512kB'")
    const query = async (text: string) => (await client.query(text)).rows
    const found = await checkDatabase(examineSettings(env).settings, query, () => new Date())
    await client.end()
    expect(found.filter(({ level }) => level !== "ok" && level !== "note")).toEqual([])
    expect(found.find(({ check }) => check === "writes")).toMatchObject({ level: "note" })
  })

  it("raises an alarm where the system sorts text in another way than the indexes", async () => {
    const client = new pg.Client({ connectionString: durable.url })
    await client.connect()
    const bytes = await diagnosis({ DATABASE_URL: durable.url })
    expect(bytes.text).toContain("text is sorted by its bytes.")
    await client.query(`create database "by language" template template0 locale_provider icu icu_locale 'en-US'`)
    const url = durable.url.replace(/\/postgres$/, "/by%20language")
    const language = await diagnosis({ DATABASE_URL: url })
    expect(language.bad).toEqual([])
    expect(language.text).toContain("the database sorts text by the rules of a language")
    await client.query("update pg_database set datcollversion = '1' where datname = 'by language'")
    expect(await diagnosis({ DATABASE_URL: url })).toMatchObject({
      bad: ["database collation alarm"],
      text: expect.stringMatching(/run `reindex\s+database "by language"`/),
    })
    await client.query(`alter database "by language" refresh collation version`)
    expect((await diagnosis({ DATABASE_URL: url })).bad).toEqual([])
    expect(language.text).not.toContain("Nothing records")
    // As before Postgres 15, and for collations without versions.
    await client.query("update pg_database set datcollversion = null where datname = 'by language'")
    const unknown = await diagnosis({ DATABASE_URL: url })
    expect(unknown.bad).toEqual([])
    expect(unknown.text).toMatch(/Nothing records how the\s+indexes\s+are\s+sorted/)
    await client.end()
  })

  it("names what is off, a database of another mode, and one of a newer version", async () => {
    expect(await diagnosis({ DATABASE_URL: careless.url })).toMatchObject({
      bad: ["database fsync alarm", "database synchronous_commit alarm"],
      text: expect.stringContaining("alter system set fsync = on"),
    })
    await (await openPostgres(durable.url, () => {})).close()
    const client = new pg.Client({ connectionString: durable.url })
    await client.connect()
    const unserved = `insert into payouts (id, chain_id, kind, source_key, deposit_id, token, recipient, amount, to_address, data,
        reserved, state, run_at, created_at, updated_at, lane, merchant_id)
      values (gen_random_uuid(), 84532, 'sweep', 'x', 1, '0x${"8".repeat(40)}', '0x${"7".repeat(40)}', 1, '0x${"9".repeat(40)}', '0x00', true, 'queued',
        now() - interval '2 hours', now(), now(), 'payout', 'mer_x')`
    await client.query("set session_replication_role = replica")
    await client.query(unserved)
    const late = await diagnosis({ DATABASE_URL: durable.url })
    expect([late.bad, late.text]).toEqual([
      ["base-sepolia unserved alarm"],
      expect.stringContaining("Waiting: 1 of the factory 0x9999"),
    ])
    await client.query("delete from payouts")
    await client.query("insert into installation values ('mode', 'sandbox')")
    expect((await diagnosis({ DATABASE_URL: durable.url })).bad).toEqual(["database installation fault"])
    await client.query("update installation set value = 'test' where key = 'mode'")
    await client.query("delete from migrations")
    expect((await diagnosis({ DATABASE_URL: durable.url })).text).toMatch(/[1-9]\d* migrations are missing/)
    await client.query("insert into migrations (name, checksum) values ('9999_future.sql', '')")
    expect((await diagnosis({ DATABASE_URL: durable.url })).text).toContain(
      "9999_future.sql, which this version doesn't",
    )
    await client.end()
  })
})

describe("the checks beside a running service", () => {
  it("are alarms of /readyz in the same words, each logged when it begins and when it is mended", async () => {
    const service = await startService({ settings: { ...examineSettings(env).settings } })
    try {
      const lines: { msg: string; level: string }[] = []
      const say = (level: string) => (_facts: object, msg: string) => void lines.push({ level, msg })
      const ctx = { ...service.ctx, log: { error: say("error"), info: say("info") } as never }
      const standing = standingAlarms(ctx, true)
      await standing.check()
      expect(standing.alarms()).toEqual([])
      await anvil.client.setBalance({ address: payout, value: 0n })
      await standing.check()
      await standing.check()
      const words = "base-sepolia: the payout wallet has too little ether for gas, so payouts wait"
      expect(standing.alarms()).toEqual([words])
      // The wallet's own rounds report it in the same words.
      expect(lines).toEqual([{ level: "error", msg: words }])
      await anvil.client.setBalance({ address: payout, value: parseEther("1") })
      await standing.check()
      expect(standing.alarms()).toEqual([])
      expect(lines.slice(1)).toEqual([{ level: "info", msg: `ended: ${words}` }])
      const [network] = ctx.settings.networks
      if (!network) throw new Error("no network")
      // While no endpoint answers, no round of a worker can say so.
      ctx.settings = { ...ctx.settings, networks: [{ ...network, rpcUrls: ["http://127.0.0.1:1"] }] }
      const dead = standingAlarms(ctx, false)
      await dead.check()
      expect(dead.alarms()).toContain("base-sepolia: RPC endpoint 1 of 1 does not answer: no usable answer")
      ctx.settings = { ...ctx.settings, networks: [network], payoutWallet: undefined }
      const without = standingAlarms(ctx, false)
      await without.check()
      expect(without.alarms()).toEqual([expect.stringMatching(/^base-sepolia: the service has no payout key/)])
    } finally {
      await service.stop()
    }
  })
})

describe("script/doctor", () => {
  async function run(args: string[], change: Record<string, string> = {}) {
    const child = spawn(join(root, "script/doctor"), args, { env: { ...plainEnv(), ...env, ...change } })
    let out = ""
    let errors = ""
    child.stdout.on("data", chunk => (out += chunk))
    child.stderr.on("data", chunk => (errors += chunk))
    const [code] = await once(child, "close")
    return { code, out, errors }
  }

  it("exits with 0 or 1, prints text without colours into a pipe, and JSON for programs", async () => {
    const [good, bad, wrong] = await Promise.all([run([]), run(["--json"], { PAYOUT_PRIVATE_KEY: "" }), run(["--jsn"])])
    expect(good).toMatchObject({ code: 0, errors: "", out: expect.stringContaining("\nbase-sepolia\n  ok     ") })
    expect(good.out).not.toContain("\u001b")
    const { ok, findings } = JSON.parse(bad.out)
    expect([bad.code, ok]).toEqual([1, false])
    expect(findings.filter(isBad)).toEqual([
      {
        part: "base-sepolia",
        check: "payout_key",
        level: "alarm",
        message: expect.any(String),
        todo: expect.any(String),
      },
    ])
    expect(wrong).toMatchObject({ code: 2, out: "", errors: expect.stringContaining("sluice doctor --help") })
  })

  it("colours its levels on a terminal, and keeps to its width", () => {
    const finding: Finding = {
      part: "database",
      check: "x",
      level: "fault",
      message: "a b ".repeat(30).trim(),
      todo: "Do it.",
    }
    const text = findingsText([finding], { width: 50, coloured: true })
    expect(text.split("\n")[1]?.startsWith("  \u001b[31mfault  \u001b[0ma b")).toBe(true)
    expect(
      text
        .split("\n")
        .slice(2, -2)
        .every(line => line.length <= 50 && line.startsWith(" ".repeat(9))),
    ).toBe(true)
  })
})
