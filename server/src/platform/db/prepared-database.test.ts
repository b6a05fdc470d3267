import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { prepareDatabase } from "../../../tools/prepare-database.ts"
import { openPGlite, overPGlite } from "./open.ts"
import { copyPrepared, preparedIn } from "./prepared-database.ts"

let dir: string
let cache: string
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "sluice-prepared-"))
  cache = join(dir, "cache")
  mkdirSync(join(cache, "database-of-another-version"), { recursive: true })
  await prepareDatabase(cache)
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

/** Everything that migrations make, by its text in the catalogue. */
const schema = sql<{ what: string }>`
  select format('%s.%s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod)) as what from pg_attribute
    where attrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace) and attnum > 0
  union all select pg_get_indexdef(indexrelid) from pg_index where indrelid::regclass::text not like 'pg_%'
  union all select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
  union all select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
  union all select name || ' ' || checksum from migrations
  order by 1`

it("a copy has the schema that a new database gets, and nothing is left to migrate", async () => {
  const copied = join(dir, "copied")
  mkdirSync(copied)
  expect(copyPrepared(copied, cache)).toBe(true)
  const pglite = await openPGlite({ dataDir: copied })
  const statements: string[] = []
  const transaction = pglite.transaction.bind(pglite)
  pglite.transaction = run =>
    transaction(tx => {
      const exec = (text: string) => {
        statements.push(text)
        return tx.exec(text)
      }
      return run({ ...tx, exec })
    })
  const sentences: string[] = []
  const copy = await overPGlite(pglite, sentence => sentences.push(sentence))
  const fresh = await overPGlite(await openPGlite())
  const found = await schema.execute(copy.db)
  expect(found.rows.length).toBeGreaterThan(500)
  expect(found.rows).toEqual((await schema.execute(fresh.db)).rows)
  expect(sentences).toEqual([])
  // Only what finds that out.
  expect(statements.filter(text => !/^(set local|create table if not exists migrations)/.test(text))).toEqual([])
  expect(statements).toHaveLength(3)
  await copy.close()
  await fresh.close()
})

it("is one of exactly this schema: there is none for another, and those of others are removed", () => {
  const prepared = preparedIn(cache)
  expect(readdirSync(cache)).toEqual([prepared.slice(cache.length + 1)])
  const empty = join(dir, "empty")
  mkdirSync(empty)
  renameSync(prepared, `${prepared}-of-another`)
  expect(copyPrepared(empty, cache)).toBe(false)
  expect(readdirSync(empty)).toEqual([])
  renameSync(`${prepared}-of-another`, prepared)
})

it("is made once, whoever asks, and stays as it is", async () => {
  const prepared = preparedIn(cache)
  const mark = join(prepared, "mark")
  cpSync(join(prepared, "PG_VERSION"), mark)
  await prepareDatabase(cache)
  expect(existsSync(mark)).toBe(true)
  rmSync(mark)
})
