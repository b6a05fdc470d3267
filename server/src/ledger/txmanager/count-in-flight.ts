/** Counts the payouts that have a wallet's nonce and are not mined. */
import { sql } from "kysely"
import { dataPartsOf } from "../../platform/chain/wallet-state.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"

/** SQL: the most that a transaction `a` may cost, in wei, including the data fee at the time when `a` got its nonce. */
export const mostOf = sql<bigint>`(a.gas * a.max_fee + a.data_fee)`

/** How long a signature may take before a person must check the signer. */
const UNSIGNED_MS = 60_000

/** How many payouts are in flight, and what their gas may cost. */
export interface InFlight {
  n: number
  /**
   * How many of these payouts have no signature yet, and whether one of them has waited for a minute by the database's
   * clock.
   */
  unsigned: number
  isUnsignedLong: boolean
  /** When the oldest signed payout was signed, or became `assigned` again after a reorg. */
  since: Date | null
  /** The most that all of these payouts may cost and send, in wei, without the data fee. */
  wei: bigint
  /** How many times the data fee has to be paid, as `dataParts` counts it. */
  parts: bigint
}

/** Counts a wallet's payouts in flight. */
export async function inFlight(ctx: TxContext, wallet: Row<"wallets">): Promise<InFlight> {
  const { rows } = await sql<InFlight>`
    /* named: in_flight */ select count(distinct i.id)::int as n, min(greatest(i.updated_at, first.signed_at)) filter (where first.hash is not null) as since,
      count(*) filter (where a.raw is null)::int as unsigned,
      coalesce(bool_or(a.raw is null and a.created_at < clock_timestamp() - ${UNSIGNED_MS}::int * interval '1 millisecond'), false) as "isUnsignedLong",
      coalesce(sum(a.gas * a.max_fee + i.value), 0)::numeric(78,0) as wei,
      coalesce(sum(${dataPartsOf}), 0) as parts
    from payouts i cross join lateral (select * from transaction_attempts where payout_id = i.id order by n desc limit 1) a
      left join lateral (select b.hash, b.signed_at from transaction_attempts b where b.payout_id = i.id and b.raw is not null
        order by b.n limit 1) first on true
    where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address} and i.state = 'assigned'`.execute(ctx.db)
  return rows[0] ?? { n: 0, unsigned: 0, isUnsignedLong: false, since: null, wei: 0n, parts: 0n }
}
