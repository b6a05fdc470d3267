// What an operator does with calls that the service makes of its own: the storage wallet is shown, halted and resumed, what the
// database does not know is adopted, a nonce is emptied, and the costs are listed.
import { parseEther } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { backUp } from "../../../test/database.ts"
import { type Operator, openOperator } from "../../../test/operator.ts"
import { CHAIN_ID, type StorageRig, startStorageRig } from "../../../test/storage.ts"
import { PRICE } from "../../../test/zerog.ts"

let on: StorageRig
let operator: Operator
beforeAll(async () => {
  on = await startStorageRig()
  operator = openOperator(on.rig)
})
afterAll(async () => {
  await operator?.stop()
  await on?.stop()
})
beforeEach(() => on.empty())

const named = { wallet: "storage", network: "0g" }
const AT_ONCE = { resendMs: 0, replaceMs: 60_000 }
const row = async () =>
  await on.rig.service.ctx.db.selectFrom("wallets").selectAll().where("lane", "=", "storage").executeTakeFirstOrThrow()
const stored = async () => (await on.batches()).map(({ uploaded_at }) => uploaded_at !== null)

/** A transaction by the wallet's key without the database, as by another program. */
async function sendElsewhere(nonce: bigint): Promise<string> {
  const [, wallet, , other] = on.anvil.accounts
  const serializedTransaction = await wallet.signTransaction({
    type: "eip1559",
    chainId: CHAIN_ID,
    nonce: Number(nonce),
    to: other.address,
    gas: 21_000n,
    maxFeePerGas: 90_000_000_000n,
    maxPriorityFeePerGas: 1n,
  })
  const hash = await on.anvil.client.sendRawTransaction({ serializedTransaction })
  await on.anvil.client.mine({ blocks: 5 })
  return hash
}

it("is shown with its chain, what waits for it and what it has in flight", async () => {
  await on.batched()
  await on.round()
  const { body } = await operator.ask("/wallets?network=0g")
  expect(body.data).toMatchObject([
    {
      network: "0g",
      lane: "storage",
      status: "active",
      booksComparedTo: null,
      chain: { gas: expect.any(String) },
      waiting: { queued: 1 },
    },
  ])
})

/** The halted wallet adopts the one transaction that it does not know, and its file is stored by that: nothing is paid again. */
async function adoptsOnce(tx_hash: string | null, submittedBefore: number): Promise<void> {
  expect(await row()).toMatchObject({ status: "halted" })
  expect((await operator.ask("/adopt-all", named)).body.said).toContain("1 transaction was adopted.")
  expect((await operator.ask("/resume", { ...named, reason: "adopted" })).status).toBe(200)
  await on.carryOut()
  await on.round()
  expect(await on.calls()).toMatchObject([{ state: "final", tx_hash }])
  expect([await stored(), (await on.submitted()).length]).toEqual([[true], submittedBefore + 1])
}

describe("a halted wallet", () => {
  it("sends nothing, and after `resume` it pays for what waited, once", async () => {
    const before = await on.submitted()
    await on.batched()
    await on.round()
    expect((await operator.ask("/halt", { ...named, reason: "a look" })).status).toBe(200)
    await on.carryOut()
    expect(await on.submitted()).toEqual(before)
    const { status, body } = await operator.ask("/resume", { ...named, reason: "looked" })
    expect([status, body.said]).toEqual([200, expect.stringMatching(/ on 0g is resumed\.$/)])
    await on.carryOut()
    await on.round()
    expect([await stored(), (await on.submitted()).length]).toEqual([[true], before.length + 1])
  })

  it("that its key was used without the database stays halted until that transaction is adopted", async () => {
    await on.batched()
    await on.round()
    const hash = await sendElsewhere((await row()).next_nonce)
    await on.carryOut()
    expect(await row()).toMatchObject({ status: "halted" })
    const refused = await operator.ask("/resume", { ...named, reason: "hope" })
    expect([refused.status, refused.body.message]).toEqual([409, expect.stringContaining("sluice wallet adopt HASH")])
    const adopted = await operator.ask("/adopt", { hash, foreign: true, reason: "another program" })
    expect(adopted.body).toMatchObject({ said: expect.stringContaining("is explained by a foreign transaction") })
    expect((await operator.ask("/resume", { ...named, reason: "explained" })).status).toBe(200)
    const before = await on.submitted()
    await on.carryOut()
    await on.round()
    expect([await stored(), (await on.submitted()).length]).toEqual([[true], before.length + 1])
  })

  it("whose payment a restored database does not know is paid for by that one, once", async () => {
    const before = await on.submitted()
    await on.batched()
    await on.round()
    const restore = await backUp(on.rig.service.ctx)
    await on.carryOut()
    const [{ tx_hash } = { tx_hash: null }] = await on.calls()
    await restore()
    await on.carryOut()
    await adoptsOnce(tx_hash, before.length)
  })
})

