// The comparison among thousands of addresses: whose logs it asks for, what that costs, and that no theft and no payment
// escapes because of those that it does not ask for.
import { sql } from "kysely"
import { encodeFunctionData } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Life, lifeOf } from "../../../test/life.ts"
import { failed } from "../../../test/node.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { depositFactoryAbi, testUsdcAbi } from "../../platform/chain/abi.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { NO_DEADLINE, termsOf } from "../../platform/chain/release-call.ts"
import type { Row } from "../../platform/db/schema.ts"
import { putAway } from "../deposits/put-away.ts"
import { checkDormantDeposits } from "../scanner/check-dormant-deposits.ts"
import { checkBooks } from "./check-books.ts"
import { reconcileRound } from "./reconcile.ts"

const HOUR_MS = 3_600_000
let rig: PayoutRig
let life: Life
beforeAll(async () => {
  rig = await startPayoutRig()
  life = lifeOf(rig)
})
afterAll(() => rig.stop())
beforeEach(() => life.begin())

type Shop = Awaited<ReturnType<PayoutRig["sell"]>>

const ctx = () => rig.service.ctx
const db = () => ctx().db
const wallet = () => db().selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
const depositOf = ({ deposit }: Shop) =>
  db().selectFrom("deposits").selectAll().where("id", "=", deposit.id).executeTakeFirstOrThrow()
const outflows = async () => (await db().selectFrom("outflows").select(["reason", "amount"]).execute()).map(lineOf)
const lineOf = ({ reason, amount }: Pick<Row<"outflows">, "reason" | "amount">) => `${reason} ${amount}`

/** Takes an address out of the scan, so many milliseconds ago, at the block where the scan is. */
async function rest({ deposit }: Shop, agoMs: number): Promise<void> {
  const since = new Date(ctx().now().getTime() - agoMs)
  await sql`update deposits set watched = false, dormant_since = ${since}, check_at = ${since},
    watched_number = (select block_number from cursors) where id = ${deposit.id}`.execute(db())
}

/** Adds dormant addresses that nobody paid. Their terms belong to no address, so they are of an older factory. */
async function addDormant(count: number, watched = false): Promise<void> {
  const { deposit } = await rig.sell()
  await db()
    .transaction()
    .execute(async db => {
      await sql`set local session_replication_role = replica`.execute(db)
      await sql`insert into deposits (chain_id, address, factory, salt, owner, approver, older_factory, payees_hash, open_after_s,
          resource_id, created_at, watched, watched_until, watched_number, dormant_since, check_at, merchant_id)
        select d.chain_id, '0xc' || lpad(to_hex(g), 39, '0'), '0x' || repeat('fa', 20), d.salt, d.owner, '0x' || repeat('0', 40),
          true, d.payees_hash, d.open_after_s, 'cs_' || lpad(to_hex(g), 24, '0'), d.created_at, ${watched}, d.created_at, 1,
          now() - interval '2 days', now() + interval '1 day', d.merchant_id
        from deposits d, generate_series(1, ${count}) g where d.id = ${deposit.id}`.execute(db)
    })
}

/** The hourly comparisons of logs and of balances, and the daily pass to its end; returns how many calls they made. */
async function callsOfComparisons(): Promise<Record<string, number>> {
  rig.proxy.calls.clear()
  await rig.compareLogs()
  await db().deleteFrom("reconciliations").execute()
  for (let isOver = false; !isOver; ) {
    await reconcileRound(ctx(), rig.network, rig.signer.address)
    const { deposit_position } = await db().selectFrom("reconciliations").selectAll().executeTakeFirstOrThrow()
    isOver = deposit_position === null
    await db()
      .updateTable("reconciliations")
      .set({ run_at: new Date(0) })
      .execute()
  }
  expect((await wallet()).halted_reason).toBeNull()
  return Object.fromEntries([...rig.proxy.calls].filter(([method]) => /getLogs|eth_call|Receipt/.test(method)))
}

/** Takes one unit out of an address past its factory, as a fault of a contract would. */
async function steal({ deposit }: Shop): Promise<void> {
  const { client } = rig.anvil
  await client.impersonateAccount({ address: deposit.address })
  await client.setBalance({ address: deposit.address, value: 10n ** 18n })
  const take = { address: rig.token, abi: testUsdcAbi, functionName: "transfer", args: [recipient(5), 1n] } as const
  await client.writeContractSync({ ...take, account: deposit.address })
  await life.mine()
}

