/** Refuses an agent's payment whose money was returned, because that payment no longer buys anything. */
import { sql } from "kysely"
import type { Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"

/**
 * Throws `INVALID_OPERATION` if the merchant returned the transfer that executed a payment. This is possible because
 * the money waits for a decision like any other until the transfer is recognized.
 */
export async function refuseReturned(
  ctx: TxContext,
  { chain_id, resource_id, payer, amount }: Row<"settlements">,
  txHash: Hash,
): Promise<void> {
  const { rows } = await sql`
    select from transfers t join deposits d on d.id = t.deposit_id join claims c on c.transfer_id = t.id
      join payments p on p.id = c.payment_id
    where t.chain_id = ${chain_id} and t.tx_hash = ${txHash} and d.resource_id = ${resource_id}
      and t.from_address = ${payer} and t.value = ${amount} and p.status = 'returned' limit 1`.execute(ctx.db)
  if (rows.length === 0) return
  throw new ApiError(
    "INVALID_OPERATION",
    undefined,
    `The merchant has returned the money of this payment (transaction ${txHash}), so it no longer buys anything. To buy, request again without a payment, and sign a new one.`,
  )
}
