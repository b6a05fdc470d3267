/**
 * The money at a bundle that is settled. An agent makes thousands of calls, so what is read goes by what is due, and never by
 * all that a sender has paid.
 */
import { sql } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import { sqlArray } from "../db/sql-array.ts"
import type { AccessTransfer } from "../paywalls/plan-access.ts"

/** Due transfers that one transaction settles; the others stay due. Each is a payment with its payouts. */
export const CALLS_A_BATCH = 100
/** Transfers of a sender that wait for the merchant and are read again: the newest. */
const WAITING = 2_000

/**
 * The due transfers of these senders to a bundle, and those that a payment of theirs claims, held until the transaction ends. Not
 * those that are only seen: their confirmation makes them due.
 */
export async function lockDueCalls(
  ctx: TxContext,
  network: NetworkInfo,
  bundleId: string,
  payers: readonly Address[],
): Promise<bigint[]> {
  const { rows } = await sql<{ id: bigint }>`
    select t.id from transfers t where t.id in (
      select s.id from transfers s left join claims c on c.transfer_id = s.id left join payments p on p.id = c.payment_id
      where s.chain_id = ${network.chainId} and s.run_at <= ${ctx.now()} and s.state <> 'seen'
        and s.deposit_id in (select id from deposits where resource_id = ${bundleId})
        and (s.from_address in (${sql.join(payers)}) or p.payer in (${sql.join(payers)})))
    order by t.id limit ${CALLS_A_BATCH} for no key update of t`.execute(ctx.db)
  return rows.map(row => row.id)
}

/**
 * Confirmed transfers of this sender, in any token, that count for no payment, or for one that waits or was reversed: those that
 * are due, which are never left out, and those of such payments. In chain order.
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
      select t.*, p.id as payment_id, p.status as payment_status, p.payer as payment_payer from transfers t
        join deposits d on d.id = t.deposit_id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
      where d.resource_id = ${bundleId} and t.from_address = ${payer} and t.state in ('confirmed', 'final')
        and (p.id is null or p.status in ('reversed', 'open'))
        and t.id in (select unnest(${ids}) union all
          select k.transfer_id from payments w join claims k on k.payment_id = w.id
            where w.resource_id = ${bundleId} and w.payer = ${payer} and w.status in ('reversed', 'open'))
      order by t.id = any(${ids}) desc, t.block_number desc, t.log_index desc limit ${CALLS_A_BATCH + WAITING}) as newest
    order by block_number, log_index`.execute(ctx.db)
  return rows
}
