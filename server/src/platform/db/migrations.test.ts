// The migrations on the embedded database; migrated.test.ts brings older databases up to this version.
import { Kysely, PGliteDialect } from "kysely"
import { describe, expect, it } from "vitest"
import { openEmptyPGlite } from "../../../test/database.ts"
import { sharedSlugs } from "./check-slugs.ts"
import { overPGlite } from "./open.ts"
import type { Database } from "./schema.ts"

describe("migrations", () => {
  it("are applied once, and refuse a database that is newer or was created by another text", async () => {
    const pglite = await openEmptyPGlite()
    const again = () => overPGlite(pglite)
    await again()
    const applied = await pglite.query<{ name: string; checksum: string }>("select name, checksum from migrations")
    await again()
    expect((await pglite.query("select name, checksum from migrations")).rows).toEqual(applied.rows)
    await pglite.query("insert into migrations (name, checksum) values ('9999_future.sql', 'x')")
    await expect(again()).rejects.toThrow(/9999_future.sql, which this version doesn't know/)
    await pglite.query("delete from migrations where name = '9999_future.sql'")
    await pglite.query("update migrations set checksum = 'other'")
    await expect(again()).rejects.toThrow(/was applied with a different text/)
    await pglite.close()
  })
})

it("a slug that a paywall and a link had before it named one thing is reported to the operator, until one has another", async () => {
  const pglite = await openEmptyPGlite()
  await overPGlite(pglite)
  await pglite.exec(`
    insert into merchants (id, name, created_at) values ('mer', '', now());
    insert into payment_links (id, merchant_id, chain_id, slug, title, currency, active, created_at, updated_at)
      values ('link', 'mer', 1, 'both', 'a', 'USDC', true, now() - interval '1 day', now());
    set session_replication_role = replica;
    insert into paywalls (id, merchant_id, chain_id, name, price, currency, content_type, pricing_model, active, slug,
      created_at, updated_at) values ('pw_1', 'mer', 1, 'a', 5, 'USDC', 'api', 'one_time', true, 'both', now(), now());
    set session_replication_role = origin`)
  const db = new Kysely<Database>({ dialect: new PGliteDialect({ pglite }) })
  expect(await sharedSlugs(db)).toEqual([{ slug: "both", paywallId: "pw_1", linkId: "link" }])
  const owner = async () =>
    (await pglite.query<{ resource_id: string }>("select resource_id from slugs order by slug")).rows
  expect(await owner()).toEqual([{ resource_id: "link" }])
  await pglite.exec("update payment_links set slug = 'mine'")
  expect(await owner()).toEqual([{ resource_id: "pw_1" }, { resource_id: "link" }])
  expect(await sharedSlugs(db)).toEqual([])
  await pglite.close()
})
