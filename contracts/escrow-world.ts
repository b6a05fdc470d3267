/** A chain with an escrow and everyone who has a part in it; carries out runs there and in the model, and compares. */
import { inspect } from "node:util"
import {
  type Abi,
  encodeAbiParameters,
  encodeDeployData,
  encodeFunctionData,
  erc20Abi,
  type Hex,
  numberToHex,
  type RpcLog,
  toHex,
} from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import {
  authCaptureEscrowAbi,
  authCaptureEscrowV10Abi,
  erc3009CollectorAbi,
  oddCollectorAbi,
  oddCollectorBytecode,
  refundCollectorAbi,
  testUsdcAbi,
  tokenStoreAbi,
} from "../server/src/platform/chain/abi.ts"
import {
  authorizeCall,
  type PaymentInfo,
  paymentInfoHash,
  paymentStateCall,
  readEscrowEvents,
  readPaymentState,
  readTokenStore,
  tokenStoreCall,
  typedPayment,
  voidCall,
} from "../server/src/platform/chain/escrow.ts"
import type { EscrowVersion } from "../server/src/platform/chain/escrow-deployments.ts"
import { type Address, type Hash, ZERO_ADDRESS as ZERO } from "../server/src/platform/chain/hex.ts"
import { type Anvil, deploy, deployTestUsdc } from "../server/test/anvil.ts"
import { type Call, type State, succeeds, type Via, type World } from "./escrow-model.ts"
import { CALLERS, type Caller, type Run, type Step, type Terms, viaOf } from "./escrow-steps.ts"

const MAX = 1_000n
const GAS = numberToHex(3_000_000)
const PLENTY = 10n ** 30n
const lower = (address: string) => address.toLowerCase() as Address
/** A receiver of fees that the terms may name, and another one. */
const TAKER = `0x${"7a".repeat(20)}` as Address
const OTHER = `0x${"7b".repeat(20)}` as Address

/** The contracts did something else than the model says. */
export class Mismatch extends Error {}

/** The code of the three contracts. */
export interface Codes {
  version: EscrowVersion
  escrow: Hex
  payments: Hex
  refunds: Hex
}

/** What all escrows on one chain share. */
export interface Stage {
  anvil: Anvil
  usdc: Address
  accounts: Record<Caller | "merchant", Address>
  keys: Record<"payer" | "thief", PrivateKeyAccount>
  odd: World["odd"]
}

/** An escrow on the stage, and its collectors. */
export interface Scene {
  stage: Stage
  world: World
  escrow: Address
  collectors: Record<Via["by"], Address>
  stores: Map<Address, Address>
}

const rpc = (anvil: Anvil, method: string, ...params: unknown[]): Promise<unknown> =>
  anvil.client.request({ method, params } as unknown as Parameters<typeof anvil.client.request>[0])

/** Deploys what all share. From here on each block is one second after the last. */
export async function setStage(anvil: Anvil): Promise<Stage> {
  const { client } = anvil
  const [, operator, payer, thief, merchant] = anvil.accounts
  const usdc = await deployTestUsdc(client)
  const makeOdd = (kind: number) => deploy(client, oddCollectorAbi, oddCollectorBytecode, [kind])
  const odd = { oddPayments: await makeOdd(0), oddRefunds: await makeOdd(1) }
  for (const to of [payer.address, thief.address, merchant.address, ...Object.values(odd)])
    await client.writeContractSync({ address: usdc, abi: testUsdcAbi, functionName: "mint", args: [to, PLENTY] })
  await rpc(anvil, "anvil_setBlockTimestampInterval", 1)
  return {
    anvil,
    usdc,
    odd,
    keys: { payer, thief },
    accounts: {
      operator: lower(operator.address),
      payer: lower(payer.address),
      thief: lower(thief.address),
      odd: odd.oddPayments,
      merchant: lower(merchant.address),
    },
  }
}

