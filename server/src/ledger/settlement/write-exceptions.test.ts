// Under-, over-, late, duplicate and wrong-token money at checkouts and paywalls: listed, accepted, returned, on a chain.

import { randomBytes } from "node:crypto"
import { sql } from "kysely"
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { deployContractWallet } from "../../../test/anvil.ts"
import { type ExceptionsRig, startExceptionsRig } from "../../../test/exceptions.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { BASE_URL, signMessage } from "../../../test/wallet.ts"
import { cancel } from "../../operations/operator/retry-payouts.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import type { Row } from "../../platform/db/schema.ts"

const HOUR = 3_600_000
let rig: ExceptionsRig
let key: string

beforeAll(async () => {
  rig = await startExceptionsRig()
})
afterAll(() => rig?.stop())
beforeEach(async () => {
  await rig.empty()
  key = (await rig.service.call("POST", "/api/console/api-keys", { name: "Server" }, { as: "shop" })).body.key
})

const as = { as: "shop" }
const db = () => rig.service.ctx.db
const fresh = () => checksummed(`0x${randomBytes(20).toString("hex")}` as Address)
const post = (path: string, body: object | undefined, options: object = as) =>
  rig.service.call("POST", path, body, options)
const accept = (id: string, options?: object) => post(`/api/console/payments/${id}/accept`, {}, options)
const giveBack = (id: string, body: object, options?: object) =>
  post(`/api/console/payments/${id}/return`, body, options)
const waiting = async (query = "") =>
  (await rig.service.call("GET", `/api/console/payments?${query}`, undefined, as)).body.data
const one = async (query?: string) => {
  const all = await waiting(query)
  expect(all.length).toBe(1)
  return all[0]
}
const payouts = () => db().selectFrom("payouts").selectAll().orderBy("created_at").orderBy("source_key").execute()
const completed = () => rig.notified("checkout.session.completed")

/** Two recipients that nobody else has, for 70 and 30 percent. */
async function split() {
  const first = fresh()
  const second = fresh()
  const recipients = [
    { address: first, percent: 70 },
    { address: second, percent: 30 },
  ]
  const { id } = (await post("/api/console/splits", { name: "s", recipients })).body
  return { splitId: id as string, first, second }
}

async function checkout(body: object = {}) {
  const options = { headers: { "x-api-key": key } }
  const { body: session } = await post("/api/checkouts", { amount: 5, ...body }, options)
  return session as { id: string; payTo: string }
}
const statusOf = async (id: string) => (await rig.service.call("GET", `/api/pay/status/${id}`)).body

async function paywall(body: object = {}) {
  const { body: made } = await post("/api/console/paywalls", { name: "a", price: 5, ...body })
  const { body: shown } = await rig.service.call("GET", `/api/paywalls/${made.id}`)
  return { id: made.id as string, payTo: shown.payTo as string }
}
const submit = (id: string, txHash: string, from = 0) =>
  rig.service.call("POST", `/api/paywalls/${id}/pay`, { txHash, address: rig.buyer(from).address })
const paymentState = async (id: string, txHash: string, from = 0) =>
  (await rig.service.call("GET", `/api/paywalls/${id}/payments/${txHash}?address=${rig.buyer(from).address}`)).body
const hasAccess = async (id: string, from = 0) =>
  (await rig.service.call("GET", `/api/paywalls/${id}/verify?address=${rig.buyer(from).address}`)).body.hasAccess

/** Names a return address with the signature of a wallet. */
async function name(id: string, address: string, signer = rig.buyer(0), fields: object = {}) {
  const { body } = await post("/api/pay/return-address/nonce", { id, address }, {})
  const good = { uri: `${BASE_URL}/api/pay/return-address`, resources: [body.resource] }
  return await post(
    "/api/pay/return-address",
    { id, address, ...(await signMessage(signer, body.nonce, { ...good, ...fields })) },
    {},
  )
}

/** All deposits hold on chain what is left according to their books. */
async function booksHold(): Promise<void> {
  const books = await db()
    .selectFrom("deposit_books")
    .innerJoin("deposits", "deposits.id", "deposit_books.deposit_id")
    .select(["address", "token", "inflow", "committed", "shortfall"])
    .execute()
  for (const { address, token, inflow, committed, shortfall } of books)
    expect([await rig.balanceOf(address, token), shortfall]).toEqual([inflow - committed, 0n])
}

