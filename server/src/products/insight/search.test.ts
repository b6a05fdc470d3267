// The search: each thing is found by what a merchant knows of it, and by nobody else.
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { lifeOf } from "../../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { sweepDue } from "../../ledger/payouts/make-payouts.ts"

let rig: PayoutRig
const ids: Record<string, string> = {}
let hash: string
let payer: string
beforeAll(async () => {
  rig = await startPayoutRig()
  await lifeOf(rig).begin()
  const make = async (path: string, body: object) =>
    (await rig.service.call("POST", `/api/console/${path}`, body, { as: "shop" })).body
  const shop = await rig.sell()
  ids.paywall = shop.id
  ids.payment = await rig.paid(shop, 712_345n)
  const order = { amount: "19.90", description: "Order 1001", customerEmail: "Ada@Shop.example" }
  ids.checkout = (
    await make("checkouts", { ...order, metadata: { order: 1001, plan: "Pro Yearly", gift: true, deep: { a: 1 } } })
  ).id
  ids.other = (await make("checkouts", { amount: "7", metadata: { order: 10010, note: "100% sure_thing" } })).id
  ids.link = (await make("payment-links", { slug: "donate-now", title: "Donate to us", amount: "5" })).id
  ids.product = (await make("products", { name: "Yearly report", price: "12" })).id
  rig.service.advance(86_400_001)
  await sweepDue(rig.service.ctx, rig.network)
  await rig.round()
  const payment = await rig.service.ctx.db.selectFrom("payments").selectAll().executeTakeFirstOrThrow()
  hash = payment.tx_hash
  payer = payment.payer
  await rig.service.merchant("rival")
})
afterAll(() => rig.stop())

async function find(q: string, as = "shop"): Promise<[string, string][]> {
  const { status, body } = await rig.service.call("GET", `/api/console/search?q=${encodeURIComponent(q)}`, undefined, {
    as,
  })
  expect(status, JSON.stringify(body)).toBe(200)
  for (const { id, title, url } of body.data) {
    expect(title).toMatch(/\S/)
    expect(url.endsWith(`/${id}`)).toBe(true)
  }
  return body.data.map(({ id, matched }: Record<string, string>) => [id, matched])
}
const payout = async () =>
  (await rig.service.call("GET", "/api/console/payouts", undefined, { as: "shop" })).body.data[0]

it("finds by an id", async () => {
  for (const name of ["payment", "checkout", "paywall", "link", "product"])
    expect(await find(ids[name] ?? "")).toEqual([[ids[name], "id"]])
  const { id } = await payout()
  expect(await find(id)).toEqual([[id, "id"]])
})

it("finds by a transaction: what it paid, and what it paid out", async () => {
  expect(await find(hash)).toEqual([[ids.payment, "txHash"]])
  expect(await find(hash.toUpperCase().replace("0X", "0x"))).toEqual([[ids.payment, "txHash"]])
  const { id, txHash } = await payout()
  expect(await find(txHash)).toEqual([[id, "txHash"]])
})

it("finds by an address: a payer's, a recipient's, and one that receives", async () => {
  expect(await find(payer)).toEqual([[ids.payment, "payer"]])
  const { id, recipient } = await payout()
  expect(await find(recipient)).toEqual([[id, "recipient"]])
  const { body } = await rig.service.call("GET", `/api/console/checkouts/${ids.checkout}`, undefined, { as: "shop" })
  expect(await find(body.payTo)).toEqual([[ids.checkout, "receiving address"]])
})

it("finds by an e-mail address, in any case", async () => {
  expect(await find("ada@shop.EXAMPLE")).toEqual([[ids.checkout, "customerEmail"]])
})

it("finds by a slug, and by the beginning of a name", async () => {
  expect(await find("donate-now")).toEqual([[ids.link, "slug"]])
  expect(await find("donate to")).toEqual([[ids.link, "title"]])
  expect(await find("yearly")).toEqual([[ids.product, "name"]])
  expect(await find("%")).toEqual([])
  expect(await find("_onate")).toEqual([])
})

