import { encodeFunctionData, erc20Abi, type Hex, parseUnits } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import {
  type Anvil,
  deployDepositFactory,
  deploySanctionsList,
  deployTestUsdc,
  placeSharedContracts,
  startAnvil,
} from "../../../test/anvil.ts"
import { startProxy } from "../../../test/proxy.ts"
import { PAYOUT_ADDRESS, startService, type TestService } from "../../../test/service.ts"
import { sanctionsListAbi, testUsdcAbi } from "../../platform/chain/abi.ts"
import { checkNetwork, NetworkMismatch } from "../../platform/chain/check-network.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkName } from "../../platform/chain/network-facts.ts"
import type { Network, NetworkSettings } from "../../platform/chain/networks.ts"
import { RpcError } from "../../platform/chain/rpc.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { checkDormantDeposits, makeDepositsDormant } from "./check-dormant-deposits.ts"
import { ensureCursor } from "./scan-round.ts"

/** Two chains with their contracts, and one service on both. */
interface Site {
  anvil: Anvil
  settings: NetworkSettings
  oracle: Address
}

let sites: [Site, Site]
let service: TestService
const MINUTE = 60_000
const HOUR = 60 * MINUTE

async function site(name: NetworkName, chainId: number): Promise<Site> {
  const anvil = await startAnvil({ chainId })
  const token = await deployTestUsdc(anvil.client)
  const depositFactory = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
  await placeSharedContracts(anvil.client)
  const oracle = await deploySanctionsList(anvil.client)
  for (const { address } of anvil.accounts)
    await anvil.client.writeContractSync({
      address: token,
      abi: testUsdcAbi,
      functionName: "mint",
      args: [address, parseUnits("10000", 6)],
    })
  const settings = {
    name,
    chainId,
    rpcUrls: [anvil.rpcUrl],
    token,
    confirmations: 3,
    depositFactory,
    sanctionsOracle: undefined,
  }
  return { anvil, settings, oracle }
}

beforeAll(async () => {
  sites = [await site("base-sepolia", 84532), await site("worldchain", 480)]
  const [first, second] = sites
  // The first network's oracle serves both.
  service = await startService({ networks: [{ ...first.settings, sanctionsOracle: first.oracle }, second.settings] })
})
afterAll(async () => {
  await service?.stop()
  for (const { anvil } of sites ?? []) await anvil.stop()
})
beforeEach(async () => {
  await service.empty()
  const payoutAddresses = { "base-sepolia": PAYOUT_ADDRESS, worldchain: PAYOUT_ADDRESS }
  await service.call("PUT", "/api/console/settings", { payoutAddresses }, { as: "shop" })
  for (const network of service.ctx.chain.networks) await ensureCursor(service.ctx, network)
})

const network = (i: 0 | 1): Network => {
  const served = service.ctx.chain.networks[i]
  if (!served) throw new Error("no such network")
  return served
}

async function paywall(chain?: string) {
  const { body } = await service.call(
    "POST",
    "/api/console/paywalls",
    { name: "Film", price: 5, ...(chain ? { chain } : {}) },
    { as: "shop" },
  )
  return (await service.call("GET", `/api/paywalls/${body.id}`)).body as {
    id: string
    payTo: string
    chain: string
    chainId: number
  }
}

async function pay(i: 0 | 1, to: string, buyer = 2, amount = "5"): Promise<Hex> {
  const { anvil, settings } = sites[i]
  const account = anvil.accounts[buyer as 2]
  const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to as Hex, parseUnits(amount, 6)] })
  const hash = await anvil.client.sendTransaction({ account, to: settings.token, data })
  await anvil.client.waitForTransactionReceipt({ hash })
  return hash
}

const buyerOf = (buyer = 2): string => sites[0].anvil.accounts[buyer as 2].address
const submit = (id: string, txHash: string, buyer = 2) =>
  service.call("POST", `/api/paywalls/${id}/pay`, { txHash, address: buyerOf(buyer) })
const hasAccess = async (id: string, buyer = 2): Promise<boolean> =>
  (await service.call("GET", `/api/paywalls/${id}/verify?address=${buyerOf(buyer)}`)).body.hasAccess
