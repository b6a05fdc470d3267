/** `/api/console/transactions`: a merchant's received payments and outgoing money. */
import { sql } from "kysely"
import { Type } from "typebox"
import { type Context, reading, type TxContext } from "../../platform/context.ts"
import { exceptions, type WaitingFor } from "../../platform/db/columns.ts"
import type { Row } from "../../platform/db/schema.ts"
import { invalid } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { Described, ListEnd, Matching } from "../../platform/http/schemas.ts"
import { byCreation, newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { TimeInput, timeAt } from "../../platform/http/time.ts"
import { amountsAsked } from "./amount-filter.ts"
import { type CheckoutFilter, checkoutFilters, checkoutTerms, withMetadata } from "./checkout-filter.ts"
import {
  countedByTerms,
  type Filter,
  paymentsOfAmount,
  transactions,
  transactionsCsv,
  transactionsOf,
  usualName,
} from "./read-transactions.ts"
import { transaction } from "./schema.ts"
import { MAX_SUMMED, sumTransactions } from "./sum-transactions.ts"

const tags = ["transactions"]
const Status = Type.Unsafe<Row<"transactions">["status"]>({
  type: "string",
  enum: [
    "granted",
    "reversed",
    "open",
    "returned",
    "authorized",
    "confirmed",
    "voided",
    "partially_refunded",
    "refunded",
    "queued",
    "held",
    "assigned",
    "mined",
    "final",
    "reverted",
    "cancelled",
  ],
  description:
    "For payments: granted, reversed, open (waiting for the merchant; `exception` says why) or returned. For escrow payments: authorized, confirmed, voided, partially_refunded or refunded. For all others: queued, held, assigned, mined, final, reverted or cancelled",
})
const TransactionType = Type.Unsafe<Row<"transactions">["type"]>({
  type: "string",
  enum: ["payment", "agent", "share", "sweep", "return", "capture", "void", "refund"],
  description:
    "Incoming: payment, and agent (paid by an agent with x402, here or through the facilitator to another server). Outgoing: share (of a split), sweep (to the merchant) and return (to a payer). For escrow payments, capture goes to the merchant, void back to the payer, and refund from the merchant's wallet to the payer",
})

const Transaction = Type.Object({ ...transaction, type: TransactionType, status: Status })
const TransactionList = Type.Object({ data: Type.Array(Transaction), ...ListEnd })
const TransactionSum = Type.Object({
  type: TransactionType,
  status: Status,
  count: Type.Integer({ description: "How many transactions are in the sum" }),
  amount: transaction.amount,
  currency: transaction.currency,
  currencyVerified: transaction.currencyVerified,
  decimals: transaction.decimals,
  token: transaction.token,
  chain: transaction.chain,
})
const TransactionTotals = Type.Object({
  data: Type.Array(TransactionSum),
  total: Type.Integer({ description: "How many transactions match" }),
  totalIsLeast: Type.Optional(
    Type.Literal(true, { type: "boolean", description: `More than ${MAX_SUMMED} match, so there are no sums` }),
  ),
})

const filters = {
  type: Type.Optional(TransactionType),
  status: Type.Optional(Status),
  exception: Type.Optional(
    Type.Unsafe<WaitingFor>({
      type: "string",
      enum: exceptions,
      description: "Only payments that need, or needed, your decision for this reason",
    }),
  ),
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "Like `from`; transactions created at exactly this time are not included")),
  amount: Type.Optional(
    Described(
      Matching("^(0|[1-9][0-9]{0,29})([.][0-9]{1,30})?$", "A decimal number such as 49.00", { examples: ["49.00"] }),
      "Only transactions, incoming or outgoing, of exactly this amount of the settlement token; `49` and `49.00` mean the same",
    ),
  ),
  ...checkoutFilters,
  q: Type.Optional(
    Matching(
      "^(0x[0-9a-fA-F]{40}|0x[0-9a-fA-F]{64}|(cs|pw|bdl|pay|set|re)_[a-z0-9]{24}|po_[0-9a-f]{32})$",
      "An id (`pay_`, `cs_`, `pw_`, `bdl_`, `po_`, `set_`, `re_`), a transaction hash, or the address of a payer or recipient",
    ),
  ),
}

