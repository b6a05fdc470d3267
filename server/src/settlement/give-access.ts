/** What a paywall's payment brings: access, the end of its submissions, payouts, and word to the merchant. */
import type { Hash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { newId } from "../ids.ts"
import { paymentChanges } from "../metrics.ts"
import { makePayouts } from "../payouts/make-payouts.ts"
import { tellPayment } from "../paywalls/events.ts"
import { callsOf } from "../paywalls/paywall.ts"
import { statusMessage } from "../scanner/submission-faults.ts"

/**
 * Gives access for a payment that has become `granted`, or gives back what a reorg had taken. Call it in that transaction,
 * under the payer's access, which has to be folded afterwards.
 */
export async function giveAccess(
  ctx: TxContext,
  paywall: Row<"paywalls">,
  payment: Pick<Row<"payments">, "id" | "payer" | "tx_hash">,
  hashes: readonly Hash[],
): Promise<void> {
  const now = ctx.now()
  const { id: paymentId, payer, tx_hash } = payment
  const back = await ctx.db
    .updateTable("grants")
    .set({ revoked_at: null, revoked_by: null, revoke_reason: null, granted_at: now, tx_hash })
    .where("payment_id", "=", paymentId)
    .where("revoked_by", "=", "reorg")
    .executeTakeFirst()
  if (back.numUpdatedRows === 0n)
    await ctx.db
      .insertInto("grants")
      .values({
        id: newId("grant"),
        payment_id: paymentId,
        paywall_id: paywall.id,
        address: payer,
        tx_hash,
        duration_s: paywall.access_duration_s,
        calls: callsOf(paywall.pricing_model),
        granted_at: now,
      })
      .execute()
  await ctx.db
    .updateTable("submissions")
    .set({ status: "granted", reason: null, message: statusMessage.granted, run_at: null, updated_at: now })
    .where("paywall_id", "=", paywall.id)
    .where("address", "=", payer)
    .where("tx_hash", "in", [...new Set(hashes)])
    .execute()
  await makePayouts(ctx, paymentId)
  const network = networkOf(ctx.chain, paywall.chain_id)
  await tellPayment(ctx, network, paymentId, "granted")
  ctx.log.info({ paymentId, paywallId: paywall.id, payer, txHash: tx_hash }, "payment granted")
  paymentChanges.inc({ network: network.name, change: "granted" })
}
