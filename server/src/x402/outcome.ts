/** How a settlement stands: by its relay, or by whoever else carried the authorization out. */
import { sql } from "kysely"
import { pad, toEventSelector } from "viem"
import { type Hash, parseHash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { openQuorum } from "../chain/quorum.ts"
import { hexNumber, type RpcCall } from "../chain/rpc.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { askEach } from "../payouts/trials.ts"

/** EIP-3009: emitted when an authorization moves money; cancelling one emits another event. */
const AUTHORIZATION_USED = toEventSelector("AuthorizationUsed(address,bytes32)")
/** An authorization is searched in so many blocks: over five hours on Base. Nodes answer ranges of this size. */
const SEARCHED_BLOCKS = 10_000n

export type Outcome =
  | { state: "pending" }
  | { state: "settled"; txHash: Hash }
  /** Nothing was paid; `replayableUntil` where anyone can still carry it out until then (ISO time). */
  | { state: "failed"; words: string; replayableUntil?: string }

/** A settlement with the state of its relay; `is_free` where no request holds the right to serve it. */
export type Settlement = Row<"settlements"> &
  Pick<Row<"payouts">, "state" | "succeeded" | "tx_hash" | "held_detail" | "block_number"> & { is_free: boolean }

/** A settlement with the state of its relay. */
export const readSettlement = (ctx: TxContext, id: string): Promise<Settlement | undefined> =>
  ctx.db
    .selectFrom("settlements")
    .innerJoin("payouts", "payouts.id", "settlements.payout_id")
    .selectAll("settlements")
    .select(["payouts.state", "payouts.succeeded", "payouts.tx_hash", "payouts.held_detail", "payouts.block_number"])
    .select(sql<boolean>`settlements.claim_id is null or settlements.lease_until < clock_timestamp()`.as("is_free"))
    .where("settlements.id", "=", id)
    .executeTakeFirst()

/** The outcome by the rows alone; undefined where the chain has to be asked, because the relay moved nothing. */
export function outcomeOf({ state, succeeded, tx_hash, found_hash }: Settlement): Outcome | undefined {
  if (found_hash !== null) return { state: "settled", txHash: found_hash }
  if (succeeded && tx_hash !== null) return { state: "settled", txHash: tx_hash }
  return succeeded === false || state === "cancelled" ? undefined : { state: "pending" }
}

/**
 * The outcome of a settlement. Where its relay moved nothing, another transaction may have: the authorization is public once it
 * was broadcast. Pending while too few endpoints answer.
 */
export async function resolveOutcome(ctx: Context, network: Network, settlement: Settlement): Promise<Outcome> {
  const known = outcomeOf(settlement)
  if (known) return known
  const found = await findCarriedOut(ctx, network, settlement)
  if (found === undefined) return { state: "pending" }
  if (found !== null) {
    await ctx.db
      .updateTable("settlements")
      .set({ found_hash: found, updated_at: ctx.now() })
      .where("id", "=", settlement.id)
      .where("found_hash", "is", null)
      .execute()
    return { state: "settled", txHash: found }
  }
  if (settlement.state === "cancelled")
    return { state: "failed", words: settlement.held_detail ?? "It was not carried out." }
  const words = "The transfer that was authorized failed on chain."
  const untilMs = Number(settlement.valid_before) * 1_000
  if (untilMs <= ctx.now().getTime()) return { state: "failed", words }
  return { state: "failed", words, replayableUntil: new Date(Math.min(untilMs, 8.64e15)).toISOString() }
}

/**
 * The transaction that used an authorization and moved its money; null where a quorum has none, undefined where this is not known.
 * That a nonce is used proves nothing by itself, as cancelling uses it too.
 */
async function findCarriedOut(
  ctx: Context,
  network: Network,
  { payer, nonce, pay_to: payTo, amount, token, from_block: from }: Settlement,
): Promise<Hash | null | undefined> {
  const topics = [AUTHORIZATION_USED, pad(payer), nonce]
  const range = { fromBlock: hexNumber(from), toBlock: hexNumber(from + SEARCHED_BLOCKS) }
  const call: RpcCall = { method: "eth_getLogs", params: [{ address: token, topics, ...range }] }
  const answers = await askEach(network, [call], ctx.signal)
  const lists = answers.flatMap(results => (results?.[0]?.ok ? [hashesOf(results[0].value)] : []))
  const needed = quorumOf(network)
  if (lists.length < needed) return undefined
  const candidates = [...new Set(lists.flat())].filter(
    hash => lists.filter(list => list.includes(hash)).length >= needed,
  )
  if (candidates.length === 0) return lists.filter(list => list.length === 0).length >= needed ? null : undefined
  const quorum = await openQuorum(network, 0n, ctx.signal)
  await quorum.learn([], candidates)
  for (const hash of candidates) {
    const receipt = quorum.receiptOf(hash)
    if (receipt === undefined) return undefined
    const moved = receipt?.transfers.some(
      each => each.token === token && each.from === payer && each.to === payTo && each.value === amount,
    )
    if (receipt?.succeeded && moved) return hash
  }
  return null
}

/** The transactions of a list of logs; none where the answer is no list. */
function hashesOf(logs: unknown): Hash[] {
  if (!Array.isArray(logs)) return []
  return logs.flatMap(log => (log?.removed === true ? [] : (parseHash(log?.transactionHash) ?? [])))
}
