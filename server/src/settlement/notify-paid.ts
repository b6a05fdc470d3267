/** Tells what was paid, once its shares are on their way: at the latest five minutes after it was confirmed. */
import { type NetworkInfo, networkOf } from "../chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sharesOf, sharesSettled } from "../payouts/queries.ts"
import { type Told, tellCheckout, toldOf } from "./notify-checkout.ts"

/** What is not mined by then is told without a hash; later ones stand in `GET /api/checkouts/:id`. */
const WAIT_FOR_SHARES_MS = 5 * 60_000
const PAYMENTS_A_ROUND = 200

/**
 * Tells that a payment is paid, or puts it down to be told when its shares are settled; call it inside the transaction that
 * granted it, after its payouts were made.
 */
export async function tellPaid(ctx: TxContext, network: NetworkInfo, paymentId: string): Promise<void> {
  const payment = await ctx.db.selectFrom("payments").selectAll().where("id", "=", paymentId).executeTakeFirstOrThrow()
  if (payment.recipient_set_id === null) return await tell(ctx, network, payment)
  const tellBy = new Date(ctx.now().getTime() + WAIT_FOR_SHARES_MS)
  await ctx.db.updateTable("payments").set({ tell_by: tellBy }).where("id", "=", paymentId).execute()
}

/** Emits the payments whose shares are settled, or whose time is over; answers how many are still waited for. */
export async function tellDuePayments(ctx: Context): Promise<number> {
  const waiting = await ctx.db
    .selectFrom("payments")
    .select(["id", "session_id"])
    .where("tell_by", "is not", null)
    .orderBy("tell_by")
    .limit(PAYMENTS_A_ROUND)
    .execute()
  let told = 0
  for (const { id, session_id } of waiting)
    told += await inTransaction(ctx, async ctx => {
      // The session before its payment, as settling locks them.
      if (session_id !== null)
        await ctx.db
          .selectFrom("checkout_sessions")
          .select("id")
          .where("id", "=", session_id)
          .forNoKeyUpdate()
          .execute()
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

/** Emits that a paywall's payment is no longer paid; call it inside the transaction that reversed it. */
export async function tellReversed(ctx: TxContext, network: NetworkInfo, payment: Row<"payments">): Promise<void> {
  await tellCheckout(ctx, network, "reversed", {
    ...(await paywallTold(ctx, payment)),
    status: "pending",
    amountReceived: 0n,
    confirmedAt: null,
    splits: null,
  })
}

async function tell(ctx: TxContext, network: NetworkInfo, payment: Row<"payments">): Promise<void> {
  const splits = payment.recipient_set_id === null ? null : await sharesOf(ctx, payment.id)
  const told = payment.session_id === null ? await paywallTold(ctx, payment) : await sessionTold(ctx, payment)
  await tellCheckout(ctx, network, "paid", { ...told, status: "confirmed", splits })
}

type Sold = Omit<Told, "status" | "splits">

/** A paywall's payment is told as a session of its own. */
async function paywallTold(ctx: TxContext, payment: Row<"payments">): Promise<Sold> {
  const paywall = await ctx.db
    .selectFrom("paywalls")
    .select("description")
    .where("id", "=", payment.paywall_id)
    .executeTakeFirstOrThrow()
  return {
    id: payment.id,
    merchantId: payment.merchant_id,
    amount: payment.amount,
    amountReceived: payment.amount,
    exception: payment.exception === "sanctioned" ? null : payment.exception,
    txHash: payment.tx_hash,
    payer: payment.payer,
    token: payment.token,
    confirmedAt: payment.updated_at,
    productId: null,
    paywallId: payment.paywall_id,
    description: paywall.description,
    metadata: null,
    customerEmail: null,
    payerInfo: null,
    callbackUrl: null,
  }
}

async function sessionTold(ctx: TxContext, payment: Row<"payments">): Promise<Sold> {
  const session = await ctx.db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where("id", "=", payment.session_id)
    .executeTakeFirstOrThrow()
  return {
    ...toldOf(session),
    amountReceived: session.received,
    exception: session.exception,
    txHash: payment.tx_hash,
    payer: payment.payer,
    confirmedAt: session.confirmed_at,
  }
}
