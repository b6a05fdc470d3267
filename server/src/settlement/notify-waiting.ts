/** What merchants are notified of about money that waits for their decision. */
import { checksummed } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import { ifKind } from "../ids.ts"
import { amountFormatter } from "../scanner/tokens.ts"
import { emitAll } from "../webhooks/emit.ts"

/**
 * Emits `payment.exception` for those of these payments that wait for the merchant's decision, with all of it or with a
 * surplus. Call it inside the transaction that makes them wait, once they are written as they are.
 */
export async function notifyWaiting(ctx: TxContext, network: NetworkInfo, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return
  const rows = await ctx.db
    .selectFrom("payments")
    .leftJoin("surpluses", join =>
      join
        .onRef("surpluses.payment_id", "=", "payments.id")
        .on("surpluses.state", "=", "open")
        // That of a payment which the chain removed stays, and counts when the payment is granted again.
        .on("payments.status", "=", "granted"),
    )
    .selectAll("payments")
    .select("surpluses.amount as surplus")
    .where("payments.id", "in", ids)
    .where("agent", "=", false)
    .orderBy("payments.id")
    .execute()
  const format = await amountFormatter(ctx, rows)
  const events = rows.flatMap(row => {
    const { exception, surplus } = row
    if (exception === null || (row.status !== "open" && surplus === null)) return []
    const data = {
      paymentId: row.id,
      merchantId: row.merchant_id,
      sessionId: ifKind("cs", row.resource_id),
      paywallId: ifKind("pw", row.resource_id),
      bundleId: ifKind("bdl", row.resource_id),
      exception,
      payer: checksummed(row.payer),
      ...format({ ...row, amount: surplus ?? row.amount }),
      token: checksummed(row.token),
      chain: network.name,
      chainId: network.chainId,
      txHash: row.tx_hash,
      updatedAt: row.updated_at.toISOString(),
    }
    const { merchant_id: merchantId, id: orderKey, traceparent } = row
    return [{ type: "payment.exception" as const, merchantId, orderKey, traceparent, data }]
  })
  await emitAll(ctx, events)
}
