import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { openTestDatabase } from "../../../test/database.ts"
import type { OpenDatabase } from "./open.ts"
import { sqlArray, sqlRows } from "./sql-array.ts"

let database: OpenDatabase
beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())

it("an array holds each value as it is, whatever is in it, and more than a statement takes parameters", async () => {
  const words = ["a", "", "b,c", 'd"e', "f\\g", "{h}", "null", " i "]
  const ids = Array.from({ length: 70_000 }, (_, i) => BigInt(i))
  const { rows } = await sql<{ words: string[]; total: bigint; none: bigint }>`
    select ${sqlArray("text", words)} as words, (select count(*) from unnest(${sqlArray("bigint", ids)})) as total,
      (select count(*) from unnest(${sqlArray("bigint", [])})) as none`.execute(database.db)
  expect(rows).toEqual([{ words, total: 70_000n, none: 0n }])
})

it("the same values as rows are all there, and none for an empty list", async () => {
  const { rows } = await sql<{ words: string[]; none: bigint }>`
    select array(${sqlRows("text", ["b", "a", "b"])}) as words,
      (select count(*) from (${sqlRows("bigint", [])}) none) as none`.execute(database.db)
  expect(rows).toEqual([{ words: ["b", "a", "b"], none: 0n }])
})
