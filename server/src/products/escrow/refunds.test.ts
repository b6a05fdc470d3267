// Refunds on a real chain: out of the merchant's wallet as far as it allows, to the payer, never more than was captured; and
// every list of the merchant, and the hourly comparison, say what the chain says.
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { encodeFunctionData, parseUnits, toHex, zeroHash } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest"
import { byHand } from "../../../test/books.ts"
import { type Escrows, escrowsOn } from "../../../test/escrow.ts"
import { flatValue } from "../../../test/flat-value.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { type Received, type Receiver, startReceiver } from "../../../test/receiver.ts"
import { openDeliverer } from "../../account/webhooks/deliver-events.ts"
import { openSender } from "../../account/webhooks/send.ts"
import { checkEscrows } from "../../ledger/reconciliation/check-escrows.ts"
import { reconcileRound } from "../../ledger/reconciliation/reconcile.ts"
import { refundOwners } from "../../ledger/relays/find-refund-owners.ts"
import { relayLane } from "../../ledger/relays/relay-lane.ts"
import { checkWallet } from "../../ledger/txmanager/lock-wallet.ts"
import { checkEscrow } from "../../operations/doctor/check-escrow.ts"
import { authCaptureEscrowAbi, testUsdcAbi } from "../../platform/chain/abi.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import { captureCall, paymentStateCall, voidCall } from "../../platform/chain/escrow.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { inTransaction } from "../../platform/context.ts"
import { type Escrowed, lockEscrow, standingOfEscrow } from "./load-escrow.ts"
import { paymentInfoOf } from "./payment-info.ts"

let rig: PayoutRig
let on: Escrows
let receiver: Receiver
beforeAll(async () => {
  rig = await startPayoutRig()
  on = await escrowsOn(rig)
  receiver = await startReceiver()
})
afterAll(async () => {
  await rig?.stop()
  await receiver?.stop()
})
beforeEach(() => on.begin())

const units = (text: string | null) => (text === null ? 0n : parseUnits(text, 6))
const call = (method: "GET" | "POST" | "PUT" | "DELETE", path: string, body?: object, as = "shop") =>
  rig.service.call(method, `/api/console/${path}`, body, { as })
const refund = (sessionId: string, more: object = {}) => call("POST", "payments/refund", { sessionId, ...more })
const refunds = async (query = "") => (await call("GET", `payments/refunds${query}`)).body
const session = async (id: string) => (await call("GET", `checkouts/${id}`)).body
const relayWallet = () =>
  rig.service.ctx.db.selectFrom("wallets").selectAll().where("lane", "=", "relay").executeTakeFirstOrThrow()

/** A refund that was accepted. */
async function asked(sessionId: string, more: object = {}) {
  const answer = await refund(sessionId, more)
  expect(answer.status, JSON.stringify(answer.body)).toBe(201)
  return answer.body
}

/** Sends from the merchant's wallet exactly the call that the API returned. */
const approve = ({ approval }: { approval: { call: { to: Address; data: `0x${string}` } } }) =>
  on.asMerchant(approval.call)

const allowed = () =>
  rig.anvil.client.readContract({
    address: rig.token,
    abi: testUsdcAbi,
    functionName: "allowance",
    args: [on.merchant, on.escrow.refundCollector ?? on.escrow.address],
  })

/** Advances the clock until a refund that waits for its wallet is checked again. */
const later = () => rig.service.advance(16_000)

async function refused(answer: Promise<{ status: number; body: { error: string; message: string } }>, words: RegExp) {
  const { status, body } = await answer
  expect([status, body.error]).toEqual([409, "INVALID_OPERATION"])
  expect(body.message).toMatch(words)
}

