// Theft with the payout key, noticed when it happens, on a real chain.
import { zeroHash } from "viem"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { depositFactoryAbi } from "../../platform/chain/abi.ts"
import { type Endpoint, newEndpoint } from "../../platform/chain/endpoints.ts"
import { giveBackData } from "../../platform/chain/give-back.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { NO_DEADLINE, termsOf } from "../../platform/chain/release-call.ts"
import { ensureCursor } from "../scanner/scan-round.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { watchOutflows } from "./watch-outflows.ts"

const EVERY_MS = 20_000
const LEFT = "left a deposit without a payout"
let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig.stop())
beforeEach(async () => {
  rig.proxy.spoil = (_method, _params, result) => result
  await rig.empty()
  await ensureCursor(rig.service.ctx, rig.network)
  await scan()
  await watch()
})

const wallet = () => rig.service.ctx.db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
const noted = () => rig.service.ctx.db.selectFrom("outflows").select(["reason", "amount"]).execute()
const mine = (blocks: number) => rig.anvil.client.mine({ blocks })
const scan = () => {
  rig.service.advance(rig.service.ctx.settings.verifyIntervalMs)
  return verifyRound(rig.service.ctx, rig.network)
}
const watch = async () => {
  rig.service.advance(EVERY_MS)
  for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
  await watchOutflows(rig.service.ctx, rig.network, rig.signer.address)
}
/** Makes the wallet active, with the nonces that the chain has: the operator adopted what its key did. */
const resume = async () => {
  const next_nonce = BigInt(await rig.anvil.client.getTransactionCount({ address: rig.signer.address }))
  const active = { status: "active", halted_reason: null, check_at: null, next_nonce } as const
  await rig.service.ctx.db.updateTable("wallets").set(active).execute()
}

/** Sends 20 of 50 units back out of a new deposit, in a transaction that the service did not make. */
async function giveBack(approver: "wallet" | "service"): Promise<Hash> {
  const { service, anvil, network, token } = rig
  const [, operator, , stranger] = anvil.accounts
  await service.call("PUT", "/api/console/settings", { approver }, { as: "shop" })
  const { deposit } = await rig.sell()
  await rig.mint(deposit.address, 50n)
  const { factory, salt, address } = deposit
  const message = { token, to: recipient(5), amount: 20n, deposit: address, nonce: zeroHash, deadline: NO_DEADLINE }
  // The last account has the merchant's payout address.
  const signed = await anvil.accounts[9].signTypedData(giveBackData(network.chainId, factory, message))
  const terms = [salt, termsOf(deposit), token, recipient(5), 20n, zeroHash, NO_DEADLINE] as const
  const { transactionHash } = await anvil.client.writeContractSync({
    address: factory,
    abi: depositFactoryAbi,
    functionName: "giveBack",
    args: [...terms, approver === "wallet" ? signed : "0x"],
    account: approver === "wallet" ? stranger : operator,
  })
  return transactionHash as Hash
}

it("halts at the next round, long before the block is final, and once: the comparison then records it", async () => {
  const hash = await giveBack("service")
  await scan()
  await watch()
  expect((await wallet()).halted_reason).toContain(`the transfer ${hash} ${LEFT}: 20 of `)
  expect(await noted()).toEqual([])
  await resume()
  await scan()
  await watch()
  await mine(70)
  await rig.compareLogs()
  expect(await noted()).toEqual([{ reason: "unknown", amount: 20n }])
  await watch()
  expect(await wallet()).toMatchObject({ status: "active", halted_reason: null })
})

it("does not halt for what the merchant's own wallet signed for, nor for a stranger's deposit", async () => {
  await giveBack("wallet")
  const { salt, ...terms } = { salt: zeroHash, ...termsOf((await rig.sell()).deposit) }
  // Anyone may make a deposit of the factory with an approver of its own, and give its money back.
  const { anvil, token, network } = rig
  const [, , , stranger] = anvil.accounts
  const own = { ...terms, approver: stranger.address }
  const at = { address: network.depositFactory, abi: depositFactoryAbi } as const
  const made = await anvil.client.readContract({ ...at, functionName: "addressOf", args: [salt, own] })
  const deposit = made.toLowerCase() as Address
  await rig.mint(deposit, 50n)
  const message = { token, to: recipient(5), amount: 20n, deposit, nonce: zeroHash, deadline: NO_DEADLINE } as const
  const signed = await stranger.signTypedData(giveBackData(network.chainId, network.depositFactory, message))
  const args = [salt, own, token, recipient(5), 20n, zeroHash, NO_DEADLINE, signed] as const
  await anvil.client.writeContractSync({ ...at, functionName: "giveBack", args, account: stranger })
  await scan()
  await watch()
  expect(await wallet()).toMatchObject({ status: "active", halted_reason: null })
})

it("does not halt for a return of its own that another process has just sent: its signature is stored before", async () => {
  const { service } = rig
  await service.call("PUT", "/api/console/settings", { approver: "service" }, { as: "shop" })
  // Too little, so that it waits for the merchant.
  const payment = await rig.paid(await rig.sell(), 200_000n)
  const url = `/api/console/payments/${payment}/return`
  expect(await service.call("POST", url, { address: recipient(5) }, { as: "shop" })).toMatchObject({ status: 200 })
  const seen: unknown[] = []
  rig.proxy.spoil = async (method, _params, result) => {
    if (method !== "eth_sendRawTransaction") return result
    await scan()
    await watch()
    seen.push(...(await rig.states()), (await wallet()).halted_reason)
    return result
  }
  await rig.round()
  expect(seen).toEqual(["assigned", null])
})

it("needs a quorum: one of three endpoints halts nothing and hides nothing; what is not read is read later", async () => {
  const endpoints = rig.network.endpoints as Endpoint[]
  endpoints.push(newEndpoint(rig.network.name, rig.anvil.rpcUrl), newEndpoint(rig.network.name, rig.anvil.rpcUrl))
  try {
    await giveBack("service")
    // So that the count says nothing.
    await resume()
    await scan()
    // The proxy is the first endpoint.
    rig.proxy.spoil = (method, _params, result) => (method === "eth_getLogs" ? [] : result)
    endpoints.pop()
    await watch()
    await watch()
    expect((await wallet()).halted_reason).toBeNull()
    endpoints.push(newEndpoint(rig.network.name, rig.anvil.rpcUrl))
    await watch()
    expect((await wallet()).halted_reason).toContain(LEFT)
  } finally {
    endpoints.splice(1)
  }
})
