/** The wire contract of escrows. */
import { type Static, Type } from "typebox"
import {
  AddressText,
  Described,
  HashText,
  Matching,
  Money,
  MoneyInput,
  Nullable,
  Strict,
  Timestamp,
} from "../http/schemas.ts"
import { idPattern } from "../ids.ts"

const CapturedMoney = Described(Money, "What the merchant has captured")
const Released = Described(Money, "What went back to the payer without being captured")
const Refunded = Described(Money, "What of the captured amount was refunded")
const CaptureBefore = Described(Timestamp, "What is not captured by then goes back to the payer by itself")

const escrowFields = Type.Object({
  address: Described(AddressText, "The escrow contract"),
  collector: Described(AddressText, "The contract that the payer's signature names"),
  refundCollector: Described(Nullable(AddressText), "The contract that pulls refunds by the merchant's allowance"),
  receiver: Described(AddressText, "Gets what is captured: the payout address when the checkout was made"),
  authorized: Described(Money, "What was reserved"),
  captured: CapturedMoney,
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
  captured: Type.Optional(CapturedMoney),
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

const SessionId = Matching(idPattern("cs"), "A checkout session's id")
const example = "cs_q7w2hc9n4m1xk8t5r3v6b0zd"
const decided = {
  sessionId: Type.String(),
  amount: Money,
  status: Described(
    Type.Literal("pending"),
    "It is carried out now; the checkout shows when its transaction is confirmed",
  ),
  txHash: Nullable(HashText),
}

export const CaptureOrder = Strict(
  { sessionId: SessionId, amount: Type.Optional(Described(MoneyInput, "By default all that is left")) },
  { sessionId: example, amount: "5.00" },
)
export type CaptureOrder = Static<typeof CaptureOrder>
export const Captured = Type.Object({ captureId: Type.String(), ...decided })

export const VoidOrder = Strict({ sessionId: SessionId }, { sessionId: example })
export const Voided = Type.Object({ voidId: Type.String(), ...decided })
