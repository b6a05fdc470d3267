/**
 * Databases for tests: the embedded one from a migrated snapshot, or with `DATABASE_URL` a Postgres database of the test
 * file's own. Both are emptied between tests.
 */
import { execFileSync } from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import { cpSync, mkdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import type { PGlite } from "@electric-sql/pglite"
import { sql } from "kysely"
import pg from "pg"
import type { MigrationReport } from "../src/platform/db/migrate.ts"
import { type OpenDatabase, openPGlite, openPostgres, overPGlite } from "../src/platform/db/open.ts"
import { backgroundDeadlines } from "../src/platform/db/pool.ts"

export const onPostgres = process.env.DATABASE_URL !== undefined

const archives = new Map<string, Blob>()

/** A migrated, empty database. Read now, as a bench starts its server after this file is loaded. */
export async function openTestDatabase(): Promise<OpenDatabase> {
  const { DATABASE_URL } = process.env
  return DATABASE_URL === undefined ? await openSnapshot() : await openOwnPostgres(DATABASE_URL)
}

/** Loads an archive of {@link makeSnapshot}; makes the files where there is none, as no set-up runs before benches. */
async function load(name: "new.tar" | "db.tar"): Promise<PGlite> {
  const folder = process.env.TEST_SNAPSHOT
  if (!folder) return await openPGlite()
  const loadDataDir = archives.get(name) ?? new Blob([readFileSync(join(folder, name))])
  archives.set(name, loadDataDir)
  return await openPGlite({ loadDataDir })
}

const openSnapshot = async (): Promise<OpenDatabase> => await overPGlite(await load("db.tar"))

/** An embedded database in which nothing is. */
export const openEmptyPGlite = (): Promise<PGlite> => load("new.tar")

/**
 * Makes the files of an embedded database in `folder`: empty as the archive `new.tar`, and migrated as `db` and `db.tar`. They
 * take four seconds of CPU, and 0.35 to load: it was shut down, so nothing is recovered, and has no templates for other
 * databases, which are half of its files.
 */
export async function makeSnapshot(folder: string): Promise<void> {
  const dir = join(folder, "db")
  const archive = (name: string) => execFileSync("tar", ["-cf", join(folder, name), "-C", dir, "."])
  const first = await openPGlite({ dataDir: dir })
  await first.exec("update pg_database set datistemplate = false")
  for (const name of ["template0", "template1"]) await first.exec(`drop database ${name}`)
  await first.close()
  archive("new.tar")
  await (await overPGlite(await openPGlite({ dataDir: dir }))).close()
  archive("db.tar")
}

/** Gives a program's data folder, which is made where it is missing, an embedded database as an earlier start left it. */
export function placeDatabase(dataDir: string): void {
  const folder = process.env.TEST_SNAPSHOT
  if (!folder) return
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  cpSync(join(folder, "db"), join(dataDir, "db"), { recursive: true })
}

/**
 * A migrated database for a program on the server of these tests, and what drops it, also while the program is connected; undefined where
 * they run on the embedded one.
 */
export async function copyTemplate(): Promise<{ url: string; drop: () => Promise<void> } | undefined> {
  const { DATABASE_URL, TEST_TEMPLATE } = process.env
  if (DATABASE_URL === undefined || TEST_TEMPLATE === undefined) return undefined
  const name = `test_${randomBytes(8).toString("hex")}`
  await runOn(DATABASE_URL, `create database ${name} template ${TEST_TEMPLATE} strategy file_copy`)
  const { href } = Object.assign(new URL(DATABASE_URL), { pathname: `/${name}` })
  return { url: href, drop: () => runOn(DATABASE_URL, `drop database ${name} with (force)`) }
}

async function runOn(server: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: server })
  await client.connect()
  await client.query(statement).finally(() => client.end())
}

async function openNamed(server: string, name: string, report?: MigrationReport): Promise<OpenDatabase> {
  const url = new URL(server)
  url.pathname = `/${name}`
  const onError = (error: Error) => {
    throw error
  }
  // Not those of requests: tests also run the jobs of the background over this pool, and on a busy machine a statement over
  // thousands of rows took more than ten seconds.
  return await openPostgres(url.href, onError, report, { ...backgroundDeadlines, connectMs: 60_000 })
}

/** Creates a migrated database that others are copied from, and returns its name. */
export async function makeTemplate(server: string): Promise<string> {
  const name = `template_${randomBytes(8).toString("hex")}`
  await runOn(server, `create database ${name}`)
  const database = await openNamed(server, name)
  await database.close()
  return name
}

