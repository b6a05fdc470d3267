/**
 * A kind of resource that exists only in this test: a ticket, which is sold, paid, accepted, reversed and notified
 * through `Sellable`.
 */
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { makeDeposit } from "../deposits/make-deposits.ts"
import { wakeSold } from "../scanner/queries.ts"
import { classify, rowsOf } from "./classify.ts"
import { notifyPaid, notifyReversed, sessionNotice } from "./notify-paid.ts"
import { acceptPayment, returnPayment } from "./resolve-exception.ts"
import type { ClaimedTransfer, Owner, Part, Sellable, SellingContext, SellingTx, StandingPayment } from "./sellable.ts"
import { settle, settleDue } from "./settle.ts"

const PRICE = 3_000_000n
const buyer = `0x${"b".repeat(40)}` as Address
const stranger = `0x${"c".repeat(40)}` as Address
const hashOf = (n: number) => `0x${n.toString(16).padStart(64, "0")}` as Hash

/** Payments that hold a ticket. */
let tickets: Map<string, Address>
/** The addresses and offices that the scan has found something new about. */
let woken: (bigint | string)[]

/** The migration of the kind: its own table, which registers its rows. */
const migration = `
  create table offices (
    id text primary key check (starts_with(id, 'off_')),
    merchant_id text not null,
    chain_id integer not null,
    foreign key (id, merchant_id, chain_id) references resources (id, merchant_id, chain_id)
  );
  create trigger offices_register before insert on offices for each row execute function register_resource();
  create trigger offices_unregister after delete on offices for each row execute function unregister_resource()`
const OFFICE = `off_${"1".repeat(24)}`

/** Tickets: whoever sends the price to a ticket office in one transfer gets one. */
const ticketSales: Sellable<Part & { office: string }> = {
  prefix: "off",
  notFound: "NOT_FOUND",
  purpose: "ticket",
  paidOnce: false,

  async due(ctx, network) {
    const { rows } = await sql<{ resourceId: string; senders: Address[] }>`
      select d.resource_id as "resourceId", array_agg(distinct t.from_address::text) as senders
      from transfers t join deposits d on d.id = t.deposit_id
      where t.chain_id = ${network.chainId} and t.run_at <= ${ctx.now()} and starts_with(d.resource_id, 'off_') group by 1`.execute(
      ctx.db,
    )
    return { groups: rows, isMore: false }
  },
  wake: async (_ctx, deposits, resources) => void woken.push(...deposits, ...resources),
  groupOf: async (_ctx, { resource_id, payer }) => ({ resourceId: resource_id, senders: [payer] }),

  async hold(ctx, { resourceId: office }) {
    const held = await sql<Owner>`select merchant_id, chain_id, id as resource_id from offices where id = ${office}
      for no key update`.execute(ctx.db)
    const [owner] = held.rows
    if (!owner) throw new Error(`${office} is not there`)
    const { rows } = await sql<{ id: bigint }>`select t.id from transfers t join deposits d on d.id = t.deposit_id
      where d.resource_id = ${office} and t.run_at <= ${ctx.now()} order by t.id for no key update of t`.execute(ctx.db)
    const standing = await sql<StandingPayment>`select p.*, t.there, t.there as sure from payments p join lateral (
        select coalesce(sum(t.value) filter (where t.state <> 'gone'), 0) as there from claims c
          join transfers t on t.id = c.transfer_id where c.payment_id = p.id) t on true
      where p.resource_id = ${office} order by p.id`.execute(ctx.db)
    const part = { office, owner, network: paperNetwork, payer: undefined, standing: standing.rows }
    return { parts: [part], due: rows.map(row => row.id) }
  },

  async plan(ctx, { office, network }, screened) {
    const { rows } = await sql<ClaimedTransfer>`select t.*, p.id as payment_id, p.status as payment_status
      from transfers t join deposits d on d.id = t.deposit_id left join claims c on c.transfer_id = t.id
        left join payments p on p.id = c.payment_id
      where d.resource_id = ${office} and t.state = 'confirmed' and (p.id is null or p.status = 'open')
      order by t.block_number, t.log_index`.execute(ctx.db)
    const good = rowsOf(classify(ctx, network, rows, screened).filter(each => each.sure && each.screening === "clear"))
    const paid = good.filter(row => row.value >= PRICE)
    return {
      reversed: [],
      paid: paid.map(row => ({ transfers: [row], known: undefined, price: PRICE })),
      considered: good,
      waiting: [{ exception: "underpaid", transfers: good.filter(row => row.value < PRICE) }],
      again: new Map(),
      isMore: false,
    }
  },

  async onPaid(ctx, { network }, { id, payer }) {
    tickets.set(id, payer)
    await notifyPaid(ctx, network, id)
  },
  async onReversed(ctx, { network }, { id }) {
    tickets.delete(id)
    await notifyReversed(ctx, network, await paymentOf(ctx, id))
  },
  async finish() {},
  async onDecided(ctx, { office }, payment, screened) {
    await settle(ctx, ticketSales, { resourceId: office, senders: [payment.payer] }, screened)
  },
  describe: async (_ctx, payment) => ({ ...sessionNotice(payment), description: "One ticket" }),
}

