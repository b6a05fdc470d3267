/** The wire contract of checkouts, payment links and products. */
import { type Static, Type } from "typebox"
import { Signature } from "../../account/identity/schema.ts"
import { checkoutFilters } from "../../ledger/books/checkout-filter.ts"
import { SplitId } from "../../ledger/splits/schema.ts"
import type { PaymentException } from "../../platform/db/columns.ts"
import { MAX_WAIT_S } from "../../platform/http/await-end.ts"
import {
  AddressInput,
  AddressText,
  Described,
  HashText,
  ListEnd,
  Matching,
  Money,
  MoneyInput,
  Nullable,
  Page,
  patternOf,
  SearchText,
  Strict,
  Timestamp,
} from "../../platform/http/schemas.ts"
import { TimeInput } from "../../platform/http/time.ts"
import { idPattern } from "../../platform/ids.ts"
import { Refund } from "../escrow/refund-schema.ts"
import { EscrowShown, escrowStatus, OpenCalls } from "../escrow/schema.ts"

export const Text = Type.String({ maxLength: 2_000 })
export const Url = Matching("^https?://", "An http(s) address", { maxLength: 2_048 })
export const Slug = Matching("^[a-z0-9-]{3,64}$", "3 to 64 lower-case letters, digits and hyphens")
export const SoldProduct = Matching(idPattern("prod"), "The id of a product, `prod_` and 24 characters")
export const emailRule = { pattern: "^[^@\\s]+@[^@\\s]+$", maxLength: 320 }
const Email = Matching(emailRule.pattern, "An e-mail address", { maxLength: emailRule.maxLength })
export const Chain = Type.String({
  maxLength: 32,
  description: "A network of this service; without it, the default network",
})
export const Currency = Type.String({ maxLength: 32, description: "The symbol of the network's settlement token" })
const Metadata = Type.Record(Type.String(), Type.Unknown(), {
  description: "The merchant's own data; at most 4 KB as JSON. Send numbers above 2^53, or with many digits, in quotes",
})
const FieldName = Matching("^[a-zA-Z][a-zA-Z0-9_]{0,39}$", "A letter, then up to 39 letters, digits or _")
export const PayerFields = Type.Array(FieldName, { maxItems: 20, uniqueItems: true })
const Answers = Type.Record(Type.String({ maxLength: 40 }), Type.String({ maxLength: 500 }), {
  maxProperties: 20,
  description: "Answers to the requested fields, by field name",
})
const Status = Type.Enum(
  ["pending", "verifying", "authorized", "confirmed", "voided", "partially_refunded", "refunded", "failed", "expired"],
  { type: "string" },
)
const Capture = Type.Enum(["direct", "manual", "automatic"], {
  type: "string",
  description:
    "`direct`: the merchant owns the money as soon as it is paid. Otherwise the money is first reserved in an escrow contract. With `manual` the merchant captures it; with `automatic` the service captures it immediately.",
})
const exceptions: PaymentException[] = ["underpaid", "overpaid", "late", "duplicate", "wrong_asset"]
const Exception = Type.Unsafe<PaymentException | null>({ type: ["string", "null"], enum: [...exceptions, null] })

const EXAMPLE_HASH = `0x${"5f".repeat(32)}`

export const SessionId = Type.Object({
  id: Type.String({ description: "The session's id", examples: ["cs_tz4a98xxat96iws9zmbrgj3a"] }),
})

export const CheckoutCreate = Strict(
  {
    amount: Type.Optional(MoneyInput),
    currency: Type.Optional(Currency),
    chain: Type.Optional(Chain),
    description: Type.Optional(
      Described(Text, "Shown to the payer. By default the description or title of the link, or the product's name"),
    ),
    redirectUrl: Type.Optional(Described(Url, "The page to which the payer is sent after confirmation")),
    callbackUrl: Type.Optional(
      Described(Url, "The URL that receives this session's events instead of the registered endpoints"),
    ),
    slug: Type.Optional(Described(Slug, "One of the merchant's payment links; it sets what is sold")),
    productId: Type.Optional(Described(SoldProduct, "A product, which has a price")),
    splitId: Type.Optional(SplitId),
    customerEmail: Type.Optional(Email),
    payerFields: Type.Optional(
      Described(
        PayerFields,
        "Fields to ask the payer for; the answers are returned as `payerInfo`. By default those of the link",
      ),
    ),
    payerInfo: Type.Optional(Described(PayerFields, "The old name of `payerFields`")),
    metadata: Type.Optional(Metadata),
    expiresIn: Type.Optional(
      Type.Integer({ minimum: 300, maximum: 2_592_000, description: "Seconds to pay; 86,400 by default" }),
    ),
    capture: Type.Optional(Capture),
    captureWithin: Type.Optional(
      Type.Integer({
        minimum: 3_600,
        maximum: 7_776_000,
        description:
          "Escrow only: seconds after the checkout's end until the payer can withdraw money that is not captured; 604,800 by default",
      }),
    ),
    refundWithin: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 31_536_000,
        description: "Escrow only: seconds after that in which captured money can be refunded; 7,776,000 by default",
      }),
    ),
  },
  { amount: "19.90", description: "Order 1001", redirectUrl: "https://shop.example/thanks", metadata: { order: 1001 } },
)
export type CheckoutCreate = Static<typeof CheckoutCreate>

