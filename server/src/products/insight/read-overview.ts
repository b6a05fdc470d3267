/** The figures of a period and of the one before it, and what needs the merchant's attention now. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { attentionOf, checklistOf } from "./find-attention.ts"
import {
  inAddresses,
  inEscrow,
  type ShowTotals,
  type Sum,
  sumsOf,
  sumsOfAllTime,
  type Totals,
  totalsFormatter,
  totalsOf,
  type Whose,
} from "./read-figures.ts"
import { subscriptionNumbers } from "./sum-subscriptions.ts"
import { type Interval, periodsBefore } from "./zones.ts"

/** How many checkouts the median is computed from at most: the newest ones. */
const SAMPLE = 1_000

/** The requested figures: the bounds of the periods in milliseconds, from `periodsOf`. */
export interface Asked extends Whose {
  bounds: readonly number[]
  interval: Interval
  tz: string
}

/**
 * Returns the overview of these periods. Its statements run one after the other, because an answer must not take most
 * of a process's connections.
 */
export async function overviewOf(ctx: TxContext, asked: Asked) {
  const { bounds, interval, tz, merchantId } = asked
  const [first = 0, last = 0] = [bounds[0], bounds.at(-1)]
  const before = periodsBefore(first, bounds.length - 1, interval, tz)
  const begin = new Date(before)
  const from = new Date(first)
  const to = new Date(last)
  // Period 0 is the whole comparison period before the requested ones.
  const sums = await sumsOf(ctx, asked, [before, ...bounds])
  const everything = totalsOf(await sumsOfAllTime(ctx, asked))
  const show = await totalsFormatter(ctx, [...everything, ...totalsOf(sums)])
  const periods = Map.groupBy(sums, ({ period }) => period)
  const shown = sums.filter(({ period }) => period > 0)
  const earlier = periods.get(0) ?? []
  const waiting = await waitingOf(ctx, merchantId)
  const hasPayment = everything.some(({ received, reserved }) => received > 0n || reserved > 0n)
  return {
    from: from.toISOString(),
    to: to.toISOString(),
    interval,
    tz,
    series: bounds.slice(0, -1).map((at, i) => {
      const of = periods.get(i + 1) ?? []
      const { checkouts, paid } = countsOf(of)
      return { at: new Date(at).toISOString(), checkouts, paid, figures: totalsOf(of).map(show.totals) }
    }),
    totals: totalsOf(shown).map(show.totals),
    funnel: { ...funnelOf(shown), medianSecondsToPaid: await medianSecondsToPaid(ctx, asked, from, to) },
    previous: {
      from: begin.toISOString(),
      to: from.toISOString(),
      totals: totalsOf(earlier).map(show.totals),
      funnel: { ...funnelOf(earlier), medianSecondsToPaid: await medianSecondsToPaid(ctx, asked, begin, from) },
    },
    balances: everything.map(of => balanceOf(of, show, waiting)),
    attention: await attentionOf(ctx, merchantId),
    subscriptions: await subscriptionNumbers(ctx, asked, from, to),
    checklist: hasPayment ? [] : await checklistOf(ctx, merchantId),
  }
}

/** Returns a merchant's balances according to the books, by network and token. */
export async function balancesOf(ctx: TxContext, merchantId: string) {
  const totals = totalsOf(await sumsOfAllTime(ctx, { merchantId, chainId: null }))
  const show = await totalsFormatter(ctx, totals)
  const waiting = await waitingOf(ctx, merchantId)
  return totals.map(of => balanceOf(of, show, waiting))
}

function balanceOf(of: Totals, { tokenOf }: ShowTotals, waiting: ReadonlyMap<string, bigint>) {
  const { shown, money } = tokenOf(of)
  const addresses = inAddresses(of)
  const escrow = inEscrow(of)
  return {
    ...shown,
    amount: money(addresses + escrow),
    inAddresses: money(addresses),
    // After a recovery by the address's owner, a payment still waits whose money is gone.
    waiting: money(lesser(waiting.get(keyOf(of)) ?? 0n, addresses > 0n ? addresses : 0n)),
    inEscrow: money(escrow),
  }
}

const lesser = (a: bigint, b: bigint): bigint => (a < b ? a : b)
const keyOf = ({ chain_id, token }: { chain_id: number; token: string }) => `${chain_id} ${token}`

/** Sums the open payments and surpluses, by network and token. */
async function waitingOf({ db }: TxContext, merchantId: string): Promise<Map<string, bigint>> {
  const { rows } = await sql<{ chain_id: number; token: string; amount: bigint }>`/* named: waiting_amounts */
    select chain_id, token, sum(amount)::numeric(78,0) as amount from (
      select chain_id, token, amount from payments where merchant_id = ${merchantId} and status = 'open'
      union all
      select p.chain_id, s.token, s.amount
        from (select id, chain_id from payments
          where merchant_id = ${merchantId} and exception = 'overpaid' and status = 'granted' offset 0) p
        cross join lateral (select token, amount from surpluses where payment_id = p.id and state = 'open' offset 0) s) w
    group by chain_id, token`.execute(db)
  return new Map(rows.map(row => [keyOf(row), row.amount]))
}

/** How many checkouts these sums count. */
function countsOf(sums: readonly Sum[]): Record<"checkouts" | "paid" | "converted", number> {
  const of = { checkouts: 0, paid: 0, converted: 0 }
  for (const sum of sums) for (const name of ["checkouts", "paid", "converted"] as const) of[name] += sum[name]
  return of
}

function funnelOf(sums: readonly Sum[]) {
  const { checkouts, paid, converted } = countsOf(sums)
  return { checkouts, converted, successRate: checkouts > 0 ? converted / checkouts : null, paid }
}

/**
 * The median time from creation to payment, in seconds, of the newest checkouts paid in this period; null if there
 * are none.
 */
async function medianSecondsToPaid(ctx: TxContext, { merchantId, chainId }: Whose, from: Date, to: Date) {
  const { rows } = await sql<{ median: number | null }>`/* named: median_to_paid */
    select percentile_disc(0.5) within group (order by extract(epoch from confirmed_at - created_at)::int) as median
    from (select confirmed_at, created_at from checkout_sessions
      where merchant_id = ${merchantId} and confirmed_at >= ${from} and confirmed_at < ${to} and not agent
        and (${chainId}::integer is null or chain_id = ${chainId}::integer)
      order by confirmed_at desc limit ${SAMPLE}) newest`.execute(ctx.db)
  return rows[0]?.median ?? null
}
