// The stored access of an address equals the fold of all its grants, although usually only the newest grants are read.
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import { newId } from "../../platform/ids.ts"
import { foldGrants } from "./grant.ts"
import { type Folded, foldAccess, lockAccess, takeCall } from "./read-access.ts"

const START = Date.parse("2026-01-01T00:00:00Z")

let service: TestService
let paywallId: string

beforeAll(async () => {
  service = await startService()
  await service.merchant("shop")
  const { body } = await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })
  paywallId = body.id
})
afterAll(() => service?.stop())

interface GrantTerms {
  durationS: number | null
  calls: number | null
}

/** Everything that can happen to the access of one address; `now` is moved by hand. */
function openPayer(address: Address) {
  const clock = { now: START }
  const ctx = { ...service.ctx, now: () => new Date(clock.now) }
  const insert = async (db: typeof ctx.db, { durationS, calls }: GrantTerms, grantedAt: Date): Promise<void> => {
    const { merchant_id } = await db
      .selectFrom("paywalls")
      .selectAll()
      .where("id", "=", paywallId)
      .executeTakeFirstOrThrow()
    const id = newId("pay")
    const tx_hash = `0x${"5f".repeat(32)}` as never
    const money = { payer: address, amount: 5n, token: address, tx_hash, status: "granted" as const, chain_id: 84532 }
    const times = { created_at: grantedAt, updated_at: grantedAt }
    await db
      .insertInto("payments")
      .values({ id, ...money, ...times, resource_id: paywallId, merchant_id })
      .execute()
    const what = { paywall_id: paywallId, address, tx_hash, granted_at: grantedAt, calls }
    const duration_s = durationS === null ? null : BigInt(durationS)
    await db
      .insertInto("grants")
      .values({ id: newId("grant"), payment_id: id, ...what, duration_s })
      .execute()
  }
  const grants = (db = ctx.db) =>
    db
      .selectFrom("grants")
      .select(["id", "granted_at as grantedAt", "duration_s as durationS", "calls", "calls_used as callsUsed"])
      .where("address", "=", address)
      .where("revoked_at", "is", null)
      .orderBy("granted_at")
      .orderBy("id")
      .execute()
  const change = (work: (db: typeof ctx.db, before: Folded | undefined) => Promise<number | undefined>) =>
    inTransaction(ctx, async ctx => {
      const before = await lockAccess(ctx, paywallId, address)
      const granted = await work(ctx.db, before)
      await foldAccess(ctx, paywallId, address, granted === undefined ? undefined : { before, granted })
    })
  const revoke = async (db: typeof ctx.db, pick: number): Promise<void> => {
    const all = await grants(db)
    const one = all[pick % Math.max(all.length, 1)]
    const revoked = { revoked_at: new Date(clock.now), revoked_by: "merchant" as const }
    if (one) await db.updateTable("grants").set(revoked).where("id", "=", one.id).execute()
  }
  /** As a process of the previous version does, which does not know the columns that folding continues from. */
  const asBefore = (work: (db: typeof ctx.db) => Promise<void>) =>
    inTransaction(ctx, async ctx => {
      await lockAccess(ctx, paywallId, address)
      await work(ctx.db)
      const { since, expiresAt, callsLeft } = foldGrants(await grants(ctx.db), ctx.now())
      const stored = { since_at: since, expires_at: expiresAt, calls_left: callsLeft }
      await ctx.db.updateTable("access").set(stored).where("address", "=", address).execute()
    })
  return {
    clock,
    grants: () => grants(),
    /** As a settlement grants several payments; some of them by another process, whose clock is behind. */
    buy: (terms: readonly GrantTerms[], behindMs = 0) =>
      change(async db => {
        for (const each of terms) await insert(db, each, new Date(clock.now++ - behindMs))
        return terms.length
      }),
    buyAsBefore: (terms: GrantTerms, behindMs: number) =>
      asBefore(async db => insert(db, terms, new Date(clock.now++ - behindMs))),
    revokeAsBefore: (pick: number) => asBefore(db => revoke(db, pick)),
    revoke: (pick: number) =>
      change(async db => {
        await revoke(db, pick)
        return undefined
      }),
    take: () =>
      inTransaction(ctx, ctx =>
        takeCall(ctx, { id: paywallId, merchant_id: "", chain_id: 84532, subscription_product_id: null }, address),
      ),
    stored: () =>
      ctx.db
        .selectFrom("access")
        .select(["since_at as since", "expires_at as expiresAt", "calls_left as callsLeft", "folded_at as foldedAt"])
        .where("address", "=", address)
        .executeTakeFirst(),
  }
}

const terms = fc.record({
  durationS: fc.constantFrom(null, 60, 300, 300, 300),
  calls: fc.constantFrom(null, 1, 1, 1, 3),
})
const behindMs = fc.constantFrom(0, 0, 0, 90_000)
const pick = fc.nat(20)
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("buy" as const),
      terms: fc.array(terms, { minLength: 1, maxLength: 3 }),
      behindMs,
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("take" as const) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("buyAsBefore" as const), terms, behindMs }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom("revoke" as const, "revokeAsBefore" as const), pick }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.constantFrom(1, 30_000, 100_000, 400_000) }),
  },
)

it("is stored as all grants come to, whatever happened in what order", async () => {
  let n = 0
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 20 }), async steps => {
      const payer = openPayer(`0x${(++n).toString(16).padStart(40, "0")}` as Address)
      for (const each of steps) {
        if (each.kind === "buy") await payer.buy(each.terms, each.behindMs)
        if (each.kind === "buyAsBefore") await payer.buyAsBefore(each.terms, each.behindMs)
        if (each.kind === "revoke") await payer.revoke(each.pick)
        if (each.kind === "revokeAsBefore") await payer.revokeAsBefore(each.pick)
        if (each.kind === "wait") payer.clock.now += each.ms
        const all = await payer.grants()
        const expected = foldGrants(all, new Date(payer.clock.now))
        if (each.kind === "take") {
          const isOver = !expected.expiresAt || expected.expiresAt.getTime() <= payer.clock.now
          const left = isOver ? 0 : expected.callsLeft
          expect(await payer.take()).toEqual({ allowed: left !== 0, remaining: left && left - 1 })
        } else if (each.kind !== "wait") {
          const { since, expiresAt, callsLeft } = expected
          expect(await payer.stored()).toMatchObject({ since, expiresAt, callsLeft })
        }
      }
    }),
    { numRuns: 120 },
  )
})

it("reads the newest grants alone: one that was changed unseen before them is not asked about", async () => {
  const payer = openPayer(`0x${"ab".repeat(20)}` as Address)
  await payer.buy([{ durationS: 300, calls: 1 }])
  // Not even the trigger sees it.
  await sql`alter table grants disable trigger grants_unfold_access`.execute(service.ctx.db)
  await sql`update grants set duration_s = 9000 where address = ${`0x${"ab".repeat(20)}`}`.execute(service.ctx.db)
  await sql`alter table grants enable trigger grants_unfold_access`.execute(service.ctx.db)
  await payer.buy([{ durationS: 300, calls: 1 }])
  expect(await payer.stored()).toMatchObject({ expiresAt: new Date(START + 600_000), callsLeft: 2 })
})
