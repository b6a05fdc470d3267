// The escrow call by call, in both versions: what each call does, every refusal by its name, every expiry at its second, what
// no token, collector or stranger gets away with. Names, hashes and bytes by hand: server/src/platform/chain/escrow.test.ts.

import { readFileSync } from "node:fs"
import { encodeAbiParameters, encodeFunctionData, type Hex, keccak256, toHex, zeroAddress } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import {
  authCaptureEscrowAbi,
  authCaptureEscrowBytecode,
  authCaptureEscrowV10Abi,
  authCaptureEscrowV10Bytecode,
  erc3009CollectorAbi,
  erc3009CollectorBytecode,
  oddCollectorAbi,
  oddCollectorBytecode,
  oddPaymentTokenAbi,
  oddPaymentTokenBytecode,
  refundCollectorAbi,
  refundCollectorBytecode,
  testUsdcAbi,
  tokenStoreAbi,
} from "../server/src/platform/chain/abi.ts"
import { newEndpoint } from "../server/src/platform/chain/endpoints.ts"
import {
  authorizeCall,
  captureCall,
  PAYMENT_INFO_TYPEHASH,
  type PaymentInfo,
  paymentInfoHash,
  paymentStateCall,
  readEscrowEvents,
  readPaymentState,
  readTokenStore,
  refundCall,
  tokenStoreCall,
  typedPayment,
  voidCall,
} from "../server/src/platform/chain/escrow.ts"
import type { EscrowDeployment, EscrowVersion } from "../server/src/platform/chain/escrow-deployments.ts"
import { findEscrow } from "../server/src/platform/chain/find-escrow.ts"
import { type Address, checksummed } from "../server/src/platform/chain/hex.ts"
import { refundCollectorDeployment } from "../server/src/platform/chain/refund-collector.ts"
import { withRevertName } from "../server/src/platform/chain/revert-name.ts"
import { type Anvil, deploy, deployContractWallet, deployTestUsdc, startAnvil } from "../server/test/anvil.ts"

const chainId = 84532
const ZERO = zeroAddress as Address
const DAY_S = 86_400
const low = (text: string) => text.toLowerCase() as Address
const fresh = (n: number) => low(keccak256(toHex(n)).slice(0, 42))

/** An escrow with the contracts around it. */
interface Rig extends EscrowDeployment {
  refundCollector: Address
}

let anvil: Anvil
let client: Anvil["client"]
let usdc: Address
let operator: PrivateKeyAccount
let payer: PrivateKeyAccount
let merchant: PrivateKeyAccount
let stranger: PrivateKeyAccount
let rigs: Record<EscrowVersion, Rig>

beforeAll(async () => {
  anvil = await startAnvil({ chainId })
  client = anvil.client
  ;[, operator, payer, merchant, stranger] = anvil.accounts
  usdc = await deployTestUsdc(client)
  rigs = { "v1.1": await rigOf("v1.1"), "v1.0": await rigOf("v1.0") }
  await mint(payer.address, 10n ** 12n)
})
afterAll(() => anvil.stop())

async function rigOf(version: EscrowVersion): Promise<Rig> {
  const address =
    version === "v1.1"
      ? await deploy(client, authCaptureEscrowAbi, authCaptureEscrowBytecode)
      : await deploy(client, authCaptureEscrowV10Abi, authCaptureEscrowV10Bytecode)
  const refunds = refundCollectorDeployment({ escrow: address, operator: operator.address })
  await client.sendTransactionSync(refunds)
  return {
    version,
    address,
    collector: await deploy(client, erc3009CollectorAbi, erc3009CollectorBytecode, [address]),
    refundCollector: refunds.address,
  }
}

const now = async () => Number((await client.getBlock()).timestamp)
const token = () => ({ address: usdc, abi: testUsdcAbi }) as const
const mint = (to: Hex, amount: bigint) =>
  client.writeContractSync({ ...token(), functionName: "mint", args: [to, amount] })
const balance = (account: Hex, at: Address = usdc) =>
  client.readContract({ address: at, abi: testUsdcAbi, functionName: "balanceOf", args: [account] })
const approve = (owner: PrivateKeyAccount, spender: Address, amount: bigint) =>
  client.writeContractSync({ ...token(), functionName: "approve", args: [spender, amount], account: owner })

