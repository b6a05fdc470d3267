// The hourly comparison of logs, beside the payout engine on a real chain.
import { sql } from "kysely"
import { encodeFunctionData, toEventSelector, zeroHash } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { failed } from "../../../test/node.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { depositFactoryAbi, testUsdcAbi } from "../../platform/chain/abi.ts"
import { type Endpoint, newEndpoint } from "../../platform/chain/endpoints.ts"
import { giveBackData } from "../../platform/chain/give-back.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { NO_DEADLINE, termsOf } from "../../platform/chain/release-call.ts"
import { checkBooks } from "./check-books.ts"

const HOUR_MS = 3_600_000
const GIVEN_BACK = toEventSelector("GivenBack(address,address,address,uint256,bytes32)")
let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig.stop())
beforeEach(async () => {
  rig.proxy.spoil = (_method, _params, result) => result
  rig.proxy.broken = rig.proxy.brokenFor = undefined
  for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
  await rig.anvil.client.mine({ blocks: 3 })
  await rig.empty()
})

const mine = () => rig.anvil.client.mine({ blocks: 3 })
const wallet = () => rig.service.ctx.db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
const check = () => checkBooks(rig.service.ctx, rig.network, rig.signer.address)

/** Takes one unit out of a deposit past the factory. */
async function steal({ deposit }: Awaited<ReturnType<PayoutRig["sell"]>>): Promise<void> {
  const { client } = rig.anvil
  await client.impersonateAccount({ address: deposit.address })
  await client.setBalance({ address: deposit.address, value: 10n ** 18n })
  const args = [recipient(5), 1n] as const
  const take = { address: rig.token, abi: testUsdcAbi, functionName: "transfer", args } as const
  await client.writeContractSync({ ...take, account: deposit.address })
}

/** A shop whose first payment was paid out, with a payout that is due and money that was stolen. */
async function robbed() {
  const shop = await rig.sell([50, 50])
  await rig.paid(shop, 1_000_000n)
  await rig.round()
  await mine()
  await rig.round()
  await rig.paid(shop, 1_000_000n)
  await steal(shop)
  await mine()
  rig.service.advance(HOUR_MS + 1)
  return shop
}

/** Sends so much back by the merchant's own signatures, without the service, in one transaction. */
async function giveBackMany(count: number, amount: bigint): Promise<void> {
  const { service, anvil, network } = rig
  await service.call("PUT", "/api/console/settings", { approver: "wallet" }, { as: "shop" })
  const { deposit } = await rig.sell()
  const { factory, salt } = deposit
  await rig.mint(deposit.address, BigInt(count) * amount)
  const abi = depositFactoryAbi
  const calls = Array.from({ length: count }, async (_, i) => {
    const nonce = `0x${(i + 1).toString(16).padStart(64, "0")}` as Hash
    const message = {
      token: rig.token,
      to: recipient(5),
      amount,
      deposit: deposit.address,
      nonce,
      deadline: NO_DEADLINE,
    }
    // The last account has the merchant's payout address.
    const signed = await anvil.accounts[9].signTypedData(giveBackData(network.chainId, factory, message))
    const args = [salt, termsOf(deposit), rig.token, recipient(5), amount, nonce, NO_DEADLINE, signed] as const
    return encodeFunctionData({ abi, functionName: "giveBack", args })
  })
  const args = [await Promise.all(calls)] as const
  await anvil.client.writeContractSync({ address: factory, abi, functionName: "multicall", args, gas: 10_000_000n })
  await mine()
  rig.service.advance(HOUR_MS + 1)
}

const outflows = async () => {
  const rows = await rig.service.ctx.db.selectFrom("outflows").select(["reason", "amount"]).execute()
  return rows.map(({ reason, amount }) => `${reason} ${amount}`).sort()
}

type Reported = { logs: { address: string; topics: string[] }[] } | null

