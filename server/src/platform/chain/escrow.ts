/**
 * Encodes the escrow's calls and hashes and reads its events, for both of its versions. Pure: other files send the
 * calls and read the chain.
 *
 * The contracts of a network are at `network.escrow` (an `EscrowDeployment`): `address`, `version`, `collector` for
 * payments, `refundCollector` for refunds. The operator is the relay wallet, `ctx.settings.relayWallet`. Our payments
 * have no fee: `minFeeBps` and `maxFeeBps` are 0 and `feeReceiver` is zero. The refund collector refuses any other
 * payment.
 */
import {
  decodeFunctionData,
  decodeFunctionResult,
  encodeAbiParameters,
  encodeFunctionData,
  type Hex,
  keccak256,
  parseEventLogs,
  type RpcLog,
  toEventSelector,
  toHex,
} from "viem"
import { authCaptureEscrowAbi as abi, authCaptureEscrowV10Abi as abiV10 } from "./abi.ts"
import type { EscrowDeployment, EscrowVersion } from "./escrow-deployments.ts"
import { type Address, type Hash, ZERO_ADDRESS } from "./hex.ts"
import type { NetworkInfo } from "./network-facts.ts"
import { typedData } from "./typed-data.ts"

/**
 * The terms of a payment. The chain keeps only the hash of the terms, so the operator must have stored the terms to
 * capture, void or refund.
 */
export interface PaymentInfo {
  /** The only account that may authorize, capture, void and refund. */
  operator: Address
  payer: Address
  /** Gets the captured amount. */
  receiver: Address
  token: Address
  /**
   * Base units, below 2^120: the amount that the payer signs for. Anything collected beyond the authorized amount goes
   * straight back to the payer.
   */
  maxAmount: bigint
  /** Unix seconds: when authorizing, capturing and refunding end. Each time must be ≤ the next. */
  preApprovalExpiry: number
  authorizationExpiry: number
  refundExpiry: number
  /** Hundredths of a percent; 0 in our payments. */
  minFeeBps: number
  maxFeeBps: number
  /** Zero in our payments. */
  feeReceiver: Address
  /** Below 2^256; distinguishes two payments with otherwise equal terms. */
  salt: bigint
}

/**
 * The tuple that every call and hash takes, as the contract declares it. No other code in the service spells out the
 * tuple.
 */
const TUPLE = (abi.find(each => "name" in each && each.name === "getHash") as GetHash).inputs[0]
type GetHash = Extract<(typeof abi)[number], { name: "getHash" }>

/** The hash of the tuple's type, as in the contract's `PAYMENT_INFO_TYPEHASH`. */
export const PAYMENT_INFO_TYPEHASH: Hash = keccak256(
  toHex(`PaymentInfo(${TUPLE.components.map(({ type, name }) => `${type} ${name}`).join(",")})`),
) as Hash

const HASHED = [{ type: "uint256" }, { type: "address" }, { type: "bytes32" }] as const

/**
 * Returns the id of a payment on the chain (`authId`), as the contract's `getHash` does. Throws if a field is out of
 * its range.
 */
export function paymentInfoHash(info: PaymentInfo, chainId: number, escrow: Address): Hash {
  const structHash = keccak256(encodeAbiParameters([{ type: "bytes32" }, TUPLE], [PAYMENT_INFO_TYPEHASH, info]))
  return keccak256(encodeAbiParameters(HASHED, [BigInt(chainId), escrow, structHash])) as Hash
}

/** Returns the call that makes the contract compute that id. */
export const getHashCall = (info: PaymentInfo): Hex =>
  encodeFunctionData({ abi, functionName: "getHash", args: [info] })

/**
 * Returns the nonce that the payer signs: the id with the zero address as the payer, so that it is the same for every
 * payer.
 */
export const authorizationNonce = (info: Omit<PaymentInfo, "payer">, chainId: number, escrow: Address): Hash =>
  paymentInfoHash({ ...info, payer: ZERO_ADDRESS }, chainId, escrow)

const RECEIVE = [
  { name: "from", type: "address" },
  { name: "to", type: "address" },
  { name: "value", type: "uint256" },
  { name: "validAfter", type: "uint256" },
  { name: "validBefore", type: "uint256" },
  { name: "nonce", type: "bytes32" },
] as const

