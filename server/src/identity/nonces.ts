/** Nonces of wallet signatures: each for one purpose and resource, good for ten minutes and one use. */
import type { Context } from "../context.ts"
import { randomText } from "../ids.ts"

/**
 * What a wallet can sign for: to be a merchant, to open a paywall that it paid, to say where its money goes back to, or to
 * approve a change of who gets a merchant's money.
 */
type Purpose = "sign-in" | "paywall" | "return" | "wallet-lock"

/** What a nonce is for; `resource` is the paywall's id, what was paid and the address that it goes back to, or empty. */
export interface NonceUse {
  purpose: Purpose
  resource: string
}

/** How long a nonce is good, in milliseconds of wall time. */
export const NONCE_MS = 10 * 60_000
const NONCE_CHARACTERS = 24

/** Makes a nonce; `expiresAt` is wall time. */
export async function makeNonce(ctx: Context, use: NonceUse): Promise<{ nonce: string; expiresAt: Date }> {
  const nonce = randomText(NONCE_CHARACTERS)
  const expiresAt = new Date(Date.now() + NONCE_MS)
  await ctx.db
    .insertInto("nonces")
    .values({ nonce, ...use, expires_at: expiresAt })
    .execute()
  return { nonce, expiresAt }
}

/** Whether a nonce waits for this use; it is not used up by asking. */
export const isNonceGood = async (ctx: Context, nonce: string, use: NonceUse): Promise<boolean> =>
  (await nonceExpiry(ctx, nonce, use)) !== undefined

/** Until when a nonce waits for this use; undefined where it does not. */
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
    .where("expires_at", ">", new Date())
    .executeTakeFirst()
  return row?.expires_at
}

/** Uses a nonce up; false when it is not for this use, has expired, or another request was first. */
export async function takeNonce(ctx: Context, nonce: string, { purpose, resource }: NonceUse): Promise<boolean> {
  const taken = await ctx.db
    .deleteFrom("nonces")
    .where("nonce", "=", nonce)
    .where("purpose", "=", purpose)
    .where("resource", "=", resource)
    .where("expires_at", ">", new Date())
    .returning("nonce")
    .executeTakeFirst()
  return taken !== undefined
}

/** Forgets the nonces that nobody used. */
export async function forgetExpiredNonces(ctx: Context): Promise<void> {
  await ctx.db.deleteFrom("nonces").where("expires_at", "<=", new Date()).execute()
}