describe("a refund", () => {
  it("continues once the wallet has sent the call that the API gave it: in part, then the rest, each notified once", async () => {
    const hook = await call("POST", "webhooks", { url: receiver.url, events: ["*"] })
    const { id, buyer } = await on.paid("5.00")
    const first = await asked(id, { amount: "1.50", reason: "Too late" })
    expect(first).toMatchObject({
      sessionId: id,
      amount: "1.50",
      status: "needs_approval",
      reason: "Too late",
      txHash: null,
      approval: { owner: on.merchantShown, allowance: "0.00", needed: "1.50", call: { to: expect.any(String) } },
    })
    later()
    await on.settle()
    expect((await refunds("?status=needs_approval")).data).toMatchObject([{ refundId: first.refundId }])
    expect((await session(id)).status).toBe("confirmed")
    await approve(first)
    later()
    await on.settle()
    expect((await call("GET", `payments/refunds/${first.refundId}`)).body).toMatchObject({
      status: "succeeded",
      approval: null,
      message: null,
      txHash: expect.stringMatching(/^0x/),
    })
    expect(await rig.balanceOf(buyer)).toBe(1_500_000n)
    expect(await session(id)).toMatchObject({
      status: "partially_refunded",
      escrow: { captured: "5.00", refunded: "1.50", refundable: "3.50" },
      refunds: [{ refundId: first.refundId, status: "succeeded" }],
    })
    const rest = await asked(id)
    expect(rest).toMatchObject({ amount: "3.50", approval: { needed: "3.50" } })
    await approve(rest)
    later()
    await on.settle()
    await on.settle()
    expect(await session(id)).toMatchObject({ status: "refunded", escrow: { refunded: "5.00", refundable: "0.00" } })
    expect([await rig.balanceOf(buyer), await rig.balanceOf(on.merchant), await allowed()]).toEqual([
      5_000_000n,
      0n,
      0n,
    ])
    await refused(refund(id), /This checkout is fully refunded/)
    const sent = await delivered("payment.refunded", hook.body.data.secret)
    expect(sent.map(({ data }) => [data.refundId, data.amount, data.totalRefunded, data.status])).toEqual([
      [first.refundId, "1.50", "1.50", "partially_refunded"],
      [rest.refundId, "3.50", "5.00", "refunded"],
    ])
    expect(sent[0]?.data).toEqual({
      id,
      sessionId: id,
      refundId: first.refundId,
      amount: "1.50",
      totalRefunded: "1.50",
      originalAmount: "5.00",
      currency: "USDC",
      status: "partially_refunded",
      reason: "Too late",
      txHash: expect.stringMatching(/^0x/),
      chain: "base-sepolia",
      chainId: 84532,
      explorerUrl: null,
      refundRecipient: on.shown(buyer),
      merchantId: expect.any(String),
      productId: null,
      description: null,
      metadata: null,
      sequence: expect.any(Number),
    })
    await expectBooks()
  })

  it("is asked for by twenty at once, and never more goes back than was captured", async () => {
    const { id, buyer } = await on.paid("5.00")
    const answers = await Promise.all(Array.from({ length: 20 }, () => refund(id, { amount: "2.40" })))
    expect(answers.map(({ status }) => status).sort()).toEqual([...Array(2).fill(201), ...Array(18).fill(409)])
    await on.asMerchant((await refunds()).data[0].approval.call)
    expect(await allowed()).toBe(4_800_000n)
    for (let i = 0; i < 2; i++) {
      later()
      await on.settle()
    }
    expect([await rig.balanceOf(buyer), await allowed()]).toEqual([4_800_000n, 0n])
    expect(await session(id)).toMatchObject({ status: "partially_refunded", escrow: { refundable: "0.20" } })
    await expectBooks()
  })

  it("waits while another of the same wallet is under way, so that no allowance is promised twice", async () => {
    const one = await on.paid("5.00")
    const two = await on.paid("5.00")
    await on.allow(5_000_000n)
    const { client } = rig.anvil
    await client.setAutomine(false)
    const a = await asked(one.id)
    const b = await asked(two.id)
    expect([a.status, b.status, b.approval, b.message]).toEqual([
      "pending",
      "pending",
      null,
      expect.stringMatching(/another refund from your payout wallet/),
    ])
    later()
    for (let i = 0; i < 2; i++) await on.round()
    expect((await on.calls("refund")).map(({ state }) => state)).toEqual(["assigned", "held"])
    // An approval for both would be too much: the first one is allowed already and about to be mined.
    expect((await refunds("?status=needs_approval")).total).toBe(0)
    expect((await refunds("?status=pending")).data.map(({ approval }: typeof b) => approval)).toEqual([null, null])
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    later()
    await on.settle()
    expect((await on.calls("refund")).map(({ state, held_reason }) => [state, held_reason])).toEqual([
      ["final", null],
      ["held", "allowance"],
    ])
    const [waiting] = (await refunds("?status=needs_approval")).data
    expect([waiting.refundId, waiting.approval.needed]).toEqual([b.refundId, "5.00"])
    await approve(waiting)
    const away = encodeFunctionData({ abi: testUsdcAbi, functionName: "transfer", args: [one.buyer, 1n] })
    await on.asMerchant({ to: rig.token, data: away })
    later()
    await on.settle()
    expect((await refunds(`?sessionId=${two.id}`)).data).toMatchObject([
      { status: "pending", approval: null, message: expect.stringMatching(/balance is too low/) },
    ])
    await rig.mint(on.merchant, 1n)
    later()
    await on.settle()
    expect([(await refunds("?status=succeeded")).total, await allowed()]).toEqual([2, 0n])
  })

  it("asks for its approval though one endpoint says that the wallet has given it", async () => {
    const { endpoints } = rig.network
    const honest = () => newEndpoint(rig.network.name, rig.anvil.rpcUrl)
    rig.network.endpoints = [...endpoints, honest(), honest()]
    const selector = encodeFunctionData({
      abi: testUsdcAbi,
      functionName: "allowance",
      args: [on.merchant, on.merchant],
    })
    onTestFinished(() => {
      rig.proxy.spoil = (_method, _params, result) => result
      rig.network.endpoints = endpoints
    })
    rig.proxy.spoil = (method, [read], result) =>
      method === "eth_call" && JSON.stringify(read).includes(selector.slice(0, 10))
        ? toHex(10n ** 9n, { size: 32 })
        : result
    const { id } = await on.paid("5.00")
    const { refundId } = await asked(id)
    await on.round()
    expect((await call("GET", `payments/refunds/${refundId}`)).body).toMatchObject({
      status: "needs_approval",
      approval: { allowance: "0.00", needed: "5.00" },
    })
  })

  it("waits with all of its wallet that are not smaller, where that allows too little for it", async () => {
    const { id } = await on.paid("5.00")
    await on.allow(5_000_000n)
    for (const amount of ["1.00", "2.00", "0.50"]) await asked(id, { amount })
    await on.allow(900_000n)
    await on.round()
    expect((await on.calls("refund")).map(({ state, held_reason: reason }) => [state, reason])).toEqual([
      ["held", "allowance"],
      ["held", "allowance"],
      ["queued", null],
    ])
  })

  it("that reverts leaves the payment as it was, and may be asked for again", async () => {
    const { id, buyer } = await on.paid("5.00")
    const { client } = rig.anvil
    await on.allow(5_000_000n)
    const first = await asked(id)
    await client.setAutomine(false)
    await on.round()
    // The wallet withdraws its approval in the block before.
    const [waiting] = await on.attempts()
    await client.dropTransaction({ hash: waiting?.hash as `0x${string}` })
    await client.setAutomine(true)
    await on.allow(0n)
    await on.resend()
    await on.settle()
    expect((await call("GET", `payments/refunds/${first.refundId}`)).body).toMatchObject({
      status: "failed",
      message: expect.stringMatching(/nothing was refunded/),
      approval: null,
    })
    expect(await session(id)).toMatchObject({ status: "confirmed", escrow: { refunded: "0.00", refundable: "5.00" } })
    await on.allow(5_000_000n)
    await asked(id)
    await on.settle()
    expect((await session(id)).status).toBe("refunded")
    expect(await rig.balanceOf(buyer)).toBe(5_000_000n)
    await expectBooks()
  })

  it("that a reorg removes is sent again, pays once, and is notified once", async () => {
    const { id, buyer } = await on.paid("5.00")
    await on.allow(5_000_000n)
    await asked(id)
    await on.round()
    await on.look()
    expect((await session(id)).status).toBe("refunded")
    const { client } = rig.anvil
    await client.setAutomine(false)
    await client.reorg(1)
    await on.round()
    await on.look()
    expect(await session(id)).toMatchObject({ status: "confirmed", refunds: [{ status: "pending" }] })
    await on.resend()
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await on.settle()
    expect(await session(id)).toMatchObject({ status: "refunded", refunds: [{ status: "succeeded" }] })
    expect([await rig.balanceOf(buyer), await allowed()]).toEqual([5_000_000n, 0n])
    const events = rig.service.ctx.db.selectFrom("events").select("id").where("type", "=", "payment.refunded")
    expect(await events.execute()).toHaveLength(1)
    await expectBooks()
  })

  /** A refund that counted, and failed for good when a reorg removed it together with its allowance. */
  async function displaced(amount = "5.00") {
    const { id, buyer } = await on.paid("5.00")
    await on.allow(units(amount))
    const { refundId } = await asked(id, { amount })
    await on.round()
    await on.look()
    expect((await session(id)).escrow.refunded).toBe(amount)
    const { client } = rig.anvil
    await client.setAutomine(false)
    await client.reorg(1)
    // The wallet withdraws what it had allowed before the refund is mined again.
    await on.allow(0n)
    await client.mine({ blocks: 1 })
    await on.round()
    await on.resend()
    await client.mine({ blocks: 3 })
    await client.setAutomine(true)
    return { id, buyer, refundId: refundId as string }
  }
  const sentOf = async (type: "payment.refunded" | "checkout.session.reversed") =>
    (await rig.service.ctx.db.selectFrom("events").select("body").where("type", "=", type).execute()).map(
      ({ body }) => JSON.parse(body).data,
    )

  it("that counted, and that a reorg removes for good with its allowance, is made again and notified once", async () => {
    const { id, buyer, refundId } = await displaced()
    await on.settle()
    expect((await on.calls("refund")).map(({ state }) => state)).toEqual(["reverted", "held"])
    const open = (await refunds("?status=needs_approval")).data
    expect(open).toMatchObject([{ refundId, amount: "5.00", approval: { needed: "5.00" } }])
    expect((await session(id)).status).toBe("confirmed")
    await approve(open[0])
    later()
    await on.settle()
    expect(await session(id)).toMatchObject({ status: "refunded", refunds: [{ status: "succeeded" }] })
    expect([await rig.balanceOf(buyer), await allowed()]).toEqual([5_000_000n, 0n])
    expect(await sentOf("payment.refunded")).toHaveLength(1)
    expect(await sentOf("checkout.session.reversed")).toEqual([])
    await expectBooks()
  })

  it("that counted, and is withdrawn before it is made again, is taken back from whoever was notified of it", async () => {
    const hook = await call("POST", "webhooks", { url: receiver.url, events: ["payment.refunded"] })
    const deaf = await call("POST", "webhooks", { url: receiver.url, events: ["checkout.session.reversed"] })
    const { id, buyer, refundId } = await displaced()
    await on.settle()
    expect((await call("DELETE", `payments/refunds/${refundId}`)).status).toBe(200)
    for (let i = 0; i < 2; i++) await on.look()
    expect(await sentOf("checkout.session.reversed")).toMatchObject([
      { sessionId: id, refundId, status: "confirmed", amountReceived: "5.00" },
    ])
    const sentTo = async ({ body }: typeof hook) =>
      (
        await sql<{ type: string }>`select e.type from deliveries d join events e on e.id = d.event_id
          where d.webhook_id = ${body.data.id} and e.type not like 'settings.%' order by e.created_at, e.type desc`.execute(
          rig.service.ctx.db,
        )
      ).rows.map(({ type }) => type)
    expect(await sentTo(hook)).toEqual(["payment.refunded", "checkout.session.reversed"])
    // A destination that was never notified of the refund is not notified of its failure.
    expect(await sentTo(deaf)).toEqual([])
    // The merchant's next request is another refund.
    await on.allow(5_000_000n)
    const again = await asked(id)
    await on.settle()
    expect(await rig.balanceOf(buyer)).toBe(5_000_000n)
    const sent = await sentOf("payment.refunded")
    expect(sent.map(data => data.refundId).sort()).toEqual([refundId, again.refundId].sort())
    expect(await sentOf("checkout.session.reversed")).toHaveLength(1)
  })

  it("that counted, and is made again, is in the total of the next one: its merchant was notified of it", async () => {
    const { id, buyer } = await displaced("2.00")
    await on.settle()
    await on.allow(5_000_000n)
    const { refundId } = await asked(id, { amount: "3.00" })
    await on.settle()
    expect((await sentOf("payment.refunded")).find(data => data.refundId === refundId)).toMatchObject({
      totalRefunded: "5.00",
      status: "refunded",
    })
    later()
    await on.settle()
    expect(await rig.balanceOf(buyer)).toBe(5_000_000n)
    expect(await sentOf("payment.refunded")).toHaveLength(2)
  })

  it("that counted, and that nobody can make again, is taken back when its time is over", async () => {
    const { id, refundId } = await displaced()
    await on.round()
    const { settings } = rig.service.ctx
    const own = settings.relayWallet
    settings.relayWallet = rig.token
    onTestFinished(() => {
      settings.relayWallet = own
    })
    await on.look()
    expect(await sentOf("checkout.session.reversed")).toEqual([])
    await on.advance(98 * 86_400_000)
    await on.look()
    expect(await sentOf("checkout.session.reversed")).toMatchObject([{ sessionId: id, refundId }])
  })

  it("that counted, and that a reorg removed for good, is made again before any other: its merchant refunds it once", async () => {
    const { id, buyer, refundId } = await displaced("2.00")
    await on.round()
    const remade =
      "A reorg removed a refund of this payment that had counted. The service creates it again automatically"
    expect((await call("GET", `payments/refunds/${refundId}`)).body.message).toContain(remade)
    for (const answer of [
      await call("DELETE", `payments/refunds/${refundId}`),
      await call("POST", "payments/refund", { sessionId: id, amount: "2.00" }),
    ])
      expect([answer.status, answer.body.message]).toEqual([409, expect.stringContaining(remade)])
    await on.settle()
    const open = (await refunds("?status=needs_approval")).data
    expect(open).toMatchObject([{ refundId, amount: "2.00", approval: { needed: "2.00" } }])
    await approve(open[0])
    later()
    await on.settle()
    expect(await rig.balanceOf(buyer)).toBe(2_000_000n)
    expect([await sentOf("payment.refunded"), await sentOf("checkout.session.reversed")]).toMatchObject([
      [{ refundId }],
      [],
    ])
    await expectBooks()
  })

  it("asks for no approval once the service has another relay wallet, which its collector does not serve", async () => {
    const { id } = await on.paid("5.00")
    const { refundId } = await asked(id)
    const { settings } = rig.service.ctx
    const { relayWallet } = settings
    settings.relayWallet = rig.signer.address
    onTestFinished(() => {
      settings.relayWallet = relayWallet
    })
    expect((await refunds("?status=needs_approval")).total).toBe(0)
    expect((await refunds("?status=pending")).data).toMatchObject([
      { refundId, status: "pending", approval: null, message: expect.stringMatching(/its relay wallet changed/) },
    ])
  })

  it("comes out of a wallet for one merchant alone: who was paid to it first, or signs in as it", async () => {
    const { id, buyer } = await on.paid("5.00")
    const { db, settings } = rig.service.ctx
    await call("PUT", "settings", { payoutAddress: on.merchantShown }, "rival")
    const asRival = await on.paid("5.00", "automatic", "rival")
    const mine = await asked(id, { amount: "2.00" })
    expect(mine.approval.needed).toBe("2.00")
    await refused(
      call("POST", "payments/refund", { sessionId: asRival.id }, "rival"),
      /switch your wallet lock on.*wallet yourself/,
    )
    await approve(mine)
    later()
    await on.settle()
    expect([await rig.balanceOf(buyer), await rig.balanceOf(asRival.buyer), await allowed()]).toEqual([
      2_000_000n,
      0n,
      0n,
    ])
    const next = await asked(id, { amount: "1.00" })
    await on.allow(1_000_000n)
    const subject = { iss: settings.baseUrl, sub: `eip155:${rig.network.chainId}:${on.merchantShown}` }
    await db.updateTable("persons").set(subject).where("sub", "=", "rival").execute()
    later()
    await on.settle()
    expect((await call("GET", `payments/refunds/${next.refundId}`)).body).toMatchObject({
      status: "failed",
      message: expect.stringMatching(/signs in with it/),
    })
    await refused(refund(id), /another merchant/)
    expect(await allowed()).toBe(1_000_000n)
  })

  it("comes out of a wallet for the merchant that proved it, whoever was paid to it first", async () => {
    const sale = await on.paid("5.00", "manual")
    await call("PUT", "settings", { payoutAddress: on.merchantShown }, "rival")
    const cent = await on.paid("0.01", "automatic", "rival")
    expect((await call("POST", "payments/capture", { sessionId: sale.id })).status).toBe(200)
    await on.settle()
    await refused(refund(sale.id), /switch your wallet lock on/)
    await on.lock(true)
    await on.lock(false)
    await approve(await asked(sale.id))
    later()
    await on.settle()
    expect([await rig.balanceOf(sale.buyer), (await session(sale.id)).status]).toEqual([5_000_000n, "refunded"])
    await refused(call("POST", "payments/refund", { sessionId: cent.id }, "rival"), /another merchant.*proved/)
    // A key is the same on every network.
    const { merchant_id: shop } = await rig.service.ctx.db
      .selectFrom("escrows")
      .select("merchant_id")
      .where("session_id", "=", sale.id)
      .executeTakeFirstOrThrow()
    expect(await refundOwners(rig.service.ctx, { chainId: 480 }, [on.merchant])).toEqual(new Map([[on.merchant, shop]]))
  })

  it("is withdrawn by its merchant while it has no signature, and its amount is free again", async () => {
    const { id } = await on.paid("5.00")
    const wrong = await asked(id, { amount: "4.00" })
    const withdraw = (refundId: string, as?: string) => call("DELETE", `payments/refunds/${refundId}`, undefined, as)
    expect((await withdraw(wrong.refundId, "rival")).status).toBe(404)
    for (const { status, body } of await Promise.all([withdraw(wrong.refundId), withdraw(wrong.refundId)])) {
      expect([status, body.status, body.approval]).toEqual([200, "failed", null])
      expect(body.message).toMatch(/You withdrew the refund/)
    }
    const right = await asked(id, { amount: "2.00" })
    expect(right.approval.needed).toBe("2.00")
    await on.allow(6_000_000n)
    later()
    await on.settle()
    expect(await session(id)).toMatchObject({ status: "partially_refunded", escrow: { refunded: "2.00" } })
    await refused(withdraw(right.refundId), /can no longer be withdrawn/)
    expect((await refunds("?status=failed")).data).toMatchObject([{ refundId: wrong.refundId, status: "failed" }])
    await expectBooks()
  })

  it("is one of eight that are open, and of a hundred in all; what is left as a whole is so for longer", async () => {
    const { ctx } = rig.service
    const { id } = await on.paid("5.00")
    const open = [await asked(id, { amount: "0.10" })]
    while (open.length < 8) open.push(await asked(id, { amount: "0.10" }))
    await refused(refund(id, { amount: "0.10" }), /8 refunds of this payment are open/)
    open.push(await asked(id))
    expect(open.at(-1)).toMatchObject({ amount: "4.20", approval: { needed: "5.00" } })
    const withdraw = async (each: { refundId: string }) =>
      expect((await call("DELETE", `payments/refunds/${each.refundId}`)).status).toBe(200)
    for (const each of open) await withdraw(each)
    /** Adds `n` refunds that were requested and withdrawn. */
    const more = async (n: number) => {
      const row = await ctx.db.selectFrom("payouts").selectAll().where("kind", "=", "refund").executeTakeFirstOrThrow()
      const { lane: _, mined_at: _at, ...rest } = row
      const copies = Array.from({ length: n }, () => ({
        ...rest,
        id: randomUUID(),
        source_key: `copy:${randomUUID()}`,
      }))
      await ctx.db.insertInto("payouts").values(copies).execute()
    }
    await more(91)
    await refused(refund(id, { amount: "0.10" }), /refunded at most 100 times/)
    await withdraw(await asked(id))
    await more(99)
    await refused(refund(id), /This payment was refunded too often/)
    // Reading the payment reads none of them, and no calldata.
    const { calls } = await inTransaction(ctx, async ctx => {
      const escrowed = await lockEscrow(ctx, id)
      return await standingOfEscrow(ctx, escrowed as Escrowed)
    })
    expect(calls.map(({ kind }) => kind)).toEqual(["reserve", "capture"])
    for (const each of calls) expect(each).not.toHaveProperty("data")
  })

  it("is refused with the reason where nothing can be refunded, and writes nothing then", async () => {
    const direct = (await call("POST", "checkouts", { amount: 5 })).body.id
    await refused(refund(direct), /paid straight to its receiving address.*return/)
    const reserved = await on.paid("5.00", "manual")
    await refused(refund(reserved.id), /Nothing of this checkout is captured yet.*void/)
    const { id } = await on.paid("5.00")
    await refused(refund(id, { amount: "5.000001" }), /At most 5.00 USDC/)
    expect((await refund(id, { amount: "0.001" })).body.details[0].path).toBe("amount")
    expect((await call("POST", "payments/refund", { sessionId: id }, "rival")).status).toBe(404)
    const { refundId } = await asked(id, { amount: "1.00" })
    expect((await call("GET", `payments/refunds/${refundId}`, undefined, "rival")).status).toBe(404)
    await rig.service.ctx.db
      .updateTable("payouts")
      .set({ relay_by: rig.service.ctx.now() })
      .where("kind", "=", "refund")
      .execute()
    await on.round()
    expect((await call("GET", `payments/refunds/${refundId}`)).body.message).toMatch(/before its deadline/)
    await on.advance(99 * 86_400_000)
    await refused(refund(id), /ended at .*payout wallet/)
    expect((await on.calls("refund")).map(({ state }) => state)).toEqual(["cancelled"])
  })
})

