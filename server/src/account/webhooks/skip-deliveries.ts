/** Skips what is pending of endpoints that are paused or deleted, in steps: an endpoint may have 200,000 deliveries. */
import { sql } from "kysely"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"

/** Some tenths of a second of work for the database. */
export const ROWS_PER_STATEMENT = 5_000

/**
 * Skips pending deliveries of an endpoint, except those being sent right now: at most as many as fit a request, since a
 * statement over 200,000 took longer than a request may (measured). {@link skipRest} skips the others; a worker that
 * claims one before sends nothing. Returns whether there may be more. `evenByHand`: also what the merchant had sent again.
 */
export async function skipWaiting(ctx: TxContext, webhookId: string, evenByHand = true): Promise<boolean> {
  const { rows } = await sql`update deliveries set status = 'skipped', updated_at = ${ctx.now()}
    where id in (select id from deliveries where lane = ${webhookId} and status = 'pending' and (${evenByHand} or not by_hand)
      and (lease_until is null or lease_until < clock_timestamp()) limit ${ROWS_PER_STATEMENT} for no key update skip locked)
    returning 1`.execute(ctx.db)
  return rows.length === ROWS_PER_STATEMENT
}

/**
 * Skips what is still pending of endpoints that are paused or deleted. What a merchant sends again by hand reaches a
 * paused endpoint, so it stays.
 */
export async function skipRest(ctx: Context): Promise<void> {
  const { rows } = await sql<{
    id: string
  }>`select id from webhooks w where not active and exists (select from deliveries d
    where d.lane = w.id and d.status = 'pending' and (w.deleted_at is not null or not d.by_hand))`.execute(ctx.db)
  for (const { id } of rows) while (!ctx.signal.aborted && (await inTransaction(ctx, ctx => skipPaused(ctx, id))));
}

/** The same for an endpoint that is still inactive; it can't be activated meanwhile. */
async function skipPaused(ctx: TxContext, id: string): Promise<boolean> {
  const paused = await ctx.db
    .selectFrom("webhooks")
    .select("deleted_at")
    .where("id", "=", id)
    .where("active", "=", false)
    .forNoKeyUpdate()
    .executeTakeFirst()
  return paused !== undefined && (await skipWaiting(ctx, id, paused.deleted_at !== null))
}