const paymentOf = (ctx: SellingTx, id: string): Promise<Row<"payments">> =>
  ctx.db.selectFrom("payments").selectAll().where("id", "=", id).executeTakeFirstOrThrow()

let service: TestService
let ctx: SellingContext
beforeAll(async () => {
  service = await startService()
  ctx = { ...service.ctx, sells: [...service.ctx.sells, ticketSales] }
  for (const statement of migration.split(";")) await sql.raw(statement).execute(ctx.db)
})
afterAll(() => service.stop())
let merchantId: string
beforeEach(async () => {
  await service.empty()
  merchantId = await service.merchant("shop")
  tickets = new Map()
  woken = []
  await sql`insert into offices values (${OFFICE}, ${merchantId}, ${paperNetwork.chainId})`.execute(ctx.db)
  const owner = `0x${"a".repeat(40)}` as Address
  const parties = { owner, approver: paperNetwork.depositFactory, recipientSetId: null }
  const terms = { resourceId: OFFICE, ...parties, opensAt: new Date("2040-01-01"), watchedMs: 0 }
  await inTransaction(ctx, ctx => makeDeposit(ctx, paperNetwork, terms))
})

/** A confirmed transfer to the ticket office as the scan would have stored it, due now; `n` names its transaction. */
async function arrive(n: number, value: bigint, from = buyer): Promise<void> {
  const deposit = await ctx.db.selectFrom("deposits").selectAll().executeTakeFirstOrThrow()
  await ctx.db
    .insertInto("transfers")
    .values({
      tx_hash: hashOf(n),
      block_hash: hashOf(n),
      block_number: BigInt(n),
      log_index: 0,
      k: 0,
      chain_id: paperNetwork.chainId,
      token: paperNetwork.token.address,
      to_address: deposit.address,
      deposit_id: deposit.id,
      from_address: from,
      value,
      state: "confirmed",
      block_time: ctx.now(),
      run_at: ctx.now(),
      created_at: ctx.now(),
    })
    .execute()
}

const setState = (n: number, state: "gone" | "confirmed") =>
  ctx.db.updateTable("transfers").set({ state, run_at: ctx.now() }).where("tx_hash", "=", hashOf(n)).execute()
const round = () => settleDue(ctx, paperNetwork)
const payments = () => ctx.db.selectFrom("payments").selectAll().orderBy("amount").execute()
const dueCount = async () =>
  (await ctx.db.selectFrom("transfers").select("id").where("run_at", "is not", null).execute()).length
const clear = new Map([buyer, stranger].map(address => [address, "clear" as const]))

/** What the shop was sent, oldest first. */
const events = async () =>
  (await service.call("GET", "/api/console/events", undefined, { as: "shop" })).body.data.reverse()

