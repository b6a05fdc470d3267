/**
 * Decides who may be served what a payment bought. The signature in a broadcast transaction is public, so a payment
 * does not prove who paid. Only the first request with a payment is served, or a later one from the same place if the
 * first has disconnected. A payment is served once. Only the first answer's retry token, or the id that the caller
 * itself gave the payment, repeats the answer.
 */
import { timingSafeEqual } from "node:crypto"
import { setTimeout } from "node:timers/promises"
import type { FastifyReply, FastifyRequest } from "fastify"
import { sql } from "kysely"
import type { Context, TxContext } from "../../platform/context.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { hasMadeRoom } from "../../platform/http/held-connections.ts"
import { addressGroup } from "../../platform/limits/buckets.ts"
import { macsOf } from "../../platform/secrets.ts"

/**
 * How many seconds a lease lasts, and so when a killed process's lease ends. Longer than any answer waits for its
 * settlement.
 */
export const LEASE_S = 90
/** How long a retry token can repeat an answer, in milliseconds. */
const RETRY_MS = 86_400_000
/** The header with the retry token, in requests and answers. */
export const RETRY_TOKEN = "sluice-retry-token"

/** How long sending an answer may take by default. A process that takes longer counts as killed. */
const ANSWER_MS = 60_000

/** A right to serve: the id of a payment's row, and the claim that holds it. */
export interface Right {
  id: string
  claimId: string
}

/**
 * Takes the right to serve an unanswered payment for `answerMs`, which exactly one caller gets. Undefined if the
 * payment was answered, if another request holds the right, or if the request comes from another place. `hasFailed`:
 * whether the payment was served before, and serving it failed. `identifier`: the key or identifier that named the
 * payment.
 */
export const takeServing = (
  ctx: TxContext,
  right: Right,
  caller: string,
  answerMs = ANSWER_MS,
): Promise<{ hasFailed: boolean; identifier: string | null } | undefined> =>
  takeAll(ctx, { ...right, caller, answerMs })

/** Requests whose payments settle in the same block arrive at the same time, so they share a statement. */
const takeAll = gatherBy(async (ctx: TxContext, asked: readonly (Right & { caller: string; answerMs: number })[]) => {
  const given = asked.map(({ id, claimId, caller, answerMs }) => ({
    id,
    claim_id: claimId,
    caller,
    seconds: answerMs / 1_000,
  }))
  const { rows } = await sql<{ claim_id: string; retry_until: Date | null; identifier: string | null }>`
    /* named: take_serving */ update settlements s set served_at = ${ctx.now()}, answered_at = null, updated_at = ${ctx.now()},
      claim_id = a.claim_id, lease_until = clock_timestamp() + make_interval(secs => a.seconds)
    from (${rowsParameter(given, "id text, claim_id uuid, caller text, seconds float8")}) a
    where s.id = a.id and ${inOrder(asked)} and s.caller = a.caller and s.answered_at is null
      and (s.claim_id is null or s.claim_id = a.claim_id or s.lease_until < clock_timestamp())
    returning s.claim_id, s.retry_until, s.identifier`.execute(ctx.db)
  // If two requests carry one payment, the row names the request that got the right.
  const taken = new Map(
    rows.map(({ claim_id: of, retry_until: until, identifier }) => [of, { hasFailed: until !== null, identifier }]),
  )
  return new Map(
    asked.flatMap(each => {
      const right = taken.get(each.claimId)
      return right ? [[each, right] as const] : []
    }),
  )
})

/** SQL: locks the rows `s` of these rights in a fixed order, so that two processes don't deadlock on the same rows. */
const inOrder = (rights: readonly Right[]) => sql`s.id in (select id from settlements
  where id = any(${sqlArray(
    "text",
    rights.map(({ id }) => id),
  )}) order by id for no key update)`