it("finds by a value of metadata, and by key and value", async () => {
  expect(await find("1001")).toEqual([[ids.checkout, "metadata order"]])
  expect(await find("order:1001")).toEqual([[ids.checkout, "metadata order"]])
  expect(await find("order: 1001")).toEqual([[ids.checkout, "metadata order"]])
  expect(await find("pro yearly")).toEqual([[ids.checkout, "metadata plan"]])
  expect(await find("gift:true")).toEqual([[ids.checkout, "metadata gift"]])
  expect(await find("order:1002")).toEqual([])
  expect(await find("plan:1001")).toEqual([])
  expect(await find("100% sure_thing")).toEqual([[ids.other, "metadata note"]])
  expect(await find("100% sureXthing")).toEqual([])
})

it("finds by an amount, with or without its zeros", async () => {
  expect(await find("0.712345")).toEqual([[ids.payment, "amount"]])
  expect(await find("19.9")).toEqual([[ids.checkout, "amount"]])
  expect(await find("19.90 USDC")).toEqual([[ids.checkout, "amount"]])
  expect(await find("19.9000000001")).toEqual([])
  expect(await find("0,712345")).toEqual([[ids.payment, "amount"]])
  expect(await find("19,90")).toEqual([[ids.checkout, "amount"]])
  // It may be a thousand.
  expect(await find("7,000")).toEqual([])
  expect(await find("7.000")).toEqual([[ids.other, "amount"]])
  for (const q of ["0.00", "19.90.", "19,,90", "19.90,00", "-19.90", "1.99e1", "9".repeat(200)])
    expect(await find(q), q).toEqual([])
})

it("finds by an amount only what is in the settlement token", async () => {
  const { db } = rig.service.ctx
  const foreign = `pay_${"f".repeat(24)}`
  await db.transaction().execute(async tx => {
    await sql`set local session_replication_role = replica`.execute(tx)
    await sql`insert into payments select (jsonb_populate_record(p, ${JSON.stringify({ id: foreign, token: `0x${"71".repeat(20)}` })}::jsonb)).*
      from payments p where id = ${ids.payment}`.execute(tx)
  })
  expect(await find("0.712345")).toEqual([[ids.payment, "amount"]])
  await db.deleteFrom("payments").where("id", "=", foreign).execute()
})

it("finds the newest twenty of many with one amount", async () => {
  const { db } = rig.service.ctx
  await sql`insert into payments select (jsonb_populate_record(p, jsonb_build_object('id', 'pay_' || lpad(n::text, 24, '0'), 'amount', 3210000,
      'created_at', p.created_at + n * interval '1 second'))).*
    from payments p, generate_series(1, 25) n where id = ${ids.payment}`.execute(db)
  const found = await find("3.21")
  expect(found.map(([id]) => id)).toEqual(Array.from({ length: 20 }, (_, n) => `pay_${`${25 - n}`.padStart(24, "0")}`))
  await db.deleteFrom("payments").where("amount", "=", 3_210_000n).execute()
})

it("finds what metadata is, not what it was", async () => {
  const change = (metadata: object | null) =>
    rig.service.call("PUT", `/api/console/checkouts/${ids.other}`, { metadata }, { as: "shop" })
  await change({ order: 77 })
  expect(await find("order:10010")).toEqual([])
  expect(await find("order:77")).toEqual([[ids.other, "metadata order"]])
  await change(null)
  expect(await find("order:77")).toEqual([])
  const { rows } = await sql`select from checkout_terms where session_id = ${ids.other}`.execute(rig.service.ctx.db)
  expect(rows).toEqual([])
})

it("finds nothing of another merchant's, and refuses what it can't read", async () => {
  const { id } = await payout()
  for (const q of [
    ...Object.values(ids),
    id,
    hash,
    payer,
    "ada@shop.example",
    "donate-now",
    "yearly",
    "1001",
    "order:1001",
    "19.90",
  ])
    expect(await find(q, "rival"), q).toEqual([])
  for (const q of ["", "%20x", "x%20", "x".repeat(201)])
    expect((await rig.service.call("GET", `/api/console/search?q=${q}`, undefined, { as: "shop" })).status, q).toBe(400)
  for (const q of ["\\", "'", ":", "a:", ":b", "*", "toString_aaaaaaaaaaaaaaaaaaaaaaaa", "0x", "💶", "-1", "1e9"])
    expect(await find(q), q).toEqual([])
})
