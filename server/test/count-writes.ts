/** Whether anything was written to a database, and what is in it. */
import { sql } from "kysely"
import type { Db } from "../src/platform/db/open.ts"

/** All but the list of migrations, the record of who was screened, and the log of requests: it is written a moment after each. */
async function tables(db: Db): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`select tablename as name from pg_tables
    where schemaname = 'public' and tablename not in ('migrations', 'screenings', 'requests') order by 1`.execute(db)
  return rows.map(({ name }) => name)
}

/** Counts each statement that may write, rolled back or not: to read all tables takes as long as ten requests. */
export async function countWrites(db: Db): Promise<void> {
  await sql`create schema test`.execute(db)
  await sql`create sequence test.writes`.execute(db)
  await sql`create function test.count_write() returns trigger language plpgsql as $$ begin
      perform nextval('test.writes');
      return null;
    end $$`.execute(db)
  for (const name of await tables(db))
    await sql`create trigger count_write after insert or update or delete or truncate on ${sql.table(name)}
      for each statement execute function test.count_write()`.execute(db)
}

export const writes = async (db: Db): Promise<string | undefined> =>
  (await sql<{ n: string }>`select last_value::text || is_called as n from test.writes`.execute(db)).rows[0]?.n

/** The contents of each table. */
export async function contents(db: Db): Promise<Record<string, unknown>> {
  const each = (await tables(db)).map(
    name => sql`select ${name}::text as name, count(*)::int as rows,
      md5(coalesce(string_agg(t::text, '|' order by t::text), '')) as hash from ${sql.table(name)} t`,
  )
  const { rows } = await sql<{ name: string }>`${sql.join(each, sql` union all `)}`.execute(db)
  return Object.fromEntries(rows.map(({ name, ...found }) => [name, found]))
}
