/** Reads the rows of a timeline. Each list is cut, because strangers can make it as long as they like. */
import { sql } from "kysely"
import { eventIdsOf } from "../../account/webhooks/queries.ts"
import { amountFormatter, type FormattedAmount } from "../../platform/chain/format-amounts.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { DeliveryStatus, Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { payoutIdOf } from "../../platform/ids.ts"
import type { Story } from "./find-story.ts"

/** The most rows that are read of each kind. */
const MAX_ROWS = 200

/** A delivery with the error of its last attempt. */
export interface DeliveryRow {
  id: string
  event_id: string
  url: string
  status: DeliveryStatus
  attempts: number
  run_at: Date
  is_claimed: boolean
  created_at: Date
  updated_at: Date
  last_status: number | null
  last_error: string | null
}

/** An entry of the audit log, with the e-mail address of the person who acted. */
export type DecisionRow = Row<"audit_entries"> & { email: string | null }

/** The rows of a story. */
export interface StoryRows {
  sessions: Row<"checkout_sessions">[]
  escrows: Row<"escrows">[]
  payments: Row<"payments">[]
  surpluses: Row<"surpluses">[]
  transfers: Row<"transfers">[]
  submissions: Row<"submissions">[]
  payouts: Row<"payouts">[]
  attempts: Row<"transaction_attempts">[]
  refunds: Row<"refunds">[]
  subscriptions: Row<"subscriptions">[]
  invoices: Row<"invoices">[]
  events: Pick<Row<"events">, "id" | "type" | "created_at">[]
  deliveries: DeliveryRow[]
  decisions: DecisionRow[]
  cursors: Pick<Row<"cursors">, "chain_id" | "block_number">[]
  /** Formats an amount of a row with its currency. */
  money: (row: { chain_id: number; token: Address; amount: bigint }) => string
}

/** Reads all rows of a story, in creation order. */
export async function loadStory(ctx: TxContext, merchantId: string, story: Story): Promise<StoryRows> {
  const { db } = ctx
  const { sessionIds, paymentIds, refundIds, subscriptionIds } = story
  const of = <T extends "checkout_sessions" | "payments" | "refunds" | "subscriptions">(table: T, ids: string[]) =>
    ids.length === 0
      ? Promise.resolve([] as Row<T>[])
      : (db
          .selectFrom(table as "payments")
          .selectAll()
          .where("id", "in", ids)
          .orderBy("created_at")
          .execute() as unknown as Promise<Row<T>[]>)
  const [sessions, payments, refunds, subscriptions] = await Promise.all([
    of("checkout_sessions", sessionIds),
    of("payments", paymentIds),
    of("refunds", refundIds),
    of("subscriptions", subscriptionIds),
  ])
  const ids = sql`any(${sqlArray("text", sessionIds)})`
  const [escrows, surpluses, submissions, transfers, payouts, invoices, events] = await Promise.all([
    rowsOf<Row<"escrows">>(ctx, sql`select * from escrows where session_id = ${ids}`, sessionIds),
    rowsOf<Row<"surpluses">>(
      ctx,
      sql`select * from surpluses where payment_id = any(${sqlArray("text", paymentIds)})`,
      paymentIds,
    ),
    submissionsOf(ctx, sessionIds, payments),
    transfersOf(ctx, sessionIds, paymentIds),
    payoutsOf(ctx, story),
    invoicesOf(ctx, story),
    eventsOf(ctx, merchantId, story),
  ])
  const [attempts, deliveries, decisions, cursors] = await Promise.all([
    attemptsOf(ctx, payouts),
    deliveriesOf(
      ctx,
      events.map(({ id }) => id),
    ),
    decisionsOf(ctx, merchantId, [
      ...sessionIds,
      ...paymentIds,
      ...refundIds,
      ...subscriptionIds,
      story.id,
      ...payouts.map(({ id }) => payoutIdOf(id)),
    ]),
    db.selectFrom("cursors").select(["chain_id", "block_number"]).execute(),
  ])
  const format = await amountFormatter(ctx, [...payments, ...transfers, ...payouts])
  const money: StoryRows["money"] = row => textOf(format(row))
  const shown = { sessions, escrows, payments, surpluses, transfers, submissions, payouts, attempts, refunds }
  return { ...shown, subscriptions, invoices, events, deliveries, decisions, cursors, money }
}

/** An amount with its currency. */
export const textOf = ({ amount, currency }: FormattedAmount): string => `${amount} ${currency}`

async function rowsOf<R>({ db }: TxContext, statement: ReturnType<typeof sql>, ids: readonly unknown[]): Promise<R[]> {
  return ids.length === 0 ? [] : (await sql<R>`${statement} limit ${MAX_ROWS}`.execute(db)).rows
}

/** All submissions of a checkout; for a paywall's payment, those of its payer with its hash. */
async function submissionsOf(ctx: TxContext, sessionIds: readonly string[], payments: readonly Row<"payments">[]) {
  const at = sql`resource_id = any(${sqlArray("text", sessionIds)})`
  const own = await rowsOf<Row<"submissions">>(ctx, sql`select * from submissions where ${at}`, sessionIds)
  const [payment] = payments
  if (!payment || sessionIds.length > 0) return own
  const { resource_id, payer, tx_hash } = payment
  const by = sql`resource_id = ${resource_id} and address = ${payer} and tx_hash = ${tx_hash}`
  return await rowsOf<Row<"submissions">>(ctx, sql`select * from submissions where ${by}`, payments)
}

