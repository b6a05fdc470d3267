/** Reads a subscription with its invoices, locked, as the facts that it is folded from. */
import { sql } from "kysely"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import type { InvoiceFacts, SubscriptionFacts } from "./fold-subscription.ts"

/** A subscription that this transaction holds. */
export interface Held {
  subscription: Row<"subscriptions">
  /** In their order. */
  invoices: Row<"invoices">[]
  /** Of the last invoice: all before are over for good. */
  session: Row<"checkout_sessions">
  /** Whether the session is held too, so that it can be closed. */
  isSessionHeld: boolean
  /** Whether no reorg can remove the last invoice's payment. */
  isFinal: boolean
}

/**
 * Locks a subscription, after the session of its open invoice: whoever settles that one holds it when a trigger makes the
 * subscription due. Undefined where there is none, and with `isSkipping` while another process holds either.
 */
export async function holdSubscription(
  ctx: TxContext,
  id: string,
  { isSkipping = false } = {},
): Promise<Held | undefined> {
  const { rows: held } = await sql<{ id: string }>`select s.id from checkout_sessions s where s.id in (
      select session_id from invoices where subscription_id = ${id} and paid_at is null and voided_at is null)
    for no key update ${sql.raw(isSkipping ? "skip locked" : "")}`.execute(ctx.db)
  const subscription = await ctx.db
    .selectFrom("subscriptions")
    .selectAll()
    .where("id", "=", id)
    .forNoKeyUpdate()
    .$if(isSkipping, query => query.skipLocked())
    .executeTakeFirst()
  if (!subscription) return undefined
  const invoices = await ctx.db
    .selectFrom("invoices")
    .selectAll()
    .where("subscription_id", "=", id)
    .orderBy("sequence")
    .execute()
  const last = invoices.at(-1)
  if (!last) throw new Error("a subscription has no invoice")
  const session = await ctx.db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where("id", "=", last.session_id)
    .executeTakeFirstOrThrow()
  const isSessionHeld = held.some(each => each.id === session.id)
  if (isSkipping && !isSessionHeld && !last.paid_at && !last.voided_at) return undefined
  return { subscription, invoices, session, isSessionHeld, isFinal: await isFinal(ctx, session) }
}

async function isFinal(ctx: TxContext, { id, status }: Row<"checkout_sessions">): Promise<boolean> {
  if (status !== "confirmed") return false
  const open = await ctx.db
    .selectFrom("payments")
    .innerJoin("claims", "claims.payment_id", "payments.id")
    .innerJoin("transfers", "transfers.id", "claims.transfer_id")
    .select("transfers.id")
    .where("payments.resource_id", "=", id)
    .where("payments.status", "=", "granted")
    .where("payments.beside", "=", false)
    .where("transfers.state", "<>", "final")
    .limit(1)
    .executeTakeFirst()
  return open === undefined
}

/** Whether nobody can pay a session any more. Money that the merchant accepts can still confirm it. */
export const isEnded = ({ status }: Pick<Row<"checkout_sessions">, "status">): boolean =>
  status === "expired" || status === "failed"

/** What the fold needs to know; `aheadMs`: how long before its period an invoice is made. */
export function factsOf(
  { subscription, invoices, session, isFinal }: Held,
  aheadMs: number,
): SubscriptionFacts | undefined {
  if (!subscription.anchor) return undefined
  return {
    billing: { interval: subscription.billing_interval, count: subscription.billing_count },
    anchor: subscription.anchor,
    maxPeriods: subscription.max_periods,
    pausedAt: subscription.paused_at,
    canceledAt: subscription.canceled_at,
    cancelAtPeriodEnd: subscription.cancel_at_period_end,
    aheadMs,
    invoices: invoices.flatMap((invoice): InvoiceFacts[] => {
      const { period_start: periodStart, period_end: periodEnd, due_at: dueAt, paid_at: paidAt } = invoice
      if (!periodStart || !periodEnd) return []
      const isOfProduct = invoice.product_id === subscription.product_id
      const isLast = invoice === invoices.at(-1)
      const state = invoice.voided_at ? "void" : paidAt ? "paid" : isEnded(session) ? "ended" : "open"
      return [{ periodStart, periodEnd, dueAt, state, paidAt, isFinal: isLast ? isFinal : true, isOfProduct }]
    }),
  }
}
