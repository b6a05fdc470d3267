// Several settlements in one transaction: each ends for itself, by what the chain shows, and none is carried out twice.
import { randomUUID } from "node:crypto"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { backUp } from "../../../test/database.ts"
import { openOperator } from "../../../test/operator.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { FIRST, keepUp, relaysOn, type Signed, signAuthorization } from "../../../test/relays.ts"
import { batchDeployment } from "../../platform/chain/authorization-batch.ts"
import { AUTHORIZATION_USED } from "../../platform/chain/authorization-uses.ts"
import {
  type Authorization,
  authorizationDigest,
  CONTRACT_RELAY,
  relayCall,
} from "../../platform/chain/authorizations.ts"
import { firstFees } from "../../platform/chain/fees.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { marked } from "../../platform/chain/release-call.ts"
import { TRANSFER_TOPIC } from "../../platform/chain/transfers.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import { newId } from "../../platform/ids.ts"
import { readSettlement, resolveOutcome } from "../../products/x402/read-outcome.ts"
import { writeFirstClaim } from "../../products/x402/write-claims.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { relayRow } from "../relays/accept-relay.ts"
import { DOUBTED_MS, failingPayers } from "../relays/check-payer-limits.ts"
import { findPreempted } from "../relays/find-preempted.ts"
import { relayLane } from "../relays/relay-lane.ts"
import { RELAY_GAS } from "../relays/try-relay.ts"
import { settleDue } from "../settlement/settle.ts"
import type { Payout } from "./lane.ts"
import { checkWallet } from "./lock-wallet.ts"
import { payoutRound } from "./run-round.ts"
import { groupIntoTransactions } from "./write-batches.ts"

const payTo = `0x${"5e".repeat(20)}` as Address
const HOURS_MS = 6 * 3_600_000
const AT_ONCE = { resendMs: 0, replaceMs: 60_000 }
let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
})
afterAll(() => rig?.stop())
beforeEach(() => on.begin())

const sign = (buyer: PrivateKeyAccount, given: Partial<Authorization> = {}): Promise<Signed> =>
  signAuthorization(buyer, rig.network, { to: payTo, value: 10_000n, validBefore: 2n ** 40n, ...given })

/** Writes the claim of a payment with its relay, due now; returns the settlement's id. */
async function claim({ authorization, signature }: Signed, relayBy?: Date, as = "shop"): Promise<string> {
  const { ctx } = rig.service
  const merchant_id = await rig.service.merchant(as)
  const now = ctx.now()
  const digest = authorizationDigest(rig.network, authorization)
  const payout_id = randomUUID()
  const data = marked(relayCall(authorization, signature, "key"), payout_id)
  const facts = {
    authorization,
    digest,
    relayBy: relayBy ?? new Date(now.getTime() + HOURS_MS),
    to: { merchantId: merchant_id },
  }
  const { from: payer, nonce, to: pay_to, value: amount, validBefore: valid_before } = authorization
  const settlement = {
    id: newId("set"),
    merchant_id,
    identifier: null,
    chain_id: rig.network.chainId,
    token: rig.token,
    payer,
    nonce,
    digest,
    pay_to,
    amount,
    valid_before,
    binding: "b",
    payload_hash: "p",
    payout_id,
    resource_id: null,
    claim_id: null,
    caller: "",
    created_at: now,
    updated_at: now,
  }
  const relay = relayRow(ctx, rig.network, { id: payout_id, data, gas: RELAY_GAS.key }, { kind: "settle", ...facts })
  await writeFirstClaim(ctx, { relay, settlement })
  return settlement.id
}

interface Made {
  buyer: PrivateKeyAccount
  signed: Signed
  id: string
}

/** Claims a payment of each of so many buyers. */
async function claimed(count: number): Promise<Made[]> {
  const made: Made[] = []
  for (let i = 0; i < count; i++) {
    const buyer = await on.buyer()
    const signed = await sign(buyer)
    made.push({ buyer, signed, id: await claim(signed) })
  }
  return made
}

const rows = async (kind: "settle" | "batch") => (await on.relays()).filter(row => row.kind === kind)
const ends = async (kind: "settle" | "batch" = "settle") =>
  (await rows(kind)).map(({ state, succeeded }) => [state, succeeded])
