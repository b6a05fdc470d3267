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
} from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"

const CapturedMoney = Described(Money, "The amount that the merchant has captured")
const Released = Described(Money, "What went back to the payer without being captured")
const Refunded = Described(Money, "How much of the captured amount was refunded")
const CaptureBefore = Described(Timestamp, "Money not captured by then goes back to the payer automatically")

const escrowFields = Type.Object({
  address: Described(AddressText, "The escrow contract"),
  collector: Described(AddressText, "The contract that the payer's signature names"),
  refundCollector: Described(Nullable(AddressText), "The contract that pulls refunds by the merchant's allowance"),
  receiver: Described(AddressText, "Gets captured money: the payout address at the checkout's creation"),
  authorized: Described(Money, "What was reserved"),
  captured: CapturedMoney,
  released: Released,
  refunded: Refunded,
  capturable: Described(Money, "Reserved, but not captured or released yet"),
  refundable: Described(Money, "Captured and not refunded"),
  authorizeBefore: Timestamp,
  captureBefore: CaptureBefore,
  refundBefore: Timestamp,
})
type EscrowFields = Static<typeof escrowFields>

/** The escrow of a session; null for a direct session. */
export const EscrowShown = Type.Unsafe<EscrowFields | null>({
  ...escrowFields,
  type: ["object", "null"],
  description: "Where the money is reserved; null for a direct checkout",
})

/** The captures and voids of a session that are not mined yet. */
export const OpenCalls = Type.Array(
  Type.Object({
    id: Type.String(),
    kind: Type.Union([Type.Literal("capture"), Type.Literal("void")]),
    amount: Money,
    heldFor: Described(
      Nullable(Type.String()),
      "Why it can't be executed now. It is retried, and the opposite decision withdraws it. Null if nothing prevents it",
    ),
  }),
  {
    description: "Captures and voids of an escrow payment that are not mined yet; only when a single session is read",
  },
)

const reclaimFields = Type.Object({
  from: Described(AddressText, "The payer, who sends it"),
  after: Described(Timestamp, "When the contract starts to accept it"),
  to: Described(AddressText, "The escrow contract"),
  data: Type.String({ description: "The calldata: 0x and hexadecimal" }),
})
const Reclaim = Type.Unsafe<null | Static<typeof reclaimFields>>({
  ...reclaimFields,
  type: ["object", "null"],
  description:
    "The transaction with which the payer can withdraw the rest from the escrow after the deadline, without the service; null if nothing is left",
})

/** The fields that the status answer adds for a session with an escrow. */
export const escrowStatus = {
  captured: Type.Optional(CapturedMoney),
  released: Type.Optional(Released),
  refunded: Type.Optional(Refunded),
  captureBefore: Type.Optional(CaptureBefore),
  reclaim: Type.Optional(Reclaim),
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
  status: Described(Type.Literal("pending"), "It is in progress; the checkout shows when its transaction is confirmed"),
  txHash: Nullable(HashText),
}

export const CaptureOrder = Strict(
  { sessionId: SessionId, amount: Type.Optional(Described(MoneyInput, "The whole rest by default")) },
  { sessionId: example, amount: "5.00" },
)
export type CaptureOrder = Static<typeof CaptureOrder>
export const Captured = Type.Object({ captureId: Type.String(), ...decided })

export const VoidOrder = Strict({ sessionId: SessionId }, { sessionId: example })
export const Voided = Type.Object({ voidId: Type.String(), ...decided })
