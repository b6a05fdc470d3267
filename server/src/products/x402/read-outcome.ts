/** Determines the outcome of a settlement, whether its relay or someone else executed the authorization. */
import { type RawBuilder, sql } from "kysely"
import { findUse, isPermitted, type Permitted } from "../../ledger/relays/find-use.ts"
import { TOO_LATE, wasSigned } from "../../ledger/relays/read-relay-status.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { unlessSilent } from "../../platform/chain/rpc.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { settleAgain } from "./settle-again.ts"
import { settlementColumns } from "./settlement-columns.ts"

/** How long after the end of an authorization the chain is still queried about it. */
const SETTLED_MS = 3_600_000
const NOT_CARRIED_OUT = "It was not executed."
/** This is not final: the chain is queried again each time, because a reorg may restore the nonce. */
const USED_OTHERWISE = "The wallet cancelled the authorization, or used its nonce for something else."

export type Outcome =
  | { state: "pending" }
  | { state: "settled"; txHash: Hash }
  /** Nothing was paid. `replayableUntil`: the time (ISO) until which anyone can still execute the authorization. */
  | { state: "failed"; words: string; replayableUntil?: string }

/** A settlement with the state of its relay. `is_free`: whether no request holds the right to serve it. */
export type Settlement = Row<"settlements"> &
  Pick<Row<"payouts">, "state" | "succeeded" | "tx_hash" | "held_detail" | "block_number"> & { is_free: boolean }

/**
 * Reads a settlement with the state of its relay. Requests that wait for a settlement read it at each wake-up, so
 * concurrent reads share a statement.
 */
export const readSettlement = (ctx: TxContext, id: string): Promise<Settlement | undefined> => settlementsOf(ctx.db, id)

/** Like {@link readSettlement}, but undefined while the rows say pending, as they do for most requests that wait. */
export const readUnlessPending = (ctx: TxContext, id: string): Promise<Settlement | undefined> => movedOf(ctx.db, id)

async function rowsOf(
  db: Db,
  ids: readonly string[],
  name: "/* named: settlements */" | "/* named: moved_settlements */",
  which: RawBuilder<unknown>,
): Promise<Map<string, Settlement>> {
  const wanted = ids.map(id => ({ id }))
  const { rows } = await sql<Settlement>`
    ${sql.raw(name)} select ${settlementColumns}, i.state, i.succeeded, i.tx_hash, i.held_detail, i.block_number,
      (s.claim_id is null or s.lease_until < clock_timestamp()) as is_free
    from (${rowsParameter(wanted, "id text")}) k join settlements s on s.id = k.id join payouts i on i.id = s.payout_id
    where ${which}`.execute(db)
  return new Map(rows.map(row => [row.id, row]))
}

const settlementsOf = gatherBy((db: Db, ids: readonly string[]) =>
  rowsOf(db, ids, "/* named: settlements */", sql`true`),
)

/** SQL: whether {@link outcomeOf} returns anything but `pending`. */
const isMoved = sql`(s.found_hash is not null or s.failed_at is not null or i.succeeded is not null
  or i.state = 'cancelled')`

const movedOf = gatherBy((db: Db, ids: readonly string[]) => rowsOf(db, ids, "/* named: moved_settlements */", isMoved))

/** The outcome according to the rows alone; undefined if the relay moved nothing, so that the chain must be queried. */
export function outcomeOf({ state, succeeded, tx_hash, found_hash, failed_at }: Settlement): Outcome | undefined {
  if (found_hash !== null) return { state: "settled", txHash: found_hash }
  if (succeeded && tx_hash !== null) return { state: "settled", txHash: tx_hash }
  if (failed_at !== null) return { state: "failed", words: NOT_CARRIED_OUT }
  return succeeded === false || state === "cancelled" ? undefined : { state: "pending" }
}

