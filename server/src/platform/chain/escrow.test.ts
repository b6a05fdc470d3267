// The escrow's calls, hashes and events are those of the contracts on public networks: everything here is computed by hand, from
// signatures written out.
import { concat, encodeFunctionData, type Hex, keccak256, pad, toHex, zeroAddress } from "viem"
import { describe, expect, test } from "vitest"
import { authCaptureEscrowAbi, authCaptureEscrowV10Abi } from "./abi.ts"
import {
  authorizationNonce,
  authorizeCall,
  captureCall,
  ESCROW_TOPICS,
  getHashCall,
  PAYMENT_INFO_TYPEHASH,
  type PaymentInfo,
  paymentInfoHash,
  paymentStateCall,
  readEscrowEvents,
  readPaymentState,
  refundCall,
  tokenStoreCall,
  typedPayment,
  voidCall,
} from "./escrow.ts"
import type { Address, Hash } from "./hex.ts"

const chainId = 84532
const ZERO = zeroAddress as Address
const fresh = (n: number) => keccak256(toHex(n)).slice(0, 42) as Address

/** A value as the 32 bytes that the ABI makes of it. */
const word = (value: bigint | number | Hex): Hex =>
  pad(typeof value === "string" ? value : toHex(value), { size: 32 }).toLowerCase() as Hex
const hashed = (text: string) => keccak256(toHex(text))

