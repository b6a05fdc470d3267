// The pure rules of payouts: what answers mean, what fees become, what is drawn from where, what a release says.
import fc from "fast-check"
import { decodeFunctionData, type Hex, slice } from "viem"
import { describe, expect, it } from "vitest"
import { depositFactoryAbi } from "../chain/abi.ts"
import { firstFees, raisedFees } from "../chain/fees.ts"
import type { Address } from "../chain/hex.ts"
import { payoutIdIn, releaseData } from "../chain/release-call.ts"
import { classifyAnswer, summaryOf } from "./broadcast-results.ts"
import { drawShares, recheckMs } from "./draw-shares.ts"

describe("classifyAnswer", () => {
  it.each([
    ["already known", "sent"],
    ["AlreadyKnown", "sent"],
    ["transaction already imported", "sent"],
    ["already in mempool", "sent"],
    ["nonce too low: next nonce 7, tx nonce 5", "look"],
    ["OldNonce", "look"],
    ["replacement transaction underpriced", "look"],
    ["max fee per gas less than block base fee", "bump"],
    ["transaction underpriced", "bump"],
    ["FeeTooLow", "bump"],
    ["insufficient funds for gas * price + value", "wait"],
    ["Insufficient funds for gas * price + value", "wait"],
    ["txpool is full", "wait"],
    ["daily request limit exceeded", "wait"],
    ["Too Many Requests", "wait"],
    ["intrinsic gas too low", "alarm"],
    ["invalid sender", "alarm"],
    ["exceeds block gas limit", "alarm"],
    ["the network sneezed", "unknown"],
    ["no reply", "unknown"],
  ])("%s: %s", (error, meaning) => {
    expect(classifyAnswer({ ok: false, error })).toBe(meaning)
  })

  it("an ok is sent, silence is unknown", () => {
    expect(classifyAnswer({ ok: true, value: "0x" })).toBe("sent")
    expect(classifyAnswer(undefined)).toBe("unknown")
  })

  it("one endpoint that has it outweighs all others; none is unknown", () => {
    expect(summaryOf(["unknown", "bump", "sent"])).toBe("sent")
    expect(summaryOf(["wait", "bump"])).toBe("bump")
    expect(summaryOf([])).toBe("unknown")
  })
})

describe("fees", () => {
  const fee = fc.bigInt({ min: 0n, max: 10n ** 12n })
  const market = fc.record({ baseFee: fee, tip: fee })

  it("of a first attempt pay the market, and never more than the cap", () => {
    fc.assert(
      fc.property(market, fee, (market, cap) => {
        const fees = firstFees(market, cap)
        if (!fees) {
          expect(market.baseFee + market.tip > cap).toBe(true)
          return
        }
        expect(fees.maxFee <= cap && fees.maxFee >= market.baseFee + market.tip).toBe(true)
        expect(fees.tip).toBe(market.tip)
      }),
    )
  })

  it("of a replacement are an eighth higher, which nodes that ask a tenth take; both of them, and at least the market's", () => {
    fc.assert(
      fc.property(market, fee, fee, market, (market, cap, tip, old) => {
        const before = { maxFee: old.baseFee + tip, tip }
        const fees = raisedFees(before, market, cap)
        if (!fees) return
        // Nodes refuse below 110 of 100, rounded in their favour.
        expect(fees.maxFee * 100n >= before.maxFee * 110n).toBe(true)
        expect(fees.tip * 100n >= before.tip * 110n).toBe(true)
        expect(fees.tip >= market.tip).toBe(true)
        expect(fees.maxFee >= (market.baseFee + market.tip < cap ? market.baseFee + market.tip : 0n)).toBe(true)
        expect(fees.maxFee <= cap && fees.tip <= fees.maxFee).toBe(true)
      }),
    )
  })

  it("are rounded up, and stop at the cap", () => {
    const none = { baseFee: 0n, tip: 0n }
    const before = { maxFee: 100_000_001n, tip: 8_000_001n }
    expect(raisedFees(before, none, 113_000_000n)).toEqual({ maxFee: 112_500_002n, tip: 9_000_002n })
    expect(raisedFees(before, none, 112_500_001n)).toBeUndefined()
  })

  it("leave a bid of nothing, which an endpoint that lies can bring about, within minutes", () => {
    let fees: { maxFee: bigint; tip: bigint } | undefined = { maxFee: 0n, tip: 0n }
    for (let i = 0; i < 20 && fees; i++) fees = raisedFees(fees, { baseFee: 0n, tip: 0n }, 10n ** 12n)
    expect((fees?.maxFee ?? 0n) >= 5_000_000n && (fees?.tip ?? 0n) >= 5_000_000n).toBe(true)
  })
})

describe("drawShares", () => {
  const amounts = fc.array(fc.bigInt({ min: 0n, max: 1_000n }), { minLength: 1, maxLength: 8 })
  const sum = (values: bigint[]) => values.reduce((total, value) => total + value, 0n)

  it("draws all that is needed where it is there, no deposit beyond what it has, nothing of zero", () => {
    fc.assert(
      fc.property(amounts, amounts, (needed, available) => {
        const sources = available.map((amount, i) => ({ depositId: BigInt(i), available: amount }))
        const draws = drawShares(needed, sources)
        const [need, have] = [sum(needed), sum(available)]
        expect(sum(draws.map(draw => draw.amount))).toBe(need < have ? need : have)
        expect(draws.every(draw => draw.amount > 0n)).toBe(true)
        for (const { depositId, available } of sources)
          expect(sum(draws.filter(draw => draw.depositId === depositId).map(draw => draw.amount)) <= available).toBe(
            true,
          )
        for (const [share, amount] of needed.entries())
          expect(sum(draws.filter(draw => draw.share === share).map(draw => draw.amount)) <= amount).toBe(true)
      }),
    )
  })

  it("goes on in the next deposit where one runs out", () => {
    const sources = [1n, 2n].map(depositId => ({ depositId, available: 5n }))
    expect(drawShares([3n, 4n, 3n], sources)).toEqual([
      { share: 0, depositId: 1n, amount: 3n },
      { share: 1, depositId: 1n, amount: 2n },
      { share: 1, depositId: 2n, amount: 2n },
      { share: 2, depositId: 2n, amount: 3n },
    ])
  })
})

it("rechecks come after a minute, two, four, and at most a day", () => {
  expect([0, 1, 2, 20].map(recheckMs)).toEqual([60_000, 120_000, 240_000, 86_400_000])
})

it("a release says what moves, and ends in the payout's id", () => {
  const id = "01234567-89ab-4cde-8f01-23456789abcd"
  const owner = `0x${"11".repeat(20)}` as Address
  const deposit = { salt: `0x${"22".repeat(32)}` as Hex, owner, open_after_s: 7n }
  const data = releaseData(id, deposit, { token: owner, recipient: owner, amount: 5n })
  expect(payoutIdIn(data)).toBe(id)
  const { args } = decodeFunctionData({ abi: depositFactoryAbi, data: slice(data, 0, -16) })
  expect(args).toEqual([deposit.salt, owner, 7n, owner, owner, 5n])
})
