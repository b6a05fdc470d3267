import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import { registry } from "../../platform/metrics.ts"
import { takeCall } from "../../products/paywalls/read-access.ts"
import { accessSales } from "../../products/paywalls/sell-access.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { settleDue } from "./settle.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const payer = `0x${"b".repeat(40)}` as Address
const other = `0x${"c".repeat(40)}` as Address
const hashOf = (n: number) => `0x${n.toString(16).padStart(64, "0")}` as Hash

/** A paywall of 5 USDC and its deposit's id. */
async function paywall(fields: object = {}) {
  const { id } = (
    await service.call("POST", "/api/console/paywalls", { name: "a", price: 5, ...fields }, { as: "shop" })
  ).body
  const deposit = await service.ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", id)
    .executeTakeFirstOrThrow()
  return { id: id as string, deposit }
}

/** Confirmed transfers as the scan would have stored them, due now. */
async function transfers(
  shop: Awaited<ReturnType<typeof paywall>>,
  values: number[],
  from = payer,
  first = 1,
): Promise<void> {
  const now = service.ctx.now()
  for (const [i, value] of values.entries()) {
    const n = first + i
    const row = { tx_hash: hashOf(n), block_hash: hashOf(n), block_number: BigInt(n), log_index: 0, k: 0 }
    await service.ctx.db
      .insertInto("transfers")
      .values({
        ...row,
        chain_id: paperNetwork.chainId,
        token: paperNetwork.token.address,
        to_address: shop.deposit.address,
        deposit_id: shop.deposit.id,
        from_address: from,
        value: BigInt(value) * 1_000_000n,
        block_time: now,
        state: "confirmed",
        run_at: now,
        created_at: now,
      })
      .execute()
    await service.call("POST", `/api/paywalls/${shop.id}/pay`, { txHash: row.tx_hash, address: from })
  }
}

const count = async (table: "payments" | "grants" | "claims") =>
  (await service.ctx.db.selectFrom(table).selectAll().execute()).length
const setGone = (n: number) =>
  service.ctx.db
    .updateTable("transfers")
    .set({ state: "gone", run_at: service.ctx.now() })
    .where("tx_hash", "=", hashOf(n))
    .execute()
const setBack = (n: number) =>
  service.ctx.db
    .updateTable("transfers")
    .set({ state: "confirmed", run_at: service.ctx.now() })
    .where("tx_hash", "=", hashOf(n))
    .execute()
const settle = () => settleDue(service.ctx, paperNetwork)
const payments = () => service.ctx.db.selectFrom("payments").selectAll().orderBy("created_at").orderBy("id").execute()
/** How many transfers of a paywall are due to be settled. */
const dueOf = async ({ deposit }: Awaited<ReturnType<typeof paywall>>): Promise<number> => {
  const due = service.ctx.db.selectFrom("transfers").select("id").where("deposit_id", "=", deposit.id)
  return (await due.where("run_at", "is not", null).execute()).length
}
const accessEnds = async (shop: { id: string }) =>
  (await service.ctx.db.selectFrom("access").selectAll().where("paywall_id", "=", shop.id).executeTakeFirst())
    ?.expires_at