const sent = () => rig.anvil.client.getTransactionCount({ address: rig.relayer.address })
const outcome = async (id: string) => {
  const row = await readSettlement(rig.service.ctx, id)
  return row && (await resolveOutcome(rig.service.ctx, rig.network, row))
}
const finish = async () => {
  await rig.anvil.client.mine({ blocks: 3 })
  await on.round(AT_ONCE)
}
const expectSound = async () => expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])

/** Returns what the seller got during `work`, in base units, and how many transactions of the relay wallet were mined. */
async function moved(work: () => Promise<unknown>): Promise<[bigint, number]> {
  const balance = await rig.balanceOf(payTo)
  const count = await sent()
  await work()
  return [(await rig.balanceOf(payTo)) - balance, (await sent()) - count]
}

/** Carries an authorization out, or cancels it, before the relay wallet's next transaction is mined; returns the hash. */
const before = ({ signed, buyer }: Made, what: "paid" | "cancelled") =>
  what === "paid" ? on.carryOutFirst(signed) : on.cancelFirst(buyer, signed)

it("pays all that are due in one transaction, whose gas counts once", async () => {
  const made = await claimed(5)
  expect(await moved(() => on.round())).toEqual([50_000n, 1])
  expect(await ends()).toEqual(Array(5).fill(["mined", true]))
  await expectSound()
  await finish()
  expect(await ends()).toEqual(Array(5).fill(["final", true]))
  const [batch] = await rows("batch")
  const { gasUsed, effectiveGasPrice } = await rig.anvil.client.getTransactionReceipt({ hash: batch?.tx_hash ?? "0x" })
  expect(batch).toMatchObject({
    state: "final",
    merchant_id: await rig.service.merchant("shop"),
    amount: 50_000n,
    recipient: batchDeployment.address,
    gas_cost: gasUsed * effectiveGasPrice,
  })
  for (const row of await rows("settle"))
    expect(row).toMatchObject({ batch_id: batch?.id, nonce: null, gas_cost: null, tx_hash: batch?.tx_hash })
  for (const { id } of made) expect(await outcome(id)).toEqual({ state: "settled", txHash: batch?.tx_hash })
  await expectSound()
})

it("is of one merchant", async () => {
  await claimed(2)
  for (let i = 0; i < 2; i++) await claim(await sign(await on.buyer()), undefined, "other")
  expect(await moved(() => on.round())).toEqual([40_000n, 2])
  const owners = new Map((await rows("batch")).map(({ id, merchant_id }) => [id, merchant_id]))
  expect(owners.size).toBe(2)
  for (const { batch_id, merchant_id } of await rows("settle")) expect(owners.get(batch_id ?? "")).toBe(merchant_id)
})

it("pays the others where one was carried out by somebody else, or cancelled by its wallet, a moment before", async () => {
  const [taken, cancelled, fine] = (await claimed(3)) as [Made, Made, Made]
  const { client } = rig.anvil
  await client.setAutomine(false)
  await on.round()
  const hash = await before(taken, "paid")
  await before(cancelled, "cancelled")
  expect(await moved(() => client.mine({ blocks: 1 }))).toEqual([20_000n, 1])
  await client.setAutomine(true)
  await on.round()
  expect(await ends()).toEqual([
    ["mined", false],
    ["mined", false],
    ["mined", true],
  ])
  expect(await outcome(taken.id)).toEqual({ state: "settled", txHash: hash })
  await finish()
  expect(await ends("batch")).toEqual([["final", true]])
  expect(await ends()).toEqual([
    ["reverted", false],
    ["reverted", false],
    ["final", true],
  ])
  expect(await outcome(cancelled.id)).toMatchObject({ state: "failed", words: expect.stringMatching(/cancelled/) })
  expect(await outcome(fine.id)).toMatchObject({ state: "settled" })
  await expectSound()
})

it("pays the others though a payer's account gets code that burns gas, in the block before (EIP-7702)", async () => {
  const { client, accounts } = rig.anvil
  const burner = `0x${"bd".repeat(20)}` as Address
  await client.setCode({ address: burner, bytecode: "0xfe" })
  const [evil, ...honest] = (await claimed(10)) as [Made, ...Made[]]
  await client.setAutomine(false)
  await on.round()
  // A token asks the code of an account that has some whether it signed.
  const delegation = await evil.buyer.signAuthorization({ contractAddress: burner, chainId: 84532, nonce: 0 })
  const type4 = { account: accounts[5], to: accounts[5].address, authorizationList: [delegation], ...FIRST }
  await client.sendTransaction(type4 as never)
  expect(await moved(() => client.mine({ blocks: 1 }))).toEqual([90_000n, 1])
  await client.setAutomine(true)
  await on.round()
  expect(await ends()).toEqual([["mined", false], ...Array(9).fill(["mined", true])])
  for (const { id } of honest) expect(await outcome(id)).toMatchObject({ state: "settled" })
  await expectSound()
})