/** Deploys an escrow and its collectors, and lets the merchant allow the refund collector everything. */
export async function setScene(stage: Stage, codes: Codes): Promise<Scene> {
  const { anvil, accounts } = stage
  const place = async (abi: Abi, bytecode: Hex, args: unknown[]) => {
    const data = encodeDeployData({ abi, bytecode, args })
    const receipt = await rpc(anvil, "eth_sendTransactionSync", { from: accounts.thief, data, gas: toHex(8_000_000) })
    return lower((receipt as { contractAddress: Hex }).contractAddress)
  }
  const escrow = await place(authCaptureEscrowAbi, codes.escrow, [])
  const collectors = {
    payments: await place(erc3009CollectorAbi, codes.payments, [escrow]),
    refunds: await place(refundCollectorAbi, codes.refunds, [escrow, accounts.operator]),
    ...stage.odd,
  }
  const approval = { abi: erc20Abi, functionName: "approve", args: [collectors.refunds, PLENTY] } as const
  await send(stage, accounts.merchant, stage.usdc, encodeFunctionData(approval))
  const stores = new Map<Address, Address>()
  for (const role of CALLERS) {
    const data = await read(stage, escrow, tokenStoreCall(accounts[role]))
    stores.set(accounts[role], readTokenStore(data))
  }
  if (new Set(stores.values()).size !== stores.size) throw new Mismatch("two operators have one store")
  const storeOf = (operator: Address) => stores.get(operator) ?? ZERO
  const { operator, merchant } = accounts
  const world = { version: codes.version, operator, merchant, odd: stage.odd, storeOf }
  return { stage, world, escrow, collectors, stores }
}

const read = async ({ anvil }: Stage, to: Address, data: Hex): Promise<Hex> =>
  (await rpc(anvil, "eth_call", { to, data }, "latest")) as Hex

interface Receipt {
  status: Hex
  logs: RpcLog[]
}

const send = async ({ anvil }: Stage, from: Address, to: Address, data: Hex): Promise<Receipt> =>
  (await rpc(anvil, "eth_sendTransactionSync", { from, to, data, gas: GAS })) as Receipt

/** One payment of a run. */
interface Payment {
  info: PaymentInfo
  /** Whose tokens it is paid with. */
  signature: Hex
}

/** A run under way. */
interface Play {
  scene: Scene
  state: State
  payments: Payment[]
  /** Of the latest block, in Unix seconds. */
  time: number
  logs: RpcLog[]
}

/**
 * Carries out a run of fresh payments. Throws a {@link Mismatch} where a call does not end as the model says, where money or a
 * payment's state is another at the end, or where the events do not add up to it.
 */
export async function carryOut(scene: Scene, run: Run): Promise<void> {
  const { stage } = scene
  const { timestamp } = await stage.anvil.client.getBlock()
  const state: State = { balances: await balances(scene), payments: new Map(), signed: new Set() }
  const play: Play = { scene, state, payments: [], time: Number(timestamp), logs: [] }
  for (const [i, terms] of run.terms.entries()) play.payments.push(await paymentOf(play, terms, i))
  for (const step of run.steps) await take(play, step)
  await compare(play)
}

async function paymentOf({ scene, time }: Play, terms: Terms, i: number): Promise<Payment> {
  const { stage, collectors, escrow } = scene
  const { operator, payer, merchant, thief, odd } = stage.accounts
  const start = time + 20 + 60 * i
  const changes: Record<Terms, Partial<PaymentInfo>> = {
    plain: {},
    withFees: { minFeeBps: 100, maxFeeBps: 500 },
    fixedReceiver: { maxFeeBps: 10_000, feeReceiver: TAKER },
    "thief's": { operator: thief, payer: thief, maxFeeBps: 10_000 },
    "odd's": { operator: odd },
    captureEndsFirst: { authorizationExpiry: start - 1 },
    refundEndsFirst: { refundExpiry: start + 19 },
    feeAbove: { maxFeeBps: 10_001 },
    feesCrossed: { minFeeBps: 2, maxFeeBps: 1 },
  }
  const info: PaymentInfo = {
    operator,
    payer,
    receiver: merchant,
    token: stage.usdc,
    maxAmount: MAX,
    preApprovalExpiry: start,
    authorizationExpiry: start + 20,
    refundExpiry: start + 40,
    minFeeBps: 0,
    maxFeeBps: 0,
    feeReceiver: ZERO,
    salt: BigInt(toHex(crypto.getRandomValues(new Uint8Array(32)))),
    ...changes[terms],
  }
  const token = { address: stage.usdc, symbol: "USDC", decimals: 6, name: "USDC", version: "2" }
  const at = { address: escrow, collector: collectors.payments }
  const key = info.payer === thief ? stage.keys.thief : stage.keys.payer
  return { info, signature: await key.signTypedData(typedPayment({ token, chainId: 84532 }, at, info)) }
}

