/** Lists all of a merchant's money, with filters: in pages, or complete as CSV. */
import { type RawBuilder, sql } from "kysely"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed, parseAddress, parseHash } from "../../platform/chain/hex.ts"
import { type NetworkInfo, networkAsked, networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { WaitingFor } from "../../platform/db/columns.ts"
import type { Row } from "../../platform/db/schema.ts"
import { timeAt } from "../../platform/http/time.ts"
import {
  amountCell,
  byNetwork,
  continued,
  kindCell,
  linesOf,
  payoutIdCell,
  timeCell,
  unitOf,
} from "../../platform/http/write-csv-lines.ts"
import { ifKind, payoutIdOf, rowIdOf } from "../../platform/ids.ts"
import { valuationOf, valueCells, valuesOf, withRates } from "../rates/read-values.ts"
import { amountsAsked, hasAmount, type SettlementAmount } from "./amount-filter.ts"
import { namesOfThings } from "./read-names.ts"

/** The list's filter, with its values as received. */
export interface Filter {
  type?: Row<"transactions">["type"] | undefined
  status?: Row<"transactions">["status"] | undefined
  exception?: WaitingFor | undefined
  /** Only payments that need, or needed, the merchant's decision. */
  exceptional?: boolean
  from?: string | undefined
  to?: string | undefined
  q?: string | undefined
  chain?: string | undefined
  /** Decimal text: exactly this amount of the settlement token. */
  amount?: string | undefined
  /** Whether the amount is rarer than each of the terms. */
  isAmountRarest?: boolean
  /** SQL of `transaction_terms.term`: only payments for checkouts with all of these terms, the rarest first. */
  terms?: readonly RawBuilder<string>[] | undefined
}

/** The columns are listed, because a prepared statement with `*` fails after a migration adds a column. */
const columns = [
  "id",
  "merchant_id",
  "type",
  "status",
  "exception",
  "chain_id",
  "token",
  "amount",
  "tx_hash",
  "payer",
  "recipient",
  "resource_id",
  "payment_id",
  "created_at",
  "source",
  "payout_id",
  "out_of",
] satisfies (keyof Row<"transactions">)[]

/** A row of the list. */
export type ListedTransaction = Pick<Row<"transactions">, (typeof columns)[number]>

/**
 * Returns an unordered query for the merchant's transactions that match the filter. `from` and `to` are instants: from
 * ≤ created < to.
 */
export function transactions(ctx: TxContext, merchantId: string, filter: Filter) {
  const amounts = amountsAsked(ctx.chain, filter)
  const from = filter.isAmountRarest ? ofAmount(merchantId, amounts, filter.terms) : listed(merchantId, filter.terms)
  let query = ctx.db.selectFrom(from).select(columns).where("merchant_id", "=", merchantId)
  if (filter.type !== undefined)
    query = query.where("type", "=", filter.type).where(
      "source",
      "in",
      sources[filter.type].map(each => sql.lit(each)),
    )
  if (filter.status === "open") query = query.where(isWaiting(merchantId))
  else if (filter.status !== undefined) query = query.where("status", "=", sql.lit(filter.status))
  if (filter.exception !== undefined) query = query.where("exception", "=", filter.exception)
  if (filter.exceptional) query = query.where("exception", "is not", null)
  if (filter.status === "open" || filter.exceptional || filter.exception !== undefined)
    query = query.where("source", "=", sql.lit("payments" as const))
  if (filter.from !== undefined) query = query.where("created_at", ">=", timeAt("from", filter.from))
  if (filter.to !== undefined) query = query.where("created_at", "<", timeAt("to", filter.to))
  if (filter.chain !== undefined) query = query.where("chain_id", "=", networkAsked(ctx.chain, filter.chain).chainId)
  if (amounts.length > 0) query = query.where(hasAmount(amounts))
  if (filter.q === undefined) return query
  // The form of the search text decides what it means, so one index is enough.
  const hash = parseHash(filter.q)
  const address = parseAddress(filter.q)
  if (hash) return query.where("tx_hash", "=", hash)
  if (address) return query.where(eb => eb.or([eb("payer", "=", address), eb("recipient", "=", address)]))
  if (filter.q.startsWith("po_")) return query.where("payout_id", "=", rowIdOf(filter.q))
  if (filter.q.startsWith("set_")) return query.where("id", "=", filter.q).where("source", "=", "settlements")
  if (filter.q.startsWith("re_")) return query.where("id", "=", filter.q).where("source", "=", "refunds")
  if (filter.q.startsWith("pay_")) return query.where("payment_id", "=", filter.q)
  // A payout is for the resource of its deposit, and an index finds that deposit.
  return query.where(sql<boolean>`((source <> 'payouts' and resource_id = ${filter.q})
    or (source = 'payouts' and out_of = any(array(select d.id from deposits d where d.resource_id = ${filter.q}))))`)
}

/**
 * Returns the name of the prepared statements for the usual filters. Planning the view takes ten times as long as
 * reading one of its pages (5 ms and 0.5 ms, measured). Other filters get no name, because a prepared statement takes
 * 270 KB on each connection.
 */
export function usualName({ q, ...filter }: Filter): string | undefined {
  const [only, ...others] = Object.entries(filter).filter(([, value]) => value !== undefined)
  if (only === undefined && q === undefined) return "transactions"
  if (only === undefined) return parseHash(q ?? "") && "transactions_of_hash"
  if (others.length > 0 || q !== undefined) return undefined
  return { "exceptional,true": "exceptions", "status,granted": "granted_transactions" }[only.join()]
}

/** Returns a query for the transactions with these ids, of any merchants, except payouts and calls. */
export const transactionsById = ({ db }: TxContext, ids: readonly string[]) =>
  db
    .selectFrom("transactions")
    .select(columns)
    .where(
      "source",
      "in",
      (["payments", "escrows", "settlements"] as const).map(each => sql.lit(each)),
    )
    .where("id", "in", ids)

/**
 * The view, or only its rows that have these terms. Time and id come from the row of the first term, so that row's
 * index gives the list's order. The `offset 0` keeps Postgres from reading all rows of a type or state in that order (1
 * s at 100,000 rows).
 */
function listed(merchantId: string, terms: Filter["terms"] = []) {
  if (terms.length === 0) return sql<Row<"transactions">>`transactions`.as("transactions")
  const own = [...columns, "units" as const].map(column => ofTerm[column] ?? `v.${column}`)
  return sql<Row<"transactions">>`(select ${sql.raw(own.join(", "))} from transaction_terms t
    cross join lateral (select * from transactions where id = t.transaction_id and source in ('payments', 'escrows') offset 0) v
    where ${hasTerms(merchantId, terms)})`.as("transactions")
}

/** The view's payments of an amount that few of them have, and that have all of these terms. */
function ofAmount(merchantId: string, amounts: readonly SettlementAmount[], terms: Filter["terms"] = []) {
  return sql<Row<"transactions">>`(select * from (${paymentsOfAmount(merchantId, amounts)} offset 0) t
    where ${sql.join(terms.map(hasTerm), sql` and `)})`.as("transactions")
}

/** SQL: a merchant's payments of these amounts, which alone can have terms. */
export const paymentsOfAmount = (merchantId: string, amounts: readonly SettlementAmount[]): RawBuilder<unknown> =>
  sql`select ${sql.raw(columns.join(", "))}, units, id as transaction_id from transactions
    where merchant_id = ${merchantId} and source in ('payments', 'escrows') and ${hasAmount(amounts)}`

/** SQL: whether the row `t` of `transaction_terms` has the first of these terms, and its payment has the others too. */
const hasTerms = (merchantId: string, [first, ...others]: readonly RawBuilder<string>[]) =>
  sql.join([sql`t.merchant_id = ${merchantId} and t.term = ${first}`, ...others.map(hasTerm)], sql` and `)

/** SQL: whether the payment of the row `t` has this term. */
const hasTerm = (term: RawBuilder<string>) => sql`exists (select from transaction_terms o
  where o.merchant_id = t.merchant_id and o.term = ${term} and o.created_at = t.created_at and o.transaction_id = t.transaction_id)`

/**
 * Returns a query for all rows of a filter that consists of terms only, so that they are counted without the view.
 * Returns undefined for another filter.
 */
export function countedByTerms(merchantId: string, { terms = [], ...others }: Filter): RawBuilder<unknown> | undefined {
  const isAlone = terms.length > 0 && Object.values(others).every(value => value === undefined)
  return isAlone ? sql`select 1 as one from transaction_terms t where ${hasTerms(merchantId, terms)}` : undefined
}

const ofTerm: Partial<Record<keyof Row<"transactions">, string>> = {
  id: "t.transaction_id as id",
  created_at: "t.created_at",
}

/** The sources of each type of transaction, so that the planner skips the view's other parts. */
const sources: Record<Row<"transactions">["type"], Row<"transactions">["source"][]> = {
  payment: ["payments", "escrows"],
  agent: ["payments", "settlements"],
  share: ["payouts"],
  sweep: ["payouts"],
  return: ["payouts"],
  capture: ["calls"],
  void: ["calls"],
  refund: ["refunds"],
}

/**
 * SQL: whether a transaction is an open payment, or a granted one with an open surplus. There are few such payments, so
 * the query lists them first.
 */
const isWaiting = (merchantId: string) => sql<boolean>`(status = 'open' or (status = 'granted' and id = any(array(
  select s.payment_id from surpluses s join payments p on p.id = s.payment_id
  where s.state = 'open' and p.merchant_id = ${merchantId}))))`

/** Returns transactions in the API's form. */
export async function transactionsOf(ctx: TxContext, rows: readonly ListedTransaction[]) {
  const format = await amountFormatter(ctx, rows)
  const values = await valuesOf(
    ctx,
    rows.map(row => ({ ...row, at: row.created_at })),
  )
  const names = await namesOfThings(
    ctx,
    rows.map(({ resource_id }) => resource_id),
  )
  return rows.map((row, i) => ({
    // A row with its own id has a prefix; a payout's id is made from its UUID.
    id: row.id.includes("_") ? row.id : payoutIdOf(row.id),
    type: row.type,
    status: row.status,
    exception: row.exception,
    ...format(row),
    token: checksummed(row.token),
    chain: networkOf(ctx.chain, row.chain_id).name,
    txHash: row.tx_hash,
    payer: row.payer && checksummed(row.payer),
    recipient: row.recipient && checksummed(row.recipient),
    paywallId: ifKind("pw", row.resource_id ?? ""),
    sessionId: ifKind("cs", row.resource_id ?? ""),
    bundleId: ifKind("bdl", row.resource_id ?? ""),
    description: names.get(row.resource_id ?? "") ?? null,
    paymentId: row.payment_id,
    createdAt: row.created_at.toISOString(),
    value: values[i] ?? null,
  }))
}

/**
 * Returns all transactions that match the filter as CSV, newest first. A token's symbol has only letters and digits.
 */
export async function* transactionsCsv(
  ctx: TxContext,
  merchantId: string,
  filter: Filter,
): AsyncGenerator<string | Buffer> {
  const valuation = await valuationOf(ctx, merchantId)
  yield* linesOf(ctx, {
    cells: {
      id: sql`case when r.id like '%\\_%' then r.id else ${payoutIdCell(sql`r.id`)} end`,
      type: sql`r.type`,
      status: sql`r.status`,
      exception: sql`r.exception`,
      amount: amountCell(sql`r.amount`),
      currency: byToken(ctx, "r", sql`coalesce(k.symbol, r.token)`, ({ token }) => token.symbol),
      chain: byNetwork(ctx, ({ name }) => name),
      txHash: sql`r.tx_hash`,
      payer: sql`r.payer`,
      recipient: sql`r.recipient`,
      paywallId: kindCell("pw", sql`r.resource_id`),
      sessionId: kindCell("cs", sql`r.resource_id`),
      paymentId: sql`r.payment_id`,
      createdAt: timeCell(sql`r.created_at`),
      token: byToken(ctx, "r", sql`r.token`, ({ token }) => checksummed(token.address)),
      decimals: byToken(ctx, "r", sql`k.decimals::text`, ({ token }) => `${token.decimals}`),
      // New columns come last, because programs that read the file may count columns.
      currencyVerified: byToken(ctx, "r", sql`'false'`, () => "true"),
      bundleId: kindCell("bdl", sql`r.resource_id`),
      ...valueCells(),
    },
    key: ["at", "id"],
    rows: (last, limit) => {
      const unit = byToken(ctx, "transactions", sql`'1e-' || k.decimals`, ({ token }) => unitOf(token.decimals))
      const query = transactions(ctx, merchantId, filter).select(["created_at as at", sql`${unit}::numeric`.as("unit")])
      return withRates(ctx, valuation, continued(query, { at: "created_at", id: "id" }, last, limit))
    },
  })
}

/**
 * SQL: a text about a row's token, which is `own` for the network's own token and `other` for any other. `other` is an
 * expression over `k`, whose columns are null for an unknown token.
 */
const byToken = (ctx: TxContext, row: string, other: RawBuilder<unknown>, own: (network: NetworkInfo) => string) => {
  const token = sql.ref(`${row}.token`)
  const chain = sql.ref(`${row}.chain_id`)
  const known = sql`(select ${other} from (select 1) one left join tokens k on k.chain_id = ${chain} and k.address = ${token})`
  return sql`case when ${token} = ${byNetwork(ctx, network => network.token.address, row)}
    then ${byNetwork(ctx, own, row)} else ${known} end`
}
