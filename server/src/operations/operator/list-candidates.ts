/** Lists the payouts that a transaction on the chain may have paid. */
import { sql } from "kysely"
import { withoutId } from "../../platform/chain/release-call.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { SignedTransaction } from "./read-transaction.ts"

/** Payouts without a nonce that a transaction would pay if the id in its calldata is ignored; oldest first. */
export async function candidates(
  ctx: TxContext,
  wallet: Row<"wallets">,
  { to, data }: SignedTransaction,
): Promise<Row<"payouts">[]> {
  const call = withoutId(data)
  if (to === null || call === "0x") return []
  return await ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("chain_id", "=", wallet.chain_id)
    .where("state", "in", ["queued", "held"])
    .where("to_address", "=", to)
    .where(sql<boolean>`left(data, ${call.length}) = ${call}`)
    .where(sql<boolean>`length(data) = ${data.length}`)
    .orderBy("created_at")
    .orderBy("id")
    .execute()
}
