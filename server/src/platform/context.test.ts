// A deadlocked transaction is retried. A deadlock takes two connections, so this needs Postgres.
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { onPostgres } from "../../test/database.ts"
import { startService, type TestService } from "../../test/service.ts"
import { emit } from "../account/webhooks/emit.ts"
import { changeSettings } from "../products/settings/change-settings.ts"
import { inTransaction } from "./context.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())

it.runIf(onPostgres)("two deadlocked transactions both end", async () => {
  const { ctx } = service
  await sql`create table counters (id integer primary key, n integer not null)`.execute(ctx.db)
  await sql`insert into counters values (1, 0), (2, 0)`.execute(ctx.db)
  const held = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let runs = 0
  const add = (own: number, other: number) =>
    inTransaction(ctx, async ctx => {
      runs++
      const increase = (id: number) => sql`update counters set n = n + 1 where id = ${id}`.execute(ctx.db)
      await increase(own)
      held[own - 1]?.resolve()
      await held[other - 1]?.promise
      await increase(other)
    })
  await Promise.all([add(1, 2), add(2, 1)])
  const { rows } = await sql<{ n: number }>`select n from counters order by id`.execute(ctx.db)
  await sql`drop table counters`.execute(ctx.db)
  expect(rows).toEqual([{ n: 2 }, { n: 2 }])
  // Each transaction ran, and at least one ran again.
  expect(runs).toBeGreaterThanOrEqual(3)
})

it.runIf(onPostgres)(
  "two transactions that wrote rows of one merchant can both lock the merchant afterwards",
  async () => {
    const { ctx } = service
    const merchantId = await service.merchant("shop")
    const written = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    let runs = 0
    // Each row names the merchant by a foreign key, which shares a lock on the merchant's row until the commit.
    const emitAndHold = (own: number) =>
      inTransaction(ctx, async ctx => {
        runs++
        await emit(ctx, { merchantId, type: "subscription.renewal.created", orderKey: `${own}`, data: {} as never })
        written[own]?.resolve()
        await written[1 - own]?.promise
        await changeSettings(ctx, merchantId, { payoutAddresses: {} })
      })
    await Promise.all([emitAndHold(0), emitAndHold(1)])
    expect(runs).toBe(2)
  },
)

it("an error of the work itself is not retried, and leaves nothing", async () => {
  let runs = 0
  const failing = inTransaction(service.ctx, async () => {
    runs++
    throw new Error("no")
  })
  await expect(failing).rejects.toThrow("no")
  expect(runs).toBe(1)
})
