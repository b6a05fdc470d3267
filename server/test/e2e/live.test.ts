// Live mode as an operator meets it: what it refuses, and that it starts where nothing is to be refused.
import { chmodSync, existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { keystoreOf } from "../keystore.ts"
import { liveEnv, livePayoutWallet } from "../live.ts"
import { newSandbox, type Sandbox, until } from "./program.ts"

let anvil: Anvil
let chain: Record<string, string>
beforeAll(async () => {
  anvil = await startAnvil({ chainId: 480 })
  chain = {
    NETWORKS: "worldchain",
    RPC_WORLDCHAIN: anvil.rpcUrl,
    TOKEN_WORLDCHAIN: await deployTestUsdc(anvil.client),
    DEPOSIT_FACTORY_WORLDCHAIN: await deployDepositFactory(anvil.client, livePayoutWallet()),
  }
})
afterAll(() => anvil.stop())

const places: Sandbox[] = []
afterEach(async () => {
  for (const place of places.splice(0).reverse()) await place.remove()
})
async function newPlace(env: Record<string, string>, database?: "migrated"): Promise<Sandbox> {
  const place = await newSandbox(env, database)
  places.push(place)
  return place
}
/** What stands in a folder with any permission for group or others. */
const openToOthers = (dir: string): string[] =>
  readdirSync(dir).filter(name => (lstatSync(join(dir, name)).mode & 0o077) !== 0)
/** Live on the embedded database, with all that it needs. */
const live = () => ({ ...liveEnv, ...chain, DATABASE_URL: "", ALLOW_EMBEDDED_DB: "1", DRAIN: "0" })

describe("MODE=live", () => {
  it("lists everything that is missing, and starts nothing", async () => {
    const place = await newPlace({ MODE: "live", SANDBOX_PUBLIC: "1", CONFIRMATIONS: "1" })
    const start = place.spawn()
    expect(await start.ended).toEqual({ code: 1, signal: null })
    const [, list] = start.output().split("The settings are not valid:\n")
    const names = (list ?? "").match(/^ {2}[A-Z_]+(?= )/gm)?.map(name => name.trim())
    expect(names?.sort()).toEqual([
      "BASE_URL",
      "CONFIRMATIONS",
      "DATABASE_URL",
      "DEPOSIT_FACTORY_BASE",
      "OIDC_ISSUER",
      "PAYOUT_PRIVATE_KEY",
      "RELAY_PRIVATE_KEY",
      "RPC_BASE",
      "SANDBOX_PUBLIC",
      "SECRET_KEY",
    ])
    expect(start.output()).not.toMatch(/^\s+at /m)
    expect(existsSync(place.dir)).toBe(false)
  })

  it("starts when nothing is to be refused, and says what it does without", async () => {
    const place = await newPlace(live())
    // A folder that was there before, as a mounted volume is, keeps its own mode.
    mkdirSync(place.dir, { mode: 0o755 })
    const start = place.spawn()
    await until("it has started or ended", () => /"started"|can't run/.test(start.output()))
    expect(openToOthers(place.dir)).toEqual([])
    expect(start.output()).toContain("No buyer is screened")
    expect((await place.call("/healthz")).status).toBe(200)
    expect((await place.call("/sandbox/inbox")).status).toBe(404)
    for (const name of ["SECRET_KEY", "PAYOUT_PRIVATE_KEY", "RELAY_PRIVATE_KEY"] as const)
      expect(start.output()).not.toContain(liveEnv[name].slice(2))
    expect(await start.kill("SIGTERM")).toEqual({ code: 0, signal: null })
  })

  it("starts with keystores in the place of keys, and with no password that others can read", async () => {
    const dir = mkdtempSync(join(tmpdir(), "sluice-keys-"))
    const file = (name: string, text: string, mode = 0o600): string => {
      const path = join(dir, name)
      writeFileSync(path, text, { mode })
      return path
    }
    const password = "correct horse"
    const keys = {
      PAYOUT_PRIVATE_KEY: "",
      PAYOUT_KEYSTORE: file("payout.json", keystoreOf(liveEnv.PAYOUT_PRIVATE_KEY, password)),
      PAYOUT_KEYSTORE_PASSWORD_FILE: file("payout", `${password}\n`),
      RELAY_PRIVATE_KEY: "",
      RELAY_KEYSTORE: file("relay.json", keystoreOf(liveEnv.RELAY_PRIVATE_KEY, password)),
      RELAY_KEYSTORE_PASSWORD_FILE: file("relay", `${password}\n`),
    }
    try {
      const place = await newPlace({ ...live(), ...keys }, "migrated")
      const start = place.spawn()
      await until("it has started or ended", () => /"started"|can't run/.test(start.output()))
      // The payout wallet is the factory's operator, or it would not have started.
      expect((await place.call("/healthz")).status).toBe(200)
      for (const secret of [password, liveEnv.PAYOUT_PRIVATE_KEY.slice(2), liveEnv.RELAY_PRIVATE_KEY.slice(2)])
        expect(start.output()).not.toContain(secret)
      await start.kill("SIGTERM")
      chmodSync(keys.RELAY_KEYSTORE_PASSWORD_FILE, 0o644)
      const again = place.spawn()
      expect(await again.ended).toEqual({ code: 1, signal: null })
      expect(again.output()).toContain("RELAY_KEYSTORE_PASSWORD_FILE is readable by users other than its owner")
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

  it("refuses a deposit factory whose operator is another wallet", async () => {
    const DEPOSIT_FACTORY_WORLDCHAIN = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
    const start = (await newPlace({ ...live(), DEPOSIT_FACTORY_WORLDCHAIN }, "migrated")).spawn()
    expect(await start.ended).toEqual({ code: 1, signal: null })
    expect(start.output()).toContain(`is ${anvil.accounts[1].address}, but the payout wallet is`)
    expect(start.output()).not.toMatch(/^\s+at /m)
  })

  it("refuses the database of a sandbox, leaves it as it was, and neither can be read by others", async () => {
    const sandbox = await newPlace({}, "migrated")
    chmodSync(sandbox.dir, 0o755)
    await (await sandbox.start()).kill("SIGTERM")
    expect(openToOthers(sandbox.dir)).toEqual([])
    // As it was where an older version had made it.
    chmodSync(join(sandbox.dir, "db"), 0o777)
    const start = (await newPlace({ ...live(), DATA_DIR: sandbox.dir })).spawn()
    expect(await start.ended).toEqual({ code: 1, signal: null })
    expect(start.output()).toContain("This database belongs to an installation with MODE=sandbox; MODE is live.")
    expect(start.output()).not.toMatch(/^\s+at /m)
    await (await sandbox.start()).kill("SIGTERM")
    expect(openToOthers(sandbox.dir)).toEqual([])
  })
})
