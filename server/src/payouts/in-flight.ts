/** What a wallet has signed and the chain has not mined. */
import { sql } from "kysely"
import { dataPartsOf } from "../chain/wallet-state.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"

/** The most that a signed transaction `a` may cost, in wei: with the fee for its data as it was when it was signed. */
export const mostOf = sql<bigint>`(a.gas * a.max_fee + a.data_fee)`

/** How many payouts are in flight, and what their gas may cost. */
export interface InFlight {
  n: number
  /** When the oldest of them was signed, or taken back by the chain. */
  since: Date | null
  /** What the gas of all of them may cost, in wei. */
  wei: bigint
  /** How often the fee for data has to be paid, by `dataParts`. */
  parts: bigint
}

/** Reads what a wallet has in flight. */
export async function inFlight(ctx: TxContext, wallet: Row<"wallets">): Promise<InFlight> {
  const { rows } = await sql<InFlight>`
    select count(distinct i.id)::int as n, min(i.updated_at) as since, coalesce(sum(a.gas * a.max_fee), 0) as wei,
      coalesce(sum(${dataPartsOf}), 0) as parts
    from payouts i join transaction_attempts a on a.payout_id = i.id
    where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address} and i.state = 'assigned'
      and not exists (select from transaction_attempts b where b.payout_id = i.id and b.n > a.n)`.execute(ctx.db)
  return rows[0] ?? { n: 0, since: null, wei: 0n, parts: 0n }
}
