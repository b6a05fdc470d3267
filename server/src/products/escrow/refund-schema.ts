/** The wire contract of refunds. */
import { type Static, Type } from "typebox"
import {
  AddressText,
  Described,
  HashText,
  ListEnd,
  Matching,
  Money,
  MoneyInput,
  Nullable,
  Strict,
  Timestamp,
} from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"
import type { RefundStatus } from "./refund.ts"

const SessionId = Matching(idPattern("cs"), "A checkout session's id", { examples: ["cs_tz4a98xxat96iws9zmbrgj3a"] })

const Status = Type.Unsafe<RefundStatus>({
  type: "string",
  enum: ["pending", "needs_approval", "succeeded", "failed"],
  description:
    "pending: nothing to do. needs_approval: your payout wallet must first send the call in `approval`. succeeded: the payer has the money, and `payment.refunded` is sent. failed: nothing was refunded, or the refund was withdrawn; request it again",
})

const Call = Type.Object({ to: AddressText, data: Type.String({ description: "The calldata: 0x and hexadecimal" }) })

const Approval = Type.Unsafe<null | {
  owner: string
  token: string
  spender: string
  allowance: string | null
  needed: string
  call: Static<typeof Call>
}>({
  type: ["object", "null"],
  description:
    "What your payout wallet must allow before the refund can continue; null if nothing. It covers exactly all open refunds from that wallet",
  properties: {
    owner: Described(AddressText, "Your payout wallet, which got the payment and sends the call"),
    token: AddressText,
    spender: Described(AddressText, "The contract that pulls refunds, only for this service and this escrow"),
    allowance: Described(Nullable(Money), "The wallet's current allowance; null while no endpoint answers"),
    needed: Described(Money, "The required allowance: the sum of your open refunds"),
    call: Described(Call, "`approve(spender, needed)` of the token, ready to be signed"),
  },
})

export const Refund = Type.Object({
  refundId: Type.String({ pattern: idPattern("re") }),
  sessionId: Type.String(),
  amount: Money,
  currency: Type.String(),
  chain: Type.String(),
  status: Status,
  reason: Described(Nullable(Type.String()), "As it was given"),
  message: Described(Nullable(Type.String()), "Why it waits or failed, as sentences; null if there is nothing to say"),
  recipient: Described(AddressText, "The payer, who gets the money"),
  txHash: Described(Nullable(HashText), "Once it is mined"),
  approval: Approval,
  createdAt: Timestamp,
  updatedAt: Timestamp,
})
export const RefundList = Type.Object({ data: Type.Array(Refund), ...ListEnd })

export const RefundCreate = Strict(
  {
    sessionId: SessionId,
    amount: Type.Optional(Described(MoneyInput, "The whole rest if left out")),
    reason: Type.Optional(
      Matching("\\S", "Text that is not blank", { maxLength: 500, examples: ["Returned by the customer"] }),
    ),
  },
  { sessionId: "cs_q7w2hc9n4m1xk8t5r3v6b0zd", amount: "1.00" },
)
export type RefundCreate = Static<typeof RefundCreate>

export const RefundId = Type.Object({
  id: Type.String({ description: "The refund's id", examples: ["re_tz4a98xxat96iws9zmbrgj3a"] }),
})
export const RefundFilters = Type.Object({
  sessionId: Type.Optional(Described(SessionId, "Only refunds of this checkout")),
  status: Type.Optional(Described(Status, "Filter by status")),
})
