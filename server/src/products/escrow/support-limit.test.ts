// How much a member with the role support may decide about in a day: what an owner has set, over all decisions, tokens counted one by one.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { reservedSession } from "../../../test/escrow-rows.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { lockCaps } from "../../account/identity/count-key-spends.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"

const SAM = `per_${"s".repeat(24)}`

let service: TestService
let shop: string
beforeAll(async () => {
  service = await startService({ settings: { relayWallet: `0x${"3c".repeat(20)}` as Address } })
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
  const { db } = service.ctx
  const created_at = new Date()
  await db.insertInto("persons").values({ id: SAM, iss: service.issuer.issuer, sub: "sam", created_at }).execute()
  await db.insertInto("members").values({ merchant_id: shop, person_id: SAM, role: "support", created_at }).execute()
})

const money = (path: string, body: object, as = "sam") =>
  service.call("POST", `/api/console/payments/${path}`, body, { as })
const refund = (sessionId: string, amount: string, as = "sam") => money("refund", { sessionId, amount }, as)
const capture = (sessionId: string, amount: string) => money("capture", { sessionId, amount })
const set = (body: object, as = "shop") => service.call("PUT", `/api/console/team/${SAM}`, body, { as })
const limit = (moneyPerDay: number) => set({ role: "support", moneyPerDay })
const session = (authorized = 100n, captured = 50n) =>
  reservedSession(service, "shop", paperNetwork, { authorized, captured })
const rows = async () => {
  const { db } = service.ctx
  return [
    await db.selectFrom("refunds").selectAll().execute(),
    await db.selectFrom("key_spends").selectAll().execute(),
    await db.selectFrom("payouts").selectAll().orderBy("id").execute(),
    await db.selectFrom("audit_entries").select("n").execute(),
  ]
}

