// Alarms of the database that are made for real: an old backup, and connections that are used up.
import { execFile } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { sql } from "kysely"
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { plainEnv, root } from "../../../test/e2e/program.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../../../test/postgres.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { type OpenDatabase, openPostgres } from "../../platform/db/open.ts"
import { registry } from "../../platform/metrics.ts"
import { checkBackup } from "./check-backup.ts"
import { checkDatabase } from "./check-database.ts"
import { standingAlarms } from "./read-standing-alarms.ts"

const DAY_MS = 86_400_000
const settings = { backupMaxAgeMs: 2 * DAY_MS }

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("the alarms of a database", () => {
  let postgres: TestPostgres
  let database: OpenDatabase
  let service: TestService
  const dir = mkdtempSync(join(tmpdir(), "sluice-backup-"))
  const query = async (text: string) => (await sql.raw<Record<string, unknown>>(text).execute(database.db)).rows
  const found = async () =>
    (await checkBackup({ ...service.ctx.settings, ...settings }, query)).map(each => `${each.level}: ${each.message}`)
  const backup = (...args: string[]) =>
    promisify(execFile)(join(root, "script/sluice"), ["backup", ...args], {
      cwd: dir,
      env: { ...plainEnv(), PATH: `${postgresBinaries()}:${process.env.PATH}`, DATABASE_URL: postgres.url },
    })
  const older = () => query("update installation set value = '2020-01-01T00:00:00.000Z' where key = 'backup'")

  beforeAll(async () => {
    postgres = await startPostgres()
    database = await openPostgres(postgres.url, () => {})
    service = await startService({ database, settings: { ...settings, mode: "test" } })
  })
  afterAll(async () => {
    await service.stop()
    await postgres.stop()
    rmSync(dir, { recursive: true })
  })

  it("begin when no backup is known for as long, and end with one of sluice, or of another tool", async () => {
    // A new installation has as long for its first one.
    expect(await found()).toEqual(["ok: the last backup is recent enough"])
    await query("update migrations set applied_at = applied_at - interval '49 hours'")
    expect(await found()).toEqual(["alarm: no backup of the database is known"])
    await backup("one.dump")
    expect(await found()).toEqual(["ok: the last backup is recent enough"])
    await older()
    expect(await found()).toEqual([
      expect.stringMatching(/^alarm: the last known backup of the database .* hours old$/),
    ])
    const standing = standingAlarms(service.ctx, false)
    await standing.check()
    expect(standing.alarms()).toContainEqual(expect.stringMatching(/^the last known backup of the database/))
    expect(await registry.metrics()).toContain('sluice_setup_alarm{part="database",check="backup"} 1')
    expect((await backup("--done")).stdout).toContain("Recorded that a backup was just made.")
    expect(await found()).toEqual(["ok: the last backup is recent enough"])
    await standing.check()
    expect(standing.alarms().filter(each => each.includes("backup"))).toEqual([])
  })

  it("are off where nobody wants them", async () => {
    await older()
    expect(await checkBackup({ ...service.ctx.settings, backupMaxAgeMs: 0 }, query)).toEqual([])
    await expect(backup("--done", "a.dump")).rejects.toThrow("With --done, name no file.")
  })

  it("begin before the connections of the role are used up, and end when they are free", async () => {
    await query("create role few login connection limit 10")
    await query("grant all on all tables in schema public to few")
    const asFew = postgres.url.replace("sluice@", "few@")
    const open = async () => {
      const client = new pg.Client({ connectionString: asFew })
      await client.connect()
      return client
    }
    const clients = await Promise.all(Array.from({ length: 9 }, open))
    const [first] = clients
    const connections = async () =>
      (
        await checkDatabase(
          service.ctx.settings,
          async text => (await first?.query(text))?.rows ?? [],
          () => new Date(),
        )
      ).find(({ check }) => check === "connections")
    expect(await connections()).toMatchObject({ level: "ok" })
    clients.push(await open())
    expect(await connections()).toMatchObject({
      level: "alarm",
      message: "10 of the 10 connections of the role are in use: soon no process can connect",
    })
    await Promise.all(clients.map(client => client.end()))
  })
})
