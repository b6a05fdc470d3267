/** Computes a deposit's balance from its rows. Every comparison with balances on chain uses this sum. */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/** The kinds of payouts that move money out of a deposit. */
export const outgoingKinds = () => kindsThat(({ moneyOf }) => moneyOf === "deposit")

/** A deposit's inflow and outflow, in base units of one token. */
export interface DepositSums {
  came: bigint
  /**
   * Payouts, and outflows that belong to no payout: recoveries, money that merchants gave back themselves, and unknown
   * outflows.
   */
  went: bigint
  /** Whether some of this money is not in a final block yet. */
  inFlight: boolean
}

/**
 * Returns deposits' sums in one token, by deposit id. The sums include everything on chain that was not reorged or,
 * with `at`, everything that is final and in a block up to `at`.
 */
export async function depositSums(
  ctx: TxContext,
  token: Address,
  deposits: readonly bigint[],
  at?: bigint,
): Promise<Map<bigint, DepositSums>> {
  const ids = sql`any(${sqlArray("bigint", deposits)})`
  const by = at === undefined ? sql`true` : sql`block_number <= ${at}`
  const came = at === undefined ? sql`state <> 'gone'` : sql`state = 'final'`
  const went = at === undefined ? sql`state in ('mined', 'final') and succeeded` : sql`state = 'final'`
  const { rows } = await sql<DepositSums & { id: bigint }>`
    select d.id, coalesce(i.sum, 0)::numeric(78,0) as came,
      (coalesce(o.sum, 0) + coalesce(r.sum, 0))::numeric(78,0) as went,
      coalesce(i.open, false) or coalesce(o.open, false) as "inFlight"
    from deposits d
      left join (select deposit_id, sum(value) filter (where ${came} and ${by}) as sum,
          bool_or(state in ('seen', 'confirmed') and ${by}) as open
        from transfers where deposit_id = ${ids} and token = ${token} group by 1) i on i.deposit_id = d.id
      left join (select deposit_id, sum(amount) filter (where ${went} and ${by}) as sum,
          bool_or(state = 'assigned' or (state = 'mined' and ${by})) as open
        from payouts where deposit_id = ${ids} and token = ${token} and kind in ${outgoingKinds()} group by 1) o
        on o.deposit_id = d.id
      left join (select deposit_id, sum(amount) filter (where ${by}) as sum
        from outflows where deposit_id = ${ids} and token = ${token} and payout_id is null group by 1) r
        on r.deposit_id = d.id
    where d.id = ${ids}`.execute(ctx.db)
  return new Map(rows.map(({ id, ...sums }) => [id, sums]))
}
