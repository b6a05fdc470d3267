/** Records receivers' answers, as the pullers report them. */
import { type Context, inTransaction } from "../../platform/context.ts"
import { writeAttempts } from "../webhooks/record-attempts.ts"
import { faultOf } from "../webhooks/webhook.ts"
import { lockListener } from "./manage-listeners.ts"
import type { ResultReported } from "./schema.ts"

/**
 * Records results of one listener and returns how many. A result of a delivery that was not pulled, or of an attempt
 * reported before, changes nothing. A result after its lease still counts if it is the first report, because it says
 * what happened. Throws `NOT_FOUND` if the listener has ended.
 */
export async function recordResults(
  ctx: Context,
  merchantId: string,
  id: string,
  results: readonly ResultReported[],
): Promise<number> {
  const byDelivery = new Map(results.map(each => [each.deliveryId, each]))
  const recorded = await inTransaction(ctx, async ctx => {
    await lockListener(ctx, merchantId, id)
    const pulled = await ctx.db
      .selectFrom("deliveries")
      .select(["id", "merchant_id", "claim_id", "attempts"])
      .where("webhook_id", "=", id)
      .where("id", "in", [...byDelivery.keys()])
      .where("status", "=", "pending")
      .where("claim_id", "is not", null)
      // Always in the same order, so that concurrent reports don't deadlock.
      .orderBy("id")
      .forNoKeyUpdate()
      .execute()
    const ours = pulled.flatMap(delivery => {
      const result = byDelivery.get(delivery.id)
      // A manual resend restarts the count, so the reported `attempt` may be greater. An attempt that is not greater
      // was reported before.
      if (!result || result.attempt <= delivery.attempts) return []
      const startedAt = new Date(ctx.now().getTime() - result.durationMs)
      return [
        {
          delivery: { ...delivery, attempts: result.attempt - 1 },
          webhook: undefined,
          startedAt,
          attempt: attemptOf(result),
        },
      ]
    })
    return ours.length === 0 ? 0 : (await writeAttempts(ctx, ours)).size
  })
  // The recorded results free room for more deliveries.
  if (recorded > 0) ctx.wakes.wakeSoon("deliveries")
  return recorded
}

function attemptOf({ error, durationMs, answer, ...given }: ResultReported) {
  const status = given.status ?? null
  return {
    status,
    error: error ?? (status === null ? "no answer" : faultOf(status)),
    retryAfterMs: undefined,
    durationMs,
    answer: answer ?? null,
    // The puller has them.
    headers: null,
  }
}
