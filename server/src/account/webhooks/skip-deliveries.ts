/** Skips pending deliveries of paused or deleted endpoints in steps: an endpoint may have 200,000 of them. */
import { sql } from "kysely"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"

/** Takes the database a few tenths of a second. */
export const ROWS_PER_STATEMENT = 5_000

/**
 * Skips an endpoint's pending deliveries, except those being sent right now. One call skips only as many as fit into a
 * request, because a statement for 200,000 took longer (measured). {@link skipRest} skips the others. If a worker
 * claims one of these first, it sends nothing. Returns whether more may be left. `evenByHand`: also skips manual
 * resends.
 */
export async function skipWaiting(ctx: TxContext, webhookId: string, evenByHand = true): Promise<boolean> {
  const { rows } = await sql`update deliveries set status = 'skipped', updated_at = ${ctx.now()}
    where id in (select id from deliveries where lane = ${webhookId} and status = 'pending' and (${evenByHand} or not by_hand)
      and (lease_until is null or lease_until < clock_timestamp()) limit ${ROWS_PER_STATEMENT} for no key update skip locked)
    returning 1`.execute(ctx.db)
  return rows.length === ROWS_PER_STATEMENT
}

/**
 * Skips the remaining pending deliveries of paused or deleted endpoints. A merchant's manual resends still reach a
 * paused endpoint, so they stay.
 */
export async function skipRest(ctx: Context): Promise<void> {
  const { rows } = await sql<{
    id: string
  }>`select id from webhooks w where not active and exists (select from deliveries d
    where d.lane = w.id and d.status = 'pending' and (w.deleted_at is not null or not d.by_hand))`.execute(ctx.db)
  for (const { id } of rows) while (!ctx.signal.aborted && (await inTransaction(ctx, ctx => skipPaused(ctx, id))));
}

/** Skips a batch for an endpoint that is still inactive, and locks the endpoint against activation. */
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
