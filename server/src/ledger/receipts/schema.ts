/** The wire contract of receipts. */
import { Type } from "typebox"
import type { Row } from "../../platform/db/schema.ts"
import { AddressText, Described, HashText, ListEnd, Money, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { TimeInput } from "../../platform/http/time.ts"

const ReceiptType = Type.Unsafe<Row<"receipts">["type"]>({
  type: "string",
  enum: ["payment", "refund", "reversed", "capture", "void"],
  description: "What it proves. `reversed` revokes another receipt, because a reorg removed its transaction",
})

export const receiptFilter = {
  type: Type.Optional(ReceiptType),
  from: Type.Optional(TimeInput),
  to: Type.Optional(Described(TimeInput, "Like `from`; receipts settled at exactly this time are not included")),
}

const Receipt = Type.Object({
  seq: Nullable(
    Type.Integer({
      description: "Its place in the chain of your receipts, from 1; null until it is signed, within seconds",
    }),
  ),
  type: ReceiptType,
  about: Type.String({ description: "The payment, or the payout that executed an escrow call" }),
  resourceId: Type.String({ description: "The checkout, paywall or bundle that was paid" }),
  amount: Money,
  currency: Type.String(),
  token: AddressText,
  chain: Type.String(),
  settledAt: Timestamp,
  storageUri: Nullable(
    Type.String({ description: "Where its sealed bytes are: `l` bytes of `GET /receipts/:root`, starting at `o`" }),
  ),
  storageRoot: Nullable(Described(HashText, "The Merkle root of its batch")),
  anchorTxHash: Nullable(Described(HashText, "The transaction that wrote this root to the chain")),
  isErased: Type.Boolean({ description: "Its key was erased; only someone who kept the receipt can read it" }),
})

export const ReceiptList = Type.Object({ data: Type.Array(Receipt), ...ListEnd })
