/** The wire contract of payments that wait for the merchant's decision. */
import { Type } from "typebox"
import { exceptions, transaction } from "../books/schema.ts"
import type { WaitingFor } from "../db/schema.ts"
import { AddressText, Described, HashText, Matching, Nullable, Page, Strict, Timestamp } from "../http/schemas.ts"
import { nonceAnswer, Signature, SignedMessage, signedExample } from "../identity/schema.ts"
import { idPattern } from "../ids.ts"

const PaymentState = Type.Enum(["open", "granted", "returned", "reversed"], {
  type: "string",
  description:
    "open: it waits for the merchant. granted: it counts as paid (accepted, where `acceptedAt` says so). returned: it goes, or went, back. reversed: the chain took it back, or it counts elsewhere",
})
export const ExceptionalPayment = Type.Object({
  ...transaction,
  type: Type.Literal("payment"),
  status: PaymentState,
  acceptedAt: Nullable(Timestamp),
  returnAddress: Described(Nullable(AddressText), "Where the payer wants it back, by its own signature"),
  return: Type.Unsafe<null | { address: string; state: string; txHash: string | null; reason: string | null }>({
    type: ["object", "null"],
    description: "Where it was sent back to, and how that stands; null where it was not",
    properties: {
      address: AddressText,
      state: Type.String({ description: "queued, held, assigned, mined, final or reverted" }),
      txHash: Nullable(HashText),
      reason: Nullable(Type.String({ description: "Why it is held, in a sentence; null where it is not" })),
    },
  }),
})
export const ExceptionalPaymentList = Type.Object({ data: Type.Array(ExceptionalPayment), total: Type.Integer() })
export const PaymentQuery = Type.Object({
  ...Page.properties,
  exception: Type.Optional(
    Type.Unsafe<WaitingFor>({ type: "string", enum: exceptions, description: "Only those with this exception" }),
  ),
  status: Type.Optional({ ...PaymentState, description: "Only those in this state; open is what waits" }),
})
export const PaymentId = Type.Object({
  id: Type.String({ description: "The payment's id", examples: ["pay_tz4a98xxat96iws9zmbrgj3a"] }),
})

const ADDRESS = "0x976EA74026E726554dB657fA54763abd0C3a0aa9"
export const ReturnOrder = Strict(
  {
    address: Type.Optional(
      Described(AddressText, "Where it goes; where it is left out, to the address that the payer named"),
    ),
    confirm: Type.Optional(Type.Boolean({ description: "That it is meant, though the payer named another address" })),
  },
  { address: ADDRESS },
)

const ResourceId = Matching("^(cs|pw)_[a-z0-9]{24}$", "The id of the checkout or paywall that was paid", {
  examples: ["cs_tz4a98xxat96iws9zmbrgj3a"],
})
const named = { id: ResourceId, address: Described(AddressText, "Where the money is to go back to") }
const namedExample = { id: "cs_tz4a98xxat96iws9zmbrgj3a", address: ADDRESS }
export const ReturnNonce = Strict(named, namedExample)
export const ReturnNonceAnswer = Type.Object({
  ...nonceAnswer,
  resource: Type.String({
    description: "The one resource that the message has to name",
    examples: [`urn:sluice:return:cs_tz4a98xxat96iws9zmbrgj3a:${ADDRESS.toLowerCase()}`],
  }),
})
export const ReturnAddress = Strict(
  {
    ...named,
    message: Described(SignedMessage, "What the wallet that paid has signed, in the form of EIP-4361"),
    signature: Signature,
  },
  { ...namedExample, ...signedExample },
)
export const ReturnAddressNamed = Type.Object({
  id: Type.String({ pattern: idPattern("cs").replace("cs", "(cs|pw)") }),
  payer: AddressText,
  address: AddressText,
})
