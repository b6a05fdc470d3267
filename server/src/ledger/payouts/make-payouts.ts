/**
 * Makes payouts: rows of `payouts` that say which money has to move. The rows are written in the transaction that makes
 * the money due. Each function reads what is already promised and adds what is missing, so a second call is a no-op.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { releaseData } from "../../platform/chain/release-call.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { remainingValue, withheld } from "../../platform/db/remaining-value.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { HeldReason, Row } from "../../platform/db/schema.ts"
import { sqlArray, sqlRows } from "../../platform/db/sql-array.ts"
import { allColumns, columnsOf } from "../../platform/db/whole-rows.ts"
import { parseAmount } from "../../platform/money/amount.ts"
import { continueTrace, joinTraces } from "../../platform/tracing/trace.ts"
import { payeesOf } from "../deposits/make-deposits.ts"
import { isFirm, isLive, missingShares, sharersOf, standingOf } from "./find-missing-shares.ts"
import { insertPayout, roomIn } from "./insert-payout.ts"

const DAY_MS = 86_400_000
const DEPOSITS_PER_ROUND = 200
/** How long a deposit waits after a sweep that took nothing, so that it does not delay other deposits. */
const SWEEP_AGAIN_MS = 3_600_000
const TRANSFERS_PER_SWEEP = 5_000

/**
 * SQL: how much of a transfer `t` with claim `c` no sweep has taken yet. A surplus that waits or is returned does not
 * count. A sweep that ended without moving money frees its part again.
 */
const unswept = sql<bigint>`${remainingValue} - ${withheld("open", "returned")} - coalesce((select sum(s.amount) from sweep_parts s join payouts i on i.id = s.payout_id
  where s.transfer_id = t.id and (i.stopped or i.state not in ('cancelled', 'reverted'))), 0)`

/**
 * SQL: whether nothing of a payment `p` is left to sweep. A transfer that a reorg moved still counts as left, and so does
 * one that it removed, until settlement has seen that: the transfer may be mined again before, and nothing else would
 * schedule its payment again.
 */
const allSwept = sql`not exists (select from claims c join transfers t on t.id = c.transfer_id
    join deposits d on d.id = t.deposit_id
  where c.payment_id = p.id and t.token = p.token and (t.state <> 'gone' or t.run_at is not null)
    and d.recipient_set_id is null and ${unswept} > 0)`

/** Why new shares are held; `parked` says why they stay held until a person retries them. */
interface Hold {
  reason: HeldReason
  parked?: string
}

/** Returns the message to the operator about a payout that is parked because it failed `n` times. */
export const failedOften = (n: number): string =>
  `it failed on chain ${n} times in a row, and waits until \`sluice wallet retry\` retries it`

/**
 * Makes a granted payment's payouts: a share for each recipient of its split, otherwise a sweep to the merchant. The
 * sweep is immediate if the deposit owes more than `SWEEP_ABOVE`. Call this inside the transaction that grants the
 * payment, even if the payment is granted again.
 */
export async function makePayouts(ctx: TxContext, paymentId: string, hold?: Hold): Promise<void> {
  const made = await makeAllShares(ctx, paymentId, hold)
  if (made && made.unsplit.length > 0) await planSweep(ctx, made.payment, made.unsplit)
}

/**
 * Makes a granted payment's missing shares, without scheduling a sweep. Returns the payment, locked, and its deposits
 * without recipients; undefined if the payment is not granted. Call this inside a transaction.
 */
export async function makeAllShares(
  ctx: TxContext,
  paymentId: string,
  hold?: Hold,
): Promise<{ payment: Row<"payments">; unsplit: Row<"deposits">[] } | undefined> {
  // The payment is locked until the commit. So either a concurrent reversal sees these payouts, or this function sees
  // the reversal.
  const payment = await ctx.db
    .selectFrom("payments")
    .modifyFront(sql`/* named: lock_payment */`)
    .select(columnsOf("payments"))
    .where("id", "=", paymentId)
    .forNoKeyUpdate()
    .executeTakeFirstOrThrow()
  if (payment.status !== "granted") return undefined
  const deposits = await depositsOf(ctx, payment)
  for (const deposit of deposits) await makeShares(ctx, payment, deposit, hold)
  return { payment, unsplit: deposits.filter(({ recipient_set_id: setId }) => setId === null) }
}

