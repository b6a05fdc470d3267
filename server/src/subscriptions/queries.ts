/** A merchant's subscriptions and invoices: those that have begun. */
import { sql } from "kysely"
import { parseAddress } from "../chain/hex.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import type { InvoiceStatus } from "./schema.ts"

/** What narrows the list of subscriptions; `q`: an id, a payer or an e-mail address. */
export interface SubscriptionFilter {
  status?: NonNullable<Row<"subscriptions">["status"]> | undefined
  productId?: string | undefined
  q?: string | undefined
}

/** The merchant's subscriptions that match, not yet ordered. */
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

/** What narrows the list of invoices. */
export interface InvoiceFilter {
  status?: InvoiceStatus | undefined
  subscriptionId?: string | undefined
  id?: string | undefined
}

const statusOf = sql<InvoiceStatus>`case when invoices.voided_at is not null then 'void'
  when invoices.paid_at is not null then 'paid'
  when checkout_sessions.status in ('expired', 'failed') then 'unpaid' else 'open' end`

/** The merchant's invoices that match, not yet ordered, with what became of them. */
export function invoicesOf(ctx: TxContext, merchantId: string, { status, subscriptionId, id }: InvoiceFilter) {
  let query = ctx.db
    .selectFrom("invoices")
    .innerJoin("checkout_sessions", "checkout_sessions.id", "invoices.session_id")
    .selectAll("invoices")
    .select(["checkout_sessions.chain_id", statusOf.as("status")])
    .where("invoices.merchant_id", "=", merchantId)
    .where("invoices.period_start", "is not", null)
  if (status !== undefined) query = query.where(statusOf, "=", status)
  if (subscriptionId !== undefined) query = query.where("subscription_id", "=", subscriptionId)
  if (id !== undefined) query = query.where("invoices.id", "=", id)
  return query
}

/** A row of {@link invoicesOf}. */
export type InvoiceRow = Row<"invoices"> & { chain_id: number; status: InvoiceStatus }
