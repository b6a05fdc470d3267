/** A payer's answers to a checkout's fields, independent of any payment. */
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { emailRule, type PayerInfo } from "./schema.ts"

const isEmail = new RegExp(emailRule.pattern)

/**
 * Stores the answers. Throws `SESSION_NOT_FOUND`, `SESSION_ALREADY_CONFIRMED`, `SESSION_EXPIRED` or
 * `VALIDATION_ERROR`.
 */
export async function answerPayer(ctx: Context, body: PayerInfo): Promise<{ sessionId: string }> {
  await inTransaction(ctx, async ctx => {
    const session = await ctx.db
      .selectFrom("checkout_sessions")
      .selectAll()
      .where("id", "=", body.sessionId)
      .forNoKeyUpdate()
      .executeTakeFirst()
    if (!session) throw new ApiError("SESSION_NOT_FOUND")
    if (session.status === "confirmed") throw new ApiError("SESSION_ALREADY_CONFIRMED")
    if (session.status === "expired" || session.status === "failed") throw new ApiError("SESSION_EXPIRED")
    assertAsked(session, body.payerInfo)
    await storeAnswers(ctx, session, body)
  })
  return { sessionId: body.sessionId }
}

async function storeAnswers(ctx: TxContext, session: Row<"checkout_sessions">, body: PayerInfo): Promise<void> {
  await ctx.db
    .updateTable("checkout_sessions")
    .set({
      payer_info: JSON.stringify(body.payerInfo),
      customer_email: emailAfter(session, body),
      updated_at: ctx.now(),
    })
    .where("id", "=", session.id)
    .execute()
}

/**
 * Returns a checkout's e-mail address after these answers. Where nobody gave one as such, it is the answer to a field
 * named `email`, and changes with that answer.
 */
export function emailAfter(
  { customer_email: known, payer_info: before }: Pick<Row<"checkout_sessions">, "customer_email" | "payer_info">,
  { customerEmail, payerInfo }: Pick<PayerInfo, "customerEmail"> & { payerInfo?: Record<string, string> | undefined },
): string | null {
  if (customerEmail !== undefined) return customerEmail
  if (payerInfo === undefined || (known !== null && known !== emailAmong(before))) return known
  return emailAmong(payerInfo)
}

/** In the order of the names, because the database does not keep that of the answers. */
function emailAmong(answers: Record<string, string> | null): string | null {
  const names = Object.keys(answers ?? {}).filter(name => /^e_?mail$/i.test(name))
  const texts = names.sort().map(name => answers?.[name]?.trim() ?? "")
  return texts.find(text => isEmail.test(text) && text.length <= emailRule.maxLength) ?? null
}

/** Throws `VALIDATION_ERROR` that lists every answer for which the checkout did not ask. */
export function assertAsked(
  session: Pick<Row<"checkout_sessions">, "payer_fields">,
  answers: Record<string, string> = {},
): void {
  const asked = new Set(session.payer_fields ?? [])
  const unknown = Object.keys(answers).filter(name => !asked.has(name))
  if (unknown.length > 0)
    throw new ApiError(
      "VALIDATION_ERROR",
      unknown.map(name => ({
        path: `payerInfo.${name}`,
        message: "is not a field that this checkout asks for: `payerFields` of its status lists the fields",
      })),
    )
}
