/** Tells what was paid, once its shares are on their way: at the latest five minutes after it was confirmed. */
import { type Network, networkOf } from "../chain/networks.ts"
import { type Context, inTransaction } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sharesOf, sharesSettled } from "../payouts/queries.ts"
import { type Told, tellCheckout } from "./tell-checkout.ts"

/** What is not mined by then is told without a hash; later ones stand in `GET /api/checkouts/:id`. */
const WAIT_FOR_SHARES_MS = 5 * 60_000
const PAYMENTS_A_ROUND = 200

/**
 * Tells that a payment is paid, or puts it down to be told when its shares are settled; call it inside the transaction that
 * granted it, after its payouts were made.
 */
export async function tellPaid(ctx: Context, network: Network, paymentId: string): Promise<void> {
  const payment = await ctx.db.selectFrom("payments").selectAll().where("id", "=", paymentId).executeTakeFirstOrThrow()
  if (payment.recipient_set_id === null) return await tell(ctx, network, payment)
  const tellBy = new Date(ctx.now().getTime() + WAIT_FOR_SHARES_MS)
  await ctx.db.updateTable("payments").set({ tell_by: tellBy }).where("id", "=", paymentId).execute()
}

/** Tells the payments whose shares are settled, or whose time is over; answers how many are still waited for. */
export async function tellDuePayments(ctx: Context): Promise<number> {
  const waiting = await ctx.db
    .selectFrom("payments")
    .select("id")
    .where("tell_by", "is not", null)
    .orderBy("tell_by")
    .limit(PAYMENTS_A_ROUND)
    .execute()
  let told = 0
  for (const { id } of waiting)
    told += await inTransaction(ctx, async ctx => {
      const payment = await ctx.db
        .selectFrom("payments")
        .selectAll()
        .where("id", "=", id)
        .where("tell_by", "is not", null)
        .forNoKeyUpdate()
        .skipLocked()
        .executeTakeFirst()
      if (!payment?.tell_by) return 0
      const reversed = payment.status !== "granted"
      if (!reversed && payment.tell_by > ctx.now() && !(await sharesSettled(ctx, id))) return 0
      if (!reversed) await tell(ctx, networkOf(ctx.chain, payment.chain_id), payment)
      await ctx.db.updateTable("payments").set({ tell_by: null }).where("id", "=", id).execute()
      return 1
    })
  if (told > 0) ctx.wakes.wakeSoon("deliveries")
  return waiting.length - told
}

async function tell(ctx: Context, network: Network, payment: Row<"payments">): Promise<void> {
  const splits = payment.recipient_set_id === null ? null : await sharesOf(ctx, payment.id)
  const common = {
    merchantId: payment.merchant_id,
    status: "confirmed" as const,
    txHash: payment.tx_hash,
    payer: payment.payer,
    splits,
  }
  await tellCheckout(ctx, network, { ...common, ...(await soldBy(ctx, payment)) })
}

/** What the session or the paywall adds: a paywall's payment is told as a session of its own. */
async function soldBy(
  ctx: Context,
  payment: Row<"payments">,
): Promise<Omit<Told, "merchantId" | "status" | "txHash" | "payer" | "splits">> {
  if (payment.session_id === null)
    return {
      id: payment.id,
      amount: payment.amount,
      amountReceived: payment.amount,
      exception: payment.exception === "sanctioned" ? null : payment.exception,
      token: payment.token,
      confirmedAt: payment.updated_at,
      productId: null,
      paywallId: payment.paywall_id,
      customerEmail: null,
      payerInfo: null,
      callbackUrl: null,
    }
  const session = await ctx.db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where("id", "=", payment.session_id)
    .executeTakeFirstOrThrow()
  return {
    id: session.id,
    amount: session.amount,
    amountReceived: session.received,
    exception: session.exception,
    confirmedAt: session.confirmed_at,
    productId: session.product_id,
    paywallId: null,
    customerEmail: session.customer_email,
    payerInfo: session.payer_info,
    callbackUrl: session.callback_url,
  }
}
