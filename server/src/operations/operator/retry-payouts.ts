/** Manual actions on payouts without a nonce: listing those that are held with the reason, retrying, cancelling. */
import { sql } from "kysely"
import { makePayouts } from "../../ledger/payouts/make-payouts.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { HeldReason, Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { findPayout, networkNamed, refused } from "./find-wallet.ts"
import { byHand, type OperatorOrder } from "./log-actions.ts"

const waiting: readonly Row<"payouts">["state"][] = ["queued", "held"]

/** The held payouts, oldest first. Those that are held because of sanctions include the evidence. */
export async function heldPayouts(ctx: Context, limit: number) {
  const { rows } = await sql<Row<"payouts"> & { source: string | null; screened_at: Date | null }>`
    select i.*, s.source, s.screened_at from payouts i left join lateral (
      select source, screened_at from screenings where i.held_reason = 'sanctions' and address = i.recipient and listed
      order by id desc limit 1) s on true
    where i.state = 'held' order by i.created_at, i.id limit ${limit}`.execute(ctx.db)
  return rows.map(row => ({
    id: row.id,
    network: networkNamed(ctx, row.chain_id),
    kind: row.kind,
    merchant: row.merchant_id,
    payment: row.payment_id,
    recipient: checksummed(row.recipient),
    amount: amountOf(ctx, row),
    reason: row.held_reason,
    detail: row.held_detail,
    createdAt: row.created_at.toISOString(),
    since: row.updated_at.toISOString(),
    checks: row.checks,
    nextLook: row.run_at.toISOString(),
    screening: row.source === null ? null : { source: row.source, at: row.screened_at?.toISOString() ?? null },
  }))
}

/**
 * The amount in whole tokens; in base units for a token other than the settlement token, or if the settings no longer
 * have the network.
 */
function amountOf(ctx: Context, { chain_id: chainId, token, amount }: Row<"payouts">): string {
  const network = ctx.chain.networks.find(each => each.chainId === chainId)
  if (network?.token.address === token) return formatAmount(amount, network.token.decimals)
  return `${amount} of ${checksummed(token)}`
}

/**
 * Retries a payout without a nonce now, and restarts its waits. All checks apply as usual, so the payout stays held
 * if its recipient is on a sanctions list. A share that the engine gave up after too many reverts is created once
 * more.
 */
export async function retryPayout(ctx: Context, asked: OperatorOrder & { payout: string }): Promise<{ said: string }> {
  const seen = await findPayout(ctx, asked.payout)
  if (seen.state === "reverted" && seen.payment_id !== null) return await makeAgain(ctx, asked, seen.payment_id)
  if (seen.kind === "store" && seen.stopped) return await storeAgain(ctx, asked)
  const { reason } = await byHand(ctx, asked, async ctx => {
    const row = await lockWaiting(ctx, asked.payout)
    const after = { checks: 0, run_at: ctx.now() }
    await ctx.db.updateTable("payouts").set(after).where("id", "=", row.id).execute()
    return {
      action: "retry" as const,
      chainId: row.chain_id,
      payoutId: row.id,
      before: { state: row.state, held_reason: row.held_reason, checks: row.checks, run_at: row.run_at },
      after,
      reason: row.held_reason,
    }
  })
  const how =
    reason === "sanctions"
      ? "Its recipient is screened again; the payout stays on hold while the recipient is listed."
      : "The payout is paid if its checks succeed; otherwise it stays held."
  return { said: `The payout ${asked.payout} is now being retried. ${how}` }
}

/** Retries all held payouts now, or only those that are held for one reason. One record is written for each network. */
export async function retryAll(
  ctx: Context,
  asked: OperatorOrder & { held?: HeldReason | undefined },
): Promise<{ said: string }> {
  const { rows: chains } = await sql<{
    chain_id: number
  }>`select distinct chain_id from payouts where state = 'held'`.execute(ctx.db)
  let total = 0
  for (const { chain_id: chainId } of chains)
    await byHand(ctx, asked, async ctx => {
      const { rows } = await sql<{ reason: HeldReason; n: number }>`
        with retried as (update payouts set checks = 0, run_at = ${ctx.now()} where state = 'held' and chain_id = ${chainId}
          and ${asked.held === undefined ? sql`true` : sql`held_reason = ${asked.held}`} returning held_reason)
        select held_reason as reason, count(*)::int as n from retried group by 1`.execute(ctx.db)
      total += rows.reduce((sum, { n }) => sum + n, 0)
      const counts = Object.fromEntries(rows.map(({ reason, n }) => [reason, n]))
      return { action: "retry" as const, chainId, before: { held: counts }, after: { checks: 0, run_at: ctx.now() } }
    })
  const which = asked.held === undefined ? "" : ` for ${asked.held}`
  if (total === 0) throw refused(`No payout is held${which}.`)
  return {
    said: `${total} held ${total === 1 ? "payout is" : "payouts are"} now being retried. Each is paid if its checks succeed; otherwise it stays held.`,
  }
}

/**
 * Creates a reverted share again, as the engine does. Refuses if that was already done, or if nothing is owed any
 * more.
 */
