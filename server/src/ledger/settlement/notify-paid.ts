/**
 * Notifies merchants of payments once their shares are mined, but at the latest five minutes after the payment was
 * confirmed. With `RECEIPT_STORE=0g`, a notification also waits until the transaction that stores its receipt is
 * signed, but at most for `RECEIPT_WAIT`.
 */
import { sql } from "kysely"
import { type NetworkInfo, networkOf } from "../../platform/chain/network-facts.ts"
import { inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { columnsOf } from "../../platform/db/whole-rows.ts"
import { isSplit, sharesOf, sharesSettled } from "../payouts/queries.ts"
import { zerogOf } from "../receipts/zerog/read-place.ts"
import type { CheckoutNotice } from "./checkout-notice.ts"
import { notifyCheckout } from "./notify-checkout.ts"
import { exceptionOf, type SellingContext, type SellingTx, sellableOf } from "./sellable.ts"

/**
 * How long an event waits for unmined shares. After that, such shares are reported without a hash, and `GET
 * /api/checkouts/:id` has the later hashes.
 */
const WAIT_FOR_SHARES_MS = 5 * 60_000
const PAYMENTS_PER_ROUND = 200

/**
 * Notifies the merchant that a payment is paid, or schedules the notification for when its shares are settled. Call
 * this inside the granting transaction, after the payouts are made.
 */
export async function notifyPaid(ctx: SellingTx, network: NetworkInfo, paymentId: string): Promise<void> {
  const payment = await ctx.db
    .selectFrom("payments")
    .modifyFront(sql`/* named: payment_to_notify */`)
    .select(columnsOf("payments"))
    .where("id", "=", paymentId)
    .executeTakeFirstOrThrow()
  const hasShares = await isSplit(ctx, paymentId)
  const waitMs = hasShares ? WAIT_FOR_SHARES_MS : storageWaitMs(ctx)
  if (waitMs === 0 || (payment.agent && !hasShares)) return await notify(ctx, network, payment, null)
  const notifyBy = new Date(ctx.now().getTime() + waitMs)
  await ctx.db.updateTable("payments").set({ notify_by: notifyBy }).where("id", "=", paymentId).execute()
}

/**
 * Returns how long an event waits for the transaction that stores its receipt. The wait is 0 if receipts are stored
 * only here.
 */
const storageWaitMs = ({ settings: { receipts } }: Pick<SellingTx, "settings">): number =>
  receipts.zerog ? (receipts.waitMs ?? 0) : 0

/**
 * Whether there is nothing to wait for: the shares are settled, and the receipt's storage is known or took too long.
 */
async function isComplete(ctx: SellingTx, { id, updated_at }: Row<"payments">): Promise<boolean> {
  if ((await isSplit(ctx, id)) && !(await sharesSettled(ctx, id))) return false
  const until = updated_at.getTime() + storageWaitMs(ctx)
  return until <= ctx.now().getTime() || (await zerogOf(ctx, id)) !== undefined
}

/**
 * Emits the payments whose shares are settled and whose receipts are stored, or whose waiting time is over. Returns how
 * many still wait.
 */
export async function notifyDuePayments(ctx: SellingContext): Promise<number> {
  const waiting = await ctx.db
    .selectFrom("payments")
    .select(["id", "resource_id as resourceId"])
    .where("notify_by", "is not", null)
    .orderBy("notify_by")
    .limit(PAYMENTS_PER_ROUND)
    .execute()
  let notified = 0
  for (const { id, resourceId } of waiting)
    notified += await inTransaction(ctx, async ctx => {
      // This row is locked before the payment, in the lock order of settlement.
      await sellableOf(ctx, resourceId).lockEvents?.(ctx, resourceId)
      const payment = await ctx.db
        .selectFrom("payments")
        .selectAll()
        .where("id", "=", id)
        .where("notify_by", "is not", null)
        .forNoKeyUpdate()
        .skipLocked()
        .executeTakeFirst()
      if (!payment?.notify_by) return 0
      const reversed = payment.status !== "granted"
      if (!reversed && payment.notify_by > ctx.now() && !(await isComplete(ctx, payment))) return 0
      const splits = !reversed && (await isSplit(ctx, id)) ? await sharesOf(ctx, id) : null
      if (!reversed) await notify(ctx, networkOf(ctx.chain, payment.chain_id), payment, splits)
      await ctx.db.updateTable("payments").set({ notify_by: null }).where("id", "=", id).execute()
      return 1
    })
  return waiting.length - notified
}

/**
 * Emits that a payment is no longer paid, unless an agent paid it. Call this inside the transaction that reversed the
 * payment.
 */
export async function notifyReversed(ctx: SellingTx, network: NetworkInfo, payment: Row<"payments">): Promise<void> {
  if (payment.agent) return
  await notifyCheckout(ctx, network, "reversed", {
    ...(await describe(ctx, payment)),
    status: "pending",
    amountReceived: 0n,
    confirmedAt: null,
    splits: null,
  })
}

async function notify(
  ctx: SellingTx,
  network: NetworkInfo,
  payment: Row<"payments">,
  splits: CheckoutNotice["splits"],
): Promise<void> {
  // An agent's payment sends no event, because the agent already got its response.
  if (payment.agent) return
  const zeroG = storageWaitMs(ctx) === 0 ? undefined : await zerogOf(ctx, payment.id)
  const notice = { ...(await describe(ctx, payment)), status: "confirmed" as const, splits }
  await notifyCheckout(ctx, network, "paid", { ...notice, zeroG })
}

const describe = (ctx: SellingTx, payment: Row<"payments">) =>
  sellableOf(ctx, payment.resource_id).describe(ctx, payment)

/** Returns the fields of a payment that is reported like a session, without what it bought. */
export const sessionNotice = (payment: Row<"payments">) => ({
  id: payment.id,
  numberedIn: "payments" as const,
  merchantId: payment.merchant_id,
  amount: payment.amount,
  amountReceived: payment.amount,
  exception: exceptionOf(payment.exception),
  txHash: payment.tx_hash,
  payer: payment.payer,
  token: payment.token,
  confirmedAt: payment.updated_at,
  productId: null,
  paywallId: null,
  description: null,
  metadata: null,
  customerEmail: null,
  payerInfo: null,
  callbackUrl: null,
  traceparent: payment.traceparent,
})
