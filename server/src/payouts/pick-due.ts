/**
 * Which payouts are considered next. Where all that is due fits, its order does not matter. Where more is due, the payout lane takes the oldest,
 * and in the relay lane merchants take turns: nobody's many calls keep the buyers of others waiting.
 */
import { sql } from "kysely"
import type { Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { type Except, smallOf } from "./gas-budget.ts"
import { isSignable } from "./give-nonces.ts"
import { type Payout, policies } from "./lane-policy.ts"

/** A call that is due for longer than this goes before everything that arrives now, so that no kind of call waits for ever. */
const AGED_MS = 60_000

/** At most `limit` payouts that are due; of the payout lane without those of `except`. */
export async function duePayouts(
  ctx: Context,
  network: Network,
  wallet: Row<"wallets">,
  limit: number,
  except: Except = { merchants: [], small: [] },
): Promise<Payout[]> {
  // One more, to know whether all that is due fits.
  const due = await oldest(ctx, network, wallet, limit + 1, except)
  if (due.length <= limit) return await payoutsOf(ctx, due)
  return policies[wallet.lane].takesTurns
    ? await inTurns(ctx, network, wallet, limit)
    : await payoutsOf(ctx, due.slice(0, limit))
}

/** Payouts by their ids, in this order. They were found by a statement that is planned once, and so lists no columns. */
async function payoutsOf(ctx: Context, ids: readonly string[]): Promise<Payout[]> {
  if (ids.length === 0) return []
  const { rows } = await sql<Payout>`select * from payouts where id = any(${sqlArray("uuid", ids)})`.execute(ctx.db)
  const byId = new Map(rows.map(row => [row.id, row]))
  return ids.flatMap(id => byId.get(id) ?? [])
}

/**
 * The ids of the payouts that are due, without those of some merchants and the small ones of others. Payouts that failed before come
 * last: they may be many, and somebody's.
 */
async function oldest(
  ctx: Context,
  network: Network,
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
  // Each part is a range of one index in its order, so the number of payouts that wait costs nothing.
  const parts = [0, 1].map(
    failed => sql`(select id, ${sql.lit(failed)} as failed, run_at, created_at from payouts
      where chain_id = ${wallet.chain_id} and lane = ${sql.lit(wallet.lane)} and ${policies[wallet.lane].ours(network, sql`${wallet.address}`)}
        and state in ('queued', 'held') and least(checks, 1) = ${sql.lit(failed)} and ${isSignable(ctx)} and run_at <= ${ctx.now()}
        ${sql.join(left, sql` `)}
      order by run_at, created_at, id limit ${limit})`,
  )
  const name = left.length === 0 ? sql.raw(`/* named: due_${wallet.lane}s */`) : sql``
  const { rows } = await sql<{ id: string }>`${name} select id from (${sql.join(parts, sql` union all `)}) due
    order by failed, run_at, created_at, id limit ${limit}`.execute(ctx.db)
  return rows.map(({ id }) => id)
}

/** The class of refunds: one of a merchant at a time. */
const REFUNDS = 3

/**
 * A call's class: 0 where a buyer or an agent waits for it, 1 for a payment's first capture or its release, 2 for further captures,
 * 3 for refunds, 4 for what failed before. The index `payouts_turns` has the same words.
 */
const classOf = sql<number>`(case when kind in ('authorize', 'settle', 'reserve') then 0 when kind = 'refund' then 3
  when checks > 0 then 4 when kind = 'void' or source_key like '%:0' then 1 else 2 end)`

/**
 * The due calls of the relay lane, class after class, and within a class one of each merchant, then the second of each, and so on. Of
 * a merchant's refunds the first alone, and none while one is signed: the others could only wait for it. A merchant's calls of one class
 * are a range of one index, and only the sixteen merchants whose turn comes first are read: that costs nothing for each call that waits.
 */
async function inTurns(ctx: Context, network: Network, wallet: Row<"wallets">, limit: number): Promise<Payout[]> {
  const now = ctx.now()
  const waiting = sql`chain_id = ${wallet.chain_id} and lane = ${sql.lit(wallet.lane)} and state in ('queued', 'held')`
  const due = sql`${waiting} and run_at <= ${now} and ${isSignable(ctx)}
    and ${policies[wallet.lane].ours(network, sql`${wallet.address}`)}`
  const order = sql`run_at, payouts.created_at, payouts.id`
  const aged = new Date(now.getTime() - AGED_MS)
  const { rows } = await sql<{ id: string }>`
    /* named: relays_in_turn */ with recursive queues as (
      (select merchant_id, ${classOf} as class from payouts where ${waiting} order by merchant_id, class limit 1)
      union all
      select next.* from queues q cross join lateral (select merchant_id, ${classOf} as class from payouts
        where ${waiting} and (merchant_id, ${classOf}) > (q.merchant_id, q.class) order by merchant_id, class limit 1) next),
    first as materialized (
      select q.*, case when head.run_at < ${aged} then 0 else q.class end as rank from queues q
        cross join lateral (select run_at, created_at, id from payouts
          where ${due} and merchant_id = q.merchant_id and ${classOf} = q.class order by ${order} limit 1) head
      where q.class <> ${sql.lit(REFUNDS)} or not exists (select from payouts o
        where o.chain_id = ${wallet.chain_id} and o.merchant_id = q.merchant_id and o.kind = 'refund' and o.state = 'assigned'
          and o.wallet = ${wallet.address})
      order by rank, head.run_at, head.created_at, head.id limit ${limit})
    select each.id from first cross join lateral (
      select id, run_at, created_at, row_number() over (order by ${order}) as turn from payouts
      where ${due} and merchant_id = first.merchant_id and ${classOf} = first.class
      order by ${order} limit case when first.class = ${sql.lit(REFUNDS)} then 1 else ${limit}::int end) each
    order by case when each.run_at < ${aged} then 0 else first.class end, turn, each.run_at, each.created_at, each.id
    limit ${limit}`.execute(ctx.db)
  return await payoutsOf(
    ctx,
    rows.map(({ id }) => id),
  )
}
