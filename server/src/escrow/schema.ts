/** The wire contract of escrows. */
import { type Static, Type } from "typebox"
import { AddressText, Described, HashText, Money, Nullable, Timestamp } from "../http/schemas.ts"

const Captured = Described(Money, "What the merchant has captured")
const Released = Described(Money, "What went back to the payer without being captured")
const Refunded = Described(Money, "What of the captured amount was refunded")
const CaptureBefore = Described(Timestamp, "What is not captured by then goes back to the payer by itself")

const escrowFields = Type.Object({
  address: Described(AddressText, "The escrow contract"),
  collector: Described(AddressText, "The contract that the payer's signature names"),
  refundCollector: Described(Nullable(AddressText), "The contract that pulls refunds by the merchant's allowance"),
  receiver: Described(AddressText, "Gets what is captured: the payout address when the checkout was made"),
  authorized: Described(Money, "What was reserved"),
  captured: Captured,
  released: Released,
  refunded: Refunded,
  capturable: Described(Money, "Reserved, and neither captured nor released"),
  refundable: Described(Money, "Captured, and not refunded"),
  authorizeBefore: Timestamp,
  captureBefore: CaptureBefore,
  refundBefore: Timestamp,
})
type EscrowFields = Static<typeof escrowFields>

/** The escrow of a session; null for a direct one. */
export const EscrowShown = Type.Unsafe<EscrowFields | null>({
  ...escrowFields,
  type: ["object", "null"],
  description: "Where the money is reserved; null for a direct checkout",
})

/** What the status answer adds for a session with an escrow. */
export const escrowStatus = {
  captured: Type.Optional(Captured),
  released: Type.Optional(Released),
  refunded: Type.Optional(Refunded),
  captureBefore: Type.Optional(CaptureBefore),
  authorization: Type.Optional(
    Type.Object(
      {
        primaryType: Type.Literal("ReceiveWithAuthorization"),
        to: AddressText,
        value: Type.String(),
        validAfter: Type.String(),
        validBefore: Type.String(),
        nonce: HashText,
      },
      {
        description:
          "Only with an escrow, while it can be paid: what the payer signs in the token's EIP-712 domain, with its own address as `from`",
      },
    ),
  ),
}
