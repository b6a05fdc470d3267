/**
 * Finds payments for calls that a third party executed and that no later request named. Otherwise, their money would
 * wait as unexpected, and the merchant might return it although the call was served.
 */
import { sql } from "kysely"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import { isKind } from "../../platform/db/is-kind.ts"
import { readSettlement, recentOutcome } from "./read-outcome.ts"

/** For how many payments the chain is queried per round, newest first. Each takes a few RPC requests. */
const ASKED_AT_ONCE = 10

/**
 * Queries the chain about payments whose relay moved nothing, if the same amount has just arrived from their payers
 * in a transaction that is not ours. Without this, a transfer counts as unexpected after ten minutes
 * (`proxy/plan-bundle.ts`).
 */
export async function findCarriedOut(ctx: Context, network: Network): Promise<void> {
  const { rows } = await sql<{ id: string }>`
    with arrived as materialized (
      select t.token, t.from_address, t.value, d.resource_id from transfers t join deposits d on d.id = t.deposit_id
      where t.chain_id = ${network.chainId} and t.run_at <= ${ctx.now()} and t.state in ('confirmed', 'final')
        and ${isKind("d.resource_id", "bdl")} and not exists (select from transaction_attempts a where a.hash = t.tx_hash))
    select distinct s.id, s.created_at from arrived t
      join settlements s on s.chain_id = ${network.chainId} and s.token = t.token and s.payer = t.from_address
        and s.resource_id = t.resource_id and s.amount = t.value and s.found_hash is null and s.failed_at is null
      join payouts i on i.id = s.payout_id and (i.state = 'cancelled' or i.succeeded = false)
    order by s.created_at desc limit ${ASKED_AT_ONCE}`.execute(ctx.db)
  for (const { id } of rows)
    try {
      const settlement = await readSettlement(ctx, id)
      if (settlement) await recentOutcome(ctx, network, settlement)
    } catch (error) {
      // Only logged, because the scan comes next, and all payments wait for it.
      ctx.log.error({ err: error, settlementId: id }, "whether a payment was carried out could not be read")
    }
}
