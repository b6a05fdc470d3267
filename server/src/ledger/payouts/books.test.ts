// The database itself refuses wrong books, and the books add up whatever happens to payments.
import { randomUUID } from "node:crypto"
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import { settleDue } from "../settlement/settle.ts"
import { reserveShort } from "./insert-payout.ts"
import { cancelPayouts, heirsOf, makePayouts, sweepAfterRevert, sweepDue } from "./make-payouts.ts"
import { sharesOf } from "./queries.ts"

let service: TestService
beforeAll(async () => {
  service = await startService({ settings: { sweepAbove: "2" } })
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const { chainId, token } = paperNetwork
const payer = `0x${"b".repeat(40)}` as Address
const stranger = `0x${"d".repeat(40)}` as Address
const hashOf = (n: number) => `0x${n.toString(16).padStart(64, "0")}` as Hash
const db = () => service.ctx.db

async function sell(percents: number[] | undefined) {
  const post = async (url: string, body: object) => (await service.call("POST", url, body, { as: "shop" })).body
  const recipients = percents?.map((percent, i) => ({
    address: `0x${(i + 1).toString(16).padStart(40, "e")}`,
    percent,
  }))
  const split = recipients && (await post("/api/console/splits", { name: "s", recipients })).id
  const { id } = await post("/api/console/paywalls", { name: "p", price: 1, ...(split ? { splitId: split } : {}) })
  const deposit = await db().selectFrom("deposits").selectAll().where("resource_id", "=", id).executeTakeFirstOrThrow()
  return { id: id as string, deposit }
}

type Shop = Awaited<ReturnType<typeof sell>>

async function arrive(shop: Shop, n: number, value: bigint): Promise<void> {
  const now = service.ctx.now()
  await db()
    .insertInto("transfers")
    .values({
      chain_id: chainId,
      tx_hash: hashOf(n),
      token: token.address,
      to_address: shop.deposit.address,
      k: 0,
      deposit_id: shop.deposit.id,
      from_address: payer,
      value,
      block_number: BigInt(n),
      block_hash: hashOf(n),
      log_index: 0,
      block_time: now,
      state: "confirmed",
      run_at: now,
      created_at: now,
    })
    .execute()
  await service.call("POST", `/api/paywalls/${shop.id}/pay`, { txHash: hashOf(n), address: payer })
}

const setState = (n: number, state: "gone" | "confirmed") =>
  db()
    .updateTable("transfers")
    .set({ state, run_at: service.ctx.now() })
    .where("tx_hash", "=", hashOf(n))
    .where("state", "<>", state)
    .execute()
/** Changes a transfer as a reorg does that mines it again with another amount. */
const setValue = (n: number, value: bigint) =>
  db()
    .updateTable("transfers")
    .set({ value, reorged_at: service.ctx.now(), run_at: service.ctx.now() })
    .where("tx_hash", "=", hashOf(n))
    .execute()
/** Changes a transfer as a reorg does that mines it again from another sender. */
const setSender = (n: number, from: Address) =>
  db()
    .updateTable("transfers")
    .set({ from_address: from, reorged_at: service.ctx.now(), run_at: service.ctx.now() })
    .where("tx_hash", "=", hashOf(n))
    .execute()
/** Settles without surpluses: the lowest price is so high that every overpayment is dust and counts for its payment. */
const settle = () => {
  const settings = { ...service.ctx.settings, minAmount: "1000000" }
  return settleDue({ ...service.ctx, settings }, paperNetwork)
}
const book = (shop: Shop) =>
  db().selectFrom("deposit_books").selectAll().where("deposit_id", "=", shop.deposit.id).executeTakeFirst()
const payouts = () => db().selectFrom("payouts").selectAll().orderBy("created_at").orderBy("share").execute()

let nonces = 0n
/** Gives a payout a nonce, as the engine does. */
const assign = (id: string) =>
  db()
    .updateTable("payouts")
    .set({ state: "assigned", held_reason: null, wallet: payer, nonce: nonces++ })
    .where("id", "=", id)
    .execute()
/** The same, if the database allows it; returns whether it did. */
const assignIfThere = (id: string): Promise<boolean> =>
  assign(id).then(
    () => true,
    error => {
      if (!/the money of payout .* is not there/.test(String(error))) throw error
      return false
    },
  )
const ended = (on: ReturnType<typeof db>, id: string, succeeded: boolean) =>
  on
    .updateTable("payouts")
    .set({
      state: succeeded ? "final" : "reverted",
      succeeded,
      tx_hash: hashOf(1),
      block_hash: hashOf(1),
      block_number: 1n,
    })
    .where("id", "=", id)
const end = (id: string, succeeded: boolean) => ended(db(), id, succeeded).execute()

/**
 * The books equal the sums of their rows; and no deposit promises more than came in, except for what a reorg removed.
 */
async function expectBalanced(): Promise<void> {
  const { rows } = await sql<{ wrong: boolean; over: boolean }>`
    select b.inflow <> (select coalesce(sum(t.value), 0) from transfers t where t.deposit_id = b.deposit_id
        and t.token = b.token and t.state in ('confirmed', 'final'))
      or b.committed <> (select coalesce(sum(i.amount), 0) from payouts i where i.deposit_id = b.deposit_id
        and i.token = b.token and i.reserved and i.state not in ('cancelled', 'reverted')) as wrong,
      b.committed > b.inflow + b.shortfall as over from deposit_books b`.execute(db())
  expect(rows.filter(row => row.wrong || row.over)).toEqual([])
}

/** After a day everything that can be swept is swept: a deposit with unpromised money owes nothing. */
async function expectSwept({ deposit }: Shop): Promise<void> {
  service.advance(2 * 86_400_000)
  await sweepDue(service.ctx, paperNetwork)
  const { rows } = await sql<{ room: bigint; owed: bigint }>`
    select room_in(${deposit.id}, ${token.address})::numeric(78,0) as room, coalesce(sum(greatest(0, t.value - (
      select coalesce(sum(s.amount), 0) from sweep_parts s join payouts i on i.id = s.payout_id
      where s.transfer_id = t.id and i.reserved and i.state not in ('cancelled', 'reverted')))), 0)::numeric(78,0) as owed
    from payments p join claims c on c.payment_id = p.id join transfers t on t.id = c.transfer_id
    join deposits d on d.id = t.deposit_id
    where p.status = 'granted' and d.recipient_set_id is null and t.deposit_id = ${deposit.id}
      and t.state in ('confirmed', 'final')`.execute(db())
  expect(rows.filter(({ room, owed }) => room > 0n && owed > 0n)).toEqual([])
  await reserveShort(service.ctx, chainId)
  const short = (await payouts()).filter(row => row.kind === "sweep" && row.state === "held" && !row.reserved)
  if (short.length > 0)
    expect(
      rows.map(({ room }) => room > 0n),
      `${short[0]?.amount} is held`,
    ).toEqual([false])
}

/** All money of granted payments is promised to recipients: no share is missing because it was counted twice. */
async function expectShared({ deposit }: Shop): Promise<void> {
  const { rows } = await sql<{ owed: bigint; shared: bigint }>`
    select (select coalesce(sum(t.value), 0) from payments p join claims c on c.payment_id = p.id
        join transfers t on t.id = c.transfer_id
      where p.status = 'granted' and t.deposit_id = ${deposit.id} and t.state <> 'gone')::numeric(78,0) as owed,
    (select coalesce(sum(amount), 0) from payouts
      where deposit_id = ${deposit.id} and state not in ('cancelled', 'reverted'))::numeric(78,0) as shared`.execute(
    db(),
  )
  for (const { owed, shared } of rows) expect(shared, `of ${owed}`).toBeGreaterThanOrEqual(owed)
}

describe("the books", () => {
  it("add up through payments, reversals, returns, sweeps, nonces and ends, in any order", async () => {
    const step = fc.record({
      what: fc.oneof(
        { weight: 2, arbitrary: fc.constantFrom("pay", "settle", "assign") },
        {
          weight: 3,
          arbitrary: fc.constantFrom("gone", "back", "other", "sender", "sweep", "final", "revert", "reserve"),
        },
      ),
      which: fc.nat(30),
      value: fc.bigInt({ min: 1n, max: 3_000_000n }),
    })
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 10, maxLength: 40, size: "max" }),
        fc.boolean(),
        async (steps, split) => {
          await service.empty()
          await service.merchant("shop")
          const shop = await sell(split ? [70, 30] : undefined)
          let paid = 0
          for (const { what, which, value } of steps) {
            const all = await payouts()
            const free = all.filter(row => row.reserved && ["queued", "held"].includes(row.state))
            const flying = all.filter(row => row.state === "assigned")
            const one = <T>(of: T[]): T | undefined => of[which % Math.max(1, of.length)]
            if (what === "pay") await arrive(shop, ++paid, value)
            if (what === "gone") await setState(1 + (which % Math.max(1, paid)), "gone")
            if (what === "back") await setState(1 + (which % Math.max(1, paid)), "confirmed")
            if (what === "other") await setValue(1 + (which % Math.max(1, paid)), value)
            if (what === "sender")
              await setSender(1 + (which % Math.max(1, paid)), value % 2n === 0n ? payer : stranger)
            if (what === "settle") await settle()
            if (what === "sweep") {
              service.advance(2 * 86_400_000)
              await sweepDue(service.ctx, paperNetwork)
            }
            if (what === "reserve") await reserveShort(service.ctx, chainId)
            if (what === "assign" && one(free)) await assignIfThere(one(free)?.id ?? "")
            const ended = what === "final" || what === "revert" ? one(flying) : undefined
            if (ended) await end(ended.id, what === "final")
            // As confirmPayouts does in the transaction that writes the end.
            if (ended?.kind === "sweep" && what === "revert")
              await inTransaction(service.ctx, ctx => sweepAfterRevert(ctx, ended, 100, service.ctx.now()))
            const { payment_id: of } = ended?.kind === "share" && what === "revert" ? ended : { payment_id: null }
            if (of !== null)
              await inTransaction(service.ctx, async ctx => {
                for (const id of [of, ...(await heirsOf(ctx, of))]) await makePayouts(ctx, id, { reason: "reverted" })
              })
            await expectBalanced()
          }
          await settle()
          // No share is promised twice, and nothing that is not part of a granted payment is promised. A share that was
          // signed before a reorg mined its transfer again with less may exceed that; then no other share is promised.
          const { rows } = await sql<{ over: boolean }>`select coalesce(sum(i.amount), 0) > greatest(p.amount,
            coalesce(sum(i.amount) filter (where i.state not in ('queued', 'held')), 0)) as over
          from payments p left join payouts i on i.payment_id = p.id and i.state not in ('cancelled', 'reverted')
          where p.status = 'granted' and ${split} group by p.id`.execute(db())
          expect(rows.filter(row => row.over).length).toBe(0)
          if (split) await expectShared(shop)
          await expectBalanced()
          await expectSwept(shop)
        },
      ),
      { numRuns: 30 },
    )
  })

  it("promise no share more when a reorg brings less than a signed share, and the right shares when that failed", async () => {
    const shop = await sell([70, 30])
    const shares = async () => (await payouts()).map(row => [row.share, row.amount, row.state])
    await arrive(shop, 1, 1_428_573n)
    await settle()
    const [first] = await payouts()
    await assign(first?.id ?? "")
    await setValue(1, 1_000_000n)
    await settle()
    const signed = [0, 1_000_001n, "assigned"]
    expect(await shares()).toEqual([signed, [1, 428_572n, "cancelled"]])
    expect(await book(shop)).toMatchObject({ inflow: 1_000_000n, committed: 1_000_001n, shortfall: 1n })
    await end(first?.id ?? "", false)
    const { id } = await db()
      .selectFrom("payments")
      .select("id")
      .where("status", "=", "granted")
      .executeTakeFirstOrThrow()
    await makePayouts(service.ctx, id)
    expect((await shares()).filter(([, , state]) => state === "queued")).toEqual([
      [0, 700_000n, "queued"],
      [1, 300_000n, "queued"],
    ])
    await expectBalanced()
  })

  it("count no unsigned share against the next payment, where its own payment is reversed in a later settlement", async () => {
    const shop = await sell([70, 30])
    await arrive(shop, 1, 400_000n)
    await arrive(shop, 2, 2_500_000n)
    await settle()
    await setState(1, "gone")
    await settle()
    await setState(1, "confirmed")
    await setState(2, "gone")
    await setSender(2, stranger)
    await arrive(shop, 3, 2_100_000n)
    await settle()
    const live = (await payouts()).filter(row => row.state !== "cancelled").map(row => row.amount)
    expect(live).toEqual([1_750_000n, 750_000n])
    await expectBalanced()
  })

  it("hold back what does not fit since a reorg took money that was signed away, until it is back", async () => {
    const shop = await sell([50, 50])
    await arrive(shop, 1, 1_000_000n)
    await settle()
    for (const { id } of await payouts()) await assign(id)
    await setState(1, "gone")
    await settle()
    expect(await book(shop)).toMatchObject({ inflow: 0n, committed: 1_000_000n, shortfall: 1_000_000n })
    await arrive(shop, 2, 1_000_000n)
    await settle()
    const second = (await payouts()).slice(2)
    expect(second.map(row => [row.state, row.held_reason, row.reserved])).toEqual([
      ["held", "short", false],
      ["held", "short", false],
    ])
    await setState(1, "confirmed")
    await settle()
    expect((await payouts()).length).toBe(4)
    service.advance(120_000)
    await reserveShort(service.ctx, chainId)
    expect((await payouts()).slice(2).map(row => row.state)).toEqual(["queued", "queued"])
    expect(await book(shop)).toMatchObject({ inflow: 2_000_000n, committed: 2_000_000n, shortfall: 0n })
  })

  it.each(["before its shares were signed", "when they were signed and had failed"])(
    "leave another buyer's money alone when a reorg takes a payment %s",
    async when => {
      const shop = await sell([50, 50])
      await arrive(shop, 1, 1_000_000n)
      await settle()
      const first = await db().selectFrom("payments").select("id").executeTakeFirstOrThrow()
      // Mined again in another block, and not confirmed there: the payment stands.
      await db().updateTable("transfers").set({ state: "seen" }).execute()
      if (when.startsWith("when"))
        for (const { id } of await payouts()) {
          await sql`alter table payouts disable trigger payouts_keep_others_money`.execute(db())
          await assign(id)
          await sql`alter table payouts enable trigger payouts_keep_others_money`.execute(db())
          await end(id, false)
        }
      await arrive(shop, 2, 900_000n)
      await db()
        .updateTable("transfers")
        .set({ from_address: `0x${"d".repeat(40)}` as Address })
        .where("tx_hash", "=", hashOf(2))
        .execute()
      await settle()
      await makePayouts(service.ctx, first.id, { reason: "reverted" })
      service.advance(86_400_000)
      await reserveShort(service.ctx, chainId)
      const open = (await payouts()).filter(row => row.state === "queued" || row.state === "held")
      expect(open.length).toBe(2)
      for (const { id, reserved } of open) {
        if (when.startsWith("when")) expect(reserved).toBe(false)
        else expect(await assignIfThere(id)).toBe(false)
      }
      // Back at its place, it pays.
      await setState(1, "confirmed")
      await settle()
      service.advance(86_400_000)
      await reserveShort(service.ctx, chainId)
      for (const { id } of open) expect(await assignIfThere(id)).toBe(true)
    },
  )

  it("find the share of a payment that is on its way back, and hold it until it is there", async () => {
    const shop = await sell([50, 50])
    await arrive(shop, 1, 1_000_000n)
    await settle()
    for (const { id } of await payouts()) await assign(id)
    // Mined again in another block, and not confirmed there yet, when the shares' failure becomes final.
    await db().updateTable("transfers").set({ state: "seen" }).execute()
    for (const { id } of await payouts()) await end(id, false)
    const { id } = await db().selectFrom("payments").select("id").executeTakeFirstOrThrow()
    await makePayouts(service.ctx, id, { reason: "reverted" })
    await setState(1, "confirmed")
    await settle()
    service.advance(86_400_000)
    await reserveShort(service.ctx, chainId)
    expect((await payouts()).map(row => row.state)).toEqual(["reverted", "reverted", "queued", "queued"])
  })

  it.each([
    ["moves", "seen"],
    ["removes, and brings back before settlement sees it,", "gone"],
  ] as const)("sweep later what a reorg %s while its payment is swept", async (_, state) => {
    const shop = await sell(undefined)
    await arrive(shop, 1, 500_000n)
    await arrive(shop, 2, 500_000n)
    await settle()
    service.advance(86_400_000)
    await db()
      .updateTable("transfers")
      .set({ state, run_at: state === "gone" ? service.ctx.now() : null })
      .where("tx_hash", "=", hashOf(2))
      .execute()
    await sweepDue(service.ctx, paperNetwork)
    await setState(2, "confirmed")
    await settle()
    await sweepDue(service.ctx, paperNetwork)
    expect((await payouts()).map(row => [row.kind, row.amount, row.state])).toEqual([
      ["sweep", 500_000n, "queued"],
      ["sweep", 500_000n, "queued"],
    ])
    expect(await sweepDue(service.ctx, paperNetwork)).toBe(0)
  })

  it("schedule no sweep for a transfer that is gone once settlement keeps the payment without it", async () => {
    const shop = await sell(undefined)
    await arrive(shop, 1, 500_000n)
    await arrive(shop, 2, 500_000n)
    await settle()
    await setState(2, "gone")
    await setValue(1, 1_000_000n)
    await settle()
    for (let day = 0; day < 3; day++) {
      service.advance(86_400_000)
      await sweepDue(service.ctx, paperNetwork)
    }
    const payments = db().selectFrom("payments").select(["status", "sweep_at"]).where("status", "=", "granted")
    expect((await payments.execute()).map(({ sweep_at }) => sweep_at)).toEqual([null])
    expect((await payouts()).map(row => [row.kind, row.amount])).toEqual([["sweep", 1_000_000n]])
  })

  it("sweep what is there when a reorg brings less than a signed sweep promised, and the rest when that failed", async () => {
    const shop = await sell(undefined)
    const sweeps = async () => (await payouts()).map(row => [row.amount, row.state])
    const day = async () => {
      service.advance(86_400_000)
      await sweepDue(service.ctx, paperNetwork)
    }
    await arrive(shop, 1, 1_500_000n)
    await settle()
    await day()
    const [first] = await payouts()
    await assign(first?.id ?? "")
    await setValue(1, 600_000n)
    await arrive(shop, 2, 1_500_000n)
    await settle()
    await day()
    expect(await sweeps()).toEqual([
      [1_500_000n, "assigned"],
      [600_000n, "queued"],
    ])
    await expectBalanced()
    await end(first?.id ?? "", false)
    await inTransaction(service.ctx, ctx => sweepAfterRevert(ctx, first as never, 5, service.ctx.now()))
    await day()
    expect(await sweeps()).toEqual([
      [1_500_000n, "reverted"],
      [600_000n, "queued"],
      [1_500_000n, "queued"],
    ])
    expect(await book(shop)).toMatchObject({ inflow: 2_100_000n, committed: 2_100_000n })
  })

  it("sweep those that wait longest first, and let none that can't be swept keep the others from their turn", async () => {
    const stuck = await sell(undefined)
    const shop = await sell(undefined)
    await arrive(shop, 1, 500_000n)
    await arrive(shop, 2, 500_000n)
    await settle()
    // 250 payments, each of a token of its own, whose money the chain is moving to another block.
    const at = service.ctx.now()
    const address = stuck.deposit.address
    await sql`with made as (select n, 'pay_stuck' || n as id, '0x' || lpad(n::text, 40, 'd') as token,
          '0x' || lpad(n::text, 64, 'd') as hash from generate_series(1, 250) as n),
        paid as (insert into payments (id, merchant_id, resource_id, chain_id, payer, token, amount, tx_hash, status, sweep_at,
            created_at, updated_at)
          select id, ${stuck.deposit.merchant_id}, ${stuck.id}, ${chainId}::int, ${payer}, token, 1000000, hash, 'granted',
            ${at}, ${at}, ${at} from made returning id),
        came as (insert into transfers (chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number,
            block_hash, log_index, block_time, state, created_at)
          select ${chainId}::int, hash, token, ${address}, 0, ${stuck.deposit.id}::bigint, ${payer}, 1000000, n, hash, 0, ${at},
            'seen', ${at} from made returning id, tx_hash)
      insert into claims (transfer_id, payment_id) select came.id, made.id from came join made on made.hash = came.tx_hash
        where (select count(*) from paid) = 250`.execute(db())
    service.advance(86_400_000)
    expect(await sweepDue(service.ctx, paperNetwork)).toBe(200)
    expect(await sweepDue(service.ctx, paperNetwork)).toBe(51)
    expect((await payouts()).map(row => [row.kind, row.amount])).toEqual([["sweep", 1_000_000n]])
    expect(await sweepDue(service.ctx, paperNetwork)).toBe(0)
    // An hour later, a payment whose transfer is confirmed again is swept.
    const hash = `0x${"7".padStart(64, "d")}` as Hash
    await db().updateTable("transfers").set({ state: "confirmed" }).where("tx_hash", "=", hash).execute()
    await db().updateTable("payments").set({ sweep_at: null }).where("tx_hash", "<>", hash).execute()
    expect(await sweepDue(service.ctx, paperNetwork)).toBe(0)
    service.advance(3_600_000)
    await sweepDue(service.ctx, paperNetwork)
    expect((await payouts()).length).toBe(2)
  })

  it("leave a sweep that always reverts to a person after five", async () => {
    const shop = await sell(undefined)
    await arrive(shop, 1, 3_000_000n)
    await settle()
    const newest = async () => (await payouts()).at(-1)
    for (let i = 0; i < 5; i++) {
      const row = await newest()
      expect([row?.state, row?.held_reason]).toEqual(["queued", null])
      await assign(row?.id ?? "")
      await end(row?.id ?? "", false)
      await inTransaction(service.ctx, ctx => sweepAfterRevert(ctx, row as never, 5, service.ctx.now()))
      await sweepDue(service.ctx, paperNetwork)
    }
    expect(await newest()).toMatchObject({
      state: "held",
      held_reason: "reverted",
      held_detail: expect.stringMatching(/5 times .*`sluice wallet retry`/),
    })
    service.advance(400 * 86_400_000)
    await sweepDue(service.ctx, paperNetwork)
    expect((await payouts()).length).toBe(6)
    expect((await newest())?.run_at.getTime()).toBeGreaterThan(service.ctx.now().getTime())
  })

  it("count a payment once though its shares are asked for again and again", async () => {
    const shop = await sell([50, 50])
    await arrive(shop, 1, 1_000_001n)
    await settle()
    const { id } = await db().selectFrom("payments").select("id").executeTakeFirstOrThrow()
    for (let i = 0; i < 3; i++) await makePayouts(service.ctx, id)
    expect((await payouts()).map(row => row.amount)).toEqual([500_000n, 500_001n])
    await cancelPayouts(service.ctx, id)
    expect(await sharesOf(service.ctx, id)).toEqual([])
    await makePayouts(service.ctx, id)
    expect((await sharesOf(service.ctx, id)).map(share => share.amount)).toEqual(["0.50", "0.500001"])
  })

  it("schedule no other sweep where a payment that is swept already is planned again", async () => {
    const shop = await sell(undefined)
    await arrive(shop, 1, 3_000_000n)
    await settle()
    const { id, sweep_at } = await db().selectFrom("payments").select(["id", "sweep_at"]).executeTakeFirstOrThrow()
    expect(sweep_at).toBeNull()
    await makePayouts(service.ctx, id)
    expect(await db().selectFrom("payments").select("sweep_at").execute()).toEqual([{ sweep_at: null }])
    expect((await payouts()).map(row => [row.kind, row.amount])).toEqual([["sweep", 3_000_000n]])
  })

  // The embedded database has one connection, on which transactions wait for each other.
  it.skipIf(process.env.DATABASE_URL === undefined)(
    "sweep again where a payment is granted while its signed sweep is being written as failed",
    async () => {
      const shop = await sell(undefined)
      await arrive(shop, 1, 3_000_000n)
      await settle()
      const [first] = await payouts()
      await assign(first?.id ?? "")
      await setState(1, "gone")
      await settle()
      await setState(1, "confirmed")
      let settled: Promise<unknown> = Promise.resolve()
      await inTransaction(service.ctx, async ctx => {
        await ended(ctx.db, first?.id ?? "", false).execute()
        settled = settle()
        await until("the settlement waits for the book, which this transaction holds", async () => {
          const { rows } = await sql`select from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'`.execute(db())
          return rows.length > 0
        })
        await sweepAfterRevert(ctx, first as never, 5, service.ctx.now())
      })
      await settled
      for (let day = 0; day < 3; day++) {
        service.advance(86_400_000)
        await sweepDue(service.ctx, paperNetwork)
      }
      expect((await payouts()).map(row => [row.kind, row.state])).toEqual([
        ["sweep", "reverted"],
        ["sweep", "queued"],
      ])
    },
  )

  it("divide what each of two deposits received of a payment by itself", async () => {
    const shop = await sell([50, 50])
    await arrive(shop, 1, 400_000n)
    const other = `0x${"d".repeat(40)}`
    await service.call("PUT", "/api/console/settings", { payoutAddress: other }, { as: "shop" })
    const [deposit] = await db().selectFrom("deposits").selectAll().orderBy("id", "desc").limit(1).execute()
    await arrive({ ...shop, deposit: deposit ?? shop.deposit }, 2, 600_000n)
    await settle()
    expect((await payouts()).map(row => [row.share, row.amount]).sort()).toEqual([
      [0, 200_000n],
      [0, 300_000n],
      [1, 200_000n],
      [1, 300_000n],
    ])
  })
})

