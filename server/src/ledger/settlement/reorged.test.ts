/** What a reorg leaves of payments that the merchant or the service had begun to pay out, on a real chain. */
import { type Hex, parseUnits } from "viem"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type ExceptionsRig, startExceptionsRig } from "../../../test/exceptions.ts"
import { wrongParts } from "../../../test/parts.ts"
import { type Reorgs, reorgsOn } from "../../../test/reorgs.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"

/** Where returns go. */
const BACK = `0x${"d1".repeat(20)}`
const DAY_MS = 86_401_000

let rig: ExceptionsRig
let signed: Reorgs["signed"]
let send: Reorgs["send"]
let look: Reorgs["look"]
let afterReorg: Reorgs["afterReorg"]
let days: Reorgs["days"]
beforeAll(async () => {
  rig = await startExceptionsRig()
  ;({ signed, send, look, afterReorg, days } = reorgsOn(rig))
})
afterAll(() => rig?.stop())
afterEach(async () => expect(await wrongParts(rig.service.ctx)).toEqual([]))
let paidBefore: bigint
beforeEach(async () => {
  for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
  await rig.empty()
  paidBefore = await rig.balanceOf(PAYOUT_ADDRESS)
})

const units = (amount: string) => parseUnits(amount, 6)
const call = (path: string, body: object) => rig.service.call("POST", `/api/console/${path}`, body, { as: "shop" })

async function checkout(amount: number, more: object = {}) {
  const { body } = await call("checkouts", { amount, ...more })
  return { id: body.id as string, payTo: body.payTo as string }
}

const merchantGot = async () => (await rig.balanceOf(PAYOUT_ADDRESS)) - paidBefore
const findings = () => checkConsistency(rig.service.ctx, rig.network.chainId)
const onlyPayment = () => rig.service.ctx.db.selectFrom("payments").selectAll().executeTakeFirstOrThrow()

