/**
 * Makes returns: money that needed the merchant's decision goes back to its payer with one ordinary payout. A returned
 * payment has one live or final return. If its last return fails for good, the payment is open again.
 */
import { sql } from "kysely"
import type { Hex } from "viem"
import type { Address } from "../../platform/chain/hex.ts"
import { approvalIn, giveBackCall, NO_DEADLINE, returnNonce } from "../../platform/chain/release-call.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { remainingValue } from "../../platform/db/remaining-value.ts"
import type { HeldReason, Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { continueTrace } from "../../platform/tracing/trace.ts"
import { insertPayout } from "./insert-payout.ts"

/** A wallet's signature for a return; `deadline` is in Unix seconds. */
interface Approval {
  deadline: number | bigint
  signature: Hex
}

/**
 * Makes the return of a payment that just became `returned`, with the approver's signature if the receiving address
 * names one. Call this in the same transaction, under the payment's lock.
 */
export async function makeReturn(
  ctx: TxContext,
  payment: Row<"payments">,
  { approval, again }: { approval?: Approval | undefined; again?: { reason: HeldReason; replaces: string } },
): Promise<void> {
  const returned = await returnedOf(ctx, payment)
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("id", "=", returned.deposit_id)
    .executeTakeFirstOrThrow()
  const { made: n, moved } = await returnsOf(ctx, payment.id)
  const approved = again ? await approvalOf(ctx, again.replaces) : approval
  const payout = {
    kind: "return" as const,
    source_key: `payment:${payment.id}:return:${n}`,
    payment_id: payment.id,
    share: null,
    percent_e4: null,
    replaces: again?.replaces ?? null,
    token: payment.token,
    recipient: returned.returned_to,
    amount: returned.amount,
    hold: again?.reason,
    checks: again ? n : 0,
    traceparent: continueTrace(ctx, payment.traceparent),
  }
  const message = {
    token: payment.token,
    to: returned.returned_to,
    amount: returned.amount,
    nonce: returnNonce(payment.id, moved),
    deadline: BigInt(approved?.deadline ?? NO_DEADLINE),
  }
  await insertPayout(ctx, deposit, payout, id => giveBackCall(id, deposit, message, approved?.signature ?? "0x"))
}

interface Returned {
  deposit_id: bigint
  returned_at: Date
  returned_to: Address
  /** In base units. */
  amount: bigint
}

/**
 * Returns what a return sends back and to which address. A return sends back the whole payment, or the surplus of a
 * granted one.
 */
async function returnedOf(ctx: TxContext, payment: Row<"payments">): Promise<Returned> {
  const order = payment.status === "returned" ? payment : await returnedSurplus(ctx, payment.id)
  const { deposit_id, returned_at, returned_to, amount } = order ?? payment
  if (deposit_id === null || returned_at === null || returned_to === null)
    throw new Error(`${payment.id} is not returned`)
  return { deposit_id, returned_at, returned_to, amount }
}

const returnedSurplus = (ctx: TxContext, paymentId: string): Promise<Row<"surpluses"> | undefined> =>
  ctx.db
    .selectFrom("surpluses")
    .selectAll()
    .where("payment_id", "=", paymentId)
    .where("state", "=", "returned")
    .executeTakeFirst()

/**
 * Reads the approval of an earlier return of the same money. The approval stays valid until it has moved that money.
 */
async function approvalOf(ctx: TxContext, payoutId: string): Promise<ReturnType<typeof approvalIn>> {
  const { data } = await ctx.db
    .selectFrom("payouts")
    .select("data")
    .where("id", "=", payoutId)
    .executeTakeFirstOrThrow()
  return approvalIn(data)
}

/** Counts the returns of a payment that moved money. */
export const movedReturns = async (ctx: TxContext, paymentId: string): Promise<number> =>
  (await returnsOf(ctx, paymentId)).moved

/** Counts the returns that a payment has had since a time, and those among them that moved money. */
export async function returnsOf(
  ctx: TxContext,
  paymentId: string,
  from = new Date(0),
): Promise<{ made: number; moved: number }> {
  return await ctx.db
    .selectFrom("payouts")
    .select([
      sql<number>`count(*)::int`.as("made"),
      sql<number>`(count(*) filter (where state in ('mined', 'final') and succeeded))::int`.as("moved"),
    ])
    .where("payment_id", "=", paymentId)
    .where("kind", "=", "return")
    .where("created_at", ">=", from)
    .executeTakeFirstOrThrow()
}

/**
 * Replaces a return that failed for good with a new one, held until its simulation succeeds. The payment reopens
 * instead after `most` failures, or if the return would now send later money. The payment also reopens if a reorg
 * removed the money or changed its sender. Call this inside a transaction that holds the payment's lock.
 */
export async function returnAgain(
  ctx: TxContext,
  failed: Pick<Row<"payouts">, "id" | "payment_id">,
  most: number,
): Promise<void> {
  const payment = await ctx.db
    .selectFrom("payments")
    .selectAll()
    .where("id", "=", failed.payment_id)
    .executeTakeFirstOrThrow()
  const surplus = payment.status === "returned" ? undefined : await returnedSurplus(ctx, payment.id)
  if (payment.status !== "returned" && !surplus) return
  const { returned_at } = await returnedOf(ctx, payment)
  // A reorg may have mined the money again from another sender, to whom nothing was promised. Money claimed after the
  // decision replaced what a reorg took, so it counts like any other.
  const isAnothers = sql`(t.from_address <> ${payment.payer} or t.created_at > ${returned_at})
    and (${!surplus} or t.id = ${surplus?.transfer_id ?? null})`
  const stands =
    await sql`select from claims c join transfers t on t.id = c.transfer_id where c.payment_id = ${payment.id}
    and t.state in ('confirmed', 'final') having sum(${remainingValue}) = ${payment.amount} and not bool_or(${isAnothers})`.execute(
      ctx.db,
    )
  if (stands.rows.length > 0 && (await returnsOf(ctx, payment.id, returned_at)).made < most)
    return await makeReturn(ctx, payment, { again: { reason: "reverted", replaces: failed.id } })
  ctx.log.error({ paymentId: payment.id }, "a return failed for good; the payment is open again")
  const open = { state: "open" as const, returned_at: null, returned_to: null }
  if (surplus)
    return void (await ctx.db.updateTable("surpluses").set(open).where("payment_id", "=", payment.id).execute())
  await ctx.db
    .updateTable("payments")
    .set({ status: "open", returned_at: null, returned_to: null, updated_at: ctx.now() })
    .where("id", "=", payment.id)
    .execute()
  // Settlement must run again, because money that a reorg removed no longer belongs to the payment.
  await sql`update transfers t set run_at = ${ctx.now()} from claims c
    where c.transfer_id = t.id and c.payment_id = ${payment.id}`.execute(ctx.db)
}

/** Cancels a return that has no nonce and can't succeed any more. Cancelling the return reopens its payment. */
export async function cancelReturn(ctx: Context, { id, payment_id }: Row<"payouts">, reason: string): Promise<void> {
  const cancelled = await inTransaction(ctx, async ctx => {
    // Locks the payment before its payouts, as all code does.
    await ctx.db.selectFrom("payments").select("id").where("id", "=", payment_id).forNoKeyUpdate().execute()
    return await ctx.db
      .updateTable("payouts")
      .set({ state: "cancelled", held_reason: null, held_detail: reason, updated_at: ctx.now() })
      .where("id", "=", id)
      .where("state", "in", ["queued", "held"])
      .executeTakeFirst()
  })
  if (cancelled.numUpdatedRows > 0n)
    ctx.log.warn({ payoutId: id, paymentId: payment_id, reason }, "a return is cancelled")
}

/**
 * Cancels returns without a nonce if a reorg changed their payment's money. Cancelling a return reopens its payment.
 * Call this inside a transaction, under the lock of the paywall's payer or of the session.
 */
export async function stopReturns(ctx: TxContext, paymentIds: readonly string[]): Promise<void> {
  if (paymentIds.length === 0) return
  const unsigned = sql`kind = 'return' and state in ('queued', 'held') and payment_id = any(${sqlArray("text", paymentIds)})`
  // Locks the payment before its payouts, as `operator/` does when it cancels a payout.
  const { rows } = await sql<{ id: string }>`select id from payments p
    where id in (select payment_id from payouts where ${unsigned})
      and amount <> (select coalesce(sum(${remainingValue}), 0) from claims c join transfers t on t.id = c.transfer_id
        where c.payment_id = p.id and t.state <> 'gone' and t.from_address = p.payer)
    order by id for no key update`.execute(ctx.db)
  if (rows.length === 0) return
  await sql`update payouts set state = 'cancelled', held_reason = null, updated_at = ${ctx.now()}
    where kind = 'return' and state in ('queued', 'held') and payment_id = any(${sqlArray(
      "text",
      rows.map(row => row.id),
    )})`.execute(ctx.db)
}