describe("at a checkout", () => {
  it("too little is accepted: it is confirmed and notified once, and shares are of what was received", async () => {
    const { splitId, first, second } = await split()
    const session = await checkout({ splitId, expiresIn: 300 })
    const txHash = await rig.pay(session.payTo, "3")
    await rig.rounds()
    expect(await one("exception=underpaid&status=open")).toMatchObject({
      type: "payment",
      status: "open",
      amount: "3.00",
      currency: "USDC",
      decimals: 6,
      payer: rig.buyer(0).address,
      sessionId: session.id,
      txHash,
      acceptedAt: null,
      return: null,
      buys: true,
      acceptable: true,
      returnAddress: null,
    })
    const { id } = await one()
    const answer = await accept(id)
    expect(answer).toMatchObject({ status: 200, body: { id, status: "granted", exception: "underpaid" } })
    expect(answer.body.acceptedAt).not.toBeNull()
    expect(await statusOf(session.id)).toMatchObject({
      status: "confirmed",
      exception: "underpaid",
      amountReceived: "3.00",
      txHash,
      message: "The payment is confirmed.",
    })
    await rig.payOut()
    expect([await rig.balanceOf(first), await rig.balanceOf(second)]).toEqual([2_100_000n, 900_000n])
    expect(await rig.balanceOf(session.payTo)).toBe(0n)
    await rig.pass(HOUR)
    await rig.rounds(3)
    expect((await statusOf(session.id)).status).toBe("confirmed")
    for (const again of [await accept(id), await giveBack(id, { address: fresh() })])
      expect(again).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    const { notifyDuePayments } = await import("./notify-paid.ts")
    await notifyDuePayments(rig.service.ctx)
    expect(await completed()).toMatchObject([{ id: session.id, exception: "underpaid", amountReceived: "3.00" }])
    const { address: payer } = rig.buyer(0)
    expect(await rig.notified("payment.exception")).toEqual([
      {
        paymentId: id,
        merchantId: await rig.service.merchant("shop"),
        sessionId: session.id,
        paywallId: null,
        bundleId: null,
        exception: "underpaid",
        payer,
        amount: "3.00",
        currency: "USDC",
        currencyVerified: true,
        decimals: 6,
        txHash,
        token: checksummed(rig.network.token.address),
        chain: rig.network.name,
        chainId: rig.network.chainId,
        updatedAt: expect.any(String),
      },
    ])
    await booksHold()
  })

  it("late money goes back to the address that its payer named by signature, once", async () => {
    const session = await checkout({ expiresIn: 300 })
    await rig.rounds(1)
    await rig.pass(HOUR / 2)
    await rig.pay(session.payTo, "5")
    await rig.rounds(3)
    const { id, exception } = await one()
    expect(exception).toBe("late")
    expect(await giveBack(id, {})).toMatchObject({
      status: 400,
      body: { error: "VALIDATION_ERROR", details: [{ path: "address" }] },
    })
    const wanted = fresh()
    const elsewhere = fresh()
    expect(await name(session.id, wanted)).toMatchObject({
      status: 200,
      body: { id: session.id, payer: rig.buyer(0).address, address: wanted },
    })
    expect((await one()).returnAddress).toBe(wanted)
    expect(await giveBack(id, { address: elsewhere })).toMatchObject({
      status: 409,
      body: { error: "INVALID_OPERATION" },
    })
    // With the wallet lock on, a console token alone can only return it to the address that the payer signed for.
    await db().updateTable("merchants").set({ wallet_lock: true }).execute()
    expect(await giveBack(id, { address: elsewhere, confirm: true })).toMatchObject({
      status: 403,
      body: { error: "WALLET_SIGNATURE_REQUIRED", details: [{ typedData: { message: { subject: id } } }] },
    })
    const answer = await giveBack(id, {})
    expect(answer).toMatchObject({
      status: 200,
      body: { status: "returned", return: { address: wanted, state: "queued", txHash: null } },
    })
    expect((await statusOf(session.id)).message).toContain("sent back")
    await rig.payOut()
    expect(await rig.balanceOf(wanted)).toBe(5_000_000n)
    const [payout] = await payouts()
    expect(payout).toMatchObject({ kind: "return", source_key: `payment:${id}:return:0`, state: "final" })
    expect((await one()).return).toEqual({ address: wanted, state: "final", txHash: payout?.tx_hash, reason: null })
    const { body } = await rig.service.call("GET", "/api/console/transactions?type=return", undefined, as)
    expect(body.data).toMatchObject([
      { type: "return", status: "final", recipient: wanted, paymentId: id, amount: "5.00" },
    ])
    await rig.rounds(3)
    await rig.payOut()
    for (const again of [await accept(id), await giveBack(id, { address: wanted })]) {
      expect(again).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
      expect(again.body.message).toContain("returned")
    }
    expect((await payouts()).length).toBe(1)
    expect(await rig.balanceOf(wanted)).toBe(5_000_000n)
    await booksHold()
  })

  it("a duplicate is accepted beside the payment: notified once, swept with it; or goes back", async () => {
    const kept = await checkout()
    const sent = await checkout()
    for (const session of [kept, sent]) for (const _ of [1, 2]) await rig.pay(session.payTo, "5")
    await rig.rounds(3)
    const open = await waiting("status=open")
    expect(open).toMatchObject([
      { exception: "duplicate", buys: false },
      { exception: "duplicate", buys: false },
    ])
    const of = (session: { id: string }) =>
      open.find((row: { sessionId: string }) => row.sessionId === session.id).id as string
    expect((await accept(of(kept))).body).toMatchObject({ status: "granted", exception: "duplicate" })
    expect(await statusOf(kept.id)).toMatchObject({ status: "confirmed", exception: null, amountReceived: "10.00" })
    const to = fresh()
    expect((await giveBack(of(sent), { address: to })).status).toBe(200)
    expect(await statusOf(sent.id)).toMatchObject({ status: "confirmed", exception: null, amountReceived: "5.00" })
    expect((await completed()).length).toBe(2)
    const { sweepDue } = await import("../payouts/make-payouts.ts")
    const before = await rig.balanceOf(PAYOUT_ADDRESS)
    await rig.pass(25 * HOUR)
    await sweepDue(rig.service.ctx, rig.network)
    await rig.payOut()
    expect((await rig.balanceOf(PAYOUT_ADDRESS)) - before).toBe(15_000_000n)
    expect(await rig.balanceOf(to)).toBe(5_000_000n)
    await rig.rounds(2)
    expect(await statusOf(kept.id)).toMatchObject({ status: "confirmed", amountReceived: "10.00" })
    await booksHold()
  })

  it("a duplicate is found by its balance though the first was swept long ago", async () => {
    const session = await checkout()
    await rig.pay(session.payTo, "5")
    await rig.rounds(2)
    await rig.pass(25 * HOUR)
    const { sweepDue } = await import("../payouts/make-payouts.ts")
    await sweepDue(rig.service.ctx, rig.network)
    await rig.payOut()
    const { checkDormantDeposits, makeDepositsDormant } = await import("../scanner/check-dormant-deposits.ts")
    await makeDepositsDormant(rig.service.ctx, rig.network)
    await rig.pay(session.payTo, "5")
    await rig.pass(25 * HOUR)
    await rig.rounds(1)
    expect(await waiting()).toEqual([])
    await checkDormantDeposits(rig.service.ctx, rig.network)
    await rig.rounds(3)
    expect(await one()).toMatchObject({ status: "open", exception: "duplicate", amount: "5.00" })
  })

  it("several senders' money waits apart: a return reaches one of them; what is left over goes back too", async () => {
    const session = await checkout()
    await rig.pay(session.payTo, "1", 0)
    await rig.pay(session.payTo, "2", 1)
    await rig.rounds(2)
    const apart = await waiting()
    expect(apart.map((row: { amount: string }) => row.amount).sort()).toEqual(["1.00", "2.00"])
    const [mine, theirs] = [0, 1].map(i => apart.find((row: { payer: string }) => row.payer === rig.buyer(i).address))
    const to = fresh()
    expect((await giveBack(theirs.id, { address: to })).status).toBe(200)
    expect(await statusOf(session.id)).toMatchObject({ status: "verifying", amountReceived: "1.00" })
    // The first transfer still counts.
    await rig.pay(session.payTo, "4", 0)
    await rig.pay(session.payTo, "0.5", 1)
    await rig.rounds(2)
    expect(await statusOf(session.id)).toMatchObject({ status: "confirmed", exception: "overpaid" })
    const main = await db().selectFrom("payments").selectAll().where("id", "=", mine.id).executeTakeFirstOrThrow()
    expect(main).toMatchObject({ status: "granted", amount: 5_000_000n, exception: null })
    const rest = await one("status=open")
    expect(rest).toMatchObject({ exception: "overpaid", amount: "0.50", payer: rig.buyer(1).address })
    expect((await giveBack(rest.id, { address: to })).status).toBe(200)
    await rig.payOut()
    expect(await rig.balanceOf(to)).toBe(2_500_000n)
    await booksHold()
  })

  it("another token is shown in its own decimals; it is accepted in shares of its own, or goes back", async () => {
    const { splitId, first, second } = await split()
    const kept = await checkout({ splitId })
    const sent = await checkout()
    for (const session of [kept, sent]) {
      const txHash = await rig.pay(session.payTo, "7", 0, rig.other)
      await post("/api/pay/confirm", { sessionId: session.id, txHash }, {})
    }
    await rig.rounds(2)
    const open = await waiting("exception=wrong_asset")
    expect(open.length).toBe(2)
    expect(open[0]).toMatchObject({ amount: "7.00", currency: "OTH", decimals: 6, token: checksummed(rig.other) })
    const other = { exception: "wrong_asset", amount: "7.00", currency: "OTH", currencyVerified: false }
    expect(await rig.notified("payment.exception")).toMatchObject([other, other])
    const of = (session: { id: string }) =>
      open.find((row: { sessionId: string }) => row.sessionId === session.id).id as string
    expect((await accept(of(kept))).body).toMatchObject({ status: "granted", exception: "wrong_asset" })
    expect(await statusOf(kept.id)).toMatchObject({
      status: "confirmed",
      exception: "wrong_asset",
      amountReceived: "0.00",
    })
    const to = fresh()
    expect(await giveBack(of(sent), { address: rig.other })).toMatchObject({ status: 400 })
    expect((await giveBack(of(sent), { address: to })).status).toBe(200)
    await rig.payOut()
    const got = [first, second, to].map(address => rig.balanceOf(address, rig.other))
    expect(await Promise.all(got)).toEqual([4_900_000n, 2_100_000n, 7_000_000n])
    expect((await payouts()).map(row => row.state)).toEqual(["final", "final", "final"])
    await rig.rounds(3)
    expect((await statusOf(kept.id)).status).toBe("confirmed")
    const { status } = await db().selectFrom("wallets").select("status").executeTakeFirstOrThrow()
    expect(status).toBe("active")
    await booksHold()
  })

  it("a sender on a sanctions list: in sight, and neither way out is open", async () => {
    const session = await checkout()
    await rig.sanction(rig.buyer(5).address, true)
    await rig.pay(session.payTo, "5", 5)
    await rig.rounds(3)
    const { id } = await one("exception=sanctioned")
    expect(await one()).toMatchObject({ status: "open", amount: "5.00", payer: rig.buyer(5).address })
    for (const answer of [await accept(id), await giveBack(id, { address: fresh() })])
      expect(answer).toMatchObject({ status: 403, body: { error: "SANCTIONS_MATCH" } })
    expect(await name(session.id, fresh(), rig.buyer(5))).toMatchObject({ status: 403 })
    await rig.sanction(rig.buyer(5).address, false)
    await rig.pay(session.payTo, "1", 1)
    const bad = fresh()
    await rig.sanction(bad, true)
    await rig.rounds(2)
    const other = (await waiting("status=open")).find((row: { amount: string }) => row.amount === "1.00")
    expect(await giveBack(other.id, { address: bad })).toMatchObject({ status: 403 })
    expect(await payouts()).toEqual([])
  })

  it("whose link was used up by others: accepted it is confirmed anyway", async () => {
    await post("/api/console/payment-links", { title: "Sale", slug: "sale", amount: 5, maxUses: 1 })
    const start = async () => (await post("/api/pay/sessions", { slug: "sale" }, {})).body
    const first = await start()
    const second = await start()
    await rig.pay(first.payTo, "5")
    await rig.rounds(2)
    await rig.pay(second.payTo, "5", 1)
    await rig.rounds(2)
    expect(await statusOf(second.sessionId)).toMatchObject({ status: "failed", exception: "duplicate" })
    const { id, buys } = await one("status=open")
    expect(buys).toBe(true)
    expect((await accept(id)).status).toBe(200)
    expect((await statusOf(second.sessionId)).status).toBe("confirmed")
    expect((await db().selectFrom("payment_links").select("uses").executeTakeFirstOrThrow()).uses).toBe(1)
    expect((await completed()).map(data => data.id)).toEqual([first.sessionId, second.sessionId])
  })

  it("whose link was used up, past its expiry, is not looked at for ever", async () => {
    await post("/api/console/payment-links", { title: "Sale", slug: "sale", amount: 5, maxUses: 1 })
    const start = async () => (await post("/api/pay/sessions", { slug: "sale" }, {})).body
    const first = await start()
    const second = await start()
    await rig.pay(first.payTo, "5")
    await rig.rounds(2)
    await rig.pay(second.payTo, "5", 1)
    await rig.rounds(2)
    const runAt = async () =>
      (
        await db()
          .selectFrom("checkout_sessions")
          .select(["run_at", "status"])
          .where("id", "=", second.sessionId)
          .executeTakeFirstOrThrow()
      ).run_at
    expect(await runAt()).not.toBeNull()
    await rig.pass(25 * HOUR)
    for (let i = 0; i < 3; i++) {
      await rig.rounds(2)
      await rig.pass(31_000)
    }
    expect((await statusOf(second.sessionId)).status).toBe("failed")
    expect(await runAt()).toBeNull()
  })
})

