/** Writes verdicts: postpones, holds or cancels payouts that are not signed now. */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import type { Hold, Judged, Lane, Payout } from "./lane.ts"
import { recheckBeforeMs, recheckMs } from "./recheck.ts"

const SHORT_WAIT_MS = 30_000
const SHORT =
  "the money that it pays out is not confirmed: a reorg removed it or other money of its deposit, or only one of two endpoints reports it"

/** Writes each verdict. The verdicts `sign` and `skip` change nothing. */
export async function applyVerdicts(ctx: Context, lane: Lane, judged: readonly Judged[]): Promise<void> {
  for (const { payout, verdict } of judged) {
    if (verdict.kind === "wait") await postpone(ctx, payout, verdict.ms)
    if (verdict.kind === "short") await holdShort(ctx, payout)
    if (verdict.kind === "hold") await hold(ctx, lane, payout, verdict)
    if (verdict.kind === "cancel") await lane.cancel(ctx, payout, verdict.reason)
  }
}

async function hold(ctx: Context, lane: Lane, payout: Payout, verdict: Hold): Promise<void> {
  const { id, checks, payment_id: paymentId, held_reason: before, relay_by: relayBy } = payout
  const { reason, detail, waitMs } = verdict
  const now = ctx.now()
  // A payout must not be held beyond its deadline.
  const longest = relayBy ? recheckBeforeMs(checks, relayBy.getTime() - now.getTime()) : recheckMs(checks)
  // A payout that is held again for the same reason is not logged again.
  if (reason !== before) ctx.log.warn({ payoutId: id, paymentId, reason, detail }, "a payout is held")
  await ctx.db
    .updateTable("payouts")
    .set({
      state: "held",
      held_reason: reason,
      held_detail: detail,
      // A wallet without gas, or a spent budget, is not the payout's fault.
      checks: reason === "low_gas" || reason === "gas_budget" ? checks : checks + 1,
      run_at: new Date(now.getTime() + (waitMs ?? longest)),
      updated_at: now,
    })
    .where("id", "=", id)
    .where("state", "in", ["queued", "held"])
    .execute()
  await lane.onHeld(ctx, payout, verdict)
}

/**
 * Releases the reserved money of a payout whose transfer a reorg removed, until the money is there again. Does nothing
 * if the money is already there.
 */
async function holdShort(ctx: Context, { id }: Payout): Promise<void> {
  const now = ctx.now()
  const { rows } = await sql`update payouts i set state = 'held', held_reason = 'short', held_detail = ${SHORT},
      reserved = false, run_at = ${new Date(now.getTime() + SHORT_WAIT_MS)}, updated_at = ${now}
    where i.id = ${id} and i.state in ('queued', 'held') and not has_money(i) returning i.id`.execute(ctx.db)
  if (rows.length > 0) ctx.log.warn({ payoutId: id, reason: "short" }, "a payout is held")
}

async function postpone(ctx: Context, { id }: Payout, ms: number): Promise<void> {
  await ctx.db
    .updateTable("payouts")
    .set({ run_at: new Date(ctx.now().getTime() + ms) })
    .where("id", "=", id)
    .where("state", "in", ["queued", "held"])
    .execute()
}