const serving = (ctx: TxContext, answerMs = ANSWER_MS) => ({
  served_at: ctx.now(),
  answered_at: null,
  lease_until: sql<Date>`clock_timestamp() + make_interval(secs => ${answerMs / 1_000})`,
  updated_at: ctx.now(),
})

/**
 * Takes the right to serve again, for a caller that proved that it paid. For a purchase that is served once (a
 * proxied call), this is possible only after a failure, or if the process was killed before it answered.
 *
 * For a repeatable purchase, an answered payment stays answered. Otherwise, a caller that leaves during a repeated
 * answer would make the bare payment valid again. A request in progress keeps its right.
 */
export async function takeRetry(
  ctx: TxContext,
  { id, claimId }: Right,
  isRepeatable: boolean,
  answerMs?: number,
): Promise<boolean> {
  const taken = await ctx.db
    .updateTable("settlements")
    .set({ ...serving(ctx, answerMs), claim_id: claimId })
    .where("id", "=", id)
    .where(sql<boolean>`(served_at is null or (answered_at is null and lease_until < clock_timestamp()))`)
    .$if(isRepeatable, query => query.where("answered_at", "is", null))
    .executeTakeFirst()
  return isRepeatable || taken.numUpdatedRows > 0n
}

/** The status of an answer which says that the payment is pending. */
const ACCEPTED = 202
/** The lowest status of a client error, and of a server error. */
const CLIENT_ERROR = 400
const SERVER_ERROR = 500

/**
 * The replies that have started to send the purchase. When such a reply ends, it is recorded as an answer, even if it
 * was cut off.
 */
const begun = new WeakSet<FastifyReply["raw"]>()
/** How often the lease of an answer in progress is renewed, well before it ends. */
const RENEWED_MS = 20_000

/**
 * Holds the right to serve while an answer that {@link followAnswer} follows is sent, and records that the answer has
 * ended. If the process is killed before then, the lease ends and the call may be repeated. Returns false if the lease
 * expired and another request has the right.
 */
export async function holdWhileAnswering(
  ctx: Context,
  { raw }: Pick<FastifyReply, "raw">,
  right: Right,
): Promise<boolean> {
  if (!(await renew(ctx, right))) return false
  // The caller disconnected, and nothing was sent.
  if (raw.destroyed) await releaseServing(ctx, right, true)
  else {
    begun.add(raw)
    const renewal = setInterval(() => {
      renew(ctx, right).catch(error =>
        ctx.log.warn({ err: error, settlementId: right.id }, "the lease of an answer could not be renewed"),
      )
    }, RENEWED_MS).unref()
    const stop = () => clearInterval(renewal)
    raw.once("close", stop).once("finish", stop)
  }
  return true
}

const renew = async (ctx: TxContext, right: Right): Promise<boolean> => (await renewAll(ctx, right)) === true

const renewAll = gatherBy(async (ctx: TxContext, rights: readonly Right[]) => {
  const given = rights.map(({ id, claimId }) => ({ id, claim_id: claimId }))
  const { rows } = await sql<{ claim_id: string }>`
    /* named: renew_leases */ update settlements s set lease_until = clock_timestamp() + make_interval(secs => ${LEASE_S})
    from (${rowsParameter(given, "id text, claim_id uuid")}) r
    where s.id = r.id and ${inOrder(rights)} and s.claim_id = r.claim_id
    returning s.claim_id`.execute(ctx.db)
  const renewed = new Set(rows.map(row => row.claim_id))
  return new Map(rights.flatMap(each => (renewed.has(each.claimId) ? [[each, true as const] as const] : [])))
})

/**
 * Lets another request from the same place serve the payment. `evenServed`: also if this request has started to serve
 * it.
 */
export const releaseServing = (ctx: TxContext, { id, claimId }: Right, evenServed: boolean): Promise<unknown> =>
  ctx.db
    .updateTable("settlements")
    .set({ claim_id: null, lease_until: null, served_at: null })
    .where("id", "=", id)
    .where("claim_id", "=", claimId)
    .where("answered_at", "is", null)
    .$if(!evenServed, query => query.where("served_at", "is", null))
    .execute()

