/**
 * Reads what all endpoints report about a wallet: its nonces, its gas, and the fees of the network. Read-only. For
 * nonces the larger of two values counts, because a lagging node would make us reuse one. For bids, reserves and the
 * balance the lower of two values counts, so that one endpoint cannot raise them. If three or more respond, a single
 * lying endpoint decides nothing.
 */
import { sql } from "kysely"
import { type Hex, size } from "viem"
import { votesNeeded } from "./agreement.ts"
import { awake, type Endpoint } from "./endpoints.ts"
import type { Market } from "./fees.ts"
import type { Address } from "./hex.ts"
import { askAgreed } from "./in-time.ts"
import type { Network } from "./networks.ts"
import type { RpcCall, RpcResult } from "./rpc.ts"

export interface WalletState {
  /**
   * The lowest count that any endpoint reports. Resending a signed transaction does no harm, so one endpoint is enough
   * for this.
   */
  lowest: bigint | undefined
  /** The count that signing uses: with three or more answers, the second largest. */
  latest: bigint | undefined
  /** The count of all transactions, including those that wait to be mined; undefined if no endpoint reports them. */
  pending: bigint | undefined
  /** The highest count that a quorum reaches: two endpoints, or one if there is only one. */
  agreedLatest: bigint | undefined
  /** The same for finalized blocks. */
  agreedFinalized: bigint | undefined
  /** In wei. */
  balance: bigint | undefined
  market: Market | undefined
  /**
   * A generous estimate, in wei, of the fee for a typical transaction's data on top of its gas; for larger transactions
   * see {@link dataParts}. Rollups of the OP stack charge this fee to the sender when the transaction is mined, and no
   * limit in the transaction bounds it. Zero if there is no such fee, or no endpoint reports it.
   */
  dataFee: bigint
  /** What each responding endpoint reports, by its position. */
  words: WalletWord[]
}

interface WalletWord {
  position: number
  /** Transactions in mined blocks. */
  latest: bigint | undefined
  /** In wei. */
  balance: bigint | undefined
  baseFee: bigint | undefined
}

/** A contract of the OP stack, on every network that we serve. */
const GAS_PRICE_ORACLE = "0x420000000000000000000000000000000000000f"
/** Bytes of a typical signed transaction without its signature, and how many of them are not calldata. */
const TRANSACTION_BYTES = 700
const ENVELOPE_BYTES = 100
/**
 * The fee may double before a transaction is mined. Beyond that, the reserve for the other transactions pays for the
 * fee.
 */
const MARGIN = 2n
/** `getL1FeeUpperBound(uint256)` */
const dataFeeCall = {
  method: "eth_call",
  params: [{ to: GAS_PRICE_ORACLE, data: `0xf1c7a58b${TRANSACTION_BYTES.toString(16).padStart(64, "0")}` }, "latest"],
}

/**
 * How many times a typical transaction's data fee a call may cost: signatures of contract wallets have any number of
 * bytes.
 */
export const dataParts = (data: Hex): bigint => BigInt(Math.ceil((size(data) + ENVELOPE_BYTES) / TRANSACTION_BYTES))

/** SQL: {@link dataParts} of a payout `i`. */
export const dataPartsOf = sql`ceil((length(i.data) / 2 - 1 + ${ENVELOPE_BYTES}::int) / ${TRANSACTION_BYTES}::numeric)`

/**
 * How many endpoints must confirm before money is paid again or a wallet is halted: two, or one if there is only one.
 */
export const quorumOf = ({ endpoints }: Pick<Network, "endpoints">): number => votesNeeded(endpoints.length)

/**
 * Whether two endpoints count the same transactions, and report amounts within a factor of two. Two values are only as
 * good as the worse one, so if they differ, the reading waits for a third.
 */
function isAlike(a: readonly RpcResult[], b: readonly RpcResult[]): boolean {
  const areEqual = [4, 5, 6].every(i => quantity(a[i]) === quantity(b[i]))
  const amountsOf = (results: readonly RpcResult[]) => [
    quantity(results[0]),
    baseFeeOf(results[1]),
    quantity(results[2]),
  ]
  const others = amountsOf(b)
  return areEqual && amountsOf(a).every((each, i) => !isFar(each ?? 0n, others[i] ?? 0n))
}

const countCall = (wallet: Address, block: "latest" | "finalized" | "pending"): RpcCall => ({
  method: "eth_getTransactionCount",
  params: [wallet, block],
})

const gasCalls = (wallet: Address): RpcCall[] => [
  { method: "eth_getBalance", params: [wallet, "latest"] },
  { method: "eth_getBlockByNumber", params: ["latest", false] },
  { method: "eth_maxPriorityFeePerGas", params: [] },
  dataFeeCall,
]

/** Asks all endpoints of a network about a wallet. */
export const readWalletState = (
  network: Pick<Network, "endpoints">,
  wallet: Address,
  signal: AbortSignal,
): Promise<WalletState> =>
  readState(
    network,
    [...gasCalls(wallet), countCall(wallet, "latest"), countCall(wallet, "finalized"), countCall(wallet, "pending")],
    signal,
  )

/** A wallet's balance for gas, and the price of gas: everything in {@link readWalletState} except the counts. */
export const readGas = (
  network: Pick<Network, "endpoints">,
  wallet: Address,
  signal: AbortSignal,
): Promise<Pick<WalletState, "balance" | "market" | "dataFee">> => readState(network, gasCalls(wallet), signal)

