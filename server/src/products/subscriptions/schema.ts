/** The wire contract of subscriptions and invoices. */
import { Type } from "typebox"
import type { Row } from "../../platform/db/schema.ts"
import {
  AddressText,
  Described,
  ListEnd,
  Matching,
  Money,
  Nullable,
  Strict,
  Timestamp,
} from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"
import { BillingInterval } from "../checkouts/catalog-schema.ts"
import { SoldProduct } from "../checkouts/schema.ts"

type Status = NonNullable<Row<"subscriptions">["status"]>
const statuses: Status[] = ["active", "payment_due", "past_due", "paused", "canceled"]
const Status = Type.Unsafe<Status>({
  type: "string",
  enum: statuses,
  description:
    "`active`; `payment_due` for three days from the due time of an invoice; then `past_due`, without access; `paused`; `canceled`",
})
const reasons: Row<"subscriptions">["cancel_reason"][] = ["requested", "unpaid", "completed", null]

const askers: Row<"subscriptions">["cancel_asked_by"][] = ["merchant", "subscriber", "both", null]
const blocks: Row<"subscriptions">["blocked_by"][] = ["payments_paused", "payout_address", "price", null]

/** The status of an invoice. */
export type InvoiceStatus = "open" | "paid" | "unpaid" | "void"
const invoiceStatuses: InvoiceStatus[] = ["open", "paid", "unpaid", "void"]
const InvoiceStatus = Type.Unsafe<InvoiceStatus>({
  type: "string",
  enum: invoiceStatuses,
  description:
    "`open` while it can be paid; `paid`; `unpaid` if its time ended, which cancels the subscription; `void` if the subscription was paused or canceled first",
})

export const Invoice = Type.Object({
  id: Type.String({ pattern: idPattern("inv") }),
  subscriptionId: Type.String(),
  sequence: Type.Integer({ description: "1 for the first of its subscription" }),
  status: InvoiceStatus,
  amount: Money,
  currency: Type.String(),
  chain: Type.String(),
  productId: Type.String(),
  checkoutSessionId: Type.String(),
  hostedUrl: Described(Type.String(), "The page where it is paid"),
  periodStart: Timestamp,
  periodEnd: Timestamp,
  dueAt: Timestamp,
  paidAt: Nullable(Timestamp),
  createdAt: Timestamp,
})
export const InvoiceList = Type.Object({ data: Type.Array(Invoice), ...ListEnd })

export const Subscription = Type.Object({
  id: Type.String({ pattern: idPattern("sub") }),
  status: Status,
  cancelReason: Type.Unsafe<Row<"subscriptions">["cancel_reason"]>({
    type: ["string", "null"],
    enum: reasons,
    description: "Why it was canceled: on request, because nobody paid, or after its last period",
  }),
  productId: Described(Type.String(), "The product of the next invoice, at its price at that time"),
  billingInterval: BillingInterval,
  billingCount: Type.Integer(),
  trialDays: Described(
    Type.Integer(),
    "Free days at its start; 0 if the payer had a subscription to the product before",
  ),
  graceDays: Described(
    Type.Integer(),
    "Days of access after the paid period: 3, or 0 if the payer had an earlier subscription to the product of its last invoice",
  ),
  maxPeriods: Nullable(Type.Integer()),
  chain: Type.String(),
  payer: Described(AddressText, "The wallet that paid first; paywalls give access to it"),
  customerEmail: Nullable(Type.String()),
  paidUntil: Timestamp,
  accessUntil: Timestamp,
  cancelAtPeriodEnd: Type.Boolean(),
  cancelAskedBy: Type.Unsafe<Row<"subscriptions">["cancel_asked_by"]>({
    type: ["string", "null"],
    enum: askers,
    description: "Who requested its end; each side can undo only its own request, with `resume`",
  }),
  blockedBy: Type.Unsafe<Row<"subscriptions">["blocked_by"]>({
    type: ["string", "null"],
    enum: blocks,
    description:
      "Why the due invoice can't be created. `payout_address`: set one for the network. `price`: the price is below the minimum payment, or below what its split needs. `payments_paused`: the service currently accepts no payments. It is retried automatically, within ten minutes of a change",
  }),
  startedAt: Timestamp,
  pausedAt: Nullable(Timestamp),
  endedAt: Nullable(Timestamp),
  updatedAt: Timestamp,
})
export const SubscriptionWhole = Type.Object({
  ...Subscription.properties,
  invoices: Type.Array(Invoice, { description: "Newest first, at most 100; `GET /api/console/invoices` has all" }),
})
export const SubscriptionList = Type.Object({ data: Type.Array(Subscription), ...ListEnd })

export const SubscriptionId = Type.Object({ id: Type.String({ description: "The subscription's id" }) })
export const InvoiceId = Type.Object({ id: Type.String({ description: "The invoice's id" }) })

const subscriptionFilters = {
  status: Type.Optional(Described(Status, "Filter by status")),
  productId: Type.Optional(Described(SoldProduct, "Filter by product")),
  q: Type.Optional(
    Matching(
      "^(0x[0-9a-fA-F]{40}|(sub|cs|inv)_[a-z0-9]{24}|[^@\\s]+@[^@\\s]+)$",
      "An id (`sub_`, `inv_`, `cs_`), the address of a payer, or an e-mail address",
      { maxLength: 320 },
    ),
  ),
}
export const SubscriptionFilters = Type.Object(subscriptionFilters)

const invoiceFilters = {
  status: Type.Optional(Described(InvoiceStatus, "Filter by status")),
  subscriptionId: Type.Optional(Matching(idPattern("sub"), "The id of a subscription, `sub_` and 24 characters")),
}
export const InvoiceFilters = Type.Object(invoiceFilters)

export const SubscriptionCancel = Strict(
  {
    at: Type.Enum(["now", "period_end"], {
      type: "string",
      description: "`now` ends access immediately; `period_end` ends it with the paid period",
    }),
  },
  { at: "period_end" },
)
export const SubscriptionChange = Strict(
  { productId: Described(SoldProduct, "A product with `billingInterval` on the same network") },
  { productId: "prod_tz4a98xxat96iws9zmbrgj3a" },
)
