/**
 * The merchant's books: every transfer into and out of the merchant's deposits, each with its reason, as pages and CSV.
 */
import { type RawBuilder, sql } from "kysely"
import { type Address, checksummed, parseAddress, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { ListSource } from "../../platform/http/send-lists.ts"
import { timeAt } from "../../platform/http/time.ts"
import {
  amountCell,
  byNetwork,
  ifSettlement,
  kindCell,
  linesOf,
  payoutIdCell,
  timeCell,
  unitOf,
} from "../../platform/http/write-csv-lines.ts"
import { ifKind, payoutIdOf } from "../../platform/ids.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { valuationOf, valueCells, valuesOf, withRates } from "../rates/read-values.ts"

/** The list's filter, with its values as received. */
export interface BookFilter {
  from?: string | undefined
  to?: string | undefined
  deposit?: string | undefined
  paywallId?: string | undefined
  sessionId?: string | undefined
}

type Entry = Row<"books"> & {
  balance: bigint | null
  /** The receiving address, or the address of the escrow contract. */
  deposit: Address
  resource_id: string
  /** For an escrow: the wallet that receives captures and pays refunds. */
  receiver: Address | null
  claimed_by: string | null
  payment_status: Row<"payments">["status"] | null
  exception: Row<"payments">["exception"]
}

/**
 * A filter with its deposits or escrows resolved, so that one index is enough. If `deposits` and `escrows` are both
 * null, the filter matches all of them.
 */
interface Found extends Pick<BookFilter, "from" | "to"> {
  merchantId: string
  deposits: bigint[] | null
  escrows: string[] | null
  /**
   * Whether the list is for one address. Only such a list includes the balance. Otherwise each request would sum all of
   * a merchant's deposits.
   */
  withBalance: boolean
}

async function find(ctx: TxContext, merchantId: string, filter: BookFilter): Promise<Found> {
  const { deposit, paywallId, sessionId, from, to } = filter
  const withBalance = deposit !== undefined
  const found = { from, to, merchantId, withBalance, deposits: null, escrows: null }
  if (deposit === undefined && paywallId === undefined && sessionId === undefined) return found
  const address = deposit === undefined ? undefined : (parseAddress(deposit) ?? ZERO_ADDRESS)
  let query = ctx.db.selectFrom("deposits").select("id").where("merchant_id", "=", merchantId)
  if (address !== undefined) query = query.where("address", "=", address)
  if (paywallId !== undefined) query = query.where("resource_id", "=", paywallId)
  if (sessionId !== undefined) query = query.where("resource_id", "=", sessionId)
  const deposits = await query.execute()
  if (deposits.length > 0 || paywallId !== undefined) return { ...found, deposits: deposits.map(({ id }) => id) }
  let held = ctx.db.selectFrom("escrows").select("session_id as id").where("merchant_id", "=", merchantId)
  if (address !== undefined) held = held.where("escrow", "=", address)
  if (sessionId !== undefined) held = held.where("session_id", "=", sessionId)
  return { ...found, escrows: (await held.execute()).map(({ id }) => id) }
}

/** SQL: the books' rows that match. `from` and `to` are instants: from ≤ at < to. */
function passing({ merchantId, deposits, escrows, withBalance, from, to }: Found): RawBuilder<unknown> {
  const balance = withBalance
    ? sql`sum(case direction when 'in' then amount when 'out' then -amount else 0 end) over (partition by deposit_id, token order by at, id)`
    : sql`null::numeric`
  const where = [
    sql`merchant_id = ${merchantId}`,
    ...(deposits ? [sql`deposit_id = any(${sqlArray("bigint", deposits)})`] : []),
    ...(escrows ? [sql`escrow_id = any(${sqlArray("text", escrows)})`] : []),
  ]
  const times = [
    ...(from !== undefined ? [sql`at >= ${timeAt("from", from)}`] : []),
    ...(to !== undefined ? [sql`at < ${timeAt("to", to)}`] : []),
  ]
  return sql`(select * from (select books.*, ${balance} as balance from books where ${sql.join(where, sql` and `)}) listed
    where ${sql.join([sql`true`, ...times], sql` and `)})`
}

/** Returns the rows that match the filter, newest first. */
export async function booksOf(ctx: TxContext, merchantId: string, filter: BookFilter): Promise<ListSource<Entry>> {
  const rows = passing(await find(ctx, merchantId, filter))
  return {
    key: { at: "at", id: "id", isNumber: false },
    all: sql`select 1 from ${rows} b`,
    read: async (last, limit, offset) => {
      const { rows: found } =
        await sql<Entry>`${page(after(rows, last), sql`limit ${limit} offset ${offset}`)}`.execute(ctx.db)
      return found
    },
  }
}

const after = (rows: RawBuilder<unknown>, last: { at: Date | string; id: string } | undefined): RawBuilder<unknown> =>
  last ? sql`(select * from ${rows} f where (at, id) < (${last.at}::timestamptz, ${last.id}))` : rows

/**
 * SQL: a part of these rows, newest first, each with its related rows. Lateral joins with `limit 1` look up each
 * related row by index. Without the limit, Postgres joins a part of 10,000 rows with whole tables.
 */
const page = (rows: RawBuilder<unknown>, part: RawBuilder<unknown>): RawBuilder<unknown> => sql`
    select b.*, coalesce(d.address, e.escrow) as deposit, coalesce(d.resource_id, b.escrow_id) as resource_id,
      e.receiver, c.payment_id as claimed_by, p.status as payment_status, p.exception
    from (select * from ${rows} r order by at desc, id desc ${part}) b
      left join lateral (select address, resource_id from deposits where id = b.deposit_id limit 1) d on true
      left join lateral (select escrow, receiver from escrows where session_id = b.escrow_id limit 1) e on true
      left join lateral (select payment_id from claims where transfer_id = b.transfer_id limit 1) c on true
      left join lateral (select status, exception from payments where id = coalesce(b.payment_id, c.payment_id) limit 1) p on true
    order by b.at desc, b.id desc`

/** Returns rows of the books in the API's form. */
export async function entriesOf(ctx: TxContext, rows: readonly Entry[]) {
  const values = await valuesOf(ctx, rows)
  return rows.map((row, i) => ({ ...entryOf(ctx, row), value: values[i] ?? null }))
}

function entryOf(ctx: TxContext, row: Entry) {
  const { name: chain, token } = networkOf(ctx.chain, row.chain_id)
  const isSettlement = row.token === token.address
  const text = (amount: bigint) =>
    isSettlement
      ? `${amount < 0n ? "-" : ""}${formatAmount(amount < 0n ? -amount : amount, token.decimals)}`
      : `${amount}`
  const paymentId = row.payment_id ?? row.claimed_by
  return {
    at: row.at.toISOString(),
    direction: row.direction,
    reason: row.reason ?? (paymentId === null ? ("unclaimed" as const) : ("payment" as const)),
    paymentStatus: row.payment_status,
    exception: row.exception,
    amountIn: row.direction === "out" ? null : text(row.amount),
    amountOut: row.direction === "in" ? null : text(row.amount),
    balance: row.balance === null ? null : text(row.balance),
    currency: isSettlement ? token.symbol : null,
    token: checksummed(row.token),
    chain,
    deposit: checksummed(row.deposit),
    // The wallet that received the payment pays the refund.
    from: checksummed((row.direction === "through" ? row.receiver : row.sender) ?? row.deposit),
    to: checksummed(row.recipient),
    txHash: row.tx_hash,
    blockNumber: row.block_number?.toString() ?? null,
    status: row.state,
    paymentId,
    payoutId: row.payout_id && payoutIdOf(row.payout_id),
    paywallId: ifKind("pw", row.resource_id),
    sessionId: ifKind("cs", row.resource_id),
    id: row.id,
  }
}

/** Returns all rows that match the filter as CSV, newest first, with the fields that {@link entriesOf} shows. */
export async function* booksCsv(
  ctx: TxContext,
  merchantId: string,
  filter: BookFilter,
): AsyncGenerator<string | Buffer> {
  const rows = passing(await find(ctx, merchantId, filter))
  const valuation = await valuationOf(ctx, merchantId)
  const unit = ifSettlement(ctx, ({ token }) => unitOf(token.decimals), "p")
  const paymentId = sql`coalesce(r.payment_id, r.claimed_by)`
  yield* linesOf(ctx, {
    cells: {
      at: timeCell(sql`r.at`),
      direction: sql`r.direction`,
      reason: sql`coalesce(r.reason, case when ${paymentId} is null then 'unclaimed' else 'payment' end)`,
      paymentStatus: sql`r.payment_status`,
      exception: sql`r.exception`,
      amountIn: sql`case when r.direction <> 'out' then ${amountCell(sql`r.amount`)} end`,
      amountOut: sql`case when r.direction <> 'in' then ${amountCell(sql`r.amount`)} end`,
      balance: amountCell(sql`r.balance`),
      currency: ifSettlement(ctx, ({ token }) => token.symbol),
      token: sql`r.token`,
      chain: byNetwork(ctx, ({ name }) => name),
      deposit: sql`r.deposit`,
      // The wallet that received the payment pays the refund.
      from: sql`coalesce(case when r.direction = 'through' then r.receiver else r.sender end, r.deposit)`,
      to: sql`r.recipient`,
      txHash: sql`r.tx_hash`,
      blockNumber: sql`r.block_number::text`,
      status: sql`r.state`,
      paymentId,
      payoutId: payoutIdCell(sql`r.payout_id`),
      paywallId: kindCell("pw", sql`r.resource_id`),
      sessionId: kindCell("cs", sql`r.resource_id`),
      id: sql`r.id`,
      // New columns come last, because programs that read the file may count columns.
      ...valueCells(),
    },
    key: ["at", "id"],
    rows: (last, limit) =>
      withRates(
        ctx,
        valuation,
        sql`(select p.*, ${unit}::numeric as unit from (${page(after(rows, last), sql`limit ${limit}`)}) p)`,
      ),
  })
}