const pick = <T>(list: readonly T[], i: number): T => list[i % list.length] as T

async function take(play: Play, step: Step): Promise<void> {
  const { scene, state } = play
  const { stage, world } = scene
  const { accounts } = stage
  const payment = pick(play.payments, step.of)
  const call = callOf(play, step, payment)
  const rightful = call.kind === "reclaim" ? call.info.payer : call.info.operator
  const sender = step.by === "whoever may" ? rightful : accounts[step.by]
  const wanted = step.at && payment.info[step.at.expiry] - step.at.minus
  const soon = wanted !== undefined && wanted > play.time && wanted < play.time + 60
  if (soon) await rpc(stage.anvil, "evm_setNextBlockTimestamp", toHex(wanted))
  play.time = soon ? wanted : play.time + 1
  const [to, data] = encode(play, call, payment)
  const acts = encodeFunctionData({ abi: oddCollectorAbi, functionName: "act", args: [to, data] })
  const { status, logs } =
    sender === accounts.odd
      ? await send(stage, accounts.thief, accounts.odd, acts)
      : await send(stage, sender, to, data)
  play.logs.push(...logs)
  const succeeded = status === "0x1"
  if (succeeds(world, state, sender, play.time, call) !== succeeded)
    throw new Mismatch(`${inspect(step)} at ${play.time} ${succeeded ? "succeeded" : "failed"}: ${inspect(call)}`)
}

function callOf({ scene, state, payments }: Play, step: Step, { info }: Payment): Call {
  const { kind } = step
  if (kind === "void" || kind === "reclaim") return { kind, info }
  const { capturable, refundable } = state.payments.get(info.salt) ?? { capturable: 0n, refundable: 0n }
  const most = kind === "capture" ? capturable : kind === "refund" ? refundable : info.maxAmount
  const amount = { all: most, more: most + 1n, part: most / 3n, none: 0n }[step.amount]
  if (kind === "direct") {
    // Where no code is yet, a call does nothing and does not fail.
    const isEmpty = (state.balances.get(scene.world.storeOf(info.operator)) ?? 0n) === 0n
    return { kind, of: step.direct === "store" && isEmpty ? "payments" : step.direct, info, amount: most / 3n }
  }
  if (kind === "nested") return { kind, info, inner: pick(payments, step.of + 1).info, amount: info.maxAmount }
  const via = viaOf(step)
  if (kind === "authorize" || kind === "refund") return { kind, info, amount, via }
  return { kind, info, amount, via, ...feeOf(scene, step, info, amount) }
}

/** The fee in the version's unit. */
function feeOf({ world }: Scene, step: Step, info: PaymentInfo, amount: bigint): { fee: bigint; feeReceiver: Address } {
  const part = (bps: number) => (world.version === "v1.0" ? BigInt(bps) : (amount * BigInt(bps)) / 10_000n)
  const least = part(info.minFeeBps)
  const most = part(info.maxFeeBps)
  const fee = { least, most, below: least > 0n ? least - 1n : most + 1n, above: most + 1n, none: 0n }[step.fee]
  if (step.feeTo === "zero") return { fee, feeReceiver: ZERO }
  return { fee, feeReceiver: step.feeTo === "other" || info.feeReceiver === ZERO ? OTHER : info.feeReceiver }
}

