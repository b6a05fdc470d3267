/** Explains the state of an object, from the rows of its story. */

import { sql } from "kysely"
import { pausedDeposits } from "../../ledger/payouts/check-paused.ts"
import { decisionFacts } from "../../ledger/settlement/read-decisions.ts"
import { NEVER } from "../../ledger/txmanager/recheck.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { payoutIdOf } from "../../platform/ids.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { sessionUrl } from "../checkouts/show-session.ts"
import { messageOf, shownStatus } from "../escrow/refund.ts"
import { refundsWhere } from "../escrow/refund-queries.ts"
import { CANCEL_AFTER_MS } from "../subscriptions/fold-subscription.ts"
import { invoiceUrl } from "../subscriptions/notify-subscription.ts"
import { invoicesOf } from "../subscriptions/queries.ts"
import { type CheckoutFacts, type EscrowFacts, explainCheckout } from "./checkout-standing.ts"
import { type DeliveryFacts, explainEvent } from "./event-standing.ts"
import type { Story, Subject } from "./find-story.ts"
import type { DeliveryRow, StoryRows } from "./load-story.ts"
import { explainPayment, type PaymentFacts } from "./payment-standing.ts"
import { explainPayout, type PayoutFacts } from "./payout-standing.ts"
import { explainRefund } from "./refund-standing.ts"
import type { Standing } from "./standing.ts"
import { explainInvoice, explainSubscription } from "./subscription-standing.ts"

/** Explains the state of a story's subject. */
export async function explainStory(ctx: TxContext, { subject }: Story, rows: StoryRows): Promise<Standing> {
  switch (subject.type) {
    case "payment":
      return explainPayment(await paymentFacts(ctx, subject.payment, rows))
    case "checkout":
      return explainCheckout(await checkoutFacts(ctx, subject.session, rows))
    case "payout":
      return explainPayout(await onePayout(ctx, subject.payout, rows.money))
    case "refund":
      return await refundStanding(ctx, subject.refund, rows)
    case "subscription":
      return explainSubscription(subscriptionFacts(ctx, subject.subscription, rows))
    case "invoice":
      return await invoiceStanding(ctx, subject)
    case "event":
      return explainEvent(subject.event.type, rows.deliveries.map(deliveryFacts))
  }
}

type Money = StoryRows["money"]

/** The facts that decide the explanation of each of these payouts. */
export async function payoutFacts(
  { db }: TxContext,
  payouts: readonly Row<"payouts">[],
  money: Money,
): Promise<PayoutFacts[]> {
  if (payouts.length === 0) return []
  const ids = sqlArray(
    "uuid",
    payouts.map(({ id }) => id),
  )
  const { rows } = await sql<{ id: string; replaced_by: string | null; refund_id: string | null }>`
    select i.id, (select n.id from payouts n where n.replaces = i.id limit 1) as replaced_by,
      (select r.id from refunds r where r.payout_id = i.id) as refund_id
    from unnest(${ids}) i(id)`.execute(db)
  const more = new Map(rows.map(row => [row.id, row]))
  return payouts.map(row => {
    const { replaced_by: by, refund_id: refundId } = more.get(row.id) ?? { replaced_by: null, refund_id: null }
    return {
      id: payoutIdOf(row.id),
      kind: row.kind,
      state: row.state,
      heldReason: row.held_reason,
      heldDetail: row.held_detail,
      amount: money(row),
      recipient: checksummed(row.recipient),
      triedAt: row.run_at >= NEVER ? null : row.run_at,
      minedAt: row.mined_at,
      stopped: row.stopped,
      paymentId: row.payment_id,
      sessionId: row.escrow_id,
      refundId,
      replacedBy: by === null ? null : payoutIdOf(by),
    }
  })
}

async function onePayout(ctx: TxContext, row: Row<"payouts">, money: Money): Promise<PayoutFacts> {
  const [facts] = await payoutFacts(ctx, [row], money)
  if (!facts) throw new Error(`the payout ${row.id} has no facts`)
  return facts
}

