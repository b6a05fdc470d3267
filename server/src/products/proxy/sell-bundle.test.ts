/** Money at a bundle's address: what settled a call is a payment, anything else waits for the merchant. */
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { PAYOUT_ADDRESS, paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { SellingContext } from "../../ledger/settlement/sellable.ts"
import { settleDue } from "../../ledger/settlement/settle.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { accessSales } from "../paywalls/sell-access.ts"
import { bundleSales } from "./sell-bundle.ts"

const agent = `0x${"b".repeat(40)}` as Address
const stranger = `0x${"c".repeat(40)}` as Address
const hashOf = (n: number) => `0x${n.toString(16).padStart(64, "0")}` as Hash

let service: TestService
let ctx: SellingContext
let settled: Set<Hash>
/** Each transaction settled one call, at one of two prices. */
const amounts = () => new Map([...settled].map(hash => [hash, hash === hashOf(3) ? [50_000n, 70_000n] : [50_000n]]))
beforeAll(async () => {
  service = await startService()
  ctx = { ...service.ctx, sells: [accessSales, bundleSales(async () => amounts())] }
})
afterAll(() => service.stop())
let bundleId: string
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  settled = new Set()
  const routes = [{ method: "GET", path: "/", price: "0.05" }]
  const bundle = { name: "API", originUrl: "https://api.example", routes }
  bundleId = (await service.call("POST", "/api/console/bundles", bundle, { as: "shop" })).body.id
})

interface Arrival {
  from?: Address
  token?: Address
  ageMs?: number
  k?: number
}
/** A confirmed transfer to the bundle as the scan would have stored it, due now; `n` names its transaction. */
async function arrive(
  n: number,
  value: bigint,
  { from = agent, token, ageMs = 0, k = 0 }: Arrival = {},
): Promise<void> {
  const deposit = await ctx.db.selectFrom("deposits").selectAll().executeTakeFirstOrThrow()
  const now = ctx.now()
  await ctx.db
    .insertInto("transfers")
    .values({
      tx_hash: hashOf(n),
      block_hash: hashOf(n),
      block_number: BigInt(n),
      log_index: k,
      k,
      chain_id: paperNetwork.chainId,
      token: token ?? paperNetwork.token.address,
      to_address: deposit.address,
      deposit_id: deposit.id,
      from_address: from,
      value,
      state: "confirmed",
      block_time: new Date(now.getTime() - ageMs),
      run_at: now,
      created_at: now,
    })
    .execute()
}
const OLD = { ageMs: 3_600_000 }
const setState = (n: number, state: "gone" | "confirmed") =>
  ctx.db.updateTable("transfers").set({ state, run_at: ctx.now() }).where("tx_hash", "=", hashOf(n)).execute()
const round = () => settleDue(ctx, paperNetwork)
const payments = () => ctx.db.selectFrom("payments").selectAll().orderBy("amount").execute()
const due = async () =>
  (await ctx.db.selectFrom("transfers").select("run_at").where("run_at", "is not", null).execute()).map(
    row => row.run_at,
  )