describe("settling", () => {
  it(`counts each transfer once when many settle at once (${onPostgres ? "several connections" : "one connection"})`, async () => {
    const shop = await paywall({ accessDuration: 1_000 })
    await transfers(shop, Array(20).fill(5))
    await Promise.all(Array.from({ length: 8 }, settle))
    expect([await count("payments"), await count("grants"), await count("claims")]).toEqual([20, 20, 20])
    const [first] = await service.ctx.db
      .selectFrom("grants")
      .select("granted_at")
      .orderBy("granted_at")
      .limit(1)
      .execute()
    expect((await accessEnds(shop))?.getTime()).toBe((first?.granted_at.getTime() ?? 0) + 20_000_000)
  })

  it("gives one call for each payment of a per_call paywall, and a call that was made stays made through a reorg", async () => {
    const shop = await paywall({ pricingModel: "per_call" })
    await transfers(shop, [5, 5])
    await settle()
    const row = service.ctx.db.selectFrom("paywalls").selectAll().where("id", "=", shop.id)
    const paid = await row.executeTakeFirstOrThrow()
    const take = () => inTransaction(service.ctx, ctx => takeCall(ctx, paid, payer))
    expect(await take()).toEqual({ allowed: true, remaining: 1 })
    for (const n of [1, 2]) await setGone(n)
    await settle()
    expect(await take()).toEqual({ allowed: false, remaining: 0 })
    for (const n of [1, 2]) await setBack(n)
    await settle()
    expect(await take()).toEqual({ allowed: true, remaining: 0 })
    expect(await take()).toEqual({ allowed: false, remaining: 0 })
  })

  it("counts each change of a payment and its amount in the metrics, when it is committed", async () => {
    const read = async (name: string) =>
      ((await registry.getSingleMetric(name)?.get())?.values ?? []).map(({ labels, value }) => [
        labels.kind,
        labels.state,
        value,
      ])
    registry.resetMetrics()
    const shop = await paywall()
    await transfers(shop, [5, 5])
    const { db } = service.ctx
    await sql`create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$`.execute(db)
    await sql`create trigger refuse before insert on grants for each row execute function refuse()`.execute(db)
    await settle()
    await sql`drop function refuse cascade`.execute(db)
    expect(await read("sluice_payments_total")).toEqual([])
    // What failed is put off.
    service.advance(60_000)
    await settle()
    await setGone(1)
    await settle()
    expect(await read("sluice_payments_total")).toEqual([
      ["paywall", "granted", 2],
      ["paywall", "reversed", 1],
    ])
    expect(await read("sluice_payment_volume_total")).toEqual([
      ["paywall", "granted", 10],
      ["paywall", "reversed", 5],
    ])
  })

  it("has nothing left to do afterwards", async () => {
    const shop = await paywall()
    await transfers(shop, [5, 3])
    expect(await settle()).toBe(1)
    expect(await settle()).toBe(0)
  })

  it("keeps the merchant's revocation when a reorg takes the payment away and brings it back", async () => {
    const shop = await paywall()
    await transfers(shop, [5])
    await settle()
    const { data } = (await service.call("GET", `/api/console/paywalls/${shop.id}/grants`, undefined, { as: "shop" }))
      .body
    await service.call("DELETE", `/api/console/paywalls/${shop.id}/grants/${data[0].id}`, {}, { as: "shop" })
    await setGone(1)
    await settle()
    await setBack(1)
    await settle()
    expect(await accessEnds(shop)).toBeNull()
    expect(await service.ctx.db.selectFrom("grants").select(["revoked_by"]).execute()).toEqual([
      { revoked_by: "merchant" },
    ])
  })

  it.each([
    ["", false],
    [", though the merchant had revoked its access", true],
  ])(
    "lists what a reorg leaves of a payment%s, forgets it when that is gone too, and goes on for its payer",
    async (_, revokes) => {
      const shop = await paywall()
      await transfers(shop, [3, 2])
      await settle()
      const grants = `/api/console/paywalls/${shop.id}/grants`
      const { data } = (await service.call("GET", grants, undefined, { as: "shop" })).body
      if (revokes) await service.call("DELETE", `${grants}/${data[0].id}`, {}, { as: "shop" })
      await setGone(2)
      await settle()
      const waiting = async () =>
        (await service.call("GET", "/api/console/payments", undefined, { as: "shop" })).body.data
      expect(await waiting()).toMatchObject([{ status: "open", exception: "underpaid", amount: "3.00" }])
      await setGone(1)
      await settle()
      expect(await dueOf(shop)).toBe(0)
      expect((await waiting()).filter(({ status }: { status: string }) => status === "open")).toEqual([])
      await setBack(1)
      await setBack(2)
      await settle()
      expect(await accessEnds(shop)).not.toBeNull()
      expect((await payments()).filter(({ status }) => status === "granted")).toMatchObject([{ amount: 5_000_000n }])
      expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
    },
  )

  it("lets a transfer that returns after others paid in its place count again", async () => {
    const shop = await paywall()
    await transfers(shop, [3, 2])
    await settle()
    await setGone(2)
    await settle()
    expect(await accessEnds(shop)).toBeNull()
    await service.ctx.db.deleteFrom("submissions").execute()
    await service.ctx.db
      .insertInto("transfers")
      .columns([
        "chain_id",
        "tx_hash",
        "token",
        "to_address",
        "k",
        "deposit_id",
        "from_address",
        "value",
        "block_number",
        "block_hash",
        "log_index",
        "block_time",
        "state",
        "run_at",
        "created_at",
      ])
      .expression(eb =>
        eb
          .selectFrom("transfers")
          .select(expression => [
            "chain_id",
            expression.val(hashOf(9)).as("tx_hash"),
            "token",
            "to_address",
            "k",
            "deposit_id",
            "from_address",
            "value",
            "block_number",
            "block_hash",
            "log_index",
            "block_time",
            expression.val("confirmed" as const).as("state"),
            expression.val(service.ctx.now()).as("run_at"),
            "created_at",
          ])
          .where("tx_hash", "=", hashOf(2)),
      )
      .execute()
    service.advance(11 * 60_000)
    await service.ctx.db
      .updateTable("transfers")
      .set({ run_at: service.ctx.now() })
      .where("tx_hash", "=", hashOf(9))
      .execute()
    await settle()
    expect(await accessEnds(shop)).not.toBeNull()
    await setBack(2)
    await settle()
    // 2 of 5: it waits for 3 more, and does not join the payment that was granted without it.
    const claimed = await service.ctx.db
      .selectFrom("claims")
      .innerJoin("transfers", "transfers.id", "transfer_id")
      .innerJoin("payments", "payments.id", "payment_id")
      .select(["transfers.tx_hash", "status", "amount"])
      .orderBy("transfers.tx_hash")
      .execute()
    expect(claimed).toEqual([
      { tx_hash: hashOf(1), status: "granted", amount: 5_000_000n },
      { tx_hash: hashOf(2), status: "open", amount: 2_000_000n },
      { tx_hash: hashOf(9), status: "granted", amount: 5_000_000n },
    ])
  })

  it("reverses a payment whose transaction, mined again, moved less", async () => {
    const shop = await paywall()
    await transfers(shop, [5])
    await settle()
    await service.ctx.db.updateTable("transfers").set({ value: 4_000_000n, run_at: service.ctx.now() }).execute()
    await settle()
    expect(await accessEnds(shop)).toBeNull()
    // The rest of it waits for more money, or for the merchant.
    expect(await service.ctx.db.selectFrom("payments").select(["status", "exception", "amount"]).execute()).toEqual([
      { status: "open", exception: "underpaid", amount: 4_000_000n },
    ])
  })

  it("counts a payment again whose transaction, mined again, moved more: the surplus waits for the merchant", async () => {
    const shop = await paywall()
    await transfers(shop, [5])
    await settle()
    await service.ctx.db.updateTable("transfers").set({ value: 8_000_000n, run_at: service.ctx.now() }).execute()
    await settle()
    expect(await accessEnds(shop)).not.toBeNull()
    expect(await payments()).toMatchObject([{ status: "granted", exception: "overpaid", amount: 8_000_000n }])
    expect(await service.ctx.db.selectFrom("surpluses").select(["state", "amount"]).execute()).toEqual([
      { state: "open", amount: 3_000_000n },
    ])
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  })

  it("reverses a payment whose transaction, mined again, moved it from another sender", async () => {
    const shop = await paywall()
    await transfers(shop, [5])
    await settle()
    await service.ctx.db.updateTable("transfers").set({ from_address: other, run_at: service.ctx.now() }).execute()
    service.advance(11 * 60_000)
    await settle()
    await service.ctx.db.updateTable("transfers").set({ run_at: service.ctx.now() }).execute()
    await settle()
    const held = await service.ctx.db
      .selectFrom("access")
      .select("address")
      .where("expires_at", "is not", null)
      .execute()
    expect(held).toEqual([{ address: other }])
  })

  it.each([
    ["its new sender has just paid more", other, { [payer]: 0n, [other]: 55n }],
    ["its old sender has just paid again", payer, { [payer]: 50n, [other]: 5n }],
  ])("reverses it too where %s", async (_, from, held) => {
    const shop = await paywall()
    await transfers(shop, [5])
    await settle()
    await service.ctx.db.updateTable("transfers").set({ from_address: other, run_at: service.ctx.now() }).execute()
    await transfers(shop, [50], from, 2)
    await settle()
    service.advance(11 * 60_000)
    await settle()
    const counted = { [payer]: 0n, [other]: 0n }
    for (const { payer, amount, status } of await payments())
      if (status !== "reversed") counted[payer] = (counted[payer] ?? 0n) + amount / 1_000_000n
    expect(counted).toEqual(held)
    expect(await dueOf(shop)).toBe(0)
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  })

  it("leaves a waiting payment its transfer until both senders are held, also where the process dies before that", async () => {
    const shop = await paywall()
    await transfers(shop, [3])
    service.advance(11 * 60_000)
    await settle()
    expect(await payments()).toMatchObject([{ payer, status: "open", amount: 3_000_000n }])
    await service.ctx.db.updateTable("transfers").set({ from_address: other, run_at: service.ctx.now() }).execute()
    await transfers(shop, [4], other, 2)
    const { hold } = accessSales
    const dying = vi.spyOn(accessSales, "hold").mockImplementation((ctx, group) => {
      if (group.senders.length > 1) throw new Error("killed")
      return hold(ctx, group)
    })
    await settle().catch(() => {})
    dying.mockRestore()
    expect(await payments()).toMatchObject([
      { payer, status: "open", amount: 3_000_000n },
      { payer: other, amount: 4_000_000n },
    ])
    service.advance(11 * 60_000)
    await settle()
    await settle()
    const counted = (await payments()).filter(({ status }) => status !== "reversed")
    expect(counted).toMatchObject([{ payer: other, status: "granted", amount: 7_000_000n }])
    expect(await dueOf(shop)).toBe(0)
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  })
})

