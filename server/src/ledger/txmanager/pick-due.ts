/**
 * Decides which payouts to consider next. If everything that is due fits, the order does not matter. Otherwise the
 * payout lane takes the oldest. In the relay lane merchants take turns, so that many calls of one merchant do not delay
 * other merchants' buyers.
 */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import type { PayoutKind } from "../../platform/db/payout-kinds.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { type Except, smallOf } from "./check-gas-budget.ts"
import { isSignable } from "./give-nonces.ts"
import type { Lane, Payout } from "./lane.ts"
import { groupIntoTransactions } from "./write-batches.ts"

/** A call that has been due for longer than this goes before all newer calls, so that no kind of call waits forever. */
const AGED_MS = 60_000

/**
 * Returns at most `limit` due payouts for a wallet with room for `room` transactions. `except` applies only to the
 * payout lane.
 */
export async function duePayouts(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  { limit, room }: { limit: number; room: number },
  except: Except = { merchants: [], small: [] },
): Promise<Payout[]> {
  // One payout more than the limit shows whether everything that is due fits.
  const due = await oldest(ctx, lane, wallet, limit + 1, except)
  const first = await payoutsOf(ctx, due.slice(0, limit))
  if (!lane.takesTurns) return first
  const fits = due.length <= limit && groupIntoTransactions(ctx, first).length <= room
  return fits ? first : await inTurns(ctx, lane, wallet, limit)
}

/**
 * Reads payouts by id, in the order of the ids. The statement that finds the ids lists no columns, so that its plan can
 * be cached.
 */
async function payoutsOf(ctx: Context, ids: readonly string[]): Promise<Payout[]> {
  if (ids.length === 0) return []
  const { rows } = await sql<Payout>`select * from payouts where id = any(${sqlArray("uuid", ids)})`.execute(ctx.db)
  const byId = new Map(rows.map(row => [row.id, row]))
  return ids.flatMap(id => byId.get(id) ?? [])
}

/**
 * Returns the ids of due payouts, without the payouts of some merchants and without the small payouts of others.
 * Payouts that failed before come last, because there may be many, all of one merchant.
 */
async function oldest(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  limit: number,
  { merchants, small }: Except,
): Promise<string[]> {
  const left = [
    ...(merchants.length > 0 ? [sql`and merchant_id <> all(${sqlArray("text", merchants)})`] : []),
    ...(small.length > 0
      ? [sql`and (merchant_id <> all(${sqlArray("text", small)}) or not ${smallOf(ctx, sql.table("payouts"))})`]
      : []),
  ]
  // Each part is one ordered range of an index, so more waiting payouts cost nothing extra.
  const parts = [0, 1].map(
    failed => sql`(select id, ${sql.lit(failed)} as failed, run_at, created_at from payouts
      where chain_id = ${wallet.chain_id} and lane = ${sql.lit(wallet.lane)} and ${lane.ours(sql`${wallet.address}`)}
        and state in ('queued', 'held') and least(checks, 1) = ${sql.lit(failed)} and ${isSignable(ctx)} and run_at <= ${ctx.now()}
        ${sql.join(left, sql` `)}
      order by run_at, created_at, id limit ${limit})`,
  )
  const name = left.length === 0 ? sql.raw(`/* named: due_${wallet.lane}s */`) : sql``
  const { rows } = await sql<{ id: string }>`${name} select id from (${sql.join(parts, sql` union all `)}) due
    order by failed, run_at, created_at, id limit ${limit}`.execute(ctx.db)
  return rows.map(({ id }) => id)
}

/** The class of refunds. Only one refund per merchant is considered at a time. */
const REFUNDS = 3

/**
 * SQL: a call's class. 0: a buyer or an agent waits for the call. 1: a payment's first capture, or its release. 2:
 * further captures. 3: refunds. 4: calls that failed before. The index `payouts_turns` has the same expression, so a
 * new kind that takes turns needs a migration that replaces the index.
 */
const classOf = () => {
  const inTurn = (turn: PayoutKind["turn"]) => sql`kind in ${kindsThat(kind => kind.turn === turn)}`
  return sql<number>`(case when ${inTurn("buyer")} then 0 when ${inTurn("refund")} then 3
    when checks > 0 then 4 when ${inTurn("release")} or source_key like '%:0' then 1 else 2 end)`
}

/**
 * Returns the due calls of the relay lane, class by class. Within a class, each merchant's first call comes before any
 * merchant's second, and so on. Of a merchant's refunds, only the first is returned, and none while one is signed,
 * because the others would have to wait for it. The calls of one merchant and class are one index range. Only the
 * ranges whose turn comes first, at most `limit`, are read further than their first call. So more waiting calls cost
 * nothing extra.
 */
async function inTurns(ctx: Context, lane: Lane, wallet: Row<"wallets">, limit: number): Promise<Payout[]> {
  const now = ctx.now()
  const ofClass = classOf()
  const waiting = sql`chain_id = ${wallet.chain_id} and lane = ${sql.lit(wallet.lane)} and state in ('queued', 'held')`
  const due = sql`${waiting} and run_at <= ${now} and ${isSignable(ctx)}
    and ${lane.ours(sql`${wallet.address}`)}`
  const order = sql`run_at, payouts.created_at, payouts.id`
  const aged = new Date(now.getTime() - AGED_MS)
  const { rows } = await sql<{ id: string }>`
    /* named: relays_in_turn */ with recursive queues as (
      (select merchant_id, ${ofClass} as class from payouts where ${waiting} order by merchant_id, class limit 1)
      union all
      select next.* from queues q cross join lateral (select merchant_id, ${ofClass} as class from payouts
        where ${waiting} and (merchant_id, ${ofClass}) > (q.merchant_id, q.class) order by merchant_id, class limit 1) next),
    first as materialized (
      select q.*, case when head.run_at < ${aged} then 0 else q.class end as rank from queues q
        cross join lateral (select run_at, created_at, id from payouts
          where ${due} and merchant_id = q.merchant_id and ${ofClass} = q.class order by ${order} limit 1) head
      where q.class <> ${sql.lit(REFUNDS)} or not exists (select from payouts o
        where o.chain_id = ${wallet.chain_id} and o.merchant_id = q.merchant_id and o.kind in ${kindsThat(({ turn }) => turn === "refund")} and o.state = 'assigned'
          and o.wallet = ${wallet.address})
      order by rank, head.run_at, head.created_at, head.id limit ${limit})
    select each.id from first cross join lateral (
      select id, run_at, created_at, row_number() over (order by ${order}) as turn from payouts
      where ${due} and merchant_id = first.merchant_id and ${ofClass} = first.class
      order by ${order} limit case when first.class = ${sql.lit(REFUNDS)} then 1 else ${limit}::int end) each
    order by case when each.run_at < ${aged} then 0 else first.class end, turn, each.run_at, each.created_at, each.id
    limit ${limit}`.execute(ctx.db)
  return await payoutsOf(
    ctx,
    rows.map(({ id }) => id),
  )
}