it("that fails as a whole is not held against its payers, and a call that fails alone is", async () => {
  const { client } = rig.anvil
  const { address } = batchDeployment
  const code = (await client.getCode({ address })) ?? "0x"
  const buyer = await on.buyer()
  const payer = buyer.address.toLowerCase() as Address
  const others = [await on.buyer(), await on.buyer(), await on.buyer()]
  const failures = async (fail: (made: Made) => Promise<unknown>) => {
    for (const other of others) {
      const signed = await sign(buyer)
      const made = { buyer, signed, id: await claim(signed) }
      await claim(await sign(other))
      await client.setAutomine(false)
      await on.round()
      await fail(made)
      await client.mine({ blocks: 1 })
      await client.setCode({ address, bytecode: code })
      await client.setAutomine(true)
      await on.round()
    }
    await findPreempted(rig.service.ctx, rig.network, 0)
    rig.service.advance(DOUBTED_MS)
    return [...(await failingPayers(rig.service.ctx, [payer]))]
  }
  // PUSH0 PUSH0 REVERT.
  expect(await failures(() => client.setCode({ address, bytecode: "0x5f5ffd" }))).toEqual([])
  await finish()
  expect(await ends()).toEqual(Array(6).fill(["reverted", false]))
  expect(await failures(made => before(made, "paid"))).toEqual([])
  expect(await failures(made => before(made, "cancelled"))).toEqual([[payer, "failed"]])
})

it("ends its calls by a trigger too: a process of an older version knows only the batch", async () => {
  const { db } = rig.service.ctx
  const [taken] = (await claimed(3)) as [Made]
  await rig.anvil.client.setAutomine(false)
  await on.round()
  await before(taken, "cancelled")
  await rig.anvil.client.mine({ blocks: 1 })
  await rig.anvil.client.setAutomine(true)
  await on.round()
  const mined = [
    ["mined", false],
    ["mined", true],
    ["mined", true],
  ]
  expect(await ends()).toEqual(mined)
  const [batch] = await rows("batch")
  const setBatch = (given: object) => db.updateTable("payouts").set(given).where("id", "=", `${batch?.id}`).execute()
  const nowhere = {
    tx_hash: null,
    block_number: null,
    block_hash: null,
    succeeded: null,
    gas_cost: null,
    gas_cost_at: null,
  }
  await setBatch({ state: "assigned", ...nowhere })
  expect(await ends()).toEqual(Array(3).fill(["assigned", null]))
  await expectSound()
  await on.round(AT_ONCE)
  expect(await ends()).toEqual(mined)
  await setBatch({ state: "final" })
  expect(await ends()).toEqual([
    ["reverted", false],
    ["final", true],
    ["final", true],
  ])
  await expectSound()
})

it("is not cancelled for what others in flight may cost at most: it waits for their true cost", async () => {
  const { settings } = rig.service.ctx
  await claimed(1)
  await on.round()
  const { max_fee, gas } = await rig.service.ctx.db
    .selectFrom("transaction_attempts")
    .selectAll()
    .executeTakeFirstOrThrow()
  // Relays may take half: as much as 20 calls at their most.
  const budget = { gasBudget: settings.gasBudget }
  Object.assign(settings, { gasBudget: max_fee * gas * 40n })
  await claimed(61)
  for (let i = 0; i < 12; i++) {
    await on.round()
    await rig.anvil.client.mine({ blocks: 3 })
    rig.service.advance(3_000)
    await keepUp(rig.service.ctx)
  }
  await on.round(AT_ONCE)
  Object.assign(settings, budget)
  expect(new Set((await ends()).map(([state]) => state))).toEqual(new Set(["final"]))
})

