// One row altered by hand halts the wallet and is named; what strangers, reorgs and nodes do halts nothing.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { deployOtherToken } from "../../../test/anvil.ts"
import { alterations, byHand } from "../../../test/books.ts"
import { DAY_MS, type Life, lifeOf } from "../../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { depositFactoryAbi, otherTokenAbi, testUsdcAbi } from "../../platform/chain/abi.ts"
import { addressOfTerms } from "../../platform/chain/deposit-terms.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { MULTICALL3 } from "../../platform/chain/multicall.ts"
import { termsOf } from "../../platform/chain/release-call.ts"
import { inTransaction } from "../../platform/context.ts"
import { ensureCursor } from "../scanner/scan-round.ts"
import { settleDue } from "../settlement/settle.ts"
import { checkBooks } from "./check-books.ts"
import { checkConsistency } from "./check-consistency.ts"
import { reconcileRound } from "./reconcile.ts"

let rig: PayoutRig
let life: Life
let liar: RpcProxy
beforeAll(async () => {
  rig = await startPayoutRig()
  life = lifeOf(rig)
  liar = await startProxy(rig.anvil.rpcUrl)
})
afterAll(async () => {
  await liar.stop()
  await rig.stop()
})

const ctx = () => rig.service.ctx
const begin = () => life.begin()

/** Runs the hourly comparison and a whole daily pass; returns why the wallet is halted. */
async function reconcile(on = ctx()): Promise<string | null> {
  await on.db.deleteFrom("reconciliations").execute()
  await reconcileRound(on, rig.network, rig.signer.address)
  return (await on.db.selectFrom("wallets").select("halted_reason").executeTakeFirstOrThrow()).halted_reason
}

const states = async () => [
  ...new Set((await ctx().db.selectFrom("transfers").select("state").execute()).map(row => row.state)),
  ...new Set(await rig.states()),
]

class Back extends Error {}

describe("one row altered by hand", () => {
  beforeAll(async () => {
    await begin()
    await life.live()
    expect(await states()).toEqual(["final", "final"])
    expect(await ctx().db.selectFrom("outflows").select(["reason", "amount"]).execute()).toEqual([
      { reason: "recovery", amount: 70_000n },
    ])
  })

  it("is not there at first: everything agrees", async () => {
    expect(await reconcile()).toBeNull()
    const balanced = await ctx().db.selectFrom("deposits").select("balanced_number").execute()
    const { number } = await rig.anvil.client.getBlock({ blockTag: "finalized" })
    expect(balanced.map(row => row.balanced_number)).toEqual([number, number, number])
  })

  it.each(alterations)("$table: $what", async ({ table, statement }) => {
    let halted: string | null = null
    const work = inTransaction(ctx(), async inside => {
      expect(await byHand(inside.db, statement)).toBe(1)
      const within = { ...ctx(), db: inside.db }
      halted = await reconcile(within)
      // Money that left without a record must be missing twice, because a node may report its logs late.
      if (halted === null) halted = await reconcile({ ...within, now: () => new Date(ctx().now().getTime() + 700_000) })
      throw new Back()
    })
    await expect(work).rejects.toThrow(Back)
    // A missing row is found through the rows that refer to it.
    const isGone = statement.startsWith("delete") || statement.includes("state = 'gone'")
    const names = isGone ? /row .+ of \w+/ : new RegExp(`row \\S+ of ${table}`)
    expect(halted).toMatch(names)
  })
})