describe("a new kind of thing", () => {
  it("is woken by what the scan has found at its addresses, and by submissions that ended", async () => {
    await inTransaction(ctx, ctx => wakeSold(ctx, [], []))
    await inTransaction(ctx, ctx => wakeSold(ctx, [7n], [OFFICE]))
    expect(woken).toEqual([7n, OFFICE])
  })

  it("is paid: each payment buys one, has its payouts, and is notified once", async () => {
    await arrive(1, PRICE)
    await arrive(2, PRICE + 1n, stranger)
    await round()
    await round()
    const [exact, over] = await payments()
    expect(exact).toMatchObject({ status: "granted", exception: null, payer: buyer })
    expect(over).toMatchObject({ status: "granted", exception: "overpaid", payer: stranger })
    expect(tickets).toEqual(new Map([exact, over].map(row => [row?.id, row?.payer])))
    expect([exact?.sweep_at, over?.sweep_at].every(at => at !== null)).toBe(true)
    expect(await dueCount()).toBe(0)
    const completed = (await events()).filter((each: { event: string }) => each.event === "checkout.session.completed")
    expect(completed).toMatchObject([
      { data: { id: exact?.id, description: "One ticket", amount: "3.00", status: "confirmed", sequence: 1 } },
      { data: { id: over?.id, description: "One ticket", amount: "3.000001", exception: "overpaid" } },
    ])
  })

  it("is reversed when the chain takes the money, and given again when it is back", async () => {
    await arrive(1, PRICE)
    await round()
    const [bought] = await payments()
    await setState(1, "gone")
    await round()
    expect(tickets.size).toBe(0)
    expect(await payments()).toMatchObject([{ id: bought?.id, status: "reversed", sweep_at: null }])
    await setState(1, "confirmed")
    await round()
    expect([...tickets.keys()]).toEqual([bought?.id])
    expect(await payments()).toMatchObject([{ id: bought?.id, status: "granted" }])
    const emitted = (await events()).filter((each: { event: string }) => each.event.startsWith("checkout.session."))
    expect(emitted).toMatchObject([
      { event: "checkout.session.completed", data: { sequence: 1 } },
      { event: "checkout.session.reversed", data: { id: bought?.id, status: "pending", sequence: 2 } },
      { event: "checkout.session.completed", data: { sequence: 3 } },
    ])
  })

  it("waits for the merchant where it is not paid in full: accepted it buys one, returned it buys none", async () => {
    await arrive(1, PRICE - 2n)
    await arrive(2, PRICE - 1n, stranger)
    await round()
    const [first, second] = await payments()
    expect([first, second]).toMatchObject([
      { status: "open", exception: "underpaid", payer: buyer },
      { status: "open", exception: "underpaid", payer: stranger },
    ])
    expect(tickets.size).toBe(0)
    await inTransaction(ctx, ctx => acceptPayment(ctx, merchantId, first?.id ?? "", clear))
    const to = { address: stranger, confirm: false }
    await inTransaction(ctx, ctx => returnPayment(ctx, merchantId, second?.id ?? "", to, clear))
    expect(await payments()).toMatchObject([{ status: "granted" }, { status: "returned", returned_to: stranger }])
    expect(tickets).toEqual(new Map([[first?.id, buyer]]))
    expect((await ctx.db.selectFrom("payouts").select(["kind", "payment_id"]).execute()).map(row => row.kind)).toEqual([
      "return",
    ])
  })

  it("keeps no other kind from its turn when settling it fails, is put off, and is tried again", async () => {
    await arrive(1, PRICE)
    const broken = { ...ticketSales, onPaid: () => Promise.reject(new Error("no printer")) }
    expect(await settleDue({ ...ctx, sells: [broken] }, paperNetwork)).toBe(1)
    expect([await payments(), await dueCount()]).toEqual([[], 1])
    expect(await settleDue({ ...ctx, sells: [broken] }, paperNetwork)).toBe(0)
    service.advance(6_000)
    await settleDue(
      { ...ctx, sells: [{ ...broken, due: async () => ({ groups: [], isMore: false }) }, ticketSales] },
      paperNetwork,
    )
    expect(tickets.size).toBe(1)
  })
})
