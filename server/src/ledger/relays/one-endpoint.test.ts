// What one lying endpoint can do to payouts and relays: nothing with three endpoints; with two it can delay them.
import { toFunctionSelector } from "viem"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { failed } from "../../../test/node.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { relaysOn } from "../../../test/relays.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import { registry } from "../../platform/metrics.ts"
import { payoutLane } from "../payouts/payout-lane.ts"
import { checkWallet } from "../txmanager/lock-wallet.ts"

let rig: PayoutRig
let liar: RpcProxy
let on: ReturnType<typeof relaysOn>
let single: PayoutRig["network"]["endpoints"]
beforeAll(async () => {
  // Finality eight blocks back: a busy anvil may mine an empty block after the payouts, and the first would be final.
  rig = await startPayoutRig({}, undefined, { slotsInAnEpoch: 4 })
  liar = await startProxy(rig.anvil.rpcUrl)
  on = relaysOn(rig)
  single = rig.network.endpoints
})
afterAll(async () => {
  await liar.stop()
  await rig.stop()
})
beforeEach(async () => {
  liar.spoil = (_method, _params, result) => result
  await on.begin()
})
afterEach(() => void Object.assign(rig.network, { endpoints: single }))

/** Serves the network by the lying endpoint first and `honest` others. */
function among(honest: number): void {
  const urls = [liar.url, ...Array<string>(honest).fill(rig.proxy.url)]
  Object.assign(rig.network, { endpoints: urls.map(url => newEndpoint(rig.network.name, url)) })
}

/** Makes the liar answer calls to an address by `answerOf`. */
function spoilCalls(to: string, answerOf: (data: string) => unknown): void {
  liar.spoil = (method, [call], result) => {
    const { to: called, data = "" } = (method === "eth_call" ? call : {}) as { to?: string; data?: string }
    return called?.toLowerCase() === to.toLowerCase() ? answerOf(data) : result
  }
}

const unavailable = async () => {
  const { values } = (await registry.getSingleMetric("sluice_payout_alarms_total")?.get()) ?? { values: [] }
  return values.filter(({ labels }) => labels.reason === "rpc_unavailable").reduce((sum, { value }) => sum + value, 0)
}

describe("one that says that payouts would fail", () => {
  it("is outvoted by two others", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    among(2)
    spoilCalls(rig.network.depositFactory, () => failed("execution reverted: lie"))
    await rig.round()
    expect(await rig.states()).toEqual(["mined", "mined"])
  })

  it("has them wait where it is one of two, and is an alarm; nothing is held for it", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    among(1)
    spoilCalls(rig.network.depositFactory, () => failed("execution reverted: lie"))
    const before = await unavailable()
    await rig.round()
    expect(await rig.states()).toEqual(["queued", "queued"])
    expect(await unavailable()).toBeGreaterThan(before)
    expect((await rig.payouts()).map(row => row.checks)).toEqual([0, 0])
    liar.spoil = (_method, _params, result) => result
    rig.service.advance(6_000)
    await rig.round()
    expect(await rig.states()).toEqual(["mined", "mined"])
  })
})

describe("one that says that an authorization is used", () => {
  const state = toFunctionSelector("function authorizationState(address, bytes32)")
  const lie = () =>
    spoilCalls(rig.token, data =>
      data.startsWith(state) ? `0x${"1".padStart(64, "0")}` : failed("execution reverted: used or canceled"),
    )

  it("is outvoted by two others", async () => {
    among(2)
    lie()
    const session = await on.start()
    expect((await on.submit(session, await on.sign(await on.buyer(), session))).status).toBe(200)
    await on.round()
    expect((await on.relays()).map(row => row.state)).toEqual(["mined"])
  })

  it("has its payer try again where it is one of two, and nothing is written", async () => {
    among(1)
    lie()
    const session = await on.start()
    expect((await on.submit(session, await on.sign(await on.buyer(), session))).status).toBe(503)
    expect(await on.relays()).toEqual([])
  })
})

it("one that reports a higher count delays no wallet's beginning where two others agree, and of two it does", async () => {
  const { ctx } = rig.service
  liar.spoil = (method, _params, result) => (method === "eth_getTransactionCount" ? "0x64" : result)
  const begun = async (honest: number) => {
    await rig.service.empty()
    among(honest)
    await checkWallet(ctx, payoutLane(rig.network, rig.signer))
    return (await ctx.db.selectFrom("wallets").select(["next_nonce", "status"]).execute()).at(0)
  }
  const count = await rig.anvil.client.getTransactionCount({ address: rig.signer.address })
  expect(await begun(2)).toEqual({ next_nonce: BigInt(count), status: "active" })
  const before = await unavailable()
  expect(await begun(1)).toBeUndefined()
  expect(await unavailable()).toBeGreaterThan(before)
})
