/** `/api/console/transactions`: the payments that a merchant received, and what went out. */
import { Type } from "typebox"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { Described, ListEnd, Matching } from "../../platform/http/schemas.ts"
import { byCreation, newestFirst } from "../../platform/http/send-lists.ts"
import type { Server } from "../../platform/http/server.ts"
import { TimeInput, timeAt } from "../../platform/http/time.ts"
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
  q: Type.Optional(
    Matching(
      "^(0x[0-9a-fA-F]{40}|0x[0-9a-fA-F]{64}|(cs|pw|bdl|pay|set|re)_[a-z0-9]{24}|po_[0-9a-f]{32})$",
      "An id (`pay_`, `cs_`, `pw_`, `bdl_`, `po_`, `set_`, `re_`), a transaction hash, or the address of a payer or recipient",
    ),
  ),
}

export function transactionRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/transactions",
    operationId: "listTransactions",
    summary: "Incoming and outgoing money, newest first",
    tags,
    filter: filters,
    answer: TransactionList,
    source: (read, merchantId, filter) =>
      newestFirst(transactions(read, merchantId, checked(filter)), byCreation, usualName(filter)),
    show: transactionsOf,
    csv: {
      operationId: "exportTransactions",
      summary: "All transactions that match the filter, as CSV",
      lines: (read, merchantId, filter) => transactionsCsv(read, merchantId, checked(filter)),
    },
  })
}

/** Returns the same filter, and throws for a wrong time before anything is sent. */
function checked<T extends Filter>(filter: T): T {
  for (const path of ["from", "to"] as const) if (filter[path] !== undefined) timeAt(path, filter[path])
  return filter
}