describe("at a paywall", () => {
  it("too little is in sight at once, and becomes the payment that it reaches, under its id", async () => {
    const shop = await paywall()
    await submit(shop.id, await rig.pay(shop.payTo, "3"))
    await rig.rounds(2)
    const { id } = await one("exception=underpaid")
    const txHash = await rig.pay(shop.payTo, "1.99")
    await submit(shop.id, txHash)
    await rig.rounds(2)
    expect(await rig.notified("payment.exception")).toMatchObject([
      { paymentId: id, exception: "underpaid", amount: "3.00" },
      { paymentId: id, exception: "underpaid", amount: "4.99" },
    ])
    expect(await one()).toMatchObject({ status: "open", amount: "4.99", paywallId: shop.id })
    expect(await paymentState(shop.id, txHash)).toMatchObject({ status: "failed", reason: "underpaid" })
    await submit(shop.id, await rig.pay(shop.payTo, "0.01"))
    await rig.rounds(2)
    expect(await hasAccess(shop.id)).toBe(true)
    expect(await waiting()).toEqual([])
    expect(await db().selectFrom("payments").select(["id", "status", "amount"]).execute()).toEqual([
      { id, status: "granted", amount: 5_000_000n },
    ])
  })

  it("what is minted has no buyer: each transaction waits alone, and gives nobody access when it is accepted", async () => {
    const { client } = rig.anvil
    const shop = await paywall()
    const mint = async () => {
      const args = [shop.payTo as Address, 5_000_000n] as const
      const call = { address: rig.network.token.address, abi: testUsdcAbi, functionName: "mint", args } as const
      return (await client.writeContractSync(call)).transactionHash
    }
    // A bridge brings the money of two people.
    const txHash = await mint()
    const other = await mint()
    await submit(shop.id, txHash)
    await rig.rounds(3)
    const failed = await paymentState(shop.id, txHash)
    expect(failed).toMatchObject({ status: "failed", reason: "wrong_sender" })
    expect(failed.message).toContain("The merchant can accept or return it")
    const found = await waiting("exception=no_buyer")
    expect(found).toMatchObject([
      { amount: "5.00", status: "open", txHash: other, buys: false },
      { amount: "5.00", status: "open", txHash, buys: false },
    ])
    const [second, first] = found
    const to = fresh()
    expect((await giveBack(first.id, { address: to })).status).toBe(200)
    expect((await accept(second.id)).body).toMatchObject({ status: "granted", exception: "no_buyer" })
    await rig.payOut()
    expect(await rig.balanceOf(to)).toBe(5_000_000n)
    expect(await db().selectFrom("grants").select("address").execute()).toEqual([])
    // No receiving address is a sender: nothing that comes in goes back to one.
    const { payTo } = await paywall()
    await submit(shop.id, await rig.pay(shop.payTo, "4"))
    await rig.rounds(2)
    const { id } = await one("exception=underpaid")
    expect((await giveBack(id, { address: payTo })).status).toBe(400)
    await booksHold()
  })

  it("too little is accepted: it grants its sender, and shares are of what was received", async () => {
    const { splitId, first, second } = await split()
    const shop = await paywall({ splitId, accessDuration: 600 })
    const txHash = await rig.pay(shop.payTo, "1")
    await rig.rounds(1)
    expect(await paymentState(shop.id, txHash)).toMatchObject({ status: "verifying" })
    // Nobody submits it.
    await rig.pass(11 * 60_000)
    await rig.rounds(2)
    expect(await paymentState(shop.id, txHash)).toMatchObject({ status: "failed", reason: "underpaid" })
    const { id } = await one()
    expect((await accept(id)).body).toMatchObject({ status: "granted", exception: "underpaid" })
    expect(await hasAccess(shop.id)).toBe(true)
    expect(await hasAccess(shop.id, 1)).toBe(false)
    expect(await paymentState(shop.id, txHash)).toMatchObject({ status: "granted" })
    // More money from the same sender is another payment.
    await submit(shop.id, await rig.pay(shop.payTo, "4"))
    await rig.rounds(2)
    expect(await one("status=open")).toMatchObject({ exception: "underpaid", amount: "4.00" })
    await rig.payOut()
    expect([await rig.balanceOf(first), await rig.balanceOf(second)]).toEqual([700_000n, 300_000n])
    await rig.pass(HOUR)
    expect(await hasAccess(shop.id)).toBe(false)
    await booksHold()
  })

  it("money after it was switched off is late, and goes back; the payer can read so", async () => {
    const shop = await paywall()
    await rig.rounds(1)
    await rig.service.call("PUT", `/api/console/paywalls/${shop.id}`, { active: false }, as)
    await rig.pass(2 * HOUR)
    const txHash = await rig.pay(shop.payTo, "5")
    await submit(shop.id, txHash)
    await rig.rounds(2)
    const { id } = await one("exception=late")
    expect(await paymentState(shop.id, txHash)).toMatchObject({ status: "failed", reason: "late" })
    const to = fresh()
    expect((await giveBack(id, { address: to })).status).toBe(200)
    expect((await paymentState(shop.id, txHash)).message).toContain("sent it back")
    // Submitted again, it is still explained.
    await submit(shop.id, txHash)
    await rig.rounds(2)
    expect(await paymentState(shop.id, txHash)).toMatchObject({ status: "failed", reason: "late" })
    expect((await paymentState(shop.id, txHash)).message).toContain("sent it back")
    await rig.payOut()
    expect(await rig.balanceOf(to)).toBe(5_000_000n)
    expect(await hasAccess(shop.id)).toBe(false)
    await booksHold()
  })

  it("another token beside the right one: each has a book of its own, and its own way out", async () => {
    const shop = await paywall()
    const good = await rig.pay(shop.payTo, "5")
    await submit(shop.id, good)
    const wrong = await rig.pay(shop.payTo, "9", 0, rig.other)
    await submit(shop.id, wrong)
    await rig.rounds(1)
    rig.service.advance(6_000)
    await rig.rounds(2)
    expect(await hasAccess(shop.id)).toBe(true)
    expect(await paymentState(shop.id, wrong)).toMatchObject({ status: "failed", reason: "wrong_asset" })
    const { id } = await one()
    expect(await one()).toMatchObject({ exception: "wrong_asset", amount: "9.00", currency: "OTH" })
    const to = fresh()
    expect((await giveBack(id, { address: to })).status).toBe(200)
    await rig.payOut()
    expect(await rig.balanceOf(to, rig.other)).toBe(9_000_000n)
    expect(await rig.balanceOf(shop.payTo)).toBe(5_000_000n)
    // And one that is accepted is swept at once, in its token.
    const more = await rig.pay(shop.payTo, "2", 1, rig.other)
    await submit(shop.id, more, 1)
    await rig.rounds(1)
    rig.service.advance(6_000)
    await rig.rounds(2)
    const second = await one("status=open")
    const before = await rig.balanceOf(PAYOUT_ADDRESS, rig.other)
    expect((await accept(second.id)).status).toBe(200)
    expect(await hasAccess(shop.id, 1)).toBe(true)
    expect((await completed()).at(-1)).toMatchObject({ id: second.id, amount: "2.00", currency: "OTH" })
    await rig.payOut()
    expect((await rig.balanceOf(PAYOUT_ADDRESS, rig.other)) - before).toBe(2_000_000n)
    await booksHold()
  })

  it("amounts that no token has, reported by a contract, are passed over; what was paid beside them counts", async () => {
    const shop = await paywall()
    const word = (hex: string) => `7f${hex.replace("0x", "").padStart(64, "0")}`
    const transferTopic = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
    // PUSH32 2^256-1 PUSH0 MSTORE, then twelve times LOG3(0, 32, topic, from, to).
    const log = `${word(shop.payTo)}${word(rig.buyer(1).address)}${word(transferTopic)}60205fa3`
    const data = `0x${word("f".repeat(64))}5f52${log.repeat(12)}00` as const
    const hash = await rig.anvil.client.sendTransaction({ account: rig.buyer(1), data })
    await rig.anvil.client.waitForTransactionReceipt({ hash })
    await submit(shop.id, hash, 1)
    await submit(shop.id, await rig.pay(shop.payTo, "5"))
    await rig.rounds(3)
    expect(await hasAccess(shop.id)).toBe(true)
    expect(await waiting()).toEqual([])
  })

  it("from a sender on a sanctions list it is in sight; once he is cleared it counts, under the same id", async () => {
    const shop = await paywall()
    await rig.sanction(rig.buyer(4).address, true)
    const txHash = await rig.pay(shop.payTo, "5", 4)
    expect(await submit(shop.id, txHash, 4)).toMatchObject({ status: 403 })
    await rig.rounds(2)
    const { id } = await one()
    expect(await one()).toMatchObject({ exception: "sanctioned", status: "open", amount: "5.00" })
    expect(await paymentState(shop.id, txHash, 4)).toMatchObject({ status: "failed", reason: "sanctioned" })
    for (const answer of [await accept(id), await giveBack(id, { address: fresh() })])
      expect(answer).toMatchObject({ status: 403 })
    await rig.sanction(rig.buyer(4).address, false)
    await submit(shop.id, txHash, 4)
    await rig.rounds(2)
    expect(await hasAccess(shop.id, 4)).toBe(true)
    expect(await db().selectFrom("payments").select(["id", "status", "exception"]).execute()).toEqual([
      { id, status: "granted", exception: null },
    ])
  })

  it("another merchant's payment is not found, and nothing comes of bad addresses", async () => {
    const shop = await paywall()
    await submit(shop.id, await rig.pay(shop.payTo, "1"))
    await rig.rounds(2)
    await rig.service.merchant("rival")
    const { id } = await one()
    const rival = { as: "rival" }
    expect((await accept(id, rival)).status).toBe(404)
    expect((await giveBack(id, { address: fresh() }, rival)).status).toBe(404)
    const { depositFactory } = rig.network
    for (const address of [rig.usdc, shop.payTo, depositFactory, `0x${"0".repeat(40)}`, "0x12", "nobody"]) {
      expect(await giveBack(id, { address })).toMatchObject({ status: 400, body: { details: [{ path: "address" }] } })
      const named = await post("/api/pay/return-address", { id: shop.id, address, message: "m", signature: "0x00" }, {})
      expect(named.status).toBe(400)
    }
    expect(await payouts()).toEqual([])
    expect(await one()).toMatchObject({ status: "open", returnAddress: null })
  })

  it("the same key has one effect, and the answer of the first", async () => {
    const shop = await paywall()
    await submit(shop.id, await rig.pay(shop.payTo, "1"))
    await rig.rounds(2)
    const { id } = await one()
    const options = { ...as, headers: { "idempotency-key": "k1" } }
    const to = fresh()
    const first = await giveBack(id, { address: to }, options)
    const again = await giveBack(id, { address: to }, options)
    expect(again.body).toEqual(first.body)
    expect(again.headers["idempotent-replayed"]).toBe("true")
    expect((await giveBack(id, { address: fresh() }, options)).status).toBe(422)
    expect((await payouts()).length).toBe(1)
  })
})

