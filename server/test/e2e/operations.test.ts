// The commands of docs/operators/operations.md that need a Postgres: what they make is whole.
import { execFile, spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { sql } from "kysely"
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openDatabase, openPostgres } from "../../src/platform/db/open.ts"
import { postgresBinaries, startPostgres } from "../postgres.ts"
import { freePort, newSandbox, plainEnv, root, until } from "./program.ts"

const text = readFileSync(join(root, "docs/operators/operations.md"), "utf8")
const blocks = [...text.matchAll(/^ *```sh(.*)\n([\s\S]*?)^ *```$/gm)].map(match => ({
  kind: match[1]?.trim(),
  text: match[2] ?? "",
}))

let postgres: Awaited<ReturnType<typeof startPostgres>>
const dir = mkdtempSync(join(tmpdir(), "sluice-operations-"))

describe.runIf(postgresBinaries())("docs/operators/operations.md", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(async () => {
    await postgres?.stop()
    rmSync(dir, { recursive: true })
  })

  it("has commands of kinds that a test runs, besides those that need the machine or a cluster", () => {
    const kinds = blocks.map(block => block.kind ?? "").filter(kind => !/^live/.test(kind))
    expect(kinds).toEqual([
      "role",
      "unit",
      "compose",
      "helm",
      "postgres",
      "postgres",
      "embedded",
      "postgres",
      "restore",
      "migrate",
      // Run by server/src/platform/tracing.
      "traces",
      "postgres",
      "recover",
      "recover",
    ])
  })

  it("dumps, restores and exports the terms of all deposits", async () => {
    const admin = new pg.Client({ connectionString: postgres.url })
    await admin.connect()
    for (const name of ["first", "second"]) await admin.query(`create database ${name}`)
    // What the owner of the machine adds to a database, and an ordinary role can't restore.
    await admin.query("create role reporting; create role app login")
    await admin.query("alter database second owner to app")
    await admin.end()
    const [from, to] = ["first", "second"].map(
      name => Object.assign(new URL(postgres.url), { pathname: `/${name}` }).href,
    )
    const first = await openPostgres(from ?? "", () => {})
    for (const added of [
      "create extension pg_stat_statements",
      "grant select on all tables in schema public to reporting",
    ])
      await sql.raw(added).execute(first.db)
    await sql.raw("create publication everything for all tables").execute(first.db)
    await sql`insert into merchants (id, name, created_at) values ('mer_1', 'n', now())`.execute(first.db)
    await sql`insert into paywalls (id, merchant_id, chain_id, name, price, currency, content_type, pricing_model, active,
        created_at, updated_at) values ('pw_1', 'mer_1', 84532, 'n', 1, 'USDC', 'content', 'one_time', true, now(), now())`.execute(
      first.db,
    )
    const address = `0x${"1".repeat(40)}`
    const salt = `0x${"5".repeat(64)}`
    await sql`insert into recipient_sets (created_at) values (now())`.execute(first.db)
    await sql`insert into recipients (set_id, position, address, percent_e4)
      select id, n, '0x' || repeat((n + 7)::text, 40), 333333 * (n + 1) from recipient_sets, generate_series(0, 1) n`.execute(
      first.db,
    )
    await sql`insert into deposits (chain_id, address, factory, salt, owner, approver, payees_hash, recipient_set_id, open_after_s,
        resource_id, created_at, watched_until)
      select 84532, ${address}, ${address}, ${salt}, ${address}, ${address}, ${salt}, id, 1893456000, 'pw_1', now(), now()
      from recipient_sets`.execute(first.db)
    const PATH = `${postgresBinaries()}:${root}script:${process.env.PATH}`
    const env = { ...plainEnv(), PATH, DATABASE_URL: from ?? "", RESTORED_URL: to?.replace("sluice@", "app@") ?? "" }
    for (const { text } of blocks.filter(block => block.kind === "postgres"))
      await promisify(execFile)("bash", ["-euo", "pipefail", "-c", text], { cwd: dir, env })
    const piped = "sluice backup - > again.dump; pg_restore --list again.dump"
    const list = await promisify(execFile)("bash", ["-euo", "pipefail", "-c", piped], { cwd: dir, env })
    expect(list.stdout).toContain("TABLE DATA public deposits")
    const noted = await sql<{
      s: number
    }>`select extract(epoch from clock_timestamp() - value::timestamptz)::float8 as s
      from installation where key = 'backup'`.execute(first.db)
    expect(noted.rows[0]?.s).toBeGreaterThanOrEqual(0)
    expect(noted.rows[0]?.s).toBeLessThan(600)
    await first.close()
    // The copy opens, is at this version, and has the terms.
    const second = await openPostgres(to ?? "", () => {})
    const { rows } = await sql<{ salt: string }>`select salt from deposits`.execute(second.db)
    expect(rows).toEqual([{ salt }])
    await second.close()
    const [head, line] = readFileSync(join(dir, "deposits.csv"), "utf8").trim().split("\n")
    expect(head).toBe("address,chainId,factory,salt,owner,approver,payeesHash,payees,openAfter")
    const payees = `0x${"7".repeat(40)}=33.3333 0x${"8".repeat(40)}=66.6666`
    expect(line).toBe(`${address},84532,${address},${salt},${address},${address},${salt},${payees},1893456000`)
  })

  it("copies the embedded database while it is written, and where no service runs", async () => {
    const place = await newSandbox({ LIMIT_CONSOLE: "0" }, "migrated")
    const [command = ""] = blocks.filter(block => block.kind === "embedded").map(block => block.text)
    const backup = async (file: string) => {
      const env = { ...plainEnv(), PATH: `${root}script:${process.env.PATH}`, DATA_DIR: place.dir }
      await promisify(execFile)("bash", ["-euc", command.replace("sluice.tar.gz", file)], { cwd: dir, env })
      if (!file.startsWith("-")) expect(statSync(join(dir, file)).mode & 0o777).toBe(0o600)
    }
    /** How many paywalls a backup has, restored as the document says. */
    const restored = async (file: string) => {
      const db = join(dir, `of-${file}`, "db")
      mkdirSync(join(db, ".."))
      const [text = ""] = blocks.filter(block => block.kind === "restore").map(block => block.text.trim())
      const env = { ...plainEnv(), DATA_DIR: join(db, "..") }
      await promisify(execFile)("bash", ["-euc", text.replace("sluice.tar.gz", join(dir, file))], { env })
      const copy = await openDatabase({ databaseUrl: undefined, dataDir: join(db, "..") }, () => {})
      const { rows } = await sql<{ n: number }>`select count(*)::int as n from paywalls`.execute(copy.db)
      await copy.close()
      return rows[0]?.n ?? 0
    }
    try {
      const service = await place.start()
      const headers = { authorization: `Bearer ${place.file().merchants[0].accessToken}` }
      let made = 0
      const make = async () => {
        expect((await place.call("/api/console/paywalls", { name: "One", price: 1 }, headers)).status).toBe(201)
        made++
      }
      await make()
      const before = made
      const writing = new AbortController()
      const writer = (async () => {
        while (!writing.signal.aborted) await make()
      })()
      await backup("running.tar.gz")
      writing.abort()
      await writer
      const copied = await restored("running.tar.gz")
      expect(copied).toBeGreaterThanOrEqual(before)
      expect(copied).toBeLessThanOrEqual(made)
      await service.kill("SIGTERM")
      await backup("- > stopped.tar.gz")
      expect(await restored("stopped.tar.gz")).toBe(made)
      await expect(backup("running.tar.gz")).rejects.toThrow("running.tar.gz exists already")
    } finally {
      await place.remove()
    }
  })

  it("a start that waits for a migration answers /healthz, and 503 to all else", async () => {
    const database = new pg.Client({ connectionString: postgres.url })
    await database.connect()
    // Another process migrates.
    await database.query("begin; select pg_advisory_xact_lock(7582411)")
    const port = await freePort()
    const child = spawn(process.execPath, ["server/src/main.ts", "--role", "api"], {
      cwd: root,
      env: {
        PATH: process.env.PATH,
        MODE: "test",
        PORT: `${port}`,
        DATABASE_URL: postgres.url,
        SECRET_KEY: "5f".repeat(32),
        OIDC_ISSUER: "http://127.0.0.1:1",
        OIDC_AUDIENCE: "sluice",
        NETWORKS: "base-sepolia",
        RPC_BASE_SEPOLIA: "http://127.0.0.1:1",
        DEPOSIT_FACTORY_BASE_SEPOLIA: `0x${"22".repeat(20)}`,
      },
      stdio: ["ignore", "pipe", "inherit"],
    })
    let log = ""
    child.stdout.on("data", chunk => (log += chunk))
    const get = (path: string) => fetch(`http://127.0.0.1:${port}${path}`)
    const readiness = async () => {
      const answer = await get("/readyz").catch(() => undefined)
      return (
        answer && {
          status: answer.status,
          after: answer.headers.get("retry-after"),
          body: (await answer.json()) as { message: string },
        }
      )
    }
    try {
      await until("it waits for the migration", () => log.includes("Another process is migrating this database"))
      expect((await get("/healthz")).status).toBe(200)
      expect(await readiness()).toMatchObject({
        status: 503,
        after: "1",
        body: {
          error: "NOT_READY",
          message: "Not ready: the database is being migrated.",
          requestId: expect.any(String),
        },
      })
      await database.query("rollback")
      await until(
        "it goes on",
        async () => (await readiness())?.body.message.includes("the networks are being connected") === true,
      )
      expect(log).toContain("Creating the tables of a new database.")
    } finally {
      child.kill("SIGKILL")
      await database.end()
    }
  })

  it("sluice migrate applies what is missing, with the address of the database alone", async () => {
    const admin = new pg.Client({ connectionString: postgres.url })
    await admin.connect()
    await admin.query("create database empty").finally(() => admin.end())
    const DATABASE_URL = Object.assign(new URL(postgres.url), { pathname: "/empty" }).href
    const [command] = blocks.filter(block => block.kind === "migrate")
    const run = async () => {
      const env = { ...plainEnv(), PATH: `${root}script:${process.env.PATH}`, DATABASE_URL }
      return (await promisify(execFile)("bash", ["-euc", command?.text ?? ""], { cwd: root, env })).stdout
    }
    expect((await run()).split("\n")).toEqual([
      "Creating the tables of a new database.",
      "The database now has this version's schema.",
      "",
    ])
    expect(await run()).toBe("The database already has this version's schema.\n")
  })
})