async function paymentFacts(ctx: TxContext, payment: Row<"payments">, rows: StoryRows): Promise<PaymentFacts> {
  const { money } = rows
  const { chain_id, payer, resource_id } = payment
  const session = rows.sessions.find(({ id }) => id === resource_id)
  const surplus = rows.surpluses.find(({ payment_id }) => payment_id === payment.id)
  const replaced = new Set(rows.payouts.flatMap(({ replaces }) => replaces ?? []))
  const moving = rows.payouts.filter(
    ({ id, lane, state, stopped }) => lane === "payout" && (state !== "cancelled" || stopped) && !replaced.has(id),
  )
  const {
    buys = false,
    acceptable = true,
    returnAddress,
  } = (await decisionFacts(ctx, [payment.id])).get(payment.id) ?? {}
  const { token } = networkOf(ctx.chain, chain_id)
  return {
    id: payment.id,
    status: payment.status,
    exception: payment.exception,
    amount: money(payment),
    price: session ? `${formatAmount(session.amount, token.decimals)} ${session.currency}` : null,
    payer: checksummed(payer),
    openCheckout: session && ctx.now() < session.expires_at ? session.id : null,
    sessionId: resource_id.startsWith("cs_") ? resource_id : null,
    acceptedAt: payment.accepted_at,
    returnedTo: payment.returned_to && checksummed(payment.returned_to),
    surplus: surplus
      ? { amount: money({ chain_id, token: surplus.token, amount: surplus.amount }), state: surplus.state }
      : null,
    buys,
    acceptable,
    beside: payment.beside,
    hasReturnAddress: returnAddress != null,
    payouts: await payoutFacts(ctx, moving, money),
    sweepAt: payment.sweep_at,
  }
}

async function checkoutFacts(
  ctx: TxContext,
  session: Row<"checkout_sessions">,
  rows: StoryRows,
): Promise<CheckoutFacts> {
  const network = networkOf(ctx.chain, session.chain_id)
  const text = (amount: bigint) => `${formatAmount(amount, network.token.decimals)} ${session.currency}`
  const { amount, received, status } = session
  const isPaying = status === "pending" || status === "verifying"
  const newest = rows.submissions.toSorted((a, b) => Number(b.submitted_at) - Number(a.submitted_at))[0]
  const paused = await pausedDeposits(ctx)
  const surpluses = rows.surpluses.filter(
    ({ state, payment_id }) =>
      state === "open" && rows.payments.some(({ id, status }) => id === payment_id && status === "granted"),
  )
  const decisions = await decisionFacts(
    ctx,
    rows.payments.map(({ id }) => id),
  )
  const decisionOf = (id: string) => {
    const { buys = false, acceptable = true, returnAddress } = decisions.get(id) ?? {}
    return { id, buys, acceptable, hasReturnAddress: returnAddress != null }
  }
  const waiting = [
    ...rows.payments
      .filter(payment => payment.status === "open")
      .map(payment => ({ ...decisionOf(payment.id), amount: rows.money(payment), exception: payment.exception })),
    ...surpluses.map(({ payment_id: id, token, amount }) => ({
      ...decisionOf(id),
      amount: rows.money({ chain_id: session.chain_id, token, amount }),
      exception: "overpaid" as const,
    })),
  ]
  return {
    id: session.id,
    status,
    exception: session.exception,
    capture: session.capture,
    amount: text(amount),
    received: text(received),
    missing: isPaying && received > 0n && received < amount ? text(amount - received) : null,
    expiresAt: session.expires_at,
    now: ctx.now(),
    url: sessionUrl(ctx, session.id),
    isPaused: isPaying && paused(network, { factory: network.depositFactory, older_factory: false }),
    refusal: newest?.status === "failed" && newest.message !== "" ? newest.message : null,
    depth: depthOf(rows, session.chain_id, network.confirmations),
    paymentId: rows.payments.find(payment => payment.status === "granted" && !payment.beside)?.id ?? null,
    open: waiting,
    escrow: escrowFacts(ctx, rows, text),
  }
}

