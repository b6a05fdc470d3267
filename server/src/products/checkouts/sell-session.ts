/**
 * Sells checkout sessions. All money at a session's address adds up, whoever sends it, and one payment confirms the
 * session. Settlement locks the session's row, and notifies the merchant when the status changes.
 */
import { sql } from "kysely"
import { sanctioned } from "../../ledger/scanner/submission-faults.ts"
import { type CheckoutNotice, noticeOf } from "../../ledger/settlement/checkout-notice.ts"
import { notifyCheckout } from "../../ledger/settlement/notify-checkout.ts"
import { notifyPaid } from "../../ledger/settlement/notify-paid.ts"
import type { Sellable } from "../../ledger/settlement/sellable.ts"
import { settle } from "../../ledger/settlement/settle.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { traceOfSession } from "../../platform/db/read-traces.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { columnsOf } from "../../platform/db/whole-rows.ts"
import { ApiError } from "../../platform/errors.ts"
import { checkoutChanges } from "../../platform/metrics.ts"
import { holdSession, loadSession, lockSession, paymentsOf, type SessionPart } from "./load-session.ts"
import { dueSessions, sendersAt, wakeSessions } from "./load-session-batch.ts"
import { confirms, everPaid, planSession, type SessionPlan } from "./plan-session.ts"

/** The `Sellable` for checkout sessions. */
export const sessionSales: Sellable<SessionPart, SessionPlan> = {
  prefix: "cs",
  notFound: "SESSION_NOT_FOUND",
  purpose: "checkout",
  paidOnce: true,

  due: dueSessions,
  wake: wakeSessions,

  traceOf: (ctx, sessionId) => traceOfSession(ctx.db, sessionId),

  async groupOf(ctx, { resource_id, chain_id }) {
    const { token } = networkOf(ctx.chain, chain_id)
    return { resourceId: resource_id, senders: await sendersAt(ctx, resource_id, token.address) }
  },

  async hold(ctx, { resourceId }) {
    const part = await holdSession(ctx, resourceId)
    return { parts: [part], due: part.batch.ended }
  },

  async plan(ctx, part, screened) {
    const facts = await loadSession(ctx, part, screened)
    const { session } = part
    const { isConfirmed, takesUse } = confirms(facts)
    // A payment that confirmed the session earlier keeps it confirmed, whatever came later.
    if (isConfirmed && session.status !== "confirmed" && (await isReplaced(ctx, session.id)))
      return planSession(facts, { isReplaced: true })
    return planSession(facts, { usedUp: takesUse && !(await takeUse(ctx, session.link_id)) })
  },

  // No-op: a payment buys the session's status, which `finish` writes on every settlement.
  async onPaid() {},

  async onReversed(ctx, _part, { id }) {
    // The payment no longer needs a decision, so its transfers count again.
    const counted = ctx.db.updateTable("payments").set({ exception: null }).where("id", "=", id)
    await counted.where("accepted_at", "is", null).execute()
  },

  async finish(ctx, part, plan, [paidId]) {
    const { session, network } = part
    await endSubmissions(ctx, session.id, plan.arrived, { status: "granted", reason: null })
    await endSubmissions(ctx, session.id, plan.barred, { status: "failed", ...sanctioned })
    await ctx.db
      .updateTable("checkout_sessions")
      .set({ ...plan.row, updated_at: ctx.now() })
      .where("id", "=", session.id)
      .modifyEnd(sql`/* named: write_session */`)
      .execute()
    const paymentId = plan.acceptedId ?? paidId
    if (paymentId !== undefined && session.status !== "confirmed") await notifyPaid(ctx, network, paymentId)
    if (plan.row.status !== session.status) await notifyStatus(ctx, part, plan)
  },

  async onDecided(ctx, { session }, payment, screened) {
    if (payment.status === "granted") await refuseReplaced(ctx, session.id)
    // A merchant may accept more payments than the link has uses. A session takes a use only if one is left.
    if (payment.status === "granted" && !(await wasPaidBefore(ctx, session.id, payment.id)))
      await takeUse(ctx, session.link_id)
    await settle(ctx, sessionSales, { resourceId: session.id, senders: [] }, screened)
  },

  async describe(ctx, payment) {
    const session = await ctx.db
      .selectFrom("checkout_sessions")
      .modifyFront(sql`/* named: session_to_describe */`)
      .select(columnsOf("checkout_sessions"))
      .where("id", "=", payment.resource_id)
      .executeTakeFirstOrThrow()
    return {
      ...noticeOf(session),
      amountReceived: session.received,
      exception: session.exception,
      txHash: payment.tx_hash,
      payer: payment.payer,
      confirmedAt: session.confirmed_at,
    }
  },

  lockEvents: lockSession,
}