describe("a member with the role support", () => {
  it("decides about no money until an owner sets a limit, and learns who may", async () => {
    const id = await session()
    const before = await rows()
    for (const answer of [
      await refund(id, "1.00"),
      await capture(id, "1.00"),
      await money("void", { sessionId: id }),
    ]) {
      expect(answer).toMatchObject({ status: 403, body: { error: "ROLE_REQUIRED" } })
      expect(answer.body.message).toContain("until an owner sets a daily limit for you")
      expect(answer.body.message).toContain("owner, admin or finance")
    }
    expect(await rows()).toEqual(before)
    expect((await limit(10)).body).toMatchObject({ role: "support", moneyPerDay: 10 })
    expect((await refund(id, "1.00")).status).toBe(201)
  })

  it("has one limit for all decisions, to the last unit and no further, without a trace", async () => {
    await limit(10)
    const id = await session()
    expect((await refund(id, "4.00")).status).toBe(201)
    expect((await capture(id, "5.00")).status).toBe(200)
    const two = await session(2n, 0n)
    const one = await session(1n, 0n)
    const before = await rows()
    const refused = await refund(id, "1.01")
    expect(refused).toMatchObject({
      status: 403,
      body: { error: "DAILY_LIMIT_REACHED", details: [{ path: "moneyPerDay" }] },
    })
    expect(refused.body.message).toMatch(
      /^You may decide about up to 10 of each token in 24 hours, and 1\.00 are left\. The limit allows this request from /,
    )
    expect((await capture(id, "11.00")).body.message).toContain(
      "waiting does not help: another member can do it, or an owner",
    )
    expect((await money("void", { sessionId: two })).status).toBe(403)
    expect(await rows()).toEqual(before)
    expect((await money("void", { sessionId: one })).status).toBe(200)
    expect((await refund(id, "0.50")).status).toBe(403)
    expect((await refund(id, "9.00", "shop")).status).toBe(201)
    service.advance(86_400_001)
    expect((await refund(id, "10.00")).status).toBe(201)
  })

  it("gets back what was withdrawn or failed", async () => {
    await limit(10)
    const id = await session()
    const made = await refund(id, "6.00")
    expect((await capture(id, "4.00")).status).toBe(200)
    expect((await refund(id, "0.50")).status).toBe(403)
    const url = `/api/console/payments/refunds/${made.body.refundId}`
    expect((await service.call("DELETE", url, undefined, { as: "sam" })).body.error).toBe("ROLE_REQUIRED")
    expect((await service.call("DELETE", url, undefined, { as: "shop" })).status).toBe(200)
    expect((await refund(id, "6.00")).status).toBe(201)
    expect((await refund(id, "0.50")).status).toBe(403)
    await sql`update payouts set state = 'cancelled' where kind = 'capture' and escrow_id = ${id} and state = 'queued'`.execute(
      service.ctx.db,
    )
    expect((await refund(id, "4.00")).status).toBe(201)
    expect((await refund(id, "0.50")).status).toBe(403)
  })

  it("holds when many decisions come at once", async () => {
    await limit(10)
    const ids = await Promise.all(Array.from({ length: 5 }, () => session()))
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, i) => {
        const id = ids[i % ids.length] ?? ""
        return i % 2 === 0 ? refund(id, "1.00") : capture(id, "1.00")
      }),
    )
    const done = answers.filter(({ status }) => status < 300).length
    expect(done).toBe(10)
    for (const { status, body } of answers) if (status >= 300) expect(body.error).toBe("DAILY_LIMIT_REACHED")
  })

  it.runIf(onPostgres)("waits for another decision of the same member that is being made", async () => {
    await limit(10)
    const id = await session()
    const member = { merchantId: shop, personId: SAM, role: "support" as const }
    let late: ReturnType<typeof refund> | undefined
    await inTransaction(service.ctx, async ctx => {
      await lockCaps(ctx, { apiKey: undefined, member })
      late = refund(id, "6.00")
      const waiting = sql<{ n: number }>`select count(*)::int as n from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`
      while ((await waiting.execute(service.ctx.db)).rows[0]?.n === 0);
      const spend = { merchant_id: shop, kind: "accept" as const, object_id: "x", person_id: SAM, token: "USDC" }
      await ctx.db
        .insertInto("key_spends")
        .values({ ...spend, amount: 5n * 10n ** 18n, created_at: service.ctx.now() })
        .execute()
    })
    expect((await late)?.body.message).toContain("and 5.00 are left")
  })

  it("counts beside the keys, whose cap for all of them is not touched, nor the other way round", async () => {
    await service.call("PUT", "/api/console/settings/key-limits", { refundPerDay: 5 }, { as: "shop" })
    await limit(5)
    const id = await session()
    const key = { name: "A", scopes: ["money"] }
    const made = (await service.call("POST", "/api/console/api-keys", key, { as: "shop" })).body.key
    const byKey = (amount: string) =>
      service.call(
        "POST",
        "/api/console/payments/refund",
        { sessionId: id, amount },
        { headers: { "x-api-key": made } },
      )
    expect((await refund(id, "5.00")).status).toBe(201)
    expect((await byKey("5.00")).status).toBe(201)
    expect([(await refund(id, "0.50")).status, (await byKey("0.50")).status]).toEqual([403, 403])
  })

  it("loses the limit with the role, and sees it", async () => {
    await limit(10)
    const me = async () => (await service.call("GET", "/api/console/me", undefined, { as: "sam" })).body.merchants[0]
    expect(await me()).toMatchObject({ role: "support", moneyPerDay: 10 })
    expect((await me()).rights).not.toContain("money")
    expect((await set({ role: "support" })).body.moneyPerDay).toBe(10)
    expect((await set({ role: "viewer" })).body.moneyPerDay).toBeNull()
    expect((await set({ role: "support" })).body.moneyPerDay).toBe(0)
    expect((await refund(await session(), "1.00")).status).toBe(403)
  })
})

describe("the limit of a member", () => {
  it.each([
    { role: "finance", moneyPerDay: 5 },
    { role: "support", moneyPerDay: -1 },
    { role: "support", moneyPerDay: 1.5 },
    { role: "support", moneyPerDay: "5" },
    { moneyPerDay: 5 },
  ])("400 for %j, and nothing is written", async body => {
    expect((await set(body)).status).toBe(400)
    const rows = service.ctx.db.selectFrom("members").select(["role", "money_per_day"]).where("person_id", "=", SAM)
    expect(await rows.execute()).toEqual([{ role: "support", money_per_day: 0 }])
  })

  it("is an owner's to set, and with the wallet lock on the payout wallet signs a higher one", async () => {
    for (const role of ["admin", "support"] as const) {
      await service.ctx.db.updateTable("members").set({ role }).where("person_id", "=", SAM).execute()
      expect((await set({ role: "support", moneyPerDay: 5 }, "sam")).body.error).toBe("ROLE_REQUIRED")
    }
    await limit(10)
    await service.ctx.db.updateTable("merchants").set({ wallet_lock: true }).execute()
    const asked = await limit(11)
    expect(asked.body.error).toBe("WALLET_SIGNATURE_REQUIRED")
    expect(JSON.stringify(asked.body.details)).toContain("decides about up to 11 of each token per day")
    expect((await limit(9)).body.moneyPerDay).toBe(9)
  })
})