/**
 * Follows the answer to a request that may serve a payment. Once the purchase, or the token of a failed call, was
 * sent, the bare payment gets nothing more. If the caller left before that or was refused, the next request may be
 * served. `evenServed`: also if this request has started to serve it. An answer held by {@link holdWhileAnswering}
 * counts as sent no matter when its caller leaves, unless this process stops. For any other answer, the code that
 * serves the call records the end.
 */
export function followAnswer(
  ctx: Context,
  reply: Pick<FastifyReply, "raw" | "hasHeader">,
  { id, claimId, evenServed }: Right & { evenServed: boolean },
): void {
  const { raw } = reply
  let isOver = false
  const end = async (work: () => Promise<unknown>) => {
    if (isOver) return
    isOver = true
    await work()
    // Other requests with this payment wait until this answer has ended.
    ctx.wakes.wakeSparingly("payments", [id])
  }
  const note = (work: () => Promise<unknown>) =>
    void end(work).catch(error =>
      ctx.log.warn({ err: error, settlementId: id }, "the end of an answer could not be recorded"),
    )
  const lost = async () => {
    if (!begun.has(raw)) await releaseServing(ctx, { id, claimId }, evenServed)
    else if (ctx.signal.aborted) return
    // The server cut this connection to make room. Strangers who hold all connections must not use up a caller's
    // payment.
    else if (hasMadeRoom(raw.req.socket)) await untilDone(ctx, id, () => keepForToken(ctx, { id, claimId }, true))
    else await untilDone(ctx, id, () => recordAnswered(ctx, { id, claimId }))
  }
  // If an answer was sent but its end is not recorded, the answer would be repeated when its lease expires.
  const finished = () =>
    untilDone(ctx, id, async () => {
      // The origin's own errors count as answers that have started. Statuses of 500 and above are never passed on.
      const isError = raw.statusCode >= SERVER_ERROR || (raw.statusCode >= CLIENT_ERROR && !begun.has(raw))
      if (isError) await endWithError()
      // After a 202, the request keeps its claim.
      else if (!(await recordAnswered(ctx, { id, claimId })) && raw.statusCode !== ACCEPTED)
        await releaseServing(ctx, { id, claimId }, false)
    })
  const endWithError = async () => {
    // The raw response does not know the headers that Fastify sent.
    const hasToken = reply.hasHeader(RETRY_TOKEN)
    // A refusal, or an error without a token, gave the caller nothing. So the same payment may still be settled and
    // served, even if the right to serve was taken.
    if (!hasToken) await releaseServing(ctx, { id, claimId }, true)
    else if (evenServed) await recordAnswered(ctx, { id, claimId })
    else await keepForToken(ctx, { id, claimId }, raw.statusCode >= SERVER_ERROR)
  }
  raw.once("finish", () => note(finished))
  raw.once("close", () => note(lost))
  // The connection was cut while the payment was being claimed.
  if (raw.destroyed) note(lost)
}

/** The interval between attempts to record that an answer has ended while the database is down. */
const AGAIN_MS = 1_000

/**
 * Records that the answer has ended as soon as the database is back, before the lease expires.
 */
async function untilDone<T>(ctx: Context, settlementId: string, work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (ctx.signal.aborted) throw error
      if (tries === 1) ctx.log.warn({ err: error, settlementId }, "the end of an answer can't be recorded yet")
      await setTimeout(AGAIN_MS, undefined, { ref: false })
    }
  }
}

/**
 * Records that a payment was answered with the purchase. Returns false if the lease expired and another request has
 * the right.
 */
export const recordAnswered = async (ctx: TxContext, right: Right): Promise<boolean> =>
  (await noteAll(ctx, right)) === true

/**
 * A 202 does not count as an answer, although it carries the token: if the 202 is lost, its buyer has only the
 * payment. Until the lease ends, only the token is valid.
 */
