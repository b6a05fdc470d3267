/** A person types a device's code, sees who asks for what, and approves or denies it. */
import type { FastifyRequest } from "fastify"
import { sql } from "kysely"
import { withActor } from "../../platform/actor.ts"
import { type Context, inTransaction, type TxContext, wallTime } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { actorOf } from "../../platform/http/actor.ts"
import type { Scope } from "../../platform/http/rights.ts"
import { checkGivable } from "../../platform/http/route-access.ts"
import { isLocked } from "../identity/check-wallet-lock.ts"
import { type Membership, membershipsOf } from "../identity/find-member.ts"
import { movesMoney } from "../identity/key-terms.ts"
import { hashOf } from "../sessions/session.ts"
import { GUESSES_PER_HOUR, GUESSES_PER_SESSION, typedCode } from "./device.ts"
import { lockByUserCode, reachedLimit } from "./queries.ts"

const UNKNOWN =
  "No device is waiting with this code. Type it as the device shows it; a code is valid once, for ten minutes."
const REACHED = {
  session: `You typed ${GUESSES_PER_SESSION} wrong codes. Sign out and in again before you try another code.`,
  hour: `You typed ${GUESSES_PER_HOUR} wrong codes in an hour. Try again later.`,
}
const NO_MERCHANT = "You belong to no merchant, so a device can do nothing for you here."
const LOCKED =
  "The wallet lock is on, so a key with `money` or `console` needs the payout wallet's signature. Create it with `POST /api/console/api-keys`, or start again with other scopes."

/** A waiting device, and the merchants that the person may choose from. */
export interface Waiting {
  device: Row<"device_sign_ins">
  merchants: Membership[]
}

/** The result of a code or decision: a waiting device, the decision, or a sentence that says why it was refused. */
export type Outcome = { waiting: Waiting } | { decided: "approved" | "denied" } | { refusal: string }

/**
 * Finds the device that is waiting with this code, and approves or denies it if `decision` is given. Wrong codes are
 * counted in both steps.
 */
export async function decideDevice(
  ctx: Context,
  request: FastifyRequest,
  session: Pick<Row<"sessions">, "id" | "iss" | "sub">,
  given: { code: unknown; decision?: "approved" | "denied" | undefined; merchantId?: unknown },
): Promise<Outcome> {
  const merchants = (await membershipsOf(ctx, session)) ?? []
  const chosen =
    given.merchantId === undefined ? merchants[0] : merchants.find(each => each.merchantId === given.merchantId)
  if (!chosen) return { refusal: NO_MERCHANT }
  const { merchantId, personId, role } = chosen
  const actor = actorOf(request, { iss: session.iss, sub: session.sub })
  const held = actor && { ...actor, member: { merchantId, personId, role }, credential: { sessionId: session.id } }
  return await withActor(held, () =>
    inTransaction(ctx, async ctx => {
      const found = await findWaiting(ctx, { personId, sessionId: session.id }, given.code)
      if (typeof found === "string") return { refusal: found }
      if (given.decision === undefined) return { waiting: { device: found, merchants } }
      const refusal = given.decision === "approved" ? await whyNot(ctx, chosen, found) : undefined
      if (refusal !== undefined) return { refusal }
      await decide(ctx, chosen, found, { decision: given.decision, sessionId: session.id })
      return { decided: given.decision }
    }),
  )
}

async function findWaiting(
  ctx: TxContext,
  by: { personId: string; sessionId: string },
  typed: unknown,
): Promise<Row<"device_sign_ins"> | string> {
  const reached = await reachedLimit(ctx, by)
  if (reached) return REACHED[reached]
  const code = typedCode(typed)
  const found = code === undefined ? undefined : await lockByUserCode(ctx, hashOf(code))
  if (found) return found
  // Malformed codes count too, so that nobody learns the form from the limit.
  await ctx.db
    .insertInto("device_guesses")
    .values({ person_id: by.personId, session_id: by.sessionId, created_at: wallTime(ctx) })
    .execute()
  return UNKNOWN
}

/** A sentence that says why a member may not create the key that a device asks for; undefined if the member may. */
export async function whyNot(
  ctx: TxContext,
  { role, merchantId }: Pick<Membership, "role" | "merchantId">,
  { scopes }: Pick<Row<"device_sign_ins">, "scopes">,
): Promise<string | undefined> {
  try {
    for (const scope of scopes) checkGivable(role, scope as Scope)
  } catch (error) {
    if (error instanceof ApiError) return error.message
    throw error
  }
  return movesMoney({ scopes }) && (await isLocked(ctx, merchantId)) ? LOCKED : undefined
}

async function decide(
  ctx: TxContext,
  { merchantId, personId }: Membership,
  { id, host, scopes, address }: Row<"device_sign_ins">,
  { decision, sessionId }: { decision: "approved" | "denied"; sessionId: string },
): Promise<void> {
  const by = decision === "approved" ? { for_merchant: merchantId, person_id: personId, session_id: sessionId } : {}
  await ctx.db
    .updateTable("device_sign_ins")
    .set({ decision, ...by })
    .where("id", "=", id)
    .execute()
  const shown = JSON.stringify({ host, scopes, address })
  await sql`select add_audit_entry(${merchantId}, ${`device_sign_in.${decision}`}, ${id}, null, null, ${shown}::jsonb)`.execute(
    ctx.db,
  )
}