/**
 * Returns the data for the payer's wallet to sign, in the token's domain: `ReceiveWithAuthorization` to the collector.
 * The signature is the last argument of {@link authorizeCall}.
 */
export const typedPayment = (
  { token, chainId }: Pick<NetworkInfo, "token" | "chainId">,
  escrow: Pick<EscrowDeployment, "address" | "collector">,
  info: PaymentInfo,
) =>
  typedData(
    { name: token.name, version: token.version, chainId, verifyingContract: token.address },
    "ReceiveWithAuthorization",
    RECEIVE,
    {
      from: info.payer,
      to: escrow.collector,
      value: info.maxAmount,
      validAfter: 0n,
      validBefore: BigInt(info.preApprovalExpiry),
      nonce: authorizationNonce(info, chainId, escrow.address),
    },
  )

/** Collects `amount` (base units) with the payer's signature and holds it. The same in both versions. */
export const authorizeCall = (info: PaymentInfo, amount: bigint, collector: Address, signature: Hex): Hex =>
  encodeFunctionData({ abi, functionName: "authorize", args: [info, amount, collector, signature] })

/** Pays `amount` (base units) of the held money to the receiver, without a fee. Can be repeated until none is held. */
export function captureCall(version: EscrowVersion, info: PaymentInfo, amount: bigint): Hex {
  const functionName = "capture"
  return version === "v1.0"
    ? encodeFunctionData({ abi: abiV10, functionName, args: [info, amount, 0, ZERO_ADDRESS] })
    : encodeFunctionData({ abi, functionName, args: [info, amount, 0n, ZERO_ADDRESS] })
}

/** Returns to the payer everything that is held. The same in both versions. */
export const voidCall = (info: PaymentInfo): Hex => encodeFunctionData({ abi, functionName: "void", args: [info] })

/**
 * Returns to the payer everything that is held. The payer itself sends this call once the authorization has ended. The
 * same in both versions.
 */
export const reclaimCall = (info: PaymentInfo): Hex =>
  encodeFunctionData({ abi, functionName: "reclaim", args: [info] })

/** Pulls `amount` (base units) through the refund collector and pays it to the payer. The same in both versions. */
export const refundCall = (info: PaymentInfo, amount: bigint, refundCollector: Address): Hex =>
  encodeFunctionData({ abi, functionName: "refund", args: [info, amount, refundCollector, "0x"] })

/** The effect of a call on the escrow. `amount` is in base units; null for a void, which returns all that is held. */
export interface EscrowCall {
  kind: "authorize" | "capture" | "void" | "refund"
  info: PaymentInfo
  amount: bigint | null
}

/** Decodes the calldata of an escrow's call in either version; undefined for any other calldata. */
export function readEscrowCall(data: Hex): EscrowCall | undefined {
  for (const each of [abi, abiV10])
    try {
      const { functionName, args } = decodeFunctionData({ abi: each, data })
      if (!["authorize", "capture", "void", "refund"].includes(functionName)) continue
      const [info, amount = null] = args as unknown as [PaymentInfo, bigint | undefined]
      return { kind: functionName as EscrowCall["kind"], info: lowered(info), amount }
    } catch {
      // The calldata is for the other version, or for another contract.
    }
  return undefined
}

/** The state that the chain stores about a payment. */
export interface PaymentState {
  /** Stays true: the same terms can never be authorized again. */
  hasCollectedPayment: boolean
  /** Base units that are held. */
  capturableAmount: bigint
  /** Base units that were captured and not refunded. */
  refundableAmount: bigint
}

/** The call that reads the {@link PaymentState} of an `authId`. */
export const paymentStateCall = (authId: Hash): Hex =>
  encodeFunctionData({ abi, functionName: "paymentState", args: [authId] })

/** Decodes the answer to that call; throws if it can't, for example on `0x` from an address without a contract. */
export function readPaymentState(data: Hex): PaymentState {
  const [hasCollectedPayment, capturableAmount, refundableAmount] = decodeFunctionResult({
    abi,
    functionName: "paymentState",
    data,
  })
  return { hasCollectedPayment, capturableAmount, refundableAmount }
}

/**
 * Returns the call that reads which address holds the tokens of an operator's payments. Captures, voids and refunds are
 * transfers from there.
 */
