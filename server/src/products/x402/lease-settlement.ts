/**
 * Who may serve what a payment bought. Once a transaction is broadcast its signature is public, so the payment alone
 * does not prove who paid. The first request that brought it is served, or, when that one has gone, another from the
 * same place. It is served once; again only for the retry token in the first answer, or for the caller's own id of the
 * payment.
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

/** Longer than any answer waits for its settlement. The lease of a process that was killed ends after this time. */
export const LEASE_S = 90
/** How long a retry token can repeat an answer. */
const RETRY_MS = 86_400_000
/** The header of a retry token, in requests and in answers. */
export const RETRY_TOKEN = "sluice-retry-token"

/**
 * How long sending an answer may take where its offer says nothing else. After that its process must have been killed.
 */
const ANSWER_MS = 60_000

/** A right to serve: a payment's row, and the claim that holds it. */
export interface Right {
  id: string
  claimId: string
}

/**
 * Takes the right to serve a payment that has not been answered. Undefined where it was answered, where another request
 * holds the right, or where the request comes from another place. Exactly one caller gets it, for `answerMs`.
 * `hasFailed`: it was served before, and that failed. `identifier`: the key or identifier that the payment was named by.
 */
export const takeServing = (
  ctx: TxContext,
  right: Right,
  caller: string,
  answerMs = ANSWER_MS,
): Promise<{ hasFailed: boolean; identifier: string | null } | undefined> =>
  takeAll(ctx, { ...right, caller, answerMs })

/** Requests whose payments are settled in one block ask at the same time, so they share a statement. */
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
  // Of two requests with one payment, the row names the one that got the right.
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

/** Locks the rows `s` of rights in a fixed order, so that two processes that write the same rows do not deadlock. */
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
 * Takes the right to serve again, for a caller that proved that it paid. Where what was bought is served once (a
 * proxied call), only after it failed, or after its process was killed before it answered.
 *
 * Where it may be served at any time, a payment that was answered stays answered: otherwise a repeated answer whose
 * caller leaves would make the payment alone good again. Nor is the right taken from a request that is being served.
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

/** The status of an answer that the payment is pending. */
const ACCEPTED = 202
/** The lowest status of a refusal or an error, and of an error of the service. */
const CLIENT_ERROR = 400
const SERVER_ERROR = 500

/** Replies whose answer with what was bought has begun: their end is recorded as an answer, wherever it was cut. */
const begun = new WeakSet<FastifyReply["raw"]>()
/** How often the lease of an answer that is being sent is renewed; well within it. */
const RENEWED_MS = 20_000

/**
 * Holds the right to serve for as long as an answer takes that {@link followAnswer} follows, and records the answer at
 * its end. If the process is killed before, the lease ends and the call may be repeated. False where the lease was over
 * and another request has the right.
 */
