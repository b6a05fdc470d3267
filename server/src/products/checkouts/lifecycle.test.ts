/** Checkout sessions on a real chain, to each of their ends. */
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi, type Hex, parseUnits } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import {
  type Anvil,
  deployDepositFactory,
  deployOtherToken,
  deploySanctionsList,
  deployTestUsdc,
  placeSharedContracts,
  startAnvil,
} from "../../../test/anvil.ts"
import { fundPayers } from "../../../test/payers.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { checkDormantDeposits, makeDepositsDormant } from "../../ledger/scanner/check-dormant-deposits.ts"
import { ensureCursor } from "../../ledger/scanner/scan-round.ts"
import { verifyRound } from "../../ledger/settlement/verify-payments.ts"
import { otherTokenAbi, sanctionsListAbi } from "../../platform/chain/abi.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
let anvil: Anvil
let token: Address
let oracle: Address
let service: TestService
let key: string

beforeAll(async () => {
  anvil = await startAnvil({ slotsInAnEpoch: 10 })
  token = await deployTestUsdc(anvil.client)
  const depositFactory = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
  oracle = await deploySanctionsList(anvil.client)
  await placeSharedContracts(anvil.client)
  await fundPayers(anvil, token)
  const rest = { token, depositFactory, confirmations: 3, sanctionsOracle: oracle }
  service = await startService({
    networks: [{ name: "base-sepolia", chainId: 84532, rpcUrls: [anvil.rpcUrl], ...rest }],
  })
})
afterAll(async () => {
  await service?.stop()
  await anvil?.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  key = (await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as: "shop" })).body.key
  await ensureCursor(service.ctx, network())
  // Each block that is mined at once moves the chain's clock forward; the service's clock follows it.
  await catchUp()
})

const network = (): Network => service.ctx.chain.networks[0] as Network
const withKey = () => ({ headers: { "x-api-key": key } })
const buyer = (i: number) => anvil.accounts[(i + 2) as 2]

async function catchUp(): Promise<void> {
  const { timestamp } = await anvil.client.getBlock()
  const ahead = Number(timestamp) * 1_000 - service.ctx.now().getTime()
  if (ahead > 0) service.advance(ahead)
  else
    await anvil.client.setNextBlockTimestamp({
      timestamp: BigInt(Math.floor(service.ctx.now().getTime() / 1_000)) + 1n,
    })
}

/** Moves the time of the service and of the chain. */
async function pass(ms: number): Promise<void> {
  service.advance(ms)
  await catchUp()
  await anvil.client.mine({ blocks: 1 })
}

async function start(body: object = { amount: 5 }) {
  const { status, body: session } = await service.call("POST", "/api/checkouts", body, withKey())
  expect(status, JSON.stringify(session)).toBe(201)
  return session as { id: string; payTo: string; expiresAt: string; url: string }
}

async function pay(to: string, amount: string, from = 0, asset = token): Promise<Hex> {
  await catchUp()
  const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to as Hex, parseUnits(amount, 6)] })
  const hash = await anvil.client.sendTransaction({ account: buyer(from), to: asset, data })
  await anvil.client.waitForTransactionReceipt({ hash })
  return hash
}

const confirm = (sessionId: string, txHash: string, more: object = {}) =>
  service.call("POST", "/api/pay/confirm", { sessionId, txHash, ...more })
const status = async (id: string) => (await service.call("GET", `/api/pay/status/${id}`)).body
const whole = async (id: string) => (await service.call("GET", `/api/checkouts/${id}`, undefined, withKey())).body
const payments = () => service.ctx.db.selectFrom("payments").selectAll().orderBy("created_at").orderBy("id").execute()

async function rounds(count = 2, mine = 3): Promise<void> {
  for (let i = 0; i < count; i++) {
    await anvil.client.mine({ blocks: mine })
    await catchUp()
    await service.ctx.db
      .updateTable("cursors")
      .set({ run_at: new Date(0) })
      .execute()
    await verifyRound(service.ctx, network())
  }
}

