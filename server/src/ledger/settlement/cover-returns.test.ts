/**
 * What becomes of a return that was signed when a reorg takes its payment, or brings more: nothing goes back twice, nothing
 * buys what went back, and what is left waits for the merchant. On a real chain.
 */
import { type Hex, parseUnits } from "viem"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type ExceptionsRig, startExceptionsRig } from "../../../test/exceptions.ts"
import { wrongParts } from "../../../test/parts.ts"
import { type Reorgs, reorgsOn } from "../../../test/reorgs.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"

/** Where returns go. */
const BACK = `0x${"d2".repeat(20)}`
const ELSEWHERE = `0x${"d3".repeat(20)}`

let rig: ExceptionsRig
let reorgs: Reorgs
let url: string
beforeAll(async () => {
  rig = await startExceptionsRig()
  reorgs = reorgsOn(rig)
  url = `${await rig.service.listen()}/sandbox`
})
afterAll(() => rig?.stop())
afterEach(async () => expect(await wrongParts(rig.service.ctx)).toEqual([]))
let before: bigint[]
beforeEach(async () => {
  for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
  await rig.empty()
  await db()
    .insertInto("webhooks")
    .values({
      id: `c${"w".repeat(24)}`,
      merchant_id: await rig.service.merchant("shop"),
      url,
      active: true,
      events: JSON.stringify(["payment.exception"]),
      created_at: new Date(),
      updated_at: new Date(),
    })
    .execute()
  before = await balances()
})

const db = () => rig.service.ctx.db
const units = (amount: string) => parseUnits(amount, 6)
const as = { as: "shop" }
const call = (path: string, body: object) => rig.service.call("POST", `/api/console/${path}`, body, as)
const balances = () => Promise.all([PAYOUT_ADDRESS, BACK, ELSEWHERE].map(address => rig.balanceOf(address)))
/** What the merchant and the two addresses of returns have got. */
const got = async () => (await balances()).map((balance, i) => balance - (before[i] ?? 0n))
const findings = () => checkConsistency(rig.service.ctx, rig.network.chainId)
const payments = () => db().selectFrom("payments").selectAll().orderBy("created_at").execute()
/** Every payment, as the merchant decides about it. */
const states = async () => (await payments()).map(row => [row.status, row.exception, row.amount])
const only = async () => {
  const [payment] = await payments()
  return payment?.id ?? ""
}
const giveBack = (id: string, address = BACK) => call(`payments/${id}/return`, { address })

async function paywall(more: object = {}) {
  const { body } = await call("paywalls", { name: "Film", price: 5, ...more })
  const { payTo } = (await rig.service.call("GET", `/api/paywalls/${body.id}`)).body
  const submit = (txHash: Hex) =>
    rig.service.call("POST", `/api/paywalls/${body.id}/pay`, { txHash, address: rig.buyer(0).address })
  const hasAccess = async () =>
    (await rig.service.call("GET", `/api/paywalls/${body.id}/verify?address=${rig.buyer(0).address}`)).body.hasAccess
  return { id: body.id as string, payTo: payTo as string, submit, hasAccess }
}

/** Every signed transaction of the payout wallet, in the order of its nonces. */
const bytes = async () =>
  (await db().selectFrom("transaction_attempts").select("raw").orderBy("nonce").execute()).flatMap(
    ({ raw }) => raw ?? [],
  )

/** A payment of 3 whose return is signed and mined; then the chain goes back to before the payment. */
async function takenBack(shop: Awaited<ReturnType<typeof paywall>>) {
  const { client } = rig.anvil
  await reorgs.look(2)
  const fork = await client.snapshot()
  await shop.submit(await reorgs.send(await reorgs.signed(rig.buyer(0), shop.payTo, "3")))
  await reorgs.look(3)
  await reorgs.look()
  expect(await states()).toEqual([["open", "underpaid", units("3")]])
  expect((await giveBack(await only())).status).toBe(200)
  await rig.payout()
  await client.revert({ id: fork })
  await client.mine({ blocks: 1 })
  return { returned: await bytes() }
}