/** Asks for a paywall's content with a payment, without waiting for it; returns the token that gets the answer. */
async function bought(path: string, buyer: PrivateKeyAccount): Promise<string> {
  const { service } = rig
  const { headers } = await service.call("GET", path)
  const { accepts } = JSON.parse(Buffer.from(`${headers["payment-required"]}`, "base64").toString())
  const [accepted] = accepts
  const validBefore = BigInt(Math.floor(service.ctx.now().getTime() / 1_000) + accepted.maxTimeoutSeconds)
  const to = accepted.payTo.toLowerCase()
  const signed = await sign(buyer, { to, value: BigInt(accepted.amount), validBefore })
  const authorization = Object.fromEntries(
    Object.entries(signed.authorization).map(([name, value]) => [name, `${value}`]),
  )
  const payment = { x402Version: 2, accepted, payload: { signature: signed.signature, authorization } }
  const signature = Buffer.from(JSON.stringify(payment)).toString("base64")
  const answer = await service.call("GET", path, undefined, {
    headers: { "payment-signature": signature, prefer: "wait=0" },
  })
  expect([answer.status, JSON.stringify(answer.body)]).toEqual([202, expect.anything()])
  return `${answer.headers["sluice-retry-token"]}`
}

it("has no more calls than the wallet has gas for, with what the batch itself needs", async () => {
  const { client } = rig.anvil
  const address = rig.relayer.address
  const balance = await client.getBalance({ address })
  try {
    await claimed(2)
    const { market } = await readWalletState(rig.network, address, rig.service.ctx.signal)
    const fees = market && firstFees(market, rig.service.ctx.settings.payoutMaxFee)
    // Two calls alone would cost less, and their batch more.
    await client.setBalance({ address, value: (2n * RELAY_GAS.key + 50_000n) * (fees?.maxFee ?? 0n) })
    await on.round(AT_ONCE)
    expect((await rows("settle")).map(row => [row.state, row.held_reason]).sort()).toEqual([
      ["held", "low_gas"],
      ["mined", null],
    ])
    expect(await rows("batch")).toEqual([])
  } finally {
    await client.setBalance({ address, value: balance })
  }
  rig.service.advance(31_000)
  await on.round(AT_ONCE)
  await finish()
  expect(await ends()).toEqual([
    ["final", true],
    ["final", true],
  ])
  await expectSound()
})

it("makes agents' payments of a paywall, each served once: no webhook, two of one buyer too", async () => {
  const { service, network } = rig
  const paywall = { name: "Report", price: "0.50", slug: "report", contentData: { ok: true } }
  expect((await service.call("POST", "/api/console/paywalls", paywall, { as: "shop" })).status).toBe(201)
  const one = await on.buyer()
  const two = await on.buyer()
  const tokens: string[] = []
  for (const buyer of [one, two, one]) tokens.push(await bought("/api/p/report", buyer))
  const count = await sent()
  await on.round()
  expect([await sent(), await ends()]).toEqual([count + 1, Array(3).fill(["mined", true])])
  for (const token of tokens) {
    const { status } = await service.call("GET", "/api/p/report", undefined, {
      headers: { "sluice-retry-token": token },
    })
    expect(status).toBe(200)
  }
  await finish()
  await on.look()
  await settleDue(service.ctx, network)
  const payments = await service.ctx.db.selectFrom("payments").select(["status", "agent", "amount"]).execute()
  expect(payments).toEqual(Array(3).fill({ status: "granted", agent: true, amount: 500_000n }))
  const events = service.ctx.db.selectFrom("events").select("type").where("type", "not like", "settings.%")
  expect(await events.execute()).toEqual([])
  await expectSound()
})

it("has no call that its payer's earlier call leaves too little for: that one is cancelled with the reason", async () => {
  const { ctx } = rig.service
  const buyer = await on.buyer(15_000n)
  for (let i = 0; i < 2; i++) await claim(await sign(buyer))
  await claimed(1)
  expect(await moved(() => on.round())).toEqual([20_000n, 1])
  expect((await ends()).map(([state]) => state)).toEqual(["mined", "queued", "mined"])
  rig.service.advance(3_000)
  await keepUp(ctx)
  expect(await moved(() => on.round())).toEqual([0n, 0])
  const [, second] = await rows("settle")
  expect(second).toMatchObject({ state: "cancelled", held_detail: "The wallet holds 0.005 of 0.01 USDC." })
})

