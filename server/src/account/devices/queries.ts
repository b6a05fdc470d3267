/** The SQL of devices that sign in. Times are wall time, so moving a sandbox's clock ends no sign-in. */
import { type TxContext, wallTime } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { GUESS_MS, GUESSES_PER_HOUR, GUESSES_PER_SESSION } from "./device.ts"

const HOUR_MS = 3_600_000

/** The unexpired device with this code, locked until the transaction ends; undefined if none exists. */
export const lockByDeviceCode = (ctx: TxContext, hash: string): Promise<Row<"device_sign_ins"> | undefined> =>
  ctx.db
    .selectFrom("device_sign_ins")
    .selectAll()
    .where("device_hash", "=", hash)
    .where("expires_at", ">", wallTime(ctx))
    .forNoKeyUpdate()
    .executeTakeFirst()

/** The device with this code that is waiting for a decision, locked; undefined if none exists. */
export const lockByUserCode = (ctx: TxContext, hash: string): Promise<Row<"device_sign_ins"> | undefined> =>
  ctx.db
    .selectFrom("device_sign_ins")
    .selectAll()
    .where("user_hash", "=", hash)
    .where("decision", "is", null)
    .where("expires_at", ">", wallTime(ctx))
    .forNoKeyUpdate()
    .executeTakeFirst()

/**
 * Which limit on wrong codes has been reached, if any. Locks the person until the transaction ends, so that two
 * concurrent codes both count.
 */
export async function reachedLimit(
  ctx: TxContext,
  { personId, sessionId }: { personId: string; sessionId: string },
): Promise<"session" | "hour" | undefined> {
  await ctx.db.selectFrom("persons").select("id").where("id", "=", personId).forNoKeyUpdate().execute()
  const since = new Date(wallTime(ctx).getTime() - GUESS_MS)
  const guesses = await ctx.db
    .selectFrom("device_guesses")
    .select(["session_id", "created_at"])
    .where("person_id", "=", personId)
    .where("created_at", ">", since)
    .execute()
  const hour = wallTime(ctx).getTime() - HOUR_MS
  if (guesses.filter(each => each.session_id === sessionId).length >= GUESSES_PER_SESSION) return "session"
  return guesses.filter(each => each.created_at.getTime() > hour).length >= GUESSES_PER_HOUR ? "hour" : undefined
}

/** Deletes expired devices, and wrong codes that no longer count. */
export async function forgetDevices(ctx: TxContext): Promise<void> {
  const now = wallTime(ctx)
  await ctx.db.deleteFrom("device_sign_ins").where("expires_at", "<=", now).execute()
  await ctx.db
    .deleteFrom("device_guesses")
    .where("created_at", "<=", new Date(now.getTime() - GUESS_MS))
    .execute()
}
