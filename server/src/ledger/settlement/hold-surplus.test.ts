// The surplus of an overpayment: it waits, and is accepted or returned once, whatever the chain does.
import { randomBytes } from "node:crypto"
import { type Hex, parseUnits } from "viem"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type ExceptionsRig, startExceptionsRig } from "../../../test/exceptions.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { BASE_URL, signMessage } from "../../../test/wallet.ts"
import { cancel } from "../../operations/operator/retry-payouts.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { sweepDue } from "../payouts/make-payouts.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"

const DAY = 86_400_000
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
const usd = (amount: string) => parseUnits(amount, 6)
const db = () => rig.service.ctx.db
const fresh = () => checksummed(`0x${randomBytes(20).toString("hex")}` as Address)
const decide = (id: string, how: "accept" | "return", body: object = {}) =>
  rig.service.call("POST", `/api/console/payments/${id}/${how}`, body, as)
const listed = async (query = "status=open") =>
  (await rig.service.call("GET", `/api/console/payments?${query}`, undefined, as)).body.data
const payouts = () => db().selectFrom("payouts").selectAll().orderBy("created_at").orderBy("source_key").execute()
const merchantHas = () => rig.balanceOf(PAYOUT_ADDRESS)

/** A paywall of 5.00, with these further fields. */
async function paywall(fields: object = {}) {
  const { body } = await rig.service.call("POST", "/api/console/paywalls", { name: "Film", price: 5, ...fields }, as)
  const { payTo } = (await rig.service.call("GET", `/api/paywalls/${body.id}`)).body
  return { id: body.id as string, payTo: payTo as string }
}
const checkout = async (fields: object = {}) => {
  const { body } = await rig.service.call(
    "POST",
    "/api/checkouts",
    { amount: 5, ...fields },
    { headers: { "x-api-key": key } },
  )
  return {
    id: body.id as string,
    payTo: (await rig.service.call("GET", `/api/pay/status/${body.id}`)).body.payTo as string,
  }
}
/** Two recipients that nobody else has, for 70 and 30 percent. */
async function split() {
  const first = fresh()
  const second = fresh()
  const recipients = [first, second].map((address, i) => ({ address, percent: i === 0 ? 70 : 30 }))
  const { body } = await rig.service.call("POST", "/api/console/splits", { name: "Band", recipients }, as)
  return { splitId: body.id as string, balances: () => Promise.all([rig.balanceOf(first), rig.balanceOf(second)]) }
}
/** Paid and submitted, so that it is settled at once. */
async function paid(shop: { id: string; payTo: string }, amount: string, from = 0): Promise<Hex> {
  const txHash = await rig.pay(shop.payTo, amount, from)
  if (shop.id.startsWith("pw_"))
    await rig.service.call("POST", `/api/paywalls/${shop.id}/pay`, { txHash, address: rig.buyer(from).address })
  await rig.rounds(3)
  return txHash
}
/** Runs the daily sweeps until they are final. */
async function sweep(): Promise<void> {
  await rig.pass(DAY + 1_000)
  await sweepDue(rig.service.ctx, rig.network)
  await rig.payOut()
}
const hasAccess = async (shop: { id: string }, from = 0): Promise<boolean> =>
  (await rig.service.call("GET", `/api/paywalls/${shop.id}/verify?address=${rig.buyer(from).address}`)).body.hasAccess