it("what a payer takes back itself is in the books, and no payment any more", async () => {
  const { id, buyer } = await on.paid("5.00", "manual")
  await on.settle()
  await on.advance(9 * 86_400_000)
  const { payer, ...terms } = await rig.service.ctx.db.selectFrom("escrows").selectAll().executeTakeFirstOrThrow()
  const args = [paymentInfoOf(terms, payer ?? buyer)] as const
  const data = encodeFunctionData({ abi: authCaptureEscrowAbi, functionName: "reclaim", args })
  await on.sendAs(buyer, { to: on.escrow.address, data })
  await rig.anvil.client.mine({ blocks: 5 })
  await on.look()
  expect((await session(id)).status).toBe("voided")
  const { data: books } = (await call("GET", `books?sessionId=${id}`)).body
  expect(books.map(({ reason, txHash }: Record<string, string>) => [reason, txHash])).toEqual([
    ["reclaim", null],
    ["reserve", expect.stringMatching(/^0x/)],
  ])
  await expectBooks()
})

it("a payout address can't be where the escrow keeps what is reserved", async () => {
  const payoutAddress = await rig.anvil.client.readContract({
    address: on.escrow.address,
    abi: authCaptureEscrowAbi,
    functionName: "getTokenStore",
    args: [rig.service.ctx.settings.relayWallet ?? on.merchant],
  })
  const { status, body } = await rig.service.call("PUT", "/api/console/settings", { payoutAddress }, { as: "shop" })
  expect([status, body.details[0].message]).toEqual([400, expect.stringMatching(/keeps reserved money/)])
})

