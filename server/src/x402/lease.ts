/**
 * Who may serve what a payment bought. Once a transaction is broadcast its signature is public, so the payment alone is no proof
 * of having paid: the first request that brought it serves, as long as its caller is there. It is served once; again only
 * for the retry token that the first answer gave, or for the caller's own id of the payment.
 */
import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto"
import type { FastifyReply } from "fastify"
import { sql } from "kysely"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"

/** Longer than any answer waits for its settlement: a process that was killed holds the right to serve no longer. */
export const LEASE_S = 90
/** How long a retry token repeats an answer. */
const RETRY_MS = 86_400_000

/**
 * Takes the right to serve a payment that nobody was served for yet; false where it was served, or another request may serve it
 * first. Exactly one caller gets it.
 */
export async function takeServing(ctx: TxContext, id: string, claimId: string): Promise<boolean> {
  const taken = await ctx.db
    .updateTable("settlements")
    .set({ served_at: ctx.now(), updated_at: ctx.now() })
    .where("id", "=", id)
    .where("served_at", "is", null)
    .where("failure", "is", null)
    .where(isFree(claimId))
    .executeTakeFirst()
  return taken.numUpdatedRows > 0n
}

/** Whether no other request holds the right to serve. */
const isFree = (claimId: string) =>
  sql<boolean>`(claim_id is null or claim_id = ${claimId}::uuid or lease_until < clock_timestamp())`

/**
 * Takes the right to serve again for a caller who proved that it is the one that paid. Where what was bought is served once (a
 * proxied call), only after it failed, or where nobody was served.
 */
export async function takeRetry(ctx: TxContext, id: string, isRepeatable: boolean): Promise<boolean> {
  const taken = await ctx.db
    .updateTable("settlements")
    .set({ served_at: ctx.now(), failure: null, updated_at: ctx.now() })
    .where("id", "=", id)
    .$if(!isRepeatable, query => query.where(eb => eb.or([eb("served_at", "is", null), eb("failure", "is not", null)])))
    .executeTakeFirst()
  return taken.numUpdatedRows > 0n
}

/** Lets another request with the same payment serve it: this one's caller has gone, `evenServed` without all of its answer. */
export const releaseServing = (ctx: TxContext, id: string, claimId: string, evenServed: boolean) =>
  ctx.db
    .updateTable("settlements")
    .set({ claim_id: null, lease_until: null, served_at: null })
    .where("id", "=", id)
    .where("claim_id", "=", claimId)
    .$if(!evenServed, query => query.where("served_at", "is", null))
    .execute()

/** Releases the right to serve when a caller goes before all of its answer was handed to the network. */
export function releaseOnLoss(
  ctx: TxContext,
  { raw }: Pick<FastifyReply, "raw">,
  { id, claimId, evenServed }: { id: string; claimId: string; evenServed: boolean },
): void {
  let isSent = false
  raw.once("finish", () => {
    isSent = true
  })
  raw.once("close", () => {
    if (isSent) return
    releaseServing(ctx, id, claimId, evenServed).catch(error =>
      ctx.log.warn({ err: error, settlementId: id }, "a lease could not be released; it expires by itself"),
    )
  })
}

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

function macOf({ settings: { secretKey } }: TxContext, id: string): Buffer {
  if (!secretKey) throw new Error("SECRET_KEY is not set")
  const key = new Uint8Array(hkdfSync("sha256", secretKey, "", "sluice x402-retry", 32))
  return createHmac("sha256", key).update(id).digest()
}
