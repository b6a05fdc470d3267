/**
 * A merchant's reports as CSV: payouts with the payments that they contain, balances, and monthly income. Each amount
 * is also valued in the merchant's currency, at the time of its transfer.
 */
import { type RawBuilder, sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { timeAt } from "../../platform/http/time.ts"
import {
  amountCell,
  byNetwork,
  ifSettlement,
  kindCell,
  type Last,
  linesOf,
  payoutIdCell,
  timeCell,
  unitOf,
} from "../../platform/http/write-csv-lines.ts"
import { rounded } from "../rates/read-values.ts"

/** The period of a report, with its times as received: from ≤ at < to. */
export interface Period {
  from?: string | undefined
  to?: string | undefined
}

const within = ({ from, to }: Period, at: RawBuilder<unknown>): RawBuilder<unknown> =>
  sql.join(
    [
      sql`true`,
      ...(from === undefined ? [] : [sql`${at} >= ${timeAt("from", from)}`]),
      ...(to === undefined ? [] : [sql`${at} < ${timeAt("to", to)}`]),
    ],
    sql` and `,
  )

const unitIn = (ctx: TxContext, row: string) =>
  sql`${ifSettlement(ctx, ({ token }) => unitOf(token.decimals), row)}::numeric`

/**
 * Yields a line for each payment in each payout to the merchant or a split's recipient, newest payout first. A payout's
 * parts add up to its amount, exact to the base unit. A part is valued twice: at the time of its payment and at the
 * time of the payout.
 */
export function payoutsReport(ctx: TxContext, merchantId: string, period: Period): AsyncGenerator<string | Buffer> {
  const value = (rate: string) =>
    sql`${rounded(sql`r.amount * r.unit * ${sql.ref(`r.${rate}`)}`, sql`r.value_currency`)}::text`
  return linesOf(ctx, {
    cells: {
      paidAt: timeCell(sql`r.at`),
      payoutId: payoutIdCell(sql`r.id`),
      type: sql`r.kind`,
      status: sql`r.state`,
      txHash: sql`r.tx_hash`,
      chain: byNetwork(ctx, ({ name }) => name),
      token: sql`r.token`,
      currency: ifSettlement(ctx, ({ token }) => token.symbol),
      recipient: sql`r.recipient`,
      payoutAmount: amountCell(sql`r.whole`),
      amount: amountCell(sql`r.amount`),
      paymentId: sql`r.payment_id`,
      receivedAt: timeCell(sql`r.received_at`),
      receivedTxHash: sql`r.received_hash`,
      payer: sql`r.payer`,
      paywallId: kindCell("pw", sql`r.resource_id`),
      sessionId: kindCell("cs", sql`r.resource_id`),
      valueCurrency: sql`case when coalesce(r.rate_then, r.rate_paid) is not null then r.value_currency end`,
      valueReceived: value("rate_then"),
      valuePaid: value("rate_paid"),
      rateReceived: sql`r.rate_then::text`,
      ratePaid: sql`r.rate_paid::text`,
    },
    key: ["at", "id", "part"],
    rows: (last, limit) => {
      const parts = payoutParts(merchantId, period, last, limit)
      const symbol = ifSettlement(ctx, ({ token }) => token.symbol, "p")
      return sql`(select p.*, ${unitIn(ctx, "p")} as unit, m.currency as value_currency, t.rate as rate_then, o.rate as rate_paid
        from ${parts} p join merchants m on m.id = ${merchantId}
          left join lateral rate_at(${symbol}, m.currency, p.received_at) t on true
          left join lateral rate_at(${symbol}, m.currency, p.at) o on true)`
    },
  })
}

/**
 * SQL: at most `limit` parts of payouts. A sweep's parts are the transfers that it takes. A share has one part, for its
 * payment, and a capture has one part, for its checkout.
 */
function payoutParts(
  merchantId: string,
  period: Period,
  last: Last<"at" | "id" | "part"> | undefined,
  limit: number,
): RawBuilder<unknown> {
  const begin = last ? sql`(i.mined_at, i.id::text) <= (${last.at}::timestamptz, ${last.id})` : sql`true`
  const after = last
    ? sql`(i.mined_at, i.id::text, s.part) < (${last.at}::timestamptz, ${last.id}, ${last.part})`
    : sql`true`
  return sql`(select i.mined_at as at, i.id::text as id, s.part, i.kind, i.state, i.tx_hash, i.chain_id, i.token, i.recipient,
      i.amount as whole, s.amount, s.payment_id, s.received_at, s.received_hash, s.payer, s.resource_id
    from payouts i cross join lateral (
      select lpad(w.transfer_id::text, 20, '0') as part, w.amount, c.payment_id, t.block_time as received_at,
          t.tx_hash as received_hash, t.from_address as payer, d.resource_id
        from sweep_parts w join transfers t on t.id = w.transfer_id join deposits d on d.id = t.deposit_id
          left join claims c on c.transfer_id = w.transfer_id
        where i.kind = 'sweep' and w.payout_id = i.id
      union all
      select '', i.amount, i.payment_id, first.block_time, p.tx_hash, p.payer, p.resource_id
        from payments p left join lateral (select t.block_time from claims c join transfers t on t.id = c.transfer_id
          where c.payment_id = p.id order by t.block_time limit 1) first on true
        where i.kind = 'share' and p.id = i.payment_id
      union all
      select '', i.amount, null, e.authorized_at, null, e.payer, e.session_id
        from escrows e where i.kind = 'capture' and e.session_id = i.escrow_id
    ) s
    where i.merchant_id = ${merchantId} and i.mined_at is not null and i.kind in ('sweep', 'share', 'capture')
      and i.state in ('mined', 'final') and i.succeeded and ${within(period, sql`i.mined_at`)} and ${begin} and ${after}
    order by i.mined_at desc, i.id::text desc, s.part desc limit ${limit})`
}

/**
 * Yields lines for each network and token: the opening balance, what came in and went out by reason, and the closing
 * balance. The opening and closing balances differ by exactly the sum of the lines between them.
 */
export function balanceReport(ctx: TxContext, merchantId: string, period: Period): AsyncGenerator<string | Buffer> {
  const start = period.from === undefined ? sql`false` : sql`at < ${timeAt("from", period.from)}`
  const end = period.to === undefined ? sql`true` : sql`at < ${timeAt("to", period.to)}`
  const signed = sql`case direction when 'in' then amount when 'out' then -amount else 0 end`
  const rows = sql`(
    with moved as (
      select chain_id, token, direction, amount, at, coalesce(reason,
        case when exists (select from claims c where c.transfer_id = b.transfer_id) then 'payment' else 'unclaimed' end) as reason,
        ${signed} as signed
      from books b where merchant_id = ${merchantId} and ${end})
    select chain_id, token, 3 as place, 'opening' as line, null as direction, null::bigint as n, sum(signed) filter (where ${start}) as amount
      from moved group by 1, 2
    union all
    select chain_id, token, 2, reason, direction, count(*), sum(amount) from moved where not (${start}) group by 1, 2, reason, direction
    union all
    select chain_id, token, 1, 'closing', null, null, sum(signed) from moved group by 1, 2)`
  return whole(ctx, {
    cells: {
      chain: byNetwork(ctx, ({ name }) => name),
      token: sql`r.token`,
      currency: ifSettlement(ctx, ({ token }) => token.symbol),
      line: sql`r.line`,
      direction: sql`r.direction`,
      transfers: sql`r.n::text`,
      amount: amountCell(sql`coalesce(r.amount, 0)`),
    },
    rows: sql`(select p.*, ${unitIn(ctx, "p")} as unit,
      concat_ws(' ', lpad(p.chain_id::text, 12, '0'), p.token, p.place, p.line, p.direction) as place_of from ${rows} p)`,
  })
}

/**
 * Yields a line for each month in a time zone, network and token: received payments, returns to payers, and the
 * difference. Values are sums over the individual transfers. `unvalued` counts transfers with an unknown rate, which
 * are in the amounts but not in the values.
 */
export function taxReport(
  ctx: TxContext,
  merchantId: string,
  { tz, ...period }: Period & { tz: string },
): AsyncGenerator<string | Buffer> {
  const symbol = ifSettlement(ctx, ({ token }) => token.symbol, "b")
  const of = (kind: string, column: string) =>
    sql`coalesce(sum(${sql.ref(column)}) filter (where kind = ${sql.lit(kind)}), 0)`
  const net = (column: string) => sql`${of("received", column)} - ${of("returned", column)} - ${of("refunded", column)}`
  const rows = sql`(
    with moved as (
      select b.chain_id, b.token, b.amount, to_char(b.at at time zone ${tz}, 'YYYY-MM') as month, ${unitIn(ctx, "b")} as unit,
        case when b.reason is null or b.reason = 'capture' then 'received'
          when b.reason = 'refund' then 'refunded' else 'returned' end as kind,
        m.currency as value_currency, ${rounded(sql`b.amount * ${unitIn(ctx, "b")} * v.rate`, sql`m.currency`)} as value
      from books b join merchants m on m.id = ${merchantId}
        left join lateral rate_at(${symbol}, m.currency, b.at) v on true
      where b.merchant_id = ${merchantId} and ${within(period, sql`b.at`)}
        and (b.reason in ('capture', 'refund', 'return', 'given_back')
          or b.reason is null and exists (select from claims c where c.transfer_id = b.transfer_id)))
    select month, chain_id, token, unit, value_currency, ${of("received", "amount")} as received, ${of("returned", "amount")} as returned,
      ${of("refunded", "amount")} as refunded, ${net("amount")} as net, ${of("received", "value")} as value_received,
      ${of("returned", "value")} as value_returned, ${of("refunded", "value")} as value_refunded, ${net("value")} as value_net,
      count(value) as valued, count(*) filter (where value is null) as unvalued
    from moved group by month, chain_id, token, unit, value_currency)`
  const value = (name: string) =>
    sql`case when r.valued > 0 then ${rounded(sql.ref(`r.value_${name}`) as never, sql`r.value_currency`)}::text end`
  return whole(ctx, {
    cells: {
      month: sql`r.month`,
      chain: byNetwork(ctx, ({ name }) => name),
      token: sql`r.token`,
      currency: ifSettlement(ctx, ({ token }) => token.symbol),
      received: amountCell(sql`r.received`),
      returned: amountCell(sql`r.returned`),
      refunded: amountCell(sql`r.refunded`),
      net: amountCell(sql`r.net`),
      valueCurrency: sql`r.value_currency`,
      valueReceived: value("received"),
      valueReturned: value("returned"),
      valueRefunded: value("refunded"),
      valueNet: value("net"),
      unvalued: sql`r.unvalued::text`,
    },
    rows: sql`(select p.*, concat_ws(' ', p.month, lpad(p.chain_id::text, 12, '0'), p.token) as place_of from ${rows} p)`,
  })
}

/** There are few months, networks and tokens, so one statement makes all lines, ordered by `place_of`. */
function whole(
  ctx: TxContext,
  { cells, rows }: { cells: Record<string, RawBuilder<unknown>>; rows: RawBuilder<unknown> },
): AsyncGenerator<string | Buffer> {
  return linesOf(ctx, {
    cells,
    key: ["place_of"],
    rows: last => (last ? sql`(select * from ${rows} q where false)` : rows),
  })
}
