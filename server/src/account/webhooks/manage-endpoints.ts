/** Registers, changes and deletes webhooks, and resends their deliveries. */
import { type RawBuilder, sql } from "kysely"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { newCuid, newId } from "../../platform/ids.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"
import { emit, type NewEvent } from "./emit.ts"
import { exampleDataOf } from "./event-examples.ts"
import type { EventData } from "./events.ts"
import { newSecret, retireSecrets, rollSecret, secretsOf } from "./manage-secrets.ts"
import type { WebhookChange, WebhookCreate } from "./schema.ts"
import type { Sender } from "./send.ts"
import { ROWS_PER_STATEMENT, skipWaiting } from "./skip-deliveries.ts"
import { type EventType, isNoReceiver, originOf, PING, receiverFault } from "./webhook.ts"

/** Every event adds one delivery row per endpoint, so the number of endpoints is limited. */
const MAX_WEBHOOKS = 100
/** How long one recover request may resend deliveries, in milliseconds: half of the statement timeout. */
const RECOVER_MS = 5_000

/**
 * Returns the merchant's webhook. Throws `NOT_FOUND` for a deleted webhook, a listener or another merchant's webhook.
 */
export async function readWebhook(ctx: TxContext, merchantId: string, id: string): Promise<Row<"webhooks">> {
  return found(await own(ctx, merchantId, id).executeTakeFirst())
}

const own = (ctx: TxContext, merchantId: string, id: string) =>
  ctx.db
    .selectFrom("webhooks")
    .selectAll()
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .where("deleted_at", "is", null)
    .where("pulled_at", "is", null)

const lock = async (ctx: TxContext, merchantId: string, id: string) =>
  found(await own(ctx, merchantId, id).forNoKeyUpdate().executeTakeFirst())

function found<T>(row: T | undefined): T {
  if (row === undefined) throw new ApiError("NOT_FOUND")
  return row
}

/** A webhook that is about to be registered. */
export interface NewWebhook {
  id: string
  secret: string
  body: WebhookCreate
}

/** Tries the URL of a new endpoint. Throws `VALIDATION_ERROR` or `URL_UNREACHABLE`. */
export async function tryWebhook(ctx: Context, sender: Sender, body: WebhookCreate): Promise<NewWebhook> {
  checkUrl(ctx, body.url)
  const id = newCuid()
  const secret = newSecret()
  await probe(ctx, sender, { url: body.url, webhookId: id, secrets: [secret] })
  return { id, secret, body }
}

/**
 * Registers an endpoint that {@link tryWebhook} tried. Needs a transaction. Throws `VALIDATION_ERROR` if the merchant
 * already has 100 endpoints.
 */
