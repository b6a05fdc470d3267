/** Reading deliveries and events. */
import type { Context } from "../context.ts"
import type { DeliveryStatus } from "../db/webhook-rows.ts"
import { ApiError } from "../errors.ts"

/** A merchant's deliveries with what they carry and where they go. */
export const deliveriesOf = (ctx: Context, merchantId: string) =>
  ctx.db
    .selectFrom("deliveries")
    .innerJoin("events", "events.id", "deliveries.event_id")
    .leftJoin("webhooks", "webhooks.id", "deliveries.webhook_id")
    .select(eb => [
      "deliveries.id",
      "deliveries.event_id",
      "events.type",
      "deliveries.webhook_id",
      eb.fn.coalesce("deliveries.url", "webhooks.url").as("url"),
      "deliveries.status",
      "deliveries.attempts",
      "deliveries.run_at",
      "deliveries.claim_id",
      "deliveries.created_at",
      "deliveries.updated_at",
    ])
    .where("deliveries.merchant_id", "=", merchantId)

interface DeliveryRow {
  id: string
  event_id: string
  type: string
  webhook_id: string | null
  url: string | null
  status: DeliveryStatus
  attempts: number
  run_at: Date
  claim_id: string | null
  created_at: Date
  updated_at: Date
}

/** A delivery as the API shows it. */
export const deliveryOf = (row: DeliveryRow) => ({
  id: row.id,
  eventId: row.event_id,
  event: row.type,
  webhookId: row.webhook_id,
  url: row.url ?? "",
  status: row.status,
  attempts: row.attempts,
  nextAttemptAt: row.status === "pending" && row.claim_id === null ? row.run_at.toISOString() : null,
  createdAt: row.created_at.toISOString(),
  updatedAt: row.updated_at.toISOString(),
})

/** The merchant's delivery; `NOT_FOUND` for anyone else's. */
export async function readDelivery(ctx: Context, merchantId: string, id: string) {
  const row = await deliveriesOf(ctx, merchantId).where("deliveries.id", "=", id).executeTakeFirst()
  if (!row) throw new ApiError("NOT_FOUND")
  return deliveryOf(row)
}

/** Every attempt of a delivery, oldest first. */
export async function attemptsOf(ctx: Context, deliveryId: string) {
  const rows = await ctx.db
    .selectFrom("delivery_attempts")
    .selectAll()
    .where("delivery_id", "=", deliveryId)
    .orderBy("id")
    .execute()
  return rows.map(({ started_at, duration_ms, status, error, answer }) => {
    return { at: started_at.toISOString(), durationMs: duration_ms, status, error, answer }
  })
}
