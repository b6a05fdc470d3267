/**
 * Compares rows' assertions about the chain with receipts. A quorum of endpoints must confirm an assertion. A wallet
 * halts only if a quorum contradicts an assertion. Anything else is unproven. An error, or null alone, is never
 * evidence.
 */
import { ask, awake } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum, type Quorum, type QuorumView } from "../../platform/chain/quorum.ts"
import { hexNumber, type RpcResult } from "../../platform/chain/rpc.ts"
import { type Receipt, readReceipt, receiptCall } from "../../platform/chain/transfers.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { Compared } from "./report.ts"

/** What a row asserts: that a transaction in a final block moved money or, if `moved` is false, that it did not. */
export interface ChainAssertion {
  table: "transfers" | "payouts" | "outflows"
  id: string
  txHash: Hash
  blockNumber: bigint
  blockHash: Hash
  token: Address
  from: Address
  to: Address
  value: bigint
  /** The position among the transfers to this address, from 0; undefined means any. */
  k: number | undefined
  moved: boolean
}

export const transferAssertion = (row: Row<"transfers">): ChainAssertion => ({
  table: "transfers",
  id: `${row.id}`,
  txHash: row.tx_hash,
  blockNumber: row.block_number,
  blockHash: row.block_hash,
  token: row.token,
  from: row.from_address,
  to: row.to_address,
  value: row.value,
  k: row.k,
  moved: true,
})

/** Returns the assertion of a payout that ended in a block; `deposit` is its deposit's address. */
export const payoutAssertion = (row: Row<"payouts"> & { deposit: Address }): ChainAssertion => ({
  table: "payouts",
  id: row.id,
  // The database refuses a final or reverted payout without these columns.
  txHash: row.tx_hash as Hash,
  blockNumber: row.block_number as bigint,
  blockHash: row.block_hash as Hash,
  token: row.token,
  from: row.deposit,
  to: row.recipient,
  value: row.amount,
  k: undefined,
  moved: row.state === "final",
})

export const outflowAssertion = (row: Row<"outflows"> & { deposit: Address }): ChainAssertion => ({
  table: "outflows",
  id: row.id,
  txHash: row.tx_hash,
  blockNumber: row.block_number,
  blockHash: row.block_hash,
  token: row.token,
  from: row.deposit,
  to: row.recipient,
  value: row.amount,
  k: undefined,
  moved: true,
})

type Movement = Pick<ChainAssertion, "token" | "from" | "to" | "value"> & { k?: number | undefined }

/**
 * The movements in each receipt, computed once: a thousand rows may concern one transaction with a thousand transfers.
 */
const known = new WeakMap<Receipt, ReadonlySet<string>>()

function movementsIn(receipt: Receipt): ReadonlySet<string> {
  const before = known.get(receipt)
  if (before) return before
  const moved = receipt.transfers.flatMap(each => [movementOf(each), movementOf({ ...each, k: undefined })])
  const movements = new Set(moved)
  known.set(receipt, movements)
  return movements
}

const movementOf = ({ token, from, to, value, k }: Movement): string => `${token} ${from} ${to} ${value} ${k ?? ""}`

const holds = (receipt: Receipt, movement: Movement): boolean =>
  receipt.succeeded && movementsIn(receipt).has(movementOf(movement))

const confirms = (receipt: Receipt, assertion: ChainAssertion): boolean =>
  receipt.blockHash === assertion.blockHash &&
  receipt.blockNumber === assertion.blockNumber &&
  holds(receipt, assertion) === assertion.moved

/** How many receipts are read at a time. Strangers can put a thousand transfers, a megabyte, into each receipt. */
const RECEIPTS_AT_ONCE = 25
const HASHES_OF_A_PART = 100

/**
 * Returns the first assertion that the chain contradicts. `unproven` describes an assertion that too few endpoints
 * contradict.
 */
export async function checkAssertions(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  assertions: readonly ChainAssertion[],
): Promise<Compared> {
  // Each receipt is read once: one transaction may have hundreds of transfers, all in its receipt.
  const byHash = [...Map.groupBy(assertions, ({ txHash }) => txHash).values()]
  let unproven: string | undefined
  for (let start = 0; start < byHash.length; start += RECEIPTS_AT_ONCE) {
    const part = byHash.slice(start, start + RECEIPTS_AT_ONCE).flat()
    const doubtful = await unconfirmed(ctx, network, part)
    const compared = await judge(ctx, network, quorum, doubtful)
    if (compared.finding) return compared
    unproven ??= compared.unproven
  }
  return unproven === undefined ? {} : { unproven }
}

/** Returns the assertions that too few of the first endpoints confirm. */
async function unconfirmed(
  ctx: Context,
  network: Network,
  assertions: readonly ChainAssertion[],
): Promise<ChainAssertion[]> {
  const hashes = [...new Set(assertions.map(({ txHash }) => txHash))]
  const calls = hashes.map(receiptCall)
  const needed = quorumOf(network)
  // A quorum of endpoints is queried, so that an endpoint that reported a log is never the only witness of that log.
  const asked = awake(network.endpoints).slice(0, needed)
  const answers = await Promise.all(
    asked.map(async endpoint => {
      const results = await ask(endpoint, calls, ctx.signal)
      return new Map(hashes.map((hash, i) => [hash, results?.[i]?.ok ? readOrNone(results[i].value) : undefined]))
    }),
  )
  return assertions.filter(assertion => {
    const receipts = answers.map(byHash => byHash.get(assertion.txHash))
    return (
      receipts.filter(receipt => receipt?.txHash === assertion.txHash && confirms(receipt, assertion)).length < needed
    )
  })
}

