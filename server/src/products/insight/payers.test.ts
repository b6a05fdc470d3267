// Payers by address and e-mail address, and the health of the service, of one merchant alone.
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { reservedSession } from "../../../test/escrow-rows.ts"
import { lifeOf } from "../../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { ensureCursor } from "../../ledger/scanner/scan-round.ts"

let rig: PayoutRig
let shop: Awaited<ReturnType<PayoutRig["sell"]>>
const [first, second] = [3, 5] as const
beforeAll(async () => {
  rig = await startPayoutRig()
  await lifeOf(rig).begin()
  shop = await rig.sell()
  await rig.paid(shop, 500_000n)
  rig.service.advance(1_000)
  await rig.paid(shop, 200_000n, rig.anvil.accounts[second])
  rig.service.advance(1_000)
  await rig.paid(shop, 700_000n)
  await rig.service.merchant("rival")
})
afterAll(() => rig.stop())

const get = async (path: string, as = "shop") =>
  await rig.service.call("GET", `/api/console/${path}`, undefined, { as })
const addressOf = (n: 3 | 5) => rig.anvil.accounts[n].address

it("lists each payer once, who paid last first, with what came, by network and token", async () => {
  const { body } = await get("payers")
  expect(body).toMatchObject({ total: 2 })
  expect(body.data.map(({ address }: { address: string }) => address)).toEqual([addressOf(first), addressOf(second)])
  const common = { chain: "base-sepolia", currency: "USDC", decimals: 6, returned: "0.00" }
  expect(body.data[0].totals).toMatchObject([{ ...common, payments: 2, paid: "1.20", open: "0.00" }])
  expect(body.data[1].totals).toMatchObject([{ ...common, payments: 1, paid: "0.00", open: "0.20" }])
  const page = (await get("payers?limit=1")).body
  expect((await get(`payers?limit=1&after=${page.next}`)).body.data[0].address).toBe(addressOf(second))
  expect((await get(`payers?q=${addressOf(second)}`)).body.data).toHaveLength(1)
  expect((await get("payers?q=ada@shop.example")).body.data).toEqual([])
})

it("shows one payer with the access that was bought", async () => {
  const { status, body } = await get(`payers/${addressOf(first).toLowerCase()}`)
  expect(status).toBe(200)
  expect(body.wallets).toMatchObject([{ address: addressOf(first), totals: [{ paid: "1.20" }] }])
  expect(body.access).toMatchObject([{ paywallId: shop.id, name: "a", address: addressOf(first) }])
  expect(body).toMatchObject({ subscriptions: [], refunded: [] })
  expect((await get(`payers/${addressOf(second)}`)).body.access).toEqual([])
})

it("finds the wallets of an e-mail address by the checkouts that they paid", async () => {
  const { body } = await rig.service.call(
    "POST",
    "/api/console/checkouts",
    { amount: 1, customerEmail: "Ada@shop.example" },
    { as: "shop" },
  )
  expect((await get("payers/ada@shop.example")).status).toBe(404)
  const payer = addressOf(second).toLowerCase() as never
  await rig.service.ctx.db.updateTable("checkout_sessions").set({ payer }).where("id", "=", body.id).execute()
  expect((await get("payers/ada@shop.example")).body.wallets).toMatchObject([{ address: addressOf(second) }])
  expect((await get("payers?q=ADA@shop.example")).body.data).toMatchObject([{ address: addressOf(second) }])
})

it("counts what was paid beyond a price as paid only if it was kept", async () => {
  const { db } = rig.service.ctx
  const { rows } = await sql<{ id: string }>`
    insert into surpluses (payment_id, transfer_id, deposit_id, token, amount, state)
    select p.id, c.transfer_id, t.deposit_id, p.token, 100000, 'open' from payments p join claims c on c.payment_id = p.id
      join transfers t on t.id = c.transfer_id where p.payer = ${addressOf(first).toLowerCase()} and p.amount = 700000
    returning payment_id as id`.execute(db)
  expect(rows).toHaveLength(1)
  const totals = async () => (await get(`payers/${addressOf(first)}`)).body.wallets[0].totals[0]
  expect(await totals()).toMatchObject({ paid: "1.10", open: "0.10", returned: "0.00" })
  await sql`update surpluses set state = 'returned', returned_at = now(), returned_to = ${addressOf(first).toLowerCase()}`.execute(
    db,
  )
  expect(await totals()).toMatchObject({ paid: "1.10", open: "0.00", returned: "0.10" })
  await sql`update surpluses set state = 'accepted', returned_at = null, returned_to = null`.execute(db)
  expect(await totals()).toMatchObject({ paid: "1.20", open: "0.00", returned: "0.00" })
})

it("counts what is reserved and captured, also of a payer who paid in no other way", async () => {
  rig.service.advance(1_000)
  const id = await reservedSession(rig.service, "shop", rig.network, { authorized: 8n, captured: 3n })
  const { db } = rig.service.ctx
  await db.updateTable("escrows").set({ refunded: 1_000_000n }).where("session_id", "=", id).execute()
  const { payer } = await db.selectFrom("escrows").select("payer").executeTakeFirstOrThrow()
  const { data, total } = (await get("payers")).body
  const sums = { payments: 1, paid: "2.00", returned: "1.00", open: "0.00", reserved: "5.00" }
  expect([total, data[0].address.toLowerCase()]).toEqual([3, payer])
  expect(data[0].totals).toMatchObject([sums])
  expect((await get(`payers?q=${payer}`)).body.data[0].totals).toMatchObject([sums])
  expect((await get(`payers/${payer}`)).body.wallets).toMatchObject([{ totals: [sums] }])
  const page = (await get("payers?limit=1")).body
  expect((await get(`payers?limit=1&after=${page.next}`)).body.data[0].address).toBe(addressOf(first))
  // The same wallet's later payment is its newest, and both are in one row.
  await db
    .updateTable("escrows")
    .set({ payer: addressOf(second).toLowerCase() as never })
    .execute()
  const both = (await get("payers")).body
  expect(both.total).toBe(2)
  expect(both.data[0].totals).toMatchObject([{ payments: 2, paid: "2.00", open: "0.20", reserved: "5.00" }])
})

