/** ERC-20 `Transfer` logs: how they are requested and parsed. */
import { type Hex, pad } from "viem"
import { inTurns } from "../turns.ts"
import { type AuthorizationUse, readUses } from "./authorization-uses.ts"
import { type GivenBack, readGivenBack } from "./give-back.ts"
import { type Address, type Hash, parseAddress, parseHash } from "./hex.ts"
import { hexNumber, type RpcCall, RpcError } from "./rpc.ts"

/** `keccak256("Transfer(address,address,uint256)")`, EIP-20. */
export const TRANSFER_TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"

const MAX_INDEX = 2 ** 31 - 1
/** The year 9999. */
const MAX_SECONDS = 253_402_300_799
/** In wei; a number larger than the total supply is ignored. */
const BEYOND_ALL_ETHER = 1n << 100n

export interface Transfer {
  txHash: Hash
  token: Address
  from: Address
  to: Address
  /** Base units, above zero. */
  value: bigint
  blockNumber: bigint
  blockHash: Hash
  logIndex: number
  /** The index of this transfer among those of its token to this address in its transaction, from 0. */
  k: number
  /** Undefined from nodes that don't put the time into logs. */
  blockTime: Date | undefined
}

export interface Block {
  number: bigint
  hash: Hash
  time: Date
}

export interface Receipt {
  txHash: Hash
  succeeded: boolean
  blockNumber: bigint
  blockHash: Hash
  /** The transaction's index in the block; undefined if nodes don't report it, or don't agree on it. */
  position: number | undefined
  transfers: Transfer[]
  /** The authorizations that tokens executed in the transaction. */
  uses: AuthorizationUse[]
  /**
   * What factories reported in the transaction, according to one endpoint. The receipt counts even if the endpoints do
   * not agree on this.
   */
  givenBack: GivenBack[]
  /**
   * The cost of the transaction in wei, including the fee for the data on L1; undefined from nodes that don't report
   * it.
   */
  cost: bigint | undefined
}

/**
 * The call that finds all transfers of `token` (undefined: of any) to, or from, `addresses` in a range of blocks, both
 * ends included.
 */
export const logCall = (
  token: Address | undefined,
  side: "from" | "to",
  addresses: readonly Address[],
  from: bigint,
  to: bigint,
): RpcCall => {
  const words = addresses.map(address => pad(address))
  const topics = side === "to" ? [TRANSFER_TOPIC, null, words] : [TRANSFER_TOPIC, words]
  const range = { fromBlock: hexNumber(from), toBlock: hexNumber(to) }
  return { method: "eth_getLogs", params: [{ ...(token ? { address: token } : {}), topics, ...range }] }
}

export const blockCall = (block: bigint | "latest" | "finalized"): RpcCall => ({
  method: "eth_getBlockByNumber",
  params: [typeof block === "bigint" ? hexNumber(block) : block, false],
})

export const receiptCall = (hash: Hash): RpcCall => ({ method: "eth_getTransactionReceipt", params: [hash] })

type Json = Record<string, unknown>

/** A block as a node reports it; undefined for null. Throws an {@link RpcError} for anything else. */
export function readBlock(value: unknown): Block | undefined {
  if (value === null) return undefined
  const { number, hash, timestamp } = object(value)
  return { number: quantity(number), hash: hashOf(hash), time: timeOf(timestamp) }
}

/** A receipt as a node reports it; undefined for null. Throws an {@link RpcError} for anything else. */
export function readReceipt(value: unknown): Receipt | undefined {
  if (value === null) return undefined
  const { status, transactionHash, blockNumber, blockHash, transactionIndex, logs, logsBloom, ...rest } = object(value)
  // A bloom with bits but no logs: the logs were lost, and an empty list proves nothing.
  if (Array.isArray(logs) && logs.length === 0 && typeof logsBloom === "string" && /^0x0*[1-9a-f]/i.test(logsBloom))
    throw new RpcError("a receipt lacks its logs")
  return {
    txHash: hashOf(transactionHash),
    succeeded: quantity(status) === 1n,
    blockNumber: quantity(blockNumber),
    blockHash: hashOf(blockHash),
    position: isQuantity(transactionIndex) ? small(transactionIndex, MAX_INDEX) : undefined,
    transfers: readTransfers(logs),
    uses: readUses(logs as unknown[]),
    givenBack: readGivenBack(logs as unknown[]),
    cost: costOf(rest),
  }
}

