/**
 * Compares what rows assert about the chain with receipts. A quorum of endpoints has to confirm an assertion; a quorum
 * has to contradict it before a wallet is halted; anything else is unproven. An error, or a null by itself, is never
 * evidence.
 */
import { ask, awake } from "../chain/endpoints.ts"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { Quorum } from "../chain/quorum.ts"
import { hexNumber } from "../chain/rpc.ts"
import { type Receipt, readReceipt, receiptCall } from "../chain/transfers.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import type { Compared } from "./report.ts"

/** A row's assertion that a transaction in a final block moved money, or (`moved` false) that it did not. */
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
  /** The position among the transfers to this address, from 0; undefined: any. */
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

/** Returns the assertion of a payout that ended in a block; `deposit` is the address of its deposit. */
export const payoutAssertion = (row: Row<"payouts"> & { deposit: Address }): ChainAssertion => ({
  table: "payouts",
  id: row.id,
  // The database refuses a final or reverted payout without these.
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

const holds = (receipt: Receipt, { token, from, to, value, k }: Movement): boolean =>
  receipt.succeeded &&
  receipt.transfers.some(
    each =>
      each.token === token &&
      each.from === from &&
      each.to === to &&
      each.value === value &&
      (k === undefined || each.k === k),
  )

const confirms = (receipt: Receipt, assertion: ChainAssertion): boolean =>
  receipt.blockHash === assertion.blockHash &&
  receipt.blockNumber === assertion.blockNumber &&
  holds(receipt, assertion) === assertion.moved

/**
 * Returns the first assertion that the chain contradicts; `unproven` is one that some endpoints contradict, but too
 * few.
 */
export async function checkAssertions(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  assertions: readonly ChainAssertion[],
): Promise<Compared> {
  if (assertions.length === 0) return {}
  // Each receipt once: one transaction may have hundreds of transfers, and its receipt contains them all.
  const hashes = [...new Set(assertions.map(assertion => assertion.txHash))]
  const calls = hashes.map(receiptCall)
  const needed = quorumOf(network)
  // As many endpoints as must agree, so that one that reported a log is never its only witness.
  const asked = awake(network.endpoints).slice(0, needed)
  const answers = await Promise.all(
    asked.map(async endpoint => {
      const results = await ask(endpoint, calls, ctx.signal)
      return new Map(hashes.map((hash, i) => [hash, results?.[i]?.ok ? readOrNone(results[i].value) : undefined]))
    }),
  )
  const doubtful = assertions.filter(assertion => {
    const receipts = answers.map(byHash => byHash.get(assertion.txHash))
    return (
      receipts.filter(receipt => receipt?.txHash === assertion.txHash && confirms(receipt, assertion)).length < needed
    )
  })
  if (doubtful.length === 0) return {}
  await quorum.learn(
    doubtful.map(assertion => assertion.blockNumber),
    doubtful.map(assertion => assertion.txHash),
  )
  let unproven: string | undefined
  for (const assertion of doubtful) {
    const receipts = quorum.receiptsOf(assertion.txHash)
    const confirming = receipts.filter(receipt => receipt !== null && confirms(receipt, assertion)).length
    if (confirming >= needed) continue
    const nulls = receipts.filter(receipt => receipt === null).length
    const against = receipts.length - nulls - confirming
    const bodies = nulls > 0 ? await bodiesWithout(ctx, network, assertion) : 0
    if (against + Math.min(nulls, bodies) >= needed)
      return { finding: { table: assertion.table, id: assertion.id, words: wordsFor(assertion, receipts) } }
    // An endpoint that pruned its receipts returns null for an old transaction.
    if (against > 0 || bodies > 0) unproven ??= wordsFor(assertion, receipts)
  }
  return unproven === undefined ? {} : { unproven }
}

/** Whether a quorum of endpoints reports this transfer, in a block that they agree on. */
export async function isProven(
  network: Network,
  quorum: Quorum,
  transfer: Movement & { txHash: Hash; blockNumber: bigint },
): Promise<boolean> {
  await quorum.learn([transfer.blockNumber], [transfer.txHash])
  const receipts = quorum.receiptsOf(transfer.txHash)
  return receipts.filter(receipt => receipt !== null && holds(receipt, transfer)).length >= quorumOf(network)
}

/** Counts the endpoints that have another block at an assertion's height, or the block without the transaction. */
async function bodiesWithout(ctx: Context, network: Network, assertion: ChainAssertion): Promise<number> {
  const call = { method: "eth_getBlockByNumber", params: [hexNumber(assertion.blockNumber), false] }
  const answers = await Promise.all(network.endpoints.map(endpoint => ask(endpoint, [call], ctx.signal)))
  return answers.filter(results => {
    const block = results?.[0]?.ok ? (results[0].value as { hash?: unknown; transactions?: unknown } | null) : null
    if (!block || !Array.isArray(block.transactions)) return false
    return block.hash !== assertion.blockHash || !block.transactions.includes(assertion.txHash)
  }).length
}

function wordsFor(assertion: ChainAssertion, receipts: readonly (Receipt | null)[]): string {
  const { table, id, txHash, value, token, from, to, blockNumber, moved } = assertion
  const says = moved
    ? `moved ${value} of ${token} from ${from} to ${to} in block ${blockNumber}`
    : `failed in block ${blockNumber}`
  const receipt = receipts.find(each => each !== null)
  const near = receipt?.transfers.filter(each => each.from === from || each.to === to) ?? []
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
