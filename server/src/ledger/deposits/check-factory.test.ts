// A factory other than the one this version was written for is refused at the start, even if it answers any single
// question correctly.
import { type Hex, pad } from "viem"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, startAnvil } from "../../../test/anvil.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { NetworkMismatch } from "../../platform/chain/check-network.ts"
import { implementationOf } from "../../platform/chain/deposit-terms.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { checkFactory } from "./check-factory.ts"

let anvil: Anvil
let proxy: RpcProxy
let factory: Address

beforeAll(async () => {
  anvil = await startAnvil()
  proxy = await startProxy(anvil.rpcUrl)
  factory = await deployDepositFactory(anvil.client, wallet(1))
})
afterAll(async () => {
  await proxy?.stop()
  await anvil?.stop()
})
beforeEach(() => {
  proxy.spoil = (_method, _params, result) => result
  proxy.broken = undefined
})

const wallet = (i: 1 | 2): Address => anvil.accounts[i].address.toLowerCase() as Address
const check = (change: { depositFactory?: Address; urls?: string[] } = {}, payoutWallet = wallet(1)) =>
  checkFactory(
    {
      name: "base-sepolia",
      chainId: 84532,
      depositFactory: change.depositFactory ?? factory,
      endpoints: (change.urls ?? [anvil.rpcUrl]).map(url => newEndpoint("base-sepolia", url)),
    },
    { payoutWallet },
  )
const refused = async (checked: Promise<void>, words: string) => {
  const error = await checked.then(
    () => undefined,
    reason => reason,
  )
  expect(error).toBeInstanceOf(NetworkMismatch)
  expect(error.message).toContain(words)
}

it("accepts our own factory, and refuses it for another payout wallet", async () => {
  await check()
  await refused(check({}, wallet(2)), `is ${anvil.accounts[1].address}, but the payout wallet is`)
})

it("refuses an address without code, and a stub that answers every call with the operator's address", async () => {
  const address = `0x${"1".repeat(40)}` as Address
  await refused(check({ depositFactory: address }), "there is no deposit factory at")
  // PUSH32 operator, MSTORE at 0, RETURN 32 bytes.
  await anvil.client.setCode({ address, bytecode: `0x7f${pad(wallet(1)).slice(2)}60005260206000f3` })
  await refused(check({ depositFactory: address }), "is not the deposit factory")
})

it("refuses a factory with one other byte, and one whose deposits have other code", async () => {
  const code = (await anvil.client.getCode({ address: factory })) as Hex
  const changed = `${code.slice(0, 40)}${code[40] === "0" ? "1" : "0"}${code.slice(41)}` as Hex
  const address = `0x${"2".repeat(40)}` as Address
  await anvil.client.setCode({ address, bytecode: changed })
  await refused(check({ depositFactory: address }), "is not the deposit factory")
  // The right code at another address names the wrong implementation: its deposits are not where we compute them.
  await anvil.client.setCode({ address, bytecode: code })
  await refused(check({ depositFactory: address }), "is not the deposit factory")
  const other = await deployDepositFactory(anvil.client, wallet(1))
  await anvil.client.setCode({ address: implementationOf(other), bytecode: "0x00" })
  await refused(check({ depositFactory: other }), "creates deposits with other code")
})

it("believes no endpoint over another, waits where one is silent, and logs only the host", async () => {
  const urls = [`${proxy.url}/secret-key`, anvil.rpcUrl]
  const absent = `0x${"3".repeat(40)}` as Address
  // The endpoint lies about whether our factory's code is there.
  proxy.spoil = (method, params, result) => (method === "eth_getCode" && params[0] === factory ? "0x" : result)
  await refused(check({ urls }), `according to the endpoint ${new URL(proxy.url).host}`)
  await expect(check({ urls })).rejects.not.toThrow("secret-key")
  await refused(check({ urls, depositFactory: absent }), "there is no deposit factory at")
  proxy.spoil = (_method, _params, result) => result
  proxy.broken = 503
  await check({ urls })
  await expect(check({ urls: [proxy.url] })).rejects.not.toBeInstanceOf(NetworkMismatch)
})

it("compares what the factory computes: code alone does not show how its chain derives addresses", async () => {
  proxy.spoil = (method, _params, result) => (method === "eth_call" ? pad(wallet(1)) : result)
  await refused(check({ urls: [proxy.url] }), "computes different addresses")
})
