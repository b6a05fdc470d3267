// The engine on a real chain: shares and sweeps, what is held, replaced, reverted, taken back, halted.
import { sql } from "kysely"
import { parseTransaction, toHex } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { startProxy } from "../../../test/proxy.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { payoutIdIn } from "../../platform/chain/release-call.ts"
import { sweepDue } from "../payouts/make-payouts.ts"
import { payoutLane } from "../payouts/payout-lane.ts"
import { sharesOf, sharesSettled } from "../payouts/queries.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { settleDue } from "../settlement/settle.ts"
import { checkWallet } from "./lock-wallet.ts"

const owner = PAYOUT_ADDRESS.toLowerCase() as Address
const DAY_MS = 86_400_000
let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig.stop())
beforeEach(async () => {
  rig.proxy.spoil = (_method, _params, result) => result
  rig.proxy.broken = undefined
  await rig.anvil.client.dropAllTransactions()
  await rig.anvil.client.setAutomine(true)
  await rig.anvil.client.mine({ blocks: 3 })
  await rig.empty()
})

const gains = async (n: number, work: () => Promise<unknown>): Promise<bigint[]> => {
  const all = () => Promise.all(Array.from({ length: n }, (_, i) => rig.balanceOf(recipient(i))))
  const before = await all()
  await work()
  return (await all()).map((after, i) => after - (before[i] ?? 0n))
}
const mine = (blocks = 3) => rig.anvil.client.mine({ blocks })
const setBlacklisted = (address: Address, on: boolean) =>
  rig.anvil.client.writeContractSync({
    address: rig.token,
    abi: testUsdcAbi,
    functionName: on ? "blacklist" : "unBlacklist",
    args: [address],
  })
const wallet = () => rig.service.ctx.db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
const attempts = () => rig.service.ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("id").execute()
const blockAt = (number: bigint) =>
  rig.anvil.client.request({ method: "eth_getBlockByNumber", params: [toHex(number), false] } as never)
const chainNonce = () => rig.anvil.client.getTransactionCount({ address: rig.signer.address })