/** The cost of a transaction. A receipt without the cost still proves what was moved. */
function costOf({ gasUsed, effectiveGasPrice, l1Fee }: Json): bigint | undefined {
  if (!isQuantity(gasUsed) || !isQuantity(effectiveGasPrice)) return undefined
  // Rollups of the OP stack charge for the data in addition to the gas.
  const cost = BigInt(gasUsed) * BigInt(effectiveGasPrice) + (isQuantity(l1Fee) ? BigInt(l1Fee) : 0n)
  return cost < BEYOND_ALL_ETHER ? cost : undefined
}

/**
 * The transfers among logs, in chain order. Skips removed logs, other events, NFTs (four topics) and zero values,
 * because anyone can make a token emit one of those in anyone's name. Throws an {@link RpcError} if the answer is not a
 * list of logs.
 */
export function readTransfers(logs: unknown): Transfer[] {
  const transfers = listOf(logs).flatMap(log => transferIn(log) ?? [])
  const number = numbering()
  for (const transfer of inOrder(transfers)) number(transfer)
  return transfers
}

/** Does the same for an answer of any size; other work gets a turn in between. */
export async function readManyTransfers(logs: unknown): Promise<Transfer[]> {
  const transfers: Transfer[] = []
  await inTurns(listOf(logs), log => {
    const transfer = transferIn(log)
    if (transfer) transfers.push(transfer)
  })
  await inTurns(inOrder(transfers), numbering())
  return transfers
}

function listOf(logs: unknown): unknown[] {
  if (!Array.isArray(logs)) throw new RpcError("logs are not a list")
  return logs
}

function transferIn(value: unknown): Transfer | undefined {
  const log = object(value)
  return log.removed !== true && isTransfer(log) ? readTransfer(log) : undefined
}

/** Sorts in place, if the node has not sorted. */
function inOrder(transfers: Transfer[]): Transfer[] {
  if (transfers.some((each, i) => i > 0 && byPlace(transfers[i - 1] as Transfer, each) > 0)) transfers.sort(byPlace)
  return transfers
}

/** Returns a function that sets `k` of transfers, which must arrive in chain order. */
function numbering(): (transfer: Transfer) => void {
  const counts = new Map<string, number>()
  return transfer => {
    const key = `${transfer.txHash} ${transfer.token} ${transfer.to}`
    transfer.k = counts.get(key) ?? 0
    counts.set(key, transfer.k + 1)
  }
}

const byPlace = (a: Transfer, b: Transfer): number =>
  a.blockNumber === b.blockNumber ? a.logIndex - b.logIndex : a.blockNumber < b.blockNumber ? -1 : 1

const isTransfer = (log: Json): boolean =>
  Array.isArray(log.topics) &&
  log.topics.length === 3 &&
  log.topics.every(topic => typeof topic === "string") &&
  log.topics[0] === TRANSFER_TOPIC &&
  typeof log.data === "string" &&
  /^0x[0-9a-f]{64}$/i.test(log.data) &&
  BigInt(log.data) > 0n

function readTransfer(log: Json): Transfer {
  const [, from, to] = log.topics as [string, string, string]
  return {
    txHash: hashOf(log.transactionHash),
    token: addressOf(log.address),
    from: addressOf(`0x${from.slice(26)}`),
    to: addressOf(`0x${to.slice(26)}`),
    value: BigInt(log.data as Hex),
    blockNumber: quantity(log.blockNumber),
    blockHash: hashOf(log.blockHash),
    logIndex: small(log.logIndex, MAX_INDEX),
    k: 0,
    blockTime: typeof log.blockTimestamp !== "string" ? undefined : timeOf(log.blockTimestamp),
  }
}

function object(value: unknown): Json {
  if (typeof value !== "object" || value === null) throw new RpcError("an answer is not an object")
  return value as Json
}

const isQuantity = (value: unknown): value is Hex => typeof value === "string" && /^0x[0-9a-f]{1,64}$/i.test(value)

function quantity(value: unknown): bigint {
  if (!isQuantity(value)) throw new RpcError("an answer lacks a number")
  return BigInt(value)
}

/** Reads a number that fits the database and dates. A larger number would stop the round that writes it. */
function small(value: unknown, most: number): number {
  const number = Number(quantity(value))
  if (number > most) throw new RpcError("an answer has a number that is too large")
  return number
}

const timeOf = (value: unknown): Date => new Date(small(value, MAX_SECONDS) * 1_000)

function hashOf(value: unknown): Hash {
  const hash = parseHash(value)
  if (!hash) throw new RpcError("an answer lacks a hash")
  return hash
}

function addressOf(value: unknown): Address {
  const address = parseAddress(typeof value === "string" ? value.toLowerCase() : value)
  if (!address) throw new RpcError("an answer lacks an address")
  return address
}