describe("a checkout", () => {
  it("paid with a submitted hash is confirmed once it is deep enough", async () => {
    const session = await start({ amount: "5.00", redirectUrl: "https://shop.example/thanks", metadata: { order: 7 } })
    expect(session.url).toContain(`/pay/${session.id}`)
    expect(await status(session.id)).toMatchObject({ status: "pending", redirectUrl: null, message: "Send 5.00 USDC." })
    const txHash = await pay(session.payTo, "5")
    expect((await confirm(session.id, txHash)).body).toEqual({ status: "verifying", sessionId: session.id, txHash })
    await rounds(1, 0)
    expect(await status(session.id)).toMatchObject({ status: "verifying", confirmations: 1, requiredConfirmations: 3 })
    await rounds()
    expect(await status(session.id)).toMatchObject({
      status: "confirmed",
      exception: null,
      amountReceived: "5.00",
      txHash,
      redirectUrl: "https://shop.example/thanks",
      message: "The payment is confirmed.",
    })
    expect(await whole(session.id)).toMatchObject({ metadata: { order: 7 }, payer: buyer(0).address })
    expect(await payments()).toMatchObject([{ resource_id: session.id, status: "granted", amount: 5_000_000n }])
    expect(await confirm(session.id, txHash)).toMatchObject({
      status: 409,
      body: { error: "SESSION_ALREADY_CONFIRMED" },
    })
    await rounds(8)
    expect(await status(session.id)).toMatchObject({ status: "confirmed", txHash })
  })

  it("paid from elsewhere, without a hash, is confirmed anyway", async () => {
    const session = await start()
    await pay(session.payTo, "5")
    await rounds(1, 0)
    expect(await status(session.id)).toMatchObject({ status: "verifying" })
    await rounds()
    expect(await status(session.id)).toMatchObject({ status: "confirmed", amountReceived: "5.00" })
  })

  it("is answered by a long-poll as soon as it ends", async () => {
    const session = await start()
    await pay(session.payTo, "5")
    const waiting = service.call("GET", `/api/pay/status/${session.id}?wait=25`)
    await rounds()
    expect((await waiting).body.status).toBe("confirmed")
  })

  it("that nobody pays expires, and not before everything mined in time was scanned", async () => {
    const session = await start({ amount: 5, expiresIn: 300 })
    await rounds(1)
    await pass(4 * MINUTE)
    await rounds(1)
    expect((await status(session.id)).status).toBe("pending")
    await pass(2 * MINUTE)
    await rounds(2)
    await pass(MINUTE)
    await rounds(1)
    expect(await status(session.id)).toMatchObject({
      status: "expired",
      exception: null,
      message: "The time to pay has ended. Start a new checkout.",
    })
    expect(await payments()).toEqual([])
  })

  it("paid in time by somebody whose page is closed is found before it expires", async () => {
    const session = await start({ amount: 5, expiresIn: 4 * 3_600 })
    await rounds(1)
    // Nobody views it any more, so its address leaves the scan.
    await pass(2 * HOUR)
    await makeDepositsDormant(service.ctx, network())
    expect((await service.ctx.db.selectFrom("deposits").select("watched").executeTakeFirstOrThrow()).watched).toBe(
      false,
    )
    await pay(session.payTo, "5")
    await rounds(2)
    expect(
      (await service.ctx.db.selectFrom("checkout_sessions").select("status").executeTakeFirstOrThrow()).status,
    ).toBe("pending")
    await pass(2 * HOUR + MINUTE)
    for (let i = 0; i < 3; i++) {
      await rounds(1)
      await pass(31_000)
    }
    expect(await whole(session.id)).toMatchObject({ status: "confirmed", exception: null })
  })

  it("with a hash that was no payment goes on; the submission says why, and wakes who asks about it", async () => {
    const session = await start()
    const other = await start()
    const txHash = await pay(buyer(3).address, "5")
    await confirm(session.id, txHash)
    const asked = service.call("GET", `/api/pay/status/${session.id}?wait=25&txHash=${txHash}`)
    await rounds(3)
    const state = { status: "pending", exception: null, txHash: null, message: "Send 5.00 USDC." }
    const submission = { txHash, status: "failed", message: expect.stringContaining(`went to ${buyer(3).address}`) }
    expect((await asked).body).toMatchObject({ submission })
    expect(await status(session.id)).toMatchObject({ ...state, submission })
    expect((await status(other.id)).submission).toBeNull()
    expect(
      await service.ctx.db.selectFrom("events").select("type").where("type", "like", "checkout.%").execute(),
    ).toEqual([])
    expect((await service.call("GET", `/api/pay/status/${session.id}?txHash=0x1`)).status).toBe(400)
    expect((await status(other.id)).status).toBe("pending")
    const good = await pay(session.payTo, "5")
    expect((await confirm(session.id, good)).status).toBe(200)
    await rounds(3)
    expect(await status(session.id)).toMatchObject({ status: "confirmed", txHash: good })
  })

  it("paid too little says how much is missing; topped up it is confirmed", async () => {
    const session = await start()
    const first = await pay(session.payTo, "4.99")
    await confirm(session.id, first)
    await rounds(3)
    expect(await status(session.id)).toMatchObject({
      status: "verifying",
      exception: "underpaid",
      amountReceived: "4.99",
      message: "4.99 of 5.00 USDC arrived; send 0.01 more.",
    })
    const [open] = await payments()
    expect(open).toMatchObject({ status: "open", exception: "underpaid", amount: 4_990_000n })
    const second = await pay(session.payTo, "0.01", 1)
    await rounds(3)
    expect(await status(session.id)).toMatchObject({ status: "confirmed", exception: null, txHash: second })
    expect(await payments()).toMatchObject([{ id: open?.id, status: "granted", exception: null, amount: 5_000_000n }])
  })

  it("paid too little when its time is over has expired, and the money waits for the merchant", async () => {
    const session = await start({ amount: 5, expiresIn: 300 })
    await pay(session.payTo, "3")
    await rounds(2)
    await pass(6 * MINUTE)
    for (let i = 0; i < 3; i++) {
      await rounds(1)
      await pass(31_000)
    }
    expect(await status(session.id)).toMatchObject({
      status: "expired",
      exception: "underpaid",
      amountReceived: "3.00",
    })
    const listed = await service.call("GET", "/api/console/checkouts?exception=underpaid", undefined, { as: "shop" })
    expect(listed.body).toMatchObject({ total: 1, data: [{ id: session.id }] })
  })

  it("paid too much is confirmed, and says so", async () => {
    const session = await start()
    await pay(session.payTo, "7")
    await rounds(3)
    expect(await status(session.id)).toMatchObject({
      status: "confirmed",
      exception: "overpaid",
      amountReceived: "7.00",
    })
    expect(await payments()).toMatchObject([{ status: "granted", exception: "overpaid", amount: 7_000_000n }])
  })

  it("paid twice is confirmed once; the second payment waits for the merchant", async () => {
    const session = await start()
    const first = await pay(session.payTo, "5")
    await rounds(3)
    const second = await pay(session.payTo, "5", 1)
    await rounds(3)
    expect(await status(session.id)).toMatchObject({ status: "confirmed", exception: "duplicate", txHash: first })
    expect(await payments()).toMatchObject([
      { status: "granted", tx_hash: first },
      { status: "open", exception: "duplicate", tx_hash: second, amount: 5_000_000n },
    ])
  })

  it("paid late stays expired, and the money waits for the merchant", async () => {
    const session = await start({ amount: 5, expiresIn: 300 })
    await pass(6 * MINUTE)
    for (let i = 0; i < 3; i++) {
      await rounds(1)
      await pass(31_000)
    }
    expect((await whole(session.id)).status).toBe("expired")
    const txHash = await pay(session.payTo, "5")
    expect((await confirm(session.id, txHash)).status).toBe(200)
    await rounds(3)
    expect(await status(session.id)).toMatchObject({ status: "expired", exception: "late", amountReceived: "5.00" })
    expect(await payments()).toMatchObject([{ status: "open", exception: "late", tx_hash: txHash }])
  })

  it("paid late and unnoticed is found by its balance for 30 days; after them a hash is refused", async () => {
    const session = await start({ amount: 5, expiresIn: 300 })
    await pass(6 * MINUTE)
    for (let i = 0; i < 3; i++) {
      await rounds(1)
      await pass(31_000)
    }
    await pass(2 * HOUR)
    await makeDepositsDormant(service.ctx, network())
    await pass(20 * DAY)
    await pay(session.payTo, "5")
    await checkDormantDeposits(service.ctx, network())
    await rounds(3)
    expect(await whole(session.id)).toMatchObject({ status: "expired", exception: "late", amountReceived: "5.00" })
    await pass(11 * DAY)
    expect(await confirm(session.id, `0x${"12".repeat(32)}`)).toMatchObject({
      status: 410,
      body: { error: "SESSION_EXPIRED" },
    })
    await makeDepositsDormant(service.ctx, network())
    await pass(2 * HOUR)
    await checkDormantDeposits(service.ctx, network())
    const deposit = await service.ctx.db
      .selectFrom("deposits")
      .select(["watched", "check_at"])
      .executeTakeFirstOrThrow()
    expect(deposit).toEqual({ watched: false, check_at: null })
  })

  it("paid in another token says so, and can still be paid", async () => {
    const session = await start()
    const other = await deployOtherToken(anvil.client)
    await anvil.client.writeContractSync({
      address: other,
      abi: otherTokenAbi,
      functionName: "mint",
      args: [buyer(0).address, parseUnits("5", 6)],
    })
    const txHash = await pay(session.payTo, "5", 0, other)
    await confirm(session.id, txHash)
    await rounds(3)
    expect(await status(session.id)).toMatchObject({
      status: "pending",
      exception: "wrong_asset",
      amountReceived: "0.00",
    })
    await pay(session.payTo, "5")
    await rounds(3)
    expect((await status(session.id)).status).toBe("confirmed")
  })

  it("a stranger who submits somebody's fresh hash for his own changes nothing for either", async () => {
    const victims = await start()
    const strangers = await start()
    const txHash = await pay(victims.payTo, "5")
    await confirm(strangers.id, txHash)
    await rounds(1, 0)
    await confirm(victims.id, txHash)
    await rounds(2)
    // A receipt that was not deep enough is requested again after a moment.
    service.advance(6_000)
    await rounds(2)
    expect(await status(victims.id)).toMatchObject({ status: "confirmed", txHash })
    const state = await status(strangers.id)
    expect(state).toMatchObject({ status: "pending", amountReceived: "0.00", submission: { status: "failed" } })
    expect(state.submission.message).toContain("belongs to another checkout")
    expect(state.submission.message).not.toContain(victims.id)
    const third = await start()
    expect(await confirm(third.id, txHash)).toMatchObject({ status: 409, body: { error: "TXHASH_ALREADY_USED" } })
    expect((await status(third.id)).status).toBe("pending")
  })

  it("paid by a sanctioned wallet is not confirmed; one that says so is refused", async () => {
    const session = await start()
    const set = (value: boolean) =>
      anvil.client.writeContractSync({
        address: oracle,
        abi: sanctionsListAbi,
        functionName: "setSanctioned",
        args: [buyer(5).address, value],
      })
    await set(true)
    try {
      const txHash = await pay(session.payTo, "5", 5)
      expect(await confirm(session.id, txHash, { payerAddress: buyer(5).address })).toMatchObject({ status: 403 })
      // If he does not name his address, the session waits only until his transfer is found.
      expect(await confirm(session.id, txHash)).toMatchObject({ status: 200 })
      await rounds(3)
      expect(await status(session.id)).toMatchObject({ status: "pending", amountReceived: "0.00" })
      expect((await status(session.id)).message).toContain("sanctions list")
      await pay(session.payTo, "5", 0)
      await rounds(3)
      expect(await status(session.id)).toMatchObject({ status: "confirmed", exception: null })
    } finally {
      await set(false)
    }
  })

  it("that got only a sanctioned wallet's money ends as failed, and the merchant is notified", async () => {
    const list = { address: oracle, abi: sanctionsListAbi, functionName: "setSanctioned" } as const
    await anvil.client.writeContractSync({ ...list, args: [buyer(6).address, true] })
    try {
      const session = await start({ amount: 5, expiresIn: 300 })
      const txHash = await pay(session.payTo, "5", 6)
      await confirm(session.id, txHash)
      await rounds(3)
      expect(await status(session.id)).toMatchObject({ status: "pending", amountReceived: "0.00" })
      await pass(6 * MINUTE)
      for (let i = 0; i < 3; i++) {
        await rounds(1)
        await pass(31_000)
      }
      expect(await status(session.id)).toMatchObject({ status: "failed", exception: null, amountReceived: "0.00" })
      const { submission } = (await service.call("GET", `/api/pay/status/${session.id}?txHash=${txHash}`)).body
      expect(submission).toMatchObject({ status: "failed", message: expect.stringContaining("sanctions list") })
      const events = await service.ctx.db.selectFrom("events").select("type").execute()
      expect(events.map(({ type }) => type).filter(type => type.startsWith("checkout."))).toEqual(["checkout.failed"])
    } finally {
      await anvil.client.writeContractSync({ ...list, args: [buyer(6).address, false] })
    }
  })

  it("taken back by a reorg is verifying again; mined again it is confirmed, as the same payment", async () => {
    const session = await start()
    const txHash = await pay(session.payTo, "5")
    const raw = await anvil.client.getTransaction({ hash: txHash })
    await rounds(3)
    expect((await status(session.id)).status).toBe("confirmed")
    const [before] = await payments()
    await anvil.client.reorg(12)
    for (let i = 0; i < 3; i++) {
      await rounds(1)
      service.advance(31_000)
    }
    expect(await status(session.id)).toMatchObject({ status: "pending", amountReceived: "0.00", txHash: null })
    expect(await payments()).toMatchObject([{ id: before?.id, status: "reversed" }])
    const again = await anvil.client.sendTransaction({ account: buyer(0), to: token, data: raw.input })
    await anvil.client.waitForTransactionReceipt({ hash: again })
    await rounds(3)
    expect((await status(session.id)).status).toBe("confirmed")
    expect(await payments()).toMatchObject([{ id: before?.id, status: "granted" }])
  })
})