/** Returns which of these payments have a share that failed on chain and was never retried. */
export async function failedShares(ctx: TxContext, paymentIds: readonly string[]): Promise<Set<string>> {
  if (paymentIds.length === 0) return new Set()
  const { rows } = await sql<{ id: string }>`select distinct i.payment_id as id from payouts i
    where i.payment_id = any(${sqlArray("text", paymentIds)}) and i.kind = 'share' and i.state = 'reverted'
      and not exists (select from payouts n where n.replaces = i.id)`.execute(ctx.db)
  return new Set(rows.map(({ id }) => id))
}

/** Splits a payment's money at one deposit among the recipients that the deposit's address names. */
async function makeShares(
  ctx: TxContext,
  payment: Row<"payments">,
  deposit: Row<"deposits"> & { received: bigint },
  hold: Hold | undefined,
): Promise<void> {
  const recipients = await payeesOf(ctx, deposit.recipient_set_id)
  if (recipients.length === 0) return
  const { payouts: own } = await standingOf(ctx, [payment.id], payment.token, deposit.id)
  const others = await standingOf(ctx, await sharersOf(ctx, payment), payment.token, deposit.id)
  const missing = missingShares(recipients, {
    received: deposit.received,
    promised: own.filter(isLive),
    others: { received: others.received, promised: others.payouts.filter(isFirm) },
  })
  for (const [share, amount] of missing.entries()) {
    const recipient = recipients[share]
    if (!recipient || amount === 0n) continue
    const earlier = own.filter(row => row.share === share)
    const payout = {
      kind: "share" as const,
      source_key: `payment:${payment.id}:deposit:${deposit.id}:share:${share}:${earlier.length}`,
      payment_id: payment.id,
      share,
      percent_e4: recipient.percentE4,
      replaces:
        earlier.find(row => row.state === "reverted" && !own.some(each => each.replaces === row.id))?.id ?? null,
      token: payment.token,
      recipient: recipient.address,
      amount,
      hold: hold?.reason,
      parked: hold?.parked,
      checks: earlier.length,
      traceparent: continueTrace(ctx, payment.traceparent),
    }
    await insertPayout(ctx, deposit, payout, id => releaseData(id, deposit, recipients, payout))
  }
}

/** Returns the payments that, after a reorg, hold transfers which were already paid out for this payment. */
export async function heirsOf(ctx: TxContext, paymentId: string): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`select distinct c.payment_id as id from past_claims e
    join claims c on c.transfer_id = e.transfer_id
    where e.payment_id = ${paymentId} and c.payment_id <> ${paymentId} order by 1`.execute(ctx.db)
  return rows.map(({ id }) => id)
}

/**
 * Returns the deposits that hold a payment's transfers. `received` is what each deposit got, without a surplus that
 * waits for the merchant. Transfers that a reorg moved count even before they are confirmed again: the payment still
 * stands, and the book shows when there is room.
 */
async function depositsOf(ctx: TxContext, { id: paymentId, token }: Row<"payments">) {
  const rows = await sql<Row<"deposits"> & { received: bigint }>`
    /* named: deposits_of_payment */ select ${allColumns("d", "deposits")}, paid.received from deposits d join (
      select t.deposit_id, sum(t.value - ${withheld("open")}) as received
      from claims c join transfers t on t.id = c.transfer_id
      where c.payment_id = ${paymentId} and t.token = ${token} and t.state <> 'gone' group by 1) as paid
      on paid.deposit_id = d.id order by d.id`.execute(ctx.db)
  return rows.rows
}

/**
 * Cancels those of a reversed payment's payouts that have no nonce. Payouts with a nonce continue, and fail on chain if
 * the deposit no longer holds the money. Call this inside the transaction that reverses the payment.
 */