describe("addresses that nobody paid", () => {
  it("cost no call: the comparisons ask as much among 30,000 as among 3,000", async () => {
    const shop = await rig.sell()
    await rig.paid(shop, 600_000n)
    await life.mine()
    await addDormant(3_000)
    const few = await callsOfComparisons()
    await life.begin()
    await rig.paid(await rig.sell(), 600_000n)
    await life.mine()
    await addDormant(30_000)
    expect(await callsOfComparisons()).toEqual(few)
    // Of the factories, of both sides; and one of balances.
    expect(few).toMatchObject({ eth_getLogs: 3 })
  })

  it("with dust at each, found at once by their balances, cost as many calls as with dust at one", async () => {
    const dusted = async (count: number) => {
      await life.begin()
      const shops = await Promise.all(Array.from({ length: count }, () => rig.sell()))
      for (const { deposit } of shops) await rig.mint(deposit.address, 1n)
      await life.mine()
      await db()
        .updateTable("deposits")
        .set({ balanced_number: rig.network.endpoints[0]?.finalizedHigh ?? 0n })
        .execute()
      rig.proxy.calls.clear()
      await db().deleteFrom("reconciliations").execute()
      await reconcileRound(ctx(), rig.network, rig.signer.address)
      const stored = await db().selectFrom("transfers").select("id").execute()
      expect(stored.length).toBe(count)
      return [rig.proxy.calls.get("eth_getLogs"), rig.proxy.calls.get("eth_call")]
    }
    expect(await dusted(40)).toEqual(await dusted(1))
  })
})

describe("no theft escapes:", () => {
  it("out of a dormant address that holds money", async () => {
    const shop = await rig.sell()
    await rig.paid(shop, 600_000n)
    await rest(shop, 30 * HOUR_MS)
    await life.mine()
    await rig.compareLogs()
    expect((await wallet()).status).toBe("active")
    await steal(shop)
    await rig.compareLogs()
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
    expect(await outflows()).toEqual(["unknown 1"])
  })

  it("out of a dormant address that was paid out before, while a last payout of it is in the compared blocks", async () => {
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    await life.settle()
    expect(await rig.states()).toEqual(["final", "final"])
    await rig.mint(shop.deposit.address, 1n)
    await steal(shop)
    await rest(shop, 30 * HOUR_MS)
    // As before the payouts.
    await db().updateTable("wallets").set({ checked_number: 1n }).execute()
    await rig.compareLogs()
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
  })

  it("of money that came to a dormant address and was given away by the operator's key before its balance was read", async () => {
    const shop = await rig.sell()
    await rest(shop, 30 * HOUR_MS)
    await rig.compareLogs()
    const { client, accounts } = rig.anvil
    const { factory, salt, address } = shop.deposit
    await rig.mint(address, 20n)
    const nonce = `0x${"1".repeat(64)}` as Hash
    const args = [salt, termsOf(shop.deposit), rig.token, recipient(5), 20n, nonce, NO_DEADLINE, "0x"] as const
    const theft = { address: factory, abi: depositFactoryAbi, functionName: "giveBack", args } as const
    await client.writeContractSync({ ...theft, account: accounts[1] })
    await life.mine()
    // Its balance says nothing.
    await db()
      .updateTable("deposits")
      .set({ check_at: new Date(0) })
      .execute()
    await checkDormantDeposits(ctx(), rig.network)
    expect((await depositOf(shop)).watched).toBe(false)
    await rig.compareLogs()
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
    expect(await outflows()).toEqual(["unknown 20"])
  })

  it("of money that came to the address of a checkout that was put away, and was given away like that", async () => {
    const { client, accounts } = rig.anvil
    const { body } = await rig.service.call("POST", "/api/console/checkouts", { amount: 5 }, { as: "shop" })
    const long = new Date(ctx().now().getTime() - 60 * 24 * HOUR_MS)
    await sql`update checkout_sessions set status = 'expired', expires_at = ${long}, run_at = null`.execute(db())
    await sql`update deposits set watched = false, watched_until = ${long}, dormant_since = ${long},
      watched_number = (select block_number from cursors)`.execute(db())
    const deposit = await db().selectFrom("deposits").selectAll().executeTakeFirstOrThrow()
    expect(await putAway(ctx(), [deposit.id], { links: [], merchants: [] })).toBe(1)
    await rig.compareLogs()
    await rig.mint(body.payTo, 20n)
    const nonce = `0x${"1".repeat(64)}` as Hash
    const args = [deposit.salt, termsOf(deposit), rig.token, recipient(5), 20n, nonce, NO_DEADLINE, "0x"] as const
    const theft = { address: deposit.factory, abi: depositFactoryAbi, functionName: "giveBack", args } as const
    await client.writeContractSync({ ...theft, account: accounts[1] })
    await life.mine()
    await rig.compareLogs()
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
    expect(await outflows()).toEqual(["unknown 20"])
  })

  it("nor stops what anyone can make the factory report: addresses that are not ours", async () => {
    const { client, accounts } = rig.anvil
    const { deposit } = await rig.sell()
    const stranger = accounts[4]
    const owner = stranger.address.toLowerCase() as Address
    const abi = depositFactoryAbi
    const { factory } = deposit
    const payeesHash = deposit.payees_hash
    const terms = { owner, approver: rig.signer.address, payeesHash, openAfter: 1n }
    const give = (i: number) => {
      const salt = `0x${(i + 1).toString(16).padStart(64, "0")}` as Hash
      const args = [salt, { ...terms, approver: factory }, rig.token, owner, 0n, salt, NO_DEADLINE, "0x"] as const
      return encodeFunctionData({ abi, functionName: "giveBack", args })
    }
    const calls = Array.from({ length: 20 }, (_, i) => give(i))
    const many = { address: factory, abi, functionName: "multicall", args: [calls], gas: 10_000_000n } as const
    await client.writeContractSync({ ...many, account: accounts[1] })
    await life.mine()
    await rig.compareLogs()
    const { number } = await client.getBlock({ blockTag: "finalized" })
    expect(await wallet()).toMatchObject({ status: "active", checked_number: number })
  })
})

