/**
 * Ends the calls of a batch in the statement that writes the batch's state, each call as the receipt of the transaction
 * shows.
 */
import { sql } from "kysely"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Receipt } from "../../platform/chain/transfers.ts"
import type { TxContext } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

const COLUMNS = [
  "id",
  "batch_id",
  "kind",
  "lane",
  "token",
  "payer",
  "auth_nonce",
  "recipient",
  "amount",
  "payment_id",
  "escrow_id",
  "deposit_id",
  "traceparent",
  "succeeded",
] as const satisfies (keyof Row<"payouts">)[]

/** SQL: whether a row of `transaction_attempts` submits a row of `payouts`, alone or in a batch. */
export const isAttemptOf = sql<boolean>`transaction_attempts.payout_id in (payouts.id, payouts.batch_id)`

/**
 * SQL: the relays that these transactions submit, alone or in a batch, with the transaction's `hash`. The query has two
 * halves because each half has its own index.
 */
export const relaysBy = (hashes: Iterable<Hash>) => {
  const half = (
    id: "id" | "batch_id",
  ) => sql`select i.chain_id, i.kind, i.token, i.payer, i.auth_nonce, i.deposit_id, a.hash
    from transaction_attempts a join payouts i on i.${sql.ref(id)} = a.payout_id where a.hash = any(${sqlArray("text", hashes)})`
  return sql`(${half("id")} union all ${half("batch_id")})`
}

/** A call of a batch. */
export type BatchCall = Pick<Row<"payouts">, (typeof COLUMNS)[number]>

/** Returns the calls of the batches among these payouts, by batch id. */
export async function callsOf(
  ctx: TxContext,
  payouts: readonly Pick<Row<"payouts">, "id" | "kind">[],
): Promise<Map<string, BatchCall[]>> {
  const ids = payouts.flatMap(({ id, kind }) => (kindOf({ kind }).isBatch ? [id] : []))
  if (ids.length === 0) return new Map()
  const calls = await ctx.db.selectFrom("payouts").select(COLUMNS).where("batch_id", "in", ids).execute()
  return Map.groupBy(calls, call => call.batch_id ?? "")
}

/** Whether a token accepted this call's authorization in the transaction. */
export const isUsedIn = ({ uses }: Pick<Receipt, "uses">, { token, payer, auth_nonce: nonce }: BatchCall): boolean =>
  uses.some(use => use.token === token && use.payer === payer && use.nonce === nonce)

/**
 * Whether a batch's receipt has a transfer for each call that used its authorization, and no transfer for a call that
 * did not use it. Each transfer counts for one call.
 */
export function hasAllTransfers(receipt: Pick<Receipt, "uses" | "transfers">, calls: readonly BatchCall[]): boolean {
  const left = receipt.transfers.map(({ token, from, to, value }) => `${token} ${from} ${to} ${value}`)
  const transferOf = ({ token, payer, recipient, amount }: BatchCall) =>
    left.indexOf(`${token} ${payer} ${recipient} ${amount}`)
  const [used, unused] = [true, false].map(isUsed => calls.filter(call => isUsedIn(receipt, call) === isUsed))
  const hasEach = used?.every(call => {
    const i = transferOf(call)
    if (i >= 0) left.splice(i, 1)
    return i >= 0
  })
  return hasEach === true && unused?.every(call => transferOf(call) < 0) === true
}