/** The depth in blocks of the newest transfer that does not count yet. */
function depthOf({ transfers, cursors }: StoryRows, chainId: number, confirmations: bigint): CheckoutFacts["depth"] {
  const head = cursors.find(({ chain_id }) => chain_id === chainId)?.block_number
  const blocks = transfers.filter(({ state }) => state !== "gone").map(({ block_number }) => block_number)
  if (head === undefined || blocks.length === 0) return null
  const newest = blocks.reduce((most, block) => (block > most ? block : most))
  const depth = head - newest + 1n
  const have = depth < 0n ? 0n : depth > confirmations ? confirmations : depth
  return { have: Number(have), need: Number(confirmations) }
}

function escrowFacts(
  { now }: TxContext,
  { escrows, payouts }: StoryRows,
  text: (amount: bigint) => string,
): EscrowFacts | null {
  const [escrow] = escrows
  if (!escrow) return null
  const left = escrow.authorized - escrow.captured - escrow.voided - escrow.reclaimed
  const isRefundable =
    escrow.refund_collector !== null && now() < escrow.refund_expiry && escrow.captured > escrow.refunded
  return {
    authorized: text(escrow.authorized),
    captured: text(escrow.captured),
    refunded: text(escrow.refunded),
    left: left > 0n ? text(left) : null,
    captureBefore: escrow.void_at,
    refundBefore: isRefundable ? escrow.refund_expiry : null,
    isCapturing: payouts.some(
      ({ kind, state }) => kind === "capture" && ["queued", "held", "assigned"].includes(state),
    ),
  }
}

async function refundStanding(
  ctx: TxContext,
  { id, session_id, merchant_id: merchantId }: Row<"refunds">,
  { payouts, money }: StoryRows,
) {
  const row = await refundsWhere(ctx, { merchantId, id }).executeTakeFirstOrThrow()
  const payout = payouts.find(each => each.id === row.payout_id)
  if (!payout) throw new Error(`the refund ${id} has no call`)
  return explainRefund({
    id,
    status: shownStatus(row.status, row),
    amount: money(payout),
    sessionId: session_id,
    message: messageOf(row.status, row),
    call: await onePayout(ctx, payout, money),
  })
}

function subscriptionFacts(ctx: TxContext, row: Row<"subscriptions">, { invoices }: StoryRows) {
  const open = invoices.find(({ paid_at, voided_at }) => paid_at === null && voided_at === null)
  const { token } = networkOf(ctx.chain, row.chain_id)
  return {
    id: row.id,
    status: row.status,
    paidUntil: row.paid_until,
    accessUntil: row.access_until,
    cancelAtPeriodEnd: row.cancel_at_period_end,
    cancelAskedBy: row.cancel_asked_by,
    cancelReason: row.cancel_reason,
    blockedBy: row.blocked_by,
    pausedAt: row.paused_at,
    endedAt: row.ended_at,
    invoice: open
      ? {
          id: open.id,
          url: invoiceUrl(ctx, open.id),
          amount: `${formatAmount(open.amount, token.decimals)} ${open.currency}`,
        }
      : null,
    cancelsAt: open ? new Date(open.due_at.getTime() + CANCEL_AFTER_MS) : null,
  }
}

async function invoiceStanding(ctx: TxContext, { invoice }: Extract<Subject, { type: "invoice" }>): Promise<Standing> {
  const { id, merchant_id, session_id, subscription_id } = invoice
  const row = await invoicesOf(ctx, merchant_id, { id }).executeTakeFirst()
  const session = ctx.db.selectFrom("checkout_sessions").select("chain_id").where("id", "=", session_id)
  const { token } = networkOf(ctx.chain, row?.chain_id ?? (await session.executeTakeFirstOrThrow()).chain_id)
  return explainInvoice({
    status: row?.status ?? "open",
    amount: `${formatAmount(invoice.amount, token.decimals)} ${invoice.currency}`,
    dueAt: invoice.due_at,
    paidAt: invoice.paid_at,
    now: ctx.now(),
    url: invoiceUrl(ctx, id),
    subscriptionId: subscription_id,
    sessionId: session_id,
  })
}

/** The facts that decide the explanation of an event. */
const deliveryFacts = (row: DeliveryRow): DeliveryFacts => ({
  id: row.id,
  url: row.url,
  status: row.status,
  attempts: row.attempts,
  lastError: row.last_error,
  nextAt: row.status === "pending" && !row.is_claimed ? row.run_at : null,
})
