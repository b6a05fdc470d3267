/**
 * Who may serve what a payment bought. Once a transaction is broadcast its signature is public, so the payment alone is no proof
 * of having paid: the first request that brought it is served, or another from the same place when that one has gone. It is served
 * once; again only for the retry token that the first answer gave, or for the caller's own id of the payment.
 */
import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto"
import type { FastifyReply, FastifyRequest } from "fastify"
import { sql } from "kysely"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { addressGroup } from "../limits/buckets.ts"

/** Longer than any answer waits for its settlement: a process that was killed holds the right to serve no longer. */
export const LEASE_S = 90
/** How long a retry token repeats an answer. */
const RETRY_MS = 86_400_000

/** While an answer is under way; then a process that was killed has not answered. */
const ANSWER_S = 600

/**
 * Takes the right to serve a payment that nobody was served for yet; false where it was served, or another request may serve it
 * first. Exactly one caller gets it.
 */
export async function takeServing(
  ctx: TxContext,
  { id, claimId, caller }: { id: string; claimId: string; caller: string },
): Promise<boolean> {
  const taken = await ctx.db
    .updateTable("settlements")
    .set({ ...serving(ctx), claim_id: claimId })
    .where("id", "=", id)
    .where("failure", "is", null)
    .where("caller", "=", caller)
    .where(isUnanswered)
    .where(sql<boolean>`(claim_id is null or claim_id = ${claimId}::uuid or lease_until < clock_timestamp())`)
    .executeTakeFirst()
  return taken.numUpdatedRows > 0n
}

const serving = (ctx: TxContext) => ({
  served_at: ctx.now(),
  answered_at: null,
  lease_until: sql<Date>`clock_timestamp() + make_interval(secs => ${ANSWER_S})`,
  updated_at: ctx.now(),
})

/** Nobody was served, or whoever served died before the answer was sent. */
const isUnanswered = sql<boolean>`(served_at is null or (answered_at is null and lease_until < clock_timestamp()))`

/**
 * Takes the right to serve again for a caller who proved that it is the one that paid. Where what was bought is served once (a
 * proxied call), only after it failed, or where nobody was answered.
 */
export async function takeRetry(ctx: TxContext, id: string, claimId: string, isRepeatable: boolean): Promise<boolean> {
  const taken = await ctx.db
    .updateTable("settlements")
    .set({ ...serving(ctx), claim_id: claimId, failure: null })
    .where("id", "=", id)
    .$if(!isRepeatable, query => query.where(eb => eb.or([isUnanswered, eb("failure", "is not", null)])))
    .executeTakeFirst()
  return taken.numUpdatedRows > 0n
}

/**
 * Keeps the right to serve for whoever was given the retry token, as long as that holds: the payment itself is public by then.
 */
export const keepForToken = (ctx: TxContext, id: string, claimId: string) =>
  ctx.db
    .updateTable("settlements")
    .set({ lease_until: sql<Date>`clock_timestamp() + make_interval(secs => ${RETRY_MS / 1_000})` })
    .where("id", "=", id)
    .where("claim_id", "=", claimId)
    .where("served_at", "is", null)
    .execute()

/** Lets another request with the same payment serve it: this one's caller has gone, `evenServed` without all of its answer. */
export const releaseServing = (ctx: TxContext, id: string, claimId: string, evenServed: boolean) =>
  ctx.db
    .updateTable("settlements")
    .set({ claim_id: null, lease_until: null, served_at: null })
    .where("id", "=", id)
    .where("claim_id", "=", claimId)
    .where("answered_at", "is", null)
    .$if(!evenServed, query => query.where("served_at", "is", null))
    .execute()

/**
 * Follows the answer to a request that may serve a payment: it was sent, or its caller has gone before. Then the next request may be
 * served; `evenServed` also where this one had begun to answer. Otherwise what was begun counts as answered: a call may have done its
 * work.
 */
export function followAnswer(
  ctx: TxContext,
  { raw }: Pick<FastifyReply, "raw">,
  { id, claimId, evenServed }: { id: string; claimId: string; evenServed: boolean },
): void {
  const note = (work: Promise<unknown>) =>
    void work.catch(error =>
      ctx.log.warn({ err: error, settlementId: id }, "the end of an answer could not be recorded"),
    )
  let isOver = false
  const lost = async () => {
    if (isOver) return
    isOver = true
    await releaseServing(ctx, id, claimId, evenServed)
    if (!evenServed) await noteAnswered(ctx, id, claimId)
  }
  raw.once("finish", () => {
    isOver = true
    note(noteAnswered(ctx, id, claimId))
  })
  raw.once("close", () => note(lost()))
  // It was cut while the payment was claimed.
  if (raw.destroyed) note(lost())
}

const noteAnswered = (ctx: TxContext, id: string, claimId: string) =>
  ctx.db
    .updateTable("settlements")
    .set({ answered_at: ctx.now() })
    .where("id", "=", id)
    .where("claim_id", "=", claimId)
    .where("served_at", "is not", null)
    .execute()

/** Gives the right to serve back after the merchant's server failed; only a retry serves it from now on. */
export const noteFailure = (ctx: TxContext, id: string, reason: string) =>
  ctx.db
    .updateTable("settlements")
    .set({
      served_at: null,
      failure: reason,
      retry_until: new Date(ctx.now().getTime() + RETRY_MS),
      updated_at: ctx.now(),
    })
    .where("id", "=", id)
    .execute()

/**
 * Where a request comes from, as a MAC: whoever repeats a payment from elsewhere may have read it on chain. A /64 of IPv6 is one
 * place.
 */
export const callerOf = (ctx: TxContext, { ip }: Pick<FastifyRequest, "ip">): string =>
  macOf(ctx, `caller ${addressGroup(ip)}`).toString("base64url")

/** The token that repeats the answer to a payment: its id and a MAC of it. */
export const retryToken = (ctx: TxContext, id: string): string => `${id}.${macOf(ctx, id).toString("base64url")}`

/** The id of the payment that a retry token is for; undefined for a forged one. */
export function idOfRetryToken(ctx: TxContext, token: string): string | undefined {
  const [, id, mac] = /^(set_[a-z0-9]{24})\.([\w-]{43})$/.exec(token) ?? []
  if (id === undefined || mac === undefined) return undefined
  return timingSafeEqual(Buffer.from(mac, "base64url"), macOf(ctx, id)) ? id : undefined
}

/** Whether a retry token still repeats an answer: for a day after the payment, or after the last failure. */
export const isRetryable = (ctx: TxContext, { created_at, retry_until }: Row<"settlements">): boolean =>
  Math.max(created_at.getTime() + RETRY_MS, retry_until?.getTime() ?? 0) > ctx.now().getTime()

function macOf({ settings: { secretKey } }: TxContext, text: string): Buffer {
  if (!secretKey) throw new Error("SECRET_KEY is not set")
  const key = new Uint8Array(hkdfSync("sha256", secretKey, "", "sluice x402-retry", 32))
  return createHmac("sha256", key).update(text).digest()
}