/**
 * The outcome of a settlement. If its relay moved nothing, another transaction may have moved the money, because a
 * broadcast authorization is public. The outcome is pending while too few endpoints answer.
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
  const found = await unlessSilent(findUse(ctx, network, permittedOf(settlement), settlement.from_block))
  if (found === undefined) return { state: "pending" }
  if (found !== null && found !== "used") {
    await ctx.db
      .updateTable("settlements")
      .set({ found_hash: found.txHash, found_block: found.blockNumber, updated_at: ctx.now() })
      .where("id", "=", settlement.id)
      .where("found_hash", "is", null)
      .execute()
    await settleAgain(ctx, settlement, found.txHash)
    ctx.wakes.wakeSparingly("payments", [settlement.id])
    return { state: "settled", txHash: found.txHash }
  }
  const untilMs = Number(settlement.valid_before) * 1_000
  if (untilMs + SETTLED_MS <= ctx.now().getTime()) await noteFailed(ctx, settlement.id)
  if (settlement.state === "cancelled") return { state: "failed", words: settlement.held_detail ?? NOT_CARRIED_OUT }
  if (!(await isSignedRelay(ctx, settlement))) return { state: "failed", words: TOO_LATE }
  if (found === "used") return { state: "failed", words: USED_OTHERWISE }
  const words = "The authorized transfer failed on chain."
  if (untilMs <= ctx.now().getTime()) return { state: "failed", words }
  return { state: "failed", words, replayableUntil: new Date(Math.min(untilMs, 8.64e15)).toISOString() }
}

async function isSignedRelay(ctx: TxContext, { payout_id }: Settlement): Promise<boolean> {
  const relay = await ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("id", "=", payout_id)
    .where(wasSigned)
    .executeTakeFirst()
  return relay !== undefined
}

/** Outcomes that were recently read from the chain, by relay and found transaction. */
const lately = new Map<string, { until: number; outcome: Promise<Outcome> }>()
/** How long an answer from the chain is reused for status requests. */
const FRESH_MS = 15_000
const MAX_KEPT = 1_000

/**
 * The outcome of a settlement for status requests, which may be frequent. The chain is queried about each relay at
 * most once in 15 seconds. Who may pay or be served is decided by {@link resolveOutcome} instead.
 */
export function recentOutcome(ctx: Context, network: Network, settlement: Settlement): Promise<Outcome> {
  const known = outcomeOf(settlement)
  if (known && (settlement.found_hash === null || settlement.found_final)) return Promise.resolve(known)
  const now = ctx.now().getTime()
  const key = `${settlement.payout_id} ${settlement.found_hash}`
  const before = lately.get(key)
  if (before && before.until > now) return before.outcome
  const outcome = resolveOutcome(ctx, network, settlement)
  if (lately.size >= MAX_KEPT) lately.clear()
  lately.set(key, { until: now + FRESH_MS, outcome })
  const forget = () => lately.delete(key)
  // The row now contains the transaction that was found, and a reorg may remove that transaction.
  outcome.then(({ state }) => void (state === "settled" && settlement.found_hash === null && forget()), forget)
  return outcome
}

/**
 * Whether a reorg removed the transaction that was found, or its effect. Once that is no longer possible, the
 * transaction is recorded as final.
 */
async function isGone(ctx: Context, network: Network, settlement: Settlement): Promise<boolean> {
  const { id, found_hash: hash } = settlement
  if (hash === null) return false
  const quorum = await openQuorum(network, 0n, ctx.signal)
  await quorum.learn([], [hash])
  const receipt = quorum.receiptOf(hash)
  if (receipt === undefined) return false
  const isThere = receipt?.succeeded && receipt.transfers.some(each => isPermitted(each, permittedOf(settlement)))
  const now = isThere
    ? { found_final: receipt.blockNumber <= quorum.finalized, found_block: receipt.blockNumber }
    : { found_hash: null, found_block: null }
  await ctx.db.updateTable("settlements").set(now).where("id", "=", id).where("found_hash", "=", hash).execute()
  return !isThere
}

/** The transfer that a settlement's authorization permits. */
const permittedOf = ({ token, payer, nonce, pay_to: payTo, amount }: Settlement): Permitted => ({
  token,
  payer,
  nonce,
  payTo,
  amount,
})

const noteFailed = (ctx: TxContext, id: string) =>
  ctx.db
    .updateTable("settlements")
    .set({ failed_at: ctx.now() })
    .where("id", "=", id)
    .where("found_hash", "is", null)
    .execute()