const noteAll = gatherBy(async (ctx: TxContext, ends: readonly Right[]) => {
  const given = ends.map(({ id, claimId }) => ({ id, claim_id: claimId }))
  const { rows } = await sql<{ claim_id: string }>`
    /* named: note_answered */ update settlements s set answered_at = ${ctx.now()}
    from (${rowsParameter(given, "id text, claim_id uuid")}) e
    where s.id = e.id and ${inOrder(ends)} and s.claim_id = e.claim_id and s.answered_at is null
      and (s.served_at is not null or s.retry_until is not null)
    returning s.claim_id`.execute(ctx.db)
  const noted = new Set(rows.map(row => row.claim_id))
  return new Map(ends.flatMap(each => (noted.has(each.claimId) ? [[each, true as const] as const] : [])))
})

/**
 * Lets the retry token serve the payment again for a day after the merchant's server failed. Returns false if another
 * request has the right.
 */
export async function noteFailure(ctx: TxContext, { id, claimId }: Right): Promise<boolean> {
  const noted = await ctx.db
    .updateTable("settlements")
    .set(failed(ctx))
    .where("id", "=", id)
    .where("claim_id", "=", claimId)
    .executeTakeFirst()
  return noted.numUpdatedRows > 0n
}

/** Does the same as {@link noteFailure} for an answer that was cut off, and retries until the database accepts it. */
export const noteLateFailure = (ctx: Context, right: Right): Promise<boolean> =>
  untilDone(ctx, right.id, () => noteFailure(ctx, right))

/**
 * Records that a payment was answered with an error and its retry token, which is valid for a day. This is needed
 * because the failure itself may be unrecorded if the database failed too. `evenAnswered`: also if the call was
 * recorded as made. Without `evenAnswered`, the status may be the origin's.
 */
const keepForToken = (ctx: TxContext, { id, claimId }: Right, evenAnswered: boolean): Promise<unknown> =>
  ctx.db
    .updateTable("settlements")
    .set({ ...failed(ctx), answered_at: ctx.now() })
    .where("id", "=", id)
    .where("claim_id", "=", claimId)
    .$if(!evenAnswered, query => query.where("answered_at", "is", null))
    .execute()

const failed = (ctx: TxContext) => ({
  served_at: null,
  retry_until: new Date(ctx.now().getTime() + RETRY_MS),
  updated_at: ctx.now(),
})

/**
 * Where a request comes from, as a MAC, because whoever repeats a payment from elsewhere may have read it on chain.
 * All addresses of an IPv6 /64 count as one place.
 */
export const callerOf = (ctx: TxContext, { ip }: Pick<FastifyRequest, "ip">): string =>
  macsOf(ctx.settings.secretKeys, "x402-retry", `caller ${addressGroup(ip)}`)[0].toString("base64url")

/** The token with which a payment's answer can be repeated: the payment's id and a MAC of that id. */
export const retryToken = (ctx: TxContext, id: string): string =>
  `${id}.${macsOf(ctx.settings.secretKeys, "x402-retry", id)[0].toString("base64url")}`

/** The payment's id in a retry token; undefined if the token is forged. */
export function idOfRetryToken(ctx: TxContext, token: string): string | undefined {
  const [, id, mac] = /^(set_[a-z0-9]{24})\.([\w-]{43})$/.exec(token) ?? []
  if (id === undefined || mac === undefined) return undefined
  const given = Buffer.from(mac, "base64url")
  return macsOf(ctx.settings.secretKeys, "x402-retry", id).some(own => timingSafeEqual(given, own)) ? id : undefined
}

/** Whether a retry token is still valid: for a day after the payment, or after the last failure. */
export const isRetryable = (ctx: TxContext, { created_at, retry_until }: Row<"settlements">): boolean =>
  Math.max(created_at.getTime() + RETRY_MS, retry_until?.getTime() ?? 0) > ctx.now().getTime()