describe("shares", () => {
  it("reach every recipient to the smallest unit, each in a transfer of its own, once", async () => {
    const shop = await rig.sell([33.3333, 33.3333, 33.3334])
    let paymentId = ""
    const got = await gains(3, async () => {
      paymentId = await rig.paid(shop, 1_000_001n)
      expect(await sharesSettled(rig.service.ctx, paymentId)).toBe(false)
      // On a busy machine an answer of the node may come too late for a round.
      for (let n = 0; n < 10 && !(await sharesSettled(rig.service.ctx, paymentId)); n++) {
        await rig.round()
        await mine()
      }
      await rig.round()
    })
    expect(got).toEqual([333_333n, 333_333n, 333_335n])
    expect(await rig.states()).toEqual(["final", "final", "final"])
    expect(await rig.balanceOf(shop.deposit.address)).toBe(0n)
    expect((await wallet()).next_nonce).toBe(BigInt(await chainNonce()))
    const shares = await sharesOf(rig.service.ctx, paymentId)
    expect(shares.map(({ amount, percent }) => [amount, percent])).toEqual([
      ["0.333333", 33.3333],
      ["0.333333", 33.3333],
      ["0.333335", 33.3334],
    ])
    expect(new Set(shares.map(share => share.txHash)).size).toBe(3)
    expect(await sharesSettled(rig.service.ctx, paymentId)).toBe(true)
    const path = `/api/console/payments/${paymentId}/shares`
    const { body } = await rig.service.call("GET", path, undefined, { as: "shop" })
    expect(body).toMatchObject({ total: 3, data: [{ ...shares[0], state: "final", heldReason: null }, {}, {}] })
    await rig.service.merchant("rival")
    expect((await rig.service.call("GET", path, undefined, { as: "rival" })).status).toBe(404)
  })

  it("carry the payout's id at the end of their calldata", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await rig.round()
    for (const { payout_id, raw } of await attempts())
      expect(payoutIdIn(parseTransaction(raw ?? "0x").data ?? "0x")).toBe(payout_id)
  })

  it("of zero are skipped", async () => {
    await rig.paid(await rig.sell([0.0001, 99.9999]), 500_000n)
    expect((await rig.payouts()).map(row => [row.share, row.amount])).toEqual([[1, 500_000n]])
  })

  it("are those of the address that was paid, whenever the split is edited or deleted", async () => {
    const shop = await rig.sell([70, 30])
    const { ctx } = rig.service
    const url = `/api/console/splits/${shop.splitId}`
    const first = await rig.paid(shop, 1_000_000n)
    const recipients = [
      { address: recipient(2), percent: 99 },
      { address: recipient(3), percent: 1 },
    ]
    await rig.service.call("PUT", url, { recipients }, { as: "shop" })
    const edited = await rig.current(shop)
    const second = await rig.paid(edited, 1_000_000n)
    await rig.service.call("DELETE", url, undefined, { as: "shop" })
    const third = await rig.paid(await rig.current(shop), 1_000_000n)
    // Paid while the split was edited: the old addresses are valid for an hour, and pay the recipients that they name.
    const late = [await rig.paid(shop, 1_000_000n), await rig.paid(edited, 1_000_000n)]
    const of = async (id: string) =>
      (await sharesOf(ctx, id)).map(({ address, percent }) => [address.toLowerCase(), percent])
    expect(await of(first)).toEqual([
      [recipient(0), 70],
      [recipient(1), 30],
    ])
    expect(await of(second)).toEqual([
      [recipient(2), 99],
      [recipient(3), 1],
    ])
    expect(await of(third)).toEqual([])
    expect(await Promise.all(late.map(of))).toEqual([await of(first), await of(second)])
    // Even when it comes back after a reorg.
    await ctx.db.updateTable("transfers").set({ state: "gone", run_at: ctx.now() }).execute()
    await settleDue(ctx, rig.network)
    expect(new Set(await rig.states())).toEqual(new Set(["cancelled"]))
    await ctx.db.updateTable("transfers").set({ state: "confirmed", run_at: ctx.now() }).execute()
    await settleDue(ctx, rig.network)
    expect(await of(first)).toEqual([
      [recipient(0), 70],
      [recipient(1), 30],
    ])
    expect(await of(second)).toEqual([
      [recipient(2), 99],
      [recipient(3), 1],
    ])
  })

  it("of a payment over two addresses are those of each for what it received", async () => {
    const shop = await rig.sell([70, 30])
    await rig.paid(shop, 200_001n)
    const recipients = [
      { address: recipient(2), percent: 99 },
      { address: recipient(3), percent: 1 },
    ]
    await rig.service.call("PUT", `/api/console/splits/${shop.splitId}`, { recipients }, { as: "shop" })
    const edited = await rig.current(shop)
    await rig.paid(edited, 300_000n)
    const rows = await rig.payouts()
    const paid = rows.map(row => [row.deposit_id, row.recipient, row.amount])
    expect(new Set(rows.map(row => row.payment_id)).size).toBe(1)
    expect(new Set(paid.map(String))).toEqual(
      new Set(
        [
          [shop.deposit.id, recipient(0), 140_000n],
          [shop.deposit.id, recipient(1), 60_001n],
          [edited.deposit.id, recipient(2), 297_000n],
          [edited.deposit.id, recipient(3), 3_000n],
        ].map(String),
      ),
    )
    const got = await gains(4, () => rig.round())
    expect(got).toEqual([140_000n, 60_001n, 297_000n, 3_000n])
    expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])
  })
})

