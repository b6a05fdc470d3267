/** The outbox: an event and its deliveries become rows in the transaction that causes them. */
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { newId } from "../ids.ts"
import type { EventData } from "./events.ts"
import { type EventType, isUnconditional, wants } from "./webhook.ts"

export interface NewEvent<T extends keyof EventData> {
  merchantId: string
  type: T
  data: EventData[T]
  /** What happens once: a second event with this key adds nothing. Without one, it is always new. */
  dedupeKey?: string
  /** Events of one payment or session go out in turn. */
  orderKey: string
  /** Goes only there, signed with the account's secret. */
  callbackUrl?: string
  /** Goes also to each endpoint that was sent an event of these types under the same `orderKey`, whatever it wants now. */
  takesBack?: readonly EventType[]
  /** Goes only to this endpoint, wanted or not, paused or not. */
  onlyTo?: string
  /** Goes to this endpoint too, paused or not. */
  evenPaused?: string
}

/**
 * Writes an event and a delivery to each endpoint that wants it; to a paused one as `skipped`, for later. One that
 * every endpoint gets is bound to the address of now, in a lane of its own, so that neither a later change of the endpoint nor
 * what waits for it holds it up. Answers the event's id, or undefined when it was there before. Call it inside a transaction, and `wakes.wakeSoon("deliveries")`
 * once that has committed.
 */
export async function emit<T extends keyof EventData>(ctx: Context, event: NewEvent<T>): Promise<string | undefined> {
  const { merchantId, type, data, orderKey, callbackUrl, onlyTo } = event
  const id = newId("evt")
  const now = ctx.now()
  const made = await ctx.db
    .insertInto("events")
    .values({
      id,
      merchant_id: merchantId,
      type,
      dedupe_key: event.dedupeKey ?? id,
      body: JSON.stringify({ id, event: type, createdAt: now.toISOString(), data }),
      created_at: now,
    })
    .onConflict(conflict => conflict.columns(["merchant_id", "dedupe_key"]).doNothing())
    .executeTakeFirst()
  if (made.numInsertedOrUpdatedRows === 0n) return undefined

  const common = {
    event_id: id,
    merchant_id: merchantId,
    order_key: orderKey,
    run_at: now,
    created_at: now,
    updated_at: now,
  }
  if (callbackUrl !== undefined) {
    // By origin: sessions of one shop share its connections, and a shop's callbacks hold up no other shop's.
    const lane = `${merchantId} ${new URL(callbackUrl).origin}`
    const delivery = { id: newId("dlv"), url: callbackUrl, lane, status: "pending" as const, ...common }
    await ctx.db.insertInto("deliveries").values(delivery).execute()
    return id
  }
  const endpoints = await liveWebhooks(ctx, merchantId)
  const sentBefore = event.takesBack ? await sentTo(ctx, event, event.takesBack) : new Set()
  const isMeant = (webhook: Row<"webhooks">) => wants(webhook.events, type) || sentBefore.has(webhook.id)
  const to = endpoints.filter(each => (onlyTo === undefined ? isMeant(each) : each.id === onlyTo))
  if (to.length > 0)
    await ctx.db
      .insertInto("deliveries")
      .values(
        to.map(webhook => {
          const sends = webhook.active || onlyTo !== undefined || event.evenPaused === webhook.id
          return {
            id: newId("dlv"),
            webhook_id: webhook.id,
            lane: webhook.id,
            status: sends ? ("pending" as const) : ("skipped" as const),
            by_hand: onlyTo !== undefined,
            ...(sends && isUnconditional(type) ? { url: webhook.url, lane: `${webhook.id} settings` } : {}),
            ...common,
          }
        }),
      )
      .execute()
  return id
}

/** The endpoints that have a delivery of these types under the event's order key. */
async function sentTo(
  ctx: Context,
  { merchantId, orderKey }: { merchantId: string; orderKey: string },
  types: readonly EventType[],
): Promise<Set<string | null>> {
  const rows = await ctx.db
    .selectFrom("deliveries")
    .innerJoin("events", "events.id", "deliveries.event_id")
    .select("deliveries.webhook_id")
    .where("deliveries.merchant_id", "=", merchantId)
    .where("deliveries.order_key", "=", orderKey)
    .where("events.type", "in", types)
    .execute()
  return new Set(rows.map(row => row.webhook_id))
}

const liveWebhooks = (ctx: Context, merchantId: string): Promise<Row<"webhooks">[]> =>
  ctx.db
    .selectFrom("webhooks")
    .selectAll()
    .where("merchant_id", "=", merchantId)
    .where("deleted_at", "is", null)
    .execute()
