// A nonce that can't be mined is used up by an empty transfer, and its payout is created again, once; whichever of the
// two is mined in the end, and whatever a reorg removes.
import { parseTransaction } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Operator, openOperator } from "../../../test/operator.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { sweepDue } from "../../ledger/payouts/make-payouts.ts"
import { payoutLane } from "../../ledger/payouts/payout-lane.ts"
import { payoutRound } from "../../ledger/txmanager/run-round.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { type Signer, SignerError } from "../../platform/chain/signer.ts"
import { gwei } from "./unstick.ts"

const owner = PAYOUT_ADDRESS.toLowerCase() as Address
const DAY_MS = 86_400_000
const GWEI = 1_000_000_000n
let rig: PayoutRig
let operator: Operator
let cap: bigint
beforeAll(async () => {
  rig = await startPayoutRig()
  operator = openOperator(rig)
  cap = rig.service.ctx.settings.payoutMaxFee
})
afterAll(async () => {
  await operator.stop()
  await rig.stop()
})
beforeEach(async () => {
  const { client } = rig.anvil
  rig.service.ctx.settings.payoutMaxFee = cap
  rig.service.ctx.settings.payoutSigner = rig.signer
  rig.proxy.spoil = (_method, _params, result) => result
  await client.dropAllTransactions()
  await client.setAutomine(true)
  await setBaseFee(GWEI)
  await client.mine({ blocks: 3 })
  await rig.empty()
})

const setBaseFee = (wei: bigint) => rig.anvil.client.setNextBlockBaseFeePerGas({ baseFeePerGas: wei })
const mine = async (blocks = 3) => {
  await setBaseFee(GWEI)
  await rig.anvil.client.mine({ blocks })
}
const gains = async (work: () => Promise<unknown>): Promise<bigint[]> => {
  const all = () => Promise.all([0, 1].map(n => rig.balanceOf(recipient(n))))
  const before = await all()
  await work()
  return (await all()).map((after, i) => after - (before[i] ?? 0n))
}
const unstick = (nonce: bigint | undefined, more: object = {}) =>
  operator.ask("/unstick", { wallet: "payout", nonce: `${nonce}`, reason: "it can't be mined", ...more })
const vanish = () => rig.anvil.client.dropAllTransactions()
/** Mines the first attempts of all payouts, which some node still had, and nothing else. */
async function mineOriginals(): Promise<void> {
  await vanish()
  // A block in between, so that the low fee applies to what is sent.
  await mine(1)
  await setBaseFee(GWEI)
  for (const { n, raw } of await operator.attempts())
    if (n === 0) await rig.anvil.client.sendRawTransaction({ serializedTransaction: raw })
  await rig.anvil.client.mine({ blocks: 1 })
}

/**
 * Brings a payment's shares as far as the pool, while the network asks for higher fees than they may pay; returns the
 * first attempt.
 */
async function stuck() {
  await rig.paid(await rig.sell([50, 50]), 1_000_000n)
  return await sentAndStuck()
}

async function sentAndStuck() {
  await rig.anvil.client.setAutomine(false)
  await rig.round()
  const [first] = await operator.attempts()
  if (!first) throw new Error("nothing was signed")
  rig.service.ctx.settings.payoutMaxFee = first.max_fee
  await setBaseFee(first.max_fee * 2n)
  await rig.anvil.client.mine({ blocks: 1 })
  await rig.round(rig.signer, { resendMs: 0, replaceMs: 0 })
  expect((await operator.attempts()).every(each => each.n === 0)).toBe(true)
  return first
}

/** Runs rounds until nothing changes any more: what was created again is due, and what is mined becomes final. */
async function settleAll(): Promise<void> {
  await rig.anvil.client.setAutomine(true)
  rig.service.ctx.settings.payoutMaxFee = cap
  for (let i = 0; i < 3; i++) {
    rig.service.advance(DAY_MS)
    await sweepDue(rig.service.ctx, rig.network)
    await rig.round()
    await mine()
    await rig.round()
  }
}

/** Each share was paid once, by one final payout, and the wallet continues. */
async function expectPaidOnce(got: bigint[], anew: number): Promise<void> {
  expect(got).toEqual([500_000n, 500_000n])
  const rows = await rig.payouts()
  expect(rows.filter(row => row.state === "final").length).toBe(2)
  expect(rows.filter(row => row.state === "reverted").length).toBe(anew)
  expect(rows.length).toBe(2 + anew)
  const { status, next_nonce } = await operator.wallet()
  const count = await rig.anvil.client.getTransactionCount({ address: rig.signer.address })
  expect([status, next_nonce]).toEqual(["active", BigInt(count)])
}