it("whose block a reorg displaces is sent again, the same bytes, and pays once", async () => {
  await claimed(3)
  expect(await moved(() => on.round())).toEqual([30_000n, 1])
  const [{ tx_hash: hash } = { tx_hash: null }] = await rows("batch")
  await rig.anvil.client.setAutomine(false)
  await rig.anvil.client.reorg(1)
  await rig.anvil.client.dropAllTransactions()
  await on.round(AT_ONCE)
  expect(await ends()).toEqual(Array(3).fill(["assigned", null]))
  await expectSound()
  await rig.anvil.client.setAutomine(true)
  await rig.anvil.client.mine({ blocks: 1 })
  await on.round(AT_ONCE)
  await finish()
  expect(await ends()).toEqual(Array(3).fill(["final", true]))
  expect((await rows("settle")).map(row => row.tx_hash)).toEqual(Array(3).fill(hash))
  await expectSound()
})

it("that a reorg lets mine after another transaction took one of its calls pays the others", async () => {
  const [taken, fine] = (await claimed(2)) as [Made, Made]
  await on.round()
  expect(await ends()).toEqual([
    ["mined", true],
    ["mined", true],
  ])
  const { client } = rig.anvil
  await client.setAutomine(false)
  await client.reorg(1)
  const hash = await before(taken, "paid")
  await client.mine({ blocks: 1 })
  await client.setAutomine(true)
  await on.round(AT_ONCE)
  await finish()
  await on.round(AT_ONCE)
  expect(await ends()).toEqual([
    ["reverted", false],
    ["final", true],
  ])
  expect(await outcome(taken.id)).toEqual({ state: "settled", txHash: hash })
  expect(await outcome(fine.id)).toMatchObject({ state: "settled" })
  await expectSound()
})

it("is emptied when the first of its deadlines passes before it is sent: none of its calls is carried out late", async () => {
  const now = rig.service.ctx.now().getTime()
  for (const minutes of [1, 2]) await claim(await sign(await on.buyer()), new Date(now + minutes * 60_000))
  // The wallet's signer fails, so that nothing is signed.
  const broken = { ...rig.relayer, sign: () => Promise.reject(new Error("no signer")) }
  const idle = () => payoutRound(rig.service.ctx, relayLane(rig.network, broken as never), AT_ONCE)
  const isEmpty = async () => {
    const rows = rig.service.ctx.db.selectFrom("transaction_attempts").select("empty").orderBy("n")
    return (await rows.execute()).map(row => row.empty)
  }
  await idle()
  rig.service.advance(50_000)
  await keepUp(rig.service.ctx)
  await idle()
  expect([await ends(), await isEmpty()]).toEqual([Array(2).fill(["assigned", null]), [false]])
  rig.service.advance(20_000)
  await keepUp(rig.service.ctx)
  expect(await moved(() => on.round(AT_ONCE))).toEqual([0n, 1])
  expect(await isEmpty()).toEqual([false, true])
  await finish()
  expect(await ends()).toEqual(Array(2).fill(["reverted", false]))
  for (const { id } of await rig.service.ctx.db.selectFrom("settlements").select("id").execute())
    expect(await outcome(id)).toEqual({
      state: "failed",
      words: "The authorization could not be executed before its deadline.",
    })
  await expectSound()
})

it("is not used where the chain does not have its contract: each is sent alone", async () => {
  const { client } = rig.anvil
  const { address } = batchDeployment
  const code = (await client.getCode({ address })) ?? "0x"
  await client.setCode({ address, bytecode: "0x" })
  await claimed(3)
  expect(await moved(() => on.round())).toEqual([30_000n, 3])
  await client.setCode({ address, bytecode: code })
  expect(await rows("batch")).toEqual([])
  await finish()
  expect(await ends()).toEqual(Array(3).fill(["final", true]))
})

it("is judged only by receipts that have a transfer for each authorization that was used, and no other", async () => {
  await claimed(3)
  const without = (topic: string) => (method: string, _params: unknown, result: unknown) => {
    const receipt = result as { logs: { topics: string[] }[] } | null
    if (method !== "eth_getTransactionReceipt" || !receipt) return result
    const i = receipt.logs.findIndex(({ topics }) => topics[0] === topic)
    return { ...receipt, logs: receipt.logs.filter((_, n) => n !== i) }
  }
  for (const topic of [TRANSFER_TOPIC, AUTHORIZATION_USED]) {
    rig.proxy.spoil = without(topic)
    await on.round()
    expect(await ends()).toEqual(Array(3).fill(["assigned", null]))
    expect((await rows("batch"))[0]?.transfer_missing_at).not.toBeNull()
  }
  rig.proxy.spoil = (_method, _params, result) => result
  await on.round()
  expect(await ends()).toEqual(Array(3).fill(["mined", true]))
  expect((await rows("batch"))[0]?.transfer_missing_at).toBeNull()
})

