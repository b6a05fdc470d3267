/** How a settlement stands: by its relay, or by whoever else carried the authorization out. */
import { sql } from "kysely"
import { pad, toEventSelector } from "viem"
import { type Hash, parseHash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { openQuorum } from "../chain/quorum.ts"
import { hexNumber, type RpcCall, RpcError, type RpcResult } from "../chain/rpc.ts"
import type { Receipt, Transfer } from "../chain/transfers.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context, TxContext } from "../context.ts"
import type { Db } from "../db/open.ts"
import type { Row } from "../db/schema.ts"
import { gatherBy } from "../jobs/gather.ts"
import { stateCall } from "../payouts/relays.ts"
import { askEach } from "../payouts/trials.ts"

/** EIP-3009: emitted when an authorization moves money, and when its wallet cancels it. */
const AUTHORIZATION_USED = toEventSelector("AuthorizationUsed(address,bytes32)")
const AUTHORIZATION_CANCELED = toEventSelector("AuthorizationCanceled(address,bytes32)")
/** An authorization is searched in so many blocks: over five hours on Base. Nodes answer ranges of this size. */
const SEARCHED_BLOCKS = 10_000n
/** So long after an authorization has ended, the chain is not asked about it again. */
const SETTLED_MS = 3_600_000
const NOT_CARRIED_OUT = "It was not carried out."

export type Outcome =
  | { state: "pending" }
  | { state: "settled"; txHash: Hash }
  /** Nothing was paid; `replayableUntil` where anyone can still carry it out until then (ISO time). */
  | { state: "failed"; words: string; replayableUntil?: string }

/** A settlement with the state of its relay; `is_free` where no request holds the right to serve it. */
export type Settlement = Row<"settlements"> &
  Pick<Row<"payouts">, "state" | "succeeded" | "tx_hash" | "held_detail" | "block_number"> & { is_free: boolean }

/** A settlement with the state of its relay. Whoever waits for one reads at each wake-up, so that reads come by the dozen. */
export const readSettlement = (ctx: TxContext, id: string): Promise<Settlement | undefined> => settlementsOf(ctx.db, id)

const settlementsOf = gatherBy(async (db: Db, ids: readonly string[]): Promise<Map<string, Settlement>> => {
  const rows = await db
    .selectFrom("settlements")
    .innerJoin("payouts", "payouts.id", "settlements.payout_id")
    .selectAll("settlements")
    .select(["payouts.state", "payouts.succeeded", "payouts.tx_hash", "payouts.held_detail", "payouts.block_number"])
    .select(sql<boolean>`settlements.claim_id is null or settlements.lease_until < clock_timestamp()`.as("is_free"))
    .where("settlements.id", "in", ids)
    .execute()
  return new Map(rows.map(row => [row.id, row]))
})

/** The outcome by the rows alone; undefined where the chain has to be asked, because the relay moved nothing. */
export function outcomeOf({ state, succeeded, tx_hash, found_hash, failed_at }: Settlement): Outcome | undefined {
  if (found_hash !== null) return { state: "settled", txHash: found_hash }
  if (succeeded && tx_hash !== null) return { state: "settled", txHash: tx_hash }
  if (failed_at !== null) return { state: "failed", words: NOT_CARRIED_OUT }
  return succeeded === false || state === "cancelled" ? undefined : { state: "pending" }
}

/**
 * The outcome of a settlement. Where its relay moved nothing, another transaction may have: the authorization is public once it
 * was broadcast. Pending while too few endpoints answer.
 */
export async function resolveOutcome(ctx: Context, network: Network, settlement: Settlement): Promise<Outcome> {
  const known = outcomeOf(settlement)
  if (
    known &&
    !(
      settlement.found_hash !== null &&
      !settlement.found_final &&
      (await unlessSilent(isGone(ctx, network, settlement)))
    )
  )
    return known
  const found = await unlessSilent(findCarriedOut(ctx, network, settlement))
  if (found === undefined) return { state: "pending" }
  if (found !== null) {
    await ctx.db
      .updateTable("settlements")
      .set({ found_hash: found.txHash, found_block: found.blockNumber, updated_at: ctx.now() })
      .where("id", "=", settlement.id)
      .where("found_hash", "is", null)
      .execute()
    return { state: "settled", txHash: found.txHash }
  }
  const untilMs = Number(settlement.valid_before) * 1_000
  if (untilMs + SETTLED_MS <= ctx.now().getTime()) await noteFailed(ctx, settlement.id)
  if (settlement.state === "cancelled") return { state: "failed", words: settlement.held_detail ?? NOT_CARRIED_OUT }
  const words = "The transfer that was authorized failed on chain."
  if (untilMs <= ctx.now().getTime()) return { state: "failed", words }
  return { state: "failed", words, replayableUntil: new Date(Math.min(untilMs, 8.64e15)).toISOString() }
}

/** Whether a reorg removed the transaction that was found, or what it did; noted as final where that can't happen any more. */
async function isGone(ctx: Context, network: Network, settlement: Settlement): Promise<boolean> {
  const { id, found_hash: hash } = settlement
  if (hash === null) return false
  const quorum = await openQuorum(network, 0n, ctx.signal)
  await quorum.learn([], [hash])
  const receipt = quorum.receiptOf(hash)
  if (receipt === undefined) return false
  const isThere = receipt?.succeeded && receipt.transfers.some(each => isOurs(each, settlement))
  const now = isThere
    ? { found_final: receipt.blockNumber <= quorum.finalized, found_block: receipt.blockNumber }
    : { found_hash: null, found_block: null }
  await ctx.db.updateTable("settlements").set(now).where("id", "=", id).where("found_hash", "=", hash).execute()
  return !isThere
}

const isOurs = (
  { token, from, to, value }: Transfer,
  { token: asset, payer, pay_to: payTo, amount }: Settlement,
): boolean => token === asset && from === payer && to === payTo && value === amount

/** What endpoints say; undefined where too few answer. */
const unlessSilent = <T>(work: Promise<T>): Promise<T | undefined> =>
  work.catch(error => {
    if (error instanceof RpcError) return undefined
    throw error
  })

const noteFailed = (ctx: TxContext, id: string) =>
  ctx.db
    .updateTable("settlements")
    .set({ failed_at: ctx.now() })
    .where("id", "=", id)
    .where("found_hash", "is", null)
    .execute()

/**
 * The transaction that used an authorization and moved its money; null where a quorum has none, undefined where this is not known.
 * That a nonce is used proves nothing by itself: cancelling uses it too, and a payer may sign the same nonce for another amount. A
 * token emits the transfer of an authorization right after the authorization's own event, so the transfer that counts has the next
 * index; any number of nonces could point at one transfer elsewhere in the transaction.
 */
async function findCarriedOut(
  ctx: Context,
  network: Network,
  settlement: Settlement,
): Promise<Pick<Receipt, "txHash" | "blockNumber"> | null | undefined> {
  const { payer, nonce, token, from_block: from } = settlement
  const quorum = await openQuorum(network, 0n, ctx.signal)
  const topics = [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], pad(payer), nonce]
  // Nodes refuse a range that ends beyond their head.
  const to = quorum.head < from + SEARCHED_BLOCKS ? quorum.head : from + SEARCHED_BLOCKS
  if (to < from) return undefined
  const range = { fromBlock: hexNumber(from), toBlock: hexNumber(to) }
  const call: RpcCall = { method: "eth_getLogs", params: [{ address: token, topics, ...range }] }
  const answers = await askEach(network, [call, stateCall(network, payer, nonce)], ctx.signal)
  const lists = answers.flatMap(results => (results?.[0]?.ok ? [usesOf(results[0].value)] : []))
  const needed = quorumOf(network)
  if (lists.length < needed) return undefined
  const agreed = lists
    .flat()
    .filter((use, i, all) => all.findIndex(each => isSame(each, use)) === i)
    .filter(use => lists.filter(list => list.some(each => isSame(each, use))).length >= needed)
  // A node without the log may lag behind the one that called the nonce used: only an unused nonce proves that nothing was paid.
  const unused = answers.filter(
    results => results?.[0]?.ok && usesOf(results[0].value).length === 0 && isZero(results[1]),
  )
  if (agreed.length === 0) return unused.length >= needed ? null : undefined
  await quorum.learn(
    [],
    agreed.map(({ txHash }) => txHash),
  )
  for (const { txHash, logIndex } of agreed) {
    const receipt = quorum.receiptOf(txHash)
    // Its log was agreed on a moment ago: a receipt that is missing now is no evidence that nothing was paid.
    if (!receipt) return undefined
    const transfer = receipt.transfers.find(each => each.logIndex === logIndex + 1)
    if (receipt.succeeded && transfer && isOurs(transfer, settlement)) return receipt
  }
  return null
}

const isZero = (result: RpcResult | undefined): boolean => result?.ok === true && /^0x0+$/.test(`${result.value}`)

/** Where a log stands. */
interface Use {
  txHash: Hash
  logIndex: number
}

const isSame = (a: Use, b: Use): boolean => a.txHash === b.txHash && a.logIndex === b.logIndex

/** The places of a list of logs; none where the answer is no list. */
function usesOf(logs: unknown): Use[] {
  if (!Array.isArray(logs)) return []
  return logs.flatMap(log => {
    const txHash = log?.removed === true ? undefined : parseHash(log?.transactionHash)
    const isIndex = typeof log?.logIndex === "string" && /^0x[0-9a-f]{1,8}$/i.test(log.logIndex)
    return txHash && isIndex ? [{ txHash, logIndex: Number(log.logIndex) }] : []
  })
}
