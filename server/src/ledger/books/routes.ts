/** `/api/console/books`: every transfer into and out of the merchant's deposits. */
import { Type } from "typebox"
import { addressField } from "../../platform/chain/address-field.ts"
import type { Context } from "../../platform/context.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import {
  AddressInput,
  AddressText,
  Described,
  HashText,
  ListEnd,
  Matching,
  Money,
  Nullable,
  Timestamp,
} from "../../platform/http/schemas.ts"
import type { Server } from "../../platform/http/server.ts"
import { TimeInput, timeAt } from "../../platform/http/time.ts"
import { Value } from "../rates/read-values.ts"
import { type BookFilter, booksCsv, booksOf, entriesOf } from "./read-books.ts"

const tags = ["books"]
const text = (description: string) => ({ type: "string", description })

const Entry = Type.Object({
  at: Described(
    Timestamp,
    "For incoming money, the time of its block; for a payout, when it was first seen in a block",
  ),
  direction: Type.Unsafe<"in" | "out" | "through">({
    type: "string",
    enum: ["in", "out", "through"],
    description: "through: a refund from your payout wallet to the payer, so `amountIn` equals `amountOut`",
  }),
  reason: Type.String(
    text(
      "In: payment, unclaimed (the transfer belongs to no payment) or reserve (into the escrow, until it is captured or goes back). Out: share, sweep, return, recovery (sent to the address's owner after the recovery time), given_back (approved by the merchant's wallet with its own signature, without the service) or unknown (the service did not send it, and halted payouts). Out of the escrow: capture (to the merchant), void (released to the payer) or reclaim (withdrawn by the payer after the deadline). Through: refund",
    ),
  ),
  paymentStatus: Nullable(Type.String(text("As in the transactions; null without a payment"))),
  exception: Nullable(Type.String()),
  amountIn: Nullable(Described(Money, "In base units if the token is not the network's settlement token")),
  amountOut: Nullable(Money),
  balance: Nullable(
    Described(
      Money,
      "What the deposit held after this transfer, or the escrow held for you; only in a list of one address",
    ),
  ),
  currency: Nullable(Type.String(text("null if the token is not the network's settlement token"))),
  token: AddressText,
  chain: Type.String(),
  deposit: AddressText,
  from: AddressText,
  to: AddressText,
  txHash: Described(Nullable(HashText), "Null for reclaim, which is the payer's own transaction"),
  blockNumber: Nullable(Type.String()),
  status: Type.String(text("confirmed or mined; final once its block is finalized")),
  paymentId: Nullable(Type.String()),
  payoutId: Nullable(Type.String()),
  paywallId: Nullable(Type.String()),
  sessionId: Nullable(Type.String()),
  id: Type.String(),
  value: Nullable(Value),
})

const filters = {
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "Like `from`; transfers at exactly this time are not included")),
  deposit: Type.Optional(
    Described(AddressInput, "The address of one deposit, or of the escrow: the answer then includes the balance"),
  ),
  paywallId: Type.Optional(Matching("^pw_[a-z0-9]{24}$", "A paywall's id")),
  sessionId: Type.Optional(Matching("^cs_[a-z0-9]{24}$", "A checkout session's id")),
}

export function bookRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/books",
    operationId: "listBooks",
    summary: "Every transfer into and out of the receiving addresses, with its reason, newest first",
    tags,
    filter: filters,
    answer: Type.Object({ data: Type.Array(Entry), ...ListEnd }),
    source: (read, merchantId, filter) => booksOf(read, merchantId, checked(filter)),
    show: entriesOf,
    csv: {
      operationId: "exportBooks",
      summary: "All entries of the books that match the filter, as CSV",
      lines: (read, merchantId, filter) => booksCsv(read, merchantId, checked(filter)),
    },
  })
}

/** Returns the filter unchanged. Throws if a time or address is invalid, before any part of the response is sent. */
function checked<T extends BookFilter>(filter: T): T {
  for (const path of ["from", "to"] as const) if (filter[path] !== undefined) timeAt(path, filter[path])
  if (filter.deposit !== undefined) addressField("deposit", filter.deposit)
  return filter
}