it("pages through payers of both kinds in one order, also at equal times", async () => {
  const { db } = rig.service.ctx
  const [escrow, payment] = await Promise.all(
    (["escrows", "payments"] as const).map(table =>
      db.selectFrom(table).selectAll().limit(1).executeTakeFirstOrThrow(),
    ),
  )
  const address = (n: number) => `0x${`${n}`.padStart(40, "0")}`
  // Every second of one kind, and three at a time.
  const at = (n: number) => new Date(Date.UTC(2020, 0, 1, 0, 0, Math.floor(n / 3))).toISOString()
  for (let n = 1; n <= 30; n++) {
    const isDirect = n % 2 === 0
    const id = `${isDirect ? "pay" : "cs"}_${"q".repeat(20)}${String(n).padStart(4, "0")}`
    if (!isDirect)
      await sql`insert into checkout_sessions select (jsonb_populate_record(s, ${JSON.stringify({ id })}::jsonb)).*
        from checkout_sessions s where s.id = ${(escrow as { session_id: string }).session_id}`.execute(db)
    const changed = isDirect
      ? { id, payer: address(n), created_at: at(n) }
      : {
          session_id: id,
          payer: address(n),
          authorized_at: at(n),
          nonce: `0x${`${n}`.padStart(64, "0")}`,
          auth_id: `0x${`${n}`.padStart(64, "a")}`,
        }
    const table = isDirect ? "payments" : "escrows"
    const from = isDirect
      ? sql`id = ${(payment as { id: string }).id}`
      : sql`session_id = ${(escrow as { session_id: string }).session_id}`
    await sql`insert into ${sql.table(table)} select (jsonb_populate_record(t, ${JSON.stringify(changed)}::jsonb)).*
      from ${sql.table(table)} t where ${from}`.execute(db)
  }
  const whole = (await get("payers?limit=1000")).body
  expect(whole.total).toBe(whole.data.length)
  const all = whole.data.map(({ address }: { address: string }) => address)
  expect(new Set(all).size).toBe(all.length)
  expect(all.length).toBeGreaterThanOrEqual(32)
  const paged: string[] = []
  for (let after: string | undefined = ""; after !== undefined; ) {
    const { body }: { body: { data: { address: string }[]; next?: string } } = await get(
      `payers?limit=7${after && `&after=${after}`}`,
    )
    paged.push(...body.data.map(({ address }) => address))
    after = body.next
  }
  expect(paged).toEqual(all)
  expect((await get("payers?limit=5&offset=9")).body.data.map(({ address }: { address: string }) => address)).toEqual(
    all.slice(9, 14),
  )
})

it("has no payer of another merchant's, and refuses what is neither address", async () => {
  expect((await get("payers", "rival")).body.data).toEqual([])
  for (const who of [addressOf(first), "ada@shop.example"])
    expect((await get(`payers/${who}`, "rival")).status).toBe(404)
  for (const who of ["x", "0x12", `0x${"ab".repeat(32)}`, "a@b@c"])
    expect((await get(`payers/${who}`)).status, who).toBe(404)
  for (const q of ["", "x", "0x12", "a b@c"])
    expect((await get(`payers?q=${encodeURIComponent(q)}`)).status, q).toBe(400)
})

it("says in words what is wrong: a network that is not read, a wallet that is halted, payouts on hold", async () => {
  const { ctx } = rig.service
  const sentences = async () => (await get("health")).body.alarms as string[]
  expect(await sentences()).toEqual([expect.stringContaining("Base Sepolia is not being read")])
  await ensureCursor(ctx, rig.network)
  await ctx.db.updateTable("cursors").set({ looked_at: ctx.now(), lag_blocks: 3n }).execute()
  const { body } = await get("health")
  expect(body.alarms).toEqual([])
  expect(body.networks).toMatchObject([{ chain: "base-sepolia", behind: "3", payments: "open", alarms: [] }])
  await ctx.db.updateTable("cursors").set({ lag_blocks: 1_000_000n }).execute()
  expect(await sentences()).toEqual([
    "Base Sepolia is being read 1000000 blocks behind, so payments there are found late.",
  ])
  await ctx.db.updateTable("cursors").set({ lag_blocks: 0n }).execute()
  await ctx.db.updateTable("wallets").set({ status: "halted", halted_reason: "a test" }).execute()
  expect(await sentences()).toEqual([expect.stringMatching(/^Payments and payouts on Base Sepolia are paused/)])
  await ctx.db.updateTable("wallets").set({ status: "active", halted_reason: null }).execute()
  const split = await rig.sell([70, 30])
  await rig.paid(split, 1_000_000n)
  await ctx.db
    .updateTable("payouts")
    .set({ state: "held", held_reason: "low_gas" })
    .where("state", "=", "queued")
    .execute()
  expect(await sentences()).toEqual(["2 of your payouts are on hold. See the reason on each payout."])
  expect((await get("health")).body.queue.payouts).toMatchObject({ queued: 0, held: 2, sending: 0 })
  expect((await get("health", "rival")).body).toMatchObject({ alarms: [], queue: { payouts: { held: 0 } } })
})