const setSanctioned = (buyer: number, value: boolean) =>
  sites[0].anvil.client.writeContractSync({
    address: sites[0].oracle,
    abi: sanctionsListAbi,
    functionName: "setSanctioned",
    args: [buyerOf(buyer) as Hex, value],
  })

async function rounds(count = 2): Promise<void> {
  for (let n = 0; n < count; n++)
    for (const i of [0, 1] as const) {
      await sites[i].anvil.client.mine({ blocks: 2 })
      for (const endpoint of network(i).endpoints) endpoint.silentUntil = 0
      await service.ctx.db
        .updateTable("cursors")
        .set({ run_at: new Date(0) })
        .execute()
      await verifyRound(service.ctx, network(i))
    }
}

describe("two networks at once", () => {
  it("count each on its own: the same sender, amount and even address", async () => {
    const here = await paywall()
    const there = await paywall("worldchain")
    expect([here.chain, there.chain, there.chainId]).toEqual(["base-sepolia", "worldchain", 480])
    // Paid on the wrong chain, at the right address.
    const wrong = await pay(0, there.payTo)
    await submit(there.id, wrong)
    const right = await pay(0, here.payTo)
    await submit(here.id, right)
    await rounds(3)
    expect([await hasAccess(here.id), await hasAccess(there.id)]).toEqual([true, false])
    await submit(there.id, await pay(1, there.payTo))
    await rounds(3)
    expect(await hasAccess(there.id)).toBe(true)
    const claims = await service.ctx.db
      .selectFrom("claims")
      .innerJoin("transfers", "transfers.id", "transfer_id")
      .select("chain_id")
      .orderBy("chain_id")
      .execute()
    expect(claims).toEqual([{ chain_id: 480 }, { chain_id: 84532 }])
  })

  it("ask for a payout address of their own", async () => {
    await service.call("PUT", "/api/console/settings", { payoutAddress: PAYOUT_ADDRESS }, { as: "local" })
    const make = (chain: string) =>
      service.call("POST", "/api/console/paywalls", { name: "a", price: 5, chain }, { as: "local" })
    expect((await make("base-sepolia")).status).toBe(201)
    expect(await make("worldchain")).toMatchObject({ status: 409, body: { error: "PAYOUT_ADDRESS_REQUIRED" } })
  })
})

describe("checkNetwork", () => {
  const dead = "http://127.0.0.1:1"
  it.each([
    ["another chain id", { chainId: 8453 }, /serves chain 84532, not 8453/],
    ["a token that is none", { token: `0x${"1".repeat(40)}` as Address }, /has no name\(\)/],
    ["no oracle", { sanctionsOracle: `0x${"1".repeat(40)}` as Address }, /there is no sanctions oracle at/],
  ])("refuses %s", async (_what, change, words) => {
    const check = checkNetwork({ ...sites[0].settings, ...change })
    await expect(check).rejects.toThrow(words)
    await expect(check).rejects.toBeInstanceOf(NetworkMismatch)
  })

  it("asks the next endpoint when one is down, and is no mismatch when all are", async () => {
    const { settings } = sites[0]
    expect((await checkNetwork({ ...settings, rpcUrls: [dead, ...settings.rpcUrls] })).token.symbol).toBe("USDC")
    await expect(checkNetwork({ ...settings, rpcUrls: [dead] })).rejects.not.toBeInstanceOf(NetworkMismatch)
  })
})

describe("checkNetwork where one endpoint reports other decimals of the token", () => {
  it("believes two others, and of two neither", async () => {
    const { settings } = sites[0]
    const liar = await startProxy(sites[0].anvil.rpcUrl)
    const data = encodeFunctionData({ abi: erc20Abi, functionName: "decimals" })
    liar.spoil = (method, [call], result) =>
      method === "eth_call" && (call as { data: Hex }).data === data ? `0x${"0".repeat(64)}` : result
    const check = (...rpcUrls: string[]) => checkNetwork({ ...settings, rpcUrls: [liar.url, ...rpcUrls] })
    const [url = ""] = settings.rpcUrls
    expect((await check(url, url)).token.decimals).toBe(6)
    await expect(check(url)).rejects.toBeInstanceOf(NetworkMismatch)
    await expect(check(url, "http://127.0.0.1:1")).rejects.toBeInstanceOf(RpcError)
    await liar.stop()
  })
})

