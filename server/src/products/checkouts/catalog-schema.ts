/** The wire contract of products and payment links. */
import { type Static, Type } from "typebox"
import { SplitId } from "../../ledger/splits/schema.ts"
import type { BillingInterval as Interval } from "../../platform/db/schema.ts"
import {
  Described,
  ListEnd,
  Money,
  MoneyInput,
  Name,
  Nullable,
  Strict,
  Timestamp,
} from "../../platform/http/schemas.ts"
import { TimeInput } from "../../platform/http/time.ts"
import { idPattern } from "../../platform/ids.ts"
import { Chain, Currency, PayerFields, Slug, SoldProduct, Text, Url } from "./schema.ts"

export const ProductId = Type.Object({ id: Type.String({ description: "The product's id" }) })
export const LinkId = Type.Object({ id: Type.String({ description: "The payment link's id" }) })

const intervals: Interval[] = ["day", "week", "month", "year"]
export const BillingInterval = Type.Unsafe<Interval>({
  type: "string",
  enum: intervals,
  description: "Makes it a subscription, billed again after each interval",
})
const BillingCount = Type.Integer({ minimum: 1, maximum: 12 })
/** Changed terms apply to subscriptions that start after the change. */
const subscriptionTerms = {
  trialDays: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 365,
      description:
        "Subscriptions only: free days added to the first period of each wallet's first subscription to the product",
    }),
  ),
  maxPeriods: Type.Optional(
    Nullable(
      Type.Integer({
        minimum: 1,
        maximum: 1_000,
        description: "Subscriptions only: how many periods are billed; null: until it is canceled",
      }),
    ),
  ),
}

export const ProductCreate = Strict(
  {
    name: Described(Name, "Shown to payers, unless the checkout has a description"),
    price: MoneyInput,
    description: Type.Optional(Nullable(Text)),
    currency: Type.Optional(Currency),
    chain: Type.Optional(Chain),
    splitId: Type.Optional(SplitId),
    billingInterval: Type.Optional(BillingInterval),
    billingCount: Type.Optional(Described(BillingCount, "How many intervals a period has; 1 by default")),
    ...subscriptionTerms,
  },
  { name: "Annual report", price: 49 },
)
export type ProductCreate = Static<typeof ProductCreate>
export const ProductChange = Strict(
  {
    name: Type.Optional(Name),
    price: Type.Optional(MoneyInput),
    description: Type.Optional(Nullable(Text)),
    active: Type.Optional(Type.Boolean()),
    splitId: Type.Optional(SplitId),
    billingInterval: Type.Optional(Described(BillingInterval, "Unchanged: the length of a period can't be changed")),
    billingCount: Type.Optional(Described(BillingCount, "Unchanged: the length of a period can't be changed")),
    ...subscriptionTerms,
  },
  { price: "45.50" },
)
export type ProductChange = Static<typeof ProductChange>
export const Product = Type.Object({
  id: Type.String({ pattern: idPattern("prod") }),
  name: Type.String(),
  description: Nullable(Type.String()),
  price: Money,
  currency: Type.String(),
  chain: Type.String(),
  splitId: Nullable(Type.String()),
  active: Type.Boolean(),
  billingInterval: Type.Unsafe<Interval | null>({ type: ["string", "null"], enum: [...intervals, null] }),
  billingCount: Nullable(Type.Integer()),
  trialDays: Type.Integer(),
  maxPeriods: Nullable(Type.Integer()),
  createdAt: Timestamp,
  updatedAt: Timestamp,
})
export const ProductList = Type.Object({ data: Type.Array(Product), ...ListEnd })

const linkTerms = {
  splitId: Type.Optional(SplitId),
  description: Type.Optional(Nullable(Text)),
  redirectUrl: Type.Optional(Nullable(Url)),
  maxUses: Type.Optional(Nullable(Type.Integer({ minimum: 1, maximum: 1_000_000, description: "Null: no limit" }))),
  expiresAt: Type.Optional(Nullable(TimeInput)),
  payerFields: Type.Optional(
    Described(
      PayerFields,
      "Fields to ask each payer for before the payment, such as `name` and `shippingAddress`; the answers are returned as `payerInfo`. A link that asks for fields is not sold to agents, because they can't answer",
    ),
  ),
}
export const LinkCreate = Strict(
  {
    slug: Type.Optional(Described(Slug, "3 to 64 lower-case letters, digits and hyphens; a random slug by default")),
    title: Name,
    amount: Type.Optional(Described(MoneyInput, "Without it, and without a product, the payer chooses the amount")),
    productId: Type.Optional(Described(SoldProduct, "Sells this product at its price")),
    currency: Type.Optional(Currency),
    chain: Type.Optional(Chain),
    ...linkTerms,
  },
  { slug: "spring-sale", title: "Spring sale", amount: 25, maxUses: 100 },
)
export type LinkCreate = Static<typeof LinkCreate>
export const LinkChange = Strict(
  { title: Type.Optional(Name), active: Type.Optional(Type.Boolean()), ...linkTerms },
  { maxUses: 200 },
)
export type LinkChange = Static<typeof LinkChange>
export const Link = Type.Object({
  // Links created before the prefix was `plink_` keep their ids.
  id: Type.String({ pattern: idPattern("plink").replace("plink", "p?link") }),
  slug: Type.String(),
  url: Type.String({ description: "The page that starts a checkout" }),
  title: Type.String(),
  description: Nullable(Type.String()),
  amount: Nullable(Money),
  currency: Type.String(),
  chain: Type.String(),
  productId: Nullable(Type.String()),
  splitId: Nullable(Type.String()),
  redirectUrl: Nullable(Type.String()),
  maxUses: Nullable(Type.Integer()),
  uses: Type.Integer(),
  expiresAt: Nullable(Timestamp),
  payerFields: Type.Array(Type.String(), { description: "The fields that each payer is asked for" }),
  active: Type.Boolean(),
  createdAt: Timestamp,
  updatedAt: Timestamp,
})
export const LinkList = Type.Object({ data: Type.Array(Link), ...ListEnd })
