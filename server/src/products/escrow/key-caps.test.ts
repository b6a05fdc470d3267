// How much API keys may send back in a day: of one token over all networks, also when many requests of several processes come at once.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { reservedSession } from "../../../test/escrow-rows.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { countSpend, lockCaps } from "../../account/identity/count-key-spends.ts"
import { tokenIssuer } from "../../account/identity/tokens.ts"
import { openApp } from "../../app.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { inTransaction } from "../../platform/context.ts"
import { openPostgres } from "../../platform/db/open.ts"
import type { Server } from "../../platform/http/server.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { makeRefund } from "./make-refund.ts"

const RELAY = `0x${"3c".repeat(20)}` as Address
const url = "/api/console/payments/refund"
/** The same token with other decimals. */
const base: Network = {
  ...paperNetwork,
  name: "base",
  chainId: 8453,
  token: { ...paperNetwork.token, address: `0x${"71".repeat(20)}` as Address, decimals: 18 },
}
const networks = [paperNetwork, base]

let service: TestService
let second: { app: Server; close: () => Promise<void> }
let shop: string
beforeAll(async () => {
  service = await startService({ settings: { relayWallet: RELAY } })
  service.ctx.chain.networks.push(base)
  second = await openSecond()
})
afterAll(async () => {
  await second.close()
  await service.stop()
})
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
})

/** Another process: on Postgres with connections of its own. */
async function openSecond(): Promise<typeof second> {
  const { ctx, issuer } = service
  const { DATABASE_URL } = process.env
  const named = await sql<{ name: string }>`select current_database() as name`.execute(ctx.db)
  const own = DATABASE_URL && Object.assign(new URL(DATABASE_URL), { pathname: `/${named.rows[0]?.name}` }).href
  const database = own ? await openPostgres(own, () => {}) : undefined
  const app = openApp({ ...ctx, db: database?.db ?? ctx.db }, tokenIssuer(issuer.issuer, ctx.settings.oidcAudience))
  await app.ready()
  return {
    app,
    close: async () => {
      await app.close()
      await database?.close()
    },
  }
}

interface Key {
  id: string
  key: string
}
const create = async (limits: object): Promise<Key> => {
  const body = { name: "Till", scopes: ["money"], limits }
  const answer = await service.call("POST", "/api/console/api-keys", body, { as: "shop" })
  expect(answer.status, JSON.stringify(answer.body)).toBe(201)
  return answer.body
}
const withKey = ({ key }: Key) => ({ headers: { "x-api-key": key } })
const refund = (key: Key, sessionId: string, amount?: string) =>
  service.call("POST", url, { sessionId, ...(amount ? { amount } : {}) }, withKey(key))
const asPerson = (sessionId: string, amount: string) => service.call("POST", url, { sessionId, amount }, { as: "shop" })
const withdraw = (id: string) =>
  service.call("DELETE", `/api/console/payments/refunds/${id}`, undefined, { as: "shop" })

/** A checkout whose payment through escrow is captured: `whole` tokens. */
const captured = (network: Network, whole: bigint): Promise<string> =>
  reservedSession(service, "shop", network, { authorized: whole, captured: whole })

/** What stands of the refunds in base units of 18 decimals, by the rows of the refunds themselves. */
async function refunded(): Promise<bigint> {
  const { rows } = await sql<{ sum: bigint | null }>`
    select sum(r.amount * case e.chain_id when ${base.chainId} then 1 else 1000000000000 end)::numeric(78, 0) as sum
    from refunds r join escrows e on e.session_id = r.session_id where r.status <> 'failed'`.execute(service.ctx.db)
  return rows[0]?.sum ?? 0n
}
const WHOLE = 10n ** 18n