it("a price that changed meanwhile does not have a restored database pay twice for a file", async () => {
  const before = await on.submitted()
  await on.batched()
  await on.round()
  const restore = await backUp(on.rig.service.ctx)
  await on.pay()
  const [{ tx_hash } = { tx_hash: null }] = await on.calls()
  await restore()
  await on.zerog.setPrice(2n * PRICE)
  // The call is mined and not final, so nothing halts the wallet yet.
  await on.pay()
  expect(await on.calls()).toMatchObject([{ state: "queued" }])
  on.rig.service.advance(60_000)
  await on.round()
  await on.carryOut()
  await adoptsOnce(tx_hash, before.length)
})

it("a call that an operator cancels is not made again until it is retried", async () => {
  const before = await on.submitted()
  const carryOn = async () => {
    for (let i = 0; i < 2; i++) {
      on.rig.service.advance(60_000)
      await on.round()
      await on.carryOut()
    }
  }
  await on.batched()
  await on.round()
  const [{ id } = { id: "" }] = await on.calls()
  const { body } = await operator.ask("/cancel", { payout: id, reason: "not this one" })
  expect(body.said).toMatch(/^The payout .* is cancelled\. Nothing was paid\..* not stored on 0G until/)
  await carryOn()
  expect([await on.calls(), await on.submitted()]).toMatchObject([[{ state: "cancelled", stopped: true }], before])
  const retried = await operator.ask("/retry", { payout: id, reason: "this one" })
  expect([retried.status, retried.body.said]).toEqual([200, expect.stringContaining("stores the same receipts on 0G")])
  await carryOn()
  expect([await stored(), (await on.submitted()).length]).toEqual([[true], before.length + 1])
})

describe("a call on the chain whose row is cancelled", () => {
  const carryOn = async () => {
    expect((await operator.ask("/resume", { ...named, reason: "adopted" })).status).toBe(200)
    for (let i = 0; i < 3; i++) {
      await on.carryOut()
      on.rig.service.advance(60_000)
      await on.round()
    }
  }

  it.each([
    ["another waits for its file", false],
    ["that was cancelled by a person", true],
  ])("pays for its file, once, where %s", async (_, byHand) => {
    const before = await on.submitted()
    const { db } = on.rig.service.ctx
    await on.batched()
    await on.round()
    const restore = await backUp(on.rig.service.ctx)
    await on.pay()
    const [{ id } = { id: "" }] = await on.calls()
    // As signed: its row has the hash once the call is seen in a block.
    const attempts = db.selectFrom("transaction_attempts").select("hash").where("payout_id", "=", id)
    const { hash } = await attempts.executeTakeFirstOrThrow()
    await restore()
    if (byHand) await operator.ask("/cancel", { payout: id, reason: "it is paid" })
    else await db.updateTable("payouts").set({ state: "cancelled" }).where("id", "=", id).execute()
    await on.zerog.setPrice(2n * PRICE)
    on.rig.service.advance(60_000)
    await on.round()
    expect((await on.calls()).map(({ state }) => state)).toEqual(byHand ? ["cancelled"] : ["cancelled", "queued"])
    await on.batched()
    await on.round()
    await on.carryOut()
    await operator.ask("/halt", { ...named, reason: "look" })
    expect((await operator.ask("/adopt-all", named)).body.said).toContain("1 transaction was adopted.")
    await carryOn()
    const roots = (await on.batches()).map(({ root }) => root)
    expect([(await on.submitted()).slice(before.length), await stored()]).toEqual([roots, [true, true]])
    expect((await on.calls()).filter(({ state }) => state === "final")).toHaveLength(2)
    expect((await on.calls()).some(each => each.tx_hash === hash && each.state === "final")).toBe(true)
  })

  it("pays for its file, once, at a nonce that another file's call has", async () => {
    const { client } = on.anvil
    const before = await on.submitted()
    await on.batched()
    await on.round()
    const restore = await backUp(on.rig.service.ctx)
    await client.setAutomine(false)
    await on.pay()
    await client.dropAllTransactions()
    const [{ raw, hash } = { raw: null, hash: null }] = await operator.attempts()
    const [{ id } = { id: "" }] = await on.calls()
    await restore()
    const later = new Date(on.rig.service.ctx.now().getTime() + 600_000)
    await on.rig.service.ctx.db.updateTable("payouts").set({ run_at: later }).where("id", "=", id).execute()
    await on.batched()
    await on.round()
    await on.pay()
    await client.dropAllTransactions()
    await client.setAutomine(true)
    await client.sendRawTransaction({ serializedTransaction: raw ?? "0x" })
    await client.mine({ blocks: 5 })
    await on.pay()
    await operator.ask("/halt", { ...named, reason: "look" })
    expect((await operator.ask("/adopt", { hash })).body.message).toContain(`sluice wallet cancel ${id}`)
    await operator.ask("/cancel", { payout: id, reason: "it is paid" })
    expect((await operator.ask("/adopt", { hash, foreign: true, reason: "as told" })).status).toBe(200)
    await carryOn()
    const roots = (await on.batches()).map(({ root }) => root)
    expect([(await on.submitted()).slice(before.length), await stored()]).toEqual([roots, [true, true]])
  })
})

