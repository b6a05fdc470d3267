/** The SQL of sessions and started sign-ins. Times are wall time, so moving a sandbox's clock ends no session. */
import { sql } from "kysely"
import { type TxContext, wallTime } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { endOf, IDLE_MS, SESSIONS_PER_PERSON } from "./session.ts"

/** A session's use is recorded at most this often. */
const SEEN_STEP_MS = 60_000

/** The condition of every read and change of sessions: the session has not ended. */
const lasting = (ctx: TxContext) => {
  const now = wallTime(ctx)
  return { now, idleSince: new Date(now.getTime() - IDLE_MS) }
}

/** The open sessions with these hashes, keyed by hash. */
export async function sessionsByHash(ctx: TxContext, hashes: readonly string[]): Promise<Map<string, Row<"sessions">>> {
  const { now, idleSince } = lasting(ctx)
  const rows = await ctx.db
    .selectFrom("sessions")
    .selectAll()
    .where("hash", "in", hashes)
    .where("expires_at", ">", now)
    .where("last_seen_at", ">", idleSince)
    .execute()
  return new Map(rows.map(row => [row.hash, row]))
}

/** When each of these open sessions ends if it stays unused, keyed by id. */
export async function lastingSessions(ctx: TxContext, ids: readonly string[]): Promise<Map<string, Date>> {
  const { now, idleSince } = lasting(ctx)
  const rows = await ctx.db
    .selectFrom("sessions")
    .select(["id", "last_seen_at", "expires_at"])
    .where("id", "in", ids)
    .where("expires_at", ">", now)
    .where("last_seen_at", ">", idleSince)
    .execute()
  return new Map(rows.map(row => [row.id, endOf(row)]))
}

/** Records a session's use at most once a minute, and never for a session that has ended in the meantime. */
export async function noteSeen(ctx: TxContext, { id, last_seen_at }: Row<"sessions">): Promise<void> {
  const { now, idleSince } = lasting(ctx)
  const before = new Date(now.getTime() - SEEN_STEP_MS)
  if (last_seen_at > before) return
  await ctx.db
    .updateTable("sessions")
    .set({ last_seen_at: now })
    .where("id", "=", id)
    .where("last_seen_at", ">", idleSince)
    // Of many concurrent requests, only one writes the time.
    .where("last_seen_at", "<=", before)
    .execute()
}

/** A person's open sessions, newest first. */
export async function sessionsOf(ctx: TxContext, { iss, sub }: Subject): Promise<Row<"sessions">[]> {
  const { now, idleSince } = lasting(ctx)
  return await ctx.db
    .selectFrom("sessions")
    .selectAll()
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .where("expires_at", ">", now)
    .where("last_seen_at", ">", idleSince)
    .orderBy("created_at", "desc")
    .orderBy("id")
    .execute()
}

/** Adds a session, and ends the person's oldest ones beyond the limit. */
export async function insertSession(ctx: TxContext, row: Row<"sessions">): Promise<void> {
  await ctx.db.insertInto("sessions").values(row).execute()
  const kept = ctx.db
    .selectFrom("sessions")
    .select("id")
    .where("iss", "=", row.iss)
    .where("sub", "=", row.sub)
    .orderBy("created_at", "desc")
    .limit(SESSIONS_PER_PERSON)
  const ended = await ctx.db
    .deleteFrom("sessions")
    .where("iss", "=", row.iss)
    .where("sub", "=", row.sub)
    .where("id", "not in", kept)
    .returning("id")
    .execute()
  for (const { id } of ended) await notifyEnded(ctx, id)
}

/** The name, possibly empty, of the merchant of a person's oldest membership; undefined without a membership. */
export async function merchantNameOf(ctx: TxContext, { iss, sub }: Subject): Promise<string | undefined> {
  const found = ctx.db
    .selectFrom("persons")
    .innerJoin("members", "members.person_id", "persons.id")
    .innerJoin("merchants", "merchants.id", "members.merchant_id")
    .select("name")
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .orderBy("members.created_at")
  return (await found.executeTakeFirst())?.name
}

/** Ends a session of this person; false if the person has none with this id. */
export async function endSession(ctx: TxContext, { iss, sub }: Subject, id: string): Promise<boolean> {
  const ended = await ctx.db
    .deleteFrom("sessions")
    .where("id", "=", id)
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .returning("id")
    .executeTakeFirst()
  if (ended) await notifyEnded(ctx, ended.id)
  return ended !== undefined
}

/** Also ends the streams to the session's browser (`identity/watch-credentials.ts`). */
const notifyEnded = async (ctx: TxContext, id: string): Promise<void> =>
  void (await sql`select pg_notify('sluice', ${`credential ${id}`})`.execute(ctx.db))

/** Ends the session with this hash, if it exists. */
export async function endSessionWith(ctx: TxContext, hash: string): Promise<void> {
  const ended = await ctx.db.deleteFrom("sessions").where("hash", "=", hash).returning("id").executeTakeFirst()
  if (ended) await notifyEnded(ctx, ended.id)
}

/**
 * Takes the sign-in of a returning browser, so that nobody else can. Returns undefined if no sign-in has this hash and
 * state, or if it expired. A wrong state leaves the sign-in in place, because any site can open the return address.
 */
export async function takeSignIn(
  ctx: TxContext,
  { hash, state }: Pick<Row<"sign_ins">, "hash" | "state">,
): Promise<Row<"sign_ins"> | undefined> {
  return await ctx.db
    .deleteFrom("sign_ins")
    .where("hash", "=", hash)
    .where("state", "=", state)
    .where("expires_at", ">", wallTime(ctx))
    .returningAll()
    .executeTakeFirst()
}

/** Deletes ended sessions and sign-ins. */
export async function forgetEnded(ctx: TxContext): Promise<void> {
  const { now, idleSince } = lasting(ctx)
  await ctx.db
    .deleteFrom("sessions")
    .where(eb => eb.or([eb("expires_at", "<=", now), eb("last_seen_at", "<=", idleSince)]))
    .execute()
  await ctx.db.deleteFrom("sign_ins").where("expires_at", "<=", now).execute()
}
