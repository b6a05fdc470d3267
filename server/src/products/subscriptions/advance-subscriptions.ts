/**
 * The job that advances due subscriptions. A subscription is due when a period starts or ends, or when a trigger saw
 * one of its sessions change status. A round advances many in one transaction, so a process that dies leaves nothing
 * half done. If that transaction fails, each is advanced in its own transaction, so that one failure does not delay
 * the others.
 */
import { sql } from "kysely"
import { backoffMs } from "../../platform/backoff.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { subscriptionChanges } from "../../platform/metrics.ts"
import { advance } from "./advance-subscription.ts"
import { holdFree, lockDue } from "./load-subscription.ts"

/**
 * The most subscriptions per transaction; the next ones follow immediately. A request that changes one of them waits
 * for the transaction.
 */
const SUBSCRIPTIONS_PER_ROUND = 100
/** The delay after the first failure. Each further failure doubles the delay. */
const AFTER_FAILURE_MS = 60_000
const MAX_AFTER_FAILURE_MS = 3_600_000
/** The longest sleep, and so the longest delay that a lost wake-up can cause. */
const MAX_SLEEP_MS = 5_000
/** The shortest wait between rounds, for subscriptions that another process has locked. */
const HELD_MS = 200

/** Advances due subscriptions. Returns the milliseconds until the next round. */
export async function advanceSubscriptions(ctx: Context): Promise<number> {
  const due: Row<"subscriptions">[] = []
  try {
    await advanceDue(ctx, undefined, due)
  } catch (error) {
    ctx.log.warn(
      { err: error, subscriptions: due.length },
      "a round of subscriptions failed; each subscription is now tried alone",
    )
    for (const each of due) await advanceAlone(ctx, each)
  }
  if (due.length === SUBSCRIPTIONS_PER_ROUND) return 0
  const next = await ctx.db
    .selectFrom("subscriptions")
    .select("run_at")
    .where("run_at", "is not", null)
    .where("chain_id", "in", chainsOf(ctx))
    .orderBy("run_at")
    .limit(1)
    .executeTakeFirst()
  const waitMs = next?.run_at ? next.run_at.getTime() - ctx.now().getTime() : MAX_SLEEP_MS
  return Math.max(HELD_MS, Math.min(MAX_SLEEP_MS, waitMs))
}

const chainsOf = (ctx: TxContext): number[] => ctx.chain.networks.map(({ chainId }) => chainId)

/**
 * Advances a round of due subscriptions, or `only` one, in one transaction. `due` receives those that were found,
 * even if the transaction fails.
 */
async function advanceDue(ctx: Context, only: string | undefined, due: Row<"subscriptions">[]): Promise<void> {
  await inTransaction(ctx, async ctx => {
    const locked = await lockDue(ctx, { limit: SUBSCRIPTIONS_PER_ROUND, only })
    due.splice(0, due.length, ...locked)
    await advance(ctx, await holdFree(ctx, locked))
  })
}

/** Advances one subscription. A failure is logged, counted for the alarm, and retried later. */
async function advanceAlone(ctx: Context, { id, chain_id, failed_rounds }: Row<"subscriptions">): Promise<void> {
  try {
    await advanceDue(ctx, id, [])
  } catch (error) {
    ctx.log.error({ err: error, subscriptionId: id }, "a subscription could not be advanced and will be tried again")
    subscriptionChanges.inc({ network: networkOf(ctx.chain, chain_id).name, change: "failed" })
    const again = new Date(ctx.now().getTime() + backoffMs(AFTER_FAILURE_MS, failed_rounds, MAX_AFTER_FAILURE_MS))
    await ctx.db
      .updateTable("subscriptions")
      .set(eb => ({ run_at: again, failed_rounds: eb("failed_rounds", "+", 1) }))
      .where("id", "=", id)
      .execute()
  }
}

/** How many failed rounds of a subscription raise the alarm. The index `subscriptions_failing` uses the same number. */
const MAX_FAILED_ROUNDS = 3

/** The text of the alarm about subscriptions that can't be advanced; anyone may read it. */
export async function failingSubscriptions(ctx: TxContext): Promise<string[]> {
  const { rows } = await sql<{ chain_id: number; n: number }>`select chain_id, count(*)::int as n from subscriptions
    where failed_rounds >= ${sql.lit(MAX_FAILED_ROUNDS)} group by 1 order by 1`.execute(ctx.db)
  return rows
    .filter(({ chain_id }) => chainsOf(ctx).includes(chain_id))
    .map(
      ({ chain_id, n }) =>
        `${networkOf(ctx.chain, chain_id).name}: ${n} subscriptions could not be advanced three times in a row: see docs/operators/alarms.md (subscription_failed)`,
    )
}
