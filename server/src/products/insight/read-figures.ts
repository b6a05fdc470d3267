/** SQL of the figures: what is folded and what is not yet, in one statement, so that each delta is read once. */
import { sql } from "kysely"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { partsOf, toQuarter } from "./zones.ts"

type Figure = Row<"figures">["figure"]

/** The sum of a figure in a period, which is counted from 0. */
export interface Sum {
  period: number
  chain_id: number
  /** Empty for counts of checkouts. */
  token: Address | ""
  figure: Figure
  amount: bigint
  count: number
}

/** Whose figures, and of which network; null: of all. */
export interface Whose {
  merchantId: string
  chainId: number | null
}

const ofNetwork = ({ chainId }: Whose) => sql`(${chainId}::integer is null or chain_id = ${chainId}::integer)`

/** Returns the sums of each period between two of these bounds, in milliseconds; none where nothing happened. */
export async function sumsOf(ctx: TxContext, whose: Whose, bounds: readonly number[]): Promise<Sum[]> {
  const parts = partsOf(bounds).map(({ period, seconds, from, until }) => ({
    period,
    seconds,
    from_at: new Date(from),
    until_at: new Date(until),
  }))
  const quarters = bounds.map(ms => new Date(toQuarter(ms)).toISOString())
  const { rows } = await sql<Sum>`/* named: figures_of_periods */
    select period, chain_id, token, figure, sum(amount) as amount, sum(count)::int as count from (
      select p.period, f.chain_id, f.token, f.figure, f.amount, f.count
        from (${rowsParameter(parts, "period integer, seconds integer, from_at timestamptz, until_at timestamptz")}) p
        cross join lateral (select * from figures where merchant_id = ${whose.merchantId} and seconds = p.seconds
          and at >= p.from_at and at < p.until_at and ${ofNetwork(whose)} offset 0) f
      union all
      select width_bucket(at, ${sqlArray("timestamptz", quarters)}) - 1, chain_id, token, figure, amount, count
        from figure_deltas where merchant_id = ${whose.merchantId} and at >= ${quarters.at(0)}::timestamptz
          and at < ${quarters.at(-1)}::timestamptz and ${ofNetwork(whose)}) both_kinds
    group by 1, 2, 3, 4`.execute(ctx.db)
  return rows
}

/** Returns the sums of all time, as period 0. */
export async function sumsOfAllTime(ctx: TxContext, whose: Whose): Promise<Sum[]> {
  const { rows } = await sql<Sum>`/* named: figures_of_all_time */
    select 0 as period, chain_id, token, figure, sum(amount) as amount, sum(count)::int as count from (
      select chain_id, token, figure, amount, count from figures
        where merchant_id = ${whose.merchantId} and seconds = 0 and ${ofNetwork(whose)}
      union all
      select chain_id, token, figure, amount, count from figure_deltas
        where merchant_id = ${whose.merchantId} and ${ofNetwork(whose)}) both_kinds
    group by 2, 3, 4`.execute(ctx.db)
  return rows
}

/** The figures that are money, as callers see them. */
export const moneyFigures = {
  received: "To your receiving addresses, by the time of the block",
  reversed: "Of what was received: taken back by the chain (a reorg), by the time at which that was noticed",
  returned: "From receiving addresses back to payers",
  refunded: "From your wallet to payers, for payments through escrow",
  shares: "To the recipients of splits",
  swept: "To your payout address",
  recovered: "Taken by the owner of a receiving address, without the service",
  unknown: "Left receiving addresses by a transaction that the service did not send",
  reserved: "Into the escrow",
  captured: "Out of the escrow to you",
  released: "Out of the escrow back to payers: voided, or reclaimed after its time",
} satisfies Partial<Record<Figure, string>>
export type MoneyFigure = keyof typeof moneyFigures
const names = Object.keys(moneyFigures) as MoneyFigure[]

/** What a token's figures are added up to: base units, and how many transfers came in. */
export type Totals = Record<MoneyFigure, bigint> & { chain_id: number; token: Address; transfers: number }

/** Returns the totals of each token of each network among these sums, in the order of networks and tokens. */
export function totalsOf(sums: readonly Sum[]): Totals[] {
  const totals = new Map<string, Totals>()
  for (const { chain_id, token, figure, amount, count } of sums) {
    if (token === "") continue
    const key = `${chain_id} ${token}`
    const of = totals.get(key) ?? { ...nothing, chain_id, token, transfers: 0 }
    totals.set(key, of)
    of[figure as MoneyFigure] += amount
    if (figure === "received") of.transfers += count
  }
  return [...totals].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, of]) => of)
}

const nothing = Object.fromEntries(names.map(name => [name, 0n])) as Record<MoneyFigure, bigint>

/** What payers paid and did not get back. */
const netOf = (of: Totals): bigint => of.received + of.reserved - of.reversed - of.returned - of.released - of.refunded
/** What is at receiving addresses by the books. */
export const inAddresses = (of: Totals): bigint =>
  of.received - of.reversed - of.returned - of.shares - of.swept - of.recovered - of.unknown
/** What is in the escrow by the books. */
export const inEscrow = (of: Totals): bigint => of.reserved - of.captured - of.released

/** Shows totals in the API's form, their token alone, and an amount of it. */
export type ShowTotals = Awaited<ReturnType<typeof totalsFormatter>>

/** Returns what shows totals of these tokens in the API's form. */
export async function totalsFormatter(ctx: TxContext, all: readonly Totals[]) {
  const format = await amountFormatter(ctx, all)
  const token = ({ chain_id, token }: Totals) => {
    const { currency, decimals } = format({ chain_id, token, amount: 0n })
    return { chain: networkOf(ctx.chain, chain_id).name, token: checksummed(token), currency, decimals }
  }
  const money = ({ chain_id, token }: Totals, amount: bigint) => format({ chain_id, token, amount }).amount
  const totals = (of: Totals) => ({
    ...token(of),
    net: money(of, netOf(of)),
    transfers: of.transfers,
    ...(Object.fromEntries(names.map(name => [name, money(of, of[name])])) as Record<MoneyFigure, string>),
  })
  return { token, money, totals }
}
