/** Emits the events about paywall payments. */
import { sql } from "kysely"
import { emit } from "../../account/webhooks/emit.ts"
import { notifyPaid, notifyReversed } from "../../ledger/settlement/notify-paid.ts"
import { nextSequence } from "../../ledger/settlement/number-events.ts"
import type { SellingTx } from "../../ledger/settlement/sellable.ts"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Row } from "../../platform/db/schema.ts"
import { columnsOf } from "../../platform/db/whole-rows.ts"

/**
 * Emits that a payment granted access, or that a reorg removed the payment. Must be called in the same transaction,
 * after the payment and its grant are written. If the payment comes back, its grant is emitted again, and so is a
 * later reversal.
 */
export async function notifyPayment(
  ctx: SellingTx,
  network: NetworkInfo,
  paymentId: string,
  change: "granted" | "reversed",
): Promise<void> {
  const payment = await ctx.db
    .selectFrom("payments")
    .innerJoin("paywalls", "paywalls.id", "payments.resource_id")
    .innerJoin("grants", "grants.payment_id", "payments.id")
    .modifyFront(sql`/* named: granted_payment */`)
    .select(columnsOf("payments").map(name => `payments.${name}` as const))
    .select(["paywalls.id as paywallId", "paywalls.description", "grants.granted_at"])
    .where("payments.id", "=", paymentId)
    .executeTakeFirstOrThrow()
  if (payment.agent) return
  const grantedAt = payment.granted_at.toISOString()
  const common = { merchantId: payment.merchant_id, orderKey: paymentId }
  const { amount, currency } = (await amountFormatter(ctx, [payment]))(payment)
  const sequence = await nextSequence(ctx, "payments", paymentId)
  const data = { ...dataOf(payment, network), amount, currency, sequence }
  // The grant's time distinguishes this event from the one that is emitted after a reversal.
  const dedupeKey = `paywall.${change}:${paymentId}:${grantedAt}`
  if (change === "granted") {
    await emit(ctx, { ...common, type: "paywall.granted", dedupeKey, data: { ...data, grantedAt } })
    await notifyPaid(ctx, network, paymentId)
  } else {
    const reversedAt = ctx.now().toISOString()
    const takesBack = ["paywall.granted" as const]
    await emit(ctx, { ...common, type: "paywall.reversed", dedupeKey, data: { ...data, reversedAt }, takesBack })
    await notifyReversed(ctx, network, payment)
  }
}

const dataOf = (
  payment: Row<"payments"> & { paywallId: string; description: string | null },
  network: NetworkInfo,
) => ({
  paymentId: payment.id,
  paywallId: payment.paywallId,
  payer: checksummed(payment.payer),
  chain: network.name,
  chainId: network.chainId,
  txHash: payment.tx_hash,
  description: payment.description,
  metadata: null,
})