async function makeAgain(
  ctx: Context,
  asked: OperatorOrder & { payout: string },
  paymentId: string,
): Promise<{ said: string }> {
  const { id } = await byHand(ctx, asked, async ctx => {
    const successors = () =>
      ctx.db.selectFrom("payouts").select(["id", "chain_id"]).where("replaces", "=", asked.payout).execute()
    // The payment is locked before its payouts, as in settlement.
    await ctx.db.selectFrom("payments").select("id").where("id", "=", paymentId).forNoKeyUpdate().execute()
    const before = await successors()
    await makePayouts(ctx, paymentId, { reason: "reverted" })
    const made = (await successors()).find(row => !before.some(({ id }) => id === row.id))
    if (!made) throw refused(`The payout ${asked.payout} reverted, and no part of it is left to create again.`)
    await ctx.db.updateTable("payouts").set({ run_at: ctx.now() }).where("id", "=", made.id).execute()
    return {
      action: "retry" as const,
      chainId: made.chain_id,
      payoutId: asked.payout,
      before: { state: "reverted" },
      after: { state: "reverted", made_again_as: made.id },
      id: made.id,
    }
  })
  return {
    said: `The payout ${asked.payout} reverted. It is created again as ${id}, and paid if its checks succeed.`,
  }
}

/** Lets another call store the receipts whose call a person cancelled. */
async function storeAgain(ctx: Context, asked: OperatorOrder & { payout: string }): Promise<{ said: string }> {
  await byHand(ctx, asked, async ctx => {
    const row = await ctx.db
      .updateTable("payouts")
      .set({ stopped: false, updated_at: ctx.now() })
      .where("id", "=", asked.payout)
      .where("stopped", "=", true)
      .returning("chain_id")
      .executeTakeFirst()
    if (!row) throw refused(`The payout ${asked.payout} is already being retried.`)
    return {
      action: "retry" as const,
      chainId: row.chain_id,
      payoutId: asked.payout,
      before: { state: "cancelled", stopped: true },
      after: { state: "cancelled", stopped: false },
    }
  })
  return { said: `The payout ${asked.payout} stays cancelled. Another call stores the same receipts on 0G.` }
}

/** Cancels a payout without a nonce for good. Its money stays in its deposit. */
export async function cancel(
  ctx: Context,
  asked: OperatorOrder & { payout: string; reason: string },
): Promise<{ said: string }> {
  const { payment_id: paymentId } = await findPayout(ctx, asked.payout)
  const { kind } = await byHand(ctx, asked, async ctx => {
    // The payment is locked before its payouts and books, as in settlement.
    if (paymentId !== null)
      await ctx.db.selectFrom("payments").select("id").where("id", "=", paymentId).forNoKeyUpdate().execute()
    const row = await lockWaiting(ctx, asked.payout)
    // The reason for which the relay was held is cleared, because its payer sees why it ended.
    const after = {
      state: "cancelled",
      stopped: true,
      held_reason: null,
      ...(row.payer && { held_detail: null }),
    } as const
    await ctx.db
      .updateTable("payouts")
      .set({ ...after, updated_at: ctx.now() })
      .where("id", "=", row.id)
      .execute()
    return {
      action: "cancel" as const,
      chainId: row.chain_id,
      payoutId: row.id,
      before: { state: row.state, held_reason: row.held_reason, held_detail: row.held_detail },
      after,
      kind: row.kind,
    }
  })
  // Settlement that waits for a payment's shares need not wait for this one any more.
  await ctx.wakes.wake("payments")
  return { said: `The payout ${asked.payout} is cancelled. ${moneyWords[kind] ?? moneyWords.share}` }
}

/** What happens to the money after a cancellation, by the kind of payout. */
const moneyWords: Partial<Record<Row<"payouts">["kind"], string>> = {
  share:
    "Its money stays in its deposit and is not paid to anyone automatically; the merchant's console shows the share as cancelled.",
  sweep:
    "Its money stays in its deposit and is not swept again automatically; the merchant's transactions show it as cancelled.",
  authorize: "Its payer learns that the payment was not executed, and can sign again or pay with a transfer.",
  settle:
    "It moved no money. The payer learns that the payment was not executed, and can pay again. The authorization was never broadcast.",
  return: "Its money stays in its deposit; the payment is open again, and waits for the merchant.",
  reserve: "Nothing was reserved. Its payer learns that the payment was not executed, and can sign again.",
  capture:
    "The reserved money stays in the escrow. The merchant can capture it again. An automatic capture is repeated immediately. Money not captured in time goes back to the payer.",
  void: "The remaining money stays in the escrow. The merchant can capture it, or release it again. A void that is due is repeated immediately.",
  refund: "The refund has failed; the merchant can request another.",
  anchor: "Nothing was paid. Another call writes the same receipts to the chain.",
  store:
    "Nothing was paid. Its receipts stay in DATA_DIR/receipts, and are not stored on 0G until you run `sluice wallet retry` for this payout.",
}

/**
 * Locks the payout's row with the same lock that the assignment of nonces takes, so that only one of the two gets the
 * row.
 */
async function lockWaiting(ctx: TxContext, id: string): Promise<Row<"payouts">> {
  const row = await ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("id", "=", id)
    .forNoKeyUpdate()
    .executeTakeFirstOrThrow()
  if (waiting.includes(row.state)) return row
  const state = row.nonce === null ? row.state : `${row.state}, with the nonce ${row.nonce}`
  throw refused(`The payout ${id} is ${state}: only queued or held payouts can be retried or cancelled.`)
}
