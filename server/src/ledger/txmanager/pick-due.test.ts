// Whose calls the relay wallet carries out first when more are due than it signs at once.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type Escrows, escrowsOn } from "../../../test/escrow.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { reservesOn } from "../../../test/reserve.ts"
import { refundsOutOfTurn } from "../relays/check-refund-funds.ts"
import { relayLane } from "../relays/relay-lane.ts"
import { duePayouts } from "./pick-due.ts"

const PLACES = 16
const SECOND_MS = 1_000

let rig: PayoutRig
let on: Escrows
let reserves: ReturnType<typeof reservesOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  on = await escrowsOn(rig)
  reserves = reservesOn(rig, on.escrow)
})
afterAll(() => rig?.stop())
beforeEach(async () => {
  await on.begin()
  await on.round()
})

/** Makes a buyer's reservation that is due now; returns its checkout. */
async function waiting(as: string): Promise<string> {
  const id = await reserves.start({}, as)
  expect((await reserves.submit(id, await reserves.sign(await reserves.buyer(), id))).status).toBe(200)
  return id
}

interface Copies {
  kind: "capture" | "refund"
  count: number
  /** Whether each call is its payment's first. */
  first?: boolean
  agoS?: number
}

/** Adds calls of a checkout, due since `agoS` seconds and otherwise copies of its reservation. */
async function add(id: string, { kind, count, first = false, agoS = 0 }: Copies): Promise<void> {
  const { ctx } = rig.service
  const at = new Date(ctx.now().getTime() - agoS * SECOND_MS)
  await sql`insert into payouts select (jsonb_populate_record(i, jsonb_build_object('id', gen_random_uuid(), 'kind', ${kind}::text,
      'source_key', ${`${id}:${kind}:${agoS}:`}::text || n || ${first ? ":0" : ":1"}, 'run_at', ${at}::timestamptz, 'created_at', ${at}::timestamptz,
      'payer', null, 'auth_nonce', null, 'auth_digest', null))).*
    from payouts i, generate_series(1, ${count}::int) n where i.escrow_id = ${id} and i.kind = 'reserve'`.execute(
    ctx.db,
  )
}

/** Returns the calls that are considered next, each as its checkout and its kind. */
async function picked(limit = PLACES): Promise<string[]> {
  const { ctx } = rig.service
  const wallet = await ctx.db.selectFrom("wallets").selectAll().where("lane", "=", "relay").executeTakeFirstOrThrow()
  const due = await duePayouts(ctx, relayLane(rig.network, rig.relayer), wallet, { limit, room: PLACES })
  expect(due.length).toBeLessThanOrEqual(limit)
  return due.map(({ escrow_id: id, kind }) => `${id} ${kind}`)
}

const countOf = (due: string[], which: string) => due.filter(each => each === which).length

it("buyers go before further captures, of which each merchant has its turn, however many another has asked for before", async () => {
  const shop = await waiting("shop")
  await add(shop, { kind: "capture", count: 40, agoS: 10 })
  const rival = await waiting("rival")
  await add(rival, { kind: "capture", count: 2 })
  const due = await picked()
  expect(due).toHaveLength(PLACES)
  expect(due.slice(0, 2).sort()).toEqual([`${shop} reserve`, `${rival} reserve`].sort())
  expect(due.slice(2, 6).sort()).toEqual([shop, shop, rival, rival].map(id => `${id} capture`).sort())
  expect(countOf(due, `${shop} capture`)).toBe(12)
})

it("each merchant has its turn where what is due needs more transactions than the wallet has room for", async () => {
  const shop = await waiting("shop")
  await add(shop, { kind: "capture", count: 20, agoS: 10 })
  const rival = await waiting("rival")
  await add(rival, { kind: "capture", count: 2 })
  const due = await picked(64)
  expect(due).toHaveLength(24)
  expect(countOf(due.slice(0, PLACES), `${rival} capture`)).toBe(2)
})

it("a payment's first capture goes before further ones, and of many each merchant has one after the other", async () => {
  const shop = await waiting("shop")
  const rival = await waiting("rival")
  await add(shop, { kind: "capture", count: 20, agoS: 20 })
  await add(shop, { kind: "capture", count: 40, first: true, agoS: 10 })
  await add(rival, { kind: "capture", count: 40, first: true })
  const due = await picked()
  expect([countOf(due, `${shop} capture`), countOf(due, `${rival} capture`)]).toEqual([7, 7])
})

it("what has waited for a minute waits no longer, though buyers come and come", async () => {
  const shop = await waiting("shop")
  const rival = await waiting("rival")
  await add(rival, { kind: "capture", count: 40, first: true, agoS: 5 })
  await add(shop, { kind: "capture", count: 1, agoS: 59 })
  expect(countOf(await picked(), `${shop} capture`)).toBe(0)
  rig.service.advance(2 * SECOND_MS)
  expect(countOf(await picked(), `${shop} capture`)).toBe(1)
})

it("a refund waits for one that is signed out of the same wallet by the same collector, and for no other", async () => {
  const { ctx } = rig.service
  const signed = await waiting("shop")
  const other = await waiting("shop")
  for (const id of [signed, other]) await add(id, { kind: "refund", count: 1 })
  await sql`update payouts set state = 'assigned', nonce = 1000, wallet = (select address from wallets where lane = 'relay')
    where kind = 'refund' and escrow_id = ${signed}`.execute(ctx.db)
  const asked = await ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("kind", "=", "refund")
    .where("escrow_id", "=", other)
    .execute()
  expect(await refundsOutOfTurn(ctx, asked)).toEqual(new Set(asked.map(({ id }) => id)))
  await sql`update escrows set refund_collector = ${rig.token} where session_id = ${signed}`.execute(ctx.db)
  expect(await refundsOutOfTurn(ctx, asked)).toEqual(new Set())
})

it("of the refunds out of one wallet one has a place, and none while one is signed", async () => {
  const shop = await waiting("shop")
  const rival = await waiting("rival")
  await add(shop, { kind: "refund", count: 100, agoS: 100 })
  await add(rival, { kind: "capture", count: 3 })
  const due = await picked()
  expect([countOf(due, `${shop} refund`), due.length]).toEqual([1, 6])
  await sql`update payouts set state = 'assigned', nonce = 1000, wallet = (select address from wallets where lane = 'relay')
    where id = (select id from payouts where kind = 'refund' limit 1)`.execute(rig.service.ctx.db)
  expect(countOf(await picked(), `${shop} refund`)).toBe(0)
})
