/**
 * Compares `schema.sql`, which row types are made of, with the catalogue of a database with all migrations. `npm run check`
 * compares the row types with `schema.sql`.
 */
import { readFileSync } from "node:fs"
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { onPostgres, openEmptyPGlite, openTestDatabase } from "../../../test/database.ts"
import { describeSchema, type SchemaParts, schemaFile } from "./describe-schema.ts"
import { type OpenDatabase, overPGlite } from "./open.ts"

const describeIn = ({ db }: Pick<OpenDatabase, "db">): Promise<SchemaParts> =>
  describeSchema(async text => (await sql.raw<Record<string, unknown>>(text).execute(db)).rows)

let database: OpenDatabase
let parts: SchemaParts
beforeAll(async () => {
  database = await openTestDatabase()
  parts = await describeIn(database)
})
afterAll(() => database.close())

/** Older servers write more columns of a view with their table. */
const unqualified = ([name, text]: [string, string]): [string, string] => [
  name,
  name.startsWith("view ") ? text.replace(/\b[a-z]\w*\.(?=[a-z])/g, "").replace(/[()]|\s+/g, " ") : text,
]

describe("schema.sql", () => {
  it.runIf(!onPostgres)("is made of the present migrations: npm run schema", () => {
    expect(schemaFile(parts)).toBe(readFileSync(new URL("schema.sql", import.meta.url), "utf8"))
  })

  it.runIf(onPostgres)("is the schema on Postgres too, table by table", async () => {
    const embedded = await overPGlite(await openEmptyPGlite())
    const expected = [...(await describeIn(embedded))].map(unqualified)
    await embedded.close()
    expect(expected.length).toBeGreaterThan(100)
    expect([...parts].map(unqualified)).toEqual(expected)
  })
})

describe("the description of a schema", () => {
  it.each([
    ["a column was added", "alter table payments add column note text", "table payments"],
    ["a column may be null", "alter table payments alter column payer drop not null", "table payments"],
    ["a default is not there", "alter table payments alter column beside drop default", "table payments"],
    ["a check was dropped", "alter table payments drop constraint payments_status_check", "table payments"],
    ["a trigger is off", "alter table payouts disable trigger payouts_keep_promises", "table payouts"],
    ["an index is not there", "drop index payouts_due", "table payouts"],
    ["a view has another condition", "create or replace view books as select * from movements", "view books"],
    [
      "a function has another text",
      "create or replace function keep_actions() returns trigger language plpgsql as 'begin return new; end'",
      "function keep_actions()",
    ],
    [
      "a function finds its tables elsewhere",
      "alter function audited(text, jsonb) reset search_path",
      "function audited(text,jsonb)",
    ],
    ["a domain allows more", "alter domain base_units drop constraint base_units_check", "domain base_units"],
    ["a comment has other words", "comment on table payments is 'Payments.'", "table payments"],
    ["there is a sequence", "create sequence numbers", "relation numbers"],
  ])("differs if %s", async (_what, change, part) => {
    const undone = new Error("undone")
    const changed = database.db.transaction().execute(async db => {
      await sql.raw(change).execute(db)
      const now = await describeIn({ db })
      const names = new Set([...parts.keys(), ...now.keys()])
      expect([...names].filter(name => parts.get(name) !== now.get(name))).toEqual([part])
      throw undone
    })
    await expect(changed).rejects.toBe(undone)
  })
})