it("waits while the rest is swept, and goes back once, to where its payer says", async () => {
  const shop = await paywall()
  await paid(shop, "7")
  expect(await hasAccess(shop)).toBe(true)
  const [waiting] = await listed()
  expect(waiting).toMatchObject({
    status: "granted",
    exception: "overpaid",
    amount: "7.00",
    surplus: { amount: "2.00", status: "open" },
    return: null,
  })
  expect(await rig.notified("payment.exception")).toMatchObject([
    { paymentId: waiting.id, sessionId: null, paywallId: shop.id, exception: "overpaid", amount: "2.00" },
  ])
  const before = await merchantHas()
  await sweep()
  expect([(await merchantHas()) - before, await rig.balanceOf(shop.payTo)]).toEqual([usd("5"), usd("2")])
  const to = fresh()
  expect((await decide(waiting.id, "return")).body).toMatchObject({ error: "VALIDATION_ERROR" })
  const page = await rig.service.call("GET", `/return/${waiting.id}`)
  expect(page.body).toContain("2.00")
  const { body: nonce } = await rig.service.call("POST", "/api/pay/return-address/nonce", { id: shop.id, address: to })
  const facts = { uri: `${BASE_URL}/api/pay/return-address`, resources: [nonce.resource] }
  const signed = await signMessage(rig.buyer(0), nonce.nonce, facts)
  const named = await rig.service.call("POST", "/api/pay/return-address", { id: shop.id, address: to, ...signed })
  expect(named.status).toBe(200)
  expect((await decide(waiting.id, "return")).body).toMatchObject({
    status: "granted",
    surplus: { amount: "2.00", status: "returned" },
    return: { address: to, state: "queued" },
  })
  const again = await decide(waiting.id, "return", { address: to })
  expect(again).toMatchObject({ status: 409, body: { message: expect.stringContaining("already been returned") } })
  expect(await decide(waiting.id, "accept")).toMatchObject({ status: 409 })
  expect(await listed()).toEqual([])
  await rig.payOut()
  await sweep()
  expect([await rig.balanceOf(to), await rig.balanceOf(shop.payTo)]).toEqual([usd("2"), 0n])
  expect((await merchantHas()) - before).toBe(usd("5"))
  expect(await hasAccess(shop)).toBe(true)
})

it("accepted, is swept as the rest was, and buys nothing more", async () => {
  const shop = await paywall()
  await paid(shop, "7")
  const before = await merchantHas()
  await sweep()
  const [{ id }] = await listed()
  expect((await decide(id, "accept")).body).toMatchObject({ surplus: { status: "accepted" } })
  const again = await decide(id, "accept")
  expect(again).toMatchObject({ status: 409, body: { message: expect.stringContaining("already been accepted") } })
  await sweep()
  expect([(await merchantHas()) - before, await rig.balanceOf(shop.payTo)]).toEqual([usd("7"), 0n])
  expect(await db().selectFrom("grants").select("id").execute()).toHaveLength(1)
})

it("of a split is divided when it is accepted: with the rest to the last unit what all of it would have been", async () => {
  const { splitId, balances } = await split()
  const shop = await checkout({ splitId })
  await paid(shop, "7.000001")
  await rig.payOut()
  expect(await balances()).toEqual([usd("3.5"), usd("1.5")])
  const [{ id }] = await listed()
  await decide(id, "accept")
  await rig.payOut()
  expect(await balances()).toEqual([4_900_000n, 2_100_001n])
  expect(await rig.balanceOf(shop.payTo)).toBe(0n)
})

it("of a split goes back beside its shares", async () => {
  const { splitId, balances } = await split()
  const shop = await checkout({ splitId })
  await paid(shop, "7")
  const [{ id }] = await listed()
  const to = fresh()
  expect((await decide(id, "return", { address: to })).status).toBe(200)
  // Settled again, the session keeps the decision.
  await rig.pay(shop.payTo, "1", 1)
  await rig.rounds(3)
  await rig.payOut()
  expect([await rig.balanceOf(to), ...(await balances())]).toEqual([usd("2"), usd("3.5"), usd("1.5")])
  expect(await rig.balanceOf(shop.payTo)).toBe(usd("1"))
})

it("accepted and returned at once is one of the two, and the books agree", async () => {
  for (let i = 0; i < 4; i++) {
    const shop = await paywall()
    await paid(shop, "6", i)
    const [{ id }] = await listed()
    const answers = await Promise.all([
      decide(id, "accept"),
      decide(id, "return", { address: fresh() }),
      decide(id, "return", { address: fresh() }),
    ])
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409])
    const returns = (await payouts()).filter(row => row.payment_id === id && row.kind === "return")
    expect(returns).toHaveLength(answers[0]?.status === 200 ? 0 : 1)
  }
  expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])
})