describe("a merchant is notified", () => {
  const notified = async (prefix = "paywall.") =>
    (await service.call("GET", "/api/console/events", undefined, { as: "shop" })).body.data
      .filter((each: { event: string }) => each.event.startsWith(prefix))
      .reverse()

  it("of a grant once, of its reversal, and of its return as a new event of the same payment", async () => {
    const shop = await paywall()
    await transfers(shop, [5])
    await settle()
    await settle()
    const [granted, ...more] = await notified()
    expect(more).toEqual([])
    const { grantedAt, sequence, ...facts } = granted.data
    expect(granted.event).toBe("paywall.granted")
    expect(facts).toEqual({
      paymentId: expect.stringMatching(/^pay_/),
      paywallId: shop.id,
      payer: expect.stringMatching(/^0x[0-9a-fA-F]{40}$/),
      amount: "5.00",
      currency: "USDC",
      chain: "base-sepolia",
      chainId: 84532,
      txHash: hashOf(1),
      description: null,
      metadata: null,
    })
    expect(sequence).toBe(1)
    service.advance(1_000)
    await setGone(1)
    await settle()
    service.advance(1_000)
    await setBack(1)
    await settle()
    expect((await notified()).slice(1)).toMatchObject([
      { event: "paywall.reversed", data: { ...facts, sequence: 3 } },
      { event: "paywall.granted", data: { ...facts, sequence: 5 } },
    ])
    expect(await notified("checkout.session.")).toMatchObject([
      { event: "checkout.session.completed", data: { status: "confirmed", sequence: 2 } },
      { event: "checkout.session.reversed", data: { id: facts.paymentId, status: "pending", sequence: 4 } },
      { event: "checkout.session.completed", data: { status: "confirmed", sequence: 6 } },
    ])
  })

  it("of a reversal where it was notified of the payment: by `*`, and by either event's name", async () => {
    const { ctx } = service
    const { id: merchant_id } = await ctx.db.selectFrom("merchants").select("id").executeTakeFirstOrThrow()
    const times = { created_at: ctx.now(), updated_at: ctx.now() }
    const row = { merchant_id, url: "https://shop.example/", description: null, active: true, ...times }
    const lists = { a: "*", b: "checkout.session.completed", d: "paywall.granted", e: "checkout.expired" }
    for (const [letter, event] of Object.entries(lists))
      await ctx.db
        .insertInto("webhooks")
        .values({ ...row, id: `c${letter.repeat(24)}`, events: JSON.stringify([event]) })
        .execute()
    const shop = await paywall()
    await transfers(shop, [5])
    await settle()
    await setGone(1)
    await settle()
    const sent = await ctx.db
      .selectFrom("deliveries")
      .innerJoin("events", "events.id", "deliveries.event_id")
      .select(["events.type", "webhook_id"])
      .where("events.type", "in", ["checkout.session.reversed", "paywall.reversed"])
      .execute()
    expect(sent.map(row => `${row.type} ${row.webhook_id?.[1]}`).sort()).toEqual([
      "checkout.session.reversed a",
      "checkout.session.reversed b",
      "paywall.reversed a",
      "paywall.reversed d",
    ])
  })

  it("of nothing that was rolled back", async () => {
    const shop = await paywall()
    await transfers(shop, [4])
    await settle()
    expect(await notified()).toEqual([])
  })
})
