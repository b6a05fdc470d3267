// What payouts cost, and what a merchant's may: on a real chain, and many at once.
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { Hex } from "viem"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { waitingAlarms } from "../../operations/doctor/waiting-alarms.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { firstFees } from "../../platform/chain/fees.ts"
import { RELEASE_GAS } from "../../platform/chain/release-call.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import { inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { payoutLane } from "../payouts/payout-lane.ts"
import { assignPayouts } from "./assign-nonces.ts"
import { lockBudgets, relaysSpent, withinBudgets } from "./check-gas-budget.ts"
import { alarmMessages } from "./report-alarms.ts"
import { signAttempts } from "./sign-attempts.ts"

const DAY_MS = 86_400_000
const NO_BOUND = 10n ** 18n
/** A hundredth of an ether. */
const LIMIT = 10n ** 16n
let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig.stop())
beforeEach(async () => {
  rig.proxy.spoil = (_method, _params, result) => result
  await rig.anvil.client.setAutomine(true)
  await rig.anvil.client.mine({ blocks: 3 })
  await rig.empty()
  await rig.service.merchant("rival")
  Object.assign(rig.service.ctx.settings, { gasBudget: NO_BOUND, gasBudgetTotal: 0n, smallPayout: "0.10" })
})

const mine = (blocks = 3) => rig.anvil.client.mine({ blocks })
const costs = async () => (await rig.payouts()).map(row => row.gas_cost)
const receiptOf = (hash: Hex) => rig.anvil.client.getTransactionReceipt({ hash })
const costOf = async (row: Row<"payouts">): Promise<bigint> => {
  const { gasUsed, effectiveGasPrice } = await receiptOf(row.tx_hash as Hex)
  return gasUsed * effectiveGasPrice
}
const settingsOf = async (as: string) =>
  (await rig.service.call("GET", "/api/console/settings", undefined, { as })).body.gasBudget
/** For each payout: why it is held, otherwise whether it is paid. */
const endings = async () => (await rig.payouts()).map(row => row.held_reason ?? (row.succeeded ? "paid" : row.state))
const heldReasons = async () => (await rig.payouts()).map(row => row.held_reason ?? row.state)

it("a call that counts for no budget is not held, though its merchant's is spent", async () => {
  const { db } = rig.service.ctx
  await rig.paid(await rig.sell([50, 50]), 1_000_000n)
  const [other] = await rig.payouts()
  if (!other) throw new Error("there is no payout")
  const { merchant_id, chain_id, run_at, created_at, updated_at, to_address, token, data, gas } = other
  await db
    .insertInto("payouts")
    .values({
      id: randomUUID(),
      kind: "anchor",
      source_key: "anchor test",
      merchant_id,
      chain_id,
      token,
      recipient: to_address,
      amount: 1n,
      to_address,
      data,
      gas,
      reserved: false,
      state: "queued",
      run_at,
      created_at,
      updated_at,
    })
    .execute()
  rig.service.ctx.settings.gasBudget = 1n
  const [wallet] = await db.selectFrom("wallets").selectAll().where("lane", "=", "payout").execute()
  if (!wallet) throw new Error("there is no wallet")
  const due = await rig.payouts()
  const left = await withinBudgets(rig.service.ctx, wallet, due, LIMIT, async () => [])
  expect(left.due.map(({ kind }) => kind)).toEqual(["anchor"])
  const { rows } = await sql`select kind, state from payouts where kind = 'anchor' or state <> 'held'`.execute(db)
  expect(rows).toEqual([{ kind: "anchor", state: "queued" }])
})