describe("what a merchant gives back itself", () => {
  it("is read from one receipt, however many it is; and one failed request notes and halts nothing", async () => {
    await giveBackMany(60, 1n)
    const asked: unknown[] = []
    let isFailing = true
    rig.proxy.spoil = (method, [hash], result) => {
      if (method !== "eth_getTransactionReceipt") return result
      if (!isFailing) asked.push(hash)
      return isFailing ? failed("rate limit") : result
    }
    await rig.compareLogs()
    expect([(await wallet()).status, await outflows()]).toEqual(["active", []])
    isFailing = false
    await rig.compareLogs()
    // Two receipts: that of the give-backs, and that of the incoming money.
    expect(asked.length).toBe(2)
    expect((await wallet()).status).toBe("active")
    expect(await outflows()).toEqual(Array(60).fill("given_back 1"))
  })

  it("waits, with nothing noted, while one of two endpoints leaves the factory's report out", async () => {
    const endpoints = rig.network.endpoints as Endpoint[]
    endpoints.push(newEndpoint(rig.network.name, rig.anvil.rpcUrl))
    try {
      await giveBackMany(1, 20n)
      rig.proxy.spoil = (method, _params, result) =>
        method === "eth_getTransactionReceipt" ? without(result, 1) : result
      await rig.compareLogs()
      expect([(await wallet()).status, await outflows()]).toEqual(["active", []])
      rig.proxy.spoil = (_method, _params, result) => result
      await rig.compareLogs()
      expect([(await wallet()).status, await outflows()]).toEqual(["active", ["given_back 20"]])
    } finally {
      endpoints.pop()
    }
  })

  it("has a report for each transfer: one that has none is a theft, however like the others it is", async () => {
    await giveBackMany(3, 20n)
    rig.proxy.spoil = (method, _params, result) =>
      method === "eth_getTransactionReceipt" ? without(result, 1) : result
    await rig.compareLogs()
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
    expect(await outflows()).toEqual(["given_back 20", "given_back 20", "unknown 20"])
  })

  /** Returns a receipt without the first `count` of the factory's reports. */
  function without(receipt: unknown, count: number): unknown {
    const reported = receipt as Reported
    let left = count
    const isKept = ({ address, topics }: { address: string; topics: string[] }) =>
      address.toLowerCase() !== rig.network.depositFactory || topics[0] !== GIVEN_BACK || left-- <= 0
    return reported && { ...reported, logs: reported.logs.filter(isKept) }
  }
})