describe("a confirmed checkout that a reorg leaves with other money", () => {
  it("is swept with what it has: the sweep of before, not signed yet, is cancelled", async () => {
    const { client } = rig.anvil
    const { payTo } = await checkout(20)
    await look(2)
    const first = rig.buyer(0)
    const second = rig.buyer(1)
    const a = await signed(first, payTo, "12")
    const b = await signed(first, payTo, "8", 1)
    const other = await signed(second, payTo, "8")
    await send(a)
    const fork = await client.snapshot()
    await send(b, other)
    await look(2)
    await look()
    expect(await rig.service.ctx.db.selectFrom("payouts").select("state").execute()).toEqual([{ state: "queued" }])
    await client.revert({ id: fork })
    await client.mine({ blocks: 1 })
    await send(other)
    await afterReorg()
    await days()
    expect([await merchantGot(), await rig.balanceOf(payTo)]).toEqual([units("20"), 0n])
    expect(await findings()).toEqual([])
  })

  it("returns no surplus that it has no more: a return that is not signed yet is cancelled with its money", async () => {
    const { client } = rig.anvil
    const { id, payTo } = await checkout(5)
    await look(2)
    const buyer = rig.buyer(0)
    const a = await signed(buyer, payTo, "4")
    const b = await signed(buyer, payTo, "5", 1)
    const less = await signed(buyer, payTo, "1", 1)
    const before = await rig.balanceOf(BACK)
    await send(a)
    const fork = await client.snapshot()
    await send(b)
    await look(2)
    await look()
    expect((await call(`payments/${(await onlyPayment()).id}/return`, { address: BACK })).status).toBe(200)
    await client.revert({ id: fork })
    await client.mine({ blocks: 1 })
    await send(less)
    await afterReorg()
    await days()
    expect((await rig.service.call("GET", `/api/pay/status/${id}`)).body).toMatchObject({ status: "confirmed" })
    expect([await merchantGot(), (await rig.balanceOf(BACK)) - before, await rig.balanceOf(payTo)]).toEqual([
      units("5"),
      0n,
      0n,
    ])
    expect(await findings()).toEqual([])
  })

  it("is divided again where its shares are not signed yet", async () => {
    const { client } = rig.anvil
    const recipients = [70, 30].map((percent, i) => ({ address: `0x${`e${i}`.repeat(20)}`, percent }))
    const { body: split } = await call("splits", { name: "Band", recipients })
    const { payTo } = await checkout(5, { splitId: split.id })
    await look(2)
    const buyer = rig.buyer(0)
    const a = await signed(buyer, payTo, "4")
    const b = await signed(buyer, payTo, "10", 1)
    const less = await signed(buyer, payTo, "1.5", 1)
    await send(a)
    const fork = await client.snapshot()
    await send(b)
    await look(2)
    await look()
    expect((await call(`payments/${(await onlyPayment()).id}/accept`, {})).status).toBe(200)
    await client.revert({ id: fork })
    await client.mine({ blocks: 1 })
    await send(less)
    await afterReorg()
    await days()
    const got = await Promise.all(recipients.map(({ address }) => rig.balanceOf(address)))
    expect([...got, await rig.balanceOf(payTo)]).toEqual([units("3.85"), units("1.65"), 0n])
    expect(await findings()).toEqual([])
  })

  it("is divided by what it keeps where the return of its surplus is signed and the surplus came again as more", async () => {
    const { client } = rig.anvil
    const recipients = [70, 30].map((percent, i) => ({ address: `0x${`f${i}`.repeat(20)}`, percent }))
    const { body: split } = await call("splits", { name: "Band", recipients })
    const { payTo } = await checkout(5, { splitId: split.id })
    await look(2)
    const buyer = rig.buyer(0)
    const a = await signed(buyer, payTo, "4")
    const b = await signed(buyer, payTo, "5", 1)
    const more = await signed(buyer, payTo, "7", 1)
    const before = await rig.balanceOf(BACK)
    await send(a)
    const fork = await client.snapshot()
    await send(b)
    await look(2)
    await look()
    expect((await call(`payments/${(await onlyPayment()).id}/return`, { address: BACK })).status).toBe(200)
    await rig.payout()
    const attempts = await rig.service.ctx.db
      .selectFrom("transaction_attempts")
      .select("raw")
      .orderBy("nonce")
      .execute()
    expect(attempts).toHaveLength(3)
    await client.revert({ id: fork })
    await client.mine({ blocks: 1 })
    await send(more, ...attempts.flatMap(each => each.raw ?? []))
    await afterReorg()
    await days()
    const got = await Promise.all(recipients.map(({ address }) => rig.balanceOf(address)))
    expect([...got, (await rig.balanceOf(BACK)) - before, await rig.balanceOf(payTo)]).toEqual([
      units("4.9"),
      units("2.1"),
      units("4"),
      0n,
    ])
    expect(await findings()).toEqual([])
  })

  it("divides a late payer's money by itself while the other payer's waits for the merchant", async () => {
    const { client } = rig.anvil
    const recipients = [70, 30].map((percent, i) => ({ address: `0x${`b${i}`.repeat(20)}`, percent }))
    const { body: split } = await call("splits", { name: "Band", recipients })
    const { payTo } = await checkout(20, { splitId: split.id })
    await look(2)
    const first = rig.buyer(0)
    const second = rig.buyer(1)
    const b = await signed(second, payTo, "8")
    await send(await signed(first, payTo, "12"))
    const fork = await client.snapshot()
    await send(b)
    await look(2)
    await look()
    expect(await onlyPayment()).toMatchObject({ status: "granted", amount: units("20") })
    await client.revert({ id: fork })
    await client.mine({ blocks: 1 })
    await afterReorg()
    await rig.pass(3 * DAY_MS)
    for (let i = 0; i < 3; i++) await look(2)
    await send(b)
    for (let i = 0; i < 3; i++) await look(3)
    const late = await rig.service.ctx.db
      .selectFrom("payments")
      .select("id")
      .where("status", "=", "open")
      .where("amount", "=", units("8"))
      .executeTakeFirstOrThrow()
    expect((await call(`payments/${late.id}/accept`, {})).status).toBe(200)
    await days()
    const got = await Promise.all(recipients.map(({ address }) => rig.balanceOf(address)))
    expect([...got, await rig.balanceOf(payTo)]).toEqual([units("5.6"), units("2.4"), units("12")])
  })
})