const Token = Type.Object({ address: AddressText, decimals: Type.Integer(), symbol: Type.String() })
const shown = {
  status: Status,
  exception: Exception,
  message: Type.String(),
  amount: Money,
  amountReceived: Described(Money, "The amount that arrived and was not returned"),
  amountReturned: Described(
    Money,
    "The part of the received amount that the merchant decided to send back; refunds from an escrow are not counted",
  ),
  currency: Type.String(),
  chain: Type.String(),
  chainId: Type.Integer(),
  token: Token,
  payTo: Described(Nullable(AddressText), "Null for an escrow payment, which is paid with a signature"),
  paused: Type.Boolean({ description: "Payments on this network are paused: do not send money now" }),
  description: Nullable(Type.String()),
  redirectUrl: Nullable(Type.String()),
  txHash: Nullable(HashText),
  expiresAt: Timestamp,
}
export const Session = Type.Object({
  id: Type.String({ pattern: idPattern("cs") }),
  merchantId: Type.String(),
  url: Type.String({ description: "The page where the payer pays" }),
  ...shown,
  callbackUrl: Nullable(Type.String()),
  slug: Nullable(Type.String()),
  productId: Nullable(Type.String()),
  splitId: Described(
    Nullable(Type.String()),
    "The split at the session's creation; later edits of that split change nothing here",
  ),
  capture: Capture,
  authId: Described(
    Nullable(HashText),
    "The payment's id in the escrow contract; null for a direct checkout, and until a payer has signed",
  ),
  escrow: EscrowShown,
  customerEmail: Nullable(Type.String()),
  payerFields: Type.Array(Type.String(), { description: "The fields that the payer is asked for" }),
  payerInfo: Type.Unsafe<Record<string, string> | null>({
    type: ["object", "null"],
    additionalProperties: true,
    description: "The payer's answers, by field; null until there are any",
  }),
  metadata: Type.Unsafe<Record<string, unknown> | null>({ type: ["object", "null"], additionalProperties: true }),
  payer: Nullable(AddressText),
  openCalls: Type.Optional(OpenCalls),
  refunds: Type.Optional(
    Type.Array(Refund, {
      description: "For an escrow payment, newest first; only when a single session is read",
    }),
  ),
  splits: Type.Optional(
    Type.Array(
      Type.Object({
        address: AddressText,
        amount: Money,
        percent: Type.Number(),
        txHash: Nullable(HashText),
      }),
      { description: "The state of each share; only when a single session with a split is read" },
    ),
  ),
  receiptUrl: Described(
    Nullable(Type.String()),
    "The page of its receipt, where the payer can save it; null until it is paid",
  ),
  confirmedAt: Nullable(Timestamp),
  createdAt: Timestamp,
  updatedAt: Timestamp,
})
export const SessionList = Type.Object({ data: Type.Array(Session), ...ListEnd })
export const SessionQuery = Type.Object({
  ...Page.properties,
  status: Type.Optional(Described(Status, "Filter by status")),
  exception: Type.Optional(
    Type.Unsafe<PaymentException>({ type: "string", enum: exceptions, description: "Filter by exception" }),
  ),
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "Like `from`; checkouts created at exactly this time are not included")),
  q: Type.Optional(
    Described(
      SearchText,
      "An id (`cs_`, `pay_`), a transaction hash, the address of the payer or the receiving address, an e-mail address, `key:value` of the metadata, or a value in it",
    ),
  ),
  ...checkoutFilters,
})
export const SessionChange = Strict(
  {
    description: Type.Optional(Nullable(Text)),
    redirectUrl: Type.Optional(Nullable(Url)),
    metadata: Type.Optional(Nullable(Metadata)),
  },
  { metadata: { order: 1001, shipped: true } },
)