describe("a key's cap on refunds", () => {
  it("holds 100 at once, of two processes and two networks, with what was withdrawn given back", async () => {
    const key = await create({ refundPerDay: 60 })
    const sessions: string[] = []
    for (let i = 0; i < 20; i++) sessions.push(await captured(networks[i % 2] ?? base, 10n))
    const ask = async (i: number) => {
      const body = { sessionId: sessions[i % sessions.length], amount: "1.50" }
      if (i % 4 < 2) return await service.call("POST", url, body, withKey(key))
      const headers = { ...withKey(key).headers, "content-type": "application/json" }
      const answer = await second.app.inject({ method: "POST", url, headers, payload: JSON.stringify(body) })
      return { status: answer.statusCode, body: answer.json() }
    }
    const answers = await Promise.all(
      Array.from({ length: 100 }, async (_, i) => {
        const answer = await ask(i)
        // A fifth is given back while the others come.
        if (answer.status !== 201 || i % 5 > 0) return answer
        expect((await withdraw(answer.body.refundId)).body.status).toBe("failed")
        return { ...answer, status: 0 }
      }),
    )
    const made = answers.filter(({ status }) => status === 201).length
    const refused = answers.filter(({ status }) => status === 403)
    expect(made + refused.length + answers.filter(({ status }) => status === 0).length).toBe(100)
    for (const { body } of refused) expect(body.error).toBe("DAILY_LIMIT_REACHED")
    expect(await refunded()).toBe(BigInt(made) * 3n * (WHOLE / 2n))
    expect(await refunded()).toBeLessThanOrEqual(60n * WHOLE)
    // What is left can be used to the last, and no more.
    const rest = await captured(base, 100n)
    const left = 60n * WHOLE - (await refunded())
    if (left > 0n) expect((await refund(key, rest, formatAmount(left, 18))).status).toBe(201)
    expect(await refunded()).toBe(60n * WHOLE)
    expect((await refund(key, rest, "0.50")).status).toBe(403)
  })

  it.runIf(onPostgres)("waits for another request's refund that is being made on the other network", async () => {
    const key = await create({ refundPerDay: 10 })
    const a = await captured(paperNetwork, 10n)
    const b = await captured(base, 10n)
    const apiKey = { id: key.id, merchantId: shop, scopes: [], allowedIps: null }
    let late: ReturnType<typeof refund> | undefined
    await inTransaction(service.ctx, async ctx => {
      await lockCaps(ctx, { apiKey, member: undefined })
      late = refund(key, a, "6.00")
      const waiting = sql<{ n: number }>`select count(*)::int as n from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`
      while ((await waiting.execute(service.ctx.db)).rows[0]?.n === 0);
      const made = await makeRefund(ctx, shop, { sessionId: b, amount: "5.00" }, undefined)
      await countSpend(ctx, { apiKey, member: undefined }, "refund", made.refundId)
    })
    expect((await late)?.body.message).toContain("and 5.00 are left")
  })

  it("says what is left and from when it fits; it does, then, and not before", async () => {
    const key = await create({ refundPerDay: 10 })
    const a = await captured(paperNetwork, 20n)
    const b = await captured(base, 20n)
    const first = service.ctx.now().getTime()
    expect((await refund(key, a, "6.25")).status).toBe(201)
    service.advance(3_600_000)
    expect((await refund(key, b, "3.00")).status).toBe(201)
    const refused = await refund(key, a, "1.00")
    expect(refused).toMatchObject({ status: 403, body: { error: "DAILY_LIMIT_REACHED" } })
    const [, left, from] =
      /and (\S+) are left\. The limit allows this request from (\S+) on\.$/.exec(refused.body.message) ?? []
    expect(left).toBe("0.75")
    expect(Math.abs(new Date(from ?? "").getTime() - first - 86_400_000)).toBeLessThan(60_000)
    service.advance(22.9 * 3_600_000)
    expect((await refund(key, a, "1.00")).status).toBe(403)
    service.advance(new Date(from ?? "").getTime() - service.ctx.now().getTime() + 1)
    expect((await refund(key, a, "1.00")).status).toBe(201)
    expect((await refund(key, a, "11.00")).body.message).toContain("waiting does not help")
  })

  it("refuses without a trace", async () => {
    const key = await create({ refundPerDay: 1 })
    const session = await captured(paperNetwork, 5n)
    const rows = async () => {
      const { db } = service.ctx
      const all = [
        await db.selectFrom("refunds").selectAll().execute(),
        await db.selectFrom("key_spends").selectAll().execute(),
        await db.selectFrom("payouts").selectAll().orderBy("id").execute(),
        await db.selectFrom("audit_entries").select("n").execute(),
      ]
      return all
    }
    const before = await rows()
    expect((await refund(key, session)).status).toBe(403)
    expect(await rows()).toEqual(before)
  })

  it("is the key's, through its roll and whoever else refunds; 0 allows none, and none is no cap", async () => {
    const key = await create({ refundPerDay: 2 })
    const other = await create({ refundPerDay: 0 })
    const none = await create({})
    const session = await captured(paperNetwork, 20n)
    expect((await refund(key, session, "2.00")).status).toBe(201)
    const rolled = await service.call(
      "POST",
      `/api/console/api-keys/${key.id}/roll`,
      { graceSeconds: 0 },
      { as: "shop" },
    )
    expect((await refund(rolled.body, session, "0.50")).status).toBe(403)
    expect((await refund(other, session, "0.50")).status).toBe(403)
    expect((await refund(none, session, "5.00")).status).toBe(201)
    expect((await asPerson(session, "5.00")).status).toBe(201)
    const raise = { limits: { refundPerDay: 3 } }
    expect((await service.call("PUT", `/api/console/api-keys/${key.id}`, raise, { as: "shop" })).status).toBe(200)
    expect((await refund(rolled.body, session, "1.00")).status).toBe(201)
    expect((await refund(rolled.body, session, "0.50")).status).toBe(403)
  })
})

describe("the cap on all keys of a merchant", () => {
  const limits = "/api/console/settings/key-limits"
  it("holds over keys that come and go, and no person", async () => {
    expect((await service.call("GET", limits, undefined, { as: "shop" })).body).toEqual({
      refundPerDay: null,
      returnPerDay: null,
    })
    const set = await service.call("PUT", limits, { refundPerDay: 5 }, { as: "shop" })
    expect(set.body).toEqual({ refundPerDay: 5, returnPerDay: null })
    const session = await captured(base, 20n)
    for (let i = 0; i < 2; i++) {
      const key = await create({})
      expect((await refund(key, session, "2.00")).status).toBe(201)
      await service.call("DELETE", `/api/console/api-keys/${key.id}`, undefined, { as: "shop" })
    }
    const refused = await refund(await create({}), session, "2.00")
    expect(refused.body).toMatchObject({ error: "DAILY_LIMIT_REACHED", details: [{ path: "keyLimits.refundPerDay" }] })
    expect((await refund(await create({}), session, "1.00")).status).toBe(201)
    expect((await asPerson(session, "9.00")).status).toBe(201)
  })

  it.each([{ refundPerDay: -1 }, { refundPerDay: "5" }, { perDay: 1 }, []])("400 for %j", async body => {
    expect((await service.call("PUT", limits, body, { as: "shop" })).status).toBe(400)
    const { refund_per_day, return_per_day } = await service.ctx.db
      .selectFrom("merchants")
      .selectAll()
      .where("id", "=", shop)
      .executeTakeFirstOrThrow()
    expect([refund_per_day, return_per_day]).toEqual([null, null])
  })
})