describe("names, hashes and bytes, by hand", () => {
  const TUPLE = "(address,address,address,address,uint120,uint48,uint48,uint48,uint16,uint16,address,uint256)"
  const info: PaymentInfo = {
    operator: fresh(11),
    payer: fresh(12),
    receiver: fresh(13),
    token: fresh(14),
    maxAmount: 2n ** 120n - 1n,
    preApprovalExpiry: 2 ** 48 - 3,
    authorizationExpiry: 2 ** 48 - 2,
    refundExpiry: 2 ** 48 - 1,
    minFeeBps: 1,
    maxFeeBps: 65_535,
    feeReceiver: fresh(15),
    salt: 2n ** 256n - 1n,
  }
  const words = [
    info.operator,
    info.payer,
    info.receiver,
    info.token,
    info.maxAmount,
    info.preApprovalExpiry,
    info.authorizationExpiry,
    info.refundExpiry,
    info.minFeeBps,
    info.maxFeeBps,
    info.feeReceiver,
    info.salt,
  ].map(word)
  const selector = (name: string, rest: string) => hashed(`${name}(${TUPLE}${rest})`).slice(0, 10) as Hex

  test("calls", () => {
    const signature = `0x${"5a".repeat(65)}` as const
    const bytes = concat([word(65), signature, `0x${"00".repeat(31)}`])
    expect(authorizeCall(info, 7n, fresh(16), signature)).toBe(
      concat([
        selector("authorize", ",uint256,address,bytes"),
        ...words,
        word(7n),
        word(fresh(16)),
        word(15 * 32),
        bytes,
      ]),
    )
    const none = [word(0), word(0)]
    expect(captureCall("v1.1", info, 7n)).toBe(
      concat([selector("capture", ",uint256,uint256,address"), ...words, word(7n), ...none]),
    )
    expect(captureCall("v1.0", info, 7n)).toBe(
      concat([selector("capture", ",uint256,uint16,address"), ...words, word(7n), ...none]),
    )
    expect(voidCall(info)).toBe(concat([selector("void", ""), ...words]))
    expect(refundCall(info, 7n, fresh(17))).toBe(
      concat([
        selector("refund", ",uint256,address,bytes"),
        ...words,
        word(7n),
        word(fresh(17)),
        word(15 * 32),
        word(0),
      ]),
    )
    const charge = (abi: typeof authCaptureEscrowAbi | typeof authCaptureEscrowV10Abi) =>
      encodeFunctionData({ abi, functionName: "charge", args: [info, 7n, fresh(16), "0x", 0 as never, ZERO] })
    expect(charge(authCaptureEscrowAbi).slice(0, 10)).toBe(selector("charge", ",uint256,address,bytes,uint256,address"))
    expect(charge(authCaptureEscrowV10Abi).slice(0, 10)).toBe(
      selector("charge", ",uint256,address,bytes,uint16,address"),
    )
  })

  test("the hash of a payment, and the nonce that is signed", () => {
    const type = hashed(
      "PaymentInfo(address operator,address payer,address receiver,address token,uint120 maxAmount,uint48 preApprovalExpiry,uint48 authorizationExpiry,uint48 refundExpiry,uint16 minFeeBps,uint16 maxFeeBps,address feeReceiver,uint256 salt)",
    )
    expect(PAYMENT_INFO_TYPEHASH).toBe(type)
    const over = (escrow: Hex, all: Hex[]) =>
      keccak256(concat([word(chainId), word(escrow), keccak256(concat([type, ...all]))]))
    const escrow = { address: fresh(30), collector: fresh(31) }
    const nonce = over(
      escrow.address,
      words.map((each, i) => (i === 1 ? word(0) : each)),
    )
    expect(paymentInfoHash(info, chainId, escrow.address)).toBe(over(escrow.address, words))
    expect(getHashCall(info)).toBe(concat([selector("getHash", ""), ...words]))
    expect(authorizationNonce(info, chainId, escrow.address)).toBe(nonce)
    const token = { address: info.token, symbol: "USDC", decimals: 6, name: "USD Coin", version: "2" }
    expect(typedPayment({ token, chainId }, escrow, info)).toMatchObject({
      domain: { name: "USD Coin", version: "2", chainId, verifyingContract: info.token },
      primaryType: "ReceiveWithAuthorization",
      message: {
        from: info.payer,
        to: escrow.collector,
        value: info.maxAmount,
        validAfter: 0n,
        validBefore: BigInt(info.preApprovalExpiry),
        nonce,
      },
    })
  })

  test("events, in both versions", () => {
    const topics = {
      authorized: hashed(`PaymentAuthorized(bytes32,${TUPLE},uint256,address)`),
      // Both as the contracts' own documents give them.
      charged: "0x137b0e73e4453f43c2e1ad2552980a0e0c7e988764619974ca26d37a7159940c",
      chargedV10: "0x943ae4341dd799d7aeedc501f616cd26b134639e0bc2ec059581ba3ebbf1e7d0",
      captured: "0xac1e0db1957daedbc6944bcb4c8dc947ff8101d710671ac2ec26309f7f38d58e",
      capturedV10: "0xe749f7bbd01b49bb05abf26ca492cb4dfdea6bedeada8a40fdccd478c73a74e2",
      voided: hashed("PaymentVoided(bytes32,uint256)"),
      reclaimed: hashed("PaymentReclaimed(bytes32,uint256)"),
      refunded: hashed("PaymentRefunded(bytes32,uint256,address)"),
    }
    expect(topics.charged).toBe(hashed(`PaymentCharged(bytes32,${TUPLE},uint256,address,uint256,address)`))
    expect(topics.chargedV10).toBe(hashed(`PaymentCharged(bytes32,${TUPLE},uint256,address,uint16,address)`))
    expect(topics.captured).toBe(hashed("PaymentCaptured(bytes32,uint256,uint256,address)"))
    expect(topics.capturedV10).toBe(hashed("PaymentCaptured(bytes32,uint256,uint16,address)"))
    expect([...ESCROW_TOPICS].sort()).toEqual(Object.values(topics).sort())
    const escrow = fresh(20)
    const authId = hashed("id") as Hash
    const log = (topic: string, data: Hex, more = {}) => ({
      address: escrow,
      topics: [topic, authId],
      data,
      blockNumber: "0x1",
      logIndex: "0x0",
      removed: false,
      ...more,
    })
    const collector = fresh(21)
    const base = { escrow, authId, amount: 999n }
    const paid = [...words, word(999n), word(collector)]
    const fee = { amount: 24n, receiver: fresh(22) }
    const cases: [string, Hex[], object][] = [
      [topics.authorized, paid, { kind: "authorized", info, collector }],
      [topics.charged, [...paid, word(24n), word(fresh(22))], { kind: "charged", info, collector, fee }],
      [topics.chargedV10, [...paid, word(250), word(fresh(22))], { kind: "charged", info, collector, fee }],
      [topics.captured, [word(999n), word(24n), word(fresh(22))], { kind: "captured", fee }],
      [topics.capturedV10, [word(999n), word(250), word(fresh(22))], { kind: "captured", fee }],
      [topics.voided, [word(999n)], { kind: "voided" }],
      [topics.reclaimed, [word(999n)], { kind: "reclaimed" }],
      [topics.refunded, [word(999n), word(collector)], { kind: "refunded", collector }],
    ]
    for (const [topic, data, expected] of cases) {
      expect(readEscrowEvents([log(topic, concat(data))])).toEqual([{ ...base, ...expected }])
      const short = concat(data.slice(1))
      expect(readEscrowEvents([log(topic, short), log(topic, concat(data), { removed: true }), null])).toEqual([])
    }
    expect(readEscrowEvents([log(hashed("Transfer(address,address,uint256)"), word(1))])).toEqual([])
  })

  test("the state of a payment", () => {
    expect(paymentStateCall(word(5) as Hash)).toBe(
      concat([hashed("paymentState(bytes32)").slice(0, 10) as Hex, word(5)]),
    )
    expect(readPaymentState(concat([word(1), word(7), word(8)]))).toEqual({
      hasCollectedPayment: true,
      capturableAmount: 7n,
      refundableAmount: 8n,
    })
    expect(() => readPaymentState("0x")).toThrow()
    expect(tokenStoreCall(fresh(1))).toBe(
      concat([hashed("getTokenStore(address)").slice(0, 10) as Hex, word(fresh(1))]),
    )
  })
})
