/** Signing secrets of each webhook, and of the account for URLs that are not webhooks. They are encrypted at rest. */
import { randomBytes } from "node:crypto"
import { sql } from "kysely"
import type { Context, TxContext } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"
import { seal, unseal } from "../../platform/secrets.ts"

/** A rolled secret still signs for this long, together with the new one. */
export const OVERLAP_MS = 24 * 3_600_000
/**
 * At most this many secrets sign, because a header's size is limited. The oldest secret that still signs is always
 * among them, so that frequent rolls don't lock out a receiver that checks signatures.
 */
const MAX_SECRETS = 4

/** The owner of a secret: a webhook, or the account if `webhookId` is null. */
export interface Owner {
  merchantId: string
  webhookId: string | null
}

/** Generates a secret in the form of Standard Webhooks. */
export const newSecret = (): string => `whsec_${randomBytes(32).toString("base64")}`

const sealedFor = ({ merchantId, webhookId }: Owner): string => webhookId ?? merchantId

const ofOwner = ({ merchantId, webhookId }: Owner) =>
  sql<boolean>`merchant_id = ${merchantId} and webhook_id is not distinct from ${webhookId}`

/** Returns the row of a new secret, for the caller to insert. */
export function newSecretRow(ctx: TxContext, owner: Owner, secret = newSecret()) {
  return {
    merchant_id: owner.merchantId,
    webhook_id: owner.webhookId,
    sealed: seal(ctx.settings.secretKeys, "webhook-secret", sealedFor(owner), secret),
    created_at: ctx.now(),
  }
}

/**
 * Makes a new secret the newest one and returns it. The previous secrets sign for 24 more hours. Call it in a
 * transaction that locked the owner's row. Otherwise, two concurrent calls would both create a newest secret.
 */
export async function rollSecret(ctx: TxContext, owner: Owner, secret = newSecret()): Promise<string> {
  const now = ctx.now()
  await retireSecrets(ctx, owner)
  await ctx.db
    .insertInto("webhook_secrets")
    .values({ ...newSecretRow(ctx, owner, secret), shown_at: now })
    .execute()
  await sql`delete from webhook_secrets where ${ofOwner(owner)} and expires_at is not null and (expires_at <= ${now} or id not in (
      select min(id) from webhook_secrets where ${ofOwner(owner)} and expires_at > ${now} union all
      (select id from webhook_secrets where ${ofOwner(owner)} order by id desc limit ${MAX_SECRETS - 1})))`.execute(
    ctx.db,
  )
  return secret
}

/** Keeps an owner's newest secret signing for 24 more hours, and no longer. */
export async function retireSecrets(ctx: TxContext, owner: Owner): Promise<void> {
  await ctx.db
    .updateTable("webhook_secrets")
    .set({ expires_at: new Date(ctx.now().getTime() + OVERLAP_MS) })
    .where(ofOwner(owner))
    .where("expires_at", "is", null)
    .execute()
}

/**
 * The account's newest secret. The secret is created with the merchant, or here for a merchant older than this feature.
 * This needs no lock, because only one of two concurrent callers inserts.
 */
export async function accountSecret(ctx: TxContext, merchantId: string): Promise<string> {
  const owner = { merchantId, webhookId: null }
  const [newest] = await secretsOf(ctx, owner)
  if (newest !== undefined) return newest
  await ctx.db
    .insertInto("webhook_secrets")
    .values(newSecretRow(ctx, owner))
    .onConflict(conflict => conflict.doNothing())
    .execute()
  const [made] = await secretsOf(ctx, owner)
  if (made === undefined) throw new Error("an account has no webhook secret")
  return made
}

/** The account's newest secret. Throws `INVALID_OPERATION` if the secret was shown before. Needs a transaction. */
export async function revealAccountSecret(ctx: TxContext, merchantId: string): Promise<string> {
  await accountSecret(ctx, merchantId)
  const owner = { merchantId, webhookId: null }
  const row = await ctx.db
    .updateTable("webhook_secrets")
    .set({ shown_at: ctx.now() })
    .where(ofOwner(owner))
    .where("expires_at", "is", null)
    .where("shown_at", "is", null)
    .returning("sealed")
    .executeTakeFirst()
  if (!row)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "This secret was already shown. If it is lost, create a new one with `POST /api/console/settings/webhook-secret`.",
    )
  return opened(ctx, owner, row.sealed)
}

/** The secrets that sign now, newest first. */
export async function secretsOf(ctx: TxContext, owner: Owner): Promise<string[]> {
  const rows = await ctx.db
    .selectFrom("webhook_secrets")
    .select("sealed")
    .where(ofOwner(owner))
    .where(eb => eb.or([eb("expires_at", "is", null), eb("expires_at", ">", ctx.now())]))
    .orderBy("id", "desc")
    .execute()
  return rows.map(({ sealed }) => opened(ctx, owner, sealed))
}

/** Recently decrypted secrets are cached, because key derivation and decryption cost as much as 20 signatures. */
const known = new Map<string, string>()
const MAX_KNOWN = 10_000

/** Decrypts a secret that was stored as `sealed` for this owner; throws if it belongs to another owner. */
export function opened(ctx: TxContext, owner: Owner, sealed: string): string {
  // The cache key names the owner. If a row was copied over another merchant's, this must throw, as decryption does.
  const key = `${sealedFor(owner)} ${sealed}`
  const before = known.get(key)
  if (before !== undefined) return before
  const secret = unseal(ctx.settings.secretKeys, "webhook-secret", sealedFor(owner), sealed)
  if (known.size >= MAX_KNOWN) known.clear()
  known.set(key, secret)
  return secret
}

/** The part of a secret that may be shown, enough to tell two secrets apart. */
export const masked = (secret: string): string => `whsec_…${secret.slice(-5)}`

/** Deletes the expired secrets. */
export async function forgetExpiredSecrets(ctx: Context): Promise<void> {
  // The first condition lets Postgres use the index.
  const isExpired = sql<boolean>`expires_at <= ${ctx.now()} and expires_at <= ${dueNow(ctx.now())}`
  await ctx.db.deleteFrom("webhook_secrets").where(isExpired).execute()
}
