// The command as an operator runs it, and the person who was invited.
import { spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onPostgres, placeDatabase } from "../../../test/database.ts"
import { plainEnv, root } from "../../../test/e2e/program.ts"
import { liveEnv } from "../../../test/live.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { lockDataDir } from "../../platform/config/data-dir.ts"
import { claimInstallation } from "../../platform/db/claim-installation.ts"
import { openDatabase } from "../../platform/db/open.ts"
import { invite, walletSubject } from "./invite.ts"
import { UsageError } from "./run-command.ts"

const iss = liveEnv.OIDC_ISSUER
const env: Record<string, string> = { ...liveEnv, MODE: "test", SIGNUP: "invite", OIDC_ISSUER: iss }

/** Runs `script/invite` and returns its output and its exit code. */
async function run(args: string[], more: Record<string, string>): Promise<{ code: number; text: string }> {
  const child = spawn(join(root, "script/invite"), args, {
    env: { ...plainEnv(), ...env, ...more },
    stdio: ["ignore", "pipe", "pipe"],
  })
  let text = ""
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", chunk => {
      text += chunk
    })
  const [code] = await once(child, "close")
  return { code, text }
}

describe("an invitation", () => {
  let service: TestService
  beforeAll(async () => {
    service = await startService({ settings: { signup: "invite" } })
  })
  afterAll(() => service.stop())
  beforeEach(() => service.empty())

  const settings = (as: string) => service.call("GET", "/api/console/settings", undefined, { as })

  it("admits exactly the named subject of the named issuer", async () => {
    const { issuer } = service.issuer
    await invite(service.ctx.db, { iss: issuer, sub: "auth0|Carol" }, new Date())
    await invite(service.ctx.db, { iss: "https://other.example/", sub: "dave" }, new Date())
    expect((await settings("auth0|Carol")).status).toBe(200)
    for (const other of ["auth0|carol", "dave"]) expect((await settings(other)).body.error).toBe("SIGNUP_CLOSED")
  })

  it("is given once: inviting again changes nothing, and an existing merchant needs none", async () => {
    const { issuer } = service.issuer
    const again = () => invite(service.ctx.db, { iss: issuer, sub: "carol" }, new Date())
    expect(await again()).toMatch(/^Invited carol of http/)
    expect(await again()).toMatch(/was already invited/)
    expect(await service.ctx.db.selectFrom("invitations").selectAll().execute()).toHaveLength(1)
    const { merchantId } = (await settings("carol")).body
    expect(await again()).toContain(`is already the owner of the merchant ${merchantId}`)
  })

  it("counts once, however many requests use it at once, until the operator invites again", async () => {
    const subject = { iss: service.issuer.issuer, sub: "carol" }
    const start = () => service.call("POST", "/api/console/merchants", {}, { as: "carol" })
    await invite(service.ctx.db, subject, new Date())
    const answers = await Promise.all([...Array.from({ length: 12 }, start), settings("carol"), settings("carol")])
    const made = answers.filter(({ status }) => status === 201).length
    expect(await service.ctx.db.selectFrom("merchants").selectAll().execute()).toHaveLength(1)
    expect(made).toBeLessThanOrEqual(1)
    // Who gives the merchant away can't make another one by the same invitation.
    await service.ctx.db.deleteFrom("members").execute()
    expect((await start()).body.error).toBe("SIGNUP_CLOSED")
    expect(await invite(service.ctx.db, subject, new Date())).toMatch(/^Invited carol/)
    expect([(await start()).status, (await start()).body.error]).toEqual([201, "SIGNUP_CLOSED"])
  })

  describe.runIf(onPostgres)("on Postgres", () => {
    it("is given by the command while the service runs", async () => {
      const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(service.ctx.db)
      const url = new URL(process.env.DATABASE_URL ?? "")
      url.pathname = `/${rows[0]?.name}`
      const more = { DATABASE_URL: url.href, OIDC_ISSUER: service.issuer.issuer }
      expect(await run(["carol"], more)).toMatchObject({ code: 1, text: expect.stringContaining("database is new") })
      await claimInstallation(service.ctx.db, "test", [])
      expect((await settings("carol")).status).toBe(403)
      expect(await run(["carol"], more)).toEqual({ code: 0, text: expect.stringMatching(/^Invited carol of http/) })
      expect((await settings("carol")).status).toBe(200)
    })
  })
})

/** A wallet with its checksum, as the subject of its tokens on Base. */
const WALLET = "0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045"
const SUBJECT = `eip155:8453:${WALLET}`

