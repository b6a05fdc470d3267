/** Notifies merchants of money that needs their decision. */
import { type RawBuilder, sql } from "kysely"
import { emit } from "../../account/webhooks/emit.ts"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import { inTransaction, type TxContext } from "../../platform/context.ts"
import { ifKind } from "../../platform/ids.ts"
import type { SellingContext } from "./sellable.ts"

/**
 * Emits `payment.exception` for the payments that need the merchant's decision, either for the whole payment or for its
 * surplus. Call this inside the transaction that opens the payments, after they are written.
 */
export async function notifyWaiting(ctx: TxContext, network: NetworkInfo, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return
  const rows = await ctx.db
    .selectFrom("payments")
    .leftJoin("surpluses", join =>
      join
        .onRef("surpluses.payment_id", "=", "payments.id")
        .on("surpluses.state", "=", "open")
        // If a reorg removed a payment, its surplus stays, and counts once the payment is granted again.
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
  await emit(ctx, ...events)
  if (rows.some(({ reopened }) => reopened)) await takeReopened(ctx, sql`id in (${sql.join(ids)})`)
}

/** How many reopened payments one round reports. The other payments follow in the next round. */
const REOPENED_PER_ROUND = 100

/**
 * Emits `payment.exception` for payments that need another decision because their return, or the return of their
 * surplus, failed or was cancelled. The merchant does not know yet that the money is still there.
 */
export async function notifyReopened(ctx: SellingContext, network: NetworkInfo): Promise<void> {
  await wakeReopened(ctx, network)
  const next = sql`id in (select id from payments where chain_id = ${network.chainId} and reopened
    order by id limit ${REOPENED_PER_ROUND} for no key update skip locked)`
  await inTransaction(ctx, async ctx => {
    const ids = await takeReopened(ctx, next)
    // Receivers keep the event with the latest time, but a reopened surplus does not change its payment's time.
    if (ids.length > 0)
      await sql`update payments set updated_at = greatest(${ctx.now()}, updated_at + interval '1 ms')
        where id in (${sql.join(ids)})`.execute(ctx.db)
    await notifyWaiting(ctx, network, ids)
  })
}

/**
 * Makes the resources of reopened payments due, because their totals change. This function runs before the transaction
 * that clears the marks. If the process dies in between, the next round wakes these resources again.
 */
async function wakeReopened(ctx: SellingContext, { chainId }: NetworkInfo): Promise<void> {
  const found = ctx.db.selectFrom("payments").select("resource_id").where("chain_id", "=", chainId)
  const rows = await found.where("reopened", "=", true).orderBy("id").limit(REOPENED_PER_ROUND).execute()
  const ids = rows.map(row => row.resource_id)
  for (const sellable of ctx.sells) await sellable.wake?.(ctx, [], ids)
}

async function takeReopened(ctx: TxContext, which: RawBuilder<unknown>): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`update payments set reopened = false
    where reopened and ${which} returning id`.execute(ctx.db)
  return rows.map(row => row.id)
}