/** Judges assertions by the reports of all endpoints. */
async function judge(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  doubtful: readonly ChainAssertion[],
): Promise<Compared> {
  if (doubtful.length === 0) return {}
  const needed = quorumOf(network)
  await quorum.learn(
    doubtful.map(assertion => assertion.blockNumber),
    doubtful.map(assertion => assertion.txHash),
  )
  const open = doubtful.flatMap(assertion => {
    const receipts = quorum.receiptsOf(assertion.txHash)
    const confirming = receipts.filter(receipt => receipt !== null && confirms(receipt, assertion)).length
    if (confirming >= needed) return []
    const nulls = receipts.filter(receipt => receipt === null).length
    return [{ assertion, receipts, nulls, against: receipts.length - nulls - confirming }]
  })
  const without = await bodiesWithout(
    ctx,
    network,
    open.flatMap(({ assertion, nulls }) => (nulls > 0 ? [assertion] : [])),
  )
  let unproven: string | undefined
  for (const { assertion, receipts, nulls, against } of open) {
    const bodies = nulls > 0 ? without(assertion) : 0
    if (against + Math.min(nulls, bodies) >= needed)
      return { finding: { table: assertion.table, id: assertion.id, words: wordsFor(assertion, receipts) } }
    // An endpoint that pruned its receipts returns null for an old transaction.
    if (against > 0 || bodies > 0) unproven ??= wordsFor(assertion, receipts)
  }
  return unproven === undefined ? {} : { unproven }
}

/**
 * Yields the items in parts that concern at most a hundred transactions each. Each part has its own view of the chain,
 * so that one part's reads do not stay in memory for the next.
 */
export async function* inParts<T>(
  ctx: Context,
  network: Network,
  { finalized }: QuorumView,
  things: readonly T[],
  hashOf: (thing: T) => Hash,
): AsyncGenerator<{ quorum: Quorum; part: T[] }> {
  const byHash = [...Map.groupBy(things, hashOf).values()]
  for (let start = 0; start < byHash.length; start += HASHES_OF_A_PART) {
    const quorum = await openQuorum(network, finalized, ctx.signal)
    yield { quorum, part: byHash.slice(start, start + HASHES_OF_A_PART).flat() }
  }
}

/**
 * Reads transfers' receipts from all endpoints. Returns the positions of those transfers that a quorum reports in a
 * block on which it agrees.
 */
export async function provenAmong(
  network: Network,
  quorum: Quorum,
  transfers: readonly (Movement & { txHash: Hash; blockNumber: bigint })[],
): Promise<Set<number>> {
  const needed = quorumOf(network)
  await quorum.learn(
    transfers.map(({ blockNumber }) => blockNumber),
    transfers.map(({ txHash }) => txHash),
  )
  const proven = transfers.flatMap((transfer, i) => {
    const receipts = quorum.receiptsOf(transfer.txHash).filter(receipt => receipt !== null)
    return receipts.filter(receipt => holds(receipt, transfer)).length >= needed ? [i] : []
  })
  return new Set(proven)
}

/**
 * Returns a function that counts the endpoints that have another block at an assertion's height, or that have its block
 * without its transaction. Each height is read once.
 */
async function bodiesWithout(
  ctx: Context,
  { endpoints }: Network,
  assertions: readonly ChainAssertion[],
): Promise<(assertion: ChainAssertion) => number> {
  const heights = [...new Set(assertions.map(({ blockNumber }) => blockNumber))]
  const calls = heights.map(height => ({ method: "eth_getBlockByNumber", params: [hexNumber(height), false] }))
  const bodies = await Promise.all(
    endpoints.map(async endpoint => {
      const results = calls.length === 0 ? undefined : await ask(endpoint, calls, ctx.signal)
      return new Map(heights.map((height, i) => [height, bodyIn(results?.[i])]))
    }),
  )
  return ({ blockNumber, blockHash, txHash }) =>
    bodies.filter(byHeight => {
      const body = byHeight.get(blockNumber)
      return body !== undefined && (body.hash !== blockHash || !body.transactions.has(txHash))
    }).length
}

function bodyIn(result: RpcResult | undefined): { hash: unknown; transactions: ReadonlySet<unknown> } | undefined {
  const block = result?.ok ? (result.value as { hash?: unknown; transactions?: unknown } | null) : null
  if (!block || !Array.isArray(block.transactions)) return undefined
  return { hash: block.hash, transactions: new Set(block.transactions) }
}

/** The most transfers of a receipt that a sentence names. */
const MAX_NAMED = 5

function wordsFor(assertion: ChainAssertion, receipts: readonly (Receipt | null)[]): string {
  const { table, id, txHash, value, token, from, to, blockNumber, moved } = assertion
  const says = moved
    ? `moved ${value} of ${token} from ${from} to ${to} in block ${blockNumber}`
    : `failed in block ${blockNumber}`
  const receipt = receipts.find(each => each !== null)
  const near = receipt?.transfers.filter(each => each.from === from || each.to === to).slice(0, MAX_NAMED) ?? []
  const chain = !receipt
    ? "the chain has no such transaction there"
    : `the chain says, in block ${receipt.blockNumber}: ${
        near.map(each => `${each.value} of ${each.token} from ${each.from} to ${each.to}`).join(", ") || "nothing moved"
      }`
  return `the row ${id} of ${table} says that ${txHash} ${says}; ${chain}`
}

function readOrNone(value: unknown): Receipt | undefined {
  try {
    return readReceipt(value)
  } catch {
    return undefined
  }
}
