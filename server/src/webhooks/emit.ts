/** The outbox: an event and its deliveries are inserted in the transaction that causes them. */
import { type Insertable, sql } from "kysely"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import type { Deliveries } from "../db/webhook-rows.ts"
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
  /** Sends only to those endpoints, as the others would hear that something ended of which they never heard. */
  onlyBack?: boolean
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
/** A statement takes 65,535 values; a hundred events of a merchant with a hundred endpoints are ten thousand deliveries. */
const DELIVERIES_A_STATEMENT = 1_000

/**
 * Inserts an event and one delivery for each subscribed endpoint; for a paused endpoint the delivery is `skipped`, to
 * be sent later. A delivery of an unconditional event is bound to the endpoint's current address, in a lane that the
 * merchant's endpoints of one origin share, so that neither a later change of the endpoint nor its backlog delays it;
 * `RATE_LIMITED` where the merchant's changes of the last minute were sent too often already. Returns the event's id, or undefined when
 * the event already existed. Call it inside a transaction, and `wakes.wakeSoon("deliveries")` once that has committed.
 */
export const emit = async <T extends keyof EventData>(
  ctx: TxContext,
  event: NewEvent<T>,
): Promise<string | undefined> => (await emitAll(ctx, [event]))[0]

/** Does what {@link emit} does for each of these events, in their order, with as many statements as for one. */
export async function emitAll(
  ctx: TxContext,
  events: readonly NewEvent<keyof EventData>[],
): Promise<(string | undefined)[]> {
  if (events.length === 0) return []
  const now = ctx.now()
  const numbered = events.map(event => ({ ...event, id: newId("evt") }))
  const made = await ctx.db
    .insertInto("events")
    .values(
      numbered.map(({ id, merchantId, type, dedupeKey, data }) => ({
        ...{ id, merchant_id: merchantId, type, dedupe_key: dedupeKey ?? id, created_at: now },
        body: JSON.stringify({ id, event: type, createdAt: now.toISOString(), data }),
      })),
    )
    .onConflict(conflict => conflict.columns(["merchant_id", "dedupe_key"]).doNothing())
    .returning("id")
    .execute()
  const isMade = new Set(made.map(({ id }) => id))
  const fresh = numbered.filter(({ id }) => isMade.has(id))
  const webhooks = await liveWebhooks(ctx, fresh)
  const deliveries = []
  for (const event of fresh) deliveries.push(...(await deliveriesOf(ctx, event, webhooks)))
  // In their order, which is that of sending.
  for (let i = 0; i < deliveries.length; i += DELIVERIES_A_STATEMENT)
    await ctx.db
      .insertInto("deliveries")
      .values(deliveries.slice(i, i + DELIVERIES_A_STATEMENT))
      .execute()
  return numbered.map(({ id }) => (isMade.has(id) ? id : undefined))
}

/** What an event is sent as: to its callback, or to each endpoint of its merchant that wants it. */
async function deliveriesOf(
  ctx: TxContext,
  event: NewEvent<keyof EventData> & { id: string },
  webhooks: readonly Row<"webhooks">[],
): Promise<Insertable<Deliveries>[]> {
  const { merchantId, type, orderKey, callbackUrl, onlyTo } = event
  const now = ctx.now()
  const common = {
    event_id: event.id,
    merchant_id: merchantId,
    order_key: orderKey,
    run_at: now,
    created_at: now,
    updated_at: now,
  }
  if (callbackUrl !== undefined) {
    // By origin: sessions of one shop share its connections, and a shop's callbacks do not delay those of another shop.
    const lane = `${merchantId} ${new URL(callbackUrl).origin}`
    return [{ id: newId("dlv"), url: callbackUrl, lane, status: "pending", ...common }]
  }
  const sentBefore = event.takesBack ? await sentTo(ctx, event, event.takesBack) : new Set()
  const isMeant = (webhook: Row<"webhooks">) =>
    sentBefore.has(webhook.id) || (!event.onlyBack && wants(webhook.events, type))
  const to = webhooks.filter(
    each =>
      each.merchant_id === merchantId &&
      (onlyTo === undefined ? isMeant(each) && each.id !== event.except : each.id === onlyTo),
  )
  if (isUnconditional(type)) await assertNotices(ctx, merchantId, to.length)
  return to.map(webhook => {
    const sends = webhook.active || onlyTo !== undefined
    return {
      id: newId("dlv"),
      webhook_id: webhook.id,
      lane: webhook.id,
      status: sends ? "pending" : "skipped",
      by_hand: onlyTo !== undefined,
      ...common,
      ...(sends && isUnconditional(type) ? boundTo(webhook, orderKey) : {}),
    }
  })
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

/** The endpoints of the merchants whose events are not sent to a callback. */
async function liveWebhooks(
  ctx: TxContext,
  events: readonly Pick<NewEvent<keyof EventData>, "merchantId" | "callbackUrl">[],
): Promise<Row<"webhooks">[]> {
  const merchants = new Set(events.filter(each => each.callbackUrl === undefined).map(each => each.merchantId))
  if (merchants.size === 0) return []
  return await ctx.db
    .selectFrom("webhooks")
    .selectAll()
    .where("merchant_id", "in", [...merchants])
    .where("deleted_at", "is", null)
    .execute()
}