describe("sanctions by oracle", () => {
  it("a listed buyer is refused at intake; the decision is kept with its source", async () => {
    const shop = await paywall()
    await setSanctioned(3, true)
    expect(await submit(shop.id, `0x${"1".repeat(64)}`, 3)).toMatchObject({
      status: 403,
      body: { error: "SANCTIONS_MATCH" },
    })
    const kept = await service.ctx.db.selectFrom("screenings").selectAll().execute()
    expect(kept).toMatchObject([
      { address: buyerOf(3).toLowerCase(), listed: true, source: `oracle base-sepolia ${sites[0].oracle}` },
    ])
    await setSanctioned(3, false)
    expect((await submit(shop.id, `0x${"1".repeat(64)}`, 3)).status).toBe(200)
  })

  it("one listed between intake and grant gets nothing, on either network", async () => {
    for (const chain of ["base-sepolia", "worldchain"] as const) {
      const shop = await paywall(chain)
      const txHash = await pay(chain === "worldchain" ? 1 : 0, shop.payTo, 4)
      expect((await submit(shop.id, txHash, 4)).status).toBe(200)
      await setSanctioned(4, true)
      // A sender that was clear stays clear for an hour.
      service.advance(61 * MINUTE)
      await rounds(4)
      expect(await hasAccess(shop.id, 4)).toBe(false)
      const state = await service.call("GET", `/api/paywalls/${shop.id}/payments/${txHash}?address=${buyerOf(4)}`)
      expect(state.body).toMatchObject({ status: "failed", reason: "sanctioned" })
      await setSanctioned(4, false)
      service.advance(61 * MINUTE)
    }
  })

  it("while the oracle can't be asked a submission is taken, and granted only after the screening", async () => {
    const { sanctionsOracle } = network(0)
    const shop = await paywall()
    network(0).sanctionsOracle = `0x${"9".repeat(40)}` as Address
    const txHash = await pay(0, shop.payTo, 5)
    expect((await submit(shop.id, txHash, 5)).status).toBe(200)
    await rounds(3)
    expect(await hasAccess(shop.id, 5)).toBe(false)
    network(0).sanctionsOracle = sanctionsOracle
    service.advance(31_000)
    await rounds(1)
    expect(await hasAccess(shop.id, 5)).toBe(true)
  })

  it("asks for many in one call, and not again within the hour", async () => {
    const many = Array.from({ length: 300 }, (_, i) => `0x${(i + 1).toString(16).padStart(40, "0")}` as Address)
    const before = (await service.ctx.db.selectFrom("screenings").select("id").execute()).length
    const first = await screen(service.ctx, many, "test")
    expect(new Set(first.values())).toEqual(new Set(["clear"]))
    await screen(service.ctx, many, "test")
    expect((await service.ctx.db.selectFrom("screenings").select("id").execute()).length - before).toBe(300)
    service.advance(61 * MINUTE)
    await screen(service.ctx, many, "test")
    expect((await service.ctx.db.selectFrom("screenings").select("id").execute()).length - before).toBe(600)
  })
})

