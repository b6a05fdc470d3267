/** Ends a buyer's submissions with the outcome of the payments that claim their transfers. */
import { type RawBuilder, sql } from "kysely"
import { alreadyUsed, type Failure, statusMessage } from "../../ledger/scanner/submission-faults.ts"
import { hashesClaimed } from "../../ledger/settlement/write-exceptions.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { FailureReason, Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/** Ends the submissions of these transactions as granted, because their payment was granted. */
export async function grantSubmissions(
  ctx: TxContext,
  paywallId: string,
  payer: Address,
  hashes: readonly Hash[],
): Promise<void> {
  const now = ctx.now()
  await ctx.db
    .updateTable("submissions")
    .set({ status: "granted", reason: null, message: statusMessage.granted, run_at: null, updated_at: now })
    // At most two rows are looked up for each hash. Otherwise a cached plan would read all submissions of this payer.
    .where(
      sql<boolean>`id in (select s.id from unnest(${sqlArray("text", hashes)}) h cross join lateral (select id from submissions
        where resource_id = ${paywallId} and address = ${payer} and tx_hash = h limit 2) s)`,
    )
    .modifyEnd(sql`/* named: grant_submissions */`)
    .execute()
}

/** Marks the granted submissions of a payment as `reversed`, because a reorg removed the payment. */
export async function reverseSubmissions(
  ctx: TxContext,
  paywallId: string,
  payer: Address,
  paymentId: string,
): Promise<void> {
  await sql`update submissions s set status = 'reversed', message = ${statusMessage.reversed}, updated_at = ${ctx.now()}
    from claims c join transfers t on t.id = c.transfer_id
    where c.payment_id = ${paymentId} and s.resource_id = ${paywallId} and s.address = ${payer} and s.tx_hash = t.tx_hash
      and s.status = 'granted'`.execute(ctx.db)
}

/** SQL: why the submission of a returned payment failed. Overpaid money counts as already used. */
const whyReturned = (exception: RawBuilder<unknown>) =>
  sql`coalesce(nullif(${exception}, 'overpaid'), ${alreadyUsed.reason})`

/** Ends the submissions of a payment that the merchant returns. */
export async function returnSubmissions(ctx: TxContext, payment: Row<"payments">): Promise<void> {
  await sql`update submissions set status = 'failed', reason = ${whyReturned(sql`${payment.exception}::text`)}, message = ${statusMessage.returned},
      run_at = null, updated_at = ${ctx.now()}
    where resource_id = ${payment.resource_id} and address = ${payment.payer} and status in ('verifying', 'failed', 'reversed')
      and tx_hash = any(${sqlArray("text", await hashesClaimed(ctx, payment.id))})`.execute(ctx.db)
}

/** Fails the submissions of these transactions with a reason, unless they are granted. */
export async function failSubmissions(
  ctx: TxContext,
  paywallId: string,
  payer: Address,
  hashes: readonly Hash[],
  { reason, message }: Failure & { reason: FailureReason },
): Promise<void> {
  if (hashes.length === 0) return
  await ctx.db
    .updateTable("submissions")
    .set({ status: "failed", reason, message, run_at: null, updated_at: ctx.now() })
    .where("resource_id", "=", paywallId)
    .where("address", "=", payer)
    .where(sql<boolean>`tx_hash = any(${sqlArray("text", hashes)})`)
    .where("status", "in", ["verifying", "failed"])
    .execute()
}

/** Ends submissions that arrived after a payment had claimed their transfer, with the outcome of that payment. */
export async function endClaimed(ctx: TxContext, paywallId: string, payer: Address): Promise<void> {
  // Starts from the few open submissions, instead of all payments of the payer.
  await sql`/* named: end_claimed */ update submissions s set run_at = null, updated_at = ${ctx.now()}, status = ended.status,
      reason = ended.reason, message = ended.message
    from (select v.id,
        case when p.status = 'returned' or g.revoked_by = 'merchant' then 'failed' else 'granted' end as status,
        case when p.status = 'returned' then ${whyReturned(sql.ref("p.exception"))} when g.revoked_by = 'merchant' then ${alreadyUsed.reason} end as reason,
        case when p.status = 'returned' then ${statusMessage.returned}
          when g.revoked_by = 'merchant' then ${alreadyUsed.message} else ${statusMessage.granted} end as message
      from submissions v join transfers t on t.chain_id = v.chain_id and t.tx_hash = v.tx_hash
        join claims c on c.transfer_id = t.id join payments p on p.id = c.payment_id
        left join grants g on g.payment_id = p.id
      where v.resource_id = ${paywallId} and v.address = ${payer} and v.status = 'verifying'
        and p.resource_id = ${paywallId} and p.payer = ${payer}
        and (p.status = 'returned' or (p.status = 'granted' and g.id is not null))) as ended
    where s.id = ended.id and s.status = 'verifying'`.execute(ctx.db)
}