let salts = 0n
/** 1,000 units at most from the payer to the merchant, without a fee; a day for each step. */
async function terms(of: Partial<PaymentInfo> = {}): Promise<PaymentInfo> {
  const time = await now()
  return {
    operator: low(operator.address),
    payer: low(payer.address),
    receiver: low(merchant.address),
    token: usdc,
    maxAmount: 1_000n,
    preApprovalExpiry: time + DAY_S,
    authorizationExpiry: time + 2 * DAY_S,
    refundExpiry: time + 3 * DAY_S,
    minFeeBps: 0,
    maxFeeBps: 0,
    feeReceiver: ZERO,
    salt: ++salts,
    ...of,
  }
}

const usdcTerms = { symbol: "USDC", decimals: 6, name: "USDC", version: "2" }
const signed = (rig: Rig, info: PaymentInfo, signer = payer): Promise<Hex> =>
  signer.signTypedData(typedPayment({ token: { address: usdc, ...usdcTerms }, chainId }, rig, info))

/** A call, to be tried at a second (Unix) or to be mined. */
interface Asked {
  to: Address
  data: Hex
  by: PrivateKeyAccount
}
const ask = (to: Address, data: Hex, by: PrivateKeyAccount = operator): Asked => ({ to, data, by })

/** The name of the refusal with its arguments; undefined: it would succeed. */
async function refusal({ to, data, by }: Asked, time?: number): Promise<string | undefined> {
  const overrides = time === undefined ? {} : { blockOverrides: { time: BigInt(time) } }
  try {
    await client.call({ account: by.address, to, data, ...overrides })
    return undefined
  } catch (error) {
    let text = ""
    for (let each = error as { cause?: unknown; data?: unknown; message?: string } | undefined; each; ) {
      const name = typeof each.data === "string" ? withRevertName("", each.data).slice(0, -": ".length) : ""
      if (name !== "") return name
      text = String(each.message)
      each = each.cause as typeof each
    }
    return text
  }
}

const send = ({ to, data, by }: Asked) => client.sendTransactionSync({ account: by, to, data })

const authorize = async (rig: Rig, info: PaymentInfo, amount: bigint, signer = payer) =>
  ask(rig.address, authorizeCall(info, amount, rig.collector, await signed(rig, info, signer)))
const capture = (rig: Rig, info: PaymentInfo, amount: bigint, fee = 0n, feeReceiver: Address = ZERO) =>
  ask(
    rig.address,
    rig.version === "v1.1"
      ? encodeFunctionData({
          abi: authCaptureEscrowAbi,
          functionName: "capture",
          args: [info, amount, fee, feeReceiver],
        })
      : encodeFunctionData({
          abi: authCaptureEscrowV10Abi,
          functionName: "capture",
          args: [info, amount, Number(fee), feeReceiver],
        }),
  )
async function charge(rig: Rig, info: PaymentInfo, amount: bigint, fee = 0n, feeReceiver: Address = ZERO) {
  const data = await signed(rig, info)
  const functionName = "charge"
  return ask(
    rig.address,
    rig.version === "v1.1"
      ? encodeFunctionData({
          abi: authCaptureEscrowAbi,
          functionName,
          args: [info, amount, rig.collector, data, fee, feeReceiver],
        })
      : encodeFunctionData({
          abi: authCaptureEscrowV10Abi,
          functionName,
          args: [info, amount, rig.collector, data, Number(fee), feeReceiver],
        }),
  )
}
const reclaim = (rig: Rig, info: PaymentInfo, by = payer) =>
  ask(rig.address, encodeFunctionData({ abi: authCaptureEscrowAbi, functionName: "reclaim", args: [info] }), by)
const voided = (rig: Rig, info: PaymentInfo) => ask(rig.address, voidCall(info))
const refund = (rig: Rig, info: PaymentInfo, amount: bigint, collector = rig.refundCollector) =>
  ask(rig.address, refundCall(info, amount, collector))

const idOf = (rig: Rig, info: PaymentInfo) => paymentInfoHash(info, chainId, rig.address)
async function stateOf(rig: Rig, info: PaymentInfo) {
  const { data } = await client.call({ to: rig.address, data: paymentStateCall(idOf(rig, info)) })
  return readPaymentState(data ?? "0x")
}
const state = (capturableAmount: bigint, refundableAmount: bigint) => ({
  hasCollectedPayment: true,
  capturableAmount,
  refundableAmount,
})
const storeOf = async (rig: Rig, by: Address = low(operator.address)) =>
  readTokenStore((await client.call({ to: rig.address, data: tokenStoreCall(by) })).data ?? "0x")

/** A payment of which `amount` is held. */
async function held(rig: Rig, amount: bigint, of: Partial<PaymentInfo> = {}): Promise<PaymentInfo> {
  const info = await terms(of)
  await send(await authorize(rig, info, amount))
  return info
}