describe("halts nothing:", () => {
  beforeEach(begin)

  it("payouts on their way, and blocks that a reorg removes", async () => {
    const { client } = rig.anvil
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    expect(await reconcile()).toBeNull()
    await client.setAutomine(false)
    await rig.round()
    expect(await reconcile()).toBeNull()
    await client.mine({ blocks: 1 })
    // Mined and not yet noticed, then noticed, then displaced, then mined again.
    expect(await reconcile()).toBeNull()
    await rig.round()
    await client.reorg(1)
    expect(await reconcile()).toBeNull()
    await rig.round()
    expect(await reconcile()).toBeNull()
    await client.setAutomine(true)
    await life.mine()
    await life.verify()
    // Final, and not noticed for a while.
    expect(await reconcile()).toBeNull()
    rig.service.advance(700_000)
    expect(await reconcile()).toBeNull()
    await life.settle()
    expect(await reconcile()).toBeNull()
    expect(await states()).toEqual(["final", "final"])
  })

  it("a payment that a reorg removed and restored, with more", async () => {
    const shop = await rig.sell()
    await rig.paid(shop, 600_000n)
    const set = (change: object) => ctx().db.updateTable("transfers").set(change).execute()
    const moved = [
      // In another block with a larger amount, and confirmed there: it stays the same payment.
      { state: "seen", value: 650_000n },
      { state: "confirmed" },
      { state: "gone" },
      { state: "seen", value: 700_000n },
      { state: "confirmed" },
    ]
    for (const change of moved) {
      await set({ ...change, run_at: ctx().now() })
      expect(await reconcile()).toBeNull()
      await life.verify()
      expect(await reconcile()).toBeNull()
    }
  })

  it("what is left of a payment whose split was edited between its parts: its shares are whose they were", async () => {
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 300_000n)
    rig.service.advance(60_000)
    const recipients = ["c0", "c1"].map(byte => ({ address: `0x${byte.repeat(20)}`, percent: 50 }))
    const edited = await rig.service.call("PUT", `/api/console/splits/${shop.splitId}`, { recipients }, { as: "shop" })
    expect(edited.status).toBe(200)
    rig.service.advance(60_000)
    const id = await rig.paid(shop, 300_000n)
    const payment = () => ctx().db.selectFrom("payments").selectAll().executeTakeFirstOrThrow()
    const before = await payment()
    expect(before).toMatchObject({ id, status: "granted" })
    await ctx()
      .db.updateTable("transfers")
      .set({ state: "gone", run_at: ctx().now() })
      .where("tx_hash", "=", before.tx_hash)
      .execute()
    await settleDue(ctx(), rig.network)
    expect(await payment()).toMatchObject({ id, status: "open", amount: 300_000n })
    expect(await checkConsistency(ctx(), rig.network.chainId)).toEqual([])
    // Topped up, the same payment is granted again.
    await rig.paid(shop, 250_000n)
    expect(await payment()).toMatchObject({ id, status: "granted" })
    expect(await checkConsistency(ctx(), rig.network.chainId)).toEqual([])
  })

  it("money too little whose last part is suspected to be gone while nobody can be screened", async () => {
    const shop = await rig.sell()
    await rig.paid(shop, 200_000n)
    const id = await rig.paid(shop, 200_000n)
    const { tx_hash } = await ctx().db.selectFrom("payments").selectAll().executeTakeFirstOrThrow()
    const suspect = async (at: Date | null) => {
      await ctx()
        .db.updateTable("transfers")
        .set({ suspect_at: at, run_at: ctx().now() })
        .where("tx_hash", "=", tx_hash)
        .execute()
      await settleDue(ctx(), rig.network)
      expect(await checkConsistency(ctx(), rig.network.chainId)).toEqual([])
      return await ctx().db.selectFrom("payments").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
    }
    ctx().settings.sanctionsFile = "/nowhere"
    try {
      expect(await suspect(ctx().now())).toMatchObject({ status: "open", amount: 200_000n })
    } finally {
      ctx().settings.sanctionsFile = undefined
    }
    expect(await suspect(null)).toMatchObject({ status: "open", amount: 400_000n, tx_hash })
  })

  it("a transfer that the scan missed: it is stored, and pays", async () => {
    const shop = await rig.sell()
    rig.proxy.spoil = (method, _params, result) => (method === "eth_getLogs" ? [] : result)
    await life.send(shop.deposit.address, 600_000n)
    await life.mine(4)
    await life.verify()
    await ctx().db.updateTable("cursors").set({ block_number: 1_000_000n }).execute()
    expect(await ctx().db.selectFrom("transfers").select("id").execute()).toEqual([])
    // A node without the log proves nothing.
    expect(await reconcile()).toBeNull()
    rig.proxy.spoil = (_method, _params, result) => result
    await ctx().db.deleteFrom("cursors").execute()
    await ensureCursor(ctx(), rig.network)
    expect(await reconcile()).toBeNull()
    expect(await ctx().db.selectFrom("transfers").select(["state", "value"]).execute()).toEqual([
      { state: "seen", value: 600_000n },
    ])
    await life.verify()
    await life.verify()
    expect(await states()).toEqual(["final"])
    expect(await reconcile()).toBeNull()
  })

  it("the same by the hourly look at logs", async () => {
    const shop = await rig.sell()
    await life.send(shop.deposit.address, 600_000n)
    await life.mine(4)
    expect(await life.compareLogs()).toBeNull()
    expect((await ctx().db.selectFrom("transfers").select("value").execute()).length).toBe(1)
  })

  it("nodes that refuse state, logs or receipts, or have forgotten them", async () => {
    await life.live()
    for (const method of ["eth_call", "eth_getLogs", "eth_getTransactionReceipt"]) {
      rig.proxy.spoil = (called, _params, result) => (called === method ? null : result)
      expect(await reconcile()).toBeNull()
      expect(await life.compareLogs()).toBeNull()
    }
    rig.proxy.spoil = (_method, _params, result) => result
    rig.proxy.broken = 503
    expect(await reconcile()).toBeNull()
  })

  it("one endpoint of two that reports other receipts, logs and balances", async () => {
    await life.live()
    const network = {
      ...rig.network,
      endpoints: [liar.url, rig.proxy.url].map(url => newEndpoint("base-sepolia", url)),
    }
    const more = (data: string) => `0x${(BigInt(data) + 1n).toString(16).padStart(64, "0")}`
    const lie = (logs: { data: string }[]) => logs.map(log => ({ ...log, data: more(log.data) }))
    liar.spoil = (method, _params, result) => {
      if (method === "eth_getLogs") return lie(result as never)
      if (method === "eth_call") return String(result).replace(/0{8}(?=0*$)/, "0000000f")
      const receipt = result as { logs: { data: string }[] } | null
      return method === "eth_getTransactionReceipt" && receipt ? { ...receipt, logs: lie(receipt.logs) } : result
    }
    await ctx().db.deleteFrom("reconciliations").execute()
    await reconcileRound(ctx(), network, rig.signer.address)
    await ctx().db.updateTable("wallets").set({ check_at: null, checked_number: 1n }).execute()
    await checkBooks(ctx(), network, rig.signer.address)
    rig.service.advance(700_000)
    await ctx().db.deleteFrom("reconciliations").execute()
    await reconcileRound(ctx(), network, rig.signer.address)
    expect((await ctx().db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()).halted_reason).toBeNull()
    // If both endpoints report the same false values, nobody can distinguish it from the truth.
    const both = { ...network, endpoints: [liar.url, liar.url].map(url => newEndpoint("base-sepolia", url)) }
    await ctx().db.deleteFrom("reconciliations").execute()
    await reconcileRound(ctx(), both, rig.signer.address)
    expect((await ctx().db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()).status).toBe("halted")
  })

  it("the first of two endpoints that reports what the rows say: it is not believed alone, and both are named", async () => {
    const shop = await rig.sell()
    await rig.paid(shop, 600_000n)
    await life.mine(4)
    await life.verify()
    await life.verify()
    await rig.mint(shop.deposit.address, 1n)
    await life.mine(4)
    liar.spoil = (method, _params, result) =>
      method === "eth_call" ? String(result).replace((600_001).toString(16), (600_000).toString(16)) : result
    const urls = [liar.url, rig.proxy.url]
    const network = { ...rig.network, endpoints: urls.map(url => newEndpoint("base-sepolia", url)) }
    const said: string[] = []
    const log = { ...ctx().log, error: (_facts: unknown, words: string) => void said.push(words) }
    const inside = { ...ctx(), log: Object.assign(Object.create(ctx().log), log) }
    await ctx().db.deleteFrom("reconciliations").execute()
    await reconcileRound(inside, network, rig.signer.address)
    expect(said.join()).toContain("endpoint 1 of 2: 600000, endpoint 2 of 2: 600001")
    const { number } = await rig.anvil.client.getBlock({ blockTag: "finalized" })
    const { balanced_number } = await ctx().db.selectFrom("deposits").selectAll().executeTakeFirstOrThrow()
    expect(balanced_number).not.toBe(number)
    expect((await ctx().db.selectFrom("wallets").select("status").executeTakeFirstOrThrow()).status).toBe("active")
  })

  it("what strangers send: ether, zeros, other tokens, and recoveries", async () => {
    const { client } = rig.anvil
    const { split, swept, old } = await life.live()
    const other = await deployOtherToken(client)
    for (const { deposit } of [split, swept, old]) {
      await client.setBalance({ address: deposit.address, value: 10n ** 18n })
      await client.writeContractSync({
        address: other,
        abi: otherTokenAbi,
        functionName: "mint",
        args: [deposit.address, 5n],
      })
      const zero = [deposit.address, rig.signer.address, 0n] as const
      await client.writeContractSync({ address: rig.token, abi: testUsdcAbi, functionName: "transferFrom", args: zero })
    }
    await rig.paid(swept, 600_000n)
    await life.send(split.deposit.address, 5n)
    await life.advance(366 * DAY_MS)
    for (const token of [other, rig.token])
      for (const { deposit } of [split, swept, old]) {
        const args = [deposit.salt, termsOf(deposit), token] as const
        await client.writeContractSync({
          address: deposit.factory,
          abi: depositFactoryAbi,
          functionName: "recover",
          args,
        })
      }
    await life.mine()
    await life.verify()
    // Compared by the balances first, then by the logs.
    expect(await reconcile()).toBeNull()
    expect(await life.compareLogs()).toBeNull()
    await life.settle()
    expect(await reconcile()).toBeNull()
    const reasons = await ctx().db.selectFrom("outflows").select("reason").execute()
    expect(reasons.map(({ reason }) => reason)).toEqual(["recovery", "recovery", "recovery"])
  })
})

