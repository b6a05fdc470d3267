/** Databases as services of earlier versions left them, for tests of upgrades; `make-dump.test.ts` makes such a file. */
import { readFileSync } from "node:fs"
import { gunzipSync } from "node:zlib"
import type { RunSql } from "./database.ts"

/** A row, without nulls. */
export type Line = Record<string, unknown>

export interface Dump {
  tables: string[]
  rowsOf(table: string): Line[]
  /** The rows of a table as one array in JSON, with numbers as they were. */
  textOf(table: string): string
  /** Restores the rows as a backup would, without triggers, into the schema of the time. */
  fill(run: RunSql): Promise<void>
}

/** The migrations of before the baseline, as the program of that time applied them. */
export const migrationsBeforeBaseline = (): { name: string; text: string }[] =>
  JSON.parse(
    gunzipSync(readFileSync(new URL("fixtures/migrations-before-baseline.json.gz", import.meta.url))).toString("utf8"),
  )

/** Reads the dump of the version whose last migration has this number. Each line is `{"table":…,"row":…}`. */
export function readDump(number: string): Dump {
  const file = readFileSync(new URL(`fixtures/database-${number}.jsonl.gz`, import.meta.url))
  const rows = new Map<string, string[]>()
  for (const line of gunzipSync(file).toString("utf8").trim().split("\n")) {
    const [, table = "", row = ""] = /^{"table":"(\w+)","row":(.*)}$/.exec(line) ?? []
    rows.set(table, [...(rows.get(table) ?? []), row])
  }
  const textOf = (table: string) => `[${(rows.get(table) ?? []).join()}]`
  return {
    tables: [...rows.keys()],
    rowsOf: table => JSON.parse(textOf(table)),
    textOf,
    fill: async run => {
      await run("set session_replication_role = replica")
      for (const table of rows.keys())
        await run(`insert into ${table} overriding system value
          select * from json_populate_recordset(null::${table}, '${textOf(table).replaceAll("'", "''")}')`)
      await run(`do $$ declare s record; begin
        for s in select c.table_name, c.column_name from information_schema.columns c
          where c.table_schema = 'public' and c.is_identity = 'YES' loop
          execute format('select setval(pg_get_serial_sequence(%L, %L), coalesce(max(%I), 0) + 1, false) from %I',
            s.table_name, s.column_name, s.column_name, s.table_name);
        end loop; end $$`)
      await run("set session_replication_role = origin")
    },
  }
}
