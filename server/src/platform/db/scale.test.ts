// docs/operators/scale.md describes the schema as it is: each new table, key or trigger is named there.
import { readFileSync } from "node:fs"
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openTestDatabase } from "../../../test/database.ts"
import type { OpenDatabase } from "./open.ts"

/** The tables of docs/operators/scale.md by their headings: the first cell of each row, without its marks. */
function listedUnder(heading: string): string[] {
  const text = readFileSync(new URL("../../../../docs/operators/scale.md", import.meta.url), "utf8")
  const section = text.split(`### ${heading}\n`)[1]?.split(/^#/m)[0] ?? ""
  const cells = section.split("\n").flatMap(line => (/^\| `/.test(line) ? [line.split(" | ")[0] ?? ""] : []))
  return cells.flatMap(cell => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name ?? "")).sort()
}

describe("the schema, for Citus", () => {
  let database: OpenDatabase
  beforeAll(async () => {
    database = await openTestDatabase()
  })
  afterAll(() => database.close())
  const names = async (text: string): Promise<string[]> =>
    (await sql.raw<{ name: string }>(text).execute(database.db)).rows.map(({ name }) => name).sort()

  const tables =
    "select relname as name, oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
  const hasMerchant = (table: string) =>
    `exists (select 1 from pg_attribute a where a.attrelid = ${table} and a.attname = 'merchant_id' and not a.attisdropped)`

  it("has the merchant in each table, or a reason why not", async () => {
    const without = await names(`select name from (${tables}) t where not ${hasMerchant("t.oid")}`)
    expect([...listedUnder("Tables that follow another"), ...listedUnder("Tables that every node has")].sort()).toEqual(
      without,
    )
  })

  it("names each unique key that spans merchants", async () => {
    // A random id is unique without the merchant, so a key with the merchant in front is as good.
    const keys = await names(`
      select t.name || '(' || (select string_agg(coalesce(a.attname, 'expression'), ', ' order by k.n)
        from unnest(i.indkey::int[]) with ordinality k (attnum, n)
        left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum and k.attnum > 0) || ')' as name
      from pg_index i join (${tables}) t on t.oid = i.indrelid
      where i.indisunique and ${hasMerchant("t.oid")} and not exists (select 1 from pg_attribute a
        where a.attrelid = i.indrelid and a.attname = 'merchant_id' and a.attnum = any (i.indkey::int[]))`)
    const spanning = keys.filter(key => !key.endsWith("(id)"))
    expect(listedUnder("Unique keys that span merchants")).toEqual([...new Set(spanning)].sort())
  })

  it("has no foreign key from what every node has to what is distributed, but those that are named", async () => {
    const everywhere = listedUnder("Tables that every node has")
    const keys = await names(`
      select conrelid::regclass || ' > ' || confrelid::regclass as name from pg_constraint
      where contype = 'f' and connamespace = 'public'::regnamespace`)
    const refused = keys.filter(key => {
      const [from = "", to = ""] = key.split(" > ")
      return everywhere.includes(from) && !everywhere.includes(to)
    })
    expect(listedUnder("Foreign keys that Citus refuses")).toEqual(refused)
  })

  it("names each function of a trigger", async () => {
    const functions = await names(
      "select distinct p.proname as name from pg_trigger g join pg_proc p on p.oid = g.tgfoid where not g.tgisinternal",
    )
    expect(listedUnder("Triggers")).toEqual(functions)
  })
})
