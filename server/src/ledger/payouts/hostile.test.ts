// What outsiders and faulty endpoints try: to have a share paid twice, and to stop the engine.
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { deploy } from "../../../test/anvil.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { oddTokenAbi, oddTokenBytecode, testUsdcAbi } from "../../platform/chain/abi.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import { checksummed, type Hash } from "../../platform/chain/hex.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import { learnTokens } from "../scanner/learn-tokens.ts"
import { settleDue } from "../settlement/settle.ts"
import { payoutRound } from "../txmanager/run-round.ts"
import { payoutLane } from "./payout-lane.ts"

let rig: PayoutRig
let liar: RpcProxy
beforeAll(async () => {
  rig = await startPayoutRig()
  liar = await startProxy(rig.anvil.rpcUrl)
})
afterAll(async () => {
  await liar.stop()
  await rig.stop()
})
beforeEach(async () => {
  rig.proxy.broken = undefined
  rig.proxy.brokenFor = undefined
  rig.proxy.spoil = liar.spoil = (_method, _params, result) => result
  for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
  await rig.anvil.client.setAutomine(true)
  await rig.anvil.client.mine({ blocks: 3 })
  await rig.empty()
})

const gain = async (n: number, work: () => Promise<unknown>): Promise<bigint> => {
  const before = await rig.balanceOf(recipient(n))
  await work()
  return (await rig.balanceOf(recipient(n))) - before
}

it("pays a share once though one endpoint of three says that it reverted", async () => {
  const { ctx } = rig.service
  const { client } = rig.anvil
  const final = await client.getBlock({ blockTag: "finalized" })
  let count = 0n
  liar.spoil = (method, params, result) => {
    if (method === "eth_getTransactionCount" && params[1] === "latest" && count > BigInt(String(result)))
      return `0x${count.toString(16)}`
    if (method !== "eth_getTransactionReceipt") return result
    return {
      status: "0x0",
      transactionHash: params[0],
      blockNumber: `0x${final.number.toString(16)}`,
      blockHash: final.hash,
      logs: [],
      logsBloom: "0x0",
    }
  }
  const endpoints = [liar.url, rig.proxy.url, rig.proxy.url].map(url => newEndpoint(rig.network.name, url))
  const network = { ...rig.network, endpoints }
  const round = () => payoutRound(ctx, payoutLane(network, rig.signer))
  const shop = await rig.sell([50, 50])
  const got = await gain(0, async () => {
    await rig.paid(shop, 1_000_000n)
    await client.setAutomine(false)
    await round()
    count = BigInt(await client.getTransactionCount({ address: rig.signer.address })) + 2n
    await round()
    liar.spoil = (_method, _params, result) => result
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    // Other money is at the same address: another payment, or one that came too late.
    const mint = { address: rig.token, abi: testUsdcAbi, functionName: "mint" } as const
    await client.writeContractSync({ ...mint, args: [shop.deposit.address, 1_000_000n] })
    rig.service.advance(300_000)
    for (let i = 0; i < 4; i++) await round()
    await client.mine({ blocks: 3 })
    await round()
  })
  expect(got).toBe(500_000n)
  expect((await rig.states()).every(state => state === "final")).toBe(true)
})

it("pays others though a merchant's many payouts can't be paid", async () => {
  for (const n of [0, 1])
    await rig.anvil.client.writeContractSync({
      address: rig.token,
      abi: testUsdcAbi,
      functionName: "blacklist",
      args: [recipient(n)],
    })
  const bad = await rig.sell([50, 50])
  const good = await rig.sell([20, 20, 60])
  for (let i = 0; i < 20; i++) await rig.paid(bad, 500_000n)
  expect(
    await gain(2, async () => {
      await rig.paid(good, 1_000_000n)
      await rig.round()
    }),
  ).toBe(600_000n)
  // Payouts that failed before come after new ones.
  rig.service.advance(61_000)
  await rig.paid(good, 1_000_000n)
  const { ctx } = rig.service
  const held = async () =>
    (await ctx.db.selectFrom("payouts").select("id").where("state", "=", "held").where("checks", "=", 1).execute())
      .length
  expect(await gain(2, () => rig.round())).toBe(600_000n)
  expect(await held()).toBeLessThanOrEqual(2)
})