/** Where a call goes, and its bytes. */
function encode(play: Play, call: Call, { signature }: Payment): [Address, Hex] {
  const { escrow, collectors, world, stage } = play.scene
  const { info, kind } = call
  const abi = world.version === "v1.1" ? authCaptureEscrowAbi : authCaptureEscrowV10Abi
  const fee = (value: bigint) => (world.version === "v1.1" ? value : Number(value)) as never
  const pulled = (via: Via, amount: bigint): Hex => {
    if (!("delta" in via)) return via.by === "payments" ? signature : "0x"
    const delivered = amount + via.delta
    const args = [world.storeOf(info.operator), delivered < 0n ? 0n : delivered] as const
    return inside(stage.usdc, encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args }))
  }
  switch (kind) {
    case "authorize":
      return [escrow, authorizeCall(info, call.amount, collectors[call.via.by], pulled(call.via, call.amount))]
    case "charge": {
      const { amount, via, feeReceiver } = call
      const args = [info, amount, collectors[via.by], pulled(via, amount), fee(call.fee), feeReceiver] as const
      return [escrow, encodeFunctionData({ abi, functionName: "charge", args })]
    }
    case "capture": {
      const args = [info, call.amount, fee(call.fee), call.feeReceiver] as const
      return [escrow, encodeFunctionData({ abi, functionName: "capture", args })]
    }
    case "void":
      return [escrow, voidCall(info)]
    case "reclaim":
      return [escrow, encodeFunctionData({ abi, functionName: "reclaim", args: [info] })]
    case "refund":
      return [escrow, refund(info, call.amount, collectors[call.via.by], pulled(call.via, call.amount))]
    case "direct":
      return direct(play, call, signature)
    case "nested": {
      const inner = play.payments.find(each => each.info === call.inner)
      const nested = authorizeCall(call.inner, call.amount, collectors.payments, inner?.signature ?? "0x")
      return [escrow, authorizeCall(info, call.amount, collectors.oddPayments, inside(escrow, nested))]
    }
  }
}

/** The service's own refunds say nothing to the collector; the odd one wants to know what to do. */
const refund = (info: PaymentInfo, amount: bigint, collector: Address, data: Hex): Hex =>
  encodeFunctionData({ abi: authCaptureEscrowAbi, functionName: "refund", args: [info, amount, collector, data] })

const inside = (to: Address, data: Hex): Hex =>
  encodeAbiParameters([{ type: "address" }, { type: "bytes" }], [to, data])

/** A call past the escrow, which would put tokens where the caller likes. */
function direct({ scene }: Play, { of, info, amount }: Call & { kind: "direct" }, signature: Hex): [Address, Hex] {
  const { stage, collectors, world } = scene
  const { thief } = stage.accounts
  if (of === "store") {
    const args = [stage.usdc, thief, amount] as const
    return [world.storeOf(info.operator), encodeFunctionData({ abi: tokenStoreAbi, functionName: "sendTokens", args })]
  }
  const args = [info, thief, amount, of === "payments" ? signature : "0x"] as const
  return [collectors[of], encodeFunctionData({ abi: refundCollectorAbi, functionName: "collectTokens", args })]
}

async function balances({ stage, stores, collectors }: Scene): Promise<Map<Address, bigint>> {
  const all = new Set([
    ...Object.values(stage.accounts),
    ...stores.values(),
    ...Object.values(collectors),
    TAKER,
    OTHER,
  ])
  const entries = [...all].map(async (account): Promise<[Address, bigint]> => {
    const data = encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [account] })
    return [account, BigInt(await read(stage, stage.usdc, data))]
  })
  return new Map(await Promise.all(entries))
}

async function compare(play: Play): Promise<void> {
  const { scene, state, payments, logs } = play
  const { stage, escrow } = scene
  for (const [account, balance] of await balances(scene))
    if ((state.balances.get(account) ?? 0n) !== balance) throw new Mismatch(`${account} has ${balance}`)
  const events = readEscrowEvents(logs).filter(each => each.escrow === escrow)
  for (const { info } of payments) {
    const authId = paymentInfoHash(info, 84532, escrow)
    const found = readPaymentState(await read(stage, escrow, paymentStateCall(authId)))
    const expected = state.payments.get(info.salt)
    const sum = (...kinds: (typeof events)[number]["kind"][]) =>
      events
        .filter(each => each.authId === (authId as Hash) && kinds.includes(each.kind))
        .reduce((n, each) => n + each.amount, 0n)
    const paid = sum("authorized", "charged")
    const captured = sum("captured", "charged")
    const wanted = {
      hasCollectedPayment: expected !== undefined,
      capturableAmount: expected?.capturable ?? 0n,
      refundableAmount: expected?.refundable ?? 0n,
    }
    if (inspect(found) !== inspect(wanted)) throw new Mismatch(`${inspect(found)}, not ${inspect(wanted)}`)
    if (captured > paid || sum("refunded") > captured || paid > info.maxAmount) throw new Mismatch("more out than in")
    if (paid - captured - sum("voided", "reclaimed") !== found.capturableAmount) throw new Mismatch("what is held")
    if (captured - sum("refunded") !== found.refundableAmount) throw new Mismatch("what can be refunded")
  }
}