it("a return that is cancelled before it was signed leaves it open", async () => {
  const shop = await paywall()
  await paid(shop, "7")
  const [{ id }] = await listed()
  await decide(id, "return", { address: fresh() })
  const [back] = (await payouts()).filter(row => row.kind === "return")
  await cancel(rig.service.ctx, { by: "test", payout: back?.id ?? "", reason: "a mistake" })
  expect(await listed()).toMatchObject([{ id, surplus: { status: "open" }, return: null }])
  expect((await decide(id, "accept")).status).toBe(200)
  await sweep()
  expect(await rig.balanceOf(shop.payTo)).toBe(0n)
})

it.each(["checkout", "paywall"])(
  "after a reorg of the payment at a %s it waits again, and goes back once",
  async what => {
    const shop = what === "checkout" ? await checkout() : await paywall()
    const txHash = await rig.pay(shop.payTo, "7", 3)
    const { client } = rig.anvil
    const raw = (await client.request({ method: "eth_getRawTransactionByHash", params: [txHash] } as never)) as Hex
    if (what === "paywall") await rig.pass(11 * 60_000)
    await rig.rounds(2, 2)
    const [{ id }] = await listed()
    const to = fresh()
    expect((await decide(id, "return", { address: to })).status).toBe(200)
    await client.reorg(6)
    for (let i = 0; i < 3; i++) {
      await rig.rounds(1, 1)
      rig.service.advance(31_000)
    }
    expect((await payouts()).map(row => row.state).every(state => state === "cancelled")).toBe(true)
    expect(await decide(id, "return", { address: to })).toMatchObject({ status: 409 })
    const hash = await client.sendRawTransaction({ serializedTransaction: raw })
    await client.waitForTransactionReceipt({ hash })
    if (what === "paywall") await rig.pass(11 * 60_000)
    await rig.rounds(3)
    const [again] = await listed()
    expect(again).toMatchObject({ id, surplus: { amount: "2.00", status: "open" } })
    const waits = { paymentId: id, exception: "overpaid", amount: "2.00" }
    expect(await rig.notified("payment.exception")).toMatchObject([waits, waits])
    expect((await decide(id, "return", { address: to })).status).toBe(200)
    await rig.payOut()
    await sweep()
    expect([await rig.balanceOf(to), await rig.balanceOf(shop.payTo)]).toEqual([usd("2"), 0n])
  },
)

it("is notified again when a part was removed and another one paid in its place", async () => {
  const shop = await paywall()
  const submit = async (amount: string) => {
    const txHash = await rig.pay(shop.payTo, amount)
    await rig.service.call("POST", `/api/paywalls/${shop.id}/pay`, { txHash, address: rig.buyer(0).address })
    return txHash
  }
  await submit("3")
  const removed = await submit("4")
  await rig.rounds(2, 2)
  const { client } = rig.anvil
  const { blockNumber } = await client.getTransactionReceipt({ hash: removed })
  const depth = Number((await client.getBlockNumber()) - blockNumber) + 1
  await client.reorg(depth)
  for (let i = 0; i < 4; i++) {
    await rig.rounds(1, 3)
    rig.service.advance(31_000)
  }
  await paid(shop, "5")
  const [{ id }] = await listed()
  expect(await rig.notified("payment.exception")).toMatchObject([
    { paymentId: id, exception: "overpaid", amount: "2.00" },
    { paymentId: id, exception: "underpaid", amount: "3.00" },
    { paymentId: id, exception: "overpaid", amount: "3.00" },
  ])
})