const each = describe.each<EscrowVersion>(["v1.1", "v1.0"])

each("an escrow of %s", version => {
  let rig: Rig
  beforeAll(() => {
    rig = rigs[version]
  })

  test("holds what is authorized, pays it out in parts, returns the rest and refunds, and says so in events", async () => {
    const before = await balance(payer.address)
    const shopBefore = await balance(merchant.address)
    const info = await terms()
    const paid = await send(await authorize(rig, info, 900n))
    const store = await storeOf(rig)
    expect(await stateOf(rig, info)).toEqual(state(900n, 0n))
    // What was signed for and is not needed goes back at once.
    expect([before - (await balance(payer.address)), await balance(store)]).toEqual([900n, 900n])
    const first = await send(ask(rig.address, captureCall(version, info, 300n)))
    const second = await send(ask(rig.address, captureCall(version, info, 200n)))
    expect(await stateOf(rig, info)).toEqual(state(400n, 500n))
    const rest = await send(voided(rig, info))
    expect(await stateOf(rig, info)).toEqual(state(0n, 500n))
    await approve(merchant, rig.refundCollector, 120n)
    const back = await send(refund(rig, info, 120n))
    expect(await stateOf(rig, info)).toEqual(state(0n, 380n))
    expect([before - (await balance(payer.address)), (await balance(merchant.address)) - shopBefore]).toEqual([
      380n,
      380n,
    ])
    expect(await balance(store)).toBe(0n)
    const base = { escrow: rig.address, authId: idOf(rig, info) }
    const fee = { amount: 0n, receiver: ZERO }
    expect(readEscrowEvents([paid, first, second, rest, back].flatMap(({ logs }) => logs))).toEqual([
      { ...base, kind: "authorized", amount: 900n, info, collector: rig.collector },
      { ...base, kind: "captured", amount: 300n, fee },
      { ...base, kind: "captured", amount: 200n, fee },
      { ...base, kind: "voided", amount: 400n },
      { ...base, kind: "refunded", amount: 120n, collector: rig.refundCollector },
    ])
  })

  test("charges at once, and gives back to a payer who reclaims", async () => {
    const shopBefore = await balance(merchant.address)
    const info = await terms({ minFeeBps: 100, maxFeeBps: 500 })
    // 2.5 % of 199 is 4.975.
    const fee = version === "v1.1" ? 4n : 250n
    const { logs } = await send(await charge(rig, info, 199n, fee, fresh(1)))
    expect(readEscrowEvents(logs)).toEqual([
      {
        escrow: rig.address,
        authId: idOf(rig, info),
        kind: "charged",
        amount: 199n,
        info,
        collector: rig.collector,
        fee: { amount: 4n, receiver: fresh(1) },
      },
    ])
    expect(await stateOf(rig, info)).toEqual(state(0n, 199n))
    expect((await balance(merchant.address)) - shopBefore).toBe(195n)
    const open = await held(rig, 10n)
    const before = await balance(payer.address)
    await client.setNextBlockTimestamp({ timestamp: BigInt(open.authorizationExpiry) })
    const { logs: logged } = await send(reclaim(rig, open))
    expect(readEscrowEvents(logged)).toEqual([
      { escrow: rig.address, authId: idOf(rig, open), kind: "reclaimed", amount: 10n },
    ])
    expect((await balance(payer.address)) - before).toBe(10n)
    expect(await stateOf(rig, open)).toEqual(state(0n, 0n))
  })

  test("ends every permission at its second", async () => {
    const info = await terms({ preApprovalExpiry: (await now()) + 10_000, authorizationExpiry: (await now()) + 20_000 })
    const { preApprovalExpiry: first, authorizationExpiry: second, refundExpiry: third } = info
    for (const pay of [await authorize(rig, info, 5n), await charge(rig, info, 5n)]) {
      expect(await refusal(pay, first - 1)).toBeUndefined()
      expect(await refusal(pay, first)).toBe(`AfterPreApprovalExpiry(${first}, ${first})`)
    }
    await send(await authorize(rig, info, 5n))
    expect(await refusal(capture(rig, info, 5n), second - 1)).toBeUndefined()
    expect(await refusal(capture(rig, info, 5n), second)).toBe(`AfterAuthorizationExpiry(${second}, ${second})`)
    expect(await refusal(reclaim(rig, info), second - 1)).toBe(`BeforeAuthorizationExpiry(${second - 1}, ${second})`)
    expect(await refusal(reclaim(rig, info), second)).toBeUndefined()
    // The operator may return it at any time.
    expect(await refusal(voided(rig, info), third + 1)).toBeUndefined()
    await send(capture(rig, info, 5n))
    await approve(merchant, rig.refundCollector, 5n)
    expect(await refusal(refund(rig, info, 5n), third - 1)).toBeUndefined()
    expect(await refusal(refund(rig, info, 5n), third)).toBe(`AfterRefundExpiry(${third}, ${third})`)
  })

  test("accepts expiries that are equal, and none in another order", async () => {
    const time = (await now()) + 1_000
    const at = (preApprovalExpiry: number, authorizationExpiry: number, refundExpiry: number) =>
      terms({ preApprovalExpiry, authorizationExpiry, refundExpiry })
    expect(await refusal(await authorize(rig, await at(time, time, time), 1n))).toBeUndefined()
    for (const order of [
      [time, time - 1, time],
      [time, time, time - 1],
    ] as const) {
      const wrong = `InvalidExpiries(${order.join(", ")})`
      expect(await refusal(await authorize(rig, await at(...order), 1n))).toBe(wrong)
      expect(await refusal(await charge(rig, await at(...order), 1n))).toBe(wrong)
    }
  })

  test("is paid once for the same terms, whatever became of it", async () => {
    const info = await held(rig, 5n)
    const again = await authorize(rig, info, 1n)
    const charged = await charge(rig, info, 1n)
    const used = `PaymentAlreadyCollected(${idOf(rig, info)})`
    expect([await refusal(again), await refusal(charged)]).toEqual([used, used])
    await send(voided(rig, info))
    expect([await refusal(again), await refusal(charged)]).toEqual([used, used])
    expect(await refusal(voided(rig, info))).toBe(`ZeroAuthorization(${idOf(rig, info)})`)
    expect(await refusal(reclaim(rig, info), info.authorizationExpiry)).toBe(`ZeroAuthorization(${idOf(rig, info)})`)
    const sold = await terms()
    await send(await charge(rig, sold, 5n))
    expect(await refusal(await authorize(rig, sold, 5n))).toBe(`PaymentAlreadyCollected(${idOf(rig, sold)})`)
  })

  test("obeys the operator alone, and for reclaims the payer", async () => {
    const info = await held(rig, 5n)
    const next = await terms()
    const [them, us, buyer] = [stranger, operator, payer].map(({ address }) => address)
    for (const asked of [
      await authorize(rig, next, 1n),
      await charge(rig, next, 1n),
      capture(rig, info, 1n),
      voided(rig, info),
      refund(rig, info, 1n),
    ]) {
      expect(await refusal({ ...asked, by: stranger })).toBe(`InvalidSender(${them}, ${us})`)
      expect(await refusal({ ...asked, by: payer })).toBe(`InvalidSender(${buyer}, ${us})`)
    }
    expect(await refusal(reclaim(rig, info, operator), info.authorizationExpiry)).toBe(`InvalidSender(${us}, ${buyer})`)
    // Other terms are another payment, of which nothing is held.
    const forged = { ...info, receiver: low(stranger.address) }
    expect(await refusal(capture(rig, forged, 1n))).toBe(`InsufficientAuthorization(${idOf(rig, forged)}, 0, 1)`)
  })

  test("moves no more than was signed, authorized or captured, and never nothing", async () => {
    const info = await held(rig, 5n)
    const next = await terms()
    const limit = 2n ** 120n - 1n
    for (const amount of [0n, limit + 1n]) {
      const words = amount === 0n ? "ZeroAmount()" : `AmountOverflow(${amount}, ${limit})`
      for (const asked of [
        await authorize(rig, next, amount),
        await charge(rig, next, amount),
        capture(rig, info, amount),
        refund(rig, info, amount),
      ])
        expect(await refusal(asked)).toBe(words)
    }
    for (const pay of [authorize, charge]) {
      expect(await refusal(await pay(rig, next, 1_000n))).toBeUndefined()
      expect(await refusal(await pay(rig, next, 1_001n))).toBe("ExceedsMaxAmount(1001, 1000)")
    }
    expect(await refusal(capture(rig, info, 6n))).toBe(`InsufficientAuthorization(${idOf(rig, info)}, 5, 6)`)
    await send(capture(rig, info, 2n))
    expect(await refusal(capture(rig, info, 4n))).toBe(`InsufficientAuthorization(${idOf(rig, info)}, 3, 4)`)
    await approve(merchant, rig.refundCollector, 10n)
    expect(await refusal(refund(rig, info, 3n))).toBe("RefundExceedsCapture(3, 2)")
    expect(await refusal(refund(rig, info, 2n))).toBeUndefined()
  })

  test("takes fees within the bounds that the payer signed, for the receiver that he signed", async () => {
    const amount = 1_000n
    const bounds = { minFeeBps: 100, maxFeeBps: 500 }
    /** In the version's unit. */
    const fee = (bps: bigint) => (version === "v1.1" ? (amount * bps) / 10_000n : bps)
    const out = (given: bigint) =>
      version === "v1.1" ? `FeeAmountOutOfRange(${given}, 10, 50)` : `FeeBpsOutOfRange(${given}, 100, 500)`
    const info = await held(rig, amount, bounds)
    const fixed = await held(rig, amount, { ...bounds, minFeeBps: 0, feeReceiver: fresh(2) })
    const next = await terms(bounds)
    const step = version === "v1.1" ? 1n : 10n
    for (const given of [fee(100n) - step, fee(500n) + step]) {
      expect(await refusal(capture(rig, info, amount, given, fresh(3)))).toBe(out(given))
      expect(await refusal(await charge(rig, next, amount, given, fresh(3)))).toBe(out(given))
    }
    for (const given of [fee(100n), fee(500n)]) {
      expect(await refusal(capture(rig, info, amount, given, fresh(3)))).toBeUndefined()
      expect(await refusal(await charge(rig, next, amount, given, fresh(3)))).toBeUndefined()
      expect(await refusal(capture(rig, info, amount, given, ZERO))).toBe("ZeroFeeReceiver()")
    }
    const other = `InvalidFeeReceiver(${checksummed(fresh(3))}, ${checksummed(fresh(2))})`
    expect(await refusal(capture(rig, fixed, amount, fee(500n), fresh(3)))).toBe(other)
    expect(await refusal(capture(rig, fixed, amount, 0n, fresh(3)))).toBe(other)
    const before = await balance(fresh(2))
    await send(capture(rig, fixed, amount, fee(500n), fresh(2)))
    expect((await balance(fresh(2))) - before).toBe(50n)
    const wide = await terms({ maxFeeBps: 10_001 })
    expect(await refusal(await authorize(rig, wide, 1n))).toBe("FeeBpsOverflow(10001)")
    const odd = await terms({ minFeeBps: 3, maxFeeBps: 2 })
    expect(await refusal(await authorize(rig, odd, 1n))).toBe("InvalidFeeBpsRange(3, 2)")
    // All of it may be the fee; then the receiver gets nothing, and no transfer of zero is made.
    const whole = await held(rig, amount, { maxFeeBps: 10_000, receiver: ZERO })
    const none = await balance(fresh(4))
    await send(capture(rig, whole, amount, fee(10_000n), fresh(4)))
    expect((await balance(fresh(4))) - none).toBe(amount)
  })

  test("takes the signature of a contract wallet, and of nobody else than the payer", async () => {
    const wallet = await deployContractWallet(client, stranger.address)
    await mint(wallet, 50n)
    const info = await terms({ payer: wallet, maxAmount: 50n })
    expect(await refusal(await authorize(rig, info, 20n, payer))).toMatch(/invalid signature/)
    await send(await authorize(rig, info, 20n, stranger))
    expect(await balance(wallet)).toBe(30n)
    const own = await terms()
    expect(await refusal(await authorize(rig, own, 20n, stranger))).toMatch(/invalid signature/)
    // He signed other terms.
    const data = await signed(rig, own)
    const raised = { ...own, receiver: low(stranger.address) }
    expect(await refusal(ask(rig.address, authorizeCall(raised, 20n, rig.collector, data)))).toMatch(/invalid sign/)
  })

  test("believes no collector: neither its kind nor what it delivers, nor one that calls back", async () => {
    const info = await held(rig, 5n)
    await send(capture(rig, info, 5n))
    await approve(merchant, rig.refundCollector, 1_000n)
    // The merchant's allowance never pays for a purchase.
    const purchase = await terms({ receiver: low(merchant.address), payer: low(stranger.address) })
    const wrong = "InvalidCollectorForOperation()"
    expect(await refusal(ask(rig.address, authorizeCall(purchase, 5n, rig.refundCollector, "0x")))).toBe(wrong)
    expect(await refusal(refund(rig, info, 5n, rig.collector))).toBe(wrong)
    const odd = await deploy(client, oddCollectorAbi, oddCollectorBytecode, [0])
    await mint(odd, 1_000n)
    const store = await storeOf(rig)
    const delivers = (amount: bigint) =>
      encodeAbiParameters(
        [{ type: "address" }, { type: "bytes" }],
        [usdc, encodeFunctionData({ abi: testUsdcAbi, functionName: "transfer", args: [store, amount] })],
      )
    for (const amount of [0n, 9n, 11n])
      expect(await refusal(ask(rig.address, authorizeCall(await terms(), 10n, odd, delivers(amount))))).toBe(
        "TokenCollectionFailed()",
      )
    expect(await refusal(ask(rig.address, authorizeCall(await terms(), 10n, odd, delivers(10n))))).toBeUndefined()
  })

  test("a collector that pays another payment in the middle of its own has not paid its own", async () => {
    // It is the operator too, else the escrow would not hear it.
    const odd = await deploy(client, oddCollectorAbi, oddCollectorBytecode, [0])
    const mine = { operator: odd, receiver: odd }
    const outer = await terms(mine)
    const inner = await terms(mine)
    const nested = authorizeCall(inner, 100n, rig.collector, await signed(rig, inner))
    const inside = encodeAbiParameters([{ type: "address" }, { type: "bytes" }], [rig.address, nested])
    const act = (data: Hex) =>
      ask(odd, encodeFunctionData({ abi: oddCollectorAbi, functionName: "act", args: [rig.address, data] }))
    // By itself the inner one is paid.
    expect(await refusal(act(nested))).toBeUndefined()
    expect(await refusal(act(authorizeCall(outer, 100n, odd, inside)))).toBe("TokenCollectionFailed()")
  })

  test("a token that keeps a part of a transfer is refused, and one that calls back gains nothing", async () => {
    const odd = await deploy(client, oddPaymentTokenAbi, oddPaymentTokenBytecode)
    const at = { address: odd, abi: oddPaymentTokenAbi } as const
    await client.writeContractSync({ ...at, functionName: "mint", args: [payer.address, 10_000n] })
    await client.writeContractSync({ ...at, functionName: "tax", args: [true] })
    const pay = (info: PaymentInfo, amount: bigint) => authorizeCall(info, amount, rig.collector, "0x")
    // The collector could make up for what is missing, but does not know that it is.
    await client.writeContractSync({ ...at, functionName: "mint", args: [rig.collector, 1_000n] })
    const taxed = await terms({ token: odd })
    expect(await refusal(ask(rig.address, pay(taxed, 100n)))).toBe("TokenCollectionFailed()")
    await client.writeContractSync({ ...at, functionName: "tax", args: [false] })
    // The token is the operator, so that the escrow hears what it says in the middle of a transfer.
    const info = await terms({ token: odd, operator: odd })
    const act = (data: Hex) =>
      ask(odd, encodeFunctionData({ abi: oddPaymentTokenAbi, functionName: "act", args: [rig.address, data] }))
    await send(act(pay(info, 100n)))
    const again = captureCall(version, info, 40n)
    await client.writeContractSync({ ...at, functionName: "interrupt", args: [rig.address, again] })
    await send(act(captureCall(version, info, 60n)))
    const answer = await client.readContract({ ...at, functionName: "answer" })
    expect(withRevertName("", answer)).toMatch(/^ReentrancyGuardReentrantCall\(\)/)
    expect(await stateOf(rig, info)).toEqual(state(40n, 60n))
    expect(await balance(await storeOf(rig, odd), odd)).toBe(40n)
  })

  test("computes the hashes that the service computes", async () => {
    const at = {
      address: rig.address,
      abi: version === "v1.1" ? authCaptureEscrowAbi : authCaptureEscrowV10Abi,
    } as const
    const info = await terms({
      maxAmount: 2n ** 120n - 1n,
      maxFeeBps: 65_535,
      feeReceiver: fresh(15),
      salt: 2n ** 256n - 1n,
    })
    expect(await client.readContract({ ...at, functionName: "getHash", args: [info] })).toBe(idOf(rig, info))
    expect(await client.readContract({ ...at, functionName: "PAYMENT_INFO_TYPEHASH" })).toBe(PAYMENT_INFO_TYPEHASH)
  })

  test("the collectors and the stores obey the escrow alone", async () => {
    const info = await terms()
    const args = [info, low(stranger.address), 1n, "0x"] as const
    for (const to of [rig.collector, rig.refundCollector]) {
      const data = encodeFunctionData({ abi: refundCollectorAbi, functionName: "collectTokens", args })
      for (const by of [operator, stranger, payer, merchant])
        expect(await refusal(ask(to, data, by))).toBe("OnlyAuthCaptureEscrow()")
    }
    await held(rig, 5n)
    const take = [usdc, stranger.address, 5n] as const
    const sends = encodeFunctionData({ abi: tokenStoreAbi, functionName: "sendTokens", args: take })
    expect(await refusal(ask(await storeOf(rig), sends))).toBe("OnlyAuthCaptureEscrow()")
  })
})