export const tokenStoreCall = (operator: Address): Hex =>
  encodeFunctionData({ abi, functionName: "getTokenStore", args: [operator] })

/** Decodes the answer to that call, in lower case; throws if it is not an address. */
export const readTokenStore = (data: Hex): Address =>
  lower(decodeFunctionResult({ abi, functionName: "getTokenStore", data }))

/**
 * The content of an escrow's log. Anyone can make a genuine escrow emit any of these for their own terms, and any
 * contract can emit the same. Believe an event only if `escrow` is the network's and `info.operator` and `collector`
 * are ours, or if `authId` belongs to one of our payments.
 */
export type EscrowEvent = { escrow: Address; authId: Hash /** Base units. */; amount: bigint } & (
  | { kind: "authorized"; info: PaymentInfo; collector: Address }
  | { kind: "charged"; info: PaymentInfo; collector: Address; fee: Fee }
  | { kind: "captured"; fee: Fee }
  | { kind: "voided" | "reclaimed" }
  | { kind: "refunded"; collector: Address }
)

/** The part of an amount that its receiver did not get: base units, computed from the rate in v1.0. */
interface Fee {
  amount: bigint
  receiver: Address
}

const FIRST_TOPICS = new Map(
  [...abi, ...abiV10]
    .filter(each => each.type === "event")
    .filter(({ name }) => name.startsWith("Payment"))
    .map(event => [toEventSelector(event) as Hash, event]),
)

/** The first topics of all six events in both versions, to ask a node for their logs. */
export const ESCROW_TOPICS: readonly Hash[] = [...FIRST_TOPICS.keys()]

/**
 * Returns the escrow's events from the given logs, in log order. Logs that can't be decoded are skipped, because any
 * contract may emit them.
 */
export function readEscrowEvents(logs: readonly unknown[]): EscrowEvent[] {
  return logs.flatMap(each => {
    const { topics, removed } = (each ?? {}) as { topics?: Hash[]; removed?: unknown }
    const event = removed === true ? undefined : FIRST_TOPICS.get(topics?.[0] as Hash)
    return event ? parsed(event, each as RpcLog) : []
  })
}

type EventAbi = Extract<(typeof abi)[number] | (typeof abiV10)[number], { type: "event" }>

function parsed(event: EventAbi, raw: RpcLog): EscrowEvent[] {
  try {
    return parseEventLogs({ abi: [event], logs: [raw] }).flatMap(log => {
      if (!log.eventName.startsWith("Payment")) return []
      const args = log.args as Arguments
      const base = { escrow: lower(log.address), authId: args.paymentInfoHash, amount: args.amount }
      return [{ ...base, ...partsOf(log.eventName, args) } as EscrowEvent]
    })
  } catch {
    return []
  }
}

interface Arguments {
  paymentInfoHash: Hash
  amount: bigint
  paymentInfo: PaymentInfo
  tokenCollector: string
  feeAmount?: bigint
  feeBps?: number
  feeReceiver: string
}

function partsOf(name: string, { amount, paymentInfo, tokenCollector, feeAmount, feeBps, feeReceiver }: Arguments) {
  const collector = () => lower(tokenCollector)
  const fee = () => ({ amount: feeAmount ?? (amount * BigInt(feeBps ?? 0)) / 10_000n, receiver: lower(feeReceiver) })
  switch (name) {
    case "PaymentAuthorized":
      return { kind: "authorized", info: lowered(paymentInfo), collector: collector() }
    case "PaymentCharged":
      return { kind: "charged", info: lowered(paymentInfo), collector: collector(), fee: fee() }
    case "PaymentCaptured":
      return { kind: "captured", fee: fee() }
    case "PaymentRefunded":
      return { kind: "refunded", collector: collector() }
    default:
      return { kind: name === "PaymentVoided" ? "voided" : "reclaimed" }
  }
}

const lower = (address: string): Address => address.toLowerCase() as Address

const lowered = (info: PaymentInfo): PaymentInfo => ({
  ...info,
  operator: lower(info.operator),
  payer: lower(info.payer),
  receiver: lower(info.receiver),
  token: lower(info.token),
  feeReceiver: lower(info.feeReceiver),
})