describe("a return while the wallet lock is on", () => {
  const wallet = privateKeyToAccount("0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6")
  const setLock = (on: boolean) => db().updateTable("merchants").set({ wallet_lock: on }).execute()
  async function open() {
    const shop = await paywall()
    await submit(shop.id, await rig.pay(shop.payTo, "1"))
    await rig.rounds(2)
    return (await one()).id as string
  }

  it("needs the payout wallet's signature once, and none for the same answer again", async () => {
    const id = await open()
    await setLock(true)
    const headers = { "idempotency-key": "k1" }
    const to = { address: fresh() }
    const refused = await giveBack(id, to, { ...as, headers })
    expect(refused.body.error).toBe("WALLET_SIGNATURE_REQUIRED")
    const [{ typedData }] = refused.body.details
    const signature = `${typedData.message.nonce} ${await wallet.signTypedData(typedData)}`
    const first = await giveBack(id, to, { ...as, headers: { ...headers, "wallet-signature": signature } })
    expect(first.status).toBe(200)
    const again = await giveBack(id, to, { ...as, headers })
    expect([again.status, again.headers["idempotent-replayed"]]).toEqual([200, "true"])
    expect(again.body).toEqual(first.body)
  })

  it("is refused at its commit where it was let through just before", async () => {
    const id = await open()
    const begin = db().transaction.bind(db())
    const spy = vi.spyOn(db(), "transaction").mockImplementationOnce(() => {
      const execute = async (work: Parameters<ReturnType<typeof begin>["execute"]>[0]) => {
        await setLock(true)
        return await begin().execute(work)
      }
      return { execute } as unknown as ReturnType<typeof begin>
    })
    const refused = await giveBack(id, { address: fresh() })
    spy.mockRestore()
    expect([refused.status, refused.body.error]).toEqual([403, "WALLET_SIGNATURE_REQUIRED"])
    expect(await payouts()).toEqual([])
    expect(await one()).toMatchObject({ status: "open" })
  })
})