describe("dormant addresses", () => {
  const cool = async () => {
    service.advance(3 * HOUR)
    await makeDepositsDormant(service.ctx, network(0))
  }
  const isWatched = async (id: string) =>
    (
      await service.ctx.db
        .selectFrom("deposits")
        .select(["watched", "watched_number"])
        .where("resource_id", "=", id)
        .executeTakeFirstOrThrow()
    ).watched

  it("a payment at one is found by its balance, and kept for the merchant", async () => {
    const shop = await paywall()
    await rounds(1)
    await service.call("DELETE", `/api/console/paywalls/${shop.id}`, undefined, { as: "shop" })
    await makeDepositsDormant(service.ctx, network(0))
    expect(await isWatched(shop.id)).toBe(true)
    await cool()
    expect(await isWatched(shop.id)).toBe(false)
    const txHash = await pay(0, shop.payTo)
    await sites[0].anvil.client.mine({ blocks: 700 })
    await rounds(3)
    expect(await service.ctx.db.selectFrom("transfers").select("id").execute()).toEqual([])
    service.advance(HOUR)
    await checkDormantDeposits(service.ctx, network(0))
    expect(await isWatched(shop.id)).toBe(true)
    await rounds(4)
    expect(await service.ctx.db.selectFrom("transfers").select(["tx_hash", "value"]).execute()).toEqual([
      { tx_hash: txHash, value: parseUnits("5", 6) },
    ])
    await cool()
    await checkDormantDeposits(service.ctx, network(0))
    // Its balance is known by now.
    expect(await isWatched(shop.id)).toBe(false)
  })

  it("reported by one of two endpoints alone is asked for again in minutes, as that one may hide what was paid", async () => {
    const shop = await paywall()
    await rounds(1)
    await service.call("DELETE", `/api/console/paywalls/${shop.id}`, undefined, { as: "shop" })
    await makeDepositsDormant(service.ctx, network(0))
    await cool()
    service.advance(HOUR)
    const endpoints = [...network(0).endpoints, newEndpoint("base-sepolia", "http://127.0.0.1:1")]
    await checkDormantDeposits(service.ctx, { ...network(0), endpoints })
    expect(await isWatched(shop.id)).toBe(false)
    await pay(0, shop.payTo)
    service.advance(6 * MINUTE)
    await checkDormantDeposits(service.ctx, network(0))
    expect(await isWatched(shop.id)).toBe(true)
  })

  it("an active paywall that nobody asks for in a day leaves the scan, is checked hourly, and whoever asks wakes it", async () => {
    const idle = await paywall()
    const busy = await paywall()
    await rounds(1)
    service.advance(23 * HOUR)
    await service.call("GET", `/api/paywalls/${busy.id}`)
    await makeDepositsDormant(service.ctx, network(0))
    expect([await isWatched(idle.id), await isWatched(busy.id)]).toEqual([true, true])
    service.advance(2 * HOUR + MINUTE)
    await makeDepositsDormant(service.ctx, network(0))
    expect([await isWatched(idle.id), await isWatched(busy.id)]).toEqual([false, true])
    // Days later it is still checked hourly.
    for (let i = 0; i < 30; i++) {
      service.advance(HOUR)
      await checkDormantDeposits(service.ctx, network(0))
    }
    const first = await pay(0, idle.payTo)
    service.advance(HOUR)
    await checkDormantDeposits(service.ctx, network(0))
    expect(await isWatched(idle.id)).toBe(true)
    service.advance(11 * MINUTE)
    await rounds(3)
    expect(await hasAccess(idle.id)).toBe(true)
    service.advance(26 * HOUR)
    await makeDepositsDormant(service.ctx, network(0))
    expect(await isWatched(idle.id)).toBe(false)
    await sites[0].anvil.client.mine({ blocks: 30 })
    const second = await pay(0, idle.payTo, 3)
    await sites[0].anvil.client.mine({ blocks: 30 })
    await rounds(1)
    await service.call("GET", `/api/paywalls/${idle.id}/verify?address=${buyerOf(3)}`)
    await rounds(3)
    const found = await service.ctx.db.selectFrom("transfers").select("tx_hash").orderBy("id").execute()
    expect(found.map(row => row.tx_hash)).toEqual([first, second])
  })

  it("a payment to one that was recovered is found, though it is as much as was there before", async () => {
    const { client } = sites[0].anvil
    const shop = await paywall()
    const before = await pay(0, shop.payTo)
    await rounds(1)
    await service.call("DELETE", `/api/console/paywalls/${shop.id}`, undefined, { as: "shop" })
    await rounds(3)
    await cool()
    const { id, merchant_id, address } = await service.ctx.db
      .selectFrom("deposits")
      .selectAll()
      .executeTakeFirstOrThrow()
    // Its owner recovers the money after the opening time, and the books record it.
    await client.impersonateAccount({ address })
    await client.setBalance({ address, value: parseUnits("1", 18) })
    const args = [PAYOUT_ADDRESS, parseUnits("5", 6)] as const
    const call = { address: sites[0].settings.token, abi: testUsdcAbi, functionName: "transfer", args } as const
    const { transactionHash, blockNumber, blockHash } = await client.writeContractSync({ ...call, account: address })
    await service.ctx.db
      .insertInto("outflows")
      .values({
        chain_id: 84532,
        deposit_id: id,
        merchant_id,
        reason: "recovery",
        token: sites[0].settings.token,
        recipient: PAYOUT_ADDRESS.toLowerCase() as Address,
        amount: parseUnits("5", 6),
        tx_hash: transactionHash as Hash,
        block_number: blockNumber,
        block_hash: blockHash as Hash,
        log_index: 0,
        block_time: service.ctx.now(),
        created_at: service.ctx.now(),
      })
      .execute()
    service.advance(HOUR)
    await checkDormantDeposits(service.ctx, network(0))
    expect(await isWatched(shop.id)).toBe(false)
    const txHash = await pay(0, shop.payTo)
    service.advance(25 * HOUR)
    await checkDormantDeposits(service.ctx, network(0))
    await rounds(3)
    const found = await service.ctx.db.selectFrom("transfers").select("tx_hash").orderBy("id").execute()
    expect(found.map(row => row.tx_hash)).toEqual([before, txHash])
  })

  it("whoever looks at the page, or submits, makes it watched again, and nothing in between is missed", async () => {
    const shop = await paywall()
    const before = await pay(0, shop.payTo)
    await rounds(1)
    await service.call("DELETE", `/api/console/paywalls/${shop.id}`, undefined, { as: "shop" })
    await rounds(3)
    await cool()
    await sites[0].anvil.client.mine({ blocks: 700 })
    const txHash = await pay(0, shop.payTo, 6)
    await sites[0].anvil.client.mine({ blocks: 700 })
    await rounds(1)
    await service.call("GET", `/api/paywalls/${shop.id}`)
    expect(await isWatched(shop.id)).toBe(true)
    await rounds(3)
    const found = await service.ctx.db.selectFrom("transfers").select("tx_hash").orderBy("id").execute()
    expect(found.map(row => row.tx_hash)).toEqual([before, txHash])
  })

  it("10,000 of them cost twenty calls an hour, then a day", async () => {
    const shop = await paywall()
    const { id: _, ...row } = await service.ctx.db.selectFrom("deposits").selectAll().executeTakeFirstOrThrow()
    const past = new Date(service.ctx.now().getTime() - 1)
    const dormant = { watched: false, watched_number: 1n, dormant_since: past, check_at: past, resource_id: shop.id }
    for (let start = 0; start < 10_000; start += 1_000)
      await service.ctx.db
        .insertInto("deposits")
        .values(
          Array.from({ length: 1_000 }, (_, i) => ({
            ...row,
            ...dormant,
            address: `0x${(start + i + 1).toString(16).padStart(40, "0")}` as Address,
          })),
        )
        .execute()
    const due = async () =>
      (
        await service.ctx.db
          .selectFrom("deposits")
          .select("id")
          .where("watched", "=", false)
          .where("check_at", "<=", service.ctx.now())
          .execute()
      ).length
    const { registry } = await import("../../platform/metrics.ts")
    const calls = async () => {
      const metric = await registry.getSingleMetric("sluice_rpc_calls_total")?.get()
      return (metric?.values ?? [])
        .filter(({ labels }) => labels.method === "eth_call" && labels.network === "base-sepolia")
        .reduce((sum, { value }) => sum + value, 0)
    }
    const before = await calls()
    await checkDormantDeposits(service.ctx, network(0))
    expect((await calls()) - before).toBe(20)
    expect(await due()).toBe(0)
    service.advance(HOUR)
    expect(await due()).toBe(10_000)
    service.advance(24 * HOUR)
    await checkDormantDeposits(service.ctx, network(0))
    service.advance(2 * HOUR)
    expect(await due()).toBe(0)
    service.advance(22 * HOUR)
    expect(await due()).toBe(10_000)
  })
})
