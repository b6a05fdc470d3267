// The key of an installation: what a start with another one does, and how the key is changed.
import { randomBytes } from "node:crypto"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { publishedKeys, signToken } from "../../account/identity/use-signing-keys.ts"
import { secretsOf } from "../../account/webhooks/manage-secrets.ts"
import { checkSecretKey } from "../../operations/doctor/check-secret-key.ts"
import { bundleFinder } from "../../products/proxy/load-bundle.ts"
import { idOfRetryToken, retryToken } from "../../products/x402/lease-settlement.ts"
import { isSealedWith, seal } from "../secrets.ts"
import { claimSecretKey, fitOf, isRecorded, reencrypt, SEALED } from "./claim-secret-key.ts"
import { countLostSecrets, forgetLostSecrets } from "./forget-lost-secrets.ts"

const WRONG = /^SECRET_KEY is not this installation's key/
const PARTIAL = /^This installation's SECRET_KEY is being changed/

let service: TestService
let merchantId: string
const key = new Uint8Array(32).fill(7)
const next = randomBytes(32)
const other = randomBytes(32)
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await sql`delete from installation where key = 'secret_key'`.execute(service.ctx.db)
})

const claim = (...keys: Uint8Array[]) => claimSecretKey(service.ctx.db, keys)
const recorded = async (): Promise<string | undefined> =>
  (await service.ctx.db.selectFrom("installation").select("value").where("key", "=", "secret_key").executeTakeFirst())
    ?.value
const ctxWith = (...keys: Uint8Array[]) => ({ ...service.ctx, settings: { ...service.ctx.settings, secretKeys: keys } })

/** One secret of each kind, written by the features themselves with the service's own key. */
async function writeSecrets(): Promise<void> {
  merchantId = await service.merchant("shop")
  await publishedKeys(service.ctx)
  const body = {
    name: "Weather",
    slug: "weather",
    originUrl: "https://api.weather.example/v1",
    originHeaders: { authorization: "Bearer o", "x-key": "k1" },
    routes: [{ method: "GET", path: "/cities", price: 0 }],
  }
  expect((await service.call("POST", "/api/console/bundles", body, { as: "shop" })).status).toBe(201)
  await secretsOf(service.ctx, { merchantId, webhookId: null })
}

/** Encrypts a table's secrets as a process with this key would have. */
async function sealAgain(table: string, key: Uint8Array): Promise<void> {
  const place = SEALED.find(each => each.table === table)
  if (!place) throw new Error(table)
  const { rows } = await sql<{ owner: string; sealed: string }>`
    select ${sql.raw(place.owner)} as owner, sealed from ${sql.table(table)}`.execute(service.ctx.db)
  for (const { owner, sealed } of rows)
    await sql`update ${sql.table(table)} set sealed = ${seal([key], place.purpose, owner, "x")} where sealed = ${sealed}`.execute(
      service.ctx.db,
    )
}

/** What a process with these keys reads of what was written. Its own cache knows none of it. */
async function readSecrets(...keys: Uint8Array[]) {
  const ctx = ctxWith(...keys)
  const bundle = await bundleFinder()(ctx, "weather")
  const [webhook] = await secretsOf(ctx, { merchantId, webhookId: null })
  const token = await signToken(ctx, { typ: "t", aud: "a", sub: "s", expiresAt: new Date() })
  return { headers: bundle?.headers, webhook, isSigned: token !== "" }
}

const ownerOfHeader = async (name: string) => {
  const rows = service.ctx.db.selectFrom("bundle_headers").select("bundle_id").where("name", "=", name)
  return `${(await rows.executeTakeFirstOrThrow()).bundle_id} ${name}`
}

/** Which of the keys each stored secret is encrypted with. */
async function keysInUse(): Promise<(string | undefined)[]> {
  const named = Object.entries({ key, next, other })
  const found: (string | undefined)[] = []
  for (const { table, purpose, owner } of SEALED) {
    const { rows } = await sql<{ owner: string; sealed: string }>`
      select ${sql.raw(owner)} as owner, sealed from ${sql.table(table)}`.execute(service.ctx.db)
    for (const row of rows)
      found.push(named.find(([, each]) => isSealedWith(each, purpose, row.owner, row.sealed))?.[0])
  }
  return found
}

