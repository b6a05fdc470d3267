/**
 * The columns of `settlements` for named statements. Such statements must list their columns. With `*`, a column that
 * is added later would break the prepared statements of open connections.
 */
import { sql } from "kysely"
import type { Row } from "../../platform/db/schema.ts"

const COLUMNS: Record<keyof Row<"settlements">, true> = {
  id: true,
  merchant_id: true,
  chain_id: true,
  token: true,
  payer: true,
  nonce: true,
  digest: true,
  pay_to: true,
  amount: true,
  valid_before: true,
  resource_id: true,
  binding: true,
  payload_hash: true,
  identifier: true,
  payout_id: true,
  from_block: true,
  found_hash: true,
  found_block: true,
  found_final: true,
  caller: true,
  claim_id: true,
  lease_until: true,
  served_at: true,
  answered_at: true,
  failed_at: true,
  retry_until: true,
  created_at: true,
  updated_at: true,
}

/** All columns of the table with the alias `s`. */
export const settlementColumns = sql.join(Object.keys(COLUMNS).map(column => sql.ref(`s.${column}`)))