export async function cancelPayouts(ctx: TxContext, paymentId: string): Promise<void> {
  const now = ctx.now()
  await ctx.db
    .updateTable("payouts")
    .set({ state: "cancelled", held_reason: null, updated_at: now })
    .where("payment_id", "=", paymentId)
    .where("state", "in", ["queued", "held"])
    .execute()
  const swept = await sql<{ id: string }>`
    update payouts set state = 'cancelled', held_reason = null, updated_at = ${now}
    where state in ('queued', 'held') and kind = 'sweep' and id in (
      select s.payout_id from sweep_parts s join claims c on c.transfer_id = s.transfer_id
      where c.payment_id = ${paymentId}) returning id`.execute(ctx.db)
  for (const { id } of swept.rows) await sweepAgain(ctx, id, now)
  await ctx.db.updateTable("payments").set({ sweep_at: null }).where("id", "=", paymentId).execute()
}

/** Schedules another sweep for the payments in a sweep that can't happen. */
async function sweepAgain(ctx: TxContext, payoutId: string, at: Date): Promise<void> {
  await sql`update payments set sweep_at = ${at} where status = 'granted' and id in (
    select c.payment_id from claims c join sweep_parts s on s.transfer_id = c.transfer_id
    where s.payout_id = ${payoutId})`.execute(ctx.db)
}

/**
 * Schedules a payment for the daily sweep, or sweeps immediately if its deposits hold more than `SWEEP_ABOVE`. A
 * payment accepted in another token is swept immediately, because its value is unknown.
 */
async function planSweep(
  ctx: TxContext,
  payment: Row<"payments">,
  deposits: readonly Row<"deposits">[],
): Promise<void> {
  const network = networkOf(ctx.chain, payment.chain_id)
  await ctx.db
    .updateTable("payments")
    .set({ sweep_at: new Date(ctx.now().getTime() + DAY_MS) })
    .where("id", "=", payment.id)
    .modifyEnd(sql`/* named: schedule_sweep */`)
    .execute()
  const settled = payment.token === network.token.address
  const above = settled ? parseAmount(ctx.settings.sweepAbove, network.token.decimals) : 0n
  for (const deposit of deposits) await sweepDeposit(ctx, payment.token, deposit, above)
  // A payment is planned again when its relayed transaction is final: what is swept already needs no other sweep. Only
  // now, as the books are locked: before, a sweep could be failing in a transaction that is not committed yet.
  await sql`/* named: unschedule_planned */ update payments p set sweep_at = null where p.id = ${payment.id} and ${allSwept}`.execute(
    ctx.db,
  )
}

/**
 * Sweeps the deposits that are due, those that have waited longest first. Returns how many were due. A deposit that had
 * nothing to sweep is retried an hour later.
 */
export async function sweepDue(ctx: Context, network: Network): Promise<number> {
  const due = await sql<{ id: bigint; token: Address }>`
    select t.deposit_id as id, t.token from payments p join claims c on c.payment_id = p.id
      join transfers t on t.id = c.transfer_id join deposits d on d.id = t.deposit_id
    where p.chain_id = ${network.chainId} and p.sweep_at <= ${ctx.now()} and not t.single_source
      and d.recipient_set_id is null
    group by 1, 2 order by min(p.sweep_at), 1, 2 limit ${DEPOSITS_PER_ROUND}`.execute(ctx.db)
  for (const { id, token } of due.rows)
    await inTransaction(ctx, async ctx => {
      const deposit = await ctx.db.selectFrom("deposits").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
      const swept = await sweepDeposit(ctx, token, deposit, -1n)
      const ofDeposit = sql`p.sweep_at <= ${ctx.now()} and exists (select from claims c join transfers t on t.id = c.transfer_id
        where c.payment_id = p.id and t.deposit_id = ${id} and t.token = ${token})`
      await sql`update payments p set sweep_at = null where ${ofDeposit} and ${allSwept}`.execute(ctx.db)
      const again = new Date(ctx.now().getTime() + SWEEP_AGAIN_MS)
      if (!swept) await sql`update payments p set sweep_at = ${again} where ${ofDeposit}`.execute(ctx.db)
    })
  if (due.rows.length > 0) await ctx.wakes.wake("payouts")
  return due.rows.length
}

/**
 * Schedules another sweep after one that reverted on chain. After `most` failures in a row, the next sweep is held
 * until a person retries it, because a token that always reverts would cost gas forever. Call this inside a
 * transaction.
 */