describe("an address named by signature", () => {
  it("is taken from the sender alone, for this resource and address alone, each signature once", async () => {
    const shop = await paywall()
    await submit(shop.id, await rig.pay(shop.payTo, "1"))
    await rig.rounds(2)
    const to = fresh()
    expect(await name(shop.id, to, rig.buyer(1))).toMatchObject({ status: 404, body: { error: "PAYMENT_NOT_FOUND" } })
    expect(await name(shop.id, to, rig.buyer(0), { uri: `${BASE_URL}/api/auth/verify` })).toMatchObject({ status: 401 })
    const other = { resources: [`urn:sluice:return:${shop.id}:${fresh().toLowerCase()}`] }
    expect(await name(shop.id, to, rig.buyer(0), other)).toMatchObject({ status: 401 })
    const { body } = await post("/api/pay/return-address/nonce", { id: shop.id, address: to }, {})
    const good = { uri: `${BASE_URL}/api/pay/return-address`, resources: [body.resource] }
    const signed = await signMessage(rig.buyer(0), body.nonce, good)
    const elsewhere = await post("/api/pay/return-address", { id: shop.id, address: fresh(), ...signed }, {})
    expect(elsewhere.status).toBe(401)
    expect((await post("/api/pay/return-address", { id: shop.id, address: to, ...signed }, {})).status).toBe(200)
    expect((await post("/api/pay/return-address", { id: shop.id, address: to, ...signed }, {})).status).toBe(401)
    // The newest address counts; the older evidence stays.
    const newer = fresh()
    await name(shop.id, newer)
    expect((await one()).returnAddress).toBe(newer)
    expect((await db().selectFrom("return_addresses").select("address").execute()).length).toBe(2)
    const { id } = await one()
    const confirmed = fresh()
    expect((await giveBack(id, { address: confirmed })).status).toBe(409)
    expect((await giveBack(id, { address: confirmed, confirm: true })).body.return.address).toBe(confirmed)
    expect(await name(`pw_${"a".repeat(24)}`, to).catch(() => undefined)).toBeUndefined()
  })

  it("is taken from a contract wallet too", async () => {
    const owner = privateKeyToAccount(`0x${randomBytes(32).toString("hex")}`)
    const contract = await deployContractWallet(rig.anvil.client, owner.address)
    const shop = await paywall()
    // Sent by the contract: the node impersonates its account.
    await rig.pay(contract, "1")
    await rig.anvil.client.impersonateAccount({ address: contract })
    await rig.anvil.client.setBalance({ address: contract, value: 10n ** 18n })
    const { encodeFunctionData, erc20Abi } = await import("viem")
    const data = encodeFunctionData({
      abi: erc20Abi,
      functionName: "transfer",
      args: [shop.payTo as Address, 1_000_000n],
    })
    const hash = await rig.anvil.client.sendTransaction({ account: contract, to: rig.usdc, data } as never)
    await rig.service.call("POST", `/api/paywalls/${shop.id}/pay`, { txHash: hash, address: contract })
    await rig.rounds(2)
    const to = fresh()
    expect(await name(shop.id, to, owner, { address: checksummed(contract) })).toMatchObject({ status: 200 })
    expect((await one()).returnAddress).toBe(to)
  })
})