interface ListFilter extends Omit<Filter, "terms">, CheckoutFilter {}

export function transactionRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/transactions",
    operationId: "listTransactions",
    summary: "Incoming and outgoing money, newest first",
    tags,
    filter: filters,
    answer: TransactionList,
    source: async (read, merchantId, filter) => {
      const wanted = await withTerms(read, merchantId, checked(read, filter))
      const source = newestFirst(transactions(read, merchantId, wanted), byCreation, usualName(wanted))
      return { ...source, all: countedByTerms(merchantId, wanted) ?? source.all }
    },
    show: transactionsOf,
    csv: {
      operationId: "exportTransactions",
      summary: "All transactions that match the filter, as CSV",
      lines: (read, merchantId, filter) => transactionLines(read, merchantId, checked(read, filter)),
    },
  })

  app.get(
    "/api/console/transactions/totals",
    {
      schema: {
        operationId: "sumTransactions",
        summary: "How much the transactions that match the filter add up to",
        description: `One sum for each type, state and token. A payment is in it whole, even if only its surplus is open. If more than ${MAX_SUMMED} transactions match, there are no sums: use a narrower filter, or export the transactions as CSV.`,
        tags,
        querystring: Type.Object(filters),
        response: { 200: TransactionTotals },
      },
    },
    async request => {
      const read = await reading(ctx)
      const merchantId = await callingMerchant(request)
      return await sumTransactions(read, merchantId, await withTerms(read, merchantId, checked(read, request.query)))
    },
  )
}

/**
 * Returns the filter with its metadata parsed. Throws if the filter is invalid, before any part of the response is
 * sent.
 */
function checked(ctx: TxContext, filter: ListFilter): ListFilter {
  for (const path of ["from", "to"] as const) if (filter[path] !== undefined) timeAt(path, filter[path])
  amountsAsked(ctx.chain, filter)
  return withMetadata(ctx.chain, filter)
}

async function* transactionLines(ctx: TxContext, merchantId: string, filter: ListFilter) {
  yield* transactionsCsv(ctx, merchantId, await withTerms(ctx, merchantId, filter))
}

/**
 * The most payments that are read one by one to check a filter's other terms. Reading 2,000 payments takes about 30 ms.
 */
const MAX_TRIED = 2_000

/**
 * Returns the filter with its terms, the rarest first, and whether its amount is rarer still. Throws if there are
 * several of them and each matches too many payments.
 */
async function withTerms(ctx: TxContext, merchantId: string, filter: ListFilter): Promise<Filter> {
  const { productId, slug, capture, customerEmail, metadata, ...rest } = filter
  const asked = { productId, slug, capture, customerEmail, metadata }
  const terms = checkoutTerms(merchantId, asked)
  if (terms.length === 0) return rest
  const amounts = amountsAsked(ctx.chain, filter)
  if (terms.length === 1 && amounts.length === 0) return { ...rest, terms }
  const found = terms.map(
    term => sql`select from transaction_terms t where t.merchant_id = ${merchantId} and t.term = ${term}`,
  )
  if (amounts.length > 0) found.push(sql`select from (${paymentsOfAmount(merchantId, amounts)}) t`)
  const counts = found.map(
    (rows, n) =>
      sql`select ${sql.lit(n)} as n, count(*)::int as count from (${rows} limit ${sql.lit(MAX_TRIED + 1)}) few`,
  )
  const { rows } = await sql<{ n: number; count: number }>`${sql.join(counts, sql` union all `)}`.execute(ctx.db)
  const order = rows.toSorted((a, b) => a.count - b.count)
  if ((order[0]?.count ?? 0) > MAX_TRIED)
    throw invalid(
      Object.entries(asked).find(([, value]) => value !== undefined)?.[0] ?? "metadata",
      `can't be combined with the other filters: each matches more than ${MAX_TRIED} payments. Use only one of them, or a filter that matches fewer payments`,
    )
  const sorted = order.flatMap(({ n }) => terms[n] ?? [])
  return order[0]?.n === terms.length ? { ...rest, terms: sorted, isAmountRarest: true } : { ...rest, terms: sorted }
}
