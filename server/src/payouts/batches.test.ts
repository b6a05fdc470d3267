// Several settlements in one transaction: each ends for itself, by what the chain shows, and none is carried out twice.
import { randomUUID } from "node:crypto"
import { parseAbi } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { backUp } from "../../test/database.ts"
import { openOperator } from "../../test/operator.ts"
import { type PayoutRig, startPayoutRig } from "../../test/payouts.ts"
import { keepUp, relaysOn, type Signed, signAuthorization } from "../../test/relays.ts"
import { type Authorization, authorizationDigest, CONTRACT_RELAY, relayCall } from "../chain/authorizations.ts"
import type { Address } from "../chain/hex.ts"
import { MULTICALL3 } from "../chain/multicall.ts"
import { marked } from "../chain/release-call.ts"
import { TRANSFER_TOPIC } from "../chain/transfers.ts"
import { newId } from "../ids.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { readSettlement, resolveOutcome } from "../x402/outcome.ts"
import { writeFirstClaim } from "../x402/write-claims.ts"
import { relayRow } from "./accept-relay.ts"
import { groupIntoTransactions } from "./batches.ts"
import type { Payout } from "./lane-policy.ts"
import { payoutRound } from "./pay-out.ts"
import { RELAY_GAS } from "./relays.ts"
import { checkWallet } from "./wallet-row.ts"

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

const abi = parseAbi([
  "function transferWithAuthorization(address, address, uint256, uint256, uint256, bytes32, bytes)",
  "function cancelAuthorization(address, bytes32, bytes)",
])
/** Fees with which a stranger's transaction is mined before the relay wallet's. */
const FIRST = { maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n, gas: 200_000n }

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
    ...{ id: newId("set"), merchant_id, identifier: null, chain_id: rig.network.chainId, token: rig.token },
    ...{ payer, nonce, digest, pay_to, amount, valid_before, binding: "b", payload_hash: "p", payout_id },
    ...{ resource_id: null, claim_id: null, caller: "", created_at: now, updated_at: now },
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
  const [balance, count] = [await rig.balanceOf(payTo), await sent()]
  await work()
  return [(await rig.balanceOf(payTo)) - balance, (await sent()) - count]
}

/** Carries an authorization out, or cancels it, before the relay wallet's next transaction is mined; returns the hash. */
async function before({ signed: { authorization, signature }, buyer }: Made, what: "paid" | "cancelled") {
  const { client, accounts } = rig.anvil
  const { from, to, value, validAfter, validBefore, nonce } = authorization
  const call = { ...{ address: rig.token, abi, account: accounts[5] }, ...FIRST }
  return what === "paid"
    ? await client.writeContract({
        ...call,
        functionName: "transferWithAuthorization",
        args: [from, to, value, validAfter, validBefore, nonce, signature],
      })
    : await client.writeContract({
        ...call,
        functionName: "cancelAuthorization",
        args: [from, nonce, await on.signCancel(buyer, authorization)],
      })
}

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
    ...{ state: "final", merchant_id: await rig.service.merchant("shop"), amount: 50_000n, recipient: MULTICALL3 },
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
  await rig.anvil.client.request({ method: "anvil_reorg", params: [1, []] } as never)
  await rig.anvil.client.request({ method: "anvil_dropAllTransactions" } as never)
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
  await client.request({ method: "anvil_reorg", params: [1, []] } as never)
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

it("is emptied only when the last of its calls is overdue, and none of them was public", async () => {
  const now = rig.service.ctx.now().getTime()
  for (const hours of [1, 2]) await claim(await sign(await on.buyer()), new Date(now + hours * 3_600_000))
  // The wallet's signer fails, so that nothing is signed.
  const broken = { ...rig.relayer, sign: () => Promise.reject(new Error("no signer")) }
  const idle = () => payoutRound(rig.service.ctx, rig.network, { lane: "relay", signer: broken as never }, AT_ONCE)
  await idle()
  expect(await ends()).toEqual(Array(2).fill(["assigned", null]))
  const isEmpty = async () => {
    const rows = rig.service.ctx.db.selectFrom("transaction_attempts").select("empty").orderBy("n")
    return (await rows.execute()).map(row => row.empty)
  }
  rig.service.advance(1.5 * 3_600_000)
  await keepUp(rig.service.ctx)
  await idle()
  expect(await isEmpty()).toEqual([false])
  rig.service.advance(HOURS_MS)
  await keepUp(rig.service.ctx)
  expect(await moved(() => on.round(AT_ONCE))).toEqual([0n, 1])
  expect(await isEmpty()).toEqual([false, true])
  await finish()
  expect(await ends()).toEqual(Array(2).fill(["reverted", false]))
  for (const { id } of await rig.service.ctx.db.selectFrom("settlements").select("id").execute())
    expect(await outcome(id)).toEqual({
      state: "failed",
      words: "It could not be carried out before its time was over.",
    })
  await expectSound()
})

it("is not used where the chain has no Multicall3: each is sent alone", async () => {
  const { client } = rig.anvil
  const code = (await client.getCode({ address: MULTICALL3 })) ?? "0x"
  await client.setCode({ address: MULTICALL3, bytecode: "0x" })
  await claimed(3)
  expect(await moved(() => on.round())).toEqual([30_000n, 3])
  await client.setCode({ address: MULTICALL3, bytecode: code })
  expect(await rows("batch")).toEqual([])
  await finish()
  expect(await ends()).toEqual(Array(3).fill(["final", true]))
})

it("is judged only by receipts that have a transfer for each authorization that was used", async () => {
  await claimed(3)
  const without = (topic: string) => (method: string, _params: unknown, result: unknown) => {
    const receipt = result as { logs: { topics: string[] }[] } | null
    if (method !== "eth_getTransactionReceipt" || !receipt) return result
    const i = receipt.logs.findIndex(({ topics }) => topics[0] === topic)
    return { ...receipt, logs: receipt.logs.filter((_, n) => n !== i) }
  }
  rig.proxy.spoil = without(TRANSFER_TOPIC)
  await on.round()
  expect(await ends()).toEqual(Array(3).fill(["assigned", null]))
  expect((await rows("batch"))[0]?.transfer_missing_at).not.toBeNull()
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
  await checkWallet(rig.service.ctx, rig.network, { lane: "relay", signer: rig.relayer })
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

it("takes 32 calls at most, of one merchant and token, that a key signed, in the order in which they are due", () => {
  const call = (n: number, given: Partial<Payout> = {}) =>
    ({
      id: `${n}`,
      kind: "settle",
      merchant_id: "a",
      token: "0x1",
      data: "0xe3ee160e",
      gas: 200_000n,
      ...given,
    }) as Payout
  const shape = (...payouts: Payout[]) => groupIntoTransactions(payouts).map(each => each.map(({ id }) => id).join(" "))
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
    ),
  ).toEqual(["1 4", "2", "3 8", "5", "6", "7"])
  const many = groupIntoTransactions(Array.from({ length: 70 }, (_, i) => call(i)))
  expect(many.map(({ length }) => length)).toEqual([32, 32, 6])
})
