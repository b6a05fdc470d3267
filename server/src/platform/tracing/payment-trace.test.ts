/**
 * The trace of a payment, from the request that created it to the merchant's endpoint, through two processes that share
 * only the rows.
 */
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type CollectedSpan, type Collector, startCollector } from "../../../test/collector.ts"
import { until } from "../../../test/e2e/program.ts"
import { DAY_MS, type Life, lifeOf } from "../../../test/life.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { type Receiver, startReceiver } from "../../../test/receiver.ts"
import { relaysOn, signAuthorization } from "../../../test/relays.ts"
import { openDeliverer } from "../../account/webhooks/deliver-events.ts"
import { openSender, type Sender } from "../../account/webhooks/send.ts"
import { sweepDue } from "../../ledger/payouts/make-payouts.ts"
import { payoutLane } from "../../ledger/payouts/payout-lane.ts"
import { notifyDuePayments } from "../../ledger/settlement/notify-paid.ts"
import type { SellingContext } from "../../ledger/settlement/sellable.ts"
import { verifyRound } from "../../ledger/settlement/verify-payments.ts"
import { payoutRound } from "../../ledger/txmanager/run-round.ts"
import type { Address } from "../chain/hex.ts"
import type { Tracing } from "./tracing.ts"

let collector: Collector
let shop: Receiver
let sender: Sender
let tracings: Tracing[]
let rig: PayoutRig
let life: Life
/** The other process: it shares only the rows with the first. */
let worker: SellingContext
let key: string

beforeAll(async () => {
  collector = await startCollector()
  shop = await startReceiver()
  tracings = [await collector.open("api"), await collector.open("worker")]
  rig = await startPayoutRig({ sweepAbove: "1000" }, undefined, {}, tracings[0])
  life = lifeOf(rig)
  worker = { ...rig.service.ctx, tracing: tracings[1] }
  sender = openSender(worker.settings.webhooks)
})
afterAll(async () => {
  await sender?.close()
  await rig?.stop()
  await shop?.stop()
  await collector?.stop()
})
beforeEach(async () => {
  await life.begin()
  const { body } = await rig.service.call("POST", "/api/console/api-keys", { name: "Server" }, { as: "shop" })
  key = body.key
})

async function verify(): Promise<void> {
  await life.mine()
  await worker.db.updateTable("cursors").set({ run_at: worker.now() }).execute()
  await verifyRound(worker, rig.network)
}

async function deliver(): Promise<void> {
  const deliverer = openDeliverer(worker, sender)
  do await deliverer.idle()
  while ((await deliverer.round()) > 0)
}

const payOut = () => payoutRound(worker, payoutLane(rig.network, rig.signer))

/** All that both processes have traced so far. */
async function collected(): Promise<CollectedSpan[]> {
  await Promise.all(tracings.map(tracing => tracing.flush()))
  return collector.spans()
}

const checkout = (body: object, headers: Record<string, string> = {}) =>
  rig.service.call("POST", "/api/checkouts", body, { headers: { "x-api-key": key, ...headers } })

