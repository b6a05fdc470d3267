// The pure rules of payouts: what answers mean, what fees become, what is drawn from where, what a release says.
import fc from "fast-check"
import { decodeFunctionData, type Hex, slice } from "viem"
import { describe, expect, it } from "vitest"
import { depositFactoryAbi } from "../../platform/chain/abi.ts"
import { firstFees, raisedFees } from "../../platform/chain/fees.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { approvalIn, giveBackCall, payoutIdIn, releaseData, returnNonce } from "../../platform/chain/release-call.ts"
import { drawShares } from "../payouts/draw-shares.ts"
import { classifyAnswer, summaryOf } from "./broadcast-results.ts"
import { recheckBeforeMs, recheckMs } from "./recheck.ts"

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

  it("draws all that is needed where it is there, nothing beyond what the deposit has, in order", () => {
    fc.assert(
      fc.property(amounts, fc.bigInt({ min: -10n, max: 4_000n }), (needed, available) => {
        const drawn = drawShares(needed, available)
        const need = sum(needed)
        const have = available > 0n ? available : 0n
        expect(sum(drawn)).toBe(need < have ? need : have)
        expect(drawn.every((amount, i) => amount >= 0n && amount <= (needed[i] ?? 0n))).toBe(true)
        const short = drawn.findIndex((amount, i) => amount < (needed[i] ?? 0n))
        if (short >= 0) expect(sum(drawn.slice(short + 1))).toBe(0n)
      }),
    )
  })
})

it("rechecks come after a minute, two, four, and at most a day", () => {
  expect([0, 1, 2, 20].map(recheckMs)).toEqual([60_000, 120_000, 240_000, 86_400_000])
  // A call with a deadline: at most five minutes, at most a quarter of what is left, at least a second.
  const left = [86_400_000, 600_000, 40_000, 0]
  expect(left.map(ms => recheckBeforeMs(20, ms))).toEqual([300_000, 150_000, 10_000, 1_000])
  expect(recheckBeforeMs(0, 86_400_000)).toBe(60_000)
})

describe("the calldata", () => {
  const id = "01234567-89ab-4cde-8f01-23456789abcd"
  const at = (byte: string) => `0x${byte.repeat(20)}` as Address
  const deposit = {
    salt: `0x${"22".repeat(32)}` as Hash,
    owner: at("11"),
    approver: at("12"),
    open_after_s: 7n,
    payees_hash: `0x${"23".repeat(32)}` as Hash,
  }
  const terms = { owner: at("11"), approver: at("12"), payeesHash: deposit.payees_hash, openAfter: 7n }
  const payees = [
    { address: at("31"), percentE4: 400_000 },
    { address: at("32"), percentE4: 600_000 },
  ]
  const decoded = (data: Hex) => decodeFunctionData({ abi: depositFactoryAbi, data: slice(data, 0, -16) })

  it("of a release says what moves, and the payees where it goes to one; it ends in the payout's id", () => {
    const toOwner = releaseData(id, deposit, payees, { token: at("41"), recipient: at("11"), amount: 5n })
    const toPayee = releaseData(id, deposit, payees, { token: at("41"), recipient: at("32"), amount: 5n })
    expect([payoutIdIn(toOwner), payoutIdIn(toPayee)]).toEqual([id, id])
    expect(decoded(toOwner).args).toEqual([deposit.salt, terms, [], [], at("41"), at("11"), 5n])
    const lists = [payees.map(each => each.address), [400_000n, 600_000n]]
    expect(decoded(toPayee).args).toEqual([deposit.salt, terms, ...lists, at("41"), at("32"), 5n])
  })

  it("of a return has the nonce of its money, whichever payout it is for, and another one once that has moved", () => {
    const nonces = [returnNonce("pay_1", 0), returnNonce("pay_1", 0), returnNonce("pay_1", 1), returnNonce("pay_2", 0)]
    expect(nonces.map(nonce => nonces.indexOf(nonce))).toEqual([0, 0, 2, 3])
    const message = { token: at("41"), to: at("51"), amount: 5n, nonce: returnNonce("pay_1", 0), deadline: 9n }
    const data = giveBackCall(id, deposit, message, "0x1234")
    expect(payoutIdIn(data)).toBe(id)
    expect(decoded(data).args).toEqual([deposit.salt, terms, at("41"), at("51"), 5n, message.nonce, 9n, "0x1234"])
    expect(approvalIn(data)).toEqual({ nonce: message.nonce, deadline: 9n, signature: "0x1234" })
    expect(approvalIn(releaseData(id, deposit, payees, { ...message, recipient: at("11") }))).toBeUndefined()
    expect(approvalIn("0x1234")).toBeUndefined()
  })
})