describe("money that left without a payout", () => {
  beforeEach(begin)

  it("halts the wallet, even to the owner before its time; and is in the books once a person has looked", async () => {
    const { client } = rig.anvil
    const shop = await rig.sell()
    await rig.paid(shop, 600_000n)
    await life.settle()
    await client.impersonateAccount({ address: shop.deposit.address })
    await client.setBalance({ address: shop.deposit.address, value: 10n ** 18n })
    await client.writeContractSync({
      address: rig.token,
      abi: testUsdcAbi,
      functionName: "transfer",
      args: [shop.deposit.owner, 1n],
      account: shop.deposit.address,
    })
    await life.mine()
    expect(await reconcile()).toContain("left a deposit without a payout")
    await ctx().db.updateTable("wallets").set({ status: "active", halted_reason: null }).execute()
    expect(await reconcile()).toBeNull()
    expect(await life.compareLogs()).toBeNull()
    expect(await ctx().db.selectFrom("outflows").select(["reason", "amount"]).execute()).toEqual([
      { reason: "unknown", amount: 1n },
    ])
  })
})

it("asks 500 balances in a call", async () => {
  await begin()
  const { deposit } = await rig.sell()
  const { id: _, address: __, merchant_id: ___, balanced_number: ____, ...common } = deposit
  const rows = Array.from({ length: 1_000 }, (_, i) => {
    const salt = `0x${(i + 1).toString(16).padStart(64, "0")}` as Hash
    return { ...common, salt, address: addressOfTerms(deposit.factory, salt, termsOf(deposit)) }
  })
  await ctx().db.insertInto("deposits").values(rows).execute()
  let balances = 0
  rig.proxy.spoil = (method, params, result) => {
    const to = method === "eth_call" ? (params[0] as { to: string }).to : ""
    if (to.toLowerCase() === MULTICALL3) balances++
    return result
  }
  expect(await reconcile()).toBeNull()
  expect(balances).toBe(3)
  const seen = await ctx().db.selectFrom("deposits").select("id").where("balanced_number", "is not", null).execute()
  expect(seen.length).toBe(1_001)
})