describe("a stuck nonce", () => {
  it("is replaced by an empty transfer, and its share is created again once and paid once", async () => {
    const got = await gains(async () => {
      const first = await stuck()
      expect((await unstick(first.nonce)).body.message).toMatch(/an eighth more than .* --max-fee/)
      expect((await unstick(first.nonce + 1n, { maxFeeGwei: "900" })).body.message).toContain(`nonce, ${first.nonce}`)
      expect(await operator.actions()).toEqual([])
      const { status, body } = await unstick(first.nonce, { maxFeeGwei: "900" })
      expect([status, body.said]).toEqual([200, expect.stringContaining("created again")])
      const empty = (await operator.attempts()).at(-1)
      expect(empty).toMatchObject({
        payout_id: first.payout_id,
        nonce: first.nonce,
        n: 1,
        empty: true,
        hash: body.hash,
      })
      expect(empty?.max_fee).toBeGreaterThanOrEqual((first.max_fee * 9n + 7n) / 8n)
      const { to, value, data, gas } = parseTransaction(empty?.raw ?? "0x")
      expect([to, value ?? 0n, data ?? "0x", gas]).toEqual([rig.signer.address, 0n, "0x", 21_000n])
      expect(await operator.actions()).toMatchObject([
        {
          action: "unstick",
          by_user: "ops",
          reason: "it can't be mined",
          before: { n: 0 },
          after: { n: 1, empty: true },
        },
      ])
      // The engine sends it, and nothing else for this nonce.
      await rig.round()
      await mine(1)
      await rig.round()
      const [emptied] = (await rig.payouts()).filter(row => row.id === first.payout_id)
      expect(emptied).toMatchObject({ state: "mined", tx_hash: body.hash, succeeded: false })
      await settleAll()
      const rows = await rig.payouts()
      const anew = rows.filter(row => row.replaces === first.payout_id)
      expect(anew).toMatchObject([{ state: "final", amount: 500_000n }])
    })
    await expectPaidOnce(got, 1)
  })

  it("is just paid when the payout itself is mined after all", async () => {
    const got = await gains(async () => {
      const first = await stuck()
      await unstick(first.nonce, { maxFeeGwei: "900" })
      await mineOriginals()
      await settleAll()
    })
    await expectPaidOnce(got, 0)
  })

  it("is paid once when a reorg removes the empty transfer and the payout is mined instead", async () => {
    const got = await gains(async () => {
      const first = await stuck()
      await unstick(first.nonce, { maxFeeGwei: "900" })
      await rig.round()
      await mine(1)
      await rig.round()
      const emptied = (await rig.payouts()).find(row => row.id === first.payout_id)
      expect(emptied).toMatchObject({ state: "mined", succeeded: false })
      await rig.anvil.client.reorg(1)
      await mineOriginals()
      await rig.round()
      const paid = (await rig.payouts()).find(row => row.id === first.payout_id)
      expect(paid).toMatchObject({ state: "mined", succeeded: true, tx_hash: first.hash })
      await settleAll()
    })
    await expectPaidOnce(got, 0)
  })

  it("is emptied again when a reorg removes the empty transfer, and created again once", async () => {
    const got = await gains(async () => {
      const first = await stuck()
      await unstick(first.nonce, { maxFeeGwei: "900" })
      await rig.round()
      await mine(1)
      await rig.round()
      await rig.anvil.client.reorg(1)
      await vanish()
      await rig.round()
      expect(new Set(await rig.states())).toEqual(new Set(["assigned"]))
      await settleAll()
    })
    await expectPaidOnce(got, 1)
  })

  it("stays empty when the empty transfer is stuck too, replaced by the engine and by hand", async () => {
    const got = await gains(async () => {
      const first = await stuck()
      await unstick(first.nonce, { maxFeeGwei: "900" })
      rig.service.ctx.settings.payoutMaxFee = 10_000n * GWEI
      await rig.round()
      await rig.round(rig.signer, { resendMs: 0, replaceMs: 0 })
      await unstick(first.nonce)
      const mineOf = (await operator.attempts()).filter(each => each.nonce === first.nonce)
      expect(mineOf.map(each => [each.n, each.empty])).toEqual([
        [0, false],
        [1, true],
        [2, true],
        [3, true],
      ])
      await settleAll()
    })
    await expectPaidOnce(got, 1)
  })

  it("of a sweep is swept again", async () => {
    const before = await rig.balanceOf(owner)
    const shop = await rig.sell()
    await rig.paid(shop, 12_000_000n)
    const { nonce } = await sentAndStuck()
    await unstick(nonce, { maxFeeGwei: "900" })
    await rig.round()
    await settleAll()
    expect((await rig.balanceOf(owner)) - before).toBe(12_000_000n)
    expect((await rig.states()).sort()).toEqual(["final", "reverted"])
  })
})

