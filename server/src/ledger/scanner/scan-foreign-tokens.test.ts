// Tokens that nobody sells for, found by their logs; and the logs that anyone can emit to do harm.
import { encodeFunctionData, erc20Abi, type Hex, maxUint256, pad } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type ExceptionsRig, startExceptionsRig } from "../../../test/exceptions.ts"
import { failed } from "../../../test/node.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { foreignTokenRound } from "./scan-foreign-tokens.ts"

/**
 * The most calls of a round to an endpoint: 40 for logs, each with a block; and those for the quorum, the last block,
 * and balances.
 */
const MAX_CALLS = 2 * 40 + 5 + 40 + 25

let rig: ExceptionsRig
let proxies: [RpcProxy, RpcProxy]
beforeAll(async () => {
  rig = await startExceptionsRig()
  proxies = [await startProxy(rig.anvil.rpcUrl), await startProxy(rig.anvil.rpcUrl)]
})
afterAll(async () => {
  await rig?.stop()
  for (const proxy of proxies ?? []) await proxy.stop()
})

let network: Network
/** Begins a new scan at the current block, with this many endpoints. */
async function begin(endpoints: 1 | 2 = 1): Promise<void> {
  await rig.empty()
  for (const proxy of proxies) proxy.spoil = (_method, _params, result) => result
  network = {
    ...rig.network,
    endpoints: proxies.slice(0, endpoints).map(({ url }) => newEndpoint("base-sepolia", url)),
  }
  await rig.rounds(1, 1)
  await round(0)
}
beforeEach(() => begin())

/** Mines `blocks` and runs a round; eleven blocks make all earlier ones final. */
async function round(blocks = 12): Promise<number> {
  if (blocks > 0) await rig.anvil.client.mine({ blocks })
  await rig.service.ctx.db
    .updateTable("token_scans")
    .set({ run_at: new Date(0) })
    .execute()
  for (const proxy of proxies) proxy.calls.clear()
  await foreignTokenRound(rig.service.ctx, network)
  return Math.max(...proxies.map(proxy => proxy.total()))
}

const paywall = async () => {
  const body = { name: "Film", price: 5 }
  const { id } = (await rig.service.call("POST", "/api/console/paywalls", body, { as: "shop" })).body
  return { id: id as string, payTo: (await rig.service.call("GET", `/api/paywalls/${id}`)).body.payTo as string }
}
const listed = async (as = "shop") => {
  const { body } = await rig.service.call("GET", "/api/console/foreign-tokens", undefined, { as })
  expect(body.total).toBe(body.data.length)
  return body.data as Record<string, unknown>[]
}
const rows = () => rig.service.ctx.db.selectFrom("foreign_tokens").selectAll().orderBy("id").execute()
const position = () => rig.service.ctx.db.selectFrom("token_scans").selectAll().executeTakeFirstOrThrow()

/**
 * A contract that emits as many transfers to an address as it is called with (two words), and says of every balance that it
 * is `balance`, at most 255.
 */
async function emitter(balance: number, i = 0): Promise<Hex> {
  const address = pad(`0x${(0xe0000 + 1_000 * balance + i).toString(16)}`, { size: 20 })
  const topic = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
  const loop = `5b801560465760003533${`7f${topic}`}60206000a36001900360 0f565b00`.replace(" ", "")
  const says = `5b60${balance.toString(16).padStart(2, "0")}60005260206000f3`
  await rig.anvil.client.setCode({ address, bytecode: `0x366024146048576001600052602035${loop}${says}` })
  return address
}
const emit = async (contract: Hex, to: string, count: number) => {
  const word = (value: Hex) => pad(value).slice(2)
  const data = `0x${word(to as Hex)}${word(`0x${count.toString(16)}`)}` as const
  const hash = await rig.anvil.client.sendTransaction({ account: rig.buyer(0), to: contract, data, gas: 20_000_000n })
  expect((await rig.anvil.client.waitForTransactionReceipt({ hash })).logs).toHaveLength(count)
}

