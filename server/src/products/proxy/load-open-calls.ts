/**
 * Reads a bundle's money for settlement. An agent makes thousands of calls, so these queries read what is due, and
 * never all payments of a sender.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { remainingValueColumns } from "../../platform/db/remaining-value.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { AccessTransfer } from "../paywalls/plan-access.ts"

/** The most due transfers per transaction; the others stay due. */
export const DUE_CALLS = 2_000
/** How many of a sender's transfers that wait for the merchant's decision are read again, newest first. */
const WAITING = 2_000

/**
 * Reads this sender's confirmed transfers, in any token and in chain order, that count for no payment or for an open
 * or reversed one. Reads those that are due, and those that open or reversed payments claim.
 */
export async function openCalls(
  ctx: TxContext,
  bundleId: string,
  payer: Address,
  due: readonly bigint[],
): Promise<AccessTransfer[]> {
  const ids = sqlArray("bigint", due)
  const { rows } = await sql<AccessTransfer>`
    select * from (
      select t.*, ${remainingValueColumns}, p.id as payment_id, p.status as payment_status, p.payer as payment_payer from transfers t
        join deposits d on d.id = t.deposit_id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
      where d.resource_id = ${bundleId} and t.from_address = ${payer} and t.state in ('confirmed', 'final')
        and (p.id is null or p.status in ('reversed', 'open'))
        and t.id in (select unnest(${ids}) union all
          select k.transfer_id from payments w join claims k on k.payment_id = w.id
            where w.resource_id = ${bundleId} and w.payer = ${payer} and w.status in ('reversed', 'open'))
      order by t.id = any(${ids}) desc, t.block_number desc, t.log_index desc limit ${DUE_CALLS + WAITING}) as newest
    order by block_number, log_index`.execute(ctx.db)
  return rows
}
