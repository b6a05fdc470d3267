/** Reads deliveries and events. */
import { expressionBuilder, type RawBuilder, sql } from "kysely"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Database, DeliveryStatus } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import { type ListSource, newestFirst } from "../../platform/http/send-lists.ts"
import { timeAt } from "../../platform/http/time.ts"
import type { DeliveryFilters } from "./schema.ts"

/** Query of all merchants' deliveries, with their events and destinations. */
const deliveries = (ctx: TxContext) =>
  ctx.db
    .selectFrom("deliveries")
    // Every delivery has an event. A left join keeps the planner from starting with the events.
    .leftJoin("events", "events.id", "deliveries.event_id")
    .leftJoin("webhooks", "webhooks.id", "deliveries.webhook_id")
    .select(eb => [
      "deliveries.id",
      "deliveries.event_id",
      sql<string>`events.type`.as("type"),
      "deliveries.webhook_id",
      "deliveries.order_key",
      eb.fn.coalesce("deliveries.url", "webhooks.url").as("url"),
      "deliveries.status",
      "deliveries.attempts",
      "deliveries.run_at",
      "deliveries.claim_id",
      "deliveries.created_at",
      "deliveries.updated_at",
    ])

interface DeliveryRow {
  id: string
  event_id: string
  type: string
  webhook_id: string | null
  order_key: string
  url: string | null
  status: DeliveryStatus
  attempts: number
  run_at: Date
  claim_id: string | null
  created_at: Date
  updated_at: Date
}

/** Formats a delivery for the API. */
export const deliveryOf = (row: DeliveryRow) => ({
  id: row.id,
  eventId: row.event_id,
  event: row.type,
  webhookId: row.webhook_id,
  // In events, a paywall payment counts as its own session.
  sessionId: /^(cs|pay)_/.test(row.order_key) ? row.order_key : null,
  url: row.url ?? "",
  status: row.status,
  attempts: row.attempts,
  nextAttemptAt: row.status === "pending" && row.claim_id === null ? row.run_at.toISOString() : null,
  createdAt: row.created_at.toISOString(),
  updatedAt: row.updated_at.toISOString(),
})

/**
 * A merchant's deliveries that match all filters, newest first; throws `VALIDATION_ERROR` if a time in the filters does
 * not exist.
 */
export function filteredDeliveries(
  ctx: TxContext,
  merchantId: string,
  filters: DeliveryFilters,
): ListSource<DeliveryRow> {
  const { status, event, eventId, webhookId, sessionId, destination, since, until } = filters
  const eb = expressionBuilder<Database, "deliveries">()
  const conditions = [eb("deliveries.merchant_id", "=", merchantId)]
  if (status !== undefined) conditions.push(eb("deliveries.status", "=", status))
  if (eventId !== undefined) conditions.push(eb("deliveries.event_id", "=", eventId))
  if (webhookId !== undefined) conditions.push(eb("deliveries.webhook_id", "=", webhookId))
  if (sessionId !== undefined) conditions.push(eb("deliveries.order_key", "=", sessionId))
  if (destination !== undefined)
    conditions.push(eb("deliveries.webhook_id", destination === "callback" ? "is" : "is not", null))
  if (since !== undefined) conditions.push(eb("deliveries.created_at", ">=", timeAt("since", since)))
  if (until !== undefined) conditions.push(eb("deliveries.created_at", "<", timeAt("until", until)))
  const query = deliveries(ctx).where(eb.and(conditions))
  const order = { at: "deliveries.created_at", id: "deliveries.id" }
  // The merchant is repeated here, because the planner does not infer from the join that it is the same one. Otherwise,
  // the planner can't use the index on a merchant's event types.
  if (event !== undefined)
    return newestFirst(query.where("events.type", "=", event).where("events.merchant_id", "=", merchantId), order)
  // Counted without the joins. The planner would drop the joins too, but then would not use an index-only scan.
  const all = ctx.db.selectFrom("deliveries").select(sql<number>`1`.as("one")).where(eb.and(conditions))
  return { ...newestFirst(query, order), all: sql`${all}` }
}

/**
 * SQL: the ids of a merchant's events with one of these order keys. Older events don't store their order key, so they
 * are found through their deliveries.
 */
export const eventIdsOf = (merchantId: string, keys: readonly string[]): RawBuilder<unknown> => sql`
  select e.id from events e where e.merchant_id = ${merchantId} and e.order_key = any(${sqlArray("text", keys)})
  union select d.event_id from deliveries d where d.merchant_id = ${merchantId} and d.order_key = any(${sqlArray("text", keys)})`

/** The merchant's delivery; throws `NOT_FOUND` for another merchant's. */
export async function readDelivery(ctx: TxContext, merchantId: string, id: string) {
  const row = await deliveries(ctx)
    .where("deliveries.id", "=", id)
    .where("deliveries.merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (!row) throw new ApiError("NOT_FOUND")
  return deliveryOf(row)
}

/** A delivery can be resent any number of times, and each attempt keeps up to 4 KB of the answer. */
const MAX_ATTEMPTS = 100

/** The newest 100 attempts of a delivery, oldest first. */
export async function attemptsOf(ctx: Context, deliveryId: string) {
  const rows = await ctx.db
    .selectFrom("delivery_attempts")
    .selectAll()
    .where("delivery_id", "=", deliveryId)
    .orderBy("id", "desc")
    .limit(MAX_ATTEMPTS)
    .execute()
  return rows.reverse().map(({ started_at, duration_ms, status, error, answer, headers }) => {
    return { at: started_at.toISOString(), durationMs: duration_ms, status, error, answer, headers }
  })
}