it("goes back by the signature of the wallet that its address names, over the surplus alone", async () => {
  expect((await rig.service.call("PUT", "/api/console/settings", { approver: "wallet" }, as)).status).toBe(200)
  const shop = await paywall()
  await paid(shop, "7")
  const [{ id, approver }] = await listed()
  const address = fresh()
  const { body } = await decide(id, "return", { address })
  expect([approver, body.error]).toEqual([PAYOUT_ADDRESS, "RETURN_APPROVAL_REQUIRED"])
  const { types: all, ...data } = body.details[0].typedData
  expect(data.message).toMatchObject({
    amount: "2000000",
    to: address.toLowerCase(),
    deposit: shop.payTo.toLowerCase(),
  })
  const { EIP712Domain: _, ...types } = all
  const approval = {
    deadline: Number.parseInt(data.message.deadline, 10),
    signature: await rig.anvil.accounts[9].signTypedData({ ...data, types }),
  }
  expect((await decide(id, "return", { address, approval })).status).toBe(200)
  await rig.payOut()
  expect(await rig.balanceOf(address)).toBe(usd("2"))
})

it("below the lowest price waits for nobody: all of the payment counts", async () => {
  const shop = await paywall()
  await paid(shop, "5.009999")
  const [all] = await listed("exception=overpaid")
  expect(all).toMatchObject({ status: "granted", surplus: null })
  for (const answer of [await decide(all.id, "accept"), await decide(all.id, "return", { address: fresh() })])
    expect(answer).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining("including the amount above the price") },
    })
  await sweep()
  expect(await rig.balanceOf(shop.payTo)).toBe(0n)
})

it("a row of it that was altered by hand is found", async () => {
  const shop = await paywall()
  await paid(shop, "7")
  await db()
    .updateTable("surpluses")
    .set({ state: "returned", returned_at: new Date(), returned_to: rig.usdc })
    .execute()
  const [found] = await checkConsistency(rig.service.ctx, rig.network.chainId)
  expect(found?.words).toContain("of surpluses says that 2000000 of the transfer")
})

it("its checkout says what stands once it was returned, and what is asked for again once that is cancelled", async () => {
  const shop = await checkout()
  await paid(shop, "6")
  const status = async () => (await rig.service.call("GET", `/api/pay/status/${shop.id}`)).body
  const page = async () => (await rig.service.call("GET", `/pay/${shop.id}`)).body
  expect(await status()).toMatchObject({ exception: "overpaid", amountReceived: "6.00", amountReturned: "0.00" })
  expect(await page()).toContain("can return the difference")
  const [waiting] = await listed()
  expect((await decide(waiting.id, "return", { address: fresh() })).status).toBe(200)
  await rig.rounds(1)
  const stands = {
    status: "confirmed",
    exception: null,
    amountReceived: "5.00",
    amountReturned: "1.00",
    message: "The payment is confirmed, and the merchant has sent the excess back.",
  }
  expect(await status()).toMatchObject(stands)
  expect((await rig.service.call("GET", `/api/console/checkouts/${shop.id}`, undefined, as)).body).toMatchObject(stands)
  expect((await rig.service.call("GET", "/api/console/checkouts", undefined, as)).body.data).toMatchObject([stands])
  expect(await page()).toContain("has sent the extra 1.00")
  expect(await page()).not.toContain("can return the difference")
  const [back] = await payouts().then(all => all.filter(each => each.kind === "return"))
  await cancel(rig.service.ctx, { by: "test", payout: back?.id ?? "", reason: "a mistake" })
  await rig.rounds(2)
  expect(await status()).toMatchObject({ exception: "overpaid", amountReceived: "6.00", amountReturned: "0.00" })
  expect((await decide(waiting.id, "accept")).status).toBe(200)
  await rig.rounds(1)
  expect(await status()).toMatchObject({ exception: "overpaid", amountReceived: "6.00", amountReturned: "0.00" })
})

it("a payment that came twice and was returned once is not received, and its return is said", async () => {
  const shop = await checkout()
  await paid(shop, "5")
  await paid(shop, "5")
  const status = async () => (await rig.service.call("GET", `/api/pay/status/${shop.id}`)).body
  expect(await status()).toMatchObject({ exception: "duplicate", amountReceived: "10.00", amountReturned: "0.00" })
  const [waiting] = await listed()
  expect((await decide(waiting.id, "return", { address: fresh() })).status).toBe(200)
  expect(await status()).toMatchObject({ exception: null, amountReceived: "5.00", amountReturned: "5.00" })
})
