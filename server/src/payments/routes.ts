/** `/api/console/transactions` and `/api/console/payments`: what a merchant was paid, and what waits for it. */
import { Readable } from "node:stream"
import { type Static, Type } from "typebox"
import type { Context } from "../context.ts"
import type { PaymentException, Row } from "../db/schema.ts"
import { pageOf } from "../http/lists.ts"
import { AddressText, Described, HashText, Matching, Money, Nullable, Page, Timestamp } from "../http/schemas.ts"
import { callingMerchant, type Server } from "../http/server.ts"
import { TimeInput, timeAt } from "../http/time.ts"
import { type Filter, transactionOf, transactions, transactionsCsv } from "./transactions.ts"

const tags = ["transactions"]
const exceptions: PaymentException[] = ["underpaid", "overpaid", "late", "duplicate", "wrong_asset"]
const Status = Type.Enum(
  ["granted", "reversed", "open", "queued", "held", "assigned", "mined", "final", "reverted", "cancelled"],
  {
    type: "string",
    description:
      "Of payments granted, reversed, or open (it waits for the merchant, `exception` says why); of what goes out queued, held, assigned, mined, final, reverted or cancelled",
  },
)
const TransactionType = Type.Unsafe<Row<"transactions">["type"]>({
  type: "string",
  enum: ["payment", "share", "sweep"],
  description: "payment came in; share (of a split) and sweep (to the merchant) went out",
})

const Transaction = Type.Object({
  id: Type.String(),
  type: TransactionType,
  status: Status,
  exception: Type.Unsafe<PaymentException | null>({ type: ["string", "null"], enum: [...exceptions, null] }),
  amount: Money,
  currency: Type.String(),
  chain: Type.String(),
  txHash: Nullable(HashText),
  payer: Nullable(AddressText),
  recipient: Nullable(AddressText),
  paywallId: Nullable(Type.String()),
  sessionId: Nullable(Type.String()),
  paymentId: Nullable(Type.String()),
  createdAt: Timestamp,
})
const TransactionList = Type.Object({ data: Type.Array(Transaction), total: Type.Integer() })

const filters = {
  type: Type.Optional(TransactionType),
  status: Type.Optional(Status),
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "As `from`; what was made at this time is not included")),
  q: Type.Optional(
    Matching(
      "^(0x[0-9a-fA-F]{40}|0x[0-9a-fA-F]{64}|(cs|pw|pay)_[a-z0-9]{24})$",
      "An id (`pay_`, `cs_`, `pw_`), a transaction hash, or the address of a payer or recipient",
    ),
  ),
}
const Filters = Type.Object(filters)
const Query = Type.Object({ ...Page.properties, ...filters })
const PaymentQuery = Type.Object({
  ...Page.properties,
  exception: Type.Optional(
    Type.Unsafe<PaymentException>({ type: "string", enum: exceptions, description: "Only those with this exception" }),
  ),
})

export function transactionRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/transactions",
    {
      schema: {
        operationId: "listTransactions",
        summary: "What came in and what went out, newest first",
        tags,
        querystring: Query,
        response: { 200: TransactionList },
      },
    },
    async request => {
      const { limit, offset, ...filter } = request.query
      return await list(await callingMerchant(ctx, request), filter, { limit, offset })
    },
  )

  app.get(
    "/api/console/transactions.csv",
    {
      schema: {
        operationId: "exportTransactions",
        summary: "All that passes the filter, as CSV",
        tags,
        querystring: Filters,
        response: { 200: { content: { "text/csv": { schema: Type.String() } } } },
      },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(ctx, request)
      const filter = filterOf(request.query)
      reply.header("content-disposition", 'attachment; filename="transactions.csv"')
      reply.type("text/csv; charset=utf-8")
      // The document says text; it is sent as a stream of it.
      return Readable.from(transactionsCsv(ctx, merchantId, filter)) as unknown as string
    },
  )

  app.get(
    "/api/console/payments",
    {
      schema: {
        operationId: "listExceptionalPayments",
        summary: "Payments that are not as they should be, newest first",
        tags,
        querystring: PaymentQuery,
        response: { 200: TransactionList },
      },
    },
    async request => {
      const { exception, ...page } = request.query
      return await list(await callingMerchant(ctx, request), { exception, exceptional: true }, page)
    },
  )

  async function list(merchantId: string, filter: Filter, page: Page) {
    const query = transactions(ctx, merchantId, filterOf(filter))
    const { rows, total } = await pageOf(query.orderBy("created_at", "desc").orderBy("id", "desc"), page)
    return { data: rows.map(row => transactionOf(ctx, row)), total }
  }
}

/** The same filter, its times checked before anything is sent. */
function filterOf<T extends Filter | Static<typeof Filters>>(filter: T): T {
  for (const path of ["from", "to"] as const) if (filter[path] !== undefined) timeAt(path, filter[path])
  return filter
}