describe("what a payout cost", () => {
  it("is kept by its receipt when it is mined, and stays", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await rig.round()
    const mined = await rig.payouts()
    for (const row of mined) expect(row).toMatchObject({ state: "mined", gas_cost: await costOf(row) })
    await mine()
    rig.service.advance(60_000)
    await rig.round()
    const final = await rig.payouts()
    expect(final.map(row => [row.state, row.gas_cost, row.gas_cost_at])).toEqual(
      mined.map(row => ["final", row.gas_cost, row.gas_cost_at]),
    )
  })

  it("has the fee for the data in it, where a receipt has one", async () => {
    rig.proxy.spoil = (method, _params, result) =>
      method === "eth_getTransactionReceipt" && result ? { ...(result as object), l1Fee: "0x3039" } : result
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await rig.round()
    for (const row of await rig.payouts()) expect(row.gas_cost).toBe((await costOf(row)) + 12_345n)
  })

  it("is left open by a node that reports none, or more than there is", async () => {
    for (const lie of [undefined, null, "0x", 5, `0x${"f".repeat(64)}`]) {
      rig.proxy.spoil = (method, _params, result) =>
        method === "eth_getTransactionReceipt" && result ? { ...(result as object), gasUsed: lie } : result
      await rig.paid(await rig.sell([50, 50]), 1_000_000n)
      await rig.round()
    }
    for (const row of await rig.payouts()) expect(row.succeeded).toBe(true)
    expect(new Set(await costs())).toEqual(new Set([null]))
  })

  it("is that of a failed one too", async () => {
    const { client } = rig.anvil
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await client.setAutomine(false)
    await rig.round()
    const args = [recipient(0)] as const
    const blacklist = { address: rig.token, abi: testUsdcAbi, functionName: "blacklist", args } as const
    await client.writeContract({ ...blacklist, maxPriorityFeePerGas: 9_000_000_000n, maxFeePerGas: 20_000_000_000n })
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await mine()
    await rig.round()
    const failed = (await rig.payouts()).find(row => row.state === "reverted")
    expect(failed?.gas_cost).toBe(await costOf(failed as Row<"payouts">))
    await client.writeContractSync({ ...blacklist, functionName: "unBlacklist" })
  })

  it("is taken back with its block, and known again when it is mined again", async () => {
    const { client } = rig.anvil
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await mine(1)
    await rig.round()
    expect(await costs()).not.toContain(null)
    await client.setAutomine(false)
    await client.reorg(2)
    await client.dropAllTransactions()
    await rig.round()
    expect(await rig.states()).toEqual(["assigned", "assigned"])
    expect(await costs()).toEqual([null, null])
    await client.setAutomine(true)
    await sql`update transaction_attempts set sent_at = null`.execute(rig.service.ctx.db)
    await rig.round()
    await rig.round()
    for (const row of await rig.payouts()) expect(row.gas_cost).toBe(await costOf(row))
  })
})