describe("what a reorg removes", () => {
  const reorg = async (blocks: number) => {
    await rig.anvil.client.reorg(blocks)
    for (let i = 0; i < 3; i++) {
      await rig.rounds(1, 1)
      rig.service.advance(31_000)
    }
  }
  const payments = (): Promise<Row<"payments">[]> =>
    db().selectFrom("payments").selectAll().orderBy("created_at").orderBy("id").execute()
  const resend = async (raw: `0x${string}`) => {
    const hash = await rig.anvil.client.sendRawTransaction({ serializedTransaction: raw })
    await rig.anvil.client.waitForTransactionReceipt({ hash })
  }
  /** A transfer whose bytes can be sent again. */
  async function paySigned(to: string, value: bigint, from = 3): Promise<`0x${string}`> {
    const { client } = rig.anvil
    const account = rig.buyer(from)
    const { encodeFunctionData, erc20Abi } = await import("viem")
    const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to as Address, value] })
    // A transfer to an address that holds nothing costs more gas.
    const request = await client.prepareTransactionRequest({ account, to: rig.usdc, data, gas: 100_000n } as never)
    const raw = (await account.signTransaction(request as never)) as `0x${string}`
    const hash = await client.sendRawTransaction({ serializedTransaction: raw })
    // The node responds before it has mined, and a later block would have another time.
    await client.waitForTransactionReceipt({ hash })
    return raw
  }

  it.each(["checkout", "paywall"])(
    "an accepted payment at a %s: undone, and done again when it is back",
    async what => {
      const shop = what === "checkout" ? await checkout() : await paywall()
      const raw = await paySigned(shop.payTo, 3_000_000n)
      if (what === "paywall") await rig.pass(11 * 60_000)
      await rig.rounds(2, 2)
      const { id } = await one()
      expect((await accept(id)).status).toBe(200)
      await reorg(6)
      expect(await payments()).toMatchObject([{ id, status: "reversed" }])
      if (what === "checkout") expect((await statusOf(shop.id)).status).toBe("pending")
      else expect(await hasAccess(shop.id, 3)).toBe(false)
      for (const answer of [await accept(id), await giveBack(id, { address: fresh() })])
        expect(answer).toMatchObject({ status: 409 })
      await resend(raw)
      await rig.rounds(3)
      expect(await payments()).toMatchObject([{ id, status: "granted" }])
      if (what === "checkout") expect((await statusOf(shop.id)).status).toBe("confirmed")
      else expect(await hasAccess(shop.id, 3)).toBe(true)
      // Accepted, reversed, and accepted again.
      const { rows } = await sql<{ type: string }>`select type from events where type like 'checkout.session.%'
        order by (body::json -> 'data' ->> 'sequence')::int`.execute(rig.service.ctx.db)
      expect(rows.map(({ type }) => type.slice("checkout.session.".length))).toEqual([
        "completed",
        "reversed",
        "completed",
      ])
    },
  )

  it("what was accepted beside a payment stays beside it: a stranger's dust never pays the checkout", async () => {
    const shop = await checkout()
    const raws = [await paySigned(shop.payTo, 5_000_000n), await paySigned(shop.payTo, 1n, 4)]
    await rig.rounds(2, 2)
    const [dust, paid] = (await payments()).toSorted((a, b) => (a.amount < b.amount ? -1 : 1))
    expect((await accept(dust?.id ?? "")).status).toBe(200)
    await reorg(6)
    expect((await payments()).map(row => row.status)).toEqual(["reversed", "reversed"])
    // The dust alone comes back first, then the payment.
    for (const raw of raws.reverse()) {
      await resend(raw)
      await rig.rounds(3)
      const isPaid = raw === raws[1]
      expect(await statusOf(shop.id)).toMatchObject({ status: isPaid ? "confirmed" : "pending" })
    }
    const rows = (await payments()).map(({ id, status, beside }) => ({ id, status, beside }))
    expect(rows).toContainEqual({ id: paid?.id, status: "granted", beside: false })
    expect(rows).toContainEqual({ id: dust?.id, status: "granted", beside: true })
    expect(await statusOf(shop.id)).toMatchObject({ exception: null, amountReceived: "5.000001" })
    await booksHold()
  })

  it("a payment whose return is not signed: the return is cancelled, and what is back waits again", async () => {
    const shop = await checkout()
    const raw = await paySigned(shop.payTo, 3_000_000n)
    await rig.rounds(2, 2)
    const { id } = await one()
    const to = fresh()
    await giveBack(id, { address: to })
    await reorg(6)
    expect((await payouts()).map(row => row.state)).toEqual(["cancelled"])
    expect((await payments()).map(row => row.status)).toEqual(["reversed"])
    await resend(raw)
    await rig.rounds(3)
    const again = await one("status=open")
    expect((await giveBack(again.id, { address: to })).status).toBe(200)
    await rig.payOut()
    expect(await rig.balanceOf(to)).toBe(3_000_000n)
    await booksHold()
  })

  it("a payment whose return is signed: the return stands, is made again, and nothing goes twice", async () => {
    const shop = await paywall()
    const raw = await paySigned(shop.payTo, 3_000_000n)
    await rig.pass(11 * 60_000)
    await rig.rounds(2, 2)
    const { id } = await one()
    const to = fresh()
    await giveBack(id, { address: to })
    await rig.anvil.client.setAutomine(false)
    await rig.payout()
    expect((await payouts()).map(row => row.state)).toEqual(["assigned"])
    await rig.anvil.client.dropAllTransactions()
    await rig.anvil.client.setAutomine(true)
    await reorg(6)
    expect(await payments()).toMatchObject([{ id, status: "returned" }])
    // The deposit is empty: the release fails on chain, and the payment is open, with nothing in it.
    rig.service.advance(31_000)
    await db().updateTable("transaction_attempts").set({ sent_at: null }).execute()
    await rig.payOut()
    await rig.payOut()
    expect((await payouts()).map(row => row.state)).toEqual(["reverted"])
    await rig.rounds(2)
    expect((await payments()).map(row => row.status)).toEqual(["reversed"])
    await resend(raw)
    await rig.pass(11 * 60_000)
    await rig.rounds(3)
    const again = await one("status=open")
    await giveBack(again.id, { address: to })
    await rig.payOut()
    expect(await rig.balanceOf(to)).toBe(3_000_000n)
    await booksHold()
  })
})