describe("a token that nobody sells for", () => {
  it("is listed with what can be done, buys nothing, waits once its hash is submitted, and goes when it is gone", async () => {
    const shop = await paywall()
    const hash = await rig.pay(shop.payTo, "7", 0, rig.other)
    await rig.rounds(2)
    await round()
    await rig.rounds(1)
    const [token] = await listed()
    expect(token).toMatchObject({
      address: shop.payTo,
      paywallId: shop.id,
      sessionId: null,
      token: checksummed(rig.other),
      balance: "7000000",
      amount: "7000000",
      txHash: hash,
      from: rig.buyer(0).address,
      paymentId: null,
      remedy: expect.stringContaining(`POST /api/paywalls/${shop.id}/pay`),
    })
    expect(await listed("another")).toEqual([])
    const counted = await rig.service.call("GET", "/api/console/payments", undefined, { as: "shop" })
    expect(counted.body.data).toEqual([])

    const buyer = rig.buyer(0).address
    await rig.service.call("POST", `/api/paywalls/${shop.id}/pay`, { txHash: hash, address: buyer })
    await rig.rounds(3)
    const [known] = await listed()
    expect(known).toMatchObject({ remedy: expect.stringContaining("Accept or return the payment pay_") })
    const accepted = await rig.service.call(
      "POST",
      `/api/console/payments/${known?.paymentId}/accept`,
      {},
      { as: "shop" },
    )
    expect(accepted.body).toMatchObject({ status: "granted", exception: "wrong_asset" })
    expect(await listed()).toMatchObject([{ remedy: expect.stringContaining("is granted") }])
    // The tokens leave the address; its balance is checked again a day later.
    await rig.pass(25 * 3_600_000)
    await rig.anvil.client.impersonateAccount({ address: shop.payTo as Hex })
    await rig.anvil.client.setBalance({ address: shop.payTo as Hex, value: 10n ** 18n })
    const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [buyer, 7_000_000n] })
    await rig.anvil.client.sendTransaction({ account: shop.payTo as Hex, to: rig.other, data })
    await round()
    expect(await rows()).toEqual([])
  })

  it("is found where it came while the address was watched, though it no longer is", async () => {
    const shop = await paywall()
    await rig.pay(shop.payTo, "7", 0, rig.other)
    const dormant = { watched: false, dormant_since: rig.service.ctx.now(), watched_number: 1n }
    await rig.service.ctx.db.updateTable("deposits").set(dormant).execute()
    await round()
    expect(await listed()).toHaveLength(1)
  })

  it("is not listed before its block is final, and never where a reorg removed it", async () => {
    const shop = await paywall()
    await rig.pay(shop.payTo, "7", 0, rig.other)
    await round(2)
    expect(await rows()).toEqual([])
    await rig.anvil.client.reorg(3)
    await round(20)
    expect([await rows(), (await position()).from_block > 20n]).toEqual([[], true])
  })
})