describe("a signed return whose payment a reorg took", () => {
  it("is of what its payer sends next: that buys nothing, and the rest of it waits for the merchant", async () => {
    const shop = await paywall()
    const { returned } = await takenBack(shop)
    await shop.submit(await reorgs.send(await reorgs.signed(rig.buyer(0), shop.payTo, "5")))
    await reorgs.send(...returned)
    await reorgs.afterReorg()
    expect([await states(), await shop.hasAccess()]).toEqual([[["returned", "underpaid", units("3")]], false])
    await reorgs.days()
    expect(await states()).toEqual([["open", "underpaid", units("2")]])
    expect((await rig.notified("payment.exception")).map(each => [each.paymentId, each.amount])).toEqual([
      [await only(), "3.00"],
      [await only(), "2.00"],
    ])
    const { body } = await rig.service.call("GET", "/api/console/payments?status=open", undefined, as)
    expect(body.data).toMatchObject([{ id: await only(), amount: "2.00", status: "open", exception: "underpaid" }])
    expect((await call(`payments/${await only()}/accept`, {})).status).toBe(200)
    await reorgs.days()
    expect([await got(), await rig.balanceOf(shop.payTo)]).toEqual([[units("2"), units("3"), 0n], 0n])
    expect([await states(), await shop.hasAccess()]).toEqual([[["granted", "underpaid", units("2")]], true])
    expect(await findings()).toEqual([])
  })

  it("leaves a rest that can be returned too, once", async () => {
    const shop = await paywall()
    const { returned } = await takenBack(shop)
    await reorgs.send(await reorgs.signed(rig.buyer(0), shop.payTo, "5"), ...returned)
    await reorgs.afterReorg()
    await reorgs.days()
    expect((await giveBack(await only(), ELSEWHERE)).status).toBe(200)
    expect((await giveBack(await only(), ELSEWHERE)).status).toBe(409)
    await reorgs.days()
    expect([await got(), await rig.balanceOf(shop.payTo)]).toEqual([[0n, units("3"), units("2")], 0n])
    expect(await states()).toEqual([["returned", "underpaid", units("2")]])
    expect(await findings()).toEqual([])
  })

  it("leaves a rest that is divided among the recipients of the address", async () => {
    const recipients = [70, 30].map((percent, i) => ({ address: `0x${`a${i}`.repeat(20)}`, percent }))
    const { body: split } = await call("splits", { name: "Band", recipients })
    const shop = await paywall({ splitId: split.id })
    const { returned } = await takenBack(shop)
    await reorgs.send(await reorgs.signed(rig.buyer(0), shop.payTo, "5"), ...returned)
    await reorgs.afterReorg()
    await reorgs.days()
    expect((await call(`payments/${await only()}/accept`, {})).status).toBe(200)
    await reorgs.days()
    const shares = await Promise.all(recipients.map(({ address }) => rig.balanceOf(address)))
    expect([shares, await rig.balanceOf(shop.payTo)]).toEqual([[units("1.4"), units("0.6")], 0n])
    expect(await findings()).toEqual([])
  })

  it("and that fails because it came first leaves all of the next payment, which buys what it is for", async () => {
    const shop = await paywall()
    const { returned } = await takenBack(shop)
    await reorgs.send(...returned)
    await shop.submit(await reorgs.send(await reorgs.signed(rig.buyer(0), shop.payTo, "5")))
    await reorgs.afterReorg()
    await reorgs.days()
    expect([await states(), await shop.hasAccess()]).toEqual([[["granted", null, units("5")]], true])
    expect([await got(), await rig.balanceOf(shop.payTo)]).toEqual([[units("5"), 0n, 0n], 0n])
    expect(await findings()).toEqual([])
  })
})
