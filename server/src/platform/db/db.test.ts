import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { inTransaction } from "../context.ts"
import { claimInstallation } from "./claim-installation.ts"
import { notify, undurable } from "./open.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(() => service.empty())

describe("the database", () => {
  it("answers int8 and numeric as bigint, to the last digit", async () => {
    const big = 2n ** 200n + 1n
    const { rows } = await sql<{ n: bigint; i: bigint; back: bigint }>`
      select ${big}::numeric(78,0) as n, 9223372036854775807::int8 as i, ${big}::numeric as back`.execute(
      service.ctx.db,
    )
    expect(rows).toEqual([{ n: big, i: 9223372036854775807n, back: big }])
  })

  it("rolls a transaction back whole", async () => {
    const work = inTransaction(service.ctx, async ctx => {
      await ctx.db.insertInto("installation").values({ key: "a", value: "b" }).execute()
      throw new Error("half way")
    })
    await expect(work).rejects.toThrow("half way")
    expect(await service.ctx.db.selectFrom("installation").selectAll().execute()).toEqual([])
  })

  it("lets no transaction be undurable, and no statement after one that is", async () => {
    const commits = sql<{ commits: string }>`select current_setting('synchronous_commit') as commits`
    const usual = (await commits.execute(service.ctx.db)).rows
    await expect(inTransaction(service.ctx, ({ db }) => notify(db, "deliveries"))).rejects.toThrow("wait for the disk")
    const { rows } = await sql`select ${undurable(service.ctx.db)} as commits`.execute(service.ctx.db)
    expect(rows).toEqual([{ commits: "off" }])
    expect((await commits.execute(service.ctx.db)).rows).toEqual(usual)
  })

  it("runs many transactions at once, each whole", async () => {
    const key = (i: number) => ({ key: `${i}`, value: "x" })
    await Promise.all(
      Array.from({ length: 200 }, (_, i) =>
        inTransaction(service.ctx, async ctx => {
          await ctx.db
            .insertInto("installation")
            .values(key(2 * i))
            .execute()
          await ctx.db
            .insertInto("installation")
            .values(key(2 * i + 1))
            .execute()
        }),
      ),
    )
    expect(await service.ctx.db.selectFrom("installation").selectAll().execute()).toHaveLength(400)
  })
})

describe("claimInstallation", () => {
  it("keeps a database to one mode, and each network to one chain", async () => {
    const { db } = service.ctx
    await claimInstallation(db, "sandbox", [paperNetwork])
    await claimInstallation(db, "sandbox", [paperNetwork])
    await expect(claimInstallation(db, "live", [paperNetwork])).rejects.toThrow(/MODE=sandbox; MODE is live/)
    const other = { ...paperNetwork, genesisHash: `0x${"9".repeat(64)}` as never }
    await expect(claimInstallation(db, "sandbox", [other])).rejects.toThrow(/--reset/)
    // An endpoint lies at a later start, while the others do not respond.
    const cheap = { ...paperNetwork, token: { ...paperNetwork.token, decimals: 0 } }
    await expect(claimInstallation(db, "sandbox", [cheap])).rejects.toThrow(/had 6 decimals, and now .* reports 0/)
  })

  it("makes one id, however many processes start at once, and the same at each later start", async () => {
    const { db } = service.ctx
    const ids = await Promise.all(Array.from({ length: 8 }, () => claimInstallation(db, "sandbox", [])))
    expect(new Set([...ids, await claimInstallation(db, "sandbox", [])])).toEqual(new Set([ids[0]]))
    await service.empty()
    expect(await claimInstallation(db, "sandbox", [])).not.toBe(ids[0])
  })
})
