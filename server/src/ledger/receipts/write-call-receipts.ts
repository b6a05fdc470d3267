/** Writes the receipts of an escrow's calls: one when a call counts, and a reversal when a reorg removes the call. */
import { sql } from "kysely"
import { tokenStoreOf } from "../../platform/chain/escrow-deployments.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/**
 * Writes the missing receipts in one statement: a receipt for each capture, release and refund among `counting`, and a
 * reversal for each other call that had a receipt. Call this in the transaction that writes the escrow.
 */
export async function writeCallReceipts(
  ctx: TxContext,
  escrow: Pick<Row<"escrows">, "session_id" | "escrow" | "operator">,
  counting: ReadonlySet<string>,
): Promise<void> {
  // The address that pays money out of the escrow; refunds pass through it too.
  const from = tokenStoreOf(escrow.escrow, escrow.operator)
  await sql`
    insert into receipts (merchant_id, chain_id, type, resource_id, about, token, amount, body, settled_at)
    select e.merchant_id, e.chain_id, case when c.counts then i.kind else 'reversed' end, e.session_id, i.id::text, i.token, i.amount,
      case when c.counts then jsonb_build_object('payer', e.payer, 'merchant', m.name,
        'escrow', jsonb_build_object('address', e.escrow, 'authId', e.auth_id),
        'transfers', jsonb_build_array(jsonb_build_object('txHash', i.tx_hash, 'blockHash', i.block_hash, 'blockNumber', i.block_number,
          'k', 0, 'from', ${from}::text, 'to', i.recipient, 'amount', i.amount::text)),
        'what', jsonb_build_object('description', s.description, 'metadata', s.metadata, 'answers', s.payer_info))
      else jsonb_build_object('payer', coalesce(e.payer, i.recipient)) end, ${ctx.now()}
    from payouts i join escrows e on e.session_id = i.escrow_id join checkout_sessions s on s.id = e.session_id
      join merchants m on m.id = e.merchant_id
      cross join lateral (select i.id = any(${sqlArray("uuid", [...counting])}) as counts) c
    where i.escrow_id = ${escrow.session_id} and i.kind in ('capture', 'void', 'refund') and c.counts <> coalesce(
      (select r.type <> 'reversed' from receipts r where r.about = i.id::text order by r.n desc limit 1), false)`.execute(
    ctx.db,
  )
}
