/** What an approver signs to send money out of a deposit back to a payer (EIP-712). Pure. */
import { type Hex, parseEventLogs, type RpcLog, toEventSelector } from "viem"
import { depositFactoryAbi } from "./abi.ts"
import { type Address, type Hash, parseAddress } from "./hex.ts"
import { hexNumber, type RpcCall } from "./rpc.ts"
import { typedData } from "./typed-data.ts"

/** Money that may leave a deposit, once, until `deadline` (Unix seconds). */
export interface GiveBack {
  token: Address
  to: Address
  /** Base units of the token. */
  amount: bigint
  deposit: Address
  /** 32 bytes; a deposit accepts each nonce once. */
  nonce: Hex
  deadline: bigint
}

/** The fields in the order that wallets show them. */
const GIVE_BACK = [
  { name: "token", type: "address" },
  { name: "to", type: "address" },
  { name: "amount", type: "uint256" },
  { name: "deposit", type: "address" },
  { name: "nonce", type: "bytes32" },
  { name: "deadline", type: "uint256" },
] as const

/**
 * Returns the typed data that the approver of a deposit signs; `factory` is the deposit's own. The signature is valid
 * only on this chain and with this factory.
 */
export const giveBackData = (chainId: number, factory: Hex, message: GiveBack) =>
  typedData({ name: "Sluice", version: "2", chainId, verifyingContract: factory }, "GiveBack", GIVE_BACK, {
    ...message,
  })

/** What a contract reported in a transaction: an approver agreed that this money leaves a deposit. */
export interface GivenBack {
  /** The contract that reported it; believe only the deposit's own factory. */
  factory: Address
  deposit: Address
  token: Address
  to: Address
  /** Base units of the token. */
  amount: bigint
  nonce: Hash
}

const GIVEN_BACK_TOPIC = toEventSelector("GivenBack(address,address,address,uint256,bytes32)")

/** The call that finds all `GivenBack` events of these factories in a range of blocks, both ends included. */
export const givenBackCall = (factories: readonly Address[], from: bigint, to: bigint): RpcCall => {
  const range = { fromBlock: hexNumber(from), toBlock: hexNumber(to) }
  return { method: "eth_getLogs", params: [{ address: factories, topics: [GIVEN_BACK_TOPIC], ...range }] }
}

/**
 * Returns the `GivenBack` events among the logs of a receipt. Logs that can't be decoded are skipped, because any
 * contract may emit them.
 */
export function readGivenBack(logs: readonly unknown[]): GivenBack[] {
  const ours = logs.filter(log => {
    const { topics, removed } = (log ?? {}) as { topics?: unknown[]; removed?: unknown }
    return removed !== true && topics?.[0] === GIVEN_BACK_TOPIC
  }) as RpcLog[]
  return ours.flatMap(log => {
    const factory = lower(log.address)
    if (!factory) return []
    return parsed(log).flatMap(({ args: { deposit, token, to, amount, nonce } }) => {
      const found = { factory, deposit: lower(deposit), token: lower(token), to: lower(to), amount, nonce }
      return found.deposit && found.token && found.to ? [found as GivenBack] : []
    })
  })
}

function parsed(log: RpcLog) {
  try {
    return parseEventLogs({ abi: depositFactoryAbi, eventName: "GivenBack", logs: [log] })
  } catch {
    return []
  }
}

const lower = (address: unknown): Address | undefined =>
  typeof address === "string" ? parseAddress(address.toLowerCase()) : undefined
