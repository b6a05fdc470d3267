/**
 * The job that advances subscriptions which are due: a period begins or ends, or a trigger saw that a session of theirs changed its
 * status. Each is advanced in a transaction of its own, so that a process which ends leaves nothing half done.
 */
import { type Context, inTransaction } from "../context.ts"
import { advance } from "./advance-subscription.ts"
import { holdSubscription } from "./load-subscription.ts"

/** Subscriptions that one round takes; the rest follow at once. */
const SUBSCRIPTIONS_A_ROUND = 200
const AFTER_FAILURE_MS = 60_000
/** No sleep is longer, so that a lost wake-up costs at most this much. */
const MAX_SLEEP_MS = 5_000

/** Advances the subscriptions that are due; answers how many milliseconds the next round may wait. */
export async function advanceSubscriptions(ctx: Context): Promise<number> {
  const due = await dueSubscriptions(ctx, SUBSCRIPTIONS_A_ROUND, ctx.now())
  for (const { id } of due) await tryAdvancing(ctx, id)
  if (due.length > 0) ctx.wakes.wakeSoon("deliveries")
  if (due.length === SUBSCRIPTIONS_A_ROUND) return 0
  const [next] = await dueSubscriptions(ctx, 1)
  const waitMs = next?.run_at ? next.run_at.getTime() - ctx.now().getTime() : MAX_SLEEP_MS
  return Math.max(0, Math.min(MAX_SLEEP_MS, waitMs))
}

/** Those of the networks that this service serves, the longest due first. */
const dueSubscriptions = (ctx: Context, limit: number, until?: Date) =>
  ctx.db
    .selectFrom("subscriptions")
    .select(["id", "run_at"])
    .where("run_at", until ? "<=" : "is not", until ?? null)
    .where(
      "chain_id",
      "in",
      ctx.chain.networks.map(({ chainId }) => chainId),
    )
    .orderBy("run_at")
    .orderBy("id")
    .limit(limit)
    .execute()

/** Advances one subscription, unless another process does. A failure is logged, and it is due again later. */
async function tryAdvancing(ctx: Context, id: string): Promise<void> {
  try {
    await inTransaction(ctx, async ctx => {
      const held = await holdSubscription(ctx, id, { isSkipping: true })
      const due = held?.subscription.run_at
      if (held && due && due <= ctx.now()) await advance(ctx, held)
    })
  } catch (error) {
    ctx.log.error({ err: error, subscriptionId: id }, "a subscription could not be advanced and will be tried again")
    const again = new Date(ctx.now().getTime() + AFTER_FAILURE_MS)
    await ctx.db.updateTable("subscriptions").set({ run_at: again }).where("id", "=", id).execute()
  }
}
