/** The wire contract of paywalls. */
import { type Static, Type } from "typebox"
import { Signature, SignedMessage, signedExample } from "../../account/identity/schema.ts"
import { SplitId } from "../../ledger/splits/schema.ts"
import {
  AddressText,
  Described,
  HashText,
  ListEnd,
  Matching,
  Money,
  MoneyInput,
  Name,
  Nullable,
  Strict,
  Timestamp,
} from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"

const Description = Nullable(Type.String({ maxLength: 2_000 }))
const Kind = Matching("^[a-z][a-z0-9_-]{0,31}$", "A lower-case word: a letter, then up to 31 letters, digits, _ or -")
const ContentData = Nullable(
  Type.Record(Type.String(), Type.Unknown(), {
    description: "At most 64 KB as JSON. Send numbers above 2^53, or with many digits, in quotes",
  }),
)
const ContentUrl = Nullable(Matching("^https?://", "An http(s) address", { maxLength: 2_048 }))
const Slug = Nullable(Matching("^[a-z0-9-]{3,64}$", "3 to 64 lower-case letters, digits and hyphens"))
/** A duration of up to a hundred years; null means forever. */
const AccessDuration = Nullable(
  Type.Integer({ minimum: 1, maximum: 3_153_600_000, description: "Seconds; null means forever" }),
)

/** The path parameters. */
export const Id = Type.Object({
  id: Type.String({ description: "The paywall's id", examples: ["pw_tz4a98xxat96iws9zmbrgj3a"] }),
})
export const GrantId = Type.Object({ ...Id.properties, grantId: Type.String({ description: "The grant's id" }) })
export const PaymentId = Type.Object({ ...Id.properties, txHash: Described(HashText, "The hash that was submitted") })

const SubscriptionProduct = Nullable(
  Type.String({
    maxLength: 64,
    description: "One of your products with a `billingInterval`, on the paywall's network; its subscribers have access",
    examples: ["prod_tz4a98xxat96iws9zmbrgj3a"],
  }),
)
const Listed = Type.Boolean({
  description: "Whether `/.well-known/x402` lists it for agents, by its slug; false by default",
})
export const PaywallCreate = Strict(
  {
    name: Name,
    price: MoneyInput,
    currency: Type.Optional(
      Type.String({ maxLength: 32, description: "The symbol of the network's settlement token" }),
    ),
    description: Type.Optional(Description),
    contentType: Type.Optional(Kind),
    contentData: Type.Optional(ContentData),
    contentUrl: Type.Optional(ContentUrl),
    pricingModel: Type.Optional(Kind),
    slug: Type.Optional(Slug),
    listed: Type.Optional(Listed),
    splitId: Type.Optional(SplitId),
    subscriptionProductId: Type.Optional(SubscriptionProduct),
    chain: Type.Optional(
      Type.String({ maxLength: 32, description: "A network of this service; without it, the default network" }),
    ),
    accessDuration: Type.Optional(AccessDuration),
  },
  { name: "Documentary", price: 5, contentUrl: "https://films.example/documentary", slug: "documentary" },
)
export type PaywallCreate = Static<typeof PaywallCreate>

export const PaywallChange = Strict(
  {
    name: Type.Optional(Name),
    price: Type.Optional(MoneyInput),
    description: Type.Optional(Description),
    contentData: Type.Optional(ContentData),
    contentUrl: Type.Optional(ContentUrl),
    active: Type.Optional(Type.Boolean()),
    pricingModel: Type.Optional(Kind),
    slug: Type.Optional(Slug),
    listed: Type.Optional(Listed),
    splitId: Type.Optional(SplitId),
    subscriptionProductId: Type.Optional(SubscriptionProduct),
    accessDuration: Type.Optional(AccessDuration),
  },
  { price: "4.50", description: "Half an hour, in English" },
)
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
  listed: Type.Boolean(),
  splitId: Nullable(Type.String()),
  subscriptionProductId: Nullable(Type.String()),
  chain: Type.String(),
  accessDuration: Nullable(Type.Integer()),
}