describe("what anyone can emit", () => {
  it("is not listed where the token says that nothing is there, or fails", async () => {
    const shop = await paywall()
    await emit(await emitter(0), shop.payTo, 3)
    // An endpoint that fails here is not paused for the scan of payments.
    Object.assign(proxies[0], { broken: 503, brokenFor: "eth_call" })
    await round()
    Object.assign(proxies[0], { broken: undefined, brokenFor: undefined })
    expect(network.endpoints[0]).toMatchObject({ failures: 0, silentUntil: 0 })
    expect(await rows()).toMatchObject([{ balance: null }])
    expect(await listed()).toEqual([])
    rig.service.advance(3_700_000)
    const left = async () => {
      await round(0)
      return await rows()
    }
    await expect.poll(left, { timeout: 20_000 }).toEqual([])
  })

  it("of tokens that lie fills twenty rows of an address, changes no payment and nothing of another address", async () => {
    const flooded = await paywall()
    const quiet = await paywall()
    for (let i = 0; i < 25; i++) await emit(await emitter(9, i), flooded.payTo, 2)
    await rig.pay(quiet.payTo, "5")
    await rig.pay(quiet.payTo, "1", 0, rig.other)
    const paid = { txHash: await rig.pay(flooded.payTo, "5"), address: rig.buyer(0).address }
    await rig.service.call("POST", `/api/paywalls/${flooded.id}/pay`, paid)
    expect(await round()).toBeLessThan(MAX_CALLS)
    await round()
    const tokens = await listed()
    expect(tokens.filter(each => each.paywallId === flooded.id)).toHaveLength(20)
    expect(tokens.filter(each => each.paywallId === quiet.id)).toHaveLength(1)
    await rig.rounds(2)
    const access = await rig.service.call("GET", `/api/paywalls/${flooded.id}/verify?address=${rig.buyer(0).address}`)
    expect(access.body.hasAccess).toBe(true)
    const counted = await rig.service.ctx.db.selectFrom("transfers").select("token").execute()
    expect(counted).toEqual([{ token: rig.usdc }, { token: rig.usdc }])
  })

  it("can't be read where there is too much of it, and costs a fixed number of calls and nothing of the real scan", async () => {
    const others = await Promise.all([paywall(), paywall(), paywall()])
    const [shop] = others
    await rig.anvil.client.mine({ blocks: 300 })
    await emit(await emitter(9), shop.payTo, 60)
    const last = await rig.pay(others[2].payTo, "3", 0, rig.other)
    // Providers limit the number of results and of blocks.
    proxies[0].spoil = (method, [filter], result) => {
      const { address, fromBlock, toBlock } = (filter ?? {}) as { address?: string; fromBlock: Hex; toBlock: Hex }
      if (method !== "eth_getLogs" || address) return result
      const isMuch = (result as unknown[]).length > 10 || BigInt(toBlock) - BigInt(fromBlock) > 4n
      return isMuch ? failed("query returned more than 10 results, or too many blocks") : result
    }
    const before = { ...network.endpoints[0] }
    let most = await round()
    const gone = () => rig.service.ctx.db.selectFrom("cursors").select("block_number").executeTakeFirstOrThrow()
    for (let i = 0; i < 40 && (await listed()).length === 0; i++) {
      most = Math.max(most, await round(0))
      // The scan for payments continues in between, at its usual cost.
      proxies[0].calls.clear()
      await rig.service.ctx.db
        .updateTable("cursors")
        .set({ run_at: new Date(0) })
        .execute()
      await verifyRound(rig.service.ctx, network)
      expect(proxies[0].total()).toBeLessThan(12)
      expect((await gone()).block_number).toBe(await rig.anvil.client.getBlockNumber())
    }
    expect(await listed()).toMatchObject([{ txHash: last, paywallId: others[2].id }])
    expect(most).toBeLessThan(MAX_CALLS)
    const { logRange, logAddresses, logBytes, failures, silentUntil } = before
    expect(network.endpoints[0]).toMatchObject({ logRange, logAddresses, logBytes, failures, silentUntil })
  })

  it("waits where a day's rows are used up, and goes on from there", async () => {
    await paywall()
    const { id, merchant_id } = await rig.service.ctx.db.selectFrom("deposits").selectAll().executeTakeFirstOrThrow()
    const now = rig.service.ctx.now()
    const row = {
      merchant_id,
      chain_id: network.chainId,
      deposit_id: id,
      tx_hash: pad("0x1"),
      block_number: 1n,
      value: 1n,
    }
    const many = Array.from({ length: 2_000 }, (_, i) => ({
      ...row,
      from_address: rig.other,
      token: pad(`0x${(i + 1).toString(16)}`, { size: 20 }) as typeof rig.other,
      found_at: now,
      balance: 1n,
      check_at: new Date(now.getTime() + 3 * 86_400_000),
    }))
    await rig.service.ctx.db
      .insertInto("foreign_tokens")
      .values(many as never)
      .execute()
    const other = await paywall()
    await rig.pay(other.payTo, "3", 0, rig.other)
    const at = await position()
    await round()
    expect((await position()).from_block).toBe(at.from_block)
    rig.service.advance(25 * 3_600_000)
    await round()
    expect((await rows()).at(-1)).toMatchObject({ token: rig.other, balance: 3_000_000n })
  })

  it("with an amount beyond all sense, or a topic that is none, stops nothing", async () => {
    const shop = await paywall()
    await rig.pay(shop.payTo, "3", 0, rig.other)
    proxies[0].spoil = (method, [filter], result) => {
      if (method !== "eth_getLogs" || (filter as { address?: string }).address) return result
      const [log] = result as { topics: unknown[]; data: string }[]
      if (!log) return result
      const much = { ...log, address: pad("0x77", { size: 20 }), data: pad(`0x${maxUint256.toString(16)}`) }
      return [{ ...log, topics: [log.topics[0], null, log.topics[2]] }, much, log]
    }
    await round()
    expect(await listed()).toHaveLength(1)
  })
})

describe("of two endpoints, one that lies", () => {
  it("adds no token, raises no balance, and what it hides is found when both answer", async () => {
    await begin(2)
    const shop = await paywall()
    const other = await paywall()
    await rig.pay(shop.payTo, "3", 0, rig.other)
    const balance = encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [shop.payTo as Hex] })
    const fake = await emitter(9)
    proxies[0].spoil = (method, [call], result) => {
      const { data, address } = (call ?? {}) as { data?: Hex; address?: Hex }
      if (method === "eth_call" && data?.toLowerCase() === balance.toLowerCase()) return pad("0xffffffff")
      if (method !== "eth_getLogs" || address) return result
      const [log] = result as { topics: Hex[] }[]
      if (!log) return result
      return [log, { ...log, address: fake, topics: [...log.topics.slice(0, 2), pad(other.payTo as Hex)] }]
    }
    await round()
    expect(await listed()).toMatchObject([{ paywallId: shop.id, balance: "3000000" }])
    // Nothing is passed over while one of the two does not answer.
    await rig.pay(other.payTo, "4", 0, rig.other)
    proxies[0].broken = 502
    await round()
    proxies[0].broken = undefined
    proxies[0].spoil = (_method, _params, result) => result
    // An endpoint that failed is not asked again within a second.
    const found = async () => {
      await round(0)
      return (await listed()).map(({ paywallId, balance }) => `${paywallId} ${balance}`)
    }
    await expect.poll(found, { timeout: 20_000 }).toEqual([`${other.id} 4000000`, `${shop.id} 3000000`])
  })
})
