/** Merchants, identified by the issuer and subject of their tokens, and created on first use. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { newId } from "../../platform/ids.ts"
import { newSecretRow } from "../webhooks/manage-secrets.ts"

/** The merchant of a subject, or undefined where it has none. */
export async function knownMerchant(ctx: TxContext, { iss, sub }: Subject): Promise<string | undefined> {
  const known = ctx.db.selectFrom("merchants").select("id").where("iss", "=", iss).where("sub", "=", sub)
  return (await known.executeTakeFirst())?.id
}

/**
 * The merchant of a subject. The first valid token creates it; with `SIGNUP=invite` only for an invited subject (else
 * `SIGNUP_CLOSED`). Call it inside a transaction.
 */
export async function merchantOf(ctx: TxContext, { iss, sub }: Subject): Promise<string> {
  const merchant = await knownMerchant(ctx, { iss, sub })
  if (merchant !== undefined) return merchant
  if (ctx.settings.signup === "invite" && !(await isInvited(ctx, { iss, sub }))) throw new ApiError("SIGNUP_CLOSED")
  const id = newId("mer")
  const secret = newSecretRow(ctx, { merchantId: id, webhookId: null })
  // One statement: a merchant always has the secret that signs its callbacks.
  await ctx.db
    .with("made", db =>
      db
        .insertInto("merchants")
        .values({ id, iss, sub, name: "", email: null, created_at: ctx.now() })
        .onConflict(conflict => conflict.doNothing())
        .returning("id"),
    )
    .insertInto("webhook_secrets")
    .columns(["merchant_id", "sealed", "created_at"])
    .expression(db =>
      db
        .selectFrom("made")
        .select(eb => [
          "made.id",
          eb.val(secret.sealed).as("sealed"),
          sql<Date>`${secret.created_at}::timestamptz`.as("at"),
        ]),
    )
    .execute()
  // Read again: of two concurrent first requests, one has created it.
  const made = await knownMerchant(ctx, { iss, sub })
  if (made === undefined) throw new Error("a merchant was created and is not there")
  return made
}

const isInvited = async (ctx: TxContext, { iss, sub }: Subject): Promise<boolean> =>
  (await ctx.db
    .selectFrom("invitations")
    .select("sub")
    .where("iss", "=", iss)
    .where("sub", "=", sub)
    .executeTakeFirst()) !== undefined