export async function holdWhileAnswering(
  ctx: Context,
  { raw }: Pick<FastifyReply, "raw">,
  right: Right,
): Promise<boolean> {
  if (!(await renew(ctx, right))) return false
  // Its caller disconnected meanwhile, and nothing was sent.
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
 * Lets another request from the same place serve the payment. `evenServed`: also where this one had begun to serve it.
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
 * Follows the answer to a request that may serve a payment. Once an answer with what was bought, or with a token for a
 * call that failed, was sent, the payment alone gets nothing more. If the caller disconnected first, or was refused, the
 * next request may be served; `evenServed`: also where this one had begun to serve it. An answer that {@link holdWhileAnswering}
 * holds counts as sent wherever its caller leaves, but not where this process stops. In all other cases the code that
 * serves the call records how it ended.
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
    // Other requests with this payment wait for this.
    ctx.wakes.wakeSparingly("payments", [id])
  }
  const note = (work: () => Promise<unknown>) =>
    void end(work).catch(error =>
      ctx.log.warn({ err: error, settlementId: id }, "the end of an answer could not be recorded"),
    )
  const lost = async () => {
    if (!begun.has(raw)) await releaseServing(ctx, { id, claimId }, evenServed)
    else if (ctx.signal.aborted) return
    // Strangers who hold all connections must not use up what a caller paid for.
    else if (hasMadeRoom(raw.req.socket)) await untilDone(ctx, id, () => keepForToken(ctx, { id, claimId }, true))
    else await untilDone(ctx, id, () => recordAnswered(ctx, { id, claimId }))
  }
  // An answer that was sent, and whose end is not recorded, would be given again when its lease is over.
  const finished = () =>
    untilDone(ctx, id, async () => {
      // The origin's own error statuses are answers that have begun; those from 500 on are never passed on.
      const isError = raw.statusCode >= SERVER_ERROR || (raw.statusCode >= CLIENT_ERROR && !begun.has(raw))
      if (isError) await endWithError()
      // A 202 keeps its claim.
      else if (!(await recordAnswered(ctx, { id, claimId })) && raw.statusCode !== ACCEPTED)
        await releaseServing(ctx, { id, claimId }, false)
    })
  const endWithError = async () => {
    // The raw answer does not know the headers that Fastify sent.
    const hasToken = reply.hasHeader(RETRY_TOKEN)
    // After a refusal or an error without a token the same payment may still be carried out and served, though the right
    // to serve was taken: the answer gave its caller nothing.
    if (!hasToken) await releaseServing(ctx, { id, claimId }, true)
    else if (evenServed) await recordAnswered(ctx, { id, claimId })
    else await keepForToken(ctx, { id, claimId }, raw.statusCode >= SERVER_ERROR)
  }
  raw.once("finish", () => note(finished))
  raw.once("close", () => note(lost))
  // The connection was cut while the payment was claimed.
  if (raw.destroyed) note(lost)
}

/** How often the end of an answer is recorded again, while the database is not there. */
const AGAIN_MS = 1_000

/** Once the database is back, this end of an answer must be known before its lease is taken for that of a dead process. */
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
 * Records that a payment was answered with what was bought. False where the lease was over and another request has the
 * right.
 */
export const recordAnswered = async (ctx: TxContext, right: Right): Promise<boolean> =>
  (await noteAll(ctx, right)) === true

/**
 * A 202 is no answer, though it has the token: where it is lost, its buyer has nothing but the payment. Until the lease
 * ends only the token is good for anything.
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
 * Lets the retry token serve the payment again, for a day, after the merchant's server failed. False where another
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

/** Does the same as {@link noteFailure} for an answer that was cut off, and tries until the database takes it. */
export const noteLateFailure = (ctx: Context, right: Right): Promise<boolean> =>
  untilDone(ctx, right.id, () => noteFailure(ctx, right))

/**
 * Records that a payment was answered with an error and its retry token, which serves it again for a day. The failure may
 * not have been noted, if the database failed too. `evenAnswered`: also where the call was recorded as made; otherwise
 * the status may be the origin's own.
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
 * Where a request comes from, as a MAC: a caller that repeats a payment from elsewhere may have read it on chain. A /64
 * of IPv6 is one place.
 */
export const callerOf = (ctx: TxContext, { ip }: Pick<FastifyRequest, "ip">): string =>
  macsOf(ctx.settings.secretKeys, "x402-retry", `caller ${addressGroup(ip)}`)[0].toString("base64url")

/** The token that repeats the answer to a payment: the payment's id and a MAC of it. */
export const retryToken = (ctx: TxContext, id: string): string =>
  `${id}.${macsOf(ctx.settings.secretKeys, "x402-retry", id)[0].toString("base64url")}`

/** The id of the payment that a retry token is for; undefined for a forged one. */
export function idOfRetryToken(ctx: TxContext, token: string): string | undefined {
  const [, id, mac] = /^(set_[a-z0-9]{24})\.([\w-]{43})$/.exec(token) ?? []
  if (id === undefined || mac === undefined) return undefined
  const given = Buffer.from(mac, "base64url")
  return macsOf(ctx.settings.secretKeys, "x402-retry", id).some(own => timingSafeEqual(given, own)) ? id : undefined
}

/** Whether a retry token can still repeat an answer: for a day after the payment, or after the last failure. */
export const isRetryable = (ctx: TxContext, { created_at, retry_until }: Row<"settlements">): boolean =>
  Math.max(created_at.getTime() + RETRY_MS, retry_until?.getTime() ?? 0) > ctx.now().getTime()
