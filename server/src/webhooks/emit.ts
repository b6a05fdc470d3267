/** The outbox: an event and its deliveries are inserted in the transaction that causes them. */
import { sql } from "kysely"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { ApiError } from "../errors.ts"
import { newId } from "../ids.ts"
import type { EventData } from "./events.ts"
import { type EventType, isUnconditional, wants } from "./webhook.ts"

export interface NewEvent<T extends keyof EventData> {
  merchantId: string
  type: T
  data: EventData[T]
  /** Deduplication key: emitting a second event with this key is a no-op. Without a key the event is always new. */
  dedupeKey?: string
  /** Events of one payment or session are delivered in order. */
  orderKey: string
  /** Sends only there, signed with the account's secret. */
  callbackUrl?: string
  /**
   * Also sends to each endpoint that was sent an event of these types under the same `orderKey`, whatever its current
   * subscriptions.
   */
  takesBack?: readonly EventType[]
  /** Sends only to this endpoint, whether subscribed or not, paused or not. */
  onlyTo?: string
  /** Sends to all but this endpoint. */
  except?: string
}

/**
 * Deliveries of unconditional events that a merchant causes in a minute: ten endpoints for each request that the console
 * takes. Whoever registers a hundred at a stranger's address must not send him a hundred requests for each of his own.
 */
const MOST_NOTICES = 600
const MINUTE_MS = 60_000

/**
 * Inserts an event and one delivery for each subscribed endpoint; for a paused endpoint the delivery is `skipped`, to
 * be sent later. A delivery of an unconditional event is bound to the endpoint's current address, in a lane that the
 * merchant's endpoints of one origin share, so that neither a later change of the endpoint nor its backlog delays it;
 * `RATE_LIMITED` where the merchant's changes of the last minute were sent too often already. Returns the event's id, or undefined when
 * the event already existed. Call it inside a transaction, and `wakes.wakeSoon("deliveries")` once that has committed.
 */
export async function emit<T extends keyof EventData>(ctx: TxContext, event: NewEvent<T>): Promise<string | undefined> {
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
    // By origin: sessions of one shop share its connections, and a shop's callbacks do not delay those of another shop.
    const lane = `${merchantId} ${new URL(callbackUrl).origin}`
    const delivery = { id: newId("dlv"), url: callbackUrl, lane, status: "pending" as const, ...common }
    await ctx.db.insertInto("deliveries").values(delivery).execute()
    return id
  }
  const endpoints = await liveWebhooks(ctx, merchantId)
  const sentBefore = event.takesBack ? await sentTo(ctx, event, event.takesBack) : new Set()
  const isMeant = (webhook: Row<"webhooks">) => wants(webhook.events, type) || sentBefore.has(webhook.id)
  const to = endpoints.filter(each =>
    onlyTo === undefined ? isMeant(each) && each.id !== event.except : each.id === onlyTo,
  )
  if (isUnconditional(type)) await assertNotices(ctx, merchantId, to.length)
  if (to.length > 0)
    await ctx.db
      .insertInto("deliveries")
      .values(
        to.map(webhook => {
          const sends = webhook.active || onlyTo !== undefined
          return {
            id: newId("dlv"),
            webhook_id: webhook.id,
            lane: webhook.id,
            status: sends ? ("pending" as const) : ("skipped" as const),
            by_hand: onlyTo !== undefined,
            ...common,
            ...(sends && isUnconditional(type) ? boundTo(webhook, orderKey) : {}),
          }
        }),
      )
      .execute()
  return id
}

/** What binds a delivery to an endpoint's current address. In the lane, one endpoint's deliveries wait for no other's. */
const boundTo = ({ id, merchant_id, url }: Row<"webhooks">, orderKey: string) => ({
  ...{ url, lane: `${merchant_id} ${new URL(url).origin} settings` },
  order_key: `${orderKey} ${id}`,
})

/** Refuses the change that would cause so many more notices; one that is alone in its minute is never refused. */
async function assertNotices(ctx: TxContext, merchantId: string, more: number): Promise<void> {
  const { rows } = await sql<{
    n: number
  }>`select count(*)::int as n from events e join deliveries d on d.event_id = e.id
    where e.merchant_id = ${merchantId} and e.type like 'settings.%'
      and e.created_at > ${new Date(ctx.now().getTime() - MINUTE_MS)}`.execute(ctx.db)
  const sent = rows[0]?.n ?? 0
  if (sent > 0 && sent + more > MOST_NOTICES)
    throw new ApiError(
      "RATE_LIMITED",
      undefined,
      `Your endpoints were sent ${sent} notices of changed settings in the last minute. Nothing was changed; try again in a minute.`,
    )
}

/** The endpoints that have a delivery of these types under the event's order key. */
async function sentTo(
  ctx: TxContext,
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

const liveWebhooks = (ctx: TxContext, merchantId: string): Promise<Row<"webhooks">[]> =>
  ctx.db
    .selectFrom("webhooks")
    .selectAll()
    .where("merchant_id", "=", merchantId)
    .where("deleted_at", "is", null)
    .execute()