describe("sweeps", () => {
  it("go to the owner at once above SWEEP_ABOVE, all of the deposit's payments together", async () => {
    const shop = await rig.sell()
    await rig.paid(shop, 6_000_000n)
    expect(await rig.states()).toEqual([])
    await rig.paid(shop, 6_000_000n)
    const before = await rig.balanceOf(owner)
    await rig.round()
    expect((await rig.balanceOf(owner)) - before).toBe(12_000_000n)
    expect((await rig.payouts()).map(row => [row.kind, row.amount, row.state])).toEqual([
      ["sweep", 12_000_000n, "mined"],
    ])
  })

  it("go daily below it, and leave what no payment has", async () => {
    const shop = await rig.sell()
    await rig.paid(shop, 600_000n)
    await rig.paid(shop, 700_000n)
    // A stray transfer, below the price: it waits for the merchant's decision.
    await rig.paid(shop, 100_000n).catch(() => {})
    expect(await sweepDue(rig.service.ctx, rig.network)).toBe(0)
    rig.service.advance(DAY_MS + 1)
    expect(await sweepDue(rig.service.ctx, rig.network)).toBe(1)
    expect(await sweepDue(rig.service.ctx, rig.network)).toBe(0)
    await rig.round()
    expect((await rig.payouts()).map(row => row.amount)).toEqual([1_300_000n])
    expect(await rig.balanceOf(shop.deposit.address)).toBe(100_000n)
  })

  it("that revert are planned again", async () => {
    const { client } = rig.anvil
    const shop = await rig.sell()
    await rig.paid(shop, 12_000_000n)
    await client.setAutomine(false)
    await rig.round()
    const blacklist = { address: rig.token, abi: testUsdcAbi, functionName: "blacklist", args: [owner] } as const
    await client.writeContract({ ...blacklist, maxPriorityFeePerGas: 9_000_000_000n, maxFeePerGas: 20_000_000_000n })
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await mine()
    await rig.round()
    await setBlacklisted(owner, false)
    expect(await rig.states()).toEqual(["reverted"])
    rig.service.advance(DAY_MS)
    await sweepDue(rig.service.ctx, rig.network)
    const before = await rig.balanceOf(owner)
    await rig.round()
    expect((await rig.balanceOf(owner)) - before).toBe(12_000_000n)
  })

  it("are made again when a payment in them is taken back before they are signed", async () => {
    const shop = await rig.sell()
    const { ctx } = rig.service
    await rig.paid(shop, 6_000_000n)
    await rig.paid(shop, 6_000_000n)
    const [last] = await ctx.db.selectFrom("transfers").selectAll().orderBy("id", "desc").limit(1).execute()
    await ctx.db
      .updateTable("transfers")
      .set({ state: "gone", run_at: ctx.now() })
      .where("id", "=", last?.id ?? 0n)
      .execute()
    await settleDue(ctx, rig.network)
    await sweepDue(ctx, rig.network)
    expect((await rig.payouts()).map(row => [row.amount, row.state])).toEqual([
      [12_000_000n, "cancelled"],
      [6_000_000n, "queued"],
    ])
  })
})

describe("what can't be paid", () => {
  it("is held for a blacklisted recipient, while the others are paid; and paid once the list lets it", async () => {
    const shop = await rig.sell([50, 30, 20])
    await setBlacklisted(recipient(1), true)
    const got = await gains(3, async () => {
      await rig.paid(shop, 1_000_000n)
      await rig.round()
    })
    expect(got).toEqual([500_000n, 0n, 200_000n])
    const [held] = (await rig.payouts()).filter(row => row.state === "held")
    expect(held).toMatchObject({ held_reason: "simulation", recipient: recipient(1), nonce: null })
    expect(held?.held_detail).toContain("blacklisted")
    await setBlacklisted(recipient(1), false)
    rig.service.advance(61_000)
    expect(await gains(2, () => rig.round())).toEqual([0n, 300_000n])
  })

  it("is held for a sanctioned recipient", async () => {
    const { mkdtempSync, writeFileSync } = await import("node:fs")
    const shop = await rig.sell([50, 50])
    const path = `${mkdtempSync("/tmp/sluice-list-")}/sdn.txt`
    writeFileSync(path, recipient(0))
    const { settings } = rig.service.ctx
    settings.sanctionsFile = path
    try {
      await rig.paid(shop, 1_000_000n)
      expect(await gains(2, () => rig.round())).toEqual([0n, 500_000n])
      expect((await rig.payouts()).find(row => row.state === "held")?.held_reason).toBe("sanctions")
    } finally {
      settings.sanctionsFile = undefined
    }
  })

  it("waits without gas, and while the network asks more than the cap", async () => {
    const shop = await rig.sell([50, 50])
    const { client } = rig.anvil
    const { settings } = rig.service.ctx
    await rig.paid(shop, 1_000_000n)
    const balance = await client.getBalance({ address: rig.signer.address })
    await client.setBalance({ address: rig.signer.address, value: 1n })
    await rig.round()
    expect((await rig.payouts()).map(row => row.held_reason)).toEqual(["low_gas", "low_gas"])
    await client.setBalance({ address: rig.signer.address, value: balance })
    rig.service.advance(31_000)
    const cap = settings.payoutMaxFee
    settings.payoutMaxFee = 1n
    await rig.round()
    expect(await rig.states()).toEqual(["held", "held"])
    settings.payoutMaxFee = cap
    expect(await gains(2, () => rig.round())).toEqual([500_000n, 500_000n])
  })

  it("reverts on chain, and is then a new, linked payout, held until it would succeed", async () => {
    const shop = await rig.sell([50, 50])
    const { client } = rig.anvil
    const paymentId = await rig.paid(shop, 1_000_000n)
    // Signed and simulated, then blacklisted in the block before: what no simulation can foresee.
    await client.setAutomine(false)
    await rig.round()
    const blacklist = { address: rig.token, abi: testUsdcAbi, functionName: "blacklist", args: [recipient(0)] } as const
    await client.writeContract({ ...blacklist, maxPriorityFeePerGas: 9_000_000_000n, maxFeePerGas: 20_000_000_000n })
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await rig.round()
    expect(await rig.states()).toEqual(["mined", "mined"])
    await mine()
    await rig.round()
    const rows = await rig.payouts()
    const failed = rows.find(row => row.state === "reverted")
    expect(failed?.recipient).toBe(recipient(0))
    const anew = rows.find(row => row.replaces === failed?.id)
    expect(anew).toMatchObject({ state: "held", held_reason: "reverted", amount: 500_000n })
    expect((await sharesOf(rig.service.ctx, paymentId)).map(share => share.txHash === null)).toEqual([true, false])
    await setBlacklisted(recipient(0), false)
    rig.service.advance(DAY_MS)
    expect(await gains(2, () => rig.round())).toEqual([500_000n, 0n])
  })
})