export const PaywallCreated = Type.Object(created)
export const PaywallList = Type.Object({ paywalls: Type.Array(Type.Object(listed)), ...ListEnd })
export const PaywallWhole = Type.Object({
  ...created,
  contentData: Nullable(Type.Record(Type.String(), Type.Unknown())),
  payTo: AddressText,
  updatedAt: Timestamp,
})
export const PaywallChanged = Type.Object({ ...created, updatedAt: Timestamp })
export const Deleted = Type.Object({ deleted: Type.Literal(true), id: Type.String() })

export const GrantList = Type.Object({
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      paymentId: Type.String(),
      address: AddressText,
      txHash: HashText,
      amount: Money,
      accessDuration: Nullable(Type.Integer()),
      calls: Nullable(Type.Integer({ description: "Paid calls; null means no limit while the access lasts" })),
      callsUsed: Type.Integer(),
      grantedAt: Timestamp,
      revokedAt: Nullable(Timestamp),
      revokedBy: Nullable(Type.String()),
      revokeReason: Nullable(Type.String()),
    }),
  ),
  ...ListEnd,
})
export const GrantRevoke = Strict(
  { reason: Type.Optional(Type.String({ maxLength: 500, description: "Stored with the grant" })) },
  { reason: "Paid back manually" },
)

export const PublicPaywall = Type.Object({
  id: Type.String(),
  name: Type.String(),
  description: Nullable(Type.String()),
  price: Money,
  currency: Type.String(),
  contentType: Type.String(),
  pricingModel: Type.String(),
  subscriptionProductId: Nullable(
    Type.String({ description: "Subscribers to this product have access; `POST /api/paywalls/:id/subscribe`" }),
  ),
  active: Type.Boolean(),
  chain: Type.String(),
  chainId: Type.Integer(),
  paused: Type.Boolean({ description: "Payments on this network are paused: do not send money now" }),
  payTo: Type.Optional(Described(AddressText, "Left out while the paywall is inactive or paused")),
  token: Type.Object({ address: AddressText, decimals: Type.Integer(), symbol: Type.String() }),
})

export const AccessAnswer = Type.Object({
  hasAccess: Type.Boolean(),
  expiresAt: Type.Optional(Timestamp),
  txHash: Type.Optional(HashText),
})

export const PaymentSubmit = Strict(
  {
    txHash: Described(HashText, "The hash of the transfer"),
    address: Described(AddressText, "The wallet that sent it"),
  },
  { txHash: `0x${"5f".repeat(32)}`, address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" },
)
export const PaymentSubmitted = Type.Object({
  status: Type.Literal("verifying"),
  paywallId: Type.String(),
  address: AddressText,
  txHash: HashText,
  message: Type.String(),
})
export const PaymentStatus = Type.Object({
  status: Type.Enum(["verifying", "granted", "failed", "reversed"], { type: "string" }),
  paywallId: Type.String(),
  address: AddressText,
  txHash: HashText,
  reason: Nullable(Type.String()),
  message: Type.String(),
  confirmations: Type.Integer(),
  requiredConfirmations: Type.Integer(),
})

export const Subscribed = Type.Object({
  sessionId: Type.String({ pattern: idPattern("cs") }),
  url: Type.String({ description: "Where the first period is paid" }),
  amount: Money,
  currency: Type.String(),
  expiresAt: Timestamp,
})

export const AccessProve = Strict(
  {
    address: Described(AddressText, "The wallet that paid"),
    message: Described(SignedMessage, "What the wallet signed, in the form of EIP-4361"),
    signature: Signature,
  },
  { address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", ...signedExample },
)
export const AccessToken = Type.Object({
  accessToken: Type.String({ description: "A JWT; its `aud` is the paywall's id, its `sub` the wallet (CAIP-10)" }),
  expiresAt: Timestamp,
  contentUrl: Nullable(Type.String()),
  contentData: Nullable(Type.Record(Type.String(), Type.Unknown())),
})

export const Consume = Strict(
  { address: Described(AddressText, "The wallet that makes the call") },
  { address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" },
)
export const ConsumeAnswer = Type.Object({
  allowed: Type.Boolean(),
  remaining: Nullable(Type.Integer({ description: "Calls left; null means no limit while the access lasts" })),
})
