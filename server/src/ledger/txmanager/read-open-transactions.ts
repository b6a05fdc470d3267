/** Reads the payouts that have a nonce and can still change, and all transactions that may have used their nonces. */
import { type RawBuilder, sql } from "kysely"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"

/** For how many payouts one round reads the receipts. */
const PAYOUTS_PER_ROUND = 200

/** The columns that are read of an open payout. The calldata is not needed, and would be most of the row. */
const COLUMNS = [
  "id",
  "chain_id",
  "wallet",
  "kind",
  "lane",
  "state",
  "nonce",
  "traceparent",
  "payment_id",
  "escrow_id",
  "deposit_id",
  "share",
  "token",
  "recipient",
  "amount",
  "payer",
  "tx_hash",
  "block_number",
  "block_hash",
  "succeeded",
  "gas_cost",
] as const satisfies (keyof Row<"payouts">)[]

/**
 * A payout that can still change. `hashes` are all transactions that may have used its nonce. Those in `empty` do not
 * execute the payout.
 */
export type OpenPayout = Pick<Row<"payouts">, (typeof COLUMNS)[number]> & {
  nonce: bigint
  hashes: Hash[]
  empty: Hash[]
}

/** SQL: the transaction at the nonce of payout `i` that a person declared unrelated to the payout. */
const foreignHashes = sql`array(select f.tx_hash::text from foreign_nonces f
  where f.chain_id = i.chain_id and f.wallet = i.wallet and f.nonce = i.nonce)`

/**
 * Reads the open payouts that meet one of these conditions on `payouts i`, at most {@link PAYOUTS_PER_ROUND} for each
 * condition.
 */
export async function readOpenPayouts(
  ctx: Context,
  wallet: Row<"wallets">,
  name: "/* named: open_payouts */" | "",
  ...which: RawBuilder<unknown>[]
): Promise<OpenPayout[]> {
  const columns = sql.join(COLUMNS.map(column => sql.ref(`i.${column}`)))
  const parts = which.map(
    condition => sql`(select ${columns} from payouts i where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address}
      and ${condition} order by i.block_number desc nulls last, i.nonce limit ${PAYOUTS_PER_ROUND})`,
  )
  const { rows } = await sql<OpenPayout>`
    ${sql.raw(name)} select i.*, array(select a.hash::text from transaction_attempts a where a.payout_id = i.id and a.hash is not null
        order by a.empty, a.n desc) || ${foreignHashes} as hashes,
      array(select a.hash::text from transaction_attempts a where a.payout_id = i.id and a.empty
        and a.hash is not null) || ${foreignHashes} as empty
    from (${sql.join(parts, sql` union all `)}) i`.execute(ctx.db)
  return rows
}

/** Returns the mined payout in the highest block, if there is one. */
export async function topMined(
  ctx: Context,
  wallet: Row<"wallets">,
): Promise<Pick<OpenPayout, "block_number" | "block_hash">[]> {
  const { rows } = await sql<Pick<OpenPayout, "block_number" | "block_hash">>`
    /* named: top_mined */ select block_number, block_hash from payouts
    where chain_id = ${wallet.chain_id} and wallet = ${wallet.address} and state = 'mined' order by block_number desc limit 1`.execute(
    ctx.db,
  )
  return rows
}