describe("the key of an installation", () => {
  it("knows every column that holds what is encrypted", async () => {
    const { rows } = await sql<{ table_name: string }>`select table_name from information_schema.columns
      where column_name = 'sealed' and table_schema = current_schema() order by 1`.execute(service.ctx.db)
    expect(rows.map(row => row.table_name)).toEqual(SEALED.map(({ table }) => table).sort())
  })

  it("is recorded at the first start, and no other starts after it", async () => {
    expect(await claim(key)).toEqual([])
    const before = await recorded()
    await claim(key)
    await expect(claim(next)).rejects.toThrow(WRONG)
    await expect(claim(next, other)).rejects.toThrow(WRONG)
    expect(await recorded()).toBe(before)
    expect(before).not.toContain(Buffer.from(key).toString("hex"))
    await expect(claim()).rejects.toThrow("SECRET_KEY is not set")
  })

  it("is tried on what is there where an older version recorded none", async () => {
    await writeSecrets()
    await expect(claim(next)).rejects.toThrow(WRONG)
    expect(await recorded()).toBeUndefined()
    // A process with a wrong key wrote this one.
    const sealed = seal([next], "signing-key", "k", "x")
    await sql`insert into signing_keys values ('k', '{}', ${sealed}, now())`.execute(service.ctx.db)
    expect(await claim(key)).toEqual([{ table: "signing_keys", readable: 1, unreadable: 1 }])
    await expect(claim(next)).rejects.toThrow(WRONG)
  })

  it("is refused where it reads the newest key that signs and most others read another one", async () => {
    const insert = (id: string, by: Uint8Array, days: number) =>
      sql`insert into signing_keys values (${id}, '{}', ${seal([by], "signing-key", id, "x")}, now() - ${days} * interval '1 day')`.execute(
        service.ctx.db,
      )
    for (const days of [1, 2, 3]) await insert(`k${days}`, key, days)
    // A process with a wrong key wrote this one.
    await insert("w", next, 0)
    await expect(claim(next)).rejects.toThrow(
      /\(signing_keys: 1 of 4 can be\)\. Set .* run `sluice reencrypt --lost`\./,
    )
    expect(await recorded()).toBeUndefined()
    expect(await claim(key)).toEqual([{ table: "signing_keys", readable: 3, unreadable: 1 }])
    await expect(claim(next)).rejects.toThrow(WRONG)
  })

  it.each([2, 1])(
    "is taken for more than half of what is there without keys that sign, not with %s of others",
    async others => {
      await writeSecrets()
      const { db } = service.ctx
      await db.deleteFrom("signing_keys").execute()
      await sealAgain("webhook_secrets", next)
      if (others === 1) await sql`delete from bundle_headers where name = 'x-key'`.execute(db)
      await expect(claim(next)).rejects.toThrow(/bundle_headers: 0 of \d can be\)\. .*--lost/)
      await sealAgain("webhook_secrets", key)
      expect(await claim(key)).toEqual([])
    },
  )

  it("is refused with the counts of each table where it reads nothing, or little and no key that signs", async () => {
    await writeSecrets()
    const none =
      /decrypt what the database keeps encrypted \(signing_keys: 0 of 1 can be, webhook_secrets: 0 of 1 can be, bundle_headers: 0 of 2 can be\)\. Set/
    await expect(claim(next)).rejects.toThrow(none)
    await sealAgain("webhook_secrets", next)
    await expect(claim(next)).rejects.toThrow(/webhook_secrets: 1 of 1 can be, bundle_headers: 0 of 2/)
    expect(await recorded()).toBeUndefined()
  })

  it.each([true, false])(
    "is taken with a warning after an older version's lost key, where webhooks' secrets were made again: %s",
    async isMadeAgain => {
      await writeSecrets()
      await sealAgain("bundle_headers", other)
      if (!isMadeAgain) await sealAgain("webhook_secrets", other)
      const headers = { table: "bundle_headers", readable: 0, unreadable: 2 }
      const webhooks = { table: "webhook_secrets", readable: 0, unreadable: 1 }
      expect(await claim(key)).toEqual(isMadeAgain ? [headers] : [webhooks, headers])
      await claim(key)
      await expect(claim(other)).rejects.toThrow(WRONG)
    },
  )

  it("is replaced after it was lost: what no key decrypts is removed, and the rest stays", async () => {
    const { db } = service.ctx
    await writeSecrets()
    await claim(key)
    expect(await countLostSecrets(db, [key])).toEqual([])
    const lost = [
      { table: "signing_keys", lost: 1 },
      { table: "webhook_secrets", lost: 1 },
      { table: "bundle_headers", lost: 2 },
    ]
    expect(await countLostSecrets(db, [next])).toEqual(lost)
    expect(await keysInUse()).toEqual(["key", "key", "key", "key"])
    await sql`update bundle_headers set sealed = ${seal([next], "origin-header", await ownerOfHeader("x-key"), "k1")} where name = 'x-key'`.execute(
      db,
    )
    expect(await forgetLostSecrets(db, [next])).toEqual([...lost.slice(0, 2), { table: "bundle_headers", lost: 1 }])
    expect(await keysInUse()).toEqual(["next"])
    expect(await claim(next)).toEqual([])
    await expect(claim(key)).rejects.toThrow(WRONG)
    // The features make what they need, but the headers that only merchants know.
    expect(await readSecrets(next)).toMatchObject({ headers: { "x-key": "k1" }, isSigned: true })
  })

  it("stays beside another one that is kept when a third was lost", async () => {
    const { db } = service.ctx
    await writeSecrets()
    await claim(key)
    expect(await forgetLostSecrets(db, [next, key])).toEqual([])
    expect([await isRecorded(db, [next, key]), await isRecorded(db, [next])]).toEqual([true, false])
    for (const alone of [key, next]) await expect(claim(alone)).rejects.toThrow(PARTIAL)
    expect(await claim(next, key)).toEqual([])
    expect(await reencrypt(db, [next, key])).toEqual({ changed: 4, unreadable: 0 })
    expect(await claim(next)).toEqual([])
  })

  it("is recorded once by processes that start together, whichever is right", async () => {
    await writeSecrets()
    const starts = await Promise.allSettled([claim(next), claim(key), claim(other), claim(key)])
    expect(starts.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected", "fulfilled"])
  })

  it("is changed while the service runs, and each step lets start what can read everything", async () => {
    await writeSecrets()
    const token = retryToken(ctxWith(key), `set_${"a".repeat(24)}`)
    const wrote = await readSecrets(key)
    await claim(key)
    // 1. Every process reads with both.
    await claim(key, next)
    await claim(key)
    // 2. Every process writes with the next one.
    await claim(next, key)
    await claim(key, next)
    for (const alone of [key, next]) await expect(claim(alone)).rejects.toThrow(PARTIAL)
    expect(await readSecrets(next, key)).toEqual(wrote)
    expect(idOfRetryToken(ctxWith(next, key), token)).toBe(`set_${"a".repeat(24)}`)
    // 3. All is encrypted again, in statements of one row, and twice: a run that was stopped is run again.
    expect(await keysInUse()).toEqual(["key", "key", "key", "key"])
    expect(await reencrypt(service.ctx.db, [next, key], 1)).toEqual({ changed: 4, unreadable: 0 })
    expect(await reencrypt(service.ctx.db, [next, key])).toEqual({ changed: 0, unreadable: 0 })
    expect(await keysInUse()).toEqual(["next", "next", "next", "next"])
    // 4. The key before it is dropped.
    await claim(next)
    await expect(claim(key)).rejects.toThrow(WRONG)
    expect(await readSecrets(next)).toEqual(wrote)
    expect(idOfRetryToken(ctxWith(next), token)).toBeUndefined()
  })

  it("goes on where a run was stopped, and leaves what neither key decrypts", async () => {
    await writeSecrets()
    await claim(key)
    await claim(next, key)
    const stuck = seal([other], "signing-key", "k", "x")
    await sql`insert into signing_keys values ('k', '{}', ${stuck}, now())`.execute(service.ctx.db)
    // The first statements of a run that was killed.
    const { db } = service.ctx
    const [{ id, sealed } = { id: "", sealed: "" }] = await db
      .selectFrom("signing_keys")
      .select(["id", "sealed"])
      .where("id", "<>", "k")
      .execute()
    const again = seal([next], "signing-key", id, `${JSON.stringify({ before: sealed.length })}`)
    await db.updateTable("signing_keys").set({ sealed: again }).where("id", "=", id).execute()
    expect(await reencrypt(db, [next, key])).toEqual({ changed: 3, unreadable: 1 })
    expect((await keysInUse()).filter(name => name === "other")).toHaveLength(1)
    await claim(next)
  })

  it("is not put away while a process still encrypts with it", async () => {
    await writeSecrets()
    await claim(next, key)
    const { db } = service.ctx
    // Each row that is encrypted again is written by the other process at once.
    await sql`create function sluice_test_late() returns trigger language plpgsql as $$ begin
      insert into signing_keys select 'late', public_key, ${sql.lit(seal([key], "signing-key", "late", "x"))}, created_at
        from signing_keys limit 1 on conflict do nothing; return null; end $$`.execute(db)
    await sql`create trigger late after update on webhook_secrets for each row execute function sluice_test_late()`.execute(
      db,
    )
    try {
      await expect(reencrypt(db, [next, key])).rejects.toThrow(/^A process still encrypts with the other key/)
      await expect(claim(next)).rejects.toThrow(PARTIAL)
    } finally {
      await sql`drop function sluice_test_late cascade`.execute(db)
    }
    expect(await reencrypt(db, [next, key])).toEqual({ changed: 0, unreadable: 0 })
    await claim(next)
  })

  it("is compared by the doctor, and by a process that runs", async () => {
    const query = async (text: string) => (await sql.raw<Record<string, unknown>>(text).execute(service.ctx.db)).rows
    const found = async (isRunning: boolean, ...secretKeys: Uint8Array[]) =>
      (await checkSecretKey({ secretKeys }, query, isRunning)).map(({ level, message }) => `${level} ${message}`)
    expect(await found(false, key)).toEqual([])
    await claim(key)
    expect(await found(false, key)).toEqual(["ok SECRET_KEY is the key of this installation"])
    expect(await found(false, next)).toEqual([
      expect.stringMatching(/^fault SECRET_KEY is not this installation's key/),
    ])
    expect(await found(true, next)).toEqual([expect.stringMatching(/^alarm SECRET_KEY is not this installation's key/)])
    expect(await found(false, next, key)).toEqual([expect.stringMatching(/^note SECRET_KEY is new/)])
    await claim(next, key)
    expect(await found(true, key)).toEqual([expect.stringMatching(/^alarm This installation's SECRET_KEY is being/)])
    await reencrypt(service.ctx.db, [next, key])
    expect(await found(true, key, next)).toEqual([expect.stringMatching(/^alarm this process encrypts with a SECRET_/)])
    expect(fitOf([next], (await recorded()) ?? "")).toBe("right")
  })
})