export async function sweepAfterRevert(
  ctx: TxContext,
  failed: Pick<Row<"payouts">, "id" | "deposit_id" | "token">,
  most: number,
  at: Date,
): Promise<void> {
  const { rows } = await sql<{ n: number }>`select count(*)::int as n from payouts
    where deposit_id = ${failed.deposit_id} and token = ${failed.token} and kind = 'sweep' and state = 'reverted'
      and created_at > coalesce((select max(created_at) from payouts where deposit_id = ${failed.deposit_id}
        and token = ${failed.token} and kind = 'sweep' and state = 'final'), '-infinity')`.execute(ctx.db)
  const n = rows[0]?.n ?? 0
  await sweepAgain(ctx, failed.id, at)
  if (n < most) return
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("id", "=", failed.deposit_id)
    .executeTakeFirstOrThrow()
  await sweepDeposit(ctx, failed.token, deposit, 0n, failedOften(n))
}

/** Returns the first of these parts, with the last one shortened so that the sum is at most `most` base units. */
function upTo<P extends { left: bigint }>(most: bigint, parts: readonly P[]): P[] {
  let room = most
  return parts.flatMap(part => {
    const left = part.left < room ? part.left : room
    if (left <= 0n) return []
    room -= left
    return [{ ...part, left }]
  })
}

/**
 * Sweeps what a deposit owes its owner in a token and has not promised, if this is more than `above` base units.
 * Returns whether it made a sweep. One sweep takes a limited number of transfers, and the rest stay scheduled. `parked`
 * says why the sweep is held for a person.
 */
async function sweepDeposit(
  ctx: TxContext,
  token: Address,
  deposit: Row<"deposits">,
  above: bigint,
  parked?: string,
): Promise<boolean> {
  if (deposit.recipient_set_id !== null) return false
  // The book is the lock, so two concurrently granted payments can't sweep the same money. The book also shows quickly
  // whether there is too little money.
  const room = await roomIn(ctx, deposit.id, token, "sweep")
  if (room <= above) return false
  const open = await sql<{ id: bigint; payment_id: string; traceparent: string | null; left: bigint }>`
    /* named: unswept_transfers */ select t.id, c.payment_id, p.traceparent, ${unswept} as left
    from payments p join claims c on c.payment_id = p.id join transfers t on t.id = c.transfer_id
    where t.deposit_id = ${deposit.id} and t.token = ${token} and t.state in ('confirmed', 'final')
      and not t.single_source and p.status = 'granted' and p.sweep_at is not null
    order by t.id limit ${sql.lit(TRANSFERS_PER_SWEEP)}`.execute(ctx.db)
  // After a reorg that brought other amounts, signed payouts may already have promised some of the money.
  const parts = upTo(room, open.rows)
  const amount = parts.reduce((sum, { left }) => sum + left, 0n)
  if (amount === 0n || amount <= above) return false
  const { n } = await ctx.db
    .selectFrom("payouts")
    .select(sql<number>`count(*)::int`.as("n"))
    .where("deposit_id", "=", deposit.id)
    .where("kind", "=", "sweep")
    .executeTakeFirstOrThrow()
  const sweep = {
    kind: "sweep" as const,
    source_key: `deposit:${deposit.id}:sweep:${n}`,
    payment_id: null,
    share: null,
    percent_e4: null,
    replaces: null,
    token,
    recipient: deposit.owner,
    amount,
    hold: parked ? ("reverted" as const) : undefined,
    parked,
    checks: 0,
    traceparent: joinTraces(
      ctx,
      "sweep",
      parts.map(({ traceparent }) => traceparent),
    ),
  }
  const payoutId = await insertPayout(ctx, deposit, sweep, id => releaseData(id, deposit, [], sweep))
  const taken = parts.map(({ id, left }) => ({ id: `${id}`, amount: `${left}` }))
  await sql`insert into sweep_parts (payout_id, transfer_id, amount)
    select ${payoutId}, id, amount from (${rowsParameter(taken, "id bigint, amount numeric")}) taken`.execute(ctx.db)
  // Payments with money in other deposits stay scheduled until that money is swept too.
  const swept = [...new Set(parts.map(row => row.payment_id))]
  await sql`/* named: unschedule_swept */ update payments p set sweep_at = null where p.id in (${sqlRows("text", swept)})
    and ${allSwept}`.execute(ctx.db)
  return true
}