/** The transfers that arrived at a checkout's address, and those that count for its payments. */
async function transfersOf(ctx: TxContext, sessionIds: readonly string[], paymentIds: readonly string[]) {
  const claimed = await rowsOf<Row<"transfers">>(
    ctx,
    sql`select t.* from claims c join transfers t on t.id = c.transfer_id where c.payment_id = any(${sqlArray("text", paymentIds)})`,
    paymentIds,
  )
  const arrived = await rowsOf<Row<"transfers">>(
    ctx,
    sql`select t.* from deposits d join transfers t on t.deposit_id = d.id where d.resource_id = any(${sqlArray("text", sessionIds)})`,
    sessionIds,
  )
  return [...new Map([...claimed, ...arrived].map(row => [row.id, row])).values()]
}

/**
 * The payments' shares and returns, the sweeps that took a part of the payments, and the calls of the checkouts'
 * escrows.
 */
async function payoutsOf({ db }: TxContext, { sessionIds, paymentIds, payoutIds }: Story) {
  const payments = sqlArray("text", paymentIds)
  const { rows } = await sql<Row<"payouts">>`select i.* from payouts i where i.id in (
      select id from payouts where payment_id = any(${payments})
      union select s.payout_id from claims c join sweep_parts s on s.transfer_id = c.transfer_id where c.payment_id = any(${payments})
      union select id from payouts where escrow_id = any(${sqlArray("text", sessionIds)})
      union select a.id from deposits d join payouts a on a.deposit_id = d.id and a.kind = 'authorize'
        where d.resource_id = any(${sqlArray("text", sessionIds)})
      union select unnest(${sqlArray("uuid", payoutIds)}))
    order by i.created_at desc, i.id limit ${MAX_ROWS}`.execute(db)
  return rows.reverse()
}

/** The signed attempts of these payouts. The attempts of a batch belong to the calls in it. */
async function attemptsOf({ db }: TxContext, payouts: readonly Row<"payouts">[]) {
  const ids = payouts.flatMap(({ id, batch_id }) => [id, batch_id ?? []].flat())
  if (ids.length === 0) return []
  const attempts = db.selectFrom("transaction_attempts").selectAll().where("payout_id", "in", ids)
  return await attempts.where("hash", "is not", null).orderBy("id").limit(MAX_ROWS).execute()
}

async function invoicesOf({ db }: TxContext, { subscriptionIds, subject }: Story) {
  if (subject.type === "invoice") return [subject.invoice]
  if (subscriptionIds.length === 0) return []
  const invoices = db.selectFrom("invoices").selectAll().where("subscription_id", "in", subscriptionIds)
  return await invoices.where("period_start", "is not", null).orderBy("sequence", "desc").limit(MAX_ROWS).execute()
}

async function eventsOf({ db }: TxContext, merchantId: string, { subject, eventsOf: keys, refundIds }: Story) {
  if (subject.type === "event") return [subject.event]
  if (keys.length === 0) return []
  const events = db.selectFrom("events").select(["id", "type", "created_at"])
  const [refundId] = refundIds
  const ofRefund = subject.type === "refund" && refundId !== undefined
  return await events
    .where(sql<boolean>`id = any(array(${eventIdsOf(merchantId, keys)}))`)
    .$if(ofRefund, query => query.where("dedupe_key", "=", `payment.refunded:${refundId}`))
    .orderBy("created_at", "desc")
    .orderBy("id")
    .limit(MAX_ROWS)
    .execute()
}

async function deliveriesOf({ db }: TxContext, eventIds: readonly string[]): Promise<DeliveryRow[]> {
  if (eventIds.length === 0) return []
  const { rows } = await sql<DeliveryRow>`
    select d.id, d.event_id, coalesce(d.url, w.url, '') as url, d.status, d.attempts, d.run_at, d.claim_id is not null as is_claimed,
      d.created_at, d.updated_at, a.status as last_status, a.error as last_error
    from deliveries d left join webhooks w on w.id = d.webhook_id
      left join lateral (select a.status, a.error from delivery_attempts a where a.delivery_id = d.id order by a.id desc limit 1) a on true
    where d.event_id = any(${sqlArray("text", eventIds)}) order by d.seq limit ${MAX_ROWS}`.execute(db)
  return rows
}

/** What people and keys decided about these objects. */
async function decisionsOf({ db }: TxContext, merchantId: string, ids: readonly string[]): Promise<DecisionRow[]> {
  const { rows } = await sql<DecisionRow>`
    select a.*, p.email from audit_entries a left join persons p on a.actor_kind = 'console' and p.iss = a.actor_issuer and p.sub = a.actor_id
    where a.merchant_id = ${merchantId} and a.object_id = any(${sqlArray("text", ids)}) order by a.at desc, a.n desc
    limit ${MAX_ROWS}`.execute(db)
  return rows
}