describe("the database refuses", () => {
  const refused = (work: Promise<unknown>, words: string) => expect(work).rejects.toThrow(words)
  let id: string
  let shop: Shop
  beforeEach(async () => {
    shop = await sell([50, 50])
    await arrive(shop, 1, 1_000_000n)
    await settle()
    id = (await payouts())[0]?.id ?? ""
  })
  const set = (change: object) => db().updateTable("payouts").set(change).where("id", "=", id).execute()

  it("more out of a deposit than came in", async () => {
    const [row] = await payouts()
    if (!row) throw new Error("no payout")
    const more = { ...row, id: randomUUID(), source_key: "another", amount: 1n }
    await refused(db().insertInto("payouts").values(more).execute(), "books_balance")
  })

  it("a payout another nonce, or none", async () => {
    await assign(id)
    await refused(set({ nonce: 99n }), "never gives up its nonce")
    await refused(set({ state: "queued", nonce: null, wallet: null }), "never gives up its nonce")
    await refused(set({ state: "queued" }), "check")
  })

  it("a payout that pays another amount, or another recipient", async () => {
    await refused(set({ amount: 1n }), "can not change")
    await refused(set({ recipient: payer }), "can not change")
  })

  it("two payouts one nonce, or one reason", async () => {
    const [first, second] = await payouts()
    await assign(first?.id ?? "")
    const same = { state: "assigned", wallet: payer, nonce: nonces - 1n } as const
    await refused(
      db()
        .updateTable("payouts")
        .set(same)
        .where("id", "=", second?.id ?? "")
        .execute(),
      "unique",
    )
    const again = { ...(first as NonNullable<typeof first>), id: randomUUID() }
    await refused(db().insertInto("payouts").values(again).execute(), "unique")
  })

  it("an end that ends otherwise", async () => {
    await assign(id)
    await end(id, true)
    await refused(set({ state: "mined" }), "has ended")
  })

  it("attempts that change or go", async () => {
    await assign(id)
    const attempt = { payout_id: id, chain_id: chainId, wallet: payer, nonce: nonces - 1n, n: 0 }
    await db()
      .insertInto("transaction_attempts")
      .values({ ...attempt, raw: "0x01", hash: hashOf(5), gas: 1n, max_fee: 1n, tip: 1n })
      .execute()
    await refused(db().deleteFrom("transaction_attempts").execute(), "never deleted")
    await refused(db().updateTable("transaction_attempts").set({ raw: "0x02" }).execute(), "does not change")
  })
})