describe("the refund collector", () => {
  let rig: Rig
  beforeAll(async () => {
    rig = rigs["v1.1"]
    await approve(merchant, rig.refundCollector, 10n ** 9n)
  })

  test("a stranger's payment in the merchant's name, with a fee of 100 % to himself, does not drain the allowance", async () => {
    const thief = low(stranger.address)
    await mint(thief, 1_000n)
    const info = await terms({ operator: thief, payer: thief, minFeeBps: 10_000, maxFeeBps: 10_000 })
    const as = (asked: Asked): Asked => ({ ...asked, by: stranger })
    await send(as(await authorize(rig, info, 1_000n, stranger)))
    await send(as(capture(rig, info, 1_000n, 1_000n, thief)))
    // He has his money back, and the escrow would refund it once more, from the merchant.
    expect(await balance(thief)).toBe(1_000n)
    expect(await stateOf(rig, info)).toEqual(state(0n, 1_000n))
    const before = await balance(merchant.address)
    expect(await refusal(as(refund(rig, info, 1_000n)))).toBe(`OtherOperator(${stranger.address})`)
    // Without a fee neither.
    const plain = await terms({ operator: thief, payer: thief })
    await send(as(await authorize(rig, plain, 1_000n, stranger)))
    await send(as(capture(rig, plain, 1_000n)))
    expect(await refusal(as(refund(rig, plain, 1_000n)))).toBe(`OtherOperator(${stranger.address})`)
    // Our operator captured nothing of terms that name it.
    const forged = { ...plain, operator: low(operator.address) }
    expect(await refusal(as(refund(rig, forged, 1n)))).toBe(`InvalidSender(${stranger.address}, ${operator.address})`)
    expect(await refusal(refund(rig, forged, 1n))).toBe("RefundExceedsCapture(1, 0)")
    // The merchant has what was captured for him, and lost nothing.
    expect((await balance(merchant.address)) - before).toBe(1_000n)
  })

  test("refuses payments of its own operator that could have had a fee", async () => {
    const info = await held(rig, 100n, { maxFeeBps: 1 })
    await send(capture(rig, info, 100n))
    expect(await refusal(refund(rig, info, 100n))).toBe("FeesAllowed(1)")
  })

  test("serves one escrow, and pulls no other token and no more than the merchant allowed", async () => {
    const other = rigs["v1.0"]
    const info = await held(other, 100n)
    await send(capture(other, info, 100n))
    expect(await refusal(refund(other, info, 1n, rig.refundCollector))).toBe("OnlyAuthCaptureEscrow()")
    // A worthless token brings nothing but itself back.
    const odd = await deploy(client, oddPaymentTokenAbi, oddPaymentTokenBytecode)
    const at = { address: odd, abi: oddPaymentTokenAbi } as const
    await client.writeContractSync({ ...at, functionName: "mint", args: [payer.address, 1_000n] })
    const fake = await terms({ token: odd })
    await send(ask(rig.address, authorizeCall(fake, 1_000n, rig.collector, "0x")))
    await send(capture(rig, fake, 1_000n))
    const before = await balance(merchant.address)
    const funds = await balance(payer.address)
    expect(await refusal(refund(rig, fake, 1n))).toBeDefined()
    await client.writeContractSync({
      ...at,
      functionName: "approve",
      account: merchant,
      args: [rig.refundCollector, 5n],
    })
    // In the middle of the pull it asks for a refund of true money.
    const real = await held(rig, 50n)
    await send(capture(rig, real, 50n))
    const inner = refundCall(real, 50n, rig.refundCollector)
    await client.writeContractSync({ ...at, functionName: "interrupt", args: [rig.address, inner] })
    await send(refund(rig, fake, 5n))
    expect(withRevertName("", await client.readContract({ ...at, functionName: "answer" }))).toMatch(
      /^(ReentrancyGuardReentrantCall|InvalidSender)\(/,
    )
    expect([(await balance(merchant.address)) - before, await balance(payer.address)]).toEqual([50n, funds - 50n])
    await approve(merchant, rig.refundCollector, 49n)
    expect(await refusal(refund(rig, real, 50n))).toBeDefined()
    expect(await refusal(refund(rig, real, 49n))).toBeUndefined()
  })

  test("is not made without an escrow or an operator", async () => {
    for (const args of [
      [ZERO, operator.address],
      [rig.address, ZERO],
    ])
      await expect(deploy(client, refundCollectorAbi, refundCollectorBytecode, args)).rejects.toThrow(
        /custom error 0xd92e233d/,
      )
  })
})

describe("a start", () => {
  const served = (rig: Partial<EscrowDeployment>, urls = [anvil.rpcUrl]) => ({
    name: "base-sepolia" as const,
    chainId,
    endpoints: urls.map(url => newEndpoint("base-sepolia", url)),
    escrow: { ...rigs["v1.1"], ...rig },
  })
  const relayWallet = () => low(operator.address)

  test("finds the escrow of either version with its collectors, and none where there is none", async () => {
    for (const rig of Object.values(rigs))
      expect(await findEscrow(served(rig), { relayWallet: relayWallet() })).toEqual(rig)
    const bare = { ...rigs["v1.1"], refundCollector: undefined }
    expect(await findEscrow(served(bare))).toEqual(bare)
    expect(await findEscrow(served({ address: fresh(90) }))).toBeUndefined()
    expect(await findEscrow({ ...served({}), escrow: undefined })).toBeUndefined()
    const silent = served({}, ["http://127.0.0.1:1"])
    await expect(findEscrow(silent)).rejects.toThrow(/no endpoint returns the code of the escrow/)
  })

  test("refuses contracts that are not those that calls are encoded for", async () => {
    const { refundCollector } = rigs["v1.0"]
    for (const [of, words] of [
      [{ address: usdc }, /is not an escrow that this version knows .*; see ESCROW_BASE_SEPOLIA$/],
      [{ collector: fresh(91) }, /there is no collector at 0x/],
      [{ refundCollector }, /is not this version's refund collector .*; see REFUND_COLLECTOR_BASE_SEPOLIA$/],
      [{ refundCollector: fresh(92) }, /is not this version's refund collector/],
    ] as const)
      await expect(findEscrow(served(of), { relayWallet: relayWallet() })).rejects.toThrow(words)
    const other = { relayWallet: low(stranger.address) }
    await expect(findEscrow(served({}), other)).rejects.toThrow(/is not this version's refund collector/)
  })
})

const contractsPage = readFileSync(new URL("../docs/developers/contracts.md", import.meta.url), "utf8")

test("the gas is what the documents say", async () => {
  const rig = rigs["v1.1"]
  const gas = new Map<string, bigint>()
  const measure = async (what: string, asked: Asked) => {
    const { gasUsed, status } = await send(asked)
    expect(status, what).toBe("success")
    gas.set(what, gasUsed)
  }
  await approve(merchant, rig.refundCollector, 10n ** 9n)
  const newcomer = anvil.accounts[8]
  const shop = fresh(80)
  const first = await terms({ operator: low(newcomer.address), receiver: shop, maxAmount: 900n })
  await measure("first authorize of an operator", { ...(await authorize(rig, first, 900n)), by: newcomer })
  await send(await charge(rig, await terms(), 1_000n))
  const all = await terms({ receiver: low(merchant.address) })
  await measure("authorize, all that was signed", await authorize(rig, all, 1_000n))
  await measure("capture, a part", capture(rig, all, 400n))
  await measure("capture, the rest", capture(rig, all, 600n))
  await measure("refund", refund(rig, all, 100n))
  const some = await terms()
  await measure("authorize, a part of it", await authorize(rig, some, 900n))
  await measure("void", voided(rig, some))
  await measure("charge", await charge(rig, await terms(), 1_000n))
  const open = await held(rig, 10n)
  await client.setNextBlockTimestamp({ timestamp: BigInt(open.authorizationExpiry) })
  await measure("reclaim", reclaim(rig, open))
  const written = (what: string) => contractsPage.match(new RegExp(`^\\| ${what} \\| ([\\d,]+) \\|`, "m"))?.[1]
  const differs = [...gas].filter(([what, used]) => {
    // Bytes of signatures and hashes that are zero are a little cheaper.
    const off = BigInt(written(what)?.replaceAll(",", "") ?? 0) - used
    return off > 500n || off < -500n
  })
  expect(differs, "docs/developers/contracts.md must say what was measured").toEqual([])
})
