/** `/api/console/transactions`: the payments that a merchant received, and what went out. */
import { sql } from "kysely"
import { Type } from "typebox"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { Described, ListEnd, Matching } from "../../platform/http/schemas.ts"
import { byCreation, newestFirst } from "../../platform/http/send-lists.ts"
import type { Server } from "../../platform/http/server.ts"
import { TimeInput, timeAt } from "../../platform/http/time.ts"
import {
  type CheckoutFilter,
  checkoutConditions,
  checkoutFilters,
  hasTerm,
  isTerm,
  withMetadata,
} from "./checkout-filter.ts"
import { type Filter, transactions, transactionsCsv, transactionsOf, usualName } from "./read-transactions.ts"
import { transaction } from "./schema.ts"

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
    "For payments: granted, reversed, open (waiting for the merchant; `exception` says why) or returned; of those through escrow authorized, confirmed, voided, partially_refunded or refunded. For all else: queued, held, assigned, mined, final, reverted or cancelled",
})
const TransactionType = Type.Unsafe<Row<"transactions">["type"]>({
  type: "string",
  enum: ["payment", "agent", "share", "sweep", "return", "capture", "void", "refund"],
  description:
    "payment is incoming; agent too, paid by an agent (x402), here or through the facilitator to another server; share (of a split), sweep (to the merchant) and return (to a payer) are outgoing; of a payment through escrow, capture goes to the merchant, void back to the payer, and refund from the merchant's wallet to the payer",
})

const Transaction = Type.Object({ ...transaction, type: TransactionType, status: Status })
const TransactionList = Type.Object({ data: Type.Array(Transaction), ...ListEnd })

const filters = {
  type: Type.Optional(TransactionType),
  status: Type.Optional(Status),
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "Like `from`; transactions created at exactly this time are not included")),
  ...checkoutFilters,
  q: Type.Optional(
    Matching(
      "^(0x[0-9a-fA-F]{40}|0x[0-9a-fA-F]{64}|(cs|pw|bdl|pay|set|re)_[a-z0-9]{24}|po_[0-9a-f]{32})$",
      "An id (`pay_`, `cs_`, `pw_`, `bdl_`, `po_`, `set_`, `re_`), a transaction hash, or the address of a payer or recipient",
    ),
  ),
}

interface ListFilter extends Omit<Filter, "checkouts">, CheckoutFilter {}

export function transactionRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/transactions",
    operationId: "listTransactions",
    summary: "Incoming and outgoing money, newest first",
    tags,
    filter: filters,
    answer: TransactionList,
    source: async (read, merchantId, filter) => {
      const wanted = await withCheckouts(read, merchantId, checked(read, filter))
      return newestFirst(transactions(read, merchantId, wanted), byCreation, usualName(wanted))
    },
    show: transactionsOf,
    csv: {
      operationId: "exportTransactions",
      summary: "All transactions that match the filter, as CSV",
      lines: (read, merchantId, filter) => transactionLines(read, merchantId, checked(read, filter)),
    },
  })
}

/** The filter with its metadata read; throws for what is wrong with it before anything is sent. */
function checked(ctx: TxContext, filter: ListFilter): ListFilter {
  for (const path of ["from", "to"] as const) if (filter[path] !== undefined) timeAt(path, filter[path])
  return withMetadata(ctx.chain, filter)
}

async function* transactionLines(ctx: TxContext, merchantId: string, filter: ListFilter) {
  yield* transactionsCsv(ctx, merchantId, await withCheckouts(ctx, merchantId, filter))
}

/**
 * So many checkouts are found first, and their payments by these. Of more, enough are among the newest payments: reading those in order
 * and asking of each which checkout it is for is then the shorter way.
 */
const MANY_CHECKOUTS = 10_000

/** The filter with the checkouts that it means. */
async function withCheckouts(ctx: TxContext, merchantId: string, filter: ListFilter): Promise<Filter> {
  const { productId, slug, capture, customerEmail, metadata, chain, ...rest } = filter
  const conditions = checkoutConditions(ctx.chain, merchantId, { productId, slug, capture, customerEmail })
  const [field, ...others] = Object.entries(metadata ?? {})
  const all = [sql<boolean>`checkout_sessions.merchant_id = ${merchantId}`, ...conditions, ...others.map(hasTerm)]
  if (conditions.length === 0 && field === undefined) return { ...rest, chain }
  const from =
    field === undefined
      ? sql`checkout_sessions where ${sql.join(all, sql` and `)}`
      : sql`checkout_terms join checkout_sessions on checkout_sessions.id = checkout_terms.session_id
        where ${isTerm(merchantId, field)} and ${sql.join(all, sql` and `)}`
  const { rows } = await sql<{
    id: string
  }>`select checkout_sessions.id from ${from} limit ${sql.lit(MANY_CHECKOUTS + 1)}`.execute(ctx.db)
  const isMany = rows.length > MANY_CHECKOUTS
  const checkouts = isMany ? [...all, ...(field === undefined ? [] : [hasTerm(field)])] : rows.map(({ id }) => id)
  return { ...rest, chain, checkouts }
}
