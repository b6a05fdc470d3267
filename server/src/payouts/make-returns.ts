/**
 * Returns: money that waited for the merchant's decision goes back to its payer, by one ordinary payout. A returned payment has
 * one live or final return; when its last return fails for good, the payment is open again.
 */
import { sql } from "kysely"
import type { TxContext } from "../context.ts"
import type { HeldReason } from "../db/payout-rows.ts"
import type { Row } from "../db/schema.ts"
import { insertPayout } from "./make-payouts.ts"

/** Makes the return of a payment that has just become `returned`; call it in that transaction, under the payment's lock. */
export async function makeReturn(
  ctx: TxContext,
  payment: Row<"payments">,
  again?: { reason: HeldReason; replaces: string },
): Promise<void> {
  if (payment.status !== "returned" || payment.deposit_id === null || payment.returned_to === null)
    throw new Error(`${payment.id} is not returned`)
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("id", "=", payment.deposit_id)
    .executeTakeFirstOrThrow()
  const n = await returnsOf(ctx, payment.id)
  await insertPayout(ctx, deposit, {
    kind: "return",
    source_key: `payment:${payment.id}:return:${n}`,
    payment_id: payment.id,
    share: null,
    percent_e4: null,
    replaces: again?.replaces ?? null,
    token: payment.token,
    recipient: payment.returned_to,
    amount: payment.amount,
    hold: again?.reason,
    checks: again ? n : 0,
  })
}

async function returnsOf(ctx: TxContext, paymentId: string, from = new Date(0)): Promise<number> {
  const { n } = await ctx.db
    .selectFrom("payouts")
    .select(sql<number>`count(*)::int`.as("n"))
    .where("payment_id", "=", paymentId)
    .where("kind", "=", "return")
    .where("created_at", ">=", from)
    .executeTakeFirstOrThrow()
  return n
}

/**
 * Makes a new return for one that failed for good, held until it would succeed. After `most` failures, or when a reorg removed
 * the money, the payment is open again instead. Call it inside a transaction that holds the payment's lock.
 */
export async function returnAgain(ctx: TxContext, failed: Row<"payouts">, most: number): Promise<void> {
  const payment = await ctx.db
    .selectFrom("payments")
    .selectAll()
    .where("id", "=", failed.payment_id)
    .executeTakeFirstOrThrow()
  if (payment.status !== "returned" || payment.returned_at === null) return
  const stands =
    await sql`select from claims c join transfers t on t.id = c.transfer_id where c.payment_id = ${payment.id}
    and t.state in ('confirmed', 'final') having sum(t.value) = ${payment.amount}`.execute(ctx.db)
  if (stands.rows.length > 0 && (await returnsOf(ctx, payment.id, payment.returned_at)) < most)
    return await makeReturn(ctx, payment, { reason: "reverted", replaces: failed.id })
  ctx.log.error({ paymentId: payment.id }, "a return failed for good; the payment is open again")
  await ctx.db
    .updateTable("payments")
    .set({ status: "open", returned_at: null, returned_to: null, updated_at: ctx.now() })
    .where("id", "=", payment.id)
    .execute()
  // Due for settlement: money that a reorg removed is no longer the payment's.
  await sql`update transfers t set run_at = ${ctx.now()} from claims c
    where c.transfer_id = t.id and c.payment_id = ${payment.id}`.execute(ctx.db)
}

/**
 * Cancels returns without a nonce whose money, or part of it, a reorg removed; their payments are open again by that. Call it
 * inside a transaction, under the lock of the paywall's payer or of the session.
 */
export async function stopReturns(ctx: TxContext, paymentIds: readonly string[]): Promise<void> {
  if (paymentIds.length === 0) return
  const unsigned = sql`kind = 'return' and state in ('queued', 'held') and payment_id in (${sql.join(paymentIds)})`
  // The payment is locked before its payouts, as `operator/` does when it cancels one.
  const { rows } = await sql<{ id: string }>`select id from payments p
    where id in (select payment_id from payouts where ${unsigned})
      and amount > (select coalesce(sum(t.value), 0) from claims c join transfers t on t.id = c.transfer_id
        where c.payment_id = p.id and t.state <> 'gone' and t.from_address = p.payer)
    order by id for no key update`.execute(ctx.db)
  if (rows.length === 0) return
  await sql`update payouts set state = 'cancelled', held_reason = null, updated_at = ${ctx.now()}
    where ${unsigned} and payment_id in (${sql.join(rows.map(row => row.id))})`.execute(ctx.db)
}
