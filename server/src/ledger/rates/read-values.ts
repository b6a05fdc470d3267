/** Values amounts in a merchant's own currency, each at the time of its row. */
import { type RawBuilder, sql } from "kysely"
import { Type } from "typebox"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { ifSettlement, timeCell } from "../../platform/http/write-csv-lines.ts"
import { minorDigits } from "./currencies.ts"

/** A value as lists show it. */
export const Value = Type.Object(
  {
    currency: Type.String({
      examples: ["EUR"],
      description: "The merchant's own currency (ISO 4217), as set in its settings",
    }),
    amount: Type.String({
      examples: ["18.37"],
      description: "Rounded to the currency's own digits, half away from zero",
    }),
    rate: Type.String({ examples: ["0.92592593"], description: "The value of one token" }),
    source: Type.String({
      examples: ["ecb; USDC at par"],
      description: "The source of the rates, and how the token is valued",
    }),
    rateAt: Nullable(Timestamp),
  },
  {
    description: "The amount's value in the merchant's own currency, at the last rate published before its time",
  },
)

/** A row whose amount has a value; `at` is the time of the rate. */
interface Valued {
  merchant_id: string
  chain_id: number
  token: string
  amount: bigint
  at: Date
}

/**
 * A merchant's currency. With `isAtPar`, a token is worth exactly a dollar in this currency, so no rate is looked up.
 */
export interface Valuation {
  currency: string
  isAtPar: boolean
}

const PAR_RATE = "1.00000000"
/** The token that is worth a dollar by design; `rate_at` names the same token. */
const PAR_TOKEN = "USDC"
const PAR_SOURCE = `${PAR_TOKEN} at par`

/** Reads how to value a merchant's money. */
export async function valuationOf(ctx: TxContext, merchantId: string): Promise<Valuation> {
  const { rows } = await sql<Valuation>`
    select currency, currency = 'USD' and not exists (select from rates where unit = ${PAR_TOKEN}) as "isAtPar"
    from merchants where id = ${merchantId}`.execute(ctx.db)
  return rows[0] ?? { currency: "USD", isAtPar: true }
}

/**
 * Returns the value of each of one merchant's rows, in order. A value is null if the token is not the network's own, or
 * its rate is not known yet. A value is also null if no rate was published in the five days before.
 */
export async function valuesOf(ctx: TxContext, rows: readonly Valued[]) {
  const [first] = rows
  if (!first) return []
  const tokens = rows.map(row => {
    const { token } = networkOf(ctx.chain, row.chain_id)
    return row.token === token.address ? token : undefined
  })
  const { currency, isAtPar } = await valuationOf(ctx, first.merchant_id)
  if (isAtPar)
    return rows.map(({ amount }, i) =>
      tokens[i]?.symbol === PAR_TOKEN
        ? { currency, amount: inCents(amount, tokens[i].decimals), rate: PAR_RATE, source: PAR_SOURCE, rateAt: null }
        : null,
    )
  const { rows: values } = await sql<{
    rate: string | null
    source: string
    published_at: Date | null
    amount: string
  }>`
    select v.rate::text, v.source, v.published_at, ${rounded(sql`g.amount::numeric * v.rate`, sql`${currency}::text`)}::text as amount
    from unnest(${sqlArray(
      "text",
      tokens.map(each => each?.symbol ?? ""),
    )}, ${sqlArray(
      "text",
      rows.map(({ amount }, i) => `${amount}e-${tokens[i]?.decimals ?? 0}`),
    )}, ${sqlArray(
      "timestamptz",
      rows.map(({ at }) => at.toISOString()),
    )}) with ordinality as g (symbol, amount, at, n)
      left join lateral rate_at(g.symbol, ${currency}, g.at) v on g.symbol <> ''
    order by g.n`.execute(ctx.db)
  return values.map(({ rate, source, published_at, amount }) =>
    rate === null ? null : { currency, amount, rate, source, rateAt: published_at?.toISOString() ?? null },
  )
}

/** Formats an amount of a token worth a dollar as dollars and cents, rounded half up. */
function inCents(amount: bigint, decimals: number): string {
  const unit = 10n ** BigInt(decimals)
  const cents = (2n * amount * 100n + unit) / (2n * unit)
  return `${cents / 100n}.${`${cents % 100n}`.padStart(2, "0")}`
}

/** SQL: a value rounded to its currency's digits, half away from zero. */
export const rounded = (value: RawBuilder<unknown>, currency: RawBuilder<unknown>): RawBuilder<unknown> =>
  sql`round(${value}, case ${sql.join(
    Object.entries(minorDigits).map(([name, n]) => sql`when ${currency} = ${name} then ${sql.lit(n)}`),
    sql` `,
  )} else 2 end)`

/** The names of the value columns in a file. */
const valueColumns = ["value", "valueCurrency", "rate", "rateSource", "rateAt"] as const

/**
 * Returns a file's cells for the value of `r.amount`; {@link withRates} gives `r` its rate. If the rate is unknown, the
 * cells are empty, never 0.00.
 */
export function valueCells(): Record<(typeof valueColumns)[number], RawBuilder<unknown>> {
  return {
    value: sql`${rounded(sql`r.amount * r.unit * r.rate`, sql`r.value_currency`)}::text`,
    valueCurrency: sql`case when r.rate is not null then r.value_currency end`,
    rate: sql`r.rate::text`,
    rateSource: sql`r.rate_source`,
    rateAt: timeCell(sql`r.rate_at`),
  }
}

/**
 * SQL: the rows of `part` with the columns that {@link valueCells} reads. The rows must have `at`, `chain_id` and
 * `token`.
 */
export function withRates(
  ctx: Pick<TxContext, "chain">,
  { currency, isAtPar }: Valuation,
  part: RawBuilder<unknown>,
): RawBuilder<unknown> {
  const symbol = ifSettlement(ctx, ({ token }) => token.symbol, "p")
  const rate = isAtPar
    ? sql`(select ${PAR_RATE}::numeric as rate, ${PAR_SOURCE}::text as source, null::timestamptz as published_at where ${symbol} = ${PAR_TOKEN})`
    : sql`rate_at(${symbol}, ${currency}, p.at)`
  return sql`(select p.*, ${currency}::text as value_currency, v.rate, v.source as rate_source, v.published_at as rate_at
    from ${part} p left join lateral ${rate} v on true)`
}
