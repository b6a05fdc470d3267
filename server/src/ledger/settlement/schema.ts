/** The wire contract of payments that wait for the merchant's decision. */
import { Type } from "typebox"
import { nonceAnswer, Signature, SignedMessage, signedExample } from "../../account/identity/schema.ts"
import { exceptions, type WaitingFor } from "../../platform/db/columns.ts"
import {
  AddressText,
  Described,
  HashText,
  ListEnd,
  Matching,
  Money,
  Nullable,
  Strict,
  Timestamp,
} from "../../platform/http/schemas.ts"
import { transaction } from "../books/schema.ts"

const PaymentState = Type.Enum(["open", "granted", "returned", "reversed"], {
  type: "string",
  description:
    "open: it waits for the merchant. granted: it counts as paid (accepted, if `acceptedAt` is set). returned: it is being or was sent back. reversed: a reorg removed it, or it counts elsewhere",
})
export const ExceptionalPayment = Type.Object({
  ...transaction,
  type: Type.Literal("payment"),
  status: PaymentState,
  acceptedAt: Nullable(Timestamp),
  approver: Described(
    Nullable(AddressText),
    "The only wallet whose signature can send it back, according to its receiving address; null if the service can return it on its own",
  ),
  surplus: Type.Unsafe<null | { amount: string; status: "open" | "accepted" | "returned" }>({
    type: ["object", "null"],
    description:
      "The amount above the price of a granted, `overpaid` payment. While it is open it waits and is in no payout: accept it, or return only this amount. Null if the whole payment counts, as it does with a surplus below the lowest price",
    properties: {
      amount: Money,
      status: Type.String({ enum: ["open", "accepted", "returned"] }),
    },
  }),
  buys: Type.Boolean({
    description:
      "Whether accepting the open payment buys something: a checkout that no other payment has paid, or access to a paywall. If false, the money is only paid out",
  }),
  acceptable: Type.Boolean({
    description: "False if a later invoice has replaced the closed invoice that it was for: it can only be returned",
  }),
  returnAddress: Described(Nullable(AddressText), "The return address that the payer named by signature"),
  return: Type.Unsafe<null | { address: string; state: string; txHash: string | null; reason: string | null }>({
    type: ["object", "null"],
    description: "The address that it was sent back to, and the state of that payout; null if it was not sent back",
    properties: {
      address: AddressText,
      state: Type.String({ description: "queued, held, assigned, mined, final or reverted" }),
      txHash: Nullable(HashText),
      reason: Nullable(Type.String({ description: "Why it is held, as a sentence; null if it is not held" })),
    },
  }),
})
export const ExceptionalPaymentList = Type.Object({ data: Type.Array(ExceptionalPayment), ...ListEnd })
export const PaymentFilters = Type.Object({
  exception: Type.Optional(
    Type.Unsafe<WaitingFor>({ type: "string", enum: exceptions, description: "Filter by exception" }),
  ),
  status: Type.Optional({
    ...PaymentState,
    description: "Filter by status; `open` includes granted payments whose surplus waits for a decision",
  }),
})
export const PaymentId = Type.Object({
  id: Type.String({ description: "The payment's id", examples: ["pay_tz4a98xxat96iws9zmbrgj3a"] }),
})

const ADDRESS = "0x976EA74026E726554dB657fA54763abd0C3a0aa9"
const ReturnApproved = Strict({
  deadline: Type.Integer({ description: "As in the signed data: Unix seconds, at most 31 days ahead" }),
  signature: Signature,
})
export const ReturnOrder = Strict(
  {
    address: Type.Optional(
      Described(AddressText, "The address that receives the money; without it, the address that the payer named"),
    ),
    confirm: Type.Optional(Type.Boolean({ description: "Required to override the payer's return address" })),
    approval: Type.Optional(ReturnApproved),
  },
  { address: ADDRESS },
)

/** The most returns in one request. One page of the console never has more returns signed together. */
const MAX_RETURNS = 50
export const ReturnOrders = Strict(
  {
    returns: Type.Array(
      Strict({ id: Type.String({ description: "The payment's id", maxLength: 64 }), ...ReturnOrder.properties }),
      { minItems: 1, maxItems: MAX_RETURNS },
    ),
  },
  { returns: [{ id: "pay_tz4a98xxat96iws9zmbrgj3a", address: ADDRESS }] },
)
export const ReturnOutcomes = Type.Object({
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      payment: Described(Nullable(ExceptionalPayment), "Its current state; null if it was not returned"),
      error: Described(
        Nullable(
          Type.Object({
            error: Type.String(),
            message: Type.String(),
            details: Type.Optional(
              Type.Array(
                Type.Object({ path: Type.String(), message: Type.String(), typedData: Type.Optional(Type.Any()) }),
              ),
            ),
          }),
        ),
        "Why it was not returned, as the route for a single return says it; `RETURN_APPROVAL_REQUIRED` has the data to sign",
      ),
    }),
  ),
})

/** Returns the bodies of the routes that name a return address. `prefixes` are the id prefixes of the resources. */
export function returnBodies(prefixes: readonly string[]) {
  const pattern = `^(${prefixes.toSorted().join("|")})_[a-z0-9]{24}$`
  const ResourceId = Matching(pattern, "The id of the checkout or paywall that was paid", {
    examples: ["cs_tz4a98xxat96iws9zmbrgj3a"],
  })
  const named = { id: ResourceId, address: Described(AddressText, "The address to which the money should be returned") }
  const namedExample = { id: "cs_tz4a98xxat96iws9zmbrgj3a", address: ADDRESS }
  return {
    ReturnNonce: Strict(named, namedExample),
    ReturnAddress: Strict(
      {
        ...named,
        message: Described(SignedMessage, "The message that the paying wallet signed, in the form of EIP-4361"),
        signature: Signature,
      },
      { ...namedExample, ...signedExample },
    ),
    ReturnAddressNamed: Type.Object({
      id: Type.String({ pattern }),
      payer: AddressText,
      address: AddressText,
    }),
  }
}

export const ReturnNonceAnswer = Type.Object({
  ...nonceAnswer,
  resource: Type.String({
    description: "The only resource that the message must name",
    examples: [`urn:sluice:return:cs_tz4a98xxat96iws9zmbrgj3a:${ADDRESS.toLowerCase()}`],
  }),
})