describe("a merchant's gas budget", () => {
  it("once spent holds its payouts until its day is over, and nobody else's; the console shows it", async () => {
    const shop = await rig.sell([50, 50])
    const other = await rig.sell([50, 50], "rival")
    await rig.paid(shop, 1_000_000n)
    await rig.round()
    await spend(LIMIT / 2n)
    rig.service.advance(3_600_000)
    await rig.paid(shop, 1_000_000n)
    await rig.paid(other, 1_000_000n)
    await rig.round()
    const paid = ["paid", "paid"]
    const held = ["gas_budget", "gas_budget"]
    expect(await endings()).toEqual([...paid, ...held, ...paid])
    const { freesAt, ...rest } = await settingsOf("shop")
    expect(rest).toEqual({ limit: "0.01", spent: "0.01", heldPayouts: 2 })
    expect(Math.abs(Date.parse(freesAt) - rig.service.ctx.now().getTime() - 3_600_000)).toBeLessThan(60_000)
    expect(await settingsOf("rival")).toMatchObject({ heldPayouts: 0, freesAt: null })
    // A spent budget is not their failure: they come back as new ones.
    expect((await rig.payouts()).map(row => row.checks)).toEqual([0, 0, 0, 0, 0, 0])
    rig.service.advance(DAY_MS - 3_700_000)
    await rig.round()
    expect(await endings()).toEqual([...paid, ...held, ...paid])
    const [first] = await rig.payouts()
    const over = (first?.gas_cost_at?.getTime() ?? 0) + DAY_MS
    expect((await settingsOf("shop")).freesAt).toBe(new Date(over).toISOString())
    rig.service.advance(200_000)
    await rig.round()
    expect(await endings()).toEqual([...paid, ...paid, ...paid])
    expect(await settingsOf("shop")).toMatchObject({ heldPayouts: 0, freesAt: null })
  })

  it("counts what is in flight by the most it may cost, and decides in the transaction that signs", async () => {
    const { settings } = rig.service.ctx
    const shop = await rig.sell([25, 25, 25, 25])
    await rig.paid(shop, 1_000_000n)
    await rig.anvil.client.setAutomine(false)
    const { baseFeePerGas } = await rig.anvil.client.getBlock()
    const tip = await rig.anvil.client.estimateMaxPriorityFeePerGas()
    const most = RELEASE_GAS * (2n * (baseFeePerGas ?? 0n) + tip)
    settings.gasBudget = 2n * most + most / 2n
    await rig.round()
    const count = (state: string) => async () => (await heldReasons()).filter(each => each === state).length
    expect(await count("assigned")()).toBe(2)
    expect((await settingsOf("shop")).spent).toBe(formatAmount(2n * most, 18))
    rig.service.advance(31_000)
    await rig.round()
    expect(await count("assigned")()).toBe(2)
    // They cost less than they might have, which makes room at once.
    await rig.anvil.client.mine({ blocks: 1 })
    await rig.anvil.client.setAutomine(true)
    rig.service.advance(61_000)
    await rig.round()
    expect(await count("mined")()).toBeGreaterThan(2)
  })

  it("is none in the sandbox, and the console says so", async () => {
    rig.service.ctx.settings.gasBudget = 0n
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await rig.round()
    expect(await rig.states()).toEqual(["mined", "mined"])
    expect(await settingsOf("shop")).toBe(null)
  })

  it("of one with thousands of due payouts keeps nobody waiting", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    const other = await rig.sell([50, 50], "rival")
    await rig.paid(shop, 1_000_000n)
    await rig.round()
    await spend(LIMIT / 2n)
    await manyMore(shop.deposit.id, 2_500)
    const before = await rig.balanceOf(recipient(0))
    await rig.paid(other, 1_000_000n)
    await rig.round()
    expect((await rig.balanceOf(recipient(0))) - before).toBe(500_000n)
    const { rows } = await sql<{ n: number; times: number; asked: number }>`
      select count(*)::int as n, count(distinct run_at)::int as times, coalesce(sum(checks), 0)::int as asked
      from payouts where held_reason = 'gas_budget'`.execute(ctx.db)
    // They are due again at different times.
    expect(rows[0]).toMatchObject({ n: 2_500, asked: 0 })
    expect(rows[0]?.times).toBeGreaterThan(1)
    expect((await rig.payouts()).filter(row => row.state === "queued")).toEqual([])
  })

  it("lets no two at once take the same room", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    await rig.round()
    await manyMore(shop.deposit.id, 12)
    const queued = (await rig.payouts()).filter(row => row.state === "queued")
    const spent = (await costs()).reduce<bigint>((sum, cost) => sum + (cost ?? 0n), 0n)
    const most = 1_000_000n
    ctx.settings.gasBudget = spent + 3n * most
    // As two wallets would take that sign at the same time.
    const taken = await Promise.all(
      queued.map((row, i) =>
        inTransaction(ctx, async ctx => {
          const budgets = await lockBudgets(ctx, [row.merchant_id])
          if (!budgets.take({ ...row, amount: 1_000_000n }, most)) return false
          await signed(row, 1_000 + i, most)(ctx)
          return true
        }),
      ),
    )
    expect(taken.filter(Boolean).length).toBe(3)
  })
})