export const LinkSessionCreate = Strict(
  { slug: Slug, amount: Type.Optional(MoneyInput) },
  { slug: "donate", amount: 5 },
)
export const LinkSession = Type.Object({
  sessionId: Type.String(),
  url: Type.String(),
  payTo: AddressText,
  amount: Money,
  currency: Type.String(),
  expiresAt: Timestamp,
})

export const PayStatus = Type.Object({
  sessionId: Type.String(),
  ...shown,
  payTo: Type.Optional(
    Described(AddressText, "Left out while payments are paused, after the time to pay, and for escrow payments"),
  ),
  capture: Capture,
  ...escrowStatus,
  redirectUrl: Described(Nullable(Type.String()), "Only once it is confirmed, or reserved"),
  payerFields: Type.Array(Type.String()),
  confirmations: Type.Integer(),
  requiredConfirmations: Type.Integer(),
  submission: Type.Unsafe<null | { txHash: string; status: string; reason: string | null; message: string }>({
    type: ["object", "null"],
    description:
      "The result for the submitted hash that `txHash` names, otherwise for the newest; null without a submission",
    properties: {
      txHash: HashText,
      status: Type.String({ description: "verifying, granted (its money counts), failed or reversed" }),
      reason: Described(Nullable(Type.String()), "Why it failed, as a code"),
      message: Type.String({ description: "Why it failed, as a sentence" }),
    },
  }),
})
export const StatusQuery = Type.Object({
  txHash: Type.Optional(Described(HashText, "The hash of the submission to report; by default the newest")),
  wait: Type.Integer({
    minimum: 0,
    maximum: MAX_WAIT_S,
    default: 0,
    description: "Seconds to wait for a final result",
  }),
})

export const PayConfirm = Strict(
  {
    sessionId: Type.String({ maxLength: 64 }),
    txHash: Described(HashText, "The hash of the transfer"),
    payerAddress: Type.Optional(Described(AddressText, "The wallet that sent it")),
    customerEmail: Type.Optional(Email),
    payerInfo: Type.Optional(Answers),
  },
  { sessionId: "cs_tz4a98xxat96iws9zmbrgj3a", txHash: EXAMPLE_HASH },
)
export type PayConfirm = Static<typeof PayConfirm>
export const PayConfirmed = Type.Object({ status: Status, sessionId: Type.String(), txHash: HashText })

export const PayerInfo = Strict(
  {
    sessionId: Type.String({ maxLength: 64 }),
    payerInfo: Answers,
    customerEmail: Type.Optional(Email),
  },
  { sessionId: "cs_tz4a98xxat96iws9zmbrgj3a", payerInfo: {} },
)
export type PayerInfo = Static<typeof PayerInfo>
export const PayerInfoKept = Type.Object({ sessionId: Type.String() })

const Uint = (description: string) =>
  Type.Unsafe<number | string>({
    type: ["integer", "string"],
    minimum: 0,
    maxLength: 78,
    pattern: patternOf("^[0-9]+$", "a whole number in decimal digits"),
    description,
  })
export const PayAuthorize = Strict(
  {
    sessionId: Type.String({ maxLength: 64 }),
    authorization: Strict({
      from: Described(AddressInput, "The address that pays"),
      to: Described(AddressInput, "The checkout's `payTo`, or with an escrow its collector"),
      value: Uint("Exactly the missing amount in base units: decimal digits, or a whole number"),
      validAfter: Uint("Unix time in seconds after which it is valid: decimal digits, or a whole number"),
      validBefore: Uint(
        "Unix time in seconds before which it is valid, at most two hours after the checkout's end: decimal digits, or a whole number",
      ),
      nonce: Matching("^0x[0-9a-fA-F]{64}$", "32 random bytes: 0x and 64 hexadecimal digits"),
    }),
    signature: { ...Signature, maxLength: 2 + 2 * 4_096, description: "The payer's signature, at most 4,096 bytes" },
  },
  {
    sessionId: "cs_tz4a98xxat96iws9zmbrgj3a",
    authorization: {
      from: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
      to: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
      value: "19900000",
      validAfter: "0",
      validBefore: "1893456000",
      nonce: EXAMPLE_HASH,
    },
    signature: `0x${"5f".repeat(64)}1b`,
  },
)
export type PayAuthorize = Static<typeof PayAuthorize>
export const PayAuthorized = Type.Object({
  status: Status,
  sessionId: Type.String(),
  txHash: Described(Nullable(HashText), "The hash of the transfer, once it is mined"),
})

export const Deleted = Type.Object({ deleted: Type.Literal(true), id: Type.String() })