describe("a payment", () => {
  it("is one trace from its request to its delivery, with what may be known and no more", async () => {
    const recipients = [0, 1].map(n => ({ address: recipient(n), percent: 50 }))
    const split = await rig.service.call("POST", "/api/console/splits", { name: "s", recipients }, { as: "shop" })
    const caller = `00-${"ab".repeat(16)}-${"cd".repeat(8)}-01`
    const secrets = { customerEmail: "buyer@example.com", metadata: { order: "hidden-order" } }
    const callbackUrl = `${shop.url}/hidden-path?token=hidden-token`
    const order = { amount: "2.50", splitId: split.body.id, callbackUrl, ...secrets }
    const session = await checkout(order, { traceparent: caller, tracestate: "hidden=state" })
    expect(session.status, JSON.stringify(session.body)).toBe(201)

    const receipt = await life.send(session.body.payTo as Address, 2_500_000n)
    const confirm = { sessionId: session.body.id, txHash: receipt.transactionHash }
    // A caller that is not authenticated can't link a trace.
    const stranger = { headers: { traceparent: `00-${"ef".repeat(16)}-${"cd".repeat(8)}-01` } }
    expect((await rig.service.call("POST", "/api/pay/confirm", confirm, stranger)).status).toBe(200)
    await verify()
    await verify()
    await payOut()
    await life.mine()
    await payOut()
    await notifyDuePayments(worker)
    await deliver()

    const spans = await collected()
    const root = spans.find(({ name }) => name === "POST /api/checkouts")
    expect(root?.attributes).toEqual({
      "http.request.method": "POST",
      "http.route": "/api/checkouts",
      "http.response.status_code": 201,
      "sluice.request.id": session.headers["x-request-id"],
      "sluice.network": "base-sepolia",
      "sluice.resource.id": session.body.id,
    })
    const tree = collector.tree(root?.traceId ?? "", ({ process, name, attributes }) =>
      [process, name, attributes["sluice.transfer.state"] ?? attributes["sluice.payout.state"]].join(" ").trim(),
    )
    expect(tree).toBe(
      `
api POST /api/checkouts
  api transaction
  worker scan seen
  worker settle
    worker transaction
  worker scan confirmed
  worker settle
    worker transaction
    worker sign payout
    worker sign payout
    worker eth_sendRawTransaction
    worker eth_sendRawTransaction
    worker confirm payout mined
    worker confirm payout mined
    worker confirm payout final
    worker confirm payout final
  worker send checkout.session.completed`.trim(),
    )
    // All work for the payment is in its trace, except the request that named its transaction, which is linked.
    const elsewhere = spans.filter(
      ({ name, traceId }) => !/^(GET|POST|PUT) |^transaction$/.test(name) && traceId !== root?.traceId,
    )
    expect(elsewhere).toEqual([])
    const asked = spans.find(({ name }) => name === "POST /api/pay/confirm")
    expect(asked?.traceId).not.toBe(root?.traceId)
    expect(asked?.links).toEqual([`${root?.traceId}-${root?.spanId}`])
    expect(root?.links).toEqual([`${"ab".repeat(16)}-${"cd".repeat(8)}`])
    expect(root?.parentSpanId ?? "").toBe("")

    const payment = await worker.db.selectFrom("payments").selectAll().executeTakeFirstOrThrow()
    const signed = spans.find(({ name }) => name === "eth_sendRawTransaction")
    // There are two payouts, and either may be sent first.
    const payout = await worker.db
      .selectFrom("payouts")
      .selectAll()
      .where("id", "=", String(signed?.attributes["sluice.payout.id"]))
      .executeTakeFirstOrThrow()
    expect(signed?.attributes).toEqual({
      "rpc.system.name": "jsonrpc",
      "rpc.method": "eth_sendRawTransaction",
      "sluice.network": "base-sepolia",
      "sluice.payout.id": payout.id,
      "sluice.payout.kind": "share",
      "sluice.payment.id": payment.id,
      "sluice.transaction.hash": payout.tx_hash,
      "sluice.broadcast.result": "sent",
    })
    const sent = spans.find(({ name }) => name === "send checkout.session.completed")
    const delivered = shop.received.find(({ path }) => path.includes("hidden-path"))
    expect(delivered?.headers.traceparent).toBe(`00-${root?.traceId}-${sent?.spanId}-01`)
    expect(sent?.attributes).toMatchObject({ "server.address": "127.0.0.1", "http.response.status_code": 200 })
    const words = collector.received.map(({ body }) => body).join()
    for (const secret of ["hidden", "buyer@", key, payout.data.slice(10, 80), "x-api-key", "ef".repeat(16)])
      expect(words).not.toContain(secret)
    expect(rig.proxy.headerNames).not.toContain("traceparent")
    expect(spans.filter(({ isError }) => isError)).toEqual([])
  })

  it("of a buyer's own accord begins a trace when it is settled, and a sweep of two has its own, which names both", async () => {
    const paywall = await rig.sell()
    const named = await life.send(paywall.deposit.address, 600_000n)
    const submitted = { txHash: named.transactionHash, address: rig.anvil.accounts[3].address }
    const asked = await rig.service.call("POST", `/api/paywalls/${paywall.id}/pay`, submitted)
    expect(asked.status, JSON.stringify(asked.body)).toBe(200)
    await verify()
    await verify()
    await rig.paid(paywall, 700_000n)
    await life.advance(2 * DAY_MS)
    await sweepDue(worker, rig.network)
    await payOut()

    const spans = await collected()
    const request = spans.find(({ name }) => name === "POST /api/paywalls/:id/pay")
    const settled = spans.filter(({ name, attributes }) => name === "settle" && attributes["sluice.payment.id"])
    const ofPaywall = settled.filter(({ attributes }) => attributes["sluice.resource.id"] === paywall.id)
    expect(new Set(ofPaywall.map(({ parentSpanId = "" }) => parentSpanId))).toEqual(new Set([request?.spanId, ""]))
    expect(new Set(ofPaywall.map(({ traceId }) => traceId)).size).toBe(2)
    const sweep = spans.find(({ name }) => name === "sweep")
    expect(sweep?.links.sort()).toEqual(ofPaywall.map(({ traceId, spanId }) => `${traceId}-${spanId}`).sort())
    const steps = spans.filter(({ traceId }) => traceId === sweep?.traceId).map(({ name }) => name)
    expect(steps.sort()).toEqual(["confirm payout", "eth_sendRawTransaction", "sign payout", "sweep"])
  })

  it("by signatures is one trace too, of the checkout's request or of the agent's that pays", async () => {
    const on = relaysOn(rig)
    await on.begin()
    const session = await on.start()
    expect((await on.submit(session, await on.sign(await on.buyer(), session))).status).toBe(200)

    const article = { name: "Report", price: "0.50", slug: "report", contentData: { text: "the content" } }
    await rig.service.call("POST", "/api/console/paywalls", article, { as: "shop" })
    const ask = (headers: Record<string, string>) => rig.service.call("GET", "/api/p/report", undefined, { headers })
    const { accepts } = decoded(`${(await ask({})).headers["payment-required"]}`)
    const validBefore = BigInt(Math.floor(worker.now().getTime() / 1_000) + 60)
    const asked = { to: accepts[0].payTo.toLowerCase() as Address, value: 500_000n, validBefore }
    const payAs = async (buyer: PrivateKeyAccount) => {
      const { authorization, signature } = await signAuthorization(buyer, rig.network, asked)
      const written = Object.fromEntries(Object.entries(authorization).map(([name, value]) => [name, `${value}`]))
      const payload = { x402Version: 2, accepted: accepts[0], payload: { signature, authorization: written } }
      return await ask({ "payment-signature": encoded(payload) })
    }
    // Two agents, whose payments share a transaction.
    const paying = [payAs(await on.buyer()), payAs(await on.buyer())]
    await until("all relays are there", async () => (await on.relays()).length === 3)
    await on.round()
    expect((await on.relays()).map(({ kind }) => kind).sort()).toEqual(["authorize", "batch", "settle", "settle"])
    expect((await Promise.all(paying)).map(({ status }) => status)).toEqual([200, 200])
    await life.mine()
    await on.round()
    await on.look()

    const spans = await collected()
    const payments = await worker.db.selectFrom("payments").selectAll().execute()
    const steps = (payment: { traceparent: string | null }) => {
      const names = spans.filter(({ traceId }) => traceId === payment.traceparent?.slice(3, 35)).map(({ name }) => name)
      return names.filter(name => !["scan", "settle", "transaction"].includes(name)).sort()
    }
    const relayed = ["confirm payout", "confirm payout", "eth_sendRawTransaction", "sign payout"]
    const agents = payments.filter(({ agent }) => agent)
    const checkout = payments.filter(({ resource_id }) => resource_id === session.id)
    expect(checkout.map(steps)).toEqual([["POST /api/console/checkouts", ...relayed]])
    expect(agents.map(steps)).toEqual([
      ["GET /api/p/:slug", ...relayed],
      ["GET /api/p/:slug", ...relayed],
    ])
    const traceOf = (payment: { traceparent: string | null }) =>
      spans.filter(span => span.traceId === payment.traceparent?.slice(3, 35)).map(({ name }) => name)
    for (const payment of payments) expect(traceOf(payment)).toEqual(expect.arrayContaining(["scan", "settle"]))
    expect(checkout.map(traceOf)).toEqual([expect.arrayContaining(["transaction"])])
    // Claims that come together are written in one transaction, which has a trace of its own.
    const written =
      spans.some(({ name }) => name === "claim payments") || agents.flatMap(traceOf).includes("transaction")
    expect(written).toBe(true)
    const submitted = spans.find(({ name }) => name === "POST /api/pay/authorize")
    expect(submitted?.links).toHaveLength(1)
  })
})

const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64")
const decoded = (header: string) => JSON.parse(Buffer.from(header, "base64").toString())