describe("the comparison", () => {
  it("halts the wallet when money leaves a deposit without a payout; nothing is signed afterwards", async () => {
    await robbed()
    await check()
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
    await rig.round()
    expect(await rig.states()).toEqual(["final", "final", "queued", "queued"])
  })

  it("halts the wallet before it notes the outflow, which no later comparison reports again", async () => {
    await robbed()
    const { db } = rig.service.ctx
    await sql`alter table outflows add constraint fails check (amount < 0)`.execute(db)
    await expect(check()).rejects.toThrow("fails")
    await sql`alter table outflows drop constraint fails`.execute(db)
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
  })

  it.each([
    ["wallet", null],
    ["service", "left a deposit without a payout"],
  ])(
    "does not halt for what the %s sent back without a payout where that is the merchant's own word",
    async (approver, words) => {
      const { service, anvil, network } = rig
      const { client, accounts } = anvil
      const [, operator, , stranger] = accounts
      const settings = await service.call("PUT", "/api/console/settings", { approver }, { as: "shop" })
      expect(settings.body).toMatchObject({ approver })
      const { deposit } = await rig.sell()
      await rig.mint(deposit.address, 50n)
      const { factory, salt } = deposit
      const message = {
        token: rig.token,
        to: recipient(5),
        amount: 20n,
        deposit: deposit.address,
        nonce: zeroHash as Hash,
        deadline: NO_DEADLINE,
      }
      // The last account has the merchant's payout address.
      const signed = await accounts[9].signTypedData(giveBackData(network.chainId, factory, message))
      const args = [salt, termsOf(deposit), rig.token, recipient(5), 20n, zeroHash, NO_DEADLINE] as const
      await client.writeContractSync({
        address: factory,
        abi: depositFactoryAbi,
        functionName: "giveBack",
        args: [...args, approver === "wallet" ? signed : "0x"],
        account: approver === "wallet" ? stranger : operator,
      })
      await mine()
      rig.service.advance(HOUR_MS + 1)
      await check()
      expect((await wallet()).halted_reason).toEqual(words === null ? null : expect.stringContaining(words))
      const noted = await service.ctx.db.selectFrom("outflows").select(["reason", "amount"]).execute()
      expect(noted).toEqual([{ reason: words === null ? "given_back" : "unknown", amount: 20n }])
      const { body } = await service.call("GET", "/api/console/books", undefined, { as: "shop" })
      expect(body.data.map((row: { reason: string }) => row.reason)).toContain(noted[0]?.reason)
    },
  )

  it("keeps the engine from signing until it has halted the wallet", async () => {
    await robbed()
    let rounds = 0
    rig.proxy.spoil = async (method, _params, result) => {
      if (method === "eth_getLogs" && rounds++ === 0) await rig.round()
      return result
    }
    await check()
    expect(rounds).toBeGreaterThan(0)
    expect(await rig.states()).toEqual(["final", "final", "queued", "queued"])
    expect(await wallet()).toMatchObject({ status: "halted", lease_until: null })
  })

  it("waits while a payout round holds the lease, and asks again soon", async () => {
    await robbed()
    let answered: number | undefined
    rig.proxy.spoil = async (method, _params, result) => {
      if (method === "eth_getBalance") answered ??= await check()
      return result
    }
    await rig.round()
    expect(answered).toBeLessThan(1_000)
    expect((await wallet()).status).toBe("active")
    await check()
    expect((await wallet()).status).toBe("halted")
  })

  it("halts a wallet whose lease expired meanwhile, and what is signed after that is nothing", async () => {
    const shop = await robbed()
    let expired = false
    rig.proxy.spoil = async (method, _params, result) => {
      if (method !== "eth_getLogs" || expired) return result
      expired = true
      await rig.service.ctx.db
        .updateTable("wallets")
        .set({ lease_until: new Date(0) })
        .execute()
      await rig.round()
      return result
    }
    await check()
    expect((await wallet()).halted_reason).toContain("left a deposit without a payout")
    await rig.paid(shop, 1_000_000n).catch(() => {})
    const before = (await wallet()).next_nonce
    await rig.round()
    expect((await wallet()).next_nonce).toBe(before)
  })

  it("is hourly, and leaves a halted wallet alone until it is resumed", async () => {
    const db = rig.service.ctx.db
    const startedAt = rig.service.ctx.now().getTime()
    await check()
    const { check_at: dueAt } = await wallet()
    expect(dueAt?.getTime()).toBeGreaterThanOrEqual(startedAt + HOUR_MS)
    expect(await check()).toBe(60_000)
    expect((await wallet()).check_at).toEqual(dueAt)
    await db.updateTable("wallets").set({ status: "halted", halted_reason: "x", check_at: null }).execute()
    await check()
    expect((await wallet()).check_at).toBeNull()
    await db.updateTable("wallets").set({ status: "active", halted_reason: null }).execute()
    await check()
    expect((await wallet()).check_at).not.toBeNull()
  })

  it("leaves the hourly observation of an idle wallet to the payout round", async () => {
    await rig.round()
    const { address } = rig.signer
    const value = await rig.anvil.client.getBalance({ address })
    rig.service.advance(HOUR_MS + 1)
    await check()
    try {
      await rig.anvil.client.setBalance({ address, value: 1n })
      await rig.round()
      expect((await wallet()).alarms).toContain("low_gas")
    } finally {
      await rig.anvil.client.setBalance({ address, value })
    }
  })

  it("passes over transfers of zero, which anyone can make a token emit in our name", async () => {
    const shop = await rig.sell([50, 50])
    const args = [shop.deposit.address, recipient(0), 0n] as const
    const spam = { address: rig.token, abi: testUsdcAbi, functionName: "transferFrom", args } as const
    await rig.anvil.client.writeContractSync(spam)
    await rig.paid(shop, 1_000_000n)
    await rig.round()
    await rig.anvil.client.writeContractSync(spam)
    await mine()
    await rig.round()
    await rig.compareLogs()
    expect(await rig.states()).toEqual(["final", "final"])
    expect(await wallet()).toMatchObject({ status: "active", checked_number: expect.any(BigInt) })
  })

  it("does not halt on one endpoint's report that a transfer is missing", async () => {
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    await rig.round()
    await mine()
    await rig.round()
    rig.proxy.spoil = (method, _params, result) => (method === "eth_getLogs" ? [] : result)
    await rig.compareLogs()
    await rig.compareLogs()
    expect((await wallet()).status).toBe("active")
  })

  it("fails apart from the payouts: they are made while an endpoint refuses to answer for logs", async () => {
    rig.proxy.broken = 503
    rig.proxy.brokenFor = "eth_getLogs"
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    const before = await rig.balanceOf(recipient(0))
    await rig.compareLogs().catch(() => {})
    for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
    await rig.round()
    expect((await rig.balanceOf(recipient(0))) - before).toBe(500_000n)
    expect(await wallet()).toMatchObject({ status: "active", lease_until: null })
  })
})
