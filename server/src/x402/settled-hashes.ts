/** Which transactions carried out agents' payments. */
import { sql } from "kysely"
import type { Hash } from "../chain/hex.ts"
import type { TxContext } from "../context.ts"
import { isKind } from "../db/is-kind.ts"
import type { Row } from "../db/schema.ts"
import { isAttemptOf } from "../payouts/batch-calls.ts"

/**
 * For each of these transactions, the amounts of the agents' payments for a thing that it carried out, by our relay or
 * by anyone else.
 */
export async function settledAmounts(
  ctx: TxContext,
  resourceId: string,
  hashes: readonly Hash[],
): Promise<ReadonlyMap<Hash, readonly bigint[]>> {
  if (hashes.length === 0) return new Map()
  const relayed = ctx.db
    .selectFrom("settlements")
    .innerJoin("payouts", join =>
      join.onRef("payouts.payer", "=", "settlements.payer").onRef("payouts.auth_nonce", "=", "settlements.nonce"),
    )
    .innerJoin("transaction_attempts", join => join.on(isAttemptOf))
    .select(["settlements.id", "settlements.amount", "transaction_attempts.hash as hash"])
    .where("settlements.resource_id", "=", resourceId)
    .where("payouts.kind", "=", "settle")
    .where("transaction_attempts.hash", "in", [...hashes])
  const found = ctx.db
    .selectFrom("settlements")
    .select(["id", "amount", "found_hash as hash"])
    .where("resource_id", "=", resourceId)
    .where("found_hash", "in", [...hashes])
  const rows = await relayed
    .$castTo<{ id: string; amount: bigint; hash: Hash }>()
    .union(found.$castTo<{ id: string; amount: bigint; hash: Hash }>())
    .execute()
  return new Map([...Map.groupBy(rows, row => row.hash)].map(([hash, each]) => [hash, each.map(row => row.amount)]))
}

/**
 * Lets the money that a transaction brought to a bundle be settled again: it carried out a payment, and may already wait
 * as money that bought nothing.
 */
export const settleAgain = (
  ctx: TxContext,
  { chain_id, resource_id }: Pick<Row<"settlements">, "chain_id" | "resource_id">,
  hash: Hash,
): Promise<unknown> =>
  sql`update transfers t set run_at = ${ctx.now()} from deposits d
    where t.chain_id = ${chain_id} and t.tx_hash = ${hash} and t.state in ('confirmed', 'final') and t.run_at is null
      and d.id = t.deposit_id and d.resource_id = ${resource_id} and ${isKind("d.resource_id", "bdl")}`.execute(ctx.db)
