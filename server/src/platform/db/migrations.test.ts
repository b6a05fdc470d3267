// What single migrations do to existing rows, on the embedded database; migrated.test.ts does the same with whole
// services.
import { readdirSync, readFileSync } from "node:fs"
import { Kysely, PGliteDialect } from "kysely"
import { describe, expect, it } from "vitest"
import { openEmptyPGlite } from "../../../test/database.ts"
import { sharedSlugs } from "./check-slugs.ts"
import { overPGlite } from "./open.ts"
import type { Database } from "./schema.ts"

describe("migrations", () => {
  it("0003 gives the per_call grants of before one call each", async () => {
    const pglite = await openEmptyPGlite()
    const apply = (name: string) =>
      pglite.exec(readFileSync(new URL(`./migrations/${name}.sql`, import.meta.url), "utf8"))
    for (const name of ["0001_foundation", "0002_idempotency"]) await apply(name)
    const address = `0x${"b".repeat(40)}`
    const hash = `0x${"5".repeat(64)}`
    await pglite.exec("insert into merchants values ('mer', 'i', 's', '', null, now())")
    for (const model of ["per_call", "one_time"])
      await pglite.exec(`
        insert into paywalls (id, merchant_id, chain_id, name, price, currency, content_type, pricing_model, active,
          created_at, updated_at) values ('${model}', 'mer', 1, 'a', 1, 'USDC', 'api', '${model}', true, now(), now());
        insert into payments values ('pay ${model}', '${model}', 1, '${address}', 1, '${hash}', 'granted', now(), now());
        insert into grants (id, payment_id, paywall_id, address, tx_hash, duration_s, granted_at)
          values ('grant ${model}', 'pay ${model}', '${model}', '${address}', '${hash}', 300, now());
        insert into access values ('${model}', '${address}', now(), '${hash}');
        insert into access values ('${model}', '0x${"c".repeat(40)}', null, null)`)
    await apply("0003_callers")
    const grants = await pglite.query("select paywall_id, calls, calls_used from grants order by 1")
    expect(grants.rows).toEqual([
      { paywall_id: "one_time", calls: null, calls_used: 0 },
      { paywall_id: "per_call", calls: 1, calls_used: 0 },
    ])
    const access = await pglite.query("select calls_left from access where expires_at is not null order by paywall_id")
    expect(access.rows).toEqual([{ calls_left: null }, { calls_left: 1 }])
    const tooMany = pglite.exec("update grants set calls_used = 2 where calls = 1")
    await expect(tooMany).rejects.toThrow(/check/)
    await pglite.close()
  })

  it("0009 finds the token of each payment, and schedules a new check of those that waited before", async () => {
    const pglite = await openEmptyPGlite()
    const dir = new URL("./migrations/", import.meta.url)
    const apply = async (names: string[]) => {
      for (const name of names) await pglite.exec(readFileSync(new URL(name, dir), "utf8"))
    }
    const all = readdirSync(dir).sort()
    await apply(all.filter(name => name < "0009"))
    const text = (character: string, length: number) => `'0x${character.repeat(length)}'`
    const usdc = text("a", 40)
    const other = text("b", 40)
    const payer = text("c", 40)
    await pglite.exec(`
      insert into merchants values ('mer', 'i', 's', '', null, now());
      insert into paywalls (id, merchant_id, chain_id, name, price, currency, content_type, pricing_model, active,
        created_at, updated_at) values ('pw', 'mer', 1, 'a', 5, 'USDC', 'api', 'one_time', true, now(), now());
      insert into checkout_sessions (id, merchant_id, chain_id, amount, currency, status, expires_at, created_at, updated_at)
        values ('cs', 'mer', 1, 5, 'USDC', 'expired', now(), now(), now());
      insert into deposits (chain_id, address, factory, salt, owner, open_after_s, paywall_id, session_id, created_at, hot_until)
        values (1, ${text("1", 40)}, ${payer}, ${text("1", 64)}, ${payer}, 1, 'pw', null, now(), now()),
          (1, ${text("2", 40)}, ${payer}, ${text("2", 64)}, ${payer}, 1, null, 'cs', now(), now());
      insert into transfers (chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number, block_hash,
          log_index, block_time, state, created_at)
        select 1, hash, token, d.address, k, d.id, ${payer}, 5, 1, ${text("9", 64)}, k, now(), 'final', now()
        from (values ('pw', ${text("1", 64)}, ${other}, 0), ('pw', ${text("1", 64)}, ${usdc}, 1),
            ('pw', ${text("2", 64)}, ${usdc}, 0), ('cs', ${text("3", 64)}, ${usdc}, 0)) as v (whose, hash, token, k)
          join deposits d on coalesce(d.paywall_id, d.session_id) = v.whose;
      insert into payments (id, merchant_id, paywall_id, session_id, chain_id, payer, amount, tx_hash, status, exception,
          created_at, updated_at)
        values ('pay1', 'mer', 'pw', null, 1, ${payer}, 5, ${text("1", 64)}, 'granted', null, now(), now()),
          ('pay2', 'mer', null, 'cs', 1, ${payer}, 5, ${text("3", 64)}, 'open', 'late', now(), now());
      insert into claims select t.id, case when session_id is null then 'pay1' else 'pay2' end from transfers t
        join deposits d on d.id = t.deposit_id where t.token = ${usdc} and t.tx_hash <> ${text("2", 64)}`)
    await apply(all.filter(name => name.startsWith("0009")))
    const payments = await pglite.query("select id, token, deposit_id, accepted_at, beside from payments order by id")
    const token = `0x${"a".repeat(40)}`
    expect(payments.rows).toEqual([
      { id: "pay1", token, deposit_id: null, accepted_at: null, beside: false },
      { id: "pay2", token, deposit_id: 2, accepted_at: null, beside: false },
    ])
    const due = await pglite.query("select tx_hash, token from transfers where run_at is not null order by tx_hash")
    expect(due.rows).toEqual([
      { tx_hash: `0x${"1".repeat(64)}`, token: `0x${"b".repeat(40)}` },
      { tx_hash: `0x${"2".repeat(64)}`, token },
    ])
    expect((await pglite.query("select id from checkout_sessions where run_at is not null")).rows).toEqual([
      { id: "cs" },
    ])
    await pglite.close()
  })

  it("of slugs keeps what a paywall and a link have named alike, and reports it to the operator", async () => {
    const pglite = await openEmptyPGlite()
    const dir = new URL("./migrations/", import.meta.url)
    const all = readdirSync(dir).sort()
    const slugs = all.find(name => name.endsWith("_slugs.sql")) ?? ""
    const apply = async (name: string) => pglite.exec(readFileSync(new URL(name, dir), "utf8"))
    for (const name of all.filter(name => name < slugs)) await apply(name)
    await pglite.exec(`
      insert into merchants values ('mer', 'i', 's', '', null, now());
      insert into paywalls (id, merchant_id, chain_id, name, price, currency, content_type, pricing_model, active, slug,
        created_at, updated_at) values ('pw', 'mer', 1, 'a', 5, 'USDC', 'api', 'one_time', true, 'both', now(), now());
      insert into payment_links (id, merchant_id, chain_id, slug, title, currency, active, created_at, updated_at)
        values ('link', 'mer', 1, 'both', 'a', 'USDC', true, now() - interval '1 day', now())`)
    await apply(slugs)
    const db = new Kysely<Database>({ dialect: new PGliteDialect({ pglite }) })
    expect(await sharedSlugs(db)).toEqual([{ slug: "both", paywallId: "pw", linkId: "link" }])
    const owner = async () =>
      (await pglite.query<{ resource_id: string }>("select resource_id from slugs order by slug")).rows
    expect(await owner()).toEqual([{ resource_id: "link" }])
    // A slug that one of them gives up belongs to the other alone.
    await pglite.exec("update payment_links set slug = 'mine'")
    expect(await owner()).toEqual([{ resource_id: "pw" }, { resource_id: "link" }])
    expect(await sharedSlugs(db)).toEqual([])
    await pglite.close()
  })

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
    await expect(again()).rejects.toThrow(/was applied with another text/)
    await pglite.close()
  })
})
