/** The wire contract of what agents buy, and of the facilitator. */
import { type Static, Type } from "typebox"
import {
  AddressText,
  Described,
  HashText,
  Matching,
  Money,
  Nullable,
  Strict,
  Timestamp,
} from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"

const Free = (description: string) => Type.Unsafe<object>({ type: "object", additionalProperties: true, description })

export const Discovery = Type.Object({
  version: Type.Integer(),
  x402Version: Type.Integer(),
  resources: Type.Array(Type.String()),
  items: Type.Array(Free("A resource with what it accepts, as the discovery API of facilitators has it")),
})
export const DidDocument = Free("A document of `did:web` with one verification method for each key")

export const PaymentRequired = Type.Object(
  {
    x402Version: Type.Literal(1),
    error: Type.String({ description: "Why the payment was refused, as a reason code of the specification" }),
    message: Described(Type.String(), "The same as a sentence"),
    accepts: Type.Array(Free("What to pay, in the form of version 1 of the protocol")),
  },
  {
    description:
      "Payment is required. Version 1 of the protocol is in this body, version 2 in the header `PAYMENT-REQUIRED` (base64 of JSON).",
  },
)

export const Pending = Type.Object(
  {
    status: Type.Literal("settlement_pending"),
    message: Type.String(),
    statusUrl: Described(Type.String(), "Where to ask for its status"),
  },
  { description: "The payment is in progress, and must not be made again" },
)

const receipt = {
  payer: AddressText,
  amount: Money,
  currency: Type.String(),
  txHash: HashText,
}

export const Content = Type.Object({
  paywallId: Type.String(),
  name: Type.String(),
  ...receipt,
  contentType: Type.String(),
  contentUrl: Nullable(Type.String()),
  contentData: Type.Unsafe<object | null>({ type: ["object", "null"], additionalProperties: true }),
})

export const Bought = Type.Object({
  ...receipt,
  paywallId: Type.Optional(Described(Type.String(), "For a paywall, like the content and its type")),
  name: Type.Optional(Type.String()),
  contentType: Type.Optional(Type.String()),
  contentUrl: Type.Optional(Nullable(Type.String())),
  contentData: Type.Optional(Type.Unsafe<object | null>({ type: ["object", "null"], additionalProperties: true })),
  sessionId: Type.Optional(Described(Type.String(), "For a payment link, like the receipt and where to go next")),
  description: Type.Optional(Nullable(Type.String())),
  receiptUrl: Type.Optional(Type.String()),
  redirectUrl: Type.Optional(Nullable(Type.String())),
})

export const SlugPath = Type.Object({ slug: Described(Type.String(), "For a paywall, payment link or bundle") })
export const AmountQuery = Type.Object({
  amount: Type.Optional(
    Matching(
      "^[0-9]{1,9}(\\.[0-9]{1,18})?$",
      "A decimal number, such as 2.50: how much to pay if a link leaves the amount open",
      {
        examples: ["2.50"],
      },
    ),
  ),
})
export const PaywallPath = Type.Object({ id: Matching(idPattern("pw"), "A paywall's id") })
export const SettlementPath = Type.Object({
  id: Matching(idPattern("set"), "The id of an agent's payment, from the `statusUrl` of a 202"),
})

export const SettlementStatus = Type.Object({
  status: Type.Enum(["pending", "settled", "failed"], {
    type: "string",
    description: "settled: it is in a block. failed: nothing was paid",
  }),
  message: Type.String(),
  txHash: Nullable(HashText),
  network: Type.String({ description: "By CAIP-2, such as eip155:8453" }),
  createdAt: Timestamp,
})

const asset = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
const payTo = "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720"
const terms = {
  scheme: "exact",
  network: "eip155:8453",
  amount: "10000",
  asset,
  payTo,
  maxTimeoutSeconds: 60,
  extra: { name: "USD Coin", version: "2" },
}
const facilitatorExample = {
  x402Version: 2,
  paymentPayload: {
    x402Version: 2,
    accepted: terms,
    payload: {
      signature: `0x${"1b".repeat(65)}`,
      authorization: {
        from: "0x14dC79964da2C08b23698B3D3cc7Ca32193d9955",
        to: payTo,
        value: "10000",
        validAfter: "0",
        validBefore: "1893456000",
        nonce: `0x${"5f".repeat(32)}`,
      },
    },
  },
  paymentRequirements: terms,
}

/** The requirements of either version. Code checks the fields that are used, because clients and servers add others. */
const Requirements = Free("The paid entry of `accepts`, in the payload's version")
export const FacilitatorBody = Strict(
  {
    x402Version: Type.Optional(Type.Integer({ description: "As in the payload" })),
    paymentPayload: Free("What the buyer sent, decoded"),
    paymentRequirements: Requirements,
  },
  facilitatorExample,
)
export type FacilitatorBody = Static<typeof FacilitatorBody>

export const VerifyAnswer = Type.Object({
  isValid: Type.Boolean(),
  invalidReason: Type.Optional(Type.String()),
  invalidMessage: Type.Optional(Type.String()),
  payer: Type.Optional(AddressText),
})

export const SettleAnswerSchema = Type.Object({
  success: Type.Boolean(),
  errorReason: Type.Optional(Type.String()),
  errorMessage: Type.Optional(Type.String()),
  payer: Type.Optional(AddressText),
  transaction: Described(Type.String(), "Empty if nothing was broadcast"),
  network: Type.String(),
})

export const SettleQuery = Type.Object({
  confirmations: Type.Integer({
    minimum: 1,
    maximum: 1_000,
    default: 1,
    description: "How many blocks to wait for, including the transfer's own; at most the network's `CONFIRMATIONS`",
  }),
})

export const Supported = Type.Object({
  kinds: Type.Array(
    Type.Object({
      x402Version: Type.Integer(),
      scheme: Type.String(),
      network: Type.String(),
      extra: Type.Object(
        { asset: AddressText, decimals: Type.Integer(), name: Type.String(), version: Type.String() },
        {
          description: "The token settled there, with its decimals and the name and version of its EIP-712 domain",
        },
      ),
    }),
  ),
  extensions: Type.Array(Type.String()),
  signers: Type.Unsafe<Record<string, string[]>>({
    type: "object",
    additionalProperties: { type: "array", items: { type: "string" } },
  }),
})

export const AuthorizationPath = Type.Object({
  from: Described(AddressText, "The payer"),
  nonce: Described(HashText, "Of its authorization"),
})
export const FacilitatorSettlement = Type.Object({
  ...SettlementStatus.properties,
  payer: AddressText,
  payTo: AddressText,
  amount: Described(Type.String(), "In base units"),
  asset: AddressText,
  isAnswered: Described(Type.Boolean(), "Whether a caller was answered `success: true`"),
})
