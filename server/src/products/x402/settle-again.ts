/** Finds the transactions that executed agents' payments, and settles their money again. */
import { sql } from "kysely"
import { relaysBy } from "../../ledger/txmanager/read-batch-calls.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { isKind } from "../../platform/db/is-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/**
 * For each of these transactions, the amounts of the agents' payments for a resource that the transaction executed.
 * The transaction may be our relay or someone else's.
 */
export async function settledAmounts(
  ctx: TxContext,
  resourceId: string,
  hashes: readonly Hash[],
): Promise<ReadonlyMap<Hash, readonly bigint[]>> {
  if (hashes.length === 0) return new Map()
  const { rows } = await sql<{ id: string; amount: bigint; hash: Hash }>`
    select s.id, s.amount, r.hash from ${relaysBy(hashes)} r join settlements s on s.chain_id = r.chain_id
      and s.token = r.token and s.payer = r.payer and s.nonce = r.auth_nonce
    where r.kind = 'settle' and s.resource_id = ${resourceId}
    union select id, amount, found_hash from settlements
    where resource_id = ${resourceId} and found_hash = any(${sqlArray("text", hashes)})`.execute(ctx.db)
  return new Map([...Map.groupBy(rows, row => row.hash)].map(([hash, each]) => [hash, each.map(row => row.amount)]))
}

/**
 * Makes the money that a transaction brought to a bundle or a paywall due for settlement again. Such a transaction
 * executed a payment. Its money may already wait as unexpected, or for its sender to submit the hash.
 */
export const settleAgain = (
  ctx: TxContext,
  { chain_id, resource_id }: Pick<Row<"settlements">, "chain_id" | "resource_id">,
  hash: Hash,
): Promise<unknown> =>
  sql`update transfers t set run_at = ${ctx.now()} from deposits d
    where t.chain_id = ${chain_id} and t.tx_hash = ${hash} and t.state in ('confirmed', 'final')
      and (t.run_at is null or t.run_at > ${ctx.now()}) and d.id = t.deposit_id and d.resource_id = ${resource_id}
      and (${isKind("d.resource_id", "bdl")} or ${isKind("d.resource_id", "pw")})`.execute(ctx.db)