describe("the hourly comparison", () => {
  it("stops the relay wallet for what is proven alone: an amount of the rows that the chain does not have", async () => {
    const ids = [(await on.paid("5.00")).id, (await on.paid("5.00")).id]
    const [, id = ""] = ids.toSorted()
    await on.settle()
    await compare()
    expect((await relayWallet()).status).toBe("active")
    // An endpoint that returns nothing proves nothing.
    rig.proxy.spoil = (method, _params, result) => (method === "eth_call" ? "0x" : result)
    await compare()
    rig.proxy.spoil = (_method, _params, result) => result
    expect((await relayWallet()).status).toBe("active")
    // Nor does one of two that reports another amount.
    rig.proxy.spoil = (method, [call], result) =>
      method === "eth_call" && JSON.stringify(call).includes(paymentStateSelector)
        ? String(result).replace(AMOUNT_WORD, "0".repeat(64))
        : result
    const honest = newEndpoint(rig.network.name, rig.anvil.rpcUrl)
    await compare({ ...rig.network, endpoints: [...rig.network.endpoints, honest] })
    rig.proxy.spoil = (_method, _params, result) => result
    expect((await relayWallet()).status).toBe("active")
    await rig.service.ctx.db
      .transaction()
      .execute(db =>
        byHand(db, `update payouts set amount = amount - 1 where kind = 'capture' and escrow_id = '${id}'`),
      )
    await compare()
    // With one escrow a page, so that later pages are compared too.
    const quorum = await openQuorum(rig.network, 0n, AbortSignal.timeout(60_000))
    expect(await checkEscrows(rig.service.ctx, rig.network, quorum, 1)).toMatchObject({
      findings: new Map([[rig.relayer.address, expect.objectContaining({ id })]]),
    })
    const { status, halted_reason: reason } = await relayWallet()
    expect([status, reason]).toEqual(["halted", expect.stringMatching(`escrow ${id} say 5000000 authorized, 4999999`)])
  })

  it("stops no wallet for what an earlier one does, whose key was stolen, and takes no capture for a reclaim", async () => {
    const { ctx } = rig.service
    const voided = await on.paid("5.00", "manual")
    const captured = await on.paid("5.00", "manual")
    const infoOf = async ({ id, buyer }: typeof voided) => {
      const row = await ctx.db.selectFrom("escrows").selectAll().where("session_id", "=", id).executeTakeFirstOrThrow()
      return paymentInfoOf(row, buyer)
    }
    const { relayWallet } = ctx.settings
    onTestFinished(() => {
      ctx.settings.relayWallet = relayWallet
    })
    const account = rig.anvil.accounts[4]
    ctx.settings.relayWallet = account.address.toLowerCase() as Address
    const signer = { address: ctx.settings.relayWallet, sign: async () => ({ r: 0n, s: 0n }) }
    await checkWallet(ctx, relayLane(rig.network, signer))
    const to = on.escrow.address
    await on.sendAs(rig.relayer.address, { to, data: voidCall(await infoOf(voided)) })
    const capture = captureCall("v1.1", await infoOf(captured), 5_000_000n)
    await on.sendAs(rig.relayer.address, { to, data: capture })
    await rig.anvil.client.mine({ blocks: 70 })
    await on.look()
    await compare()
    const wallets = ctx.db.selectFrom("wallets").select(["address", "status"]).where("lane", "=", "relay")
    expect(new Map((await wallets.execute()).map(({ address, status }) => [address, status]))).toEqual(
      new Map([
        [rig.relayer.address, "halted"],
        [signer.address, "active"],
      ]),
    )
    for (let i = 0; i < 2; i++) {
      await on.advance(9 * 86_400_000)
      await rig.anvil.client.mine({ blocks: 70 })
      await on.look()
    }
    expect((await session(voided.id)).status).toBe("voided")
    expect(await session(captured.id)).toMatchObject({ status: "authorized", escrow: { released: "0.00" } })
    expect(await rig.balanceOf(on.merchant)).toBe(5_000_000n)
  })

  it("and the doctor find contracts that are not there, or not ours", async () => {
    const { settings } = rig.service.ctx
    const { escrow } = on
    const found = async (given: object, relayWallet = settings.relayWallet) =>
      await checkEscrow({
        settings: { ...settings, relayWallet },
        network: {
          ...rig.network,
          rpcUrls: [rig.anvil.rpcUrl],
          confirmations: 1,
          token: rig.token,
          escrow: { ...escrow, ...given },
        },
        now: () => new Date(),
        signal: AbortSignal.timeout(10_000),
        faulty: new Set(),
      })
    const levels = async (...given: Parameters<typeof found>) =>
      (await found(...given)).map(({ check, level }) => `${check} ${level}`)
    expect(await levels({})).toEqual(["escrow ok", "refund_collector ok"])
    expect(await levels({ address: on.merchant })).toEqual(["escrow alarm"])
    expect(await levels({ refundCollector: undefined })).toEqual(["escrow ok", "refund_collector note"])
    expect(await levels({ refundCollector: rig.token })).toEqual(["escrow ok", "refund_collector alarm"])
    expect(await levels({}, rig.signer.address)).toEqual(["escrow ok", "refund_collector alarm"])
  })
})