describe("a chain that takes back", () => {
  it("what was paid in: nobody is paid from anyone else's money", async () => {
    const victim = await rig.sell([50, 50])
    const other = await rig.sell([50, 50])
    const { client } = rig.anvil
    await rig.paid(other, 5_000_000n)
    await mine()
    await rig.round()
    const [before] = await rig.service.ctx.db.selectFrom("payments").selectAll().execute()
    await rig.paid(victim, 1_000_000n)
    // Signed, and waiting for a block, when the payment's own block is displaced.
    await client.setAutomine(false)
    await rig.round()
    expect((await rig.states()).filter(state => state === "assigned").length).toBe(2)
    await client.reorg(1)
    expect(await rig.balanceOf(victim.deposit.address)).toBe(0n)
    const got = await gains(2, async () => {
      await sql`update transaction_attempts set sent_at = null`.execute(rig.service.ctx.db)
      await rig.round()
      await client.mine({ blocks: 1 })
      await client.setAutomine(true)
      await mine()
      await rig.round()
    })
    expect(got).toEqual([0n, 0n])
    const rows = (await rig.payouts()).filter(row => row.deposit_id === victim.deposit.id)
    expect(rows.filter(row => row.state === "reverted").length).toBe(2)
    expect(before?.status).toBe("granted")
    expect((await wallet()).status).toBe("active")
  })

  it("what was paid in, between the simulation and the nonce: no nonce is given, until the money is there again", async () => {
    const { ctx } = rig.service
    const doubted = (singleSource: boolean) =>
      ctx.db.updateTable("transfers").set({ single_source: singleSource }).execute()
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    rig.proxy.spoil = async (method, params, result) => {
      const [call] = params as [{ from?: string }?]
      if (method === "eth_call" && call?.from === rig.signer.address) await doubted(true)
      return result
    }
    const { next_nonce: next } = await wallet()
    await rig.round()
    expect((await rig.payouts()).map(({ state, held_reason, nonce }) => [state, held_reason, nonce])).toEqual([
      ["held", "short", null],
      ["held", "short", null],
    ])
    expect((await wallet()).next_nonce).toBe(next)
    rig.proxy.spoil = (_method, _params, result) => result
    await doubted(false)
    const got = await gains(2, async () => {
      await ctx.db.updateTable("payouts").set({ run_at: ctx.now() }).execute()
      await rig.round()
    })
    expect(got).toEqual([500_000n, 500_000n])
  })

  it("what was paid out: the same bytes are sent again, and it is paid once", async () => {
    const shop = await rig.sell([50, 50])
    const { client } = rig.anvil
    const got = await gains(2, async () => {
      await rig.paid(shop, 1_000_000n)
      await mine(1)
      await rig.round()
      expect(await rig.states()).toEqual(["mined", "mined"])
      // The two payouts are in the two last blocks; the payment is not.
      await client.reorg(2)
      await rig.round()
      await rig.round()
      await mine()
      await rig.round()
    })
    expect(got).toEqual([500_000n, 500_000n])
    expect(await rig.states()).toEqual(["final", "final"])
    expect((await attempts()).length).toBe(2)
  })

  it.each([
    ["hides", 1],
    ["still has the old block at", 2],
  ] as const)(
    "what was paid out is sent again though a node %s its height; nobody bids for those behind it",
    async (lie, endpoints) => {
      const { client } = rig.anvil
      const { network } = rig
      const before = network.endpoints
      const honest = await startProxy(rig.anvil.rpcUrl)
      if (endpoints === 2) network.endpoints = [...before, newEndpoint(network.name, honest.url)]
      const atOnce = { resendMs: 0, replaceMs: 0 }
      const got = await gains(2, async () => {
        await rig.paid(await rig.sell([50, 50]), 1_000_000n)
        await mine(1)
        await rig.round()
        const rows = await rig.payouts()
        expect(rows.map(row => row.state)).toEqual(["mined", "mined"])
        const top = rows.map(row => row.block_number ?? 0n).sort()[1] ?? 0n
        const reported = lie === "hides" ? null : await blockAt(top)
        await client.reorg(2)
        rig.proxy.spoil = (method, params, result) =>
          method === "eth_getBlockByNumber" && params[0] === toHex(top) ? reported : result
        await mine(1)
        await rig.paid(await rig.sell([50, 50]), 1_000_000n)
        for (let i = 0; i < 5; i++) {
          await rig.round(rig.signer, atOnce)
          await mine(1)
        }
      })
      expect(got).toEqual([1_000_000n, 1_000_000n])
      expect(await rig.states()).toEqual(Array(4).fill("final"))
      const first = (await rig.payouts())[0]?.nonce ?? 0n
      expect((await attempts()).filter(({ nonce, n }) => n > 0 && nonce >= first + 2n)).toEqual([])
      network.endpoints = before
      await honest.stop()
    },
  )
})

