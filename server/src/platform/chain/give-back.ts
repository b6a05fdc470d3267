/** What an approver signs to send money out of a deposit back to a payer (EIP-712). Pure. */
import { type Hex, toEventSelector } from "viem"
import { type Address, type Hash, parseAddress, parseHash } from "./hex.ts"
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

/** A contract's report in a transaction: an approver agreed that this money leaves a deposit. */
export interface GivenBack {
  /** The contract that reported it; believe only the deposit's own factory. */
  factory: Address
  deposit: Address
  token: Address
  to: Address
  /** Base units of the token. */
  amount: bigint
  nonce: Hash
  /** Undefined if the node does not report it. */
  txHash: Hash | undefined
}

const GIVEN_BACK_TOPIC = toEventSelector("GivenBack(address,address,address,uint256,bytes32)")

/** The call that finds all `GivenBack` events of these factories in a range of blocks, both ends included. */
export const givenBackCall = (factories: readonly Address[], from: bigint, to: bigint): RpcCall => {
  const range = { fromBlock: hexNumber(from), toBlock: hexNumber(to) }
  return { method: "eth_getLogs", params: [{ address: factories, topics: [GIVEN_BACK_TOPIC], ...range }] }
}

/**
 * Returns the `GivenBack` events among logs. Logs that can't be decoded are skipped, because any contract may emit
 * them. The events are decoded without viem, which takes 50 µs for each, because a receipt may have thousands.
 */
export function readGivenBack(logs: readonly unknown[]): GivenBack[] {
  return logs.flatMap(log => {
    const { address, topics, data, removed, transactionHash } = (log ?? {}) as Record<string, unknown>
    if (removed === true || !Array.isArray(topics) || topics[0] !== GIVEN_BACK_TOPIC || topics.length !== 2) return []
    if (typeof data !== "string" || !GIVEN_BACK_DATA.test(data)) return []
    const word = (i: number) => data.slice(2 + i * 64, 2 + (i + 1) * 64)
    const factory = parseAddress(lower(address))
    const deposit = addressIn(lower(topics[1])?.slice(2))
    const token = addressIn(word(0))
    const to = addressIn(word(1))
    if (!factory || !deposit || !token || !to) return []
    const nonce = `0x${word(3)}`.toLowerCase() as Hash
    return [{ factory, deposit, token, to, amount: BigInt(`0x${word(2)}`), nonce, txHash: parseHash(transactionHash) }]
  })
}

/** Four words: the token, the receiver, the amount and the nonce. */
const GIVEN_BACK_DATA = /^0x[0-9a-f]{256}$/i

/** The address in a word of 64 digits; undefined if the word holds more than an address. */
const addressIn = (word: string | undefined): Address | undefined =>
  word?.startsWith("0".repeat(24)) ? parseAddress(`0x${word.slice(24).toLowerCase()}`) : undefined

const lower = (text: unknown): string | undefined => (typeof text === "string" ? text.toLowerCase() : undefined)