describe("an empty transfer", () => {
  it("is not written where its signer does not sign, nor where something else got its place meanwhile", async () => {
    const got = await gains(async () => {
      const first = await stuck()
      const asking = (sign: Signer["sign"]) => {
        rig.service.ctx.settings.payoutSigner = { ...rig.signer, sign }
        return unstick(first.nonce, { maxFeeGwei: "900" })
      }
      const silent = await asking(() => Promise.reject(new SignerError("did not answer")))
      expect([silent.status, silent.body.message]).toEqual([409, expect.stringContaining("signer did not answer")])
      const late = await asking(async (bytes, signal) => {
        rig.service.ctx.settings.payoutSigner = rig.signer
        expect((await unstick(first.nonce, { maxFeeGwei: "900" })).status).toBe(200)
        return await rig.signer.sign(bytes, signal)
      })
      expect([late.status, late.body.message]).toEqual([409, expect.stringContaining("another transaction")])
      expect([(await operator.attempts()).length, (await operator.actions()).length]).toEqual([3, 1])
      // The next process sends what was written, and signs nothing above its own cap.
      await vanish()
      await settleAll()
    })
    await expectPaidOnce(got, 1)
  })

  it("is refused where nothing is stuck, and while the wallet is halted", async () => {
    expect((await unstick(0n)).body.message).toContain("nothing in flight")
    const first = await stuck()
    await operator.ask("/halt", { wallet: "payout", reason: "a look" })
    expect((await unstick(first.nonce, { maxFeeGwei: "900" })).body.message).toContain("halted")
    await operator.ask("/resume", { wallet: "payout", reason: "looked" })
    // Mined, and not yet confirmed.
    await mineOriginals()
    expect((await unstick(first.nonce, { maxFeeGwei: "900" })).body.message).toContain(
      "has been used on the chain in the meantime",
    )
    expect((await operator.attempts()).length).toBe(2)
  })

  it("is not believed to be mined on one endpoint's report: nobody is paid twice", async () => {
    const { ctx } = rig.service
    const { client } = rig.anvil
    const liar: RpcProxy = await startProxy(rig.anvil.rpcUrl)
    const endpoints = [liar.url, rig.proxy.url, rig.proxy.url].map(url => newEndpoint(rig.network.name, url))
    const round = () => payoutRound(ctx, payoutLane({ ...rig.network, endpoints }, rig.signer))
    try {
      const got = await gains(async () => {
        const first = await stuck()
        const { hash } = (await unstick(first.nonce, { maxFeeGwei: "900" })).body
        const final = await client.getBlock({ blockTag: "finalized" })
        liar.spoil = (method, params, result) => {
          if (method !== "eth_getTransactionReceipt") return result
          return params[0] !== hash
            ? null
            : {
                status: "0x1",
                transactionHash: hash,
                blockNumber: `0x${final.number.toString(16)}`,
                blockHash: final.hash,
                logs: [],
                logsBloom: "0x0",
              }
        }
        // The payout itself is mined, and the empty transfer was never sent.
        await mineOriginals()
        // While the other endpoints do not have the receipts yet, the liar is the only one that answers.
        rig.proxy.spoil = (method, _params, result) => (method === "eth_getTransactionReceipt" ? null : result)
        for (let i = 0; i < 3; i++) await round()
        expect((await rig.payouts()).find(row => row.id === first.payout_id)?.state).toBe("assigned")
        rig.proxy.spoil = (_method, _params, result) => result
        for (let i = 0; i < 3; i++) await round()
        expect(await rig.states()).toEqual(["mined", "mined"])
        expect((await rig.payouts()).every(row => row.succeeded)).toBe(true)
        await mine()
        await round()
      })
      await expectPaidOnce(got, 0)
    } finally {
      await liar.stop()
    }
  })
})

it("formats fees in gwei", () => {
  const shown = [0n, 1n, GWEI, 1_500_000_000n, 12_345_678_901n].map(gwei)
  expect(shown).toEqual(["0", "0.000000001", "1", "1.5", "12.345678901"])
})