/**
 * Whether a session's invoice was voided and a later one replaced it, so that a payment would bring its subscription
 * nothing. Locks the subscription, so that no invoice is created concurrently.
 */
async function isReplaced(ctx: TxContext, sessionId: string): Promise<boolean> {
  const { rows } = await sql<{ subscription_id: string; sequence: number }>`
    /* named: voided_invoice */ select v.subscription_id, v.sequence from invoices v join subscriptions s on s.id = v.subscription_id
    where v.session_id = ${sessionId} and v.voided_at is not null for no key update of s`.execute(ctx.db)
  const [voided] = rows
  if (!voided) return false
  const later = ctx.db.selectFrom("invoices").select("id").where("subscription_id", "=", voided.subscription_id)
  return (await later.where("sequence", ">", voided.sequence).executeTakeFirst()) !== undefined
}

/** Throws `INVALID_OPERATION` if a session's invoice was replaced. */
async function refuseReplaced(ctx: TxContext, sessionId: string): Promise<void> {
  if (!(await isReplaced(ctx, sessionId))) return
  throw new ApiError(
    "INVALID_OPERATION",
    undefined,
    "This money is for a closed invoice that a later invoice has replaced. Accepting it would buy nothing, so return it.",
  )
}

/** Notifies the merchant that a session has failed, has expired or is no longer paid. */
async function notifyStatus(ctx: TxContext, { session, network }: SessionPart, plan: SessionPlan): Promise<void> {
  const { status, exception, received: amountReceived } = plan.row
  const notice = { ...noticeOf(session), status, exception, amountReceived, confirmedAt: null, splits: null }
  const notify = (change: "reversed" | "failed" | "expired", paidWith: Pick<CheckoutNotice, "txHash" | "payer">) =>
    notifyCheckout(ctx, network, change, { ...notice, ...paidWith })
  // A reversal names the transaction that had paid the session.
  if (session.status === "confirmed") await notify("reversed", { txHash: session.tx_hash, payer: session.payer })
  if (status === "failed" || status === "expired") await notify(status, plan.last ?? { txHash: null, payer: null })
  ctx.log.info({ sessionId: session.id, from: session.status, to: status, exception }, "session")
  ctx.onCommit(() => checkoutChanges.inc({ network: network.name, status }))
}

/** Whether another payment pays the session, or paid it before. */
async function wasPaidBefore(ctx: TxContext, sessionId: string, paymentId: string): Promise<boolean> {
  const payments = await paymentsOf(ctx, sessionId)
  return payments.some(payment => payment.id !== paymentId && everPaid(payment))
}

/** Takes one of the link's uses; false if none is left. */
async function takeUse(ctx: TxContext, linkId: string | null): Promise<boolean> {
  if (linkId === null) return true
  const taken = await ctx.db
    .updateTable("payment_links")
    .set(eb => ({ uses: eb("uses", "+", 1) }))
    .where("id", "=", linkId)
    .where(eb => eb.or([eb("max_uses", "is", null), eb("uses", "<", eb.ref("max_uses"))]))
    .executeTakeFirst()
  return taken.numUpdatedRows > 0n
}

/** Ends the submissions of these transactions with this outcome, unless they already have it. */
async function endSubmissions(
  ctx: TxContext,
  sessionId: string,
  hashes: readonly string[],
  end: Pick<Row<"submissions">, "status" | "reason"> & { message?: string },
): Promise<void> {
  if (hashes.length === 0) return
  await ctx.db
    .updateTable("submissions")
    .set({ ...end, run_at: null, updated_at: ctx.now() })
    .where("resource_id", "=", sessionId)
    .where(sql<boolean>`tx_hash = any(${sqlArray("text", hashes)})`)
    .where("status", "not in", ["granted", end.status])
    .execute()
}
