/** Applies a granted payment at a paywall: gives access, ends the payment's submissions and notifies the merchant. */
import { sql } from "kysely"
import { notifyPaid } from "../../ledger/settlement/notify-paid.ts"
import type { PaidWith, SellingTx } from "../../ledger/settlement/sellable.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { newId } from "../../platform/ids.ts"
import type { AccessPart } from "./access-part.ts"
import { grantSubmissions } from "./end-submissions.ts"
import { notifyPayment } from "./notify-payment.ts"
import { callsOf } from "./paywall.ts"

/**
 * Gives access for a newly `granted` payment, or restores access that a reorg removed. If the merchant revoked the
 * access, the payment is granted again but gives none. Must be called in the granting transaction, under the lock of
 * the payer's access row. The caller must fold that row afterwards.
 */
export async function giveAccess(
  ctx: SellingTx,
  { paywall, network }: Pick<AccessPart, "paywall" | "network">,
  payment: PaidWith,
  hashes: readonly Hash[],
): Promise<void> {
  const { id: paymentId, payer, tx_hash } = payment
  if (!(await writeGrant(ctx, paywall, payment))) return await notifyPaid(ctx, network, paymentId)
  await grantSubmissions(ctx, paywall.id, payer, hashes)
  await notifyPayment(ctx, network, paymentId, "granted")
  ctx.log.info({ paymentId, paywallId: paywall.id, payer, txHash: tx_hash }, "payment granted")
}

/** Writes the grant, or restores it after a reorg. Returns false if the merchant revoked the grant, which is final. */
async function writeGrant(
  ctx: TxContext,
  paywall: Row<"paywalls">,
  { id, payer, tx_hash }: PaidWith,
): Promise<boolean> {
  const now = ctx.now()
  const known = await ctx.db
    .selectFrom("grants")
    .modifyFront(sql`/* named: grant_of_payment */`)
    .select("revoked_by")
    .where("payment_id", "=", id)
    .executeTakeFirst()
  if (known?.revoked_by === "merchant") return false
  if (known?.revoked_by === "reorg") {
    const restored = { revoked_at: null, revoked_by: null, revoke_reason: null, granted_at: now, tx_hash }
    await ctx.db.updateTable("grants").set(restored).where("payment_id", "=", id).execute()
    return true
  }
  await ctx.db
    .insertInto("grants")
    .values({
      id: newId("grant"),
      payment_id: id,
      paywall_id: paywall.id,
      address: payer,
      tx_hash,
      duration_s: paywall.access_duration_s,
      calls: callsOf(paywall.pricing_model),
      granted_at: now,
    })
    .modifyEnd(sql`/* named: insert_grant */`)
    .execute()
  return true
}

/** Revokes the access of a payment because of a reorg, unless the access is already revoked. */
export async function takeAccess(ctx: TxContext, paymentId: string): Promise<void> {
  await ctx.db
    .updateTable("grants")
    .set({ revoked_at: ctx.now(), revoked_by: "reorg", revoke_reason: "a reorg removed the payment" })
    .where("payment_id", "=", paymentId)
    .where("revoked_at", "is", null)
    .execute()
}