it("is adopted after an older backup was restored, with the calls that wait there, and pays nothing twice", async () => {
  const operator = openOperator(rig)
  const restored = await claimed(2)
  const restore = await backUp(rig.service.ctx)
  const late = await claimed(1)
  expect(await moved(() => on.round())).toEqual([30_000n, 1])
  await finish()
  const [{ id: batchId, tx_hash: hash, data } = {}] = await rows("batch")
  await restore()
  await checkWallet(rig.service.ctx, relayLane(rig.network, rig.relayer))
  const foreign = await operator.ask("/adopt", { hash, foreign: true, reason: "unknown" })
  expect([foreign.status, foreign.body.message]).toEqual([409, expect.stringContaining("is not foreign")])
  const { status, body } = await operator.ask("/adopt", { hash })
  expect([status, body.said]).toEqual([200, expect.stringContaining(`pays the payout ${batchId}`)])
  expect((await rows("batch")).map(row => row.data)).toEqual([data])
  expect((await operator.ask("/resume", { wallet: "relay", reason: "mended" })).status).toBe(200)
  expect(await moved(() => on.round())).toEqual([0n, 0])
  await finish()
  expect(await ends()).toEqual(Array(2).fill(["final", true]))
  for (const { id } of restored) expect(await outcome(id)).toEqual({ state: "settled", txHash: hash })
  // The buyer whose claim was lost asks again, and its payment is found.
  for (const { signed } of late) {
    const id = await claim(signed)
    await on.round()
    expect(await outcome(id)).toEqual({ state: "settled", txHash: hash })
  }
  await expectSound()
  await operator.stop()
})

it("gets a higher fee as any transaction when it is stuck, and pays once", async () => {
  await claimed(2)
  const { client } = rig.anvil
  await client.setAutomine(false)
  await on.round({ resendMs: 0, replaceMs: 0 })
  await on.round({ resendMs: 0, replaceMs: 0 })
  const attempts = await rig.service.ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("n").execute()
  expect(attempts.length).toBeGreaterThan(1)
  expect(await moved(() => client.mine({ blocks: 1 }))).toEqual([20_000n, 1])
  await client.setAutomine(true)
  await finish()
  expect(await ends()).toEqual(Array(2).fill(["final", true]))
  await expectSound()
})

it("never loses a call, and no call changes its batch", async () => {
  await claimed(2)
  await on.round()
  const [call] = await rows("settle")
  const change = (batch_id: string | null) =>
    rig.service.ctx.db
      .updateTable("payouts")
      .set({ batch_id })
      .where("id", "=", call?.id ?? "")
      .execute()
  await expect(change(null)).rejects.toThrow(/never leaves its batch/)
})

it("takes 32 calls at most, of one merchant and token, that a key signed, with deadlines alike, in the order in which they are due", () => {
  const call = (n: number, given: Partial<Payout> = {}) =>
    ({
      id: `${n}`,
      kind: "settle",
      merchant_id: "a",
      token: "0x1",
      data: "0xe3ee160e",
      gas: 200_000n,
      to_address: given.token ?? "0x1",
      relay_by: new Date(20_000),
      ...given,
    }) as Payout
  const ctx = { now: () => new Date(0) }
  const shape = (...payouts: Payout[]) =>
    groupIntoTransactions(ctx, payouts).map(each => each.map(({ id }) => id).join(" "))
  expect(
    shape(
      call(1),
      call(2, { kind: "capture" }),
      call(3, { merchant_id: "b" }),
      call(4),
      call(5, { data: `${CONTRACT_RELAY}00` }),
      call(6, { token: "0x2" as Address }),
      call(7, { kind: "authorize" }),
      call(8, { merchant_id: "b" }),
      call(9, { relay_by: new Date(19_999) }),
      call(10, { relay_by: new Date(14_999) }),
      call(11, { relay_by: new Date(15_000) }),
    ),
  ).toEqual(["1 4", "2", "3 8", "5", "6", "7", "9 11", "10"])
  const many = groupIntoTransactions(
    ctx,
    Array.from({ length: 70 }, (_, i) => call(i)),
  )
  expect(many.map(({ length }) => length)).toEqual([32, 32, 6])
})