it("a nonce that can't be mined is emptied, and the file is paid for by another call, once", async () => {
  const { client } = on.anvil
  const before = await on.submitted()
  await on.batched()
  await on.round()
  await client.setAutomine(false)
  try {
    await on.pay()
    await client.dropAllTransactions()
    const [{ nonce } = { nonce: null }] = await on.calls()
    const { status, body } = await operator.ask("/unstick", { ...named, nonce: `${nonce}`, reason: "stuck" })
    expect([status, body.said]).toEqual([200, expect.stringContaining("another call stores the same receipts on 0G")])
    await on.pay(AT_ONCE)
  } finally {
    await client.setAutomine(true)
  }
  await on.anvil.client.mine({ blocks: 5 })
  await on.pay(AT_ONCE)
  on.rig.service.advance(60_000)
  await on.round()
  await on.carryOut()
  await on.round()
  expect((await on.calls()).map(({ state }) => state)).toEqual(["reverted", "final"])
  expect([await stored(), (await on.submitted()).length]).toEqual([[true], before.length + 1])
})

it("says what storage has cost, and what the rest takes at today's price", async () => {
  await on.batched()
  await on.round()
  await on.carryOut()
  await on.round()
  await on.batched()
  await on.zerog.setPrice(2n * PRICE)
  const [paid, due] = (await on.batches()).map(({ size }) => BigInt(size / 256))
  const [{ gas_cost } = { gas_cost: null }] = await on.calls()
  const { data } = (await operator.ask("/storage")).body
  expect(data).toMatchObject({
    store: "0g",
    files: 2,
    receipts: 2,
    stored: 1,
    storedReceipts: 1,
    calls: 1,
    unpaid: 1,
    held: {},
  })
  expect([data.fees, data.gas, data.unpaidFees].map(text => parseEther(text))).toEqual([
    (paid ?? 0n) * PRICE,
    gas_cost,
    (due ?? 0n) * 2n * PRICE,
  ])
})

it("a call that writes roots, and that a restored database does not know, is adopted, and no root is written twice", async () => {
  const { rig, receipts } = on
  const { settings, db } = rig.service.ctx
  Object.assign(settings.receipts, { anchorMs: 1_000 })
  try {
    const own = () =>
      db.selectFrom("payouts").selectAll().where("kind", "=", "anchor").orderBy("created_at").orderBy("id").execute()
    await rig.paid(await rig.sell(), 1_000_000n)
    // The key that signs is on the chain; then the roots.
    await receipts.round()
    await receipts.carryOut()
    await receipts.round()
    const restore = await backUp(rig.service.ctx)
    await receipts.carryOut()
    const [, { tx_hash } = { tx_hash: null }] = await own()
    await restore()
    await receipts.carryOut()
    expect((await operator.ask("/adopt-all", { wallet: "payout", network: "base-sepolia" })).body.said).toContain(
      "Every final transaction of the wallet is known",
    )
    const resumed = { wallet: "payout", network: "base-sepolia", reason: "adopted", booksCompared: true }
    expect((await operator.ask("/resume", resumed)).status).toBe(200)
    await receipts.carryOut()
    await receipts.round()
    await receipts.carryOut()
    expect((await own()).map(each => [each.state, each.reserved, each.tx_hash])).toEqual([
      ["final", false, expect.stringMatching(/^0x/)],
      ["final", false, tx_hash],
    ])
  } finally {
    Object.assign(settings.receipts, { anchorMs: undefined })
  }
})