describe("small payouts, which strangers cause with many cheap checkouts", () => {
  it("get three quarters of the budget, and others go on", async () => {
    rig.service.ctx.settings.smallPayout = "0.60"
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    await rig.round()
    await spend((LIMIT * 3n) / 8n)
    await rig.paid(shop, 1_000_000n)
    await manyMore(shop.deposit.id, 40)
    await rig.paid(shop, 4_000_000n)
    await rig.round()
    const rows = (await rig.payouts()).map(row => [row.amount, row.held_reason ?? (row.succeeded ? "paid" : row.state)])
    expect(rows.filter(([amount]) => amount === 2_000_000n)).toEqual(Array(2).fill([2_000_000n, "paid"]))
    expect(rows.filter(([, end]) => end === "gas_budget").length).toBe(42)
    // Nothing is stranded: what was spent leaves the window.
    rig.service.advance(DAY_MS + 60_000)
    for (let i = 0; i < 3; i++) await rig.round()
    expect((await endings()).filter(end => end === "gas_budget").length).toBeLessThan(42)
  })
})

describe("the gas budget of all merchants together", () => {
  it("once spent has payouts wait, raises an alarm, and lets them go on when the day is over", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    const other = await rig.sell([50, 50], "rival")
    await rig.paid(shop, 1_000_000n)
    await rig.round()
    await spend(LIMIT / 4n)
    ctx.settings.gasBudgetTotal = LIMIT / 2n
    ctx.settings.payoutWallet = rig.signer.address
    // Neither merchant has spent its own budget.
    await rig.paid(shop, 1_000_000n)
    await rig.paid(other, 1_000_000n)
    await rig.round()
    expect(await endings()).toEqual(["paid", "paid", "queued", "queued", "queued", "queued"])
    expect(await alarmMessages(ctx, waitingAlarms)).toEqual([expect.stringContaining("GAS_BUDGET_TOTAL")])
    rig.service.advance(DAY_MS + 60_000)
    await rig.round()
    await rig.round()
    expect(await endings()).toEqual(Array(6).fill("paid"))
    expect(await alarmMessages(ctx, waitingAlarms)).toEqual([])
    ctx.settings.payoutWallet = undefined
  })
})

describe("the fee for the data of what is in flight", () => {
  const oracle = { address: "0x420000000000000000000000000000000000000F" } as const
  beforeEach(async () => {
    const fee = (10n ** 15n).toString(16).padStart(64, "0")
    await rig.anvil.client.setCode({ ...oracle, bytecode: `0x7f${fee}60005260206000f3` })
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await rig.anvil.client.setAutomine(false)
  })
  afterEach(() => rig.anvil.client.setCode({ ...oracle, bytecode: "0x" }))

  /** Prepares a turn; returns it, and what one payout may cost in it. */
  async function round() {
    const { ctx } = rig.service
    const state = await readWalletState(rig.network, rig.signer.address, ctx.signal)
    const { market, dataFee } = state
    const gas = RELEASE_GAS * ((market && firstFees(market, ctx.settings.payoutMaxFee))?.maxFee ?? 0n)
    const wallet = await ctx.db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
    const lane = payoutLane(rig.network, rig.signer)
    const turn = async () => {
      const { assigned, postponed } = await assignPayouts(ctx, lane, wallet, state)
      await signAttempts(ctx, lane, wallet, state)
      return { assigned: assigned.length, postponed }
    }
    return { gas, dataFee, wallet, turn }
  }

  it("leaves no room in a budget of all, and the round ends, which did not know of that data", async () => {
    const { gas, dataFee, turn } = await round()
    // The second fits beside the gas of the first, and not beside its data.
    rig.service.ctx.settings.gasBudgetTotal = 2n * gas + dataFee + dataFee / 2n
    expect(await turn()).toEqual({ assigned: 1, postponed: 1 })
    // A postponed payout makes the round continue at once.
    expect(await turn()).toEqual({ assigned: 0, postponed: 0 })
    expect(await heldReasons()).toEqual(["assigned", "queued"])
  })

  it("is spent of its merchant's budget: nothing is simulated that has no room beside it, and no relay is taken", async () => {
    const { ctx } = rig.service
    const { gas, dataFee, wallet, turn } = await round()
    ctx.settings.gasBudget = 2n * gas + dataFee + dataFee / 2n
    expect(await turn()).toEqual({ assigned: 1, postponed: 1 })
    expect((await settingsOf("shop")).spent).toBe(formatAmount(gas + dataFee, 18))
    await sql`update payouts set state = 'queued', held_reason = null, run_at = ${ctx.now()} where state = 'held'`.execute(
      ctx.db,
    )
    const simulated: unknown[] = []
    rig.proxy.spoil = (method, params, result) => {
      if (method === "eth_call") simulated.push(params)
      return result
    }
    expect(await turn()).toEqual({ assigned: 0, postponed: 1 })
    expect([simulated, await heldReasons()]).toEqual([[], ["assigned", "gas_budget"]])
    const [{ merchant_id: merchantId } = { merchant_id: "" }] = await rig.payouts()
    expect(await relaysSpent(ctx, merchantId, wallet, RELEASE_GAS, "authorize")).toBe(true)
    ctx.settings.gasBudget = 4n * (gas + dataFee)
    expect(await relaysSpent(ctx, merchantId, wallet, RELEASE_GAS, "authorize")).toBe(false)
  })
})