/** Asks all endpoints for the counts of wallets in mined blocks; returns each `agreedLatest` in the same order. */
export async function readCounts(
  network: Pick<Network, "endpoints">,
  wallets: readonly Address[],
  signal: AbortSignal,
): Promise<(bigint | undefined)[]> {
  const needed = quorumOf(network)
  const calls = wallets.map(wallet => countCall(wallet, "latest"))
  const answers = await askAgreed(awake(network.endpoints), calls, { needed }, signal)
  return calls.map((_, i) => {
    const counts = answers.map(answer => quantity(answer?.[i])).filter(n => n !== undefined)
    return descending(counts)[needed - 1]
  })
}

async function readState(
  network: Pick<Network, "endpoints">,
  calls: readonly RpcCall[],
  signal: AbortSignal,
): Promise<WalletState> {
  const asked = awake(network.endpoints)
  const answers = await askAgreed(asked, calls, { needed: quorumOf(network), isSame: isAlike }, signal)
  const reported = (i: number) => answers.map(answer => quantity(answer?.[i])).filter(n => n !== undefined)
  const agreed = (values: bigint[]) => descending(values)[quorumOf(network) - 1]
  const baseFees = answers.map(answer => baseFeeOf(answer?.[1])).filter(n => n !== undefined)
  // A lie that makes the bid too low is repaired by raising the bid until it is mined. A bid too high would lose the
  // money.
  const baseFee = agreed(baseFees)
  const tip = agreed(reported(2))
  const counts = descending(reported(4))
  const careful = (values: bigint[]) => values[values.length >= TELLING ? 1 : 0]
  return {
    lowest: counts.at(-1),
    latest: careful(counts),
    pending: careful(descending(reported(6))),
    agreedLatest: agreed(counts),
    agreedFinalized: agreed(reported(5)),
    balance: cautious(descending(reported(0)).reverse()),
    market: baseFee === undefined || tip === undefined ? undefined : { baseFee, tip },
    dataFee: MARGIN * (agreed(answers.filter(answer => answer).map(answer => word(answer?.[3]))) ?? 0n),
    words: answers.map((answer, i) => ({
      position: network.endpoints.indexOf(asked[i] as Endpoint),
      latest: quantity(answer?.[4]),
      balance: quantity(answer?.[0]),
      baseFee: baseFeeOf(answer?.[1]),
    })),
  }
}

/** The maximum age of a shared state. */
const SHARED_MS = 250
const shared = new WeakMap<readonly Endpoint[], Map<Address, { at: number; state: Promise<WalletState> }>>()

/**
 * Returns a wallet's state, at most a quarter of a second old, so that one reading serves many requests. Use it only
 * for decisions that are checked again before signing.
 */
export async function sharedWalletState(
  network: Pick<Network, "endpoints">,
  wallet: Address,
  signal: AbortSignal,
): Promise<WalletState> {
  const byWallet = shared.get(network.endpoints) ?? new Map()
  shared.set(network.endpoints, byWallet)
  const known = byWallet.get(wallet)
  if (known && performance.now() - known.at < SHARED_MS) return known.state
  const reading = { at: performance.now(), state: readWalletState(network, wallet, signal) }
  byWallet.set(wallet, reading)
  const forget = () => void (byWallet.get(wallet) === reading && byWallet.delete(wallet))
  // A value that no endpoint reports now may be available a moment later.
  reading.state.then(({ market, balance }) => (market && balance !== undefined ? undefined : forget()), forget)
  return reading.state
}

/**
 * Returns the endpoints whose report on a wallet can't be explained by lag. Some endpoints report more transactions
 * than were ever signed (`nextNonce`), which the rest do not. Other endpoints differ in balance or base fee by more
 * than a factor of two. If two differ this way, both are named.
 */
export function walletDissent({ words, agreedLatest }: WalletState, nextNonce: bigint): Set<number> {
  const ahead = words.filter(({ latest = 0n }) => latest > nextNonce && (agreedLatest ?? 0n) <= nextNonce)
  const far = [words.map(word => word.balance), words.map(word => word.baseFee)].flatMap(values => {
    const known = descending(values.filter(value => value !== undefined))
    if (known.length < 2) return []
    const others = known.length < TELLING ? known : [known[Math.floor((known.length - 1) / 2)] ?? 0n]
    return words.filter((_, i) => others.some(other => isFar(values[i] ?? other, other)))
  })
  return new Set(words.length < 2 ? [] : [...ahead, ...far].map(({ position }) => position))
}

const isFar = (a: bigint, b: bigint): boolean => a > 2n * b + 1n || b > 2n * a + 1n

/** With this many answers, one of them can be ignored. */
const TELLING = 3

/** The first of two values; of three or more, the middle one. */
const cautious = (values: bigint[]): bigint | undefined =>
  values[values.length >= TELLING ? Math.floor((values.length - 1) / 2) : 0]

const descending = (values: bigint[]): bigint[] => values.sort((a, b) => (a < b ? 1 : a > b ? -1 : 0))

function quantity(result: RpcResult | undefined): bigint | undefined {
  const value = result?.ok ? result.value : undefined
  return typeof value === "string" && /^0x[0-9a-f]{1,64}$/i.test(value) ? BigInt(value) : undefined
}

/** A number that a contract returns; zero for anything else, for example from an address without code. */
const word = (result: RpcResult | undefined): bigint =>
  result?.ok && typeof result.value === "string" && result.value.length === 66 ? (quantity(result) ?? 0n) : 0n

function baseFeeOf(result: RpcResult | undefined): bigint | undefined {
  if (!result?.ok || typeof result.value !== "object" || result.value === null) return undefined
  return quantity({ ok: true, value: (result.value as Record<string, unknown>).baseFeePerGas })
}
