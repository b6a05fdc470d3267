/** The wire contract of paywalls. */
import { type Static, Type } from "typebox"
import { AddressText, Money, MoneyInput, Nullable, Strict, Timestamp } from "../http/schemas.ts"
import { idPattern } from "../ids.ts"

const Name = Type.String({ minLength: 1, maxLength: 200 })
const Description = Nullable(Type.String({ maxLength: 2_000 }))
const Kind = Type.String({ pattern: "^[a-z][a-z0-9_-]{0,31}$", description: "A short lower-case word" })
const ContentData = Nullable(Type.Record(Type.String(), Type.Unknown(), { description: "At most 64 KB as JSON" }))
const ContentUrl = Nullable(Type.String({ maxLength: 2_048, pattern: "^https?://", description: "An http(s) address" }))
const Slug = Nullable(Type.String({ pattern: "^[a-z0-9-]{3,64}$", description: "Unique in the installation" }))
/** Up to a hundred years; whoever means for ever says null. */
const AccessDuration = Nullable(
  Type.Integer({ minimum: 1, maximum: 3_153_600_000, description: "Seconds; null is for ever" }),
)

export const PaywallCreate = Strict({
  name: Name,
  price: MoneyInput,
  currency: Type.Optional(Type.String({ maxLength: 32, description: "The symbol of the network's settlement token" })),
  description: Type.Optional(Description),
  contentType: Type.Optional(Kind),
  contentData: Type.Optional(ContentData),
  contentUrl: Type.Optional(ContentUrl),
  pricingModel: Type.Optional(Kind),
  slug: Type.Optional(Slug),
  chain: Type.Optional(
    Type.String({ maxLength: 32, description: "A network of this service; the default one without it" }),
  ),
  accessDuration: Type.Optional(AccessDuration),
})
export type PaywallCreate = Static<typeof PaywallCreate>

export const PaywallChange = Strict({
  name: Type.Optional(Name),
  price: Type.Optional(MoneyInput),
  description: Type.Optional(Description),
  contentData: Type.Optional(ContentData),
  contentUrl: Type.Optional(ContentUrl),
  active: Type.Optional(Type.Boolean()),
  pricingModel: Type.Optional(Kind),
  slug: Type.Optional(Slug),
  accessDuration: Type.Optional(AccessDuration),
})
export type PaywallChange = Static<typeof PaywallChange>

const listed = {
  id: Type.String({ pattern: idPattern("pw") }),
  name: Type.String(),
  price: Money,
  currency: Type.String(),
  contentType: Type.String(),
  pricingModel: Type.String(),
  active: Type.Boolean(),
  createdAt: Timestamp,
}
const created = {
  ...listed,
  merchantId: Type.String(),
  description: Nullable(Type.String()),
  contentUrl: Nullable(Type.String()),
  slug: Nullable(Type.String()),
  chain: Type.String(),
  accessDuration: Nullable(Type.Integer()),
}

export const PaywallCreated = Type.Object(created)
export const PaywallList = Type.Object({ paywalls: Type.Array(Type.Object(listed)), total: Type.Integer() })
export const PaywallWhole = Type.Object({
  ...created,
  contentData: Nullable(Type.Record(Type.String(), Type.Unknown())),
  payTo: AddressText,
  updatedAt: Timestamp,
})
export const PaywallChanged = Type.Object({
  id: Type.String(),
  name: Type.String(),
  price: Money,
  pricingModel: Type.String(),
  updatedAt: Timestamp,
})
export const Deleted = Type.Object({ deleted: Type.Literal(true), id: Type.String() })

export const GrantList = Type.Object({
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      paymentId: Type.String(),
      address: AddressText,
      txHash: Type.String(),
      amount: Money,
      accessDuration: Nullable(Type.Integer()),
      grantedAt: Timestamp,
      revokedAt: Nullable(Timestamp),
      revokedBy: Nullable(Type.String()),
      revokeReason: Nullable(Type.String()),
    }),
  ),
  total: Type.Integer(),
})
export const GrantRevoke = Strict({ reason: Type.Optional(Type.String({ maxLength: 500 })) })

export const PublicPaywall = Type.Object({
  id: Type.String(),
  name: Type.String(),
  description: Nullable(Type.String()),
  price: Money,
  currency: Type.String(),
  contentType: Type.String(),
  pricingModel: Type.String(),
  active: Type.Boolean(),
  chain: Type.String(),
  chainId: Type.Integer(),
  payTo: Type.Optional(AddressText),
  token: Type.Object({ address: AddressText, decimals: Type.Integer(), symbol: Type.String() }),
})

export const AccessAnswer = Type.Object({
  hasAccess: Type.Boolean(),
  expiresAt: Type.Optional(Timestamp),
  txHash: Type.Optional(Type.String()),
})

/** Both are read by hand: a missing hash has an error of its own, and the order of the checks is part of the contract. */
export const PaymentSubmit = Strict({
  txHash: Type.Optional(Type.Unsafe<unknown>({ description: "The hash of the transfer" })),
  address: Type.Optional(Type.Unsafe<unknown>({ description: "The wallet that sent it" })),
})
export const PaymentSubmitted = Type.Object({
  status: Type.Literal("verifying"),
  paywallId: Type.String(),
  address: AddressText,
  txHash: Type.String(),
  message: Type.String(),
})
export const PaymentStatus = Type.Object({
  status: Type.Union([
    Type.Literal("verifying"),
    Type.Literal("granted"),
    Type.Literal("failed"),
    Type.Literal("reversed"),
  ]),
  paywallId: Type.String(),
  address: AddressText,
  txHash: Type.String(),
  reason: Nullable(Type.String()),
  message: Type.String(),
  confirmations: Type.Integer(),
  requiredConfirmations: Type.Integer(),
})
