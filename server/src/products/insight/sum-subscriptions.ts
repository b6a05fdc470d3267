/** How many subscriptions a merchant has, their monthly revenue, and how many started and ended in a period. */
import { sql } from "kysely"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { Whose } from "./read-figures.ts"

interface Group extends Pick<Row<"subscriptions">, "chain_id" | "billing_interval" | "billing_count" | "status"> {
  price: bigint
  count: number
}

interface Moves {
  started: number
  ended: number
  /** How many started in this period or later, and have not ended. */
  new: number
  /** How many started before this period, and ended in it or later. */
  gone: number
}

/** Returns a merchant's subscription numbers: the current ones, and those of the period `from` ≤ t < `to`. */
export async function subscriptionNumbers(ctx: TxContext, whose: Whose, from: Date, to: Date) {
  const [groups, { started, ended, ...others }] = await Promise.all([
    groupsOf(ctx, whose),
    movesOf(ctx, whose, from, to),
  ])
  const paying = groups.filter(({ status }) => status !== "paused")
  const months = new Map<number, bigint>()
  for (const group of paying) months.set(group.chain_id, (months.get(group.chain_id) ?? 0n) + ofAMonth(group))
  const rows = [...months].map(([chain_id, amount]) => {
    return { chain_id, amount, token: networkOf(ctx.chain, chain_id).token.address }
  })
  const format = await amountFormatter(ctx, rows)
  const first = countOf(groups) - others.new + others.gone
  return {
    active: countOf(paying),
    mrr: rows.map(row => {
      const { amount, currency, decimals } = format(row)
      return {
        chain: networkOf(ctx.chain, row.chain_id).name,
        token: checksummed(row.token),
        currency,
        decimals,
        amount,
      }
    }),
    started,
    ended,
    churn: first > 0 ? ended / first : null,
  }
}

const countOf = (groups: readonly Group[]) => groups.reduce((sum, { count }) => sum + count, 0)

/** How many of these intervals fit in a month of 1461/48 days, as a numerator and a denominator. */
const perMonth: Record<Group["billing_interval"], [bigint, bigint]> = {
  day: [1_461n, 48n],
  week: [1_461n, 336n],
  month: [1n, 1n],
  year: [1n, 12n],
}

/** A group's monthly revenue in base units, rounded down. */
function ofAMonth({ price, count, billing_interval, billing_count }: Group): bigint {
  const [times, per] = perMonth[billing_interval]
  return (price * BigInt(count) * times) / (per * BigInt(billing_count))
}

const among = ({ merchantId, chainId }: Whose) =>
  sql`merchant_id = ${merchantId} and (${chainId}::integer is null or chain_id = ${chainId}::integer)`

/** The subscriptions that have not ended, grouped by price. */
async function groupsOf(ctx: TxContext, whose: Whose): Promise<Group[]> {
  const { rows } = await sql<Group>`/* named: current_subscriptions */
    select g.*, p.price from (
        select chain_id, status, product_id, billing_interval, billing_count, count(*)::int as count
        from subscriptions where ${among(whose)} and status <> 'canceled' group by 1, 2, 3, 4, 5) g
      join products p on p.id = g.product_id`.execute(ctx.db)
  return rows
}

async function movesOf(ctx: TxContext, whose: Whose, from: Date, to: Date): Promise<Moves> {
  const { rows } = await sql<Moves>`/* named: moves_of_subscriptions */
    select coalesce(sum(s.started), 0)::int as started, coalesce(sum(s.new), 0)::int as new,
        coalesce(sum(s.ended), 0)::int as ended, coalesce(sum(s.gone), 0)::int as gone from (
      select count(*) filter (where started_at < ${to}) as started, count(*) filter (where status <> 'canceled') as new,
          0 as ended, 0 as gone
        from subscriptions where ${among(whose)} and started_at >= ${from} and status is not null
      union all
      select 0, 0, count(*) filter (where ended_at < ${to}), count(*) filter (where started_at < ${from})
        from subscriptions where ${among(whose)} and ended_at >= ${from}) s`.execute(ctx.db)
  return rows[0] ?? { started: 0, ended: 0, new: 0, gone: 0 }
}
