/** Which transactions carried out agents' payments. */
import type { Hash } from "../chain/hex.ts"
import type { TxContext } from "../context.ts"

/** Those of the transactions in which agents' payments for a thing were carried out, by our relay or by anyone else. */
export async function settledHashes(
  ctx: TxContext,
  resourceId: string,
  hashes: readonly Hash[],
): Promise<ReadonlySet<Hash>> {
  if (hashes.length === 0) return new Set()
  const relayed = ctx.db
    .selectFrom("settlements")
    .innerJoin("payouts", join =>
      join.onRef("payouts.payer", "=", "settlements.payer").onRef("payouts.auth_nonce", "=", "settlements.nonce"),
    )
    .innerJoin("transaction_attempts", "transaction_attempts.payout_id", "payouts.id")
    .select("transaction_attempts.hash as hash")
    .where("settlements.resource_id", "=", resourceId)
    .where("payouts.kind", "=", "settle")
    .where("transaction_attempts.hash", "in", [...hashes])
  const found = ctx.db
    .selectFrom("settlements")
    .select("found_hash as hash")
    .where("resource_id", "=", resourceId)
    .where("found_hash", "in", [...hashes])
  const rows = await relayed.unionAll(found.$castTo<{ hash: Hash }>()).execute()
  return new Set(rows.map(row => row.hash))
}