describe("a payout that its merchant's budget refuses", () => {
  it("takes nothing of the budget of all, which has room for another merchant's", async () => {
    const { ctx } = rig.service
    const { settings } = ctx
    const shop = await rig.sell([50, 50])
    const other = await rig.sell(undefined, "rival")
    await rig.paid(shop, 1_000_000n)
    rig.service.advance(1)
    await rig.paid(other, 2_000_000_000n)
    await rig.anvil.client.setAutomine(false)
    const { baseFeePerGas } = await rig.anvil.client.getBlock()
    const most = RELEASE_GAS * (2n * (baseFeePerGas ?? 0n) + (await rig.anvil.client.estimateMaxPriorityFeePerGas()))
    settings.gasBudget = most + most / 2n
    settings.gasBudgetTotal = 2n * most + most / 2n
    const wallet = await ctx.db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
    const sight = await readWalletState(rig.network, rig.signer.address, ctx.signal)
    // In one turn: a relay that the budget of all refuses is not checked again.
    await assignPayouts(ctx, payoutLane(rig.network, rig.signer), wallet, sight)
    expect(await heldReasons()).toEqual(["assigned", "gas_budget", "assigned"])
  })
})

/** Makes each final payout cost `each` wei, out of a budget of {@link LIMIT}. */
async function spend(each: bigint): Promise<void> {
  const { ctx } = rig.service
  // What is final is not checked again.
  await mine()
  await rig.round()
  await sql`update payouts set gas_cost = ${each} where state = 'final'`.execute(ctx.db)
  ctx.settings.gasBudget = LIMIT
}

/** Adds `n` payouts, due since yesterday, as if the deposit had been paid that often. */
async function manyMore(depositId: bigint, n: number): Promise<void> {
  const { db } = rig.service.ctx
  await sql`update deposit_books set inflow = inflow + ${n} where deposit_id = ${depositId}`.execute(db)
  await sql`insert into payouts (id, chain_id, kind, source_key, deposit_id, merchant_id, token, recipient, amount, to_address,
      data, reserved, state, run_at, created_at, updated_at)
    select gen_random_uuid(), chain_id, 'sweep', 'many:' || g, deposit_id, merchant_id, token, recipient, 1, to_address, data, true,
      'queued', run_at - interval '1 day', created_at, created_at
    from (select * from payouts where deposit_id = ${depositId} limit 1) as one, generate_series(1, ${n}) as g`.execute(
    db,
  )
}

/** What assigning a payout writes. */
const signed =
  (row: Row<"payouts">, nonce: number, most: bigint) => async (ctx: Pick<PayoutRig["service"]["ctx"], "db">) => {
    const wallet = rig.signer.address
    await sql`update payouts set state = 'assigned', wallet = ${wallet}, nonce = ${nonce} where id = ${row.id}`.execute(
      ctx.db,
    )
    await sql`insert into transaction_attempts (payout_id, chain_id, wallet, nonce, n, raw, hash, gas, max_fee, tip)
    values (${row.id}, ${row.chain_id}, ${wallet}, ${nonce}, 0, '0x', ${`0x${nonce.toString().padStart(64, "0")}`}, 1, ${most}, 0)`.execute(
      ctx.db,
    )
  }
