/**
 * The log of manual actions. Each entry is written in the transaction of the action itself, so that neither exists
 * without the other.
 */
import { checksummed } from "../../platform/chain/hex.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { OperatorAction, Row } from "../../platform/db/schema.ts"
import { networkNamed } from "./find-wallet.ts"

/** Who asks for an action, and why, as given to the command. */
export interface OperatorOrder {
  /** The name of the Unix user. */
  by: string
  reason?: string | undefined
}

type Facts = Record<string, unknown>

/** What an action did: the values that it changed, before and after. Amounts and nonces are stored as text. */
export interface Done {
  action: OperatorAction
  chainId: number
  wallet?: Row<"wallets">["address"] | null
  payoutId?: string
  before: Facts
  after: Facts
}

/** Runs a manual action in one transaction, which also records the action. If `work` throws, nothing is written. */
export async function byHand<T extends Done>(
  ctx: Context,
  asked: OperatorOrder,
  work: (ctx: TxContext) => Promise<T>,
): Promise<T> {
  const done = await inTransaction(ctx, async ctx => {
    const done = await work(ctx)
    await ctx.db
      .insertInto("operator_actions")
      .values({
        at: ctx.now(),
        action: done.action,
        by_user: asked.by,
        reason: asked.reason ?? null,
        chain_id: done.chainId,
        wallet: done.wallet ?? null,
        payout_id: done.payoutId ?? null,
        before: asJson(done.before),
        after: asJson(done.after),
      })
      .execute()
    return done
  })
  const { action, wallet, payoutId } = done
  ctx.log.warn({ action, by: asked.by, reason: asked.reason, wallet, payoutId }, "manual action")
  await ctx.wakes.wake("payouts")
  return done
}

/** Writes bigints as text, because JSON has none. */
const asJson = (facts: Facts): string =>
  JSON.stringify(facts, (_key, value) => (typeof value === "bigint" ? value.toString() : value))

/** The last actions, newest first. */
export async function actionLog(ctx: Context, limit: number) {
  const rows = await ctx.db.selectFrom("operator_actions").selectAll().orderBy("id", "desc").limit(limit).execute()
  return rows.map(row => ({
    at: row.at.toISOString(),
    action: row.action,
    by: row.by_user,
    reason: row.reason,
    network: networkNamed(ctx, row.chain_id),
    wallet: row.wallet && checksummed(row.wallet),
    payout: row.payout_id,
    before: row.before,
    after: row.after,
  }))
}