describe("a return that can't be paid", () => {
  it("is held, and cancelled by a person leaves the payment open", async () => {
    const shop = await paywall()
    await submit(shop.id, await rig.pay(shop.payTo, "1"))
    await rig.rounds(2)
    const { id } = await one()
    const to = fresh()
    await rig.blacklist(to, true)
    await giveBack(id, { address: to })
    await rig.payout()
    expect((await one()).return).toEqual({
      address: to,
      state: "held",
      txHash: null,
      reason: expect.stringContaining("would currently fail on chain"),
    })
    const [waits] = await payouts()
    await cancel(rig.service.ctx, { payout: waits?.id ?? "", reason: "blocked by the issuer", by: "operator" })
    expect(await one()).toMatchObject({ status: "open", return: null })
    const other = fresh()
    expect((await giveBack(id, { address: other })).status).toBe(200)
    await rig.payOut()
    expect((await payouts()).map(row => [row.source_key.slice(-8), row.state])).toEqual([
      ["return:0", "cancelled"],
      ["return:1", "final"],
    ])
    expect(await rig.balanceOf(other)).toBe(1_000_000n)
    await booksHold()
  })

  it("is cancelled by a person, and what it was for is accepted: all shares are paid", async () => {
    const { splitId, first, second } = await split()
    const shop = await paywall({ splitId })
    await submit(shop.id, await rig.pay(shop.payTo, "1"))
    await rig.rounds(2)
    const { id } = await one()
    await giveBack(id, { address: fresh() })
    const [waits] = await payouts()
    await cancel(rig.service.ctx, { payout: waits?.id ?? "", reason: "the merchant asked", by: "operator" })
    expect((await accept(id)).status).toBe(200)
    await rig.payOut()
    expect([await rig.balanceOf(first), await rig.balanceOf(second)]).toEqual([700_000n, 300_000n])
    await booksHold()
  })

  it("reverts on chain, and is made again, linked and held", async () => {
    const shop = await paywall()
    await submit(shop.id, await rig.pay(shop.payTo, "1"))
    await rig.rounds(2)
    const { id } = await one()
    const to = fresh()
    await giveBack(id, { address: to })
    const { client, accounts } = rig.anvil
    await client.setAutomine(false)
    await rig.payout()
    const { testUsdcAbi } = await import("../../platform/chain/abi.ts")
    const blacklist = { address: rig.usdc, abi: testUsdcAbi, functionName: "blacklist", args: [to] } as const
    const fees = { maxPriorityFeePerGas: 9_000_000_000n, maxFeePerGas: 20_000_000_000n }
    await client.writeContract({ ...blacklist, account: accounts[0], ...fees } as never)
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await rig.payOut()
    const rows = await payouts()
    expect(rows.map(row => row.state)).toEqual(["reverted", "held"])
    expect(rows[1]).toMatchObject({ replaces: rows[0]?.id, held_reason: expect.stringMatching(/reverted|simulation/) })
    expect(await one()).toMatchObject({ status: "returned", return: { address: to, state: "held" } })
    await rig.blacklist(to, false)
    await rig.pass(25 * HOUR)
    await rig.payOut()
    expect(await rig.balanceOf(to)).toBe(1_000_000n)
    expect((await one()).return.state).toBe("final")
    await booksHold()
  })
})