describe("no payment escapes:", () => {
  it("at an address that left the scan while the compared blocks were made, where the scan missed its log", async () => {
    const shop = await rig.sell()
    await rig.compareLogs()
    await life.send(shop.deposit.address, 600_000n)
    await rest(shop, 0)
    await life.mine(4)
    await rig.compareLogs()
    expect(await db().selectFrom("transfers").select(["state", "value"]).execute()).toEqual([
      { state: "seen", value: 600_000n },
    ])
  })

  it("at a dormant address: its balance puts it back into the scan, which reads from where it stopped", async () => {
    const shop = await rig.sell()
    await life.verify()
    await rest(shop, 30 * HOUR_MS)
    await life.send(shop.deposit.address, 600_000n)
    await life.mine(4)
    await life.verify()
    await rig.compareLogs()
    expect(await db().selectFrom("transfers").select("id").execute()).toEqual([])
    await checkDormantDeposits(ctx(), rig.network)
    expect((await depositOf(shop)).watched).toBe(true)
    await life.verify()
    expect(await db().selectFrom("transfers").select("value").execute()).toEqual([{ value: 600_000n }])
  })
})

describe("a comparison that stops in the middle", () => {
  it("stores each part that it has compared", async () => {
    await rig.compareLogs()
    await addDormant(5_500, true)
    await life.mine()
    const positions: unknown[] = []
    rig.proxy.spoil = async (method, _params, result) => {
      if (method === "eth_getLogs") positions.push((await wallet()).checked_position)
      return result
    }
    await rig.compareLogs()
    const { rows } = await sql<{ id: bigint }>`select id from deposits order by id offset 4999 limit 1`.execute(db())
    expect(new Set(positions)).toEqual(new Set([null, 0n, rows[0]?.id]))
    const { number } = await rig.anvil.client.getBlock({ blockTag: "finalized" })
    expect(await wallet()).toMatchObject({ checked_number: number, checked_to: null, checked_position: null })
  })

  it("continues after the last part, in the same blocks", async () => {
    const before = await rig.sell()
    const after = await rig.sell()
    await rig.paid(before, 600_000n)
    await rig.paid(after, 600_000n)
    await life.mine()
    await rig.compareLogs()
    await steal(before)
    await steal(after)
    const { number } = await rig.anvil.client.getBlock({ blockTag: "finalized" })
    await life.mine(10)
    const stopped = { checked_to: number, checked_position: before.deposit.id }
    await db().updateTable("wallets").set(stopped).execute()
    const asked: unknown[] = []
    rig.proxy.spoil = (method, params, result) => {
      if (method === "eth_getLogs") asked.push((params[0] as { toBlock: string }).toBlock)
      return result
    }
    await rig.compareLogs()
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
    const [stolen] = await db().selectFrom("outflows").select("deposit_id").execute()
    expect(stolen?.deposit_id).toBe(after.deposit.id)
    expect(new Set(asked)).toEqual(new Set([`0x${number.toString(16)}`]))
  })

  it("is asked to continue soon, and leaves the lease to payouts meanwhile", async () => {
    await addDormant(5_500, true)
    await life.mine()
    await db().updateTable("wallets").set({ check_at: null }).execute()
    const turn = () => checkBooks(ctx(), rig.network, rig.signer.address, 0)
    expect(await turn()).toBe(1_000)
    const halfway = await wallet()
    expect(halfway).toMatchObject({ checked_to: expect.any(BigInt), lease_until: null })
    expect(halfway.checked_position).toBeGreaterThan(0n)
    expect(await turn()).toBe(60_000)
    expect(await wallet()).toMatchObject({ checked_number: halfway.checked_to, checked_to: null })
  })

  it("reads what strangers made too large to be read at once in steps, and misses nothing in them", async () => {
    const shop = await rig.sell()
    await rig.compareLogs()
    for (let i = 0; i < 12; i++) await life.send(shop.deposit.address, 600_000n)
    await life.mine(4)
    const padding = "0".repeat(3_000_000)
    const asked = new Set<string>()
    rig.proxy.spoil = (method, params, result) => {
      const [{ topics = [], fromBlock = "", toBlock = "" } = {}] = params as Record<string, string>[]
      if (method !== "eth_getLogs" || topics.length < 2) return result
      if (fromBlock !== toBlock) return failed("the range of blocks is too large")
      asked.add(`${topics.length} ${fromBlock}`)
      return (result as unknown[]).concat({ removed: true, padding })
    }
    await rig.compareLogs()
    const { number } = await rig.anvil.client.getBlock({ blockTag: "finalized" })
    expect(await wallet()).toMatchObject({ status: "active", checked_number: number })
    expect((await db().selectFrom("transfers").select("id").execute()).length).toBe(12)
    expect(asked.size).toBeGreaterThan(24)
  })

  it("of balances continues after the last part", async () => {
    const first = await rig.sell()
    const second = await rig.sell()
    for (const shop of [first, second]) await rig.paid(shop, 600_000n)
    await life.mine()
    await life.verify()
    await life.verify()
    const { number } = await rig.anvil.client.getBlock({ blockTag: "finalized" })
    await db().updateTable("deposits").set({ balanced_number: 1n }).execute()
    const far = new Date(ctx().now().getTime() + HOUR_MS)
    const progress = { moved_number: 1n, moved_to: number, moved_position: first.deposit.id }
    const dates = { hour_at: far, pass_at: far, run_at: new Date(0) }
    await db()
      .insertInto("reconciliations")
      .values({ chain_id: 84532, ...progress, ...dates })
      .execute()
    await reconcileRound(ctx(), rig.network, rig.signer.address)
    expect((await depositOf(first)).balanced_number).toBe(1n)
    expect((await depositOf(second)).balanced_number).toBe(number)
    const [job] = await db().selectFrom("reconciliations").selectAll().execute()
    expect(job).toMatchObject({ moved_number: number, moved_to: null, moved_position: null })
  })

  it("skips no deposit where a worker that has lost its lease comes back", async () => {
    const victim = await rig.sell()
    await rig.paid(victim, 600_000n)
    await life.mine()
    await addDormant(5_500, true)
    await rig.compareLogs()
    const begin = async () => {
      for (const endpoint of rig.network.endpoints) Object.assign(endpoint, { logRange: 8n, silentUntil: 0 })
      await db()
        .updateTable("wallets")
        .set({ check_at: null, run_at: new Date(0) })
        .execute()
    }
    const second = Number((await wallet()).checked_number ?? 0n) + 1 + 8
    // Of two ranges of blocks the first is quiet, and the theft is in the second.
    await life.mine(9)
    await steal(victim)
    await life.mine(8)
    await begin()
    const held = Promise.withResolvers<void>()
    const hung = Promise.withResolvers<void>()
    const isOfDeposits = (method: string, params: unknown) => {
      const [query] = params as [{ topics?: unknown[]; fromBlock: string }]
      return method === "eth_getLogs" && (query.topics?.length ?? 0) > 1 ? Number(query.fromBlock) : 0
    }
    rig.proxy.spoil = async (method, params, result) => {
      if (isOfDeposits(method, params) === 0) return result
      hung.resolve()
      await held.promise
      return result
    }
    const slow = checkBooks(ctx(), rig.network, rig.signer.address, 0)
    await hung.promise
    await sql`update wallets set lease_until = clock_timestamp() - interval '1 second'`.execute(db())
    await begin()
    rig.proxy.spoil = (method, params, result) => (isOfDeposits(method, params) >= second ? failed("busy") : result)
    await checkBooks(ctx(), rig.network, rig.signer.address, 60_000)
    rig.proxy.spoil = (_method, _params, result) => result
    held.resolve()
    await slow
    await sql`update wallets set lease_until = null, claim_id = null`.execute(db())
    for (let turns = 0; turns < 6 && (await wallet()).status === "active"; turns++) {
      await begin()
      await checkBooks(ctx(), rig.network, rig.signer.address, 60_000)
    }
    expect((await wallet()).halted_reason).toMatch(/left a deposit without a payout/)
  })
})
