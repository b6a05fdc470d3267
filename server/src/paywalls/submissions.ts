/** What a buyer does at a paywall: submit a hash, and ask for its state. */
import { sql } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import type { Row, SubmissionStatus } from "../db/schema.ts"
import { watch } from "../deposits/deposits.ts"
import { ApiError } from "../errors.ts"
import { freshSubmission, verifySoon } from "../scanner/queries.ts"
import { statusMessage, waitsForMerchant } from "../scanner/submission-faults.ts"
import { traceparentNow } from "../tracing/trace.ts"

export async function publicPaywall(ctx: TxContext, id: string): Promise<Row<"paywalls">> {
  const row = await ctx.db.selectFrom("paywalls").selectAll().where("id", "=", id).executeTakeFirst()
  if (!row) throw new ApiError("PAYWALL_NOT_FOUND")
  return row
}

/**
 * Stores that `address` says it paid with `txHash`. Submitting it again during verification changes nothing; after a
 * failure it is verified again. `ALREADY_VERIFIED` when everything that the transaction paid here has granted access.
 */
export async function submitPayment(ctx: Context, paywallId: string, txHash: Hash, address: Address): Promise<void> {
  const { chain_id } = await publicPaywall(ctx, paywallId)
  const { token } = networkOf(ctx.chain, chain_id)
  await inTransaction(ctx, async ctx => {
    const paid = await sql<{ granted: boolean }>`
      select coalesce(p.status = 'granted', false) as granted
      from transfers t join deposits d on d.id = t.deposit_id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
      where d.resource_id = ${paywallId} and t.tx_hash = ${txHash} and t.token = ${token.address}`.execute(ctx.db)
    if (paid.rows.length > 0 && paid.rows.every(row => row.granted)) throw new ApiError("ALREADY_VERIFIED")
    const fresh = { ...freshSubmission(ctx.now()), traceparent: traceparentNow(ctx) }
    await ctx.db
      .insertInto("submissions")
      .values({ resource_id: paywallId, chain_id, tx_hash: txHash, address, by_sender: true, ...fresh })
      .onConflict(conflict =>
        conflict
          .columns(["resource_id", "tx_hash", "address"])
          .where("by_sender", "=", sql.lit(true))
          .doUpdateSet(fresh)
          .where("submissions.status", "in", ["failed", "reversed"]),
      )
      .execute()
  })
  await watch(ctx, paywallId)
  await verifySoon(ctx, chain_id)
}

export interface PaymentState {
  status: SubmissionStatus
  reason: string | null
  message: string
  confirmations: number
  requiredConfirmations: number
}

/**
 * The state of a submission, or of a payment that nobody submitted; `PAYMENT_NOT_FOUND` for neither. Of several
 * transfers in the transaction, a granted one decides.
 */
export async function paymentState(
  ctx: TxContext,
  paywallId: string,
  txHash: Hash,
  address: Address,
): Promise<PaymentState> {
  const { chain_id } = await publicPaywall(ctx, paywallId)
  const { confirmations: required } = networkOf(ctx.chain, chain_id)
  const submitted = await ctx.db
    .selectFrom("submissions")
    .select(["status", "reason", "message", "block_number"])
    .where("resource_id", "=", paywallId)
    .where("tx_hash", "=", txHash)
    .where("address", "=", address)
    .executeTakeFirst()
  const seen = await ctx.db
    .selectFrom("transfers")
    .innerJoin("deposits", "deposits.id", "transfers.deposit_id")
    .leftJoin("claims", "claims.transfer_id", "transfers.id")
    .leftJoin("payments", "payments.id", "claims.payment_id")
    .select(["transfers.block_number", "payments.status", "payments.exception"])
    .where("deposits.resource_id", "=", paywallId)
    .where("transfers.tx_hash", "=", txHash)
    .where("transfers.from_address", "=", address)
    .orderBy(sql`payments.status = 'granted'`, order => order.desc().nullsLast())
    .executeTakeFirst()
  const found = submitted ?? (seen && foundState(seen.status, seen.exception))
  if (!found) throw new ApiError("PAYMENT_NOT_FOUND")
  const cursor = await ctx.db
    .selectFrom("cursors")
    .select("block_number")
    .where("chain_id", "=", chain_id)
    .executeTakeFirst()
  const blockNumber = seen?.block_number ?? submitted?.block_number
  const depth = blockNumber && cursor ? cursor.block_number - blockNumber + 1n : 0n
  return {
    status: found.status,
    reason: found.reason,
    message: found.message,
    confirmations: Number(depth < 0n ? 0n : depth),
    requiredConfirmations: Number(required),
  }
}

/** The state of money that nobody submitted, from the payment that claims it. */
function foundState(
  status: Row<"payments">["status"] | null,
  exception: Row<"payments">["exception"] | null,
): Pick<PaymentState, "status" | "reason" | "message"> {
  if (status === "granted" || status === "reversed") return { status, reason: null, message: statusMessage[status] }
  if (status === "returned") return { status: "failed", reason: exception ?? null, message: statusMessage.returned }
  if (status === "open" && exception && exception in waitsForMerchant)
    return {
      status: "failed",
      reason: exception,
      message: waitsForMerchant[exception as keyof typeof waitsForMerchant],
    }
  return { status: "verifying", reason: null, message: statusMessage.unsubmitted }
}
