/** Creates and ends listeners: endpoints without a URL, whose deliveries a client pulls. */
import { sql } from "kysely"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { newId } from "../../platform/ids.ts"
import { notifyOthers } from "../webhooks/manage-endpoints.ts"
import { retireSecrets, rollSecret } from "../webhooks/manage-secrets.ts"
import { ROWS_PER_STATEMENT } from "../webhooks/skip-deliveries.ts"
import { listenerUrl } from "../webhooks/webhook.ts"
import type { ListenerCreate } from "./schema.ts"

/** Limited, because every event adds one row per listener. */
const MAX_LISTENERS = 3
/** A listener ends if nobody pulls its deliveries for this long. */
const LEFT_S = 600

/** SQL: whether a listener is open. */
const isOpen = sql<boolean>`starts_with(id, 'lsn_') and deleted_at is null`

/** Query of a merchant's open listeners. */
export const listenersOf = ({ db }: Pick<TxContext, "db">, merchantId: string) =>
  db.selectFrom("webhooks").selectAll().where("merchant_id", "=", merchantId).where(isOpen)

/**
 * Locks a merchant's listener until the transaction ends. Throws `NOT_FOUND` if the listener has ended, or is another
 * merchant's.
 */
export async function lockListener(ctx: TxContext, merchantId: string, id: string): Promise<Row<"webhooks">> {
  const row = await listenersOf(ctx, merchantId).where("id", "=", id).forNoKeyUpdate().executeTakeFirst()
  if (!row) throw new ApiError("NOT_FOUND", undefined, "This listener does not exist, or has ended. Create a new one.")
  return row
}

/**
 * Creates a listener and notifies every endpoint. Call it inside a transaction. Throws `INVALID_OPERATION` in live mode
 * unless the merchant allows it, and `VALIDATION_ERROR` for callbacks in live mode or a fourth listener.
 */
export async function createListener(
  ctx: TxContext,
  merchantId: string,
  { events, callbacks = false, description = null }: ListenerCreate,
): Promise<{ row: Row<"webhooks">; secret: string }> {
  // Locked, so that two concurrent requests can't both create the last allowed listener.
  await lockMerchant(ctx.db, merchantId)
  if (ctx.settings.mode === "live") await checkLive(ctx, merchantId, callbacks)
  const { total } = await ctx.db
    .selectFrom("webhooks")
    .select(sql<number>`count(*)::int`.as("total"))
    .where("merchant_id", "=", merchantId)
    .where(isOpen)
    .executeTakeFirstOrThrow()
  if (total >= MAX_LISTENERS)
    throw invalid(
      "",
      `You already have ${MAX_LISTENERS} listeners. End one first; a listener that nobody pulls ends automatically`,
    )
  const id = newId("lsn")
  await notifyOthers(ctx, { id, merchant_id: merchantId, url: listenerUrl(id) }, "added")
  const now = ctx.now()
  const row = await ctx.db
    .insertInto("webhooks")
    .values({
      id,
      merchant_id: merchantId,
      url: listenerUrl(id),
      description,
      events: JSON.stringify([...new Set(events)]),
      active: true,
      pulled_at: sql<Date>`clock_timestamp()`,
      copies_callbacks: callbacks,
      created_at: now,
      updated_at: now,
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  return { row, secret: await rollSecret(ctx, { merchantId, webhookId: id }) }
}

async function checkLive(ctx: TxContext, merchantId: string, callbacks: boolean): Promise<void> {
  if (callbacks) throw invalid("callbacks", "must be false in live mode: copies are only for trying things out")
  const { live_listeners } = await ctx.db
    .selectFrom("merchants")
    .select("live_listeners")
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
  if (!live_listeners)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "In live mode a listener gets real events, so the merchant has to allow it first. An owner or admin does so with `liveListeners` in `PUT /api/console/settings`.",
    )
}

/** Ends a listener and skips its open deliveries. Throws `NOT_FOUND` if the listener has ended. */
export async function endListener(ctx: Context, merchantId: string, id: string): Promise<void> {
  await inTransaction(ctx, async ctx => {
    await lockListener(ctx, merchantId, id)
    await end(ctx, { merchantId, id })
  })
}

/** Ends all listeners of a merchant. Call it inside a transaction. */
export async function endListenersOf(ctx: TxContext, merchantId: string): Promise<void> {
  for (const { id } of await listenersOf(ctx, merchantId).orderBy("id").forNoKeyUpdate().execute())
    await end(ctx, { merchantId, id })
}

/**
 * Ends listeners that nobody pulled from for ten minutes. The database's clock is used, because a sandbox moves the
 * service's own clock.
 */
export async function endLeftListeners(ctx: Context): Promise<void> {
  const isLeft = sql<boolean>`pulled_at < clock_timestamp() - make_interval(secs => ${LEFT_S})`
  const left = ctx.db.selectFrom("webhooks").select(["id", "merchant_id"]).where(isOpen).where(isLeft)
  for (const { id, merchant_id: merchantId } of await left.execute())
    await inTransaction(ctx, async ctx => {
      const row = await listenersOf(ctx, merchantId)
        .where("id", "=", id)
        .where(isLeft)
        .forNoKeyUpdate()
        .executeTakeFirst()
      if (row) await end(ctx, { merchantId, id })
    })
}

/** Ends a listener that this transaction locked. If many deliveries are left, `skipRest` skips them. */
async function end(ctx: TxContext, { merchantId, id }: { merchantId: string; id: string }): Promise<void> {
  const now = ctx.now()
  await ctx.db
    .updateTable("webhooks")
    .set({ active: false, deleted_at: now, updated_at: now })
    .where("id", "=", id)
    .execute()
  await retireSecrets(ctx, { merchantId, webhookId: id })
  // Pulled deliveries without a result are skipped too, because nobody can report their results any more.
  await sql`update deliveries set status = 'skipped', claim_id = null, lease_until = null, updated_at = ${now}
    where id in (select id from deliveries where lane = ${id} and status = 'pending' limit ${ROWS_PER_STATEMENT}
      for no key update)`.execute(ctx.db)
  // Wakes the requests that wait for the listener's deliveries, so that they end.
  ctx.onCommit(() => ctx.wakes.wakeSoon("deliveries"))
}