/** Runs statements, and answers the rows of the last one. */
export type RunSql = (text: string) => Promise<Record<string, unknown>[]>

/**
 * A database that `fill` filled when these migrations were all there were, migrated since. `fill` also gets the address of one on
 * Postgres; `report` hears of its migration.
 */
export async function openOlderDatabase(
  migrations: readonly { name: string; text: string }[],
  fill: (run: RunSql, url?: string) => Promise<void>,
  report?: MigrationReport,
): Promise<OpenDatabase> {
  const older = async (run: RunSql, url?: string) => {
    await run(
      "create table migrations (name text primary key, checksum text not null, applied_at timestamptz not null default now())",
    )
    for (const { name, text } of migrations) {
      await run(text)
      const checksum = createHash("sha256").update(text).digest("hex")
      await run(`insert into migrations (name, checksum) values ('${name}', '${checksum}')`)
    }
    await fill(run, url)
  }
  if (onPostgres)
    return await openOwnPostgres(
      process.env.DATABASE_URL ?? "",
      async url => {
        const client = new pg.Client({ connectionString: url })
        await client.connect()
        const run: RunSql = async text => {
          // One result for each statement, where there are several.
          const results = [await client.query(text)].flat()
          return results.at(-1)?.rows ?? []
        }
        await older(run, url).finally(() => client.end())
      },
      report,
    )
  const pglite = await openEmptyPGlite()
  await older(async text => (await pglite.exec(text)).at(-1)?.rows ?? [])
  return await overPGlite(pglite, report)
}

/**
 * A new, migrated database of its own on a Postgres server; it is dropped when it is closed. `prepare` gets its URL while it is
 * empty.
 */
export async function openOwnPostgres(
  server: string,
  prepare?: (url: string) => Promise<void>,
  report?: MigrationReport,
): Promise<OpenDatabase> {
  const name = `test_${randomBytes(8).toString("hex")}`
  const admin = (statement: string) => runOn(server, statement)
  const template = server === process.env.DATABASE_URL && !prepare ? process.env.TEST_TEMPLATE : undefined
  // Without the log: its files are copied, in half of the CPU.
  await admin(`create database ${name}${template ? ` template ${template} strategy file_copy` : ""}`)
  await prepare?.(Object.assign(new URL(server), { pathname: `/${name}` }).href)
  const database = await openNamed(server, name, report)
  return {
    ...database,
    close: async () => {
      await database.close()
      // The server notices a moment after the pool that its connections are gone (55006 until then).
      const drop = (): Promise<void> =>
        admin(`drop database ${name}`).catch(error => {
          if (error.code === "55006") return drop()
          throw error
        })
      await drop()
    },
  }
}

/**
 * Empties every table except the list of migrations. Only tables that were ever written to are emptied, which takes 3 ms; to
 * truncate them takes 40 on Postgres, and 90 on the embedded database.
 */
export async function emptyDatabase({ db }: OpenDatabase): Promise<void> {
  await db.transaction().execute(async db => {
    // No trigger runs and no foreign key is checked, because everything is deleted.
    await sql`set local session_replication_role = replica`.execute(db)
    await sql`
      do $$
      declare
        name text;
      begin
        for name in
          select relname from pg_class
          where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> 'migrations'
            and pg_relation_size(oid) > 0
        loop
          execute format('delete from %I', name);
        end loop;
        perform setval(format('%I', sequencename), start_value, false)
        from pg_sequences where schemaname = 'public' and last_value is not null;
      end $$`.execute(db)
  })
}

/** All current rows; the returned function restores them, as a backup would. */
export async function backUp({ db }: Pick<OpenDatabase, "db">): Promise<() => Promise<void>> {
  const tables = await sql<{ name: string }>`
    select tablename as name from pg_tables where schemaname = 'public' and tablename <> 'migrations'`.execute(db)
  const kept: { name: string; rows: string }[] = []
  for (const { name } of tables.rows) {
    const { rows } = await sql<{ rows: string }>`
      select coalesce(json_agg(t), '[]')::text as rows from ${sql.table(name)} t`.execute(db)
    kept.push({ name, rows: rows[0]?.rows ?? "[]" })
  }
  return () =>
    db.transaction().execute(async db => {
      // Rows are restored as they were, without triggers.
      await sql`set local session_replication_role = replica`.execute(db)
      await sql`truncate ${sql.join(kept.map(({ name }) => sql.table(name)))} cascade`.execute(db)
      for (const { name, rows } of kept)
        await sql`insert into ${sql.table(name)} overriding system value
          select * from json_populate_recordset(null::${sql.table(name)}, ${rows}::json)`.execute(db)
    })
}