it("pays as usual though one endpoint of three reports absurd fees, counts and balances", async () => {
  const { ctx } = rig.service
  const lies: Record<string, unknown>[] = [
    { eth_getTransactionCount: "0xffff", eth_maxPriorityFeePerGas: "0xffffffffffff", eth_getBalance: "0x0" },
    { eth_getTransactionCount: "0x0", eth_maxPriorityFeePerGas: "0x0", eth_getBalance: "0xffffffffffffffffffff" },
  ]
  const endpoints = [liar.url, rig.proxy.url, rig.proxy.url].map(url => newEndpoint(rig.network.name, url))
  const network = { ...rig.network, endpoints }
  const honest = await readWalletState(
    { ...rig.network, endpoints: endpoints.slice(1) },
    rig.signer.address,
    ctx.signal,
  )
  for (const lie of lies) {
    liar.spoil = (method, params, result) =>
      method === "eth_getBlockByNumber" && params[0] === "latest" && "eth_getBalance" in lie
        ? { ...(result as object), baseFeePerGas: lie.eth_maxPriorityFeePerGas }
        : (lie[method] ?? result)
    const reported = await readWalletState(network, rig.signer.address, ctx.signal)
    for (const each of ["latest", "agreedLatest", "agreedFinalized", "balance", "market"] as const)
      expect([each, reported[each]]).toEqual([each, honest[each]])
  }
  // Neither of two endpoints can raise the bid alone.
  liar.spoil = (method, _params, result) => lies[0]?.[method] ?? result
  const two = await readWalletState({ ...network, endpoints: endpoints.slice(0, 2) }, rig.signer.address, ctx.signal)
  expect(two.market).toEqual(honest.market)
  const shop = await rig.sell([10, 10, 10, 10, 10, 50])
  const got = await gain(5, async () => {
    await rig.paid(shop, 1_000_000n)
    await payoutRound(ctx, payoutLane(network, rig.signer))
  })
  expect(got).toBe(500_000n)
})

it("pays back a token that emits nothing for it, and neither waits for a log nor halts for the lack of it", async () => {
  const { ctx } = rig.service
  const token = await deploy(rig.anvil.client, oddTokenAbi, oddTokenBytecode, [0])
  const shop = await rig.sell()
  const args = [shop.deposit.address, 9n] as const
  const receipt = await rig.anvil.client.writeContractSync({
    address: token,
    abi: oddTokenAbi,
    functionName: "mint",
    args,
  })
  const hash = receipt.transactionHash as Hash
  // The token's only log would be an invented one; it is stored as the scan would have.
  await ctx.db
    .insertInto("transfers")
    .values({
      chain_id: rig.network.chainId,
      tx_hash: hash,
      token,
      to_address: shop.deposit.address,
      k: 0,
      deposit_id: shop.deposit.id,
      from_address: recipient(9),
      value: 9n,
      block_number: receipt.blockNumber,
      block_hash: receipt.blockHash as Hash,
      log_index: 0,
      block_time: ctx.now(),
      state: "confirmed",
      run_at: ctx.now(),
      created_at: ctx.now(),
    })
    .execute()
  await learnTokens(ctx, rig.network)
  await settleDue(ctx, rig.network)
  const { data } = (await rig.service.call("GET", "/api/console/payments", undefined, { as: "shop" })).body
  // No decimals, no symbol: base units, and the address.
  expect(data).toMatchObject([{ exception: "wrong_asset", amount: "9", currency: checksummed(token), decimals: null }])
  const path = `/api/console/payments/${data[0].id}/return`
  expect((await rig.service.call("POST", path, { address: recipient(8) }, { as: "shop" })).status).toBe(200)
  for (let i = 0; i < 3; i++) {
    await rig.round()
    await rig.anvil.client.mine({ blocks: 70 })
    rig.service.advance(3_700_000)
  }
  expect(await rig.states()).toEqual(["final"])
  const balance = { address: token, abi: oddTokenAbi, functionName: "balanceOf", args: [recipient(8)] } as const
  expect(await rig.anvil.client.readContract(balance)).toBe(9n)
  expect(await ctx.db.selectFrom("wallets").select(["status", "halted_reason"]).execute()).toEqual([
    { status: "active", halted_reason: null },
  ])
})