describe("nonces", () => {
  it("a stuck transaction is replaced for an eighth more, the lowest nonce alone, and paid once", async () => {
    const shop = await rig.sell([50, 50])
    const { client } = rig.anvil
    const got = await gains(2, async () => {
      await rig.paid(shop, 1_000_000n)
      await client.setAutomine(false)
      await rig.round()
      await rig.round(rig.signer, { resendMs: 0, replaceMs: 0 })
      const all = await attempts()
      expect(all.map(each => each.n)).toEqual([0, 0, 1])
      const [first, , raised] = all
      expect(raised?.nonce).toBe(first?.nonce)
      expect(raised?.max_fee).toBe(((first?.max_fee ?? 0n) * 9n + 7n) / 8n)
      const [a, b] = [first, raised].map(each => parseTransaction(each?.raw ?? "0x"))
      expect([b?.to, b?.data, b?.value, b?.gas, b?.nonce]).toEqual([a?.to, a?.data, a?.value, a?.gas, a?.nonce])
      await client.mine({ blocks: 1 })
      await client.setAutomine(true)
      await mine()
      await rig.round()
    })
    expect(got).toEqual([500_000n, 500_000n])
    expect(await rig.states()).toEqual(["final", "final"])
  })

  it("at the fee cap it is sent on as it is", async () => {
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    await rig.anvil.client.setAutomine(false)
    await rig.round()
    const { settings } = rig.service.ctx
    const cap = settings.payoutMaxFee
    settings.payoutMaxFee = (await attempts())[0]?.max_fee ?? 0n
    await rig.round(rig.signer, { resendMs: 0, replaceMs: 0 })
    settings.payoutMaxFee = cap
    const all = await attempts()
    expect(all.map(each => [each.n, each.sends])).toEqual([
      [0, 2],
      [0, 2],
    ])
    await rig.anvil.client.setAutomine(true)
    await mine()
  })

  it("a nonce that another used halts the wallet, and nothing is sent again", async () => {
    const shop = await rig.sell([50, 50])
    const { client, accounts } = rig.anvil
    await rig.paid(shop, 1_000_000n)
    rig.proxy.spoil = (method, _params, result) => (method === "eth_sendRawTransaction" ? null : result)
    await client.setAutomine(false)
    await rig.round()
    // Our bytes never got anywhere: the pool is emptied, and somebody with the key takes their nonce.
    await client.dropAllTransactions()
    await client.setAutomine(true)
    const [first] = await attempts()
    const foreign = await accounts[1].signTransaction({
      type: "eip1559",
      chainId: 84532,
      nonce: Number(first?.nonce),
      to: accounts[2].address,
      gas: 21_000n,
      maxFeePerGas: 10_000_000_000n,
      maxPriorityFeePerGas: 1n,
    })
    await client.sendRawTransaction({ serializedTransaction: foreign })
    await mine()
    await rig.round()
    expect((await wallet()).status).toBe("active")
    rig.service.advance(31_000)
    await rig.round()
    const words = `nonce ${first?.nonce} was used by a transaction that this database does not know`
    expect(await wallet()).toMatchObject({ status: "halted", halted_reason: words })
    const sends = (await attempts()).map(each => each.sends)
    await rig.paid(shop, 1_000_000n)
    await rig.round(rig.signer, { resendMs: 0, replaceMs: 0 })
    expect((await attempts()).map(each => each.sends)).toEqual(sends)
  })

  it("a database restored from an old backup halts at the start", async () => {
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    const { ctx } = rig.service
    const old = (await wallet()).next_nonce
    await rig.round()
    // The backup knows the payment and nothing of what was paid out.
    await rig.empty()
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await ctx.db.updateTable("wallets").set({ next_nonce: old }).execute()
    await checkWallet(ctx, payoutLane(rig.network, rig.signer))
    expect((await wallet()).halted_reason).toContain("backup")
    expect(await gains(2, () => rig.round())).toEqual([0n, 0n])
    expect(await rig.states()).toEqual(["queued", "queued"])
  })
})