describe("a transfer to a bundle", () => {
  it("that settled a call is a payment of its own, is swept, and emits no event", async () => {
    settled = new Set([hashOf(1), hashOf(2), hashOf(3)])
    for (const n of [1, 2]) await arrive(n, 50_000n)
    await arrive(3, 70_000n, { from: stranger })
    await round()
    await round()
    const paid = { status: "granted", exception: null, resource_id: bundleId }
    expect(await payments()).toMatchObject([
      { ...paid, payer: agent, amount: 50_000n },
      { ...paid, payer: agent, amount: 50_000n },
      { ...paid, payer: stranger, amount: 70_000n },
    ])
    expect((await payments()).every(row => row.sweep_at !== null)).toBe(true)
    expect(await due()).toEqual([])
    const { body } = await service.call("GET", "/api/console/events", undefined, { as: "shop" })
    const types = body.data.map((each: { event: string }) => each.event)
    expect(types.filter((type: string) => !type.startsWith("settings."))).toEqual([])
  })

  it("that settled nothing waits: first for its settlement to be recorded, then for the merchant", async () => {
    await arrive(1, 50_000n)
    await arrive(2, 1_000_000n, { ...OLD, from: stranger })
    await arrive(3, 5n, { from: stranger, token: `0x${"77".repeat(20)}` as Address })
    await round()
    expect(await payments()).toMatchObject([
      { status: "open", exception: "wrong_asset", payer: stranger },
      { status: "open", exception: "late", payer: stranger, amount: 1_000_000n },
    ])
    const [again] = await due()
    expect(again?.getTime()).toBeGreaterThan(ctx.now().getTime())
    settled.add(hashOf(1))
    service.advance(60_000)
    await round()
    expect(await payments()).toMatchObject([{}, { status: "granted", payer: agent }, {}])
    const [, , late] = await payments()
    const accepted = await service.call("POST", `/api/console/payments/${late?.id}/accept`, {}, { as: "shop" })
    expect(accepted.body).toMatchObject({ status: "granted" })
  })

  it("is one of a hundred that a transaction settles; the others come in the next, and none is left", async () => {
    const count = 130
    for (let n = 1; n <= count; n++) {
      settled.add(hashOf(n))
      await arrive(n, 50_000n)
    }
    await arrive(900, 1_000_000n, OLD)
    await round()
    // Other money needs no payouts, so it is read at once.
    expect([(await payments()).length, (await due()).length]).toEqual([100 + 1, count - 100])
    await round()
    expect(await due()).toEqual([])
    const statuses = Object.groupBy(await payments(), ({ status }) => status)
    expect([statuses.granted?.length, statuses.open?.length]).toEqual([count, 1])
  })

  it("is settled beside thousands that wait: a sender's own dust keeps nothing from being counted", async () => {
    await arrive(1, 1n, OLD)
    await round()
    const [dust] = await payments()
    await sql`insert into transfers (tx_hash, block_hash, block_number, log_index, k, chain_id, token, to_address, deposit_id,
        from_address, value, state, block_time, created_at)
      select '0x' || lpad(to_hex(i), 64, 'd'), t.block_hash, i, 0, 0, t.chain_id, t.token, t.to_address, t.deposit_id,
        t.from_address, 1, 'confirmed', t.block_time, t.created_at from transfers t, generate_series(1000, 3200) i`.execute(
      ctx.db,
    )
    await sql`insert into claims select id, ${dust?.id} from transfers where block_number >= 1000`.execute(ctx.db)
    settled.add(hashOf(2))
    await arrive(2, 50_000n)
    await round()
    expect((await payments()).at(-1)).toMatchObject({ status: "granted", amount: 50_000n })
    expect(await due()).toEqual([])
  })

  it("in a transaction that settled one call pays for one call", async () => {
    settled.add(hashOf(1))
    await arrive(1, 40_000n, { ...OLD, k: 0 })
    await arrive(1, 50_000n, { ...OLD, k: 1 })
    await round()
    expect(await payments()).toMatchObject([
      { status: "open", exception: "late", amount: 40_000n },
      { status: "granted", amount: 50_000n },
    ])
  })

  it("whose settlement is recorded late becomes the payment that waited", async () => {
    await arrive(1, 50_000n, OLD)
    await round()
    const [waiting] = await payments()
    expect(waiting).toMatchObject({ status: "open", exception: "late" })
    settled.add(hashOf(1))
    await setState(1, "confirmed")
    await round()
    expect(await payments()).toMatchObject([{ id: waiting?.id, status: "granted", exception: null }])
  })

  it("that a reorg removes is reversed, and paid again when it is back", async () => {
    settled.add(hashOf(1))
    await arrive(1, 50_000n)
    await round()
    const [paid] = await payments()
    await setState(1, "gone")
    await round()
    expect(await payments()).toMatchObject([{ id: paid?.id, status: "reversed", sweep_at: null }])
    await setState(1, "confirmed")
    await round()
    expect(await payments()).toMatchObject([{ id: paid?.id, status: "granted" }])
  })

  it.each([
    ["its new sender", stranger],
    ["its old sender", agent],
  ])("that a reorg gave to another sender is reversed too where %s has just paid", async (_, from) => {
    settled = new Set([hashOf(1), hashOf(2)])
    await arrive(1, 50_000n)
    await round()
    await ctx.db.updateTable("transfers").set({ from_address: stranger, run_at: ctx.now() }).execute()
    await arrive(2, 50_000n, { from })
    await round()
    const granted = (await payments()).filter(({ status }) => status === "granted").map(({ payer }) => payer)
    expect(granted.sort()).toEqual([from, stranger].sort())
    expect(await due()).toEqual([])
  })
})

it("the address of a bundle is in the merchant's books with its terms", async () => {
  const { body } = await service.call("GET", "/api/console/deposits", undefined, { as: "shop" })
  expect(body.data).toMatchObject([{ owner: PAYOUT_ADDRESS, paywallId: null, sessionId: null }])
})
