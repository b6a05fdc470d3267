/** SQL of subscriptions and invoices: the merchant's view of started ones, and the job's writes. */
import { sql } from "kysely"
import { parseAddress } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { InvoiceStatus } from "./schema.ts"

/** The filter of the list of subscriptions. `q` is an id, a payer or an e-mail address. */
export interface SubscriptionFilter {
  status?: NonNullable<Row<"subscriptions">["status"]> | undefined
  productId?: string | undefined
  q?: string | undefined
}

/** The merchant's matching subscriptions, unordered. */
export function subscriptionsOf(ctx: TxContext, merchantId: string, { status, productId, q }: SubscriptionFilter) {
  let query = ctx.db
    .selectFrom("subscriptions")
    .selectAll()
    .where("merchant_id", "=", merchantId)
    .where("started_at", "is not", null)
    .where("status", "is not", null)
  if (status !== undefined) query = query.where("status", "=", status)
  if (productId !== undefined) query = query.where("product_id", "=", productId)
  if (q === undefined) return query
  const payer = parseAddress(q)
  if (payer) return query.where("payer", "=", payer)
  if (q.startsWith("sub_")) return query.where("id", "=", q)
  if (q.includes("@")) return query.where("customer_email", "=", q)
  return query.where(
    sql<boolean>`id = (select subscription_id from invoices where ${sql.ref(q.startsWith("inv_") ? "invoices.id" : "invoices.session_id")} = ${q})`,
  )
}

/** The filter of the list of invoices. */
export interface InvoiceFilter {
  status?: InvoiceStatus | undefined
  subscriptionId?: string | undefined
  id?: string | undefined
}

const statusOf = sql<InvoiceStatus>`case when invoices.voided_at is not null then 'void'
  when invoices.paid_at is not null then 'paid'
  when checkout_sessions.status in ('expired', 'failed') or subscriptions.cancel_reason = 'unpaid' then 'unpaid'
  else 'open' end`

/**
 * The query for all merchants' invoices whose period is set, unordered, with their status. The joins are left joins,
 * so that Postgres drops them from a query that only counts.
 */
const invoices = (ctx: TxContext) =>
  ctx.db
    .selectFrom("invoices")
    .leftJoin("checkout_sessions", "checkout_sessions.id", "invoices.session_id")
    .leftJoin("subscriptions", "subscriptions.id", "invoices.subscription_id")
    .selectAll("invoices")
    .select([sql<number>`checkout_sessions.chain_id`.as("chain_id"), statusOf.as("status")])
    .where("invoices.period_start", "is not", null)

/** The invoices with these ids, of any merchants. */
export const invoicesById = (ctx: TxContext, ids: readonly string[]) => invoices(ctx).where("invoices.id", "in", ids)

/** The merchant's matching invoices, unordered, with their status. */
export function invoicesOf(ctx: TxContext, merchantId: string, { status, subscriptionId, id }: InvoiceFilter) {
  let query = invoices(ctx).where("invoices.merchant_id", "=", merchantId)
  if (status !== undefined) query = query.where(statusOf, "=", status)
  if (subscriptionId !== undefined) query = query.where("subscription_id", "=", subscriptionId)
  if (id !== undefined) query = query.where("invoices.id", "=", id)
  return query
}

/**
 * The number of newest invoices whose changes immediately wake those who wait for a subscription. Changes of older
 * invoices reach them a moment later.
 */
const MAX_AWAITED = 20

/** The sessions of a subscription's newest invoices. */
export async function sessionsOfSubscription({ db }: TxContext, id: string): Promise<string[]> {
  const invoices = db.selectFrom("invoices").select("session_id").where("subscription_id", "=", id)
  const rows = await invoices.orderBy("sequence", "desc").limit(MAX_AWAITED).execute()
  return rows.map(row => row.session_id)
}

/** A row of {@link invoicesOf}. */
export type InvoiceRow = Row<"invoices"> & { chain_id: number; status: InvoiceStatus }

/** Returns the invoices whose session is no longer confirmed. */
export async function lostPayments(
  ctx: TxContext,
  invoices: readonly Row<"invoices">[],
): Promise<{ subscriptionId: string; sessionId: string }[]> {
  if (invoices.length === 0) return []
  const bySession = new Map(invoices.map(each => [each.session_id, each.subscription_id]))
  const { rows } = await sql<{ id: string }>`select id from checkout_sessions
    where id = any(${sqlArray("text", bySession.keys())}) and status <> 'confirmed'`.execute(ctx.db)
  return rows.map(({ id }) => ({ subscriptionId: bySession.get(id) ?? "", sessionId: id }))
}

/** Writes the payment, void and period of each of these invoices. */
export async function writeInvoices(ctx: TxContext, invoices: readonly Row<"invoices">[]): Promise<void> {
  if (invoices.length === 0) return
  const rows = JSON.stringify(
    invoices.map(({ id, paid_at, voided_at, void_asked_at, void_asked_by, period_start, period_end }) => {
      return { id, paid_at, voided_at, void_asked_at, void_asked_by, period_start, period_end }
    }),
  )
  await sql`update invoices i set paid_at = r.paid_at, voided_at = r.voided_at, void_asked_at = r.void_asked_at,
      void_asked_by = r.void_asked_by, period_start = r.period_start, period_end = r.period_end, updated_at = ${ctx.now()}
    from jsonb_to_recordset(${rows}::jsonb) as r(id text, paid_at timestamptz, voided_at timestamptz, void_asked_at timestamptz, void_asked_by text,
      period_start timestamptz, period_end timestamptz) where i.id = r.id`.execute(ctx.db)
}

/** Inserts new invoices into the database. */
export async function insertInvoices(ctx: TxContext, invoices: Row<"invoices">[]): Promise<void> {
  if (invoices.length > 0) await ctx.db.insertInto("invoices").values(invoices).execute()
}

/** Writes the folded state of subscriptions. Requests for changes write their own columns. */
export async function writeSubscriptions(
  ctx: TxContext,
  subscriptions: readonly Row<"subscriptions">[],
): Promise<void> {
  const rows = JSON.stringify(
    subscriptions.map(row => {
      const { id, status, cancel_reason, paid_until, access_until, run_at, ended_at, event_sequence } = row
      const { started_at, anchor, payer, customer_email, is_first, has_trial, blocked_by, updated_at } = row
      const begun = { started_at, anchor, payer, customer_email, is_first, has_trial }
      return {
        id,
        status,
        cancel_reason,
        paid_until,
        access_until,
        run_at,
        ended_at,
        event_sequence,
        ...begun,
        blocked_by,
        updated_at,
      }
    }),
  )
  await sql`update subscriptions s set status = r.status, cancel_reason = r.cancel_reason, paid_until = r.paid_until,
      access_until = r.access_until, run_at = r.run_at, ended_at = r.ended_at, event_sequence = r.event_sequence,
      started_at = r.started_at, anchor = r.anchor, payer = r.payer, customer_email = r.customer_email, is_first = r.is_first,
      has_trial = r.has_trial, blocked_by = r.blocked_by, failed_rounds = 0, updated_at = r.updated_at
    from jsonb_to_recordset(${rows}::jsonb) as r(id text, status text, cancel_reason text, paid_until timestamptz,
      access_until timestamptz, run_at timestamptz, ended_at timestamptz, event_sequence integer, started_at timestamptz,
      anchor timestamptz, payer evm_address, customer_email text, is_first boolean, has_trial boolean, blocked_by text, updated_at timestamptz)
    where s.id = r.id`.execute(ctx.db)
}