const paymentStateSelector = paymentStateCall(zeroHash as Hash).slice(2, 10)
/** 5 USDC, as in the contract's state of a payment. */
const AMOUNT_WORD = (5_000_000).toString(16).padStart(64, "0")

/** The comparison of this hour, now. */
async function compare(network = rig.network): Promise<void> {
  rig.service.advance(3_700_000)
  await reconcileRound(rig.service.ctx, network, rig.signer.address)
}

/** Events of a type that the receiver got, each checked by the clients of two other services. */
async function delivered(type: string, secret: string) {
  const sender = openSender(rig.service.ctx.settings.webhooks)
  const deliverer = openDeliverer(rig.service.ctx, sender)
  do await deliverer.idle()
  while ((await deliverer.round()) > 0)
  await sender.close()
  const { default: Stripe } = await import("stripe")
  const { Webhook } = await import("standardwebhooks")
  const events = receiver.received.map(({ body, headers }: Received) => {
    new Webhook(secret).verify(body, headers)
    return Stripe.webhooks.constructEvent(body, headers["service-signature"] ?? "", secret) as never
  }) as { event: string; data: Record<string, unknown> }[]
  return events.filter(({ event }) => event === type)
}

/** What the merchant's lists say is what the chain has. */
async function expectBooks(): Promise<void> {
  await on.settle()
  const { data } = (await call("GET", `books?deposit=${on.escrow.address}`)).body
  const held = data.reduce(
    (sum: bigint, row: Record<string, string | null>) =>
      sum + units(row.amountIn ?? null) - units(row.amountOut ?? null),
    0n,
  )
  expect(held).toBe(await on.held())
  expect(units(data[0].balance)).toBe(held)
  const csv = String((await call("GET", "books.csv")).body)
    .trim()
    .split("\r\n")
  expect(csv).toHaveLength(data.length + 1)
  const listed = (await call("GET", "transactions")).body.data
  const sumOf = (type: string, status: string) =>
    listed
      .filter((row: Record<string, string>) => row.type === type && row.status === status)
      .reduce((sum: bigint, row: Record<string, string>) => sum + units(row.amount ?? null), 0n)
  const sessions = new Set(listed.map((row: Record<string, string>) => row.sessionId))
  for (const id of sessions) {
    const payments = listed.filter((row: Record<string, string>) => row.sessionId === id && row.type === "payment")
    expect(payments).toMatchObject([{ id, status: (await session(String(id))).status, amount: "5.00" }])
  }
  const [names = [], ...lines] = String((await call("GET", "transactions.csv")).body)
    .trim()
    .split("\r\n")
    .map(line => line.split(","))
  expect(lines).toEqual(
    listed.map(flatValue).map((row: Record<string, unknown>) => names.map(name => String(row[name] ?? ""))),
  )
  const wallet = sumOf("capture", "final") - sumOf("refund", "final")
  expect(wallet).toBe(await rig.balanceOf(on.merchant))
  await compare()
  const wallets = await rig.service.ctx.db.selectFrom("wallets").select("halted_reason").execute()
  expect(wallets.map(({ halted_reason: reason }) => reason)).toEqual([null, null])
}
