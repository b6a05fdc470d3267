/**
 * Applies `migrations/*.sql` in order, each once, all in one transaction. Kysely's own migrator sends a file as one
 * prepared statement, which PGlite refuses when it holds several (42601).
 */
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"

/** What both engines can do inside a transaction; `exec` takes several statements. */
interface Session {
  exec(text: string): Promise<void>
  query(text: string, values?: unknown[]): Promise<Record<string, string>[]>
}

interface Engine {
  transaction<T>(run: (session: Session) => Promise<T>): Promise<T>
}

const folder = new URL("./migrations/", import.meta.url)

const files = () =>
  readdirSync(folder)
    .filter(name => name.endsWith(".sql"))
    .sort()
    .map(name => {
      const text = readFileSync(new URL(name, folder), "utf8")
      return { name, text, checksum: createHash("sha256").update(text).digest("hex") }
    })

/**
 * Brings the database up to this version's schema, or throws: when an applied file's text has changed, or when the
 * database is newer than this program.
 */
export async function migrate(engine: Engine): Promise<void> {
  await engine.transaction(async session => {
    // One of several processes that start together migrates; the others wait here and then find it done.
    await session.exec("select pg_advisory_xact_lock(7582411)")
    await session.exec(
      "create table if not exists migrations (name text primary key, checksum text not null, applied_at timestamptz not null default now())",
    )
    const applied = new Map(
      (await session.query("select name, checksum from migrations")).map(row => [row.name, row.checksum]),
    )
    const known = files()
    for (const name of applied.keys())
      if (!known.some(file => file.name === name))
        throw new Error(
          `The database has the migration ${name}, which this version doesn't know. Run the newer version.`,
        )
    for (const { name, text, checksum } of known) {
      const before = applied.get(name)
      if (before === checksum) continue
      if (before !== undefined)
        throw new Error(
          `The migration ${name} was applied with another text. Restore the file; changes go into a new one.`,
        )
      await session.exec(text)
      await session.query("insert into migrations (name, checksum) values ($1, $2)", [name, checksum])
    }
  })
}