describe("at a paywall", () => {
  async function paywall() {
    const { body } = await call("paywalls", { name: "Film", price: 5 })
    const { payTo } = (await rig.service.call("GET", `/api/paywalls/${body.id}`)).body
    const submit = (txHash: Hex, address: string) =>
      rig.service.call("POST", `/api/paywalls/${body.id}/pay`, { txHash, address })
    return { id: body.id as string, payTo: payTo as string, submit }
  }

  it("a surplus is withheld once, also where a payment that a reorg removed had one in the same transfer", async () => {
    const { client } = rig.anvil
    const { payTo, submit } = await paywall()
    const buyer = rig.buyer(0)
    await look(2)
    const base = await client.snapshot()
    const a = await signed(buyer, payTo, "4")
    const b = await signed(buyer, payTo, "3", 1)
    for (const raw of [a, b]) await submit(await send(raw), buyer.address)
    await look(3)
    await look()
    await client.revert({ id: base })
    const again = await client.snapshot()
    await send(a)
    await afterReorg(6, 1)
    await client.revert({ id: again })
    // No shorter than the chain before, or its finalized block would go back.
    await afterReorg(8, 1)
    await send(a, b)
    await look(3)
    await look()
    await look(12)
    await days()
    expect([await merchantGot(), await rig.balanceOf(payTo)]).toEqual([units("5"), units("2")])
    expect(await findings()).toEqual([])
  })

  it("a payment that the merchant was notified of stays in the list when a reorg removes all of it", async () => {
    const { client } = rig.anvil
    const url = `${await rig.service.listen()}/sandbox`
    await rig.service.ctx.db
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
    const { payTo, submit } = await paywall()
    const buyer = rig.buyer(0)
    await look(2)
    const base = await client.snapshot()
    await submit(await send(await signed(buyer, payTo, "3")), buyer.address)
    await look(3)
    await look()
    const [notice] = await rig.notified("payment.exception")
    expect(notice).toMatchObject({ exception: "underpaid", amount: "3.00" })
    await client.revert({ id: base })
    await afterReorg(9)
    expect(await onlyPayment()).toMatchObject({ id: notice?.paymentId, status: "reversed" })
    expect((await call(`payments/${notice?.paymentId}/accept`, {})).status).toBe(409)
    expect(await findings()).toEqual([])
  })
})

describe("a returned payment of a checkout", () => {
  it("is due no more when a reorg only moved it to another block", async () => {
    const { client } = rig.anvil
    const { ctx } = rig.service
    const { payTo } = await checkout(5)
    const buyer = rig.buyer(0)
    await look(2)
    const base = await client.snapshot()
    const raw = await signed(buyer, payTo, "3")
    await send(raw)
    await look(3)
    await look()
    expect((await call(`payments/${(await onlyPayment()).id}/return`, { address: BACK })).status).toBe(200)
    await rig.payout()
    const attempts = await ctx.db.selectFrom("transaction_attempts").select("raw").execute()
    await client.revert({ id: base })
    await client.mine({ blocks: 1 })
    await send(raw, ...attempts.flatMap(each => each.raw ?? []))
    await afterReorg(8)
    await rig.payOut()
    await look(12)
    // The screening of its sender is an hour old by now.
    await rig.pass(2 * 3_600_000)
    await look()
    await look()
    expect(await ctx.db.selectFrom("transfers").select("run_at").execute()).toEqual([{ run_at: null }])
    expect(await onlyPayment()).toMatchObject({ status: "returned" })
  })
})