describe("what the merchant is notified of", () => {
  const events = async () => {
    const rows = await service.ctx.db
      .selectFrom("events")
      .selectAll()
      .where("type", "not like", "settings.%")
      .orderBy("created_at")
      .orderBy("id")
      .execute()
    return rows.map(row => ({ type: row.type, key: row.dedupe_key, id: row.id, ...JSON.parse(row.body) }))
  }
  const typesOf = async () => (await events()).map(event => event.type).sort()

  it("of a session has every field of both published payloads", async () => {
    const product = (await service.call("POST", "/api/console/products", { name: "Report", price: 5 }, { as: "shop" }))
      .body
    const session = await start({ productId: product.id, payerInfo: ["name"] })
    const txHash = await pay(session.payTo, "6")
    const said = { payerInfo: { name: "Ann" }, customerEmail: "ann@example.com" }
    await confirm(session.id, txHash, said)
    await rounds(3)
    const [event, ...rest] = (await events()).filter(each => each.type === "checkout.session.completed")
    expect(rest).toEqual([])
    const { id, createdAt, data } = event as { id: string; createdAt: string; data: Record<string, unknown> }
    expect(id).toMatch(/^evt_[a-z0-9]{24}$/)
    expect(new Date(createdAt).toISOString()).toBe(createdAt)
    const { merchantId, confirmedAt } = await whole(session.id)
    expect(data).toEqual({
      // The fields of the event's version without an envelope.
      id: session.id,
      amount: "5.00",
      currency: "USDC",
      status: "confirmed",
      txHash,
      chain: "base-sepolia",
      chainId: 84532,
      // No explorer knows the chain of a sandbox.
      explorerUrl: null,
      ...said,
      // The fields of the version with an envelope.
      sessionId: session.id,
      merchantId,
      productId: product.id,
      confirmedAt,
      receiptUrl: `http://127.0.0.1:4000/receipt/${session.id}`,
      // Our own additional fields.
      amountReceived: "6.00",
      exception: "overpaid",
      payer: buyer(0).address,
      paywallId: null,
      description: "Report",
      metadata: null,
      sequence: 1,
    })
    expect(await typesOf()).toEqual(["checkout.confirmed", "checkout.session.completed", "payment.exception"])
  })

  it("of a paywall's payment is a completed session too, under the payment's id", async () => {
    const { id } = (await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" }))
      .body
    const { payTo } = (await service.call("GET", `/api/paywalls/${id}`)).body
    const txHash = await pay(payTo, "5")
    await service.call("POST", `/api/paywalls/${id}/pay`, { txHash, address: buyer(0).address })
    await rounds(3)
    const [payment] = await payments()
    const event = (await events()).find(each => each.type === "checkout.session.completed")
    expect(event?.data).toMatchObject({
      id: payment?.id,
      sessionId: payment?.id,
      paywallId: id,
      payer: buyer(0).address,
      status: "confirmed",
      amount: "5.00",
      txHash,
    })
    expect(await typesOf()).toEqual(["checkout.confirmed", "checkout.session.completed", "paywall.granted"])
  })

  /** Inserts an endpoint directly, without registering it. */
  async function hook(letter: string, events: string[]): Promise<string> {
    const { ctx } = service
    const { id: merchant_id } = await ctx.db.selectFrom("merchants").select("id").executeTakeFirstOrThrow()
    const row = { merchant_id, url: "https://shop.example/", description: null, active: true }
    const id = `c${letter.repeat(24)}`
    await ctx.db
      .insertInto("webhooks")
      .values({ ...row, id, events: JSON.stringify(events), created_at: ctx.now(), updated_at: ctx.now() })
      .execute()
    return id
  }
  /** The events of a session and their destinations, by sequence. */
  async function sentAbout(session: { id: string }): Promise<string[]> {
    const rows = await service.ctx.db
      .selectFrom("deliveries")
      .innerJoin("events", "events.id", "deliveries.event_id")
      .select(["events.type", "deliveries.webhook_id", "deliveries.url"])
      .where("deliveries.order_key", "=", session.id)
      .orderBy(sql`(events.body::json -> 'data' ->> 'sequence')::int`)
      .orderBy("events.type")
      .orderBy("deliveries.webhook_id")
      .execute()
    return rows.map(row => `${row.type} → ${row.webhook_id ?? row.url}`)
  }

  it("is sent once while it stands; its reversal reaches whoever was sent it, and so does its return", async () => {
    const all = await hook("a", ["*"])
    const named = await hook("b", ["checkout.session.completed"])
    const confirmed = await hook("d", ["checkout.confirmed"])
    await hook("e", ["checkout.failed", "paywall.granted"])
    const callbackUrl = "http://127.0.0.1:9/hook"
    const own = await start({ amount: 5, callbackUrl })
    const other = await start({ amount: 5, metadata: { order: 7 } })
    const hashes = [await pay(own.payTo, "5"), await pay(other.payTo, "5")]
    const inputs = await Promise.all(hashes.map(async hash => (await anvil.client.getTransaction({ hash })).input))
    await rounds(3)
    const before = await events()
    await service.ctx.db
      .updateTable("checkout_sessions")
      .set({ run_at: new Date(0) })
      .execute()
    await rounds(1)
    expect(await events()).toEqual(before)
    // A later change of its subscriptions does not keep a reversal from an endpoint.
    await service.ctx.db
      .updateTable("webhooks")
      .set({ events: JSON.stringify(["checkout.failed"]) })
      .where("id", "=", named)
      .execute()
    await anvil.client.reorg(15)
    for (let i = 0; i < 3; i++) {
      await rounds(1)
      service.advance(31_000)
    }
    expect((await whole(own.id)).status).toBe("pending")
    for (const input of inputs)
      await anvil.client.waitForTransactionReceipt({
        hash: await anvil.client.sendTransaction({ account: buyer(0), to: token, data: input }),
      })
    await rounds(3)
    expect((await whole(own.id)).status).toBe("confirmed")
    expect(await sentAbout(own)).toEqual([
      `checkout.session.completed → ${callbackUrl}`,
      `checkout.session.reversed → ${callbackUrl}`,
      `checkout.session.completed → ${callbackUrl}`,
    ])
    expect(await sentAbout(other)).toEqual([
      `checkout.confirmed → ${confirmed}`,
      `checkout.session.completed → ${all}`,
      `checkout.session.completed → ${named}`,
      `checkout.session.reversed → ${all}`,
      `checkout.session.reversed → ${named}`,
      `checkout.session.reversed → ${confirmed}`,
      `checkout.confirmed → ${confirmed}`,
      `checkout.session.completed → ${all}`,
    ])
    // Whatever the order of arrival, the event with the greatest sequence has the final state.
    const about = (await events()).filter(({ data }) => data.id === other.id && data.metadata.order === 7)
    const inTurn = about.sort((a, b) => a.data.sequence - b.data.sequence || a.type.localeCompare(b.type))
    expect(inTurn.map(({ type, data }) => [data.sequence, type, data.status, data.txHash !== null])).toEqual([
      [1, "checkout.confirmed", "confirmed", true],
      [1, "checkout.session.completed", "confirmed", true],
      [2, "checkout.session.reversed", "pending", true],
      [3, "checkout.confirmed", "confirmed", true],
      [3, "checkout.session.completed", "confirmed", true],
    ])
  })

  it("goes to the session's callback alone, where it has one, and else to whoever wants it", async () => {
    const all = await hook("a", ["*"])
    const named = await hook("b", ["checkout.confirmed", "checkout.failed"])
    const callbackUrl = "http://127.0.0.1:9/hook"
    const own = await start({ amount: 5, callbackUrl })
    const other = await start()
    await confirm(own.id, await pay(own.payTo, "5"))
    await confirm(other.id, await pay(other.payTo, "5"))
    await rounds(3)
    expect(await sentAbout(own)).toEqual([`checkout.session.completed → ${callbackUrl}`])
    expect(await sentAbout(other)).toEqual([`checkout.confirmed → ${named}`, `checkout.session.completed → ${all}`])
  })

  it("of a failed or an expired session is for those who name it", async () => {
    const soon = { amount: 5, expiresIn: 300 }
    const failed = await start(soon)
    const expired = await start(soon)
    await confirm(failed.id, await pay(buyer(3).address, "5"))
    await rounds(3)
    await pass(6 * MINUTE)
    for (let i = 0; i < 3; i++) {
      await rounds(1)
      await pass(31_000)
    }
    // Both are due at the same time, in the order of their random ids.
    const sent = (await events()).sort((a, b) => (a.type < b.type ? -1 : 1))
    expect(sent.map(event => [event.type, event.data.id, event.data.status])).toEqual([
      ["checkout.expired", expired.id, "expired"],
      ["checkout.failed", failed.id, "failed"],
    ])
    expect(sent[1].data).toMatchObject({ txHash: null, explorerUrl: null, confirmedAt: null, amountReceived: "0.00" })
  })
})

describe("a payment link", () => {
  const link = async (body: object) =>
    (await service.call("POST", "/api/console/payment-links", { title: "Sale", slug: "sale", ...body }, { as: "shop" }))
      .body
  const open = (body: object) => service.call("POST", "/api/pay/sessions", { slug: "sale", ...body })

  it("used once of twenty sessions: one wins, the money of the others waits for the merchant", async () => {
    const { id } = await link({ amount: 5, maxUses: 1 })
    const sessions = await Promise.all(Array.from({ length: 20 }, async () => (await open({})).body))
    for (const [i, session] of sessions.entries()) await pay(session.payTo, "5", i % 5)
    await rounds(3)
    const states = await Promise.all(sessions.map(session => status(session.sessionId)))
    expect(states.filter(state => state.status === "confirmed").length).toBe(1)
    expect(states.filter(state => state.status === "failed" && state.exception === "duplicate").length).toBe(19)
    const rows = await payments()
    expect(rows.map(row => row.amount)).toEqual(Array(20).fill(5_000_000n))
    expect(rows.filter(row => row.status === "open" && row.exception === "duplicate").length).toBe(19)
    expect((await service.call("GET", `/api/console/payment-links/${id}`, undefined, { as: "shop" })).body.uses).toBe(1)
    expect(await open({})).toMatchObject({ status: 410, body: { error: "LINK_UNAVAILABLE" } })
    // When the link gets more uses, the next settlement serves the earliest payment first.
    await service.call("PUT", `/api/console/payment-links/${id}`, { maxUses: 2 }, { as: "shop" })
    expect((await open({})).status).toBe(201)
  })

  it("of an open amount takes what the payer says; one of its own takes none", async () => {
    await link({})
    expect((await open({ amount: "12.5" })).body).toMatchObject({ amount: "12.50", currency: "USDC" })
    expect(await open({})).toMatchObject({ status: 400, body: { details: [{ path: "amount" }] } })
    await link({ slug: "fixed", amount: 3 })
    expect(await open({ slug: "fixed", amount: 4 })).toMatchObject({
      status: 400,
      body: { details: [{ path: "amount" }] },
    })
    expect((await open({ slug: "fixed" })).body.amount).toBe("3.00")
  })

  it("ends: unknown, expired, switched off", async () => {
    expect(await open({})).toMatchObject({ status: 404, body: { error: "LINK_NOT_FOUND" } })
    const { id } = await link({ amount: 5, expiresAt: new Date(service.ctx.now().getTime() + HOUR).toISOString() })
    expect((await open({})).status).toBe(201)
    service.advance(2 * HOUR)
    expect(await open({})).toMatchObject({ status: 410 })
    await service.call("PUT", `/api/console/payment-links/${id}`, { expiresAt: null }, { as: "shop" })
    expect((await open({})).status).toBe(201)
    await service.call("DELETE", `/api/console/payment-links/${id}`, undefined, { as: "shop" })
    expect(await open({})).toMatchObject({ status: 410 })
  })
})
