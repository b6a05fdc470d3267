/** The routes of `/api/console/erasures`, which erase a customer's identifying data and list past erasures. */
import { Type } from "typebox"
import { addressField } from "../../platform/chain/address-field.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { AddressInput, Described, ListEnd, Matching, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { idPattern } from "../../platform/ids.ts"
import { erase, pendingDeliveries } from "./erase-customer.ts"
import { bringBackFrom, type Customer, findCustomer, lockFound, putAwayOf, stillNeeded } from "./find-customer.ts"

const tags = ["settings"]

const Request = Strict(
  {
    customerEmail: Type.Optional(Matching("^[^@\\s]+@[^@\\s]+$", "An e-mail address", { maxLength: 320 })),
    payer: Type.Optional(
      Described(AddressInput, "The wallet of a payer. A checkout that several wallets paid is erased with any of them"),
    ),
    checkoutId: Type.Optional(Matching(idPattern("cs"), "A checkout session's id")),
    dryRun: Type.Optional(Type.Boolean({ description: "true: only counts what would be erased" })),
    pendingDeliveries: Type.Optional(
      Type.Unsafe<"wait" | "drop">({
        type: "string",
        enum: ["wait", "drop"],
        description:
          "What happens to undelivered events. `wait`, the default: nothing is erased until they are delivered. `drop`: they are never sent",
      }),
    ),
  },
  { customerEmail: "ann@example.com", dryRun: true },
)

const counted = {
  checkouts: Type.Integer(),
  subscriptions: Type.Integer(),
  refunds: Type.Integer(),
  events: Type.Integer({ description: "Events whose data was replaced by its SHA-256; they can't be sent again" }),
}

const Erased = Type.Object({
  id: Described(Nullable(Type.String()), "Null if nothing was erased"),
  ...counted,
  pendingDeliveries: Type.Integer({ description: "Deliveries not sent yet, which are dropped or waited for" }),
  blockedBy: Type.Array(Type.String(), { description: "Why the data is still needed; empty if it may be erased" }),
  kept: Type.Array(Type.String(), { description: "What stays, and why" }),
})

const Erasure = Type.Object({
  id: Type.String(),
  askedBy: Type.String({ description: "email, payer, checkout or retention, without its value" }),
  ...counted,
  deliveriesDropped: Type.Integer(),
  createdAt: Timestamp,
})

const kept = [
  "Amounts, addresses of wallets and transaction hashes: they are the merchant's books, and public on the chain.",
  "Comparisons with sanctions lists, as evidence.",
  "Ids, times and states of checkouts, payments and subscriptions.",
  "Backups of the database, until they are deleted.",
]

export function erasureRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/erasures",
    {
      schema: {
        operationId: "eraseCustomer",
        summary: "Erases the personal data of one customer",
        description:
          "Name the customer by exactly one of `customerEmail`, `payer` and `checkoutId`. In their checkouts, subscriptions and refunds, this erases e-mail addresses, what payers entered, metadata, descriptions, page addresses and reasons. It also erases the data of events and the answers to deliveries. Try it with `dryRun` first. It can't be undone.",
        tags,
        body: Request,
        response: { 200: Erased },
      },
      config: { errors: ["ERASURE_REFUSED"] },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { dryRun = false, pendingDeliveries: pending = "wait" } = request.body
      const { customer, askedBy } = readCustomer(request.body)
      const away = await putAwayOf(ctx, merchantId, customer)
      if (!dryRun) await bringBackFrom(ctx, merchantId, away)
      return await inTransaction(ctx, async ctx => {
        if (!dryRun) await lockFound(ctx, await findCustomer(ctx, merchantId, customer))
        const found = await findCustomer(ctx, merchantId, customer)
        const blockedBy = await stillNeeded(ctx, found)
        const due = await pendingDeliveries(ctx, found)
        if (pending === "wait" && due.pending > 0)
          blockedBy.push(`Deliveries not sent yet: ${due.pending}. Wait, or send \`pendingDeliveries: "drop"\`.`)
        else if (due.sending > 0) blockedBy.push("A delivery is being sent right now. Try again in a minute.")
        if (!dryRun && blockedBy.length > 0) throw new ApiError("ERASURE_REFUSED", undefined, blockedBy.join(" "))
        const isFound = [found.checkouts, found.subscriptions, found.payments].some(each => each.length > 0)
        return {
          id: dryRun || !isFound ? null : await erase(ctx, merchantId, found, askedBy),
          checkouts: found.checkouts.length + (dryRun ? away.length : 0),
          subscriptions: found.subscriptions.length,
          refunds: found.refunds.length,
          events: found.events.length,
          pendingDeliveries: due.pending,
          blockedBy,
          kept,
        }
      })
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/erasures",
    operationId: "listErasures",
    summary: "Erasures of customers' data, newest first, without the customers' names",
    tags,
    answer: Type.Object({ data: Type.Array(Erasure), ...ListEnd }),
    source: ({ db }, merchantId) =>
      newestFirst(db.selectFrom("erasures").selectAll().where("merchant_id", "=", merchantId)),
    show: (_, rows) =>
      rows.map(row => ({
        id: row.id,
        askedBy: row.asked_by,
        checkouts: row.checkouts,
        subscriptions: row.subscriptions,
        refunds: row.refunds,
        events: row.events,
        deliveriesDropped: row.deliveries_dropped,
        createdAt: row.created_at.toISOString(),
      })),
  })
}

/** Returns the named customer. Throws `VALIDATION_ERROR` unless exactly one is named. */
function readCustomer(body: { customerEmail?: string; payer?: string; checkoutId?: string }): {
  customer: Customer
  askedBy: "email" | "payer" | "checkout"
} {
  const { customerEmail: email, payer, checkoutId: checkout } = body
  if ([email, payer, checkout].filter(each => each !== undefined).length !== 1)
    throw invalid("customerEmail", "must be given, or `payer` or `checkoutId`, but only one of them")
  if (email !== undefined) return { customer: { email }, askedBy: "email" }
  if (payer !== undefined) return { customer: { payer: addressField("payer", payer) }, askedBy: "payer" }
  return { customer: { checkout: checkout ?? "" }, askedBy: "checkout" }
}