describe("the subject of a wallet", () => {
  const networks = [
    { name: "base", chainId: 8453 },
    { name: "worldchain", chainId: 480 },
  ]
  const settings = { mode: "live", networks } as const
  /** The second account of anvil and Hardhat. */
  const ANVIL = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"

  it("has the address's checksum", () => {
    for (const text of [SUBJECT, SUBJECT.toLowerCase(), ` ${SUBJECT} `])
      expect(walletSubject(text, settings)).toBe(SUBJECT)
    expect(walletSubject(`eip155:480:${WALLET}`, settings)).toBe(`eip155:480:${WALLET}`)
  })

  it.each([
    ["carol", /^The subject of a wallet must be eip155:CHAIN_ID:ADDRESS, such as eip155:8453:0x…, not carol\.$/],
    [WALLET, /^The subject of a wallet must be eip155:CHAIN_ID:ADDRESS/],
    [`eip155:${WALLET}`, /^The subject of a wallet must be eip155:CHAIN_ID:ADDRESS/],
    ["eip155:8453:0xnope", /^The subject's address 0xnope must be an address/],
    [SUBJECT.replace("0xd8dA", "0xD8dA"), /with a valid checksum if its case is mixed\.$/],
    [
      `eip155:1:${WALLET}`,
      /^The subject's network 1 is not served here; it must be one of: 8453 \(base\), 480 \(worldchain\)\.$/,
    ],
    [`eip155:8453:0x${"0".repeat(40)}`, /can't be the zero address\.$/],
    [`eip155:8453:${ANVIL}`, new RegExp(`^The subject's address ${ANVIL} is a well-known development account`)],
  ])("%s is refused, as nobody or everybody could sign in with it", (text, words) => {
    expect(() => walletSubject(text, settings)).toThrow(words)
    expect(() => walletSubject(text, settings)).toThrow(UsageError)
  })

  it("may be a development account where money is not real", () => {
    expect(walletSubject(`eip155:8453:${ANVIL}`, { ...settings, mode: "test" })).toBe(`eip155:8453:${ANVIL}`)
  })
})

describe("script/invite on the embedded database", () => {
  let dir: string
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), "sluice-invite-"))
    return () => rmSync(dir, { recursive: true, force: true })
  })

  const at = () => ({ DATABASE_URL: "", DATA_DIR: dir })
  async function database<T>(work: (db: Awaited<ReturnType<typeof openDatabase>>["db"]) => Promise<T>): Promise<T> {
    if (!existsSync(join(dir, "db"))) placeDatabase(dir)
    const opened = await openDatabase({ databaseUrl: undefined, dataDir: dir }, () => {})
    return await work(opened.db).finally(() => opened.close())
  }
  const invitations = () => database(db => db.selectFrom("invitations").select(["iss", "sub"]).orderBy("sub").execute())

  it("invites for OIDC_ISSUER, or the issuer that is named, and says so", async () => {
    await database(db => claimInstallation(db, "test", []))
    expect(await run(["carol"], at())).toEqual({
      code: 0,
      text: `Invited carol of ${iss}: the first valid token creates a merchant.\n`,
    })
    expect((await run(["carol"], at())).text).toContain("was already invited")
    const other = await run(["dave", "https://other.example/"], { ...at(), SIGNUP: "open" })
    expect(other.text).toMatch(/Invited dave of https:\/\/other.example\/:.*\n.*OIDC_ISSUER is .*\n.*SIGNUP is open/)
    expect(await invitations()).toEqual([
      { iss, sub: "carol" },
      { iss: "https://other.example/", sub: "dave" },
    ])
  })

  it("says what is wrong in a sentence, and invites nobody", async () => {
    const refused = async (args: string[], words: RegExp, more: Record<string, string> = {}, exit = 1) => {
      const { code, text } = await run(args, { ...at(), ...more })
      expect({ code, text }).toEqual({ code: exit, text: expect.stringMatching(words) })
      expect(text).not.toMatch(/^\s+at /m)
    }
    const misused = (args: string[], words: RegExp, more?: Record<string, string>) => refused(args, words, more, 2)
    await refused(["carol"], /There is no database in .*DATA_DIR/)
    await refused(["carol"], /There is no database in .*DATA_DIR/, { DATA_DIR: join(dir, "mistyped") })
    await database(db => claimInstallation(db, "sandbox", []))
    await refused(["carol"], /belongs to an installation with MODE=sandbox; MODE is test/)
    await misused([], /^Name one subject/)
    await misused(["carol", iss, "more"], /^Name one subject/)
    await misused(["carol", "not-a-url"], /^The issuer must be an http\(s\) address/)
    await misused(["carol"], /^OIDC_ISSUER is not set/, { MODE: "sandbox", OIDC_ISSUER: "" })
    // What no wallet's token can have: it was once stored, and nobody could sign in with it.
    await misused([`eip155:8453:0xnope`, liveEnv.BASE_URL], /^The subject's address 0xnope must be an address/)
    await refused(["carol"], /OIDC_ISSUER must be set/, { OIDC_ISSUER: "" })
    const unlock = lockDataDir(dir)
    await refused(
      ["carol"],
      /The service is running on .* Stop the service, run this command, and start the service again/,
    )
    unlock()
    expect(await invitations()).toEqual([])
  })

  it("stores a wallet with the checksum that its tokens have, whatever case it is written in", async () => {
    await database(db => claimInstallation(db, "test", []))
    // As the issuer that is the default, and as one that is named, with a slash that the tokens' has not.
    const inCapitals = `eip155:8453:0x${WALLET.slice(2).toUpperCase()}`
    const said = `Invited ${SUBJECT} of ${liveEnv.BASE_URL}: the first valid token creates a merchant.\n`
    expect(await run([SUBJECT.toLowerCase()], { ...at(), OIDC_ISSUER: liveEnv.BASE_URL })).toEqual({
      code: 0,
      text: said,
    })
    expect((await run([inCapitals, `${liveEnv.BASE_URL}/`], at())).text).toContain("was already invited")
    expect(await invitations()).toEqual([{ iss: liveEnv.BASE_URL, sub: SUBJECT }])
  })

  it("refuses a database that nobody has served yet", async () => {
    mkdirSync(dir, { recursive: true })
    await database(async () => {})
    expect(await run(["carol"], at())).toMatchObject({ code: 1, text: expect.stringContaining("database is new") })
  })

  it("prints its usage", async () => {
    expect(await run(["--help"], at())).toEqual({ code: 0, text: expect.stringContaining("SUBJECT  the `sub`") })
  })
})
