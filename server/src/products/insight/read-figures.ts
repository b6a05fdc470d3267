/** The SQL that reads figures: folded and unfolded deltas in one statement, so that each delta is read once. */
import { sql } from "kysely"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { type CountName, columns, columnsOfDelta, type MoneyFigure, moneyNames, sumsToRead } from "./figure-columns.ts"
import { partsOf, toQuarter } from "./zones.ts"

/** The sums of a token in a period; periods are numbered from 0. */
export interface Sum extends Record<MoneyFigure, bigint>, Record<CountName, number> {
  period: number
  chain_id: number
  /** Empty for counts of checkouts, which have no token. */
  token: Address | ""
}

/** Whose figures are read: the merchant and the network; null stands for all. */
export interface Whose {
  merchantId: string
  chainId: number | null
}

const ofNetwork = ({ chainId }: Whose) => sql`(${chainId}::integer is null or chain_id = ${chainId}::integer)`

/** Returns the sums of each period between the bounds, which are in milliseconds. Empty periods are left out. */
export async function sumsOf(ctx: TxContext, whose: Whose, bounds: readonly number[]): Promise<Sum[]> {
  const parts = partsOf(bounds).map(({ period, seconds, from, until }) => ({
    period,
    seconds,
    from_at: new Date(from),
    until_at: new Date(until),
  }))
  const quarters = bounds.map(ms => new Date(toQuarter(ms)).toISOString())
  const { rows } = await sql<Sum>`/* named: figures_of_periods */
    select period, chain_id, token, ${sumsToRead} from (
      select p.period, chain_id, token, ${columns}
        from (${rowsParameter(parts, "period integer, seconds integer, from_at timestamptz, until_at timestamptz")}) p
        cross join lateral (select * from figures where merchant_id = ${whose.merchantId} and seconds = p.seconds
          and at >= p.from_at and at < p.until_at and ${ofNetwork(whose)} offset 0) f
      union all
      select period, chain_id, token, ${columnsOfDelta} from (
        select width_bucket(at, ${sqlArray("timestamptz", quarters)}) - 1 as period, chain_id, token, figure,
          sum(amount) as amount, sum(count) as count
        from figure_deltas where merchant_id = ${whose.merchantId} and at >= ${quarters.at(0)}::timestamptz
          and at < ${quarters.at(-1)}::timestamptz and ${ofNetwork(whose)} group by 1, 2, 3, 4) d) both_kinds
    group by 1, 2, 3`.execute(ctx.db)
  return rows
}

/** Returns the sums of all time, as period 0. */
export async function sumsOfAllTime(ctx: TxContext, whose: Whose): Promise<Sum[]> {
  const { rows } = await sql<Sum>`/* named: figures_of_all_time */
    select 0 as period, chain_id, token, ${sumsToRead} from (
      select chain_id, token, ${columns} from figures
        where merchant_id = ${whose.merchantId} and seconds = 0 and ${ofNetwork(whose)}
      union all
      select chain_id, token, ${columnsOfDelta} from (
        select chain_id, token, figure, sum(amount) as amount, sum(count) as count from figure_deltas
        where merchant_id = ${whose.merchantId} and ${ofNetwork(whose)} group by 1, 2, 3) d) both_kinds
    group by 2, 3`.execute(ctx.db)
  return rows
}

/** A token's totals in base units, and the number of incoming transfers. */
export type Totals = Record<MoneyFigure, bigint> & { chain_id: number; token: Address; transfers: number }

/** Returns each token's totals among these sums, ordered by network and token. */
export function totalsOf(sums: readonly Sum[]): Totals[] {
  const totals = new Map<string, Totals>()
  for (const sum of sums) {
    const { chain_id, token } = sum
    if (token === "") continue
    const key = `${chain_id} ${token}`
    const of = totals.get(key) ?? { ...nothing, chain_id, token, transfers: 0 }
    totals.set(key, of)
    for (const name of moneyNames) of[name] += sum[name]
    of.transfers += sum.transfers
  }
  return [...totals].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, of]) => of)
}

const nothing = Object.fromEntries(moneyNames.map(name => [name, 0n])) as Record<MoneyFigure, bigint>

/** What payers paid and did not get back. */
const netOf = (of: Totals): bigint => of.received + of.reserved - of.reversed - of.returned - of.released - of.refunded
/** The amount at receiving addresses, according to the books. */
export const inAddresses = (of: Totals): bigint =>
  of.received - of.reversed - of.returned - of.shares - of.swept - of.recovered - of.unknown
/** The amount in the escrow, according to the books. */
export const inEscrow = (of: Totals): bigint => of.reserved - of.captured - of.released

/** Formats totals for the API, their token alone, or an amount in that token. */
export type ShowTotals = Awaited<ReturnType<typeof totalsFormatter>>

/** Returns the formatter for totals of these tokens. */
export async function totalsFormatter(ctx: TxContext, all: readonly Totals[]) {
  const format = await amountFormatter(ctx, all)
  const keyOf = ({ chain_id, token }: Totals) => `${chain_id} ${token}`
  // Formatted once per token, because a year of days has thousands of amounts, most of them zero.
  const tokens = new Map(
    all.map(of => {
      const { chain_id, token } = of
      const { amount: zero, currency, decimals } = format({ chain_id, token, amount: 0n })
      const shown = { chain: networkOf(ctx.chain, chain_id).name, token: checksummed(token), currency, decimals }
      const text = (amount: bigint) => (decimals === null ? `${amount}` : formatAmount(amount, decimals))
      return [keyOf(of), { shown, money: (amount: bigint) => (amount === 0n ? zero : text(amount)) }]
    }),
  )
  const tokenOf = (of: Totals) => {
    const token = tokens.get(keyOf(of))
    if (!token) throw new Error(`totals of ${keyOf(of)} are shown, which the formatter was not made for`)
    return token
  }
  const totals = (of: Totals) => {
    const { shown, money } = tokenOf(of)
    const amounts = Object.fromEntries(moneyNames.map(name => [name, money(of[name])])) as Record<MoneyFigure, string>
    return { ...shown, net: money(netOf(of)), transfers: of.transfers, ...amounts }
  }
  return { tokenOf, totals }
}