export async function createWebhook(
  ctx: TxContext,
  merchantId: string,
  { id, secret, body }: NewWebhook,
): Promise<Row<"webhooks">> {
  // Locked, so that two concurrent requests can't both create the last allowed endpoint.
  await lockMerchant(ctx.db, merchantId)
  const { total } = await ctx.db
    .selectFrom("webhooks")
    .select(sql<number>`count(*)::int`.as("total"))
    .where("merchant_id", "=", merchantId)
    .where("deleted_at", "is", null)
    .where("pulled_at", "is", null)
    .executeTakeFirstOrThrow()
  if (total >= MAX_WEBHOOKS) throw invalid("", `You already have ${MAX_WEBHOOKS} webhooks. Delete one first.`)
  await notifyOthers(ctx, { id, merchant_id: merchantId, url: body.url }, "added")
  const now = ctx.now()
  const webhook = await ctx.db
    .insertInto("webhooks")
    .values({
      id,
      merchant_id: merchantId,
      url: body.url,
      description: body.description ?? null,
      events: JSON.stringify([...new Set(body.events)]),
      active: true,
      created_at: now,
      updated_at: now,
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  await rollSecret(ctx, { merchantId, webhookId: id }, secret)
  return webhook
}

/**
 * Tries a new URL first, then changes the given fields. Activating the endpoint clears the reason why it was inactive.
 * The old URL is notified of a move, a pause or changed subscriptions.
 */
export async function changeWebhook(
  ctx: Context,
  sender: Sender,
  merchantId: string,
  id: string,
  body: WebhookChange,
): Promise<Row<"webhooks">> {
  const known = await readWebhook(ctx, merchantId, id)
  if (body.url !== undefined && body.url !== known.url) {
    checkUrl(ctx, body.url)
    const secrets = await secretsOf(ctx, { merchantId, webhookId: id })
    await probe(ctx, sender, { url: body.url, webhookId: id, secrets })
  }
  return await inTransaction(ctx, async ctx => {
    const before = await lock(ctx, merchantId, id)
    if (body.url !== undefined && body.url !== before.url) await notifyChange(ctx, before, "moved", body.url)
    if (body.active === false && before.active) await notifyChange(ctx, before, "paused")
    if (body.events !== undefined && !isSame(body.events, before.events))
      await notifyChange(ctx, before, "events_changed")
    if (body.active === false) await skipWaiting(ctx, id)
    return await ctx.db
      .updateTable("webhooks")
      .set({
        updated_at: ctx.now(),
        // The old URL's failures say nothing about the new one.
        ...(body.url === undefined || body.url === before.url ? {} : { url: body.url, failing_since: null }),
        ...(body.events === undefined ? {} : { events: JSON.stringify([...new Set(body.events)]) }),
        ...(body.description === undefined ? {} : { description: body.description }),
        ...(body.active === undefined ? {} : { active: body.active }),
        ...(body.active === true ? { disabled_reason: null, failing_since: null } : {}),
      })
      .where("id", "=", id)
      .returningAll()
      .executeTakeFirstOrThrow()
  })
}

/** Whether two subscription lists name the same events. */
const isSame = (some: readonly string[], others: readonly string[]): boolean =>
  new Set(some).symmetricDifference(new Set(others)).size === 0

type WebhookChanged = EventData["settings.webhook_changed"]
type Changed = Pick<Row<"webhooks">, "id" | "merchant_id" | "url">

/**
 * Notifies all endpoints of a change to one of them. The changed endpoint is notified at its old URL. Otherwise an
 * attacker with a stolen token could first silence that endpoint. Call it inside the change's transaction, before the
 * change is written.
 */
async function notifyChange(
  ctx: TxContext,
  webhook: Changed,
  change: WebhookChanged["change"],
  newUrl: string | null = null,
): Promise<void> {
  const { id: webhookId, merchant_id: merchantId, url } = webhook
  const data = { merchantId, webhookId, change, url, newUrl }
  await emit(ctx, { ...changed(merchantId, webhookId), data, onlyTo: webhookId })
  await notifyOthers(ctx, webhook, change, newUrl)
}

/**
 * Notifies all endpoints except this one. The event carries only origins, because paths and queries may contain
 * secrets, such as those of a chat's incoming webhook.
 */
export async function notifyOthers(
  ctx: TxContext,
  { id: webhookId, merchant_id: merchantId, url }: Changed,
  change: WebhookChanged["change"],
  newUrl: string | null = null,
): Promise<void> {
  const origins = { url: originOf(url), newUrl: newUrl === null ? null : originOf(newUrl) }
  const data = { merchantId, webhookId, change, ...origins }
  await emit(ctx, { ...changed(merchantId, webhookId), data, except: webhookId })
}

const changed = (merchantId: string, what: string) => ({
  merchantId,
  type: "settings.webhook_changed" as const,
  orderKey: `settings webhook ${what}`,
})

/**
 * Deletes a webhook and notifies it. Only deliveries that were already claimed are still sent. The deliveries of a
 * deleted webhook stay readable, and its secrets sign for 24 more hours for deliveries in progress.
 */
export async function deleteWebhook(ctx: Context, merchantId: string, id: string): Promise<void> {
  await inTransaction(ctx, async ctx => {
    await notifyChange(ctx, await lock(ctx, merchantId, id), "deleted")
    const now = ctx.now()
    await ctx.db
      .updateTable("webhooks")
      .set({ active: false, disabled_reason: null, deleted_at: now, updated_at: now })
      .where("id", "=", id)
      .execute()
    await retireSecrets(ctx, { merchantId, webhookId: id })
    await skipWaiting(ctx, id)
  })
}

/**
 * Creates a new secret for the webhook and returns it once. The notice to the webhook is signed with the old secret
 * too. Call it inside a transaction.
 */
export async function rollWebhookSecret(ctx: TxContext, merchantId: string, id: string): Promise<string> {
  await notifyChange(ctx, await lock(ctx, merchantId, id), "secret_rolled")
  return await rollSecret(ctx, { merchantId, webhookId: id })
}

/** Creates a new account secret and returns it once. Every endpoint is notified. Call it inside a transaction. */
export async function rollAccountSecret(ctx: TxContext, merchantId: string): Promise<string> {
  await lockMerchant(ctx.db, merchantId)
  const data = { merchantId, webhookId: null, change: "account_secret_rolled" as const, url: null, newUrl: null }
  await emit(ctx, { ...changed(merchantId, "account"), data })
  return await rollSecret(ctx, { merchantId, webhookId: null })
}

/**
 * Sends a `ping` or another event's example like any event, even to a paused webhook, and returns the delivery's id.
 */
export async function sendTest(
  ctx: TxContext,
  merchantId: string,
  id: string,
  type: EventType = PING,
): Promise<string> {
  await readWebhook(ctx, merchantId, id)
  const to = { merchantId, orderKey: newId("evt"), onlyTo: id }
  const event: NewEvent<EventType> =
    type === PING
      ? { ...to, type, data: { webhookId: id } }
      : { ...to, type, data: exampleDataOf(type, merchantId), isTest: true }
  const [eventId = ""] = await emit(ctx, event)
  const { id: deliveryId } = await ctx.db
    .selectFrom("deliveries")
    .select("id")
    .where("event_id", "=", eventId)
    .executeTakeFirstOrThrow()
  return deliveryId
}

/**
 * Resends a delivery now, even to a paused webhook. The resend replaces a planned retry and counts its own attempts. If
 * the delivery is being sent right now, its count restarts. Throws `NOT_FOUND` for another merchant's delivery, or if
 * the delivery's webhook was deleted.
 */
export async function resend(ctx: TxContext, merchantId: string, deliveryId: string): Promise<void> {
  const { numUpdatedRows } = await ctx.db
    .updateTable("deliveries")
    .set(again(ctx))
    .where("id", "=", deliveryId)
    .where("merchant_id", "=", merchantId)
    .where(sql<boolean>`not exists (select from webhooks w where w.id = webhook_id and w.deleted_at is not null)`)
    .where(sql<boolean>`not ${isOfErased}`)
    .executeTakeFirst()
  if (numUpdatedRows === 0n)
    throw (await isErased(ctx, merchantId, deliveryId)) ? new ApiError("ERASED") : new ApiError("NOT_FOUND")
  ctx.onCommit(() => ctx.wakes.wakeSoon("deliveries"))
}

/** SQL: whether a delivery's event was erased. */
const isOfErased = sql`exists (select from events e where e.id = deliveries.event_id and e.erased_at is not null)`

async function isErased(ctx: TxContext, merchantId: string, deliveryId: string): Promise<boolean> {
  const { rows } =
    await sql`select from deliveries where id = ${deliveryId} and merchant_id = ${merchantId} and ${isOfErased}`.execute(
      ctx.db,
    )
  return rows.length > 0
}

/**
 * Resends every delivery that failed or was skipped since a time, oldest first, within the time of one request. `more`
 * says whether another request is needed.
 */
export async function recover(
  ctx: Context,
  merchantId: string,
  id: string,
  since: Date,
): Promise<{ recovered: number; more: boolean }> {
  await readWebhook(ctx, merchantId, id)
  const endsAt = performance.now() + RECOVER_MS
  let recovered = 0
  for (let last = { created_at: since, id: "" }; ; ) {
    const rows = await ctx.db
      .selectFrom("deliveries")
      .select(["id", "created_at"])
      .where("webhook_id", "=", id)
      .where("status", "in", ["failed", "skipped"])
      .where(sql<boolean>`(created_at, id) > (${last.created_at}::timestamptz, ${last.id})`)
      .orderBy("created_at")
      .orderBy("id")
      .limit(ROWS_PER_STATEMENT)
      .execute()
    const { numUpdatedRows } = await ctx.db
      .updateTable("deliveries")
      .set(again(ctx))
      .where(
        sql<boolean>`id = any(${sqlArray(
          "text",
          rows.map(({ id }) => id),
        )})`,
      )
      .where("status", "in", ["failed", "skipped"])
      .where(sql<boolean>`not ${isOfErased}`)
      .executeTakeFirst()
    recovered += Number(numUpdatedRows)
    ctx.wakes.wakeSoon("deliveries")
    const more = rows.length === ROWS_PER_STATEMENT
    if (!more || performance.now() > endsAt) return { recovered, more }
    last = rows.at(-1) ?? last
  }
}

/**
 * A process that is sending the delivery keeps its claim until the result is recorded. A delivery in progress keeps the
 * URL that it was bound to. A finished delivery goes to the endpoint's current URL.
 */
const again = (ctx: TxContext) => ({
  url: ifEnded(sql`null`, sql`url`),
  lane: ifEnded(sql`webhook_id`, sql`lane`),
  status: "pending" as const,
  attempts: 0,
  by_hand: true,
  run_at: dueNow(ctx.now()),
  updated_at: ctx.now(),
})

const ifEnded = (then: RawBuilder<unknown>, otherwise: RawBuilder<unknown>) =>
  sql<string>`case when webhook_id is not null and status <> 'pending' then ${then} else ${otherwise} end`

function checkUrl(ctx: Context, url: string): void {
  const fault = receiverFault(ctx.settings, url)
  if (fault) throw invalid("url", fault)
}

/** Tries a URL with a signed `ping`; throws `URL_UNREACHABLE` with the reason. */
async function probe(
  ctx: Context,
  sender: Sender,
  { url, webhookId, secrets }: { url: string; webhookId: string; secrets: string[] },
): Promise<void> {
  const eventId = newId("evt")
  const event = { id: eventId, event: PING, createdAt: ctx.now().toISOString(), data: { webhookId } }
  const message = { url, secrets, eventId, idempotencyKey: newId("dlv"), body: JSON.stringify(event) }
  const timeoutMs = ctx.settings.webhooks.probeTimeoutMs
  const { status, error } = await sender.send(message, { timeoutMs, signal: ctx.signal })
  // An answer that never ends still shows that there is a receiver.
  const reached = status !== null && !isNoReceiver(status) && (error === null || error === `answered ${status}`)
  if (!reached)
    throw new ApiError(
      "URL_UNREACHABLE",
      undefined,
      `The service could not reach the webhook's URL: ${error ?? status}.`,
    )
}