describe("what endpoints say of receipts", () => {
  it("is not believed where the transfer is not in it, nor where its block is not canonical", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    const lies: ((receipt: { logs: { data: string }[]; blockHash: string }) => object)[] = [
      receipt => ({ ...receipt, logs: receipt.logs.map(log => ({ ...log, data: `0x${"1".padStart(64, "0")}` })) }),
      receipt => ({ ...receipt, blockHash: `0x${"5".repeat(64)}` }),
      () => null as never,
    ]
    for (const lie of lies) {
      rig.proxy.spoil = (method, _params, result) =>
        method === "eth_getTransactionReceipt" && result ? lie(result as never) : result
      await rig.round()
      expect(await rig.states()).toEqual(["assigned", "assigned"])
    }
    rig.proxy.spoil = (_method, _params, result) => result
    await rig.round()
    expect(await rig.states()).toEqual(["mined", "mined"])
    expect((await attempts()).length).toBe(2)
  })

  it("that is missing, beside a count of before, takes nothing back: a node that is some blocks behind says both", async () => {
    await rig.paid(await rig.sell([25, 25, 50]), 1_000_000n)
    await rig.round()
    const before = await rig.states()
    expect(before).toContain("mined")
    rig.proxy.spoil = (method, params, result) => {
      if (method === "eth_getTransactionReceipt") return null
      return method === "eth_getTransactionCount" && params[1] !== "finalized" ? "0x0" : result
    }
    await rig.round()
    expect(await rig.states()).toEqual(before)
  })

  it("is asked once where they report the same block as final; again where they report another, or the cost is not known", async () => {
    await rig.paid(await rig.sell([25, 25, 50]), 1_000_000n)
    await rig.round()
    const mined = await rig.payouts()
    // One in the lowest block may be final already.
    const [first, second] = mined.filter(({ state }) => state === "mined")
    const { db } = rig.service.ctx
    const change = (id = "") => db.updateTable("payouts").where("id", "=", id)
    await change(first?.id).set({ gas_cost: null, gas_cost_at: null }).execute()
    await change(second?.id)
      .set({ block_hash: `0x${"5".repeat(64)}` as Hash })
      .execute()
    await mine()
    const asked: unknown[] = []
    rig.proxy.spoil = (method, [hash], result) => {
      if (method === "eth_getTransactionReceipt") asked.push(hash)
      return result
    }
    await rig.round()
    expect(new Set(asked)).toEqual(new Set([first?.tx_hash, second?.tx_hash]))
    const ended = (await rig.payouts()).map(({ state, block_hash, gas_cost }) => [state, block_hash, gas_cost !== null])
    expect(ended).toEqual(mined.map(({ block_hash }) => ["final", block_hash, true]))
  })
})

describe("what endpoints say of nonces", () => {
  it("halts at the start too when the backup is older than the first payout", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await rig.service.ctx.db.deleteFrom("wallets").execute()
    expect(await gains(2, () => rig.round())).toEqual([0n, 0n])
    expect((await wallet()).halted_reason).toContain("backup")
  })

  it("a count above ours that is not final keeps us from signing, and halts nothing", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    rig.proxy.spoil = (method, params, result) =>
      method === "eth_getTransactionCount" && params[1] === "latest" ? "0xffff" : result
    expect(await gains(2, () => rig.round())).toEqual([0n, 0n])
    expect((await wallet()).status).toBe("active")
    rig.proxy.spoil = (_method, _params, result) => result
    expect(await gains(2, () => rig.round())).toEqual([500_000n, 500_000n])
  })
})
