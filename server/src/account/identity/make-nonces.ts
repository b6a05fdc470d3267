/**
 * Nonces of wallet signatures. Each nonce has one purpose and resource, is valid for ten minutes, and is usable once.
 */
import { type Context, type TxContext, wallTime } from "../../platform/context.ts"
import { randomText } from "../../platform/ids.ts"

/**
 * What a wallet can sign for: signing in as a merchant, opening a paywall that it paid for, naming a return address,
 * approving a change of payees, or managing its subscriptions.
 */
type Purpose = "sign-in" | "paywall" | "return" | "wallet-lock" | "subscriptions"

/** What a nonce is for. `resource` is the paywall's id, or the payment and its return address, or empty. */
export interface NonceUse {
  purpose: Purpose
  resource: string
}

/** How long a nonce is valid, in milliseconds of wall time. */
export const NONCE_MS = 10 * 60_000
const NONCE_CHARACTERS = 24

/** Creates a nonce; `expiresAt` is wall time. */
export async function makeNonce(ctx: Context, use: NonceUse): Promise<{ nonce: string; expiresAt: Date }> {
  const nonce = randomText(NONCE_CHARACTERS)
  const expiresAt = new Date(wallTime(ctx).getTime() + NONCE_MS)
  await ctx.db
    .insertInto("nonces")
    .values({ nonce, ...use, expires_at: expiresAt })
    .execute()
  return { nonce, expiresAt }
}

/** Whether a nonce is unused and valid for this purpose. The check does not use it up. */
export const isNonceGood = async (ctx: Context, nonce: string, use: NonceUse): Promise<boolean> =>
  (await nonceExpiry(ctx, nonce, use)) !== undefined

/** When a nonce expires; undefined if it is not valid for this purpose. */
export async function nonceExpiry(
  ctx: Context,
  nonce: string,
  { purpose, resource }: NonceUse,
): Promise<Date | undefined> {
  const row = await ctx.db
    .selectFrom("nonces")
    .select("expires_at")
    .where("nonce", "=", nonce)
    .where("purpose", "=", purpose)
    .where("resource", "=", resource)
    .where("expires_at", ">", wallTime(ctx))
    .executeTakeFirst()
  return row?.expires_at
}

/** Uses up a nonce. Returns false if the nonce has another purpose, expired, or was used before. */
export async function takeNonce(ctx: TxContext, nonce: string, { purpose, resource }: NonceUse): Promise<boolean> {
  const taken = await ctx.db
    .deleteFrom("nonces")
    .where("nonce", "=", nonce)
    .where("purpose", "=", purpose)
    .where("resource", "=", resource)
    .where("expires_at", ">", wallTime(ctx))
    .returning("nonce")
    .executeTakeFirst()
  return taken !== undefined
}

/** Deletes expired nonces. */
export async function forgetExpiredNonces(ctx: Context): Promise<void> {
  await ctx.db.deleteFrom("nonces").where("expires_at", "<=", wallTime(ctx)).execute()
}
